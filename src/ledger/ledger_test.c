/* The ledger of a scripted stream: what its records count, and that none is lost or made twice in
 * different ways. */
#include "ledger/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/stage.h"
#include "testing/test.h"

static const struct mr_step two_transactions[] = {
    BEGIN(0x100), ROW("a"), COMMIT(0x110), BEGIN(0x200), ROW("b"), ROW("c"), COMMIT(0x210)};

enum { TAKEN_MAX = 64 };

static struct mr_ledger *ledger;
static struct mr_companion *companions[1];
static const struct mr_companion_ops *ledger_ops;
static struct mr_companion_ops ops;
static const struct mr_topic *topic;
static char *taken[TAKEN_MAX]; /* records of the ledger's topic */
static _Atomic int taken_count;

static void ledger_test_take(struct mr_companion *companion, const struct mr_record *record,
                             int32_t partition)
{
    int at = atomic_load(&taken_count);
    if (record->topic == topic && at < TAKEN_MAX) {
        taken[at] = strndup((const char *)record->value, record->value_len);
        atomic_store(&taken_count, at + 1);
    }
    ledger_ops->sent(companion, record, partition);
}

static int ledger_test_setup(void **state)
{
    mr_stage_setup(state);
    struct mr_stage *stage = *state;
    topic = mr_topics_intern(&stage->topics, "p.audit");
    ledger = mr_ledger_new(&(struct mr_ledger_options){
        .topics = &stage->topics, .topic = topic, .pipeline = "p/\"s", .interval_ms = 1});
    companions[0] = mr_ledger_companion(ledger);
    ledger_ops = companions[0]->ops;
    ops = *ledger_ops;
    ops.sent = ledger_test_take;
    companions[0]->ops = &ops;
    stage->options.companions = companions;
    stage->options.companion_count = 1;
    return 0;
}

static int ledger_test_teardown(void **state)
{
    mr_stage_teardown(state);
    mr_ledger_free(ledger);
    for (int i = 0; i < atomic_load(&taken_count); i++) {
        free(taken[i]);
    }
    atomic_store(&taken_count, 0);
    return 0;
}

static void ledger_test_start(struct mr_stage *stage, enum mr_sink_storage storage)
{
    stage->sink.storage = storage;
    mr_stage_start(stage, two_transactions, MR_ARRAY_LEN(two_transactions));
}

static void ledger_test_stop(struct mr_stage *stage)
{
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_false(stage->stored_went_back);
}

static uint64_t ledger_test_number_of(const cJSON *json, const char *name)
{
    return (uint64_t)cJSON_GetNumberValue(cJSON_GetObjectItem(json, name));
}

/* Records of all ranges, each of which follows the one before, or repeats one. */
static long ledger_test_counted(void)
{
    long records = 0;
    uint64_t last = 0;
    char prev[MR_SUM_TEXT_SIZE] = "00000000000000000000000000000000";
    for (int i = 0; i < atomic_load(&taken_count); i++) {
        cJSON *json = cJSON_Parse(taken[i]);
        assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(json, "pipeline")), "p/\"s");
        if (ledger_test_number_of(json, "n") > last) {
            const cJSON *part;
            assert_int_equal(ledger_test_number_of(json, "n"), ++last);
            assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(json, "prev")), prev);
            mr_sum_text(mr_sum_of(taken[i], strlen(taken[i])), prev);
            cJSON_ArrayForEach(part, cJSON_GetObjectItem(json, "parts"))
            {
                assert_string_equal(cJSON_GetArrayItem(part, 0)->valuestring, "p.public.t");
                records += (long)cJSON_GetArrayItem(part, 2)->valuedouble;
            }
        }
        cJSON_Delete(json);
    }
    return records;
}

static bool has_counted(const struct mr_stage *stage, long records)
{
    (void)stage;
    return ledger_test_counted() >= records;
}

