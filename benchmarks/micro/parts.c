/* Batch, ring, acknowledgement window, record headers, JSON escapes, and the sums of a ledger. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/ring.h"
#include "event/batch.h"
#include "flow/ack.h"
#include "ledger/sums.h"
#include "micro.h"
#include "sink/record_headers.h"

enum { RECORD_BYTES = 600, BATCH_BYTES = 256 * 1024, BATCHES = 8 };

static void *batch_open(void)
{
    struct mr_pool *pool = MR_NEW(struct mr_pool);
    mr_pool_init(pool, BATCHES, BATCHES, BATCH_BYTES, BATCH_BYTES);
    return pool;
}

static uint64_t batch_run(void *state, uint32_t count)
{
    struct mr_pool *pool = state;
    struct mr_batch *batch = mr_pool_acquire(pool);
    uint64_t hash = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct mr_buffer buffer = mr_batch_buffer(batch);
        struct mr_record record = {.value = buffer.at, .value_len = RECORD_BYTES, .xid = i};
        mr_buffer_reserve(&buffer, RECORD_BYTES);
        if (buffer.full || !mr_batch_commit(batch, buffer.at, &record, 1)) {
            hash += mr_batch_used(batch) + mr_batch_record(batch, 0)->xid;
            mr_pool_release(pool, batch);
            batch = mr_pool_acquire(pool);
        }
    }
    mr_pool_release(pool, batch);
    return hash;
}

static void batch_close(void *state)
{
    mr_pool_done(state);
    free(state);
}

const struct micro_bench micro_batch = {
    .name = "batch", .event = "record", .open = batch_open, .run = batch_run, .close = batch_close};

enum { RING_CAPACITY = 64, RING_WAITING = 7 };

static void *ring_open(void)
{
    struct mr_ring *ring = aligned_alloc(_Alignof(struct mr_ring), sizeof(struct mr_ring));
    MR_ASSERT(ring != NULL);
    mr_ring_init(ring, RING_CAPACITY);
    static char items[RING_WAITING];
    for (size_t i = 0; i < RING_WAITING; i++) {
        MR_ASSERT(mr_ring_push(ring, &items[i]));
    }
    return ring;
}

static uint64_t ring_run(void *state, uint32_t count)
{
    struct mr_ring *ring = state;
    uint64_t popped = 0;
    for (uint32_t i = 0; i < count; i++) {
        void *item = mr_ring_pop(ring);
        popped += item != NULL && mr_ring_push(ring, item);
    }
    return popped;
}

static void ring_close(void *state)
{
    mr_ring_done(state);
    free(state);
}

const struct micro_bench micro_ring = {
    .name = "ring", .event = "item", .open = ring_open, .run = ring_run, .close = ring_close};

enum { ACK_CAPACITY = 64, ACK_GROUP = 4 };

static void *ack_open(void)
{
    struct mr_ack *ack = MR_NEW(struct mr_ack);
    mr_ack_init(ack, ACK_CAPACITY);
    return ack;
}

static uint64_t ack_run(void *state, uint32_t count)
{
    struct mr_ack *ack = state;
    for (uint32_t done = 0; done < count; done += ACK_GROUP) {
        uint64_t first = ack->next;
        for (uint32_t i = 0; i < ACK_GROUP; i++) {
            mr_ack_add(ack, first + i, first + i, &(struct mr_commit){0}, 0);
        }
        for (uint32_t i = ACK_GROUP; i-- > 0;) {
            mr_ack_complete(ack, first + i);
        }
    }
    return ack->acknowledged;
}

static void ack_close(void *state)
{
    mr_ack_done(state);
    free(state);
}

const struct micro_bench micro_ack = {
    .name = "ack", .event = "batch", .open = ack_open, .run = ack_run, .close = ack_close};

enum { TRANSACTION_ROWS = 100 };

static void *nothing_open(void)
{
    return NULL;
}

static void nothing_close(void *state)
{
    (void)state;
}

static uint64_t headers_run(void *state, uint32_t count)
{
    (void)state;
    uint64_t hash = 0;
    struct mr_record_headers headers = {.xid_len = 0};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t transaction = i / TRANSACTION_ROWS;
        struct mr_record record = {
            .position = {.commit_lsn = UINT64_C(0x123456789) + transaction,
                         .ordinal = i % TRANSACTION_ROWS},
            .commit_time_us = INT64_C(1767323045123456) + transaction,
            .xid = 700 + transaction,
        };
        mr_record_headers_format(&record, &headers);
        hash += (uint64_t)headers.position[26] + headers.xid_len + headers.commit_time_len;
    }
    return hash;
}

const struct micro_bench micro_headers = {.name = "headers",
                                          .event = "record",
                                          .open = nothing_open,
                                          .run = headers_run,
                                          .close = nothing_close};

static uint64_t escape_run(void *state, uint32_t count)
{
    (void)state;
    static const char text[] =
        "plain text of some length, then \"quotes\", a\ttab, \\ and \xC3\xA9";
    uint8_t bytes[256];
    uint64_t hash = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
        mr_json_string(&out, (const uint8_t *)text, sizeof(text) - 1);
        hash += (uint64_t)(out.at - bytes) + bytes[i % 64];
    }
    return hash;
}

const struct micro_bench micro_escape = {.name = "escape",
                                         .event = "text",
                                         .open = nothing_open,
                                         .run = escape_run,
                                         .close = nothing_close};

/* Records of a batch go to six partitions; batches are told of one by one. */
enum { LEDGER_PARTITIONS = 6, LEDGER_BATCH_RECORDS = 200, KEY_BYTES = 20 };

static void *ledger_open(void)
{
    struct mr_sums *sums = MR_NEW(struct mr_sums);
    mr_sums_begin(sums, (struct mr_position){0});
    return sums;
}

static uint64_t ledger_run(void *state, uint32_t count)
{
    static uint64_t transaction;
    static uint8_t bytes[KEY_BYTES + RECORD_BYTES];
    static const struct mr_topic topic = {.index = 1};
    struct mr_sums *sums = state;
    struct mr_batch batch = {.sequence = 0};
    for (uint32_t i = 0; i < count; i++) {
        if (i % LEDGER_BATCH_RECORDS == 0) {
            transaction += 0x100;
            batch.sequence++;
            batch.confirm_lsn = transaction + 0x80;
        }
        struct mr_record record = {
            .topic = &topic,
            .position = {.commit_lsn = transaction, .ordinal = i + 1},
            .batch = &batch,
        };
        mr_record_set_key(&record, (mr_slice){.data = bytes, .len = KEY_BYTES});
        mr_record_set_value(&record, (mr_slice){.data = bytes + KEY_BYTES, .len = RECORD_BYTES});
        mr_sums_add(sums, &record, (int32_t)(i % LEDGER_PARTITIONS));
        if (i % LEDGER_BATCH_RECORDS == LEDGER_BATCH_RECORDS - 1) {
            mr_sums_fold(sums, &(struct mr_reach){.end_lsn = batch.confirm_lsn,
                                                  .sequences = &batch.sequence});
        }
    }
    return sums->range.bytes;
}

static void ledger_close(void *state)
{
    mr_sums_done(state);
    free(state);
}

const struct micro_bench micro_ledger = {.name = "ledger",
                                         .event = "record",
                                         .open = ledger_open,
                                         .run = ledger_run,
                                         .close = ledger_close};
