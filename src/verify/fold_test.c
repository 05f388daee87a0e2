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

static struct mr_fold *new_fold(bool has_key)
{
    const struct mr_fold_options options = {.has_key = has_key, .has_tombstones = true};
    return mr_fold_new(&options);
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
                 (struct mr_fold_record){.place = {.commit_lsn = 1, .order = next << 4},
                                         .offset = (int64_t)next,
                                         .xid = event_xid});
}

static uint32_t chunk;

static void fold_test_add_row(struct mr_fold *fold, const char *key, uint32_t xid,
                              const char *value)
{
    struct mr_verify_large room;
    struct mr_verify_row of = row(value, "large", &room);
    assert_int_equal(mr_fold_add_row(fold, digest(key), chunk, xid, &of, NULL), MR_OK);
}

struct found {
    struct mr_difference all[8];
    uint32_t count;
};

static void fold_test_take(void *context, const struct mr_difference *difference)
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
    assert_int_equal(mr_fold_compare(fold, cuts, cut_count, fold_test_take, found, &counts, NULL),
                     MR_OK);
    mr_fold_free(fold);
    return counts;
}

static struct mr_fold_counts fold_test_compare(struct mr_fold *fold, struct found *found)
{
    struct mr_cut all = cut_at(1000);
    return compare_chunks(fold, &all, 1, found);
}

