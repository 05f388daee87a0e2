#include "event/checkpoint.h"

#include <string.h>

#include "testing/test.h"

static const struct mr_checkpoint stored = {
    .identity = {.system_id = "7000", .timeline = 2, .slot = "s", .publication = "p"},
    .end_lsn = 1000,
};

static struct mr_server_position server(void)
{
    return (struct mr_server_position){
        .identity = stored.identity, .slot_exists = true, .slot_confirmed = 900, .flushed = 2000};
}

static void assert_refused(const struct mr_server_position *position, const char *part)
{
    struct mr_error error = {0};
    assert_int_equal(mr_checkpoint_verify(&stored, position, &error), MR_ERR_HISTORY);
    assert_non_null(strstr(error.text, part));
    assert_non_null(strstr(error.text, "state_name"));
}

static void test_goes_on(void **state)
{
    (void)state;
    struct mr_error error;
    struct mr_server_position now = server();
    assert_int_equal(mr_checkpoint_verify(&stored, &now, &error), MR_OK);
    now.slot_confirmed = 1000; /* both ends may touch */
    now.flushed = 1000;
    assert_int_equal(mr_checkpoint_verify(&stored, &now, &error), MR_OK);
    now.identity.timeline = 3; /* promoted behind what was delivered */
    now.switched_at = 1000;
    assert_int_equal(mr_checkpoint_verify(&stored, &now, &error), MR_OK);
}

static void test_refusals(void **state)
{
    (void)state;
    struct mr_server_position now = server();
    strcpy(now.identity.system_id, "7001");
    assert_refused(&now, "another PostgreSQL cluster");
    now = server();
    now.identity.timeline = 1;
    assert_refused(&now, "timeline");
    now = server();
    now.identity.timeline = 3;
    now.switched_at = 999;
    assert_refused(&now, "delivered events the new primary does not have");
    now.switched_at = 1000;
    now.slot_exists = false;
    assert_refused(&now, "not on the promoted server");
    now = server();
    now.flushed = 999;
    assert_refused(&now, "WAL ends at 0/3E7");
    now = server();
    now.slot_exists = false;
    assert_refused(&now, "slot \"s\" is gone");
    now = server();
    now.slot_confirmed = 1001;
    assert_refused(&now, "moved by somebody else");
}

/* Part of a transaction is delivered, or all of it without the stored position having moved. */
static void test_begun_transaction(void **state)
{
    (void)state;
    struct mr_checkpoint begun = stored;
    begun.position = (struct mr_position){.commit_lsn = 1500, .ordinal = 3};
    struct mr_server_position now = server();
    struct mr_error error = {0};
    assert_int_equal(mr_checkpoint_verify(&begun, &now, &error), MR_OK);
    now.flushed = 1499;
    assert_int_equal(mr_checkpoint_verify(&begun, &now, &error), MR_ERR_HISTORY);
    assert_non_null(strstr(error.text, "up to 0/5DC were delivered"));
    now = server();
    now.identity.timeline = 3;
    now.switched_at = 1500; /* the commit record would begin there */
    assert_int_equal(mr_checkpoint_verify(&begun, &now, &error), MR_ERR_HISTORY);
    assert_non_null(strstr(error.text, "does not have"));
    now.switched_at = 1501;
    assert_int_equal(mr_checkpoint_verify(&begun, &now, &error), MR_OK);
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
    assert_int_equal(mr_checkpoint_verify(&message, &now, &error), MR_OK);
    now.identity.timeline = 3;
    now.switched_at = 1500;
    assert_int_equal(mr_checkpoint_verify(&message, &now, &error), MR_OK);
    now.switched_at = 1499;
    assert_int_equal(mr_checkpoint_verify(&message, &now, &error), MR_ERR_HISTORY);
    now = server();
    now.flushed = 1499;
    assert_int_equal(mr_checkpoint_verify(&message, &now, &error), MR_ERR_HISTORY);
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
    struct mr_asked_stored earlier = {.step = 3};
    struct mr_asked_stored later = {.step = 4};
    struct mr_checkpoint known = next;
    next.asked = &later;
    assert_false(mr_checkpoint_is_behind(&next, &known));
    assert_true(mr_checkpoint_is_behind(&known, &next));
    known.asked = &earlier;
    assert_true(mr_checkpoint_is_behind(&known, &next));
    next.end_lsn = 1;
    strcpy(next.identity.system_id, "7001");
    assert_false(mr_checkpoint_is_behind(&next, &stored));
}

/* A copy that begins over a stream is further than that, and the stream behind it further still. */
static void test_a_copy_is_further_than_the_stream_before_it(void **state)
{
    (void)state;
    struct mr_copy_stored begun = {.lsn = 1500, .attempt = 1, .step = 1};
    struct mr_copy_stored later = {.lsn = 1500, .attempt = 2, .step = 1};
    const struct mr_checkpoint copies[] = {
        stored,
        {.identity = stored.identity, .end_lsn = 1000, .copy = &begun},
        {.identity = stored.identity, .end_lsn = 0, .copy = &later},
        {.identity = stored.identity, .end_lsn = 1500},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(copies); i++) {
        for (size_t k = 0; k < MR_ARRAY_LEN(copies); k++) {
            assert_int_equal(mr_checkpoint_is_behind(&copies[i], &copies[k]), i < k);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_begun_transaction),
        cmocka_unit_test(test_message_delivered),
        cmocka_unit_test(test_furthest_counts),
        cmocka_unit_test(test_a_copy_is_further_than_the_stream_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
