/* What each librdkafka error means and how it is mended; the one place that sorts them. Inside sink/ only; any
 * thread. */
#ifndef MR_SINK_KAFKA_ERRORS_H
#define MR_SINK_KAFKA_ERRORS_H

#include <librdkafka/rdkafka.h>

#include "sink/sink.h"

enum { MR_KAFKA_REMEDY_MAX = 256 };

/* Sorts an error by its code and librdkafka's text. A fatal or permanent one ends the producer's session; the
 * pipeline then opens the next and rewinds, so MR_ERR_TRANSIENT is "a new session may well do". The remedy is
 * empty where there is nothing to say. */
mr_status mr_kafka_error_classify(rd_kafka_resp_err_t err, const char *text,
                                  const struct mr_kafka_options *options,
                                  char ret_remedy[MR_KAFKA_REMEDY_MAX]);

#endif
