#include "pipeline/chunk_window.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { SLOTS_MIN = 64, NO_ROW = UINT32_MAX };

/* ---- snapshots ---- */

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
        if (snapshot.xip_count == size) {
            size = size == 0 ? 16 : 2 * size;
            snapshot.xip = MR_REALLOC(snapshot.xip, size * sizeof(*snapshot.xip));
        }
        good = take_xid(&at, ",", &snapshot.xip[snapshot.xip_count]);
        snapshot.xip_count += good;
        more = good && *at == ',';
        at += more;
    }
    if (!good) {
        mr_chunk_snapshot_done(&snapshot);
        return false;
    }
    *ret = snapshot;
    return true;
}

void mr_chunk_snapshot_done(struct mr_chunk_snapshot *snapshot)
{
    free(snapshot->xip);
    *snapshot = (struct mr_chunk_snapshot){0};
}

/* Numbers go round; two that matter at once are never half a turn apart (transam.c, TransactionIdPrecedes). */
static bool precedes(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

static bool sees(const struct mr_chunk_snapshot *snapshot, uint32_t xid)
{
    if (!precedes(xid, snapshot->xmax)) {
        return false; /* below it are those in xip; above may be others that are under way */
    }
    for (uint32_t i = 0; i < snapshot->xip_count; i++) {
        if (snapshot->xip[i] == xid) {
            return false;
        }
    }
    return true;
}

/* ---- keys ---- */

struct key {
    uint64_t hash;
    size_t at; /* in `bytes` */
    uint32_t len;
    bool dropped; /* the stream had it, */
    bool lacks;   /* and never with all its values */
};

struct keys {
    uint64_t seed;
    struct key *items; /* in the order in which they came */
    uint32_t count, size;
    uint32_t *slots; /* open addressing; index + 1, 0: free. At most half full */
    uint32_t slot_count;
    uint8_t *bytes;
    size_t len, capacity;
};

/* Where the key is, or would go. */
static uint32_t key_slot(const struct keys *keys, uint64_t hash, mr_slice key)
{
    uint32_t mask = keys->slot_count - 1;
    uint32_t slot = (uint32_t)(hash >> 32) & mask;
    for (; keys->slots[slot] != 0; slot = (slot + 1) & mask) {
        const struct key *one = &keys->items[keys->slots[slot] - 1];
        if (one->hash == hash && one->len == key.len &&
            memcmp(keys->bytes + one->at, key.data, key.len) == 0) {
            break;
        }
    }
    return slot;
}

static uint64_t key_hash(const struct keys *keys, mr_slice key)
{
    return mr_hash_add(keys->seed, key.data, key.len) * UINT64_C(11400714819323198485);
}

static struct key *key_find(const struct keys *keys, mr_slice key)
{
    if (keys->count == 0) {
        return NULL;
    }
    uint32_t found = keys->slots[key_slot(keys, key_hash(keys, key), key)];
    return found == 0 ? NULL : &keys->items[found - 1];
}

static void keys_grow(struct keys *keys)
{
    keys->slot_count = keys->slot_count == 0 ? SLOTS_MIN : 2 * keys->slot_count;
    free(keys->slots);
    keys->slots = MR_NEW_ARRAY(uint32_t, keys->slot_count);
    uint32_t mask = keys->slot_count - 1;
    for (uint32_t i = 0; i < keys->count; i++) {
        uint32_t slot = (uint32_t)(keys->items[i].hash >> 32) & mask;
        while (keys->slots[slot] != 0) {
            slot = (slot + 1) & mask;
        }
        keys->slots[slot] = i + 1;
    }
}

static size_t keys_bytes(const struct keys *keys)
{
    return keys->len + keys->count * sizeof(struct key);
}

/* The key, or that which is there already. */
static struct key *keys_add(struct keys *keys, mr_slice key)
{
    if (2 * (keys->count + 1) > keys->slot_count) {
        keys_grow(keys);
    }
    uint64_t hash = key_hash(keys, key);
    uint32_t slot = key_slot(keys, hash, key);
    if (keys->slots[slot] != 0) {
        return &keys->items[keys->slots[slot] - 1];
    }
    if (keys->count == keys->size) {
        keys->size = keys->slot_count / 2;
        keys->items = MR_REALLOC(keys->items, keys->size * sizeof(*keys->items));
    }
    if (keys->capacity - keys->len < key.len) {
        keys->capacity = 2 * (keys->capacity + key.len);
        keys->bytes = MR_REALLOC(keys->bytes, keys->capacity);
    }
    memcpy(keys->bytes + keys->len, key.data, key.len);
    struct key *added = &keys->items[keys->count++];
    *added = (struct key){.hash = hash, .at = keys->len, .len = (uint32_t)key.len};
    keys->len += key.len;
    keys->slots[slot] = keys->count;
    return added;
}

static void keys_clear(struct keys *keys)
{
    uint64_t seed = keys->seed;
    free(keys->items);
    free(keys->slots);
    free(keys->bytes);
    *keys = (struct keys){.seed = seed};
}

/* ---- the window ---- */

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
    uint32_t
        *noted; /* transactions since A that the last snapshot did not see, or that are younger */
    uint32_t noted_count, noted_max;
    uint32_t noted_at_open; /* of them: those before R */
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

/* The stream had the key. Once an event of it had all values, later ones lack nothing that the topic does not have. */
static void drop(struct key *key, bool lacks)
{
    key->lacks = lacks && (key->lacks || !key->dropped);
    key->dropped = true;
}

void mr_chunk_window_change(struct mr_chunk_window *window, mr_slice key, bool lacks)
{
    if (window->state == OPEN && !window->overflown) {
        drop(keys_add(&window->streamed, key), lacks);
        if (keys_bytes(&window->streamed) > window->bytes_max) {
            window->overflown = true;
            keys_clear(&window->streamed);
        }
    } else if (window->state == JUDGED) {
        struct key *found = key_find(&window->chunk, key);
        if (found != NULL) {
            drop(found, lacks);
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

static bool misses_noted(const struct mr_chunk_window *window,
                         const struct mr_chunk_snapshot *snapshot)
{
    for (uint32_t i = 0; i < window->noted_at_open; i++) {
        if (!sees(snapshot, window->noted[i])) {
            return true;
        }
    }
    return false;
}

/* Later snapshots see it, too. */
static void forget_seen(struct mr_chunk_window *window, const struct mr_chunk_snapshot *snapshot)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < window->noted_count; i++) {
        if (!sees(snapshot, window->noted[i])) {
            window->noted[kept++] = window->noted[i];
        }
    }
    window->noted_count = kept;
}

enum mr_chunk_verdict mr_chunk_window_judge(struct mr_chunk_window *window,
                                            const struct mr_chunk_snapshot *snapshot,
                                            mr_lsn wal_end)
{
    MR_ASSERT(window->state == OPEN);
    enum mr_chunk_verdict verdict = MR_CHUNK_GOOD;
    if (!window->has_number || precedes(snapshot->xmin, window->number)) {
        verdict = MR_CHUNK_TOO_SOON;
    } else if (window->reshaped || misses_noted(window, snapshot)) {
        verdict = MR_CHUNK_AGAIN;
    } else if (window->overflown) {
        verdict = MR_CHUNK_TOO_MUCH;
    }
    forget_seen(window, snapshot);
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
    uint32_t before = window->chunk.count;
    const struct key *streamed = key_find(&window->streamed, key);
    struct key *row = keys_add(&window->chunk, key);
    if (window->chunk.count == before) {
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
    MR_ASSERT(window->state == JUDGED && row < window->chunk.count);
    return !window->emptied && !window->chunk.items[row].dropped;
}

bool mr_chunk_window_lacks(const struct mr_chunk_window *window, uint32_t row)
{
    MR_ASSERT(window->state == JUDGED && row < window->chunk.count);
    return !window->emptied && window->chunk.items[row].lacks;
}

void mr_chunk_window_close(struct mr_chunk_window *window)
{
    window->state = CLOSED;
    keys_clear(&window->streamed);
    keys_clear(&window->chunk);
}
