/* A JSON parser that is as strict as RFC 8259 and shares no code with the product: what the fuzzers
 * hold its output against. */
#ifndef MILLRACE_STRICT_JSON_H
#define MILLRACE_STRICT_JSON_H

#include "base/base.h"

/* True when the bytes are one JSON value in valid UTF-8 and nothing else. */
bool strict_json_valid(mr_slice text);

/* The content of a JSON string (with its quotes), unescaped into `ret` of at least `text.len`
 * bytes; -1 when it is no string. Escapes above U+007F don't occur in our output and are
 * refused. */
long strict_json_unescape(mr_slice text, uint8_t *ret);

/* Length of the UTF-8 sequence at `text`, 0 for none, by way of the code point. */
size_t strict_utf8_length(const uint8_t *text, size_t len);

#endif
