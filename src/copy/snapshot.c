/* The copy of existing rows before the stream begins, a companion of the flow: workers with a lane
 * each read tables and append their rows; the source thread starts them, waits until all of it is
 * with the sink, and ends the copy at the server.
 *
 * Rows get their positions in the order in which batches are handed over (flow/lane.c), so within a
 * partition they grow, whichever worker reads which part of which table (copy_plan.h). All
 * positions of a copy lie right below the place where the stream begins, and those of a later
 * attempt above those of an earlier one, so a consumer that drops what is not above keeps what
 * counts. An attempt that fails is given up; what is stored as copied is not copied again. */
#include <math.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/thread.h"
#include "base/wake.h"
#include "copy/copies_internal.h"
#include "copy/copy_plan.h"
#include "flow/port.h"

enum {
    ROUND_MS = 100,       /* how often the source thread looks around while workers copy */
    CLOCK_ROWS = 256,     /* the clock of events is read once for so many rows */
    TOLD_INTERVAL_S = 10, /* the log is told how far it is */
    LOOK_INTERVAL_S = 2,  /* and the source asked whether the stream can follow */
};

struct mr_snapshot {
    struct mr_companion base;
    struct mr_copies_options options;
    struct mr_chunk_requests *requests; /* the chunks' */
    _Atomic int state; /* enum mr_copy_state; set by the source thread, as what follows */
    _Atomic uint64_t rows_before; /* that are not of the attempt at hand */
    _Atomic int64_t begun_ns, ended_ns;
    struct mr_identity identity; /* of the last attempt; source thread */
    struct copying *copying;     /* the attempt at hand; set before its workers run */
    /* Of the attempt at hand or the last one; NULL: there was none. Source thread; others read it,
     * with the lock. */
    struct mr_copy_plan *plan;
    pthread_mutex_t lock;
};

struct held_row {
    struct mr_tuple values;
    uint32_t table;
    uint32_t head;  /* the table; by a root the first of its partitions */
    uint64_t piece; /* of its worker's, 1, 2, 3 … */
    uint64_t place;
};

struct worker {
    struct copying *copying;
    struct mr_lane *lane;
    struct mr_copy_reader *reader;
    pthread_t thread;
    bool started;
    uint64_t row; /* the last one appended */
    /* The row that was read last waits for the next one: only then is it known whether it was its
     * table's last. */
    struct held_row held;
    bool has_held;
    bool is_last;      /* it is the last of all, when the workers have ended */
    uint64_t piece;    /* the one begun last; */
    bool in_piece;     /* it is not read to its end */
    uint64_t reported; /* bytes of it */
    /* How far the worker is by the rows appended so far, and with the one that is being
     * appended. */
    struct mr_copied sent, sending;
    mr_status status;
    struct mr_error error;
};

struct copying {
    struct mr_snapshot *snapshot;
    struct mr_port *port;
    const struct mr_copy_server *server;
    const struct mr_copy *copy;
    struct mr_copy_plan *plan; /* the snapshot's */
    _Atomic uint32_t running;
    int stop_fd; /* readable: leave */
    struct worker workers[MR_COPY_LANES_MAX];
    uint32_t worker_count;
    int64_t begun_ns;
    int64_t told_ns;
    int64_t looked_ns;
    bool has_let_go; /* of what the copy takes the place of */
};

static struct mr_snapshot *copy_snapshot_of(const struct mr_companion *companion)
{
    return (struct mr_snapshot *)(uintptr_t)companion;
}

static bool is_stopped(const struct copying *copying)
{
    return mr_wait_readable(copying->stop_fd, 0);
}

static struct mr_copy_stats snapshot_stats(struct mr_snapshot *snapshot)
{
    struct mr_copy_stats stats = {.seconds_left = NAN};
    enum mr_copy_state state = (enum mr_copy_state)atomic_load(&snapshot->state);
    bool is_running = state == MR_COPY_RUNNING;
    int64_t end_ns = is_running ? mr_monotonic_ns() : atomic_load(&snapshot->ended_ns);
    pthread_mutex_lock(&snapshot->lock);
    if (snapshot->plan != NULL) {
        double seconds = (double)(end_ns - atomic_load(&snapshot->begun_ns)) / 1e9;
        stats = mr_copy_plan_totals(snapshot->plan, seconds);
    }
    pthread_mutex_unlock(&snapshot->lock);
    stats.state = state;
    stats.rows = mr_port_records_beside(snapshot->base.port) - atomic_load(&snapshot->rows_before);
    stats.seconds_left = is_running ? stats.seconds_left : NAN;
    return stats;
}

static mr_status copy_snapshot_wait_for_room(struct worker *worker)
{
    struct mr_lane *lane = worker->lane;
    atomic_store(&lane->waits, true);
    if (!mr_lane_has_batch(lane) || !mr_lane_may_go_on(lane)) {
        int64_t begun_ns = mr_monotonic_ns();
        mr_wait_either(worker->copying->stop_fd, lane->wake, ROUND_MS);
        mr_wake_clear(lane->wake);
        lane->has_waited = mr_monotonic_ns() - begun_ns >= ROUND_MS * INT64_C(1000000);
    }
    atomic_store(&lane->waits, false);
    mr_lane_look_for_room(lane);
    return is_stopped(worker->copying) ? MR_AGAIN : MR_OK;
}

