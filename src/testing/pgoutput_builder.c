#include "testing/pgoutput_builder.h"

#include <endian.h>
#include <string.h>

const char mr_wire_unchanged[] = "";

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

void mr_wire_tuple(struct mr_wire *wire, const char *const *values, uint16_t count)
{
    mr_wire_u16(wire, count);
    for (uint16_t i = 0; i < count; i++) {
        if (values[i] == NULL) {
            mr_wire_u8(wire, 'n');
        } else if (values[i] == mr_wire_unchanged) {
            mr_wire_u8(wire, 'u');
        } else {
            mr_wire_u8(wire, 't');
            mr_wire_u32(wire, (uint32_t)strlen(values[i]));
            mr_wire_bytes(wire, values[i], strlen(values[i]));
        }
    }
}

void mr_wire_begin(struct mr_wire *wire, uint64_t commit_lsn, uint32_t xid)
{
    wire->len = 0;
    mr_wire_u8(wire, 'B');
    mr_wire_u64(wire, commit_lsn);
    mr_wire_u64(wire, 1000000);
    mr_wire_u32(wire, xid);
}

void mr_wire_commit(struct mr_wire *wire, uint64_t commit_lsn, uint64_t end_lsn)
{
    wire->len = 0;
    mr_wire_u8(wire, 'C');
    mr_wire_u8(wire, 0);
    mr_wire_u64(wire, commit_lsn);
    mr_wire_u64(wire, end_lsn);
    mr_wire_u64(wire, 1000000);
}

/* The first column is the key; columns are of type text. */
void mr_wire_relation(struct mr_wire *wire, uint32_t oid, char identity, const char *table,
                      const char *const *columns, uint16_t count)
{
    wire->len = 0;
    mr_wire_u8(wire, 'R');
    mr_wire_u32(wire, oid);
    mr_wire_string(wire, "public");
    mr_wire_string(wire, table);
    mr_wire_u8(wire, (uint8_t)identity);
    mr_wire_u16(wire, count);
    for (uint16_t i = 0; i < count; i++) {
        mr_wire_u8(wire, i == 0);
        mr_wire_string(wire, columns[i]);
        mr_wire_u32(wire, 25);
        mr_wire_u32(wire, 0xffffffffu);
    }
}

void mr_wire_insert(struct mr_wire *wire, uint32_t oid, const char *const *values, uint16_t count)
{
    wire->len = 0;
    mr_wire_u8(wire, 'I');
    mr_wire_u32(wire, oid);
    mr_wire_u8(wire, 'N');
    mr_wire_tuple(wire, values, count);
}

void mr_wire_message(struct mr_wire *wire, bool transactional, uint64_t lsn, const char *prefix,
                     const char *content)
{
    wire->len = 0;
    mr_wire_u8(wire, 'M');
    mr_wire_u8(wire, transactional);
    mr_wire_u64(wire, lsn);
    mr_wire_string(wire, prefix);
    mr_wire_u32(wire, (uint32_t)strlen(content));
    mr_wire_bytes(wire, content, strlen(content));
}
