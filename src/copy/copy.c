#include "copy/copy.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "copy/copy_plan.h"

enum {
    ROUND_MS = 100,       /* how often the source thread looks around while others copy */
    CLOCK_ROWS = 256,     /* the clock of events is read once for so many rows */
    TOLD_INTERVAL_S = 10, /* the log is told how far it is */
    LOOK_INTERVAL_S = 2,  /* and the source asked whether the stream can follow */
};

struct worker {
    struct copying *copying;
    struct mr_lane *lane;
    struct mr_copy_reader *reader;
    pthread_t thread;
    bool started;
    uint64_t row; /* the last one appended */
    /* The row that was read last waits for the next one: only then is it known whether it was its table's last. `held_head` is
     * that table, by a root the first of its partitions. */
    struct mr_tuple held;
    uint32_t held_head;
    uint64_t held_piece; /* of this worker's, 1, 2, 3 … */
    uint64_t held_place;
    bool has_held;
    uint64_t piece; /* the one begun last; */
    bool in_piece;  /* it is not read to its end */
    mr_status status;
    struct mr_error error;
};

/* One attempt. */
struct copying {
    struct mr_intake *intake;
    struct mr_pipeline *pipeline;
    const struct mr_copy *copy;
    struct mr_copy_plan *plan; /* the pipeline's */
    _Atomic uint32_t running;
    int stop_fd; /* readable: leave */
    struct worker workers[MR_COPY_LANES_MAX];
    uint32_t worker_count;
    int64_t begun_ns;
    int64_t told_ns;
    int64_t looked_ns;
};

static bool is_stopped(const struct copying *copying)
{
    struct pollfd stop = {.fd = copying->stop_fd, .events = POLLIN};
    return poll(&stop, 1, 0) == 1;
}

/* ---- a worker ---- */

static mr_status wait_for_room(struct worker *worker)
{
    struct mr_lane *lane = worker->lane;
    atomic_store(&lane->waits, true);
    if (!mr_lane_has_batch(lane) || !mr_lane_may_go_on(lane)) {
        struct pollfd fds[2] = {{.fd = worker->copying->stop_fd, .events = POLLIN},
                                {.fd = lane->wake, .events = POLLIN}};
        poll(fds, 2, ROUND_MS);
        mr_wake_clear(lane->wake);
    }
    atomic_store(&lane->waits, false);
    lane->hold = !mr_lane_may_go_on(lane);
    return is_stopped(worker->copying) ? MR_AGAIN : MR_OK;
}

static void read_clock(struct worker *worker)
{
    struct mr_lane *lane = worker->lane;
    lane->round_ns = mr_monotonic_ns();
    lane->round_wall_ns = mr_wall_ns();
    mr_encoder_set_clock(lane->encoder, lane->round_wall_ns);
}

static mr_status append(struct worker *worker, enum mr_copy_mark mark, struct mr_error *ret_error)
{
    const struct mr_copy *copy = worker->copying->copy;
    const struct mr_relation *relation = copy->tables[worker->held_head].relation;
    if (worker->row++ % CLOCK_ROWS == 0) {
        read_clock(worker);
    }
    struct mr_change change = {
        .op = MR_OP_READ,
        .copy_mark = mark,
        .lsn = copy->lsn,
        /* It gets its place among the others' as it is handed over. */
        .position = {.commit_lsn = copy->transaction.commit_lsn, .ordinal = worker->row},
        .transaction = &copy->transaction,
        .relation = relation,
        .after = worker->held,
    };
    struct mr_item item = {.change = &change};
    mr_status status;
    while ((status = mr_lane_append(worker->lane, &item, ret_error)) == MR_FULL) {
        MR_TRY(wait_for_room(worker));
    }
    return status;
}

/* How far the worker is, once all that it has read is appended. */
static struct mr_copied read_so_far(const struct worker *worker, uint64_t place)
{
    return (struct mr_copied){.plan = worker->copying->plan->number,
                              .pieces = worker->piece - worker->in_piece,
                              .place = worker->in_piece ? place : 0};
}

/* The held row sets out. */
static mr_status send_held(struct worker *worker, enum mr_copy_mark mark,
                           struct mr_error *ret_error)
{
    struct mr_lane *lane = worker->lane;
    lane->coming =
        read_so_far(worker, worker->held_piece == worker->piece ? worker->held_place : 0);
    MR_TRY(append(worker, mark, ret_error));
    worker->has_held = false;
    lane->copied = lane->coming;
    return MR_OK;
}

