/* Batches: the only thing that moves between threads, and the pool that bounds all memory of the
 * flow.
 *
 * A batch is one block of memory: keys and values grow up from its beginning, the records that
 * point at them grow down from its end. Kafka gets pointers into the block, so a batch comes home
 * only after its last delivery report. Passing a batch passes ownership:
 *
 *   free (pool) -> filling (its lane's thread) -> sealed (in the ring) -> sending (sink thread) ->
 *   free
 *
 * An empty pool is the flow's only backpressure. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/buffer.h"
#include "base/index.h"
#include "base/ring.h"
#include "event/event.h"
#include "event/headers.h"

/* What a topic does not take of events whose form values in them made. Somebody may set the topic
 * otherwise, so it is forgotten after a while; not before the transactions that had such a record
 * were sent, for they come again. */
struct mr_topic_refuses {
    _Atomic mr_lsn lsn; /* of the last of them; 0: none */
    _Atomic int64_t until_ns;
    _Atomic bool keyless;
    _Atomic int64_t off_ms; /* times of their own this far from the commit's; 0: it takes all */
    _Atomic size_t sent;    /* more than bytes_max, and so many as they are sent; 0: it takes all */
};

/* A destination. One object a name, alive until the end of the process; `index` counts from 0. */
struct mr_topic {
    char *name;
    char *table;   /* whose events it holds, quoted; NULL: no table's alone */
    bool by_value; /* a value in a row named it */
    uint32_t index;
    _Atomic int32_t partitions; /* as the sink knows in this session; 0: not known */
    _Atomic size_t bytes_max;   /* as it said last, when it had refused more; 0: not known */
    struct mr_topic_refuses refuses;
};

struct mr_topics {
    struct mr_topic **items;
    uint32_t capacity;
    struct mr_index by_name; /* of them */
    uint32_t by_value;       /* of them, that a value named */
};

/* The topic of that name, made on first use. Any thread: a lock is taken, so never for each
 * event. */
const struct mr_topic *mr_topics_intern(struct mr_topics *topics, const char *name);

/* The same for the events of one table. `ret_other` gets whose the topic is already: two tables
 * could have the same key. */
const struct mr_topic *mr_topics_claim(struct mr_topics *topics, const char *name,
                                       const char *table, const char **ret_other);
/* The same for a name that a value in a row has made. NULL, with the reason in `ret_fault`: Kafka
 * takes no such name, it is that of other events, or there are `most` of these already. */
const struct mr_topic *mr_topics_by_value(struct mr_topics *topics, const char *name, uint32_t most,
                                          const char **ret_fault);

/* That of an index; NULL: there are fewer. Any thread. */
const struct mr_topic *mr_topics_at(struct mr_topics *topics, uint32_t index);

/* The topic has refused a record of the transaction that commits at `lsn`: for want of a key
 * (`off_ms` is 0), or for a time of its own that is so far from the commit's. False: that is known,
 * and the record came all the same. Sink thread; wall clock. */
bool mr_topic_refuse(const struct mr_topic *topic, mr_lsn lsn, int64_t off_ms, int64_t now_ns);

/* The same for a record, or several in one request, of more bytes than the `bytes_max` that the
 * topic says it takes. `sent`: the bytes of that record as it was sent, compressed; 0: it is not
 * known which it was. */
bool mr_topic_refuse_bytes(const struct mr_topic *topic, mr_lsn lsn, size_t bytes_max, size_t sent,
                           int64_t now_ns);

/* Whether it is known to refuse such a record. */
bool mr_topic_refuses_keyless(const struct mr_topic *topic, mr_lsn lsn, int64_t now_ns);
bool mr_topic_refuses_time(const struct mr_topic *topic, mr_lsn lsn, int64_t off_ms,
                           int64_t now_ns);
/* From how many bytes on, as it is sent, it refuses one that is more than bytes_max; 0: from
 * none. */
size_t mr_topic_refuses_sent(const struct mr_topic *topic, mr_lsn lsn, int64_t now_ns);

/* The sink thread sets it, any reads it. */
void mr_topic_set_partitions(const struct mr_topic *topic, int32_t partitions);

/* What keeps a text from being the name of a topic; NULL: nothing. Kafka's rule
 * (org.apache.kafka.common.internals.Topic). */
