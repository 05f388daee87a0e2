#include "copy/chunk_window.h"

#include "base/hash.h"
#include "base/index.h"

/* More transactions can't be under way: MaxBackends, and prepared ones, at most 2^18 - 1 each
 * (MAX_BACKENDS in src/include/postmaster/postmaster.h, GetMaxSnapshotXidCount in
 * src/backend/storage/ipc/procarray.c). */
enum { XIPS_MAX = 1 << 19 };

/* A decimal number that is followed by one of `ends`; its lower 32 bits. */
static bool take_xid(const char **at, const char *ends, uint32_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(*at, &end, 10);
    if (**at < '0' || **at > '9' || errno != 0 || strchr(ends, *end) == NULL) {
        return false;
    }
    *at = end;
    *ret = (uint32_t)number;
    return true;
}

bool mr_chunk_snapshot_parse(const char *text, struct mr_chunk_snapshot *ret)
{
    struct mr_chunk_snapshot snapshot = {0};
    const char *at = text;
    bool good = take_xid(&at, ":", &snapshot.xmin) && *at++ == ':' &&
                take_xid(&at, ":", &snapshot.xmax) && *at++ == ':';
    uint32_t size = 0;
    for (bool more = good && *at != '\0'; more;) {
        MR_GROW(snapshot.xip, size, snapshot.xip_count + 1);
        good =
            snapshot.xip_count < XIPS_MAX && take_xid(&at, ",", &snapshot.xip[snapshot.xip_count]);
        snapshot.xip_count += good;
        more = good && *at == ',';
        at += more;
    }
    if (!good) {
        mr_chunk_snapshot_done(&snapshot);
        return false;
    }
    mr_sort(snapshot.xip, snapshot.xip_count, sizeof(*snapshot.xip), mr_u32_compare);
    *ret = snapshot;
    return true;
}

void mr_chunk_snapshot_done(struct mr_chunk_snapshot *snapshot)
{
    free(snapshot->xip);
    *snapshot = (struct mr_chunk_snapshot){0};
}

/* Numbers go round; two that matter at once are never half a turn apart (transam.c,
 * TransactionIdPrecedes). */
