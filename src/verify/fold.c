#include "verify/fold.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/index.h"
#include "base/thread.h"
#include "verify/spill.h"

enum {
    BUCKETS = 512,
    NO_CHUNK = INT32_MAX,
    PIECE_BYTES = 16384, /* of a bucket in memory, of rows and of events each: 16 MiB in all */
    VOTES_MAX = 512,     /* values of late columns; one that has more had no constant default */
};

#define BYTES_OF(value) ((mr_slice){.data = (const uint8_t *)&(value), .len = sizeof(value)})

/* As they are in a bucket, each with `large_count` large values after it. */
struct stored_row {
    struct mr_digest key, sum;
    uint32_t xid;
    uint32_t chunk;
    uint32_t large_count;
};

struct stored_event {
    struct mr_digest key, sum;
    struct mr_fold_record record;
    uint32_t large_count;
    bool is_gone : 1, is_older : 1, is_copied : 1, is_tombstone : 1, is_whole : 1, lacks : 1;
};

struct mr_fold {
    struct mr_spill *rows, *events;
    struct mr_fold_record *truncates;
    uint32_t truncate_count, truncate_room;
    struct mr_fold_options options;
    struct mr_place first_tombstone; /* of all; before it deletes had none */
    bool has_late;                   /* some event is from before a late column */
    struct mr_place *came; /* of columns whose values are apart, the first event that has it */
    uint32_t came_count, came_room;
    bool keeps_all;
};

/* Large values of a key, among those of its bucket. */
struct large {
    uint32_t at, count, room;
};

/* A key of the bucket at hand; without a key, a row. */
struct entry {
    struct mr_digest key;
    struct mr_digest known; /* of a row without a key: without its late columns */
    uint32_t chunk;         /* that has its row; NO_CHUNK: none has */
    uint32_t row_xid;
    struct mr_digest row_sum;
    struct large row_large;
    struct mr_digest sum; /* of its last event … */
    struct large large;
    struct mr_fold_record record;
    enum {
        IS_NONE,
        IS_THERE,
        IS_DELETED, /* and the tombstone is due */
        IS_GONE,
        IS_ENTOMBED, /* by a tombstone alone, of a key that had no event */
        IS_BURIED,   /* by a tombstone alone */
    } state;
    bool is_older, is_copied, lacks;
    bool has_come; /* since the first snapshot it was not always there */
    int64_t times; /* of a row without a key: what the topic has more of than the table */
};

/* Which events count for a chunk. */
struct view {
    const struct mr_cut *cut;
    struct mr_place truncated; /* what is before it is gone */
};

/* A place that a row without a key came or went at. */
struct place_seen {
    struct mr_place place;
    struct mr_digest key;
    bool is_gone;
};

struct bucket {
    struct mr_index index;
    struct entry *entries;
    uint32_t room;
    struct mr_index seen_index;
    struct place_seen *seen;
    uint32_t seen_room;
    struct mr_verify_large *large;
    uint32_t large_count, large_room;
};

/* How many rows, older than a late column by their last event, have that value in it. */
struct vote {
    uint32_t column;
    struct mr_digest value;
    uint64_t count;
};

struct votes {
    struct vote all[VOTES_MAX];
    uint32_t count;
};

/* What the threads of a comparison share. */
struct turns {
    pthread_mutex_t lock; /* of the calls of `take`, and of the votes */
    atomic_uint next;     /* bucket that nobody compares yet */
    struct votes votes;
    bool is_vote; /* it is not compared, but asked what late columns had */
};

/* Of one thread. */
struct comparison {
    struct mr_fold *fold;
    struct view *views; /* of each chunk */
    uint32_t view_count;
    mr_difference_fn take;
    void *context;
    struct turns *turns;
    struct bucket bucket;
    struct mr_fold_counts counts;
    mr_status status;
    struct mr_error error;
};

struct mr_fold *mr_fold_new(const struct mr_fold_options *options)
{
    struct mr_fold *fold = MR_NEW(struct mr_fold);
    *fold = (struct mr_fold){.rows = mr_spill_new(BUCKETS, PIECE_BYTES),
                             .events = mr_spill_new(BUCKETS, PIECE_BYTES),
                             .options = *options,
                             .first_tombstone = {.commit_lsn = UINT64_MAX}};
    return fold;
}

