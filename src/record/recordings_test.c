/* What real servers sent, through the decoder, against what somebody else says of the same bytes:
 * the expectations beside the recordings are written by tests/recordings/recording.py, which knows
 * PostgreSQL's manual and nothing of millrace, and were compared with test_decoding's output when
 * they were made. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "record/blank.h"
#include "stream/pg_payload.h"
#include "testing/replay.h"
#include "testing/test.h"

enum { RELATIONS_MAX = 64, LONG_VALUE = 40 };

/* What the decoder hands over, as text, and what must hold of any stream. */
struct witness {
    struct mr_source_handler handler;
    struct mr_text text;
    struct {
        const struct mr_relation *relation;
        char *shape;
        uint32_t oid;
    } shown[RELATIONS_MAX];
    uint32_t shown_count;
    bool in_transaction;
    struct mr_position last;
    mr_lsn last_end; /* of a transaction or a message outside one */
    mr_lsn last_keepalive;
    struct mr_position skip_to; /* what is at or before it is not written */
    bool counts_only;           /* of long values, in place of a check sum */
};

static void recordings_test_add_quoted(struct mr_text *text, const void *bytes, size_t len)
{
    mr_text_string(text, "'");
    for (size_t i = 0; i < len; i++) {
        uint8_t byte = ((const uint8_t *)bytes)[i];
        if (byte >= 0x21 && byte <= 0x7E && byte != '\'' && byte != '\\') {
            mr_text_format(text, "%c", byte);
        } else {
            mr_text_format(text, "\\x%02X", byte);
        }
    }
    mr_text_string(text, "'");
}

static void recordings_test_add_value(struct witness *witness, const uint8_t *data, size_t len)
{
    struct mr_text *text = &witness->text;
    if (len <= LONG_VALUE) {
        recordings_test_add_quoted(text, data, len);
    } else if (witness->counts_only) {
        mr_text_format(text, "%zu", len);
    } else {
        mr_text_format(text, "%zu:%08" PRIX32, len,
                       mr_stream_crc(0, (mr_slice){.data = data, .len = len}));
    }
}

static void add_position(struct witness *witness, struct mr_position position)
{
    mr_text_format(&witness->text, " at " MR_LSN_FORMAT ":%" PRIu64,
                   MR_LSN_ARGS(position.commit_lsn), position.ordinal);
}

static void add_shape(struct witness *witness, const struct mr_relation *relation)
{
    struct mr_text shape = {0};
    mr_text_format(&shape, "relation %" PRIu32 " ", relation->oid);
    recordings_test_add_quoted(&shape, relation->schema, strlen(relation->schema));
    mr_text_string(&shape, ".");
    recordings_test_add_quoted(&shape, relation->table, strlen(relation->table));
    mr_text_format(&shape, " %c", (char)relation->identity);
    for (uint32_t i = 0; i < relation->column_count; i++) {
        const struct mr_column *column = &relation->columns[i];
        mr_text_string(&shape, " ");
        recordings_test_add_quoted(&shape, column->name, strlen(column->name));
        mr_text_format(&shape, ":%" PRIu32 ":%" PRId32 "%s", column->type_oid,
                       column->type_modifier, column->in_identity ? ":key" : "");
    }
    uint32_t at = 0;
    while (at < witness->shown_count && witness->shown[at].oid != relation->oid) {
        at++;
    }
    assert_true(at < RELATIONS_MAX);
    if (at == witness->shown_count || strcmp(witness->shown[at].shape, shape.data) != 0) {
        mr_text_format(&witness->text, "%s\n", shape.data);
        free(at == witness->shown_count ? NULL : witness->shown[at].shape);
        witness->shown_count += at == witness->shown_count;
        witness->shown[at].oid = relation->oid;
        witness->shown[at].shape = shape.data;
    } else {
        mr_text_done(&shape);
    }
}

static void add_tuple(struct witness *witness, const struct mr_relation *relation,
                      const struct mr_tuple *tuple)
{
    struct mr_text *text = &witness->text;
    if (tuple->kind == MR_TUPLE_NONE) {
        return;
    }
    mr_text_format(text, " %c", (char)tuple->kind);
    for (uint32_t i = 0; i < relation->column_count; i++) {
        const struct mr_datum *value = &tuple->values[i];
        mr_text_string(text, " ");
        recordings_test_add_quoted(text, relation->columns[i].name,
                                   strlen(relation->columns[i].name));
        mr_text_string(text, "=");
        if (value->kind == MR_DATUM_TEXT) {
            recordings_test_add_value(witness, value->data, value->len);
        } else {
            mr_text_string(text, value->kind == MR_DATUM_NULL ? "null" : "unchanged");
        }
    }
}

