#include "copy/copy_plan.h"

#include <math.h>

#include "base/clock.h"
#include "base/thread.h"

enum {
    PIECES_PER_WORKER = 8, /* so that none is left alone with the last one for long */
    PIECE_PAGES_MIN = 128, /* a question takes as long as a few pages */
    WAIT_NS = 100000000,
};

static void add_range(struct mr_plan_table *table, struct mr_copy_range range, uint32_t pages,
                      uint32_t workers)
{
    uint32_t first = (uint32_t)(range.after >> 16);
    uint32_t end = range.end == MR_COPY_NO_END ? pages : range.end;
    uint32_t size = pages / (workers * PIECES_PER_WORKER) + 1;
    size = size < PIECE_PAGES_MIN ? PIECE_PAGES_MIN : size;
    bool divides = workers > 1 && end > first;
    uint32_t count = divides ? (end - first - 1) / size + 1 : 1;
    table->ranges =
        MR_REALLOC(table->ranges, (table->pieces + count) * sizeof(struct mr_copy_range));
    for (uint32_t i = 0; i < count; i++) {
        bool is_last = i == count - 1;
        table->ranges[table->pieces++] = (struct mr_copy_range){
            .after = i == 0 ? range.after : mr_copy_place(first + i * size, 0),
            .end = is_last ? range.end : first + (i + 1) * size,
        };
    }
}

static void plan_table(struct mr_plan_table *table, const struct mr_copy_table *of,
                       const struct mr_copy_part *part, uint32_t workers)
{
    static const struct mr_copy_range all = {.after = 0, .end = MR_COPY_NO_END};
    if (part != NULL && part->filenode == of->filenode && of->may_resume && part->range_count > 0) {
        table->was_begun = true;
        for (uint32_t i = 0; i < part->range_count; i++) {
            add_range(table, part->ranges[i], of->pages, workers);
        }
    } else {
        add_range(table, all, of->pages, workers);
    }
    table->unread = table->pieces;
}

static void begin_state(struct mr_copy_stored *state, const struct mr_copy *copy)
{
    state->lsn = copy->lsn;
    state->attempt = copy->attempt;
    if (copy->resumed != NULL && copy->resumed->done_count > 0) {
        state->done_count = copy->resumed->done_count;
        state->done = MR_NEW_ARRAY(uint32_t, state->done_count);
        memcpy(state->done, copy->resumed->done, state->done_count * sizeof(uint32_t));
    }
}

static uint64_t piece_bytes(const struct mr_copy_table *of, const struct mr_copy_range *range)
{
    if (of->pages == 0) {
        return of->bytes;
    }
    uint32_t first = (uint32_t)(range->after >> 16);
    uint32_t end = range->end == MR_COPY_NO_END ? of->pages : range->end;
    return end <= first ? 0 : of->bytes / of->pages * (end - first);
}

/* Who is not in the plan, or done by an earlier attempt, is read to its end. */
static void describe_tables(struct mr_copy_plan *plan)
{
    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct mr_copy_table *of = &plan->copy->tables[i];
        struct mr_plan_table *table = &plan->tables[i];
        snprintf(table->name, sizeof(table->name), "%s.%s", of->relation->schema,
                 of->relation->table);
        table->bytes = table->bytes_before = of->bytes;
        table->rows_estimated = of->rows;
        table->head = i > 0 && of->relation == of[-1].relation ? plan->tables[i - 1].head : i;
        atomic_store(&table->bytes_read, of->bytes);
    }
}

