#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "copy/copy_plan.h"

static char schema[] = "public", name[] = "t";
static const struct mr_relation relations[3] = {
    {.schema = schema, .table = name},
    {.schema = schema, .table = name},
    {.schema = schema, .table = name},
};

/* A table of a thousand pages, a small one and an empty one. */
static const struct mr_copy_table tables[] = {
    {.relation = &relations[0],
     .oid = 30,
     .filenode = 31,
     .pages = 1000,
     .bytes = 1000 * 8192,
     .rows = 5000,
     .may_resume = true},
    {.relation = &relations[1], .oid = 20, .filenode = 21, .pages = 1, .bytes = 8192},
    {.relation = &relations[2], .oid = 10, .filenode = 11},
};

static struct mr_copy_plan *copy_plan_test_make_plan(struct mr_copy *copy,
                                                     const struct mr_copy_stored *resumed,
                                                     uint32_t workers)
{
    *copy = (struct mr_copy){
        .lsn = 100,
        .attempt = 1,
        .tables = tables,
        .table_count = MR_ARRAY_LEN(tables),
        .resumed = resumed,
    };
    uint32_t *order = MR_NEW_ARRAY(uint32_t, MR_ARRAY_LEN(tables));
    for (uint32_t i = 0; i < MR_ARRAY_LEN(tables); i++) {
        order[i] = i;
    }
    return mr_copy_plan_new(copy, order, MR_ARRAY_LEN(tables), workers);
}

/* The pieces of a table follow each other without gap or overlap, and only the last has no end. */
static void test_take_covers_each_table_once(void **state)
{
    (void)state;
    for (uint32_t workers = 1; workers <= 16; workers++) {
        struct mr_copy copy;
        struct mr_copy_plan *plan = copy_plan_test_make_plan(&copy, NULL, workers);
        struct mr_copy_piece piece;
        uint32_t table = 0;
        uint32_t pieces = 0;
        uint64_t next = 0;
        uint64_t bytes = 0;
        bool ended = false;
        while (mr_copy_plan_take(plan, 0, &piece)) {
            if (piece.table != table) {
                assert_true(ended);
                table++;
                next = 0;
                ended = false;
            }
            assert_int_equal(piece.table, table);
            assert_false(ended);
            assert_int_equal(piece.range.after, next);
            next = mr_copy_place(piece.range.end, 0);
            ended = piece.range.end == MR_COPY_NO_END;
            bytes += piece.bytes;
            pieces++;
        }
        assert_true(ended && table == 2);
        assert_true(workers == 1 ? pieces == 3 : pieces >= 9);
        assert_int_equal(bytes, 1001 * 8192);
        mr_copy_plan_free(plan);
    }
}

static void copy_plan_test_take(struct mr_copy_plan *plan, uint32_t lane, uint32_t count)
{
    struct mr_copy_piece piece;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(mr_copy_plan_take(plan, lane, &piece));
    }
}

/* A batch of that lane has brought so much, and is safe. */
static void progress(struct mr_copy_plan *plan, uint32_t lane, struct mr_copied copied)
{
    static uint64_t step;
    copied.step = ++step;
    mr_copy_plan_note(plan, lane, copied);
    mr_copy_plan_safe(plan, lane, step);
}

/* What is not with the sink is what the next attempt takes, and nothing else. */
static void test_state_says_what_is_left(void **state)
{
    (void)state;
    struct mr_copy copy;
    struct mr_copy_plan *plan = copy_plan_test_make_plan(&copy, NULL, 2); /* pieces of 128 pages */
    copy_plan_test_take(plan, 0, 1);                                      /* 0 to 127 */
    copy_plan_test_take(plan, 1, 1);                                      /* 128 to 255 */
    struct mr_copy_stored *stored = mr_copy_plan_state(plan, 0);
    assert_true(stored->done_count == 0 && stored->part_count == 0); /* nothing is safe */
    mr_copy_stored_free(stored);

    copy_plan_test_take(plan, 0, 1); /* 256 to 383 */
    progress(plan, 0, (struct mr_copied){.pieces = 1, .place = mr_copy_place(300, 7)});
    progress(plan, 1, (struct mr_copied){.place = mr_copy_place(200, 1)});
    stored = mr_copy_plan_state(plan, 5);
    assert_int_equal(stored->rows, 5);
    const struct mr_copy_part *part = mr_copy_stored_part(stored, 30);
    assert_non_null(part);
    assert_int_equal(part->filenode, 31);
    assert_int_equal(part->range_count, 3);
    assert_true(part->ranges[0].after == mr_copy_place(300, 7) && part->ranges[0].end == 384);
    assert_true(part->ranges[1].after == mr_copy_place(200, 1) && part->ranges[1].end == 256);
    assert_true(part->ranges[2].after == mr_copy_place(384, 0) &&
                part->ranges[2].end == MR_COPY_NO_END);
    mr_copy_plan_free(plan);

    plan = copy_plan_test_make_plan(&copy, stored, 1);
    struct mr_copy_stats totals = mr_copy_plan_totals(plan, 0);
    assert_int_equal(totals.tables - totals.tables_done, 3);
    assert_int_equal(totals.bytes_total - totals.bytes, (84 + 56 + 616 + 1) * 8192);
    copy_plan_test_take(plan, 0, 5); /* three ranges and two tables */
    struct mr_copy_piece piece;
    assert_false(mr_copy_plan_take(plan, 0, &piece));
    progress(plan, 0, (struct mr_copied){.pieces = 4});
    struct mr_copy_stored *second = mr_copy_plan_state(plan, 0);
    assert_true(mr_copy_stored_is_done(second, 30) && mr_copy_stored_is_done(second, 20));
    assert_int_equal(second->done_count, 2);
    assert_int_equal(second->part_count, 0); /* of the third nothing is known to be read */
    mr_copy_plan_free(plan);
    mr_copy_stored_free(stored);

    plan = copy_plan_test_make_plan(&copy, second, 4);
    totals = mr_copy_plan_totals(plan, 0);
    assert_int_equal(totals.tables - totals.tables_done, 1);
    copy_plan_test_take(plan, 0, 1);
    assert_false(mr_copy_plan_take(plan, 0, &piece));
    progress(plan, 0, (struct mr_copied){.pieces = 1});
    struct mr_copy_stored *third = mr_copy_plan_state(plan, 0);
    assert_int_equal(third->done_count, 3);
    mr_copy_plan_free(plan);
    mr_copy_stored_free(second);
    mr_copy_stored_free(third);
}

