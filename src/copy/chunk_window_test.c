/* A model of a server with transactions that commit, wait and abort at any moment, its stream, and
 * a reader of chunks. What goes out must be what the stream has at that place, and in the end the
 * folded topic must be the table. */
#include "copy/chunk_window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

enum {
    KEYS = 24,
    CLIENTS = 6,
    CHANGES_MAX = 4,
    LOG_MAX = 6000, /* transactions of a run */
    VERSIONS_MAX = 4096,
    ABSENT = 0, /* in place of a value: there is no row */
};

struct change {
    uint32_t key; /* KEYS: the table is emptied */
    uint32_t value;
    bool lacks; /* an update that leaves a large value as it was, and out of its event */
};

struct transaction {
    uint32_t xid;
    struct change changes[CHANGES_MAX];
    uint32_t count;
    uint64_t end_lsn; /* of its commit record; 0: none */
    bool under_way;   /* others don't see its end yet */
    bool aborted;
};

struct version {
    uint32_t transaction; /* UINT32_MAX: was there before all of them */
    uint32_t value;
};

struct model {
    uint64_t random;
    uint32_t next_xid, latest_completed;
    uint64_t lsn;
    struct transaction log[LOG_MAX]; /* in order of their numbers */
    uint32_t log_count;
    uint32_t commits[LOG_MAX]; /* in order of the WAL */
    uint32_t commit_count;
    int64_t clients[CLIENTS]; /* its transaction; -1: none */
    struct version versions[KEYS][VERSIONS_MAX];
    uint32_t version_count[KEYS];
    uint32_t last_value;
    /* The stream. */
    uint32_t streamed; /* of the commits */
    uint64_t reached;
    uint32_t at_stream[KEYS]; /* the table as the stream has it */
    /* The topic, folded. */
    bool known[KEYS];
    bool whole[KEYS]; /* it had the large value, too, since the row is there */
    uint32_t topic[KEYS];
    /* The reader. */
    struct mr_chunk_window *window;
    enum { IDLE, ASKED, READ, WAITS } reader;
    uint32_t cursor, chunk_len, rows;
    uint32_t row_key[KEYS], row_value[KEYS];
    struct mr_chunk_snapshot snapshot;
    uint64_t wal_end;
    bool all_read;
    uint32_t verdicts[4], sent, dropped, again;
};

static uint32_t chunk_window_test_below(struct model *model, uint32_t limit)
{
    model->random = model->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(model->random >> 33) % limit;
}

static mr_slice key_text(uint32_t key, char text[16])
{
    int len = snprintf(text, 16, "{\"id\":%u}", key);
    return (mr_slice){.data = (const uint8_t *)text, .len = (size_t)len};
}

static uint32_t new_xid(struct model *model)
{
    return model->next_xid++;
}

static void complete(struct model *model, uint32_t xid)
{
    if ((int32_t)(xid - model->latest_completed) > 0) {
        model->latest_completed = xid;
    }
}

static bool chunk_window_test_is_locked(const struct model *model, uint32_t key, uint32_t but)
{
    for (uint32_t c = 0; c < CLIENTS; c++) {
        if (model->clients[c] < 0 || (uint32_t)model->clients[c] == but) {
            continue;
        }
        const struct transaction *other = &model->log[model->clients[c]];
        for (uint32_t i = 0; i < other->count; i++) {
            if (other->changes[i].key == key || other->changes[i].key == KEYS || key == KEYS) {
                return true;
            }
        }
    }
    return false;
}

static uint32_t newest(const struct model *model, uint32_t key)
{
    for (uint32_t i = model->version_count[key]; i-- > 0;) {
        const struct version *version = &model->versions[key][i];
        if (version->transaction == UINT32_MAX || !model->log[version->transaction].aborted) {
            return version->value;
        }
    }
    return ABSENT;
}

static void chunk_window_test_put(struct model *model, uint32_t key, uint32_t transaction,
                                  uint32_t value)
{
    assert_true(model->version_count[key] < VERSIONS_MAX);
    model->versions[key][model->version_count[key]++] =
        (struct version){.transaction = transaction, .value = value};
}

