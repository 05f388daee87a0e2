#include "testing/recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_LSN = 0x1000000,
    RECORD_BYTES = 0x100, /* from one record to the next in a made-up log */
    TYPE_INT8 = 20,
    TYPE_NUMERIC = 1700,
    TYPE_TEXT = 25,
    TYPE_JSONB = 3802,
    TYPE_TIMESTAMPTZ = 1184,
};

static void recording_append(struct mr_recording *recording, const void *bytes, size_t len)
{
    if (recording->len + len > recording->capacity) {
        recording->capacity = 2 * (recording->len + len);
        recording->bytes = MR_REALLOC(recording->bytes, recording->capacity);
    }
    memcpy(recording->bytes + recording->len, bytes, len);
    recording->len += len;
}

static void append_payload(struct mr_recording *recording, const struct mr_wire *head,
                           const struct mr_wire *body)
{
    size_t len = head->len + (body == NULL ? 0 : body->len);
    MR_ASSERT(len <= UINT16_MAX);
    uint8_t length[2] = {(uint8_t)(len >> 8), (uint8_t)len};
    recording_append(recording, length, sizeof(length));
    recording_append(recording, head->bytes, head->len);
    if (body != NULL) {
        recording_append(recording, body->bytes, body->len);
    }
}

void mr_recording_done(struct mr_recording *recording)
{
    free(recording->bytes);
    *recording = (struct mr_recording){0};
}

void mr_recording_message(struct mr_recording *recording, mr_lsn lsn, const struct mr_wire *wire)
{
    static struct mr_wire head;
    mr_wire_reset(&head);
    mr_wire_u8(&head, 'w');
    mr_wire_u64(&head, lsn);
    mr_wire_u64(&head, lsn);
    mr_wire_u64(&head, 0);
    append_payload(recording, &head, wire);
}

void mr_recording_keepalive(struct mr_recording *recording, mr_lsn server_end, bool reply)
{
    static struct mr_wire head;
    mr_wire_reset(&head);
    mr_wire_u8(&head, 'k');
    mr_wire_u64(&head, server_end);
    mr_wire_u64(&head, 0);
    mr_wire_u8(&head, reply);
    append_payload(recording, &head, NULL);
}

void mr_recording_payload(struct mr_recording *recording, mr_slice payload)
{
    if (payload.len <= UINT16_MAX) {
        uint8_t length[2] = {(uint8_t)(payload.len >> 8), (uint8_t)payload.len};
        recording_append(recording, length, sizeof(length));
        recording_append(recording, payload.data, payload.len);
    }
}

bool mr_recording_next(mr_slice recording, size_t *at, mr_slice *ret_payload)
{
    if (recording.len - *at < 2) {
        return false;
    }
    const uint8_t *begin = recording.data + *at;
    size_t len = (size_t)begin[0] << 8 | begin[1];
    size_t left = recording.len - *at - 2;
    len = len < left ? len : left;
    *ret_payload = (mr_slice){.data = begin + 2, .len = len};
    *at += 2 + len;
    return true;
}

/* One transaction of a made-up log; messages between begin and commit take the next places in
 * it. */
struct script {
    struct mr_recording *recording;
    struct mr_wire wire;
    mr_lsn lsn;
    mr_lsn commit_lsn;
    uint32_t xid;
};

static void recording_add(struct script *script)
{
    char type = (char)script->wire.bytes[0];
    script->recording->changes += type == 'I' || type == 'U' || type == 'D';
    mr_recording_message(script->recording, script->lsn, &script->wire);
    script->lsn += RECORD_BYTES;
}

/* `records`: how many messages come at most before the commit. */
static void begin(struct script *script, uint32_t records)
{
    script->commit_lsn = script->lsn + (mr_lsn)(records + 1) * RECORD_BYTES;
    mr_wire_begin(&script->wire, script->commit_lsn, ++script->xid);
    recording_add(script);
}

static void recording_commit(struct script *script)
{
    mr_wire_commit(&script->wire, script->commit_lsn, script->commit_lsn + RECORD_BYTES);
    script->lsn = script->commit_lsn;
    recording_add(script);
    script->recording->end = script->lsn;
}

static void benchmark_relation(struct script *script)
{
    static const struct {
        const char *name;
        uint32_t type;
    } columns[] = {{"id", TYPE_INT8},
                   {"account_id", TYPE_INT8},
                   {"amount", TYPE_NUMERIC},
                   {"payload", TYPE_TEXT},
                   {"attributes", TYPE_JSONB},
                   {"created_at", TYPE_TIMESTAMPTZ},
                   {"updated_at", TYPE_TIMESTAMPTZ}};
    mr_wire_relation_head(&script->wire, 16385, "public", "benchmark_records", 'f',
                          MR_ARRAY_LEN(columns));
    for (size_t i = 0; i < MR_ARRAY_LEN(columns); i++) {
        mr_wire_column(&script->wire, 1, columns[i].name, columns[i].type, -1);
    }
    recording_add(script);
}

