#include "source/pgoutput.h"

#include <stdlib.h>
#include <string.h>

#include "testing/pgoutput_builder.h"
#include "testing/test.h"

enum { OID = 4711 };

/* Remembers what the decoder handed over last, and how often. */
struct seen {
    struct mr_source_handler handler;
    unsigned begins, commits, changes, messages, relation_ends;
    unsigned full_at; /* this call of change or message answers MR_FULL; 0: none */
    unsigned calls;
    struct mr_change change;
    struct mr_datum before[8], after[8];
    struct mr_message_event message;
    struct mr_transaction transaction;
    uint64_t ordinals[16];
    struct mr_pgoutput *decoder;
    struct mr_error error;
};

static mr_status full_or_ok(struct seen *seen)
{
    return ++seen->calls == seen->full_at ? MR_FULL : MR_OK;
}

static void copy_values(struct mr_datum *to, const struct mr_tuple *tuple, uint32_t count)
{
    for (uint32_t i = 0; tuple->kind != MR_TUPLE_NONE && i < count && i < 8; i++) {
        to[i] = tuple->values[i];
    }
}

static mr_status on_change(void *context, const struct mr_change *change, struct mr_error *error)
{
    (void)error;
    struct seen *seen = context;
    if (full_or_ok(seen) == MR_FULL) {
        return MR_FULL;
    }
    seen->change = *change;
    seen->ordinals[seen->changes++ % 16] = change->position.ordinal;
    copy_values(seen->before, &change->before, change->relation->column_count);
    copy_values(seen->after, &change->after, change->relation->column_count);
    return MR_OK;
}

static mr_status on_message(void *context, const struct mr_message_event *message,
                            struct mr_error *error)
{
    (void)error;
    struct seen *seen = context;
    if (full_or_ok(seen) == MR_FULL) {
        return MR_FULL;
    }
    seen->message = *message;
    seen->messages++;
    return MR_OK;
}

static void on_begin(void *context, const struct mr_transaction *transaction)
{
    struct seen *seen = context;
    seen->begins++;
    seen->transaction = *transaction;
}

static void on_commit(void *context, const struct mr_transaction *transaction)
{
    struct seen *seen = context;
    seen->commits++;
    seen->transaction = *transaction;
}

static void on_relation_end(void *context, const struct mr_relation *relation)
{
    struct seen *seen = context;
    assert_int_equal(relation->oid & 0xffff0000u, 0);
    seen->relation_ends++;
}

static int setup(void **state)
{
    struct seen *seen = calloc(1, sizeof(*seen));
    seen->handler = (struct mr_source_handler){
        .context = seen,
        .change = on_change,
        .message = on_message,
        .begin = on_begin,
        .commit = on_commit,
        .relation_end = on_relation_end,
    };
    seen->decoder = mr_pgoutput_new();
    *state = seen;
    return 0;
}

static int teardown(void **state)
{
    struct seen *seen = *state;
    mr_pgoutput_free(seen->decoder);
    free(seen);
    return 0;
}

static mr_status decode(struct seen *seen, const struct mr_wire *wire)
{
    return mr_pgoutput_decode(seen->decoder, 0x100, mr_wire_slice(wire), &seen->handler,
                              &seen->error);
}

static const char *const columns[] = {"id", "v"};

static void open_transaction(struct seen *seen)
{
    struct mr_wire wire;
    mr_wire_begin(&wire, 0x2000, 77);
    assert_int_equal(decode(seen, &wire), MR_OK);
    mr_wire_relation(&wire, OID, 'd', "t", columns, 2);
    assert_int_equal(decode(seen, &wire), MR_OK);
}

static void assert_text(struct mr_datum datum, const char *text)
{
    assert_int_equal(datum.kind, MR_DATUM_TEXT);
    assert_int_equal(datum.len, strlen(text));
    assert_memory_equal(datum.data, text, datum.len);
}

