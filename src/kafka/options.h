/* A Kafka cluster, and what the pipeline wants of it: the part of the configuration that reaches
 * librdkafka. */
#pragma once

#include "base/program.h"
#include "base/secret.h"
#include "event/checkpoint.h"

struct mr_kafka_property {
    const char *name;
    const char *value;
};

/* Where records without a key go. */
enum mr_null_keys {
    MR_NULL_KEYS_TOGETHER, /* to one partition, where they keep their order */
    MR_NULL_KEYS_SPREAD,   /* to all */
};

/* Strings are the caller's and outlive the sink. */
struct mr_kafka_options {
    const char *brokers;                        /* "host:port,host:port" */
    const struct mr_kafka_property *properties; /* librdkafka's, applied last */
    uint32_t property_count;
    const char *username;                   /* of PLAIN and SCRAM */
    struct mr_secret *password;             /* NULL: there is none */
    struct mr_secret *client_secret;        /* of OpenID Connect; NULL: there is none */
    const struct mr_program *token_program; /* prints tokens for OAUTHBEARER; NULL: none does */
    const char *compression;                /* none, gzip, snappy, lz4, zstd */
    size_t batch_bytes;                     /* of one produce request and partition, */
    size_t far_bytes;                       /* where brokers are far away; less, 0: the same */
    size_t message_bytes_max;
    bool create_topics;
    uint32_t statistics_interval_ms; /* of librdkafka's own figures; 0: none */
    int32_t partitions;              /* of a topic that is created */
    int32_t replication;             /* of a topic that is created; -1: the broker's default */
    enum mr_null_keys null_keys;
    bool headers;            /* position, xid and commit time as record headers */
    bool exactly_once;       /* events and state in one transaction */
    const char *state_topic; /* compacted; NULL: nothing is stored */
    const char *state_name;  /* key of this pipeline's state, and its transactional id */
    const struct mr_section_kind *sections; /* that its state may have; NULL: none */
    struct mr_known_topics *known;          /* NULL: ids of topics are not compared */
    struct mr_placings *placings;           /* NULL: added partitions are used at once */
};

/* Of the librdkafka that runs, which need not be the one we were built with. Any thread. */
const char *mr_kafka_library_version(void);
