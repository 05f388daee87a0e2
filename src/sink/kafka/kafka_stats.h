/* librdkafka's statistics (its STATISTICS.md): from the JSON text to the figures that matter. Any
 * thread. */
#pragma once

#include "ports/sink_view.h"

/* A copy without the topics, which may be thousands and are not read. The caller frees it. NULL: no
 * memory is left. */
char *mr_kafka_stats_keep(const char *json);

/* False, with `ret` as it was, when the text is not such a report. What is missing in it is 0. */
bool mr_kafka_stats_parse(const char *json, struct mr_sink_client *ret);