/* A person has to find it, and has no transaction to skip. */
static void name_row(const struct worker *worker, struct mr_error *error)
{
    const struct held_row *held = &worker->held;
    char at[64] = "";
    if (held->place != 0) {
        snprintf(at, sizeof(at), ", where tableoid = %u and ctid = '(%llu,%u)'",
                 worker->copying->copy->tables[held->table].oid,
                 (unsigned long long)(held->place >> 16), (unsigned)(held->place & UINT16_MAX));
    }
    struct mr_error whole;
    mr_error_set(&whole, error->status,
                 "%s; it is an existing row%s: take away the reason, or leave the row out by "
                 "snapshot.where (--skip-commit-lsn skips no row that is copied)",
                 error->text, at);
    *error = whole;
}

static mr_status try_append(struct worker *worker, enum mr_copy_mark mark,
                            struct mr_error *ret_error)
{
    const struct mr_copy *copy = worker->copying->copy;
    struct mr_lane *lane = worker->lane;
    if (worker->row % CLOCK_ROWS == 0) {
        lane->round.ns = mr_monotonic_ns();
        lane->round.wall_ns = mr_wall_ns();
        mr_encoder_set_clock(lane->encoder, lane->round.wall_ns);
    }
    struct mr_change change = {
        .op = MR_OP_READ,
        .copy_mark = mark,
        .lsn = copy->lsn,
        /* It gets its place among the others' as it is handed over. */
        .position = {.commit_lsn = copy->transaction.commit_lsn, .ordinal = worker->row + 1},
        .transaction = &copy->transaction,
        .relation = copy->tables[worker->held.head].relation,
        .after = worker->held.values,
    };
    struct mr_item item = {.kind = MR_ITEM_CHANGE, .change = &change};
    mr_status status = mr_lane_append(lane, &item, ret_error);
    if (MR_UNLIKELY(status == MR_ERR_POISON)) {
        name_row(worker, ret_error);
    }
    worker->row += status == MR_OK;
    return status;
}

static struct mr_copied read_so_far(const struct worker *worker, uint64_t place)
{
    return (struct mr_copied){.pieces = worker->piece - worker->in_piece,
                              .place = worker->in_piece ? place : 0};
}

static mr_status try_held(struct worker *worker, enum mr_copy_mark mark, struct mr_error *ret_error)
{
    MR_ASSERT(worker->has_held);
    worker->sending =
        read_so_far(worker, worker->held.piece == worker->piece ? worker->held.place : 0);
    MR_TRY(try_append(worker, mark, ret_error));
    worker->has_held = false;
    worker->sent = worker->sending;
    return MR_OK;
}

/* So that what others append from now on has a higher position. */
static void copy_snapshot_hand_over(struct worker *worker)
{
    if (mr_lane_has_records(worker->lane)) {
        mr_lane_hand_over(worker->lane);
    }
}

/* With plan->rows, and without waiting: the held row, whose mark is known but for the first
 * ones. */
static mr_status try_marked(struct worker *worker, enum mr_copy_mark mark,
                            struct mr_error *ret_error)
{
    struct mr_copy_plan *plan = worker->copying->plan;
    struct mr_plan_table *table = &plan->tables[worker->held.head];
    bool is_first = !atomic_load(&plan->began);
    bool is_table_first = !atomic_load(&table->began);
    if (is_first && mark != MR_COPY_LAST) {
        mark = MR_COPY_FIRST;
    } else if (is_table_first && mark == MR_COPY_ROW) {
        mark = MR_COPY_FIRST_IN_TABLE;
    }
    MR_TRY(try_held(worker, mark, ret_error));
    if (is_first || (is_table_first && table->all_pieces > 1)) {
        copy_snapshot_hand_over(worker);
    }
    atomic_store(&plan->began, true);
    atomic_store(&table->began, true);
    return MR_OK;
}

static mr_status try_last(struct worker *worker, struct mr_error *ret_error)
{
    struct mr_copy_plan *plan = worker->copying->plan;
    uint32_t table = worker->held.head;
    bool is_last = mr_copy_plan_is_last(plan, table);
    enum mr_copy_mark mark = worker->is_last ? MR_COPY_LAST
                             : is_last       ? MR_COPY_LAST_IN_TABLE
                                             : MR_COPY_ROW;
    MR_TRY(try_marked(worker, mark, ret_error));
    if (!is_last) {
        copy_snapshot_hand_over(worker);
    }
    mr_copy_plan_let_go(plan, table);
    return MR_OK;
}

/* Tries again after each wait for room: `plan->rows` is never held over one, and what is decided
 * with it is decided again. */