/* Positions grow strictly, whatever they are of. False: it is behind what is known already. */
static bool recordings_test_follow(struct witness *witness, struct mr_position position)
{
    assert_true(mr_position_compare(position, witness->last) > 0);
    witness->last = position;
    return mr_position_compare(position, witness->skip_to) > 0;
}

static mr_status recordings_test_on_change(void *context, const struct mr_change *change,
                                           struct mr_error *ret_error)
{
    static const char *const names[] = {[MR_OP_INSERT] = "insert",
                                        [MR_OP_UPDATE] = "update",
                                        [MR_OP_DELETE] = "delete",
                                        [MR_OP_TRUNCATE] = "truncate"};
    struct witness *witness = context;
    (void)ret_error;
    assert_true(witness->in_transaction);
    assert_int_equal(change->position.commit_lsn, change->transaction->commit_lsn);
    /* The records of a transaction stand before its commit record. */
    assert_true(change->lsn < change->transaction->commit_lsn);
    if (!recordings_test_follow(witness, change->position)) {
        return MR_OK;
    }
    add_shape(witness, change->relation);
    mr_text_format(&witness->text, "%s %" PRIu32, names[change->op], change->relation->oid);
    add_position(witness, change->position);
    mr_text_format(&witness->text, " lsn " MR_LSN_FORMAT, MR_LSN_ARGS(change->lsn));
    add_tuple(witness, change->relation, &change->before);
    add_tuple(witness, change->relation, &change->after);
    mr_text_string(&witness->text, "\n");
    return MR_OK;
}

static mr_status recordings_test_on_message(void *context, const struct mr_message_event *message,
                                            struct mr_error *ret_error)
{
    struct witness *witness = context;
    (void)ret_error;
    assert_int_equal(witness->in_transaction, message->transaction != NULL);
    if (message->transaction == NULL) {
        assert_int_equal(message->position.commit_lsn, message->lsn);
        assert_true(message->lsn > witness->last_end);
        witness->last_end = message->lsn;
    } else {
        assert_true(message->lsn <= message->transaction->commit_lsn);
    }
    if (!recordings_test_follow(witness, message->position)) {
        return MR_OK;
    }
    mr_text_format(&witness->text, "message %s", message->transaction != NULL ? "inside" : "alone");
    add_position(witness, message->position);
    mr_text_format(&witness->text, " lsn " MR_LSN_FORMAT " ", MR_LSN_ARGS(message->lsn));
    recordings_test_add_quoted(&witness->text, message->prefix.data, message->prefix.len);
    mr_text_string(&witness->text, " ");
    recordings_test_add_value(witness, message->content.data, message->content.len);
    mr_text_string(&witness->text, "\n");
    return MR_OK;
}

static bool is_skipped(const struct witness *witness, mr_lsn commit_lsn)
{
    return commit_lsn < witness->skip_to.commit_lsn ||
           (commit_lsn == witness->skip_to.commit_lsn && witness->skip_to.ordinal != 0);
}

static mr_status recordings_test_on_begin(void *context, const struct mr_transaction *transaction,
                                          struct mr_error *ret_error)
{
    (void)ret_error;
    struct witness *witness = context;
    assert_false(witness->in_transaction);
    witness->in_transaction = true;
    /* A commit record begins where the one before it ends, or after that. */
    assert_true(transaction->commit_lsn >= witness->last_end);
    if (!is_skipped(witness, transaction->commit_lsn)) {
        mr_text_format(&witness->text, "begin " MR_LSN_FORMAT " xid %" PRIu32 " time %" PRId64 "\n",
                       MR_LSN_ARGS(transaction->commit_lsn), transaction->xid,
                       transaction->commit_time_us);
    }
    return MR_OK;
}

static mr_status recordings_test_on_commit(void *context, const struct mr_transaction *transaction,
                                           struct mr_error *ret_error)
{
    (void)ret_error;
    struct witness *witness = context;
    assert_true(witness->in_transaction);
    witness->in_transaction = false;
    assert_true(transaction->end_lsn > transaction->commit_lsn);
    assert_true(transaction->end_lsn > witness->last_end);
    witness->last_end = transaction->end_lsn;
    if (is_skipped(witness, transaction->commit_lsn)) {
        return MR_OK;
    }
    mr_text_format(&witness->text, "commit " MR_LSN_FORMAT, MR_LSN_ARGS(transaction->end_lsn));
    if (transaction->origin.len > 0) {
        mr_text_string(&witness->text, " origin ");
        recordings_test_add_quoted(&witness->text, transaction->origin.data,
                                   transaction->origin.len);
        mr_text_format(&witness->text, " " MR_LSN_FORMAT, MR_LSN_ARGS(transaction->origin_lsn));
    }
    mr_text_string(&witness->text, "\n");
    return MR_OK;
}

