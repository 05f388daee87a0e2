#include "pipeline/chunks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "pipeline/chunk_thread.h"
#include "pipeline/chunk_window.h"
#include "pipeline/intake_internal.h"

enum {
    ROWS_FIRST = 256, /* of the first chunk; from then on what is read in TARGET_NS */
    ROWS_MIN = 16,
    ROWS_MAX = 65536,
    TRANSACTIONS_NOTED = 4096,
    ENDED_KEPT = 32,         /* requests that are at their ends */
    SLICE_BYTES = 32 * 1024, /* of rows that go out between two transactions */
    BYTES_MIN = 64 * 1024,   /* of a chunk: a part of the memory for large changes */
    BYTES_MAX = 1024 * 1024,
    MEMORY_PART = 16,
    TOLD_INTERVAL_S = 10,
};
#define TARGET_NS (INT64_C(50) * 1000000)
/* The stream has not come to the chunk's place: a transaction number makes the server write WAL, and flush it. */
#define QUIET_NS (INT64_C(100) * 1000000)
#define AGAIN_NS (INT64_C(100) * 1000000)
/* Copied rows wait while the stream has half the pool in flight, but not for ever. */
#define YIELD_NS     (INT64_C(5) * 1000000)
#define YIELD_MAX_NS (INT64_C(500) * 1000000)
/* Above those of a copy at the beginning whose attempt was none. */
#define ORDINAL_FIRST (UINT64_C(1) << MR_COPY_ROW_BITS)

struct request {
    struct request *next;
    uint64_t id;
    char schema[MR_IDENTIFIER_MAX + 1];
    char table[MR_IDENTIFIER_MAX + 1];
    char *where;
    enum mr_copy_request_state state;
    bool stops; /* somebody wants its end */
    uint64_t rows, passed_over, chunks, repeated, rows_estimated;
    int64_t begun_ns, ended_ns;
    char error[sizeof(((struct mr_copy_request *)0)->error)];
    /* Source thread. */
    struct mr_chunk_table *parts;
    uint32_t part, part_count;
    uint64_t end_sequence; /* of the lane: its last row's */
    int64_t told_ns;
};

/* Of the table at hand. */
enum phase {
    PHASE_NONE,     /* there is none */
    PHASE_NUMBER,   /* a transaction number is wanted, */
    PHASE_NUMBERED, /* and asked for */
    PHASE_READ,     /* a chunk is wanted, */
    PHASE_READS,    /* and being read */
    PHASE_WAITS,    /* for the stream to come to its place */
    PHASE_SENDS,
};

struct mr_chunks {
    struct mr_pipeline *pipeline;

    pthread_mutex_t lock;     /* of the requests, but for what is the source thread's alone */
    struct request *requests; /* in order of asking */
    uint64_t last_id;
    _Atomic bool paused;
    _Atomic uint32_t open; /* requests that are not at their ends */

    /* Written by the source thread: of all requests. */
    mr_counter rows, passed_over, read, repeated;

    /* ---- source thread ---- */
    bool watches;
    struct mr_chunk_thread thread;
    struct mr_chunk_job asked; /* by us last */
    bool stale;                /* what it brings is of no use */
    enum phase phase;
    struct request *current;
    struct mr_chunk_window *window;
    const struct mr_relation *relation; /* of chunks; the encoder has its plan */
    const struct mr_relation
        *streamed; /* as the stream has the table since the chunk was asked for; NULL: not seen */
    bool changed;  /* the running transaction has changed the table */
    char **after;  /* the key behind which the next chunk begins; NULL: none yet */
    uint32_t after_count;
    uint32_t rows_max;
    size_t bytes_max;
    uint32_t at;      /* the row of the chunk that is next */
    int64_t due_ns;   /* of what is to be tried again */
    int64_t since_ns; /* the phase began, or the last slice went out */
    uint32_t attempt;
    struct mr_text key;                /* scratch */
    struct mr_transaction transaction; /* that copied rows seem to be of */
    uint64_t ordinal;
};

const char *mr_copy_request_state_name(enum mr_copy_request_state state)
{
    static const char *const names[] = {
        [MR_REQUEST_CHECKED] = "checked", [MR_REQUEST_WAITING] = "waiting",
        [MR_REQUEST_COPIED] = "copied",   [MR_REQUEST_SETTLED] = "settled",
        [MR_REQUEST_DONE] = "done",       [MR_REQUEST_STOPPED] = "stopped",
        [MR_REQUEST_FAILED] = "failed",
    };
    return names[state];
}

static bool is_open(const struct request *request)
{
    return request->state <= MR_REQUEST_SETTLED;
}

static void request_free(struct request *request)
{
    free(request->where);
    free(request->parts);
    free(request);
}

struct mr_chunks *mr_chunks_new(struct mr_pipeline *pipeline)
{
    struct mr_chunks *chunks = MR_NEW(struct mr_chunks);
    chunks->pipeline = pipeline;
    pthread_mutex_init(&chunks->lock, NULL);
    mr_chunk_thread_init(&chunks->thread, pipeline->source, pipeline->source_wake);
    size_t bytes = pipeline->pool.large_max / MEMORY_PART;
    chunks->bytes_max = bytes < BYTES_MIN ? BYTES_MIN : bytes > BYTES_MAX ? BYTES_MAX : bytes;
    return chunks;
}

