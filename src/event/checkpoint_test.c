#include "event/checkpoint.h"

#include <string.h>

#include "testing/test.h"

static const struct mr_checkpoint stored = {
    .identity = {.system_id = "7000", .timeline = 2, .slot = "s", .publication = "p"},
    .end_lsn = 1000,
};

static struct mr_checkpoint with_rank(mr_lsn end_lsn, const struct mr_section_rank *rank)
{
    struct mr_checkpoint checkpoint = {.identity = stored.identity, .end_lsn = end_lsn};
    mr_checkpoint_add(&checkpoint, "section", NULL, rank);
    return checkpoint;
}

static struct mr_server_position server(void)
{
    return (struct mr_server_position){
        .identity = stored.identity, .slot_exists = true, .slot_confirmed = 900, .flushed = 2000};
}

static void checkpoint_test_assert_refused(const struct mr_server_position *position,
                                           const char *part)
{
    struct mr_error error = {0};
    assert_int_equal(mr_checkpoint_verify(&stored, position, 0, &error), MR_ERR_HISTORY);
    assert_non_null(strstr(error.text, part));
    assert_non_null(strstr(error.text, "1. ")); /* what to do */
}

static void test_goes_on(void **state)
{
    (void)state;
    struct mr_error error;
    struct mr_server_position now = server();
    assert_int_equal(mr_checkpoint_verify(&stored, &now, 0, &error), MR_OK);
    now.slot_confirmed = 1000; /* both ends may touch */
    now.flushed = 1000;
    assert_int_equal(mr_checkpoint_verify(&stored, &now, 0, &error), MR_OK);
    now.identity.timeline = 3; /* promoted after what was delivered */
    now.switched_at = 1000;
    assert_int_equal(mr_checkpoint_verify(&stored, &now, 0, &error), MR_OK);
}

static void test_refusals(void **state)
{
    (void)state;
    struct mr_server_position now = server();
    strcpy(now.identity.system_id, "7001");
    checkpoint_test_assert_refused(&now, "another PostgreSQL cluster");
    now = server();
    now.identity.timeline = 1;
    checkpoint_test_assert_refused(&now, "timeline");
    now = server();
    now.identity.timeline = 3;
    now.switched_at = 999;
    checkpoint_test_assert_refused(&now, "delivered events the new primary does not have");
    now.switched_at = 1000;
    now.slot_exists = false;
    checkpoint_test_assert_refused(&now, "not on the promoted server");
    now = server();
    now.flushed = 999;
    checkpoint_test_assert_refused(&now, "WAL ends at 0/3E7");
    now = server();
    now.slot_exists = false;
    checkpoint_test_assert_refused(&now, "slot \"s\" is gone");
    now = server();
    now.slot_confirmed = 1001;
    checkpoint_test_assert_refused(&now, "moved by somebody else");
}

/* The stream came from a standby, and went on while that was promoted. */
static void test_standby_that_was_promoted(void **state)
{
    (void)state;
    struct mr_checkpoint of_standby = stored;
    of_standby.identity.is_standby = true;
    struct mr_server_position now = server();
    now.identity.timeline = 3;
    now.switched_at = 999;
    struct mr_error error = {0};
    /* The slot is before the place, and no transaction is stored that could be compared. */
    assert_int_equal(mr_checkpoint_verify(&of_standby, &now, 0, &error), MR_ERR_HISTORY);
    now.slot_confirmed = 1000; /* by us, on this server */
    assert_int_equal(mr_checkpoint_verify(&of_standby, &now, 0, &error), MR_OK);
    now.slot_confirmed = 1001;
    assert_int_equal(mr_checkpoint_verify(&of_standby, &now, 0, &error), MR_ERR_HISTORY);
    now.slot_confirmed = 900;
    of_standby.last = mr_identity_no_commit(&of_standby.identity);
    assert_int_equal(mr_checkpoint_verify(&of_standby, &now, 0, &error), MR_OK);
    of_standby.last.asked++; /* of another publication */
    assert_int_equal(mr_checkpoint_verify(&of_standby, &now, 0, &error), MR_ERR_HISTORY);
    now.slot_confirmed = 1000;
    now.slot_exists = false;
    assert_int_equal(mr_checkpoint_verify(&of_standby, &now, 0, &error), MR_ERR_HISTORY);
}