struct mr_copy_plan *mr_copy_plan_new(const struct mr_copy *copy, uint32_t *order, uint32_t count,
                                      uint32_t workers)
{
    struct mr_copy_plan *plan = MR_NEW(struct mr_copy_plan);
    plan->copy = copy;
    plan->counts = true;
    plan->order = order;
    plan->table_count = copy->table_count;
    plan->tables = MR_NEW_ARRAY(struct mr_plan_table, copy->table_count);
    describe_tables(plan);
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_copy_table *of = &copy->tables[order[i]];
        struct mr_plan_table *table = &plan->tables[order[i]];
        table->oid = of->oid;
        table->filenode = of->filenode;
        if (copy->resumed != NULL && mr_copy_stored_is_done(copy->resumed, of->oid)) {
            continue;
        }
        plan_table(table, of,
                   copy->resumed == NULL ? NULL : mr_copy_stored_part(copy->resumed, of->oid),
                   workers);
        plan->tables[table->head].all_pieces += table->pieces;
        plan->tables[table->head].all_unread += table->pieces;
        order[plan->count++] = order[i];
        uint64_t left = 0;
        for (uint32_t piece = 0; piece < table->pieces; piece++) {
            left += piece_bytes(of, &table->ranges[piece]);
        }
        table->bytes_before = of->bytes > left ? of->bytes - left : 0;
        atomic_store(&table->bytes_read, table->bytes_before);
    }
    begin_state(&plan->state, copy);
    pthread_mutex_init(&plan->lock, NULL);
    pthread_mutex_init(&plan->rows, NULL);
    pthread_cond_init(&plan->change, NULL);
    return plan;
}

void mr_copy_plan_free(struct mr_copy_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    pthread_mutex_destroy(&plan->lock);
    pthread_mutex_destroy(&plan->rows);
    pthread_cond_destroy(&plan->change);
    for (uint32_t i = 0; i < plan->table_count; i++) {
        free(plan->tables[i].ranges);
    }
    for (uint32_t i = 0; i < MR_COPY_LANES_MAX; i++) {
        free(plan->lanes[i].open);
        free(plan->lanes[i].notes);
    }
    free(plan->tables);
    free(plan->order);
    free(plan->state.done);
    free(plan);
}

static void drop_first(void *items, size_t size, uint32_t *count, uint32_t dropped)
{
    *count -= dropped;
    if (dropped > 0) {
        memmove(items, (char *)items + dropped * size, *count * size);
    }
}

bool mr_copy_plan_take(struct mr_copy_plan *plan, uint32_t lane, struct mr_copy_piece *ret_piece)
{
    MR_HOLD(&plan->lock);
    while (plan->at < plan->count && plan->tables[plan->order[plan->at]].taken ==
                                         plan->tables[plan->order[plan->at]].pieces) {
        plan->at++;
    }
    bool found = plan->at < plan->count;
    if (found) {
        uint32_t index = plan->order[plan->at];
        struct mr_plan_table *table = &plan->tables[index];
        if (table->taken == 0) {
            atomic_store(&table->begun_ns, mr_monotonic_ns());
        }
        const struct mr_copy_range *range = &table->ranges[table->taken++];
        *ret_piece =
            (struct mr_copy_piece){.table = index,
                                   .head = table->head,
                                   .range = *range,
                                   .bytes = piece_bytes(&plan->copy->tables[index], range)};
        struct mr_plan_lane *of = &plan->lanes[lane];
        MR_GROW(of->open, of->capacity, of->count + 1);
        of->open[of->count++] = *ret_piece;
    }
    return found;
}

void mr_copy_plan_note(struct mr_copy_plan *plan, uint32_t index, struct mr_copied copied)
{
    MR_HOLD(&plan->lock);
    struct mr_plan_lane *lane = &plan->lanes[index];
    MR_GROW(lane->notes, lane->note_capacity, lane->note_count + 1);
    lane->notes[lane->note_count++] = copied;
}

/* With the lock. */
static void note_safe(struct mr_copy_plan *plan, struct mr_plan_lane *lane, struct mr_copied copied)
{
    uint32_t safe = 0;
    for (; lane->done < copied.pieces; lane->done++, safe++) {
        MR_ASSERT(safe < lane->count);
        plan->tables[lane->open[safe].table].safe++;
    }
    drop_first(lane->open, sizeof(*lane->open), &lane->count, safe);
    if (lane->done == copied.pieces && copied.place != 0) {
        MR_ASSERT(lane->count > 0);
        lane->open[0].range.after = copied.place;
        plan->tables[lane->open[0].table].was_begun = true;
    }
}

