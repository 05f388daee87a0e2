#include "verify/fold.h"

#include <stdlib.h>
#include <string.h>

#include "base/index.h"
#include "verify/spill.h"

enum {
    BUCKETS = 512,
    NO_CHUNK = INT32_MAX,
    PIECE_BYTES = 16384, /* of a bucket in memory, of rows and of events each: 16 MiB in all */
};

/* As they are in a bucket, with `large_count` large values after them. */
struct stored {
    struct mr_digest key;
    struct mr_digest sum;
    struct mr_fold_record record; /* of a row the transaction, and as partition the chunk */
    uint32_t large_count;
    bool is_gone, is_older, is_copied, is_tombstone;
};

struct mr_fold {
    struct mr_spill *rows, *events;
    struct mr_fold_record *truncates;
    uint32_t truncate_count, truncate_room;
    bool has_key;
};

/* A key of the bucket at hand. */
struct entry {
    struct mr_digest key;
    struct mr_digest sum;
    struct mr_fold_record record;
    uint32_t large, large_count, large_room; /* in the bucket's large values */
    int64_t times;  /* of a row without a key: what the topic has more of than the table */
    uint32_t chunk; /* that has its row; NO_CHUNK: none has */
    enum { IS_GONE, IS_BURIED, IS_THERE, IS_MET } state;
    bool is_older, is_copied;
    bool has_come; /* since the first snapshot it was not always there */
};

/* Which events count for a chunk. */
struct view {
    const struct mr_cut *cut;
    struct mr_place truncated; /* what is before it is gone */
};

struct bucket {
    struct mr_index index;
    struct entry *entries;
    uint32_t room;
    struct mr_verify_large *large;
    uint32_t large_count, large_room;
};

struct comparison {
    struct mr_fold *fold;
    struct view *views; /* of each chunk */
    uint32_t view_count;
    struct bucket bucket;
    mr_difference_fn take;
    void *context;
    struct mr_fold_counts counts;
};

struct mr_fold *mr_fold_new(bool has_key)
{
    struct mr_fold *fold = MR_NEW(struct mr_fold);
    *fold = (struct mr_fold){.rows = mr_spill_new(BUCKETS, PIECE_BYTES),
                             .events = mr_spill_new(BUCKETS, PIECE_BYTES),
                             .has_key = has_key};
    return fold;
}

void mr_fold_free(struct mr_fold *fold)
{
    if (fold != NULL) {
        mr_spill_free(fold->rows);
        mr_spill_free(fold->events);
        free(fold->truncates);
        free(fold);
    }
}

static mr_status store(struct mr_spill *spill, const struct stored *stored,
                       const struct mr_verify_large *large, struct mr_error *ret_error)
{
    uint8_t bytes[sizeof(*stored) + MR_COLUMNS_MAX * sizeof(*large)];
    memcpy(bytes, stored, sizeof(*stored));
    size_t len = sizeof(*large) * stored->large_count;
    if (len > 0) {
        memcpy(bytes + sizeof(*stored), large, len);
    }
    /* Bits that the index, which has the others, does not need. */
    return mr_spill_add(spill, stored->key.high % BUCKETS, bytes, sizeof(*stored) + len, ret_error);
}

mr_status mr_fold_add_row(struct mr_fold *fold, struct mr_digest key, uint32_t chunk, uint32_t xid,
                          const struct mr_verify_row *row, struct mr_error *ret_error)
{
    struct stored stored;
    memset(&stored, 0, sizeof(stored));
    stored.key = fold->has_key ? key : row->sum;
    stored.sum = row->sum;
    stored.record.xid = xid;
    stored.record.partition = (int32_t)chunk;
    stored.large_count = fold->has_key ? row->large_count : 0;
    return store(fold->rows, &stored, row->large, ret_error);
}

