#include "profiler/draw/tree.h"

#include <string.h>

static const char *const colours[MR_STAGES] = {
    [MR_STAGE_RECEIVE] = "rgb(110,170,230)",  [MR_STAGE_DECODE] = "rgb(120,200,190)",
    [MR_STAGE_ENCODE] = "rgb(245,170,80)",    [MR_STAGE_PRODUCE] = "rgb(150,205,110)",
    [MR_STAGE_FLUSH] = "rgb(190,150,220)",    [MR_STAGE_ACKNOWLEDGE] = "rgb(235,215,95)",
    [MR_STAGE_MALLOC] = "rgb(235,110,100)",   [MR_STAGE_HTTP] = "rgb(190,175,150)",
    [MR_STAGE_PROFILER] = "rgb(170,185,165)", [MR_STAGE_OTHER] = "rgb(200,200,195)",
};

/* "name" is the whole frame, "name*" its beginning. Libraries are not part of what is compared. The first match
 * counts. */
static const struct {
    const char *pattern;
    enum mr_stage stage;
} rules[] = {
    /* Threads, which are the roots: what no function of theirs tells. */
    {"mr-source", MR_STAGE_RECEIVE},
    {"mr-chunks", MR_STAGE_RECEIVE},
    {"mr-copy-*", MR_STAGE_RECEIVE},
    {"mr-sink", MR_STAGE_PRODUCE},
    {"rdk:*", MR_STAGE_FLUSH},
    {"mr-kafka-end", MR_STAGE_FLUSH},
    {"mr-http*", MR_STAGE_HTTP},
    {"mr-registry", MR_STAGE_HTTP},
    {"mr-profiler", MR_STAGE_PROFILER},

    {"[receive]", MR_STAGE_RECEIVE},
    {"[decode]", MR_STAGE_DECODE},
    {"[filter]", MR_STAGE_DECODE},
    {"[encode]", MR_STAGE_ENCODE},
    {"[produce]", MR_STAGE_PRODUCE},
    {"[flush]", MR_STAGE_FLUSH},
    {"[acknowledge]", MR_STAGE_ACKNOWLEDGE},
    {"[malloc]", MR_STAGE_MALLOC},

    {"malloc", MR_STAGE_MALLOC},
    {"calloc", MR_STAGE_MALLOC},
    {"realloc", MR_STAGE_MALLOC},
    {"free", MR_STAGE_MALLOC},
    {"cfree", MR_STAGE_MALLOC},
    {"__libc_malloc*", MR_STAGE_MALLOC},
    {"__libc_calloc*", MR_STAGE_MALLOC},
    {"__libc_free*", MR_STAGE_MALLOC},
    {"__GI___libc_malloc*", MR_STAGE_MALLOC},
    {"__GI___libc_free*", MR_STAGE_MALLOC},
    {"_int_malloc", MR_STAGE_MALLOC},
    {"_int_free*", MR_STAGE_MALLOC},
    {"_int_realloc", MR_STAGE_MALLOC},
    {"malloc_consolidate", MR_STAGE_MALLOC},
    {"operator new*", MR_STAGE_MALLOC},
    {"operator delete*", MR_STAGE_MALLOC},
    {"je_*", MR_STAGE_MALLOC},
    /* Debian strips it, so its inner functions have no names. */
    {"jemalloc", MR_STAGE_MALLOC},
    {"[libjemalloc.so*", MR_STAGE_MALLOC},
    {"mr_alloc", MR_STAGE_MALLOC},
    {"mr_realloc", MR_STAGE_MALLOC},
    {"mr_strndup", MR_STAGE_MALLOC},

    {"mr_pgoutput*", MR_STAGE_DECODE},
    {"mr_relation*", MR_STAGE_DECODE},
    {"read_tuple", MR_STAGE_DECODE},

    {"mr_encode*", MR_STAGE_ENCODE},
    {"mr_debezium*", MR_STAGE_ENCODE},
    /* Forms: who calls them may have left its frame to them. */
    {"debezium_change", MR_STAGE_ENCODE},
    {"flat_change", MR_STAGE_ENCODE},
    {"avro_change", MR_STAGE_ENCODE},
    {"bare_change", MR_STAGE_ENCODE},
    {"cloud_change", MR_STAGE_ENCODE},
    {"outbox_change", MR_STAGE_ENCODE},
    {"write_change", MR_STAGE_ENCODE},
    {"mr_row*", MR_STAGE_ENCODE},
    {"mr_json*", MR_STAGE_ENCODE},
    {"mr_plan*", MR_STAGE_ENCODE},

    {"mr_ack*", MR_STAGE_ACKNOWLEDGE},
    {"kafka_poll", MR_STAGE_ACKNOWLEDGE},
    {"mr_kafka_take_events", MR_STAGE_ACKNOWLEDGE},
    {"rd_kafka_poll*", MR_STAGE_ACKNOWLEDGE},

    /* Records are handed over while the sink is polled, too. */
    {"mr_kafka_send", MR_STAGE_PRODUCE},
    {"produce", MR_STAGE_PRODUCE},
    {"rd_kafka_header_add", MR_STAGE_PRODUCE},
    {"rd_kafka_headers_new", MR_STAGE_PRODUCE},
    {"file_send", MR_STAGE_PRODUCE},
    {"discard_send", MR_STAGE_PRODUCE},
    {"rd_kafka_produce*", MR_STAGE_PRODUCE},
    {"mr_record_headers*", MR_STAGE_PRODUCE},

    {"rd_kafka_broker*", MR_STAGE_FLUSH},
    {"rd_kafka_transport*", MR_STAGE_FLUSH},
    {"rd_kafka_flush", MR_STAGE_FLUSH},
    {"file_flush", MR_STAGE_FLUSH},
    {"LZ4*", MR_STAGE_FLUSH},
    {"ZSTD*", MR_STAGE_FLUSH},

    {"mr_pg_*", MR_STAGE_RECEIVE},
    {"pg_source_*", MR_STAGE_RECEIVE},
    {"PQ*", MR_STAGE_RECEIVE},
    {"pq*", MR_STAGE_RECEIVE},
    {"[libpq.so*", MR_STAGE_RECEIVE},
};

static bool matches(mr_slice function, const char *pattern)
{
    size_t len = strlen(pattern);
    if (pattern[len - 1] == '*') {
        return function.len >= len - 1 && memcmp(function.data, pattern, len - 1) == 0;
    }
    return function.len == len && memcmp(function.data, pattern, len) == 0;
}

const char *mr_flame_stage_colour(enum mr_stage stage)
{
    MR_ASSERT(stage > MR_STAGE_NONE && stage < MR_STAGES);
    return colours[stage];
}

enum mr_stage mr_flame_stage_of(mr_slice frame, enum mr_stage inherited)
{
    const uint8_t *library = frame.len > 0 ? memmem(frame.data, frame.len, " [", 2) : NULL;
    if (library != NULL && frame.len > 2 && memcmp(frame.data, "0x", 2) == 0) {
        /* A function without a name: the library is all that is known. */
        frame.len -= (size_t)(library + 1 - frame.data);
        frame.data = library + 1;
    } else if (library != NULL) {
        frame.len = (size_t)(library - frame.data);
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(rules); i++) {
        if (matches(frame, rules[i].pattern)) {
            return rules[i].stage;
        }
    }
    return inherited;
}
