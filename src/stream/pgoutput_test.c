#include "stream/pgoutput.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "stream/relation_cache.h"
#include "testing/pgoutput_builder.h"
#include "testing/test.h"

enum {
    OID =
        4711, /* of the two-column table that open_transaction announces; + 1 and + 2 are as wide */
    COMMIT_LSN = 0x2000,
    RECORD_LSN = 0x1234,
    SEEN_MAX = 64,
    VALUES_MAX = 8,
};

/* Remembers what the decoder handed over, the last of each kind and all positions. */
struct seen {
    struct mr_source_handler handler;
    struct mr_pgoutput *decoder;
    struct mr_error error;

    unsigned begins, commits, changes, messages, relation_ends, keepalives, parts;
    mr_lsn server_end;          /* of the last keepalive */
    unsigned full_transactions; /* so many begins and commits are full */
    unsigned calls;             /* of change and message, whatever they answered */
    unsigned full_at;           /* this call answers `answer`; 0: none */
    mr_status answer;
    bool skips; /* answers MR_OK to what it has taken already, as the pipeline does */

    struct mr_change change;
    struct mr_datum before[VALUES_MAX], after[VALUES_MAX];
    struct mr_message_event message;
    struct mr_transaction transaction;
    const struct mr_transaction *transaction_at;
    uint32_t ended_oid;
    char ended_table[MR_IDENTIFIER_MAX + 1];
    struct mr_position positions[SEEN_MAX]; /* of what was taken */
    uint32_t relations[SEEN_MAX];           /* OIDs beside them; 0 for a message */
    unsigned taken;
};

/* Answers for one call, and notes its position when it is taken. */
static mr_status pgoutput_test_take(struct seen *seen, struct mr_position position, uint32_t oid)
{
    if (++seen->calls == seen->full_at) {
        return seen->answer;
    }
    if (seen->skips && seen->taken > 0 &&
        mr_position_compare(position, seen->positions[seen->taken - 1]) <= 0) {
        return MR_OK;
    }
    if (seen->taken < SEEN_MAX) {
        seen->positions[seen->taken] = position;
        seen->relations[seen->taken] = oid;
        seen->taken++;
    }
    return MR_OK;
}

static void copy_values(struct mr_datum *to, const struct mr_tuple *tuple, uint32_t count)
{
    for (uint32_t i = 0; tuple->kind != MR_TUPLE_NONE && i < count && i < VALUES_MAX; i++) {
        to[i] = tuple->values[i];
    }
}

static mr_status pgoutput_test_on_change(void *context, const struct mr_change *change,
                                         struct mr_error *error)
{
    struct seen *seen = context;
    mr_status status = pgoutput_test_take(seen, change->position, change->relation->oid);
    if (status != MR_OK) {
        return status == MR_FULL ? status : mr_fail(error, status, "from the handler");
    }
    seen->changes++;
    seen->change = *change;
    copy_values(seen->before, &change->before, change->relation->column_count);
    copy_values(seen->after, &change->after, change->relation->column_count);
    return MR_OK;
}

static mr_status pgoutput_test_on_message(void *context, const struct mr_message_event *message,
                                          struct mr_error *error)
{
    struct seen *seen = context;
    mr_status status = pgoutput_test_take(seen, message->position, 0);
    if (status != MR_OK) {
        return status == MR_FULL ? status : mr_fail(error, status, "from the handler");
    }
    seen->message = *message;
    seen->messages++;
    return MR_OK;
}

static mr_status pgoutput_test_on_begin(void *context, const struct mr_transaction *transaction,
                                        struct mr_error *ret_error)
{
    (void)ret_error;
    struct seen *seen = context;
    if (seen->full_transactions > 0) {
        seen->full_transactions--;
        return MR_FULL;
    }
    seen->begins++;
    seen->transaction = *transaction;
    seen->transaction_at = transaction;
    return MR_OK;
}

static mr_status pgoutput_test_on_commit(void *context, const struct mr_transaction *transaction,
                                         struct mr_error *ret_error)
{
    (void)ret_error;
    struct seen *seen = context;
    assert_ptr_equal(transaction, seen->transaction_at);
    if (seen->full_transactions > 0) {
        seen->full_transactions--;
        return MR_FULL;
    }
    seen->commits++;
    seen->transaction = *transaction;
    return MR_OK;
}

static void pgoutput_test_on_relation_end(void *context, const struct mr_relation *relation)
{
    struct seen *seen = context;
    seen->relation_ends++;
    seen->ended_oid = relation->oid;
    snprintf(seen->ended_table, sizeof(seen->ended_table), "%s", relation->table);
}

static int pgoutput_test_setup(void **state)
{
    struct seen *seen = calloc(1, sizeof(*seen));
    seen->handler = (struct mr_source_handler){
        .context = seen,
        .change = pgoutput_test_on_change,
        .message = pgoutput_test_on_message,
        .begin = pgoutput_test_on_begin,
        .commit = pgoutput_test_on_commit,
        .relation_end = pgoutput_test_on_relation_end,
    };
    seen->answer = MR_FULL;
    seen->decoder = mr_pgoutput_new();
    *state = seen;
    return 0;
}

static int pgoutput_test_teardown(void **state)
{
    struct seen *seen = *state;
    mr_pgoutput_free(seen->decoder);
    free(seen);
    return 0;
}

static mr_status decode(struct seen *seen, const struct mr_wire *wire)
{
    return mr_pgoutput_decode(seen->decoder, RECORD_LSN, mr_wire_slice(wire), &seen->handler,
                              &seen->error);
}

/* The message in a block of exactly its size, so that a sanitizer sees a read past it. */
static mr_status decode_cut(struct seen *seen, const struct mr_wire *wire, size_t len)
{
    uint8_t *bytes = malloc(len);
    memcpy(bytes, wire->bytes, len);
    mr_status status =
        mr_pgoutput_decode(seen->decoder, RECORD_LSN, (mr_slice){.data = bytes, .len = len},
                           &seen->handler, &seen->error);
    free(bytes);
    return status;
}

static void assert_ok(struct seen *seen, const struct mr_wire *wire)
{
    if (decode(seen, wire) != MR_OK) {
        fail_msg("%s", seen->error.text);
    }
}

/* Fails as a protocol error whose text says `what`, and hands nothing over. */
static void assert_wrong(struct seen *seen, const struct mr_wire *wire, const char *what)
{
    unsigned calls = seen->calls + seen->begins + seen->commits + seen->relation_ends;
    assert_int_equal(decode_cut(seen, wire, wire->len), MR_ERR_PROTOCOL);
    assert_int_equal(seen->error.status, MR_ERR_PROTOCOL);
    if (strstr(seen->error.text, what) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", seen->error.text, what);
    }
    assert_non_null(strstr(seen->error.text, " at 0/1234: "));
    assert_null(strstr(seen->error.text, "secret"));
    assert_int_equal(seen->calls + seen->begins + seen->commits + seen->relation_ends, calls);
}

static const char *const columns[] = {"id", "v"};
static const char *const row[] = {"1", "secret"};

static void announce(struct seen *seen, uint32_t oid, const char *table)
{
    struct mr_wire wire;
    mr_wire_relation(&wire, oid, 'd', table, columns, 2);
    assert_ok(seen, &wire);
}

static void pgoutput_test_begin(struct seen *seen, mr_lsn commit_lsn)
{
    struct mr_wire wire;
    mr_wire_begin(&wire, commit_lsn, 77);
    assert_ok(seen, &wire);
}

static void pgoutput_test_commit(struct seen *seen, mr_lsn commit_lsn)
{
    struct mr_wire wire;
    mr_wire_commit(&wire, commit_lsn, commit_lsn + 0x30);
    assert_ok(seen, &wire);
}

static void pgoutput_test_open_transaction(struct seen *seen)
{
    pgoutput_test_begin(seen, COMMIT_LSN);
    announce(seen, OID, "t");
    announce(seen, OID + 1, "u");
    announce(seen, OID + 2, "v");
}

static void pgoutput_test_insert(struct seen *seen)
{
    struct mr_wire wire;
    mr_wire_insert(&wire, OID, row, 2);
    assert_ok(seen, &wire);
}

/* By memcmp, which the address sanitizer watches. */
static void pgoutput_test_assert_bytes(const uint8_t *bytes, size_t len, const char *text)
{
    assert_int_equal(len, strlen(text));
    assert_true(memcmp(bytes, text, len) == 0);
}

static void assert_datum(struct mr_datum datum, enum mr_datum_kind kind, const char *bytes)
{
    assert_int_equal(datum.kind, kind);
    pgoutput_test_assert_bytes(datum.data, datum.len, bytes);
}

static void assert_no_datum(struct mr_datum datum, enum mr_datum_kind kind)
{
    assert_int_equal(datum.kind, kind);
    assert_int_equal(datum.len, 0);
    assert_null(datum.data);
}

static void assert_slice(mr_slice slice, const char *text)
{
    pgoutput_test_assert_bytes(slice.data, slice.len, text);
}

static void test_decode_transaction(void **state)
{
    struct seen *seen = *state;
    assert_false(mr_pgoutput_in_transaction(seen->decoder));
    pgoutput_test_begin(seen, COMMIT_LSN);
    assert_true(mr_pgoutput_in_transaction(seen->decoder));
    assert_int_equal(seen->begins, 1);
    assert_int_equal(seen->transaction.commit_lsn, COMMIT_LSN);
    assert_int_equal(seen->transaction.end_lsn, 0);
    assert_int_equal(seen->transaction.last_commit_lsn, 0);
    assert_int_equal(seen->transaction.commit_time_us, INT64_C(946684800000000) + 1000000);
    assert_int_equal(seen->transaction.xid, 77);
    assert_int_equal(seen->transaction.origin.len, 0);
    assert_int_equal(seen->transaction.origin_lsn, 0);
    pgoutput_test_commit(seen, COMMIT_LSN);
    assert_false(mr_pgoutput_in_transaction(seen->decoder));
    assert_int_equal(seen->commits, 1);
    assert_int_equal(seen->transaction.commit_lsn, COMMIT_LSN);
    assert_int_equal(seen->transaction.end_lsn, COMMIT_LSN + 0x30);
    assert_int_equal(seen->transaction.xid, 77);
    /* What was handed out is valid until the next Begin. */
    assert_int_equal(seen->transaction_at->end_lsn, COMMIT_LSN + 0x30);
    pgoutput_test_begin(seen, 0x3000);
    assert_int_equal(seen->transaction.last_commit_lsn, COMMIT_LSN + 0x30);
    assert_int_equal(seen->transaction.end_lsn, 0);
    pgoutput_test_commit(seen, 0x3000);
    pgoutput_test_begin(seen, UINT64_MAX - 0x30);
    assert_int_equal(seen->transaction.last_commit_lsn, 0x3030);
    pgoutput_test_commit(seen, UINT64_MAX - 0x30);
    assert_int_equal(seen->transaction.end_lsn, UINT64_MAX);
}

