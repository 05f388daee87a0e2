/* Writes a few records to topics: those of a call in one transaction, or each by itself. For what is kept in Kafka beside the stream; the
 * stream has a sink. One thread, which owns the writer. */
#pragma once

#include "kafka/options.h"

struct mr_kafka_writer;

struct mr_kafka_written {
    int32_t partition;
    mr_slice key;
    mr_slice value; /* `data` NULL: a tombstone */
};

/* `options`, its texts and the id outlive the writer. `transactional_id` NULL: without transactions. */
mr_status mr_kafka_writer_new(const struct mr_kafka_options *options, const char *transactional_id,
                              struct mr_kafka_writer **ret_writer, struct mr_error *ret_error);

/* Without transactions, what was sent gets two seconds. NULL is fine. */
void mr_kafka_writer_free(struct mr_kafka_writer *writer);

/* Makes a compacted topic, unless there is one of that name. */
mr_status mr_kafka_writer_create(struct mr_kafka_writer *writer, const char *name,
                                 int32_t partitions, struct mr_error *ret_error);

/* From now on no other writer of the id commits; what one had begun is aborted. Once, before the first commit. */
mr_status mr_kafka_writer_fence(struct mr_kafka_writer *writer, struct mr_error *ret_error);

/* Writes all of them in one transaction, and waits for its end. MR_AGAIN: another writer of the id has come since; nothing was written.
 * MR_ERR_…: nothing was, unless the error says that it is not known. */
mr_status mr_kafka_writer_commit(struct mr_kafka_writer *writer, const char *topic,
                                 const struct mr_kafka_written *records, uint32_t count,
                                 struct mr_error *ret_error);

/* Without transactions: hands them over, and does not wait. What Kafka has not taken after half a minute is dropped. */
void mr_kafka_writer_send(struct mr_kafka_writer *writer, const char *topic,
                          const struct mr_kafka_written *records, uint32_t count);
