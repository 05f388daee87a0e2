/* Schemas that a registry numbers: the encoder gives each an index, the registry's thread an id,
 * and the sink thread writes the id where the index stood. So no encoder waits for the registry; a
 * batch whose ids are not known waits before the sink, and so do all after it.
 *
 * A framed value begins with five bytes: 0xFF and the index before it, then Confluent's wire
 * format: 0 and the id (big-endian). Any thread; one lock, taken once for a schema and once for a
 * batch. */
#pragma once

#include "event/batch.h"

enum { MR_SCHEMA_FRAME_LEN = 5 };

struct mr_schemas;

/* `wake` is written when an id becomes known, or why there is none. */
struct mr_schemas *mr_schemas_new(void);
void mr_schemas_free(struct mr_schemas *schemas);
void mr_schemas_set_wake(struct mr_schemas *schemas, int wake);

/* The index of a schema under a subject; the same for the same texts, which are copied. */
uint32_t mr_schemas_intern(struct mr_schemas *schemas, const char *subject, mr_slice text);

/* The frame of a value of that schema. */
void mr_schema_frame(struct mr_buffer *out, uint32_t index);

/* Writes the ids into all framed keys and values of a batch; again has no effect. MR_FULL: one is
 * not known yet, and none is written. MR_ERR_CONFIG: the registry has refused one. Sink thread. */
mr_status mr_schemas_resolve(struct mr_schemas *schemas, struct mr_batch *batch,
                             struct mr_error *ret_error);

struct mr_schema {
    char *subject;
    char *text;
    uint32_t index;
    int32_t id;  /* -1: not known yet */
    char *fault; /* why there will be none */
};

/* A schema without an id; NULL: none within `limit_ms`, or the wait was ended. Registry's thread,
 * as the functions after it. */
const struct mr_schema *mr_schemas_wait(struct mr_schemas *schemas, uint32_t limit_ms);

/* Sleeps, unless the wait is ended. */
void mr_schemas_pause(struct mr_schemas *schemas, uint32_t ms);

/* Ends waits from now on; whether they are. Any thread. */
void mr_schemas_end(struct mr_schemas *schemas);
bool mr_schemas_ended(struct mr_schemas *schemas);

/* False: another schema has that id, which is why this one gets none. */
bool mr_schemas_set_id(struct mr_schemas *schemas, uint32_t index, int32_t id);
void mr_schemas_set_fault(struct mr_schemas *schemas, uint32_t index, const char *fault);
