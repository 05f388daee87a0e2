#include "event/placing.h"

#include "testing/test.h"

#define AT(lsn, change) ((struct mr_position){.commit_lsn = (lsn), .ordinal = (change)})

static struct mr_topic topic = {.name = (char *)"shop.public.orders"};
static struct mr_topic other = {.name = (char *)"shop.public.items"};

static int32_t placing_test_counted(const struct mr_placing *placing, struct mr_position position)
{
    return mr_placing_count(placing, position);
}

/* Stores, and answers what is stored; the caller frees it. */
static char *placing_test_stored(struct mr_placings *placings, mr_lsn end_lsn, mr_lsn server_end)
{
    char *json = mr_placings_format(placings, end_lsn, server_end);
    mr_placings_settle(placings);
    return json;
}

static void test_added_partitions_count_once_that_is_stored(void **state)
{
    (void)state;
    struct mr_placings *placings = mr_placings_new(true);
    const struct mr_placing *placing = mr_placings_see(placings, &topic, 3);
    assert_true(placings->owes);
    free(placing_test_stored(placings, 100, 50));
    assert_false(placings->owes);
    mr_placings_note_sent(placings, AT(200, 5));
    assert_ptr_equal(mr_placings_see(placings, &topic, 5), placing);
    assert_true(placings->owes);
    mr_placings_note_sent(placings, AT(300, 7));
    assert_int_equal(placing_test_counted(placing, AT(300, 7)), 3);
    assert_int_equal(atomic_load(&topic.partitions), 3);
    char *json = mr_placings_format(placings, 100, 50);
    assert_int_equal(placing_test_counted(placing, AT(300, 7)), 3);
    assert_int_equal(placing_test_counted(placing, AT(300, 8)), 0); /* waits */
    assert_int_equal(atomic_load(&topic.partitions), 3);
    mr_placings_settle(placings);
    assert_int_equal(placing_test_counted(placing, AT(300, 7)), 3);
    assert_int_equal(placing_test_counted(placing, AT(300, 8)), 5);
    assert_int_equal(atomic_load(&topic.partitions), 5);
    /* More come while that may still be sent again: they wait until it can't. */
    mr_placings_see(placings, &topic, 9);
    mr_placings_note_sent(placings, AT(400, 1));
    free(placing_test_stored(placings, 300, 50));
    assert_int_equal(placing_test_counted(placing, AT(300, 7)), 3);
    assert_int_equal(placing_test_counted(placing, AT(500, 1)), 5);
    free(placing_test_stored(placings, 301, 50));
    assert_int_equal(placing_test_counted(placing, AT(400, 1)), 5);
    assert_int_equal(placing_test_counted(placing, AT(500, 1)), 9);
    free(json);
    mr_placings_free(placings);
}

/* Killed at any moment, the next process places what comes again as this one did. */
static void test_the_next_process_places_as_this_one(void **state)
{
    (void)state;
    struct mr_placings *first = mr_placings_new(true);
    mr_placings_see(first, &topic, 3);
    char *before = placing_test_stored(first, 100, 50);
    mr_placings_note_sent(first, AT(200, 5));
    mr_placings_see(first, &topic, 5);
    char *after = placing_test_stored(first, 100, 50);
    mr_placings_free(first);
    /* Not stored: none was placed by five. Whoever was first has sent no more than the server
     * had. */
    struct mr_placings *next = mr_placings_new(true);
    mr_placings_take(next, before);
    const struct mr_placing *placing = mr_placings_see(next, &topic, 5);
    assert_int_equal(placing_test_counted(placing, AT(900, 1)), 3);
    mr_placings_note_sent(next, AT(150, 1));
    free(placing_test_stored(next, 100, 1000));
    assert_int_equal(placing_test_counted(placing, AT(900, 1)), 3);
    assert_int_equal(placing_test_counted(placing, AT(1001, 1)), 5);
    mr_placings_free(next);
    /* Stored: they may have been. */
    next = mr_placings_new(true);
    mr_placings_take(next, after);
    placing = mr_placings_see(next, &topic, 5);
    assert_int_equal(placing_test_counted(placing, AT(200, 5)), 3);
    assert_int_equal(placing_test_counted(placing, AT(200, 6)), 5);
    assert_int_equal(atomic_load(&topic.partitions), 5);
    mr_placings_free(next);
    free(before);
    free(after);
}

/* The session that asked is lost: what the next one finds stored counts. */
static void test_what_is_stored_counts(void **state)
{
    (void)state;
    struct mr_placings *placings = mr_placings_new(true);
    const struct mr_placing *placing = mr_placings_see(placings, &topic, 3);
    char *before = placing_test_stored(placings, 100, 50);
    mr_placings_note_sent(placings, AT(200, 5));
    mr_placings_see(placings, &topic, 5);
    char *asked = mr_placings_format(placings, 100, 50);
    mr_placings_take(placings, before);
    assert_int_equal(placing_test_counted(placing, AT(200, 6)), 3);
    mr_placings_note_sent(placings, AT(300, 1));
    free(placing_test_stored(placings, 100, 50)); /* asked once more */
    assert_int_equal(placing_test_counted(placing, AT(300, 1)), 3);
    assert_int_equal(placing_test_counted(placing, AT(300, 2)), 5);
    mr_placings_take(placings, asked);
    assert_int_equal(placing_test_counted(placing, AT(200, 6)), 5);
    mr_placings_free(placings);
    free(before);
    free(asked);
}

