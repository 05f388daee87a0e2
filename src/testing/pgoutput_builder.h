/* Bytes as PostgreSQL sends them, for tests. */
#ifndef MR_TESTING_PGOUTPUT_BUILDER_H
#define MR_TESTING_PGOUTPUT_BUILDER_H

#include "base/base.h"

enum { MR_WIRE_MAX = 64 * 1024, MR_WIRE_COUNTS_MAX = 32 };

/* A message under construction; all zero is an empty one. It remembers where its first lengths and
 * counts stand, so that a test can make each of them lie. */
struct mr_wire {
    size_t len;
    size_t count_count;
    struct {
        size_t offset;
        size_t width; /* 2 or 4 bytes */
    } counts[MR_WIRE_COUNTS_MAX];
    uint8_t bytes[MR_WIRE_MAX];
};

void mr_wire_reset(struct mr_wire *wire);

void mr_wire_u8(struct mr_wire *wire, uint8_t value);
void mr_wire_u16(struct mr_wire *wire, uint16_t value);
void mr_wire_u32(struct mr_wire *wire, uint32_t value);
void mr_wire_u64(struct mr_wire *wire, uint64_t value);
void mr_wire_string(struct mr_wire *wire, const char *text); /* with its NUL */
void mr_wire_bytes(struct mr_wire *wire, const void *bytes, size_t len);

/* A length or a count. */
void mr_wire_count16(struct mr_wire *wire, uint16_t value);
void mr_wire_count32(struct mr_wire *wire, uint32_t value);

static inline mr_slice mr_wire_slice(const struct mr_wire *wire)
{
    return (mr_slice){.data = wire->bytes, .len = wire->len};
}

/* One value of a row: 't' or 'b' with its bytes. */
void mr_wire_value(struct mr_wire *wire, char kind, const void *bytes, size_t len);

/* A tuple of text values; NULL is a null, mr_wire_unchanged an unchanged TOASTed value. */
extern const char mr_wire_unchanged[];
void mr_wire_tuple(struct mr_wire *wire, const char *const *values, uint16_t count);

/* Whole messages; each begins again. */
void mr_wire_begin(struct mr_wire *wire, uint64_t commit_lsn, uint32_t xid);
void mr_wire_commit(struct mr_wire *wire, uint64_t commit_lsn, uint64_t end_lsn);
void mr_wire_origin(struct mr_wire *wire, uint64_t lsn, const char *name);
void mr_wire_type(struct mr_wire *wire, uint32_t oid, const char *schema, const char *name);

/* The first column is the key; columns are of type text; the schema is public. */
void mr_wire_relation(struct mr_wire *wire, uint32_t oid, char identity, const char *table,
                      const char *const *columns, uint16_t count);

/* The same piece by piece: the head, then one call a column. */
void mr_wire_relation_head(struct mr_wire *wire, uint32_t oid, const char *schema,
                           const char *table, char identity, uint16_t count);
void mr_wire_column(struct mr_wire *wire, uint8_t flags, const char *name, uint32_t type_oid,
                    int32_t type_modifier);

void mr_wire_insert(struct mr_wire *wire, uint32_t oid, const char *const *values, uint16_t count);

/* `old_kind` is 'K', 'O', or 0 for an update without an old row. */
void mr_wire_update(struct mr_wire *wire, uint32_t oid, char old_kind, const char *const *old,
                    const char *const *values, uint16_t count);
void mr_wire_delete(struct mr_wire *wire, uint32_t oid, char kind, const char *const *values,
                    uint16_t count);
void mr_wire_truncate(struct mr_wire *wire, uint8_t options, const uint32_t *oids, uint32_t count);
void mr_wire_message(struct mr_wire *wire, bool transactional, uint64_t lsn, const char *prefix,
                     const char *content);

#endif
