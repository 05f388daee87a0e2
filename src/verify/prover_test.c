/* The process that proves, without servers: what it is asked for comes to an error. */
#include "verify/prover.h"

#include <cjson/cJSON.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sanitized.h"
#include "event/lsn.h"
#include "testing/test.h"

enum { WAIT_MS = 20000, NOBODY = 65534 };

static const char *const tables[] = {"public.t", "a.b.c"};

static void confine_nothing(struct mr_config *config, bool forks)
{
    (void)config;
    (void)forks;
}

static void confine_by_dying(struct mr_config *config, bool forks)
{
    (void)config;
    if (!forks) {
        raise(SIGKILL);
    }
}

static struct mr_config *load(void)
{
    static const char text[] = "tables = [\"t\"]\nsink.type = \"discard\"\n";
    struct mr_config *config;
    setenv("DATABASE_URL", "postgresql://localhost:1/nowhere", 1);
    assert_int_equal(mr_config_load_text("text", text, strlen(text), &config), MR_OK);
    return config;
}

static struct mr_prover *start(struct mr_config *config, mr_prover_confine_fn confine)
{
    struct mr_prover *prover;
    struct mr_error error;
    assert_int_equal(mr_prover_start(config, confine, &prover, &error), MR_OK);
    return prover;
}

/* What waitpid answered of a request, or of the helper; `ret_error` has what was said before. */
static int end_as(struct mr_prover *prover, const char *how, char ret_error[256])
{
    int status = -1;
    ret_error[0] = '\0';
    for (bool ended = false; !ended;) {
        cJSON *said;
        assert_int_equal(mr_prover_next(prover, -1, WAIT_MS, &said), MR_OK);
        const cJSON *error = cJSON_GetObjectItemCaseSensitive(said, "error");
        const cJSON *end = cJSON_GetObjectItemCaseSensitive(said, how);
        assert_true(cJSON_IsString(error) || cJSON_IsNumber(end));
        if (error != NULL) {
            snprintf(ret_error, 256, "%s", error->valuestring);
        }
        ended = end != NULL;
        status = ended ? end->valueint : -1;
        cJSON_Delete(said);
    }
    return status;
}

static int end_of(struct mr_prover *prover, char ret_error[256])
{
    return end_as(prover, "ended", ret_error);
}

static void test_a_request_has_an_answer_and_an_end(void **state)
{
    (void)state;
    struct mr_config *config = load();
    struct mr_prover *prover = start(config, confine_nothing);
    char error[256];
    cJSON *said;
    assert_int_equal(mr_prover_next(prover, -1, 0, &said), MR_AGAIN);
    for (uint32_t count = 0; count < 3; count++) {
        assert_true(mr_prover_ask(prover, "", tables, count));
        assert_int_equal(end_of(prover, error), 0);
        assert_non_null(strstr(error, "sink.type is not \"kafka\""));
    }
    /* Tables of a file that it can't read, because there is none. */
    assert_true(mr_prover_ask(prover, "0123", tables, 1));
    assert_int_equal(end_of(prover, error), 0);
    assert_non_null(strstr(error, "another file than the one in effect"));
    mr_prover_free(prover);
    mr_config_free(config);
}

static void test_a_proof_that_dies_is_one_that_ends(void **state)
{
    (void)state;
    struct mr_config *config = load();
    struct mr_prover *prover = start(config, confine_by_dying);
    char error[256];
    for (int i = 0; i < 2; i++) {
        assert_true(mr_prover_ask(prover, "", tables, 2));
        int status = end_of(prover, error);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    mr_prover_free(prover);
    mr_config_free(config);
}

/* Its parent, which is the helper. */
static void confine_by_killing_the_helper(struct mr_config *config, bool forks)
{
    (void)config;
    if (!forks) {
        kill(getppid(), SIGKILL);
        pause();
    }
}

static void test_a_helper_that_is_killed_is_replaced(void **state)
{
    (void)state;
    struct mr_config *config = load();
    struct mr_prover *prover = start(config, confine_by_killing_the_helper);
    char error[256];
    for (int i = 0; i < 2; i++) {
        assert_true(mr_prover_ask(prover, "", tables, 1));
        int status = end_as(prover, "lost", error);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    mr_prover_free(prover);
    mr_config_free(config);
}

static pid_t keeper;

static void confine_by_killing_the_keeper(struct mr_config *config, bool forks)
{
    (void)config;
    if (forks) {
        keeper = getpid();
    } else {
        kill(keeper, SIGKILL);
        pause();
    }
}

static void test_a_keeper_that_is_gone(void **state)
{
    (void)state;
    struct mr_config *config = load();
    while (waitpid(-1, NULL, 0) > 0) { /* those of other tests */
    }
    struct mr_prover *prover = start(config, confine_by_killing_the_keeper);
    cJSON *said;
    assert_true(mr_prover_ask(prover, "", tables, 1));
    /* What it has forked goes with it, or the socket would stay open. */
    assert_int_equal(mr_prover_next(prover, -1, WAIT_MS, &said), MR_END);
    assert_false(mr_prover_ask(prover, "", tables, 1));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* there is no child any more */
    mr_prover_free(prover);
    mr_config_free(config);
}

enum { GOOD = 7, IS_SANITIZED = MR_ADDRESS_SANITIZER || MR_THREAD_SANITIZER };

static void confine_by_looking(struct mr_config *config, bool forks)
{
    (void)config;
    char text[8] = "";
    struct rlimit memory = {0};
    if (forks) {
        return;
    }
    FILE *file = fopen("/proc/self/oom_score_adj", "r");
    bool good = file != NULL && fgets(text, sizeof(text), file) != NULL && atoi(text) == 1000 &&
                mr_lsn_shift == UINT64_C(1) << 40 && getrlimit(RLIMIT_DATA, &memory) == 0 &&
                (memory.rlim_cur == 1 << 30 || IS_SANITIZED);
    _exit(good ? GOOD : GOOD + 1);
}

/* As another user than root, whose files in /proc are root's: it goes first where memory runs out, has a limit of its own, and knows by what
 * the stream calls the server's places. */
static void test_a_proof_stands_back(void **state)
{
    (void)state;
    struct mr_config *config = load();
    pid_t pid = fork();
    if (pid == 0) {
        char error[256];
        if (getuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)) {
            _exit(1);
        }
        prctl(PR_SET_DUMPABLE, 0);
        struct mr_prover *prover = start(config, confine_by_looking);
        mr_lsn_shift = UINT64_C(1) << 40; /* which it learns later */
        assert_true(mr_prover_ask(prover, "", tables, 1));
        _exit(WEXITSTATUS(end_of(prover, error)));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), GOOD);
    mr_config_free(config);
}

static void test_nothing_stays_open(void **state)
{
    (void)state;
    struct mr_config *config = load();
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct mr_prover *prover = start(config, confine_nothing);
    close(ends[1]);
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&end, 1, WAIT_MS), 1);
    assert_int_equal(end.revents, POLLHUP);
    close(ends[0]);
    mr_prover_free(prover);
    mr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_has_an_answer_and_an_end),
        cmocka_unit_test(test_a_proof_that_dies_is_one_that_ends),
        cmocka_unit_test(test_a_helper_that_is_killed_is_replaced),
        cmocka_unit_test(test_a_keeper_that_is_gone),
        cmocka_unit_test(test_a_proof_stands_back),
        cmocka_unit_test(test_nothing_stays_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