mr_status mr_fold_add_event(struct mr_fold *fold, const struct mr_fold_event *event,
                            struct mr_error *ret_error)
{
    const struct mr_verify_row *row = event->row;
    MR_ASSERT(row != NULL || (fold->has_key && event->is_gone));
    struct stored stored;
    memset(&stored, 0, sizeof(stored));
    stored.record = event->record;
    stored.is_gone = event->is_gone;
    stored.is_copied = event->is_copied;
    stored.is_tombstone = event->is_tombstone;
    stored.key = fold->has_key ? event->key : row->sum;
    if (row != NULL) {
        stored.sum = row->sum;
        stored.is_older = row->is_older;
        stored.large_count = fold->has_key ? row->large_count : 0;
    }
    return store(fold->events, &stored, row == NULL ? NULL : row->large, ret_error);
}

void mr_fold_truncate(struct mr_fold *fold, const struct mr_fold_record *record)
{
    MR_GROW(fold->truncates, fold->truncate_room, (size_t)fold->truncate_count + 1);
    fold->truncates[fold->truncate_count++] = *record;
}

static struct entry *find(struct bucket *bucket, struct mr_digest key)
{
    uint32_t number;
    MR_INDEX_FIND(number, &bucket->index, key.low,
                  mr_digest_equal(bucket->entries[number].key, key));
    return number == MR_INDEX_NONE ? NULL : &bucket->entries[number];
}

static struct entry *make(struct bucket *bucket, struct mr_digest key)
{
    struct entry *found = find(bucket, key);
    if (found != NULL) {
        return found;
    }
    uint32_t number = mr_index_add(&bucket->index, key.low);
    MR_GROW(bucket->entries, bucket->room, (size_t)number + 1);
    bucket->entries[number] =
        (struct entry){.key = key, .record = {.offset = -1}, .chunk = NO_CHUNK};
    return &bucket->entries[number];
}

/* The large value of that column that the key's event before had; NULL: none is known. */
static const struct mr_verify_large *known_before(const struct bucket *bucket,
                                                  const struct entry *entry, uint32_t column)
{
    for (uint32_t i = 0; i < entry->large_count; i++) {
        const struct mr_verify_large *large = &bucket->large[entry->large + i];
        if (large->column == column) {
            return large->is_unknown ? NULL : large;
        }
    }
    return NULL;
}

/* Puts the values into the entry's place, or where it has none that is large enough, into a new one. */
static void keep_large(struct bucket *bucket, struct entry *entry,
                       const struct mr_verify_large *large, uint32_t count)
{
    if (count > entry->large_room) {
        MR_GROW(bucket->large, bucket->large_room, (size_t)bucket->large_count + count);
        entry->large = bucket->large_count;
        entry->large_room = count;
        bucket->large_count += count;
    }
    if (count > 0) {
        memcpy(&bucket->large[entry->large], large, sizeof(*large) * count);
    }
    entry->large_count = count;
}

static void take_set(struct bucket *bucket, struct entry *entry, const struct stored *stored,
                     struct mr_verify_large *large)
{
    entry->sum = stored->sum;
    for (uint32_t i = 0; i < stored->large_count; i++) {
        bool is_left_alone = large[i].is_unknown && !large[i].is_lost && entry->state == IS_THERE;
        const struct mr_verify_large *before =
            is_left_alone ? known_before(bucket, entry, large[i].column) : NULL;
        if (before != NULL) {
            large[i] = *before;
            entry->sum = mr_digest_add(entry->sum, before->digest);
        }
    }
    keep_large(bucket, entry, large, stored->large_count);
    entry->is_older = stored->is_older;
    entry->state = IS_THERE;
}

/* A copied row has no transaction of its own, and a place after all that it contains. */
static bool is_seen(const struct view *view, const struct stored *stored)
{
    const struct mr_fold_record *record = &stored->record;
    return stored->is_copied ? record->place.commit_lsn <= view->cut->before
                             : mr_cut_sees(view->cut, record->xid, record->place.commit_lsn);
}

/* Of a key that is in two partitions the later place counts. */
static bool is_overtaken(const struct entry *entry, const struct stored *stored)
{
    return entry->record.offset >= 0 && entry->record.partition != stored->record.partition &&
           mr_place_compare(stored->record.place, entry->record.place) < 0;
}