static void test_decode_begin_out_of_place(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    mr_wire_begin(&wire, 0, 1);
    assert_wrong(seen, &wire, "(Begin) at 0/1234: its commit LSN 0/0 is not after 0/0");
    pgoutput_test_open_transaction(seen);
    mr_wire_begin(&wire, 0x3000, 1);
    assert_wrong(seen, &wire, "a transaction is open already");
    pgoutput_test_commit(seen, COMMIT_LSN);
    mr_wire_begin(&wire, COMMIT_LSN, 1);
    assert_wrong(seen, &wire, "its commit LSN 0/2000 is not after 0/2000");
    mr_wire_begin(&wire, COMMIT_LSN - 1, 1);
    assert_wrong(seen, &wire, "its commit LSN 0/1FFF is not after 0/2000");
    assert_false(mr_pgoutput_in_transaction(seen->decoder));
    pgoutput_test_begin(seen, COMMIT_LSN + 1);
}

static void begin_at_time(struct mr_wire *wire, uint64_t commit_lsn, int64_t time_us)
{
    mr_wire_reset(wire);
    mr_wire_u8(wire, 'B');
    mr_wire_u64(wire, commit_lsn);
    mr_wire_u64(wire, (uint64_t)time_us);
    mr_wire_u32(wire, 1);
}

static void test_decode_begin_time_range(void **state)
{
    struct seen *seen = *state;
    static const struct {
        int64_t since_2000_us, since_1970_us;
    } times[] = {
        {0, INT64_C(946684800000000)},
        {-INT64_C(946684800000000), 0},
        {INT64_MIN / 1000 - MR_PG_EPOCH_US, INT64_MIN / 1000},
        {INT64_MAX / 1000 - MR_PG_EPOCH_US, INT64_MAX / 1000},
        /* What can't be told in nanoseconds is clamped, the infinities too. */
        {INT64_MIN / 1000 - MR_PG_EPOCH_US - 1, INT64_MIN / 1000},
        {INT64_MAX / 1000 - MR_PG_EPOCH_US + 1, INT64_MAX / 1000},
        {INT64_MIN, INT64_MIN / 1000},
        {INT64_MAX, INT64_MAX / 1000},
    };
    struct mr_wire wire;
    for (size_t i = 0; i < MR_ARRAY_LEN(times); i++) {
        begin_at_time(&wire, 0x1000 + i, times[i].since_2000_us);
        assert_ok(seen, &wire);
        assert_true(seen->transaction.commit_time_us == times[i].since_1970_us);
        pgoutput_test_commit(seen, 0x1000 + i);
    }
}

static void test_decode_full_begin_and_commit_come_again(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    seen->full_transactions = 1;
    mr_wire_begin(&wire, COMMIT_LSN, 1);
    assert_int_equal(decode(seen, &wire), MR_FULL);
    assert_false(mr_pgoutput_in_transaction(seen->decoder));
    assert_ok(seen, &wire);
    assert_int_equal(seen->begins, 1);
    seen->full_transactions = 1;
    mr_wire_commit(&wire, COMMIT_LSN, COMMIT_LSN + 1);
    assert_int_equal(decode(seen, &wire), MR_FULL);
    assert_true(mr_pgoutput_in_transaction(seen->decoder));
    assert_ok(seen, &wire);
    assert_int_equal(seen->commits, 1);
    pgoutput_test_begin(seen, COMMIT_LSN + 1);
    assert_int_equal(seen->transaction.last_commit_lsn, COMMIT_LSN + 1);
}

static void test_decode_commit_out_of_place(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    mr_wire_commit(&wire, COMMIT_LSN, COMMIT_LSN + 0x30);
    assert_wrong(seen, &wire, "(Commit) at 0/1234: no transaction is open");
    pgoutput_test_open_transaction(seen);
    mr_wire_commit(&wire, COMMIT_LSN + 1, COMMIT_LSN + 0x30);
    assert_wrong(seen, &wire, "its commit LSN 0/2001 is not Begin's 0/2000");
    mr_wire_commit(&wire, COMMIT_LSN, COMMIT_LSN);
    assert_wrong(seen, &wire, "its end LSN is not after its commit LSN");
    mr_wire_commit(&wire, COMMIT_LSN, COMMIT_LSN - 1);
    assert_wrong(seen, &wire, "its end LSN is not after its commit LSN");
    for (unsigned flags = 1; flags <= UINT8_MAX; flags++) {
        mr_wire_commit(&wire, COMMIT_LSN, COMMIT_LSN + 0x30);
        wire.bytes[1] = (uint8_t)flags;
        assert_wrong(seen, &wire, "unknown flags");
    }
    assert_true(mr_pgoutput_in_transaction(seen->decoder));
    mr_wire_commit(&wire, COMMIT_LSN, COMMIT_LSN + 1);
    assert_ok(seen, &wire);
    assert_int_equal(seen->transaction.end_lsn, COMMIT_LSN + 1);
}

static void test_decode_origin(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    mr_wire_origin(&wire, 0x99, "elsewhere");
    assert_wrong(seen, &wire, "(Origin) at 0/1234: no transaction is open");
    pgoutput_test_open_transaction(seen);
    assert_int_equal(decode_cut(seen, &wire, wire.len), MR_OK); /* its bytes are gone then */
    pgoutput_test_insert(seen);
    assert_slice(seen->change.transaction->origin, "elsewhere");
    assert_int_equal(seen->change.transaction->origin_lsn, 0x99);
    pgoutput_test_commit(seen, COMMIT_LSN);
    assert_slice(seen->transaction.origin, "elsewhere");
    assert_int_equal(seen->transaction.origin_lsn, 0x99);
    pgoutput_test_begin(seen, 0x3000);
    assert_int_equal(seen->transaction.origin.len, 0);
    assert_int_equal(seen->transaction.origin_lsn, 0);
    mr_wire_origin(&wire, 0, "");
    assert_ok(seen, &wire);
    pgoutput_test_insert(seen);
    assert_int_equal(seen->change.transaction->origin.len, 0);
}

static void test_decode_origin_length_limit(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    char name[513 + 1] = {0};
    struct mr_wire wire;
    for (size_t len = 511; len <= 513; len++) {
        memset(name, 'o', len);
        mr_wire_origin(&wire, 1, name);
        if (len <= 512) {
            assert_ok(seen, &wire);
            pgoutput_test_insert(seen);
            assert_slice(seen->change.transaction->origin, name);
        } else {
            assert_wrong(seen, &wire, "the origin's name is too long");
        }
    }
    assert_int_equal(seen->change.transaction->origin.len, 512);
}

static void test_decode_relation_description(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    pgoutput_test_begin(seen, COMMIT_LSN);
    mr_wire_relation_head(&wire, UINT32_MAX, "Sch\"ema",
                          "t\xc3\xa4"
                          "ble",
                          'i', 3);
    mr_wire_column(&wire, 1, "id", 20, -1);
    mr_wire_column(&wire, 0, "price", 1700, 655366);
    mr_wire_column(&wire, 1, "no", UINT32_MAX, INT32_MIN);
    assert_int_equal(decode_cut(seen, &wire, wire.len), MR_OK); /* its bytes are gone then */
    mr_wire_insert(&wire, UINT32_MAX, (const char *[]){"1", "2", "3"}, 3);
    assert_ok(seen, &wire);
    const struct mr_relation *relation = seen->change.relation;
    assert_int_equal(relation->oid, UINT32_MAX);
    assert_string_equal(relation->schema, "Sch\"ema");
    assert_string_equal(relation->table, "t\xc3\xa4"
                                         "ble");
    assert_int_equal(relation->identity, MR_IDENTITY_INDEX);
    assert_int_equal(relation->column_count, 3);
    assert_string_equal(relation->columns[0].name, "id");
    assert_int_equal(relation->columns[0].type_oid, 20);
    assert_int_equal(relation->columns[0].type_modifier, -1);
    assert_true(relation->columns[0].in_identity);
    assert_string_equal(relation->columns[1].name, "price");
    assert_int_equal(relation->columns[1].type_oid, 1700);
    assert_int_equal(relation->columns[1].type_modifier, 655366);
    assert_false(relation->columns[1].in_identity);
    assert_string_equal(relation->columns[2].name, "no");
    assert_int_equal(relation->columns[2].type_oid, UINT32_MAX);
    assert_int_equal(relation->columns[2].type_modifier, INT32_MIN);
    assert_true(relation->columns[2].in_identity);
}

static void test_decode_relation_empty_schema_is_pg_catalog(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    pgoutput_test_begin(seen, COMMIT_LSN);
    mr_wire_relation_head(&wire, OID, "", "t", 'n', 0);
    assert_ok(seen, &wire);
    assert_ok(seen, &wire);
    assert_int_equal(seen->relation_ends, 0);
    mr_wire_insert(&wire, OID, NULL, 0);
    assert_ok(seen, &wire);
    assert_string_equal(seen->change.relation->schema, "pg_catalog");
    assert_int_equal(seen->change.relation->identity, MR_IDENTITY_NOTHING);
}

