/* Reads a topic from its beginning to the end that it had when it was opened, committed records
 * only. For who checks what was sent, and for nobody who sends. One thread, which owns the
 * reader. */
#pragma once

#include "kafka/options.h"

struct mr_kafka_reader;

/* A record. Its bytes are the reader's until the next call; `data` NULL: there is no key, no value,
 * no such header. */
struct mr_kafka_read {
    int32_t partition;
    int64_t offset;
    mr_slice key;
    mr_slice value;
    mr_slice position; /* header mr-pos */
    mr_slice xid;      /* header mr-xid */
    mr_slice oversize; /* header mr-oversize */
    mr_slice later;    /* header mr-reselected-columns */
};

struct mr_kafka_extent {
    uint32_t partitions; /* 0: there is no such topic */
    uint32_t cut;        /* of them, whose first records are gone (retention, deleted records) */
    uint64_t records;    /* at most; markers of transactions and what compaction took count, too */
};

/* `options` and its texts outlive the reader. */
mr_status mr_kafka_reader_new(const struct mr_kafka_options *options,
                              struct mr_kafka_reader **ret_reader, struct mr_error *ret_error);
void mr_kafka_reader_free(struct mr_kafka_reader *reader); /* NULL is fine */

/* Asks where the topic begins and ends now, and makes its first record the next one. */
mr_status mr_kafka_reader_open(struct mr_kafka_reader *reader, const char *topic,
                               struct mr_kafka_extent *ret_extent, struct mr_error *ret_error);

/* After MR_END: asks once more where the topic ends, and goes on there. `extent` is that of the
 * opening; its records grow, and its partitions, if some were added. Those have to be read by
 * opening the topic anew. */
mr_status mr_kafka_reader_extend(struct mr_kafka_reader *reader, const char *topic,
                                 struct mr_kafka_extent *extent, struct mr_error *ret_error);

/* MR_END: that was all. MR_AGAIN: nothing has come for half a second. */
mr_status mr_kafka_reader_next(struct mr_kafka_reader *reader, struct mr_kafka_read *ret_record,
                               struct mr_error *ret_error);

/* The record there, once more; MR_END: it is gone. What was open is not any more. */
mr_status mr_kafka_reader_fetch(struct mr_kafka_reader *reader, const char *topic,
                                int32_t partition, int64_t offset, struct mr_kafka_read *ret_record,
                                struct mr_error *ret_error);

/* Whether Kafka compacts the topic. False: it does not say (who reads a topic may not be allowed to
 * describe its configuration). */
bool mr_kafka_reader_is_compacted(struct mr_kafka_reader *reader, const char *topic,
                                  bool *ret_is_compacted);