static void forget_after(struct mr_chunks *chunks)
{
    for (uint32_t i = 0; i < chunks->after_count; i++) {
        free(chunks->after[i]);
    }
    free(chunks->after);
    chunks->after = NULL;
    chunks->after_count = 0;
}

void mr_chunks_free(struct mr_chunks *chunks)
{
    if (chunks == NULL) {
        return;
    }
    mr_chunk_thread_done(&chunks->thread);
    mr_chunk_window_free(chunks->window);
    forget_after(chunks);
    mr_text_done(&chunks->key);
    while (chunks->requests != NULL) {
        struct request *next = chunks->requests->next;
        request_free(chunks->requests);
        chunks->requests = next;
    }
    pthread_mutex_destroy(&chunks->lock);
    free(chunks);
}

/* ---- any thread ---- */

/* Those at their ends go, the oldest first, when there are more than are kept. With the lock. */
static void forget_ended(struct mr_chunks *chunks)
{
    uint32_t ended = 0;
    for (const struct request *one = chunks->requests; one != NULL; one = one->next) {
        ended += !is_open(one);
    }
    for (struct request **at = &chunks->requests; *at != NULL && ended > ENDED_KEPT;) {
        struct request *one = *at;
        if (is_open(one)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        request_free(one);
        ended--;
    }
}

mr_status mr_chunks_ask(struct mr_chunks *chunks, const struct mr_copy_wish *wish, uint64_t *ret_id,
                        struct mr_error *ret_error)
{
    struct request *request = MR_NEW(struct request);
    bool fits = snprintf(request->schema, sizeof(request->schema), "%s", wish->schema) <
                    (int)sizeof(request->schema) &&
                snprintf(request->table, sizeof(request->table), "%s", wish->table) <
                    (int)sizeof(request->table);
    bool has_where = wish->where != NULL && wish->where[0] != '\0';
    request->where = has_where ? MR_STRDUP(wish->where) : NULL;
    pthread_mutex_lock(&chunks->lock);
    bool is_asked = false;
    for (const struct request *one = chunks->requests; one != NULL; one = one->next) {
        is_asked |= is_open(one) && strcmp(one->schema, wish->schema) == 0 &&
                    strcmp(one->table, wish->table) == 0;
    }
    bool has_room = atomic_load(&chunks->open) < MR_COPY_REQUESTS_MAX - ENDED_KEPT;
    if (!fits || is_asked || !has_room) {
        pthread_mutex_unlock(&chunks->lock);
        request_free(request);
        return mr_fail(ret_error, MR_ERR_CONFIG, "table %.255s.%.255s: %s", wish->schema,
                       wish->table,
                       !fits      ? "no table has so long a name"
                       : is_asked ? "its rows are being copied, or wait for it, already"
                                  : "too many tables wait for their copies; ask again later");
    }
    request->id = ++chunks->last_id;
    *ret_id = request->id;
    forget_ended(chunks);
    struct request **last = &chunks->requests;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = request;
    atomic_fetch_add(&chunks->open, 1);
    pthread_mutex_unlock(&chunks->lock);
    mr_wake(chunks->pipeline->source_wake);
    return MR_OK;
}

uint32_t mr_chunks_stop(struct mr_chunks *chunks, const char *schema, const char *table)
{
    uint32_t count = 0;
    pthread_mutex_lock(&chunks->lock);
    for (struct request *one = chunks->requests; one != NULL; one = one->next) {
        bool is_meant =
            table == NULL || (strcmp(one->schema, schema) == 0 && strcmp(one->table, table) == 0);
        if (is_meant && is_open(one)) {
            one->stops = true;
            count++;
        }
    }
    pthread_mutex_unlock(&chunks->lock);
    mr_wake(chunks->pipeline->source_wake);
    return count;
}

void mr_chunks_pause(struct mr_chunks *chunks, bool pauses)
{
    if (atomic_exchange(&chunks->paused, pauses) != pauses) {
        mr_log(MR_LOG_INFO, pauses ? "incremental_paused" : "incremental_resumed",
               pauses ? "no further existing rows are copied until that is asked for"
                      : "copying existing rows goes on");
    }
    mr_wake(chunks->pipeline->source_wake);
}

uint32_t mr_chunks_look(struct mr_chunks *chunks, struct mr_copy_request *ret, uint32_t max,
                        bool *ret_paused)
{
    uint32_t count = 0;
    *ret_paused = atomic_load(&chunks->paused);
    int64_t now_ns = mr_monotonic_ns();
    pthread_mutex_lock(&chunks->lock);
    for (const struct request *one = chunks->requests; one != NULL && count < max;
         one = one->next) {
        struct mr_copy_request *to = &ret[count++];
        int64_t end_ns = one->ended_ns != 0 ? one->ended_ns : now_ns;
        *to = (struct mr_copy_request){
            .id = one->id,
            .state = one->state,
            .rows = one->rows,
            .rows_estimated = one->rows_estimated,
            .passed_over = one->passed_over,
            .chunks = one->chunks,
            .repeated = one->repeated,
            .seconds = one->begun_ns == 0 ? 0 : (double)(end_ns - one->begun_ns) / 1e9,
        };
        snprintf(to->table, sizeof(to->table), "%s.%s", one->schema, one->table);
        memcpy(to->error, one->error, sizeof(to->error));
    }
    pthread_mutex_unlock(&chunks->lock);
    return count;
}

struct mr_incremental_stats mr_chunks_stats(const struct mr_chunks *chunks)
{
    return (struct mr_incremental_stats){
        .paused = atomic_load(&chunks->paused),
        .tables = atomic_load(&chunks->open),
        .rows = atomic_load_explicit(&chunks->rows, memory_order_relaxed),
        .passed_over = atomic_load_explicit(&chunks->passed_over, memory_order_relaxed),
        .chunks = atomic_load_explicit(&chunks->read, memory_order_relaxed),
        .repeated = atomic_load_explicit(&chunks->repeated, memory_order_relaxed),
    };
}

/* ---- requests; source thread ---- */

static void name_of(const struct request *request, char *name, size_t size)
{
    snprintf(name, size, "%s.%s", request->schema, request->table);
}

static void tell_end(const struct request *request)
{
    char name[2 * MR_IDENTIFIER_MAX + 2];
    name_of(request, name, sizeof(name));
    if (request->state == MR_REQUEST_FAILED) {
        mr_log(MR_LOG_ERROR, "incremental_failed", request->error, MR_LOG_STR("table", name),
               MR_LOG_INT("rows", request->rows));
        return;
    }
    int64_t ns = request->begun_ns == 0 ? 0 : request->ended_ns - request->begun_ns;
    mr_log(MR_LOG_INFO,
           request->state == MR_REQUEST_DONE ? "incremental_done" : "incremental_stopped",
           request->state == MR_REQUEST_DONE ? "the existing rows of a table are copied"
                                             : "the copy of a table's existing rows was ended",
           MR_LOG_STR("table", name), MR_LOG_INT("rows", request->rows),
           MR_LOG_INT("passed_over", request->passed_over), MR_LOG_INT("chunks", request->chunks),
           MR_LOG_INT("repeated", request->repeated), MR_LOG_INT("ms", ns / 1000000));
}

static void set_state(struct mr_chunks *chunks, struct request *request,
                      enum mr_copy_request_state state)
{
    pthread_mutex_lock(&chunks->lock);
    bool was_open = is_open(request);
    request->state = state;
    bool ends = was_open && !is_open(request);
    if (ends) {
        request->ended_ns = mr_monotonic_ns();
        atomic_fetch_sub(&chunks->open, 1);
    }
    pthread_mutex_unlock(&chunks->lock);
    if (ends) {
        tell_end(request);
    }
}

static void fail_request(struct mr_chunks *chunks, struct request *request,
                         const struct mr_error *error)
{
    pthread_mutex_lock(&chunks->lock);
    snprintf(request->error, sizeof(request->error), "%.511s", error->text);
    pthread_mutex_unlock(&chunks->lock);
    set_state(chunks, request, MR_REQUEST_FAILED);
}

/* The first one of that state; NULL: there is none. */
static struct request *first_of(struct mr_chunks *chunks, enum mr_copy_request_state state)
{
    pthread_mutex_lock(&chunks->lock);
    struct request *one = chunks->requests;
    while (one != NULL && one->state != state) {
        one = one->next;
    }
    pthread_mutex_unlock(&chunks->lock);
    return one;
}

static struct request *request_of(struct mr_chunks *chunks, uint64_t id)
{
    pthread_mutex_lock(&chunks->lock);
    struct request *one = chunks->requests;
    while (one != NULL && one->id != id) {
        one = one->next;
    }
    pthread_mutex_unlock(&chunks->lock);
    return one;
}

/* ---- the table at hand ---- */

static struct mr_encoder *encoder_of(const struct mr_chunks *chunks)
{
    return chunks->pipeline->lanes[MR_LANE_STREAM].encoder;
}

static void forget_relation(struct mr_chunks *chunks)
{
    if (chunks->relation != NULL) {
        mr_encoder_forget(encoder_of(chunks), chunks->relation);
        chunks->relation = NULL;
    }
}

static void close_window(struct mr_chunks *chunks)
{
    if (chunks->window != NULL) {
        mr_chunk_window_close(chunks->window);
    }
    chunks->streamed = NULL;
}

static void set_phase(struct mr_chunks *chunks, enum phase phase)
{
    chunks->phase = phase;
    chunks->since_ns = mr_monotonic_ns();
}

/* A is now: what the stream brings from here on is noted. */
static void begin_window(struct mr_chunks *chunks)
{
    uint64_t seed = (uint64_t)mr_monotonic_ns();
    ssize_t got = getrandom(&seed, sizeof(seed), GRND_NONBLOCK);
    (void)got;
    mr_chunk_window_free(chunks->window);
    chunks->window = mr_chunk_window_new(TRANSACTIONS_NOTED, chunks->bytes_max, seed);
    chunks->streamed = NULL;
    chunks->changed = false;
    chunks->due_ns = 0;
    set_phase(chunks, PHASE_NUMBER);
}

static void leave_table(struct mr_chunks *chunks)
{
    forget_relation(chunks);
    forget_after(chunks);
    mr_chunk_window_free(chunks->window);
    chunks->window = NULL;
    chunks->streamed = NULL;
    chunks->stale = mr_chunk_thread_state(&chunks->thread) != MR_CHUNK_JOB_IDLE &&
                    chunks->asked.kind != MR_CHUNK_JOB_FIND;
    chunks->current = NULL;
    set_phase(chunks, PHASE_NONE);
}

static void begin_table(struct mr_chunks *chunks, struct request *request)
{
    chunks->current = request;
    chunks->rows_max = ROWS_FIRST;
    chunks->attempt = 0;
    begin_window(chunks);
    if (request->begun_ns == 0) {
        char name[2 * MR_IDENTIFIER_MAX + 2];
        name_of(request, name, sizeof(name));
        mr_log(MR_LOG_INFO, "incremental_begun",
               "copying the existing rows of a table, while the stream runs",
               MR_LOG_STR("table", name), MR_LOG_INT("parts", request->part_count),
               MR_LOG_INT("rows_estimated", request->rows_estimated));
        pthread_mutex_lock(&chunks->lock);
        request->begun_ns = mr_monotonic_ns();
        pthread_mutex_unlock(&chunks->lock);
        request->told_ns = request->begun_ns;
    }
    set_state(chunks, request, MR_REQUEST_COPIED);
}

static const struct mr_chunk_table *table_of(const struct mr_chunks *chunks)
{
    return &chunks->current->parts[chunks->current->part];
}

/* The chunk's rows before `chunks->at` are dealt with. */
static void keep_place(struct mr_chunks *chunks)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    if (chunks->at == 0) {
        return;
    }
    const struct mr_datum *row = mr_chunk_row(chunk, chunks->at - 1);
    forget_after(chunks);
    chunks->after_count = chunk->relation->key_count;
    chunks->after = MR_NEW_ARRAY(char *, chunks->after_count);
    for (uint32_t i = 0; i < chunks->after_count; i++) {
        const struct mr_datum *value = &row[chunk->key[i]];
        chunks->after[i] = MR_ALLOC(value->len + 1);
        memcpy(chunks->after[i], value->data, value->len);
        chunks->after[i][value->len] = '\0';
    }
}