static mr_status until_room(struct worker *worker,
                            mr_status (*try)(struct worker *worker, struct mr_error *ret_error),
                            struct mr_error *ret_error)
{
    pthread_mutex_t *rows = &worker->copying->plan->rows;
    for (;;) {
        pthread_mutex_lock(rows);
        mr_status status = try(worker, ret_error);
        pthread_mutex_unlock(rows);
        if (status != MR_FULL) {
            return status;
        }
        MR_TRY(copy_snapshot_wait_for_room(worker));
    }
}

static mr_status try_row(struct worker *worker, struct mr_error *ret_error)
{
    return try_marked(worker, MR_COPY_ROW, ret_error);
}

static mr_status copy_snapshot_send_row(struct worker *worker, struct mr_error *ret_error)
{
    const struct mr_plan_table *table = &worker->copying->plan->tables[worker->held.head];
    while (MR_LIKELY(atomic_load_explicit(&table->began, memory_order_acquire))) {
        mr_status status = try_held(worker, MR_COPY_ROW, ret_error);
        if (MR_LIKELY(status != MR_FULL)) {
            return status;
        }
        MR_TRY(copy_snapshot_wait_for_room(worker));
    }
    return until_room(worker, try_row, ret_error);
}

static mr_status try_leave(struct worker *worker, struct mr_error *ret_error)
{
    while (!mr_copy_plan_settled(worker->copying->plan, worker->held.head)) {
        if (is_stopped(worker->copying)) {
            return MR_AGAIN;
        }
    }
    return try_last(worker, ret_error);
}

static void copy_snapshot_tell_table(struct copying *copying, uint32_t table, uint64_t rows)
{
    const struct mr_relation *relation = copying->copy->tables[table].relation;
    int64_t begun_ns = atomic_load(&copying->plan->tables[table].begun_ns);
    char name[2 * MR_IDENTIFIER_MAX + 2];
    snprintf(name, sizeof(name), "%s.%s", relation->schema, relation->table);
    mr_log(MR_LOG_INFO, "snapshot_table", "the rows of a table are read", MR_LOG_STR("table", name),
           MR_LOG_INT("rows", rows), MR_LOG_INT("pieces", copying->plan->tables[table].pieces),
           MR_LOG_INT("ms", (mr_monotonic_ns() - begun_ns) / 1000000));
}

/* Reports how far a piece is, up to so many bytes: now and then, for a line that all workers write
 * to is not for each row. */
static void copy_snapshot_report(struct worker *worker, const struct mr_copy_piece *piece,
                                 uint64_t rows, uint64_t bytes)
{
    bytes = bytes > piece->bytes ? piece->bytes : bytes;
    uint64_t more = bytes > worker->reported ? bytes - worker->reported : 0;
    mr_copy_plan_told(worker->copying->plan, piece->table, rows, more);
    worker->reported += more;
}

/* Of the table's file, by the place of a row (0: not known). */
static uint64_t bytes_before(const struct worker *worker, const struct mr_copy_piece *piece,
                             uint64_t place)
{
    const struct mr_copy_table *table = &worker->copying->copy->tables[piece->table];
    bool is_known = place != 0 && table->pages != 0;
    return is_known ? ((place >> 16) - (piece->range.after >> 16)) * (table->bytes / table->pages)
                    : 0;
}

/* Reads a piece to its end; its last row stays held. */
static mr_status copy_snapshot_read_piece(struct worker *worker, const struct mr_copy_piece *piece,
                                          uint64_t *ret_rows, struct mr_error *ret_error)
{
    struct copying *copying = worker->copying;
    const struct mr_snapshot_ops *ops = copying->server->snapshot;
    MR_TRY(ops->reader_begin(worker->reader, piece->table, &piece->range, ret_error));
    for (;;) {
        while (MR_UNLIKELY(worker->lane->room.hold)) { /* what comes may be as large */
            MR_TRY(copy_snapshot_wait_for_room(worker));
        }
        struct mr_tuple row;
        uint64_t place;
        mr_status status = ops->reader_next(worker->reader, &row, &place, ret_error);
        if (status != MR_OK) {
            return status == MR_END ? MR_OK : status;
        }
        if (MR_UNLIKELY(worker->has_held && worker->held.head != piece->head)) {
            MR_TRY(until_room(worker, try_leave, ret_error));
        }
        if (MR_LIKELY(worker->has_held)) {
            MR_TRY(copy_snapshot_send_row(worker, ret_error));
        } else {
            mr_copy_plan_hold(copying->plan, piece->head);
        }
        worker->held = (struct held_row){.values = row,
                                         .table = piece->table,
                                         .head = piece->head,
                                         .piece = worker->piece,
                                         .place = place};
        worker->has_held = true;
        if (MR_UNLIKELY(++*ret_rows % CLOCK_ROWS == 0)) {
            copy_snapshot_report(worker, piece, CLOCK_ROWS, bytes_before(worker, piece, place));
        }
    }
}