void mr_copy_plan_safe(struct mr_copy_plan *plan, uint32_t index, uint64_t step)
{
    MR_HOLD(&plan->lock);
    struct mr_plan_lane *lane = &plan->lanes[index];
    uint32_t safe = 0;
    while (safe < lane->note_count && lane->notes[safe].step <= step) {
        note_safe(plan, lane, lane->notes[safe++]);
    }
    drop_first(lane->notes, sizeof(*lane->notes), &lane->note_count, safe);
}

static void add_left(struct mr_copy_part *part, struct mr_copy_range range)
{
    struct mr_copy_range *last =
        part->range_count == 0 ? NULL : &part->ranges[part->range_count - 1];
    if (last != NULL && last->end != MR_COPY_NO_END && mr_copy_place(last->end, 0) == range.after) {
        last->end = range.end;
        return;
    }
    part->ranges = MR_REALLOC(part->ranges, (part->range_count + 1) * sizeof(struct mr_copy_range));
    part->ranges[part->range_count++] = range;
}

static void copy_plan_add_part(const struct mr_copy_plan *plan, uint32_t index,
                               struct mr_copy_stored *state)
{
    const struct mr_plan_table *table = &plan->tables[index];
    struct mr_copy_part *part = &state->parts[state->part_count++];
    *part = (struct mr_copy_part){.oid = table->oid, .filenode = table->filenode};
    for (uint32_t l = 0; l < MR_COPY_LANES_MAX; l++) {
        const struct mr_plan_lane *lane = &plan->lanes[l];
        for (uint32_t i = 0; i < lane->count; i++) {
            if (lane->open[i].table == index) {
                add_left(part, lane->open[i].range);
            }
        }
    }
    for (uint32_t i = table->taken; i < table->pieces; i++) {
        add_left(part, table->ranges[i]);
    }
}

struct mr_copy_stored *mr_copy_plan_state(struct mr_copy_plan *plan, uint64_t rows)
{
    struct mr_copy_stored *state = MR_NEW(struct mr_copy_stored);
    pthread_mutex_lock(&plan->lock);
    plan->state.step++;
    *state = plan->state;
    state->rows += rows;
    state->done = MR_NEW_ARRAY(uint32_t, state->done_count + plan->count);
    for (uint32_t i = 0; i < plan->state.done_count; i++) {
        state->done[i] = plan->state.done[i];
    }
    state->parts = MR_NEW_ARRAY(struct mr_copy_part, plan->count);
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct mr_plan_table *table = &plan->tables[plan->order[i]];
        if (table->safe == table->pieces) {
            state->done[state->done_count++] = table->oid;
        } else if (table->was_begun || table->safe > 0) {
            copy_plan_add_part(plan, plan->order[i], state);
        }
    }
    pthread_mutex_unlock(&plan->lock);
    mr_sort(state->done, state->done_count, sizeof(uint32_t), mr_u32_compare);
    return state;
}

void mr_copy_plan_told(struct mr_copy_plan *plan, uint32_t index, uint64_t rows, uint64_t bytes)
{
    struct mr_plan_table *table = &plan->tables[index];
    atomic_fetch_add_explicit(&table->rows_read, rows, memory_order_relaxed);
    atomic_fetch_add_explicit(&table->bytes_read, bytes, memory_order_relaxed);
}

double mr_copy_seconds_left(uint64_t done, uint64_t before, uint64_t total, double seconds)
{
    bool known = done > before && seconds > 0;
    return !known          ? NAN
           : total <= done ? 0
                           : (double)(total - done) / (double)(done - before) * seconds;
}

static bool is_left(const struct mr_plan_table *table)
{
    return table->pieces > 0 && atomic_load(&table->ended_ns) == 0;
}