/* A lane's last batch stays the earlier plan's until the next one hands over, and the sink thread
 * looks at it meanwhile. */
static void test_progress_of_an_earlier_plan_says_nothing(void **state)
{
    (void)state;
    struct mr_copy copy;
    struct mr_copy_plan *plan = copy_plan_test_make_plan(&copy, NULL, 2);
    copy_plan_test_take(plan, 0, 2);
    mr_copy_plan_safe(plan, 0, 7); /* of the plan before */
    mr_copy_plan_note(plan, 0, (struct mr_copied){.step = 8, .pieces = 1});
    mr_copy_plan_note(plan, 0,
                      (struct mr_copied){.step = 9, .pieces = 1, .place = mr_copy_place(200, 3)});
    mr_copy_plan_safe(plan, 0, 7);
    struct mr_copy_stored *stored = mr_copy_plan_state(plan, 0);
    assert_int_equal(stored->part_count, 0);
    mr_copy_stored_free(stored);
    mr_copy_plan_safe(plan, 0, 8);
    mr_copy_plan_safe(plan, 0, 8); /* nothing twice */
    stored = mr_copy_plan_state(plan, 0);
    assert_int_equal(mr_copy_stored_part(stored, 30)->ranges[0].after, mr_copy_place(128, 0));
    mr_copy_stored_free(stored);
    mr_copy_plan_safe(plan, 0, 99);
    stored = mr_copy_plan_state(plan, 0);
    assert_int_equal(mr_copy_stored_part(stored, 30)->ranges[0].after, mr_copy_place(200, 3));
    mr_copy_stored_free(stored);
    mr_copy_plan_free(plan);
}

/* Its rows are elsewhere now. */
static void test_a_new_file_is_read_from_its_beginning(void **state)
{
    (void)state;
    struct mr_copy_range range = {.after = mr_copy_place(900, 1), .end = MR_COPY_NO_END};
    struct mr_copy_part part = {.oid = 30, .filenode = 30, .ranges = &range, .range_count = 1};
    struct mr_copy_stored stored = {.lsn = 100, .parts = &part, .part_count = 1};
    struct mr_copy copy;
    struct mr_copy_piece piece;
    struct mr_copy_plan *plan = copy_plan_test_make_plan(&copy, &stored, 1);
    assert_true(mr_copy_plan_take(plan, 0, &piece));
    assert_int_equal(piece.range.after, 0);
    mr_copy_plan_free(plan);
    part.filenode = 31;
    plan = copy_plan_test_make_plan(&copy, &stored, 1);
    assert_true(mr_copy_plan_take(plan, 0, &piece));
    assert_int_equal(piece.range.after, mr_copy_place(900, 1));
    mr_copy_plan_free(plan);
}

/* What is under way comes first, then what waits, then what is done; an earlier attempt's part
 * counts as read, but not for the rate. */
