#include "profiler/draw/text.h"

#include <string.h>

#include "base/json.h"

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

void mr_flame_text_xml(struct mr_text *text, mr_slice bytes)
{
    for (size_t i = 0; i < bytes.len;) {
        const uint8_t *at = bytes.data + i;
        size_t len = mr_utf8_sequence(at, bytes.len - i);
        const char *entity = xml_entity(*at);
        if (len == 0 || !is_xml(at, len)) {
            mr_text_string(text, "\xef\xbf\xbd");
        } else if (entity != NULL) {
            mr_text_string(text, entity);
        } else {
            mr_text_add(text, at, len);
        }
        i += len == 0 ? 1 : len;
    }
}