static void test_decode_transaction(void **state)
{
    struct seen *seen = *state;
    open_transaction(seen);
    assert_true(mr_pgoutput_in_transaction(seen->decoder));
    assert_int_equal(seen->transaction.commit_lsn, 0x2000);
    assert_int_equal(seen->transaction.xid, 77);
    assert_int_equal(seen->transaction.commit_time_us, INT64_C(946684800000000) + 1000000);
    assert_int_equal(seen->transaction.last_commit_lsn, 0);
    struct mr_wire wire;
    mr_wire_commit(&wire, 0x2000, 0x2030);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_false(mr_pgoutput_in_transaction(seen->decoder));
    assert_int_equal(seen->transaction.end_lsn, 0x2030);
    mr_wire_begin(&wire, 0x3000, 78);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->transaction.last_commit_lsn, 0x2000);
}

static void test_decode_insert(void **state)
{
    struct seen *seen = *state;
    open_transaction(seen);
    struct mr_wire wire;
    mr_wire_insert(&wire, OID, (const char *[]){"1", NULL}, 2);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->change.op, MR_OP_INSERT);
    assert_int_equal(seen->change.lsn, 0x100);
    assert_int_equal(seen->change.position.commit_lsn, 0x2000);
    assert_int_equal(seen->change.position.ordinal, 1);
    assert_string_equal(seen->change.relation->table, "t");
    assert_string_equal(seen->change.relation->schema, "public");
    assert_true(seen->change.relation->columns[0].in_identity);
    assert_false(seen->change.relation->columns[1].in_identity);
    assert_text(seen->after[0], "1");
    assert_int_equal(seen->after[1].kind, MR_DATUM_NULL);
}

static void update(struct mr_wire *wire, char old_kind, const char *const *old,
                   const char *const *values)
{
    wire->len = 0;
    mr_wire_u8(wire, 'U');
    mr_wire_u32(wire, OID);
    if (old_kind != 0) {
        mr_wire_u8(wire, (uint8_t)old_kind);
        mr_wire_tuple(wire, old, 2);
    }
    mr_wire_u8(wire, 'N');
    mr_wire_tuple(wire, values, 2);
}

static void test_decode_update_tuple_kinds(void **state)
{
    struct seen *seen = *state;
    open_transaction(seen);
    struct mr_wire wire;
    const char *const values[] = {"2", mr_wire_unchanged};
    update(&wire, 0, NULL, values);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_NONE);
    assert_int_equal(seen->after[1].kind, MR_DATUM_UNCHANGED);
    update(&wire, 'K', (const char *[]){"1", NULL}, values);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_KEY);
    assert_text(seen->before[0], "1");
    update(&wire, 'O', (const char *[]){"1", "old"}, values);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_FULL);
    assert_text(seen->before[1], "old");
    assert_int_equal(seen->change.position.ordinal, 3);
}

static void delete (struct mr_wire *wire, char kind)
{
    wire->len = 0;
    mr_wire_u8(wire, 'D');
    mr_wire_u32(wire, OID);
    mr_wire_u8(wire, (uint8_t)kind);
    mr_wire_tuple(wire, (const char *[]){"1", "x"}, 2);
}

static void test_decode_delete(void **state)
{
    struct seen *seen = *state;
    open_transaction(seen);
    struct mr_wire wire;
    delete (&wire, 'K');
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_KEY);
    delete (&wire, 'O');
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->change.before.kind, MR_TUPLE_FULL);
    assert_int_equal(seen->change.after.kind, MR_TUPLE_NONE);
    delete (&wire, 'N');
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
}

static void truncate(struct mr_wire *wire, uint32_t count, uint8_t options)
{
    wire->len = 0;
    mr_wire_u8(wire, 'T');
    mr_wire_u32(wire, count);
    mr_wire_u8(wire, options);
    for (uint32_t i = 0; i < count; i++) {
        mr_wire_u32(wire, OID + i);
    }
}

