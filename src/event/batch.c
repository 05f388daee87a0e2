#include "event/batch.h"

#include "base/hash.h"
#include "base/thread.h"

#define REFUSES_NS INT64_C(60000000000)

/* Of all tables of topics: each thread that encodes may name one, and few ever do. */
static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;

static uint64_t name_hash(const char *name)
{
    return mr_hash_add(MR_HASH_BEGIN, name, strlen(name));
}

static struct mr_topic *batch_find(const struct mr_topics *topics, const char *name)
{
    uint32_t number;
    MR_INDEX_FIND(number, &topics->by_name, name_hash(name),
                  strcmp(topics->items[number]->name, name) == 0);
    return number == MR_INDEX_NONE ? NULL : topics->items[number];
}

static struct mr_topic *batch_find_or_make(struct mr_topics *topics, const char *name)
{
    struct mr_topic *found = batch_find(topics, name);
    if (found != NULL) {
        return found;
    }
    MR_GROW(topics->items, topics->capacity, topics->by_name.count + 1);
    struct mr_topic *topic = MR_NEW(struct mr_topic);
    topic->name = MR_STRDUP(name);
    topic->index = mr_index_add(&topics->by_name, name_hash(name));
    topics->items[topic->index] = topic;
    return topic;
}

const struct mr_topic *mr_topics_intern(struct mr_topics *topics, const char *name)
{
    MR_HOLD(&naming);
    return batch_find_or_make(topics, name);
}

const struct mr_topic *mr_topics_claim(struct mr_topics *topics, const char *name,
                                       const char *table, const char **ret_other)
{
    pthread_mutex_lock(&naming);
    struct mr_topic *topic = batch_find_or_make(topics, name);
    if (topic->table == NULL) {
        topic->table = MR_STRDUP(table);
    }
    pthread_mutex_unlock(&naming);
    *ret_other = strcmp(topic->table, table) == 0 ? NULL : topic->table;
    return topic;
}

const struct mr_topic *mr_topics_at(struct mr_topics *topics, uint32_t index)
{
    MR_HOLD(&naming);
    return index < topics->by_name.count ? topics->items[index] : NULL;
}

void mr_topic_set_partitions(const struct mr_topic *topic, int32_t partitions)
{
    struct mr_topic *own = (struct mr_topic *)(uintptr_t)topic; /* find_or_make made it */
    atomic_store(&own->partitions, partitions);
}

static bool batch_refuses(const struct mr_topic *topic, mr_lsn lsn, int64_t now_ns)
{
    return lsn <= atomic_load_explicit(&topic->refuses.lsn, memory_order_relaxed) ||
           now_ns < atomic_load_explicit(&topic->refuses.until_ns, memory_order_relaxed);
}

bool mr_topic_refuses_keyless(const struct mr_topic *topic, mr_lsn lsn, int64_t now_ns)
{
    return batch_refuses(topic, lsn, now_ns) &&
           atomic_load_explicit(&topic->refuses.keyless, memory_order_relaxed);
}

bool mr_topic_refuses_time(const struct mr_topic *topic, mr_lsn lsn, int64_t off_ms, int64_t now_ns)
{
    int64_t least_ms = atomic_load_explicit(&topic->refuses.off_ms, memory_order_relaxed);
    return batch_refuses(topic, lsn, now_ns) && least_ms != 0 && off_ms >= least_ms;
}

size_t mr_topic_refuses_sent(const struct mr_topic *topic, mr_lsn lsn, int64_t now_ns)
{
    size_t from = atomic_load_explicit(&topic->refuses.sent, memory_order_relaxed);
    return from != 0 && batch_refuses(topic, lsn, now_ns) ? from : 0;
}

static void begin_refusing(struct mr_topic *topic, mr_lsn lsn, int64_t now_ns)
{
    struct mr_topic_refuses *own = &topic->refuses;
    if (!batch_refuses(topic, lsn, now_ns)) {
        atomic_store(&own->keyless, false);
        atomic_store(&own->off_ms, 0);
        atomic_store(&own->sent, 0);
    }
    atomic_store(&own->until_ns, now_ns + REFUSES_NS);
    atomic_store(&own->lsn, lsn > own->lsn ? lsn : own->lsn);
}

/* Where nothing else is known: what a record has when it is sent is only nearly known before. */
static size_t surely_more(size_t bytes_max)
{
    return bytes_max + bytes_max / 64 + 64;
}

/* One refused record after the other, a byte smaller each, would cost a session each. */
static size_t lowered_to(size_t known, size_t bytes_max, size_t sent)
{
    if (sent > bytes_max) {
        return bytes_max + 1;
    }
    return known > bytes_max || sent < known / 4 * 3 ? sent : known / 4 * 3;
}

