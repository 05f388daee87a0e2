#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testing/test.h"

enum { THREADS = 4, LINES = 2000 };

static void *talk(void *context)
{
    for (int i = 0; i < LINES; i++) {
        mr_log(MR_LOG_INFO, "said", "a sentence", MR_LOG_INT("number", i));
    }
    return context;
}

/* Lines with that event in a text of whole lines. */
static int count_event(const char *text, const char *event)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, event)) != NULL; at++) {
        count++;
    }
    return count;
}

/* Lines that are said to be missing. */
static uint64_t sum_told(const char *text)
{
    uint64_t sum = 0;
    for (const char *at = text; (at = strstr(at, " lines=")) != NULL; at++) {
        sum += strtoull(at + strlen(" lines="), NULL, 10);
    }
    return sum;
}

/* All that threads say into a pipe that nobody reads meanwhile is there afterwards, or counted;
 * nobody waits. */
static void test_nothing_waits_and_nothing_is_torn(void **state)
{
    (void)state;
    static char text[8 << 20];
    int ends[2];
    int before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    mr_log_configure(MR_LOG_INFO, MR_LOG_TEXT);
    mr_log_start();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, talk, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    uint64_t dropped = mr_log_dropped();
    assert_true(dropped > 0);
    size_t len = 0;
    int written = THREADS * LINES - (int)dropped;
    while (count_event(text, " said: a sentence number=") < written || sum_told(text) < dropped) {
        ssize_t got = read(ends[0], text + len, sizeof(text) - 1 - len);
        assert_true(got > 0);
        len += (size_t)got;
    }
    mr_log(MR_LOG_INFO, "last", "word");
    mr_log_stop();
    dup2(before, STDERR_FILENO);
    close(before);
    ssize_t got;
    while ((got = read(ends[0], text + len, sizeof(text) - 1 - len)) > 0) {
        len += (size_t)got;
    }
    close(ends[0]);
    assert_int_equal(count_event(text, " said: a sentence number="), written);
    assert_int_equal(count_event(text, " last: word\n"), 1);
    assert_int_equal(mr_log_dropped(), dropped);
    assert_int_equal(sum_told(text), dropped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_waits_and_nothing_is_torn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
