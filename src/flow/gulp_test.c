#include "flow/gulp.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing/test.h"

/* Over real TCP. Whether a pause went on for its whole time is asked of a long one, whether it
 * ended early, too. */

#define LONG_NS INT64_C(900000000)

enum { MARK = 100000 };

struct fixture {
    int reader, writer, stop, wake;
};

static int gulp_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&address, &len), 0);
    fixture->writer = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fixture->writer, (struct sockaddr *)&address, len), 0);
    fixture->reader = accept(listening, NULL, NULL);
    close(listening);
    fixture->stop = eventfd(0, EFD_NONBLOCK);
    fixture->wake = eventfd(0, EFD_NONBLOCK);
    *state = fixture;
    return 0;
}

static int gulp_teardown(void **state)
{
    struct fixture *fixture = *state;
    close(fixture->reader);
    close(fixture->writer);
    close(fixture->stop);
    close(fixture->wake);
    free(fixture);
    return 0;
}

static void gulp_test_write_bytes(const struct fixture *fixture, size_t count)
{
    static const char bytes[MARK];
    assert_int_equal(write(fixture->writer, bytes, count), count);
}

/* How long it took; the mark is gone behind it. */
static int64_t gulp_ns(const struct fixture *fixture, int64_t most_ns, bool *ret_woken)
{
    int64_t begin_ns = mr_monotonic_ns();
    *ret_woken = mr_gulp(fixture->reader, MARK, fixture->stop, fixture->wake, most_ns);
    int mark = 0;
    socklen_t len = sizeof(mark);
    assert_int_equal(getsockopt(fixture->reader, SOL_SOCKET, SO_RCVLOWAT, &mark, &len), 0);
    assert_int_equal(mark, 1);
    return mr_monotonic_ns() - begin_ns;
}

static void *write_more(void *context)
{
    const struct fixture *fixture = context;
    usleep(20000);
    gulp_test_write_bytes(fixture, MARK - 100);
    return NULL;
}

static void test_mr_gulp_waits_for_so_many_bytes(void **state)
{
    struct fixture *fixture = *state;
    bool woken;
    gulp_test_write_bytes(fixture, 100);
    assert_true(gulp_ns(fixture, 20000000, &woken) >= 20000000);
    assert_false(woken);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_more, fixture), 0);
    assert_true(gulp_ns(fixture, LONG_NS, &woken) < LONG_NS);
    pthread_join(thread, NULL);
    assert_false(woken);
}

static void test_mr_gulp_ends_for_a_stop_and_a_wake(void **state)
{
    struct fixture *fixture = *state;
    bool woken;
    gulp_test_write_bytes(fixture, 100);
    assert_int_equal(eventfd_write(fixture->wake, 1), 0);
    assert_true(gulp_ns(fixture, LONG_NS, &woken) < LONG_NS);
    assert_true(woken);
    eventfd_t value;
    assert_int_equal(eventfd_read(fixture->wake, &value), 0);
    assert_int_equal(eventfd_write(fixture->stop, 1), 0);
    assert_true(gulp_ns(fixture, LONG_NS, &woken) < LONG_NS);
    assert_false(woken);
}

static void test_mr_gulp_ends_with_the_connection(void **state)
{
    struct fixture *fixture = *state;
    bool woken;
    gulp_test_write_bytes(fixture, 100);
    shutdown(fixture->writer, SHUT_RDWR);
    assert_true(gulp_ns(fixture, LONG_NS, &woken) < LONG_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_mr_gulp_waits_for_so_many_bytes, gulp_setup,
                                        gulp_teardown),
        cmocka_unit_test_setup_teardown(test_mr_gulp_ends_for_a_stop_and_a_wake, gulp_setup,
                                        gulp_teardown),
        cmocka_unit_test_setup_teardown(test_mr_gulp_ends_with_the_connection, gulp_setup,
                                        gulp_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
