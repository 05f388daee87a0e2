#include "sink/kafka_threads.h"

#include <string.h>
#include <sys/prctl.h>

#include "base/thread.h"

/* librdkafka has named the thread by now: rdk:main, rdk:broker1. */
static rd_kafka_resp_err_t on_thread_start(rd_kafka_t *producer, rd_kafka_thread_type_t type,
                                           const char *thread, void *context)
{
    (void)producer;
    (void)type;
    (void)context;
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
    (void)producer;
    (void)type;
    (void)thread;
    (void)context;
    mr_thread_end();
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t on_new(rd_kafka_t *producer, const rd_kafka_conf_t *conf, void *context,
                                  char *reason, size_t reason_size)
{
    (void)conf;
    (void)context;
    (void)reason;
    (void)reason_size;
    rd_kafka_interceptor_add_on_thread_start(producer, "profiler", on_thread_start, NULL);
    rd_kafka_interceptor_add_on_thread_exit(producer, "profiler", on_thread_exit, NULL);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

void mr_kafka_threads_watch(rd_kafka_conf_t *conf)
{
    rd_kafka_conf_interceptor_add_on_new(conf, "profiler", on_new, NULL);
}