void mr_fold_free(struct mr_fold *fold)
{
    if (fold != NULL) {
        mr_spill_free(fold->rows);
        mr_spill_free(fold->events);
        free(fold->truncates);
        free(fold->came);
        free(fold);
    }
}

/* Buckets go by bits that the index, which has the others, does not need. */
static mr_status fold_store(struct mr_spill *spill, struct mr_digest key, mr_slice head,
                            const struct mr_verify_row *row, uint32_t large_count,
                            struct mr_error *ret_error)
{
    mr_slice large = {0};
    if (large_count > 0) {
        large = (mr_slice){.data = (const uint8_t *)row->large,
                           .len = sizeof(*row->large) * large_count};
    }
    return mr_spill_add(spill, key.high % BUCKETS, head, large, ret_error);
}

/* A row without its values that events may not have. */
static struct mr_digest sum_of_others(const struct mr_verify_row *row)
{
    struct mr_digest sum = row->sum;
    for (uint32_t i = 0; i < row->large_count; i++) {
        const struct mr_verify_large *large = &row->large[i];
        sum = large->is_unknown ? sum : mr_digest_subtract(sum, large->digest);
    }
    return sum;
}

mr_status mr_fold_add_row(struct mr_fold *fold, struct mr_digest key, uint32_t chunk, uint32_t xid,
                          const struct mr_verify_row *row, struct mr_error *ret_error)
{
    struct stored_row stored;
    memset(&stored, 0, sizeof(stored));
    stored.key = fold->options.has_key ? key : sum_of_others(row);
    stored.sum = row->sum;
    stored.xid = xid;
    stored.chunk = chunk;
    stored.large_count = row->large_count;
    return fold_store(fold->rows, stored.key, BYTES_OF(stored), row, stored.large_count, ret_error);
}

static void note_column(struct mr_fold *fold, uint32_t column, struct mr_place place)
{
    MR_GROW(fold->came, fold->came_room, (size_t)column + 1);
    while (fold->came_count <= column) {
        fold->came[fold->came_count++] =
            (struct mr_place){.commit_lsn = UINT64_MAX, .order = UINT64_MAX};
    }
    if (mr_place_compare(place, fold->came[column]) < 0) {
        fold->came[column] = place;
    }
}

mr_status mr_fold_add_event(struct mr_fold *fold, const struct mr_fold_event *event,
                            struct mr_error *ret_error)
{
    const struct mr_verify_row *row = event->row;
    MR_ASSERT(row != NULL || (fold->options.has_key && event->is_gone));
    struct stored_event stored;
    memset(&stored, 0, sizeof(stored));
    stored.record = event->record;
    stored.is_gone = event->is_gone;
    stored.is_copied = event->is_copied;
    stored.is_tombstone = event->is_tombstone;
    stored.is_whole = event->is_whole;
    stored.key = fold->options.has_key ? event->key : sum_of_others(row);
    if (row != NULL) {
        stored.sum = row->sum;
        stored.is_older = row->is_older;
        stored.lacks = row->lacks;
        stored.large_count = row->large_count;
    }
    for (uint32_t i = 0; i < stored.large_count; i++) {
        const struct mr_verify_large *large = &row->large[i];
        fold->has_late = fold->has_late || large->is_absent;
        if (!large->is_absent) {
            note_column(fold, large->column, event->record.place);
        }
    }
    if (event->is_tombstone && mr_place_compare(event->record.place, fold->first_tombstone) < 0) {
        fold->first_tombstone = event->record.place;
    }
    return fold_store(fold->events, stored.key, BYTES_OF(stored), row, stored.large_count,
                      ret_error);
}

void mr_fold_expect_event(const struct mr_fold *fold, struct mr_digest key)
{
    mr_spill_expect(fold->events, key.high % BUCKETS);
}

void mr_fold_truncate(struct mr_fold *fold, const struct mr_fold_record *record)
{
    MR_GROW(fold->truncates, fold->truncate_room, (size_t)fold->truncate_count + 1);
    fold->truncates[fold->truncate_count++] = *record;
}

void mr_fold_keep_all(struct mr_fold *fold)
{
    fold->keeps_all = true;
}