static void write_something(struct model *model, uint32_t number)
{
    struct transaction *transaction = &model->log[number];
    uint32_t key =
        chunk_window_test_below(model, 60) == 0 ? KEYS : chunk_window_test_below(model, KEYS);
    if (transaction->count == CHANGES_MAX || chunk_window_test_is_locked(model, key, number)) {
        return;
    }
    uint32_t value = chunk_window_test_below(model, 3) == 0 ? ABSENT : ++model->last_value;
    transaction->changes[transaction->count++] =
        (struct change){.key = key,
                        .value = key == KEYS ? ABSENT : value,
                        .lacks = key != KEYS && value != ABSENT && newest(model, key) != ABSENT &&
                                 chunk_window_test_below(model, 2) == 0};
    for (uint32_t k = 0; k < KEYS; k++) {
        if (k == key || key == KEYS) {
            chunk_window_test_put(model, k, number, key == KEYS ? ABSENT : value);
        }
    }
}

/* One step of a client: begins, writes, writes its commit record, is seen to have ended. Between
 * the last two may lie as much as you like. */
static void step_client(struct model *model, uint32_t c, bool finish)
{
    if (model->clients[c] < 0) {
        if (!finish && model->log_count < LOG_MAX) {
            model->clients[c] = model->log_count;
            model->log[model->log_count++] =
                (struct transaction){.xid = new_xid(model), .under_way = true};
        }
        return;
    }
    uint32_t number = (uint32_t)model->clients[c];
    struct transaction *transaction = &model->log[number];
    if (transaction->end_lsn == 0 && !finish && chunk_window_test_below(model, 3) != 0) {
        write_something(model, number);
        return;
    }
    if (transaction->end_lsn == 0 && chunk_window_test_below(model, 8) != 0) {
        model->lsn += 1 + chunk_window_test_below(model, 100);
        transaction->end_lsn = model->lsn;
        model->commits[model->commit_count++] = number;
        return;
    }
    if (!finish && chunk_window_test_below(model, 3) == 0) {
        return; /* waits for a synchronous standby */
    }
    transaction->aborted = transaction->end_lsn == 0;
    transaction->under_way = false;
    complete(model, transaction->xid);
    model->clients[c] = -1;
}

/* As GetSnapshotData has it: xmax is after the latest that has ended, not after the latest that has
 * begun. */
static void take_snapshot(struct model *model)
{
    struct mr_chunk_snapshot *snapshot = &model->snapshot;
    char text[32 * (CLIENTS + 2)];
    uint64_t epoch = UINT64_C(3) << 32;
    uint32_t xmax = model->latest_completed + 1;
    uint32_t xmin = xmax;
    char list[32 * CLIENTS] = "";
    size_t len = 0;
    for (uint32_t c = 0; c < CLIENTS; c++) {
        if (model->clients[c] < 0) {
            continue;
        }
        uint32_t xid = model->log[model->clients[c]].xid;
        if ((int32_t)(xid - xmax) < 0) {
            len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%llu", len == 0 ? "" : ",",
                                    (unsigned long long)(epoch + xid));
        }
        xmin = (int32_t)(xid - xmin) < 0 ? xid : xmin;
    }
    snprintf(text, sizeof(text), "%llu:%llu:%s", (unsigned long long)(epoch + xmin),
             (unsigned long long)(epoch + xmax), list);
    assert_true(mr_chunk_snapshot_parse(text, snapshot));
}

static uint32_t value_seen(const struct model *model, uint32_t key)
{
    for (uint32_t i = model->version_count[key]; i-- > 0;) {
        const struct version *version = &model->versions[key][i];
        const struct transaction *by =
            version->transaction == UINT32_MAX ? NULL : &model->log[version->transaction];
        /* All that have ended by now, and no others: the model's own truth, without a look at
         * numbers. */
        if (by == NULL || (!by->under_way && !by->aborted)) {
            return version->value;
        }
    }
    return ABSENT;
}

static void stream_change(struct model *model, uint32_t key, uint32_t value, bool lacks)
{
    model->at_stream[key] = value;
    model->known[key] = true;
    model->whole[key] = value != ABSENT && (model->whole[key] || !lacks);
    model->topic[key] = value;
}