/* It has just started, and reads its log from its last restart point on. */
static void test_standby_that_has_not_followed_yet(void **state)
{
    (void)state;
    struct mr_server_position now = server();
    now.identity.is_standby = true;
    struct mr_error error = {0};
    assert_int_equal(mr_checkpoint_verify(&stored, &now, 0, &error), MR_OK);
    now.flushed = 999;
    assert_int_equal(mr_checkpoint_verify(&stored, &now, 0, &error), MR_ERR_TRANSIENT);
    assert_non_null(strstr(error.text, "waiting until it has followed"));
    now = server();
    now.identity.is_standby = true;
    now.identity.timeline = 1;
    assert_int_equal(mr_checkpoint_verify(&stored, &now, 0, &error), MR_ERR_TRANSIENT);
    now.identity.timeline = 3; /* the primary that it follows now left ours before */
    now.switched_at = 999;
    assert_int_equal(mr_checkpoint_verify(&stored, &now, 0, &error), MR_ERR_HISTORY);
}

/* Part of a transaction is delivered, or all of it without the stored position having moved. */
static void test_begun_transaction(void **state)
{
    (void)state;
    struct mr_checkpoint begun = stored;
    begun.position = (struct mr_position){.commit_lsn = 1500, .ordinal = 3};
    struct mr_server_position now = server();
    struct mr_error error = {0};
    assert_int_equal(mr_checkpoint_verify(&begun, &now, 0, &error), MR_OK);
    now.flushed = 1499;
    assert_int_equal(mr_checkpoint_verify(&begun, &now, 0, &error), MR_ERR_HISTORY);
    assert_non_null(strstr(error.text, "up to 0/5DC were delivered"));
    now = server();
    now.identity.timeline = 3;
    now.switched_at = 1500; /* the commit record would begin there */
    assert_int_equal(mr_checkpoint_verify(&begun, &now, 0, &error), MR_ERR_HISTORY);
    assert_non_null(strstr(error.text, "does not have"));
    now.switched_at = 1501;
    assert_int_equal(mr_checkpoint_verify(&begun, &now, 0, &error), MR_OK);
}

/* A message outside transactions is the last that was delivered: its record ends at its LSN. */
static void test_message_delivered(void **state)
{
    (void)state;
    struct mr_checkpoint message = stored;
    message.position = (struct mr_position){.commit_lsn = 1500, .ordinal = 0};
    struct mr_server_position now = server();
    struct mr_error error = {0};
    now.flushed = 1500;
    assert_int_equal(mr_checkpoint_verify(&message, &now, 0, &error), MR_OK);
    now.identity.timeline = 3;
    now.switched_at = 1500;
    assert_int_equal(mr_checkpoint_verify(&message, &now, 0, &error), MR_OK);
    now.switched_at = 1499;
    assert_int_equal(mr_checkpoint_verify(&message, &now, 0, &error), MR_ERR_HISTORY);
    now = server();
    now.flushed = 1499;
    assert_int_equal(mr_checkpoint_verify(&message, &now, 0, &error), MR_ERR_HISTORY);
    assert_non_null(strstr(error.text, "up to 0/5DC were delivered"));
}

static void test_furthest_counts(void **state)
{
    (void)state;
    struct mr_checkpoint next = stored;
    assert_false(mr_checkpoint_is_behind(&next, &stored));
    next.end_lsn = 999;
    assert_true(mr_checkpoint_is_behind(&next, &stored));
    assert_false(mr_checkpoint_is_behind(&stored, &next));
    next.identity.timeline = 3; /* promoted there */
    assert_false(mr_checkpoint_is_behind(&next, &stored));
    assert_true(mr_checkpoint_is_behind(&stored, &next));
    next = stored;
    next.position = (struct mr_position){.commit_lsn = 1500, .ordinal = 3};
    assert_false(mr_checkpoint_is_behind(&next, &stored));
    assert_true(mr_checkpoint_is_behind(&stored, &next));
    struct mr_checkpoint known = next;
    mr_checkpoint_add(&next, "steps", NULL, &(struct mr_section_rank){.minor = 4});
    assert_false(mr_checkpoint_is_behind(&next, &known));
    assert_true(mr_checkpoint_is_behind(&known, &next));
    mr_checkpoint_add(&known, "steps", NULL, &(struct mr_section_rank){.minor = 3});
    assert_true(mr_checkpoint_is_behind(&known, &next));
    assert_false(mr_checkpoint_is_behind(&next, &known));
    next.end_lsn = 1;
    strcpy(next.identity.system_id, "7001");
    assert_false(mr_checkpoint_is_behind(&next, &stored));
}

