/* Records of the state topic that the builds before sections wrote (85875f8 and older): they are
 * read as they were meant, and what is written now is the same, byte for byte, so that those builds
 * read it, too. */
#include <stdlib.h>
#include <string.h>

#include "copy/asked_stored.h"
#include "copy/copies.h"
#include "kafka/kafka_state.h"
#include "testing/test.h"

static const struct {
    const char *of;
    const char *record;
} golden[] = {
    {"a stream",
     "{\"version\":1,\"system_id\":\"7301234567890123456\",\"timeline\":2,\"slot\":\"millrace\",\"p"
     "ublication\":\"millrace\",\"tables\":\"00c0ffee00c0ffee\",\"end_lsn\":\"1F/A0\"}"},
    {"part of a transaction",
     "{\"version\":1,\"system_id\":\"7301234567890123456\",\"timeline\":2,\"slot\":\"millrace\",\"p"
     "ublication\":\"millrace\",\"tables\":\"00c0ffee00c0ffee\",\"end_lsn\":\"1F/A0\",\"position\":"
     "\"1F/B0:17\"}"},
    {"a copy before the stream",
     "{\"version\":2,\"system_id\":\"7301234567890123456\",\"timeline\":2,\"slot\":\"millrace\",\"p"
     "ublication\":\"millrace\",\"tables\":\"00c0ffee00c0ffee\",\"end_lsn\":\"1F/"
     "A0\",\"copy\":\"1f0"
     "00000a0 2 1b 4c4b40 d4000,1,fffb000,t5000,6001;0-80;12340007-0t5001,6002\"}"},
    {"a copy without a stream",
     "{\"version\":2,\"system_id\":\"7301234567890123456\",\"timeline\":2,\"slot\":\"millrace\",\"p"
     "ublication\":\"millrace\",\"tables\":\"00c0ffee00c0ffee\",\"end_lsn\":\"0/"
     "0\",\"copy\":\"1f000"
     "000a0 2 1b 4c4b40 d4000,1,fffb000,t5000,6001;0-80;12340007-0t5001,6002\",\"copy_on"
     "ly\":true}"},
    {"requests",
     "{\"version\":3,\"system_id\":\"7301234567890123456\",\"timeline\":2,\"slot\":\"millrace\",\"p"
     "ublication\":\"millrace\",\"tables\":\"00c0ffee00c0ffee\",\"end_lsn\":\"1F/"
     "A0\",\"asked\":{\"s"
     "tep\":41,\"last_id\":5,\"paused\":false,\"tables\":[{\"id\":3,\"schema\":\"public\","
     "\"table\":\""
     "Ord\\\"ers\",\"where\":\"x > 'y'\",\"key\":\"id, "
     "\\\"b\\\"\",\"oid\":16400,\"rows\":900719925474099"
     ",\"passed_over\":9,\"form\":\"ffffffffffffffff\",\"after\":[\"4711\","
     "\"a\\\"\\\\\\n\\u0001é\"]},{\""
     "id\":4,\"schema\":\"public\",\"table\":\"public\"},{\"id\":5,\"schema\":\"public\",\"table\":"
     "\"x >"
     " 'y'\",\"oid\":16401,\"rows\":0,\"passed_over\":0}],\"known\":\"4000,6,6,ffffbff3\"}}"},
    {"requests that are done",
     "{\"version\":1,\"system_id\":\"7301234567890123456\",\"timeline\":2,\"slot\":\"millrace\",\"p"
     "ublication\":\"millrace\",\"tables\":\"00c0ffee00c0ffee\",\"end_lsn\":\"1F/A0\",\"position\":"
     "\"1F/B0:17\",\"asked\":{\"step\":1,\"last_id\":2,\"paused\":false,\"tables\":[]}}"},
    {"a copy, and requests that are paused",
     "{\"version\":3,\"system_id\":\"7301234567890123456\",\"timeline\":2,\"slot\":\"millrace\",\"p"
     "ublication\":\"millrace\",\"tables\":\"00c0ffee00c0ffee\",\"end_lsn\":\"1F/"
     "A0\",\"copy\":\"1f0"
     "00000a0 2 1b 4c4b40 d4000,1,fffb000,t5000,6001;0-80;12340007-0t5001,6002\",\"asked"
     "\":{\"step\":2,\"last_id\":2,\"paused\":true,\"tables\":[],\"known\":\"\"}}"},
};

