/* What a server sends again before a stream goes on at 1000, of which the transaction that commits
 * at 800 was delivered last. */
#include "stream/rejoin.h"

#include <string.h>

#include "testing/test.h"

enum { END = 1000, LAST = 800, XID = 7, TIME = 70 };

struct taken {
    uint32_t begins, changes, messages, commits, keepalives, asked;
};

static mr_status take_begin(void *context, const struct mr_transaction *transaction,
                            struct mr_error *ret_error)
{
    (void)transaction;
    (void)ret_error;
    ((struct taken *)context)->begins++;
    return MR_OK;
}

static mr_status take_change(void *context, const struct mr_change *change,
                             struct mr_error *ret_error)
{
    (void)change;
    (void)ret_error;
    ((struct taken *)context)->changes++;
    return MR_OK;
}

static mr_status rejoin_test_take_message(void *context, const struct mr_message_event *message,
                                          struct mr_error *ret_error)
{
    (void)message;
    (void)ret_error;
    ((struct taken *)context)->messages++;
    return MR_OK;
}

static mr_status take_commit(void *context, const struct mr_transaction *transaction,
                             struct mr_error *ret_error)
{
    (void)transaction;
    (void)ret_error;
    ((struct taken *)context)->commits++;
    return MR_OK;
}

static void take_keepalive(void *context, mr_lsn server_end, bool reply_requested)
{
    (void)server_end;
    ((struct taken *)context)->keepalives++;
    ((struct taken *)context)->asked += reply_requested;
}

enum kind { ENDS, TRANSACTION, EMPTY, MESSAGE, KEEPALIVE };

/* A transaction commits at `lsn`. */
struct sent {
    enum kind kind;
    mr_lsn lsn;
    uint32_t xid;
    int64_t time_us;
};

struct scene {
    struct mr_rejoin rejoin;
    struct mr_checkpoint stored;
    struct mr_server_position server;
    struct taken taken;
    struct mr_error error;
};

static void rejoin_test_begin(struct scene *scene, mr_lsn slot)
{
    scene->stored = (struct mr_checkpoint){
        .identity = {.publication = "p", .tables = 5},
        .end_lsn = END,
        .last = {.lsn = LAST, .time_us = TIME, .xid = XID},
    };
    scene->stored.last.asked = mr_identity_asked(&scene->stored.identity);
    scene->server = (struct mr_server_position){
        .identity = scene->stored.identity, .slot_exists = true, .slot_confirmed = slot};
}

static mr_lsn rejoin_test_join(struct scene *scene)
{
    return mr_rejoin_begin(&scene->rejoin, &scene->stored, &scene->server, END, true);
}

static mr_status send_transaction(const struct mr_source_handler *handler, const struct sent *sent,
                                  struct mr_error *error)
{
    const struct mr_transaction transaction = {.commit_lsn = sent->lsn,
                                               .end_lsn = sent->lsn + 50,
                                               .commit_time_us = sent->time_us,
                                               .xid = sent->xid,
                                               .has_rows = sent->kind == TRANSACTION};
    const struct mr_change change = {.transaction = &transaction};
    MR_TRY(handler->begin(handler->context, &transaction, error));
    /* A keepalive in the middle says nothing of the transaction. */
    handler->keepalive(handler->context, sent->lsn - 1, false);
    if (sent->kind == TRANSACTION) {
        MR_TRY(handler->change(handler->context, &change, error));
    }
    return handler->commit(handler->context, &transaction, error);
}

static mr_status rejoin_test_send_all(struct scene *scene, const struct sent *sent)
{
    const struct mr_source_handler handler = {.context = &scene->taken,
                                              .begin = take_begin,
                                              .change = take_change,
                                              .message = rejoin_test_take_message,
                                              .commit = take_commit,
                                              .keepalive = take_keepalive};
    mr_status status = MR_OK;
    for (; sent->kind != ENDS && status == MR_OK; sent++) {
        const struct mr_source_handler *taker = mr_rejoin_handler(&scene->rejoin, &handler);
        const struct mr_message_event message = {.lsn = sent->lsn};
        if (sent->kind == KEEPALIVE) {
            taker->keepalive(taker->context, sent->lsn, false);
        } else if (sent->kind == MESSAGE) {
            status = taker->message(taker->context, &message, &scene->error);
        } else {
            status = send_transaction(taker, sent, &scene->error);
        }
        if (status == MR_OK) {
            status = mr_rejoin_look(&scene->rejoin, &scene->error);
        }
    }
    return status;
}

#define DELIVERED                                                                                  \
    {                                                                                              \
        TRANSACTION, LAST, XID, TIME                                                               \
    }
#define NEW                                                                                        \
    {                                                                                              \
        TRANSACTION, END, XID + 1, TIME + 1                                                        \
    }

#define ALIVE(lsn)                                                                                 \
    {                                                                                              \
        KEEPALIVE, lsn, 0, 0                                                                       \
    }
#define SAYS(lsn)                                                                                  \
    {                                                                                              \
        MESSAGE, lsn, 0, 0                                                                         \
    }

