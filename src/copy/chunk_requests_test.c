#include "copy/copies_internal.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

enum { STORED_MAX = 200000 };

static void chunk_requests_test_begin(struct mr_chunk_requests *requests)
{
    static struct mr_companion owner;
    mr_chunk_requests_init(requests, &owner);
    mr_chunk_requests_attach(requests, true, STORED_MAX);
}

static struct mr_copies *of(struct mr_chunk_requests *requests)
{
    static struct mr_copies copies;
    copies.requests = requests;
    return &copies;
}

static struct mr_chunk_request *chunk_requests_test_ask(struct mr_chunk_requests *requests,
                                                        const char *table)
{
    uint64_t id;
    struct mr_error error;
    struct mr_copy_wish wish = {.schema = "s", .table = table, .where = "n > 1", .key = ""};
    assert_int_equal(mr_chunk_requests_ask(requests, &wish, &id, &error), MR_OK);
    return mr_chunk_requests_of(requests, id);
}

static void chunk_requests_test_found(struct mr_chunk_requests *requests,
                                      struct mr_chunk_request *request, uint32_t first,
                                      uint32_t second)
{
    struct mr_chunk_table *parts = MR_NEW_ARRAY(struct mr_chunk_table, 2);
    parts[0].oid = first;
    parts[1].oid = second;
    mr_chunk_request_found(requests, request, parts, second == 0 ? 1 : 2);
}

static void chunk_requests_test_note(struct mr_chunk_requests *requests,
                                     struct mr_chunk_request *request, const char *key,
                                     uint64_t step)
{
    char text[16];
    snprintf(text, sizeof(text), "%s", key);
    char *after[] = {text};
    struct mr_asked_place place = {.oid = 5, .form = 9, .after = after, .after_count = 1};
    mr_chunk_request_did(requests, request, &(struct mr_chunks_done){.rows = 1});
    mr_chunk_requests_note(requests, step, request, &place);
}

static void chunk_requests_test_settle(struct mr_chunk_requests *requests,
                                       struct mr_chunk_request *request, uint64_t step)
{
    struct mr_asked_place place = {.oid = 5, .settled = true};
    mr_chunk_request_set(requests, request, MR_REQUEST_SETTLED);
    mr_chunk_requests_note(requests, step, request, &place);
}

/* What is stored of the first table at that step: its key, "" for none; "-": the table is not told
 * of. */
static void chunk_requests_test_expect(struct mr_chunk_requests *requests, uint64_t step,
                                       const char *key)
{
    struct mr_asked_stored *state = mr_chunk_requests_state(requests, step);
    const char *is = state->count == 0                      ? "-"
                     : state->tables[0].place.after == NULL ? ""
                                                            : state->tables[0].place.after[0];
    assert_string_equal(is, key);
    mr_asked_stored_free(state);
}

/* A place counts with the batch that carries its step; places that one batch ends with are one. */
static void test_notes_count_with_their_steps(void **test_state)
{
    (void)test_state;
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    assert_null(mr_chunk_requests_state(&requests, 0));
    struct mr_chunk_request *request = chunk_requests_test_ask(&requests, "t");
    chunk_requests_test_found(&requests, request, 5, 0);
    chunk_requests_test_note(&requests, request, "1", 1);
    chunk_requests_test_note(&requests, request, "2", 1);
    chunk_requests_test_note(&requests, request, "3", 2);
    chunk_requests_test_expect(&requests, 0, "");
    chunk_requests_test_expect(&requests, 1, "2");
    chunk_requests_test_expect(&requests, 2,
                               "3"); /* a transaction tells of what it will make safe, */
    chunk_requests_test_expect(&requests, 0, ""); /* and that changes nothing */
    mr_chunk_requests_safe(&requests, 1);
    chunk_requests_test_expect(&requests, 0, "2");
    assert_int_equal(request->asked.place.rows, 2);
    mr_chunk_requests_begin_anew(&requests); /* the third was lost */
    chunk_requests_test_expect(&requests, 2, "2");
    assert_int_equal(request->state, MR_REQUEST_CHECKED);
    assert_int_equal(request->done.rows, 2);
    chunk_requests_test_settle(&requests, request, 1);
    chunk_requests_test_expect(&requests, 0, "2");
    chunk_requests_test_expect(&requests, 1, "-");
    mr_chunk_requests_safe(&requests, 1);
    mr_chunk_requests_begin_anew(&requests); /* all of it is there: nothing of it again */
    assert_ptr_equal(mr_chunk_requests_over(&requests), request);
    mr_chunk_requests_done(&requests);
}