static struct entry *fold_entry_of(struct bucket *bucket, struct mr_digest key)
{
    uint32_t number;
    MR_INDEX_FIND(number, &bucket->index, key.low,
                  mr_digest_equal(bucket->entries[number].key, key));
    if (number == MR_INDEX_NONE) {
        number = mr_index_add(&bucket->index, key.low);
        MR_GROW(bucket->entries, bucket->room, (size_t)number + 1);
        bucket->entries[number] =
            (struct entry){.key = key, .record = {.offset = -1}, .chunk = NO_CHUNK};
    }
    return &bucket->entries[number];
}

/* The large value of that column; NULL: there is none, or it is unknown. */
static const struct mr_verify_large *known_in(const struct bucket *bucket,
                                              const struct large *values, uint32_t column)
{
    for (uint32_t i = 0; i < values->count; i++) {
        const struct mr_verify_large *large = &bucket->large[values->at + i];
        if (large->column == column) {
            return large->is_unknown ? NULL : large;
        }
    }
    return NULL;
}

/* Puts the values where the key has some already, or if there are more now, into a new place. */
static void keep_large(struct bucket *bucket, struct large *values,
                       const struct mr_verify_large *large, uint32_t count)
{
    if (count > values->room) {
        MR_GROW(bucket->large, bucket->large_room, (size_t)bucket->large_count + count);
        values->at = bucket->large_count;
        values->room = count;
        bucket->large_count += count;
    }
    if (count > 0) {
        memcpy(&bucket->large[values->at], large, sizeof(*large) * count);
    }
    values->count = count;
}

/* Before the events, which count if the row's chunk sees them. */
static void fold_take_row(struct comparison *comparison, const struct stored_row *row,
                          const struct mr_verify_large *large)
{
    struct bucket *bucket = &comparison->bucket;
    bool has_key = comparison->fold->options.has_key;
    struct entry *entry = fold_entry_of(bucket, has_key ? row->key : row->sum);
    comparison->counts.rows++;
    if (!has_key) {
        entry->known = row->key;
        keep_large(bucket, &entry->large, large, row->large_count);
        entry->times--;
    } else if (entry->chunk != NO_CHUNK) {
        comparison->counts.twice++;
    } else {
        entry->chunk = row->chunk;
        entry->row_xid = row->xid;
        entry->row_sum = row->sum;
        keep_large(bucket, &entry->row_large, large, row->large_count);
    }
}

/* What most of those rows have in the column; NULL: there are none. */
static const struct vote *elected(const struct votes *votes, uint32_t column)
{
    const struct vote *best = NULL;
    for (uint32_t i = 0; i < votes->count; i++) {
        const struct vote *vote = &votes->all[i];
        best = vote->column == column && (best == NULL || vote->count > best->count) ? vote : best;
    }
    return best;
}

/* What the row of such an event had in the column when it came: what the catalog says, or else what
 * most have. NULL: nobody knows. */
static const struct mr_digest *had_before(const struct comparison *comparison,
                                          const struct mr_verify_large *absent)
{
    const struct vote *vote = elected(&comparison->turns->votes, absent->column);
    return absent->is_known ? &absent->digest : vote == NULL ? NULL : &vote->value;
}

/* Whether a column may have come with that value. */
static bool may_be_default(const struct mr_verify_large *absent, struct mr_digest value)
{
    return absent->has_default || mr_digest_equal(absent->digest, value);
}

static void vote(struct turns *turns, uint32_t column, struct mr_digest value)
{
    struct votes *votes = &turns->votes;
    MR_HOLD(&turns->lock);
    uint32_t i = 0;
    while (i < votes->count &&
           (votes->all[i].column != column || !mr_digest_equal(votes->all[i].value, value))) {
        i++;
    }
    if (i == votes->count && i < VOTES_MAX) {
        votes->all[votes->count++] = (struct vote){.column = column, .value = value};
    }
    if (i < votes->count) {
        votes->all[i].count++;
    }
}

/* What the event itself and the others say; each of its absent values is told. */
static void find_withheld(const struct mr_fold *fold, const struct stored_event *stored,
                          struct mr_verify_large *large)
{
    const struct mr_fold_record *record = &stored->record;
    bool is_own = record->place.commit_lsn >= fold->options.entered;
    /* A copy's number, and without a key nobody knows the row's own writer. */
    bool is_dated = is_own && (stored->is_copied || !fold->options.has_key);
    for (uint32_t i = 0; i < stored->large_count; i++) {
        struct mr_verify_large *one = &large[i];
        bool has_come = one->column < fold->came_count &&
                        mr_place_compare(fold->came[one->column], record->place) < 0;
        bool was_there = is_dated && mr_verify_was_there(one->since, one->created, record->xid);
        one->is_withheld =
            one->is_absent && (one->is_withheld || was_there || (has_come && !stored->is_older));
    }
}

