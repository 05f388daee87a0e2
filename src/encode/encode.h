/* From a change to the records a consumer reads: one plan a relation version (plan.h) holds what
 * does not differ from row to row, then keys and values are written once, straight into the batch.
 * Source thread. The form of `debezium` events is that of Debezium 3.7 for PostgreSQL; `flat` is
 * Outboxx's. */
#pragma once

#include "base/counted.h"
#include "base/pattern.h"
#include "base/rewrite.h"
#include "encode/column_rules.h"
#include "encode/table_counts.h"
#include "event/batch.h"
#include "event/event.h"
#include "event/schemas.h"

enum mr_format {
    MR_FORMAT_DEBEZIUM,
    MR_FORMAT_AVRO, /* the same in Avro; with types = MR_TYPES_DEBEZIUM and `schemas` */
    MR_FORMAT_FLAT,
    MR_FORMAT_CLOUDEVENTS,
    /* a row and nothing else: what Debezium's ExtractNewRecordState makes of its events */
    MR_FORMAT_ROW,
};

/* Of JSON: what comes with a schema around it, as Kafka Connect's JsonConverter writes it. Bits. */
enum mr_json_schemas { MR_JSON_BARE, MR_JSON_KEY_SCHEMA, MR_JSON_VALUE_SCHEMA, MR_JSON_SCHEMAS };

/* The subject of a schema, in a registry. */
enum mr_subject_strategy {
    MR_SUBJECT_TOPIC,        /* <topic>-key, <topic>-value */
    MR_SUBJECT_RECORD,       /* the schema's name */
    MR_SUBJECT_TOPIC_RECORD, /* <topic>-<the schema's name> */
};

/* How CloudEvents are written. */
enum mr_cloud_mode { MR_CLOUD_STRUCTURED, MR_CLOUD_BINARY };

/* Of MR_FORMAT_ROW: what becomes of a delete. Debezium's delete.tombstone.handling.mode, in its
 * order. */
enum mr_delete_mode {
    MR_DELETE_DROP,
    MR_DELETE_NULL,    /* "tombstone": the JSON null, which JsonConverter makes of it */
    MR_DELETE_REWRITE, /* the row with `__deleted`, which other rows have too */
    MR_DELETE_REWRITE_WITH_TOMBSTONE,
    MR_DELETE_TO_TOMBSTONE,
};

/* What of an event may be added to its row, or to its headers; Debezium's names are in bare.c. */
enum mr_event_field {
    MR_FIELD_OP,
    MR_FIELD_TS_MS,
    MR_FIELD_TS_US,
    MR_FIELD_TS_NS,
    MR_FIELD_SOURCE_VERSION,
    MR_FIELD_SOURCE_CONNECTOR,
    MR_FIELD_SOURCE_NAME,
    MR_FIELD_SOURCE_TS_MS,
    MR_FIELD_SOURCE_SNAPSHOT,
    MR_FIELD_SOURCE_DB,
    MR_FIELD_SOURCE_SEQUENCE,
    MR_FIELD_SOURCE_TS_US,
    MR_FIELD_SOURCE_TS_NS,
    MR_FIELD_SOURCE_SCHEMA,
    MR_FIELD_SOURCE_TABLE,
    MR_FIELD_SOURCE_TXID,
    MR_FIELD_SOURCE_LSN,
    MR_FIELD_SOURCE_XMIN,
    MR_FIELD_SOURCE_ORIGIN,
    MR_FIELD_SOURCE_ORIGIN_LSN,
};

struct mr_added_field {
    enum mr_event_field field;
    const char *name; /* that it has in the row, or as a header */
};

struct mr_bare_options {
    enum mr_delete_mode deletes;
    const struct mr_added_field *fields;
    const struct mr_added_field *headers;
    uint32_t field_count;
    uint32_t header_count;
};

/* Forms of values; docs/types.md has the table. */
enum mr_types {
    MR_TYPES_TEXT, /* numbers and booleans, and PostgreSQL's text of everything else: Outboxx's */
    MR_TYPES_DEBEZIUM,
    MR_TYPES_PLAIN,
};