static void take_event(struct comparison *comparison, const struct stored *stored,
                       struct mr_verify_large *large)
{
    struct bucket *bucket = &comparison->bucket;
    struct entry *entry = make(bucket, stored->key);
    bool is_shown = entry->chunk != NO_CHUNK;
    const struct view *view =
        &comparison->views[is_shown ? entry->chunk : comparison->view_count - 1];
    if (!is_seen(view, stored) || mr_place_compare(stored->record.place, view->truncated) < 0 ||
        (comparison->fold->has_key && is_overtaken(entry, stored))) {
        return;
    }
    comparison->counts.events++;
    /* Of two partitions, which are read in any order, this may not be the event before. */
    if (entry->record.offset >= 0 && entry->record.partition != stored->record.partition) {
        entry->large_count = 0;
    }
    entry->record = stored->record;
    entry->is_copied = stored->is_copied;
    if (!comparison->fold->has_key) {
        entry->times += stored->is_gone ? -1 : 1;
        return;
    }
    if (!is_seen(&comparison->views[0], stored)) {
        entry->has_come = entry->has_come || stored->is_gone || entry->state != IS_THERE;
    }
    if (stored->is_tombstone) {
        entry->state = entry->state == IS_GONE ? IS_GONE : IS_BURIED;
    } else if (stored->is_gone) {
        entry->state = IS_GONE;
    } else {
        take_set(bucket, entry, stored, large);
    }
}

/* Before the events: which snapshot counts for the row's key. */
static void take_chunk(struct comparison *comparison, const struct stored *row,
                       struct mr_verify_large *large)
{
    (void)large;
    make(&comparison->bucket, row->key)->chunk = (uint32_t)row->record.partition;
}

static void differ(struct comparison *comparison, enum mr_difference_kind kind,
                   struct mr_digest key, const struct entry *entry, uint64_t times)
{
    struct mr_difference difference = {
        .kind = kind, .key = key, .last = {.offset = -1}, .times = times};
    if (entry != NULL) {
        difference.last = entry->record;
    }
    comparison->counts.differences[kind] += times;
    comparison->take(comparison->context, &difference);
}

/* The row's sum without the values that the entry does not know. `*ret_knows`: there are none. */
static struct mr_digest sum_of_known(const struct bucket *bucket, const struct entry *entry,
                                     const struct stored *row, const struct mr_verify_large *large,
                                     bool *ret_knows)
{
    struct mr_digest sum = row->sum;
    *ret_knows = true;
    for (uint32_t i = 0; i < entry->large_count; i++) {
        const struct mr_verify_large *one = &bucket->large[entry->large + i];
        if (!one->is_unknown) {
            continue;
        }
        *ret_knows = false;
        for (uint32_t j = 0; j < row->large_count; j++) {
            if (large[j].column == one->column) {
                sum = mr_digest_subtract(sum, large[j].digest);
            }
        }
    }
    return sum;
}

/* A copied row is as all transactions before its number left it. */
static enum mr_difference_kind how_it_differs(const struct entry *entry, uint32_t xid)
{
    bool knows_writer =
        entry->is_copied ? (int32_t)(xid - entry->record.xid) < 0 : xid == entry->record.xid;
    return knows_writer ? MR_DIFFERENCE_ALTERED : MR_DIFFERENCE_STALE;
}

static void take_row(struct comparison *comparison, const struct stored *row,
                     struct mr_verify_large *large)
{
    struct bucket *bucket = &comparison->bucket;
    comparison->counts.rows++;
    if (!comparison->fold->has_key) {
        make(bucket, row->key)->times--;
        return;
    }
    struct entry *entry = find(bucket, row->key);
    MR_ASSERT(entry != NULL);
    if (entry->state == IS_GONE || entry->state == IS_BURIED) {
        entry->state = IS_GONE;
        comparison->counts.eventless += entry->record.offset < 0;
        differ(comparison, MR_DIFFERENCE_MISSING, row->key, entry, 1);
        return;
    }
    if (entry->state == IS_MET) {
        comparison->counts.twice++;
        return;
    }
    entry->state = IS_MET;
    bool knows;
    bool is_equal = mr_digest_equal(sum_of_known(bucket, entry, row, large, &knows), entry->sum);
    if (!is_equal && entry->is_older) {
        comparison->counts.older++;
    } else if (!is_equal) {
        differ(comparison, how_it_differs(entry, row->record.xid), row->key, entry, 1);
    } else {
        comparison->counts.unknown += !knows;
    }
}

