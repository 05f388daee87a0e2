#include "pipeline/copy_plan.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

enum {
    PIECES_PER_WORKER = 8, /* so that none is left alone with the last one for long */
    PIECE_PAGES_MIN = 128, /* a question takes as long as a few pages */
    WAIT_NS = 100000000,
};

static void plan_table(struct mr_plan_table *table, const struct mr_copy_table *of,
                       uint32_t workers)
{
    uint32_t pages = of->pages;
    table->piece_pages = pages / (workers * PIECES_PER_WORKER) + 1;
    if (table->piece_pages < PIECE_PAGES_MIN) {
        table->piece_pages = PIECE_PAGES_MIN;
    }
    table->pieces = workers == 1 || pages == 0 ? 1 : (pages - 1) / table->piece_pages + 1;
    table->unread = table->pieces;
}

void mr_copy_plan_init(struct mr_copy_plan *plan, const struct mr_copy *copy, uint32_t *order,
                       uint32_t count, uint32_t workers)
{
    *plan = (struct mr_copy_plan){.copy = copy, .order = order, .count = count};
    plan->tables = MR_NEW_ARRAY(struct mr_plan_table, copy->table_count);
    for (uint32_t i = 0; i < count; i++) {
        plan_table(&plan->tables[order[i]], &copy->tables[order[i]], workers);
    }
    pthread_mutex_init(&plan->lock, NULL);
    pthread_mutex_init(&plan->rows, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&plan->change, &clock);
    pthread_condattr_destroy(&clock);
}

void mr_copy_plan_done(struct mr_copy_plan *plan)
{
    if (plan->tables == NULL) {
        return;
    }
    pthread_mutex_destroy(&plan->lock);
    pthread_mutex_destroy(&plan->rows);
    pthread_cond_destroy(&plan->change);
    free(plan->tables);
    free(plan->order);
    plan->tables = NULL;
}

bool mr_copy_plan_take(struct mr_copy_plan *plan, struct mr_copy_piece *ret_piece)
{
    pthread_mutex_lock(&plan->lock);
    while (plan->at < plan->count && plan->tables[plan->order[plan->at]].taken ==
                                         plan->tables[plan->order[plan->at]].pieces) {
        plan->at++;
    }
    bool found = plan->at < plan->count;
    if (found) {
        uint32_t index = plan->order[plan->at];
        struct mr_plan_table *table = &plan->tables[index];
        const struct mr_copy_table *of = &plan->copy->tables[index];
        uint32_t number = table->taken++;
        if (number == 0) {
            atomic_store(&table->begun_ns, mr_monotonic_ns());
        }
        bool is_last = number == table->pieces - 1;
        uint32_t first = number * table->piece_pages;
        uint32_t pages = is_last ? of->pages - first : table->piece_pages;
        *ret_piece = (struct mr_copy_piece){
            .table = index,
            .range = {.after = mr_copy_place(first, 0),
                      .end = is_last ? MR_COPY_NO_END : first + table->piece_pages},
            .bytes = table->pieces == 1 ? of->bytes : of->bytes / of->pages * pages,
        };
    }
    pthread_mutex_unlock(&plan->lock);
    return found;
}

void mr_copy_plan_hold(struct mr_copy_plan *plan, uint32_t table)
{
    pthread_mutex_lock(&plan->rows);
    plan->tables[table].holders++;
    pthread_cond_broadcast(&plan->change);
    pthread_mutex_unlock(&plan->rows);
}

bool mr_copy_plan_piece_read(struct mr_copy_plan *plan, uint32_t index, uint64_t rows,
                             uint64_t *ret_rows)
{
    pthread_mutex_lock(&plan->rows);
    struct mr_plan_table *table = &plan->tables[index];
    MR_ASSERT(table->unread > 0);
    table->row_count += rows;
    bool is_read = --table->unread == 0;
    pthread_cond_broadcast(&plan->change);
    *ret_rows = table->row_count;
    pthread_mutex_unlock(&plan->rows);
    return is_read;
}

bool mr_copy_plan_settled(struct mr_copy_plan *plan, uint32_t index)
{
    const struct mr_plan_table *table = &plan->tables[index];
    MR_ASSERT(table->holders > 0);
    if (table->unread > 0 && table->holders == 1) {
        int64_t until_ns = mr_monotonic_ns() + WAIT_NS;
        struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
        pthread_cond_timedwait(&plan->change, &plan->rows, &until);
    }
    return table->unread == 0 || table->holders > 1;
}

bool mr_copy_plan_is_last(const struct mr_copy_plan *plan, uint32_t index)
{
    return plan->tables[index].unread == 0 && plan->tables[index].holders == 1;
}

void mr_copy_plan_let_go(struct mr_copy_plan *plan, uint32_t index)
{
    MR_ASSERT(plan->tables[index].holders > 0);
    plan->tables[index].holders--;
    pthread_cond_broadcast(&plan->change);
}
