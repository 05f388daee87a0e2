/* What the reader of chunks is asked, and what comes of it. */

#include "base/clock.h"
#include "copy/chunks_internal.h"

enum { ROWS_MAX = 65536 };
#define TARGET_NS (INT64_C(50) * 1000000)

/* Who holds a copy up is asked after a pause that doubles each time; a hold-up of a moment is not
 * logged. */
#define HELD_LOOK_NS  (INT64_C(1000) * 1000000)
#define HELD_QUIET_NS (INT64_C(1000) * 1000000)
#define HELD_TOLD_NS  (INT64_C(10000) * 1000000)

int64_t mr_chunks_backoff_ns(struct mr_chunks *chunks)
{
    return (int64_t)mr_port_backoff_ms(chunks->base.port, chunks->attempt++) * 1000000;
}

static void job_failed(struct mr_chunks *chunks, struct mr_chunk_request *request,
                       const struct mr_chunk_job *job)
{
    bool passes = job->status == MR_ERR_TRANSIENT || job->status == MR_ERR_PROTOCOL ||
                  job->status == MR_AGAIN || job->status == MR_ERR_SYSTEM;
    if (!passes) {
        mr_chunk_request_fail(&chunks->requests, request, &job->error);
        if (request == chunks->current) {
            mr_chunks_leave(chunks);
        }
        return;
    }
    int64_t wait_ns = mr_chunks_backoff_ns(chunks);
    if (chunks->attempt <= 2) {
        mr_log(MR_LOG_WARN, "incremental_waits", job->error.text,
               MR_LOG_INT("again_in_ms", wait_ns / 1000000));
    }
    chunks->due_ns = mr_monotonic_ns() + wait_ns;
    if (request == chunks->current && chunks->phase == MR_CHUNKS_READS) {
        mr_chunks_close_window(chunks);
        mr_chunks_set_phase(chunks, MR_CHUNKS_READ);
    } else if (request == chunks->current && chunks->phase == MR_CHUNKS_NUMBERED) {
        mr_chunks_set_phase(chunks, MR_CHUNKS_NUMBER);
    }
}

static void chunk_jobs_take_tables(struct mr_chunks *chunks, struct mr_chunk_job *job)
{
    struct mr_chunk_request *request = mr_chunk_requests_of(&chunks->requests, job->request);
    if (request == NULL || request->state != MR_REQUEST_CHECKED) {
        free(job->tables);
        return;
    }
    if (job->status == MR_OK && request->keys != NULL && job->table_count > 1) {
        job->status = mr_fail(&job->error, MR_ERR_CONFIG,
                              "table %s.%s is several in the stream: name the partition",
                              request->asked.schema, request->asked.table);
        free(job->tables);
    }
    if (job->status != MR_OK) {
        job_failed(chunks, request, job);
        return;
    }
    chunks->attempt = 0;
    mr_chunk_request_found(&chunks->requests, request, job->tables, job->table_count);
}

/* As many rows as can be read in the time, and as there is room for. */
static void adapt(struct mr_chunks *chunks, int64_t ns)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    if (chunk->rows == 0) {
        return;
    }
    uint64_t rows = chunks->room.rows;
    if (ns < TARGET_NS / 2 && chunk->rows == chunks->room.rows) {
        rows *= 2;
    } else if (ns > 2 * TARGET_NS) {
        rows /= 2;
    }
    uint64_t row_bytes =
        chunk->len / chunk->rows + chunk->relation->column_count * sizeof(struct mr_datum) + 1;
    /* Of bytes a little less, for what is broken off costs a connection. */
    uint64_t fit = chunks->room.bytes / 8 * 7 / row_bytes + 1;
    rows = rows < MR_CHUNKS_ROWS_MIN ? MR_CHUNKS_ROWS_MIN : rows > ROWS_MAX ? ROWS_MAX : rows;
    chunks->room.rows = (uint32_t)(rows > fit ? fit : rows);
}

static bool chunk_jobs_add_rows(struct mr_chunks *chunks)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    for (uint32_t i = 0; i < chunk->rows; i++) {
        mr_slice key;
        if (!mr_chunks_key(chunks, chunk->relation, mr_chunk_row(chunk, i), NULL, &key) ||
            !mr_chunk_window_add(chunks->window, key)) {
            return false;
        }
    }
    return true;
}

static enum mr_chunk_verdict chunk_jobs_judge(struct mr_chunks *chunks, bool *ret_differs)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    struct mr_chunk_snapshot snapshot;
    *ret_differs = false;
    if (!mr_chunk_snapshot_parse(chunk->snapshot, &snapshot)) {
        mr_chunk_window_close(chunks->window);
        return MR_CHUNK_AGAIN;
    }
    /* The stream may be at an older form of the table, or at a newer one already. */
    *ret_differs = chunks->form.streamed != NULL &&
                   !mr_chunks_same_shape(chunks->form.streamed, chunk->relation);
    if (*ret_differs) {
        mr_chunk_window_reshape(chunks->window);
    }
    enum mr_chunk_verdict verdict =
        mr_chunk_window_judge(chunks->window, &snapshot, chunk->wal_end);
    chunks->out.xid = snapshot.xmax;
    mr_chunk_snapshot_done(&snapshot);
    return verdict;
}