static mr_status copy_piece(struct worker *worker, const struct mr_copy_piece *piece,
                            struct mr_error *ret_error)
{
    struct copying *copying = worker->copying;
    const struct mr_relation *relation = copying->copy->tables[piece->table].relation;
    mr_thread_table(relation->schema, relation->table);
    uint64_t rows = 0;
    worker->piece++;
    worker->in_piece = true;
    worker->reported = 0;
    mr_status status = copy_snapshot_read_piece(worker, piece, &rows, ret_error);
    mr_thread_table(NULL, NULL);
    MR_TRY(status);
    worker->in_piece = false;
    if (!worker->has_held) {
        worker->sending = worker->sent = read_so_far(worker, 0);
    }
    copy_snapshot_report(worker, piece, rows % CLOCK_ROWS, piece->bytes);
    uint64_t table_rows;
    if (mr_copy_plan_piece_read(copying->plan, piece->table, rows, &table_rows)) {
        copy_snapshot_tell_table(copying, piece->table, table_rows);
    }
    return MR_OK;
}

static mr_status copy_pieces(struct worker *worker, struct mr_error *ret_error)
{
    struct copying *copying = worker->copying;
    const struct mr_copy_server *server = copying->server;
    MR_TRY(server->snapshot->reader_new(server->context, copying->stop_fd, &worker->reader,
                                        ret_error));
    struct mr_copy_piece piece;
    uint32_t number = (uint32_t)(worker - copying->workers);
    while (mr_copy_plan_take(copying->plan, number, &piece)) {
        MR_TRY(copy_piece(worker, &piece, ret_error));
    }
    server->snapshot->reader_rest(worker->reader);
    return MR_OK;
}

static void *copy_snapshot_worker_main(void *context)
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
    mr_port_wake(worker->copying->port);
    mr_thread_end();
    return NULL;
}

struct ordered {
    const struct mr_copy_table *table;
    uint32_t index;
};

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* As they are listed. Tables of one relation are equal but for their indexes, so they stay
 * together. */
static int copy_snapshot_compare_tables(const void *a, const void *b)
{
    const struct ordered *x = a;
    const struct ordered *y = b;
    int order = compare_numbers(x->table->listed, y->table->listed);
    order = order != 0 ? order : strcmp(x->table->relation->schema, y->table->relation->schema);
    order = order != 0 ? order : strcmp(x->table->relation->table, y->table->relation->table);
    return order != 0 ? order : compare_numbers(x->index, y->index);
}

/* Plans of all tables are made here, in each lane's encoder: topics and counts are the source
 * thread's to make. */
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

static mr_status plan_tables(struct copying *copying, struct mr_error *ret_error)
{
    const struct mr_copy *copy = copying->copy;
    MR_FREED struct ordered *items = MR_NEW_ARRAY(struct ordered, copy->table_count);
    uint32_t count = 0;
    MR_TRY(plan_topics(copying, items, &count, ret_error));
    mr_sort(items, count, sizeof(*items), copy_snapshot_compare_tables);
    uint32_t *indexes = MR_NEW_ARRAY(uint32_t, count);
    for (uint32_t i = 0; i < count; i++) {
        indexes[i] = items[i].index;
    }
    copying->plan = mr_copy_plan_new(copy, indexes, count, copying->worker_count);
    struct mr_snapshot *snapshot = copying->snapshot;
    MR_HOLD(&snapshot->lock);
    mr_copy_plan_free(snapshot->plan);
    snapshot->plan = copying->plan;
    return MR_OK;
}

static void copy_snapshot_forget_tables(struct copying *copying)
{
    for (uint32_t w = 0; w < copying->worker_count; w++) {
        for (uint32_t i = 0; i < copying->copy->table_count; i++) {
            mr_encoder_forget(copying->workers[w].lane->encoder, copying->copy->tables[i].relation);
        }
    }
}

