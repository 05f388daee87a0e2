/* Existing rows while the stream runs, as chunk_requests.h has them: a companion of the flow. The
 * source thread.
 *
 * A table's rows come in chunks in the order of its key. The thread of chunk_thread.h reads one;
 * chunk_window.h says which of its rows go out, and when; the source thread puts them into the
 * stream's own lane, between two transactions, a few at a time. Their positions lie right below the
 * place that the stream has come to (MR_CHUNK_ORDINAL and up), so that the rule "drop what is not
 * above" holds.
 *
 * While nothing is copied, the companion neither watches the stream nor wants anything. */
#include <sys/random.h>

#include "base/clock.h"
#include "copy/chunks_internal.h"
#include "copy/copies_internal.h"
#include "flow/memory.h"

enum {
    ROWS_FIRST = 256, /* of the first chunk; from then on what is read in a certain time */
    TRANSACTIONS_NOTED = 4096,
    DIFFERS_MAX = 20,    /* chunks in a row */
    KEY_MAX = 16 * 1024, /* a longer one is not stored: the place before counts */
};
#define YIELD_NS (INT64_C(5) * 1000000)

static struct mr_chunks *chunks_of(const struct mr_companion *companion)
{
    return (struct mr_chunks *)(uintptr_t)companion;
}

void mr_chunks_forget_relation(struct mr_chunks *chunks)
{
    if (chunks->form.copied != NULL) {
        mr_encoder_forget(chunks->base.port->stream->encoder, chunks->form.copied);
        chunks->form.copied = NULL;
    }
}

void mr_chunks_close_window(struct mr_chunks *chunks)
{
    if (chunks->window != NULL) {
        mr_chunk_window_close(chunks->window);
    }
    chunks->form.streamed = NULL;
}

void mr_chunks_set_phase(struct mr_chunks *chunks, enum mr_chunks_phase phase)
{
    chunks->phase = phase;
    chunks->since_ns = mr_monotonic_ns();
}

static void chunks_begin_window(struct mr_chunks *chunks)
{
    uint64_t seed = (uint64_t)mr_monotonic_ns();
    ssize_t got = getrandom(&seed, sizeof(seed), GRND_NONBLOCK);
    (void)got;
    mr_chunk_window_free(chunks->window);
    chunks->window = mr_chunk_window_new(TRANSACTIONS_NOTED, chunks->room.bytes, seed);
    chunks->form.streamed = NULL;
    chunks->changed = false;
    chunks->due_ns = 0;
    mr_chunk_requests_hold(&chunks->requests, NULL);
    mr_chunks_set_phase(chunks, MR_CHUNKS_NUMBER);
}

void mr_chunks_leave(struct mr_chunks *chunks)
{
    mr_chunks_forget_relation(chunks);
    mr_asked_place_done(&chunks->place);
    mr_chunk_window_free(chunks->window);
    chunks->window = NULL;
    chunks->form.streamed = NULL;
    chunks->stale = mr_chunk_thread_state(&chunks->thread) != MR_CHUNK_JOB_IDLE &&
                    chunks->asked.kind != MR_CHUNK_JOB_FIND;
    chunks->current = NULL;
    mr_chunk_requests_hold(&chunks->requests, NULL);
    mr_chunks_set_phase(chunks, MR_CHUNKS_NONE);
}

void mr_chunks_begin(struct mr_chunks *chunks, struct mr_chunk_request *request)
{
    chunks->current = request;
    chunks->room.rows = ROWS_FIRST;
    chunks->first_number = 0;
    chunks->attempt = 0;
    chunks->form.differed_stream = chunks->form.differed_copied = NULL;
    chunks->out.lacked = 0;
    chunks->out.lacks_logged = false;
    chunks_begin_window(chunks);
    chunks->place = mr_chunk_request_begin(&chunks->requests, request);
}

void mr_chunks_fail(struct mr_chunks *chunks, const struct mr_error *error)
{
    mr_chunk_request_fail(&chunks->requests, chunks->current, error);
    mr_chunks_leave(chunks);
}

const struct mr_chunk_table *mr_chunks_table(const struct mr_chunks *chunks)
{
    return &chunks->current->parts[chunks->current->part];
}

void mr_chunks_count_rows(struct mr_chunks *chunks)
{
    mr_chunk_request_did(&chunks->requests, chunks->current, &chunks->out.done);
    chunks->out.done = (struct mr_chunks_done){0};
}