/* Parts before the one that was under way are done; a table by itself may have been made again. */
static void test_found_goes_on_at_its_part(void **test_state)
{
    (void)test_state;
    static const struct {
        uint32_t safe, first, second, part;
        enum mr_copy_request_state state;
    } cases[] = {
        {0, 5, 7, 0, MR_REQUEST_WAITING}, {5, 5, 7, 0, MR_REQUEST_WAITING},
        {7, 5, 7, 1, MR_REQUEST_WAITING}, {6, 5, 7, 1, MR_REQUEST_WAITING},
        {9, 5, 7, 2, MR_REQUEST_SETTLED}, {9, 5, 0, 0, MR_REQUEST_WAITING},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_chunk_requests requests;
        chunk_requests_test_begin(&requests);
        struct mr_chunk_request *request = chunk_requests_test_ask(&requests, "t");
        request->asked.place.oid = cases[i].safe;
        chunk_requests_test_found(&requests, request, cases[i].first, cases[i].second);
        assert_int_equal(request->part, cases[i].part);
        assert_int_equal(request->state, cases[i].state);
        mr_chunk_requests_done(&requests);
    }
}

/* The end counts once it is stored that all of it is safe; at once where nothing is stored. */
static void test_end_is_stored(void **test_state)
{
    (void)test_state;
    for (int stores = 0; stores < 2; stores++) {
        struct mr_chunk_requests requests;
        chunk_requests_test_begin(&requests);
        requests.stores = stores;
        struct mr_chunk_request *request = chunk_requests_test_ask(&requests, "t");
        chunk_requests_test_found(&requests, request, 5, 0);
        chunk_requests_test_settle(&requests, request, 1);
        chunk_requests_test_expect(&requests, 0,
                                   ""); /* that is being stored, and nothing of the end */
        mr_chunk_requests_safe(&requests, 1);
        assert_null(mr_chunk_requests_over(&requests));
        mr_chunk_requests_stored(&requests);
        assert_ptr_equal(mr_chunk_requests_over(&requests), stores ? NULL : request);
        if (stores) {
            chunk_requests_test_expect(&requests, 1, "-");
            assert_null(mr_chunk_requests_over(&requests));
            mr_chunk_requests_stored(&requests);
            assert_ptr_equal(mr_chunk_requests_over(&requests), request);
        }
        mr_chunk_requests_done(&requests);
    }
}

static struct mr_asked_stored *stored_by_another(uint64_t *ret_step)
{
    struct mr_chunk_requests other;
    chunk_requests_test_begin(&other);
    struct mr_chunk_request *request = chunk_requests_test_ask(&other, "t");
    chunk_requests_test_ask(&other, "u");
    mr_copies_pause(of(&other), true);
    chunk_requests_test_note(&other, request, "7", 1);
    struct mr_asked_stored *stored = mr_chunk_requests_state(&other, 1);
    *ret_step = stored->step;
    mr_chunk_requests_done(&other);
    return stored;
}

/* A new process has what was stored, and what it was asked before it could know that. */
static void test_adopt_at_a_start(void **test_state)
{
    (void)test_state;
    uint64_t step;
    struct mr_asked_stored *stored = stored_by_another(&step);
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    chunk_requests_test_ask(&requests, "early");
    mr_chunk_requests_adopt(&requests, stored);
    assert_int_equal(requests.safe, step);
    struct mr_copy_request looks[8];
    bool paused;
    assert_int_equal(mr_copies_requests(of(&requests), looks, 8, &paused), 3);
    assert_true(paused);
    assert_string_equal(looks[0].table, "s.early");
    assert_string_equal(looks[1].table, "s.t");
    assert_string_equal(looks[2].table, "s.u");
    assert_int_equal(looks[0].id, 3);
    assert_int_equal(looks[1].rows, 1);
    assert_string_equal(mr_chunk_requests_of(&requests, 1)->asked.where, "n > 1");
    assert_null(mr_chunk_requests_of(&requests, 1)->asked.key);
    struct mr_asked_stored *again = mr_chunk_requests_state(&requests, 0);
    assert_int_equal(again->count, 3);
    assert_int_equal(again->last_id, 3);
    assert_string_equal(again->tables[1].place.after[0], "7");
    mr_chunk_requests_adopt(&requests, stored);
    assert_int_equal(requests.safe, step); /* nothing twice */
    assert_int_equal(mr_copies_requests(of(&requests), looks, 8, &paused), 3);
    mr_asked_stored_free(again);
    mr_asked_stored_free(stored);
    mr_chunk_requests_done(&requests);
}

/* It was not known whether the transaction had been committed: what is stored says so, and nothing
 * else counts. */
