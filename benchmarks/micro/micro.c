/* Usage: millrace-micro [NAME|all] [COUNT]
 *
 * Runs one benchmark or all, COUNT events each, and prints name, nanoseconds an event and the hash
 * of the work. Without arguments: the names, one a line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "micro.h"

static const struct micro_bench *const benches[] = {
    &micro_decode,       &micro_encode_debezium, &micro_encode_flat,
    &micro_encode_typed, &micro_encode_schemas,  &micro_encode_avro,
    &micro_flow,         &micro_batch,           &micro_ring,
    &micro_ack,          &micro_headers,         &micro_escape,
    &micro_ledger,
};

/* Callgrind counts inside this function only (--toggle-collect). */
uint64_t micro_measured(const struct micro_bench *bench, void *state, uint32_t count);

__attribute__((noinline)) uint64_t micro_measured(const struct micro_bench *bench, void *state,
                                                  uint32_t count)
{
    return bench->run(state, count);
}

static void micro_run(const struct micro_bench *bench, uint32_t count)
{
    void *state = bench->open();
    /* Caches of ours are filled, and lazily bound functions bound, before anything is counted. */
    bench->run(state, count);
    int64_t begin_ns = mr_monotonic_ns();
    uint64_t hash = micro_measured(bench, state, count);
    int64_t ns = mr_monotonic_ns() - begin_ns;
    printf("%-16s %10.1f ns/%-7s %016" PRIx64 "\n", bench->name, (double)ns / count, bench->event,
           hash);
    bench->close(state);
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1000;
    bool found = argc < 2;
    for (size_t i = 0; i < MR_ARRAY_LEN(benches); i++) {
        if (argc < 2) {
            puts(benches[i]->name);
        } else if (strcmp(argv[1], "all") == 0 || strcmp(argv[1], benches[i]->name) == 0) {
            micro_run(benches[i], count == 0 ? 1 : count);
            found = true;
        }
    }
    if (!found) {
        fprintf(stderr, "millrace-micro: no benchmark is called \"%s\"\n", argv[1]);
    }
    return found ? 0 : 64;
}