void mr_chunks_keep_place(struct mr_chunks *chunks, uint32_t rows)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    mr_chunks_count_rows(chunks);
    if (rows == 0) {
        return;
    }
    if (chunks->current->keys != NULL) {
        chunks->current->key = chunk->keys_from + rows; /* which nothing stores */
        return;
    }
    const struct mr_datum *row = mr_chunk_row(chunk, rows - 1);
    mr_asked_place_done(&chunks->place);
    struct mr_asked_place *place = &chunks->place;
    place->oid = mr_chunks_table(chunks)->oid;
    place->form = chunk->form;
    place->after_count = chunk->key_count;
    place->after = MR_NEW_ARRAY(char *, place->after_count);
    for (uint32_t i = 0; i < place->after_count; i++) {
        const struct mr_datum *value = &row[chunk->key[i]];
        place->after[i] = MR_ALLOC(value->len + 1);
        memcpy(place->after[i], value->data, value->len);
        place->after[i][value->len] = '\0';
    }
    mr_chunks_note_place(chunks);
}

/* The stream's next batch carries all that was asked or done so far, and the request (NULL: none)
 * to that place. */
static void chunks_note(struct mr_chunks *chunks, const struct mr_chunk_request *request,
                        const struct mr_asked_place *place)
{
    uint64_t step = mr_port_note(chunks->base.port->stream);
    mr_chunk_requests_note(&chunks->requests, step, request, place);
    chunks->noted = atomic_load(&chunks->requests.revision);
}

static void note_requests(struct mr_chunks *chunks)
{
    if (chunks->requests.stores && atomic_load(&chunks->requests.revision) != chunks->noted) {
        chunks_note(chunks, NULL, NULL);
    }
}

void mr_chunks_note_place(struct mr_chunks *chunks)
{
    char no_name[] = "";
    const struct mr_asked_table place = {
        .schema = no_name, .table = no_name, .place = chunks->place};
    if (chunks->place.settled || mr_asked_table_size(&place) <= KEY_MAX) {
        chunks_note(chunks, chunks->current, &chunks->place);
    }
}

void mr_chunks_read_next(struct mr_chunks *chunks)
{
    bool wants_number = mr_chunk_window_wants_number(chunks->window);
    mr_chunks_set_phase(chunks, wants_number ? MR_CHUNKS_NUMBER : MR_CHUNKS_READ);
}

/* While the stream is behind, it is no wonder; once it has come to where that form was read, they
 * should agree. */
bool mr_chunks_differs(struct mr_chunks *chunks)
{
    const struct mr_chunk *chunk = &chunks->thread.chunk;
    bool is_same = chunks->form.differed_stream == chunks->form.streamed &&
                   chunks->form.differed_copied == chunk->relation;
    if (!is_same) {
        chunks->form.differed = 0;
        chunks->form.differed_stream = chunks->form.streamed;
        chunks->form.differed_copied = chunk->relation;
        chunks->form.differed_from = chunk->wal_end;
    }
    if (++chunks->form.differed < DIFFERS_MAX ||
        mr_port_place(chunks->base.port) < chunks->form.differed_from) {
        return false;
    }
    struct mr_error error;
    mr_error_set(
        &error, MR_ERR_PROTOCOL,
        "table %s.%s has other columns, types or another key in the stream than in the "
        "catalog, and that for %u chunks in a row: ask again when it is not altered; if that "
        "does not help, please report it with the table's definition",
        chunks->current->asked.schema, chunks->current->asked.table, chunks->form.differed);
    mr_chunks_fail(chunks, &error);
    return true;
}

void mr_chunks_read_again(struct mr_chunks *chunks, int64_t wait_ns)
{
    mr_chunks_close_window(chunks);
    mr_chunk_request_did(&chunks->requests, chunks->current,
                         &(struct mr_chunks_done){.repeated = 1});
    chunks->due_ns = wait_ns == 0 ? 0 : mr_monotonic_ns() + wait_ns;
    mr_chunks_read_next(chunks);
}

/* The next who asks for something sets it again. */
static void set_wants(struct mr_chunks *chunks)
{
    const struct mr_chunk_requests *requests = &chunks->requests;
    bool wants = chunks->base.watches || atomic_load(&requests->open) > 0 ||
                 (requests->stores && atomic_load(&requests->revision) != chunks->noted);
    if (wants) {
        atomic_store_explicit(&chunks->base.wants, true, memory_order_relaxed);
    }
}

static void end_requests(struct mr_chunks *chunks)
{
    struct mr_chunk_request *one = mr_chunk_requests_over(&chunks->requests);
    if (one == NULL) {
        return;
    }
    bool is_asked = chunks->asked.kind == MR_CHUNK_JOB_FIND &&
                    chunks->asked.request == one->asked.id &&
                    mr_chunk_thread_state(&chunks->thread) == MR_CHUNK_JOB_ASKED;
    if (is_asked) {
        return; /* the reader has its name */
    }
    if (one == chunks->current) {
        mr_chunks_leave(chunks);
        mr_chunk_thread_end(&chunks->thread); /* nor is it to have the table's */
        chunks->stale = false;
    }
    bool is_done = one->state == MR_REQUEST_SETTLED;
    if (is_done && one->repairs == NULL && one->asked.where == NULL) {
        mr_known_topics_copied(chunks->options.topics, one->asked.schema, one->asked.table,
                               one->begun_ns);
    }
    mr_chunk_request_set(&chunks->requests, one, is_done ? MR_REQUEST_DONE : MR_REQUEST_STOPPED);
}

