/* Which stream is wanted of which server. */
#pragma once

#include "base/counted.h"
#include "base/index.h"
#include "base/pattern.h"
#include "postgres/conn/condition.h"
#include "postgres/conn/pg_conn.h"
#include "postgres/conn/quote.h"

/* What tells a table's rows apart, as the user says. */
struct mr_table_key {
    const char *option; /* where that is said */
    struct mr_table_name table;
    const char *const *columns;
    uint32_t column_count;
};

/* Gets published tables with all their columns, where these have been so since before all that the
 * slot holds: as the stream will have them first, before it has any of their rows. Of a column it
 * has name and number, of a partition its outermost table. Source thread. */
struct mr_columns_listener {
    void (*take)(void *context, const struct mr_relation *view);
    void *context;
};

/* Of a key's columns. */
enum mr_key_order {
    MR_KEY_ORDER_AUTO, /* the table's, for want of a reason */
    MR_KEY_ORDER_TABLE,
    MR_KEY_ORDER_INDEX,
};

/* A column that an option names, of a table that is there by this name if at all. Its name is empty
 * where the option names columns by a pattern, or the table alone. */
struct mr_named_column {
    const char *option;
    struct mr_table_name table;
    const char *column;
    bool must_fit; /* else values go out that nobody is to see, or no rows at all */
};

/* What an option says of tables and columns by patterns; nobody notices where a mistyped one fits
 * none. */
struct mr_pattern_rule {
    const char *option;
    const char *text; /* as it is written */
    struct mr_table_pattern table;
    const struct mr_pattern *column; /* NULL: it is about tables alone */
    bool takes_away;                 /* tables from those that are streamed */
};

/* What the publication is to send of a table. */
struct mr_published {
    struct mr_table_name table;
    const char *where;          /* condition on its rows, in SQL; NULL: all */
    const char *const *columns; /* none: all */
    uint32_t column_count;
};

/* Which existing rows are copied before the stream begins (docs/snapshots.md). */
enum mr_pg_copies {
    MR_COPIES_NOTHING,
    MR_COPIES_INITIALLY, /* when the slot is made */
    MR_COPIES_ONLY,      /* and no stream after them */
    MR_COPIES_ALWAYS,    /* at each start */
    /* When the slot is made, and when the stream can't go on where it has come to. */
    MR_COPIES_WHEN_NEEDED,
    /* None; where the stream can't go on where it has come to, it goes on at a new slot all the
     * same. */
    MR_COPIES_ACCEPT_GAP,
};

/* Where the stream can't go on where it has come to, it begins at a new slot. */
static inline bool mr_pg_mends_gap(enum mr_pg_copies copies)
{
    return copies == MR_COPIES_WHEN_NEEDED || copies == MR_COPIES_ACCEPT_GAP;
}

/* A slot that is there may give way to a new one. */
static inline bool mr_pg_replaces_slot(enum mr_pg_copies copies)
{
    return copies == MR_COPIES_ALWAYS || mr_pg_mends_gap(copies);
}

static inline bool mr_pg_copies_rows(enum mr_pg_copies copies)
{
    return copies != MR_COPIES_NOTHING && copies != MR_COPIES_ACCEPT_GAP;
}

/* Of a table's rows those are copied for which the condition, in SQL, is true. */
struct mr_copy_where {
    struct mr_table_pattern table; /* as the stream names it, or a partition whose rows are read */
    const char *condition;
};

/* What a reload may change while the source is closed: what is streamed. */
struct mr_pg_captured_options {
    /* what all of this points into, which who keeps it holds; NULL: it stays */
    struct mr_counted *memory;
    /* The pipeline's name in hexadecimal: equal for the instances of a pair. */
    const char *pipeline;
    const struct mr_table_name *tables; /* by name, … */
    uint32_t table_count;
    const struct mr_index *by_name;          /* of them; NULL: they are few */
    const struct mr_table_pattern *patterns; /* by patterns, … */
    uint32_t pattern_count;
    const struct mr_table_pattern *excluded; /* … but none of these */
    uint32_t excluded_count;
    bool signal_is_hidden; /* signal_table is among them for its signals alone, and not passed on */
    const struct mr_published *published;
    uint32_t published_count;
    bool alter_publication;           /* to have the tables, as `published` says */
    const char *const *context_names; /* of what transactions say of themselves: event/context.h */
    uint32_t context_count;
};

