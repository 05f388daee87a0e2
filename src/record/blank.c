#include "record/blank.h"

#include "base/reader.h"

enum { XLOG_DATA_HEAD = 1 + 8 + 8 + 8 };

struct mr_blank_name {
    uint8_t *name;
    size_t len;
    uint32_t number; /* among those of the same length */
};

/* The reader's bytes are the payload, which is the caller's to change. */
static uint8_t *writable(const uint8_t *bytes)
{
    return (uint8_t *)(uintptr_t)bytes;
}

void mr_blanker_done(struct mr_blanker *blanker)
{
    for (uint32_t i = 0; i < blanker->known_count; i++) {
        free(blanker->known[i].name);
    }
    free(blanker->known);
    *blanker = (struct mr_blanker){0};
}

/* -12.50, as the encoders write a number. */
static bool blank_is_number(const uint8_t *bytes, size_t len)
{
    size_t at = len > 0 && bytes[0] == '-';
    size_t digits = 0, points = 0;
    for (; at < len; at++) {
        bool digit = bytes[at] >= '0' && bytes[at] <= '9';
        if (!digit && (bytes[at] != '.' || digits == 0 || points > 0)) {
            return false;
        }
        digits += digit;
        points += !digit;
    }
    return digits > 0;
}

static void blank_value(const uint8_t *bytes, size_t len)
{
    char letter = 'x';
    if (len == 1 && (bytes[0] == 't' || bytes[0] == 'f')) {
        letter = 't';
    } else if (blank_is_number(bytes, len)) {
        letter = '1';
    }
    memset(writable(bytes), letter, len);
}

static void blank_bytes(struct mr_reader *reader)
{
    mr_slice bytes = mr_reader_slice(reader, mr_reader_u32(reader));
    if (bytes.len > 0) {
        blank_value(bytes.data, bytes.len);
    }
}

static uint32_t name_number(struct mr_blanker *blanker, const uint8_t *name, size_t len)
{
    uint32_t number = 0;
    for (uint32_t i = 0; i < blanker->known_count; i++) {
        const struct mr_blank_name *known = &blanker->known[i];
        if (known->len == len && memcmp(known->name, name, len) == 0) {
            return known->number;
        }
        number += known->len == len;
    }
    blanker->known =
        MR_REALLOC(blanker->known, (blanker->known_count + 1) * sizeof(*blanker->known));
    struct mr_blank_name *known = &blanker->known[blanker->known_count++];
    *known = (struct mr_blank_name){.name = MR_ALLOC(len), .len = len, .number = number};
    memcpy(known->name, name, len);
    return number;
}

void mr_blank_name(struct mr_blanker *blanker, uint8_t *name, size_t len)
{
    if (!blanker->names || len == 0) {
        return;
    }
    uint32_t number = name_number(blanker, name, len);
    memset(name, 'a', len);
    for (size_t at = len; at > 0 && number > 0; number /= 26) {
        name[--at] = (uint8_t)('a' + number % 26);
    }
}

static void blank_string(struct mr_blanker *blanker, struct mr_reader *reader)
{
    mr_slice name = mr_reader_string(reader);
    mr_blank_name(blanker, writable(name.data), name.len);
}

static void blank_tuple(struct mr_reader *reader)
{
    for (uint16_t columns = mr_reader_u16(reader); columns > 0 && !reader->failed; columns--) {
        uint8_t kind = mr_reader_u8(reader);
        if (kind == 't' || kind == 'b') {
            blank_bytes(reader);
        } else if (kind != 'n' && kind != 'u') {
            reader->failed = true;
        }
    }
}

static void blank_row(struct mr_reader *reader)
{
    mr_reader_u32(reader);
    while (mr_reader_left(reader) > 0 && !reader->failed) {
        mr_reader_u8(reader); /* K, O or N */
        blank_tuple(reader);
    }
}

static void blank_relation(struct mr_blanker *blanker, struct mr_reader *reader)
{
    mr_reader_u32(reader);
    blank_string(blanker, reader);
    blank_string(blanker, reader);
    mr_reader_u8(reader);
    for (uint16_t columns = mr_reader_u16(reader); columns > 0 && !reader->failed; columns--) {
        mr_reader_u8(reader);
        blank_string(blanker, reader);
        mr_reader_take(reader, 2 * sizeof(uint32_t));
    }
}

static void blank_message(struct mr_blanker *blanker, struct mr_reader *reader)
{
    switch (mr_reader_u8(reader)) {
    case 'B':
        mr_reader_take(reader, 8 + 8 + 4);
        break;
    case 'C':
        mr_reader_take(reader, 1 + 8 + 8 + 8);
        break;
    case 'O':
        mr_reader_take(reader, 8);
        blank_string(blanker, reader);
        break;
    case 'R':
        blank_relation(blanker, reader);
        break;
    case 'Y':
        mr_reader_take(reader, 4);
        blank_string(blanker, reader);
        blank_string(blanker, reader);
        break;
    case 'I':
    case 'U':
    case 'D':
        blank_row(reader);
        break;
    case 'T':
        mr_reader_take(reader, 1 + (size_t)mr_reader_u32(reader) * sizeof(uint32_t));
        break;
    case 'M':
        mr_reader_take(reader, 1 + 8);
        blank_string(blanker, reader);
        blank_bytes(reader);
        break;
    default:
        break;
    }
}

void mr_blank_payload(struct mr_blanker *blanker, uint8_t *payload, size_t len)
{
    struct mr_reader reader = mr_reader_init((mr_slice){.data = payload, .len = len});
    uint8_t type = mr_reader_u8(&reader);
    if (type == 'w') {
        mr_reader_take(&reader, XLOG_DATA_HEAD - 1);
        blank_message(blanker, &reader);
    } else if (type == 'k') {
        mr_reader_take(&reader, 8 + 8 + 1);
    }
    memset(writable(reader.at), 'x', mr_reader_left(&reader));
}
