/* The recv() that libpq calls: the allowance of its thread, and none for anybody else. */
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "postgres/conn/pg_conn_internal.h"
#include "testing/test.h"

static ssize_t read_some(int descriptor, size_t size)
{
    char bytes[100];
    assert_true(size <= sizeof(bytes));
    return recv(descriptor, bytes, size, MSG_DONTWAIT);
}

static void *read_elsewhere(void *context)
{
    return (void *)(intptr_t)read_some(*(int *)context, 10);
}

static void test_recv_is_metered(void **state)
{
    (void)state;
    int fds[2];
    char bytes[100] = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(send(fds[1], bytes, sizeof(bytes), 0), sizeof(bytes));
    mr_pg_allow(30);
    assert_int_equal(read_some(fds[0], 20), 20);
    assert_int_equal(read_some(fds[0], 20), 10);
    assert_int_equal(read_some(fds[0], 20), -1);
    assert_int_equal(errno, EAGAIN);
    pthread_t thread;
    void *len;
    assert_int_equal(pthread_create(&thread, NULL, read_elsewhere, &fds[0]), 0);
    assert_int_equal(pthread_join(thread, &len), 0);
    assert_int_equal((intptr_t)len, 10);
    assert_int_equal(mr_pg_disallow(), 0);
    mr_pg_allow(30);
    assert_int_equal(read_some(fds[0], 20), 20);
    assert_int_equal(mr_pg_disallow(), 10);
    assert_int_equal(read_some(fds[0], 100), 40);
    close(fds[1]);
    mr_pg_allow(30);
    assert_int_equal(read_some(fds[0], 20), 0);
    assert_int_equal(mr_pg_disallow(), 30);
    close(fds[0]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_recv_is_metered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