/* Of a table without a key. A row that came before a late column was added went on with what all
 * have in it. */
static void take_counted(struct comparison *comparison, const struct stored_event *stored,
                         const struct mr_verify_large *large)
{
    struct bucket *bucket = &comparison->bucket;
    struct mr_digest sum = stored->sum;
    bool is_explained = true;
    for (uint32_t i = 0; i < stored->large_count; i++) {
        bool is_late = large[i].is_absent && !large[i].is_withheld && !comparison->turns->is_vote;
        const struct mr_digest *had = is_late ? had_before(comparison, &large[i]) : NULL;
        sum = had == NULL ? sum : mr_digest_add(sum, *had);
        is_explained = is_explained && (had == NULL || may_be_default(&large[i], *had));
    }
    const struct place_seen seen = {stored->record.place, sum, stored->is_gone};
    uint64_t hash = seen.place.commit_lsn * 31 + seen.place.order * 2 + seen.is_gone;
    uint32_t number;
    MR_INDEX_FIND(number, &bucket->seen_index, hash,
                  mr_place_compare(bucket->seen[number].place, seen.place) == 0 &&
                      bucket->seen[number].is_gone == seen.is_gone &&
                      mr_digest_equal(bucket->seen[number].key, sum));
    if (number != MR_INDEX_NONE) {
        return; /* at least once has sent it again */
    }
    number = mr_index_add(&bucket->seen_index, hash);
    MR_GROW(bucket->seen, bucket->seen_room, (size_t)number + 1);
    bucket->seen[number] = seen;
    struct entry *entry = fold_entry_of(bucket, sum);
    if (entry->record.offset < 0 && entry->times == 0) {
        entry->known = stored->key;
        keep_large(bucket, &entry->large, large, stored->large_count);
    }
    entry->record = stored->record;
    entry->is_older = entry->is_older || stored->is_older;
    entry->times += stored->is_gone ? -1 : 1;
    comparison->counts.events++;
    comparison->counts.undefaulted += !is_explained;
}

static void take_set(struct bucket *bucket, struct entry *entry, const struct stored_event *stored,
                     struct mr_verify_large *large)
{
    entry->sum = stored->sum;
    for (uint32_t i = 0; i < stored->large_count; i++) {
        bool is_left_alone = large[i].is_unknown && !large[i].is_lost && entry->state == IS_THERE;
        const struct mr_verify_large *before =
            is_left_alone ? known_in(bucket, &entry->large, large[i].column) : NULL;
        if (before != NULL) {
            large[i] = *before;
            entry->sum = mr_digest_add(entry->sum, before->digest);
        }
    }
    keep_large(bucket, &entry->large, large, stored->large_count);
    entry->is_older = stored->is_older;
    entry->lacks = stored->lacks;
    entry->state = IS_THERE;
}

/* A copied row has no transaction of its own, and a place after all that it contains. */
static bool is_seen(const struct view *view, const struct stored_event *stored)
{
    const struct mr_fold_record *record = &stored->record;
    return stored->is_copied ? record->place.commit_lsn <= view->cut->before
                             : mr_cut_sees(view->cut, record->xid, record->place.commit_lsn);
}

/* Of a key that is in two partitions the later place counts. */
static bool is_overtaken(const struct entry *entry, const struct stored_event *stored)
{
    return entry->record.offset >= 0 && entry->record.partition != stored->record.partition &&
           mr_place_compare(stored->record.place, entry->record.place) < 0;
}

/* Whether the record is of the same change as the key's last one. */
static bool is_of_last(const struct entry *entry, const struct stored_event *stored)
{
    const struct mr_place *before = &entry->record.place;
    const struct mr_place *place = &stored->record.place;
    return before->commit_lsn == place->commit_lsn && before->order >> 4 == place->order >> 4;
}

