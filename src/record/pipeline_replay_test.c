/* What real servers sent, through a whole pipeline with its threads: each change comes out once, in
 * order, and nothing is confirmed before it is delivered; also when the connection is lost once a
 * position is confirmed, and the server is asked to begin there, for which it was recorded what it
 * answers. What must come out is what an independent decoder said (the .txt beside each
 * recording). */
#include <endian.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "flow/pipeline.h"
#include "stream/pg_payload.h"
#include "testing/replay.h"
#include "testing/test.h"

enum { WAIT_S = 60, ITEMS_MAX = 1024, XLOG_DATA_HEAD = 25, HELD_MAX = 16 };

/* A change or message that must come out, and the position from which on it may be confirmed. */
struct item {
    struct mr_position position;
    mr_lsn end;
};

struct theatre {
    struct mr_source source;
    struct mr_sink sink;
    struct item items[ITEMS_MAX];
    int item_count;

    /* The source thread's. */
    struct mr_pgoutput *decoder;
    const struct mr_source_handler *handler;
    struct mr_replay first, second; /* the second from where the first one breaks off */
    struct mr_replay *playing;
    mr_slice payload;
    bool pending;
    bool in_transaction;
    mr_lsn reached;  /* by the server, in this connection */
    mr_lsn break_at; /* 0: never */
    int beyond;  /* transactions that come before the connection is lost, and are not confirmed */
    int commits; /* of them, so far */
    mr_lsn told;
    bool asked; /* whether it is there: answered, as a walsender does, with a keepalive */

    /* The sink thread's. */
    struct mr_position last;
    struct mr_batch *held[HELD_MAX]; /* until the next connection */
    int held_count;
    _Atomic bool holds;
    _Atomic int delivered; /* items */

    _Atomic mr_lsn confirmed;
    _Atomic bool at_end;
    _Atomic int opens;
    int fd; /* always readable */
};

static struct theatre *pipeline_replay_test_of_source(const struct mr_source *source)
{
    return (struct theatre *)(uintptr_t)source;
}

static struct theatre *pipeline_replay_test_of_sink(const struct mr_sink *sink)
{
    return (struct theatre *)((uintptr_t)sink - offsetof(struct theatre, sink));
}

static mr_status replay_open(struct mr_source *source, const struct mr_checkpoint *stored,
                             mr_lsn start, int stop_fd, struct mr_identity *ret_identity,
                             struct mr_error *ret_error)
{
    (void)stored;
    (void)stop_fd;
    (void)ret_identity;
    (void)ret_error;
    struct theatre *theatre = pipeline_replay_test_of_source(source);
    bool again = atomic_fetch_add(&theatre->opens, 1) > 0;
    MR_ASSERT(start == (again ? theatre->break_at : 0));
    theatre->playing = again ? &theatre->second : &theatre->first;
    atomic_store(&theatre->holds, false);
    theatre->in_transaction = false;
    theatre->asked = false;
    theatre->reached = theatre->told = 0;
    return MR_OK;
}

static uint64_t u64_at(const uint8_t *bytes)
{
    uint64_t big;
    memcpy(&big, bytes, sizeof(big));
    return be64toh(big);
}

/* How far the server has come, by what it says itself. */
static void pipeline_replay_test_follow(struct theatre *theatre)
{
    const uint8_t *bytes = theatre->payload.data;
    const uint8_t *message = bytes + XLOG_DATA_HEAD;
    bool is_data = bytes[0] == 'w';
    if (is_data && message[0] == 'B') {
        theatre->in_transaction = true;
    } else if (is_data && message[0] == 'C') {
        theatre->in_transaction = false;
        theatre->commits += atomic_load(&theatre->holds);
        theatre->reached = u64_at(message + 10);
    } else if (is_data && message[0] == 'M' && message[1] == 0) {
        theatre->reached = u64_at(message + 2);
    } else if (!is_data && !theatre->in_transaction) {
        theatre->reached = u64_at(bytes + 1);
    }
}