static void test_what_may_come_again(void **state)
{
    (void)state;
    const struct {
        mr_lsn slot;
        struct sent sent[6];
        uint32_t new_begins; /* handed on */
        bool is_same;
    } cases[] = {
        {700, {DELIVERED, NEW}, 1, true},
        {LAST, {DELIVERED, NEW}, 1, true},
        {700, {DELIVERED, ALIVE(1200), NEW}, 1, true},
        {700, {ALIVE(LAST), DELIVERED, NEW}, 1, true},
        {700, {DELIVERED, {EMPTY, 900, 8, 8}, NEW}, 1, true}, /* before PostgreSQL 15 */
        {700, {DELIVERED, SAYS(900), SAYS(1100), NEW}, 1, true},
        {900, {NEW}, 1, true},
        {900, {ALIVE(1000), NEW}, 1, true},
        /* Another one at its place. */
        {700, {{TRANSACTION, LAST, XID + 1, TIME}, NEW}, 0, false},
        {700, {{TRANSACTION, LAST, XID, TIME + 1}, NEW}, 0, false},
        {700, {{EMPTY, LAST, XID + 1, TIME}, NEW}, 0, false},
        /* None there. */
        {700, {NEW}, 0, false},
        {700, {{EMPTY, 900, 8, 8}, DELIVERED}, 0, false},
        {700, {SAYS(1100), NEW}, 0, false},
        {700, {ALIVE(LAST + 1)}, 0, false},
        {700, {ALIVE(1200)}, 0, false},
        /* More than that. */
        {700, {DELIVERED, {TRANSACTION, 900, 8, 8}, NEW}, 0, false},
        {900, {{TRANSACTION, 950, 8, 8}, NEW}, 0, false},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct scene scene = {0};
        rejoin_test_begin(&scene, cases[i].slot);
        assert_int_equal(rejoin_test_join(&scene), cases[i].slot > LAST ? cases[i].slot : LAST);
        mr_status status = rejoin_test_send_all(&scene, cases[i].sent);
        if (status != (cases[i].is_same ? MR_OK : MR_ERR_TRANSIENT) ||
            scene.taken.begins != cases[i].new_begins ||
            scene.taken.changes != cases[i].new_begins ||
            scene.taken.commits != cases[i].new_begins) {
            fail_msg("case %zu: %d, %u begun", i, status, scene.taken.begins);
        }
        assert_int_equal(mr_rejoin_refuses(&scene.rejoin, &scene.stored, &scene.server),
                         !cases[i].is_same);
    }
}

/* What lies before the place is not confirmed before all is compared, and then at once. */
static void test_nothing_is_confirmed_before_the_end(void **state)
{
    (void)state;
    struct scene scene = {0};
    rejoin_test_begin(&scene, 700);
    rejoin_test_join(&scene);
    assert_int_equal(mr_rejoin_confirms(&scene.rejoin, END), 700);
    assert_int_equal(rejoin_test_send_all(&scene, (const struct sent[]){DELIVERED, {0}}), MR_OK);
    assert_int_equal(mr_rejoin_confirms(&scene.rejoin, END), 700);
    assert_int_equal(scene.taken.asked, 0);
    assert_int_equal(rejoin_test_send_all(&scene, (const struct sent[]){ALIVE(END), {0}}), MR_OK);
    assert_int_equal(mr_rejoin_confirms(&scene.rejoin, END), END);
    assert_int_equal(scene.taken.asked, 1);
}

static void test_a_refusal_holds_for_its_place(void **state)
{
    (void)state;
    struct scene scene = {0};
    rejoin_test_begin(&scene, 700);
    rejoin_test_join(&scene);
    assert_int_equal(rejoin_test_send_all(&scene, (const struct sent[]){NEW, {0}}),
                     MR_ERR_TRANSIENT);
    assert_int_equal(mr_rejoin_confirms(&scene.rejoin, END), 700);
    mr_rejoin_end(&scene.rejoin);
    assert_true(mr_rejoin_refuses(&scene.rejoin, &scene.stored, &scene.server));
    assert_int_equal(mr_checkpoint_refuse(&scene.stored, &scene.server, &scene.error),
                     MR_ERR_HISTORY);
    assert_non_null(strstr(scene.error.text, "restored to an earlier point"));
    /* It was another server: this one's slot stands elsewhere. */
    scene.server.slot_confirmed = 750;
    assert_false(mr_rejoin_refuses(&scene.rejoin, &scene.stored, &scene.server));
    scene.server.slot_confirmed = 700;
    /* A copy has mended it. */
    assert_false(mr_rejoin_refuses(&scene.rejoin, NULL, &scene.server));
    scene.stored.end_lsn = 2000;
    assert_false(mr_rejoin_refuses(&scene.rejoin, &scene.stored, &scene.server));
    assert_int_equal(mr_rejoin_begin(&scene.rejoin, &scene.stored, &scene.server, 3000, true),
                     3000);
    assert_int_equal(mr_rejoin_confirms(&scene.rejoin, 3000), 3000);
}

