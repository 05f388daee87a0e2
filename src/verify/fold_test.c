#include "verify/fold.h"

#include <stdio.h>
#include <string.h>

#include "testing/test.h"

static const struct mr_digest column_key = {.low = 7, .high = 9};

static struct mr_digest digest(const char *text)
{
    return mr_digest_of(column_key, mr_slice_of(text));
}

/* A row with a value that may be stored out of line; NULL: that is not known. */
static struct mr_verify_row row(const char *value, const char *large, struct mr_verify_large *room)
{
    struct mr_verify_row row = {.sum = digest(value), .large = room, .large_count = 1};
    *room = (struct mr_verify_large){.is_unknown = large == NULL};
    if (large != NULL) {
        room->digest = digest(large);
        row.sum = mr_digest_add(row.sum, room->digest);
    }
    return row;
}

static uint64_t next;
static uint32_t event_xid = 5;

static void add_event_at(struct mr_fold *fold, const char *key, const char *value,
                         const char *large, struct mr_fold_record record)
{
    struct mr_verify_large room;
    struct mr_verify_row of = row(value == NULL ? "" : value, large, &room);
    struct mr_fold_event event = {.record = record,
                                  .key = digest(key),
                                  .row = value == NULL ? NULL : &of,
                                  .is_gone = value == NULL};
    assert_int_equal(mr_fold_add_event(fold, &event, NULL), MR_OK);
}

static void add_event(struct mr_fold *fold, const char *key, const char *value, const char *large)
{
    next++;
    add_event_at(fold, key, value, large,
                 (struct mr_fold_record){.place = {.commit_lsn = 1, .order = next},
                                         .offset = (int64_t)next,
                                         .xid = event_xid});
}

static uint32_t chunk;

static void add_row(struct mr_fold *fold, const char *key, uint32_t xid, const char *value)
{
    struct mr_verify_large room;
    struct mr_verify_row of = row(value, "large", &room);
    assert_int_equal(mr_fold_add_row(fold, digest(key), chunk, xid, &of, NULL), MR_OK);
}

struct found {
    struct mr_difference all[8];
    uint32_t count;
};

static void take(void *context, const struct mr_difference *difference)
{
    struct found *found = context;
    assert_true(found->count < MR_ARRAY_LEN(found->all));
    found->all[found->count++] = *difference;
}

/* Snapshots that see the transactions below such a number. */
static struct mr_cut cut_at(uint64_t number)
{
    return (struct mr_cut){.xmin = number, .xmax = number, .next = number};
}

static struct mr_fold_counts compare_chunks(struct mr_fold *fold, const struct mr_cut *cuts,
                                            uint32_t cut_count, struct found *found)
{
    struct mr_fold_counts counts;
    *found = (struct found){0};
    assert_int_equal(mr_fold_compare(fold, cuts, cut_count, take, found, &counts, NULL), MR_OK);
    mr_fold_free(fold);
    return counts;
}

static struct mr_fold_counts compare(struct mr_fold *fold, struct found *found)
{
    struct mr_cut all = cut_at(1000);
    return compare_chunks(fold, &all, 1, found);
}

static void test_compare_equal(void **state)
{
    (void)state;
    struct mr_fold *fold = mr_fold_new(true, false);
    struct found found;
    add_event(fold, "a", "1", "large");
    add_event(fold, "a", "2", NULL); /* the large value stays */
    add_event(fold, "b", "1", "large");
    add_event(fold, "b", NULL, NULL);
    add_event(fold, "c", "1", NULL); /* nobody ever had it */
    add_row(fold, "a", 5, "2");
    add_row(fold, "c", 5, "1");
    struct mr_fold_counts counts = compare(fold, &found);
    assert_int_equal(found.count, 0);
    assert_int_equal(counts.rows, 2);
    assert_int_equal(counts.events, 5);
    assert_int_equal(counts.unknown, 1);
}

