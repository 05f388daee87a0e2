#include "event/headers.h"

enum { NAME_LEN = sizeof(uint16_t), VALUE_LEN = sizeof(uint32_t) };

#define NULL_VALUE UINT32_MAX

struct head {
    uint32_t bytes;
    int32_t partition;
    int64_t time_ms;
};

_Static_assert(sizeof(struct head) == 16, "a block's head has no gaps");

static const struct mr_record_place no_place = {.partition = -1};

uint8_t *mr_headers_begin(struct mr_buffer *out, const uint8_t *other)
{
    uint8_t *block = mr_buffer_reserve(out, sizeof(struct head));
    if (block != NULL) {
        memset(block, 0, sizeof(struct head));
        mr_headers_set_place(block, mr_headers_place(other));
    }
    if (other != NULL) {
        mr_buffer_append(out, other + sizeof(struct head), mr_headers_bytes(other));
    }
    return block;
}

uint8_t *mr_header_begin(struct mr_buffer *out, const char *name)
{
    uint16_t name_len = (uint16_t)strlen(name);
    uint32_t value_len = NULL_VALUE;
    uint8_t *header = out->at;
    mr_buffer_append(out, &name_len, NAME_LEN);
    mr_buffer_append(out, &value_len, VALUE_LEN);
    mr_buffer_append(out, name, name_len);
    return header;
}

void mr_header_end(struct mr_buffer *out, uint8_t *header)
{
    if (out->full) {
        return;
    }
    uint16_t name_len;
    memcpy(&name_len, header, NAME_LEN);
    uint32_t value_len = (uint32_t)(out->at - header) - NAME_LEN - VALUE_LEN - name_len;
    memcpy(header + NAME_LEN, &value_len, VALUE_LEN);
}

void mr_header_append(struct mr_buffer *out, const char *name, mr_slice value)
{
    uint8_t *header = mr_header_begin(out, name);
    if (value.data != NULL) {
        mr_buffer_slice(out, value);
        mr_header_end(out, header);
    }
}

void mr_headers_end(struct mr_buffer *out, uint8_t *block)
{
    if (!out->full) {
        uint32_t bytes = (uint32_t)((size_t)(out->at - block) - sizeof(struct head));
        memcpy(block, &bytes, sizeof(bytes));
    }
}

void mr_headers_set_place(uint8_t *block, struct mr_record_place place)
{
    struct head head = {.partition = place.partition, .time_ms = place.time_ms};
    memcpy(&head.bytes, block, sizeof(head.bytes));
    memcpy(block, &head, sizeof(head));
}

struct mr_record_place mr_headers_place(const uint8_t *block)
{
    if (MR_LIKELY(block == NULL)) {
        return no_place;
    }
    struct head head;
    memcpy(&head, block, sizeof(head));
    return (struct mr_record_place){.partition = head.partition, .time_ms = head.time_ms};
}

mr_slice mr_headers_all(const uint8_t *block)
{
    return MR_LIKELY(block == NULL)
               ? (mr_slice){.len = 0}
               : (mr_slice){.data = block + sizeof(struct head), .len = mr_headers_bytes(block)};
}

bool mr_header_in(mr_slice headers, size_t *at, struct mr_header *ret)
{
    if (*at >= headers.len) {
        return false;
    }
    const uint8_t *entry = headers.data + *at;
    uint16_t name_len;
    uint32_t value_len;
    memcpy(&name_len, entry, NAME_LEN);
    memcpy(&value_len, entry + NAME_LEN, VALUE_LEN);
    bool is_null = value_len == NULL_VALUE;
    value_len = is_null ? 0 : value_len;
    entry += NAME_LEN + VALUE_LEN;
    ret->name = (mr_slice){.data = entry, .len = name_len};
    ret->value = (mr_slice){.data = is_null ? NULL : entry + name_len, .len = value_len};
    *at += NAME_LEN + VALUE_LEN + (size_t)name_len + value_len;
    return true;
}

bool mr_header_next(const uint8_t *block, size_t *at, struct mr_header *ret)
{
    return mr_header_in(mr_headers_all(block), at, ret);
}