static void copy_snapshot_tell_progress(struct copying *copying, int64_t now_ns)
{
    if (now_ns - copying->told_ns < TOLD_INTERVAL_S * INT64_C(1000000000)) {
        return;
    }
    copying->told_ns = now_ns;
    struct mr_copy_stats stats = snapshot_stats(copying->snapshot);
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

static mr_status look_at_source(struct copying *copying, int64_t now_ns, struct mr_error *ret_error)
{
    const struct mr_copy_server *server = copying->server;
    if (now_ns - copying->looked_ns < LOOK_INTERVAL_S * INT64_C(1000000000)) {
        return MR_OK;
    }
    copying->looked_ns = now_ns;
    return server->snapshot->look(server->context, ret_error);
}

/* Not before it is stored that there is a gap: the next process would find neither what was left
 * out nor that something was. */
static mr_status let_go(struct copying *copying, struct mr_error *ret_error)
{
    const struct mr_copy_server *server = copying->server;
    if (copying->has_let_go ||
        !mr_chunk_requests_gap_is_safe(copying->snapshot->requests, copying->copy->lsn)) {
        return MR_OK;
    }
    copying->has_let_go = true;
    return server->snapshot->let_go(server->context, ret_error);
}

static mr_status look_around(struct copying *copying, struct mr_error *ret_error)
{
    int64_t now_ns = mr_monotonic_ns();
    if (mr_port_is_over(copying->port)) {
        return MR_AGAIN;
    }
    MR_TRY(let_go(copying, ret_error));
    copy_snapshot_tell_progress(copying, now_ns);
    MR_TRY(look_at_source(copying, now_ns, ret_error));
    return mr_port_look_around(copying->port, ROUND_MS, ret_error);
}

static mr_status start_workers(struct copying *copying, struct mr_error *ret_error)
{
    for (uint32_t i = 0; i < copying->worker_count; i++) {
        struct worker *worker = &copying->workers[i];
        atomic_fetch_add(&copying->running, 1);
        MR_TRY(mr_thread_create(&worker->thread, copy_snapshot_worker_main, worker, ret_error));
        worker->started = true;
    }
    return MR_OK;
}

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

static mr_status copy_snapshot_read_rows(struct copying *copying, struct mr_error *ret_error)
{
    mr_status status = start_workers(copying, ret_error);
    while (status == MR_OK && atomic_load(&copying->running) > 0) {
        status = look_around(copying, ret_error);
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

/* The workers are gone; what each of them held back is the last row of its last table, and one of
 * them the last of all. */
static mr_status send_last_rows(struct copying *copying, struct mr_error *ret_error)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < copying->worker_count; i++) {
        left += copying->workers[i].has_held;
        copy_snapshot_hand_over(&copying->workers[i]);
    }
    for (uint32_t i = 0; i < copying->worker_count; i++) {
        struct worker *worker = &copying->workers[i];
        if (worker->has_held) {
            worker->is_last = --left == 0;
            MR_TRY(until_room(worker, try_last, ret_error));
            copy_snapshot_hand_over(worker);
        }
    }
    return MR_OK;
}

static bool all_published(const struct copying *copying)
{
    return MR_ALL(worker, copying->workers, copying->worker_count,
                  mr_lane_all_published(worker->lane));
}

static mr_status wait_for_sink(struct copying *copying, struct mr_error *ret_error)
{
    while (!all_published(copying)) {
        MR_TRY(look_around(copying, ret_error));
    }
    /* Where the sink keeps a position, it is to have the stream's beginning before the slot gets
     * its name. */
    if (!copying->snapshot->options.only) {
        MR_TRY(mr_port_begin_at(copying->port, copying->copy->lsn, ROUND_MS, ret_error));
    }
    while (!copying->has_let_go) { /* the sink's thread is about to say that it is stored */
        MR_TRY(look_around(copying, ret_error));
    }
    return MR_OK;
}

static bool is_beginning_stored(struct copying *copying)
{
    MR_HOLD(&copying->snapshot->lock);
    return copying->plan->is_stored;
}

/* Which columns are hidden is known by now: the next process is to know it, too, though of this one
 * no row may come to the sink. A batch without rows takes that along. */
static mr_status store_beginning(struct copying *copying, struct mr_error *ret_error)
{
    if (!copying->snapshot->options.stores_beginning || !copying->port->stores) {
        return MR_OK;
    }
    struct mr_lane *lane = copying->workers[0].lane;
    mr_lane_attach(lane);
    while (!mr_lane_take(lane)) {
        MR_TRY(look_around(copying, ret_error));
    }
    mr_lane_hand_over(lane);
    while (!is_beginning_stored(copying)) {
        MR_TRY(look_around(copying, ret_error));
    }
    return MR_OK;
}

static void begin_progress(struct copying *copying)
{
    const struct mr_copy *copy = copying->copy;
    struct mr_snapshot *snapshot = copying->snapshot;
    uint64_t earlier = copy->resumed == NULL ? 0 : copy->resumed->rows;
    atomic_store(&snapshot->rows_before, mr_port_records_beside(copying->port) - earlier);
    atomic_store(&snapshot->begun_ns, copying->begun_ns);
    atomic_store(&snapshot->state, MR_COPY_RUNNING);
    struct mr_copy_stats stats = snapshot_stats(snapshot);
    mr_log(MR_LOG_INFO, "snapshot_begun",
           copy->resumed == NULL
               ? "copying existing rows; the stream begins after them"
               : "copying the existing rows that an earlier attempt has left; the stream begins "
                 "after them",
           MR_LOG_INT("tables", stats.tables),
           MR_LOG_INT("tables_left", stats.tables - stats.tables_done),
           MR_LOG_INT("rows_estimated", stats.rows_estimated), MR_LOG_INT("rows_copied", earlier),
           MR_LOG_INT("bytes", stats.bytes_total),
           MR_LOG_INT("bytes_left", stats.bytes_total - stats.bytes),
           MR_LOG_INT("attempt", copy->attempt), MR_LOG_LSN("stream_begins", copy->lsn));
}

/* What was inserted since the slot's place is in a later snapshot and in the stream, and nothing
 * tells that it is one row. */
static void tell_keyless(const struct copying *copying)
{
    const struct mr_copy_plan *plan = copying->plan;
    uint32_t count = 0;
    const char *first = "";
    for (uint32_t i = 0; i < plan->table_count && copying->copy->attempt > 1; i++) {
        bool has_key = copying->copy->tables[i].relation->key_count > 0;
        if (!has_key && plan->tables[i].pieces > 0) {
            first = count++ == 0 ? plan->tables[i].name : first;
        }
    }
    if (count > 0) {
        mr_log(MR_LOG_WARN, "snapshot_without_key",
               "tables without a key are not copied to their ends, and an earlier attempt has "
               "begun the copy: rows that were inserted since come twice, as copied and as "
               "inserted; docs/snapshots.md says what to do",
               MR_LOG_INT("tables", count), MR_LOG_STR("table", first),
               MR_LOG_INT("attempt", copying->copy->attempt),
               MR_LOG_LSN("stream_begins", copying->copy->lsn));
    }
}

/* It begins before the stream, which alone knows transactions. */
static void tell_skip(const struct copying *copying)
{
    if (copying->port->skip != 0) {
        mr_log(MR_LOG_WARN, "skip_ignored",
               "--skip-commit-lsn skips a transaction of the stream, and no row that is copied "
               "before it; such a row is left out by snapshot.where",
               MR_LOG_LSN("commit_lsn", copying->port->skip),
               MR_LOG_LSN("at", copying->copy->transaction.commit_lsn));
    }
}

static mr_status copy_all(struct copying *copying, struct mr_error *ret_error)
{
    MR_TRY(let_go(copying, ret_error));
    MR_TRY(plan_tables(copying, ret_error));
    begin_progress(copying);
    tell_keyless(copying);
    tell_skip(copying);
    MR_TRY(store_beginning(copying, ret_error));
    MR_TRY(copy_snapshot_read_rows(copying, ret_error));
    MR_TRY(send_last_rows(copying, ret_error));
    return wait_for_sink(copying, ret_error);
}

static void make_workers(struct copying *copying)
{
    for (uint32_t i = MR_LANE_STREAM + 1; i < copying->port->lanes; i++) {
        struct mr_lane *lane = mr_port_lane(copying->port, i, &copying->snapshot->base);
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
            copying->server->snapshot->reader_free(copying->workers[i].reader);
        }
    }
    copy_snapshot_forget_tables(copying);
    close(copying->stop_fd);
}