static void test_decode_relation_identical_is_kept(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    pgoutput_test_insert(seen);
    const struct mr_relation *relation = seen->change.relation;
    uint64_t allocs = mr_alloc_count();
    announce(seen, OID, "t");
    pgoutput_test_commit(seen, COMMIT_LSN);
    announce(seen, OID, "t"); /* also between transactions */
    assert_int_equal(mr_alloc_count(), allocs);
    assert_int_equal(seen->relation_ends, 0);
    pgoutput_test_begin(seen, 0x3000);
    pgoutput_test_insert(seen);
    assert_ptr_equal(seen->change.relation, relation);
}

/* What a relation can differ in from the one before it. */
static mr_status say_array(void *context, const struct mr_transaction *transaction,
                           struct mr_relation *view, struct mr_error *ret_error)
{
    (void)context;
    (void)transaction;
    (void)ret_error;
    for (uint32_t i = 0; i < view->column_count; i++) {
        view->columns[i].type.is_array = view->columns[i].type_oid % 2 == 1;
    }
    mr_relation_flagged_key(view);
    return MR_OK;
}

/* The names of Type messages are those of the next relation's columns, and of no other's. */
static void test_decode_relation_type_names(void **state)
{
    struct seen *seen = *state;
    static const char *const names[] = {"s.mood", "s.mood[]", "s.mood[]", "int4", NULL};
    static const uint32_t oids[] = {70000, 70001, 70001, 70002, 25};
    struct mr_wire wire;
    mr_pgoutput_set_describe(seen->decoder, say_array, NULL);
    pgoutput_test_begin(seen, COMMIT_LSN);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < 3000 && again == 0; i++) { /* more than any relation has columns */
            mr_wire_type(&wire, 70000, "s", "mood");
            assert_ok(seen, &wire);
            mr_wire_type(&wire, 70001, "s", "_mood");
            assert_ok(seen, &wire);
            mr_wire_type(&wire, 70002, "", "int4");
            assert_ok(seen, &wire);
            mr_wire_type(&wire, 80000 + (uint32_t)i, "s", "other");
            assert_ok(seen, &wire);
        }
        mr_wire_relation_head(&wire, OID, "public", "t", 'd', MR_ARRAY_LEN(oids));
        for (size_t i = 0; i < MR_ARRAY_LEN(oids); i++) {
            mr_wire_column(&wire, i == 0, "c", oids[i], -1);
        }
        assert_ok(seen, &wire);
        mr_wire_insert(&wire, OID, (const char *[]){"1", "2", "3", "4", "5"}, 5);
        assert_ok(seen, &wire);
        for (size_t i = 0; i < MR_ARRAY_LEN(oids); i++) {
            const char *name = seen->change.relation->columns[i].type_name;
            if (again == 0 && names[i] != NULL) {
                assert_string_equal(name, names[i]);
            } else {
                assert_null(name);
            }
        }
    }
    assert_int_equal(seen->relation_ends, 1); /* without names it is another version */
}

static void relation_version(struct mr_wire *wire, unsigned version)
{
    mr_wire_relation_head(wire, OID, version == 1 ? "private" : "public", version == 2 ? "t2" : "t",
                          version == 3 ? 'f' : 'd', version == 4 ? 1 : 2);
    mr_wire_column(wire, version != 5, version == 6 ? "ID" : "id", version == 7 ? 23 : 25,
                   version == 8 ? 4 : -1);
    if (version != 4) {
        mr_wire_column(wire, version == 9, "v", version == 10 ? 23 : 25, version == 11 ? 4 : -1);
    }
}

static void test_decode_relation_replaced(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    pgoutput_test_begin(seen, COMMIT_LSN);
    relation_version(&wire, 0);
    assert_ok(seen, &wire);
    for (unsigned version = 1; version <= 11; version++) {
        relation_version(&wire, version);
        assert_ok(seen, &wire);
        assert_int_equal(seen->relation_ends, 2 * version - 1);
        assert_int_equal(seen->ended_oid, OID);
        assert_string_equal(seen->ended_table, "t");
        mr_wire_insert(&wire, OID, row, version == 4 ? 1 : 2);
        assert_ok(seen, &wire);
        assert_string_equal(seen->change.relation->table, version == 2 ? "t2" : "t");
        relation_version(&wire, 0);
        assert_ok(seen, &wire);
        assert_int_equal(seen->relation_ends, 2 * version);
    }
    mr_wire_insert(&wire, OID, row, 1);
    assert_wrong(seen, &wire, "not as many values as its relation has columns");
    pgoutput_test_insert(seen);
}

static void test_decode_relation_identity_and_flags(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    for (unsigned byte = 0; byte <= UINT8_MAX; byte++) {
        mr_wire_relation(&wire, OID, (char)byte, "t", columns, 2);
        if (byte == 'd' || byte == 'n' || byte == 'f' || byte == 'i') {
            assert_ok(seen, &wire);
        } else {
            assert_wrong(seen, &wire, "(Relation) at 0/1234: unknown replica identity");
        }
        mr_wire_relation_head(&wire, OID, "public", "t", 'd', 1);
        mr_wire_column(&wire, (uint8_t)byte, "id", 25, -1);
        if (byte <= 1) {
            assert_ok(seen, &wire);
        } else {
            assert_wrong(seen, &wire, "unknown flags of a column");
        }
    }
}

static void test_decode_relation_column_limit(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_begin(seen, COMMIT_LSN);
    static const char *names[MR_COLUMNS_MAX + 1];
    static const char *values[MR_COLUMNS_MAX + 1];
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        names[i] = "c";
        values[i] = i % 2 == 0 ? "x" : NULL;
    }
    struct mr_wire wire;
    for (uint16_t count = MR_COLUMNS_MAX - 1; count <= MR_COLUMNS_MAX; count++) {
        mr_wire_relation(&wire, OID, 'd', "wide", names, count);
        assert_ok(seen, &wire);
        mr_wire_update(&wire, OID, 'O', values, values, count);
        assert_ok(seen, &wire);
        assert_int_equal(seen->change.relation->column_count, count);
        assert_datum(seen->change.before.values[MR_COLUMNS_MAX - 2], MR_DATUM_TEXT, "x");
    }
    assert_no_datum(seen->change.before.values[MR_COLUMNS_MAX - 1], MR_DATUM_NULL);
    assert_no_datum(seen->change.after.values[MR_COLUMNS_MAX - 1], MR_DATUM_NULL);
    mr_wire_relation(&wire, OID, 'd', "too wide", names, MR_COLUMNS_MAX + 1);
    assert_wrong(seen, &wire, "too many columns");
    mr_wire_relation(&wire, OID, 'd', "narrow", names, 0);
    assert_ok(seen, &wire);
    mr_wire_insert(&wire, OID, values, 0);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.relation->column_count, 0);
    assert_int_equal(seen->change.after.kind, MR_TUPLE_NEW);
}

static void test_decode_identifier_limit(void **state)
{
    struct seen *seen = *state;
    char name[MR_IDENTIFIER_MAX + 2] = {0};
    struct mr_wire wire;
    for (size_t len = MR_IDENTIFIER_MAX - 1; len <= MR_IDENTIFIER_MAX + 1; len++) {
        memset(name, 'n', len);
        for (unsigned place = 0; place < 5; place++) {
            if (place < 3) {
                mr_wire_relation_head(&wire, OID, place == 0 ? name : "s", place == 1 ? name : "t",
                                      'd', 1);
                mr_wire_column(&wire, 1, place == 2 ? name : "c", 25, -1);
            } else {
                mr_wire_type(&wire, OID, place == 3 ? name : "s", place == 4 ? name : "t");
            }
            if (len <= MR_IDENTIFIER_MAX) {
                assert_ok(seen, &wire);
            } else {
                assert_wrong(seen, &wire, "an identifier is too long");
            }
        }
    }
}

static void test_decode_relation_cache_of_many(void **state)
{
    struct seen *seen = *state;
    enum { MANY = 3000 };
    /* Near each other, in steps, and scattered. */
    static uint32_t oids[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        oids[i] = i < 1000 ? 16384 + i : i < 2000 ? i << 16 : i * 2654435761u;
    }
    pgoutput_test_begin(seen, COMMIT_LSN);
    char table[16];
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(table, sizeof(table), "t%u", i);
        announce(seen, oids[i], table);
    }
    struct mr_wire wire;
    for (uint32_t step = 0; step < 2 * MANY; step++) {
        uint32_t i = step * 7 % MANY;
        mr_wire_insert(&wire, oids[i], row, 2);
        assert_ok(seen, &wire);
        assert_int_equal(seen->change.relation->oid, oids[i]);
        snprintf(table, sizeof(table), "t%u", i);
        assert_string_equal(seen->change.relation->table, table);
    }
    mr_wire_insert(&wire, 16383, row, 2);
    assert_wrong(seen, &wire, "relation 16383 was not announced");
    assert_int_equal(seen->relation_ends, 0);
    mr_pgoutput_reset(seen->decoder, &seen->handler);
    assert_int_equal(seen->relation_ends, MANY);
}

static void test_decode_relation_count_limit(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    for (uint32_t i = 0; i < MR_RELATIONS_MAX; i++) {
        mr_wire_relation_head(&wire, 16384 + i, "s", "t", 'd', 0);
        assert_int_equal(decode(seen, &wire), MR_OK);
    }
    mr_wire_relation_head(&wire, 16384 + MR_RELATIONS_MAX, "s", "t", 'd', 0);
    assert_wrong(seen, &wire, "more than 100000 relations");
    mr_wire_relation_head(&wire, 16384, "s", "t", 'd', 0); /* known */
    assert_ok(seen, &wire);
    assert_int_equal(seen->relation_ends, 0);
    mr_wire_relation_head(&wire, 16384, "s", "renamed", 'd', 0);
    assert_ok(seen, &wire);
    assert_int_equal(seen->relation_ends, 1);
    mr_wire_relation_head(&wire, 16384 + MR_RELATIONS_MAX, "s", "t", 'd', 0);
    assert_wrong(seen, &wire, "more than 100000 relations");
}