static mr_status replay_receive(struct mr_source *source, const struct mr_source_handler *handler,
                                struct mr_error *ret_error)
{
    struct theatre *theatre = pipeline_replay_test_of_source(source);
    theatre->handler = handler;
    if (theatre->asked && !theatre->pending) {
        theatre->asked = false;
        atomic_fetch_add(&source->received_bytes, 1);
        handler->keepalive(handler->context, theatre->told, false);
    }
    bool breaks = theatre->break_at != 0 && theatre->playing == &theatre->first;
    if (!theatre->pending && breaks && theatre->reached >= theatre->break_at) {
        if (theatre->told < theatre->break_at) {
            MR_ASSERT(theatre->reached == theatre->break_at && !theatre->in_transaction);
            return MR_AGAIN;
        }
        atomic_store(&theatre->holds, theatre->beyond > 0);
        if (theatre->commits == theatre->beyond) {
            return mr_fail(ret_error, MR_ERR_TRANSIENT, "the recording breaks off");
        }
    }
    if (!theatre->pending) {
        theatre->pending = mr_replay_next(theatre->playing, &theatre->payload);
    }
    if (!theatre->pending) {
        atomic_store(&theatre->at_end, true);
        return MR_AGAIN;
    }
    mr_status status = mr_pg_payload_take(theatre->decoder, theatre->payload, handler, ret_error);
    MR_ASSERT(status == MR_OK || status == MR_FULL);
    if (status == MR_OK) {
        theatre->pending = false;
        pipeline_replay_test_follow(theatre);
    }
    return status;
}

/* What is confirmed is delivered. */
static mr_status replay_confirm(struct mr_source *source, mr_lsn flushed, bool ping,
                                struct mr_error *ret_error)
{
    (void)ret_error;
    struct theatre *theatre = pipeline_replay_test_of_source(source);
    theatre->asked |= ping;
    int delivered = atomic_load(&theatre->delivered);
    MR_ASSERT(flushed >= theatre->told);
    MR_ASSERT(delivered == theatre->item_count || theatre->items[delivered].end > flushed);
    MR_ASSERT(!atomic_load(&theatre->holds) || flushed == theatre->break_at);
    theatre->told = flushed;
    atomic_store(&theatre->confirmed, flushed);
    return MR_OK;
}

static int replay_descriptor(const struct mr_source *source)
{
    return pipeline_replay_test_of_source(source)->fd;
}

static void replay_close(struct mr_source *source, int64_t deadline_ns)
{
    (void)deadline_ns;
    struct theatre *theatre = pipeline_replay_test_of_source(source);
    theatre->pending = false;
    if (theatre->handler != NULL) {
        mr_pgoutput_reset(theatre->decoder, theatre->handler);
    }
}

static mr_status sink_open(struct mr_sink *sink, struct mr_error *ret_error)
{
    (void)sink;
    (void)ret_error;
    return MR_OK;
}

static mr_status sink_poll(struct mr_sink *sink, struct mr_error *ret_error)
{
    (void)ret_error;
    struct theatre *theatre = pipeline_replay_test_of_sink(sink);
    for (int i = 0; i < theatre->held_count && !atomic_load(&theatre->holds); i++) {
        mr_sink_done(sink, theatre->held[i]);
        theatre->held[i] = NULL;
    }
    int kept = 0;
    for (int i = 0; i < theatre->held_count; i++) {
        if (theatre->held[i] != NULL) {
            theatre->held[kept++] = theatre->held[i];
        }
    }
    theatre->held_count = kept;
    return MR_OK;
}