static void test_adopt_of_what_was_in_doubt(void **test_state)
{
    (void)test_state;
    for (int ends = 0; ends < 2; ends++) {
        struct mr_chunk_requests requests;
        chunk_requests_test_begin(&requests);
        struct mr_chunk_request *request = chunk_requests_test_ask(&requests, "t");
        chunk_requests_test_found(&requests, request, 5, 0);
        chunk_requests_test_note(&requests, request, "1", 1);
        mr_chunk_requests_safe(&requests, 1);
        if (ends) {
            chunk_requests_test_settle(&requests, request, 2);
        } else {
            chunk_requests_test_note(&requests, request, "2", 2);
        }
        struct mr_asked_stored *stored = mr_chunk_requests_state(&requests, 2);
        uint64_t step = stored->step;
        mr_chunk_requests_begin_anew(&requests);
        chunk_requests_test_expect(&requests, 0, "1");
        mr_chunk_requests_adopt(&requests, stored);
        assert_int_equal(requests.safe, step);
        chunk_requests_test_expect(&requests, 0, ends ? "-" : "2");
        if (ends) {
            assert_ptr_equal(mr_chunk_requests_over(&requests), request);
        }
        mr_asked_stored_free(stored);
        mr_chunk_requests_done(&requests);
    }
}

/* One that was stopped since does not come back, nor does one that has long been forgotten. */
static void test_adopt_brings_none_back(void **test_state)
{
    (void)test_state;
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    struct mr_chunk_request *request = chunk_requests_test_ask(&requests, "t");
    mr_chunk_requests_note(&requests, 1, NULL, NULL);
    struct mr_asked_stored *stored = mr_chunk_requests_state(&requests, 1);
    assert_int_equal(stored->step, 1);
    mr_chunk_request_set(&requests, request, MR_REQUEST_STOPPED);
    for (int i = 0; i < 40; i++) {
        mr_chunk_request_set(&requests, chunk_requests_test_ask(&requests, "u"),
                             MR_REQUEST_STOPPED);
        mr_chunk_requests_adopt(&requests, stored);
        assert_int_equal(requests.safe, 1);
        assert_int_equal(atomic_load(&requests.open), 0);
    }
    assert_null(mr_chunk_requests_of(&requests, 1));
    mr_asked_stored_free(stored);
    mr_chunk_requests_done(&requests);
}

/* Who asks for something is told once that is stored, not when something else is; and a stop is,
 * before anybody acts on it. */
static void test_wishes_are_stored(void **test_state)
{
    (void)test_state;
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    assert_true(mr_copies_is_stored(of(&requests)));
    struct mr_chunk_request *request = chunk_requests_test_ask(&requests, "t");
    assert_false(mr_copies_is_stored(of(&requests)));
    struct mr_asked_stored *stored = mr_chunk_requests_state(&requests, 1);
    assert_int_equal(stored->count, 1);
    mr_asked_stored_free(stored);
    assert_false(mr_copies_is_stored(of(&requests))); /* it is on its way */
    assert_int_equal(mr_copies_stop(of(&requests), "s", "t"), 1);
    mr_chunk_requests_stored(&requests);
    assert_false(mr_copies_is_stored(of(&requests))); /* what is stored is from before */
    stored = mr_chunk_requests_state(&requests, 1);
    assert_int_equal(stored->count, 0);
    mr_asked_stored_free(stored);
    mr_chunk_requests_stored(&requests);
    assert_true(mr_copies_is_stored(of(&requests)));
    chunk_requests_test_note(&requests, request, "7", 1); /* how far a copy is is nobody's wish */
    assert_true(mr_copies_is_stored(of(&requests)));
    mr_copies_pause(of(&requests), false); /* as it is */
    assert_true(mr_copies_is_stored(of(&requests)));
    mr_copies_pause(of(&requests), true);
    assert_false(mr_copies_is_stored(of(&requests)));
    requests.stores = false;
    assert_true(mr_copies_is_stored(of(&requests)));
    mr_chunk_requests_done(&requests);
}

static void streamed(struct mr_chunk_requests *requests, const char *const *tables, uint32_t first,
                     uint32_t count)
{
    struct mr_streamed_table list[8];
    for (uint32_t i = 0; i < count; i++) {
        list[i] = (struct mr_streamed_table){
            .id = mr_streamed_id(first + i, 0), .schema = "s", .table = tables[i]};
    }
    mr_copies_streamed(of(requests), list, count);
}

/* The tables that are asked for, in their order: "ab". */
static void expect_asked(struct mr_chunk_requests *requests, const char *tables)
{
    struct mr_asked_stored *state = mr_chunk_requests_state(requests, 0);
    uint32_t count = state == NULL ? 0 : state->count;
    assert_int_equal(count, strlen(tables));
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(state->tables[i].table[0], tables[i]);
    }
    mr_asked_stored_free(state);
}