static void set_watch(struct mr_chunks *chunks, bool watches)
{
    if (chunks->base.watches == watches) {
        return;
    }
    chunks->changed = false;
    mr_port_watch(&chunks->base, watches);
    if (!watches) {
        mr_chunk_thread_end(&chunks->thread);
        chunks->stale = false;
        mr_chunk_done(&chunks->thread.chunk);
    }
}

static bool is_other_form(const struct mr_chunks *chunks)
{
    return chunks->form.streamed != NULL &&
           !mr_chunks_same_shape(chunks->form.streamed, chunks->thread.chunk.relation);
}

static void take_next_request(struct mr_chunks *chunks)
{
    struct mr_chunk_request *next = mr_chunk_requests_first(&chunks->requests, MR_REQUEST_WAITING);
    if (chunks->current == NULL && !atomic_load(&chunks->requests.paused) && next != NULL) {
        mr_chunks_begin(chunks, next);
    }
}

static void look_at_window(struct mr_chunks *chunks)
{
    if (chunks->phase != MR_CHUNKS_WAITS && chunks->phase != MR_CHUNKS_SENDS) {
        return;
    }
    if (mr_chunk_window_is_void(chunks->window)) {
        mr_chunks_keep_place(chunks, chunks->out.at);
        if (!is_other_form(chunks) || !mr_chunks_differs(chunks)) {
            mr_chunks_read_again(chunks, MR_CHUNKS_AGAIN_NS);
        }
    } else if (chunks->phase == MR_CHUNKS_WAITS &&
               mr_chunk_window_is_due(chunks->window, mr_port_place(chunks->base.port))) {
        mr_chunks_set_phase(chunks, MR_CHUNKS_SENDS);
    }
}

static mr_status chunks_go_on(struct mr_chunks *chunks)
{
    mr_chunks_take_job(chunks);
    end_requests(chunks);
    struct mr_error error;
    if (mr_chunk_thread_begin(&chunks->thread, &error) != MR_OK) {
        chunks->due_ns = mr_monotonic_ns() + mr_chunks_backoff_ns(chunks);
        return MR_OK;
    }
    take_next_request(chunks);
    look_at_window(chunks);
    mr_status status = chunks->phase == MR_CHUNKS_SENDS ? mr_chunks_send_rows(chunks) : MR_OK;
    mr_chunks_give_job(chunks, mr_monotonic_ns());
    return status;
}

static mr_status chunks_between(struct mr_companion *companion)
{
    struct mr_chunks *chunks = chunks_of(companion);
    atomic_store_explicit(&companion->wants, false, memory_order_seq_cst);
    note_requests(chunks);
    set_watch(chunks, atomic_load(&chunks->requests.open) > 0);
    mr_status status = companion->watches ? chunks_go_on(chunks) : MR_OK;
    set_wants(chunks);
    return status;
}

static int64_t chunks_due_in(const struct mr_companion *companion, int64_t now_ns)
{
    const struct mr_chunks *chunks = chunks_of(companion);
    if (chunks->phase == MR_CHUNKS_SENDS) {
        return mr_chunks_yield(chunks, now_ns) ? YIELD_NS : 0;
    }
    if (chunks->due_ns > now_ns) {
        return chunks->due_ns - now_ns;
    }
    /* The stream, the reader and a request wake the thread; acknowledgements and quiet servers do
     * not. */
    return MR_CHUNKS_QUIET_NS;
}

/* Who has stored the position of the signal has what it asked for, too. */
static mr_status chunks_hear_signal(struct mr_companion *companion, const struct mr_change *change,
                                    struct mr_error *ret_error)
{
    struct mr_chunks *chunks = chunks_of(companion);
    const struct mr_copies_options *options = &chunks->options;
    MR_TRY(options->on_signal(options->on_signal_context, change, ret_error));
    note_requests(chunks);
    return MR_OK;
}

static void chunks_sealed(struct mr_companion *companion, uint32_t lane, bool has_item)
{
    struct mr_chunks *chunks = chunks_of(companion);
    MR_ASSERT(lane == MR_LANE_STREAM);
    if (chunks->phase == MR_CHUNKS_SENDS) {
        mr_chunks_keep_place(chunks, chunks->out.at + (chunks->out.appends && has_item));
    }
}