/* Debezium's options of the same names, for MR_TYPES_DEBEZIUM; zero is its default. */
enum mr_decimal_mode { MR_DECIMAL_PRECISE, MR_DECIMAL_STRING, MR_DECIMAL_DOUBLE };
enum mr_time_mode {
    MR_TIME_ADAPTIVE,
    MR_TIME_ADAPTIVE_MICROSECONDS, /* of `time` alone */
    MR_TIME_CONNECT,
    MR_TIME_ISOSTRING,
    MR_TIME_MICROSECONDS,
    MR_TIME_NANOSECONDS,
};
enum mr_binary_mode { MR_BINARY_BYTES, MR_BINARY_BASE64, MR_BINARY_BASE64_URL, MR_BINARY_HEX };
enum mr_interval_mode { MR_INTERVAL_NUMERIC, MR_INTERVAL_STRING };
enum mr_hstore_mode { MR_HSTORE_JSON, MR_HSTORE_MAP };

struct mr_value_modes {
    enum mr_decimal_mode decimal;
    enum mr_time_mode time;
    enum mr_binary_mode binary;
    enum mr_interval_mode interval;
    enum mr_hstore_mode hstore;
};

/* Bits of `operations` and `skipped_operations`: 1 << enum mr_op. */
#define MR_OPERATIONS_ALL 0xffu

/* What one configured stream (a table, in Outboxx's words a stream) wants. A table may have
 * several, each with a topic of its own. Strings are the caller's. */
struct mr_route {
    const char *schema;
    const char *table;
    const char *topic;      /* NULL: "<prefix>.<schema>.<table>" */
    const char *key_column; /* flat format: its text is the key; NULL: the primary key's */
    uint32_t operations;    /* bits of the operations that are passed on */
};

/* Topics that a value of an outbox's rows names. A value whose topic can't be is an error, or goes
 * to the fallback. */
struct mr_value_route {
    struct mr_rewrite rewrite;  /* of the value */
    const char *fallback_topic; /* NULL: an error */
    uint32_t topics_max;        /* of all topics that values name */
};

/* Whether tables may have one topic, in which rows of one could pass for another's. */
enum mr_sharing {
    MR_SHARING_REFUSED,
    MR_SHARING_ALLOWED,
    MR_SHARING_IN_KEY, /* a field of the key tells tables apart */
};

/* Topics of tables, made of the names that they have else. Kafka Connect's RegexRouter, and
 * Debezium's ByLogicalTableRouter. */
struct mr_routing {
    struct mr_rewrite topic; /* regex NULL: they stay */
    enum mr_sharing sharing;
    const char *key_field;
    struct mr_rewrite key; /* of the topic's first name, for that field; regex NULL: it stays */
};

/* Where a further column of an outbox goes. */
enum mr_outbox_placement { MR_OUTBOX_HEADER, MR_OUTBOX_ENVELOPE, MR_OUTBOX_PARTITION };

struct mr_outbox_field {
    const char *column;
    const char *name; /* of the header, or in the envelope */
    enum mr_outbox_placement placement;
    bool may_lack; /* a table that does not have the column is passed on without it */
};

/* Bits: what stays in JSON of which else null and empty lists are left out. */
enum mr_outbox_keeps { MR_OUTBOX_KEEPS_NULLS = 1, MR_OUTBOX_KEEPS_EMPTY = 2 };

/* What becomes of an update in an outbox, which is not passed on. */
enum mr_outbox_update { MR_OUTBOX_WARN, MR_OUTBOX_LOG_ERROR, MR_OUTBOX_FATAL };

/* Outboxes: tables whose inserts are events themselves. What Debezium's EventRouter does;
 * docs/outbox.md. Strings are the caller's, and live as long as the encoder. */
