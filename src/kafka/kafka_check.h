/* What `millrace check` wants to know of Kafka: does a broker answer, who is the cluster, what
 * topics there are. Changes nothing. */
#pragma once

#include "base/finding.h"
#include "kafka/kafka_state.h"

/* `topics`: names the configured tables go to. Main thread. */
void mr_kafka_check(const struct mr_kafka_options *options, const char *const *topics,
                    uint32_t topic_count, mr_finding_fn report, void *context,
                    struct mr_kafka_stored *ret_stored);

/* Only the position that is stored; MR_OK also where there is none. Who is away for now, and a
 * transaction of another pipeline that is open, are waited for, 90 s at most; MR_AGAIN: `stop_fd`
 * can be read. The caller calls mr_checkpoint_done. */
mr_status mr_kafka_look_at_stored(const struct mr_kafka_options *options, int stop_fd,
                                  struct mr_kafka_stored *ret_stored, struct mr_error *ret_error);