static void test_compare_each_kind(void **state)
{
    (void)state;
    static const struct {
        const char *value; /* of the only event; NULL: there is none */
        uint32_t xid;      /* of the row; 0: there is none */
        enum mr_difference_kind kind;
    } cases[] = {
        {NULL, 5, MR_DIFFERENCE_MISSING},
        {"1", 0, MR_DIFFERENCE_PHANTOM},
        {"2", 4, MR_DIFFERENCE_STALE},
        {"2", 5, MR_DIFFERENCE_ALTERED},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_fold *fold = mr_fold_new(true, false);
        struct found found;
        if (cases[i].value != NULL) {
            add_event(fold, "a", cases[i].value, "large");
        }
        if (cases[i].xid > 0) {
            add_row(fold, "a", cases[i].xid, "1");
        }
        struct mr_fold_counts counts = compare(fold, &found);
        assert_int_equal(found.count, 1);
        assert_int_equal(found.all[0].kind, cases[i].kind);
        assert_int_equal(found.all[0].last.offset, cases[i].value == NULL ? -1 : (int64_t)next);
        assert_int_equal(counts.differences[cases[i].kind], 1);
        assert_int_equal(counts.eventless, cases[i].value == NULL);
    }
}

/* By place across partitions, by offset within one. */
static void test_later_event_counts(void **state)
{
    (void)state;
    struct mr_fold *fold = mr_fold_new(true, false);
    struct found found;
    struct mr_fold_record early = {.place.order = 1, .offset = 9, .partition = 1};
    struct mr_fold_record late = {.place.order = 2, .offset = 3, .partition = 0};
    add_event_at(fold, "a", "late", "large", late);
    add_event_at(fold, "a", "early", "large", early);
    add_row(fold, "a", 0, "late");
    add_event_at(fold, "b", "late", "large", late);
    early.partition = 0;
    add_event_at(fold, "b", "early", "large", early);
    add_row(fold, "b", 0, "early");
    /* A value that was left alone in another partition: of the event before, or of one in between that comes later here. */
    struct mr_fold_record between = {.place.order = 2, .offset = 10, .partition = 0};
    late = (struct mr_fold_record){.place.order = 3, .offset = 3, .partition = 1};
    add_event_at(fold, "c", "1", "first", early);
    add_event_at(fold, "c", "3", NULL, late);
    add_event_at(fold, "c", "2", "large", between);
    add_row(fold, "c", 0, "3");
    assert_int_equal(compare(fold, &found).unknown, 1);
    assert_int_equal(found.count, 0);
}

/* Of an event that was too large a value is not what it was before. */
static void test_a_lost_value_is_unknown(void **state)
{
    (void)state;
    struct mr_fold *fold = mr_fold_new(true, false);
    struct found found;
    add_event(fold, "a", "1", "before");
    struct mr_verify_large room;
    struct mr_verify_row lost = row("2", NULL, &room);
    room.is_lost = true;
    struct mr_fold_event event = {
        .key = digest("a"), .row = &lost, .record = {.place.commit_lsn = 1, .xid = 5}};
    assert_int_equal(mr_fold_add_event(fold, &event, NULL), MR_OK);
    add_event(fold, "a", "3", NULL);
    add_row(fold, "a", 5, "3");
    assert_int_equal(compare(fold, &found).unknown, 1);
    assert_int_equal(found.count, 0);
}

/* Compaction took the delete between reading what was before it and its tombstone. */
static void test_a_tombstone_alone(void **state)
{
    (void)state;
    struct mr_fold *fold = mr_fold_new(true, false);
    struct found found;
    struct mr_fold_event tombstone = {.is_gone = true, .is_tombstone = true, .record.xid = 5};
    for (const char *key = "abc"; *key != '\0'; key++) {
        const char text[] = {*key, '\0'};
        add_event(fold, text, "1", "large");
        if (*key == 'b') {
            add_event(fold, text, NULL, NULL);
        }
        tombstone.key = digest(text);
        assert_int_equal(mr_fold_add_event(fold, &tombstone, NULL), MR_OK);
    }
    add_row(fold, "c", 5, "1");
    struct mr_fold_counts counts = compare(fold, &found);
    assert_int_equal(counts.buried, 1);
    assert_int_equal(counts.differences[MR_DIFFERENCE_MISSING], 1);
    assert_int_equal(found.count, 1);
}

static void test_truncate(void **state)
{
    (void)state;
    struct mr_fold *fold = mr_fold_new(true, false);
    struct found found;
    add_event(fold, "a", "1", "large");
    struct mr_fold_record record = {.place = {.commit_lsn = 1, .order = ++next}, .xid = 5};
    mr_fold_truncate(fold, &record);
    record.place.order = 1;
    mr_fold_truncate(fold, &record);
    record = (struct mr_fold_record){.place = {.commit_lsn = 9, .order = 1},
                                     .xid = 5000}; /* seen by none */
    mr_fold_truncate(fold, &record);
    add_event(fold, "b", "1", "large");
    add_row(fold, "b", 5, "1");
    compare(fold, &found);
    assert_int_equal(found.count, 0);
}

