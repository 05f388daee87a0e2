/* JSON pieces written into a buffer: strings with escapes, numbers, hexadecimal and base64.
 *
 * What a string can't hold as it is gets escaped as Jackson does it (two-character escapes, else
 * \u00XX in upper case), and other UTF-8 stays raw (above U+FFFF only without the buffer's
 * splits_astral; Jackson has it set). The output is always valid JSON: bytes that are no UTF-8
 * become U+FFFD, or with the buffer's bytes_as_base64 the whole text its base64, and the buffer's
 * met_bytes is set. Any thread. */
#pragma once

#include "base/buffer.h"

/* The text in quotes. */
void mr_json_string(struct mr_buffer *out, const uint8_t *text, size_t len);

/* The same, for a text that has nothing to escape, unless somebody lies: cheaper then. */
void mr_json_plain(struct mr_buffer *out, const uint8_t *text, size_t len);

/* The text escaped, without quotes: for a string that is written in parts. */
void mr_json_escaped(struct mr_buffer *out, const uint8_t *text, size_t len);

/* The length of the JSON string at the beginning of `text`, with its quotes (RFC 8259, section 7);
 * 0: there is none, or it holds what is no UTF-8. */
size_t mr_json_string_length(const uint8_t *text, size_t len);

/* The text of a JSON string's `len` bytes between its quotes, which are known to be right; `to` has
 * room for as many, and may be where they are. Half a pair of surrogates becomes U+FFFD. Answers
 * the length. */
size_t mr_json_unescape(uint8_t *to, const uint8_t *text, size_t len);

void mr_json_u64(struct mr_buffer *out, uint64_t value);
void mr_json_i64(struct mr_buffer *out, int64_t value);

/* `bytes` in base64 (standard alphabet, padded) and quotes. */
void mr_json_base64(struct mr_buffer *out, const uint8_t *bytes, size_t len);

/* The length of the valid UTF-8 sequence at the beginning of `text`, or 0 when there is none
 * (overlong forms, surrogates and code points above U+10FFFF are none; RFC 3629). */
size_t mr_utf8_sequence(const uint8_t *text, size_t len);

/* Whether all of it is valid UTF-8. */
bool mr_is_utf8(const uint8_t *text, size_t len);
