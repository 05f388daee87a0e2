#include "event/headers.h"

enum { NAME_LEN = sizeof(uint16_t), VALUE_LEN = sizeof(uint32_t), BLOCK_LEN = sizeof(uint32_t) };

uint8_t *mr_headers_begin(struct mr_buffer *out, const uint8_t *other)
{
    uint8_t *block = mr_buffer_reserve(out, BLOCK_LEN);
    if (other != NULL) {
        mr_buffer_append(out, other + BLOCK_LEN, mr_headers_bytes(other));
    }
    return block;
}

void mr_header_append(struct mr_buffer *out, const char *name, mr_slice value)
{
    uint16_t name_len = (uint16_t)strlen(name);
    uint32_t value_len = (uint32_t)value.len;
    mr_buffer_append(out, &name_len, NAME_LEN);
    mr_buffer_append(out, &value_len, VALUE_LEN);
    mr_buffer_append(out, name, name_len);
    mr_buffer_slice(out, value);
}

void mr_headers_end(struct mr_buffer *out, uint8_t *block)
{
    if (!out->full) {
        uint32_t bytes = (uint32_t)(out->at - block) - BLOCK_LEN;
        memcpy(block, &bytes, BLOCK_LEN);
    }
}

bool mr_header_next(const uint8_t *block, size_t *at, struct mr_header *ret)
{
    if (*at >= mr_headers_bytes(block)) {
        return false;
    }
    const uint8_t *entry = block + BLOCK_LEN + *at;
    uint16_t name_len;
    uint32_t value_len;
    memcpy(&name_len, entry, NAME_LEN);
    memcpy(&value_len, entry + NAME_LEN, VALUE_LEN);
    entry += NAME_LEN + VALUE_LEN;
    ret->name = (mr_slice){.data = entry, .len = name_len};
    ret->value = (mr_slice){.data = entry + name_len, .len = value_len};
    *at += NAME_LEN + VALUE_LEN + (size_t)name_len + value_len;
    return true;
}