/* The first look asks for none; a later one, also of another process, for those that are new. */
static void test_streamed_asks_for_what_is_new(void **test_state)
{
    (void)test_state;
    static const char *const tables[] = {"a", "b", "c", "d"};
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    mr_copies_follow(of(&requests), MR_FOLLOW_TABLES);
    streamed(&requests, tables, 10, 1); /* what is stored is not known yet */
    assert_int_equal(requests.known.kinds, 0);
    mr_chunk_requests_adopt(&requests, NULL);
    streamed(&requests, tables, 10, 1);
    expect_asked(&requests, "");
    assert_false(mr_copies_is_stored(of(&requests)));
    uint64_t revision = requests.revision;
    streamed(&requests, tables, 10, 1);
    assert_int_equal(requests.revision, revision); /* nothing is new to be stored */
    chunk_requests_test_ask(&requests, "b");
    streamed(&requests, tables, 10, 3); /* b has been asked for already */
    expect_asked(&requests, "bc");

    mr_chunk_requests_note(&requests, 1, NULL, NULL);
    struct mr_asked_stored *stored = mr_chunk_requests_state(&requests, 1);
    assert_string_equal(stored->known[MR_KNOWN_TABLES], "a,1,1");
    assert_null(stored->known[MR_KNOWN_LEAVES]);
    struct mr_chunk_requests later;
    chunk_requests_test_begin(&later);
    mr_copies_follow(of(&later), MR_FOLLOW_TABLES);
    mr_chunk_requests_adopt(&later, stored);
    streamed(&later, tables, 10, 4);
    expect_asked(&later, "bcd");
    streamed(&later, tables, 10, 1); /* the others are gone, */
    expect_asked(&later, "bcd");
    mr_copies_stop(of(&later), NULL, NULL);
    streamed(&later, tables, 110, 1); /* and another table has a's name */
    expect_asked(&later, "a");
    mr_chunk_requests_done(&later);

    /* Where it is not wanted, what was known is not passed on. */
    chunk_requests_test_begin(&later);
    mr_chunk_requests_adopt(&later, stored);
    streamed(&later, tables, 10, 4);
    expect_asked(&later, "bc");
    assert_int_equal(later.known.kinds, 0);
    mr_chunk_requests_done(&later);
    mr_asked_stored_free(stored);
    mr_chunk_requests_done(&requests);
}

enum { ROOT = 20, OTHER = 40, MARK = 7 };

static struct mr_streamed_table chunk_requests_test_leaf_of(uint32_t root, uint32_t oid,
                                                            uint32_t mark)
{
    return (struct mr_streamed_table){.id = mr_streamed_id(oid, mark),
                                      .schema = "s",
                                      .table = root == ROOT ? "p" : "q",
                                      .root = mr_streamed_id(root, MARK)};
}

/* A look at a root and its partitions, 21 and up, the last one with that mark, whose bounds are
 * read or not; at a table of the OID 23, and at another root. */
static void look_at_leaves(struct mr_chunk_requests *requests, uint32_t count, uint32_t mark,
                           const char *where)
{
    struct mr_streamed_table list[8];
    uint32_t n = 0;
    for (uint32_t i = 0; i <= count; i++) {
        list[n] = chunk_requests_test_leaf_of(ROOT, ROOT + i, i == count ? mark : MARK);
        list[n++].where = i == count ? where : "id = 0";
        if (i == 2) {
            list[n++] = (struct mr_streamed_table){
                .id = mr_streamed_id(23, 0), .schema = "s", .table = "a"};
        }
    }
    list[n++] = chunk_requests_test_leaf_of(OTHER, OTHER, MARK);
    mr_copies_streamed(of(requests), list, n);
}

static bool chunk_requests_test_lacks(struct mr_chunk_requests *requests, uint32_t root,
                                      uint32_t oid, uint32_t mark)
{
    const struct mr_streamed_table leaf = chunk_requests_test_leaf_of(root, oid, mark);
    return mr_copies_lacks(of(requests), &leaf);
}

/* One that is new has its rows of the root asked for once its bounds are known, and no other copy
 * of the root does instead. */