static void read_again(struct mr_chunks *chunks, int64_t wait_ns)
{
    close_window(chunks);
    mr_counter_add(&chunks->repeated, 1);
    pthread_mutex_lock(&chunks->lock);
    chunks->current->repeated++;
    pthread_mutex_unlock(&chunks->lock);
    chunks->due_ns = wait_ns == 0 ? 0 : mr_monotonic_ns() + wait_ns;
    bool wants_number = mr_chunk_window_wants_number(chunks->window);
    set_phase(chunks, wants_number ? PHASE_NUMBER : PHASE_READ);
}

/* ---- what the stream brings ---- */

static bool same_column(const struct mr_column *a, const struct mr_column *b)
{
    return strcmp(a->name, b->name) == 0 && a->type_oid == b->type_oid &&
           a->type_modifier == b->type_modifier;
}

static bool same_shape(const struct mr_relation *a, const struct mr_relation *b)
{
    bool same = a->column_count == b->column_count && a->key_count == b->key_count &&
                strcmp(a->schema, b->schema) == 0 && strcmp(a->table, b->table) == 0;
    for (uint32_t i = 0; same && i < a->column_count; i++) {
        same = same_column(&a->columns[i], &b->columns[i]);
    }
    for (uint32_t i = 0; same && i < a->key_count; i++) {
        same = a->key_columns[i] == b->key_columns[i];
    }
    return same;
}