/* Exactly once: up to the row that was delivered last, of a transaction that commits at 1500. */
static void test_nothing_comes_before_a_part_that_was_delivered(void **state)
{
    (void)state;
    const struct sent rest[] = {DELIVERED, {TRANSACTION, 1500, 9, 9}, {0}};
    const struct sent other[] = {DELIVERED, ALIVE(1400), {TRANSACTION, 1450, 9, 9}, {0}};
    for (int i = 0; i < 3; i++) {
        struct scene scene = {0};
        rejoin_test_begin(&scene, 700);
        scene.stored.position = (struct mr_position){.commit_lsn = 1500, .ordinal = 3};
        bool is_first = i != 2; /* what this process has handed on comes again, too */
        assert_int_equal(
            mr_rejoin_begin(&scene.rejoin, &scene.stored, &scene.server, END, is_first), LAST);
        bool is_refused = i == 1;
        assert_int_equal(rejoin_test_send_all(&scene, i == 0 ? rest : other),
                         is_refused ? MR_ERR_TRANSIENT : MR_OK);
        assert_int_equal(scene.taken.begins, !is_refused);
        assert_int_equal(mr_rejoin_confirms(&scene.rejoin, END), is_refused ? 700 : END);
    }
}

/* No row was delivered since the stream began at 600. */
static void test_no_row_comes_where_none_was_delivered(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct scene scene = {0};
        rejoin_test_begin(&scene, 700);
        scene.stored.last = mr_identity_no_commit(&scene.stored.identity);
        assert_int_equal(rejoin_test_join(&scene), 700);
        const struct sent sent[] = {{i == 0 ? EMPTY : TRANSACTION, 900, 8, 8}, NEW, {0}};
        assert_int_equal(rejoin_test_send_all(&scene, sent), i == 0 ? MR_OK : MR_ERR_TRANSIENT);
    }
}

/* What was delivered can't be described any more. It has come, so the stream goes on after it. */
static void test_what_was_delivered_need_not_be_read(void **state)
{
    (void)state;
    struct scene scene = {0};
    rejoin_test_begin(&scene, 700);
    rejoin_test_join(&scene);
    const struct mr_source_handler none = {.keepalive = take_keepalive, .context = &scene.taken};
    const struct mr_source_handler *taker = mr_rejoin_handler(&scene.rejoin, &none);
    assert_false(mr_rejoin_passes(&scene.rejoin)); /* the server's own failure, somewhere */
    const struct mr_transaction last = {.commit_lsn = LAST, .commit_time_us = TIME, .xid = XID};
    assert_int_equal(taker->begin(taker->context, &last, &scene.error), MR_OK);
    assert_true(mr_rejoin_passes(&scene.rejoin));
    assert_int_equal(mr_rejoin_look(&scene.rejoin, &scene.error), MR_OK);
    mr_rejoin_end(&scene.rejoin);
    assert_int_equal(rejoin_test_join(&scene), LAST + 1);
    assert_int_equal(mr_rejoin_confirms(&scene.rejoin, END), 700);
    /* Of another transaction it is a row that was not delivered. */
    const struct mr_transaction other = {.commit_lsn = 900, .xid = 8};
    taker = mr_rejoin_handler(&scene.rejoin, &none);
    assert_int_equal(taker->begin(taker->context, &other, &scene.error), MR_OK);
    assert_true(mr_rejoin_passes(&scene.rejoin));
    assert_int_equal(mr_rejoin_look(&scene.rejoin, &scene.error), MR_ERR_TRANSIENT);
}

static void test_what_is_not_compared(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct scene scene = {0};
        rejoin_test_begin(&scene, i == 0 ? END : i == 1 ? 0 : 700);
        mr_lsn start = END;
        if (i == 2) {
            scene.stored.last = (struct mr_commit){0}; /* an older build stored it */
        } else if (i == 3) {
            strcpy(scene.server.identity.publication, "q");
        } else if (i == 4) {
            start = END + 1; /* after a transaction that is skipped */
        }
        assert_int_equal(mr_rejoin_begin(&scene.rejoin, &scene.stored, &scene.server, start, true),
                         start);
        assert_int_equal(mr_rejoin_confirms(&scene.rejoin, start), start);
        assert_int_equal(rejoin_test_send_all(&scene, (const struct sent[]){NEW, {0}}), MR_OK);
        assert_int_equal(scene.taken.begins, 1);
    }
    struct mr_rejoin none = {0};
    struct scene scene = {0};
    rejoin_test_begin(&scene, 700);
    assert_int_equal(mr_rejoin_begin(&none, NULL, &scene.server, 0, true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_may_come_again),
        cmocka_unit_test(test_nothing_is_confirmed_before_the_end),
        cmocka_unit_test(test_a_refusal_holds_for_its_place),
        cmocka_unit_test(test_nothing_comes_before_a_part_that_was_delivered),
        cmocka_unit_test(test_no_row_comes_where_none_was_delivered),
        cmocka_unit_test(test_what_was_delivered_need_not_be_read),
        cmocka_unit_test(test_what_is_not_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