/* So that what others append from now on is behind it. */
static void hand_over(struct worker *worker)
{
    if (mr_lane_has_records(worker->lane)) {
        mr_lane_hand_over(worker->lane);
    }
}

/* With plan->rows: the held row, whose mark is known but for the first ones. */
static mr_status send_marked(struct worker *worker, enum mr_copy_mark mark,
                             struct mr_error *ret_error)
{
    struct mr_copy_plan *plan = worker->copying->plan;
    struct mr_plan_table *table = &plan->tables[worker->held_head];
    bool is_first = !atomic_load(&plan->began);
    bool is_table_first = !atomic_load(&table->began);
    if (is_first && mark != MR_COPY_LAST) {
        mark = MR_COPY_FIRST;
    } else if (is_table_first && mark == MR_COPY_ROW) {
        mark = MR_COPY_FIRST_IN_TABLE;
    }
    MR_TRY(send_held(worker, mark, ret_error));
    if (is_first || (is_table_first && table->all_pieces > 1)) {
        hand_over(worker);
    }
    atomic_store(&plan->began, true);
    atomic_store(&table->began, true);
    return MR_OK;
}

/* Another row of the held one's table is there. */
static mr_status send_row(struct worker *worker, struct mr_error *ret_error)
{
    struct mr_copy_plan *plan = worker->copying->plan;
    if (MR_LIKELY(
            atomic_load_explicit(&plan->tables[worker->held_head].began, memory_order_acquire))) {
        return send_held(worker, MR_COPY_ROW, ret_error);
    }
    pthread_mutex_lock(&plan->rows);
    mr_status status = send_marked(worker, MR_COPY_ROW, ret_error);
    pthread_mutex_unlock(&plan->rows);
    return status;
}

/* No piece of the held row's table is left to take. */
static mr_status leave_table(struct worker *worker, struct mr_error *ret_error)
{
    struct mr_copy_plan *plan = worker->copying->plan;
    uint32_t table = worker->held_head;
    mr_status status = MR_OK;
    pthread_mutex_lock(&plan->rows);
    while (status == MR_OK && !mr_copy_plan_settled(plan, table)) {
        status = is_stopped(worker->copying) ? MR_AGAIN : MR_OK;
    }
    if (status == MR_OK) {
        bool is_last = mr_copy_plan_is_last(plan, table);
        status = send_marked(worker, is_last ? MR_COPY_LAST_IN_TABLE : MR_COPY_ROW, ret_error);
        if (status == MR_OK && !is_last) {
            hand_over(worker);
        }
        mr_copy_plan_let_go(plan, table);
    }
    pthread_mutex_unlock(&plan->rows);
    return status;
}

static void tell_table(struct copying *copying, uint32_t table, uint64_t rows)
{
    struct mr_pipeline *pipeline = copying->pipeline;
    const struct mr_relation *relation = copying->copy->tables[table].relation;
    int64_t begun_ns = atomic_load(&copying->plan->tables[table].begun_ns);
    atomic_fetch_add(&pipeline->copy.tables_done, 1);
    char name[2 * MR_IDENTIFIER_MAX + 2];
    snprintf(name, sizeof(name), "%s.%s", relation->schema, relation->table);
    mr_log(MR_LOG_INFO, "snapshot_table", "the rows of a table are read", MR_LOG_STR("table", name),
           MR_LOG_INT("rows", rows), MR_LOG_INT("pieces", copying->plan->tables[table].pieces),
           MR_LOG_INT("ms", (mr_monotonic_ns() - begun_ns) / 1000000));
}

/* How far a piece is, told now and then: a line that all workers write to is not for each row. */
struct telling {
    uint64_t rows;       /* not told yet */
    uint64_t bytes;      /* told */
    uint32_t page;       /* that it begins with, */
    uint64_t page_bytes; /* 0: only its end is known */
};

static void tell_piece(struct worker *worker, const struct mr_copy_piece *piece,
                       struct telling *telling, uint64_t bytes)
{
    struct copying *copying = worker->copying;
    bytes = bytes > piece->bytes ? piece->bytes : bytes;
    uint64_t more = bytes > telling->bytes ? bytes - telling->bytes : 0;
    mr_copy_plan_told(copying->plan, piece->table, telling->rows, more);
    atomic_fetch_add_explicit(&copying->pipeline->copy.bytes, more, memory_order_relaxed);
    telling->rows = 0;
    telling->bytes += more;
}