/* False: a value of the key is not known. */
static bool take_key(struct mr_chunks *chunks, const struct mr_relation *relation,
                     const struct mr_datum *values, const struct mr_tuple *old, mr_slice *ret_key)
{
    chunks->key.len = 0;
    for (uint32_t i = 0; i < relation->key_count; i++) {
        uint32_t column = relation->key_columns[i];
        const struct mr_datum *value = &values[column];
        if (value->kind == MR_DATUM_UNCHANGED && old != NULL && old->kind != MR_TUPLE_NONE) {
            value = &old->values[column];
        }
        if (value->kind != MR_DATUM_TEXT) {
            return false;
        }
        mr_text_add(&chunks->key, &value->len, sizeof(value->len));
        mr_text_add(&chunks->key, value->data, value->len);
    }
    *ret_key = (mr_slice){.data = (const uint8_t *)chunks->key.data, .len = chunks->key.len};
    return relation->key_count > 0;
}

static void note_row(struct mr_chunks *chunks, const struct mr_relation *relation,
                     const struct mr_tuple *row, const struct mr_tuple *old)
{
    mr_slice key;
    if (row->kind == MR_TUPLE_NONE) {
        return;
    }
    if (take_key(chunks, relation, row->values, old, &key)) {
        mr_chunk_window_change(chunks->window, key);
    } else {
        mr_chunk_window_reshape(chunks->window); /* then nothing is known */
    }
}

