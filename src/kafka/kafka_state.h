/* The state record: how far a pipeline is, in a compacted topic, keyed by the pipeline's name. Sink
 * thread, or a command. */
#pragma once

#include <librdkafka/rdkafka.h>

#include "kafka/options.h"

/* What is stored for this pipeline. */
struct mr_kafka_stored {
    bool found;
    struct mr_checkpoint state; /* the caller calls mr_checkpoint_done */
};

/* A transaction of this pipeline's own that is open in the state topic although it has ended. */
struct mr_kafka_hanging {
    bool found;
    struct mr_position up_to; /* what it had stored; zero: nothing that can be read */
};

/* The record's value, JSON, which the caller frees. */
char *mr_state_format(const struct mr_checkpoint *state);

/* False when the text is not a state of a version that is known, or a section of `kinds` (NULL:
 * none) can't be read; sections of other names are passed over. The caller calls
 * mr_checkpoint_done. */
MR_MUST_USE bool mr_state_parse(const void *text, size_t len, const struct mr_section_kind *kinds,
                                struct mr_checkpoint *ret_state);

/* Has a client learn who leads the topic; an error is what is in the way now. It comes first in
 * each session, because it waits for a connection. What needs a leader or the coordinator does not:
 * where none is up at that moment, rd_kafka_topic_partition_list_query_leaders sleeps through what
 * it waits for, up to its limit, and rd_kafka_txn_coord_query asks again after 500 ms (2.15.1). */
rd_kafka_resp_err_t mr_kafka_state_find(rd_kafka_t *client, const struct mr_kafka_options *options);

/* What goes on while the broker is waited for: an error, or MR_AGAIN once the thread is to leave,
 * ends it. */
typedef mr_status (*mr_kafka_serve_fn)(void *context, struct mr_error *ret_error);

/* Makes sure that the topic exists, and reads the newest record of the pipeline, committed ones
 * only. Waits for the broker for as long as `serve` says MR_OK. Uses a consumer of its own, and
 * `producer` to create the topic.
 *
 * `ret_hanging`: that one is open (exactly once); all before it was read, and nothing of ours is
 * behind it. */
mr_status mr_kafka_state_load(rd_kafka_t *producer, const struct mr_kafka_options *options,
                              mr_kafka_serve_fn serve, void *context,
                              struct mr_kafka_stored *ret_stored,
                              struct mr_kafka_hanging *ret_hanging, struct mr_error *ret_error);
