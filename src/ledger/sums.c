#include "ledger/sums.h"

/* Compiled in, so that no library has to be there. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "flow/lane.h"

_Static_assert(XXH_VERSION_NUMBER >= 800, "before 0.8.0, XXH3 was another function");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "digests are of little-endian numbers");

/* Of one batch: what is complete with it, or the transaction that goes on after it. */
struct mr_segment {
    struct mr_segment *next;
    uint32_t lane;
    uint64_t sequence; /* of the batch */
    bool goes_on;
    struct mr_position last;
    uint64_t bytes;
    struct mr_parts parts;
};

/* What the digest of a record is of. */
struct head {
    uint64_t commit_lsn, ordinal, commit_time_us;
    uint32_t xid, part;
    uint32_t key_len, value_len; /* UINT32_MAX: null */
    uint64_t key, headers;
    XXH128_hash_t value;
};

_Static_assert(sizeof(struct head) == 72, "a head has no gaps");

struct mr_sum mr_sum_of(const void *bytes, size_t len)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, len);
    return (struct mr_sum){.low = hash.low64, .high = hash.high64};
}

struct mr_sum mr_sum_of_record(const struct mr_record *record)
{
    mr_slice headers = mr_headers_all(mr_record_headers(record));
    const struct head head = {
        .commit_lsn = record->position.commit_lsn,
        .ordinal = record->position.ordinal,
        .commit_time_us = record->commit_time_us < 0 ? 0 : (uint64_t)record->commit_time_us,
        .xid = record->xid,
        .part = record->part,
        .key_len = record->key == NULL ? UINT32_MAX : record->key_len,
        .value_len = record->value == NULL ? UINT32_MAX : record->value_len,
        .key = XXH3_64bits(record->key, record->key_len),
        .headers = XXH3_64bits(headers.data, headers.len),
        .value = XXH3_128bits(record->value, record->value_len),
    };
    return mr_sum_of(&head, sizeof(head));
}

/* NULL: there are `most` others. */
static struct mr_part *part_for(struct mr_parts *parts, uint32_t topic, int32_t partition,
                                uint32_t most)
{
    uint64_t hash = (uint64_t)topic << 32 | (uint32_t)partition;
    uint32_t number;
    MR_INDEX_FIND(number, &parts->index, hash,
                  parts->items[number].topic == topic &&
                      parts->items[number].partition == partition);
    if (MR_UNLIKELY(number == MR_INDEX_NONE)) {
        if (parts->index.count >= most) {
            return NULL;
        }
        MR_GROW(parts->items, parts->room, parts->index.count + 1);
        number = mr_index_add(&parts->index, hash);
        parts->items[number] = (struct mr_part){.topic = topic, .partition = partition};
    }
    return &parts->items[number];
}

static void part_add(struct mr_part *part, uint64_t records, struct mr_sum sum)
{
    bool carries = __builtin_add_overflow(part->sum.low, sum.low, &part->sum.low);
    part->sum.high += sum.high + carries;
    part->records += records;
}

static struct mr_segment *append_segment(struct mr_sums *sums, const struct mr_batch *batch,
                                         bool goes_on)
{
    struct mr_segment *segment = sums->unused;
    if (segment == NULL) {
        segment = MR_NEW(struct mr_segment);
    } else {
        sums->unused = segment->next;
    }
    mr_index_clear(&segment->parts.index);
    *segment = (struct mr_segment){.lane = batch->lane,
                                   .sequence = batch->sequence,
                                   .goes_on = goes_on,
                                   .parts = segment->parts};
    if (sums->newest == NULL) {
        sums->oldest = segment;
    } else {
        sums->newest->next = segment;
    }
    sums->newest = segment;
    return segment;
}

static void sums_drop_oldest(struct mr_sums *sums)
{
    struct mr_segment *segment = sums->oldest;
    sums->oldest = segment->next;
    sums->newest = sums->oldest == NULL ? NULL : sums->newest;
    segment->next = sums->unused;
    sums->unused = segment;
}

/* Whether a stream that begins at `lsn` does not bring it again. A message outside transactions is
 * at its own end. */