static void test_decode_truncate_full_gives_same_ordinals(void **state)
{
    struct seen *seen = *state;
    open_transaction(seen);
    struct mr_wire wire;
    for (uint32_t i = 1; i < 3; i++) {
        mr_wire_relation(&wire, OID + i, 'd', "u", columns, 2);
        assert_int_equal(decode(seen, &wire), MR_OK);
    }
    truncate(&wire, 3, 3);
    seen->full_at = 2;
    assert_int_equal(decode(seen, &wire), MR_FULL);
    assert_int_equal(seen->ordinals[0], 1);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->changes, 4);
    assert_int_equal(seen->ordinals[1], 1);
    assert_int_equal(seen->ordinals[2], 2);
    assert_int_equal(seen->ordinals[3], 3);
    mr_wire_insert(&wire, OID, (const char *[]){"1", "x"}, 2);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->change.position.ordinal, 4);
    truncate(&wire, 4, 0);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    truncate(&wire, 1, 4);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
}

static void test_decode_full_is_retried(void **state)
{
    struct seen *seen = *state;
    open_transaction(seen);
    struct mr_wire wire;
    mr_wire_insert(&wire, OID, (const char *[]){"1", "x"}, 2);
    seen->full_at = 1;
    assert_int_equal(decode(seen, &wire), MR_FULL);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->change.position.ordinal, 1);
    mr_wire_message(&wire, true, 0x1800, "p", "c");
    seen->full_at = 3;
    assert_int_equal(decode(seen, &wire), MR_FULL);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->message.position.ordinal, 2);
}

static void test_decode_message(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    mr_wire_message(&wire, false, 0x1800, "pre", "body");
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->message.position.commit_lsn, 0x1800);
    assert_int_equal(seen->message.position.ordinal, 0);
    assert_null(seen->message.transaction);
    assert_int_equal(seen->message.content.len, 4);
    mr_wire_message(&wire, true, 0x1800, "pre", "body");
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    open_transaction(seen);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_non_null(seen->message.transaction);
    mr_wire_message(&wire, false, 0x1800, "pre", "body");
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
}

static void test_decode_origin(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire = {0};
    mr_wire_u8(&wire, 'O');
    mr_wire_u64(&wire, 0x99);
    mr_wire_string(&wire, "elsewhere");
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    open_transaction(seen);
    assert_int_equal(decode(seen, &wire), MR_OK);
    mr_wire_insert(&wire, OID, (const char *[]){"1", "x"}, 2);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->change.transaction->origin_lsn, 0x99);
    assert_memory_equal(seen->change.transaction->origin.data, "elsewhere", 9);
}

static void test_decode_type_is_passed_over(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire = {0};
    mr_wire_u8(&wire, 'Y');
    mr_wire_u32(&wire, 16400);
    mr_wire_string(&wire, "public");
    mr_wire_string(&wire, "mood");
    assert_int_equal(decode(seen, &wire), MR_OK);
}

static void test_decode_relation_versions(void **state)
{
    struct seen *seen = *state;
    open_transaction(seen);
    struct mr_wire wire;
    mr_wire_relation(&wire, OID, 'd', "t", columns, 2);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->relation_ends, 0);
    mr_wire_relation(&wire, OID, 'f', "t", columns, 1);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->relation_ends, 1);
    mr_wire_insert(&wire, OID, (const char *[]){"1", "x"}, 2);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    mr_pgoutput_reset(seen->decoder, &seen->handler);
    assert_int_equal(seen->relation_ends, 2);
    open_transaction(seen);
    for (uint32_t oid = 1; oid < 1000; oid++) {
        mr_wire_relation(&wire, oid, 'i', "many", columns, 2);
        assert_int_equal(decode(seen, &wire), MR_OK);
    }
    mr_wire_insert(&wire, 500, (const char *[]){"1", "x"}, 2);
    assert_int_equal(decode(seen, &wire), MR_OK);
    assert_int_equal(seen->change.relation->oid, 500);
}