static void take_gone(struct entry *entry, const struct stored_event *stored)
{
    bool is_deleted = entry->state == IS_DELETED || entry->state == IS_GONE;
    if (!stored->is_tombstone) {
        entry->state = stored->is_whole ? IS_GONE : IS_DELETED;
    } else if (is_deleted && is_of_last(entry, stored)) {
        entry->state = IS_GONE;
    } else {
        bool is_first = entry->record.offset < 0 || entry->state == IS_ENTOMBED;
        entry->state = is_first ? IS_ENTOMBED : IS_BURIED;
    }
}

static void take_event(struct comparison *comparison, const struct stored_event *stored,
                       struct mr_verify_large *large)
{
    struct bucket *bucket = &comparison->bucket;
    bool has_key = comparison->fold->options.has_key;
    struct entry *entry = has_key ? fold_entry_of(bucket, stored->key) : NULL;
    bool is_shown = has_key && entry->chunk != NO_CHUNK;
    const struct view *view =
        &comparison->views[is_shown ? entry->chunk : comparison->view_count - 1];
    if (!is_seen(view, stored) || mr_place_compare(stored->record.place, view->truncated) < 0) {
        return;
    }
    if (!has_key) {
        find_withheld(comparison->fold, stored, large);
        take_counted(comparison, stored, large);
        return;
    }
    if (is_overtaken(entry, stored)) {
        return;
    }
    comparison->counts.events++;
    /* Of two partitions, which are read in any order, this may not be the event before. */
    if (entry->record.offset >= 0 && entry->record.partition != stored->record.partition) {
        entry->large.count = 0;
    }
    if (!is_seen(&comparison->views[0], stored)) {
        entry->has_come = entry->has_come || stored->is_gone || entry->state != IS_THERE;
    }
    if (stored->is_gone) {
        take_gone(entry, stored);
    } else {
        find_withheld(comparison->fold, stored, large);
        take_set(bucket, entry, stored, large);
    }
    entry->record = stored->record;
    entry->is_copied = stored->is_copied;
}

static void differ(struct comparison *comparison, enum mr_difference_kind kind,
                   const struct entry *entry, uint64_t times)
{
    const struct mr_difference difference = {
        .kind = kind, .key = entry->key, .last = entry->record, .times = times};
    comparison->counts.differences[kind] += times;
    MR_HOLD(&comparison->turns->lock);
    comparison->take(comparison->context, &difference);
}

/* The row's sum without the values that the entry does not know. `*ret_knows`: there are none. */
static struct mr_digest sum_of_known(const struct bucket *bucket, const struct entry *entry,
                                     bool *ret_knows)
{
    struct mr_digest sum = entry->row_sum;
    *ret_knows = true;
    for (uint32_t i = 0; i < entry->large.count; i++) {
        const struct mr_verify_large *one = &bucket->large[entry->large.at + i];
        const struct mr_verify_large *of_row =
            one->is_unknown ? known_in(bucket, &entry->row_large, one->column) : NULL;
        *ret_knows = *ret_knows && (!one->is_unknown || one->is_absent);
        sum = of_row == NULL ? sum : mr_digest_subtract(sum, of_row->digest);
    }
    return sum;
}

/* A copied row is as all transactions before its number left it. */
static enum mr_difference_kind how_it_differs(const struct entry *entry)
{
    uint32_t xid = entry->row_xid;
    bool knows_writer =
        entry->is_copied ? (int32_t)(xid - entry->record.xid) < 0 : xid == entry->record.xid;
    return knows_writer ? MR_DIFFERENCE_ALTERED : MR_DIFFERENCE_STALE;
}

/* The row's own writer sent the event when the column was there already. Of another server's
 * events, before a restore, the writer is another one. One that began after the column was added
 * and wrote before, while the ALTER TABLE waited, is named too: the repair costs it a record. */
static bool is_withheld(const struct entry *entry, const struct mr_verify_large *absent)
{
    bool is_since = absent->since == 0 || (int32_t)(entry->row_xid - absent->since) > 0;
    return absent->is_withheld ||
           (!entry->is_copied && entry->row_xid == entry->record.xid && is_since);
}

/* What its row has in late columns that its event lacks. Whether that is what the others have;
 * `*ret_is_alone`: there are no others; `*ret_is_explained`: a default may have made it. */
