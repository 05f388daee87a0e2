#include "encode/table_counts.h"

enum { LAST_TABLES_MAX = 64 };

/* The thread that has taken `busy` reads or writes the event. The source thread does not wait for
 * it, readers do. */
struct mr_last_slot {
    atomic_bool busy;
    struct mr_last_event event;
};

/* Tables, "other" and messages: `lines` is as long as it may get, because readers hold no lock. */
struct mr_table_counts {
    struct mr_table_line *lines;
    uint32_t tables_max;
    uint32_t last_max;      /* how many tables' last events are kept */
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
        free(counts->lines[i].last);
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
    if (count < counts->last_max) {
        counts->lines[count].last = MR_NEW(struct mr_last_slot);
    }
    atomic_store_explicit(&counts->count, count + 1, memory_order_release);
    return &counts->lines[count];
}

struct mr_table_line *mr_table_counts_messages(struct mr_table_counts *counts)
{
    return &counts->messages;
}

void mr_table_counts_keep_last(struct mr_table_counts *counts)
{
    MR_ASSERT(atomic_load_explicit(&counts->count, memory_order_relaxed) == 0);
    counts->last_max = LAST_TABLES_MAX;
}

static size_t table_counts_keep(uint8_t *to, size_t size, mr_slice from)
{
    size_t len = from.len < size ? from.len : size;
    if (len > 0) {
        memcpy(to, from.data, len);
    }
    return len;
}

void mr_table_line_keep(struct mr_table_line *line, int64_t time_ns, mr_slice key, mr_slice value)
{
    struct mr_last_slot *last = line->last;
    if (last == NULL || atomic_exchange_explicit(&last->busy, true, memory_order_acquire)) {
        return;
    }
    struct mr_last_event *event = &last->event;
    event->time_ns = time_ns;
    event->key_len = key.len;
    event->value_len = value.len;
    event->key_kept = table_counts_keep(event->key, sizeof(event->key), key);
    event->value_kept = table_counts_keep(event->value, sizeof(event->value), value);
    atomic_store_explicit(&last->busy, false, memory_order_release);
}

bool mr_table_counts_last(const struct mr_table_counts *counts, const char *table,
                          struct mr_last_event *ret_event)
{
    uint32_t count = atomic_load_explicit(&counts->count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct mr_last_slot *last = counts->lines[i].last;
        if (last != NULL && strcmp(counts->lines[i].table, table) == 0) {
            while (atomic_exchange_explicit(&last->busy, true, memory_order_acquire)) {
                /* a copy of some kilobytes is under way */
            }
            *ret_event = last->event;
            atomic_store_explicit(&last->busy, false, memory_order_release);
            return ret_event->time_ns != 0;
        }
    }
    return false;
}

uint32_t mr_table_counts_size(const struct mr_table_counts *counts)
{
    return atomic_load_explicit(&counts->count, memory_order_acquire) + 2;
}

static uint64_t line_read(const struct mr_table_line *line, struct mr_table_count *ret)
{
    ret->table = line->table;
    for (uint32_t op = 0; op < MR_OP_COUNT; op++) {
        ret->events[op] = atomic_load_explicit(&line->events[op], memory_order_relaxed);
    }
    return mr_table_count_sum(ret);
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
