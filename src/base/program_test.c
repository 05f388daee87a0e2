/* By programs of the system, under a helper of each test's own. */
#include "base/program.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing/test.h"

static const char *shell[] = {"/bin/sh", "-c", NULL, NULL};

/* The helper has the script as it is at this moment. */
static struct mr_programs program_test_start(const char *script)
{
    shell[2] = script;
    struct mr_programs programs = {.items = {{"some.option", shell, -1, 0}}, .count = 1};
    struct mr_error error;
    assert_int_equal(mr_programs_start(&programs, &error), MR_OK);
    return programs;
}

static void program_test_stop(const struct mr_programs *programs)
{
    close(programs->items[0].helper);
}

static mr_status program_test_run(const char *script, char **ret_line, struct mr_error *ret_error)
{
    struct mr_programs programs = program_test_start(script);
    mr_status status = mr_program_run(&programs.items[0], -1, ret_line, ret_error);
    program_test_stop(&programs);
    return status;
}

static void test_run_prints_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        const char *line;
    } cases[] = {
        {"echo secret", "secret"},
        {"printf secret", "secret"},
        {"printf 'secret\\r\\n'", "secret"},
        {"echo ' two words '; echo noise >&2", " two words "},
        {"printf 'in '; sleep 0.05; echo parts", "in parts"},
        {"cat; echo end", "end"}, /* standard input is empty */
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_error error = {.text = ""};
        char *line = NULL;
        mr_status status = program_test_run(cases[i].script, &line, &error);
        if (status != MR_OK || strcmp(line, cases[i].line) != 0) {
            fail_msg("%s: %s %s", cases[i].script, line == NULL ? "" : line, error.text);
        }
        mr_secret_forget(line);
    }
}

static void test_run_faults(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        mr_status status;
        const char *part;
    } cases[] = {
        {"echo canary; exit 3", MR_ERR_TRANSIENT, "/bin/sh ended with exit code 3; run it"},
        {"echo canary; kill -9 $$", MR_ERR_TRANSIENT, "was ended by signal 9; run it"},
        {":", MR_ERR_AUTH, "printed nothing; it must print one line"},
        {"echo", MR_ERR_AUTH, "printed nothing"},
        {"echo canary; echo canary", MR_ERR_AUTH, "printed more than one line"},
        {"echo canary; echo", MR_ERR_AUTH, "printed more than one line"},
        {"printf 'canary\\0x\\n'", MR_ERR_AUTH, "a byte that is 0"},
        {"yes canary", MR_ERR_AUTH, "printed more than 16384 bytes"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_error error = {.text = ""};
        char *line = NULL;
        mr_status status = program_test_run(cases[i].script, &line, &error);
        if (status != cases[i].status || strstr(error.text, cases[i].part) == NULL ||
            strstr(error.text, "canary") != NULL || line != NULL ||
            strncmp(error.text, "some.option: /bin/sh ", 21) != 0) {
            fail_msg("%s: %s %s", cases[i].script, mr_status_name(status), error.text);
        }
    }
}

static void test_run_not_started(void **state)
{
    (void)state;
    const char *arguments[] = {"/no/such/program", NULL};
    struct mr_programs programs = {.items = {{"o", arguments, -1, 0}}, .count = 1};
    struct mr_error error;
    char *line = NULL;
    assert_int_equal(mr_program_run(&programs.items[0], -1, &line, &error), MR_ERR_SYSTEM);
    assert_non_null(strstr(error.text, "the helper process is gone; start millrace again"));
    assert_int_equal(mr_programs_start(&programs, &error), MR_OK);
    assert_int_equal(mr_program_run(&programs.items[0], -1, &line, &error), MR_ERR_AUTH);
    assert_non_null(strstr(error.text, "can't be started: No such file"));
    program_test_stop(&programs);
}

/* What whoever started millrace left open is for millrace alone. */
static void test_run_inherits_no_descriptor(void **state)
{
    (void)state;
    struct mr_error error = {.text = ""};
    char *line = NULL;
    int inherited = dup(STDOUT_FILENO);
    assert_true(inherited > STDERR_FILENO);
    char script[64];
    snprintf(script, sizeof(script), "test -e /proc/self/fd/%d && echo open || echo closed",
             inherited);
    assert_int_equal(program_test_run(script, &line, &error), MR_OK);
    assert_string_equal(line, "closed");
    mr_secret_forget(line);
    close(inherited);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Asked to stop, nobody waits any more: the program ends, and what it started. */
static void test_run_stopped(void **state)
{
    (void)state;
    char folder[] = "/tmp/program-XXXXXX";
    char script[256], begun[64], ended[64];
    assert_non_null(mkdtemp(folder));
    snprintf(begun, sizeof(begun), "%s/begun", folder);
    snprintf(ended, sizeof(ended), "%s/ended", folder);
    snprintf(script, sizeof(script), "(touch %s; sleep 1; touch %s) & sleep 60", begun, ended);
    struct mr_programs programs = program_test_start(script);
    int stop_fd = timerfd_create(CLOCK_MONOTONIC, 0);
    timerfd_settime(stop_fd, 0, &(struct itimerspec){.it_value.tv_nsec = 500000000}, NULL);
    struct mr_error error;
    char *line = NULL;
    assert_int_equal(mr_program_run(&programs.items[0], stop_fd, &line, &error), MR_AGAIN);
    assert_true(exists(begun));
    poll(NULL, 0, 1500);
    assert_false(exists(ended));
    close(stop_fd);
    program_test_stop(&programs);
    unlink(begun);
    rmdir(folder);
}

static void test_run_hangs(void **state)
{
    (void)state;
    struct mr_error error;
    char *line = NULL;
    int64_t begin_ns = mr_monotonic_ns();
    assert_int_equal(program_test_run("echo canary; sleep 60", &line, &error), MR_ERR_TRANSIENT);
    int64_t took_ns = mr_monotonic_ns() - begin_ns;
    assert_true(took_ns > INT64_C(9900000000) && took_ns < INT64_C(30000000000));
    assert_non_null(strstr(error.text, "did not end within 10 s and was killed"));
}

static void *run_here(void *context)
{
    struct mr_error error;
    char *line = NULL;
    mr_status status = mr_program_run(context, -1, &line, &error);
    bool good = status == MR_OK && strcmp(line, "late") == 0;
    mr_secret_forget(line);
    return good ? context : NULL;
}

/* Several connections ask at a time, and none waits for another's program. */
static void test_run_several(void **state)
{
    (void)state;
    struct mr_programs programs = program_test_start("sleep 1; echo late");
    pthread_t threads[8];
    int64_t begin_ns = mr_monotonic_ns();
    for (size_t i = 0; i < MR_ARRAY_LEN(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_here, &programs.items[0]), 0);
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(threads); i++) {
        void *good;
        pthread_join(threads[i], &good);
        assert_non_null(good);
    }
    assert_true(mr_monotonic_ns() - begin_ns < INT64_C(7000000000));
    program_test_stop(&programs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_prints_one_line),
        cmocka_unit_test(test_run_faults),
        cmocka_unit_test(test_run_not_started),
        cmocka_unit_test(test_run_inherits_no_descriptor),
        cmocka_unit_test(test_run_stopped),
        cmocka_unit_test(test_run_hangs),
        cmocka_unit_test(test_run_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
