#include "postgres/server/pg_move.h"

#include "testing/test.h"

#define TIB MR_MOVE_GAP

static struct mr_checkpoint left_at(mr_lsn end, uint64_t xid)
{
    return (struct mr_checkpoint){
        .identity = {.system_id = "6", .moved = {.from = "6", .left = end, .xid = xid}},
        .end_lsn = end};
}

/* Positions rise, by whatever is left out of it or added. */
static void test_shift_goes_on_above(void **state)
{
    (void)state;
    static const struct {
        mr_lsn end, shift;
        uint64_t place, xid;
        mr_lsn wanted;
    } cases[] = {
        {1000, 0, 2000, 100, 0},                   /* pg_upgrade goes on */
        {1000, 0, 2000, 99, TIB},                  /* other transactions */
        {1000, 0, 2000, UINT32_MAX, TIB},          /* of another turn */
        {1000, 0, 1000, 100, TIB},                 /* not above */
        {5 * TIB, 0, 1000, 7, 6 * TIB},            /* far below */
        {5 * TIB, 0, 5 * TIB, 7, TIB},             /* just there */
        {5 * TIB, 0, 6 * TIB + 1, 7, 0},           /* far above */
        {5 * TIB, 4 * TIB, TIB + 1, 100, 4 * TIB}, /* moved before, and goes on */
        {5 * TIB, 4 * TIB, TIB - 1, 100, 6 * TIB}, /* moved before, and is below */
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_checkpoint stored = left_at(cases[i].end, 100);
        stored.identity.moved.shift = cases[i].shift;
        struct mr_pg_move_view view = {.next_xid = cases[i].xid};
        mr_lsn shift = mr_pg_move_shift(&stored, &view, cases[i].place);
        assert_true(cases[i].place + shift > cases[i].end);
        assert_int_equal(shift, cases[i].wanted);
        assert_int_equal(shift % TIB, 0);
    }
}

static mr_status verified(const struct mr_checkpoint *stored, const struct mr_pg_move_view *view)
{
    struct mr_error error = {0};
    mr_status status = mr_pg_move_verify(stored, view, &error);
    assert_true((status == MR_OK) == (error.text[0] == '\0'));
    return status;
}

static void test_verify(void **state)
{
    (void)state;
    struct mr_checkpoint fenced = left_at(1000, 100);
    struct mr_checkpoint unfenced = {.end_lsn = 1000};
    struct mr_pg_move_view none = {.version = 180000};
    struct mr_pg_move_view carried = {.slot_is_carried = true,
                                      .next_xid = 100,
                                      .server = {.slot_exists = true, .slot_confirmed = 2000}};
    assert_int_equal(verified(&fenced, &none), MR_OK);
    assert_int_equal(verified(&unfenced, &none), MR_ERR_HISTORY);
    assert_int_equal(verified(&fenced, &carried), MR_OK);
    assert_int_equal(verified(&unfenced, &carried), MR_ERR_HISTORY);
    /* Something was delivered after the fence, or the move is over. */
    struct mr_checkpoint went_on = fenced;
    went_on.end_lsn = 1001;
    assert_int_equal(verified(&went_on, &none), MR_ERR_HISTORY);
    struct mr_checkpoint moved = fenced;
    moved.identity.moved.entered = 1000;
    assert_int_equal(verified(&moved, &none), MR_ERR_HISTORY);
    /* A slot that somebody has made, or one of a cluster that does not go on. */
    struct mr_pg_move_view made = carried;
    made.slot_is_carried = false;
    assert_int_equal(verified(&fenced, &made), MR_ERR_HISTORY);
    struct mr_pg_move_view below = carried;
    below.server.slot_confirmed = 1000;
    assert_int_equal(verified(&fenced, &below), MR_ERR_HISTORY);
    struct mr_pg_move_view anew = carried;
    anew.next_xid = 99;
    assert_int_equal(verified(&fenced, &anew), MR_ERR_HISTORY);
    struct mr_checkpoint in_part = fenced;
    in_part.position = (struct mr_position){.commit_lsn = 1001, .ordinal = 5};
    assert_int_equal(verified(&in_part, &carried), MR_ERR_HISTORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift_goes_on_above),
        cmocka_unit_test(test_verify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