static void counts_each_once(struct mr_stage *stage, enum mr_sink_storage storage)
{
    ledger_test_start(stage, storage);
    mr_stage_wait(stage, has_counted, 3);
    mr_stage_wait_confirms(stage, 5);
    int count = atomic_load(&taken_count);
    mr_stage_wait_confirms(stage, 5);
    assert_int_equal(atomic_load(&taken_count), count); /* nothing is new */
    ledger_test_stop(stage);
    assert_int_equal(ledger_test_counted(), 3);
    const struct mr_section *section = mr_checkpoint_section(&stage->stored, "ledger");
    assert_non_null(strstr(section->json, "\"parts\":[],\"owed\":[]"));
}

static void test_counts_each_record_once(void **state)
{
    counts_each_once(*state, MR_STORES_AFTER);
}

static void test_counts_each_record_once_with_the_position(void **state)
{
    counts_each_once(*state, MR_STORES_WITH);
}

/* What was not stored comes again, and counts when it does. */
static void test_a_lost_session_counts_for_nothing(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->release_from, -1);
    atomic_store(&stage->fail_after, 3);
    stage->sink.storage = MR_STORES_AFTER;
    ledger_test_start(stage, MR_STORES_AFTER);
    mr_stage_wait(stage, mr_stage_delivered, 3);
    assert_int_equal(atomic_load(&taken_count), 0);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, has_counted, 3);
    ledger_test_stop(stage);
    assert_int_equal(ledger_test_counted(), 3);
    assert_true(atomic_load(&stage->value_count) > 3);
}

/* It is said again as it was, and the range at hand is sealed. */
static void test_goes_on_from_what_is_stored(void **state)
{
    struct mr_stage *stage = *state;
    static const char owed[] = "{\"pipeline\":\"p/\\\"s\",\"n\":6}";
    static const char section[] =
        "{\"n\":7,\"prev\":\"0123456789abcdef0123456789ABCDEF\",\"from\":\"0000000000000090-"
        "0000000001\","
        "\"to\":\"0000000000000100-0000000001\",\"parts\":[[\"p.public.t\",0,1,"
        "\"00000000000000000000000000000001\"]],"
        "\"owed\":[\"{\\\"pipeline\\\":\\\"p/\\\\\\\"s\\\",\\\"n\\\":6}\"]}";
    struct mr_section_rank rank;
    assert_true(mr_ledger_section_kind.rank(section, &rank));
    assert_int_equal(rank.minor, 7);
    stage->stored = (struct mr_checkpoint){.end_lsn = 0x110};
    stage->stored_found = true;
    mr_checkpoint_add(&stage->stored, "ledger", MR_STRDUP(section), &rank);
    ledger_test_start(stage, MR_STORES_AFTER);
    mr_stage_wait(stage, mr_stage_told, 0x210);
    while (atomic_load(&taken_count) < 3) {
        mr_stage_wait_confirms(stage, 1);
    }
    ledger_test_stop(stage);
    assert_string_equal(taken[0], owed);
    assert_string_equal(
        taken[1], "{\"pipeline\":\"p/\\\"s\",\"n\":7,\"prev\":\"0123456789abcdef0123456789ABCDEF\","
                  "\"from\":\"0000000000000090-0000000001\",\"to\":\"0000000000000100-0000000001\","
                  "\"parts\":[[\"p.public.t\",0,1,\"00000000000000000000000000000001\"]]}");
    assert_non_null(strstr(taken[2], "\"n\":8,"));
    assert_non_null(strstr(taken[2], "\"from\":\"0000000000000100-0000000001\""));
}

/* However many sessions fail in turn, what is stored stays small: one range more then has its
 * place, and no sums. */
static void test_a_range_says_nothing_where_too_many_are_owed(void **state)
{
    struct mr_stage *stage = *state;
    static const char section[] =
        "{\"n\":7,\"prev\":\"0123456789abcdef0123456789ABCDEF\",\"from\":\"0000000000000090-"
        "0000000001\",\"to\":\"0000000000000100-0000000001\",\"parts\":[[\"p.public.t\",0,1,"
        "\"00000000000000000000000000000001\"]],\"owed\":[\"3\",\"4\",\"5\",\"6\"]}";
    stage->stored = (struct mr_checkpoint){.end_lsn = 0x110};
    stage->stored_found = true;
    mr_checkpoint_add(&stage->stored, "ledger", MR_STRDUP(section), &(struct mr_section_rank){0});
    ledger_test_start(stage, MR_STORES_AFTER);
    mr_stage_wait(stage, mr_stage_told, 0x210);
    while (atomic_load(&taken_count) < 6) {
        mr_stage_wait_confirms(stage, 1);
    }
    ledger_test_stop(stage);
    assert_string_equal(taken[3], "6");
    assert_non_null(strstr(taken[4], "\"n\":7,"));
    assert_non_null(strstr(taken[4], "\"parts\":[]"));
    assert_non_null(strstr(taken[5], "\"from\":\"0000000000000100-0000000001\""));
}

