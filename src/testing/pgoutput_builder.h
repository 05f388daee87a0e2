/* Bytes as PostgreSQL sends them, for tests. */
#ifndef MR_TESTING_PGOUTPUT_BUILDER_H
#define MR_TESTING_PGOUTPUT_BUILDER_H

#include "base/base.h"

enum { MR_WIRE_MAX = 64 * 1024 };

struct mr_wire {
    uint8_t bytes[MR_WIRE_MAX];
    size_t len;
};

void mr_wire_u8(struct mr_wire *wire, uint8_t value);
void mr_wire_u16(struct mr_wire *wire, uint16_t value);
void mr_wire_u32(struct mr_wire *wire, uint32_t value);
void mr_wire_u64(struct mr_wire *wire, uint64_t value);
void mr_wire_string(struct mr_wire *wire, const char *text); /* with its NUL */
void mr_wire_bytes(struct mr_wire *wire, const void *bytes, size_t len);

static inline mr_slice mr_wire_slice(const struct mr_wire *wire)
{
    return (mr_slice){.data = wire->bytes, .len = wire->len};
}

/* A tuple of text values; NULL is a null, mr_wire_unchanged an unchanged TOASTed value. */
extern const char mr_wire_unchanged[];
void mr_wire_tuple(struct mr_wire *wire, const char *const *values, uint16_t count);

/* Whole messages; each begins anew. */
void mr_wire_begin(struct mr_wire *wire, uint64_t commit_lsn, uint32_t xid);
void mr_wire_commit(struct mr_wire *wire, uint64_t commit_lsn, uint64_t end_lsn);
void mr_wire_relation(struct mr_wire *wire, uint32_t oid, char identity, const char *table,
                      const char *const *columns, uint16_t count);
void mr_wire_insert(struct mr_wire *wire, uint32_t oid, const char *const *values, uint16_t count);
void mr_wire_message(struct mr_wire *wire, bool transactional, uint64_t lsn, const char *prefix,
                     const char *content);

#endif