static void copy_snapshot_tell_end(struct copying *copying, mr_status status)
{
    struct mr_snapshot *snapshot = copying->snapshot;
    struct mr_copy_stats stats = snapshot_stats(snapshot);
    int64_t ms = (mr_monotonic_ns() - copying->begun_ns) / 1000000;
    atomic_store(&snapshot->ended_ns, mr_monotonic_ns());
    atomic_store(&snapshot->state, status == MR_OK ? MR_COPY_DONE : MR_COPY_BROKEN_OFF);
    if (status == MR_OK) {
        mr_log(MR_LOG_INFO, "snapshot_done", "existing rows are copied",
               MR_LOG_INT("tables", stats.tables), MR_LOG_INT("rows", stats.rows),
               MR_LOG_INT("ms", ms));
    } else {
        mr_log(MR_LOG_WARN, "snapshot_unfinished",
               "the copy of existing rows was interrupted; the next attempt copies the rest, and "
               "its rows have higher positions",
               MR_LOG_INT("rows", stats.rows));
    }
}

static mr_status copy_snapshot_copy_rows(struct mr_snapshot *snapshot, const struct mr_copy *copy,
                                         struct mr_error *ret_error)
{
    const struct mr_copy_server *server = snapshot->options.server;
    struct copying copying = {.snapshot = snapshot,
                              .port = snapshot->base.port,
                              .server = server,
                              .copy = copy,
                              .stop_fd = mr_wake_new(),
                              .begun_ns = mr_monotonic_ns()};
    copying.told_ns = copying.begun_ns;
    copying.looked_ns = copying.begun_ns;
    make_workers(&copying);
    snapshot->copying = &copying;
    mr_status status = copy_all(&copying, ret_error);
    end_copying(&copying);
    snapshot->copying = NULL;
    status = MR_THEN(status, server->snapshot->end(server->context, ret_error));
    copy_snapshot_tell_end(&copying, status);
    return status;
}

/* What an earlier attempt in this session has sent is with the sink: then it is known how far it
 * came. MR_AGAIN: the session or the thread ends first. */
static mr_status settle_progress(struct mr_snapshot *snapshot, struct mr_error *ret_error)
{
    struct mr_port *port = snapshot->base.port;
    struct mr_copy_plan *plan = snapshot->plan;
    if (!port->stores || plan == NULL || !plan->counts ||
        atomic_load(&snapshot->state) != MR_COPY_BROKEN_OFF) {
        return MR_OK;
    }
    for (uint32_t i = MR_LANE_STREAM + 1; i < port->lanes; i++) {
        while (!mr_lane_all_published(mr_port_lane(port, i, &snapshot->base))) {
            MR_TRY(mr_port_look_around(port, ROUND_MS, ret_error));
        }
    }
    struct mr_checkpoint known;
    mr_port_known(port, &known);
    struct mr_checkpoint settled = {
        .identity = snapshot->identity, .end_lsn = known.end_lsn, .position = known.position};
    struct mr_copy_stored *state = mr_copy_plan_state(plan, snapshot_stats(snapshot).rows);
    mr_copy_stored_add(state, snapshot->options.only, &settled);
    mr_copy_stored_free(state);
    mr_port_set_known(port, &settled);
    return MR_OK;
}