/* How many relations of 50 columns fit, whose first column has another name in each, or not. */
static uint32_t relations_that_fit(struct seen *seen, size_t bytes_max, bool are_equal)
{
    struct mr_wire wire;
    uint32_t count = 0;
    mr_status status;
    mr_pgoutput_reset(seen->decoder, &seen->handler);
    mr_pgoutput_limit_relations(seen->decoder, bytes_max);
    do {
        char name[64];
        mr_wire_relation_head(&wire, 16384 + count, "s", "t", 'd', 50);
        for (uint32_t i = 0; i < 50; i++) {
            snprintf(name, sizeof(name), "%063u", i == 0 && !are_equal ? count : UINT32_MAX);
            mr_wire_column(&wire, 0, name, 25, -1);
        }
        status = decode(seen, &wire);
    } while (status == MR_OK && ++count < 10000);
    assert_int_equal(status, MR_ERR_CONFIG);
    assert_non_null(strstr(seen->error.text, "raise pipeline.memory"));
    return count;
}

static void test_decode_relation_bytes_limit(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    const size_t most = 100 * 1000;
    assert_in_range(relations_that_fit(seen, most, true), most / 500,
                    most / 250); /* all is shared */
    /* A column is its name and three numbers. */
    assert_in_range(relations_that_fit(seen, most, false), most / (50 * 120 + 500),
                    most / (50 * 64));
    /* A new version takes the place of the old one. */
    unsigned ends = seen->relation_ends;
    for (uint32_t i = 0; i < 1000; i++) {
        mr_wire_relation_head(&wire, 16384, "s", i % 2 == 0 ? "one" : "two", 'd', 0);
        assert_ok(seen, &wire);
    }
    assert_int_equal(seen->relation_ends - ends, 1000);
}

/* Equal columns are one object, until the last table that has them is another; what differs in
 * anything is not. */
static void test_decode_relation_shares_columns(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    const struct mr_relation *of[3];
    pgoutput_test_begin(seen, COMMIT_LSN);
    for (uint32_t again = 0; again < 2; again++) {
        for (uint32_t i = 0; i < 3; i++) {
            mr_wire_relation(&wire, OID + i, 'd', i == 0 ? "t" : "u", columns, 2);
            assert_ok(seen, &wire);
            mr_wire_insert(&wire, OID + i, row, 2);
            assert_ok(seen, &wire);
            of[i] = seen->change.relation;
        }
        assert_ptr_equal(of[0]->columns, of[1]->columns);
        assert_ptr_equal(of[0]->columns, of[2]->columns);
        assert_string_equal(of[0]->table, "t");
        assert_int_equal(mr_relation_layout_number(of[0]), mr_relation_layout_number(of[2]));
        relation_version(&wire, 8); /* of the same table: a modifier */
        assert_ok(seen, &wire);
        mr_wire_insert(&wire, OID, row, 2);
        assert_ok(seen, &wire);
        assert_ptr_not_equal(seen->change.relation->columns, of[1]->columns);
        assert_string_equal(of[1]->columns[0].name, "id");
    }
}

static void test_decode_type_is_passed_over(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    mr_wire_type(&wire, 16400, "public", "mood");
    assert_ok(seen, &wire);
    mr_wire_type(&wire, 16400, "", "mood");
    assert_ok(seen, &wire);
    assert_int_equal(seen->calls, 0);
}

static void test_decode_insert(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    struct mr_wire wire;
    mr_wire_insert(&wire, OID, (const char *[]){"1", NULL}, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.op, MR_OP_INSERT);
    assert_int_equal(seen->change.lsn, RECORD_LSN);
    assert_int_equal(seen->change.position.commit_lsn, COMMIT_LSN);
    assert_int_equal(seen->change.position.ordinal, 1);
    assert_ptr_equal(seen->change.transaction, seen->transaction_at);
    assert_int_equal(seen->change.relation->oid, OID);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_NONE);
    assert_null(seen->change.before.values);
    assert_int_equal(seen->change.after.kind, MR_TUPLE_NEW);
    assert_datum(seen->after[0], MR_DATUM_TEXT, "1");
    assert_no_datum(seen->after[1], MR_DATUM_NULL);
    /* Values are the message's own bytes. */
    assert_ptr_equal(seen->after[0].data, wire.bytes + 1 + 4 + 1 + 2 + 1 + 4);
}

static void test_decode_insert_datum_kinds(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    struct mr_wire wire;
    mr_wire_insert(&wire, OID, (const char *[]){"", mr_wire_unchanged}, 2);
    assert_ok(seen, &wire);
    assert_datum(seen->after[0], MR_DATUM_TEXT, "");
    assert_no_datum(seen->after[1], MR_DATUM_UNCHANGED);
    for (unsigned kind = 0; kind <= UINT8_MAX; kind++) {
        mr_wire_reset(&wire);
        mr_wire_u8(&wire, 'I');
        mr_wire_u32(&wire, OID);
        mr_wire_u8(&wire, 'N');
        mr_wire_count16(&wire, 2);
        if (kind == 't' || kind == 'b') {
            mr_wire_value(&wire, (char)kind, "secret", 6);
        } else {
            mr_wire_u8(&wire, (uint8_t)kind);
        }
        mr_wire_u8(&wire, 'n');
        if (kind == 't' || kind == 'b') {
            assert_ok(seen, &wire);
            assert_datum(seen->after[0], kind, "secret");
        } else if (kind == 'n' || kind == 'u') {
            assert_ok(seen, &wire);
            assert_no_datum(seen->after[0], kind);
        } else {
            assert_wrong(seen, &wire, "a value is of an unknown kind");
        }
    }
}

/* A table of two columns; `flags`: of the first and of the second. */
static void announce_identity(struct seen *seen, uint32_t oid, const char *table, char identity,
                              const char *flags)
{
    struct mr_wire wire;
    mr_wire_relation_head(&wire, oid, "public", table, identity, 2);
    mr_wire_column(&wire, flags[0] == '1', "id", 23, -1);
    mr_wire_column(&wire, flags[1] == '1', "v", 25, -1);
    assert_ok(seen, &wire);
}

static void test_decode_update(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    struct mr_wire wire;
    const char *const values[] = {"2", mr_wire_unchanged};
    mr_wire_update(&wire, OID, 0, NULL, values, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.op, MR_OP_UPDATE);
    assert_int_equal(seen->change.lsn, RECORD_LSN);
    assert_int_equal(seen->change.relation->oid, OID);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_NONE);
    assert_null(seen->change.before.values);
    assert_int_equal(seen->change.after.kind, MR_TUPLE_NEW);
    assert_datum(seen->after[0], MR_DATUM_TEXT, "2");
    assert_no_datum(seen->after[1], MR_DATUM_UNCHANGED);
    mr_wire_update(&wire, OID, 'K', (const char *[]){"1", NULL}, values, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_KEY);
    assert_datum(seen->before[0], MR_DATUM_TEXT, "1");
    assert_no_datum(seen->before[1], MR_DATUM_NULL);
    assert_datum(seen->after[0], MR_DATUM_TEXT, "2");
    mr_wire_update(&wire, OID, 'O', (const char *[]){"1", NULL}, values, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_KEY); /* the relation is not FULL */
    announce_identity(seen, OID, "t", 'f', "11");
    mr_wire_update(&wire, OID, 'O', (const char *[]){"1", "old"}, values, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_FULL);
    assert_datum(seen->before[1], MR_DATUM_TEXT, "old");
    assert_no_datum(seen->after[1], MR_DATUM_UNCHANGED);
    assert_int_equal(seen->change.position.ordinal, 4);
}

static void test_decode_delete(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    struct mr_wire wire;
    mr_wire_delete(&wire, OID, 'K', (const char *[]){"1", NULL}, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.op, MR_OP_DELETE);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_KEY);
    assert_datum(seen->before[0], MR_DATUM_TEXT, "1");
    assert_no_datum(seen->before[1], MR_DATUM_NULL);
    assert_int_equal(seen->change.after.kind, MR_TUPLE_NONE);
    assert_null(seen->change.after.values);
    announce_identity(seen, OID, "t", 'f', "11");
    mr_wire_delete(&wire, OID, 'O', row, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_FULL);
    assert_datum(seen->before[1], MR_DATUM_TEXT, "secret");
    assert_int_equal(seen->change.position.ordinal, 2);
}

static void assert_old_row(struct seen *seen, uint32_t oid, enum mr_tuple_kind kind)
{
    struct mr_wire wire;
    mr_wire_update(&wire, oid, 'O', (const char *[]){"1", NULL},
                   (const char *[]){"2", mr_wire_unchanged}, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.before.kind, kind);
    assert_int_equal(seen->change.relation->columns[1].in_identity, kind == MR_TUPLE_FULL);
    mr_wire_delete(&wire, oid, 'O', (const char *[]){"1", NULL}, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.before.kind, kind);
}

/* A root that is FULL, and a partition that is not: the old row is called whole, and is none. */
static void test_decode_old_row_of_a_partition(void **state)
{
    struct seen *seen = *state;
    enum { ROOT = 10, LEAF = 11, OTHER = 12 };
    pgoutput_test_begin(seen, COMMIT_LSN);
    announce_identity(seen, ROOT, "root", 'f', "11");
    announce_identity(seen, OTHER, "full", 'f', "11");
    assert_old_row(seen, ROOT, MR_TUPLE_FULL);
    announce_identity(seen, ROOT, "root", 'f', "11");
    announce_identity(seen, LEAF, "leaf", 'd', "10");
    assert_old_row(seen, ROOT, MR_TUPLE_KEY);
    assert_int_equal(seen->change.relation->identity, MR_IDENTITY_DEFAULT);
    assert_string_equal(seen->change.relation->table, "root");
    assert_int_equal(seen->relation_ends, 1);
    /* Which partition a row is of it does not say: what one does not hold counts as not known. */
    announce_identity(seen, ROOT, "root", 'f', "11");
    announce_identity(seen, OTHER, "full", 'f', "11");
    assert_old_row(seen, ROOT, MR_TUPLE_KEY);
    assert_int_equal(seen->relation_ends, 1);
    /* Until all are FULL. */
    announce_identity(seen, ROOT, "root", 'f', "11");
    announce_identity(seen, LEAF, "leaf", 'f', "11");
    assert_old_row(seen, ROOT, MR_TUPLE_FULL);
    assert_int_equal(seen->change.relation->identity, MR_IDENTITY_FULL);
}