static void step_stream(struct model *model)
{
    if (model->streamed == model->commit_count) {
        model->reached = model->lsn; /* a keepalive */
        return;
    }
    const struct transaction *next = &model->log[model->commits[model->streamed++]];
    for (uint32_t i = 0; i < next->count; i++) {
        char text[16];
        uint32_t key = next->changes[i].key;
        if (key == KEYS) {
            mr_chunk_window_truncate(model->window);
            for (uint32_t k = 0; k < KEYS; k++) {
                stream_change(model, k, ABSENT, false);
            }
        } else {
            bool lacks = next->changes[i].lacks;
            mr_chunk_window_change(model->window, key_text(key, text), lacks);
            stream_change(model, key, next->changes[i].value, lacks);
        }
    }
    mr_chunk_window_commit(model->window, next->xid);
    model->reached = next->end_lsn;
}

static void chunk_window_test_ask(struct model *model)
{
    if (mr_chunk_window_wants_number(model->window)) {
        uint32_t xid = new_xid(model);
        model->lsn += 1;
        complete(model, xid);
        mr_chunk_window_take_number(model->window, xid);
    }
    mr_chunk_window_open(model->window);
    model->reader = ASKED;
}

static void chunk_window_test_read_chunk(struct model *model)
{
    take_snapshot(model);
    model->chunk_len = 1 + chunk_window_test_below(model, 8);
    model->rows = 0;
    for (uint32_t k = model->cursor; k < KEYS && k < model->cursor + model->chunk_len; k++) {
        uint32_t value = value_seen(model, k);
        if (value != ABSENT) {
            model->row_key[model->rows] = k;
            model->row_value[model->rows++] = value;
        }
    }
    model->lsn += chunk_window_test_below(model, 2);
    model->wal_end = model->lsn;
    model->reader = READ;
}

static void chunk_window_test_judge(struct model *model)
{
    enum mr_chunk_verdict verdict =
        mr_chunk_window_judge(model->window, &model->snapshot, model->wal_end);
    mr_chunk_snapshot_done(&model->snapshot);
    model->verdicts[verdict]++;
    model->reader = verdict == MR_CHUNK_GOOD ? WAITS : IDLE;
    for (uint32_t i = 0; i < model->rows && verdict == MR_CHUNK_GOOD; i++) {
        char text[16];
        assert_true(mr_chunk_window_add(model->window, key_text(model->row_key[i], text)));
    }
}

static void send_rows(struct model *model)
{
    if (!mr_chunk_window_is_due(model->window, model->reached)) {
        return;
    }
    for (uint32_t i = 0; i < model->rows; i++) {
        uint32_t key = model->row_key[i];
        if (mr_chunk_window_goes_out(model->window, i)) {
            assert_int_equal(model->row_value[i], model->at_stream[key]);
            model->known[key] = model->whole[key] = true;
            model->topic[key] = model->row_value[i];
            model->sent++;
        } else if (mr_chunk_window_lacks(model->window, i)) {
            model->again++;
            mr_chunk_window_close(model->window);
            model->cursor = key;
            model->reader = IDLE;
            return;
        } else {
            assert_true(model->known[key]);
            model->dropped++;
        }
    }
    mr_chunk_window_close(model->window);
    model->cursor += model->chunk_len;
    model->all_read = model->cursor >= KEYS;
    model->reader = IDLE;
}

static void step_reader(struct model *model)
{
    switch (model->reader) {
    case IDLE:
        if (!model->all_read) {
            chunk_window_test_ask(model);
        }
        break;
    case ASKED:
        chunk_window_test_read_chunk(model);
        break;
    case READ:
        chunk_window_test_judge(model);
        break;
    case WAITS:
        send_rows(model);
        break;
    }
}

