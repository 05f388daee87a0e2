/* A bounded big-endian cursor over bytes from outside.
 *
 * It remembers its first failure: after that every read answers zero or an empty slice and `failed`
 * stays true, so a decoder reads like the protocol's page and asks once at the end. The bytes stay
 * the caller's. Any thread, one at a time.
 */
#pragma once

#include "base/base.h"

struct mr_reader {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

static inline struct mr_reader mr_reader_init(mr_slice bytes)
{
    return (struct mr_reader){.at = bytes.data, .end = bytes.data + bytes.len, .failed = false};
}

static inline size_t mr_reader_left(const struct mr_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

/* Takes `len` bytes and returns where they begin, or NULL after a failure. */
static inline const uint8_t *mr_reader_take(struct mr_reader *reader, size_t len)
{
    if (MR_UNLIKELY(reader->failed || len > mr_reader_left(reader))) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *taken = reader->at;
    reader->at += len;
    return taken;
}

static inline uint8_t mr_reader_u8(struct mr_reader *reader)
{
    const uint8_t *bytes = mr_reader_take(reader, 1);
    return bytes == NULL ? 0 : bytes[0];
}

static inline uint16_t mr_reader_u16(struct mr_reader *reader)
{
    const uint8_t *bytes = mr_reader_take(reader, sizeof(uint16_t));
    uint16_t value = 0;
    if (bytes != NULL) {
        memcpy(&value, bytes, sizeof(value));
    }
    return __builtin_bswap16(value);
}

static inline uint32_t mr_reader_u32(struct mr_reader *reader)
{
    const uint8_t *bytes = mr_reader_take(reader, sizeof(uint32_t));
    uint32_t value = 0;
    if (bytes != NULL) {
        memcpy(&value, bytes, sizeof(value));
    }
    return __builtin_bswap32(value);
}

static inline uint64_t mr_reader_u64(struct mr_reader *reader)
{
    const uint8_t *bytes = mr_reader_take(reader, sizeof(uint64_t));
    uint64_t value = 0;
    if (bytes != NULL) {
        memcpy(&value, bytes, sizeof(value));
    }
    return __builtin_bswap64(value);
}

static inline mr_slice mr_reader_slice(struct mr_reader *reader, size_t len)
{
    const uint8_t *bytes = mr_reader_take(reader, len);
    return bytes == NULL ? (mr_slice){0} : (mr_slice){.data = bytes, .len = len};
}

/* A NUL-terminated string without its NUL; a missing NUL is a failure. */
static inline mr_slice mr_reader_string(struct mr_reader *reader)
{
    if (reader->failed || mr_reader_left(reader) == 0) {
        reader->failed = true;
        return (mr_slice){0};
    }
    const uint8_t *nul = memchr(reader->at, 0, mr_reader_left(reader));
    if (nul == NULL) {
        reader->failed = true;
        return (mr_slice){0};
    }
    mr_slice text = {.data = reader->at, .len = (size_t)(nul - reader->at)};
    reader->at = nul + 1;
    return text;
}