static void test_partitions_ask_for_their_rows(void **test_state)
{
    (void)test_state;
    static const char *const tables[] = {"a"};
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    mr_copies_follow(of(&requests), MR_FOLLOW_TABLES);
    mr_chunk_requests_adopt(&requests, NULL);
    streamed(&requests, tables, 23, 1);
    mr_copies_follow(of(&requests), MR_FOLLOW_TABLES | MR_FOLLOW_LEAVES);
    look_at_leaves(&requests, 2, MARK, NULL); /* the first look at any */
    expect_asked(&requests, "");
    assert_true(
        chunk_requests_test_lacks(&requests, ROOT, 23, MARK)); /* which is known as a table */
    assert_false(chunk_requests_test_lacks(&requests, 30, 31, MARK)); /* its root is new */
    assert_true(
        chunk_requests_test_lacks(&requests, OTHER, 22, 8)); /* from one root to the other */
    look_at_leaves(&requests, 3, MARK, NULL);
    expect_asked(&requests, "");
    chunk_requests_test_ask(&requests, "p");
    look_at_leaves(&requests, 3, MARK, "id > 5");
    expect_asked(&requests, "p");
    assert_true(chunk_requests_test_lacks(&requests, ROOT, 23, MARK));
    mr_chunk_request_set(&requests, requests.first, MR_REQUEST_DONE);
    look_at_leaves(&requests, 3, MARK, "id > 5");
    assert_false(chunk_requests_test_lacks(&requests, ROOT, 23, MARK));
    mr_chunk_requests_note(&requests, 1, NULL, NULL);
    struct mr_asked_stored *state = mr_chunk_requests_state(&requests, 1);
    assert_int_equal(state->count, 1);
    assert_string_equal(state->tables[0].where, "id > 5");
    assert_string_equal(state->known[MR_KNOWN_TABLES], "17");
    assert_string_equal(state->known[MR_KNOWN_LEAVES], "14.7,1.7,1.7,1.7,11.7");

    /* Detached and attached again while nobody looked. */
    struct mr_chunk_requests later;
    chunk_requests_test_begin(&later);
    mr_copies_follow(of(&later), MR_FOLLOW_LEAVES);
    mr_chunk_requests_adopt(&later, state);
    mr_asked_stored_free(state);
    mr_copies_stop(of(&later), NULL, NULL);
    look_at_leaves(&later, 3, MARK + 1, "id > 6");
    expect_asked(&later, "p");
    mr_chunk_requests_done(&later);
    mr_chunk_requests_done(&requests);
}

/* What is stored has six bytes for some characters, in conditions, names and the gap's tables: each
 * has a share of the record. */
static void test_what_is_stored_has_bounds(void **test_state)
{
    (void)test_state;
    enum { LONG = 4050, NAME = 60 };
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    mr_chunk_requests_adopt(&requests, NULL);
    static char where[LONG + 1], name[NAME + 1];
    memset(where, 1, LONG);
    memset(name, 2, NAME);
    mr_chunk_requests_note_gap(&requests, NULL, 0, 5, true, false);
    cJSON *names = cJSON_CreateArray();
    uint32_t taken = 0;
    for (uint32_t i = 0; i < MR_COPY_REQUESTS_MAX; i++) {
        snprintf(name + NAME - 4, 5, "%04u", i);
        cJSON_AddItemToArray(names, cJSON_CreateString(name));
        struct mr_copy_wish wish = {.schema = name, .table = name, .where = i < 64 ? where : NULL};
        uint64_t id;
        struct mr_error error;
        mr_status status = mr_chunk_requests_ask(&requests, &wish, &id, &error);
        taken += i < 64 && status == MR_OK;
        assert_true(status == MR_OK ||
                    strstr(error.text, "too much of the stored position") != NULL);
    }
    assert_int_equal(taken, STORED_MAX / (6 * LONG + 12 * NAME));
    mr_copies_describe_gap(of(&requests), names, NULL);
    cJSON_Delete(names);
    struct mr_asked_stored *state = mr_chunk_requests_state(&requests, 0);
    struct mr_checkpoint checkpoint = {0};
    mr_asked_stored_add(state, &checkpoint);
    mr_chunk_requests_add_gap(&requests, &checkpoint);
    assert_in_range(strlen(mr_checkpoint_section(&checkpoint, MR_SECTION_ASKED)->json),
                    STORED_MAX * 3 / 4, STORED_MAX + 100);
    const char *gap = mr_checkpoint_section(&checkpoint, MR_SECTION_GAP)->json;
    assert_in_range(strlen(gap), STORED_MAX / 5, STORED_MAX / 4 + 200);
    assert_non_null(strstr(gap, "\"others\""));
    mr_checkpoint_done(&checkpoint);
    mr_asked_stored_free(state);
    /* What ends leaves its room to others. */
    mr_chunk_request_set(&requests, requests.first, MR_REQUEST_STOPPED);
    chunk_requests_test_ask(&requests, "t");
    mr_chunk_requests_done(&requests);
}