static void interrupt(struct mr_chunks *chunks)
{
    chunks->changed = false;
    if (chunks->current == NULL) {
        return;
    }
    if (chunks->phase == MR_CHUNKS_SENDS) {
        mr_chunks_keep_place(chunks, chunks->out.at);
    }
    chunks->stale = mr_chunk_thread_state(&chunks->thread) != MR_CHUNK_JOB_IDLE &&
                    chunks->asked.kind != MR_CHUNK_JOB_FIND;
    chunks_begin_window(chunks);
}

static void begin_again(struct mr_chunks *chunks)
{
    if (chunks->current != NULL) {
        mr_chunks_leave(chunks);
    }
    mr_chunk_thread_end(&chunks->thread); /* the process that it looks for may get another number */
    chunks->stale = false;
    chunks->noted = 0;
    mr_chunk_requests_begin_anew(&chunks->requests);
    atomic_store(&chunks->base.wants, true);
}

static void rest(struct mr_chunks *chunks)
{
    interrupt(chunks);
    mr_chunks_forget_relation(chunks);
    mr_chunk_thread_end(&chunks->thread);
    chunks->stale = false;
}

static void chunks_lost(struct mr_companion *companion, enum mr_loss loss)
{
    struct mr_chunks *chunks = chunks_of(companion);
    switch (loss) {
    case MR_LOST_CONNECTION:
        interrupt(chunks); /* the chunk at hand is read again after it */
        break;
    case MR_LOST_SESSION:
        begin_again(chunks); /* what the sink may not have is sent again */
        break;
    case MR_LOST_OPTIONS:
    case MR_LOST_END:
        rest(chunks);
        break;
    }
}

static void chunks_adopt(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    struct mr_asked_stored *asked = mr_asked_stored_of(stored);
    mr_chunk_requests_adopt(&chunks_of(companion)->requests, asked);
    mr_asked_stored_free(asked);
    mr_chunk_requests_adopt_gap(&chunks_of(companion)->requests, stored);
    mr_port_want(companion);
}

static void chunks_safe(struct mr_companion *companion, uint32_t lane, uint64_t step)
{
    if (lane == MR_LANE_STREAM) {
        mr_chunk_requests_safe(&chunks_of(companion)->requests, step);
    }
}

static void chunks_section(struct mr_companion *companion, const struct mr_reach *reach,
                           struct mr_checkpoint *checkpoint)
{
    struct mr_asked_stored *state =
        mr_chunk_requests_state(&chunks_of(companion)->requests, reach->steps[MR_LANE_STREAM]);
    if (state != NULL) {
        mr_asked_stored_add(state, checkpoint);
        mr_asked_stored_free(state);
    }
    mr_chunk_requests_add_gap(&chunks_of(companion)->requests, checkpoint);
}

static void stored(struct mr_companion *companion)
{
    mr_chunk_requests_stored(&chunks_of(companion)->requests);
}

static void chunks_attach(struct mr_companion *companion)
{
    struct mr_chunks *chunks = chunks_of(companion);
    mr_chunk_requests_attach(&chunks->requests, companion->port->stores,
                             chunks->options.stored_bytes_max);
    mr_chunk_thread_init(&chunks->thread, chunks->options.server, companion->port);
}

struct mr_companion *mr_chunks_new(const struct mr_copies_options *options,
                                   struct mr_chunk_requests **ret_requests)
{
    static const struct mr_companion_ops ops = {.name = "chunks",
                                                .attach = chunks_attach,
                                                .signal = chunks_hear_signal,
                                                .between = chunks_between,
                                                .due_in = chunks_due_in,
                                                .change = mr_chunks_change,
                                                .commit = mr_chunks_commit,
                                                .relation_end = mr_chunks_relation_end,
                                                .lost = chunks_lost,
                                                .sealed = chunks_sealed,
                                                .adopt = chunks_adopt,
                                                .safe = chunks_safe,
                                                .section = chunks_section,
                                                .stored = stored};
    struct mr_chunks *chunks = MR_NEW(struct mr_chunks);
    chunks->base.ops = &ops;
    chunks->base.hears_signals = options->on_signal != NULL;
    chunks->options = *options;
    chunks->room.bytes = mr_memory_chunk(options->change_bytes_max);
    mr_chunk_requests_init(&chunks->requests, &chunks->base);
    *ret_requests = &chunks->requests;
    return &chunks->base;
}

void mr_chunks_free(struct mr_companion *companion)
{
    struct mr_chunks *chunks = chunks_of(companion);
    if (chunks->base.port != NULL) {
        mr_chunk_thread_done(&chunks->thread);
    }
    mr_chunk_window_free(chunks->window);
    mr_chunk_requests_done(&chunks->requests);
    mr_asked_place_done(&chunks->place);
    mr_text_done(&chunks->key);
    free(chunks->held.holder.snapshot);
    free(chunks);
}
