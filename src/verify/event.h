/* What a record says: which row it is of, and what that is from then on. Values only. Any
 * thread. */
#pragma once

#include "encode/encode.h"
#include "kafka/kafka_reader.h"
#include "verify/fold.h"

enum mr_event_kind {
    MR_EVENT_PASSED,    /* says nothing of a row: a message */
    MR_EVENT_ROW,       /* the row is so */
    MR_EVENT_COPIED,    /* the same, of a row that was there before */
    MR_EVENT_GONE,      /* there is no such row any more */
    MR_EVENT_TOMBSTONE, /* the same once more, after the delete */
    MR_EVENT_TRUNCATE,  /* there is none at all */
};

/* Texts are the record's. */
struct mr_event {
    enum mr_event_kind kind;
    bool is_whole;          /* of one that is gone: there is no tombstone */
    mr_slice before, after; /* objects; no data: null */
    struct mr_place place;
    uint32_t xid;
};

/* A resolved marker (docs/consumers.md), which is no event; where it comes is no matter of
 * order. */
bool mr_event_is_marker(const struct mr_kafka_read *record);

/* Of a key or a value that comes with its schema (docs/formats.md, "JSON with schemas"): the
 * payload. What has none stays as it is. */
mr_slice mr_event_payload(mr_slice text);

/* NULL, or what is wrong with the record: a sentence without values of rows. */
const char *mr_event_read(enum mr_format format, const struct mr_kafka_read *record,
                          struct mr_event *ret_event);
