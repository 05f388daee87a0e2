#include "verify/event.h"

static mr_slice part(mr_slice text, size_t from, size_t len)
{
    return (mr_slice){.data = text.data + from, .len = len};
}

/* docs/events.md, "Records": commit LSN, ordinal, part. */
static bool read_place(mr_slice text, struct mr_place *ret)
{
    enum {
        LSN_LEN = 16,
        ORDINAL_AT = LSN_LEN + 1,
        ORDINAL_LEN = 10,
        PART_AT = ORDINAL_AT + ORDINAL_LEN + 1
    };
    uint64_t ordinal;
    uint64_t last;
    if (text.len != PART_AT + 1 || text.data[LSN_LEN] != '-' || text.data[PART_AT - 1] != '-' ||
        !mr_scan_digits(part(text, 0, LSN_LEN), 16, &ret->commit_lsn) ||
        !mr_scan_digits(part(text, ORDINAL_AT, ORDINAL_LEN), 16, &ordinal) ||
        !mr_scan_digits(part(text, PART_AT, 1), 16, &last)) {
        return false;
    }
    ret->order = ordinal << 4 | last;
    return true;
}

static bool read_xid(mr_slice text, uint32_t *ret)
{
    uint64_t number;
    if (!mr_scan_digits(text, 10, &number) || number > UINT32_MAX) {
        return false;
    }
    *ret = (uint32_t)number;
    return true;
}

static inline bool event_is_text(const struct mr_scanned *string, mr_slice text)
{
    return string->kind == MR_SCAN_STRING && mr_slice_equal(string->text, text);
}

/* An object, or null. */
static bool take_object(const struct mr_scanned *value, mr_slice *ret)
{
    *ret = value->kind == MR_SCAN_NULL ? (mr_slice){0} : value->text;
    return value->kind == MR_SCAN_NULL || value->kind == MR_SCAN_OBJECT;
}

static bool take_op(const struct mr_scanned *op, enum mr_event_kind *ret)
{
    static const char letters[] = "cudrtm";
    static const enum mr_event_kind kinds[] = {MR_EVENT_ROW,    MR_EVENT_ROW,      MR_EVENT_GONE,
                                               MR_EVENT_COPIED, MR_EVENT_TRUNCATE, MR_EVENT_PASSED};
    bool is_letter = op->kind == MR_SCAN_STRING && op->text.len == 1;
    const char *at = is_letter ? memchr(letters, op->text.data[0], MR_ARRAY_LEN(kinds)) : NULL;
    *ret = at == NULL ? *ret : kinds[at - letters];
    return at != NULL;
}

static const char *read_envelope(mr_slice value, struct mr_event *ret)
{
    bool has_op = false;
    bool good = true;
    struct mr_scan scan = mr_scan_shallow(value);
    struct mr_scanned name;
    struct mr_scanned member;
    while (good && mr_scan_member(&scan, &name, &member)) {
        if (event_is_text(&name, MR_SLICE("op"))) {
            good = take_op(&member, &ret->kind);
            has_op = true;
        } else if (event_is_text(&name, MR_SLICE("before"))) {
            good = take_object(&member, &ret->before);
        } else if (event_is_text(&name, MR_SLICE("after"))) {
            good = take_object(&member, &ret->after);
        }
    }
    return scan.failed ? "its value is no JSON" : good && has_op ? NULL : "its value is no event";
}

/* A row alone; `__deleted`, where it is, says whether it is one that has gone. */
static const char *read_bare(mr_slice value, struct mr_event *ret)
{
    struct mr_scanned deleted;
    bool is_gone =
        mr_scan_find(value, "__deleted", &deleted) && event_is_text(&deleted, MR_SLICE("true"));
    ret->kind = is_gone ? MR_EVENT_GONE : MR_EVENT_ROW;
    *(is_gone ? &ret->before : &ret->after) = value;
    return NULL;
}

mr_slice mr_event_payload(mr_slice text)
{
    static const char begin[] = "{\"schema\":{\"type\":\"struct\",";
    struct mr_scan scan = mr_scan_shallow(text);
    struct mr_scanned name;
    struct mr_scanned schema;
    struct mr_scanned payload;
    bool is_wrapped =
        text.len > sizeof(begin) - 1 && memcmp(text.data, begin, sizeof(begin) - 1) == 0 &&
        mr_scan_member(&scan, &name, &schema) && mr_scan_member(&scan, &name, &payload) &&
        event_is_text(&name, MR_SLICE("payload"));
    return is_wrapped ? payload.text : text;
}

bool mr_event_is_marker(const struct mr_kafka_read *record)
{
    return mr_slice_equal(record->key, MR_SLICE("{\"mr-resolved\":true}"));
}

const char *mr_event_read(enum mr_format format, const struct mr_kafka_read *record,
                          struct mr_event *ret_event)
{
    struct mr_event event = {.kind = MR_EVENT_PASSED};
    const char *wrong = NULL;
    if (!read_place(record->position, &event.place) || !read_xid(record->xid, &event.xid)) {
        return "it has no headers mr-pos and mr-xid as millrace writes them";
    }
    if (record->value.data == NULL || mr_slice_equal(record->value, MR_SLICE("null"))) {
        /* Of a bare row it may be the delete; a tombstone is the second part of its change
         * (docs/events.md). */
        event.is_whole = format == MR_FORMAT_ROW && event.place.order % 16 == 0;
        event.kind = event.is_whole ? MR_EVENT_GONE : MR_EVENT_TOMBSTONE;
    } else {
        wrong = (format == MR_FORMAT_ROW ? read_bare : read_envelope)(record->value, &event);
    }
    if (wrong == NULL) {
        *ret_event = event;
    }
    return wrong;
}
