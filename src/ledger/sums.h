/* What was sent, by topic and partition: how many records, and the sum of their digests. Sink
 * thread only.
 *
 * A record's digest is of where it is and of what it holds; docs/dev/proofs.md has the bytes. A sum
 * does not depend on the order of its records: their positions say that.
 *
 * Records are added to a segment as they are sent. A segment is folded into the range at hand when
 * a position is about to be stored that tells of it, so the range always holds what a restart does
 * not send again, no more and no less. Segments are folded in the order of sending, which is that
 * of positions: a range is a span of positions.
 *
 *   sent:  | range at hand (from, to] | segment | segment | segment that fills */
#pragma once

#include "event/batch.h"
#include "ports/companion.h"

struct mr_sum {
    uint64_t low, high;
};

struct mr_sum mr_sum_of(const void *bytes, size_t len);
struct mr_sum mr_sum_of_record(const struct mr_record *record);

/* Of one partition. */
struct mr_part {
    uint32_t topic; /* mr_topic.index */
    int32_t partition;
    uint64_t records;
    struct mr_sum sum; /* of their digests, modulo 2^128 */
};

struct mr_parts {
    struct mr_part *items;
    uint32_t room;
    struct mr_index index; /* of the items, by topic and partition */
};

/* A range that touches more partitions counts the others together, as one part of this topic. */
enum { MR_RANGE_PARTS_MAX = 128 };
#define MR_TOPIC_OTHERS UINT32_MAX

struct mr_range {
    struct mr_position from, to; /* above `from`, up to `to` */
    uint64_t bytes;              /* of keys and values */
    struct mr_parts parts;
};

/* All zero before the first mr_sums_begin. */
struct mr_sums {
    struct mr_range range;
    bool is_below;                      /* what is sent is not above the range's beginning yet */
    mr_lsn ended;                       /* of the stream: what is before it was sent as a whole */
    struct mr_segment *oldest, *newest; /* that are not folded; NULL: there is none */
    struct mr_segment *unused;
};

/* A session begins: nothing is sent yet, and ranges go on above `from`. A record at or below it (a
 * marker, a copied row) has a place that an earlier session has counted, and is in no range. */
void mr_sums_begin(struct mr_sums *sums, struct mr_position from);
void mr_sums_done(struct mr_sums *sums);

/* The sink has taken the record, for that partition. */
void mr_sums_add(struct mr_sums *sums, const struct mr_record *record, int32_t partition);

/* All that a stored position of that reach tells of belongs to the range. */
void mr_sums_fold(struct mr_sums *sums, const struct mr_reach *reach);

/* The range is sealed; the next one is empty, and begins where it ends. */
void mr_sums_next_range(struct mr_sums *sums);