static void benchmark_row(struct script *script, uint32_t row)
{
    char id[16], account[16], amount[24], payload[129], attributes[48], time[40];
    snprintf(id, sizeof(id), "%u", row + 1);
    snprintf(account, sizeof(account), "%u", row * 7919 % 100000);
    snprintf(amount, sizeof(amount), "%u.%06u", row % 10000, row * 10000 % 1000000);
    for (size_t i = 0; i < sizeof(payload) - 1; i++) {
        payload[i] = "0123456789abcdef"[(row + i * 7) % 16];
    }
    payload[sizeof(payload) - 1] = 0;
    snprintf(attributes, sizeof(attributes), "{\"n\": %u, \"kind\": \"bench\"}", row);
    snprintf(time, sizeof(time), "2026-01-02 03:04:%02u.%06u+00", row % 60, row % 1000000);
    const char *values[] = {id, account, amount, payload, attributes, time, time};
    mr_wire_insert(&script->wire, 16385, values, MR_ARRAY_LEN(values));
    recording_add(script);
}

static struct script *recording_script_new(struct mr_recording *recording)
{
    struct script *script = MR_NEW(struct script);
    script->recording = recording;
    script->lsn = FIRST_LSN;
    return script;
}

void mr_recording_rows(struct mr_recording *recording, uint32_t rows, uint32_t rows_per_transaction)
{
    struct script *script = recording_script_new(recording);
    for (uint32_t row = 0; row < rows; row++) {
        if (row % rows_per_transaction == 0) {
            begin(script, rows_per_transaction + 1);
            if (row == 0) {
                benchmark_relation(script);
            }
        }
        benchmark_row(script, row);
        if (row % rows_per_transaction == rows_per_transaction - 1 || row == rows - 1) {
            recording_commit(script);
        }
    }
    free(script);
}

static void shop(struct script *script)
{
    static const char *const columns[] = {"id", "v", "big \"quoted\""};
    static const char *const first[] = {"1", "tab\tquote\"backslash\\ \x01 \xC3\xA9 \xFF", "x"};
    static const char *const second[] = {"2", NULL, mr_wire_unchanged};
    static const char *const key[] = {"1", NULL, NULL};
    begin(script, 16);
    mr_wire_type(&script->wire, 90000, "public", "mood");
    recording_add(script);
    mr_wire_relation(&script->wire, 1, 'd', "shop", columns, 3);
    recording_add(script);
    mr_wire_insert(&script->wire, 1, first, 3);
    recording_add(script);
    mr_wire_update(&script->wire, 1, 0, NULL, second, 3);
    recording_add(script);
    mr_wire_update(&script->wire, 1, 'K', key, second, 3);
    recording_add(script);
    mr_wire_delete(&script->wire, 1, 'K', key, 3);
    recording_add(script);
    mr_wire_message(&script->wire, true, script->lsn, "prefix", "content");
    recording_add(script);
    recording_commit(script);
}

static void shop_changed(struct script *script)
{
    static const char *const columns[] = {"id", "v", "f", "b"};
    static const uint32_t types[] = {23, 25, 701, 16};
    static const char *const old[] = {"1", "old", "NaN", "t"};
    static const char *const row[] = {"1", mr_wire_unchanged, "-1.5e300", "f"};
    begin(script, 16);
    mr_wire_origin(&script->wire, script->lsn - 1, "elsewhere");
    recording_add(script);
    mr_wire_relation_head(&script->wire, 1, "public", "shop", 'f', 4);
    for (size_t i = 0; i < 4; i++) {
        mr_wire_column(&script->wire, 1, columns[i], types[i], -1);
    }
    recording_add(script);
    mr_wire_update(&script->wire, 1, 'O', old, row, 4);
    recording_add(script);
    mr_wire_delete(&script->wire, 1, 'O', old, 4);
    recording_add(script);
    mr_wire_relation_head(&script->wire, 2, "", "empty", 'n', 0);
    recording_add(script);
    mr_wire_insert(&script->wire, 2, NULL, 0);
    recording_add(script);
    mr_wire_truncate(&script->wire, 3, (const uint32_t[]){1, 2}, 2);
    recording_add(script);
    recording_commit(script);
}

void mr_recording_everything(struct mr_recording *recording)
{
    struct script *script = recording_script_new(recording);
    mr_recording_keepalive(recording, script->lsn, false);
    shop(script);
    mr_wire_message(&script->wire, false, script->lsn, "outside", "a transaction");
    recording_add(script);
    mr_recording_keepalive(recording, script->lsn, true);
    shop_changed(script);
    begin(script, 4);
    benchmark_relation(script);
    benchmark_row(script, 1);
    recording_commit(script);
    mr_recording_keepalive(recording, recording->end, true);
    free(script);
}