static void chunk_window_test_run(struct model *model, uint64_t seed, uint32_t noted_max,
                                  size_t bytes_max)
{
    memset(model, 0, sizeof(*model));
    model->random = seed;
    chunk_window_test_below(model, 2);
    model->next_xid = UINT32_MAX - 40 + chunk_window_test_below(model, 80); /* numbers go round */
    model->latest_completed = model->next_xid - 1;
    model->window = mr_chunk_window_new(noted_max, bytes_max, seed);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        model->clients[c] = -1;
    }
    for (uint32_t k = 0; k < KEYS; k++) {
        uint32_t value = chunk_window_test_below(model, 4) == 0 ? ABSENT : ++model->last_value;
        chunk_window_test_put(model, k, UINT32_MAX, value);
        model->at_stream[k] = value;
    }
    /* How often each gets its turn differs from run to run; one client may sleep in its
     * transaction. */
    uint32_t stream_share = 1 + chunk_window_test_below(model, 8);
    uint32_t reader_share = 1 + chunk_window_test_below(model, 8);
    uint32_t asleep = chunk_window_test_below(model, 4) == 0 ? 0 : CLIENTS;
    for (uint32_t i = 0; i < 1500 || (!model->all_read && i < 60000); i++) {
        uint32_t turn = chunk_window_test_below(model, CLIENTS + stream_share + reader_share);
        if (turn < CLIENTS && model->log_count < LOG_MAX - CLIENTS) {
            if (turn != asleep || i % 256 == 0) {
                step_client(model, turn, false);
            }
        } else if (turn < CLIENTS + stream_share) {
            step_stream(model);
        } else {
            step_reader(model);
        }
    }
    for (uint32_t i = 0; !model->all_read || model->streamed < model->commit_count || i < 100;
         i++) {
        assert_true(i < 100000);
        step_client(model, i % CLIENTS, true);
        step_stream(model);
        step_reader(model);
    }
    for (uint32_t k = 0; k < KEYS; k++) {
        uint32_t value = newest(model, k);
        assert_int_equal(model->at_stream[k], value);
        assert_int_equal(model->known[k] ? model->topic[k] : ABSENT, value);
        assert_true(value == ABSENT || model->whole[k]);
    }
    mr_chunk_window_free(model->window);
}

static void add_up(uint32_t sums[7], const struct model *model)
{
    for (uint32_t i = 0; i < 4; i++) {
        sums[i] += model->verdicts[i];
    }
    sums[4] += model->sent;
    sums[5] += model->dropped;
    sums[6] += model->again;
}

static void test_any_moment(void **state)
{
    (void)state;
    struct model *model = MR_NEW(struct model);
    uint32_t sums[7] = {0};
    for (uint64_t seed = 1; seed <= 400; seed++) {
        chunk_window_test_run(model, seed, 1000, 1 << 20);
        add_up(sums, model);
    }
    /* All of it has happened, often. */
    assert_true(sums[MR_CHUNK_GOOD] > 1000 && sums[MR_CHUNK_HELD] > 100);
    assert_int_equal(sums[MR_CHUNK_TOO_MUCH], 0);
    assert_true(sums[4] > 1000 && sums[5] > 100 && sums[6] > 100);
    free(model);
}

static void test_little_room(void **state)
{
    (void)state;
    struct model *model = MR_NEW(struct model);
    uint32_t sums[7] = {0};
    for (uint64_t seed = 1; seed <= 200; seed++) {
        chunk_window_test_run(model, seed, 4 + seed % 30, 100);
        add_up(sums, model);
    }
    assert_true(sums[MR_CHUNK_GOOD] > 500 && sums[MR_CHUNK_TOO_MUCH] > 20);
    free(model);
}

/* By one from before A, then by one that the stream has had and no snapshot sees yet. */
static void test_held(void **state)
{
    (void)state;
    struct mr_chunk_window *window = mr_chunk_window_new(10, 1000, 1);
    struct mr_chunk_snapshot before, unseen, good;
    assert_true(mr_chunk_snapshot_parse("4:9:4,7", &before));
    assert_true(mr_chunk_snapshot_parse("7:9:7,8", &unseen));
    assert_true(mr_chunk_snapshot_parse("8:9:8", &good));
    mr_chunk_window_take_number(window, 5);
    mr_chunk_window_commit(window, 7);
    mr_chunk_window_open(window);
    mr_chunk_window_commit(window, 8);
    assert_int_equal(mr_chunk_window_judge(window, &before, 100), MR_CHUNK_HELD);
    assert_int_equal(mr_chunk_window_holder(window), 4);
    assert_true(mr_chunk_window_is_held(window, &unseen));
    assert_int_equal(mr_chunk_window_holder(window), 7);
    mr_chunk_window_commit(window, 9); /* after R, so it holds up nothing */
    assert_false(mr_chunk_window_is_held(window, &good));
    mr_chunk_window_free(window);
    mr_chunk_snapshot_done(&before);
    mr_chunk_snapshot_done(&unseen);
    mr_chunk_snapshot_done(&good);
}

