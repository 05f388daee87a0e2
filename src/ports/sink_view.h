/* What a sink shows of itself: what is in flight, errors, and its client's own figures. */
#pragma once

#include "base/base.h"

enum {
    /* counted apart; the rest together, as partition -1 of "other" */
    MR_SINK_PARTITIONS_MAX = 1024,
    MR_SINK_ERRORS_MAX = 32, /* codes counted apart; the rest together as "other" */
    MR_SINK_BROKERS_MAX = 32,
};

struct mr_sink_partition {
    const char *topic; /* alive as long as the sink */
    int32_t partition; /* -1: not known when it was handed over */
    int64_t records;   /* in flight */
    int64_t bytes;
};

struct mr_sink_error {
    const char *code; /* "_ALL_BROKERS_DOWN" */
    uint64_t count;
};

struct mr_sink_broker {
    int32_t id;
    char name[64]; /* "host:port" */
    bool up;
    double rtt_avg, rtt_p99; /* seconds, of the last interval */
    double queue_avg, queue_p99;
    double throttle_avg, throttle_p99; /* what a quota has asked to wait */
    uint64_t requests_in_flight;
    uint64_t requests; /* since the session began, as all that follow */
    uint64_t retries;
    uint64_t timeouts;
    uint64_t errors;
    uint64_t connects;
};

/* The Kafka client's statistics, of its last report. */
struct mr_sink_client {
    bool known;      /* a report has come in this session */
    int64_t time_ns; /* of the report, by the monotonic clock */
    uint64_t queue_messages;
    uint64_t queue_bytes;
    uint64_t pending_events;
    uint64_t sent_messages;
    uint64_t sent_bytes;
    uint64_t requests;
    struct mr_sink_broker brokers[MR_SINK_BROKERS_MAX];
    uint32_t broker_count;
};

struct mr_sink_view {
    const char *name; /* "kafka" */
    bool connected;   /* a session is open and nothing says that the other side is away */
    bool unreachable; /* something says that it is */
    uint64_t records_in_flight;
    uint64_t bytes_in_flight;
    uint64_t records_acked; /* by delivery reports */
    uint64_t bytes_acked;
    struct mr_sink_partition partitions[MR_SINK_PARTITIONS_MAX + 1];
    uint32_t partition_count;
    struct mr_sink_error errors[MR_SINK_ERRORS_MAX + 1];
    uint32_t error_count;
    struct mr_sink_client client;
};