static void test_progress_of_each_table(void **state)
{
    (void)state;
    struct mr_copy_range left[] = {{.after = mr_copy_place(600, 7), .end = MR_COPY_NO_END}};
    struct mr_copy_part part = {.oid = 30, .filenode = 31, .ranges = left, .range_count = 1};
    uint32_t done[] = {10};
    struct mr_copy_stored resumed = {
        .lsn = 100, .attempt = 1, .done = done, .done_count = 1, .parts = &part, .part_count = 1};
    struct mr_copy copy;
    struct mr_copy_plan *plan = copy_plan_test_make_plan(&copy, &resumed, 1);
    struct mr_copy_table_stats stats[4];
    assert_int_equal(mr_copy_plan_progress(plan, stats, MR_ARRAY_LEN(stats)), 3);
    assert_int_equal(stats[0].state, MR_COPY_TABLE_WAITS);
    assert_int_equal(stats[0].bytes, 600 * 8192);
    assert_int_equal(stats[1].state, MR_COPY_TABLE_WAITS);
    assert_int_equal(stats[2].state, MR_COPY_TABLE_DONE);
    assert_true(stats[2].seconds_left == 0);

    struct mr_copy_piece piece;
    assert_true(mr_copy_plan_take(plan, 0, &piece));
    assert_int_equal(piece.bytes, 400 * 8192);
    assert_int_equal(mr_copy_plan_progress(plan, stats, 1), 1);
    assert_int_equal(stats[0].state, MR_COPY_TABLE_READ);
    assert_true(stats[0].seconds_left != stats[0].seconds_left); /* nothing is read yet */
    mr_copy_plan_told(plan, 0, 256, 100 * 8192);
    mr_copy_plan_progress(plan, stats, 1);
    assert_string_equal(stats[0].table, "public.t");
    assert_int_equal(stats[0].rows, 256);
    assert_int_equal(stats[0].rows_estimated, 5000);
    assert_int_equal(mr_copy_percent(stats[0].bytes, stats[0].bytes_total), 70);
    assert_true(stats[0].seconds_left >= 0);
    assert_true(mr_copy_seconds_left(700, 600, 1000, 10) == 30);
    assert_true(mr_copy_seconds_left(1100, 600, 1000, 10) == 0);

    uint64_t rows;
    mr_copy_plan_told(plan, 0, 44, 300 * 8192);
    assert_true(mr_copy_plan_piece_read(plan, 0, 300, &rows));
    assert_int_equal(mr_copy_plan_progress(plan, stats, MR_ARRAY_LEN(stats)), 3);
    assert_int_equal(stats[0].state, MR_COPY_TABLE_WAITS); /* the next */
    assert_int_equal(stats[1].state, MR_COPY_TABLE_DONE);
    assert_int_equal(stats[1].rows, 300);
    assert_int_equal(mr_copy_percent(stats[1].bytes, stats[1].bytes_total), 100);
    mr_copy_plan_free(plan);
}

/* Partitions that are one table in the stream have one first row and one last. */
static void test_marks_are_of_a_relation(void **state)
{
    (void)state;
    const struct mr_copy_table leaves[] = {
        {.relation = &relations[0], .oid = 1},
        {.relation = &relations[1], .oid = 2},
        {.relation = &relations[1], .oid = 3},
    };
    struct mr_copy copy = {.lsn = 100, .attempt = 1, .tables = leaves, .table_count = 3};
    uint32_t *order = MR_NEW_ARRAY(uint32_t, 3);
    memcpy(order, (uint32_t[]){1, 2, 0}, 3 * sizeof(uint32_t));
    struct mr_copy_plan *plan = mr_copy_plan_new(&copy, order, 3, 1);
    struct mr_copy_piece piece;
    uint64_t rows;
    assert_true(mr_copy_plan_take(plan, 0, &piece));
    assert_true(piece.table == 1 && piece.head == 1);
    assert_int_equal(plan->tables[1].all_pieces, 2);
    mr_copy_plan_hold(plan, piece.head);
    assert_true(mr_copy_plan_piece_read(plan, 1, 5, &rows));
    assert_false(mr_copy_plan_is_last(plan, 1)); /* the other partition is unread */
    pthread_mutex_lock(&plan->rows);
    assert_false(mr_copy_plan_settled(plan, 1));
    pthread_mutex_unlock(&plan->rows);
    assert_true(mr_copy_plan_take(plan, 0, &piece));
    assert_true(piece.table == 2 && piece.head == 1);
    assert_true(mr_copy_plan_piece_read(plan, 2, 7, &rows));
    assert_int_equal(rows, 7);
    pthread_mutex_lock(&plan->rows);
    assert_true(mr_copy_plan_settled(plan, 1) && mr_copy_plan_is_last(plan, 1));
    mr_copy_plan_let_go(plan, 1);
    pthread_mutex_unlock(&plan->rows);
    assert_true(mr_copy_plan_take(plan, 0, &piece));
    assert_true(piece.table == 0 && piece.head == 0);
    mr_copy_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests_of_plans[] = {
        cmocka_unit_test(test_marks_are_of_a_relation),
        cmocka_unit_test(test_take_covers_each_table_once),
        cmocka_unit_test(test_state_says_what_is_left),
        cmocka_unit_test(test_progress_of_an_earlier_plan_says_nothing),
        cmocka_unit_test(test_a_new_file_is_read_from_its_beginning),
        cmocka_unit_test(test_progress_of_each_table),
    };
    return cmocka_run_group_tests(tests_of_plans, NULL, NULL);
}