static void test_other_columns(void **state)
{
    (void)state;
    struct mr_chunk_window *window = mr_chunk_window_new(10, 1000, 1);
    struct mr_chunk_snapshot snapshot;
    char text[16];
    assert_true(mr_chunk_window_wants_number(window));
    mr_chunk_window_take_number(window, 5);
    mr_chunk_window_open(window);
    mr_chunk_window_reshape(window);
    assert_true(mr_chunk_snapshot_parse("6:6:", &snapshot));
    assert_int_equal(mr_chunk_window_judge(window, &snapshot, 100), MR_CHUNK_AGAIN);
    mr_chunk_window_open(window);
    assert_int_equal(mr_chunk_window_judge(window, &snapshot, 100), MR_CHUNK_GOOD);
    assert_true(mr_chunk_window_add(window, key_text(1, text)));
    assert_false(mr_chunk_window_is_due(window, 99));
    assert_true(mr_chunk_window_is_due(window, 100));
    assert_false(mr_chunk_window_is_void(window));
    mr_chunk_window_reshape(window);
    assert_true(mr_chunk_window_is_void(window));
    assert_false(mr_chunk_window_is_due(window, 100));
    mr_chunk_window_close(window);
    mr_chunk_window_free(window);
}

static void test_snapshot_texts(void **state)
{
    (void)state;
    struct mr_chunk_snapshot snapshot;
    assert_true(mr_chunk_snapshot_parse("4294967306:4294967316:4294967306,4294967310", &snapshot));
    assert_int_equal(snapshot.xmin, 10);
    assert_int_equal(snapshot.xmax, 20);
    assert_int_equal(snapshot.xip_count, 2);
    assert_int_equal(snapshot.xip[1], 14);
    mr_chunk_snapshot_done(&snapshot);
    assert_true(mr_chunk_snapshot_parse("10:20:17,12,15", &snapshot)); /* as if it went round */
    assert_int_equal(snapshot.xip[0], 12);
    assert_int_equal(snapshot.xip[2], 17);
    mr_chunk_snapshot_done(&snapshot);
    static const char *const wrong[] = {
        "",         "10",         "10:20", ":20:",    "a:b:",      "10:20:,",
        "10:20:1,", "10:20:1,,2", " 1:2:", "10:-20:", "10:20:1;2", "99999999999999999999:1:"};
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        assert_false(mr_chunk_snapshot_parse(wrong[i], &snapshot));
    }
}

/* 2^19, and one more. */
static void test_too_many_are_under_way(void **state)
{
    (void)state;
    enum { MOST = 1 << 19 };
    static const char head[] = "10:20:";
    struct mr_chunk_snapshot snapshot;
    char *text = MR_ALLOC(sizeof(head) + (size_t)2 * (MOST + 1));
    memcpy(text, head, sizeof(head) - 1);
    char *at = text + sizeof(head) - 1;
    for (uint32_t i = 0; i < MOST; i++) {
        *at++ = '7';
        *at++ = ',';
    }
    at[-1] = '\0';
    assert_true(mr_chunk_snapshot_parse(text, &snapshot));
    assert_int_equal(snapshot.xip_count, MOST);
    mr_chunk_snapshot_done(&snapshot);
    memcpy(at - 1, ",7", 3);
    assert_false(mr_chunk_snapshot_parse(text, &snapshot));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_moment),     cmocka_unit_test(test_little_room),
        cmocka_unit_test(test_held),           cmocka_unit_test(test_other_columns),
        cmocka_unit_test(test_snapshot_texts), cmocka_unit_test(test_too_many_are_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
