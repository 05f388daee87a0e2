/* The pieces of the flow, one at a time and on one thread, so that their instructions can be
 * counted. micro.sh runs each under callgrind; run without it, they tell nanoseconds. */
#ifndef MILLRACE_MICRO_H
#define MILLRACE_MICRO_H

#include "base/base.h"

/* One benchmark: `open` makes what it works on (not counted), `run` does `count` events and answers
 * a hash of its work, so that nothing of it can be left out. */
struct micro_bench {
    const char *name;
    const char *event; /* what is counted */
    void *(*open)(void);
    uint64_t (*run)(void *state, uint32_t count);
    void (*close)(void *state);
};

extern const struct micro_bench micro_decode;
extern const struct micro_bench micro_encode_debezium;
extern const struct micro_bench micro_encode_flat;
extern const struct micro_bench micro_encode_typed;
extern const struct micro_bench micro_encode_schemas;
extern const struct micro_bench micro_encode_avro;
extern const struct micro_bench micro_flow;
extern const struct micro_bench micro_batch;
extern const struct micro_bench micro_ring;
extern const struct micro_bench micro_ack;
extern const struct micro_bench micro_headers;
extern const struct micro_bench micro_escape;
extern const struct micro_bench micro_ledger;

#endif