static bool is_as_others(const struct comparison *comparison, const struct entry *entry,
                         bool *ret_is_alone, bool *ret_is_explained)
{
    const struct bucket *bucket = &comparison->bucket;
    *ret_is_alone = false;
    *ret_is_explained = true;
    for (uint32_t i = 0; i < entry->large.count; i++) {
        const struct mr_verify_large *one = &bucket->large[entry->large.at + i];
        if (!one->is_absent) {
            continue;
        }
        const struct mr_verify_large *of_row = known_in(bucket, &entry->row_large, one->column);
        const struct vote *vote = elected(&comparison->turns->votes, one->column);
        const struct mr_digest *had = had_before(comparison, one);
        if (of_row == NULL || had == NULL || is_withheld(entry, one) ||
            !mr_digest_equal(of_row->digest, *had)) {
            return false;
        }
        *ret_is_alone = *ret_is_alone || (!one->is_known && vote->count == 1);
        *ret_is_explained = *ret_is_explained && may_be_default(one, *had);
    }
    return true;
}

static void vote_of(struct comparison *comparison, const struct entry *entry)
{
    const struct bucket *bucket = &comparison->bucket;
    bool unused;
    if (entry->chunk == NO_CHUNK || entry->state != IS_THERE || entry->is_older ||
        !mr_digest_equal(sum_of_known(bucket, entry, &unused), entry->sum)) {
        return;
    }
    for (uint32_t i = 0; i < entry->large.count; i++) {
        const struct mr_verify_large *one = &bucket->large[entry->large.at + i];
        const struct mr_verify_large *of_row =
            one->is_absent && !is_withheld(entry, one)
                ? known_in(bucket, &entry->row_large, one->column)
                : NULL;
        if (of_row != NULL) {
            vote(comparison->turns, one->column, of_row->digest);
        }
    }
}

/* Without a key, of one that lacks a late column and one that has it, equal but for that: the first
 * came, and the second is there or went. `entries` are those whose numbers differ, of rows that are
 * equal but for late columns. */
static void vote_of_pair(struct comparison *comparison, struct entry *const entries[2])
{
    const struct bucket *bucket = &comparison->bucket;
    if (entries[0]->times != -entries[1]->times) {
        return;
    }
    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < entries[k]->large.count; i++) {
            const struct mr_verify_large *one = &bucket->large[entries[k]->large.at + i];
            const struct mr_verify_large *other =
                one->is_absent && !one->is_withheld
                    ? known_in(bucket, &entries[1 - k]->large, one->column)
                    : NULL;
            if (other != NULL) {
                vote(comparison->turns, one->column, other->digest);
            }
        }
    }
}

static int known_compare(const void *a, const void *b)
{
    const struct entry *one = *(struct entry *const *)a;
    const struct entry *other = *(struct entry *const *)b;
    int compared = mr_u64_compare(&one->known.low, &other->known.low);
    return compared != 0 ? compared : mr_u64_compare(&one->known.high, &other->known.high);
}

/* The rows without a key whose numbers differ, those together that are equal but for late columns.
 * The caller frees the list. */
static struct entry **left_over(struct bucket *bucket, uint32_t *ret_count)
{
    uint32_t count = 0;
    struct entry **left = MR_NEW_ARRAY(struct entry *, bucket->index.count + 1);
    for (uint32_t i = 0; i < bucket->index.count; i++) {
        if (bucket->entries[i].times != 0) {
            left[count++] = &bucket->entries[i];
        }
    }
    qsort(left, count, sizeof(struct entry *), known_compare);
    *ret_count = count;
    return left;
}

/* How many of them, from the first on, are equal but for late columns. */
static uint32_t group_of(struct entry *const *left, uint32_t count)
{
    uint32_t next = 1;
    while (next < count && known_compare(&left[0], &left[next]) == 0) {
        next++;
    }
    return next;
}

static void vote_of_bucket(struct comparison *comparison)
{
    struct bucket *bucket = &comparison->bucket;
    for (uint32_t i = 0; comparison->fold->options.has_key && i < bucket->index.count; i++) {
        vote_of(comparison, &bucket->entries[i]);
    }
    uint32_t count;
    MR_FREED struct entry **left = left_over(bucket, &count); /* with a key, none */
    for (uint32_t i = 0, next; i < count; i += next) {
        next = group_of(&left[i], count - i);
        if (next == 2) {
            vote_of_pair(comparison, &left[i]);
        }
    }
}