/* A root that is not FULL, and a partition whose identity is another column: what the root flags is
 * not in old rows. One without an identity has none of these. */
static void test_decode_partition_with_another_identity(void **state)
{
    struct seen *seen = *state;
    enum { ROOT = 10, SAME = 11, OTHER = 12, NOTHING = 13 };
    struct mr_wire wire;
    pgoutput_test_begin(seen, COMMIT_LSN);
    const struct {
        uint32_t oid;
        char identity;
        const char *flags;
        bool key_is_held;
        uint32_t ends; /* of versions of the partitions, too */
    } partitions[] = {
        {SAME, 'd', "10", true, 0},    {NOTHING, 'n', "00", true, 0}, {SAME, 'f', "11", true, 1},
        {OTHER, 'i', "01", false, 2},  {SAME, 'd', "10", false, 3},   {OTHER, 'i', "11", true, 5},
        {NOTHING, 'n', "00", true, 5},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(partitions); i++) {
        announce_identity(seen, ROOT, "root", 'd', "10");
        announce_identity(seen, partitions[i].oid, "leaf", partitions[i].identity,
                          partitions[i].flags);
        mr_wire_insert(&wire, ROOT, row, 2);
        assert_ok(seen, &wire);
        const struct mr_relation *relation = seen->change.relation;
        assert_int_equal(relation->oid, ROOT);
        assert_int_equal(relation->columns[0].in_identity, partitions[i].key_is_held);
        assert_int_equal(relation->key_count, 1);
        assert_int_equal(seen->relation_ends, partitions[i].ends);
    }
}

/* Tables that are announced one after the other need not be root and partition. */
static void test_decode_old_row_of_neighbours(void **state)
{
    struct seen *seen = *state;
    enum { FULL = 10, KEYED = 11 };
    pgoutput_test_begin(seen, COMMIT_LSN);
    announce_identity(seen, FULL, "full", 'f', "11");
    announce_identity(seen, KEYED, "keyed", 'd', "10");
    struct mr_wire wire;
    mr_wire_truncate(&wire, 0, (const uint32_t[]){FULL, KEYED}, 2);
    assert_ok(seen, &wire);
    assert_old_row(seen, FULL, MR_TUPLE_FULL);
    announce_identity(seen, FULL, "full", 'f', "11");
    announce_identity(seen, KEYED, "keyed", 'd', "10");
    mr_wire_insert(&wire, KEYED, row, 2);
    assert_ok(seen, &wire);
    assert_old_row(seen, FULL, MR_TUPLE_FULL);
    assert_int_equal(seen->relation_ends, 0);
}

static void take_parted(void *context, const struct mr_relation *partition,
                        const struct mr_relation *root)
{
    mr_text_format(context, "%u of %s ", partition->oid, root->table);
}

static mr_status on_part(void *context, const struct mr_relation *root,
                         const struct mr_relation *part, struct mr_error *ret_error)
{
    struct seen *seen = context;
    seen->parts += root->is_narrowed ? 100 : 1;
    return part->oid == 12 ? mr_fail(ret_error, MR_ERR_POISON, "shown") : MR_OK;
}

/* Of each partition its first row asks, of the table as it then is. */
static void test_decode_partition_is_asked_for(void **state)
{
    struct seen *seen = *state;
    enum { ROOT = 10, LEAF = 11, OTHER = 12 };
    struct mr_wire wire;
    seen->handler.part = on_part;
    pgoutput_test_begin(seen, COMMIT_LSN);
    announce_identity(seen, ROOT, "root", 'd', "10");
    announce_identity(seen, LEAF, "leaf", 'd', "10");
    mr_wire_insert(&wire, ROOT, row, 2);
    assert_ok(seen, &wire);
    assert_ok(seen, &wire);
    assert_int_equal(seen->parts, 1);
    announce_identity(seen, ROOT, "root", 'd', "10");
    announce_identity(seen, LEAF, "leaf", 'i', "01");
    mr_wire_insert(&wire, ROOT, row, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->parts, 101);
    announce_identity(seen, ROOT, "root", 'd', "10");
    announce_identity(seen, OTHER, "other", 'd', "10");
    mr_wire_insert(&wire, ROOT, row, 2);
    assert_int_equal(decode(seen, &wire), MR_ERR_POISON);
}

/* Only a row right after the two shows that one is the other's partition. */
static void test_decode_partition_is_told(void **state)
{
    struct seen *seen = *state;
    enum { ROOT = 10, LEAF = 11, OTHER = 12 };
    struct mr_wire wire;
    MR_TEXT(told);
    mr_text_string(&told, "");
    mr_pgoutput_set_parted(seen->decoder, take_parted, &told);
    pgoutput_test_begin(seen, COMMIT_LSN);
    announce_identity(seen, ROOT, "root", 'd', "10");
    mr_wire_insert(&wire, ROOT, row, 2);
    assert_ok(seen, &wire);
    announce_identity(seen, ROOT, "root", 'd', "10");
    announce_identity(seen, OTHER, "other", 'd', "10");
    mr_wire_insert(&wire, OTHER, row, 2);
    assert_ok(seen, &wire);
    mr_wire_insert(&wire, ROOT, row, 2);
    assert_ok(seen, &wire);
    announce_identity(seen, OTHER, "other", 'd', "10");
    mr_wire_insert(&wire, ROOT, row, 2);
    assert_ok(seen, &wire);
    assert_string_equal(told.data, "");
    announce_identity(seen, ROOT, "root", 'd', "10");
    announce_identity(seen, LEAF, "leaf", 'd', "10");
    mr_wire_insert(&wire, ROOT, row, 2);
    assert_ok(seen, &wire);
    assert_ok(seen, &wire);
    assert_string_equal(told.data, "11 of root ");
}

static void test_decode_tuple_kinds(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    struct mr_wire wire;
    for (unsigned kind = 0; kind <= UINT8_MAX; kind++) {
        mr_wire_insert(&wire, OID, row, 2);
        wire.bytes[5] = (uint8_t)kind;
        if (kind != 'N') {
            assert_wrong(seen, &wire, "(Insert) at 0/1234: no new row where one must be");
        }
        mr_wire_update(&wire, OID, 0, NULL, row, 2);
        wire.bytes[5] = (uint8_t)kind;
        if (kind == 'K' || kind == 'O') {
            assert_wrong(seen, &wire, "(Update) at 0/1234: it ends too early");
        } else if (kind != 'N') {
            assert_wrong(seen, &wire, "(Update) at 0/1234: no new row where one must be");
        }
        mr_wire_update(&wire, OID, 'K', (const char *[]){NULL, NULL}, row, 2);
        wire.bytes[5 + 1 + 2 + 2] = (uint8_t)kind;
        if (kind != 'N') {
            assert_wrong(seen, &wire, "(Update) at 0/1234: no new row where one must be");
        }
        mr_wire_delete(&wire, OID, (char)kind, row, 2);
        if (kind != 'K' && kind != 'O') {
            assert_wrong(seen, &wire, "(Delete) at 0/1234: no old row where one must be");
        }
    }
    assert_int_equal(seen->calls, 0);
}

static void test_decode_row_out_of_place(void **state)
{
    struct seen *seen = *state;
    const uint32_t unknown = OID + 9;
    struct mr_wire wire;
    for (unsigned round = 0; round < 2; round++) {
        const char *what =
            round == 0 ? "no transaction is open" : "relation 4720 was not announced";
        mr_wire_insert(&wire, unknown, row, 2);
        assert_wrong(seen, &wire, what);
        mr_wire_update(&wire, unknown, 'O', row, row, 2);
        assert_wrong(seen, &wire, what);
        mr_wire_delete(&wire, unknown, 'O', row, 2);
        assert_wrong(seen, &wire, what);
        mr_wire_truncate(&wire, 0, (const uint32_t[]){OID, unknown}, round == 0 ? 1 : 2);
        assert_wrong(seen, &wire, what);
        if (round == 0) {
            pgoutput_test_begin(seen, COMMIT_LSN); /* without any relation at first */
            mr_wire_insert(&wire, OID, row, 2);
            assert_wrong(seen, &wire, "relation 4711 was not announced");
            announce(seen, OID, "t");
        }
    }
    pgoutput_test_insert(seen);
    assert_int_equal(seen->change.position.ordinal, 1);
    pgoutput_test_commit(seen, COMMIT_LSN);
    mr_wire_insert(&wire, OID, row, 2);
    assert_wrong(seen, &wire, "(Insert) at 0/1234: no transaction is open");
}

static const uint32_t three[] = {OID + 1, OID, OID + 2};

static void test_decode_truncate(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    struct mr_wire wire;
    for (unsigned options = 0; options <= UINT8_MAX; options++) {
        mr_wire_truncate(&wire, (uint8_t)options, three, 3);
        if (options <= 3) {
            assert_ok(seen, &wire);
        } else {
            assert_wrong(seen, &wire, "unknown options");
        }
    }
    assert_int_equal(seen->taken, 4 * 3);
    for (unsigned i = 0; i < seen->taken; i++) {
        assert_int_equal(seen->relations[i], three[i % 3]);
        assert_int_equal(seen->positions[i].ordinal, i + 1);
        assert_int_equal(seen->positions[i].commit_lsn, COMMIT_LSN);
    }
    assert_int_equal(seen->change.op, MR_OP_TRUNCATE);
    assert_int_equal(seen->change.lsn, RECORD_LSN);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_NONE);
    assert_int_equal(seen->change.after.kind, MR_TUPLE_NONE);
    pgoutput_test_insert(seen);
    assert_int_equal(seen->change.position.ordinal, 13);
}