/* The message in a block of exactly its size, so that a sanitizer sees a read past it. */
static mr_status decode_cut(struct seen *seen, const struct mr_wire *wire, size_t len)
{
    uint8_t *bytes = malloc(len == 0 ? 1 : len);
    memcpy(bytes, wire->bytes, len);
    mr_status status = mr_pgoutput_decode(
        seen->decoder, 0x100, (mr_slice){.data = bytes, .len = len}, &seen->handler, &seen->error);
    free(bytes);
    return status;
}

static void assert_cuts_fail(struct seen *seen, struct mr_wire *wire)
{
    unsigned calls = seen->calls;
    for (size_t len = 0; len < wire->len; len++) {
        assert_int_equal(decode_cut(seen, wire, len), MR_ERR_PROTOCOL);
        assert_non_null(strstr(seen->error.text, "pgoutput message"));
    }
    mr_wire_u8(wire, 0);
    assert_int_equal(decode_cut(seen, wire, wire->len), MR_ERR_PROTOCOL);
    assert_int_equal(seen->calls, calls);
}

static void test_decode_cut_at_every_byte(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    mr_wire_begin(&wire, 0x1000, 1);
    assert_cuts_fail(seen, &wire);
    mr_wire_message(&wire, false, 0x900, "prefix", "content");
    assert_cuts_fail(seen, &wire);
    open_transaction(seen);
    mr_wire_relation(&wire, OID + 9, 'd', "t", columns, 2);
    assert_cuts_fail(seen, &wire);
    mr_wire_insert(&wire, OID, (const char *[]){"1", "text"}, 2);
    assert_cuts_fail(seen, &wire);
    update(&wire, 'O', (const char *[]){"1", "text"}, (const char *[]){"1", mr_wire_unchanged});
    assert_cuts_fail(seen, &wire);
    delete (&wire, 'K');
    assert_cuts_fail(seen, &wire);
    truncate(&wire, 1, 0);
    assert_cuts_fail(seen, &wire);
    mr_wire_message(&wire, true, 0x900, "prefix", "content");
    assert_cuts_fail(seen, &wire);
    mr_wire_commit(&wire, 0x2000, 0x2010);
    assert_cuts_fail(seen, &wire);
}

/* Every four bytes that could be a length or count, overwritten by values that lie. */
static void test_decode_lengths_that_lie(void **state)
{
    struct seen *seen = *state;
    open_transaction(seen);
    static const uint32_t lies[] = {0, 1, 0x7fffffffu, 0x80000000u, 0xffffffffu, 0xfffffffeu};
    struct mr_wire good;
    mr_wire_insert(&good, OID, (const char *[]){"1", "some text"}, 2);
    /* After type, OID, 'N', count and 't' stands the first length; the second one after "1" and 't'. */
    static const size_t offsets[] = {1 + 4 + 1 + 2 + 1, 1 + 4 + 1 + 2 + 1 + 4 + 1 + 1};
    for (size_t o = 0; o < MR_ARRAY_LEN(offsets); o++) {
        for (size_t i = 0; i < MR_ARRAY_LEN(lies); i++) {
            struct mr_wire bad = good;
            struct mr_wire number = {0};
            mr_wire_u32(&number, lies[i]);
            if (memcmp(bad.bytes + offsets[o], number.bytes, 4) == 0) {
                continue;
            }
            memcpy(bad.bytes + offsets[o], number.bytes, 4);
            assert_int_equal(decode_cut(seen, &bad, bad.len), MR_ERR_PROTOCOL);
        }
    }
    for (uint16_t count = 0; count < 5; count++) {
        struct mr_wire bad = good;
        bad.bytes[1 + 4 + 1 + 1] = (uint8_t)count;
        assert_int_equal(decode_cut(seen, &bad, bad.len), count == 2 ? MR_OK : MR_ERR_PROTOCOL);
    }
}