static void test_a_topic_that_was_made_anew(void **state)
{
    (void)state;
    struct mr_placings *placings = mr_placings_new(true);
    const struct mr_placing *placing = mr_placings_see(placings, &topic, 6);
    mr_placings_see(placings, &topic, 9);
    char *asked = mr_placings_format(placings, 100, 50);
    mr_placings_see(placings, &topic, 2);
    assert_int_equal(placing_test_counted(placing, AT(200, 5)), 2);
    mr_placings_settle(placings);
    assert_int_equal(placing_test_counted(placing, AT(200, 5)), 2);
    assert_int_equal(atomic_load(&topic.partitions), 2);
    free(asked);
    mr_placings_free(placings);
}

/* What this process has sent nothing to is kept until what others have sent has come again. */
static void test_topics_of_others_are_kept_until_their_rows_came_again(void **state)
{
    (void)state;
    struct mr_placings *placings = mr_placings_new(true);
    mr_placings_see(placings, &topic, 3);
    mr_placings_see(placings, &other, 4);
    char *both = placing_test_stored(placings, 100, 50);
    mr_placings_free(placings);
    placings = mr_placings_new(true);
    mr_placings_take(placings, both);
    mr_placings_see(placings, &other, 4);
    char *json = placing_test_stored(placings, 100, 0);
    assert_string_equal(json, both);
    free(json);
    json = placing_test_stored(placings, 300, 300);
    assert_string_equal(json, both);
    free(json);
    json = placing_test_stored(placings, 301, 300);
    assert_int_equal(strlen(json), strlen("\"0123456789abcdef.4\""));
    free(json);
    free(both);
    mr_placings_free(placings);
}

static void test_without_a_place_to_store_it(void **state)
{
    (void)state;
    struct mr_placings *placings = mr_placings_new(false);
    const struct mr_placing *placing = mr_placings_see(placings, &topic, 3);
    mr_placings_note_sent(placings, AT(200, 5));
    mr_placings_see(placings, &topic, 5);
    assert_int_equal(placing_test_counted(placing, AT(200, 5)), 3);
    assert_int_equal(placing_test_counted(placing, AT(200, 6)), 5);
    assert_null(mr_placings_format(placings, 100, 50));
    mr_placings_take(placings, NULL);
    assert_int_equal(placing_test_counted(placing, AT(200, 5)), 3);
    mr_placings_free(placings);
}

static void test_more_topics_than_can_be_stored(void **state)
{
    (void)state;
    enum { MANY = 4000 };
    static char names[MANY][12];
    static struct mr_topic many[MANY];
    struct mr_placings *placings = mr_placings_new(true);
    const struct mr_placing *placing = NULL;
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "t%u", i);
        many[i].name = names[i];
        placing = mr_placings_see(placings, &many[i], 3);
    }
    mr_placings_note_sent(placings, AT(200, 5));
    mr_placings_see(placings, &many[MANY - 1], 4);
    assert_null(placing_test_stored(placings, 100, 50));
    assert_int_equal(placing_test_counted(placing, AT(200, 5)), 3);
    assert_int_equal(placing_test_counted(placing, AT(200, 6)), 4);
    mr_placings_free(placings);
}

static void test_what_can_not_be_read_is_left(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",       "1",        "\"",   "\"\"",        "\"x",           "{\"a\":1}",
        "\"1.\"", "\"1.-3\"", "null", "\"1.2.0/1\"", "\"1.2.3.4:5\"", "\"1.2.3.0/1:\""};
    struct mr_placings *placings = mr_placings_new(true);
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        mr_placings_take(placings, wrong[i]);
        assert_int_equal(placings->by_hash.count, 0);
    }
    mr_placings_take(placings, "\"1.2 3.4.2.0/1:5 x\"");
    assert_int_equal(placings->by_hash.count, 2);
    mr_placings_free(placings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_added_partitions_count_once_that_is_stored),
        cmocka_unit_test(test_the_next_process_places_as_this_one),
        cmocka_unit_test(test_what_is_stored_counts),
        cmocka_unit_test(test_a_topic_that_was_made_anew),
        cmocka_unit_test(test_topics_of_others_are_kept_until_their_rows_came_again),
        cmocka_unit_test(test_without_a_place_to_store_it),
        cmocka_unit_test(test_more_topics_than_can_be_stored),
        cmocka_unit_test(test_what_can_not_be_read_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