static bool precedes(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

static bool chunk_window_sees(const struct mr_chunk_snapshot *snapshot, uint32_t xid)
{
    if (!precedes(xid, snapshot->xmax)) {
        return false; /* below it are those in xip; above may be others that are under way */
    }
    return mr_search(&xid, snapshot->xip, snapshot->xip_count, sizeof(xid), mr_u32_compare) == NULL;
}

struct key {
    uint32_t at; /* in `bytes` */
    uint32_t len;
    bool dropped; /* the stream had it, */
    bool lacks;   /* and never with all its values */
};

struct keys {
    uint64_t seed;
    struct key *items; /* in the order in which they came */
    uint8_t *bytes;
    struct mr_index index; /* and how many */
    uint32_t room;
    uint32_t len, bytes_room;
};

static uint64_t key_hash(const struct keys *keys, mr_slice key)
{
    return mr_hash_add(keys->seed, key.data, key.len);
}

static struct key *key_find(const struct keys *keys, mr_slice key)
{
    uint64_t hash = key_hash(keys, key);
    uint32_t at = 0;
    uint32_t number;
    while ((number = mr_index_next(&keys->index, hash, &at)) != MR_INDEX_NONE) {
        struct key *one = &keys->items[number];
        if (mr_slice_equal((mr_slice){.data = keys->bytes + one->at, .len = one->len}, key)) {
            return one;
        }
    }
    return NULL;
}

/* What a key takes beside its bytes, at least. */
enum { KEY_BYTES = sizeof(struct key) + 2 * sizeof(struct mr_index_slot) };

static struct key *keys_add(struct keys *keys, mr_slice key)
{
    struct key *known = key_find(keys, key);
    if (known != NULL) {
        return known;
    }
    uint32_t number = mr_index_add(&keys->index, key_hash(keys, key));
    MR_GROW(keys->items, keys->room, keys->index.count);
    MR_GROW(keys->bytes, keys->bytes_room, keys->len + key.len);
    memcpy(keys->bytes + keys->len, key.data, key.len);
    keys->items[number] = (struct key){.at = keys->len, .len = (uint32_t)key.len};
    keys->len += (uint32_t)key.len;
    return &keys->items[number];
}

static void keys_clear(struct keys *keys)
{
    uint64_t seed = keys->seed;
    free(keys->items);
    free(keys->bytes);
    mr_index_done(&keys->index);
    *keys = (struct keys){.seed = seed};
}

/* From closed to open at R, from open to judged when S is there, and back to closed. */
enum state { CLOSED, OPEN, JUDGED };

struct mr_chunk_window {
    enum state state;
    /* Since it was opened: */
    bool emptied;    /* the table was */
    bool reshaped;   /* its columns are others */
    bool overflown;  /* there were too many keys */
    bool has_number; /* N, */
    uint32_t number; /* of the A that counts */
    uint32_t *noted; /* transactions since A: unseen by the last snapshot, or younger */
    uint32_t noted_count, noted_max;
    uint32_t noted_at_open; /* of them: those before R */
    uint32_t holder;        /* the one that held up the last snapshot */
    struct keys streamed;   /* between R and S's arrival here */
    struct keys chunk;      /* its rows */
    size_t bytes_max;
    mr_lsn until; /* L */
};

struct mr_chunk_window *mr_chunk_window_new(uint32_t transactions_max, size_t bytes_max,
                                            uint64_t seed)
{
    struct mr_chunk_window *window = MR_NEW(struct mr_chunk_window);
    window->noted = MR_NEW_ARRAY(uint32_t, transactions_max);
    window->noted_max = transactions_max;
    window->bytes_max = bytes_max;
    window->streamed.seed = MR_HASH_BEGIN ^ seed;
    window->chunk.seed = MR_HASH_BEGIN ^ seed;
    return window;
}

void mr_chunk_window_free(struct mr_chunk_window *window)
{
    if (window == NULL) {
        return;
    }
    keys_clear(&window->streamed);
    keys_clear(&window->chunk);
    free(window->noted);
    free(window);
}

bool mr_chunk_window_wants_number(const struct mr_chunk_window *window)
{
    return !window->has_number;
}

void mr_chunk_window_take_number(struct mr_chunk_window *window, uint32_t xid)
{
    window->has_number = true;
    window->number = xid;
}

/* The stream had the key. Once an event of it had all values, later ones lack nothing that the
 * topic does not have. */
static void chunk_window_drop(struct key *key, bool lacks)
{
    key->lacks = lacks && (key->lacks || !key->dropped);
    key->dropped = true;
}

void mr_chunk_window_change(struct mr_chunk_window *window, mr_slice key, bool lacks)
{
    if (window->state == OPEN && !window->overflown) {
        chunk_window_drop(keys_add(&window->streamed, key), lacks);
        size_t taken = window->streamed.len + (size_t)window->streamed.index.count * KEY_BYTES;
        if (taken > window->bytes_max) {
            window->overflown = true;
            keys_clear(&window->streamed);
        }
    } else if (window->state == JUDGED) {
        struct key *found = key_find(&window->chunk, key);
        if (found != NULL) {
            chunk_window_drop(found, lacks);
        }
    }
}

void mr_chunk_window_truncate(struct mr_chunk_window *window)
{
    window->emptied = true;
}

void mr_chunk_window_reshape(struct mr_chunk_window *window)
{
    window->reshaped = true;
}

void mr_chunk_window_commit(struct mr_chunk_window *window, uint32_t xid)
{
    if (window->noted_count == window->noted_max) {
        /* A is here. What was judged already stays good: it needs no note. */
        window->noted_count = 0;
        window->noted_at_open = 0;
        window->has_number = false;
        return;
    }
    window->noted[window->noted_count++] = xid;
}

void mr_chunk_window_open(struct mr_chunk_window *window)
{
    MR_ASSERT(window->state == CLOSED);
    window->state = OPEN;
    window->emptied = false;
    window->reshaped = false;
    window->overflown = false;
    window->noted_at_open = window->noted_count;
}

/* Later snapshots see it, too. */
static void forget_seen(struct mr_chunk_window *window, const struct mr_chunk_snapshot *snapshot)
{
    uint32_t kept = 0;
    uint32_t kept_at_open = 0;
    for (uint32_t i = 0; i < window->noted_count; i++) {
        if (!chunk_window_sees(snapshot, window->noted[i])) {
            kept_at_open += i < window->noted_at_open;
            window->noted[kept++] = window->noted[i];
        }
    }
    window->noted_count = kept;
    window->noted_at_open = kept_at_open;
}

bool mr_chunk_window_is_held(struct mr_chunk_window *window,
                             const struct mr_chunk_snapshot *snapshot)
{
    forget_seen(window, snapshot);
    if (!window->has_number) {
        return false;
    }
    bool is_older = precedes(snapshot->xmin, window->number);
    if (is_older || window->noted_at_open > 0) {
        window->holder = is_older ? snapshot->xmin : window->noted[0];
        return true;
    }
    return false;
}

uint32_t mr_chunk_window_holder(const struct mr_chunk_window *window)
{
    return window->holder;
}

enum mr_chunk_verdict mr_chunk_window_judge(struct mr_chunk_window *window,
                                            const struct mr_chunk_snapshot *snapshot,
                                            mr_lsn wal_end)
{
    MR_ASSERT(window->state == OPEN);
    enum mr_chunk_verdict verdict = MR_CHUNK_GOOD;
    if (mr_chunk_window_is_held(window, snapshot)) {
        verdict = MR_CHUNK_HELD;
    } else if (!window->has_number || window->reshaped) {
        verdict = MR_CHUNK_AGAIN;
    } else if (window->overflown) {
        verdict = MR_CHUNK_TOO_MUCH;
    }
    window->until = wal_end;
    window->state = JUDGED;
    if (verdict != MR_CHUNK_GOOD) {
        mr_chunk_window_close(window);
    }
    return verdict;
}

bool mr_chunk_window_add(struct mr_chunk_window *window, mr_slice key)
{
    MR_ASSERT(window->state == JUDGED);
    uint32_t before = window->chunk.index.count;
    const struct key *streamed = key_find(&window->streamed, key);
    struct key *row = keys_add(&window->chunk, key);
    if (window->chunk.index.count == before) {
        return false;
    }
    row->dropped = streamed != NULL;
    row->lacks = streamed != NULL && streamed->lacks;
    return true;
}

bool mr_chunk_window_is_due(const struct mr_chunk_window *window, mr_lsn reached)
{
    return window->state == JUDGED && !window->reshaped && reached >= window->until;
}

bool mr_chunk_window_is_void(const struct mr_chunk_window *window)
{
    return window->state == JUDGED && window->reshaped;
}

bool mr_chunk_window_goes_out(const struct mr_chunk_window *window, uint32_t row)
{
    MR_ASSERT(window->state == JUDGED && row < window->chunk.index.count);
    return !window->emptied && !window->chunk.items[row].dropped;
}

bool mr_chunk_window_lacks(const struct mr_chunk_window *window, uint32_t row)
{
    MR_ASSERT(window->state == JUDGED && row < window->chunk.index.count);
    return !window->emptied && window->chunk.items[row].lacks;
}

void mr_chunk_window_close(struct mr_chunk_window *window)
{
    window->state = CLOSED;
    keys_clear(&window->streamed);
    keys_clear(&window->chunk);
}
