/* What is held back, for how long, and which values may be called exact: a stream by hand, and an
 * asker that answers when it is told to. */
#include "stream/reselect.h"

#include "base/clock.h"
#include "base/wake.h"
#include "stream/pgoutput.h"
#include "testing/pgoutput_builder.h"
#include "testing/test.h"

enum { TABLE = 16400, OTHER = 16401, COLUMNS = 3, XID = 700 };

struct asker {
    struct mr_reselect_asker base;
    struct mr_reselect_round *round; /* that is asked; NULL: none */
    uint32_t rounds;
};

struct scene {
    struct asker asker;
    struct mr_source source;
    struct mr_pg_reselect_options options;
    struct mr_relation relation;
    struct mr_column columns[COLUMNS];
    bool is_known; /* the relation is decoded */
    struct mr_reselect *reselect;
    struct mr_wire wire;
    uint8_t payload[MR_WIRE_MAX];
    char seen[4096]; /* what came out */
};

static bool scripted_ask(struct mr_reselect_asker *base, struct mr_reselect_round *round)
{
    struct asker *asker = (struct asker *)base;
    assert_null(asker->round);
    asker->round = round;
    asker->rounds++;
    return true;
}

static void scripted_end(struct mr_reselect_asker *base)
{
    ((struct asker *)base)->round = NULL;
}

static const struct mr_relation *reselect_test_relation_of(void *context, uint32_t oid)
{
    struct scene *scene = context;
    return scene->is_known && oid == TABLE ? &scene->relation : NULL;
}

static bool shows(void *context, const struct mr_relation *relation, uint32_t column)
{
    (void)context;
    (void)relation;
    return column == 2;
}

static struct scene *scene_new(void)
{
    static const struct mr_column_pattern all = {0};
    struct scene *scene = MR_NEW(struct scene);
    scene->options =
        (struct mr_pg_reselect_options){.columns = &all, .column_count = 1, .wait_ms = 60000};
    scene->columns[0] = (struct mr_column){.name = "id", .is_flagged = true, .in_identity = true};
    scene->columns[1] = (struct mr_column){.name = "n"};
    scene->columns[2] = (struct mr_column){.name = "body"};
    scene->relation = (struct mr_relation){.oid = TABLE,
                                           .schema = "public",
                                           .table = "t",
                                           .identity = MR_IDENTITY_DEFAULT,
                                           .told_identity = MR_IDENTITY_DEFAULT,
                                           .column_count = COLUMNS,
                                           .columns = scene->columns};
    scene->is_known = true;
    scene->asker.base = (struct mr_reselect_asker){
        .ask = scripted_ask, .end = scripted_end, .done_fd = mr_wake_new()};
    scene->reselect =
        mr_reselect_new(&(struct mr_reselect_wiring){.options = &scene->options,
                                                     .source = &scene->source,
                                                     .asker = &scene->asker.base,
                                                     .relation = reselect_test_relation_of,
                                                     .relation_context = scene,
                                                     .shows = shows});
    return scene;
}

static void scene_free(struct scene *scene)
{
    mr_reselect_free(scene->reselect);
    close(scene->asker.base.done_fd);
    free(scene);
}

/* Notes a payload: its type; of an update with a third value that, of one read later in brackets;
 * "u" of one that is not known. */
static void see(struct scene *scene, mr_slice payload, bool is_later)
{
    enum { HEAD = 25 };
    size_t len = strlen(scene->seen);
    char *to = scene->seen + len;
    size_t room = sizeof(scene->seen) - len;
    if (payload.data[HEAD] != 'U') {
        snprintf(to, room, "%c ", payload.data[HEAD]);
        return;
    }
    /* The last value is the third column's: "u", or a kind, a length and bytes up to the end. */
    const uint8_t *end = payload.data + payload.len;
    if (end[-1] == 'u') {
        snprintf(to, room, "U:u ");
        return;
    }
    for (uint32_t n = 1; n < 100; n++) {
        const uint8_t *at = end - n - 5;
        uint32_t wire;
        memcpy(&wire, at + 1, sizeof(wire));
        if (__builtin_bswap32(wire) == n && *at == 't') {
            snprintf(to, room, !is_later ? "U:%.*s " : "U:(%.*s) ", (int)n, (const char *)end - n);
            return;
        }
    }
    fail_msg("no value at the end");
}

static void reselect_test_drain(struct scene *scene)
{
    mr_slice payload;
    while (mr_reselect_next(scene->reselect, &payload)) {
        see(scene, payload, mr_reselect_later(scene->reselect) != NULL);
        if (payload.data[25] == 'R') {
            scene->is_known = true;
        }
        mr_reselect_taken(scene->reselect);
    }
}