void mr_chunks_change(struct mr_chunks *chunks, const struct mr_change *change, bool is_new)
{
    if (chunks->window == NULL || change->relation->oid != table_of(chunks)->oid) {
        return;
    }
    chunks->changed = true;
    bool is_open = chunks->phase == PHASE_READS || chunks->phase == PHASE_WAITS ||
                   chunks->phase == PHASE_SENDS;
    if (change->op == MR_OP_TRUNCATE) {
        mr_chunk_window_truncate(chunks->window);
        return;
    }
    if (is_open && chunks->streamed != change->relation) {
        bool is_other = chunks->streamed != NULL ||
                        (chunks->phase != PHASE_READS &&
                         !same_shape(change->relation, chunks->thread.chunk.relation));
        chunks->streamed = change->relation;
        if (is_other) {
            mr_chunk_window_reshape(chunks->window);
        }
    }
    /* What makes no record leaves the topic as it is, so the row may be wanted. */
    if (is_new) {
        note_row(chunks, change->relation, &change->after, &change->before);
        note_row(chunks, change->relation, &change->before, NULL);
    }
}

void mr_chunks_commit(struct mr_chunks *chunks, const struct mr_transaction *transaction)
{
    if (chunks->changed && chunks->window != NULL) {
        mr_chunk_window_commit(chunks->window, transaction->xid);
    }
    chunks->changed = false;
}

void mr_chunks_relation_end(struct mr_chunks *chunks, const struct mr_relation *relation)
{
    if (chunks->streamed == relation && chunks->window != NULL) {
        chunks->streamed = NULL;
        mr_chunk_window_reshape(chunks->window);
    }
}

/* ---- what the reader has done ---- */

static int64_t backoff_ns(struct mr_chunks *chunks)
{
    uint32_t max_ms = atomic_load(&chunks->pipeline->options.backoff_max_ms);
    return (int64_t)mr_backoff_ms(chunks->attempt++, max_ms) * 1000000;
}

/* MR_OK: it was dealt with; the job is to be asked again later, or the request has failed. */
static void job_failed(struct mr_chunks *chunks, struct request *request,
                       const struct mr_chunk_job *job)
{
    bool passes = job->status == MR_ERR_TRANSIENT || job->status == MR_ERR_PROTOCOL ||
                  job->status == MR_AGAIN || job->status == MR_ERR_SYSTEM;
    if (!passes) {
        fail_request(chunks, request, &job->error);
        if (request == chunks->current) {
            leave_table(chunks);
        }
        return;
    }
    int64_t wait_ns = backoff_ns(chunks);
    if (chunks->attempt <= 2) {
        mr_log(MR_LOG_WARN, "incremental_waits", job->error.text,
               MR_LOG_INT("again_in_ms", wait_ns / 1000000));
    }
    chunks->due_ns = mr_monotonic_ns() + wait_ns;
    if (request == chunks->current && chunks->phase == PHASE_READS) {
        close_window(chunks);
        set_phase(chunks, PHASE_READ);
    } else if (request == chunks->current && chunks->phase == PHASE_NUMBERED) {
        set_phase(chunks, PHASE_NUMBER);
    }
}

static void take_tables(struct mr_chunks *chunks, struct mr_chunk_job *job)
{
    struct request *request = request_of(chunks, job->request);
    if (request == NULL || request->state != MR_REQUEST_CHECKED) {
        free(job->tables);
        return;
    }
    if (job->status != MR_OK) {
        job_failed(chunks, request, job);
        return;
    }
    chunks->attempt = 0;
    uint64_t rows = 0;
    for (uint32_t i = 0; i < job->table_count; i++) {
        rows += job->tables[i].rows;
    }
    pthread_mutex_lock(&chunks->lock);
    request->rows_estimated = rows;
    pthread_mutex_unlock(&chunks->lock);
    request->parts = job->tables;
    request->part_count = job->table_count;
    set_state(chunks, request, MR_REQUEST_WAITING);
}

/* As many rows as can be read in the time, and as there is room for. */
static void adapt(struct mr_chunks *chunks, int64_t ns)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    if (chunk->rows == 0) {
        return;
    }
    uint64_t rows = chunks->rows_max;
    if (ns < TARGET_NS / 2 && chunk->rows == chunks->rows_max) {
        rows *= 2;
    } else if (ns > 2 * TARGET_NS) {
        rows /= 2;
    }
    uint64_t row_bytes =
        chunk->len / chunk->rows + chunk->relation->column_count * sizeof(struct mr_datum) + 1;
    uint64_t fit = chunks->bytes_max / row_bytes;
    rows = rows > fit ? fit : rows;
    chunks->rows_max = (uint32_t)(rows < ROWS_MIN ? ROWS_MIN : rows > ROWS_MAX ? ROWS_MAX : rows);
}

static bool add_rows(struct mr_chunks *chunks)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    for (uint32_t i = 0; i < chunk->rows; i++) {
        mr_slice key;
        if (!take_key(chunks, chunk->relation, mr_chunk_row(chunk, i), NULL, &key) ||
            !mr_chunk_window_add(chunks->window, key)) {
            return false;
        }
    }
    return true;
}

