/* Faults placed on purpose, for the tests of what has to find them: linked over functions of
 * millrace (--wrap) in millrace-faulty and in millrace-micro-slowed, never in the product.
 * MILLRACE_FAULT says which, "kind:amount":
 *
 *   decode, encode, produce, acknowledge   so many needless turns an event, in that stage
 *   source                                 the same in the source thread, around the stages
 *   sink                                   the same a batch, in the sink thread
 *   allocation                             so many allocations an event
 *   wake                                   so many needless wake-ups (an eventfd written and read)
 *                                          a batch
 *   sleep                                  so many microseconds of sleep a batch
 *   far, near                              so many loads an event, each of which needs the one
 *                                          before: from all over 64 MiB, which no cache holds, or
 *                                          from one page of it. The same instructions and memory,
 *                                          so that only time tells them apart */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "encode/encode.h"
#include "event/batch.h"
#include "flow/ack.h"
#include "sink/record_headers.h"
#include "sink/sink_counts.h"
#include "stream/pg_payload.h"

#ifndef PLACED_FAULT /* without the variable */
#define PLACED_FAULT ""
#endif

/* The amount of a fault of this kind, 0: another is placed. */
static int amount(const char *kind)
{
    static const char *fault;
    if (fault == NULL) {
        const char *text = getenv("MILLRACE_FAULT");
        fault = text == NULL ? PLACED_FAULT : text;
    }
    size_t len = strlen(kind);
    return strncmp(fault, kind, len) == 0 && fault[len] == ':' ? atoi(fault + len + 1) : 0;
}

/* In each wrapper itself, so that it is the one that costs. */
#define NEEDLESS_TURNS(kind)                                                                       \
    static int turns = -1;                                                                         \
    turns = turns < 0 ? amount(kind) : turns;                                                      \
    for (volatile int i = 0; i < turns; i++) {                                                     \
    }

enum { WALK_WORDS = 16 << 20, PAGE_WORDS = 1024 };

static uint32_t *walked;

/* A made-up order of words without a pattern, as a mask of the places that it may go to. */
static void walk(int steps, uint32_t mask)
{
    if (walked == NULL) {
        walked = malloc(WALK_WORDS * sizeof(*walked));
        if (walked == NULL) {
            abort();
        }
        for (uint32_t i = 0; i < WALK_WORDS; i++) {
            walked[i] = i * 2654435761U + 12345U;
        }
    }
    static uint32_t at;
    uint32_t place = at;
    for (int i = 0; i < steps; i++) {
        place = walked[(place ^ (uint32_t)i) & mask] >> 3;
    }
    at = place;
}

mr_status __real_mr_pg_payload_take(struct mr_pgoutput *decoder, mr_slice payload,
                                    const struct mr_source_handler *handler,
                                    struct mr_error *ret_error);
mr_status __wrap_mr_pg_payload_take(struct mr_pgoutput *decoder, mr_slice payload,
                                    const struct mr_source_handler *handler,
                                    struct mr_error *ret_error);
mr_status __wrap_mr_pg_payload_take(struct mr_pgoutput *decoder, mr_slice payload,
                                    const struct mr_source_handler *handler,
                                    struct mr_error *ret_error)
{
    NEEDLESS_TURNS("decode")
    return __real_mr_pg_payload_take(decoder, payload, handler, ret_error);
}

mr_status __real_mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count, struct mr_error *ret_error);
mr_status __wrap_mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count, struct mr_error *ret_error);
mr_status __wrap_mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count, struct mr_error *ret_error)
{
    NEEDLESS_TURNS("encode")
    for (int i = 0; i < amount("allocation"); i++) {
        char *volatile needless = malloc(64);
        free(needless);
    }
    static int far = -1, near = -1;
    far = far < 0 ? amount("far") : far;
    near = near < 0 ? amount("near") : near;
    if (far + near > 0) {
        walk(far + near, far > 0 ? WALK_WORDS - 1 : PAGE_WORDS - 1);
    }
    return __real_mr_encode_change(encoder, change, buffer, ret_records, ret_count, ret_error);
}

void __real_mr_record_headers_format(const struct mr_record *record,
                                     struct mr_record_headers *headers);
void __wrap_mr_record_headers_format(const struct mr_record *record,
                                     struct mr_record_headers *headers);
void __wrap_mr_record_headers_format(const struct mr_record *record,
                                     struct mr_record_headers *headers)
{
    NEEDLESS_TURNS("produce")
    __real_mr_record_headers_format(record, headers);
}

void __real_mr_sink_counts_acked(struct mr_sink_counts *counts, const struct mr_topic *topic,
                                 int32_t partition, size_t bytes);
void __wrap_mr_sink_counts_acked(struct mr_sink_counts *counts, const struct mr_topic *topic,
                                 int32_t partition, size_t bytes);
void __wrap_mr_sink_counts_acked(struct mr_sink_counts *counts, const struct mr_topic *topic,
                                 int32_t partition, size_t bytes)
{
    NEEDLESS_TURNS("acknowledge")
    __real_mr_sink_counts_acked(counts, topic, partition, bytes);
}

bool __real_mr_batch_commit(struct mr_batch *batch, uint8_t *bytes_at,
                            const struct mr_record *records, uint32_t count);
bool __wrap_mr_batch_commit(struct mr_batch *batch, uint8_t *bytes_at,
                            const struct mr_record *records, uint32_t count);
bool __wrap_mr_batch_commit(struct mr_batch *batch, uint8_t *bytes_at,
                            const struct mr_record *records, uint32_t count)
{
    NEEDLESS_TURNS("source")
    return __real_mr_batch_commit(batch, bytes_at, records, count);
}

/* Threads have one each: what one writes, another must not read. */
static void wake_up(void)
{
    static _Thread_local int fd = -1;
    fd = fd < 0 ? eventfd(0, EFD_CLOEXEC) : fd;
    eventfd_t value;
    if (eventfd_write(fd, 1) != 0 || eventfd_read(fd, &value) != 0) {
        abort();
    }
}

void __real_mr_ack_add(struct mr_ack *ack, uint64_t sequence, mr_lsn confirm_lsn,
                       const struct mr_commit *last, uint64_t step);
void __wrap_mr_ack_add(struct mr_ack *ack, uint64_t sequence, mr_lsn confirm_lsn,
                       const struct mr_commit *last, uint64_t step);
void __wrap_mr_ack_add(struct mr_ack *ack, uint64_t sequence, mr_lsn confirm_lsn,
                       const struct mr_commit *last, uint64_t step)
{
    NEEDLESS_TURNS("sink")
    for (int i = 0; i < amount("wake"); i++) {
        wake_up();
    }
    int us = amount("sleep");
    if (us > 0) {
        nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
    }
    __real_mr_ack_add(ack, sequence, confirm_lsn, last, step);
}