static void send(struct scene *scene)
{
    mr_slice message = mr_wire_slice(&scene->wire);
    memset(scene->payload, 0, 25);
    scene->payload[0] = 'w';
    memcpy(scene->payload + 25, message.data, message.len);
    mr_slice payload = {.data = scene->payload, .len = 25 + message.len};
    reselect_test_drain(scene);
    if (!mr_reselect_put(scene->reselect, payload)) {
        see(scene, payload, false);
        scene->is_known = scene->is_known || message.data[0] == 'R';
    }
    reselect_test_drain(scene);
}

static void send_begin(struct scene *scene, uint32_t xid)
{
    mr_wire_begin(&scene->wire, 1000 + xid, xid);
    send(scene);
}

static void send_commit(struct scene *scene, uint32_t xid)
{
    mr_wire_commit(&scene->wire, 1000 + xid, 1001 + xid);
    send(scene);
}

/* Of the row with that key; `body` NULL: it is not touched. `old`: the key that it had; NULL: the
 * same. */
static void send_update(struct scene *scene, const char *old, const char *key, const char *body)
{
    const char *before[COLUMNS] = {old, NULL, NULL};
    const char *after[COLUMNS] = {key, "1", body == NULL ? mr_wire_unchanged : body};
    mr_wire_update(&scene->wire, TABLE, old == NULL ? 0 : 'K', before, after, COLUMNS);
    send(scene);
}

static void send_insert(struct scene *scene, const char *key, const char *body)
{
    const char *after[COLUMNS] = {key, "1", body};
    mr_wire_insert(&scene->wire, TABLE, after, COLUMNS);
    send(scene);
}

static void send_delete(struct scene *scene, const char *key)
{
    const char *before[COLUMNS] = {key, NULL, NULL};
    mr_wire_delete(&scene->wire, TABLE, 'K', before, COLUMNS);
    send(scene);
}

/* All that is asked gets that outcome and, if there is a value, "v" and its key. */
static void reselect_test_answer(struct scene *scene, enum mr_reselected outcome)
{
    struct mr_reselect_round *round = scene->asker.round;
    assert_non_null(round);
    for (uint32_t i = 0; i < round->count; i++) {
        struct mr_reselect_question *question = &round->questions[i];
        assert_string_equal(question->names.data, "public");
        assert_int_equal(question->column_count, 1);
        assert_int_equal(question->parts[0].column, 2);
        question->is_answered = true;
        question->outcome = outcome;
        mr_text_format(&question->values, "v%s", question->keys.data);
        question->parts[0].at = outcome <= MR_RESELECTED_LATER ? 0 : SIZE_MAX;
        question->parts[0].len = question->values.len;
    }
    scene->asker.round = NULL;
    atomic_store(&round->is_done, true);
    reselect_test_drain(scene);
}

static uint64_t reselect_test_count_of(const struct scene *scene, enum mr_reselected outcome)
{
    return atomic_load(&scene->source.reselected[outcome]);
}

static void reselect_test_expect(struct scene *scene, const char *seen)
{
    assert_string_equal(scene->seen, seen);
    scene->seen[0] = '\0';
}

static void test_rows_that_lack_nothing_pass(void **state)
{
    (void)state;
    struct scene *scene = scene_new();
    send_begin(scene, XID);
    send_insert(scene, "1", "b");
    send_update(scene, NULL, "1", "c");
    send_delete(scene, "1");
    send_commit(scene, XID);
    reselect_test_expect(scene, "B I U:c D C ");
    assert_int_equal(scene->asker.rounds, 0);
    assert_int_equal(mr_reselect_descriptor(scene->reselect, 77), 77);
    scene_free(scene);
}

static void test_value_is_exact_once_its_transaction_has_ended(void **state)
{
    (void)state;
    struct scene *scene = scene_new();
    send_begin(scene, XID);
    send_update(scene, NULL, "1", NULL);
    send_insert(scene, "2", "b");
    reselect_test_answer(scene, MR_RESELECTED_EXACT);
    reselect_test_expect(scene, "B ");
    assert_true(mr_reselect_descriptor(scene->reselect, scene->asker.base.done_fd) >= 0);
    send_commit(scene, XID);
    reselect_test_expect(scene, "U:v1 I C ");
    assert_int_equal(reselect_test_count_of(scene, MR_RESELECTED_EXACT), 1);
    scene_free(scene);
}

static void test_commit_before_the_answer(void **state)
{
    (void)state;
    struct scene *scene = scene_new();
    send_begin(scene, XID);
    send_update(scene, NULL, "1", NULL);
    send_commit(scene, XID);
    send_begin(scene, XID + 1);
    send_insert(scene, "1", "b"); /* of another transaction, so it says nothing of the first */
    reselect_test_expect(scene, "B ");
    reselect_test_answer(scene, MR_RESELECTED_EXACT);
    reselect_test_expect(scene, "U:v1 C B I ");
    scene_free(scene);
}