/* TRUNCATE of `count` relations, all of them the same one. */
static mr_status decode_large_truncate(struct seen *seen, uint32_t count)
{
    size_t len = 1 + 4 + 1 + (size_t)count * 4;
    uint8_t *bytes = malloc(len);
    struct mr_wire wire;
    mr_wire_truncate(&wire, 0, NULL, 0);
    mr_wire_reset(&wire);
    mr_wire_u8(&wire, 'T');
    mr_wire_u32(&wire, count);
    mr_wire_u8(&wire, 0);
    mr_wire_u32(&wire, OID);
    memcpy(bytes, wire.bytes, 6);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(bytes + 6 + 4 * (size_t)i, wire.bytes + 6, 4);
    }
    mr_status status =
        mr_pgoutput_decode(seen->decoder, RECORD_LSN, (mr_slice){.data = bytes, .len = len},
                           &seen->handler, &seen->error);
    free(bytes);
    return status;
}

static void test_decode_truncate_count_limit(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    assert_int_equal(decode_large_truncate(seen, 100001), MR_ERR_PROTOCOL);
    assert_non_null(strstr(seen->error.text, "no relation, or too many"));
    assert_int_equal(decode_large_truncate(seen, 0), MR_ERR_PROTOCOL);
    assert_non_null(strstr(seen->error.text, "no relation, or too many"));
    assert_int_equal(seen->calls, 0);
    assert_int_equal(decode_large_truncate(seen, 100000), MR_OK);
    assert_int_equal(seen->changes, 100000);
    pgoutput_test_insert(seen);
    assert_int_equal(seen->change.position.ordinal, 100001);
}

static void test_decode_message_in_transaction(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    mr_wire_message(&wire, true, 0x1800, "pre", "body");
    assert_wrong(seen, &wire, "(Message) at 0/1234: no transaction is open");
    pgoutput_test_open_transaction(seen);
    pgoutput_test_insert(seen);
    mr_wire_message(&wire, true, 0x1800, "pre", "body");
    assert_ok(seen, &wire);
    assert_int_equal(seen->message.lsn, 0x1800);
    assert_int_equal(seen->message.position.commit_lsn, COMMIT_LSN);
    assert_int_equal(seen->message.position.ordinal, 2);
    assert_ptr_equal(seen->message.transaction, seen->transaction_at);
    assert_slice(seen->message.prefix, "pre");
    assert_slice(seen->message.content, "body");
    mr_wire_message(&wire, true, 0x1800, "", "");
    assert_ok(seen, &wire);
    assert_int_equal(seen->message.position.ordinal, 3);
    assert_int_equal(seen->message.prefix.len, 0);
    assert_int_equal(seen->message.content.len, 0);
    pgoutput_test_insert(seen);
    assert_int_equal(seen->change.position.ordinal, 4);
    mr_wire_message(&wire, false, 0x3000, "pre", "secret");
    assert_wrong(seen, &wire, "it is not transactional, but a transaction is open");
}

static void test_decode_message_between_transactions(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    mr_wire_message(&wire, false, 0x1800, "pre", "body");
    assert_ok(seen, &wire);
    assert_int_equal(seen->message.lsn, 0x1800);
    assert_int_equal(seen->message.position.commit_lsn, 0x1800);
    assert_int_equal(seen->message.position.ordinal, 0);
    assert_null(seen->message.transaction);
    assert_slice(seen->message.prefix, "pre");
    assert_slice(seen->message.content, "body");
    assert_wrong(seen, &wire, "its LSN 0/1800 is not after 0/1800");
    mr_wire_begin(&wire, 0x17FF, 1);
    assert_wrong(seen, &wire, "its commit LSN 0/17FF is not after 0/1800");
    pgoutput_test_begin(seen, 0x1800); /* the commit record begins where the message's ends */
    assert_int_equal(seen->transaction.last_commit_lsn, 0); /* a message is no commit */
    pgoutput_test_commit(seen, 0x1800);
    mr_wire_message(&wire, false, 0x1800, "pre", "body");
    assert_wrong(seen, &wire, "its LSN 0/1800 is not after 0/1800");
    mr_wire_begin(&wire, 0x1800, 1);
    assert_wrong(seen, &wire, "its commit LSN 0/1800 is not after 0/1800");
    mr_wire_message(&wire, false, 0x1880, "pre", "body");
    assert_ok(seen, &wire);
    mr_wire_message(&wire, false, 0x18C0, "pre", "its neighbour");
    assert_ok(seen, &wire);
    for (unsigned flags = 2; flags <= UINT8_MAX; flags++) {
        mr_wire_message(&wire, false, 0x1900, "pre", "secret");
        wire.bytes[1] = (uint8_t)flags;
        assert_wrong(seen, &wire, "unknown flags");
    }
}

static void pgoutput_test_on_keepalive(void *context, mr_lsn server_end, bool reply_requested)
{
    struct seen *seen = context;
    assert_false(reply_requested);
    seen->keepalives++;
    seen->server_end = server_end;
}

static mr_counter contexts[MR_CONTEXT_OUTCOMES];

static void pgoutput_test_hear(struct seen *seen, bool passes_on)
{
    static const char *const names[] = {"user"};
    seen->handler.keepalive = pgoutput_test_on_keepalive;
    memset(contexts, 0, sizeof(contexts));
    mr_pgoutput_set_messages(seen->decoder, &(struct mr_pgoutput_messages){
                                                .are_passed_on = passes_on,
                                                .context_names = names,
                                                .context_count = 1,
                                                .contexts = contexts,
                                            });
}

static void pgoutput_test_say(struct seen *seen, bool transactional, uint64_t lsn,
                              const char *prefix, const char *content)
{
    struct mr_wire wire;
    mr_wire_message(&wire, transactional, lsn, prefix, content);
    assert_ok(seen, &wire);
}

/* The next row comes with this user (NULL: without a context), at this place. */
static void assert_row(struct seen *seen, const char *user, uint64_t ordinal)
{
    struct mr_wire wire;
    mr_wire_insert(&wire, OID, row, 2);
    assert_ok(seen, &wire);
    assert_int_equal(seen->change.position.ordinal, ordinal);
    mr_slice headers = seen->change.transaction->headers;
    struct mr_header header;
    size_t at = 0;
    assert_int_equal(mr_header_in(headers, &at, &header), user != NULL);
    if (user != NULL) {
        assert_slice(header.name, "user");
        assert_slice(header.value, user);
        assert_int_equal(at, headers.len);
    }
}

/* The last context before a row is its own, of its transaction alone; what is dropped changes
 * nothing. */
static void test_decode_context(void **state)
{
    struct seen *seen = *state;
    for (unsigned passes_on = 0; passes_on < 2; passes_on++) {
        mr_lsn commit_lsn = COMMIT_LSN + passes_on * 0x1000;
        pgoutput_test_hear(seen, passes_on == 1);
        seen->messages = 0;
        pgoutput_test_begin(seen, commit_lsn);
        struct mr_wire wire;
        mr_wire_relation(&wire, OID, 'd', "t", columns, 2);
        assert_ok(seen, &wire);
        unsigned step = passes_on; /* that a message takes */
        assert_row(seen, NULL, 1);
        pgoutput_test_say(seen, true, 0x1300, MR_CONTEXT_PREFIX, "{\"user\":\"a\"}");
        assert_row(seen, "a", 2 + step);
        assert_row(seen, "a", 3 + step);
        pgoutput_test_say(seen, true, 0x1300, "other", "{\"user\":\"x\"}");
        pgoutput_test_say(seen, true, 0x1300, MR_CONTEXT_PREFIX "s", "{\"user\":\"x\"}");
        pgoutput_test_say(seen, true, 0x1300, MR_CONTEXT_PREFIX, "{\"user\":\"secret\",}");
        assert_row(seen, "a", 4 + 4 * step);
        pgoutput_test_say(seen, true, 0x1300, MR_CONTEXT_PREFIX, "{\"user\":\"b\"}");
        assert_row(seen, "b", 5 + 5 * step);
        pgoutput_test_say(seen, true, 0x1300, MR_CONTEXT_PREFIX, "{}");
        assert_row(seen, NULL, 6 + 6 * step);
        pgoutput_test_say(seen, true, 0x1300, MR_CONTEXT_PREFIX, "{\"user\":\"c\"}");
        pgoutput_test_commit(seen, commit_lsn);
        assert_int_equal(seen->messages, passes_on ? 7 : 0);
        assert_int_equal(seen->message.is_context, passes_on);
        pgoutput_test_begin(seen, commit_lsn + 0x100);
        assert_row(seen, NULL, 1);
        pgoutput_test_commit(seen, commit_lsn + 0x100);
        assert_int_equal(contexts[MR_CONTEXT_TAKEN], 4);
        assert_int_equal(contexts[MR_CONTEXT_MALFORMED], 1);
        assert_int_equal(contexts[MR_CONTEXT_TOO_LARGE] + contexts[MR_CONTEXT_ALONE], 0);
    }
    assert_false(seen->transaction.headers.len > 0);
}

/* Outside a transaction it belongs to no rows. Where such messages have no places, they still tell
 * how far the server is. */
static void test_decode_context_alone(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_hear(seen, false);
    pgoutput_test_say(seen, false, 0x1800, MR_CONTEXT_PREFIX, "{\"user\":\"a\"}");
    pgoutput_test_say(seen, false, 0x1900, "other", "x");
    assert_int_equal(seen->calls, 0);
    assert_int_equal(seen->keepalives, 2);
    assert_int_equal(seen->server_end, 0x1900);
    assert_int_equal(contexts[MR_CONTEXT_ALONE], 1);
    pgoutput_test_open_transaction(seen);
    assert_row(seen, NULL, 1);
    struct mr_wire wire;
    mr_wire_message(&wire, false, 0x1950, MR_CONTEXT_PREFIX, "{\"user\":\"secret\"}");
    assert_wrong(seen, &wire, "it is not transactional, but a transaction is open");
    pgoutput_test_commit(seen, COMMIT_LSN);
    pgoutput_test_hear(seen, true);
    pgoutput_test_say(seen, false, 0x3000, MR_CONTEXT_PREFIX, "{\"user\":\"a\"}");
    assert_true(seen->message.is_context);
    assert_int_equal(seen->message.position.commit_lsn, 0x3000);
    assert_int_equal(contexts[MR_CONTEXT_ALONE], 1);
}