static void recordings_test_on_keepalive(void *context, mr_lsn server_end, bool reply_requested)
{
    struct witness *witness = context;
    assert_true(server_end >= witness->last_keepalive);
    witness->last_keepalive = server_end;
    /* All that ends at or before its position was sent before it; inside a transaction it says
     * nothing of that one. */
    assert_true(server_end >= witness->last_end);
    if (!witness->in_transaction && witness->last_end < server_end) {
        witness->last_end = server_end;
    }
    mr_text_format(&witness->text, "keepalive " MR_LSN_FORMAT "%s\n", MR_LSN_ARGS(server_end),
                   reply_requested ? " asks" : "");
}

static void recordings_test_on_relation_end(void *context, const struct mr_relation *relation)
{
    (void)context;
    (void)relation;
}

static void witness_init(struct witness *witness)
{
    *witness = (struct witness){0};
    witness->handler = (struct mr_source_handler){
        .context = witness,
        .change = recordings_test_on_change,
        .message = recordings_test_on_message,
        .begin = recordings_test_on_begin,
        .commit = recordings_test_on_commit,
        .keepalive = recordings_test_on_keepalive,
        .relation_end = recordings_test_on_relation_end,
    };
}

static void witness_done(struct witness *witness)
{
    for (uint32_t i = 0; i < witness->shown_count; i++) {
        free(witness->shown[i].shape);
    }
    mr_text_done(&witness->text);
}

/* A new connection: what follows begins where the server was asked to. */
static void witness_reconnect(struct witness *witness)
{
    assert_false(witness->in_transaction);
    witness->skip_to = witness->last;
    witness->last = (struct mr_position){0};
    witness->last_end = witness->last_keepalive = 0;
}

static void recordings_test_play(struct witness *witness, struct mr_replay *replay, mr_lsn until)
{
    struct mr_pgoutput *decoder = mr_pgoutput_new();
    mr_slice payload;
    while ((until == 0 || witness->in_transaction || witness->last_end < until) &&
           mr_replay_next(replay, &payload)) {
        struct mr_error error = {0};
        if (mr_pg_payload_take(decoder, payload, &witness->handler, &error) != MR_OK) {
            fail_msg("%s.rec: %s", replay->path, error.text);
        }
    }
    assert_false(witness->in_transaction);
    mr_pgoutput_reset(decoder, &witness->handler);
    mr_pgoutput_free(decoder);
}

/* Line by line, so that a difference is seen as one. */
static void assert_same_text(const char *path, const char *got, const char *want)
{
    for (unsigned line = 1; *got != 0 || *want != 0; line++) {
        size_t got_len = strcspn(got, "\n"), want_len = strcspn(want, "\n");
        if (got_len != want_len || memcmp(got, want, got_len) != 0) {
            fail_msg("%s.txt:%u:\n  expected: %.*s\n  got:      %.*s", path, line, (int)want_len,
                     want, (int)got_len, got);
        }
        got += got_len + (got[got_len] != 0);
        want += want_len + (want[want_len] != 0);
    }
}

static void assert_expected(struct mr_replay *replay, const struct witness *witness)
{
    char path[sizeof(replay->path) + 8];
    snprintf(path, sizeof(path), "%s.txt", replay->path);
    size_t len;
    char *want = mr_replay_read_file(path, &len);
    assert_same_text(replay->path, witness->text.data, want);
    free(want);
}

static void recordings_test_check_recording(const char *version, const char *name)
{
    struct mr_replay replay;
    struct witness witness;
    mr_replay_open(&replay, version, name);
    witness_init(&witness);
    recordings_test_play(&witness, &replay, 0);
    assert_expected(&replay, &witness);
    witness_done(&witness);
    mr_replay_done(&replay);
}

static void test_streams_are_decoded_as_the_witness_says(void **state)
{
    (void)state;
    mr_replay_each(recordings_test_check_recording);
}

/* Without keepalives and shapes: those come again with each connection. */
static char *rows_of(const char *text)
{
    struct mr_text rows = {0};
    mr_text_string(&rows, "");
    while (*text != 0) {
        size_t len = strcspn(text, "\n") + 1;
        if (strncmp(text, "keepalive", 9) != 0 && strncmp(text, "relation", 8) != 0) {
            mr_text_add(&rows, text, len);
        }
        text += len;
    }
    return rows.data;
}

/* The stream up to the moment when `start` could be confirmed, then what the server sent when it
 * was asked to begin there: the same as if nothing had happened, without a gap and without a
 * repetition. */