static enum mr_chunk_verdict judge(struct mr_chunks *chunks)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    struct mr_chunk_snapshot snapshot;
    if (!mr_chunk_snapshot_parse(chunk->snapshot, &snapshot)) {
        mr_chunk_window_close(chunks->window);
        return MR_CHUNK_AGAIN;
    }
    /* The stream may be at an older form of the table, or at a newer one already. */
    if (chunks->streamed != NULL && !same_shape(chunks->streamed, chunk->relation)) {
        mr_chunk_window_reshape(chunks->window);
    }
    enum mr_chunk_verdict verdict =
        mr_chunk_window_judge(chunks->window, &snapshot, chunk->wal_end);
    mr_chunk_snapshot_done(&snapshot);
    return verdict;
}

static void take_chunk(struct mr_chunks *chunks, const struct mr_chunk_job *job)
{
    if (job->status != MR_OK) {
        job_failed(chunks, chunks->current, job);
        return;
    }
    chunks->attempt = 0;
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    if (chunks->relation != chunk->relation) {
        forget_relation(chunks);
        chunks->relation = chunk->relation;
    }
    switch (judge(chunks)) {
    case MR_CHUNK_TOO_MUCH:
        chunks->rows_max = chunks->rows_max / 2 < ROWS_MIN ? ROWS_MIN : chunks->rows_max / 2;
        read_again(chunks, 0);
        return;
    case MR_CHUNK_AGAIN:
    case MR_CHUNK_TOO_SOON:
        read_again(chunks, AGAIN_NS);
        return;
    case MR_CHUNK_GOOD:
        break;
    }
    if (!add_rows(chunks)) {
        struct mr_error error;
        mr_error_set(&error, MR_ERR_PROTOCOL,
                     "two rows of table %s.%s have the same key, or one has none",
                     chunks->relation->schema, chunks->relation->table);
        fail_request(chunks, chunks->current, &error);
        leave_table(chunks);
        return;
    }
    adapt(chunks, job->ns);
    chunks->at = 0;
    set_phase(chunks, PHASE_WAITS);
}

static void take_job(struct mr_chunks *chunks)
{
    if (mr_chunk_thread_state(&chunks->thread) != MR_CHUNK_JOB_DONE) {
        return;
    }
    struct mr_chunk_job job;
    mr_chunk_thread_take(&chunks->thread, &job);
    if (job.kind == MR_CHUNK_JOB_FIND) {
        take_tables(chunks, &job);
        return;
    }
    bool stale = chunks->stale;
    chunks->stale = false;
    if (stale || chunks->current == NULL) {
        forget_relation(chunks); /* the reader may free it */
        return;
    }
    if (job.kind == MR_CHUNK_JOB_READ) {
        take_chunk(chunks, &job);
    } else if (job.status != MR_OK) {
        job_failed(chunks, chunks->current, &job);
    } else if (chunks->phase == PHASE_NUMBERED) {
        mr_chunk_window_take_number(chunks->window, job.xid);
        set_phase(chunks, PHASE_READ);
    }
}

/* ---- what it is to do ---- */

static void ask(struct mr_chunks *chunks, struct mr_chunk_job *job)
{
    chunks->asked = *job;
    mr_chunk_thread_ask(&chunks->thread, job);
}

/* The next job, if the reader is free. `now_ns`: what is due later waits. */
static void give_job(struct mr_chunks *chunks, int64_t now_ns)
{
    if (mr_chunk_thread_state(&chunks->thread) != MR_CHUNK_JOB_IDLE || chunks->due_ns > now_ns) {
        return;
    }
    struct request *unchecked = first_of(chunks, MR_REQUEST_CHECKED);
    if (unchecked != NULL) {
        ask(chunks, &(struct mr_chunk_job){.kind = MR_CHUNK_JOB_FIND,
                                           .request = unchecked->id,
                                           .schema = unchecked->schema,
                                           .name = unchecked->table});
        return;
    }
    if (chunks->phase == PHASE_NUMBER) {
        ask(chunks, &(struct mr_chunk_job){.kind = MR_CHUNK_JOB_NUMBER});
        set_phase(chunks, PHASE_NUMBERED);
    } else if (chunks->phase == PHASE_READ && !atomic_load(&chunks->paused)) {
        mr_chunk_window_open(chunks->window);
        chunks->streamed = NULL;
        struct mr_chunk_job job = {.kind = MR_CHUNK_JOB_READ,
                                   .wish = {.table = table_of(chunks),
                                            .where = chunks->current->where,
                                            .after = (const char *const *)chunks->after,
                                            .after_count = chunks->after_count,
                                            .rows_max = chunks->rows_max,
                                            .bytes_max = chunks->bytes_max}};
        ask(chunks, &job);
        set_phase(chunks, PHASE_READS);
    } else if (chunks->phase == PHASE_WAITS && now_ns - chunks->since_ns >= QUIET_NS) {
        ask(chunks, &(struct mr_chunk_job){.kind = MR_CHUNK_JOB_NUMBER});
        chunks->since_ns = now_ns;
    }
}

/* ---- rows go out ---- */

static void tell_progress(struct request *request, int64_t now_ns)
{
    if (now_ns - request->told_ns < TOLD_INTERVAL_S * INT64_C(1000000000)) {
        return;
    }
    request->told_ns = now_ns;
    char name[2 * MR_IDENTIFIER_MAX + 2];
    name_of(request, name, sizeof(name));
    mr_log(MR_LOG_INFO, "incremental_progress", "copying existing rows, while the stream runs",
           MR_LOG_STR("table", name), MR_LOG_INT("rows", request->rows),
           MR_LOG_INT("rows_estimated", request->rows_estimated),
           MR_LOG_INT("chunks", request->chunks), MR_LOG_INT("repeated", request->repeated),
           MR_LOG_INT("seconds", (now_ns - request->begun_ns) / 1000000000));
}

