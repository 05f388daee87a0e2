/* What a relation version needs, worked out once: its form, its topic, key columns, names already
 * escaped, and how each type is written. A plan lives until its relation ends; what the columns
 * alone decide is shared. Inside encode/ only; the encoder's thread. */
#pragma once

#include "encode/encode.h"

/* Bytes on the heap that are rendered now and then and copied often. */
struct mr_bytes {
    uint8_t *data;
    size_t len;
    size_t capacity;
};

/* An empty buffer over `text` with at least `size` bytes, and its end. */
struct mr_buffer mr_text_begin(struct mr_bytes *text, size_t size);

/* What was appended since then. */
static inline mr_slice mr_text_since(const struct mr_buffer *out, const uint8_t *begin)
{
    return (mr_slice){.data = begin, .len = (size_t)(out->at - begin)};
}

/* How a value's text is written. */
enum mr_writer {
    MR_WRITE_STRING,  /* quoted and escaped */
    MR_WRITE_PLAIN,   /* quoted; no text of the type has anything to escape, unless a server lies */
    MR_WRITE_NUMBER,  /* as it is, once it is seen to be one */
    MR_WRITE_FLOAT,   /* as it is, but NaN and the infinities quoted */
    MR_WRITE_BOOL,    /* t, f */
    MR_WRITE_CONVERT, /* by the column's conversion */
    MR_WRITE_ABSENT,  /* the column is left out */
};

/* The rule by which the values of a type are written (values/rules.def). */
enum mr_rule {
#define MR_RULE(name, ...) MR_RULE_##name,
#include "encode/values/rules.def"
#undef MR_RULE
};

struct mr_type_form;

struct mr_plan_column {
    mr_slice prefix; /* `{"name":` of the first column, `,"name":` of others; empty: left out */
    enum mr_writer writer;
    enum mr_rule rule;
    const struct mr_type_form *form; /* NULL but with MR_WRITE_CONVERT */
};

/* How columns and key are written. */
struct mr_plan_layout {
    uint64_t number; /* of the relations' layout; 0: it is one plan's alone */
    uint32_t uses;
    struct mr_plan_column *columns;
    struct mr_type_form *type_forms; /* of the columns that have one */
    mr_slice *key_prefixes;
    uint8_t *names; /* memory of all prefixes */
};

struct mr_plan_key {
    const uint32_t *columns;  /* the relation's, or routing_column */
    const mr_slice *prefixes; /* the layout's */
    mr_slice end; /* of an object: with a field for the table, where topics are shared */
    mr_slice avro_end;
    uint8_t *tail; /* memory of both, where they are its own */
    uint32_t count;
    uint32_t routing_column;
    bool may_be_null; /* its values: chosen by the configuration */
    bool is_unheld;   /* by the identity, so that an update of it may not say what it was */
    bool is_text;     /* flat format: the first key column's bare text */
};

/* Where the events of a table are counted in one transaction. */
struct mr_transaction_slot {
    uint64_t number; /* of the transaction; 0: none */
    uint32_t table;
};

/* The parts of an event that are the same for all changes of a relation in one transaction, around
 * the places where the change's own LSN stands. */
struct mr_rendered {
    mr_lsn commit_lsn; /* 0: nothing is rendered */
    enum mr_copy_mark mark;
    bool ends_open; /* the tail, before the transaction's block */
    mr_slice head, middle, tail;
    mr_slice sequence; /* Avro: the beginning of the source block's `sequence` */
    struct mr_bytes text;
    size_t names_bytes; /* that the names in it take at most */
};

/* A table's schemas, or those of messages, in the options' schemas. */
struct mr_avro_pair {
    uint32_t key, value;
};
#define MR_NO_SCHEMA UINT32_MAX

struct mr_form_ops;
struct mr_outbox_columns;
struct mr_connect;

struct mr_plan {
    const struct mr_relation *relation;
    const struct mr_topic *topic; /* NULL: nothing of this relation is passed on */
    const struct mr_route *route; /* NULL: none configured */
    uint32_t operations;          /* bits that are passed on */
    struct mr_table_line *line;   /* where its events are counted; NULL: nowhere */
    struct mr_plan *next; /* of the table's next stream; schema and BEGIN are the first one's */
    const struct mr_form_ops *form;
    union { /* what the form needs */
        struct mr_outbox_columns *outbox;
        struct mr_avro_pair avro;
        struct mr_connect *connect;
    };
    struct mr_plan_layout *layout;
    const struct mr_plan_column *columns; /* the layout's */
    struct mr_plan_key key;
    struct mr_transaction_slot slot;
    bool is_unusual;        /* mr_plan_is_unusual */
    bool skips_unchanged;   /* updates that leave all columns as they were */
    bool tells_schema;      /* before the next row: its columns are new */
    bool tells_transaction; /* each event's place in it */
    struct mr_rendered rendered;
};

/* Whether more than to write its events is to be done for a change. */
static inline bool mr_plan_is_unusual(const struct mr_plan *plan)
{
    return plan->skips_unchanged || plan->key.is_unheld || plan->tells_schema ||
           plan->tells_transaction || plan->next != NULL;
}

/* The topic that the configuration names for the table's stream; NULL: none. */
static inline const char *mr_plan_named_topic(const struct mr_plan *plan)
{
    return plan->route == NULL ? NULL : plan->route->topic;
}

static inline bool mr_plan_is_key(const struct mr_plan *plan, uint32_t column)
{
    for (uint32_t i = 0; i < plan->key.count; i++) {
        if (plan->key.columns[i] == column) {
            return true;
        }
    }
    return false;
}

/* `error` is filled when the relation can't be passed on as configured (NULL plan). */
struct mr_plan *mr_plan_new(struct mr_encoder *encoder, const struct mr_relation *relation,
                            struct mr_error *ret_error);
void mr_plan_free(struct mr_encoder *encoder, struct mr_plan *plan);

/* As mr_encoder_part, of one of the table's streams. */
mr_status mr_plan_part(const struct mr_plan *plan, const struct mr_encode_options *options,
                       const struct mr_relation *part, struct mr_error *ret_error);

/* What a rewriting makes of a name (names.c); the caller frees it. What it makes too long is cut,
 * which is longer than Kafka takes too. */
char *mr_name_rewritten(const struct mr_rewrite *rewrite, const char *name);
