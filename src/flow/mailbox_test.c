/* Commands to the source thread of a whole pipeline. */
#include "flow/mailbox.h"

#include <pthread.h>

#include "testing/stage.h"
#include "testing/test.h"

/* A command that notes where the stream was. */
struct look {
    struct mr_command command;
    struct mr_stage *stage;
    uint32_t deadline_ms;
    int at; /* of the steps; -1: not run */
    bool in_transaction;
    mr_status status;
    struct mr_error error;
    pthread_t thread;
    _Atomic bool asking;
};

static mr_status run_look(struct mr_command *command, struct mr_error *error)
{
    struct look *look = (struct look *)command;
    look->at = look->stage->at;
    look->in_transaction = look->stage->in_transaction;
    return mr_fail(error, MR_ERR_CONFIG, "what the command found");
}

static void *mailbox_test_ask(void *context)
{
    struct look *look = context;
    atomic_store(&look->asking, true);
    look->status =
        mr_pipeline_ask(look->stage->pipeline, &look->command, look->deadline_ms, &look->error);
    return NULL;
}

static void look_begin(struct look *look, struct mr_stage *stage)
{
    *look = (struct look){.command = {.run = run_look},
                          .stage = stage,
                          .deadline_ms = MR_STAGE_WAIT_S * 1000,
                          .at = -1};
    assert_int_equal(pthread_create(&look->thread, NULL, mailbox_test_ask, look), 0);
}

static void look_end(struct look *look)
{
    assert_int_equal(pthread_join(look->thread, NULL), 0);
}

static const struct mr_step steps[] = {BEGIN(100),  ROW("a"),   GATE(1),  ROW("b"),
                                       COMMIT(110), BEGIN(200), ROW("c"), COMMIT(210)};
enum { STEP_SECOND_BEGIN = 5 };

static bool received_in_vain(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->receives) >= count;
}

static void mailbox_test_stop(struct mr_stage *stage)
{
    mr_stage_wait(stage, mr_stage_told, 210);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b", "c"}, 3);
}

/* It is asked inside a transaction, and has its turn exactly where the next one would begin. */
static void test_command_between_transactions(void **state)
{
    struct mr_stage *stage = *state;
    struct look look;
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_delivered, 1);
    look_begin(&look, stage);
    while (!atomic_load(&look.asking)) {
    }
    mr_stage_wait(stage, received_in_vain, atomic_load(&stage->receives) + 20);
    atomic_store(&stage->gates_open, 1);
    look_end(&look);
    assert_int_equal(look.at, STEP_SECOND_BEGIN);
    assert_false(look.in_transaction);
    assert_int_equal(look.status, MR_ERR_CONFIG);
    assert_string_equal(look.error.text, "what the command found");
    mailbox_test_stop(stage);
}

/* The transaction does not end in time: the command is not run, then or later, and one after it
 * is. */
static void test_command_whose_turn_does_not_come(void **state)
{
    struct mr_stage *stage = *state;
    struct look late;
    struct look next;
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_delivered, 1);
    late = (struct look){.command = {.run = run_look}, .stage = stage, .at = -1};
    mailbox_test_ask(&late);
    assert_int_equal(late.status, MR_ERR_DEADLINE);
    look_begin(&next, stage);
    while (!atomic_load(&next.asking)) {
    }
    mr_stage_wait(stage, received_in_vain, atomic_load(&stage->receives) + 20);
    atomic_store(&stage->gates_open, 1);
    look_end(&next);
    assert_int_equal(next.at, STEP_SECOND_BEGIN);
    mailbox_test_stop(stage);
    assert_int_equal(late.at, -1);
}

/* A thread that waits when the stream ends, or asks after that, is answered. */
static void test_command_to_a_stream_that_ends(void **state)
{
    struct mr_stage *stage = *state;
    struct look look;
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_delivered, 1);
    look_begin(&look, stage);
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_stop(stage->pipeline);
    look_end(&look);
    mr_pipeline_join(stage->pipeline, &stage->error);
    assert_int_equal(look.status, MR_AGAIN);
    look.status = MR_OK;
    mailbox_test_ask(&look);
    assert_int_equal(look.status, MR_AGAIN);
    assert_int_equal(look.at, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_command_between_transactions, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_command_whose_turn_does_not_come, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_command_to_a_stream_that_ends, mr_stage_setup,
                                        mr_stage_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
