/* The process that proves, without servers: what it is asked for comes to an error. */
#include "verify/prover.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing/test.h"

enum { WAIT_MS = 20000 };

static const char *const tables[] = {"public.t", "a.b.c"};

static void confine_nothing(struct mr_config *config)
{
    (void)config;
}

static void confine_by_dying(struct mr_config *config)
{
    (void)config;
    raise(SIGKILL);
}

static struct mr_config *load(void)
{
    static const char text[] = "tables = [\"t\"]\nsink.type = \"discard\"\n";
    struct mr_config *config;
    setenv("DATABASE_URL", "postgresql://localhost:1/nowhere", 1);
    assert_int_equal(mr_config_load_text("text", text, strlen(text), &config), MR_OK);
    return config;
}

static struct mr_prover *start(struct mr_config *config, void (*confine)(struct mr_config *config))
{
    struct mr_prover *prover;
    struct mr_error error;
    assert_int_equal(mr_prover_start(config, confine, &prover, &error), MR_OK);
    return prover;
}

/* What waitpid answered of a request; `ret_error` has what it said before. */
static int end_of(struct mr_prover *prover, char ret_error[256])
{
    int status = -1;
    ret_error[0] = '\0';
    for (bool ended = false; !ended;) {
        cJSON *said;
        assert_int_equal(mr_prover_next(prover, -1, WAIT_MS, &said), MR_OK);
        const cJSON *error = cJSON_GetObjectItemCaseSensitive(said, "error");
        const cJSON *end = cJSON_GetObjectItemCaseSensitive(said, "ended");
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
static void confine_by_killing_the_helper(struct mr_config *config)
{
    (void)config;
    kill(getppid(), SIGKILL);
    pause();
}

static void test_a_helper_that_is_gone(void **state)
{
    (void)state;
    struct mr_config *config = load();
    struct mr_prover *prover = start(config, confine_by_killing_the_helper);
    cJSON *said;
    assert_true(mr_prover_ask(prover, "", tables, 1));
    /* Its child goes with it, or the socket would stay open. */
    assert_int_equal(mr_prover_next(prover, -1, WAIT_MS, &said), MR_END);
    assert_false(mr_prover_ask(prover, "", tables, 1));
    mr_prover_free(prover);
    mr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_has_an_answer_and_an_end),
        cmocka_unit_test(test_a_proof_that_dies_is_one_that_ends),
        cmocka_unit_test(test_a_helper_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