const char *mr_topic_fault(const char *name);

void mr_topics_done(struct mr_topics *topics);

/* What a record is, when it is no ordinary event. */
enum mr_record_kind {
    MR_RECORD_EVENT,
    /* in the dead-letter topic: where an event is to be found that was too large */
    MR_RECORD_LETTER,
    MR_RECORD_SCHEMA,      /* the form of a table, before its first row that has it */
    MR_RECORD_CLOUD,       /* a CloudEvent; its id is its position */
    MR_RECORD_TRANSACTION, /* the beginning or end of a transaction */
};

/* What the bytes of a key or value are, where they are written into something else. */
enum mr_content {
    MR_CONTENT_JSON,
    MR_CONTENT_TEXT,
    MR_CONTENT_BINARY,
    MR_CONTENT_FRAMED, /* binary, after the frame of a schema (event/schemas.h) */
};

struct mr_batch;

/* One message for the sink. `key` NULL is a null key, `value` NULL a tombstone. */
struct mr_record {
    const struct mr_topic *topic;
    const uint8_t *key;
    const uint8_t *value;
    uint32_t key_len;
    uint32_t value_len;
    struct mr_position position;
    int64_t commit_time_us;  /* since 1970 */
    uint32_t xid;            /* 0: none */
    uint8_t part;            /* 0, 1, 2: of a changed key; 9: of a schema; 8, 9: of a transaction */
    uint8_t kind;            /* enum mr_record_kind */
    uint8_t key_content : 4; /* enum mr_content */
    uint8_t value_content : 4;
    bool has_headers : 1; /* of its own (event/headers.h), after the value, else after the key */
    bool yields : 1; /* anybody may have written it: it goes rather than that the stream ends */
    /* The sink's own, once it has the batch: whose record it is, and the next that waits with it or
     * where it is in flight. */
    struct mr_batch *batch;
    union {
        struct mr_record *next;
        void *flight;
    };
};

static inline void mr_record_set_key(struct mr_record *record, mr_slice key)
{
    record->key = key.data;
    record->key_len = (uint32_t)key.len;
}

static inline void mr_record_set_value(struct mr_record *record, mr_slice value)
{
    record->value = value.data;
    record->value_len = (uint32_t)value.len;
}

/* Its own headers; NULL: none. */
static inline const uint8_t *mr_record_headers(const struct mr_record *record)
{
    if (MR_LIKELY(!record->has_headers)) {
        return NULL;
    }
    return record->value != NULL ? record->value + record->value_len
                                 : record->key + record->key_len;
}

/* What it counts for where records have a largest size. */
static inline size_t mr_record_bytes(const struct mr_record *record)
{
    return (size_t)record->key_len + record->value_len +
           mr_headers_bytes(mr_record_headers(record));
}

enum mr_batch_state {
    MR_BATCH_FREE,
    MR_BATCH_FILLING,
    MR_BATCH_SEALED,
    MR_BATCH_SENDING,
};

struct mr_batch {
    enum mr_batch_state state;
    uint32_t lane;    /* who filled it: flow/lane.h */
    uint32_t session; /* the sink session it was filled for; the sink drops what is of an old one */
    uint64_t sequence;  /* 1, 2, 3 … in order of the lane's hand-over within a session */
    mr_lsn confirm_lsn; /* may be confirmed once it and all before it are acknowledged; 0: none */
    struct mr_commit last; /* with confirm_lsn: the last transaction with rows before it */
    uint64_t step;         /* of its lane, that is safe with it: ports/companion.h; 0: none */
    uint8_t *block;
    size_t block_size;
    uint8_t *bytes_at; /* end of what is written */
    uint32_t record_count;
    /* When the first change in it was received, decoded, encoded and given to the sink (monotonic;
     * the first also by the wall clock). */
    int64_t received_wall_ns, received_ns, decoded_ns, encoded_ns, enqueued_ns;
    /* The sink thread's own. */
    uint32_t pending; /* records that are not reported yet, once the sink has it */
    bool with_sink;   /* taken from the ring, not yet given back */
};

/* Room for one change. The writer appends into `buffer`; mr_batch_commit then keeps what was
 * written. */
struct mr_buffer mr_batch_buffer(const struct mr_batch *batch);

