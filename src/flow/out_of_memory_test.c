/* Every allocation of a run fails once, in a process of its own: configuration, encoder, and a
 * recorded stream through the pipeline into a file. Each time the process must say so and abort,
 * with nothing wrong in the file and nothing confirmed that is not in it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "sink/file.h"
#include "stream/pg_payload.h"
#include "testing/recording.h"
#include "testing/test.h"

enum { ROWS = 30, ROWS_PER_TRANSACTION = 10, OUTPUT_MAX = 64 * 1024, RUNS_MAX = 20000 };

static _Atomic long allocations;
static long fail_at; /* 0: never */

void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real__Znwm(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap__Znwm(size_t size);
void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((noreturn));
void (*new_handler(void))(void) __asm__("_ZSt15get_new_handlerv");

static bool fails(void)
{
    return atomic_fetch_add(&allocations, 1) + 1 == fail_at;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

/* C++'s operator new, for the TOML library: it calls the handler, if there is one, and else
 * throws. */
void *__wrap__Znwm(size_t size)
{
    if (fails()) {
        void (*handler)(void) = new_handler();
        if (handler != NULL) {
            handler();
        }
        throw_bad_alloc();
    }
    return __real__Znwm(size);
}

/* Plays a recording; what it is told to confirm is seen by the test's process. */
struct player {
    struct mr_source source;
    struct mr_pgoutput *decoder;
    mr_slice recording;
    size_t at;
    mr_slice payload;
    bool pending;
    _Atomic mr_lsn *confirmed;
};

static struct mr_recording recording;

static mr_status player_open(struct mr_source *source, const struct mr_checkpoint *stored,
                             mr_lsn start, int stop_fd, struct mr_identity *ret_identity,
                             struct mr_error *ret_error)
{
    (void)source;
    (void)stored;
    (void)start;
    (void)stop_fd;
    (void)ret_identity;
    (void)ret_error;
    return MR_OK;
}

static mr_status player_receive(struct mr_source *source, const struct mr_source_handler *handler,
                                struct mr_error *ret_error)
{
    struct player *player = (struct player *)source;
    if (!player->pending) {
        player->pending = mr_recording_next(player->recording, &player->at, &player->payload);
    }
    if (!player->pending) {
        return MR_AGAIN;
    }
    MR_TRY(mr_pg_payload_take(player->decoder, player->payload, handler, ret_error));
    player->pending = false;
    return MR_OK;
}

static mr_status player_confirm(struct mr_source *source, mr_lsn flushed, bool ping,
                                struct mr_error *ret_error)
{
    (void)ping;
    (void)ret_error;
    atomic_store(((struct player *)source)->confirmed, flushed);
    return MR_OK;
}

static int player_descriptor(const struct mr_source *source)
{
    (void)source;
    return -1;
}

static void player_close(struct mr_source *source, int64_t deadline_ns)
{
    (void)source;
    (void)deadline_ns;
}

static mr_status out_of_memory_test_stream(const struct mr_config *config, struct player *player)
{
    struct mr_topics topics = {0};
    struct mr_encoder *encoder = mr_encoder_new(&config->encode, &topics);
    struct mr_sink *sink = mr_file_sink_new(config->file_path);
    struct mr_pipeline *pipeline =
        mr_pipeline_new(&config->daemon->pipeline, &player->source, sink, encoder, NULL, NULL);
    int done_fd = eventfd(0, EFD_CLOEXEC);
    struct mr_error error = {0};
    mr_status status = mr_pipeline_start(pipeline, done_fd, &error);
    if (status == MR_OK) {
        status = mr_pipeline_join(pipeline, &error);
    }
    mr_pipeline_free(pipeline);
    sink->ops->free(sink);
    mr_encoder_free(encoder);
    mr_topics_done(&topics);
    close(done_fd);
    return status;
}

/* As main does it; answers the exit code. */
static int out_of_memory_test_run(const char *path, _Atomic mr_lsn *confirmed)
{
    static const struct mr_source_ops ops = {
        .name = "recording",
        .open = player_open,
        .receive = player_receive,
        .confirm = player_confirm,
        .descriptor = player_descriptor,
        .close = player_close,
    };
    char text[1024];
    int len =
        snprintf(text, sizeof(text),
                 "format = \"flat\"\ntables = [\"benchmark_records\"]\nlog.level = \"error\"\n"
                 "source.postgres.connection = \"host=nowhere\"\n"
                 "sink.type = \"file\"\nsink.file.path = \"%s\"\n",
                 path);
    struct mr_config *config;
    mr_status status = mr_daemon_load_text("test", text, (size_t)len, &config);
    if (status == MR_OK) {
        struct player player = {
            .source = {.ops = &ops},
            .decoder = mr_pgoutput_new(),
            .recording = mr_recording_slice(&recording),
            .confirmed = confirmed,
        };
        mr_log_configure(config->log_level, config->log_format);
        config->daemon->pipeline.stop_after_events = ROWS;
        status = out_of_memory_test_stream(config, &player);
        mr_pgoutput_free(player.decoder);
    } else {
        mr_config_print_problems(config, stderr);
    }
    mr_config_free(config);
    return mr_status_exit_code(status);
}

/* What a run left behind. */
struct outcome {
    int status; /* of waitpid */
    char output[OUTPUT_MAX];
    size_t output_len;
    char errors[4096];
    mr_lsn confirmed;
    long allocations;
};

struct shared {
    _Atomic mr_lsn confirmed;
    _Atomic long allocations;
};

static size_t out_of_memory_test_read_file(const char *path, char *ret_text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0; /* it did not come so far */
    }
    ssize_t len = read(fd, ret_text, size);
    assert_true(len >= 0 && (size_t)len < size);
    close(fd);
    return (size_t)len;
}

static void run_in_child(const char *folder, long n, struct outcome *ret)
{
    char output[128], errors[128];
    snprintf(output, sizeof(output), "%s/output", folder);
    snprintf(errors, sizeof(errors), "%s/errors", folder);
    unlink(output);
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGABRT, SIG_DFL); /* cmocka has a handler of its own */
        int fd = open(errors, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        dup2(fd, STDERR_FILENO);
        atomic_store(&allocations, 0);
        fail_at = n;
        int code = out_of_memory_test_run(output, &shared->confirmed);
        atomic_store(&shared->allocations, atomic_load(&allocations));
        _exit(code);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &ret->status, 0), child);
    ret->output_len = out_of_memory_test_read_file(output, ret->output, sizeof(ret->output));
    ret->errors[out_of_memory_test_read_file(errors, ret->errors, sizeof(ret->errors) - 1)] = 0;
    ret->confirmed = atomic_load(&shared->confirmed);
    ret->allocations = atomic_load(&shared->allocations);
    munmap(shared, sizeof(*shared));
    unlink(errors);
}