static void check_restart(const char *version, const char *name)
{
    struct mr_replay wide, again;
    struct witness through, broken;
    mr_replay_open(&wide, version, "wide");
    mr_replay_open(&again, version, name);
    mr_lsn start = mr_replay_start(&again);
    assert_true(start > 0);

    witness_init(&broken);
    recordings_test_play(&broken, &wide, start);
    witness_reconnect(&broken);
    recordings_test_play(&broken, &again, 0);

    wide.at = 0;
    witness_init(&through);
    recordings_test_play(&through, &wide, broken.last_end);

    char *got = rows_of(broken.text.data);
    char *want = rows_of(through.text.data);
    assert_same_text(again.path, got, want);
    free(got);
    free(want);
    witness_done(&through);
    witness_done(&broken);
    mr_replay_done(&wide);
    mr_replay_done(&again);
}

static void test_a_restart_leaves_no_gap(void **state)
{
    (void)state;
    for (int i = 0; i < MR_REPLAY_VERSIONS; i++) {
        for (int j = 0; j < MR_REPLAY_RESTARTS; j++) {
            check_restart(mr_replay_versions[i], mr_replay_restarts[j]);
        }
    }
}

static void blank_frames(struct mr_replay *replay, bool names)
{
    struct mr_blanker blanker = {.names = names};
    mr_slice payload;
    while (mr_replay_next(replay, &payload)) {
        mr_blank_payload(&blanker, (uint8_t *)(uintptr_t)payload.data, payload.len);
    }
    mr_blanker_done(&blanker);
}

/* Frames of the bytes as they are now, whatever their check sums say. */
static bool next_blanked(const struct mr_replay *was, size_t *at, struct mr_replay *is,
                         mr_slice *ret_payload)
{
    struct mr_replay walk = *was;
    walk.at = *at;
    bool found = mr_replay_next(&walk, ret_payload);
    *at = walk.at;
    if (found) {
        ret_payload->data = is->bytes + (ret_payload->data - was->bytes);
    }
    return found;
}

/* The structure of a text: lines, positions, tuple kinds, lengths; not what stands between
 * quotes. */
static char *structure_of(const char *text)
{
    struct mr_text structure = {0};
    bool quoted = false;
    for (; *text != 0; text++) {
        quoted ^= *text == '\'';
        if (!quoted) {
            mr_text_add(&structure, text, 1);
        } else if (strncmp(text, "\\x", 2) == 0) {
            mr_text_string(&structure, ".");
            text += 3;
        } else if (*text != '\'') {
            mr_text_string(&structure, ".");
        }
    }
    return structure.data;
}

static void check_blank(const char *version, bool names)
{
    struct mr_replay was, is;
    mr_replay_open(&was, version, "wide");
    mr_replay_open(&is, version, "wide");
    blank_frames(&is, names);
    struct witness blanked, plain;
    witness_init(&plain);
    plain.counts_only = true;
    recordings_test_play(&plain, &was, 0);
    witness_init(&blanked);
    blanked.counts_only = true;
    struct mr_pgoutput *decoder = mr_pgoutput_new();
    mr_slice payload;
    for (size_t at = 0; next_blanked(&was, &at, &is, &payload);) {
        struct mr_error error = {0};
        assert_int_equal(mr_pg_payload_take(decoder, payload, &blanked.handler, &error), MR_OK);
    }
    assert_null(strstr(blanked.text.data, "prepared"));
    assert_null(strstr(blanked.text.data, "rolled"));
    assert_int_equal(strstr(blanked.text.data, "elsewhere") == NULL, names);
    assert_int_equal(strstr(blanked.text.data, "outside") == NULL, names);
    assert_int_equal(strstr(blanked.text.data, "full_key") == NULL, names);
    char *got = structure_of(blanked.text.data), *want = structure_of(plain.text.data);
    assert_string_equal(got, want);
    free(got);
    free(want);
    mr_pgoutput_reset(decoder, &blanked.handler);
    mr_pgoutput_free(decoder);
    witness_done(&blanked);
    witness_done(&plain);
    mr_replay_done(&was);
    mr_replay_done(&is);
}

static void test_blanked_streams_keep_their_structure(void **state)
{
    (void)state;
    for (int i = 0; i < MR_REPLAY_VERSIONS; i++) {
        check_blank(mr_replay_versions[i], false);
        check_blank(mr_replay_versions[i], true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_are_decoded_as_the_witness_says),
        cmocka_unit_test(test_a_restart_leaves_no_gap),
        cmocka_unit_test(test_blanked_streams_keep_their_structure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