/* Adds `count` records and the bytes written up to `bytes_at` (the buffer's `at`). False, with the
 * batch as it was, when the records don't fit above those bytes. The thread that fills it. */
MR_MUST_USE bool mr_batch_commit(struct mr_batch *batch, uint8_t *bytes_at,
                                 const struct mr_record *records, uint32_t count);

/* The i-th record in order of addition. */
static inline const struct mr_record *mr_batch_record(const struct mr_batch *batch, uint32_t i)
{
    return (const struct mr_record *)(batch->block + batch->block_size) - 1 - i;
}

/* The same, for the sink that has the batch. */
static inline struct mr_record *mr_batch_own_record(struct mr_batch *batch, uint32_t i)
{
    return (struct mr_record *)(batch->block + batch->block_size) - 1 - i;
}

/* Replaces the block of an empty filling batch by one of at least `size` bytes, for a single change
 * that no standard block holds; `size` is at most the pool's maximum. False, with the batch as it
 * was, while larger blocks that are out leave no room for it. The thread that fills it. */
struct mr_pool;
MR_MUST_USE bool mr_batch_grow(struct mr_pool *pool, struct mr_batch *batch, size_t size);

/* The standard block in place of a larger one. The batch is filling and empty; the thread that
 * fills it. */
void mr_batch_shrink(struct mr_pool *pool, struct mr_batch *batch);

/* Bytes of keys and values. */
static inline size_t mr_batch_bytes(const struct mr_batch *batch)
{
    return (size_t)(batch->bytes_at - batch->block);
}

/* Bytes and records in use. */
size_t mr_batch_used(const struct mr_batch *batch);

struct mr_pool {
    struct mr_batch *batches;
    uint32_t count;
    size_t block_size;          /* of a standard block */
    size_t block_size_max;      /* of a grown one */
    size_t large_max;           /* see mr_pool_admits; SIZE_MAX at first */
    struct mr_ring free;        /* released by the sink thread, acquired by those who fill */
    pthread_mutex_t fillers;    /* one of them at a time; once a batch */
    _Atomic size_t arena_bytes; /* of all blocks there are, and the most that was */
    _Atomic size_t arena_bytes_high;
    _Atomic size_t grown_bytes; /* of blocks larger than the standard */
    uint32_t most;              /* batches, those that may be lent included */
    struct mr_batch **spare;    /* those that are not, */
    uint32_t spare_count;       /* so many; both the fillers' */
    _Atomic uint32_t lends;     /* so many at most, now, */
    _Atomic uint32_t lent;      /* of which these are */
    /* a large block waits for room: none is lent, and those that are come home for good */
    _Atomic bool crowded;
};

/* `count` batches, and up to `most` while it lends (mr_pool_lend). */
void mr_pool_init(struct mr_pool *pool, uint32_t count, uint32_t most, size_t block_size,
                  size_t block_size_max);
void mr_pool_done(struct mr_pool *pool);

/* Whether `batch` (NULL: one that is yet to come) may have a block of `size` bytes now: twice the
 * large blocks of other batches (they may be compressed just now), four times those that are lent
 * (flow/memory.c, POOL_FACTOR), this one, and the largest message there may be, are within
 * `large_max`. A large block is always admitted when there is no other. A thread that fills. */
bool mr_pool_admits(const struct mr_pool *pool, const struct mr_batch *batch, size_t size);

static inline bool mr_batch_is_large(const struct mr_pool *pool, const struct mr_batch *batch)
{
    return batch->block_size > pool->block_size;
}

/* It may be `times` as large from now on, as far as `large_max` allows: its memory is borrowed from
 * large blocks. Who needs a batch takes one more; they are given up while most are free, or there
 * are more than that. Sink thread. */
void mr_pool_lend(struct mr_pool *pool, uint32_t times);

/* Whether there is a batch to acquire while so many are left to others. Any thread. */
bool mr_pool_has_batch(const struct mr_pool *pool, uint32_t beside);

/* An empty batch in state filling, or NULL when all are out. Any thread that fills. */
struct mr_batch *mr_pool_acquire(struct mr_pool *pool);

/* Takes a batch back in any state; a grown block is given up. Sink thread. */
void mr_pool_release(struct mr_pool *pool, struct mr_batch *batch);
