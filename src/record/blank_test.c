#include "record/blank.h"

#include <stdlib.h>
#include <string.h>

#include "testing/recording.h"
#include "testing/test.h"

enum { XLOG_DATA_HEAD = 25 };

/* A payload of the server with this message; the caller's. */
static uint8_t *blank_test_payload_of(const struct mr_wire *wire, size_t *ret_len)
{
    *ret_len = XLOG_DATA_HEAD + wire->len;
    uint8_t *payload = MR_ALLOC(*ret_len);
    memset(payload, 0, XLOG_DATA_HEAD);
    payload[0] = 'w';
    memcpy(payload + XLOG_DATA_HEAD, wire->bytes, wire->len);
    return payload;
}

static void assert_blanked(struct mr_blanker *blanker, const struct mr_wire *wire,
                           const struct mr_wire *want)
{
    size_t len;
    uint8_t *payload = blank_test_payload_of(wire, &len);
    mr_blank_payload(blanker, payload, len);
    assert_int_equal(wire->len, want->len);
    assert_memory_equal(payload + XLOG_DATA_HEAD, want->bytes, want->len);
    free(payload);
}

static struct mr_wire wire, want;

static void test_values_keep_kind_and_length(void **state)
{
    (void)state;
    static const char *const values[] = {"-12.50", "f",      NULL, mr_wire_unchanged,
                                         "12:30",  "secret", "",   "1.2.3"};
    static const char *const blank[] = {"111111", "t",      NULL, mr_wire_unchanged,
                                        "xxxxx",  "xxxxxx", "",   "xxxxx"};
    struct mr_blanker blanker = {0};
    mr_wire_insert(&wire, 7, values, MR_ARRAY_LEN(values));
    mr_wire_insert(&want, 7, blank, MR_ARRAY_LEN(blank));
    assert_blanked(&blanker, &wire, &want);
    mr_wire_update(&wire, 7, 'K', values, values, MR_ARRAY_LEN(values));
    mr_wire_update(&want, 7, 'K', blank, blank, MR_ARRAY_LEN(blank));
    assert_blanked(&blanker, &wire, &want);
    mr_wire_delete(&wire, 7, 'O', values, MR_ARRAY_LEN(values));
    mr_wire_delete(&want, 7, 'O', blank, MR_ARRAY_LEN(blank));
    assert_blanked(&blanker, &wire, &want);
    mr_wire_message(&wire, true, 9, "prefix", "content");
    mr_wire_message(&want, true, 9, "prefix", "xxxxxxx");
    assert_blanked(&blanker, &wire, &want);
    mr_blanker_done(&blanker);
}

static void test_names_stay_different(void **state)
{
    (void)state;
    static const char *const columns[] = {"id", "no", "id2"};
    static const char *const blank[] = {"aa", "ab", "aaa"};
    struct mr_blanker blanker = {.names = true};
    for (int again = 0; again < 2; again++) {
        mr_wire_relation(&wire, 7, 'd', "orders", columns, 3);
        mr_wire_relation(&want, 7, 'd', "aaaaab", blank, 3);
        /* The schema "public" is the first of its length. */
        memcpy(want.bytes + 5, "aaaaaa", 6);
        assert_blanked(&blanker, &wire, &want);
    }
    mr_wire_origin(&wire, 7, "public");
    mr_wire_origin(&want, 7, "aaaaaa");
    assert_blanked(&blanker, &wire, &want);
    mr_wire_message(&wire, false, 9, "orders", "12");
    mr_wire_message(&want, false, 9, "aaaaab", "11");
    assert_blanked(&blanker, &wire, &want);
    mr_blanker_done(&blanker);
}

/* What the protocol does not explain is data, too: bytes after a message, an unknown message, one
 * that lies. */
static void test_the_unexplained_is_blanked(void **state)
{
    (void)state;
    struct mr_blanker blanker = {0};
    mr_wire_commit(&wire, 5, 6);
    mr_wire_bytes(&wire, "secret", 6);
    mr_wire_commit(&want, 5, 6);
    mr_wire_bytes(&want, "xxxxxx", 6);
    assert_blanked(&blanker, &wire, &want);
    mr_wire_reset(&wire);
    mr_wire_bytes(&wire, "?secret", 7);
    mr_wire_reset(&want);
    mr_wire_bytes(&want, "?xxxxxx", 7);
    assert_blanked(&blanker, &wire, &want);
    uint8_t payload[] = "secret";
    mr_blank_payload(&blanker, payload, 6);
    assert_string_equal((const char *)payload, "sxxxxx");
    mr_blanker_done(&blanker);
}

static void test_a_message_cut_anywhere_keeps_no_value(void **state)
{
    (void)state;
    static const char *const values[] = {"secret", "secret", "secret"};
    struct mr_blanker blanker = {0};
    mr_wire_update(&wire, 7, 'O', values, values, 3);
    size_t len;
    uint8_t *payload = blank_test_payload_of(&wire, &len);
    for (size_t cut = 0; cut <= len; cut++) {
        uint8_t *part = MR_ALLOC(cut + 1);
        memcpy(part, payload, cut);
        mr_blank_payload(&blanker, part, cut);
        assert_null(memmem(part, cut, "sec", 3));
        free(part);
    }
    free(payload);
    mr_blanker_done(&blanker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_keep_kind_and_length),
        cmocka_unit_test(test_names_stay_different),
        cmocka_unit_test(test_the_unexplained_is_blanked),
        cmocka_unit_test(test_a_message_cut_anywhere_keeps_no_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