/* The next item, or another record of the one before. */
static mr_status sink_send(struct mr_sink *sink, struct mr_batch *batch, struct mr_error *ret_error)
{
    (void)ret_error;
    struct theatre *theatre = pipeline_replay_test_of_sink(sink);
    for (uint32_t i = 0; i < batch->record_count; i++) {
        struct mr_position position = mr_batch_record(batch, i)->position;
        if (mr_position_compare(position, theatre->last) == 0) {
            continue;
        }
        int next = atomic_load(&theatre->delivered);
        MR_ASSERT(next < theatre->item_count);
        MR_ASSERT(mr_position_compare(position, theatre->items[next].position) == 0);
        theatre->last = position;
        atomic_store(&theatre->delivered, next + 1);
    }
    MR_ASSERT(theatre->held_count < HELD_MAX);
    theatre->held[theatre->held_count++] = batch;
    return sink_poll(sink, ret_error);
}

static int64_t sink_due_in_ns(const struct mr_sink *sink)
{
    return pipeline_replay_test_of_sink(sink)->held_count > 0 ? 1000000 : INT64_MAX;
}

static void sink_close(struct mr_sink *sink)
{
    (void)sink;
}

static mr_lsn lsn_behind(const char *line, const char *word)
{
    const char *at = strstr(line, word);
    unsigned high, low;
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(word), "%X/%X", &high, &low), 2);
    return (mr_lsn)high << 32 | low;
}

/* Items of the stream that end at or before `limit` (0: all). */
static void pipeline_replay_test_expect(struct theatre *theatre, const char *version, mr_lsn limit)
{
    char path[512];
    snprintf(path, sizeof(path), MR_SOURCE_DIR "/tests/recordings/%s/wide.txt", version);
    size_t len;
    char *text = mr_replay_read_file(path, &len), *rest = text, *line;
    int open = 0; /* the first of the running transaction */
    while ((line = strsep(&rest, "\n")) != NULL && theatre->item_count < ITEMS_MAX) {
        struct item *item = &theatre->items[theatre->item_count];
        if (strncmp(line, "commit ", 7) == 0) {
            for (int i = open; i < theatre->item_count; i++) {
                theatre->items[i].end = lsn_behind(line, "commit ");
            }
            open = theatre->item_count;
        } else if (strncmp(line, "relation", 8) != 0 && strstr(line, " at ") != NULL) {
            item->position.commit_lsn = lsn_behind(line, " at ");
            item->position.ordinal = strtoull(strchr(strstr(line, " at "), ':') + 1, NULL, 10);
            item->end = item->position.commit_lsn; /* a message outside transactions */
            theatre->item_count++;
            open += item->position.ordinal == 0;
        }
    }
    free(text);
    assert_in_range(theatre->item_count, 1, ITEMS_MAX - 1);
    while (limit != 0 && theatre->items[theatre->item_count - 1].end > limit) {
        theatre->item_count--;
    }
}

static bool pipeline_replay_test_is_over(const struct theatre *theatre)
{
    return atomic_load(&theatre->at_end) &&
           atomic_load(&theatre->delivered) == theatre->item_count &&
           atomic_load(&theatre->confirmed) >= theatre->items[theatre->item_count - 1].end;
}

static void perform(struct theatre *theatre)
{
    struct mr_topics topics = {0};
    static const char *const every_message[] = {"*"};
    const struct mr_encode_options encode = {
        .topic_prefix = "p",
        .unavailable_value = "u",
        .tombstones = true,
        .message_prefixes = every_message,
        .message_prefix_count = 1,
        .message_bytes_max = 1 << 20,
    };
    struct mr_encoder *encoder = mr_encoder_new(&encode, &topics);
    const struct mr_pipeline_options options = {
        .batches = 4,
        .batch_bytes = 4096, /* transactions span several, and the pool runs dry */
        .change_bytes_max = 1 << 20,
        .status_interval_ms = 1,
        .shutdown_deadline_ms = WAIT_S * 1000,
        .backoff_max_ms = 1,
        .idle_ms = 100, /* a thread that has to wait for the processor is not one that is stuck */
    };
    struct mr_pipeline *pipeline =
        mr_pipeline_new(&options, &theatre->source, &theatre->sink, encoder, NULL, NULL);
    int done_fd = eventfd(0, EFD_CLOEXEC);
    struct mr_error error = {0};
    mr_log_configure(MR_LOG_ERROR, MR_LOG_TEXT);
    assert_int_equal(mr_pipeline_start(pipeline, done_fd, &error), MR_OK);
    int64_t limit_ns = mr_monotonic_ns() + (int64_t)WAIT_S * 1000000000;
    while (!pipeline_replay_test_is_over(theatre)) {
        struct pollfd ended = {.fd = done_fd, .events = POLLIN};
        assert_int_equal(poll(&ended, 1, 1), 0);
        assert_true(mr_monotonic_ns() < limit_ns);
    }
    mr_pipeline_stop(pipeline);
    assert_int_equal(mr_pipeline_join(pipeline, &error), MR_OK);
    mr_pipeline_free(pipeline);
    mr_encoder_free(encoder);
    mr_topics_done(&topics);
    close(done_fd);
}