static void note_row(struct worker *worker, const struct mr_copy_piece *piece,
                     struct telling *telling, uint64_t place)
{
    if (MR_UNLIKELY(++telling->rows == CLOCK_ROWS)) {
        uint64_t pages = (place >> 16) - telling->page;
        tell_piece(worker, piece, telling, place == 0 ? 0 : pages * telling->page_bytes);
    }
}

/* Reads a piece to its end; its last row stays held. */
static mr_status read_piece(struct worker *worker, const struct mr_copy_piece *piece,
                            struct telling *telling, uint64_t *ret_rows, struct mr_error *ret_error)
{
    struct copying *copying = worker->copying;
    struct mr_source *source = copying->pipeline->source;
    MR_TRY(source->ops->reader_begin(worker->reader, piece->table, &piece->range, ret_error));
    for (;;) {
        while (MR_UNLIKELY(
            worker->lane->hold)) { /* what comes may be as large as what is on its way */
            MR_TRY(wait_for_room(worker));
        }
        struct mr_tuple row;
        uint64_t place;
        mr_status status = source->ops->reader_next(worker->reader, &row, &place, ret_error);
        if (status != MR_OK) {
            return status == MR_END ? MR_OK : status;
        }
        if (MR_UNLIKELY(worker->has_held && worker->held_head != piece->head)) {
            MR_TRY(leave_table(worker, ret_error));
        }
        if (MR_LIKELY(worker->has_held)) {
            MR_TRY(send_row(worker, ret_error));
        } else {
            mr_copy_plan_hold(copying->plan, piece->head);
        }
        worker->held = row;
        worker->held_head = piece->head;
        worker->held_piece = worker->piece;
        worker->held_place = place;
        worker->has_held = true;
        note_row(worker, piece, telling, place);
        ++*ret_rows;
    }
}

static mr_status copy_piece(struct worker *worker, const struct mr_copy_piece *piece,
                            struct mr_error *ret_error)
{
    struct copying *copying = worker->copying;
    const struct mr_copy_table *table = &copying->copy->tables[piece->table];
    const struct mr_relation *relation = table->relation;
    struct telling telling = {.page = (uint32_t)(piece->range.after >> 16),
                              .page_bytes = table->pages == 0 ? 0 : table->bytes / table->pages};
    mr_thread_table(relation->schema, relation->table);
    uint64_t rows = 0;
    worker->piece++;
    worker->in_piece = true;
    mr_status status = read_piece(worker, piece, &telling, &rows, ret_error);
    mr_thread_table(NULL, NULL);
    MR_TRY(status);
    worker->in_piece = false;
    if (!worker->has_held) {
        worker->lane->coming = worker->lane->copied = read_so_far(worker, 0);
    }
    tell_piece(worker, piece, &telling, piece->bytes);
    uint64_t table_rows;
    if (mr_copy_plan_piece_read(copying->plan, piece->table, rows, &table_rows)) {
        tell_table(copying, piece->table, table_rows);
    }
    return MR_OK;
}

static mr_status copy_pieces(struct worker *worker, struct mr_error *ret_error)
{
    struct copying *copying = worker->copying;
    struct mr_source *source = copying->pipeline->source;
    MR_TRY(source->ops->reader_new(source, copying->stop_fd, &worker->reader, ret_error));
    struct mr_copy_piece piece;
    uint32_t number = (uint32_t)(worker - copying->workers);
    while (mr_copy_plan_take(copying->plan, number, &piece)) {
        MR_TRY(copy_piece(worker, &piece, ret_error));
    }
    source->ops->reader_rest(worker->reader);
    return MR_OK;
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    char name[16];
    snprintf(name, sizeof(name), "mr-copy-%u", worker->lane->index);
    prctl(PR_SET_NAME, name);
    mr_thread_begin(MR_THREAD_SOURCE, name);
    mr_lane_attach(worker->lane);
    worker->status = copy_pieces(worker, &worker->error);
    if (worker->status != MR_OK) {
        mr_wake(worker->copying->stop_fd); /* the others leave, too */
    }
    atomic_fetch_sub(&worker->copying->running, 1);
    mr_wake(worker->copying->pipeline->source_wake);
    mr_thread_end();
    return NULL;
}

/* ---- the tables ---- */