/* A copy that begins over a stream is further than that, and the stream after it further still. */
static void test_a_copy_is_further_than_the_stream_before_it(void **state)
{
    (void)state;
    const struct mr_checkpoint copies[] = {
        stored,
        with_rank(1000, &(struct mr_section_rank){.begins = 1500, .major = 1, .minor = 2}),
        with_rank(0, &(struct mr_section_rank){.begins = 1500, .major = 2, .minor = 1}),
        with_rank(0, &(struct mr_section_rank){.begins = 1500, .major = 2, .minor = 2}),
        {.identity = stored.identity, .end_lsn = 1500},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(copies); i++) {
        for (size_t k = 0; k < MR_ARRAY_LEN(copies); k++) {
            assert_int_equal(mr_checkpoint_is_behind(&copies[i], &copies[k]), i < k);
        }
    }
}

/* May a stream begin here, or go on? The table of docs/reliability.md, as far as what is stored and
 * the server decide; "": yes. */
static void test_where_a_stream_may_begin(void **state)
{
    (void)state;
    const struct mr_section_rank rank = {.begins = 1500, .major = 1};
    struct mr_checkpoint over = with_rank(stored.end_lsn, &rank); /* a copy over a stream, … */
    struct mr_checkpoint first = with_rank(0, &rank);             /* the first one, … */
    struct mr_checkpoint only = first; /* and one that no stream is to follow */
    mr_checkpoint_add(&only, "only", NULL, &(struct mr_section_rank){.no_stream = true});
    enum { NO_SLOT = -1 };
    const struct {
        const struct mr_checkpoint *stored;
        int64_t slot; /* where it stands */
        bool has_copy_slot;
        mr_lsn handed_over;
        const char *refused;
    } cases[] = {
        {NULL, NO_SLOT, false, 0, ""},
        {NULL, 900, false, 0, ""}, /* whether it is adopted, pg_setup.c decides */
        {NULL, NO_SLOT, true, 0, "snapshot.mode = \"initial\""},
        {NULL, 900, true, 0, ""},
        {NULL, NO_SLOT, false, 1200, "Debezium's offset ends"},
        {NULL, 1200, false, 1200, ""},
        {NULL, 1201, false, 1200, "the rows between are missing"},
        {&stored, NO_SLOT, false, 0, "is gone"},
        {&stored, NO_SLOT, true, 0, "is gone"},
        {&stored, 1000, true, 0, ""},
        {&stored, 1001, false, 0, "moved by somebody else"},
        {&stored, NO_SLOT, false, 1200, "is gone"},
        {&over, NO_SLOT, true, 0, "is gone"},
        {&over, NO_SLOT, false, 0, "is gone"},
        {&over, 1600, false, 0, "moved by somebody else"},
        {&over, 1000, false, 0, ""},
        {&first, NO_SLOT, true, 0, "is not complete"},
        {&first, NO_SLOT, false, 0, "its slot is gone"},
        {&first, 1501, false, 0, "is not complete"},
        {&first, 1500, false, 0, ""},
        {&only, NO_SLOT, false, 0, ""},
        {&only, NO_SLOT, true, 0, "is not complete"},
        {&only, 1600, false, 0, ""},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_server_position now = server();
        now.slot_exists = cases[i].slot != NO_SLOT;
        now.slot_confirmed = now.slot_exists ? (mr_lsn)cases[i].slot : 0;
        strcpy(now.copy_slot, cases[i].has_copy_slot ? "s_snapshot_1" : "");
        struct mr_error error = {0};
        mr_status status =
            mr_checkpoint_verify(cases[i].stored, &now, cases[i].handed_over, &error);
        assert_int_equal(status, cases[i].refused[0] == '\0' ? MR_OK : MR_ERR_HISTORY);
        assert_non_null(strstr(error.text, cases[i].refused));
    }
}

/* Where copied rows would lie below what consumers have, other topics are the only way. */
static void test_what_to_do_fits_the_server(void **state)
{
    (void)state;
    struct mr_server_position now = server();
    struct mr_error error = {0};
    now.slot_exists = false;
    now.flushed = 1000;
    mr_checkpoint_verify(&stored, &now, 0, &error);
    assert_non_null(strstr(error.text, "or by hand: 1. set snapshot.mode = \"when_needed\""));
    now = server();
    now.flushed = 999;
    mr_checkpoint_verify(&stored, &now, 0, &error);
    assert_non_null(strstr(error.text, "1. run SELECT pg_drop_replication_slot('s') here; 2. set "
                                       "another topic_prefix"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_standby_that_was_promoted),
        cmocka_unit_test(test_standby_that_has_not_followed_yet),
        cmocka_unit_test(test_begun_transaction),
        cmocka_unit_test(test_message_delivered),
        cmocka_unit_test(test_furthest_counts),
        cmocka_unit_test(test_a_copy_is_further_than_the_stream_before_it),
        cmocka_unit_test(test_where_a_stream_may_begin),
        cmocka_unit_test(test_what_to_do_fits_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