/* Of a key that has a row and an event that says what it is. */
static void compare_values(struct comparison *comparison, const struct entry *entry)
{
    bool knows;
    bool is_alone;
    bool is_explained;
    bool is_equal = mr_digest_equal(sum_of_known(&comparison->bucket, entry, &knows), entry->sum) &&
                    is_as_others(comparison, entry, &is_alone, &is_explained);
    if (!is_equal && entry->is_older) {
        comparison->counts.older++;
    } else if (!is_equal) {
        comparison->counts.lacking += entry->lacks;
        differ(comparison, how_it_differs(entry), entry, 1);
    } else {
        if (!knows || !is_explained) {
            differ(comparison, MR_DIFFERENCE_UNKNOWN, entry, 1);
        }
        comparison->counts.undefaulted += knows && !is_explained;
        comparison->counts.alone += is_alone && how_it_differs(entry) == MR_DIFFERENCE_STALE;
    }
}

/* Of a key that no row has, and whose last event says so, too. Compaction takes a delete, with all
 * that was before it, and leaves the tombstone. */
static void compare_gone(struct comparison *comparison, const struct entry *entry)
{
    struct mr_fold_counts *counts = &comparison->counts;
    const struct mr_fold *fold = comparison->fold;
    bool is_alone = entry->state == IS_ENTOMBED || entry->state == IS_BURIED;
    bool is_bare = entry->state == IS_DELETED && fold->options.has_tombstones;
    bool is_early = mr_place_compare(entry->record.place, fold->first_tombstone) < 0;
    if ((is_alone && fold->keeps_all) || (is_bare && !is_early)) {
        differ(comparison, MR_DIFFERENCE_TORN, entry, 1);
    } else if (is_bare) {
        counts->first_bare = counts->bare++ == 0 ? entry->record : counts->first_bare;
    } else {
        counts->buried += entry->state == IS_BURIED;
    }
}

static void compare_entry(struct comparison *comparison, const struct entry *entry)
{
    bool has_row = entry->chunk != NO_CHUNK;
    if (has_row && entry->state == IS_THERE) {
        compare_values(comparison, entry);
    } else if (has_row) {
        comparison->counts.eventless += entry->record.offset < 0;
        differ(comparison, MR_DIFFERENCE_MISSING, entry, 1);
    } else if (entry->state == IS_THERE && entry->has_come) {
        comparison->counts.unsettled++;
    } else if (entry->state == IS_THERE) {
        differ(comparison, MR_DIFFERENCE_PHANTOM, entry, 1);
    } else {
        compare_gone(comparison, entry);
    }
}

/* Of rows without a key. Where a column was renamed, what is left of its values is as much on both
 * sides. */
static void compare_counted(struct comparison *comparison)
{
    uint32_t count;
    MR_FREED struct entry **left = left_over(&comparison->bucket, &count);
    for (uint32_t i = 0, next; i < count; i += next) {
        next = group_of(&left[i], count - i);
        int64_t sum = 0;
        uint64_t more = 0; /* than the table has */
        bool is_older = false;
        for (uint32_t k = i; k < i + next; k++) {
            sum += left[k]->times;
            more += left[k]->times > 0 ? (uint64_t)left[k]->times : 0;
            is_older = is_older || left[k]->is_older;
        }
        bool is_form = is_older && sum == 0;
        comparison->counts.older += is_form ? more : 0;
        for (uint32_t k = i; k < i + next && !is_form; k++) {
            differ(comparison, left[k]->times > 0 ? MR_DIFFERENCE_PHANTOM : MR_DIFFERENCE_MISSING,
                   left[k], (uint64_t)llabs(left[k]->times));
        }
    }
}

/* A head of that many bytes, and the large values after it. */
static const uint8_t *fold_take_head(const uint8_t *at, void *head, size_t len)
{
    memcpy(head, at, len);
    return at + len;
}

static void fold_take_rows(void *context, const uint8_t *bytes, size_t len)
{
    struct mr_verify_large large[MR_COLUMNS_MAX];
    struct stored_row row;
    for (const uint8_t *at = bytes; at < bytes + len;) {
        at = fold_take_head(at, &row, sizeof(row));
        at = fold_take_head(at, large, sizeof(*large) * row.large_count);
        fold_take_row(context, &row, large);
    }
}

static void take_events(void *context, const uint8_t *bytes, size_t len)
{
    struct mr_verify_large large[MR_COLUMNS_MAX];
    struct stored_event event;
    for (const uint8_t *at = bytes; at < bytes + len;) {
        at = fold_take_head(at, &event, sizeof(event));
        at = fold_take_head(at, large, sizeof(*large) * event.large_count);
        take_event(context, &event, large);
    }
}

