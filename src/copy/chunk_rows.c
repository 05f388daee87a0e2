/* Copied rows go out: into the stream's lane, between two transactions. */
#include "base/clock.h"
#include "copy/chunks_internal.h"

enum {
    SLICE_BYTES = 32 * 1024, /* between two transactions */
    LACKS_MAX = 20           /* a row is read so often for its large values */
};
/* Copied rows wait while the stream has half the pool in flight, but not for ever. */
#define YIELD_MAX_NS (INT64_C(500) * 1000000)
/* Above those of a copy at the beginning whose attempt was none. */
#define ORDINAL_FIRST (UINT64_C(1) << MR_COPY_ROW_BITS)

/* Right below the place that the stream has come to: the last commit record begins before, the next
 * one there or after it. False: what was appended last is not below that; a message outside
 * transactions may lie at the place itself. */
static bool place_rows(struct mr_chunks *chunks, int64_t wall_ns)
{
    struct mr_transaction *transaction = &chunks->transaction;
    mr_lsn place = mr_port_place(chunks->base.port);
    if (transaction->commit_lsn != place - 1) {
        *transaction = (struct mr_transaction){.commit_lsn = place - 1,
                                               .end_lsn = place,
                                               .commit_time_us = wall_ns / 1000,
                                               .xid = chunks->out.xid};
        chunks->ordinal = ORDINAL_FIRST;
    }
    struct mr_position next = {.commit_lsn = transaction->commit_lsn,
                               .ordinal = chunks->ordinal + 1};
    return mr_port_is_above(chunks->base.port, next);
}

static bool is_absent(const struct mr_chunk *chunk, uint32_t row)
{
    return chunk->absent != NULL && chunk->absent[row];
}

/* Of keys, those that are there are wanted, or those that are not. */
static bool chunk_rows_is_wanted(const struct mr_chunks *chunks)
{
    const struct mr_chunk_keys *keys = chunks->current->keys;
    return keys == NULL || is_absent(&chunks->thread.chunk, chunks->out.at) == keys->deletes;
}

/* Why a key is repaired. */
static mr_slice row_headers(const struct mr_chunks *chunks, uint8_t *room, size_t size)
{
    struct mr_buffer out = mr_buffer_init(room, size);
    if (chunks->current->repairs != NULL) {
        mr_header_append(&out, MR_HEADER_REPAIR, mr_slice_of(chunks->current->repairs));
    }
    MR_ASSERT(!out.full);
    return (mr_slice){.data = room, .len = (size_t)(out.at - room)};
}

static mr_status chunk_rows_send_row(struct mr_chunks *chunks, struct mr_error *ret_error)
{
    uint8_t room[64];
    struct mr_transaction transaction = chunks->transaction;
    transaction.headers = row_headers(chunks, room, sizeof(room));
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    const struct mr_datum *values = mr_chunk_row(chunk, chunks->out.at);
    struct mr_change change = {
        .op = MR_OP_READ,
        .copy_mark = MR_COPY_INCREMENTAL,
        .lsn = chunks->transaction.end_lsn,
        .position = {.commit_lsn = chunks->transaction.commit_lsn, .ordinal = chunks->ordinal + 1},
        .transaction = &transaction,
        .relation = chunk->relation,
        .after = {.kind = MR_TUPLE_NEW, .values = values},
    };
    if (is_absent(chunk, chunks->out.at)) {
        change.op = MR_OP_DELETE;
        change.before = (struct mr_tuple){.kind = MR_TUPLE_KEY, .values = values};
        change.after = (struct mr_tuple){.kind = MR_TUPLE_NONE};
    }
    chunks->out.appends = true;
    mr_status status = mr_port_append(chunks->base.port, &change, ret_error);
    chunks->out.appends = false;
    MR_TRY(status);
    chunks->ordinal++;
    return MR_OK;
}