struct mr_outbox_options {
    const struct mr_table_pattern *tables;
    uint32_t table_count;
    const char *id, *key, *payload, *route_by; /* names of columns */
    const char *timestamp;                     /* NULL: the commit time */
    struct mr_value_route route;
    const struct mr_outbox_field *fields;
    uint32_t field_count;
    bool key_is_json, value_is_json; /* else the bare text */
    bool expands;                    /* text that is a JSON object or list becomes one */
    uint32_t keeps;                  /* then, enum mr_outbox_keeps */
    bool tombstones;                 /* a null value where the payload is empty */
    enum mr_outbox_update update;
    const char *messages; /* prefix of logical messages that are events too; NULL: none are */
};

/* What becomes of a change with a record that is too large. */
enum mr_oversize {
    MR_OVERSIZE_FAIL,        /* it is an error */
    MR_OVERSIZE_PLACEHOLDER, /* its large values are left out */
    MR_OVERSIZE_DEAD_LETTER, /* a record in another topic tells of it, and nothing else */
    /* no policy: it fits without what its transaction says of itself, and comes so */
    MR_OVERSIZE_BARE,
    MR_OVERSIZE_COUNT
};

/* What becomes of text that is not UTF-8, which only a SQL_ASCII database has. In a key it is in
 * hexadecimal, unless it is refused, and in logical messages, which anybody may send, replaced. */
enum mr_invalid_utf8 {
    MR_INVALID_REPLACED, /* U+FFFD for each byte, as in Debezium */
    MR_INVALID_BASE64,   /* all of the text in base64 */
    MR_INVALID_REFUSED,  /* it is an error */
};

struct mr_encode_options {
    /* what mr_encoder_change takes over points into it; NULL: it stays */
    struct mr_counted *memory;
    enum mr_format format;
    enum mr_types types;
    enum mr_json_schemas json_schemas; /* of MR_FORMAT_DEBEZIUM and _ROW, with MR_TYPES_DEBEZIUM */
    enum mr_invalid_utf8 invalid_utf8;
    enum mr_cloud_mode cloud_mode;
    struct mr_schemas *schemas; /* of MR_FORMAT_AVRO: where its schemas get their ids; else NULL */
    enum mr_subject_strategy subjects;
    struct mr_value_modes modes;
    struct mr_bare_options bare;   /* of MR_FORMAT_ROW */
    const char *topic_prefix;      /* also the `name` of the source block */
    const char *topic_delimiter;   /* between the parts of a topic's name; NULL: a dot */
    const char *unavailable_value; /* placeholder of an unchanged TOASTed value */
    bool tombstones;               /* a null value after each delete (debezium) */
    uint32_t skipped_operations;
    struct mr_column_rules column_rules;
    const char *hash_salt;    /* NULL: no rule hashes */
    int unmatched;            /* enum mr_unmatched, of hidden/hidden.h */
    struct mr_hidden *hidden; /* NULL: what the rules hide of tables that change is not looked at */
    bool skip_unchanged;      /* updates after which all columns are as they were */
    const struct mr_route *routes; /* other tables are passed on with the defaults, unless … */
    uint32_t route_count;
    bool routes_only;                    /* … this is set: then only routed tables are */
    const char *const *message_prefixes; /* of logical messages: options.def, messages.prefixes */
    uint32_t message_prefix_count;
    size_t message_bytes_max;       /* of a prefix and its content; larger ones are dropped */
    struct mr_table_counts *counts; /* events are counted there; NULL: nowhere */
    enum mr_oversize oversize;
    size_t record_bytes_max; /* of a key and its value; 0: no limit */
    /* Whether the sink counts the record as more than `bytes_max` as it is, and as `sent` or more
     * as it would send it, alone. Any thread; `sink` is its context. NULL: no record is. */
    bool (*is_more)(const void *sink, const struct mr_record *record, size_t bytes_max,
                    size_t sent);
    const void *sink;
    const char *schema_topic;               /* where forms of tables are told; NULL: nowhere */
    const char *transaction_topic;          /* where transactions are told; NULL: nowhere */
    const char *heartbeat_topic;            /* where heartbeats are; NULL: nowhere */
    const char *kept_topic;                 /* of positions: no value of a row may name it; NULL */
    const struct mr_outbox_options *outbox; /* NULL: no table is one */
    const struct mr_routing *routing;       /* NULL: no topic is routed */
    const char *dead_letter_topic;          /* where MR_OVERSIZE_DEAD_LETTER writes to */
    bool tells_keys; /* in errors about a row; else what tells them apart (mr_encode_row_name) */
};