struct ordered {
    const struct mr_copy_table *table;
    uint32_t index;
    uint64_t rows, bytes; /* of all tables of its relation */
};

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Tables of one relation are equal but for their indexes, so they stay together. */
static int compare_indexes(const struct ordered *a, const struct ordered *b, int so_far)
{
    return so_far != 0 ? so_far : compare_numbers(a->index, b->index);
}

/* By rows as far as they are known, else by bytes. */
static int compare_sizes(const struct ordered *a, const struct ordered *b)
{
    int by_rows = compare_numbers(a->rows, b->rows);
    return by_rows != 0 ? by_rows : compare_numbers(a->bytes, b->bytes);
}

static int compare_ascending(const void *a, const void *b)
{
    return compare_indexes(a, b, compare_sizes(a, b));
}

static int compare_descending(const void *a, const void *b)
{
    return compare_indexes(a, b, compare_sizes(b, a));
}

static int compare_listed(const void *a, const void *b)
{
    const struct ordered *x = a;
    const struct ordered *y = b;
    int order = compare_numbers(x->table->listed, y->table->listed);
    if (order == 0) {
        order = strcmp(x->table->relation->schema, y->table->relation->schema);
    }
    if (order == 0) {
        order = strcmp(x->table->relation->table, y->table->relation->table);
    }
    return compare_indexes(x, y, order);
}

static void order_tables(struct ordered *items, uint32_t count, enum mr_copy_order order)
{
    static int (*const comparisons[])(const void *, const void *) = {
        [MR_COPY_AS_LISTED] = compare_listed,
        [MR_COPY_ASCENDING] = compare_ascending,
        [MR_COPY_DESCENDING] = compare_descending,
    };
    for (uint32_t i = 0, end; i < count; i = end) {
        uint64_t rows = 0;
        uint64_t bytes = 0;
        for (end = i; end < count && items[end].table->relation == items[i].table->relation;
             end++) {
            rows += items[end].table->rows;
            bytes += items[end].table->bytes;
        }
        for (uint32_t k = i; k < end; k++) {
            items[k].rows = rows;
            items[k].bytes = bytes;
        }
    }
    qsort(items, count, sizeof(*items), comparisons[order]);
}

/* Plans of all tables are made here, in each lane's encoder: topics and counts are the source thread's to make. */
static mr_status plan_topics(struct copying *copying, struct ordered *items, uint32_t *ret_count,
                             struct mr_error *ret_error)
{
    const struct mr_copy *copy = copying->copy;
    for (uint32_t w = 0; w < copying->worker_count; w++) {
        struct mr_encoder *encoder = copying->workers[w].lane->encoder;
        mr_encoder_set_database(encoder, copy->database);
        uint32_t count = 0;
        for (uint32_t i = 0; i < copy->table_count; i++) {
            const struct mr_topic *topic = NULL;
            MR_TRY(
                mr_encoder_topic(encoder, copy->tables[i].relation, MR_OP_READ, &topic, ret_error));
            if (topic != NULL) {
                items[count++] = (struct ordered){.table = &copy->tables[i], .index = i};
            }
        }
        *ret_count = count;
    }
    return MR_OK;
}

static void replace_plan(struct mr_pipeline *pipeline, struct mr_copy_plan *plan)
{
    pthread_mutex_lock(&pipeline->copy_plan_lock);
    struct mr_copy_plan *old = pipeline->copy_plan;
    pipeline->copy_plan = plan;
    pthread_mutex_unlock(&pipeline->copy_plan_lock);
    mr_copy_plan_free(old);
}

static mr_status plan_tables(struct copying *copying, struct mr_error *ret_error)
{
    const struct mr_copy *copy = copying->copy;
    enum mr_copy_order order = copying->pipeline->options.copy_order;
    struct ordered *items = MR_NEW_ARRAY(struct ordered, copy->table_count);
    uint32_t count = 0;
    mr_status status = plan_topics(copying, items, &count, ret_error);
    if (status == MR_OK) {
        order_tables(items, count, order);
        uint32_t *indexes = MR_NEW_ARRAY(uint32_t, count);
        for (uint32_t i = 0; i < count; i++) {
            indexes[i] = items[i].index;
        }
        copying->plan = mr_copy_plan_new(copy, indexes, count, copying->worker_count,
                                         copying->pipeline->copy_plan);
        copying->plan->session = copying->intake->session;
        replace_plan(copying->pipeline, copying->plan);
    }
    free(items);
    return status;
}

