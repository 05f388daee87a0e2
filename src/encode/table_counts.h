/* Events by table and operation, for a bounded number of tables. An encoder's plan points to its
 * table's line, so counting an event is one add. Lines are made on the source thread and live as
 * long as the whole; any thread reads. */
#pragma once

#include <stdatomic.h>

#include "base/counter.h"
#include "event/event.h"

/* A line as it was when it was read. */
struct mr_table_count {
    const char *table; /* "schema.table"; "other": beyond the limit; "": logical messages */
    uint64_t events[MR_OP_COUNT]; /* by enum mr_op */
};

/* Of all operations. */
static inline uint64_t mr_table_count_sum(const struct mr_table_count *table)
{
    uint64_t sum = 0;
    for (int op = 0; op < MR_OP_COUNT; op++) {
        sum += table->events[op];
    }
    return sum;
}

/* The newest event of a table, as far as it fits: what a person wants to see, not what a consumer
 * reads. */
struct mr_last_event {
    int64_t time_ns; /* when it was encoded, since 1970; 0: there was none */
    size_t key_len, value_len;
    size_t key_kept, value_kept; /* bytes below; less where it was cut */
    uint8_t key[1024];
    uint8_t value[8192];
};

struct mr_last_slot;

struct mr_table_line {
    char *table;
    mr_counter events[MR_OP_COUNT];
    struct mr_last_slot *last; /* NULL: events of this table are not kept */
};

struct mr_table_counts;

/* At most `tables_max` tables have a line of their own. */
struct mr_table_counts *mr_table_counts_new(uint32_t tables_max);
void mr_table_counts_free(struct mr_table_counts *counts); /* NULL is fine */

/* The line of a table, made on first use, or that of "other". Source thread. */
struct mr_table_line *mr_table_counts_line(struct mr_table_counts *counts, const char *schema,
                                           const char *table);
struct mr_table_line *mr_table_counts_messages(struct mr_table_counts *counts);

static inline void mr_table_line_count(struct mr_table_line *line, enum mr_op op)
{
    mr_counter_add(&line->events[op], 1);
}

/* Keeps a copy of the newest event of each table from now on, of the first 64 tables. Before the
 * first line is made. */
void mr_table_counts_keep_last(struct mr_table_counts *counts);

/* Copies key and value where the line keeps them; where somebody reads them just now, they are left
 * out. Source thread. */
void mr_table_line_keep(struct mr_table_line *line, int64_t time_ns, mr_slice key, mr_slice value);

/* The newest event of a table by its name. False: none is kept, or none came. Any thread. */
bool mr_table_counts_last(const struct mr_table_counts *counts, const char *table,
                          struct mr_last_event *ret_event);

/* Lines there are, and the first `capacity` of them that have counted something. Any thread. */
uint32_t mr_table_counts_size(const struct mr_table_counts *counts);
uint32_t mr_table_counts_read(const struct mr_table_counts *counts,
                              struct mr_table_count *ret_lines, uint32_t capacity);
