#include "copy/chunk_keys.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "testing/test.h"

static struct mr_chunk_keys *chunk_keys_test_parse(const char *text)
{
    cJSON *object = cJSON_Parse(text);
    struct mr_chunk_keys *keys = mr_chunk_keys_parse(object);
    cJSON_Delete(object);
    return keys;
}

static void test_parse_takes_columns_and_keys(void **state)
{
    (void)state;
    struct mr_chunk_keys *keys = chunk_keys_test_parse(
        "{\"why\":\"phantom\",\"columns\":[\"a\",\"b\"],\"keys\":[[\"1\",\"x\"],[\"2\",\"\"]]}");
    assert_non_null(keys);
    assert_true(keys->deletes && keys->count == 2 && keys->column_count == 2 && keys->bytes == 5);
    assert_string_equal(keys->texts[1], "b");
    assert_string_equal(mr_chunk_key(keys, 0)[1], "x");
    assert_string_equal(mr_chunk_key(keys, 1)[0], "2");
    mr_chunk_keys_free(keys);
    keys = chunk_keys_test_parse("{\"why\":\"stale\",\"columns\":[\"a\"],\"keys\":[[\"1\"]]}");
    assert_true(keys != NULL && !keys->deletes && strcmp(keys->why, "stale") == 0);
    mr_chunk_keys_free(keys);
}

static void test_parse_refuses_other_forms(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "{}",
        "[]",
        "{\"why\":\"odd\",\"columns\":[\"a\"],\"keys\":[[\"1\"]]}",
        "{\"why\":1,\"columns\":[\"a\"],\"keys\":[[\"1\"]]}",
        "{\"columns\":[\"a\"],\"keys\":[[\"1\"]]}",
        "{\"why\":\"stale\",\"columns\":[],\"keys\":[[]]}",
        "{\"why\":\"stale\",\"columns\":\"a\",\"keys\":[[\"1\"]]}",
        "{\"why\":\"stale\",\"columns\":[1],\"keys\":[[\"1\"]]}",
        "{\"why\":\"stale\",\"columns\":[\"a\"],\"keys\":[]}",
        "{\"why\":\"stale\",\"columns\":[\"a\"],\"keys\":[\"1\"]}",
        "{\"why\":\"stale\",\"columns\":[\"a\"],\"keys\":[[1]]}",
        "{\"why\":\"stale\",\"columns\":[\"a\"],\"keys\":[[\"1\"],[\"1\",\"2\"]]}",
        "{\"why\":\"stale\",\"columns\":[\"a\",\"b\"],\"keys\":[[\"1\",\"2\"],[\"1\",null]]}",
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        assert_null(chunk_keys_test_parse(wrong[i]));
    }
    mr_chunk_keys_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_takes_columns_and_keys),
        cmocka_unit_test(test_parse_refuses_other_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