struct after_case {
    const char *what;
    void (*then)(struct scene *scene);
    const char *seen;
};

static void then_changed(struct scene *scene)
{
    send_update(scene, NULL, "1", "x");
}

static void then_deleted(struct scene *scene)
{
    send_delete(scene, "1");
}

static void then_made_again(struct scene *scene)
{
    send_delete(scene, "1");
    send_insert(scene, "1", "x");
}

static void then_moved(struct scene *scene)
{
    send_update(scene, "1", "5", NULL);
}

static void then_moved_into(struct scene *scene)
{
    send_update(scene, "3", "1", NULL);
}

static void then_truncated(struct scene *scene)
{
    mr_wire_truncate(&scene->wire, 0, (const uint32_t[]){OTHER}, 1);
    send(scene);
}

static void then_described(struct scene *scene)
{
    mr_wire_relation(&scene->wire, TABLE, 'd', "t", (const char *const[]){"id", "n", "body"},
                     COLUMNS);
    send(scene);
}

static void then_untouched(struct scene *scene)
{
    send_update(scene, NULL, "1", NULL);
}

static void then_other_row(struct scene *scene)
{
    send_update(scene, NULL, "2", "x");
    send_delete(scene, "3");
}

static void then_twice(struct scene *scene)
{
    send_update(scene, NULL, "1", NULL);
    send_update(scene, NULL, "1", "x");
}

/* What the table has is the transaction's last value of the row, and exact for what has not been
 * changed since. */
static void test_later_changes_of_the_same_transaction(void **state)
{
    (void)state;
    static const struct after_case cases[] = {
        {"another value", then_changed, "B U:(v1) U:x C "},
        {"a delete", then_deleted, "B U:(v1) D C "},
        {"a delete and an insert", then_made_again, "B U:(v1) D I C "},
        {"another key", then_moved, "B U:(v1) U:v5 C "},
        {"another row gets the key", then_moved_into, "B U:(v1) U:v1 C "},
        {"a truncate", then_truncated, "B U:(v1) T C "},
        {"a description", then_described, "B U:(v1) R C "},
        {"the value left alone", then_untouched, "B U:v1 U:v1 C "},
        {"other rows", then_other_row, "B U:v1 U:x D C "},
        {"left alone, then another value", then_twice, "B U:(v1) U:(v1) U:x C "},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct scene *scene = scene_new();
        send_begin(scene, XID);
        send_update(scene, NULL, "1", NULL);
        cases[i].then(scene);
        send_commit(scene, XID);
        while (scene->asker.round != NULL) {
            reselect_test_answer(scene, MR_RESELECTED_EXACT);
        }
        if (strcmp(scene->seen, cases[i].seen) != 0) {
            fail_msg("%s: \"%s\", not \"%s\"", cases[i].what, scene->seen, cases[i].seen);
        }
        scene_free(scene);
    }
}

/* An update of a table whose description is held is asked for once that is decoded, and what
 * follows it counts all the same. */
static void test_table_that_is_described_while_others_wait(void **state)
{
    (void)state;
    struct scene *scene = scene_new();
    send_begin(scene, XID);
    send_update(scene, NULL, "1", NULL);
    then_described(scene);
    send_update(scene, NULL, "2", NULL);
    send_update(scene, NULL, "3", NULL);
    send_update(scene, NULL, "2", "x");
    send_commit(scene, XID);
    reselect_test_answer(scene, MR_RESELECTED_EXACT);
    reselect_test_expect(scene, "B U:(v1) R ");
    reselect_test_answer(scene, MR_RESELECTED_EXACT);
    reselect_test_expect(scene, "U:(v2) U:v3 U:x C ");
    scene_free(scene);
}

/* As with each partition's first row: nothing has changed. */
static void test_table_that_is_described_the_same(void **state)
{
    (void)state;
    struct scene *scene = scene_new();
    then_described(scene);
    send_begin(scene, XID);
    send_update(scene, NULL, "1", NULL);
    then_described(scene);
    send_update(scene, NULL, "2", NULL);
    send_commit(scene, XID);
    reselect_test_answer(scene, MR_RESELECTED_EXACT);
    reselect_test_answer(scene, MR_RESELECTED_EXACT);
    reselect_test_expect(scene, "R B U:v1 R U:v2 C ");
    scene_free(scene);
}

