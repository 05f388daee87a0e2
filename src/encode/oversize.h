/* The policy for items that are too large: when it applies, what is encoded in their place, and how
 * that is logged. Each lane has one and appends items through it. The lane's thread calls;
 * mr_refused_add is the sink thread's, on a list of its own that lanes copy. */
#pragma once

#include <stdatomic.h>

#include "encode/encode.h"

enum { MR_REFUSED_MAX = 64 };

struct mr_refused {
    struct mr_position position;
    size_t bytes; /* of the record that was too large */
};

/* Records that the sink refused as too large although they were within the limit, and that come
 * again. Where there are more than fit here, every record of some size counts as one of them. */
struct mr_refused_list {
    struct mr_refused items[MR_REFUSED_MAX];
    uint32_t count;
    size_t all_from;    /* the size, in bytes; 0: only the items count */
    size_t copied_from; /* the same for copied rows, whose positions are others in each attempt */
    mr_lsn until;       /* the last transaction that has one */
};

/* Adds one, or lowers the size that is known to be too large, and forgets what lies before
 * `confirmed`. False when that was not the next step of few: the sink is to wait longer before its
 * next session. Sink thread. */
bool mr_refused_add(struct mr_refused_list *list, struct mr_refused refused, mr_lsn confirmed);

/* How the item at hand is encoded. */
enum mr_oversize_way {
    MR_ITEM_AS_IT_IS,
    MR_ITEM_BARE,      /* the context of its transaction would make it too large: without it */
    MR_ITEM_PLACED,    /* a record of it is too large: what the policy puts in its place */
    MR_ITEM_TOO_LARGE, /* the same, because no block holds the item itself */
};

struct mr_oversizer {
    struct mr_encoder *encoder;
    enum mr_oversize_way way;
    bool copies;                    /* existing rows */
    size_t limit;                   /* of a record as it comes; SIZE_MAX: none */
    size_t placed_limit;            /* of one that takes its place */
    struct mr_refused_list refused; /* of the sessions before */
    size_t topic_takes;             /* so much, and the item at hand is more; 0: it is not known */
    _Atomic uint64_t *counts;       /* by policy; the flow's */
    int64_t logged_ns;              /* when the log had a line last */
    uint64_t unlogged;              /* items since */
};

void mr_oversizer_init(struct mr_oversizer *oversizer, struct mr_encoder *encoder,
                       size_t change_bytes_max, _Atomic uint64_t *counts);

/* Encodes the item, as mr_encode does, or what the policy puts in its place. MR_ERR_POISON: the
 * policy is to fail, or even that is too large. The first call for an item comes after
 * mr_oversizer_next. */
mr_status mr_oversizer_encode(struct mr_oversizer *oversizer, const struct mr_item *item,
                              struct mr_buffer *buffer, struct mr_record *ret_records,
                              uint32_t *ret_count, struct mr_error *ret_error);

/* No block holds the item: it is encoded again, in another form. False: there is none. */
bool mr_oversizer_no_block(struct mr_oversizer *oversizer, const struct mr_item *item);

static inline void mr_oversizer_next(struct mr_oversizer *oversizer)
{
    oversizer->way = MR_ITEM_AS_IT_IS;
    oversizer->topic_takes = 0;
}

/* What was encoded is in a batch: something in the item's place is counted, and logged once a
 * second at most. */
void mr_oversizer_log(struct mr_oversizer *oversizer, const struct mr_item *item);

static inline void mr_oversizer_kept(struct mr_oversizer *oversizer, const struct mr_item *item)
{
    if (MR_UNLIKELY(oversizer->way != MR_ITEM_AS_IT_IS)) {
        mr_oversizer_log(oversizer, item);
    }
}

/* Why an item can't be passed on as it is. */
struct mr_oversize_case {
    size_t bytes;   /* of its largest record; of its values when it could not be encoded at all */
    size_t limit;   /* that no record may pass */
    bool is_shared; /* by the table's streams: what they make together fits no block otherwise */
    const char *reason; /* "message_max", "change_max" or "refused" */
};

/* Encodes what options.oversize puts in the item's place, as mr_encode does; the same for the same
 * item and case. A heartbeat has no large values, and is encoded as it is. MR_ERR_POISON: even that
 * is too large, which only long keys or very many columns can make it. Asks for memory. */
mr_status mr_encode_oversize(struct mr_encoder *encoder, const struct mr_item *item,
                             const struct mr_oversize_case *oversize, struct mr_buffer *buffer,
                             struct mr_record *ret_records, uint32_t *ret_count,
                             struct mr_error *ret_error);

enum { MR_ITEM_NAME_MAX = 2 * MR_IDENTIFIER_MAX + 2 };

/* "schema.table", or what else the item is. */
const char *mr_item_name(const struct mr_item *item, char ret[MR_ITEM_NAME_MAX]);

/* Bytes of the item's values as PostgreSQL sent them. */
size_t mr_item_bytes(const struct mr_item *item);