/* A message that comes again for want of room counts once. */
static void test_decode_context_full(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_hear(seen, true);
    pgoutput_test_open_transaction(seen);
    struct mr_wire wire;
    mr_wire_message(&wire, true, 0x1100, MR_CONTEXT_PREFIX, "{\"user\":\"a\"}");
    seen->calls = 0;
    seen->full_at = 1;
    assert_int_equal(decode(seen, &wire), MR_FULL);
    assert_int_equal(contexts[MR_CONTEXT_TAKEN], 0);
    assert_ok(seen, &wire);
    assert_int_equal(contexts[MR_CONTEXT_TAKEN], 1);
    assert_row(seen, "a", 2);
}

enum { SCRIPT_LEN = 16 };

/* Two transactions and messages between them, with everything that has a position. */
static void script(struct mr_wire *wire, unsigned step)
{
    switch (step) {
    case 0:
        mr_wire_message(wire, false, 0x1000, "p", "before");
        break;
    case 1:
        mr_wire_begin(wire, COMMIT_LSN, 1);
        break;
    case 2:
    case 3:
    case 4:
        mr_wire_relation(wire, OID + step - 2, 'd', "t", columns, 2);
        break;
    case 5:
    case 12:
        mr_wire_insert(wire, OID, row, 2);
        break;
    case 6:
        mr_wire_update(wire, OID, 'O', row, row, 2);
        break;
    case 7:
    case 13:
        mr_wire_truncate(wire, 0, three, 3);
        break;
    case 8:
        mr_wire_message(wire, true, 0x1100, "p", "inside");
        break;
    case 9:
        mr_wire_commit(wire, COMMIT_LSN, COMMIT_LSN + 1);
        break;
    case 10:
        mr_wire_message(wire, false, 0x3000, "p", "between");
        break;
    case 11:
        mr_wire_begin(wire, 0x3000, 2);
        break;
    case 14:
        mr_wire_delete(wire, OID, 'K', row, 2);
        break;
    default:
        mr_wire_commit(wire, 0x3000, 0x3001);
        break;
    }
}

static const struct mr_position script_positions[] = {
    {0x1000, 0},     {COMMIT_LSN, 1}, {COMMIT_LSN, 2}, {COMMIT_LSN, 3}, {COMMIT_LSN, 4},
    {COMMIT_LSN, 5}, {COMMIT_LSN, 6}, {0x3000, 0},     {0x3000, 1},     {0x3000, 2},
    {0x3000, 3},     {0x3000, 4},     {0x3000, 5},
};

static void assert_script_positions(const struct seen *seen)
{
    assert_int_equal(seen->taken, MR_ARRAY_LEN(script_positions));
    for (size_t i = 0; i < MR_ARRAY_LEN(script_positions); i++) {
        assert_int_equal(mr_position_compare(seen->positions[i], script_positions[i]), 0);
        assert_true(i == 0 ||
                    mr_position_compare(script_positions[i - 1], script_positions[i]) < 0);
    }
}

static void test_decode_positions(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    for (unsigned step = 0; step < SCRIPT_LEN; step++) {
        script(&wire, step);
        assert_ok(seen, &wire);
    }
    assert_int_equal(seen->begins, 2);
    assert_int_equal(seen->commits, 2);
    assert_int_equal(seen->calls, MR_ARRAY_LEN(script_positions));
    assert_script_positions(seen);
}

/* Whichever call finds the handler full, the retry hands over the rest at the same positions. */
static void test_decode_full_at_each_call(void **state)
{
    struct seen *seen = *state;
    seen->skips = true;
    struct mr_wire wire;
    for (unsigned full_at = 1; full_at <= MR_ARRAY_LEN(script_positions); full_at++) {
        unsigned fulls = 0;
        seen->calls = 0;
        seen->taken = 0;
        seen->full_at = full_at;
        for (unsigned step = 0; step < SCRIPT_LEN; step++) {
            script(&wire, step);
            mr_status status = decode(seen, &wire);
            if (status == MR_FULL) {
                fulls++;
                status = decode(seen, &wire);
            }
            assert_int_equal(status, MR_OK);
        }
        assert_int_equal(fulls, 1);
        assert_script_positions(seen);
        mr_pgoutput_reset(seen->decoder, &seen->handler);
    }
}

static void test_decode_truncate_full_at_second(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    struct mr_wire wire;
    mr_wire_truncate(&wire, 3, three, 3);
    seen->full_at = 2;
    assert_int_equal(decode(seen, &wire), MR_FULL);
    assert_int_equal(seen->taken, 1);
    assert_ok(seen, &wire);
    static const uint64_t ordinals[] = {1, 1, 2, 3}; /* the handler skips the second 1 */
    assert_int_equal(seen->taken, 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(seen->positions[i].ordinal, ordinals[i]);
        assert_int_equal(seen->relations[i], three[ordinals[i] - 1]);
    }
    pgoutput_test_insert(seen);
    assert_int_equal(seen->change.position.ordinal, 4);
}

static void test_decode_passes_on_what_the_handler_answers(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    seen->answer = MR_ERR_POISON;
    seen->full_at = 1;
    mr_wire_message(&wire, false, 0x1000, "p", "c");
    assert_int_equal(decode(seen, &wire), MR_ERR_POISON);
    assert_string_equal(seen->error.text, "from the handler");
    pgoutput_test_open_transaction(seen);
    seen->full_at = 2;
    mr_wire_insert(&wire, OID, row, 2);
    assert_int_equal(decode(seen, &wire), MR_ERR_POISON);
    seen->full_at = 3;
    mr_wire_message(&wire, true, 0x1000, "p", "c");
    assert_int_equal(decode(seen, &wire), MR_ERR_POISON);
    pgoutput_test_insert(seen);
    assert_int_equal(seen->change.position.ordinal, 1);
}

static void sample_begin(struct mr_wire *wire)
{
    mr_wire_begin(wire, COMMIT_LSN, 77);
}

static void sample_commit(struct mr_wire *wire)
{
    mr_wire_commit(wire, COMMIT_LSN, COMMIT_LSN + 0x30);
}

static void sample_origin(struct mr_wire *wire)
{
    mr_wire_origin(wire, 0x99, "origin");
}

static void sample_relation(struct mr_wire *wire)
{
    mr_wire_relation(wire, OID + 9, 'f', "table", columns, 2);
}

static void sample_relation_replaced(struct mr_wire *wire)
{
    mr_wire_relation(wire, OID, 'f', "table", columns, 1);
}

static void sample_type(struct mr_wire *wire)
{
    mr_wire_type(wire, 16400, "public", "mood");
}

static void sample_insert(struct mr_wire *wire)
{
    mr_wire_insert(wire, OID, row, 2);
}

static void sample_insert_null(struct mr_wire *wire)
{
    mr_wire_insert(wire, OID, (const char *[]){"secret", NULL}, 2);
}

static void sample_insert_binary(struct mr_wire *wire)
{
    mr_wire_reset(wire);
    mr_wire_u8(wire, 'I');
    mr_wire_u32(wire, OID);
    mr_wire_u8(wire, 'N');
    mr_wire_count16(wire, 2);
    mr_wire_value(wire, 'b', "\x01\xff\0secret", 9);
    mr_wire_value(wire, 't', "secret", 6);
}

static void sample_update(struct mr_wire *wire)
{
    mr_wire_update(wire, OID, 0, NULL, row, 2);
}

static void sample_update_key(struct mr_wire *wire)
{
    mr_wire_update(wire, OID, 'K', (const char *[]){"secret", NULL},
                   (const char *[]){"1", mr_wire_unchanged}, 2);
}

static void sample_update_full(struct mr_wire *wire)
{
    mr_wire_update(wire, OID, 'O', row, (const char *[]){"secret", ""}, 2);
}

static void sample_delete_key(struct mr_wire *wire)
{
    mr_wire_delete(wire, OID, 'K', (const char *[]){"secret", NULL}, 2);
}

static void sample_delete_full(struct mr_wire *wire)
{
    mr_wire_delete(wire, OID, 'O', row, 2);
}

static void sample_truncate(struct mr_wire *wire)
{
    mr_wire_truncate(wire, 1, three, 3);
}

static void sample_message(struct mr_wire *wire)
{
    mr_wire_message(wire, true, 0x1000, "prefix", "secret");
}

static void sample_message_alone(struct mr_wire *wire)
{
    mr_wire_message(wire, false, 0x1000, "prefix", "secret");
}

static const struct {
    const char *type;
    void (*build)(struct mr_wire *wire);
    bool in_transaction;
} samples[] = {
    {"0x42 (Begin)", sample_begin, false},
    {"0x43 (Commit)", sample_commit, true},
    {"0x4F (Origin)", sample_origin, true},
    {"0x52 (Relation)", sample_relation, true},
    {"0x52 (Relation)", sample_relation_replaced, true},
    {"0x59 (Type)", sample_type, true},
    {"0x49 (Insert)", sample_insert, true},
    {"0x49 (Insert)", sample_insert_null, true},
    {"0x49 (Insert)", sample_insert_binary, true},
    {"0x55 (Update)", sample_update, true},
    {"0x55 (Update)", sample_update_key, true},
    {"0x55 (Update)", sample_update_full, true},
    {"0x44 (Delete)", sample_delete_key, true},
    {"0x44 (Delete)", sample_delete_full, true},
    {"0x54 (Truncate)", sample_truncate, true},
    {"0x4D (Message)", sample_message, true},
    {"0x4D (Message)", sample_message_alone, false},
};

/* The state in which the sample is right. */
static void sample_setup(struct seen *seen, size_t sample, struct mr_wire *wire)
{
    mr_pgoutput_reset(seen->decoder, &seen->handler);
    if (samples[sample].in_transaction) {
        pgoutput_test_open_transaction(seen);
    }
    samples[sample].build(wire);
}