/* What options name, for the rules to look at (pg_rules.h). */
struct mr_pg_checked_options {
    const struct mr_table_key *held; /* a column each that the replica identity must hold */
    uint32_t held_count;
    const struct mr_named_column *named; /* without effect where the table has no such column */
    uint32_t named_count;
    const struct mr_pattern_rule *rules;
    uint32_t rule_count;
};

struct mr_column_pattern {
    struct mr_table_pattern table;
    struct mr_pattern column;
};

/* Columns whose values are read again where an update did not touch them and the stream does not
 * have them. */
struct mr_pg_reselect_options {
    const struct mr_column_pattern *columns;
    uint32_t column_count;  /* 0: none */
    bool keeps_placeholder; /* in place of a value that may be of a later change */
    uint32_t wait_ms;       /* no change waits for longer */
};

/* All strings are the caller's and outlive the source, those of `captured` as long as their memory
 * is held. */
/* By which role conditions of signals may be read: they are SQL of whoever may write the table. */
enum mr_signal_conditions { MR_SIGNAL_CONDITIONS_READ_ONLY, MR_SIGNAL_CONDITIONS_ANY_ROLE };

struct mr_pg_source_options {
    struct mr_pg_options connection;
    struct mr_pg_options copying; /* for existing rows; conninfo NULL: the same (pg_copying.h) */
    const char *slot;
    const char *publication; /* made for the captured tables only */
    struct mr_pg_captured_options captured;
    struct mr_pg_checked_options checked;
    /* The captured table whose rows are signals; NULL: none. */
    const struct mr_table_name *signal_table;
    enum mr_signal_conditions signal_conditions;
    const struct mr_table_key *keys;
    uint32_t key_count;
    enum mr_key_order key_order; /* of the columns of other keys */
    size_t relation_bytes_max; /* of descriptions of tables and what is made of them; 0: no limit */
    bool via_root;             /* the publication names partitioned tables, not their partitions */
    bool create_slot;
    bool slot_must_exist; /* another program has delivered what is before its position */
    bool create_publication;
    bool hides_columns; /* rules do, which need to know which column of a table is which; */
    const struct mr_table_pattern *hiding; /* about these tables */
    uint32_t hiding_count;
    struct mr_columns_listener columns_at_start; /* who remembers them; `take` NULL: nobody */
    struct mr_kin *kin;      /* where they do; else NULL. Lives as long as the source */
    bool messages;           /* logical messages are passed on, too */
    bool failover;           /* FAILOVER slot on 17 and later */
    bool position_is_stored; /* by the sink: a slot that exists without one is suspicious, */
    bool adopt_slot;         /* and read on from nevertheless */
    uint32_t handover_ms;    /* to wait for the end of an instance that is configured otherwise */
    enum mr_pg_copies copies;
    const struct mr_copy_where *wheres; /* of a table the first that fits */
    uint32_t where_count;
    uint32_t chunk_timeout_ms; /* for the server to read one */
    struct mr_pg_reselect_options reselect;
};

/* True when it is the table of signals. */
bool mr_pg_table_is_signal(const struct mr_pg_source_options *options, mr_slice schema,
                           mr_slice table);

/* What `by_name` finds a table by. */
uint64_t mr_pg_table_hash(mr_slice schema, mr_slice table);

/* The number of the table in `tables`; UINT32_MAX: it is not named. */
uint32_t mr_pg_table_named(const struct mr_pg_captured_options *captured, mr_slice schema,
                           mr_slice table);

/* Where the configuration has it: names first, then patterns; UINT32_MAX: nowhere. */
uint32_t mr_pg_table_place(const struct mr_pg_source_options *options, mr_slice schema,
                           mr_slice table);

/* True when a table of that name is configured, and passed on. */
bool mr_pg_table_listed(const struct mr_pg_source_options *options, mr_slice schema,
                        mr_slice table);

/* What is configured of a table's key, or of what is published of it; NULL: nothing. */
const struct mr_table_key *mr_pg_key_of(const struct mr_pg_source_options *options, mr_slice schema,
                                        mr_slice table);
const struct mr_published *mr_pg_published_of(const struct mr_pg_source_options *options,
                                              const struct mr_table_name *table);

/* Tells the names of tables from others, in whatever order. */
uint64_t mr_pg_tables_mark(const struct mr_pg_source_options *options);

/* The condition on a table's rows, by the name that the stream has for it or by the partition's;
 * NULL: there is none. */
const struct mr_copy_where *mr_pg_where_of(const struct mr_pg_source_options *options,
                                           mr_slice schema, mr_slice table, mr_slice leaf_schema,
                                           mr_slice leaf);
