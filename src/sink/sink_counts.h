/* What a sink counts: records in flight, in all and by partition, and errors by code.
 *
 * The sink thread writes, one record at a time and without a lock; any thread reads. Totals are
 * exact at all times; a record whose partition was not known when it was handed over counts for
 * partition -1. */
#pragma once

#include <stdatomic.h>

#include "base/counter.h"
#include "event/batch.h"
#include "ports/sink_view.h"

struct mr_flight_line {
    const char *topic;
    int32_t partition;
    _Atomic int64_t records;
    _Atomic int64_t bytes;
};

struct mr_error_line {
    const char *code;
    mr_counter count;
};

/* The lines of a topic. */
struct mr_flight_topic {
    uint32_t first;
    uint32_t count; /* 0: none yet */
};

struct mr_sink_counts {
    mr_counter records_sent, bytes_sent; /* those lost with a session taken off again */
    mr_counter records_acked, bytes_acked;
    struct mr_flight_line lines[MR_SINK_PARTITIONS_MAX];
    _Atomic uint32_t line_count; /* published after the lines are made */
    struct mr_flight_line other;
    struct mr_flight_topic *topics; /* by mr_topic.index */
    uint32_t topic_capacity;
    struct mr_error_line errors[MR_SINK_ERRORS_MAX + 1]; /* the last: all others */
    _Atomic uint32_t error_count;
};

/* All zero is one that has counted nothing. */
void mr_sink_counts_done(struct mr_sink_counts *counts);

/* A record sets out to `partition` (-1: not known) of so many. */
void mr_sink_counts_sent(struct mr_sink_counts *counts, const struct mr_topic *topic,
                         int32_t partition, int32_t partition_count, size_t bytes);
/* It is acknowledged. */
void mr_sink_counts_acked(struct mr_sink_counts *counts, const struct mr_topic *topic,
                          int32_t partition, size_t bytes);
/* Nothing is in flight any more: the session has ended. */
void mr_sink_counts_reset(struct mr_sink_counts *counts);
/* So many errors of a code, which lives for ever; 0: it is to be seen before it happens. */
void mr_sink_counts_errors(struct mr_sink_counts *counts, const char *code, uint64_t by);

/* Fills in all but name, connected and client. */
void mr_sink_counts_read(const struct mr_sink_counts *counts, struct mr_sink_view *ret_view);
