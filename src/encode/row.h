/* Values, rows and keys as JSON, and the state of an encoder that both formats share. Inside encode/ only. */
#ifndef MR_ENCODE_ROW_H
#define MR_ENCODE_ROW_H

#include "encode/plan.h"

struct mr_encoder {
    struct mr_encode_options options;
    struct mr_topics *topics;
    mr_encode_keys_fn keys;
    void *keys_context;

    struct mr_plan **plans; /* open addressing by relation */
    uint32_t plan_capacity; /* a power of two */
    uint32_t plan_count;
    struct mr_plan *last_plan;

    struct mr_text database;    /* escaped */
    struct mr_text prefix;      /* topic prefix, escaped */
    struct mr_text unavailable; /* placeholder as a JSON string */
    struct mr_text clock;       /* `"ts_ms":…,"ts_us":…,"ts_ns":…}` of the time now */
    int64_t now_ns;
    const struct mr_topic *message_topic;
    const struct mr_topic *dead_letter_topic; /* NULL: not wanted */
    struct mr_table_line *messages;           /* where messages are counted; NULL: nowhere */
};

/* One value. An unchanged TOASTed one is taken from `old` when that has it, else the placeholder. */
void mr_row_value(struct mr_buffer *out, const struct mr_encoder *encoder, enum mr_writer writer,
                  const struct mr_datum *value, const struct mr_datum *old);

/* `{"a":1,…}` with every column of the relation. `old` (kind FULL) may supply unchanged values. */
void mr_row_object(struct mr_buffer *out, const struct mr_encoder *encoder,
                   const struct mr_plan *plan, const struct mr_tuple *row,
                   const struct mr_tuple *old);

/* The same with the columns of the key, in key order. */
void mr_row_key_object(struct mr_buffer *out, const struct mr_encoder *encoder,
                       const struct mr_plan *plan, const struct mr_tuple *row,
                       const struct mr_tuple *old);

/* A record at the change's position whose value (and key) come with mr_record_end calls. */
struct mr_record mr_record_of(const struct mr_plan *plan, const struct mr_change *change,
                              uint32_t part);

/* The two formats. `ret_records` has room for MR_RECORDS_PER_CHANGE_MAX. */
uint32_t mr_debezium_change(struct mr_encoder *encoder, struct mr_plan *plan,
                            const struct mr_change *change, struct mr_buffer *out,
                            struct mr_record *ret_records);
uint32_t mr_debezium_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                             struct mr_buffer *out, struct mr_record *ret_records);
uint32_t mr_flat_change(struct mr_encoder *encoder, struct mr_plan *plan,
                        const struct mr_change *change, struct mr_buffer *out,
                        struct mr_record *ret_records);

#endif