/* `restart`: what the server answered when it was asked to begin at a position; NULL: the
 * connection holds. `beyond`: so many transactions came after that position before the connection
 * was lost; they come again. */
static void pipeline_replay_test_check(const char *version, const char *restart, int beyond)
{
    static const struct mr_source_ops source_ops = {.name = "recording",
                                                    .open = replay_open,
                                                    .receive = replay_receive,
                                                    .confirm = replay_confirm,
                                                    .descriptor = replay_descriptor,
                                                    .close = replay_close};
    static const struct mr_sink_ops sink_ops = {.name = "witness",
                                                .open = sink_open,
                                                .send = sink_send,
                                                .poll = sink_poll,
                                                .due_in_ns = sink_due_in_ns,
                                                .close = sink_close};
    struct theatre *theatre = MR_NEW(struct theatre);
    theatre->source.ops = &source_ops;
    theatre->sink.ops = &sink_ops;
    theatre->decoder = mr_pgoutput_new();
    theatre->fd = eventfd(1, EFD_CLOEXEC);
    mr_replay_open(&theatre->first, version, "wide");
    mr_lsn limit = 0;
    if (restart != NULL) {
        mr_replay_open(&theatre->second, version, restart);
        theatre->break_at = mr_replay_start(&theatre->second);
        struct mr_replay ahead = theatre->second;
        while (mr_replay_next(&ahead, &theatre->payload)) {
            pipeline_replay_test_follow(theatre);
        }
        limit = theatre->reached;
    }
    theatre->beyond = beyond;
    pipeline_replay_test_expect(theatre, version, limit);
    perform(theatre);
    assert_int_equal(atomic_load(&theatre->opens), restart == NULL ? 1 : 2);
    mr_replay_done(&theatre->first);
    mr_replay_done(&theatre->second);
    mr_pgoutput_free(theatre->decoder);
    close(theatre->fd);
    free(theatre);
}

static void test_a_stream_comes_out_once_and_whole(void **state)
{
    (void)state;
    for (int i = 0; i < MR_REPLAY_VERSIONS; i++) {
        pipeline_replay_test_check(mr_replay_versions[i], NULL, 0);
    }
}

static void check_restarts(int beyond)
{
    for (int i = 0; i < MR_REPLAY_VERSIONS; i++) {
        for (int j = 0; j < MR_REPLAY_RESTARTS; j++) {
            /* Where a commit record begins nothing ends in this stream, so it is never
             * confirmed. */
            if (strcmp(mr_replay_restarts[j], "from-commit-record") != 0) {
                pipeline_replay_test_check(mr_replay_versions[i], mr_replay_restarts[j], beyond);
            }
        }
    }
}

static void test_a_lost_connection_leaves_no_gap(void **state)
{
    (void)state;
    check_restarts(0);
}

static void test_what_comes_again_is_not_passed_on(void **state)
{
    (void)state;
    check_restarts(1);
    check_restarts(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_comes_out_once_and_whole),
        cmocka_unit_test(test_a_lost_connection_leaves_no_gap),
        cmocka_unit_test(test_what_comes_again_is_not_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
