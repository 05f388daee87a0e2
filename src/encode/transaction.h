/* Transactions as Debezium tells them: BEGIN and END in a topic of their own, and each event's
 * place among the transaction's. Inside encode/ only; the thread of the stream.
 *
 * Places count the events of the whole transaction, those that are not sent again after a restart
 * too: so they are the same each time the server sends it. */
#pragma once

#include "base/index.h"
#include "encode/plan.h"

struct mr_transaction_table;

struct mr_transaction_counts {
    const struct mr_topic *topic; /* NULL: none of this is wanted */
    enum mr_json_schemas schemas; /* of that topic's records */
    struct mr_position last;      /* that was counted: an item may come again */
    mr_lsn begin_lsn;
    uint64_t number;  /* of the transaction at hand; slots of another one are void */
    bool begin_waits; /* for the transaction's first record */
    uint64_t total;
    struct mr_transaction_table *tables; /* that have events in it */
    uint32_t table_capacity;
    struct mr_index index; /* of them, by name */
    struct mr_bytes names;
    struct mr_bytes order; /* in which END has them */
    struct mr_transaction_slot messages;
};

void mr_transaction_init(struct mr_transaction_counts *counts, const struct mr_topic *topic,
                         enum mr_json_schemas schemas);
void mr_transaction_done(struct mr_transaction_counts *counts);

/* Forgets what was counted. */
void mr_transaction_reset(struct mr_transaction_counts *counts,
                          const struct mr_transaction *transaction);

/* Adds to a table's events, and finds its slot. That is the plan's, or that of the messages, for
 * which NULL names stand. */
void mr_transaction_add(struct mr_transaction_counts *counts, struct mr_transaction_slot *slot,
                        const char *schema, const char *table, uint32_t events);

/* `,"transaction":{…}`: the place of an event, `ahead` after the one that is counted next. The slot
 * is found. */
void mr_transaction_block(struct mr_buffer *out, const struct mr_transaction_counts *counts,
                          const struct mr_transaction_slot *slot, uint32_t xid, mr_lsn lsn,
                          uint32_t ahead);

enum mr_transaction_part {
    MR_TRANSACTION_BEGIN,
    MR_TRANSACTION_END,
    MR_TRANSACTION_SHORT_END, /* without the counts of tables */
};

/* BEGIN, with the position of the transaction's first record, which follows it; or END. */
void mr_transaction_record(struct mr_buffer *out, struct mr_transaction_counts *counts,
                           const struct mr_transaction *transaction, struct mr_position position,
                           enum mr_transaction_part part, struct mr_record *ret_record);