static void test_decode_cut_at_every_byte(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    for (size_t i = 0; i < MR_ARRAY_LEN(samples); i++) {
        sample_setup(seen, i, &wire);
        size_t whole = wire.len;
        for (wire.len = 1; wire.len < whole; wire.len++) {
            assert_wrong(seen, &wire, samples[i].type);
            assert_non_null(strstr(seen->error.text, "it ends too early"));
        }
        for (unsigned more = 1; more <= 4; more++) {
            mr_wire_u8(&wire, 'n');
            assert_wrong(seen, &wire, samples[i].type);
            assert_non_null(strstr(seen->error.text, "bytes are left over at its end"));
        }
        wire.len = whole;
        assert_int_equal(decode_cut(seen, &wire, whole), MR_OK);
    }
}

static void test_decode_empty(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire = {0};
    assert_wrong(seen, &wire, "it is empty");
    assert_int_equal(
        mr_pgoutput_decode(seen->decoder, RECORD_LSN, (mr_slice){0}, &seen->handler, &seen->error),
        MR_ERR_PROTOCOL);
    assert_string_equal(seen->error.text, "pgoutput message at 0/1234: it is empty");
    assert_int_equal(
        mr_pgoutput_decode(seen->decoder, RECORD_LSN, (mr_slice){0}, &seen->handler, NULL),
        MR_ERR_PROTOCOL);
    sample_insert(&wire);
    assert_int_equal(
        mr_pgoutput_decode(seen->decoder, RECORD_LSN, mr_wire_slice(&wire), &seen->handler, NULL),
        MR_ERR_PROTOCOL);
}

static uint32_t count_read(const struct mr_wire *wire, size_t offset, size_t width)
{
    uint32_t value = 0;
    for (size_t i = 0; i < width; i++) {
        value = value << 8 | wire->bytes[offset + i];
    }
    return value;
}

static void count_write(struct mr_wire *wire, size_t offset, size_t width, uint32_t value)
{
    for (size_t i = 0; i < width; i++) {
        wire->bytes[offset + i] = (uint8_t)(value >> (8 * (width - 1 - i)));
    }
}

static void test_decode_counts_that_lie(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    unsigned fields = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(samples); i++) {
        sample_setup(seen, i, &wire);
        for (size_t field = 0; field < wire.count_count; field++) {
            size_t offset = wire.counts[field].offset;
            size_t width = wire.counts[field].width;
            uint32_t right = count_read(&wire, offset, width);
            const uint32_t lies[] = {
                0,           1,           right + 1,   right - 1,   right + 256, 0x7f,
                0x7fff,      0x8000,      0xffff,      0xfffe,      0x7fffffffu, 0x80000000u,
                0xffffffffu, 0xfffffffeu, 0xfffffffbu, 0xfffffff0u,
            };
            for (size_t lie = 0; lie < MR_ARRAY_LEN(lies); lie++) {
                count_write(&wire, offset, width, lies[lie]);
                if (count_read(&wire, offset, width) != right) {
                    assert_wrong(seen, &wire, samples[i].type);
                }
            }
            count_write(&wire, offset, width, right);
            fields++;
        }
        assert_int_equal(decode_cut(seen, &wire, wire.len), MR_OK);
    }
    assert_int_equal(fields, 31);
}

static void assert_no_secret(const struct seen *seen)
{
    assert_non_null(strstr(seen->error.text, " at 0/1234: "));
    assert_null(strstr(seen->error.text, "secret"));
}

/* Nothing that one wrong byte does may read past the message or leave the decoder in disorder. */
static void test_decode_every_byte_replaced(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    for (size_t i = 0; i < MR_ARRAY_LEN(samples); i++) {
        sample_setup(seen, i, &wire);
        for (size_t at = 0; at < wire.len; at++) {
            uint8_t right = wire.bytes[at];
            for (unsigned byte = 0; byte <= UINT8_MAX; byte++) {
                wire.bytes[at] = (uint8_t)byte;
                mr_status status = decode_cut(seen, &wire, wire.len);
                if (status == MR_OK) {
                    sample_setup(seen, i, &wire);
                } else {
                    assert_int_equal(status, MR_ERR_PROTOCOL);
                    assert_no_secret(seen);
                }
            }
            wire.bytes[at] = right;
        }
        assert_int_equal(decode_cut(seen, &wire, wire.len), MR_OK);
    }
}

static void test_decode_unknown_types(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    static const char known[] = "BCRYOIUDTM";
    for (unsigned type = 0; type <= UINT8_MAX; type++) {
        if (memchr(known, (int)type, sizeof(known) - 1) != NULL) {
            continue;
        }
        struct mr_wire wire = {0};
        mr_wire_u8(&wire, (uint8_t)type);
        mr_wire_bytes(&wire, "secret", 6);
        char text[64];
        if (memchr("SEcA", (int)type, 4) != NULL) {
            snprintf(text, sizeof(text), "streaming of running transactions was not enabled");
        } else if (memchr("bPKrp", (int)type, 5) != NULL) {
            snprintf(text, sizeof(text), "two-phase commit was not enabled");
        } else {
            snprintf(text, sizeof(text), "pgoutput message 0x%02X (unknown) at", type);
        }
        assert_wrong(seen, &wire, text);
    }
}

static void test_decode_names_types_that_are_not_enabled(void **state)
{
    struct seen *seen = *state;
    static const struct {
        char type;
        const char *name;
    } types[] = {
        {'S', "(Stream Start)"},    {'E', "(Stream Stop)"},       {'c', "(Stream Commit)"},
        {'A', "(Stream Abort)"},    {'b', "(Begin Prepare)"},     {'P', "(Prepare)"},
        {'K', "(Commit Prepared)"}, {'r', "(Rollback Prepared)"}, {'p', "(Stream Prepare)"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(types); i++) {
        struct mr_wire wire = {0};
        mr_wire_u8(&wire, (uint8_t)types[i].type);
        assert_wrong(seen, &wire, types[i].name);
    }
}

static void test_reset_forgets(void **state)
{
    struct seen *seen = *state;
    mr_pgoutput_reset(seen->decoder, &seen->handler); /* nothing there yet */
    assert_int_equal(seen->relation_ends, 0);
    pgoutput_test_open_transaction(seen);
    pgoutput_test_insert(seen);
    pgoutput_test_commit(seen, COMMIT_LSN);
    pgoutput_test_begin(seen, 0x3000);
    mr_pgoutput_reset(seen->decoder, &seen->handler);
    assert_int_equal(seen->relation_ends, 3);
    assert_false(mr_pgoutput_in_transaction(seen->decoder));
    struct mr_wire wire;
    mr_wire_message(&wire, false, 0x10, "p", "c"); /* the stream begins again further back */
    assert_ok(seen, &wire);
    pgoutput_test_begin(seen, COMMIT_LSN);
    assert_int_equal(seen->transaction.last_commit_lsn, 0);
    mr_wire_insert(&wire, OID, row, 2);
    assert_wrong(seen, &wire, "relation 4711 was not announced");
    announce(seen, OID, "t");
    assert_int_equal(seen->relation_ends, 3);
    pgoutput_test_insert(seen);
    assert_int_equal(seen->change.position.ordinal, 1);
}

static void test_free_null(void **state)
{
    (void)state;
    mr_pgoutput_free(NULL);
}

static void test_decode_allocates_nothing_per_row(void **state)
{
    struct seen *seen = *state;
    pgoutput_test_open_transaction(seen);
    static struct mr_wire wires[5];
    sample_insert(&wires[0]);
    sample_update_full(&wires[1]);
    sample_delete_key(&wires[2]);
    sample_message(&wires[3]);
    mr_wire_relation(&wires[4], OID, 'd', "t", columns, 2);
    uint64_t allocs = mr_alloc_count();
    for (unsigned i = 0; i < 10000; i++) {
        assert_int_equal(decode(seen, &wires[i % MR_ARRAY_LEN(wires)]), MR_OK);
    }
    assert_int_equal(mr_alloc_count(), allocs);
    assert_int_equal(seen->calls, 8000);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, pgoutput_test_setup, pgoutput_test_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_decode_transaction),
        TEST(test_decode_context),
        TEST(test_decode_context_alone),
        TEST(test_decode_context_full),
        TEST(test_decode_begin_out_of_place),
        TEST(test_decode_begin_time_range),
        TEST(test_decode_full_begin_and_commit_come_again),
        TEST(test_decode_commit_out_of_place),
        TEST(test_decode_origin),
        TEST(test_decode_origin_length_limit),
        TEST(test_decode_relation_description),
        TEST(test_decode_relation_empty_schema_is_pg_catalog),
        TEST(test_decode_relation_identical_is_kept),
        TEST(test_decode_relation_type_names),
        TEST(test_decode_relation_replaced),
        TEST(test_decode_relation_identity_and_flags),
        TEST(test_decode_relation_column_limit),
        TEST(test_decode_identifier_limit),
        TEST(test_decode_relation_cache_of_many),
        TEST(test_decode_relation_count_limit),
        TEST(test_decode_relation_bytes_limit),
        TEST(test_decode_relation_shares_columns),
        TEST(test_decode_type_is_passed_over),
        TEST(test_decode_insert),
        TEST(test_decode_insert_datum_kinds),
        TEST(test_decode_update),
        TEST(test_decode_delete),
        TEST(test_decode_old_row_of_a_partition),
        TEST(test_decode_partition_with_another_identity),
        TEST(test_decode_old_row_of_neighbours),
        TEST(test_decode_partition_is_told),
        TEST(test_decode_partition_is_asked_for),
        TEST(test_decode_tuple_kinds),
        TEST(test_decode_row_out_of_place),
        TEST(test_decode_truncate),
        TEST(test_decode_truncate_count_limit),
        TEST(test_decode_message_in_transaction),
        TEST(test_decode_message_between_transactions),
        TEST(test_decode_positions),
        TEST(test_decode_full_at_each_call),
        TEST(test_decode_truncate_full_at_second),
        TEST(test_decode_passes_on_what_the_handler_answers),
        TEST(test_decode_cut_at_every_byte),
        TEST(test_decode_empty),
        TEST(test_decode_counts_that_lie),
        TEST(test_decode_every_byte_replaced),
        TEST(test_decode_unknown_types),
        TEST(test_decode_names_types_that_are_not_enabled),
        TEST(test_reset_forgets),
        TEST(test_free_null),
        TEST(test_decode_allocates_nothing_per_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
