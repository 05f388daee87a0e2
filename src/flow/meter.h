/* What the two threads of a pipeline count and time.
 *
 * Each thread writes its own part with relaxed stores; other threads only read. Clocks are read
 * once a batch or once a wait, never once a row: the times of a batch are those of its first
 * change, which waits longest. */
#pragma once

#include "base/counter.h"
#include "event/batch.h"
#include "metrics/histogram.h"

/* The stages of a change's way; each is timed from the one before, the first from the commit. */
enum mr_path {
    MR_PATH_RECEIVE,
    MR_PATH_DECODE,
    MR_PATH_ENCODE,
    MR_PATH_PRODUCE,
    MR_PATH_FLUSH,
    MR_PATH_ACKNOWLEDGE,
    MR_PATH_COUNT
};
const char *mr_path_name(enum mr_path path); /* "receive", …: the stage's */

struct mr_meter {
    /* The source thread's. */
    _Alignas(64) struct mr_histogram received;
    struct mr_histogram decoded;
    struct mr_histogram encoded;
    struct mr_histogram confirmed;
    struct mr_histogram batch_records;
    struct mr_histogram batch_bytes;
    struct mr_histogram batch_fill;
    struct mr_histogram transaction_changes;
    struct mr_histogram transaction_bytes;
    mr_counter encode_ns; /* spent encoding, from one change a batch */
    mr_counter source_wait_ns;
    mr_counter used_handed; /* memory of all batches handed over, */
    mr_counter source_errors[MR_STATUS_COUNT];

    /* The sink thread's. */
    _Alignas(64) struct mr_histogram enqueued;
    struct mr_histogram flush; /* also the time to acknowledged */
    struct mr_histogram latency;
    mr_counter bytes_acked;
    mr_counter used_returned; /* and of those that came home */
    _Atomic int64_t commit_us_confirmed;
    mr_counter rebuild_reasons[MR_STATUS_COUNT];
    uint64_t newest_sequence; /* of the batches that are done; the sink thread's alone */
    int64_t newest_commit_us;

    /* When the oldest acknowledgement came that is not confirmed to PostgreSQL; 0: none. Set by the
     * sink thread, taken by the source thread. */
    _Alignas(64) _Atomic int64_t unconfirmed_ns;
};

/* What the meter needs to know of a batch when it is acknowledged; it may be home by then. */
struct mr_meter_mark {
    uint32_t lane;
    uint64_t sequence;
    uint32_t records;
    uint64_t bytes;
    int64_t encoded_ns;
    int64_t enqueued_ns;
    int64_t first_commit_us; /* of its first record and of its last */
    int64_t last_commit_us;
};

void mr_meter_init(struct mr_meter *meter);

/* The first change of `batch` is in it. Monotonic times, and the wall clock when it was
 * received. */
void mr_meter_first(struct mr_batch *batch, int64_t received_ns, int64_t received_wall_ns,
                    int64_t decoded_ns);

/* Each lane's thread, with hand_over.lock. */
void mr_meter_hand_over(struct mr_meter *meter, const struct mr_batch *batch);
void mr_meter_confirmed(struct mr_meter *meter, int64_t now_ns);

struct mr_meter_mark mr_meter_mark(const struct mr_batch *batch);
/* All of the batch is acknowledged. `delivered`: the sequence up to which all are, if that moved;
 * else 0. */
void mr_meter_acknowledge(struct mr_meter *meter, const struct mr_meter_mark *mark,
                          uint64_t delivered);

const struct mr_histogram *mr_meter_path(const struct mr_meter *meter, enum mr_path path);