static void test_rows_without_a_key_are_counted(void **state)
{
    (void)state;
    struct mr_fold *fold = mr_fold_new(false, false);
    struct found found;
    for (int i = 0; i < 3; i++) {
        add_event(fold, "", "same", "large");
        add_row(fold, "", 5, "other");
    }
    struct mr_verify_large room;
    struct mr_verify_row same = row("same", "large", &room);
    struct mr_fold_event gone = {.row = &same, .is_gone = true, .record.offset = 77};
    assert_int_equal(mr_fold_add_event(fold, &gone, NULL), MR_OK);
    add_row(fold, "", 5, "same");
    struct mr_fold_counts counts = compare(fold, &found);
    assert_int_equal(counts.differences[MR_DIFFERENCE_PHANTOM], 1);
    assert_int_equal(counts.differences[MR_DIFFERENCE_MISSING], 3);
    assert_int_equal(found.count, 2);
}

static void add_events(struct mr_fold *fold, const char *key, const char *values, const char *xids)
{
    for (; *values != '\0'; values++, xids++) {
        const char value[] = {*values, '\0'};
        event_xid = 5 + 10 * (uint32_t)(*xids - '0');
        add_event(fold, key, *values == '-' ? NULL : value, *values == '-' ? NULL : "large");
    }
    event_xid = 5;
}

/* Two chunks: the first snapshot sees transactions 5, the second one 15, too, and none 25. */
static void test_chunks(void **state)
{
    (void)state;
    static const struct {
        const char *values, *xids; /* of the events; '-': a delete */
        int chunk;                 /* of the row; -1: there is none */
        const char *row;
        int kind; /* of the difference; -1: there is none; -2: it is not settled */
    } cases[] = {
        {"12", "01", 0, "1", -1},
        {"12", "01", 1, "2", -1},
        {"12", "01", 0, "2", MR_DIFFERENCE_ALTERED},
        {"123", "012", 1, "2", -1},
        {"1-", "01", 0, "1", -1},
        {"1-", "01", 1, "1", MR_DIFFERENCE_MISSING},
        {"1", "0", -1, "", MR_DIFFERENCE_PHANTOM},
        {"12", "01", -1, "", MR_DIFFERENCE_PHANTOM},
        {"1", "1", -1, "", -2},
        {"1-2", "011", -1, "", -2},
        {"1-", "01", -1, "", -1},
        {"1", "2", -1, "", -1},
        {"1", "2", 1, "1", MR_DIFFERENCE_MISSING},
    };
    const struct mr_cut cuts[] = {cut_at(10), cut_at(20)};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_fold *fold = mr_fold_new(true, false);
        struct found found;
        add_events(fold, "a", cases[i].values, cases[i].xids);
        if (cases[i].chunk >= 0) {
            chunk = (uint32_t)cases[i].chunk;
            add_row(fold, "a", 5, cases[i].row);
        }
        struct mr_fold_counts counts = compare_chunks(fold, cuts, 2, &found);
        assert_int_equal(found.count, cases[i].kind >= 0);
        assert_int_equal(counts.unsettled, cases[i].kind == -2);
        assert_true(cases[i].kind < 0 || (int)found.all[0].kind == cases[i].kind);
    }
    chunk = 0;
}

/* More than is kept in memory; and a key with very many events takes no more of it. */
static void test_compare_many(void **state)
{
    (void)state;
    enum { MANY = 60000 };
    struct mr_fold *fold = mr_fold_new(true, false);
    struct found found;
    for (int i = 0; i < 2 * MANY; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", i < MANY ? i : 0);
        add_event(fold, key, "1", "large");
    }
    for (int i = 0; i < MANY; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", i);
        add_row(fold, key, 5, i == 4711 ? "2" : "1");
    }
    struct mr_fold_counts counts = compare(fold, &found);
    assert_int_equal(counts.rows, MANY);
    assert_int_equal(found.count, 1);
    assert_true(mr_digest_equal(found.all[0].key, digest("4711")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare_equal),
        cmocka_unit_test(test_compare_each_kind),
        cmocka_unit_test(test_later_event_counts),
        cmocka_unit_test(test_a_lost_value_is_unknown),
        cmocka_unit_test(test_a_tombstone_alone),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_rows_without_a_key_are_counted),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_compare_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
