/* The end of a client whose threads do not end. */
#include "kafka/kafka_threads.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "testing/test.h"

enum { LIMIT_MS = 50, LONG_MS = 30000 };

/* As long as the process lives, as one that waits for a lock that nobody gives back. */
static rd_kafka_resp_err_t hang(rd_kafka_t *client, rd_kafka_thread_type_t type, const char *thread,
                                void *context)
{
    (void)client;
    (void)type;
    (void)thread;
    (void)context;
    while (pause() != 0) {
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t kafka_threads_test_on_new(rd_kafka_t *client,
                                                     const rd_kafka_conf_t *conf, void *context,
                                                     char *reason, size_t reason_size)
{
    (void)conf;
    (void)context;
    (void)reason;
    (void)reason_size;
    return rd_kafka_interceptor_add_on_thread_exit(client, "test", hang, NULL);
}

static int end_in_child(bool hangs)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDERR_FILENO);
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        if (hangs) {
            rd_kafka_conf_interceptor_add_on_new(conf, "test", kafka_threads_test_on_new, NULL);
        }
        rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, NULL, 0);
        mr_kafka_client_end(client, hangs ? LIMIT_MS : LONG_MS);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_client_end(void **state)
{
    (void)state;
    assert_int_equal(end_in_child(false), 0);
    assert_int_equal(end_in_child(true), mr_status_exit_code(MR_ERR_PROTOCOL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_client_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