bool mr_chunks_yield(const struct mr_chunks *chunks, int64_t now_ns)
{
    return mr_port_is_crowded(chunks->base.port) && now_ns - chunks->since_ns < YIELD_MAX_NS;
}

static void end_chunk(struct mr_chunks *chunks)
{
    struct mr_chunk_request *request = chunks->current;
    bool is_last = chunks->thread.chunk.is_last;
    mr_chunks_keep_place(chunks, chunks->out.at);
    mr_chunks_close_window(chunks);
    chunks->form.differed_stream = chunks->form.differed_copied = NULL;
    chunks->out.lacked = 0; /* the next chunk begins with another row */
    mr_chunk_request_did(&chunks->requests, request, &(struct mr_chunks_done){.chunks = 1});
    if (!is_last) {
        mr_chunks_read_next(chunks);
        return;
    }
    request->part++;
    if (request->part < request->part_count) {
        mr_chunks_leave(chunks);
        mr_chunks_begin(chunks, request);
        return;
    }
    chunks->place.settled = true;
    mr_chunks_note_place(chunks);
    mr_chunks_leave(chunks);
    mr_chunk_request_set(&chunks->requests, request, MR_REQUEST_SETTLED);
}

/* The row at hand is read again, in a chunk that begins with it. False: that was so too often, and
 * it is passed over. */
static bool read_row_again(struct mr_chunks *chunks)
{
    chunks->out.lacked = chunks->out.at == 0 ? chunks->out.lacked + 1 : 1;
    if (chunks->out.lacked > LACKS_MAX) {
        chunks->out.lacked = 0;
        if (!chunks->out.lacks_logged) {
            mr_log(MR_LOG_WARN, "incremental_lacks",
                   "rows are updated all the time, and their events lack large values or go to "
                   "other streams of the table only: what a topic has of these may be old or "
                   "nothing; ask for the table again, and for large values set REPLICA IDENTITY "
                   "FULL",
                   MR_LOG_STR("schema", chunks->current->asked.schema),
                   MR_LOG_STR("table", chunks->current->asked.table));
        }
        chunks->out.lacks_logged = true;
        return false;
    }
    chunks->room.rows = MR_CHUNKS_ROWS_MIN; /* soon */
    mr_chunks_keep_place(chunks, chunks->out.at);
    mr_chunks_read_again(chunks, 0);
    return true;
}

mr_status mr_chunks_send_rows(struct mr_chunks *chunks)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    int64_t now_ns = mr_monotonic_ns();
    int64_t wall_ns = mr_wall_ns();
    if (chunk->rows > 0 && (mr_chunks_yield(chunks, now_ns) || !place_rows(chunks, wall_ns))) {
        return MR_OK;
    }
    mr_port_set_clock(chunks->base.port, now_ns, wall_ns);
    uint32_t most =
        chunk->rows == 0 ? 0 : (uint32_t)(SLICE_BYTES / (chunk->len / chunk->rows + 1)) + 1;
    uint32_t sent = 0;
    struct mr_error error = {0};
    mr_status status = MR_OK;
    for (; status == MR_OK && chunks->out.at < chunk->rows && sent < most;
         chunks->out.at += status == MR_OK) {
        bool is_sent = chunk_rows_is_wanted(chunks);
        if (is_sent && mr_chunk_window_goes_out(chunks->window, chunks->out.at)) {
            status = chunk_rows_send_row(chunks, &error);
            sent += status == MR_OK;
            chunks->out.done.rows += status == MR_OK;
        } else if (is_sent && mr_chunk_window_lacks(chunks->window, chunks->out.at) &&
                   read_row_again(chunks)) {
            return MR_OK;
        } else {
            chunks->out.done.passed_over++;
        }
    }
    chunks->since_ns = now_ns;
    mr_chunks_count_rows(chunks);
    if (status != MR_OK && status != MR_FULL) {
        mr_chunks_fail(chunks, &error);
        return MR_OK;
    }
    if (chunks->out.at == chunk->rows) {
        end_chunk(chunks);
    }
    return status;
}