static mr_status compare_bucket(struct comparison *comparison, uint32_t number,
                                struct mr_error *ret_error)
{
    struct bucket *bucket = &comparison->bucket;
    mr_index_clear(&bucket->index);
    mr_index_clear(&bucket->seen_index);
    bucket->large_count = 0;
    MR_TRY(mr_spill_read(comparison->fold->rows, number, fold_take_rows, comparison, ret_error));
    MR_TRY(mr_spill_read(comparison->fold->events, number, take_events, comparison, ret_error));
    if (comparison->turns->is_vote) {
        vote_of_bucket(comparison);
        return MR_OK;
    }
    if (!comparison->fold->options.has_key) {
        compare_counted(comparison);
        return MR_OK;
    }
    for (uint32_t i = 0; i < bucket->index.count; i++) {
        compare_entry(comparison, &bucket->entries[i]);
    }
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

static void *compare_buckets(void *context)
{
    struct comparison *comparison = context;
    unsigned number = 0;
    while (comparison->status == MR_OK &&
           (number = atomic_fetch_add(&comparison->turns->next, 1)) < BUCKETS) {
        comparison->status = compare_bucket(comparison, number, &comparison->error);
    }
    mr_index_done(&comparison->bucket.index);
    mr_index_done(&comparison->bucket.seen_index);
    free(comparison->bucket.entries);
    free(comparison->bucket.seen);
    free(comparison->bucket.large);
    return NULL;
}

static void fold_add_counts(struct mr_fold_counts *sum, const struct mr_fold_counts *more)
{
    sum->rows += more->rows;
    sum->events += more->events;
    for (size_t i = 0; i < MR_DIFFERENCE_COUNT; i++) {
        sum->differences[i] += more->differences[i];
    }
    sum->eventless += more->eventless;
    sum->older += more->older;
    sum->unsettled += more->unsettled;
    sum->twice += more->twice;
    sum->first_bare = sum->bare == 0 ? more->first_bare : sum->first_bare;
    sum->buried += more->buried;
    sum->bare += more->bare;
    sum->lacking += more->lacking;
    sum->alone += more->alone;
    sum->undefaulted += more->undefaulted;
}

/* All buckets, by two threads. */
static mr_status fold_pass(const struct comparison *comparison, struct mr_fold_counts *ret_counts,
                           struct mr_error *ret_error)
{
    struct comparison own = *comparison;
    struct comparison other = *comparison;
    pthread_t thread; /* where none is to be had, this one does all */
    atomic_store(&own.turns->next, 0);
    bool is_helped = mr_thread_create(&thread, compare_buckets, &other, NULL) == MR_OK;
    compare_buckets(&own);
    if (is_helped) {
        pthread_join(thread, NULL);
        fold_add_counts(&own.counts, &other.counts);
    }
    *ret_counts = own.counts;
    const struct comparison *failed = own.status != MR_OK ? &own : &other;
    return failed->status == MR_OK ? MR_OK
                                   : mr_fail(ret_error, failed->status, "%s", failed->error.text);
}

mr_status mr_fold_compare(struct mr_fold *fold, const struct mr_cut *cuts, uint32_t cut_count,
                          mr_difference_fn take, void *context, struct mr_fold_counts *ret_counts,
                          struct mr_error *ret_error)
{
    MR_ASSERT(cut_count > 0);
    MR_ASSERT(fold->options.has_key || cut_count == 1);
    struct turns *turns = MR_NEW(struct turns);
    *turns = (struct turns){.lock = PTHREAD_MUTEX_INITIALIZER, .is_vote = fold->has_late};
    const struct comparison comparison = {.fold = fold,
                                          .views = views_of(fold, cuts, cut_count),
                                          .view_count = cut_count,
                                          .take = take,
                                          .context = context,
                                          .turns = turns};
    mr_status status = fold->has_late ? fold_pass(&comparison, ret_counts, ret_error) : MR_OK;
    turns->is_vote = false;
    status = MR_THEN(status, fold_pass(&comparison, ret_counts, ret_error));
    pthread_mutex_destroy(&turns->lock);
    free(comparison.views);
    free(turns);
    return status;
}
