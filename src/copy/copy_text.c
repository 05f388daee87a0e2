#include "copy/copy_text.h"

/* What a backslash and this letter stand for; 0: nothing that the server writes
 * (CopyAttributeOutText in src/backend/commands/copyto.c). */
static const uint8_t unescaped[UINT8_MAX + 1] = {
    ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r',
    ['t'] = '\t', ['v'] = '\v', ['\\'] = '\\'};

static uint8_t *copy_text_unescape(uint8_t *from, uint8_t *end)
{
    uint8_t *to = memchr(from, '\\', (size_t)(end - from));
    if (to == NULL) {
        return end;
    }
    for (uint8_t *at = to; at < end; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        uint8_t byte = ++at < end ? unescaped[*at] : 0;
        if (byte == 0) {
            return NULL;
        }
        *to++ = byte;
    }
    return to;
}

static bool take_escaped(uint8_t *from, uint8_t *end, struct mr_datum *value)
{
    if (end - from == 2 && from[0] == '\\' && from[1] == 'N') {
        *value = (struct mr_datum){.kind = MR_DATUM_NULL};
        return true;
    }
    end = copy_text_unescape(from, end);
    *value = (struct mr_datum){
        .kind = MR_DATUM_TEXT, .data = from, .len = end == NULL ? 0 : (uint32_t)(end - from)};
    return end != NULL;
}

bool mr_copy_text_decode(uint8_t *row, size_t len, struct mr_datum *values, uint32_t count)
{
    uint8_t *end = row + len;
    if (len > 0 && end[-1] == '\n') {
        end--;
    }
    if (count == 0) {
        return row == end;
    }
    /* The next one, from a value's beginning on; most rows have none. */
    const uint8_t *backslash = memchr(row, '\\', (size_t)(end - row));
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *tab = memchr(row, '\t', (size_t)(end - row));
        bool is_last = i == count - 1;
        if ((tab == NULL) != is_last) {
            return false;
        }
        uint8_t *behind = is_last ? end : tab;
        if (MR_LIKELY(backslash == NULL || backslash >= behind)) {
            values[i] = (struct mr_datum){
                .kind = MR_DATUM_TEXT, .data = row, .len = (uint32_t)(behind - row)};
        } else {
            if (!take_escaped(row, behind, &values[i])) {
                return false;
            }
            backslash = memchr(behind, '\\', (size_t)(end - behind));
        }
        row = is_last ? end : tab + 1;
    }
    return true;
}
