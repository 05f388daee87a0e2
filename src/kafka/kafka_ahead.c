#include "kafka/kafka_ahead.h"

#include "base/clock.h"
#include "base/thread.h"
#include "event/headers.h"

enum { CHUNK = 256, CHUNKS = 4, POLL_MS = 500 };

struct chunk {
    struct mr_kafka_taken taken[CHUNK];
    size_t count;
};

struct mr_kafka_ahead {
    rd_kafka_queue_t *queue;
    pthread_t thread;
    pthread_mutex_t lock; /* of the next four */
    pthread_cond_t turned;
    bool is_left;
    uint64_t filled, emptied; /* chunks since the start */
    /* What is filled and not emptied is the asking thread's, the others are the taking one's. */
    struct chunk chunks[CHUNKS];
    const struct chunk *chunk; /* that is being emptied */
    size_t next;
};

static void destroy(struct chunk *chunk)
{
    for (size_t i = 0; i < chunk->count; i++) {
        rd_kafka_message_destroy(chunk->taken[i].message);
    }
    chunk->count = 0;
}

/* Of several of one name the last counts. */
static void find_headers(const rd_kafka_headers_t *headers, struct mr_kafka_read *read)
{
    const struct {
        const char *name;
        mr_slice *to;
    } wanted[] = {{"mr-pos", &read->position},
                  {"mr-xid", &read->xid},
                  {MR_HEADER_OVERSIZE, &read->oversize},
                  {MR_HEADER_RESELECTED_COLUMNS, &read->later}};
    const char *name;
    const void *value;
    size_t len;
    for (size_t i = 0;
         rd_kafka_header_get_all(headers, i, &name, &value, &len) == RD_KAFKA_RESP_ERR_NO_ERROR;
         i++) {
        for (size_t j = 0; j < MR_ARRAY_LEN(wanted); j++) {
            if (strcmp(name, wanted[j].name) == 0) {
                *wanted[j].to = (mr_slice){.data = value, .len = len};
            }
        }
    }
}

static void kafka_ahead_copy(mr_slice *bytes, uint8_t *to)
{
    if (bytes->data != NULL) {
        memcpy(to, bytes->data, bytes->len);
        bytes->data = to;
    }
}

/* librdkafka allocates a few times for headers that are looked at. Those of a whole chunk would be
 * more than malloc keeps at hand. */
static void take_headers(struct mr_kafka_taken *taken)
{
    struct mr_kafka_read *read = &taken->read;
    rd_kafka_headers_t *headers;
    if (rd_kafka_message_headers(taken->message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return;
    }
    find_headers(headers, read);
    bool has_more = read->oversize.data != NULL || read->later.data != NULL;
    if (has_more || read->position.len + read->xid.len > sizeof(taken->copied)) {
        return;
    }
    kafka_ahead_copy(&read->position, taken->copied);
    kafka_ahead_copy(&read->xid, taken->copied + read->position.len);
    rd_kafka_message_detach_headers(taken->message, &headers);
    rd_kafka_headers_destroy(headers);
}

/* A key or a value of no bytes is there nevertheless. */
static void kafka_ahead_take(rd_kafka_message_t *message, struct mr_kafka_taken *ret)
{
    *ret = (struct mr_kafka_taken){.message = message,
                                   .err = message->err,
                                   .read = {
                                       .partition = message->partition,
                                       .offset = message->offset,
                                       .key = {.data = message->key, .len = message->key_len},
                                       .value = {.data = message->payload, .len = message->len},
                                   }};
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        take_headers(ret);
    }
}

static void kafka_ahead_fill(rd_kafka_queue_t *queue, struct chunk *chunk)
{
    rd_kafka_message_t *messages[CHUNK];
    destroy(chunk);
    /* One is waited for (waiting for more would be waiting for a whole chunk), then all that is
     * there is taken. In this order: a stop's yield ends the next call that finds nothing
     * (rd_kafka_q_serve_rkmessages in rdkafka_queue.c), which must be the one that waits. */
    ssize_t count = rd_kafka_consume_batch_queue(queue, POLL_MS, messages, 1);
    if (count == 1) {
        ssize_t more = rd_kafka_consume_batch_queue(queue, 0, messages + 1, CHUNK - 1);
        count += more > 0 ? more : 0;
    }
    chunk->count = count > 0 ? (size_t)count : 0;
    for (size_t i = 0; i < chunk->count; i++) {
        kafka_ahead_take(messages[i], &chunk->taken[i]);
    }
}

static void *ahead_main(void *context)
{
    struct mr_kafka_ahead *ahead = context;
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->is_left) {
        if (ahead->filled - ahead->emptied == CHUNKS) {
            pthread_cond_wait(&ahead->turned, &ahead->lock);
            continue;
        }
        struct chunk *chunk = &ahead->chunks[ahead->filled % CHUNKS];
        pthread_mutex_unlock(&ahead->lock);
        kafka_ahead_fill(ahead->queue, chunk);
        pthread_mutex_lock(&ahead->lock);
        ahead->filled += chunk->count > 0;
        pthread_cond_signal(&ahead->turned);
    }
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

static void kafka_ahead_end(struct mr_kafka_ahead *ahead)
{
    pthread_cond_destroy(&ahead->turned);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead);
}

mr_status mr_kafka_ahead_start(rd_kafka_queue_t *queue, struct mr_kafka_ahead **ret_ahead,
                               struct mr_error *ret_error)
{
    struct mr_kafka_ahead *ahead = MR_NEW(struct mr_kafka_ahead);
    *ahead = (struct mr_kafka_ahead){.queue = queue};
    pthread_mutex_init(&ahead->lock, NULL);
    mr_cond_init(&ahead->turned);
    mr_status status = mr_thread_create(&ahead->thread, ahead_main, ahead, ret_error);
    if (status != MR_OK) {
        kafka_ahead_end(ahead);
        return status;
    }
    *ret_ahead = ahead;
    return MR_OK;
}

void mr_kafka_ahead_stop(struct mr_kafka_ahead *ahead)
{
    if (ahead == NULL) {
        return;
    }
    pthread_mutex_lock(&ahead->lock);
    ahead->is_left = true;
    pthread_cond_signal(&ahead->turned);
    pthread_mutex_unlock(&ahead->lock);
    rd_kafka_queue_yield(ahead->queue);
    pthread_join(ahead->thread, NULL);
    for (size_t i = 0; i < CHUNKS; i++) {
        destroy(&ahead->chunks[i]);
    }
    kafka_ahead_end(ahead);
}

const struct mr_kafka_taken *mr_kafka_ahead_next(struct mr_kafka_ahead *ahead)
{
    if (ahead->chunk != NULL && ahead->next < ahead->chunk->count) {
        return &ahead->chunk->taken[ahead->next++];
    }
    int64_t end_ns = mr_monotonic_ns() + POLL_MS * INT64_C(1000000);
    pthread_mutex_lock(&ahead->lock);
    if (ahead->chunk != NULL) {
        ahead->chunk = NULL;
        ahead->emptied++;
        pthread_cond_signal(&ahead->turned);
    }
    bool in_time = true;
    while (ahead->filled == ahead->emptied && in_time) {
        in_time = mr_cond_wait_until(&ahead->turned, &ahead->lock, end_ns);
    }
    if (ahead->filled > ahead->emptied) {
        ahead->chunk = &ahead->chunks[ahead->emptied % CHUNKS];
        ahead->next = 0;
    }
    pthread_mutex_unlock(&ahead->lock);
    return ahead->chunk == NULL ? NULL : &ahead->chunk->taken[ahead->next++];
}