/* Above a bound partitions are followed, but not stored. */
static void test_too_many_partitions_are_not_stored(void **test_state)
{
    (void)test_state;
    enum { COUNT = MR_KNOWN_LEAVES_MAX };
    static struct mr_streamed_table list[COUNT + 1];
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    mr_copies_follow(of(&requests), MR_FOLLOW_LEAVES);
    mr_chunk_requests_adopt(&requests, NULL);
    for (uint32_t i = 0; i <= COUNT; i++) {
        list[i] = chunk_requests_test_leaf_of(ROOT, ROOT + i, MARK);
    }
    for (uint32_t count = COUNT; count <= COUNT + 1; count++) {
        list[COUNT].where = "id > 5";
        mr_copies_streamed(of(&requests), list, count);
        struct mr_asked_stored *state = mr_chunk_requests_state(&requests, 0);
        assert_int_equal(state->known[MR_KNOWN_LEAVES] == NULL, count > COUNT);
        mr_asked_stored_free(state);
    }
    expect_asked(&requests, "p");
    assert_false(chunk_requests_test_lacks(&requests, ROOT, ROOT + COUNT, MARK));
    mr_chunk_requests_done(&requests);
}

/* What has no room now is asked for at a later look. */
static void test_streamed_waits_for_room(void **test_state)
{
    (void)test_state;
    enum { COUNT = MR_COPY_REQUESTS_MAX + 50 };
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    mr_copies_follow(of(&requests), MR_FOLLOW_TABLES);
    mr_chunk_requests_adopt(&requests, NULL);
    mr_copies_streamed(of(&requests), NULL, 0);
    static char names[COUNT][8];
    static struct mr_streamed_table list[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "t%u", i);
        list[i] = (struct mr_streamed_table){
            .id = mr_streamed_id(i + 1, 0), .schema = "s", .table = names[i]};
    }
    mr_copies_streamed(of(&requests), list, COUNT);
    uint32_t first = requests.known.count;
    assert_in_range(first, 1, MR_COPY_REQUESTS_MAX);
    assert_int_equal(requests.open, first);
    for (struct mr_chunk_request *one = requests.first; one != NULL; one = one->next) {
        mr_chunk_request_set(&requests, one, MR_REQUEST_DONE);
    }
    mr_copies_streamed(of(&requests), list, COUNT);
    assert_int_equal(requests.known.count, COUNT);
    assert_int_equal(requests.open, COUNT - first);
    mr_chunk_requests_done(&requests);
}

/* All conditions stand in one record. */
static void test_ask_refuses_too_long_conditions(void **test_state)
{
    (void)test_state;
    enum { LEN = STORED_MAX / 2 - 200 };
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    char *where = MR_ALLOC(LEN + 1);
    memset(where, 'a', LEN);
    where[LEN] = '\0';
    uint64_t id;
    struct mr_error error;
    static const char *const tables[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        struct mr_copy_wish wish = {.schema = "s", .table = tables[i], .where = where};
        assert_int_equal(mr_chunk_requests_ask(&requests, &wish, &id, &error),
                         i < 2 ? MR_OK : MR_ERR_CONFIG);
    }
    free(where);
    mr_chunk_requests_done(&requests);
}

/* Keys are values of rows: no record has them. The end is learned all the same, and a lost session
 * is one. */
static void test_keys_are_not_stored(void **test_state)
{
    (void)test_state;
    struct mr_chunk_requests requests;
    struct mr_error error;
    uint64_t ids[2];
    chunk_requests_test_begin(&requests);
    cJSON *object =
        cJSON_Parse("{\"why\":\"missing\",\"columns\":[\"id\"],\"keys\":[[\"7\"],[\"8\"]]}");
    for (int i = 0; i < 2; i++) { /* of one table there may be several */
        struct mr_copy_wish wish = {
            .schema = "s", .table = "t", .keys = mr_chunk_keys_parse(object)};
        assert_int_equal(mr_chunk_requests_ask(&requests, &wish, &ids[i], &error), MR_OK);
    }
    cJSON_Delete(object);
    struct mr_chunk_request *first = mr_chunk_requests_of(&requests, ids[0]);
    struct mr_chunk_request *second = mr_chunk_requests_of(&requests, ids[1]);
    chunk_requests_test_found(&requests, first, 5, 0);
    assert_int_equal(first->rows_estimated, 2);
    chunk_requests_test_expect(&requests, 0, "-");
    chunk_requests_test_settle(&requests, first, 1);
    mr_chunk_requests_safe(&requests, 1);
    chunk_requests_test_expect(&requests, 1, "-");
    mr_chunk_requests_stored(&requests);
    assert_ptr_equal(mr_chunk_requests_over(&requests), first);
    mr_chunk_request_set(&requests, first, MR_REQUEST_DONE);
    assert_null(first->keys);
    assert_null(mr_chunk_requests_over(&requests));
    mr_chunk_requests_begin_anew(&requests);
    assert_ptr_equal(mr_chunk_requests_over(&requests), second);
    struct mr_asked_stored stored = {.step = 50, .last_id = 9};
    mr_chunk_requests_adopt(&requests, &stored);
    assert_false(second->asked.place.settled); /* though another instance was here */
    mr_chunk_requests_done(&requests);
}