/* Stored with the place where the stream begins again: a gap that is accepted, or deletes that a
 * copy does not bring. An attempt that goes on with a copy has it stored with the copy. */
static void note_gap(struct mr_snapshot *snapshot, const struct mr_checkpoint *known,
                     const struct mr_copy *copy)
{
    bool accepts = snapshot->options.accepts_gap;
    bool is_new = copy->leaves_out && copy->resumed == NULL;
    /* 0/0: nothing is known of what was before. What was delivered beyond the place where the
     * server left its timeline is not what the server has there. */
    mr_lsn from = known == NULL ? copy->confirmed : known->end_lsn;
    from = copy->left != 0 && copy->left < from ? copy->left : from;
    if (accepts) {
        mr_log(MR_LOG_WARN, "gap_accepted",
               "the stream goes on at a new slot; what has changed in between is in no topic until "
               "millrace verify --repair sends what differs",
               MR_LOG_LSN("from", from), MR_LOG_LSN("to", copy->lsn));
    }
    mr_chunk_requests_note_gap(snapshot->requests, known, from, copy->lsn, is_new || accepts,
                               !accepts && !snapshot->options.leaves_rows_out);
}

static mr_status attempt(struct mr_snapshot *snapshot, const struct mr_checkpoint *known,
                         const struct mr_copy_stored *resumed, struct mr_error *ret_error)
{
    const struct mr_copy_server *server = snapshot->options.server;
    struct mr_port *port = snapshot->base.port;
    struct mr_identity identity = {0};
    const struct mr_copy *copy = NULL;
    MR_TRY(server->snapshot->begin(server->context, known, resumed,
                                   mr_chunk_requests_gap_stored(snapshot->requests), port->stop_fd,
                                   &identity, &copy, ret_error));
    if (copy == NULL) {
        return MR_OK;
    }
    mr_lsn begins = copy->lsn;
    struct mr_position first = {.commit_lsn = copy->transaction.commit_lsn,
                                .ordinal = (uint64_t)copy->attempt << MR_COPY_ROW_BITS};
    if (!mr_port_begin_lanes(port, first)) { /* the server may forget what it said before */
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server begins a copy at " MR_LSN_FORMAT
                       ", attempt %u, where it began one before: its rows would have the same "
                       "positions",
                       MR_LSN_ARGS(copy->lsn), copy->attempt);
    }
    mr_port_begins(port, &identity);
    snapshot->identity = identity;
    note_gap(snapshot, known, copy);
    MR_TRY(copy_snapshot_copy_rows(snapshot, copy, ret_error));
    if (snapshot->options.only) {
        return MR_END;
    }
    if (port->stores) { /* the stream's beginning is what is known of it, whatever was before */
        mr_port_set_known(port, &(struct mr_checkpoint){.identity = identity,
                                                        .end_lsn = begins,
                                                        .last = mr_identity_no_commit(&identity)});
    }
    return MR_OK;
}

static mr_status copy_snapshot_prepare(struct mr_companion *companion, struct mr_error *ret_error)
{
    struct mr_snapshot *snapshot = copy_snapshot_of(companion);
    struct mr_port *port = companion->port;
    MR_TRY(settle_progress(snapshot, ret_error));
    struct mr_checkpoint known;
    bool is_known = mr_port_known(port, &known);
    bool was_begun = mr_checkpoint_begins(&known) != 0;
    if (snapshot->options.when_needed && port->takes_over && !is_known && !was_begun &&
        !mr_port_is_mending(port)) {
        return MR_OK; /* another program has delivered what is before its offset */
    }
    struct mr_copy_stored *resumed = mr_copy_stored_of(&known);
    mr_status status = attempt(snapshot, is_known || was_begun ? &known : NULL, resumed, ret_error);
    mr_copy_stored_free(resumed);
    return status;
}

static bool mends(const struct mr_companion *companion)
{
    return copy_snapshot_of(companion)->options.when_needed;
}

static bool is_busy(const struct mr_companion *companion)
{
    return atomic_load(&copy_snapshot_of(companion)->state) == MR_COPY_RUNNING;
}

static void copy_snapshot_lost(struct mr_companion *companion, enum mr_loss loss)
{
    const struct mr_copy_server *server = copy_snapshot_of(companion)->options.server;
    if (loss == MR_LOST_CONNECTION) {
        server->snapshot->close(server->context);
    }
}

