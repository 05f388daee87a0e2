/* What is stored of copies beside the stream, as a part of the state's JSON. Inside sink/ only. */
#ifndef MR_SINK_KAFKA_ASKED_H
#define MR_SINK_KAFKA_ASKED_H

#include <cjson/cJSON.h>

#include "event/asked_stored.h"

/* The caller's. */
cJSON *mr_asked_to_json(const struct mr_asked_stored *state);

/* NULL when it is no such thing; else the caller's to free. */
struct mr_asked_stored *mr_asked_from_json(const cJSON *json);

#endif
