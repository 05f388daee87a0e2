#include "testing/pgoutput_builder.h"

#include <endian.h>
#include <string.h>

/* Compared by its address. */
const char mr_wire_unchanged[] = "";

enum { TYPE_TEXT = 25, COMMIT_TIME = 1000000 };

void mr_wire_reset(struct mr_wire *wire)
{
    wire->len = 0;
    wire->count_count = 0;
}

static void message_start(struct mr_wire *wire, char type)
{
    mr_wire_reset(wire);
    mr_wire_u8(wire, (uint8_t)type);
}

void mr_wire_bytes(struct mr_wire *wire, const void *bytes, size_t len)
{
    MR_ASSERT(wire->len + len <= MR_WIRE_MAX);
    memcpy(wire->bytes + wire->len, bytes, len);
    wire->len += len;
}

void mr_wire_u8(struct mr_wire *wire, uint8_t value)
{
    mr_wire_bytes(wire, &value, sizeof(value));
}

void mr_wire_u16(struct mr_wire *wire, uint16_t value)
{
    value = htobe16(value);
    mr_wire_bytes(wire, &value, sizeof(value));
}

void mr_wire_u32(struct mr_wire *wire, uint32_t value)
{
    value = htobe32(value);
    mr_wire_bytes(wire, &value, sizeof(value));
}

void mr_wire_u64(struct mr_wire *wire, uint64_t value)
{
    value = htobe64(value);
    mr_wire_bytes(wire, &value, sizeof(value));
}

void mr_wire_string(struct mr_wire *wire, const char *text)
{
    mr_wire_bytes(wire, text, strlen(text) + 1);
}

static void remember_count(struct mr_wire *wire, size_t width)
{
    if (wire->count_count < MR_WIRE_COUNTS_MAX) {
        wire->counts[wire->count_count].offset = wire->len;
        wire->counts[wire->count_count].width = width;
        wire->count_count++;
    }
}

void mr_wire_count16(struct mr_wire *wire, uint16_t value)
{
    remember_count(wire, sizeof(value));
    mr_wire_u16(wire, value);
}

void mr_wire_count32(struct mr_wire *wire, uint32_t value)
{
    remember_count(wire, sizeof(value));
    mr_wire_u32(wire, value);
}

void mr_wire_value(struct mr_wire *wire, char kind, const void *bytes, size_t len)
{
    mr_wire_u8(wire, (uint8_t)kind);
    mr_wire_count32(wire, (uint32_t)len);
    mr_wire_bytes(wire, bytes, len);
}

void mr_wire_tuple(struct mr_wire *wire, const char *const *values, uint16_t count)
{
    mr_wire_count16(wire, count);
    for (uint16_t i = 0; i < count; i++) {
        if (values[i] == NULL) {
            mr_wire_u8(wire, 'n');
        } else if (values[i] == mr_wire_unchanged) {
            mr_wire_u8(wire, 'u');
        } else {
            mr_wire_value(wire, 't', values[i], strlen(values[i]));
        }
    }
}

void mr_wire_begin(struct mr_wire *wire, uint64_t commit_lsn, uint32_t xid)
{
    message_start(wire, 'B');
    mr_wire_u64(wire, commit_lsn);
    mr_wire_u64(wire, COMMIT_TIME);
    mr_wire_u32(wire, xid);
}

void mr_wire_commit(struct mr_wire *wire, uint64_t commit_lsn, uint64_t end_lsn)
{
    message_start(wire, 'C');
    mr_wire_u8(wire, 0);
    mr_wire_u64(wire, commit_lsn);
    mr_wire_u64(wire, end_lsn);
    mr_wire_u64(wire, COMMIT_TIME);
}

void mr_wire_origin(struct mr_wire *wire, uint64_t lsn, const char *name)
{
    message_start(wire, 'O');
    mr_wire_u64(wire, lsn);
    mr_wire_string(wire, name);
}

void mr_wire_type(struct mr_wire *wire, uint32_t oid, const char *schema, const char *name)
{
    message_start(wire, 'Y');
    mr_wire_u32(wire, oid);
    mr_wire_string(wire, schema);
    mr_wire_string(wire, name);
}

void mr_wire_relation_head(struct mr_wire *wire, uint32_t oid, const char *schema,
                           const char *table, char identity, uint16_t count)
{
    message_start(wire, 'R');
    mr_wire_u32(wire, oid);
    mr_wire_string(wire, schema);
    mr_wire_string(wire, table);
    mr_wire_u8(wire, (uint8_t)identity);
    mr_wire_count16(wire, count);
}

void mr_wire_column(struct mr_wire *wire, uint8_t flags, const char *name, uint32_t type_oid,
                    int32_t type_modifier)
{
    mr_wire_u8(wire, flags);
    mr_wire_string(wire, name);
    mr_wire_u32(wire, type_oid);
    mr_wire_u32(wire, (uint32_t)type_modifier);
}

void mr_wire_relation(struct mr_wire *wire, uint32_t oid, char identity, const char *table,
                      const char *const *columns, uint16_t count)
{
    mr_wire_relation_head(wire, oid, "public", table, identity, count);
    for (uint16_t i = 0; i < count; i++) {
        mr_wire_column(wire, i == 0, columns[i], TYPE_TEXT, -1);
    }
}

void mr_wire_insert(struct mr_wire *wire, uint32_t oid, const char *const *values, uint16_t count)
{
    message_start(wire, 'I');
    mr_wire_u32(wire, oid);
    mr_wire_u8(wire, 'N');
    mr_wire_tuple(wire, values, count);
}

void mr_wire_update(struct mr_wire *wire, uint32_t oid, char old_kind, const char *const *old,
                    const char *const *values, uint16_t count)
{
    message_start(wire, 'U');
    mr_wire_u32(wire, oid);
    if (old_kind != 0) {
        mr_wire_u8(wire, (uint8_t)old_kind);
        mr_wire_tuple(wire, old, count);
    }
    mr_wire_u8(wire, 'N');
    mr_wire_tuple(wire, values, count);
}

void mr_wire_delete(struct mr_wire *wire, uint32_t oid, char kind, const char *const *values,
                    uint16_t count)
{
    message_start(wire, 'D');
    mr_wire_u32(wire, oid);
    mr_wire_u8(wire, (uint8_t)kind);
    mr_wire_tuple(wire, values, count);
}

void mr_wire_truncate(struct mr_wire *wire, uint8_t options, const uint32_t *oids, uint32_t count)
{
    message_start(wire, 'T');
    mr_wire_count32(wire, count);
    mr_wire_u8(wire, options);
    for (uint32_t i = 0; i < count; i++) {
        mr_wire_u32(wire, oids[i]);
    }
}

void mr_wire_message(struct mr_wire *wire, bool transactional, uint64_t lsn, const char *prefix,
                     const char *content)
{
    message_start(wire, 'M');
    mr_wire_u8(wire, transactional);
    mr_wire_u64(wire, lsn);
    mr_wire_string(wire, prefix);
    mr_wire_count32(wire, (uint32_t)strlen(content));
    mr_wire_bytes(wire, content, strlen(content));
}