enum {
    MR_STREAMS_PER_TABLE_MAX = 8,
    /* Delete, tombstone and create in each stream; a transaction's beginning and a table's form
     * before them. */
    MR_RECORDS_PER_CHANGE_MAX = 3 * MR_STREAMS_PER_TABLE_MAX + 2,
    MR_MESSAGE_PREFIX_MAX = 255
};

/* "<prefix>.<schema>.<table>" with everything but letters, digits, '.', '_' and '-' replaced by
 * '_'; `delimiter` (NULL: a dot) stands between the parts, and an empty schema leaves its part out.
 * The caller frees it. */
char *mr_topic_name(const char *prefix, const char *delimiter, const char *schema,
                    const char *table);

/* The topic of a table that no route names one for, by the routing. The caller frees it. */
char *mr_table_topic(const struct mr_encode_options *options, const char *schema,
                     const char *table);

/* Of all topics that a table's rows go to, by its routes or without any; the caller frees each.
 * Returns how many: none of an outbox, whose rows name theirs. */
uint32_t mr_table_topics(const struct mr_encode_options *options, const char *schema,
                         const char *table, char *ret_names[MR_STREAMS_PER_TABLE_MAX]);

/* Whether rows of that table are events of an outbox, which have topics of their own. */
bool mr_is_outbox(const struct mr_encode_options *options, const char *schema, const char *table);

/* The field that `text` names, as Debezium has it: "source.lsn", or "lsn" alone. `*ret_has_part`:
 * with the part that it is in. */
bool mr_event_field_find(mr_slice text, enum mr_event_field *ret_field, bool *ret_has_part);

struct mr_encoder;

struct mr_encoder *mr_encoder_new(const struct mr_encode_options *options,
                                  struct mr_topics *topics);
void mr_encoder_free(struct mr_encoder *encoder);

/* Another encoder with the same options and topics, for another thread. It makes topics and lines
 * of counts as the first one does: on the source thread only (mr_encoder_topic). */
struct mr_encoder *mr_encoder_clone(const struct mr_encoder *encoder);

/* From now on `options` hold, and their memory is held: routes, skipped operations, tombstones and
 * what becomes of large records; the others stay as they are. On the source thread only, while
 * nobody else encodes. */
void mr_encoder_change(struct mr_encoder *encoder, const struct mr_encode_options *options);

/* Makes the relation's plan. `*ret_topic`: where its events of that operation go; NULL: they are
 * not passed on. */
mr_status mr_encoder_topic(struct mr_encoder *encoder, const struct mr_relation *relation,
                           enum mr_op op, const struct mr_topic **ret_topic,
                           struct mr_error *ret_error);

/* Whether events show the column, in whatever form. It makes the relation's plan. */
bool mr_encoder_shows(struct mr_encoder *encoder, const struct mr_relation *relation,
                      uint32_t column);

/* Rows of the one come as those of the other from now on. MR_ERR_POISON: they would show what rules
 * for columns hide of the partition. */
mr_status mr_encoder_part(struct mr_encoder *encoder, const struct mr_relation *root,
                          const struct mr_relation *part, struct mr_error *ret_error);

/* Whether a stream that has the copied rows of the change's table has nothing of the change. The
 * relation has its plan. */
bool mr_encoder_passes_by(struct mr_encoder *encoder, const struct mr_change *change);

/* Database name of the source block; before the first change and after each reconnect. */
void mr_encoder_set_database(struct mr_encoder *encoder, const char *database);

/* `now_ns`: the wall clock that the next events carry as the time they were made. */
void mr_encoder_set_clock(struct mr_encoder *encoder, int64_t now_ns);

