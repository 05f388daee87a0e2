#include "flame/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

static void text_reserve(struct mr_flame_text *text, size_t more)
{
    if (text->len + more + 1 <= text->size) {
        return;
    }
    text->size = (text->len + more + 1) * 2;
    text->data = MR_REALLOC(text->data, text->size);
}

void mr_flame_text_add(struct mr_flame_text *text, const void *bytes, size_t len)
{
    text_reserve(text, len);
    if (len > 0) {
        memcpy(text->data + text->len, bytes, len);
    }
    text->len += len;
    text->data[text->len] = '\0';
}

void mr_flame_text_string(struct mr_flame_text *text, const char *string)
{
    mr_flame_text_add(text, string, strlen(string));
}

void mr_flame_text_format(struct mr_flame_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    int len = vsnprintf(NULL, 0, format, arguments);
    MR_ASSERT(len >= 0);
    text_reserve(text, (size_t)len);
    vsnprintf(text->data + text->len, (size_t)len + 1, format, again);
    text->len += (size_t)len;
    va_end(again);
    va_end(arguments);
}

/* U+FFFE and U+FFFF are UTF-8 but no XML. */
static bool is_xml(const uint8_t *at, size_t len)
{
    return len > 1 ? !(len == 3 && at[0] == 0xef && at[1] == 0xbf && at[2] >= 0xbe)
                   : *at >= 0x20 && *at != 0x7f;
}

static const char *xml_entity(uint8_t byte)
{
    switch (byte) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void mr_flame_text_xml(struct mr_flame_text *text, mr_slice bytes)
{
    for (size_t i = 0; i < bytes.len;) {
        const uint8_t *at = bytes.data + i;
        size_t len = mr_utf8_sequence(at, bytes.len - i);
        const char *entity = xml_entity(*at);
        if (len == 0 || !is_xml(at, len)) {
            mr_flame_text_string(text, "\xef\xbf\xbd");
        } else if (entity != NULL) {
            mr_flame_text_string(text, entity);
        } else {
            mr_flame_text_add(text, at, len);
        }
        i += len == 0 ? 1 : len;
    }
}
