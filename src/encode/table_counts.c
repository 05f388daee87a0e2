#include "encode/table_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tables, "other" and messages: `lines` is as long as it may get, because readers hold no lock. */
struct mr_table_counts {
    struct mr_table_line *lines;
    uint32_t tables_max;
    _Atomic uint32_t count; /* tables that have a line; published after the line is made */
    struct mr_table_line other;
    struct mr_table_line messages;
};

struct mr_table_counts *mr_table_counts_new(uint32_t tables_max)
{
    struct mr_table_counts *counts = MR_NEW(struct mr_table_counts);
    counts->tables_max = tables_max;
    counts->lines = MR_NEW_ARRAY(struct mr_table_line, tables_max);
    counts->other.table = MR_STRDUP("other");
    counts->messages.table = MR_STRDUP("");
    return counts;
}

void mr_table_counts_free(struct mr_table_counts *counts)
{
    if (counts == NULL) {
        return;
    }
    for (uint32_t i = 0; i < counts->count; i++) {
        free(counts->lines[i].table);
    }
    free(counts->lines);
    free(counts->other.table);
    free(counts->messages.table);
    free(counts);
}

struct mr_table_line *mr_table_counts_line(struct mr_table_counts *counts, const char *schema,
                                           const char *table)
{
    char name[2 * MR_IDENTIFIER_MAX + 2];
    snprintf(name, sizeof(name), "%s.%s", schema, table);
    uint32_t count = atomic_load_explicit(&counts->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(counts->lines[i].table, name) == 0) {
            return &counts->lines[i];
        }
    }
    if (count == counts->tables_max) {
        return &counts->other;
    }
    counts->lines[count].table = MR_STRDUP(name);
    atomic_store_explicit(&counts->count, count + 1, memory_order_release);
    return &counts->lines[count];
}

struct mr_table_line *mr_table_counts_messages(struct mr_table_counts *counts)
{
    return &counts->messages;
}

uint32_t mr_table_counts_size(const struct mr_table_counts *counts)
{
    return atomic_load_explicit(&counts->count, memory_order_acquire) + 2;
}

static uint64_t line_read(const struct mr_table_line *line, struct mr_table_count *ret)
{
    uint64_t total = 0;
    ret->table = line->table;
    for (uint32_t op = 0; op < MR_OP_COUNT; op++) {
        ret->events[op] = atomic_load_explicit(&line->events[op], memory_order_relaxed);
        total += ret->events[op];
    }
    return total;
}

uint32_t mr_table_counts_read(const struct mr_table_counts *counts,
                              struct mr_table_count *ret_lines, uint32_t capacity)
{
    uint32_t read = 0;
    uint32_t count = atomic_load_explicit(&counts->count, memory_order_acquire);
    for (uint32_t i = 0; i < count + 2 && read < capacity; i++) {
        const struct mr_table_line *line = i < count    ? &counts->lines[i]
                                           : i == count ? &counts->other
                                                        : &counts->messages;
        read += line_read(line, &ret_lines[read]) > 0;
    }
    return read;
}

const char *mr_op_name(enum mr_op op)
{
    static const char *const names[] = {
        [MR_OP_INSERT] = "insert",     [MR_OP_UPDATE] = "update",   [MR_OP_DELETE] = "delete",
        [MR_OP_TRUNCATE] = "truncate", [MR_OP_MESSAGE] = "message",
    };
    return names[op];
}