static struct mr_checkpoint stored_test_parse(const char *record)
{
    struct mr_checkpoint read = {0};
    assert_true(mr_state_parse(record, strlen(record), mr_copy_section_kinds, &read));
    return read;
}

/* A record passes through unchanged, and so does each section through its own form. */
static void test_records_of_older_builds_are_written_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(golden); i++) {
        struct mr_checkpoint read = stored_test_parse(golden[i].record);
        struct mr_checkpoint written = {
            .identity = read.identity, .end_lsn = read.end_lsn, .position = read.position};
        struct mr_copy_stored *copy = mr_copy_stored_of(&read);
        struct mr_asked_stored *asked = mr_asked_stored_of(&read);
        if (copy != NULL) {
            bool only = mr_checkpoint_section(&read, MR_SECTION_COPY_ONLY) != NULL;
            mr_copy_stored_add(copy, only, &written);
        }
        if (asked != NULL) {
            mr_asked_stored_add(asked, &written);
        }
        char *as_read = mr_state_format(&read);
        char *as_written = mr_state_format(&written);
        assert_string_equal(as_read, golden[i].record);
        assert_string_equal(as_written, golden[i].record);
        free(as_read);
        free(as_written);
        mr_copy_stored_free(copy);
        mr_asked_stored_free(asked);
        mr_checkpoint_done(&read);
        mr_checkpoint_done(&written);
    }
}

/* Cut anywhere it is nothing, and nothing is left behind. */
static void test_cut_records_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(golden); i++) {
        for (size_t len = 0; len < strlen(golden[i].record); len++) {
            struct mr_checkpoint cut = {.end_lsn = 5};
            assert_false(mr_state_parse(golden[i].record, len, mr_copy_section_kinds, &cut));
            assert_int_equal(cut.end_lsn, 5);
        }
    }
}

static void test_what_older_records_say(void **state)
{
    (void)state;
    static const struct {
        mr_lsn begins;
        bool has_stream;
        uint64_t asked_step; /* 0: none */
        uint32_t tables;
    } says[MR_ARRAY_LEN(golden)] = {
        {0, true, 0, 0},  {0, true, 0, 0}, {0x1f000000a0, true, 0, 0}, {0x1f000000a0, false, 0, 0},
        {0, true, 41, 3}, {0, true, 1, 0}, {0x1f000000a0, true, 2, 0},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(golden); i++) {
        struct mr_checkpoint read = stored_test_parse(golden[i].record);
        struct mr_asked_stored *asked = mr_asked_stored_of(&read);
        assert_int_equal(mr_checkpoint_begins(&read), says[i].begins);
        assert_int_equal(mr_checkpoint_has_stream(&read), says[i].has_stream);
        assert_int_equal(asked == NULL ? 0 : asked->step, says[i].asked_step);
        assert_int_equal(asked == NULL ? 0 : asked->count, says[i].tables);
        mr_asked_stored_free(asked);
        mr_checkpoint_done(&read);
    }
}

/* Keys are any text, also what is not UTF-8; where nothing is under way, an older build may go
 * on. */
