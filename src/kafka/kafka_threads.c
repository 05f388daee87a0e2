#include "kafka/kafka_threads.h"

#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/thread.h"
#include "base/wake.h"
#include "kafka/kafka_token.h"

enum { LOOK_MS = 100 };

/* librdkafka has named the thread by now: rdk:main, rdk:broker1. */
static rd_kafka_resp_err_t on_thread_start(rd_kafka_t *producer, rd_kafka_thread_type_t type,
                                           const char *thread, void *context)
{
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    /* Its mock cluster takes an interrupted poll for a failure. */
    if (strcmp(name, "rdk:mock") != 0) {
        mr_thread_begin(MR_THREAD_KAFKA, name[0] != '\0' ? name : thread);
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t on_thread_exit(rd_kafka_t *producer, rd_kafka_thread_type_t type,
                                          const char *thread, void *context)
{
    mr_thread_end();
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t kafka_threads_on_new(rd_kafka_t *producer, const rd_kafka_conf_t *conf,
                                                void *context, char *reason, size_t reason_size)
{
    rd_kafka_interceptor_add_on_thread_start(producer, "profiler", on_thread_start, NULL);
    rd_kafka_interceptor_add_on_thread_exit(producer, "profiler", on_thread_exit, NULL);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

void mr_kafka_threads_watch(rd_kafka_conf_t *conf)
{
    rd_kafka_conf_interceptor_add_on_new(conf, "profiler", kafka_threads_on_new, NULL);
}

struct ending {
    rd_kafka_t *client;
    int done_fd;
};

static void *ending_main(void *context)
{
    struct ending *ending = context;
    prctl(PR_SET_NAME, "mr-kafka-end"); /* by which the profiler knows its stage */
    mr_thread_begin(MR_THREAD_KAFKA, "mr-kafka-end");
    rd_kafka_destroy_flags(ending->client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    mr_thread_end();
    mr_wake(ending->done_fd);
    return NULL;
}

/* The records of what is left behind come again, so the process may leave at any time. */
static _Noreturn void kafka_threads_leave(int limit_ms)
{
    int code = mr_status_exit_code(MR_ERR_PROTOCOL);
    mr_log(MR_LOG_ERROR, "stopped",
           "librdkafka's threads do not end, as after an answer of a broker that broke off, and "
           "without them no other session can begin; nothing is lost, but some rows will come "
           "twice after the next start",
           MR_LOG_INT("waited_ms", limit_ms), MR_LOG_INT("exit_code", code));
    mr_log_stop();
    _exit(code);
}

/* On a thread of its own, since rd_kafka_destroy knows no limit. It hangs for ever where an answer
 * to AddPartitionsToTxn breaks off after the name of a topic: `goto err_parse` in
 * rd_kafka_txn_handle_AddPartitionsToTxn (to 2.15.0) leaves the topic's lock taken, for which
 * rdk:main then waits. */
void mr_kafka_client_end(rd_kafka_t *client, int limit_ms)
{
    struct ending ending = {.client = client, .done_fd = eventfd(0, EFD_CLOEXEC)};
    pthread_t thread;
    if (ending.done_fd < 0 || mr_thread_create(&thread, ending_main, &ending, NULL) != MR_OK) {
        rd_kafka_destroy_flags(client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    } else {
        bool ended;
        int64_t deadline_ns = mr_monotonic_ns() + (int64_t)limit_ms * 1000000;
        do {
            mr_kafka_token_stop(client);
            ended = mr_wait_readable(ending.done_fd, LOOK_MS);
        } while (!ended && mr_monotonic_ns() < deadline_ns);
        if (!ended) {
            kafka_threads_leave(limit_ms);
        }
        pthread_join(thread, NULL);
    }
    if (ending.done_fd >= 0) {
        close(ending.done_fd);
    }
}