static void test_compare_equal(void **state)
{
    (void)state;
    struct mr_fold *fold = new_fold(true);
    struct found found;
    add_event(fold, "a", "1", "large");
    add_event(fold, "a", "2", NULL); /* the large value stays */
    add_event(fold, "b", "1", "large");
    add_event(fold, "b", NULL, NULL);
    add_event(fold, "c", "1", NULL); /* nobody ever had it */
    fold_test_add_row(fold, "a", 5, "2");
    fold_test_add_row(fold, "c", 5, "1");
    struct mr_fold_counts counts = fold_test_compare(fold, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(counts.rows, 2);
    assert_int_equal(counts.events, 5);
    assert_int_equal(counts.differences[MR_DIFFERENCE_UNKNOWN], 1);
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
        struct mr_fold *fold = new_fold(true);
        struct found found;
        if (cases[i].value != NULL) {
            add_event(fold, "a", cases[i].value, "large");
        }
        if (cases[i].xid > 0) {
            fold_test_add_row(fold, "a", cases[i].xid, "1");
        }
        struct mr_fold_counts counts = fold_test_compare(fold, &found);
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
    struct mr_fold *fold = new_fold(true);
    struct found found;
    struct mr_fold_record early = {.place.order = 1, .offset = 9, .partition = 1};
    struct mr_fold_record late = {.place.order = 2, .offset = 3, .partition = 0};
    add_event_at(fold, "a", "late", "large", late);
    add_event_at(fold, "a", "early", "large", early);
    fold_test_add_row(fold, "a", 0, "late");
    add_event_at(fold, "b", "late", "large", late);
    early.partition = 0;
    add_event_at(fold, "b", "early", "large", early);
    fold_test_add_row(fold, "b", 0, "early");
    /* A value that was left alone in another partition: of the event before, or of one in between
     * that comes later here. */
    struct mr_fold_record between = {.place.order = 2, .offset = 10, .partition = 0};
    late = (struct mr_fold_record){.place.order = 3, .offset = 3, .partition = 1};
    add_event_at(fold, "c", "1", "first", early);
    add_event_at(fold, "c", "3", NULL, late);
    add_event_at(fold, "c", "2", "large", between);
    fold_test_add_row(fold, "c", 0, "3");
    assert_int_equal(fold_test_compare(fold, &found).differences[MR_DIFFERENCE_UNKNOWN], 1);
    assert_int_equal(found.count, 1);
}

/* Of an event that was too large a value is not what it was before. */
static void test_a_lost_value_is_unknown(void **state)
{
    (void)state;
    struct mr_fold *fold = new_fold(true);
    struct found found;
    add_event(fold, "a", "1", "before");
    struct mr_verify_large room;
    struct mr_verify_row lost = row("2", NULL, &room);
    room.is_lost = true;
    struct mr_fold_event event = {
        .key = digest("a"), .row = &lost, .record = {.place.commit_lsn = 1, .xid = 5}};
    assert_int_equal(mr_fold_add_event(fold, &event, NULL), MR_OK);
    add_event(fold, "a", "3", NULL);
    fold_test_add_row(fold, "a", 5, "3");
    assert_int_equal(fold_test_compare(fold, &found).differences[MR_DIFFERENCE_UNKNOWN], 1);
    assert_int_equal(found.count, 1);
}

/* Of the change before it. */
static void add_tombstone(struct mr_fold *fold, const char *key)
{
    const struct mr_fold_event tombstone = {
        .is_gone = true,
        .is_tombstone = true,
        .key = digest(key),
        .record = {.place = {.commit_lsn = 1, .order = next << 4 | 1}, .offset = 99, .xid = 5}};
    assert_int_equal(mr_fold_add_event(fold, &tombstone, NULL), MR_OK);
}

/* Each letter: an event, a delete, a tombstone of the change before; X: a tombstone of another
 * one. */
static void add_letters(struct mr_fold *fold, const char *key, const char *letters)
{
    for (; *letters != '\0'; letters++) {
        if (*letters == 'T' || *letters == 'X') {
            next += *letters == 'X';
            add_tombstone(fold, key);
        } else {
            add_event(fold, key, *letters == 'D' ? NULL : "1", *letters == 'D' ? NULL : "large");
        }
    }
}

/* Of a key without a row. Compaction takes a delete with all before it, and the tombstone stays; or
 * it took it between reading what was before it and its tombstone. */
static void test_a_delete_and_its_tombstone(void **state)
{
    (void)state;
    static const struct {
        const char *letters;
        bool is_torn, is_torn_if_all_is_kept, is_buried;
    } cases[] = {
        {"cDT", false, false, false},    {"cDTDT", false, false, false},
        {"DTT", false, false, false},    {"T", false, true, false},
        {"X", false, true, false},       {"cX", false, true, true},
        {"cDTcX", false, true, true},    {"cDTX", false, true, true},
        {"cD", true, true, false},       {"cDTcD", true, true, false},
        {"cDX", false, true, true},      {"cDTcDT", false, false, false},
        {"cDXcDT", false, false, false},
    };
    for (size_t i = 0; i < 2 * MR_ARRAY_LEN(cases); i++) {
        size_t k = i / 2;
        bool keeps_all = i % 2 == 1;
        bool is_torn = keeps_all ? cases[k].is_torn_if_all_is_kept : cases[k].is_torn;
        struct mr_fold *fold = new_fold(true);
        struct found found;
        add_letters(fold, "first", "cDT");
        add_letters(fold, "a", cases[k].letters);
        if (keeps_all) {
            mr_fold_keep_all(fold);
        }
        struct mr_fold_counts counts = fold_test_compare(fold, &found);
        assert_int_equal(found.count, is_torn);
        assert_int_equal(counts.differences[MR_DIFFERENCE_TORN], is_torn);
        assert_int_equal(counts.buried, cases[k].is_buried && !is_torn);
    }
}

/* What has a row is missing, and what was deleted before the first tombstone may have none. */
static void test_a_tombstone_is_not_due(void **state)
{
    (void)state;
    struct mr_fold *fold = new_fold(true);
    struct found found;
    add_letters(fold, "a", "cD");
    add_letters(fold, "b", "cDT");
    add_letters(fold, "c", "cX");
    fold_test_add_row(fold, "c", 5, "1");
    struct mr_fold_counts counts = fold_test_compare(fold, &found);
    assert_int_equal(counts.bare, 1);
    assert_int_equal(counts.differences[MR_DIFFERENCE_MISSING], 1);
    assert_int_equal(found.count, 1);
}

static void test_truncate(void **state)
{
    (void)state;
    struct mr_fold *fold = new_fold(true);
    struct found found;
    add_event(fold, "a", "1", "large");
    struct mr_fold_record record = {.place = {.commit_lsn = 1, .order = ++next << 4}, .xid = 5};
    mr_fold_truncate(fold, &record);
    record.place.order = 1;
    mr_fold_truncate(fold, &record);
    record = (struct mr_fold_record){.place = {.commit_lsn = 9, .order = 1},
                                     .xid = 5000}; /* seen by none */
    mr_fold_truncate(fold, &record);
    add_event(fold, "b", "1", "large");
    fold_test_add_row(fold, "b", 5, "1");
    fold_test_compare(fold, &found);
    assert_int_equal(found.count, 0);
}

static void test_rows_without_a_key_are_counted(void **state)
{
    (void)state;
    struct mr_fold *fold = new_fold(false);
    struct found found;
    for (int i = 0; i < 3; i++) {
        add_event(fold, "", "same", "large");
        fold_test_add_row(fold, "", 5, "other");
    }
    struct mr_verify_large room;
    struct mr_verify_row same = row("same", "large", &room);
    struct mr_fold_event gone = {.row = &same, .is_gone = true, .record.offset = 77};
    assert_int_equal(mr_fold_add_event(fold, &gone, NULL), MR_OK);
    fold_test_add_row(fold, "", 5, "same");
    struct mr_fold_counts counts = fold_test_compare(fold, &found);
    assert_int_equal(counts.differences[MR_DIFFERENCE_PHANTOM], 1);
    assert_int_equal(counts.differences[MR_DIFFERENCE_MISSING], 3);
    assert_int_equal(found.count, 2);
}

/* At least once has sent them again. */
static void test_repeats_of_rows_without_a_key(void **state)
{
    (void)state;
    struct mr_fold *fold = new_fold(false);
    struct found found;
    for (uint64_t i = 0, from = next; i < 2; i++) {
        next = from;
        add_event(fold, "", "same", "large");
        add_event(fold, "", "same", "large");
        struct mr_verify_large room;
        struct mr_verify_row same = row("same", "large", &room);
        struct mr_fold_event gone = {
            .row = &same,
            .is_gone = true,
            .record = {.place = {.commit_lsn = 1, .order = next << 4}, .xid = 5}};
        assert_int_equal(mr_fold_add_event(fold, &gone, NULL), MR_OK);
    }
    fold_test_add_row(fold, "", 5, "same");
    assert_int_equal(fold_test_compare(fold, &found).events, 3);
    assert_int_equal(found.count, 0);
}

static uint32_t late_since = 9;      /* the transaction that added the late column, … */
static bool late_has_default = true; /* … by which older rows may have a value */

/* A row with a late column; NULL: an event of it is from before that. */
static struct mr_verify_row late_row(const char *value, const char *late,
                                     struct mr_verify_large *room)
{
    struct mr_verify_row of = row(value, late, room);
    room->is_absent = room->is_lost = room->is_unknown;
    room->since = late_since;
    room->has_default = late_has_default;
    return of;
}

static void add_late_event(struct mr_fold *fold, const char *key, const char *value,
                           const char *late, bool is_gone)
{
    struct mr_verify_large room;
    struct mr_verify_row of = late_row(value, late, &room);
    next++;
    const struct mr_fold_event event = {
        .record = {.place = {.commit_lsn = 1, .order = next << 4}, .offset = 1, .xid = 5},
        .key = digest(key),
        .row = &of,
        .is_gone = is_gone};
    assert_int_equal(mr_fold_add_event(fold, &event, NULL), MR_OK);
}

static void add_late_row(struct mr_fold *fold, const char *key, uint32_t xid, const char *value,
                         const char *late)
{
    struct mr_verify_large room;
    struct mr_verify_row of = late_row(value, late, &room);
    assert_int_equal(mr_fold_add_row(fold, digest(key), 0, xid, &of, NULL), MR_OK);
}

static void test_a_column_that_was_withheld(void **state)
{
    (void)state;
    static const struct {
        uint32_t since, xid; /* of the column, and of the row's writer; the event's is 5 */
        uint32_t found;
    } cases[] = {{9, 5, 0}, {5, 5, 0}, {4, 5, 2}, {0, 5, 2}, {0, 4, 0}, {UINT32_MAX, 5, 2}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_fold *fold = new_fold(true);
        struct found found;
        late_since = cases[i].since;
        for (int k = 0; k < 2; k++) {
            const char *key = k == 0 ? "a" : "b";
            add_late_event(fold, key, key, NULL, false);
            add_late_row(fold, key, cases[i].xid, key, "same");
        }
        struct mr_fold_counts counts = fold_test_compare(fold, &found);
        assert_int_equal(found.count, cases[i].found);
        assert_int_equal(counts.differences[MR_DIFFERENCE_ALTERED], cases[i].found);
    }
    late_since = 9;
}

/* Of two rows that have the same in a column that their events lack. */
static void test_an_event_of_a_table_that_had_the_column(void **state)
{
    (void)state;
    static const struct {
        bool is_copied;
        uint32_t xid; /* of the event; the column came with 9, and the rows' writer was 4 */
        bool has_default, is_withheld;
        bool has_come; /* with an earlier event */
        mr_lsn entered;
        bool is_known; /* that rows have "same" that are older than the column */
        enum mr_difference_kind kind;
        uint32_t found;
    } cases[] = {
        {true, 9, true, .found = 0},
        {true, 10, true, .kind = MR_DIFFERENCE_ALTERED, .found = 2},
        {true, 10, true, .is_known = true, .kind = MR_DIFFERENCE_ALTERED, .found = 2},
        {true, 9, false, .is_known = true, .found = 0},
        {true, 9, false, .kind = MR_DIFFERENCE_UNKNOWN, .found = 2},
        {true, 10, true, .entered = 2, .found = 0},
        {false, 10, true, .found = 0}, /* the row's writer was another one */
        {false, 5, true, .is_withheld = true, .kind = MR_DIFFERENCE_STALE, .found = 2},
        {false, 5, true, .has_come = true, .kind = MR_DIFFERENCE_STALE, .found = 2},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_fold *fold =
            mr_fold_new(&(struct mr_fold_options){.has_key = true, .entered = cases[i].entered});
        struct found found;
        struct mr_verify_large room;
        late_has_default = cases[i].has_default;
        if (cases[i].has_come) {
            add_late_event(fold, "c", "c", "same", false);
            add_late_row(fold, "c", 5, "c", "same");
        }
        for (int k = 0; k < 2; k++) {
            const char *key = k == 0 ? "a" : "b";
            struct mr_verify_row of = late_row(key, NULL, &room);
            struct mr_verify_large value;
            (void)late_row(key, "same", &value);
            room.is_withheld = cases[i].is_withheld;
            room.is_known = cases[i].is_known;
            room.digest = cases[i].is_known ? value.digest : room.digest;
            next++;
            const struct mr_fold_event event = {
                .record = {.place = {.commit_lsn = 1, .order = next << 4},
                           .offset = 1,
                           .xid = cases[i].xid},
                .key = digest(key),
                .row = &of,
                .is_copied = cases[i].is_copied};
            assert_int_equal(mr_fold_add_event(fold, &event, NULL), MR_OK);
            add_late_row(fold, key, 4, key, "same");
        }
        struct mr_cut cut = cut_at(1000);
        cut.before = 8;
        struct mr_fold_counts counts = compare_chunks(fold, &cut, 1, &found);
        assert_int_equal(found.count, cases[i].found);
        assert_int_equal(counts.differences[cases[i].kind], cases[i].found);
        bool is_unknown = cases[i].kind == MR_DIFFERENCE_UNKNOWN;
        assert_int_equal(counts.undefaulted, is_unknown ? cases[i].found : 0);
    }
    late_has_default = true;
}

/* Each digit is a row's value of a late column, which the row's event lacks, or (a letter) has. */
static struct mr_fold_counts compare_late(const char *rows, const char *wrong, bool has_key,
                                          struct found *found)
{
    struct mr_fold *fold = new_fold(has_key);
    for (size_t i = 0; rows[i] != '\0'; i++) {
        const char key[] = {'k', (char)('0' + i), '\0'};
        const char late[] = {rows[i], '\0'};
        bool lacks = rows[i] <= '9';
        bool is_wrong = wrong != NULL && strchr(wrong, rows[i]) != NULL;
        add_late_event(fold, key, key, lacks ? NULL : late, false);
        add_late_row(fold, key, 5, is_wrong ? "wrong" : key, late);
    }
    if (!has_key) { /* a row from before the column goes */
        add_late_event(fold, "gone", "gone", NULL, false);
        add_late_event(fold, "gone", "gone", rows, true);
    }
    return fold_test_compare(fold, found);
}

static void test_late_columns(void **state)
{
    (void)state;
    static const struct {
        const char *rows, *wrong;
        uint32_t found, alone;
    } cases[] =
        {
            {"111", NULL, 0, 0},    {"111xy", NULL, 0, 0}, {"1121", NULL, 1, 0},
            {"11122x", NULL, 2, 0}, {"111xy", "x", 1, 0},  {"1", NULL, 0, 0},
            {"11x1y", NULL, 1, 0}, /* the column was there already */
        };
    struct found found;
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_fold_counts counts = compare_late(cases[i].rows, cases[i].wrong, true, &found);
        assert_int_equal(found.count, cases[i].found);
        assert_int_equal(counts.differences[MR_DIFFERENCE_ALTERED], cases[i].found);
        assert_int_equal(counts.alone,
                         0); /* their events are of the transactions that wrote them */
    }
    struct mr_fold *fold = new_fold(true);
    add_late_event(fold, "a", "1", NULL, false);
    add_late_row(fold, "a", 4, "1", "x");
    assert_int_equal(fold_test_compare(fold, &found).alone, 1);
    assert_int_equal(found.count, 0);
    compare_late("11", NULL, false, &found);
    assert_int_equal(found.count, 2); /* "gone" came with "1", as the others, and went with "11" */
    compare_late("1", NULL, false, &found);
    assert_int_equal(found.count, 0);
}