static struct mr_copy_table_stats table_stats(const struct mr_plan_table *table)
{
    int64_t begun_ns = atomic_load(&table->begun_ns);
    int64_t ended_ns = atomic_load(&table->ended_ns);
    bool is_open = is_left(table);
    struct mr_copy_table_stats stats = {
        .state = !is_open        ? MR_COPY_TABLE_DONE
                 : begun_ns != 0 ? MR_COPY_TABLE_READ
                                 : MR_COPY_TABLE_WAITS,
        .rows = atomic_load(&table->rows_read),
        .rows_estimated = table->rows_estimated,
        .bytes = atomic_load(&table->bytes_read),
        .bytes_total = table->bytes,
        .seconds_left = is_open ? NAN : 0,
    };
    memcpy(stats.table, table->name, sizeof(stats.table));
    if (begun_ns != 0) {
        stats.seconds = (double)((is_open ? mr_monotonic_ns() : ended_ns) - begun_ns) / 1e9;
    }
    if (stats.state == MR_COPY_TABLE_READ) {
        stats.seconds_left =
            mr_copy_seconds_left(stats.bytes, table->bytes_before, table->bytes, stats.seconds);
    }
    return stats;
}

struct mr_copy_stats mr_copy_plan_totals(const struct mr_copy_plan *plan, double seconds)
{
    struct mr_copy_stats totals = {.tables = plan->table_count, .seconds = seconds};
    uint64_t before = 0;
    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct mr_plan_table *table = &plan->tables[i];
        totals.tables_done += !is_left(table);
        totals.rows_estimated += table->rows_estimated;
        totals.bytes += atomic_load(&table->bytes_read);
        totals.bytes_total += table->bytes;
        before += table->bytes_before;
    }
    totals.seconds_left = mr_copy_seconds_left(totals.bytes, before, totals.bytes_total, seconds);
    return totals;
}

uint32_t mr_copy_plan_progress(const struct mr_copy_plan *plan,
                               struct mr_copy_table_stats *ret_tables, uint32_t capacity)
{
    static const int order[] = {MR_COPY_TABLE_READ, MR_COPY_TABLE_WAITS, MR_COPY_TABLE_DONE};
    uint32_t count = 0;
    for (size_t o = 0; o < MR_ARRAY_LEN(order); o++) {
        for (uint32_t i = 0; i < plan->table_count && count < capacity; i++) {
            struct mr_copy_table_stats stats = table_stats(&plan->tables[i]);
            if ((int)stats.state == order[o]) {
                ret_tables[count++] = stats;
            }
        }
    }
    return count;
}

void mr_copy_plan_hold(struct mr_copy_plan *plan, uint32_t head)
{
    MR_HOLD(&plan->rows);
    plan->tables[head].holders++;
    pthread_cond_broadcast(&plan->change);
}

bool mr_copy_plan_piece_read(struct mr_copy_plan *plan, uint32_t index, uint64_t rows,
                             uint64_t *ret_rows)
{
    MR_HOLD(&plan->rows);
    struct mr_plan_table *table = &plan->tables[index];
    MR_ASSERT(table->unread > 0);
    table->row_count += rows;
    bool is_read = --table->unread == 0;
    plan->tables[table->head].all_unread--;
    if (is_read) {
        atomic_store(&table->ended_ns, mr_monotonic_ns());
    }
    pthread_cond_broadcast(&plan->change);
    *ret_rows = table->row_count;
    return is_read;
}

bool mr_copy_plan_settled(struct mr_copy_plan *plan, uint32_t head)
{
    const struct mr_plan_table *table = &plan->tables[head];
    MR_ASSERT(table->holders > 0);
    if (table->all_unread > 0 && table->holders == 1) {
        int64_t until_ns = mr_monotonic_ns() + WAIT_NS;
        struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
        pthread_cond_clockwait(&plan->change, &plan->rows, CLOCK_MONOTONIC, &until);
    }
    return table->all_unread == 0 || table->holders > 1;
}

bool mr_copy_plan_is_last(const struct mr_copy_plan *plan, uint32_t head)
{
    return plan->tables[head].all_unread == 0 && plan->tables[head].holders == 1;
}

void mr_copy_plan_let_go(struct mr_copy_plan *plan, uint32_t head)
{
    MR_ASSERT(plan->tables[head].holders > 0);
    plan->tables[head].holders--;
    pthread_cond_broadcast(&plan->change);
}
