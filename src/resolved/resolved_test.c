/* Markers of a scripted stream, whose sink answers when it is told to. */
#include "resolved/resolved.h"

#include <string.h>

#include "testing/stage.h"
#include "testing/test.h"

static const struct mr_step two_transactions[] = {BEGIN(0x100), ROW("a"), COMMIT(0x110),
                                                  BEGIN(0x200), ROW("b"), COMMIT(0x210)};

static struct mr_resolved *resolved;
static struct mr_companion *companions[1];

static int resolved_test_setup(void **state)
{
    mr_stage_setup(state);
    struct mr_stage *stage = *state;
    resolved = mr_resolved_new(&stage->topics, 1);
    companions[0] = mr_resolved_companion(resolved);
    stage->options.companions = companions;
    stage->options.companion_count = 1;
    mr_topic_set_partitions(mr_topics_intern(&stage->topics, "p.public.t"), 2);
    return 0;
}

static int resolved_test_teardown(void **state)
{
    mr_stage_teardown(state);
    mr_resolved_free(resolved);
    return 0;
}

static void resolved_test_start(struct mr_stage *stage)
{
    mr_stage_start(stage, two_transactions, MR_ARRAY_LEN(two_transactions));
}

static void resolved_test_stop(struct mr_stage *stage)
{
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

static int resolved_test_count(const struct mr_stage *stage, const char *value)
{
    int found = 0;
    for (int i = 0; i < atomic_load(&stage->value_count); i++) {
        found += strcmp(stage->values[i], value) == 0;
    }
    return found;
}

static bool has_last(const struct mr_stage *stage, long times)
{
    return resolved_test_count(stage, "00000210") >= times;
}

static void test_says_nothing_before_it_is_acknowledged(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->release_from, -1);
    resolved_test_start(stage);
    mr_stage_wait(stage, mr_stage_delivered, 2);
    mr_stage_wait_confirms(stage, 5);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b"}, 2);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, has_last, 2); /* a partition each */
    mr_stage_wait_confirms(stage, 5);
    assert_int_equal(resolved_test_count(stage, "00000210"), 2); /* nothing is new */
    resolved_test_stop(stage);
}

/* What was in flight is lost; the rest is said again, though the LSN is the same. */
static void test_says_it_again_in_the_next_session(void **state)
{
    struct mr_stage *stage = *state;
    resolved_test_start(stage);
    mr_stage_wait(stage, has_last, 2);
    atomic_store(&stage->fail_after, 1);
    mr_topic_set_partitions(mr_topics_intern(&stage->topics, "p.public.t"), 3);
    mr_stage_wait(stage, has_last, 5);
    resolved_test_stop(stage);
    assert_int_equal(atomic_load(&stage->sessions), 2);
}

/* A table without rows has a marker, in each of its topics; a topic that is nothing of ours has
 * none. */
static void test_topics_of_tables_are_expected(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_route routes[] = {
        {.schema = "s", .table = "two", .topic = "first", .operations = MR_OPERATIONS_ALL},
        {.schema = "s", .table = "two", .topic = "second", .operations = MR_OPERATIONS_ALL}};
    static const struct mr_streamed_table tables[] = {{.schema = "public", .table = "empty"},
                                                      {.schema = "s", .table = "two"}};
    stage->encode_options.routes = routes;
    stage->encode_options.route_count = MR_ARRAY_LEN(routes);
    mr_stage_renew_encoder(stage);
    mr_topics_intern(&stage->topics, "strange");
    mr_resolved_take_tables(resolved, tables, MR_ARRAY_LEN(tables));
    mr_resolved_take_tables(resolved, tables, MR_ARRAY_LEN(tables)); /* again: nothing is new */
    resolved_test_start(stage);
    mr_stage_wait(stage, has_last, 5); /* two partitions, and three topics */
    mr_stage_wait_confirms(stage, 5);
    assert_int_equal(resolved_test_count(stage, "00000210"), 5);
    mr_resolved_take_tables(resolved, NULL, 0);
    mr_stage_wait(stage, has_last, 7);
    mr_stage_wait_confirms(stage, 5);
    assert_int_equal(resolved_test_count(stage, "00000210"), 7);
    resolved_test_stop(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_says_nothing_before_it_is_acknowledged,
                                        resolved_test_setup, resolved_test_teardown),
        cmocka_unit_test_setup_teardown(test_says_it_again_in_the_next_session, resolved_test_setup,
                                        resolved_test_teardown),
        cmocka_unit_test_setup_teardown(test_topics_of_tables_are_expected, resolved_test_setup,
                                        resolved_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
