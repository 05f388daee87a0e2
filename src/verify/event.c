#include "verify/event.h"

#include <string.h>

/* So many digits of that base from `*at` on. */
static bool take_digits(const uint8_t **at, const uint8_t *end, int count, unsigned base,
                        uint64_t *ret)
{
    uint64_t number = 0;
    if (end - *at < count) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        uint8_t byte = *(*at)++;
        unsigned digit = byte >= '0' && byte <= '9'   ? (unsigned)byte - '0'
                         : byte >= 'A' && byte <= 'F' ? (unsigned)byte - 'A' + 10
                         : byte >= 'a' && byte <= 'f' ? (unsigned)byte - 'a' + 10
                                                      : base;
        if (digit >= base) {
            return false;
        }
        number = number * base + digit;
    }
    *ret = number;
    return true;
}

static bool take_dash(const uint8_t **at, const uint8_t *end)
{
    return *at < end && *(*at)++ == '-';
}

/* docs/events.md, "Records": commit LSN, ordinal, part. */
static bool read_place(mr_slice text, struct mr_place *ret)
{
    const uint8_t *at = text.data;
    const uint8_t *end = at + text.len;
    uint64_t ordinal;
    uint64_t part;
    if (text.data == NULL || !take_digits(&at, end, 16, 16, &ret->commit_lsn) ||
        !take_dash(&at, end) || !take_digits(&at, end, 10, 16, &ordinal) || !take_dash(&at, end) ||
        !take_digits(&at, end, 1, 16, &part)) {
        return false;
    }
    ret->order = ordinal << 4 | part;
    return at == end;
}

static bool read_xid(mr_slice text, uint32_t *ret)
{
    const uint8_t *at = text.data;
    uint64_t number;
    if (text.data == NULL || text.len == 0 || text.len > 10 ||
        !take_digits(&at, at + text.len, (int)text.len, 10, &number) || number > UINT32_MAX) {
        return false;
    }
    *ret = (uint32_t)number;
    return true;
}

static bool is_word(const struct mr_scanned *value, const char *word)
{
    return value->kind == MR_SCAN_STRING && mr_slice_equal(value->text, mr_slice_of(word));
}

/* An object, or null. */
static bool take_object(mr_slice event, const char *name, mr_slice *ret)
{
    struct mr_scanned value;
    if (!mr_scan_find(event, name, &value) || value.kind == MR_SCAN_NULL) {
        *ret = (mr_slice){0};
        return true;
    }
    *ret = value.text;
    return value.kind == MR_SCAN_OBJECT;
}

struct word {
    const char *word;
    enum mr_event_kind kind;
};

/* The kind that the first of `words`, or one after it, has; -1: it is none of them. */
static int kind_of(const struct mr_scanned *op, const struct word *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_word(op, words[i].word)) {
            return (int)words[i].kind;
        }
    }
    return -1;
}

static bool read_envelope(mr_slice value, struct mr_event *ret)
{
    static const struct word words[] = {{"c", MR_EVENT_ROW},      {"u", MR_EVENT_ROW},
                                        {"d", MR_EVENT_GONE},     {"r", MR_EVENT_COPIED},
                                        {"t", MR_EVENT_TRUNCATE}, {"m", MR_EVENT_PASSED}};
    struct mr_scanned op;
    if (!mr_scan_find(value, "op", &op)) {
        return false;
    }
    int kind = kind_of(&op, words, MR_ARRAY_LEN(words));
    ret->kind = (enum mr_event_kind)kind;
    return kind >= 0 && take_object(value, "before", &ret->before) &&
           take_object(value, "after", &ret->after);
}

/* A row alone; `__deleted`, where it is, says whether it is one that has gone. */
static bool read_bare(mr_slice value, struct mr_event *ret)
{
    struct mr_scanned deleted;
    ret->kind = MR_EVENT_ROW;
    if (mr_scan_find(value, "__deleted", &deleted) && is_word(&deleted, "true")) {
        ret->kind = MR_EVENT_GONE;
        ret->before = value;
    } else {
        ret->after = value;
    }
    return true;
}

bool mr_event_is_marker(const struct mr_kafka_read *record)
{
    return mr_slice_equal(record->key, MR_SLICE("{\"mr-resolved\":true}"));
}

const char *mr_event_read(enum mr_format format, const struct mr_kafka_read *record,
                          struct mr_event *ret_event)
{
    struct mr_event event = {.kind = MR_EVENT_PASSED};
    if (!read_place(record->position, &event.place) || !read_xid(record->xid, &event.xid)) {
        return "it has no headers mr-pos and mr-xid as millrace writes them";
    }
    struct mr_scanned value = {.kind = MR_SCAN_NULL};
    if (record->value.data != NULL && !mr_scan_value(record->value, &value)) {
        return "its value is no JSON";
    }
    if (value.kind == MR_SCAN_NULL) {
        /* Of a bare row it is the delete. */
        event.kind = format == MR_FORMAT_ROW ? MR_EVENT_GONE : MR_EVENT_TOMBSTONE;
    } else if (value.kind != MR_SCAN_OBJECT ||
               !(format == MR_FORMAT_ROW ? read_bare(value.text, &event)
                                         : read_envelope(value.text, &event))) {
        return "its value is no event";
    }
    *ret_event = event;
    return NULL;
}