static void forget_tables(struct copying *copying)
{
    for (uint32_t w = 0; w < copying->worker_count; w++) {
        for (uint32_t i = 0; i < copying->copy->table_count; i++) {
            mr_encoder_forget(copying->workers[w].lane->encoder, copying->copy->tables[i].relation);
        }
    }
}

/* ---- the source thread ---- */

static void tell_progress(struct copying *copying, int64_t now_ns)
{
    if (now_ns - copying->told_ns < TOLD_INTERVAL_S * INT64_C(1000000000)) {
        return;
    }
    copying->told_ns = now_ns;
    struct mr_copy_stats stats = mr_pipeline_stats(copying->pipeline).copy;
    struct mr_copy_table_stats table = {.table = ""};
    mr_copy_plan_progress(copying->plan, &table, 1);
    mr_log(
        MR_LOG_INFO, "snapshot_progress", "copying existing rows",
        MR_LOG_INT("percent", mr_copy_percent(stats.bytes, stats.bytes_total)),
        MR_LOG_INT("seconds_left", isnan(stats.seconds_left) ? -1 : stats.seconds_left),
        MR_LOG_INT("tables", stats.tables), MR_LOG_INT("tables_done", stats.tables_done),
        MR_LOG_INT("rows", stats.rows), MR_LOG_INT("rows_estimated", stats.rows_estimated),
        MR_LOG_INT("rows_per_second", stats.seconds > 0 ? (double)stats.rows / stats.seconds : 0),
        MR_LOG_INT("bytes", stats.bytes), MR_LOG_INT("bytes_total", stats.bytes_total),
        MR_LOG_STR("table", table.table),
        MR_LOG_INT("table_percent", mr_copy_percent(table.bytes, table.bytes_total)),
        MR_LOG_INT("seconds", stats.seconds));
}

/* The session has ended, or the thread is to stop: nothing of the attempt counts any more. */
static bool is_over(const struct copying *copying)
{
    struct mr_pipeline *pipeline = copying->pipeline;
    return atomic_load(&pipeline->sink_ended) ||
           atomic_load(&pipeline->stop_level) != MR_STOP_NONE ||
           mr_handshake_look(&pipeline->handshake).session != copying->intake->session;
}

static mr_status look_at_source(struct copying *copying, int64_t now_ns, struct mr_error *ret_error)
{
    struct mr_source *source = copying->pipeline->source;
    if (source->ops->copy_look == NULL ||
        now_ns - copying->looked_ns < LOOK_INTERVAL_S * INT64_C(1000000000)) {
        return MR_OK;
    }
    copying->looked_ns = now_ns;
    return source->ops->copy_look(source, copying->pipeline->stop, ret_error);
}

/* One look around: commands, the connection that holds claim and slot, progress. */
static mr_status look_around(struct copying *copying, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = copying->pipeline;
    struct mr_source *source = pipeline->source;
    int64_t now_ns = mr_monotonic_ns();
    atomic_store_explicit(&pipeline->source_turn_ns, now_ns, memory_order_relaxed);
    mr_mailbox_serve(&pipeline->mailbox, false);
    tell_progress(copying, now_ns);
    MR_TRY(look_at_source(copying, now_ns, ret_error));
    struct pollfd fds[2] = {
        {.fd = pipeline->source_wake, .events = POLLIN},
        {.fd = source->ops->descriptor(source), .events = POLLRDHUP},
    };
    if (poll(fds, 2, ROUND_MS) > 0 && fds[0].revents != 0) {
        mr_wake_clear(pipeline->source_wake);
    }
    if (fds[1].revents == 0) {
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_TRANSIENT,
                   "PostgreSQL connection: it was closed while existing rows were copied");
}

static mr_status start_workers(struct copying *copying, struct mr_error *ret_error)
{
    for (uint32_t i = 0; i < copying->worker_count; i++) {
        struct worker *worker = &copying->workers[i];
        atomic_fetch_add(&copying->running, 1);
        int failed = mr_thread_create(&worker->thread, worker_main, worker);
        if (failed != 0) {
            atomic_fetch_sub(&copying->running, 1);
            return mr_fail(ret_error, MR_ERR_SYSTEM, "a thread can't be started (error %d)",
                           failed);
        }
        worker->started = true;
    }
    return MR_OK;
}