/* Appends key and value of the change to `buffer` and fills up to MR_RECORDS_PER_CHANGE_MAX
 * records.
 *
 * MR_OK: `*ret_count` records (0 when the change is filtered) point into the buffer's memory.
 * MR_FULL: it does not fit; the buffer is spoilt and the same change may be encoded again
 * elsewhere. Any other status: the change can't be encoded (unknown key column, binary datum,
 * …). */
mr_status mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                           struct mr_buffer *buffer, struct mr_record *ret_records,
                           uint32_t *ret_count, struct mr_error *ret_error);

/* The same for a logical message; 0 records when it is not wanted, or too large. The flat format
 * has none. */
mr_status mr_encode_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                            struct mr_buffer *buffer, struct mr_record *ret_records,
                            uint32_t *ret_count, struct mr_error *ret_error);

/* The end of a transaction, after its last change. */
struct mr_transaction_end {
    const struct mr_transaction *transaction;
    struct mr_position position;
};

enum mr_item_kind { MR_ITEM_CHANGE, MR_ITEM_MESSAGE, MR_ITEM_END, MR_ITEM_RECORD };

/* What is encoded as a whole, with a position of its own. */
struct mr_item {
    enum mr_item_kind kind;
    union {
        const struct mr_change *change;
        const struct mr_message_event *message;
        const struct mr_transaction_end *end;
        const struct mr_record *record; /* made already, between two transactions; it is copied */
    };
};

mr_status mr_encode_other(struct mr_encoder *encoder, const struct mr_item *item,
                          struct mr_buffer *buffer, struct mr_record *ret_records,
                          uint32_t *ret_count, struct mr_error *ret_error);

/* A sign of life in `buffer`, without a position; there is a topic for it. */
struct mr_record mr_encoder_heartbeat(const struct mr_encoder *encoder, int64_t wall_ns,
                                      struct mr_buffer *buffer);

/* As mr_encode_change, any item. */
static inline mr_status mr_encode(struct mr_encoder *encoder, const struct mr_item *item,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count, struct mr_error *ret_error)
{
    if (MR_LIKELY(item->kind == MR_ITEM_CHANGE)) {
        return mr_encode_change(encoder, item->change, buffer, ret_records, ret_count, ret_error);
    }
    return mr_encode_other(encoder, item, buffer, ret_records, ret_count, ret_error);
}

/* With a transaction topic, on the stream's thread: a transaction begins, for the first time or
 * again. `is_told`: its BEGIN is kept already. */
void mr_encoder_begin(struct mr_encoder *encoder, const struct mr_transaction *transaction,
                      bool is_told);

/* Counts a change or message as event of its transaction, whether it was passed on now, before, or
 * not at all. */
mr_status mr_encoder_pass(struct mr_encoder *encoder, const struct mr_item *item,
                          struct mr_error *ret_error);

/* Whether the transaction's BEGIN is kept. */
bool mr_encoder_has_begun(const struct mr_encoder *encoder);

/* After the item that was counted last. */
struct mr_position mr_encoder_end_position(const struct mr_encoder *encoder);

enum { MR_ROW_NAME_MAX = 256 };

/* Names the change's row for a person who looks for it: `with key {"id":1}` with
 * options.tells_keys, else `whose key has SHA-256 0123456789abcdef…` of the same text, in which
 * columns are masked as in events. "" where there is no key, or it is not known. Seldom needed, and
 * asks for memory. */
void mr_encode_row_name(struct mr_encoder *encoder, const struct mr_change *change,
                        char ret[MR_ROW_NAME_MAX]);

const struct mr_encode_options *mr_encoder_options(const struct mr_encoder *encoder);

/* Counts a change or message that was encoded, once its records are kept: in memory that lasts at
 * least for the call. */
void mr_encoder_count(struct mr_encoder *encoder, const struct mr_item *item,
                      const struct mr_record *records, uint32_t count);

/* Frees the plan of a relation that ends. */
void mr_encoder_forget(struct mr_encoder *encoder, const struct mr_relation *relation);

/* `record` is of a kind that tells its position (not MR_RECORD_EVENT), in a batch of the caller's,
 * and was given another. */
void mr_record_set_position(struct mr_record *record);
