/* An encoder's state, for those who write with it. Inside encode/ only; one thread, but for what
 * encode.h says of topics. */
#pragma once

#include "base/index.h"
#include "encode/transaction.h"
#include "encode/value_topics.h"
#include "encode/values/convert.h"

/* The time at which events are made: `"ts_ms":…,"ts_us":…,"ts_ns":…}`, or the same in Avro. */
struct mr_stamp {
    int64_t now_ns;
    int64_t commit_ns; /* of the transaction at hand: no event was made before it */
    struct mr_bytes clock;
};

/* The first thing that is wrong with the change at hand. */
struct mr_fault {
    const char *what; /* NULL: nothing */
    uint32_t column;
};

/* What is left out, which the log says once a second. */
struct mr_tally {
    uint64_t count;
    int64_t logged_ns;
};

/* How the item at hand is encoded by the policy for what is too large (oversize.c). */
struct mr_placing {
    const struct mr_plan *only; /* of a table's streams the one to encode for; NULL: all */
    bool has_told;              /* with `only`: what comes once a change is there already */
    bool writes_letter;         /* whose key is JSON in every format */
};

struct mr_plans {
    struct mr_plan **items;
    uint32_t capacity;
    struct mr_index index;           /* by relation */
    struct mr_plan_layout **layouts; /* that several plans may have */
    uint32_t layout_room;
    struct mr_index layout_index; /* by number */
};

struct mr_encoder {
    struct mr_encode_options options;
    struct mr_topics *topics;
    const struct mr_form_ops *form; /* of tables that are no outbox, and of messages */
    struct mr_plans plans;
    struct mr_plan *last_plan; /* found last: rows of one table tend to come together */
    struct mr_placing placing;
    char *database;
    struct mr_scratch scratch;
    struct {
        uint32_t *columns; /* of the row at hand whose values are not known (plain types) */
        uint32_t count;
    } missing;
    struct mr_stamp stamp;
    struct mr_fault fault;
    struct {
        const struct mr_topic *message;
        const struct mr_topic *heartbeat, *schema, *dead_letter; /* NULL: not wanted */
    } names;
    struct mr_avro_pair message_avro; /* MR_NO_SCHEMA: no message was seen yet */
    struct mr_bytes around;           /* of JSON with schemas: mr_connect_around */
    struct mr_table_line *messages;   /* where messages are counted; NULL: nowhere */
    struct mr_value_topics value_topics;
    struct mr_tally ignored; /* rows of an outbox */
    struct mr_tally dropped; /* messages */
    struct mr_transaction_counts transaction;
    struct mr_outbox_message *outbox_message; /* NULL: none is an event */
};

static inline void mr_encoder_latch(struct mr_encoder *encoder, uint32_t column, const char *what)
{
    if (encoder->fault.what == NULL) {
        encoder->fault = (struct mr_fault){.what = what, .column = column};
    }
}

/* Counts one more; whether the log is to say it. */
bool mr_tally(struct mr_tally *tally, int64_t now_ns);

/* The transaction at hand has another commit time: the clock of events may be behind the server's,
 * and is read once a round of receiving only. */
void mr_encoder_set_commit_time(struct mr_encoder *encoder, int64_t commit_time_us);

/* The plan of a relation version, made when it is asked for first. */
mr_status mr_plan_for(struct mr_encoder *encoder, const struct mr_relation *relation,
                      struct mr_plan **ret_plan, struct mr_error *ret_error);

/* Whether an update gives the row another key, as it is written. */
bool mr_key_changed(struct mr_encoder *encoder, const struct mr_plan *plan,
                    const struct mr_change *change);

/* A record at the change's position, without key and value. */
static inline struct mr_record mr_record_of(const struct mr_plan *plan,
                                            const struct mr_change *change, uint32_t part)
{
    return (struct mr_record){
        .topic = plan->topic,
        .position = change->position,
        .commit_time_us = change->transaction->commit_time_us,
        .xid = change->transaction->xid,
        .part = (uint8_t)part,
    };
}

/* The part of a schema event's position: rows keep theirs, whether one comes before them or not. */
enum { MR_PART_SCHEMA = 9 };

/* The columns of the change's table, as a record at the change's position. */
void mr_schema_event(struct mr_encoder *encoder, const struct mr_plan *plan,
                     const struct mr_change *change, struct mr_buffer *out,
                     struct mr_record *ret_record);

/* The end of a transaction, MR_TRANSACTION_END or MR_TRANSACTION_SHORT_END. */
mr_status mr_encode_end_as(struct mr_encoder *encoder, const struct mr_transaction_end *end,
                           enum mr_transaction_part part, struct mr_buffer *buffer,
                           struct mr_record *ret_records, uint32_t *ret_count);