static void copy_snapshot_sealed(struct mr_companion *companion, uint32_t lane, bool has_item)
{
    struct copying *copying = copy_snapshot_of(companion)->copying;
    const struct worker *worker = &copying->workers[lane - MR_LANE_STREAM - 1];
    struct mr_copied copied = has_item ? worker->sending : worker->sent;
    copied.step = mr_port_note(worker->lane);
    mr_copy_plan_note(copying->plan, lane - MR_LANE_STREAM - 1, copied);
}

/* What is not stored of an attempt in an earlier session may never be. */
static void copy_snapshot_adopt(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    struct mr_snapshot *snapshot = copy_snapshot_of(companion);
    MR_HOLD(&snapshot->lock);
    if (snapshot->plan != NULL) {
        snapshot->plan->counts = false;
    }
}

static void copy_snapshot_safe(struct mr_companion *companion, uint32_t lane, uint64_t step)
{
    struct mr_snapshot *snapshot = copy_snapshot_of(companion);
    if (lane == MR_LANE_STREAM) {
        return;
    }
    MR_HOLD(&snapshot->lock);
    mr_copy_plan_safe(snapshot->plan, lane - MR_LANE_STREAM - 1, step);
}

/* How far the copy is that ends where the stream begins; nothing once the stream is there, or where
 * there is none. */
static void copy_snapshot_section(struct mr_companion *companion, const struct mr_reach *reach,
                                  struct mr_checkpoint *checkpoint)
{
    struct mr_snapshot *snapshot = copy_snapshot_of(companion);
    struct mr_copy_stored *state = NULL;
    pthread_mutex_lock(&snapshot->lock);
    struct mr_copy_plan *plan = snapshot->plan;
    if (plan != NULL && plan->counts && reach->end_lsn < plan->state.lsn) {
        for (uint32_t i = MR_LANE_STREAM + 1; i < reach->lanes; i++) {
            mr_copy_plan_safe(plan, i - MR_LANE_STREAM - 1, reach->steps[i]);
        }
        plan->is_told = true;
        state = mr_copy_plan_state(plan, mr_port_records_beside(companion->port) -
                                             atomic_load(&snapshot->rows_before));
    }
    pthread_mutex_unlock(&snapshot->lock);
    if (state != NULL) {
        mr_copy_stored_add(state, snapshot->options.only, checkpoint);
        mr_copy_stored_free(state);
    }
}

static void copy_snapshot_stored(struct mr_companion *companion)
{
    struct mr_snapshot *snapshot = copy_snapshot_of(companion);
    MR_HOLD(&snapshot->lock);
    if (snapshot->plan != NULL && snapshot->plan->is_told && !snapshot->plan->is_stored) {
        snapshot->plan->is_stored = true;
        mr_port_wake(companion->port);
    }
}

const char *mr_copy_state_name(enum mr_copy_state state)
{
    static const char *const names[] = {
        [MR_COPY_IDLE] = "none",
        [MR_COPY_RUNNING] = "running",
        [MR_COPY_BROKEN_OFF] = "broken_off",
        [MR_COPY_DONE] = "done",
    };
    return names[state];
}

struct mr_copy_stats mr_copies_stats(struct mr_copies *copies)
{
    return copies->snapshot == NULL
               ? (struct mr_copy_stats){.state = MR_COPY_IDLE, .seconds_left = NAN}
               : snapshot_stats(copy_snapshot_of(copies->snapshot));
}

uint32_t mr_copies_tables(struct mr_copies *copies, struct mr_copy_table_stats *ret_tables,
                          uint32_t capacity)
{
    uint32_t count = 0;
    if (copies->snapshot != NULL) {
        struct mr_snapshot *snapshot = copy_snapshot_of(copies->snapshot);
        pthread_mutex_lock(&snapshot->lock);
        count = snapshot->plan == NULL
                    ? 0
                    : mr_copy_plan_progress(snapshot->plan, ret_tables, capacity);
        pthread_mutex_unlock(&snapshot->lock);
    }
    return count;
}

struct mr_companion *mr_snapshot_new(const struct mr_copies_options *options,
                                     struct mr_chunk_requests *requests)
{
    static const struct mr_companion_ops ops = {.name = "snapshot",
                                                .prepare = copy_snapshot_prepare,
                                                .mends = mends,
                                                .is_busy = is_busy,
                                                .lost = copy_snapshot_lost,
                                                .sealed = copy_snapshot_sealed,
                                                .adopt = copy_snapshot_adopt,
                                                .safe = copy_snapshot_safe,
                                                .section = copy_snapshot_section,
                                                .stored = copy_snapshot_stored};
    struct mr_snapshot *snapshot = MR_NEW(struct mr_snapshot);
    snapshot->base.ops = &ops;
    snapshot->options = *options;
    snapshot->requests = requests;
    pthread_mutex_init(&snapshot->lock, NULL);
    return &snapshot->base;
}

void mr_snapshot_free(struct mr_companion *companion)
{
    struct mr_snapshot *snapshot = copy_snapshot_of(companion);
    mr_copy_plan_free(snapshot->plan);
    pthread_mutex_destroy(&snapshot->lock);
    free(snapshot);
}
