/* How a value's text becomes JSON or Avro where that takes more than quotes: numbers of other
 * forms, times, arrays, shapes.
 *
 * A conversion is chosen once for each column of a relation version (types.def), and is a function
 * with what it needs to know of the type. It gets the text that PostgreSQL prints under the
 * settings of pg_conn_open.c (DateStyle ISO, UTC, …), the same for a row of the stream, of a
 * snapshot and for a key. Source thread; inside encode/ only. */
#pragma once

#include "base/buffer.h"
#include "encode/plan.h"

/* Memory of conversions that grows to the largest value seen, and stays. */
struct mr_scratch {
    struct mr_bytes number;
    struct mr_bytes element;
    struct mr_bytes part;
};

struct mr_conversion;

/* Appends the value, in JSON or Avro as the buffer says (put.h). False: the text is not one that
 * the type has; what was appended is of no use then. */
typedef bool (*mr_convert_fn)(struct mr_buffer *out, const struct mr_conversion *how, mr_slice text,
                              struct mr_scratch *scratch);

struct mr_conversion {
    mr_convert_fn write;
    const char *salt; /* of a hash */
    enum mr_rule rule;
    int32_t detail; /* digits after the point, or what else the function says */
    const struct mr_conversion *element; /* of an array */
};

/* Declares the functions of a conversion. */
#define MR_CONVERT(name)                                                                           \
    bool mr_convert_##name(                                                                        \
        struct mr_buffer *out, __attribute__((unused)) const struct mr_conversion *how,            \
        __attribute__((unused)) mr_slice text, __attribute__((unused)) struct mr_scratch *scratch)

enum { MR_INT_BYTES = 4, MR_LONG_BYTES = 8, MR_FLOAT_BYTES = 4, MR_DOUBLE_BYTES = 8 };

/* All that the rules name; what each writes stands above its definition. */
#define MR_RULE(name, writer, conversion, ...) MR_CONVERT(conversion);
#include "encode/values/rules.def"
#undef MR_RULE

/* Bytes in quotes, in base64 or hexadecimal. */
void mr_convert_binary(struct mr_buffer *out, enum mr_binary_mode mode, const uint8_t *bytes,
                       size_t len);

/* A number as Java prints it as a double; "Infinity" and "-Infinity", in quotes, where it is larger
 * than any. */
bool mr_convert_double(struct mr_buffer *out, mr_slice text, struct mr_scratch *scratch);

/* Hexadecimal of a bytea to bytes, in `scratch` up to the next call. False: it is not that. */
bool mr_convert_unhex(mr_slice text, struct mr_scratch *scratch, mr_slice *ret);
/* The same of the digits alone. */
bool mr_convert_digits(mr_slice digits, struct mr_scratch *scratch, mr_slice *ret);

/* A JSON object or list with some fields left out, as Debezium's EventRouter expands payloads
 * (JsonSchemaData). False: the text is neither, and what was appended is of no use. */
bool mr_json_expand(struct mr_buffer *out, const struct mr_encode_options *options, mr_slice text,
                    struct mr_scratch *scratch);

/* Tells of each member of a JSON object: its name, in quotes, and its value as it stands. False:
 * the text is none, and what was told is of no use. */
bool mr_json_members(mr_slice text, struct mr_scratch *scratch,
                     void (*tell)(void *context, mr_slice name, mr_slice value), void *context);

void mr_scratch_done(struct mr_scratch *scratch);

/* String.hashCode of UTF-8, as java.util.HashMap spreads it; a backslash escapes nothing. */
uint32_t mr_java_hash(mr_slice text);

/* Of a HashMap that has got so many entries: it begins with 16 and doubles them when it is over
 * three quarters full. */
uint32_t mr_java_buckets(uint32_t entries);

/* The numbers of a HashMap's entries in its order, which is that of their buckets; those of one
 * bucket come as they were added, also when the map has grown since (HashMap.resize). After the
 * hashes there is room for mr_java_order_bytes in all. */
const uint32_t *mr_java_order(uint32_t *hashes, uint32_t count, uint32_t buckets);

static inline size_t mr_java_order_bytes(uint32_t count, uint32_t buckets)
{
    return (2 * (size_t)count + buckets) * sizeof(uint32_t);
}

/* A place in a text that is being read. */
struct mr_cursor {
    const uint8_t *at;
    const uint8_t *end;
};

static inline struct mr_cursor mr_cursor_of(mr_slice text)
{
    return (struct mr_cursor){.at = text.data, .end = text.data + text.len};
}

static inline bool mr_cursor_is_at(const struct mr_cursor *cursor, char byte)
{
    return cursor->at < cursor->end && *cursor->at == (uint8_t)byte;
}

/* Passes over the byte if it is next. */
static inline bool mr_cursor_take(struct mr_cursor *cursor, char byte)
{
    bool found = mr_cursor_is_at(cursor, byte);
    cursor->at += found;
    return found;
}

/* The same of a word. */
static inline bool mr_cursor_take_word(struct mr_cursor *cursor, mr_slice word)
{
    bool found = (size_t)(cursor->end - cursor->at) >= word.len &&
                 memcmp(cursor->at, word.data, word.len) == 0;
    cursor->at += found ? word.len : 0;
    return found;
}

/* What stands before the next of two signs, or the end. */
static inline mr_slice mr_cursor_until(struct mr_cursor *cursor, char a, char b)
{
    const uint8_t *begin = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != (uint8_t)a && *cursor->at != (uint8_t)b) {
        cursor->at++;
    }
    return (mr_slice){.data = begin, .len = (size_t)(cursor->at - begin)};
}

static inline bool mr_cursor_digit(const struct mr_cursor *cursor)
{
    return cursor->at < cursor->end && (uint8_t)(*cursor->at - '0') <= 9;
}

static inline mr_slice mr_cursor_digits(struct mr_cursor *cursor)
{
    const uint8_t *begin = cursor->at;
    while (mr_cursor_digit(cursor)) {
        cursor->at++;
    }
    return (mr_slice){.data = begin, .len = (size_t)(cursor->at - begin)};
}

/* At least `least` and at most `most` (18 or fewer) digits. */
static inline bool mr_cursor_number(struct mr_cursor *cursor, unsigned least, unsigned most,
                                    int64_t *ret)
{
    unsigned count = 0;
    int64_t value = 0;
    for (; count < most && mr_cursor_digit(cursor); count++) {
        value = 10 * value + (*cursor->at++ - '0');
    }
    *ret = value;
    return count >= least;
}

static inline bool mr_cursor_ended(const struct mr_cursor *cursor)
{
    return cursor->at == cursor->end;
}
