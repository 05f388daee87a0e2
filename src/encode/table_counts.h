/* Events by table and operation, for a bounded number of tables.
 *
 * An encoder's plan points to its table's line, so counting an event is one add. Lines are made on the source
 * thread and live as long as the whole; any thread reads.
 */
#ifndef MR_ENCODE_TABLE_COUNTS_H
#define MR_ENCODE_TABLE_COUNTS_H

#include <stdatomic.h>

#include "base/counter.h"
#include "event/event.h"

enum { MR_OP_COUNT = MR_OP_MESSAGE + 1 };

/* A line as it was when it was read. */
struct mr_table_count {
    const char
        *table; /* "schema.table"; "other" for those beyond the limit, "" for logical messages */
    uint64_t events[MR_OP_COUNT]; /* by enum mr_op */
};

struct mr_table_line {
    char *table;
    mr_counter events[MR_OP_COUNT];
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

/* Lines there are, and the first `capacity` of them that have counted something. Any thread. */
uint32_t mr_table_counts_size(const struct mr_table_counts *counts);
uint32_t mr_table_counts_read(const struct mr_table_counts *counts,
                              struct mr_table_count *ret_lines, uint32_t capacity);

/* "insert", "update", "delete", "truncate", "message". */
const char *mr_op_name(enum mr_op op);

#endif