static void assert_documented_end(const struct outcome *failed, const struct outcome *good, long n)
{
    bool aborted = WIFSIGNALED(failed->status) && WTERMSIG(failed->status) == SIGABRT;
    if (!aborted || strstr(failed->errors, "millrace: out of memory") == NULL) {
        fail_msg("allocation %ld: wait status 0x%x, stderr: %s", n, (unsigned)failed->status,
                 failed->errors);
    }
    assert_true(failed->output_len <= good->output_len);
    assert_memory_equal(failed->output, good->output, failed->output_len);
    if (failed->confirmed == good->confirmed) {
        assert_int_equal(failed->output_len, good->output_len);
    }
}

static void test_every_allocation_fails_once(void **state)
{
    (void)state;
    char folder[] = "/tmp/millrace-out-of-memory-XXXXXX";
    assert_non_null(mkdtemp(folder));
    mr_recording_rows(&recording, ROWS, ROWS_PER_TRANSACTION);
    struct outcome *good = calloc(1, sizeof(*good)), *failed = calloc(1, sizeof(*failed));
    run_in_child(folder, 0, good);
    assert_int_equal(good->status, 0);
    assert_true(good->output_len > 0);
    assert_true(good->confirmed == recording.end);
    assert_true(good->allocations > 50 && good->allocations < RUNS_MAX);
    for (long n = 1; n <= good->allocations; n++) {
        run_in_child(folder, n, failed);
        assert_documented_end(failed, good, n);
    }
    print_message("%ld allocations failed, one a run\n", good->allocations);
    char output[128];
    snprintf(output, sizeof(output), "%s/output", folder);
    unlink(output);
    assert_int_equal(rmdir(folder), 0);
    mr_recording_done(&recording);
    free(failed);
    free(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_fails_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