/* The first failure that is not just somebody else's stop. */
static mr_status join_workers(struct copying *copying, struct mr_error *ret_error)
{
    mr_status first = MR_OK;
    for (uint32_t i = 0; i < copying->worker_count; i++) {
        struct worker *worker = &copying->workers[i];
        if (!worker->started) {
            continue;
        }
        pthread_join(worker->thread, NULL);
        mr_lane_attach(worker->lane);
        bool counts = worker->status != MR_OK && (first == MR_OK || first == MR_AGAIN);
        if (counts && worker->status != MR_AGAIN) {
            *ret_error = worker->error;
        }
        first = counts ? worker->status : first;
    }
    return first;
}

static mr_status read_rows(struct copying *copying, struct mr_error *ret_error)
{
    mr_status status = start_workers(copying, ret_error);
    while (status == MR_OK && atomic_load(&copying->running) > 0) {
        status = is_over(copying) ? MR_AGAIN : look_around(copying, ret_error);
    }
    if (status != MR_OK) {
        mr_wake(copying->stop_fd);
    }
    struct mr_error error = {0};
    mr_status joined = join_workers(copying, &error);
    if (status == MR_OK || status == MR_AGAIN) {
        *ret_error = error;
        status = status == MR_OK || joined != MR_OK ? joined : status;
    }
    return status;
}

/* The workers are gone; what each of them held back is the last row of its last table, and one of them the last of all. */
static mr_status send_last_rows(struct copying *copying, struct mr_error *ret_error)
{
    struct mr_copy_plan *plan = copying->plan;
    uint32_t left = 0;
    for (uint32_t i = 0; i < copying->worker_count; i++) {
        left += copying->workers[i].has_held;
        hand_over(&copying->workers[i]);
    }
    for (uint32_t i = 0; i < copying->worker_count; i++) {
        struct worker *worker = &copying->workers[i];
        if (!worker->has_held) {
            continue;
        }
        bool is_last = mr_copy_plan_is_last(plan, worker->held_head);
        enum mr_copy_mark mark = --left == 0 ? MR_COPY_LAST
                                 : is_last   ? MR_COPY_LAST_IN_TABLE
                                             : MR_COPY_ROW;
        MR_TRY(send_marked(worker, mark, ret_error));
        mr_copy_plan_let_go(plan, worker->held_head);
        hand_over(worker);
    }
    return MR_OK;
}

static bool all_published(const struct copying *copying)
{
    for (uint32_t i = 0; i < copying->worker_count; i++) {
        if (!mr_lane_all_published(copying->workers[i].lane)) {
            return false;
        }
    }
    return true;
}

/* MR_AGAIN: broken off. */
static mr_status wait_for_sink(struct copying *copying, struct mr_error *ret_error)
{
    while (!all_published(copying)) {
        if (is_over(copying)) {
            return MR_AGAIN;
        }
        MR_TRY(look_around(copying, ret_error));
    }
    if (copying->pipeline->options.copy_only) {
        return MR_OK;
    }
    /* Where the sink keeps a position, it is to have the stream's beginning before the slot gets its name. */
    struct mr_intake *intake = copying->intake;
    mr_intake_mark(intake, copying->copy->lsn);
    while (mr_intake_position_waits(intake) || !mr_intake_all_published(intake)) {
        if (is_over(copying)) {
            return MR_AGAIN;
        }
        if (mr_intake_position_waits(intake) && mr_lane_has_batch(intake->lane)) {
            intake->reply_wanted = true; /* it sets out at once */
            mr_intake_send_position(intake, mr_monotonic_ns());
            intake->reply_wanted = false;
        }
        MR_TRY(look_around(copying, ret_error));
    }
    return MR_OK;
}

