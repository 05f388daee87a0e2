#include "event/known_topics.h"

#include "base/clock.h"
#include "base/log.h"
#include "testing/test.h"

static struct mr_topic orders = {.name = (char *)"shop.public.orders",
                                 .table = (char *)"\"public\".\"orders\""};
static struct mr_topic events = {.name = (char *)"events"};

static uint32_t told(struct mr_known_topics *known)
{
    return mr_known_topics_view(known).count;
}

static uint32_t asked(struct mr_known_topics *known, bool all)
{
    uint32_t count;
    mr_known_topics_names(known, all, &count);
    return count;
}

static void test_another_id_is_told_once(void **state)
{
    (void)state;
    struct mr_known_topics *known = mr_known_topics_new();
    assert_false(mr_known_topics_miss(known, &orders)); /* it never was */
    mr_known_topics_add(known, &orders);
    assert_true(known->wants && known->owes);
    assert_int_equal(asked(known, false), 1);
    assert_false(mr_known_topics_compare(known, orders.name, 11));
    assert_int_equal(asked(known, false), 0);
    assert_int_equal(asked(known, true), 1);
    assert_false(mr_known_topics_compare(known, orders.name, 11));
    assert_false(mr_known_topics_compare(known, orders.name, 0));
    assert_false(mr_known_topics_compare(known, "others", 12));
    assert_int_equal(told(known), 0);
    assert_true(mr_known_topics_compare(known, orders.name, 12));
    assert_int_equal(told(known), 1);
    assert_non_null(strstr(mr_known_topics_view(known).text, orders.name));
    /* A broker that is behind; and the next time. */
    assert_false(mr_known_topics_compare(known, orders.name, 11));
    assert_false(mr_known_topics_compare(known, orders.name, 12));
    assert_true(mr_known_topics_compare(known, orders.name, 13));
    assert_int_equal(told(known), 1);
    mr_known_topics_free(known);
}

/* millrace makes it, and may have to try several times. */
static void test_a_topic_that_is_missing_is_told_once(void **state)
{
    (void)state;
    struct mr_known_topics *known = mr_known_topics_new();
    mr_known_topics_add(known, &orders);
    assert_false(mr_known_topics_compare(known, orders.name, 11));
    assert_true(mr_known_topics_miss(known, &orders));
    assert_false(mr_known_topics_miss(known, &orders));
    mr_known_topics_add(known, &orders);
    assert_false(mr_known_topics_compare(known, orders.name, 11));
    assert_false(mr_known_topics_compare(known, orders.name, 12));
    assert_int_equal(told(known), 1);
    assert_true(mr_known_topics_miss(known, &orders));
    mr_known_topics_free(known);
}

static void test_the_next_process_knows_it(void **state)
{
    (void)state;
    struct mr_known_topics *known = mr_known_topics_new();
    assert_null(mr_known_topics_format(known));
    mr_known_topics_add(known, &orders);
    mr_known_topics_add(known, &events); /* its id is not known */
    mr_known_topics_compare(known, orders.name, UINT64_C(0xfedcba9876543210));
    char *json = mr_known_topics_format(known);
    assert_false(known->owes);
    struct mr_known_topics *next = mr_known_topics_new();
    mr_known_topics_take(next, json);
    assert_int_equal(asked(next, true), 0); /* it has sent nothing yet */
    mr_known_topics_add(next, &orders);
    mr_known_topics_add(next, &events);
    assert_int_equal(asked(next, true), 2);
    assert_false(mr_known_topics_compare(next, events.name, 7));
    assert_true(mr_known_topics_compare(next, orders.name, 8));
    mr_known_topics_take(next, json); /* older than what is known here */
    assert_false(mr_known_topics_compare(next, orders.name, 8));
    char *again = mr_known_topics_format(next);
    assert_string_not_equal(again, json);
    mr_known_topics_take(known, again); /* another instance was told */
    assert_false(mr_known_topics_compare(known, orders.name, 8));
    for (size_t i = 0; i <= strlen(json); i++) { /* of any form */
        char *part = MR_STRNDUP(json, i);
        mr_known_topics_take(known, part);
        free(part);
    }
    free(json);
    free(again);
    mr_known_topics_free(known);
    mr_known_topics_free(next);
}

/* One that is a copy of the former, say, with its positions. */
static void test_another_clusters_ids_say_nothing(void **state)
{
    (void)state;
    struct mr_known_topics *known = mr_known_topics_new();
    mr_known_topics_add(known, &orders);
    mr_known_topics_cluster(known, "here");
    assert_false(mr_known_topics_compare(known, orders.name, 11));
    char *json = mr_known_topics_format(known);
    struct mr_known_topics *same = mr_known_topics_new();
    mr_known_topics_take(same, json);
    mr_known_topics_cluster(same, "here");
    mr_known_topics_add(same, &orders);
    assert_true(mr_known_topics_compare(same, orders.name, 12));
    struct mr_known_topics *moved = mr_known_topics_new();
    mr_known_topics_take(moved, json);
    mr_known_topics_add(moved, &orders);
    mr_known_topics_cluster(moved, "there");
    assert_true(moved->owes);
    assert_false(mr_known_topics_compare(moved, orders.name, 12));
    mr_known_topics_take(moved, json); /* stored by one that was there until now */
    mr_known_topics_cluster(moved, "there");
    assert_true(mr_known_topics_compare(moved, orders.name, 13));
    assert_int_equal(told(moved), 1);
    free(json);
    mr_known_topics_free(known);
    mr_known_topics_free(same);
    mr_known_topics_free(moved);
}

static void test_what_is_stored_is_bounded(void **state)
{
    (void)state;
    enum { TOPICS = 2000 };
    static struct mr_topic topics[TOPICS];
    struct mr_known_topics *known = mr_known_topics_new();
    for (int i = 0; i < TOPICS; i++) {
        topics[i].name = mr_formatted("topic-%d", i);
        mr_known_topics_add(known, &topics[i]);
        mr_known_topics_compare(known, topics[i].name, UINT64_MAX);
    }
    char *json = mr_known_topics_format(known);
    assert_in_range(strlen(json), 30 * 1024, 32 * 1024);
    free(json);
    mr_known_topics_free(known);
    for (int i = 0; i < TOPICS; i++) {
        free(topics[i].name);
    }
}

static void test_a_copy_of_the_table_ends_it(void **state)
{
    (void)state;
    struct mr_known_topics *known = mr_known_topics_new();
    int64_t before_ns = mr_monotonic_ns() - 1;
    mr_known_topics_add(known, &events);
    mr_known_topics_add(known, &orders);
    mr_known_topics_miss(known, &events);
    mr_known_topics_miss(known, &orders);
    int64_t after_ns = mr_monotonic_ns() + 1;
    assert_int_equal(told(known), 2);
    mr_known_topics_copied(known, "public", "orders", before_ns);
    mr_known_topics_copied(known, "public", "items", after_ns);
    assert_int_equal(told(known), 2);
    mr_known_topics_copied(known, "public", "orders", after_ns);
    assert_int_equal(told(known), 1); /* that is no table's alone */
    mr_known_topics_copied(NULL, "public", "orders", after_ns);
    assert_int_equal(told(NULL), 0);
    mr_known_topics_free(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_id_is_told_once),
        cmocka_unit_test(test_a_topic_that_is_missing_is_told_once),
        cmocka_unit_test(test_the_next_process_knows_it),
        cmocka_unit_test(test_another_clusters_ids_say_nothing),
        cmocka_unit_test(test_what_is_stored_is_bounded),
        cmocka_unit_test(test_a_copy_of_the_table_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
