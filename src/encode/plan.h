/* What a relation version needs, worked out once: topic, key columns, column names already escaped, and
 * how each type is written. Inside encode/ only. */
#ifndef MR_ENCODE_PLAN_H
#define MR_ENCODE_PLAN_H

#include "encode/encode.h"

/* Bytes on the heap that are rendered now and then and copied often. */
struct mr_text {
    uint8_t *data;
    size_t len;
    size_t capacity;
};

/* How a value's text becomes JSON. */
enum mr_writer {
    MR_WRITE_STRING,  /* quoted and escaped */
    MR_WRITE_PLAIN,   /* quoted; no text of the type has anything to escape, unless a server lies */
    MR_WRITE_NUMBER,  /* as it is, once it is seen to be one */
    MR_WRITE_FLOAT,   /* as it is, but NaN and the infinities quoted */
    MR_WRITE_BOOL,    /* t, f */
    MR_WRITE_CONVERT, /* by the column's conversion */
    MR_WRITE_ABSENT,  /* the column is left out */
};

struct mr_type_form;

/* The columns of an outbox, by their index; MR_NO_COLUMN: there is none. */
enum { MR_NO_COLUMN = MR_COLUMNS_MAX };

struct mr_outbox_columns {
    uint32_t id, key, payload, route_by, timestamp;
    bool has_envelope;
    uint32_t fields[]; /* as the options have them */
};

/* Where the events of a table are counted in one transaction. */
struct mr_transaction_slot {
    uint64_t number; /* of the transaction; 0: none */
    uint32_t table;
};

/* Where the rows of a table go that a column's value names the topic of. */
struct mr_place {
    struct mr_value_route route;
    uint32_t column;
    bool is_held;       /* by the identity, so that the value is known which a row had before */
    char *memory;       /* of the names in `route` */
    uint32_t columns[]; /* those of the key, and that one */
};

struct mr_plan_column {
    mr_slice
        prefix; /* `{"name":` of the first column, `,"name":` of the others; empty: it is left out */
    enum mr_writer writer;
    const struct mr_type_form *form; /* NULL but with MR_WRITE_CONVERT */
};

struct mr_avro_schema;

/* A table's schemas in Avro, or those of messages, and what they are known by. */
struct mr_avro_pair {
    struct mr_avro_schema *key; /* NULL: there is no key */
    struct mr_avro_schema *value;
    uint32_t key_index;
    uint32_t value_index;
    bool hex_is_text; /* what is told as {"hex":…} in JSON: the same in a string */
};

struct mr_plan {
    const struct mr_relation *relation;
    const struct mr_topic *topic; /* NULL: nothing of this relation is passed on */
    const struct mr_route *route; /* NULL: none configured */
    uint32_t operations;          /* bits that are passed on */
    struct mr_table_line *line;   /* where its events are counted; NULL: nowhere */
    struct mr_plan_column *columns;
    struct mr_type_form *forms;  /* of the columns that have one */
    const uint32_t *key_columns; /* the relation's, or routing_column */
    mr_slice *key_prefixes;
    mr_slice
        key_end; /* of a key that is an object: with a field for the table, where topics are shared */
    uint32_t key_count;
    uint32_t routing_column;
    /* What tells where a row is: an update that changes one of these moves it. The key's columns, and the one that names its
     * topic. */
    const uint32_t *place_columns;
    uint32_t place_count;
    bool is_unusual;        /* mr_plan_is_unusual */
    struct mr_place *place; /* NULL: all its events have one topic */
    struct mr_plan
        *next; /* of the table's next stream; what comes once a change is the first one's */
    bool skips_unchanged;             /* updates that leave all columns as they were */
    bool tells_schema;                /* before the next row: the form is new */
    struct mr_outbox_columns *outbox; /* NULL: it is none */
    bool tells_transaction;           /* each event's place in it */
    struct mr_transaction_slot slot;
    bool key_may_be_null; /* its values: chosen by the configuration */
    bool key_is_unheld;   /* by the identity, so that an update of it may not tell what it was */
    bool key_is_text;     /* flat format: the key is the first key column's bare text */
    uint8_t *names;       /* memory of all prefixes */
    uint8_t *key_tail;    /* and of key_end, where that is its own */
    struct mr_avro_pair avro;

    /* The parts of an event that stay the same for all changes of a relation in one transaction, around
     * the two places where the change's own LSN stands. */
    mr_lsn rendered_commit_lsn;
    enum mr_copy_mark rendered_mark;
    bool ends_open; /* the tail, in the transaction's block */
    mr_slice head, middle, tail;
    struct mr_text rendered;
};

/* Whether more than to write its events is to be done for a change. */
static inline bool mr_plan_is_unusual(const struct mr_plan *plan)
{
    return plan->skips_unchanged || plan->key_is_unheld || plan->tells_schema ||
           plan->tells_transaction || plan->outbox != NULL || plan->place != NULL ||
           plan->next != NULL || plan->avro.value != NULL;
}

static inline bool mr_plan_is_key(const struct mr_plan *plan, uint32_t column)
{
    for (uint32_t i = 0; i < plan->key_count; i++) {
        if (plan->key_columns[i] == column) {
            return true;
        }
    }
    return false;
}

/* `error` is filled when the relation can't be passed on as configured (NULL plan). */
struct mr_plan *mr_plan_new(const struct mr_encode_options *options, struct mr_topics *topics,
                            const struct mr_relation *relation, struct mr_error *ret_error);
void mr_plan_free(struct mr_plan *plan);

/* An empty buffer over `text` with at least `size` bytes, and its end. */
struct mr_buffer mr_text_begin(struct mr_text *text, size_t size);

#endif