static void test_requests_are_read_as_they_were_written(void **state)
{
    (void)state;
    char key[] = "a\"\\\n\x01\xff";
    char empty[] = "";
    char s[] = "s";
    char where[] = "x > 'y'";
    char *after[] = {key, empty};
    struct mr_asked_place place = {.oid = UINT32_MAX,
                                   .form = UINT64_MAX,
                                   .after = after,
                                   .after_count = 2,
                                   .rows = 8,
                                   .passed_over = 9};
    struct mr_asked_table tables[] = {
        {.id = 3, .schema = s, .table = s, .where = where, .key = key, .place = place},
        {.id = 4, .schema = s, .table = where},
    };
    const uint64_t ids[] = {UINT64_C(1) << 32, UINT64_C(16384) << 32, UINT64_C(16384) << 32 | 7,
                            UINT64_C(16390) << 32 | UINT32_MAX, (uint64_t)UINT32_MAX << 32};
    struct mr_asked_stored asked = {
        .step = 6,
        .last_id = 4,
        .tables = tables,
        .count = 2,
        .known = {mr_asked_known_format(ids, 5, MR_KNOWN_TABLES, SIZE_MAX),
                  mr_asked_known_format(ids, 5, MR_KNOWN_LEAVES, SIZE_MAX)}};
    char *text = mr_asked_stored_format(&asked);
    struct mr_asked_stored *read = mr_asked_stored_parse(text);
    struct mr_section_rank rank;
    assert_true(mr_asked_stored_rank(text, &rank));
    assert_int_equal(rank.version, MR_ASKED_STORED_VERSION);
    assert_int_equal(rank.minor, 6);
    free(text);
    assert_int_equal(read->last_id, 4);
    assert_int_equal(read->count, 2);
    assert_string_equal(read->tables[0].where, where);
    assert_string_equal(read->tables[0].key, key);
    assert_true(read->tables[0].place.form == UINT64_MAX);
    assert_string_equal(read->tables[0].place.after[0], key);
    assert_string_equal(read->tables[0].place.after[1], "");
    assert_int_equal(read->tables[0].place.rows, 8);
    assert_int_equal(read->tables[0].place.passed_over, 9);
    assert_string_equal(read->known[MR_KNOWN_TABLES], "1,3fff,ffffbfff");
    assert_string_equal(read->known[MR_KNOWN_LEAVES], "4000.7,6.ffffffff");
    uint64_t *known = NULL;
    uint32_t count = 0;
    assert_true(
        mr_asked_known_parse(read->known[MR_KNOWN_TABLES], MR_KNOWN_TABLES, &known, &count));
    assert_true(
        mr_asked_known_parse(read->known[MR_KNOWN_LEAVES], MR_KNOWN_LEAVES, &known, &count));
    assert_int_equal(count, 5);
    const uint64_t both[] = {ids[0], ids[1], ids[4], ids[2], ids[3]};
    assert_memory_equal(known, both, sizeof(both));
    free(known);
    assert_null(read->tables[1].where);
    assert_null(read->tables[1].place.after);
    mr_asked_stored_free(read);
    asked.count = 0;
    struct mr_checkpoint checkpoint = {.end_lsn = 1};
    mr_asked_stored_add(&asked, &checkpoint);
    assert_int_equal(checkpoint.sections[0].rank.version, 0);
    mr_checkpoint_done(&checkpoint);
    free(asked.known[MR_KNOWN_TABLES]);
    free(asked.known[MR_KNOWN_LEAVES]);
}

static void test_known_tables_and_partitions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mr_known_kind kind;
    } wrong[] = {{"0", MR_KNOWN_TABLES},          {"1,", MR_KNOWN_TABLES},
                 {"1,0", MR_KNOWN_TABLES},        {"1.2", MR_KNOWN_TABLES},
                 {"g", MR_KNOWN_TABLES},          {"123456789", MR_KNOWN_TABLES},
                 {"1,ffffffff", MR_KNOWN_TABLES}, {"1", MR_KNOWN_LEAVES},
                 {"1.", MR_KNOWN_LEAVES},         {"1.0", MR_KNOWN_LEAVES},
                 {"1.2,0.2", MR_KNOWN_LEAVES},    {"0.2", MR_KNOWN_LEAVES}};
    uint64_t *ids = NULL;
    uint32_t count = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        assert_false(mr_asked_known_parse(wrong[i].text, wrong[i].kind, &ids, &count));
    }
    count = 0;
    assert_true(mr_asked_known_parse("", MR_KNOWN_LEAVES, &ids, &count));
    assert_int_equal(count, 0);
    ids = MR_REALLOC(ids, (MR_KNOWN_LEAVES_MAX + 1) * sizeof(*ids));
    for (; count <= MR_KNOWN_LEAVES_MAX; count++) {
        ids[count] = (uint64_t)(count + 1) << 32 | 1;
    }
    char *text = mr_asked_known_format(ids, count - 1, MR_KNOWN_LEAVES, SIZE_MAX);
    assert_non_null(text);
    free(text);
    assert_null(mr_asked_known_format(ids, count, MR_KNOWN_LEAVES, SIZE_MAX));
    assert_null(mr_asked_known_format(ids, 5, MR_KNOWN_LEAVES, 18));
    free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_of_older_builds_are_written_again),
        cmocka_unit_test(test_cut_records_are_refused),
        cmocka_unit_test(test_what_older_records_say),
        cmocka_unit_test(test_requests_are_read_as_they_were_written),
        cmocka_unit_test(test_known_tables_and_partitions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