static void begin_held(struct mr_chunks *chunks)
{
    mr_chunks_read_again(chunks, MR_CHUNKS_AGAIN_NS);
    mr_chunks_set_phase(chunks, MR_CHUNKS_HELD);
    chunks->held.since_ns = chunks->since_ns;
    chunks->held.logged_ns = 0;
}

static void tell_held(struct mr_chunks *chunks, const struct mr_chunk_holder *holder,
                      int64_t now_ns)
{
    const struct mr_chunk_request *current = chunks->current;
    bool is_other = mr_chunk_requests_hold(&chunks->requests, holder);
    bool was_told = chunks->held.logged_ns != 0 && now_ns - chunks->held.logged_ns < HELD_TOLD_NS;
    if (now_ns - chunks->held.since_ns < HELD_QUIET_NS || (was_told && !is_other)) {
        return;
    }
    chunks->held.logged_ns = now_ns;
    mr_log(MR_LOG_WARN, "incremental_held_up",
           "the copy of a table's existing rows waits for a transaction that began before it, or "
           "that the stream has had and others do not see yet; in whatever database",
           MR_LOG_STR("schema", current->asked.schema), MR_LOG_STR("table", current->asked.table),
           MR_LOG_STR("holder", holder->by.who), MR_LOG_STR("since", holder->by.since),
           MR_LOG_STR("remedy", holder->by.remedy),
           MR_LOG_INT("seconds", (now_ns - chunks->held.since_ns) / 1000000000));
}

/* The holder may have ended since the last look, and another one hold the copy up. */
static void take_holder(struct mr_chunks *chunks, const struct mr_chunk_holder *holder)
{
    int64_t now_ns = mr_monotonic_ns();
    struct mr_chunk_snapshot snapshot;
    bool is_held = true;
    chunks->attempt = 0;
    if (mr_chunk_snapshot_parse(holder->snapshot, &snapshot)) {
        is_held = mr_chunk_window_is_held(chunks->window, &snapshot);
        mr_chunk_snapshot_done(&snapshot);
    }
    if (!is_held) {
        mr_chunk_requests_hold(&chunks->requests, NULL);
        mr_chunks_read_next(chunks);
        return;
    }
    if (holder->by.who[0] != '\0') {
        tell_held(chunks, holder, now_ns);
    }
    int64_t held_ns = now_ns - chunks->held.since_ns;
    chunks->due_ns = now_ns + (held_ns < HELD_LOOK_NS ? held_ns : HELD_LOOK_NS);
}

static void take_chunk(struct mr_chunks *chunks, const struct mr_chunk_job *job)
{
    if (job->status != MR_OK) {
        job_failed(chunks, chunks->current, job);
        return;
    }
    chunks->attempt = 0;
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    if (chunks->form.copied != chunk->relation) {
        mr_chunks_forget_relation(chunks);
        chunks->form.copied = chunk->relation;
    }
    bool differs;
    switch (chunk_jobs_judge(chunks, &differs)) {
    case MR_CHUNK_TOO_MUCH:
        chunks->room.rows =
            chunks->room.rows / 2 < MR_CHUNKS_ROWS_MIN ? MR_CHUNKS_ROWS_MIN : chunks->room.rows / 2;
        mr_chunks_read_again(chunks, 0);
        return;
    case MR_CHUNK_AGAIN:
        if (!differs || !mr_chunks_differs(chunks)) {
            mr_chunks_read_again(chunks, MR_CHUNKS_AGAIN_NS);
        }
        return;
    case MR_CHUNK_HELD:
        begin_held(chunks);
        return;
    case MR_CHUNK_GOOD:
        break;
    }
    if (!chunk_jobs_add_rows(chunks)) {
        struct mr_error error;
        mr_error_set(&error, MR_ERR_PROTOCOL,
                     "two rows of table %s.%s have the same key, or one has none",
                     chunks->form.copied->schema, chunks->form.copied->table);
        mr_chunks_fail(chunks, &error);
        return;
    }
    adapt(chunks, job->ns);
    if (chunk->is_anew) {
        mr_log(MR_LOG_WARN, "incremental_anew",
               "the key by which a table is copied is another one than when its copy began: it is "
               "copied from its first row on",
               MR_LOG_STR("schema", chunks->current->asked.schema),
               MR_LOG_STR("table", chunks->current->asked.table));
    }
    chunks->out.at = 0;
    mr_chunks_set_phase(chunks, MR_CHUNKS_WAITS);
}