/* What a record has of the gap that says so far; the caller's. */
static cJSON *gap_at(struct mr_chunk_requests *requests, mr_lsn end_lsn)
{
    struct mr_checkpoint checkpoint = {.end_lsn = end_lsn};
    struct mr_section_rank rank;
    mr_chunk_requests_add_gap(requests, &checkpoint);
    const struct mr_section *section = mr_checkpoint_section(&checkpoint, MR_SECTION_GAP);
    cJSON *gap = section == NULL ? NULL : cJSON_Parse(section->json);
    assert_true(section == NULL || mr_gap_rank(section->json, &rank));
    mr_checkpoint_done(&checkpoint);
    return gap;
}

static cJSON *gap_of(struct mr_chunk_requests *requests)
{
    return gap_at(requests, 1);
}

static void expect_gap(struct mr_chunk_requests *requests, const char *to, const char *settled,
                       double rows)
{
    cJSON *gap = gap_of(requests);
    const cJSON *tables = cJSON_GetObjectItem(gap, "tables");
    const cJSON *one = cJSON_GetObjectItem(tables, "s.t");
    const char *how = cJSON_GetStringValue(cJSON_GetObjectItem(gap, "settled"));
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(gap, "to")), to);
    assert_string_equal(how == NULL ? "" : how, settled);
    assert_true((one == NULL ? 0 : one->valuedouble) == rows);
    cJSON_Delete(gap);
}

static void adopt_gap(struct mr_chunk_requests *requests, const char *json)
{
    struct mr_checkpoint stored = {.end_lsn = 1};
    mr_checkpoint_add(&stored, MR_SECTION_GAP, MR_STRDUP(json), &(struct mr_section_rank){0});
    mr_chunk_requests_adopt_gap(requests, &stored);
    mr_checkpoint_done(&stored);
}

static void mend(struct mr_chunk_requests *requests, uint64_t rows)
{
    uint64_t id;
    struct mr_error error;
    cJSON *object = cJSON_Parse("{\"why\":\"missing\",\"columns\":[\"id\"],\"keys\":[[\"7\"]]}");
    struct mr_copy_wish wish = {.schema = "s", .table = "t", .keys = mr_chunk_keys_parse(object)};
    cJSON_Delete(object);
    assert_int_equal(mr_chunk_requests_ask(requests, &wish, &id, &error), MR_OK);
    struct mr_chunk_request *request = mr_chunk_requests_of(requests, id);
    mr_chunk_request_did(requests, request, &(struct mr_chunks_done){.rows = rows});
    mr_chunk_request_set(requests, request, MR_REQUEST_DONE);
}

static void test_gap(void **test_state)
{
    (void)test_state;
    struct mr_chunk_requests requests;
    struct mr_checkpoint known = {.end_lsn = 16, .last = {.time_us = 5000}};
    chunk_requests_test_begin(&requests);
    assert_null(gap_of(&requests));
    assert_false(mr_copies_describe_gap(of(&requests), NULL, "gap"));
    mend(&requests, 1);
    mr_chunk_requests_note_gap(&requests, &known, known.end_lsn, 32, true, false);
    expect_gap(&requests, "0/20", "", 0);
    mend(&requests, 7);
    expect_gap(&requests, "0/20", "", 7);
    adopt_gap(&requests, "{\"to\":\"0/10\"}"); /* one before */
    expect_gap(&requests, "0/20", "", 7);
    cJSON *names = cJSON_Parse("[\"s.t\",\"s.u\"]");
    assert_true(mr_copies_describe_gap(of(&requests), names, "differing"));
    cJSON_Delete(names);
    adopt_gap(&requests, "{\"to\":\"0/20\"}"); /* that is not stored yet */
    mend(&requests, 1);
    expect_gap(&requests, "0/20", "differing", 7);
    adopt_gap(&requests, "{\"to\":\"0/30\",\"tables\":{\"s.t\":3}}");
    expect_gap(&requests, "0/30", "", 3);
    mr_chunk_requests_done(&requests);
}