bool mr_topic_refuse_bytes(const struct mr_topic *topic, mr_lsn lsn, size_t bytes_max, size_t sent,
                           int64_t now_ns)
{
    struct mr_topic *own = (struct mr_topic *)(uintptr_t)topic;
    size_t known = mr_topic_refuses_sent(topic, lsn, now_ns);
    size_t from = known == 0 ? surely_more(bytes_max) : known;
    bool is_less = sent != 0 && sent < from;
    if (known != 0 && !is_less && bytes_max >= atomic_load(&own->bytes_max)) {
        return false;
    }
    begin_refusing(own, lsn, now_ns);
    if (is_less) {
        from = known == 0 ? sent : lowered_to(known, bytes_max, sent);
    }
    atomic_store(&own->refuses.sent, from);
    atomic_store(&own->bytes_max, bytes_max);
    return true;
}

bool mr_topic_refuse(const struct mr_topic *topic, mr_lsn lsn, int64_t off_ms, int64_t now_ns)
{
    struct mr_topic_refuses *own = &((struct mr_topic *)(uintptr_t)topic)->refuses;
    if (off_ms == 0 ? mr_topic_refuses_keyless(topic, lsn, now_ns)
                    : mr_topic_refuses_time(topic, lsn, off_ms, now_ns)) {
        return false;
    }
    begin_refusing((struct mr_topic *)(uintptr_t)topic, lsn, now_ns);
    if (off_ms == 0) {
        atomic_store(&own->keyless, true);
    } else {
        /* One after the other, in the order of time, would cost a session each. */
        atomic_store(&own->off_ms, atomic_load(&own->off_ms) == 0 ? off_ms : 1);
    }
    return true;
}

const char *mr_topic_fault(const char *name)
{
    enum { TOPIC_MAX = 249 };
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (name[0] == '\0') {
        return "is empty";
    }
    if (name[strspn(name, good)] != '\0') {
        return "has a character that names of topics can't have; they have letters of ASCII, "
               "digits, dots, underscores and hyphens";
    }
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return "can't be the name of a topic";
    }
    return strlen(name) > TOPIC_MAX ? "is longer than the 249 characters of a topic's name" : NULL;
}

/* Brokers refuse a name that is another's but for dots and underscores, for the sake of their
 * metrics (ReplicationControlManager.validateNewTopicNames, Topic.hasCollision). */
static bool batch_collides(const char *a, const char *b)
{
    for (; *a != '\0' && (*a == *b || (strchr("._", *a) != NULL && strchr("._", *b) != NULL));
         a++) {
        b++;
    }
    return *a == '\0' && *b == '\0';
}

static const char *value_fault(const struct mr_topics *topics, const char *name, uint32_t most)
{
    const char *fault = mr_topic_fault(name);
    if (fault == NULL && strncmp(name, "__", 2) == 0) {
        return "begins with two underscores, as the topics that Kafka and millrace keep for "
               "themselves do";
    }
    for (uint32_t i = 0; i < topics->by_name.count && fault == NULL; i++) {
        if (batch_collides(topics->items[i]->name, name)) {
            return "is that of other events, or differs from another topic's in dots and "
                   "underscores alone, which Kafka refuses";
        }
    }
    if (fault == NULL && topics->by_value >= most) {
        fault = "would be one more than the topics that values may name";
    }
    return fault;
}

const struct mr_topic *mr_topics_by_value(struct mr_topics *topics, const char *name, uint32_t most,
                                          const char **ret_fault)
{
    MR_HOLD(&naming);
    struct mr_topic *topic = batch_find(topics, name);
    *ret_fault = NULL;
    if (topic == NULL || !topic->by_value) {
        *ret_fault = value_fault(topics, name, most);
        topic = NULL;
    }
    if (topic == NULL && *ret_fault == NULL) {
        topic = batch_find_or_make(topics, name);
        topic->table = MR_STRDUP("a column's values");
        topic->by_value = true;
        topics->by_value++;
    }
    return topic;
}

void mr_topics_done(struct mr_topics *topics)
{
    for (uint32_t i = 0; i < topics->by_name.count; i++) {
        free(topics->items[i]->name);
        free(topics->items[i]->table);
        free(topics->items[i]);
    }
    free(topics->items);
    mr_index_done(&topics->by_name);
    *topics = (struct mr_topics){0};
}

/* Bytes grow up to here: the lowest record in use. */
static uint8_t *batch_ceiling(const struct mr_batch *batch)
{
    return batch->block + batch->block_size - batch->record_count * sizeof(struct mr_record);
}