static void test_decode_unknown_types_and_kinds(void **state)
{
    struct seen *seen = *state;
    for (unsigned type = 0; type < 256; type++) {
        if (strchr("BCRYOIUDTM", (int)type) != NULL && type != 0) {
            continue;
        }
        struct mr_wire wire = {.bytes = {(uint8_t)type}, .len = 1};
        assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    }
    open_transaction(seen);
    for (unsigned kind = 0; kind < 256; kind++) {
        struct mr_wire wire;
        mr_wire_insert(&wire, OID, (const char *[]){NULL, NULL}, 2);
        wire.bytes[wire.len - 1] = (uint8_t)kind;
        bool good = kind == 'n' || kind == 'u';
        assert_int_equal(decode(seen, &wire), good ? MR_OK : MR_ERR_PROTOCOL);
        mr_wire_relation(&wire, OID, (char)kind, "t", columns, 2);
        bool identity = kind != 0 && strchr("dnfi", (int)kind) != NULL;
        assert_int_equal(decode(seen, &wire), identity ? MR_OK : MR_ERR_PROTOCOL);
    }
}

static void test_decode_order_of_messages(void **state)
{
    struct seen *seen = *state;
    struct mr_wire wire;
    mr_wire_commit(&wire, 0x2000, 0x2010);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    mr_wire_insert(&wire, OID, (const char *[]){"1", "x"}, 2);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    truncate(&wire, 0, 0);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    open_transaction(seen);
    mr_wire_begin(&wire, 0x3000, 1);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    mr_wire_insert(&wire, OID + 1, (const char *[]){"1", "x"}, 2);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    mr_wire_commit(&wire, 0x2001, 0x2010);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    mr_wire_commit(&wire, 0x2000, 0x2000);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    mr_wire_commit(&wire, 0x2000, 0x2010);
    wire.bytes[1] = 1;
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    mr_wire_commit(&wire, 0x2000, 0x2010);
    assert_int_equal(decode(seen, &wire), MR_OK);
    mr_wire_begin(&wire, 0x2000, 1);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
}

static void test_decode_widths(void **state)
{
    struct seen *seen = *state;
    open_transaction(seen);
    static const char *names[MR_COLUMNS_MAX + 1];
    static const char *values[MR_COLUMNS_MAX + 1];
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        names[i] = "c";
        values[i] = "v";
    }
    struct mr_wire wire;
    mr_wire_relation(&wire, OID, 'd', "wide", names, MR_COLUMNS_MAX);
    assert_int_equal(decode(seen, &wire), MR_OK);
    mr_wire_insert(&wire, OID, values, MR_COLUMNS_MAX);
    assert_int_equal(decode(seen, &wire), MR_OK);
    mr_wire_relation(&wire, OID, 'd', "too wide", names, MR_COLUMNS_MAX + 1);
    assert_int_equal(decode(seen, &wire), MR_ERR_PROTOCOL);
    mr_wire_relation(&wire, OID, 'd', "narrow", names, 0);
    assert_int_equal(decode(seen, &wire), MR_OK);
    mr_wire_insert(&wire, OID, values, 0);
    assert_int_equal(decode(seen, &wire), MR_OK);
}

static void test_decode_allocates_nothing_per_row(void **state)
{
    struct seen *seen = *state;
    open_transaction(seen);
    struct mr_wire wire;
    mr_wire_insert(&wire, OID, (const char *[]){"1", "some text"}, 2);
    uint64_t before = mr_alloc_count();
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(decode(seen, &wire), MR_OK);
    }
    assert_int_equal(mr_alloc_count(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_decode_transaction, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_insert, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_update_tuple_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_delete, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_truncate_full_gives_same_ordinals, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_decode_full_is_retried, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_message, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_origin, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_type_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_relation_versions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_cut_at_every_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_lengths_that_lie, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_unknown_types_and_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_order_of_messages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_widths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decode_allocates_nothing_per_row, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