/* Right below the place that the stream has come to: the last commit record begins before, the next one there or behind. False:
 * what was appended last is not below that; a message outside transactions may lie at the place itself. */
static bool place_rows(struct mr_chunks *chunks, const struct mr_intake *intake, int64_t wall_ns)
{
    struct mr_transaction *transaction = &chunks->transaction;
    if (transaction->commit_lsn != intake->marked - 1) {
        *transaction = (struct mr_transaction){.commit_lsn = intake->marked - 1,
                                               .end_lsn = intake->marked,
                                               .commit_time_us = wall_ns / 1000,
                                               .xid = chunks->thread.chunk.xmax};
        chunks->ordinal = ORDINAL_FIRST;
    }
    struct mr_position next = {.commit_lsn = transaction->commit_lsn,
                               .ordinal = chunks->ordinal + 1};
    return mr_position_compare(intake->appended, next) < 0;
}

static mr_status send_row(struct mr_chunks *chunks, struct mr_intake *intake,
                          struct mr_error *ret_error)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    struct mr_change change = {
        .op = MR_OP_READ,
        .copy_mark = MR_COPY_INCREMENTAL,
        .lsn = chunks->transaction.end_lsn,
        .position = {.commit_lsn = chunks->transaction.commit_lsn, .ordinal = chunks->ordinal + 1},
        .transaction = &chunks->transaction,
        .relation = chunk->relation,
        .after = {.kind = MR_TUPLE_NEW, .values = mr_chunk_row(chunk, chunks->at)},
    };
    struct mr_item item = {.change = &change};
    MR_TRY(mr_lane_append(intake->lane, &item, ret_error));
    intake->handler.hold = intake->lane->hold;
    chunks->ordinal++;
    intake->appended = change.position;
    return MR_OK;
}

static bool yields(const struct mr_chunks *chunks, int64_t now_ns)
{
    const struct mr_pool *pool = &chunks->pipeline->pool;
    return mr_ring_count(&pool->free) < (pool->count + 1) / 2 &&
           now_ns - chunks->since_ns < YIELD_MAX_NS;
}

/* The chunk is dealt with. */
static void end_chunk(struct mr_chunks *chunks)
{
    struct request *request = chunks->current;
    bool is_last = chunks->thread.chunk.is_last;
    keep_place(chunks);
    close_window(chunks);
    mr_counter_add(&chunks->read, 1);
    pthread_mutex_lock(&chunks->lock);
    request->chunks++;
    pthread_mutex_unlock(&chunks->lock);
    tell_progress(request, mr_monotonic_ns());
    if (!is_last) {
        bool wants_number = mr_chunk_window_wants_number(chunks->window);
        set_phase(chunks, wants_number ? PHASE_NUMBER : PHASE_READ);
        return;
    }
    request->part++;
    if (request->part < request->part_count) {
        leave_table(chunks);
        begin_table(chunks, request);
        return;
    }
    const struct mr_lane *lane = &chunks->pipeline->lanes[MR_LANE_STREAM];
    request->end_sequence = lane->sequence + mr_lane_has_records(lane);
    leave_table(chunks);
    set_state(chunks, request, MR_REQUEST_SETTLED);
}

/* A few rows. MR_FULL: there is no room for one. */
static mr_status send_rows(struct mr_chunks *chunks, struct mr_intake *intake)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    int64_t now_ns = mr_monotonic_ns();
    int64_t wall_ns = mr_wall_ns();
    if (chunk->rows > 0 && (yields(chunks, now_ns) || !place_rows(chunks, intake, wall_ns))) {
        return MR_OK;
    }
    intake->lane->round_ns = now_ns;
    intake->lane->round_wall_ns = wall_ns;
    mr_encoder_set_clock(intake->lane->encoder, wall_ns);
    uint32_t most =
        chunk->rows == 0 ? 0 : (uint32_t)(SLICE_BYTES / (chunk->len / chunk->rows + 1)) + 1;
    uint64_t sent = 0;
    uint64_t passed_over = 0;
    struct mr_error error = {0};
    mr_status status = MR_OK;
    for (; status == MR_OK && chunks->at < chunk->rows && sent < most;
         chunks->at += status == MR_OK) {
        if (mr_chunk_window_goes_out(chunks->window, chunks->at)) {
            status = send_row(chunks, intake, &error);
            sent += status == MR_OK;
        } else {
            passed_over++;
        }
    }
    chunks->since_ns = now_ns;
    mr_counter_add(&chunks->rows, sent);
    mr_counter_add(&chunks->passed_over, passed_over);
    pthread_mutex_lock(&chunks->lock);
    chunks->current->rows += sent;
    chunks->current->passed_over += passed_over;
    pthread_mutex_unlock(&chunks->lock);
    if (status != MR_OK && status != MR_FULL) {
        fail_request(chunks, chunks->current, &error);
        leave_table(chunks);
        return MR_OK;
    }
    if (chunks->at == chunk->rows) {
        end_chunk(chunks);
    }
    return status;
}