/* the store that has a range to be sent is held; NULL: none, or no more */
static struct mr_stage *holds;

static void hold_what_owes(struct mr_companion *companion, const struct mr_reach *reach,
                           struct mr_checkpoint *checkpoint)
{
    ledger_ops->section(companion, reach, checkpoint);
    const struct mr_section *section = mr_checkpoint_section(checkpoint, "ledger");
    if (holds != NULL && strstr(section->json, "\"owed\":[]") == NULL) {
        atomic_store(&holds->hold_store, true);
        holds = NULL;
    }
}

static bool is_held(const struct mr_stage *stage, long unused)
{
    (void)unused;
    return atomic_load(&stage->hold_store);
}

/* The next process would make another record of a range that is not stored. */
static void test_is_sent_after_it_is_stored(void **state)
{
    struct mr_stage *stage = *state;
    holds = stage;
    ops.section = hold_what_owes;
    ledger_test_start(stage, MR_STORES_AFTER);
    mr_stage_wait(stage, is_held, 0);
    mr_stage_wait_confirms(stage, 5);
    assert_int_equal(atomic_load(&taken_count), 0);
    atomic_store(&stage->hold_store, false);
    mr_stage_wait(stage, has_counted, 3);
    ledger_test_stop(stage);
}

static void test_sections_that_cannot_be_read(void **state)
{
    (void)state;
#define PLACE "0000000000000000-0000000000"
    static const struct {
        bool is_good;
        const char *number, *prev, *from, *parts, *owed;
    } cases[] = {
        {true, "1", "00000000000000000000000000000000", PLACE, "[]", "[]"},
        {false, "0", "00000000000000000000000000000000", PLACE, "[]", "[]"},
        {false, "1e300", "00000000000000000000000000000000", PLACE, "[]", "[]"},
        {false, "\"1\"", "00000000000000000000000000000000", PLACE, "[]", "[]"},
        {false, "1", "0", PLACE, "[]", "[]"},
        {false, "1", "00000000000000000000000000000000", "0-0", "[]", "[]"},
        {false, "1", "00000000000000000000000000000000", PLACE, "[1]", "[]"},
        {false, "1", "00000000000000000000000000000000", PLACE, "{}", "[]"},
        {false, "1", "00000000000000000000000000000000", PLACE, "[]", "[1]"},
        {false, "1", "00000000000000000000000000000000", PLACE, "[]", "7"},
    };
    struct mr_section_rank rank;
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        char json[512];
        snprintf(json, sizeof(json),
                 "{\"n\":%s,\"prev\":\"%s\",\"from\":\"%s\",\"to\":\"" PLACE
                 "\",\"parts\":%s,\"owed\":%s}",
                 cases[i].number, cases[i].prev, cases[i].from, cases[i].parts, cases[i].owed);
        assert_int_equal(mr_ledger_section_kind.rank(json, &rank), cases[i].is_good);
    }
    assert_false(mr_ledger_section_kind.rank("7", &rank));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_counts_each_record_once, ledger_test_setup,
                                        ledger_test_teardown),
        cmocka_unit_test_setup_teardown(test_counts_each_record_once_with_the_position,
                                        ledger_test_setup, ledger_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_lost_session_counts_for_nothing, ledger_test_setup,
                                        ledger_test_teardown),
        cmocka_unit_test_setup_teardown(test_is_sent_after_it_is_stored, ledger_test_setup,
                                        ledger_test_teardown),
        cmocka_unit_test_setup_teardown(test_goes_on_from_what_is_stored, ledger_test_setup,
                                        ledger_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_range_says_nothing_where_too_many_are_owed,
                                        ledger_test_setup, ledger_test_teardown),
        cmocka_unit_test(test_sections_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