static void begin_progress(struct copying *copying)
{
    const struct mr_copy *copy = copying->copy;
    struct mr_copy_progress *progress = &copying->pipeline->copy;
    uint64_t rows = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < copy->table_count; i++) {
        rows += copy->tables[i].rows;
        bytes += copy->tables[i].bytes;
    }
    uint64_t bytes_left;
    uint32_t left = mr_copy_plan_tables(copying->plan, &bytes_left);
    uint64_t earlier = copy->resumed == NULL ? 0 : copy->resumed->rows;
    atomic_store(&progress->tables, copy->table_count);
    atomic_store(&progress->tables_done, copy->table_count - left);
    atomic_store(&progress->rows_before, mr_pipeline_copied(copying->pipeline) - earlier);
    atomic_store(&progress->bytes, bytes > bytes_left ? bytes - bytes_left : 0);
    atomic_store(&progress->bytes_before, atomic_load(&progress->bytes));
    atomic_store(&progress->rows_estimated, rows);
    atomic_store(&progress->bytes_total, bytes);
    atomic_store(&progress->begun_ns, copying->begun_ns);
    atomic_store(&progress->state, MR_COPY_RUNNING);
    mr_standstill_end(&copying->pipeline->standstill, MR_CAUSE_POSTGRESQL_AWAY);
    mr_log(MR_LOG_INFO, "snapshot_begun",
           copy->resumed == NULL
               ? "copying existing rows; the stream begins behind them"
               : "copying the existing rows that an earlier attempt has left; the stream begins "
                 "behind them",
           MR_LOG_INT("tables", copy->table_count), MR_LOG_INT("tables_left", left),
           MR_LOG_INT("rows_estimated", rows), MR_LOG_INT("rows_copied", earlier),
           MR_LOG_INT("bytes", bytes), MR_LOG_INT("bytes_left", bytes_left),
           MR_LOG_INT("attempt", copy->attempt), MR_LOG_LSN("stream_begins", copy->lsn));
}

static mr_status copy_all(struct copying *copying, struct mr_error *ret_error)
{
    MR_TRY(plan_tables(copying, ret_error));
    begin_progress(copying);
    MR_TRY(read_rows(copying, ret_error));
    MR_TRY(send_last_rows(copying, ret_error));
    return wait_for_sink(copying, ret_error);
}

static void make_workers(struct copying *copying)
{
    struct mr_pipeline *pipeline = copying->pipeline;
    for (uint32_t i = 1; i < pipeline->lane_count; i++) {
        struct mr_lane *lane = &pipeline->lanes[i];
        if (lane->session != copying->intake->session) {
            mr_lane_follow_session(lane, copying->intake->session);
        }
        lane->copied = lane->coming = (struct mr_copied){0};
        copying->workers[copying->worker_count++] =
            (struct worker){.copying = copying, .lane = lane};
    }
}

static void end_copying(struct copying *copying)
{
    for (uint32_t i = 0; i < copying->worker_count; i++) {
        mr_lane_attach(copying->workers[i].lane);
        mr_lane_give_up(copying->workers[i].lane);
        if (copying->workers[i].reader != NULL) {
            copying->pipeline->source->ops->reader_free(copying->workers[i].reader);
        }
    }
    forget_tables(copying);
    close(copying->stop_fd);
}

/* The copy is the source's, and gone: `tables` it had. */
static void tell_end(struct copying *copying, uint32_t tables, mr_status status)
{
    struct mr_copy_progress *progress = &copying->pipeline->copy;
    uint64_t rows = mr_pipeline_stats(copying->pipeline).copy.rows;
    int64_t ms = (mr_monotonic_ns() - copying->begun_ns) / 1000000;
    atomic_store(&progress->ended_ns, mr_monotonic_ns());
    atomic_store(&progress->state, status == MR_OK ? MR_COPY_DONE : MR_COPY_BROKEN_OFF);
    if (status == MR_OK) {
        mr_log(MR_LOG_INFO, "snapshot_done", "existing rows are copied",
               MR_LOG_INT("tables", tables), MR_LOG_INT("rows", rows), MR_LOG_INT("ms", ms));
    } else {
        mr_log(MR_LOG_WARN, "snapshot_unfinished",
               "the copy of existing rows was broken off; the next attempt goes on with what is "
               "not stored as copied, and its rows have higher positions",
               MR_LOG_INT("rows", rows));
    }
}

/* What an earlier attempt in this session has sent is with the sink: then it is known how far it came. False: the session or
 * the thread ends first. */
