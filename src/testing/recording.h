/* Streams of CopyData payloads as a server sends them, put together by the builder: what the
 * micro-benchmarks measure, the test of failing allocations replays, and the fuzzers begin with.
 *
 * A recording is its payloads, each after its length (Int16), so that it can be kept as a file. */
#ifndef MR_TESTING_RECORDING_H
#define MR_TESTING_RECORDING_H

#include "event/event.h"
#include "testing/pgoutput_builder.h"

/* All zero is an empty one. */
struct mr_recording {
    uint8_t *bytes;
    size_t len;
    size_t capacity;
    uint32_t changes;
    mr_lsn end; /* where the next record would begin */
};

void mr_recording_done(struct mr_recording *recording);

/* Adds the message as data whose record begins at `lsn`, or a keepalive. */
void mr_recording_message(struct mr_recording *recording, mr_lsn lsn, const struct mr_wire *wire);
void mr_recording_keepalive(struct mr_recording *recording, mr_lsn server_end, bool reply);

/* `rows` inserts into the seven-column table of benchmarks/bench_stand.py, `rows_per_transaction` a
 * transaction; the same for each call. */
void mr_recording_rows(struct mr_recording *recording, uint32_t rows,
                       uint32_t rows_per_transaction);

/* Every message and every kind of value once or more: several tables, changes of shape, keys
 * changed, TRUNCATE, messages, origins, keepalives, text that must be escaped. */
void mr_recording_everything(struct mr_recording *recording);

/* Adds a payload as it is; one that is longer than its length can say is left out. */
void mr_recording_payload(struct mr_recording *recording, mr_slice payload);

/* The payload at `*at`, which moves past it; false at the end. A length that passes the end means
 * the rest: any bytes are a recording. */
bool mr_recording_next(mr_slice recording, size_t *at, mr_slice *ret_payload);

static inline mr_slice mr_recording_slice(const struct mr_recording *recording)
{
    return (mr_slice){.data = recording->bytes, .len = recording->len};
}

#endif