static bool sums_is_before(struct mr_position position, mr_lsn lsn)
{
    return mr_position_compare(position, (struct mr_position){.commit_lsn = lsn}) <= 0;
}

/* At least once, a restart sends the transaction again that goes on when the batch ends, and
 * nothing that the batch has before it. */
static struct mr_segment *segment_for(struct mr_sums *sums, const struct mr_record *record)
{
    const struct mr_batch *batch = record->batch;
    struct mr_segment *segment = sums->newest;
    bool is_its =
        segment != NULL && segment->sequence == batch->sequence && segment->lane == batch->lane;
    if (!is_its && batch->confirm_lsn > sums->ended) {
        sums->ended = batch->confirm_lsn;
    }
    bool goes_on = !sums_is_before(record->position, sums->ended);
    return is_its && segment->goes_on == goes_on ? segment : append_segment(sums, batch, goes_on);
}

/* Where nothing was stored, a ledger begins with the first record: what topics have of other times
 * is not its own. */
static struct mr_position just_below(struct mr_position position)
{
    return (struct mr_position){position.commit_lsn, position.ordinal - 1};
}

void mr_sums_add(struct mr_sums *sums, const struct mr_record *record, int32_t partition)
{
    if (MR_UNLIKELY(sums->is_below)) {
        sums->is_below = mr_position_compare(record->position, sums->range.to) <= 0;
        if (sums->is_below) {
            return;
        }
        if (sums->range.to.commit_lsn == 0 && record->position.ordinal > 0) {
            sums->range.from = sums->range.to = just_below(record->position);
        }
    }
    struct mr_segment *segment = segment_for(sums, record);
    struct mr_part *part =
        part_for(&segment->parts, record->topic->index, partition, MR_INDEX_NONE);
    part_add(part, 1, mr_sum_of_record(record));
    segment->last = record->position;
    segment->bytes += (uint64_t)record->key_len + record->value_len;
}

static bool is_told_of(const struct mr_segment *segment, const struct mr_reach *reach)
{
    return segment->sequence <= reach->sequences[segment->lane] &&
           (segment->lane != MR_LANE_STREAM || sums_is_before(segment->last, reach->end_lsn) ||
            mr_position_compare(segment->last, reach->position) <= 0);
}

static void sums_fold(struct mr_range *range, const struct mr_segment *segment)
{
    MR_ASSERT(mr_position_compare(segment->last, range->to) > 0);
    for (uint32_t i = 0; i < segment->parts.index.count; i++) {
        const struct mr_part *part = &segment->parts.items[i];
        struct mr_part *to =
            part_for(&range->parts, part->topic, part->partition, MR_RANGE_PARTS_MAX);
        if (to == NULL) {
            to = part_for(&range->parts, MR_TOPIC_OTHERS, -1, MR_INDEX_NONE);
        }
        part_add(to, part->records, part->sum);
    }
    range->to = segment->last;
    range->bytes += segment->bytes;
}

void mr_sums_fold(struct mr_sums *sums, const struct mr_reach *reach)
{
    sums->ended = reach->end_lsn > sums->ended ? reach->end_lsn : sums->ended;
    while (sums->oldest != NULL && is_told_of(sums->oldest, reach)) {
        sums_fold(&sums->range, sums->oldest);
        sums_drop_oldest(sums);
    }
}

void mr_sums_next_range(struct mr_sums *sums)
{
    sums->range.from = sums->range.to;
    sums->range.bytes = 0;
    mr_index_clear(&sums->range.parts.index);
}

void mr_sums_begin(struct mr_sums *sums, struct mr_position from)
{
    while (sums->oldest != NULL) {
        sums_drop_oldest(sums);
    }
    sums->range.to = from;
    sums->is_below = true;
    sums->ended = 0;
    mr_sums_next_range(sums);
}

static void free_parts(struct mr_parts *parts)
{
    mr_index_done(&parts->index);
    free(parts->items);
}

void mr_sums_done(struct mr_sums *sums)
{
    mr_sums_begin(sums, sums->range.to);
    while (sums->unused != NULL) {
        struct mr_segment *segment = sums->unused;
        sums->unused = segment->next;
        free_parts(&segment->parts);
        free(segment);
    }
    free_parts(&sums->range.parts);
}