static bool settle_progress(struct mr_intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_copy_plan *plan = pipeline->copy_plan;
    if (!mr_intake_stores(intake) || plan == NULL || plan->session != intake->session ||
        atomic_load(&pipeline->copy.state) != MR_COPY_BROKEN_OFF) {
        return true;
    }
    struct copying copying = {.intake = intake, .pipeline = pipeline};
    make_workers(&copying);
    while (!all_published(&copying)) {
        if (is_over(&copying)) {
            return false;
        }
        mr_intake_wait_for_sink(intake, ROUND_MS * INT64_C(1000000));
    }
    struct mr_checkpoint known;
    mr_intake_known(intake, &known);
    mr_copy_stored_free(pipeline->stored.copy);
    pipeline->stored = (struct mr_checkpoint){
        .identity = pipeline->identity,
        .end_lsn = known.end_lsn,
        .position = pipeline->stored.position,
        .copy = mr_copy_plan_state(plan, mr_pipeline_stats(pipeline).copy.rows),
        .copy_only = pipeline->options.copy_only};
    pipeline->stored_found = true;
    return true;
}

/* The stream's beginning is what is known of it, whatever was before. */
static void note_beginning(struct mr_intake *intake, const struct mr_identity *identity, mr_lsn lsn)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    if (mr_intake_stores(intake) && !pipeline->options.copy_only) {
        mr_copy_stored_free(pipeline->stored.copy);
        pipeline->stored = (struct mr_checkpoint){.identity = *identity, .end_lsn = lsn};
        pipeline->stored_found = true;
    }
}

/* Where a slot lies and which attempt it is of, the server says: it may forget what it said before. */
static mr_status check_grows(struct mr_pipeline *pipeline, const struct mr_copy *copy,
                             struct mr_error *ret_error)
{
    struct mr_position first = {.commit_lsn = copy->transaction.commit_lsn,
                                .ordinal = (uint64_t)copy->attempt << MR_COPY_ROW_BITS};
    bool grows = true;
    pthread_mutex_lock(&pipeline->hand_over);
    for (uint32_t i = MR_LANE_STREAM + 1; i < pipeline->lane_count; i++) {
        grows = grows && mr_position_compare(pipeline->lanes[i].handed_over, first) <= 0;
    }
    pthread_mutex_unlock(&pipeline->hand_over);
    return grows ? MR_OK
                 : mr_fail(ret_error, MR_ERR_PROTOCOL,
                           "the server begins a copy at " MR_LSN_FORMAT
                           ", attempt %u, where it began one before: its rows would have the same "
                           "positions",
                           MR_LSN_ARGS(copy->lsn), copy->attempt);
}

mr_status mr_intake_copy(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_source *source = pipeline->source;
    struct mr_identity identity = {0};
    const struct mr_copy *copy = NULL;
    if (!settle_progress(intake)) {
        return MR_OK;
    }
    struct mr_checkpoint known;
    bool is_known = mr_intake_known(intake, &known);
    bool was_begun =
        mr_intake_stores(intake) && pipeline->stored_found && pipeline->stored.copy != NULL;
    if (pipeline->options.copy_when_needed && pipeline->options.handed_over.lsn != 0 && !is_known &&
        !was_begun && !intake->copy_asked) {
        intake->copy_done = true; /* another program has delivered what is before its offset */
        return MR_OK;
    }
    MR_TRY(source->ops->copy_begin(source, is_known || was_begun ? &known : NULL, pipeline->stop,
                                   &identity, &copy, ret_error));
    if (copy == NULL) {
        intake->copy_done = true;
        return MR_OK;
    }
    MR_TRY(check_grows(pipeline, copy, ret_error));
    mr_lsn begins = copy->lsn;
    uint32_t tables = copy->table_count;
    pthread_mutex_lock(&pipeline->identity_lock);
    pipeline->identity = identity;
    pthread_mutex_unlock(&pipeline->identity_lock);
    struct copying copying = {.intake = intake,
                              .pipeline = pipeline,
                              .copy = copy,
                              .stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                              .begun_ns = mr_monotonic_ns()};
    copying.told_ns = copying.begun_ns;
    copying.looked_ns = copying.begun_ns;
    MR_ASSERT(copying.stop_fd >= 0);
    pipeline->copy_ordinal = (uint64_t)copy->attempt << MR_COPY_ROW_BITS;
    make_workers(&copying);
    mr_status status = copy_all(&copying, ret_error);
    end_copying(&copying);
    if (status == MR_OK) {
        status = source->ops->copy_end(source, pipeline->stop, ret_error);
    }
    tell_end(&copying, tables, status);
    intake->copy_done = status == MR_OK;
    if (status == MR_OK) {
        note_beginning(intake, &identity, begins);
    }
    if (status == MR_OK && pipeline->options.copy_only) {
        mr_pipeline_stop_in_order(pipeline);
    }
    return status == MR_AGAIN ? MR_OK : status;
}