void mr_chunks_take_job(struct mr_chunks *chunks)
{
    if (mr_chunk_thread_state(&chunks->thread) != MR_CHUNK_JOB_DONE) {
        return;
    }
    struct mr_chunk_job job;
    mr_chunk_thread_take(&chunks->thread, &job);
    if (job.kind == MR_CHUNK_JOB_FIND) {
        chunk_jobs_take_tables(chunks, &job);
        return;
    }
    bool stale = chunks->stale;
    chunks->stale = false;
    if (stale || chunks->current == NULL) {
        mr_chunks_forget_relation(chunks); /* the reader may free it */
        return;
    }
    if (job.kind == MR_CHUNK_JOB_READ) {
        take_chunk(chunks, &job);
    } else if (job.status != MR_OK) {
        job_failed(chunks, chunks->current, &job);
    } else if (job.kind == MR_CHUNK_JOB_HOLDER) {
        MR_ASSERT(chunks->phase == MR_CHUNKS_HELD); /* else it is stale */
        take_holder(chunks, &chunks->held.holder);
    } else if (chunks->phase == MR_CHUNKS_NUMBERED) {
        mr_chunk_window_take_number(chunks->window, job.xid);
        chunks->first_number = chunks->first_number == 0 ? job.xid : chunks->first_number;
        mr_chunks_set_phase(chunks, MR_CHUNKS_READ);
    }
}

static void chunk_jobs_ask(struct mr_chunks *chunks, struct mr_chunk_job *job)
{
    chunks->asked = *job;
    mr_chunk_thread_ask(&chunks->thread, job);
}

void mr_chunks_give_job(struct mr_chunks *chunks, int64_t now_ns)
{
    if (mr_chunk_thread_state(&chunks->thread) != MR_CHUNK_JOB_IDLE || chunks->due_ns > now_ns) {
        return;
    }
    struct mr_chunk_request *unchecked =
        mr_chunk_requests_first(&chunks->requests, MR_REQUEST_CHECKED);
    if (unchecked != NULL) {
        chunk_jobs_ask(chunks,
                       &(struct mr_chunk_job){.kind = MR_CHUNK_JOB_FIND,
                                              .request = unchecked->asked.id,
                                              .wish = {.named_schema = unchecked->asked.schema,
                                                       .named_table = unchecked->asked.table,
                                                       .key = unchecked->asked.key}});
        return;
    }
    if (chunks->phase == MR_CHUNKS_NUMBER) {
        chunk_jobs_ask(chunks, &(struct mr_chunk_job){.kind = MR_CHUNK_JOB_NUMBER});
        mr_chunks_set_phase(chunks, MR_CHUNKS_NUMBERED);
    } else if (chunks->phase == MR_CHUNKS_HELD) {
        free(chunks->held.holder.snapshot);
        chunks->held.holder = (struct mr_chunk_holder){0};
        chunk_jobs_ask(chunks, &(struct mr_chunk_job){.kind = MR_CHUNK_JOB_HOLDER,
                                                      .xid = mr_chunk_window_holder(chunks->window),
                                                      .holder = &chunks->held.holder});
    } else if (chunks->phase == MR_CHUNKS_READ && !atomic_load(&chunks->requests.paused)) {
        mr_chunk_window_open(chunks->window);
        chunks->form.streamed = NULL;
        const struct mr_chunk_request *current = chunks->current;
        bool is_last = current->part + 1 == current->part_count && current->keys == NULL;
        struct mr_chunk_job job = {.kind = MR_CHUNK_JOB_READ,
                                   .wish = {.table = mr_chunks_table(chunks),
                                            .where = current->asked.where,
                                            .is_signal = current->asked.is_signal,
                                            .key = current->asked.key,
                                            .after = (const char *const *)chunks->place.after,
                                            .after_count = chunks->place.after_count,
                                            .form = chunks->place.form,
                                            .keys = current->keys,
                                            .keys_from = current->key,
                                            .is_converted = chunks->options.converts,
                                            .rows_max = chunks->room.rows,
                                            .bytes_max = chunks->room.bytes,
                                            .row_bytes_max = chunks->options.row_bytes_max,
                                            .named_schema = current->asked.schema,
                                            .named_table = current->asked.table,
                                            .parts = is_last ? current->parts : NULL,
                                            .part_count = current->part_count,
                                            .since = chunks->first_number}};
        chunk_jobs_ask(chunks, &job);
        mr_chunks_set_phase(chunks, MR_CHUNKS_READS);
    } else if (chunks->phase == MR_CHUNKS_WAITS &&
               now_ns - chunks->since_ns >= MR_CHUNKS_QUIET_NS) {
        chunk_jobs_ask(chunks, &(struct mr_chunk_job){.kind = MR_CHUNK_JOB_NUMBER});
        chunks->since_ns = now_ns;
    }
}