/* ---- steps ---- */

bool mr_chunks_wanted(const struct mr_chunks *chunks)
{
    return chunks->watches ||
           MR_UNLIKELY(atomic_load_explicit(&chunks->open, memory_order_relaxed) > 0);
}

/* Those that somebody wants to end, and those whose last row is safe. */
static void end_requests(struct mr_chunks *chunks, const struct mr_intake *intake)
{
    uint64_t published = atomic_load(&intake->lane->published);
    pthread_mutex_lock(&chunks->lock);
    struct request *one = chunks->requests;
    while (one != NULL && !(is_open(one) && (one->stops || (one->state == MR_REQUEST_SETTLED &&
                                                            published >= one->end_sequence)))) {
        one = one->next;
    }
    bool stops = one != NULL && one->stops && one->state != MR_REQUEST_SETTLED;
    pthread_mutex_unlock(&chunks->lock);
    if (one == NULL) {
        return;
    }
    bool is_asked = chunks->asked.kind == MR_CHUNK_JOB_FIND && chunks->asked.request == one->id &&
                    mr_chunk_thread_state(&chunks->thread) == MR_CHUNK_JOB_ASKED;
    if (is_asked) {
        return; /* the reader has its name */
    }
    if (one == chunks->current) {
        leave_table(chunks);
        mr_chunk_thread_end(&chunks->thread); /* nor is it to have the table's */
        chunks->stale = false;
    }
    set_state(chunks, one, stops ? MR_REQUEST_STOPPED : MR_REQUEST_DONE);
}

static void set_watch(struct mr_chunks *chunks, struct mr_intake *intake, bool watches)
{
    if (chunks->watches == watches) {
        return;
    }
    chunks->watches = watches;
    chunks->changed = false;
    mr_intake_watch(intake, watches);
    if (!watches) {
        mr_chunk_thread_end(&chunks->thread);
        chunks->stale = false;
        mr_chunk_done(&chunks->thread.chunk);
    }
}

mr_status mr_chunks_step(struct mr_intake *intake)
{
    struct mr_chunks *chunks = intake->pipeline->chunks;
    set_watch(chunks, intake, atomic_load(&chunks->open) > 0);
    if (!chunks->watches) {
        return MR_OK;
    }
    take_job(chunks);
    end_requests(chunks, intake);
    struct mr_error error;
    if (mr_chunk_thread_begin(&chunks->thread, &error) != MR_OK) {
        chunks->due_ns = mr_monotonic_ns() + backoff_ns(chunks);
        return MR_OK;
    }
    if (chunks->current == NULL && !atomic_load(&chunks->paused)) {
        struct request *next = first_of(chunks, MR_REQUEST_WAITING);
        if (next != NULL) {
            begin_table(chunks, next);
        }
    }
    if (chunks->phase == PHASE_WAITS || chunks->phase == PHASE_SENDS) {
        if (mr_chunk_window_is_void(chunks->window)) {
            keep_place(chunks);
            read_again(chunks, AGAIN_NS);
        } else if (chunks->phase == PHASE_WAITS &&
                   mr_chunk_window_is_due(chunks->window, intake->marked)) {
            set_phase(chunks, PHASE_SENDS);
        }
    }
    mr_status status = chunks->phase == PHASE_SENDS ? send_rows(chunks, intake) : MR_OK;
    give_job(chunks, mr_monotonic_ns());
    return status;
}

int64_t mr_chunks_due_in(const struct mr_chunks *chunks, int64_t now_ns)
{
    if (chunks->phase == PHASE_SENDS) {
        return yields(chunks, now_ns) ? YIELD_NS : 0;
    }
    if (chunks->due_ns > now_ns) {
        return chunks->due_ns - now_ns;
    }
    /* The stream, the reader and whoever asks wake the thread; acknowledgements and quiet servers do not. */
    return QUIET_NS;
}

void mr_chunks_interrupt(struct mr_chunks *chunks)
{
    chunks->changed = false;
    if (chunks->current == NULL) {
        return;
    }
    if (chunks->phase == PHASE_SENDS) {
        keep_place(chunks);
    }
    chunks->stale = mr_chunk_thread_state(&chunks->thread) != MR_CHUNK_JOB_IDLE &&
                    chunks->asked.kind != MR_CHUNK_JOB_FIND;
    begin_window(chunks);
}

void mr_chunks_begin_anew(struct mr_chunks *chunks)
{
    if (chunks->current != NULL) {
        leave_table(chunks);
    }
    pthread_mutex_lock(&chunks->lock);
    for (struct request *one = chunks->requests; one != NULL; one = one->next) {
        if (one->state == MR_REQUEST_COPIED || one->state == MR_REQUEST_SETTLED) {
            one->state = MR_REQUEST_WAITING;
            one->part = 0;
            one->rows = one->passed_over = 0;
        }
    }
    pthread_mutex_unlock(&chunks->lock);
}

void mr_chunks_rest(struct mr_chunks *chunks)
{
    mr_chunks_interrupt(chunks);
    forget_relation(chunks);
    mr_chunk_thread_end(&chunks->thread);
    chunks->stale = false;
}