/* The range of an earlier one, its tables and its rows are not lost with the next; one that is
 * settled is history. */
static void test_gaps_that_are_open_join(void **test_state)
{
    (void)test_state;
    struct mr_chunk_requests requests;
    struct mr_checkpoint known = {.end_lsn = 16, .last = {.time_us = 5000}};
    chunk_requests_test_begin(&requests);
    mr_chunk_requests_note_gap(&requests, &known, known.end_lsn, 32, true, false);
    mend(&requests, 7);
    known = (struct mr_checkpoint){.end_lsn = 48, .last = {.time_us = 9000}};
    mr_chunk_requests_note_gap(&requests, &known, known.end_lsn, 64, true, false);
    expect_gap(&requests, "0/40", "", 7);
    struct mr_gap gap = mr_copies_gap(of(&requests));
    assert_true(gap.is_open && gap.from == 16 && gap.to == 64 && gap.from_ms == 5);
    assert_true(mr_copies_describe_gap(of(&requests), NULL, "gap"));
    assert_false(mr_copies_gap(of(&requests)).is_open);
    known.end_lsn = 80;
    mr_chunk_requests_note_gap(&requests, &known, known.end_lsn, 96, true, false);
    gap = mr_copies_gap(of(&requests));
    assert_true(gap.is_open && gap.from == 80 && gap.to == 96 && gap.from_ms == 9);
    expect_gap(&requests, "0/60", "", 0);
    mr_chunk_requests_done(&requests);
}

/* Not before the record that has the stream at its beginning, which is stored when the copy's last
 * rows are. */
static void test_a_gap_is_settled_at_the_end_of_its_copy(void **test_state)
{
    (void)test_state;
    struct mr_chunk_requests requests;
    struct mr_checkpoint known = {.end_lsn = 16};
    chunk_requests_test_begin(&requests);
    mr_chunk_requests_note_gap(&requests, &known, known.end_lsn, 64, true, true);
    expect_gap(&requests, "0/40", "", 0);
    adopt_gap(&requests,
              "{\"from\":\"0/10\",\"to\":\"0/40\",\"tables\":{}}"); /* as it was stored */
    cJSON_Delete(gap_at(&requests, 63));
    assert_true(mr_copies_gap(of(&requests)).is_open);
    mr_chunk_requests_note_gap(&requests, &known, known.end_lsn, 64, false, true); /* the same */
    cJSON_Delete(gap_at(&requests, 64));
    expect_gap(&requests, "0/40", "everything", 0);
    mr_chunk_requests_done(&requests);
}

static void test_gap_names_so_many_tables(void **test_state)
{
    (void)test_state;
    struct mr_chunk_requests requests;
    chunk_requests_test_begin(&requests);
    mr_chunk_requests_note_gap(&requests, NULL, 0, 64, true, false);
    cJSON *names = cJSON_CreateArray();
    for (int i = 0; i < 2000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s.t%d", i);
        cJSON_AddItemToArray(names, cJSON_CreateString(name));
    }
    mr_copies_describe_gap(of(&requests), names, NULL);
    cJSON_Delete(names);
    mend(&requests, 4);
    cJSON *gap = gap_of(&requests);
    assert_in_range(cJSON_GetArraySize(cJSON_GetObjectItem(gap, "tables")), 500, 1999);
    assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(gap, "others")) == 4);
    cJSON_Delete(gap);
    mr_chunk_requests_done(&requests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notes_count_with_their_steps),
        cmocka_unit_test(test_end_is_stored),
        cmocka_unit_test(test_found_goes_on_at_its_part),
        cmocka_unit_test(test_adopt_at_a_start),
        cmocka_unit_test(test_adopt_of_what_was_in_doubt),
        cmocka_unit_test(test_adopt_brings_none_back),
        cmocka_unit_test(test_wishes_are_stored),
        cmocka_unit_test(test_streamed_asks_for_what_is_new),
        cmocka_unit_test(test_streamed_waits_for_room),
        cmocka_unit_test(test_partitions_ask_for_their_rows),
        cmocka_unit_test(test_what_is_stored_has_bounds),
        cmocka_unit_test(test_too_many_partitions_are_not_stored),
        cmocka_unit_test(test_ask_refuses_too_long_conditions),
        cmocka_unit_test(test_keys_are_not_stored),
        cmocka_unit_test(test_gap),
        cmocka_unit_test(test_gaps_that_are_open_join),
        cmocka_unit_test(test_a_gap_is_settled_at_the_end_of_its_copy),
        cmocka_unit_test(test_gap_names_so_many_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