/* Of rows without a key: the values of a column that was renamed are not known, and what else
 * differs is found. */
static void test_a_renamed_column_of_rows_without_a_key(void **state)
{
    (void)state;
    struct found found;
    for (int is_wrong = 0; is_wrong < 2; is_wrong++) {
        struct mr_fold *fold = new_fold(false);
        for (int i = 0; i < 4; i++) {
            const char late[] = {(char)('a' + i % 3), '\0'};
            struct mr_verify_large room;
            struct mr_verify_row of = late_row("same", NULL, &room);
            of.is_older = true;
            const struct mr_fold_event event = {
                .record = {.place = {.commit_lsn = 1, .order = ++next << 4}, .xid = 5}, .row = &of};
            assert_int_equal(mr_fold_add_event(fold, &event, NULL), MR_OK);
            add_late_row(fold, "", 5, is_wrong != 0 && i == 3 ? "other" : "same", late);
        }
        struct mr_fold_counts counts = fold_test_compare(fold, &found);
        assert_int_equal(counts.older > 0, is_wrong == 0);
        assert_int_equal(found.count > 0, is_wrong != 0);
    }
}

static void fold_test_add_events(struct mr_fold *fold, const char *key, const char *values,
                                 const char *xids)
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
        struct mr_fold *fold = new_fold(true);
        struct found found;
        fold_test_add_events(fold, "a", cases[i].values, cases[i].xids);
        if (cases[i].chunk >= 0) {
            chunk = (uint32_t)cases[i].chunk;
            fold_test_add_row(fold, "a", 5, cases[i].row);
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
    struct mr_fold *fold = new_fold(true);
    struct found found;
    for (int i = 0; i < 2 * MANY; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", i < MANY ? i : 0);
        add_event(fold, key, "1", "large");
    }
    for (int i = 0; i < MANY; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", i);
        fold_test_add_row(fold, key, 5, i == 4711 ? "2" : "1");
    }
    struct mr_fold_counts counts = fold_test_compare(fold, &found);
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
        cmocka_unit_test(test_a_delete_and_its_tombstone),
        cmocka_unit_test(test_a_tombstone_is_not_due),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_rows_without_a_key_are_counted),
        cmocka_unit_test(test_repeats_of_rows_without_a_key),
        cmocka_unit_test(test_late_columns),
        cmocka_unit_test(test_an_event_of_a_table_that_had_the_column),
        cmocka_unit_test(test_a_column_that_was_withheld),
        cmocka_unit_test(test_a_renamed_column_of_rows_without_a_key),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_compare_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