static void test_outcomes(void **state)
{
    (void)state;
    static const struct {
        enum mr_reselected outcome;
        bool keeps_placeholder;
        const char *seen;
    } cases[] = {
        {MR_RESELECTED_EXACT, true, "B U:v1 C "},  {MR_RESELECTED_LATER, false, "B U:(v1) C "},
        {MR_RESELECTED_LATER, true, "B U:u C "},   {MR_RESELECTED_GONE, false, "B U:u C "},
        {MR_RESELECTED_LARGE, false, "B U:u C "},  {MR_RESELECTED_REFUSED, false, "B U:u C "},
        {MR_RESELECTED_PASSED, false, "B U:u C "}, {MR_RESELECTED_LATE, false, "B U:u C "},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct scene *scene = scene_new();
        scene->options.keeps_placeholder = cases[i].keeps_placeholder;
        send_begin(scene, XID);
        send_update(scene, NULL, "1", NULL);
        send_commit(scene, XID);
        reselect_test_answer(scene, cases[i].outcome);
        reselect_test_expect(scene, cases[i].seen);
        assert_int_equal(reselect_test_count_of(scene, cases[i].outcome), 1);
        scene_free(scene);
    }
}

/* Without an answer in time it goes as it came, and for a while nothing is asked. */
static void test_no_answer_in_time(void **state)
{
    (void)state;
    struct scene *scene = scene_new();
    scene->options.wait_ms = 20;
    send_begin(scene, XID);
    send_update(scene, NULL, "1", NULL);
    send_commit(scene, XID);
    int fd = mr_reselect_descriptor(scene->reselect, scene->asker.base.done_fd);
    assert_true(mr_wait_readable(fd, 5000)); /* the timer */
    reselect_test_drain(scene);
    reselect_test_expect(scene, "B U:u C ");
    assert_int_equal(reselect_test_count_of(scene, MR_RESELECTED_LATE), 1);
    send_begin(scene, XID + 1);
    send_update(scene, NULL, "1", NULL);
    reselect_test_expect(scene, "B U:u ");
    assert_int_equal(reselect_test_count_of(scene, MR_RESELECTED_PASSED), 1);
    assert_int_equal(scene->asker.rounds, 1);
    scene_free(scene);
}

/* Of a transaction that is larger than the window the first values are not known to be exact; none
 * is lost, and the order stays. */
static void test_transaction_larger_than_the_window(void **state)
{
    (void)state;
    struct scene *scene = scene_new();
    static char large[30000];
    memset(large, 'x', sizeof(large) - 1);
    uint32_t sent = 0;
    send_begin(scene, XID);
    while (reselect_test_count_of(scene, MR_RESELECTED_LATER) == 0) {
        char key[16];
        const char *after[COLUMNS] = {key, large, mr_wire_unchanged};
        snprintf(key, sizeof(key), "%u", sent);
        mr_wire_update(&scene->wire, TABLE, 0, NULL, after, COLUMNS);
        send(scene);
        sent++;
        if (scene->asker.round != NULL) {
            reselect_test_answer(scene, MR_RESELECTED_EXACT);
        }
        assert_true(sent < 1000);
    }
    send_commit(scene, XID);
    while (scene->asker.round != NULL) {
        reselect_test_answer(scene, MR_RESELECTED_EXACT);
    }
    assert_int_equal(reselect_test_count_of(scene, MR_RESELECTED_LATER) +
                         reselect_test_count_of(scene, MR_RESELECTED_EXACT),
                     sent);
    assert_true(reselect_test_count_of(scene, MR_RESELECTED_EXACT) > sent / 2);
    scene_free(scene);
}

/* The stream ends: nothing of it is handed out afterwards. */
static void test_reset(void **state)
{
    (void)state;
    struct scene *scene = scene_new();
    send_begin(scene, XID);
    send_update(scene, NULL, "1", NULL);
    mr_reselect_reset(scene->reselect);
    mr_slice payload;
    assert_false(mr_reselect_next(scene->reselect, &payload));
    send_begin(scene, XID);
    send_update(scene, NULL, "1", NULL);
    send_commit(scene, XID);
    reselect_test_answer(scene, MR_RESELECTED_EXACT);
    reselect_test_expect(scene, "B B U:v1 C ");
    scene_free(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_that_lack_nothing_pass),
        cmocka_unit_test(test_value_is_exact_once_its_transaction_has_ended),
        cmocka_unit_test(test_commit_before_the_answer),
        cmocka_unit_test(test_later_changes_of_the_same_transaction),
        cmocka_unit_test(test_table_that_is_described_while_others_wait),
        cmocka_unit_test(test_table_that_is_described_the_same),
        cmocka_unit_test(test_outcomes),
        cmocka_unit_test(test_no_answer_in_time),
        cmocka_unit_test(test_transaction_larger_than_the_window),
        cmocka_unit_test(test_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