struct mr_buffer mr_batch_buffer(const struct mr_batch *batch)
{
    MR_ASSERT(batch->state == MR_BATCH_FILLING);
    return mr_buffer_init(batch->bytes_at, (size_t)(batch_ceiling(batch) - batch->bytes_at));
}

bool mr_batch_commit(struct mr_batch *batch, uint8_t *bytes_at, const struct mr_record *records,
                     uint32_t count)
{
    MR_ASSERT(batch->state == MR_BATCH_FILLING);
    MR_ASSERT(bytes_at >= batch->bytes_at);
    uint8_t *ceiling = batch_ceiling(batch);
    if ((size_t)(ceiling - bytes_at) < count * sizeof(struct mr_record)) {
        return false;
    }
    struct mr_record *top = (struct mr_record *)ceiling;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(--top, &records[i], offsetof(struct mr_record, batch)); /* the rest is the sink's */
    }
    batch->record_count += count;
    batch->bytes_at = bytes_at;
    return true;
}

size_t mr_batch_used(const struct mr_batch *batch)
{
    return mr_batch_bytes(batch) + batch->record_count * sizeof(struct mr_record);
}

/* Records sit at the block's end, so its size keeps their alignment. */
static size_t block_round(size_t size)
{
    size_t unit = _Alignof(struct mr_record);
    return (size + unit - 1) / unit * unit;
}

/* Both threads make and give up blocks, but seldom. */
static void block_made(struct mr_pool *pool, size_t size)
{
    size_t now = atomic_fetch_add_explicit(&pool->arena_bytes, size, memory_order_relaxed) + size;
    size_t high = atomic_load_explicit(&pool->arena_bytes_high, memory_order_relaxed);
    while (now > high && !atomic_compare_exchange_weak(&pool->arena_bytes_high, &high, now)) {
    }
}

static void block_drop(struct mr_pool *pool, struct mr_batch *batch)
{
    free(batch->block);
    batch->block = NULL;
    atomic_fetch_sub_explicit(&pool->arena_bytes, batch->block_size, memory_order_relaxed);
    if (mr_batch_is_large(pool, batch)) {
        atomic_fetch_sub(&pool->grown_bytes, batch->block_size);
    }
}

/* A block of `size` bytes for a batch that has none. */
static void block_take(struct mr_pool *pool, struct mr_batch *batch, size_t size)
{
    batch->block_size = size;
    batch->block = MR_ALLOC(size);
    batch->bytes_at = batch->block;
    block_made(pool, size);
}

/* Of what is for large blocks: those there are, and the batches that are lent. Both callers double
 * it, and a batch counts four times (flow/memory.c, POOL_FACTOR), so these are twice in it. */
static size_t taken_of_large(const struct mr_pool *pool)
{
    return atomic_load(&pool->grown_bytes) + 2 * atomic_load(&pool->lent) * pool->block_size;
}

bool mr_pool_admits(const struct mr_pool *pool, const struct mr_batch *batch, size_t size)
{
    size_t others = taken_of_large(pool);
    if (batch != NULL && mr_batch_is_large(pool, batch)) {
        others -= batch->block_size;
    }
    return others == 0 || 2 * others + size + pool->block_size_max <= pool->large_max;
}

static bool may_lend(const struct mr_pool *pool)
{
    size_t with_it = taken_of_large(pool) + 2 * pool->block_size;
    return atomic_load(&pool->lent) < atomic_load(&pool->lends) && !atomic_load(&pool->crowded) &&
           2 * with_it + pool->block_size_max <= pool->large_max;
}

/* A batch that is free and was lent, or another in its place. With `fillers`. */
static void put_away(struct mr_pool *pool, struct mr_batch *batch)
{
    if (batch->block != NULL) {
        block_drop(pool, batch);
    }
    pool->spare[pool->spare_count++] = batch;
    atomic_fetch_sub(&pool->lent, 1);
}

/* A large block waits for what is lent, of which some may be free. With `fillers`. */
static void call_in(struct mr_pool *pool)
{
    struct mr_batch *batch;
    atomic_store(&pool->crowded, true);
    while (atomic_load(&pool->lent) > 0 && (batch = mr_ring_pop(&pool->free)) != NULL) {
        put_away(pool, batch);
    }
}

bool mr_batch_grow(struct mr_pool *pool, struct mr_batch *batch, size_t size)
{
    MR_ASSERT(batch->state == MR_BATCH_FILLING);
    MR_ASSERT(batch->record_count == 0);
    MR_ASSERT(size > pool->block_size && size <= pool->block_size_max);
    pthread_mutex_lock(&pool->fillers); /* one more is admitted at a time */
    if (!mr_pool_admits(pool, batch, size)) {
        call_in(pool);
    }
    bool admitted = mr_pool_admits(pool, batch, size);
    if (admitted) {
        atomic_store(&pool->crowded, false);
        block_drop(pool, batch);
        batch->block_size = block_round(size);
        atomic_fetch_add(&pool->grown_bytes, batch->block_size);
    }
    pthread_mutex_unlock(&pool->fillers);
    if (!admitted) {
        return false;
    }
    block_take(pool, batch, batch->block_size);
    return true;
}