static void take_rest(struct comparison *comparison)
{
    for (uint32_t i = 0; i < comparison->bucket.index.count; i++) {
        const struct entry *entry = &comparison->bucket.entries[i];
        if (entry->state == IS_THERE && entry->has_come) {
            comparison->counts.unsettled++;
        } else if (entry->state == IS_BURIED) {
            comparison->counts.buried++;
        } else if (entry->state == IS_THERE || entry->times > 0) {
            differ(comparison, MR_DIFFERENCE_PHANTOM, entry->key, entry,
                   entry->times > 0 ? (uint64_t)entry->times : 1);
        } else if (entry->times < 0) {
            differ(comparison, MR_DIFFERENCE_MISSING, entry->key, entry, (uint64_t)-entry->times);
        }
    }
}

typedef void (*take_fn)(struct comparison *comparison, const struct stored *stored,
                        struct mr_verify_large *large);

/* What a bucket's pieces are taken apart for. */
struct taking {
    struct comparison *comparison;
    take_fn take;
};

static void take_piece(void *context, const uint8_t *bytes, size_t len)
{
    const struct taking *taking = context;
    struct mr_verify_large large[MR_COLUMNS_MAX];
    for (size_t at = 0; at < len;) {
        struct stored stored;
        memcpy(&stored, bytes + at, sizeof(stored));
        at += sizeof(stored);
        memcpy(large, bytes + at, sizeof(*large) * stored.large_count);
        at += sizeof(*large) * stored.large_count;
        taking->take(taking->comparison, &stored, large);
    }
}

static mr_status compare_bucket(struct comparison *comparison, uint32_t number,
                                struct mr_error *ret_error)
{
    struct taking chunks = {.comparison = comparison, .take = take_chunk};
    struct taking events = {.comparison = comparison, .take = take_event};
    struct taking rows = {.comparison = comparison, .take = take_row};
    mr_index_clear(&comparison->bucket.index);
    comparison->bucket.large_count = 0;
    MR_TRY(mr_spill_read(comparison->fold->rows, number, take_piece, &chunks, ret_error));
    MR_TRY(mr_spill_read(comparison->fold->events, number, take_piece, &events, ret_error));
    MR_TRY(mr_spill_read(comparison->fold->rows, number, take_piece, &rows, ret_error));
    take_rest(comparison);
    return MR_OK;
}

static struct view *views_of(const struct mr_fold *fold, const struct mr_cut *cuts, uint32_t count)
{
    struct view *views = MR_NEW_ARRAY(struct view, count);
    for (uint32_t i = 0; i < count; i++) {
        views[i] = (struct view){.cut = &cuts[i]};
        for (uint32_t j = 0; j < fold->truncate_count; j++) {
            const struct mr_fold_record *truncate = &fold->truncates[j];
            if (mr_cut_sees(&cuts[i], truncate->xid, truncate->place.commit_lsn) &&
                mr_place_compare(truncate->place, views[i].truncated) > 0) {
                views[i].truncated = truncate->place;
            }
        }
    }
    return views;
}

mr_status mr_fold_compare(struct mr_fold *fold, const struct mr_cut *cuts, uint32_t cut_count,
                          mr_difference_fn take, void *context, struct mr_fold_counts *ret_counts,
                          struct mr_error *ret_error)
{
    MR_ASSERT(cut_count > 0);
    MR_ASSERT(fold->has_key || cut_count == 1);
    struct comparison comparison = {.fold = fold,
                                    .views = views_of(fold, cuts, cut_count),
                                    .view_count = cut_count,
                                    .take = take,
                                    .context = context};
    mr_status status = MR_OK;
    for (uint32_t i = 0; i < BUCKETS && status == MR_OK; i++) {
        status = compare_bucket(&comparison, i, ret_error);
    }
    mr_index_done(&comparison.bucket.index);
    free(comparison.bucket.entries);
    free(comparison.bucket.large);
    free(comparison.views);
    *ret_counts = comparison.counts;
    return status;
}