void mr_batch_shrink(struct mr_pool *pool, struct mr_batch *batch)
{
    MR_ASSERT(batch->state == MR_BATCH_FILLING);
    MR_ASSERT(batch->record_count == 0);
    if (mr_batch_is_large(pool, batch)) {
        block_drop(pool, batch);
        block_take(pool, batch, pool->block_size);
    }
}

void mr_pool_init(struct mr_pool *pool, uint32_t count, uint32_t most, size_t block_size,
                  size_t block_size_max)
{
    MR_ASSERT(most >= count);
    *pool = (struct mr_pool){.count = count, .most = most, .large_max = SIZE_MAX};
    pool->batches = MR_NEW_ARRAY(struct mr_batch, most);
    pool->spare = MR_NEW_ARRAY(struct mr_batch *, most);
    pool->block_size = block_round(block_size);
    pool->block_size_max = block_size_max < pool->block_size ? pool->block_size : block_size_max;
    mr_ring_init(&pool->free, most);
    pthread_mutex_init(&pool->fillers, NULL);
    for (uint32_t i = 0; i < count; i++) {
        MR_ASSERT(mr_ring_push(&pool->free, &pool->batches[i]));
    }
    for (uint32_t i = most; i > count; i--) {
        pool->spare[pool->spare_count++] = &pool->batches[i - 1];
    }
}

void mr_pool_done(struct mr_pool *pool)
{
    for (uint32_t i = 0; i < pool->most; i++) {
        free(pool->batches[i].block);
    }
    free(pool->batches);
    free(pool->spare);
    pthread_mutex_destroy(&pool->fillers);
    mr_ring_done(&pool->free);
}

void mr_pool_lend(struct mr_pool *pool, uint32_t times)
{
    uint32_t more = times < 2 ? 0 : (times - 1) * pool->count;
    more = more < pool->most - pool->count ? more : pool->most - pool->count;
    if (MR_UNLIKELY(more != atomic_load_explicit(&pool->lends, memory_order_relaxed))) {
        atomic_store(&pool->lends, more);
    }
}

bool mr_pool_has_batch(const struct mr_pool *pool, uint32_t beside)
{
    return mr_ring_count(&pool->free) > beside || may_lend(pool);
}

struct mr_batch *mr_pool_acquire(struct mr_pool *pool)
{
    pthread_mutex_lock(&pool->fillers);
    struct mr_batch *batch = mr_ring_pop(&pool->free);
    if (batch == NULL && may_lend(pool)) {
        batch = pool->spare[--pool->spare_count];
        atomic_fetch_add(&pool->lent, 1);
    }
    pthread_mutex_unlock(&pool->fillers);
    if (batch == NULL) {
        return NULL;
    }
    MR_ASSERT(batch->state == MR_BATCH_FREE);
    if (batch->block == NULL) {
        block_take(pool, batch, pool->block_size);
    }
    batch->state = MR_BATCH_FILLING;
    batch->bytes_at = batch->block;
    batch->record_count = 0;
    batch->pending = 0;
    batch->confirm_lsn = 0;
    batch->lane = 0;
    batch->sequence = 0;
    return batch;
}

/* Of batches that are lent, while most are free, there are more than may be, or a large block
 * waits. */
static bool give_up(struct mr_pool *pool, struct mr_batch *batch)
{
    MR_HOLD(&pool->fillers);
    uint32_t lent = atomic_load(&pool->lent);
    bool most_are_free = mr_ring_count(&pool->free) >= (pool->count + lent) / 4 * 3;
    bool are_wanted = !most_are_free && lent <= atomic_load(&pool->lends);
    if (lent == 0 || (are_wanted && !atomic_load(&pool->crowded))) {
        return false;
    }
    put_away(pool, batch);
    return true;
}

void mr_pool_release(struct mr_pool *pool, struct mr_batch *batch)
{
    MR_ASSERT(batch->state != MR_BATCH_FREE);
    batch->state = MR_BATCH_FREE;
    if (mr_batch_is_large(pool, batch)) {
        block_drop(pool, batch);
    }
    if (MR_LIKELY(atomic_load(&pool->lent) == 0) || !give_up(pool, batch)) {
        MR_ASSERT(mr_ring_push(&pool->free, batch));
    }
}
