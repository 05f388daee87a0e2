#include "flame/stage.h"

#include <string.h>

static const struct {
    const char *name;
    const char *colour;
} stages[MR_FLAME_STAGES] = {
    [MR_FLAME_STAGE_OTHER] = {"other", "rgb(200,200,195)"},
    [MR_FLAME_STAGE_RECEIVE] = {"receive", "rgb(110,170,230)"},
    [MR_FLAME_STAGE_DECODE] = {"decode", "rgb(120,200,190)"},
    [MR_FLAME_STAGE_ENCODE] = {"encode", "rgb(245,170,80)"},
    [MR_FLAME_STAGE_PRODUCE] = {"produce", "rgb(150,205,110)"},
    [MR_FLAME_STAGE_FLUSH] = {"flush", "rgb(190,150,220)"},
    [MR_FLAME_STAGE_ACK] = {"ack", "rgb(235,215,95)"},
    [MR_FLAME_STAGE_MALLOC] = {"malloc", "rgb(235,110,100)"},
};

/* "name" is the whole frame, "name*" its beginning. Libraries are not part of what is compared. The first match
 * counts. */
static const struct {
    const char *pattern;
    enum mr_flame_stage stage;
} rules[] = {
    {"[receive]", MR_FLAME_STAGE_RECEIVE},
    {"[decode]", MR_FLAME_STAGE_DECODE},
    {"[filter]", MR_FLAME_STAGE_DECODE},
    {"[encode]", MR_FLAME_STAGE_ENCODE},
    {"[produce]", MR_FLAME_STAGE_PRODUCE},
    {"[flush]", MR_FLAME_STAGE_FLUSH},
    {"[ack]", MR_FLAME_STAGE_ACK},
    {"[malloc]", MR_FLAME_STAGE_MALLOC},

    {"malloc", MR_FLAME_STAGE_MALLOC},
    {"calloc", MR_FLAME_STAGE_MALLOC},
    {"realloc", MR_FLAME_STAGE_MALLOC},
    {"free", MR_FLAME_STAGE_MALLOC},
    {"cfree", MR_FLAME_STAGE_MALLOC},
    {"__libc_malloc*", MR_FLAME_STAGE_MALLOC},
    {"__libc_calloc*", MR_FLAME_STAGE_MALLOC},
    {"__libc_free*", MR_FLAME_STAGE_MALLOC},
    {"__GI___libc_malloc*", MR_FLAME_STAGE_MALLOC},
    {"__GI___libc_free*", MR_FLAME_STAGE_MALLOC},
    {"_int_malloc", MR_FLAME_STAGE_MALLOC},
    {"_int_free*", MR_FLAME_STAGE_MALLOC},
    {"_int_realloc", MR_FLAME_STAGE_MALLOC},
    {"malloc_consolidate", MR_FLAME_STAGE_MALLOC},
    {"operator new*", MR_FLAME_STAGE_MALLOC},
    {"operator delete*", MR_FLAME_STAGE_MALLOC},
    {"je_*", MR_FLAME_STAGE_MALLOC},
    {"mr_alloc", MR_FLAME_STAGE_MALLOC},
    {"mr_realloc", MR_FLAME_STAGE_MALLOC},
    {"mr_strndup", MR_FLAME_STAGE_MALLOC},

    {"mr_pgoutput*", MR_FLAME_STAGE_DECODE},
    {"mr_relation*", MR_FLAME_STAGE_DECODE},
    {"read_tuple", MR_FLAME_STAGE_DECODE},

    {"mr_encode*", MR_FLAME_STAGE_ENCODE},
    {"mr_debezium*", MR_FLAME_STAGE_ENCODE},
    {"mr_flat*", MR_FLAME_STAGE_ENCODE},
    {"mr_row*", MR_FLAME_STAGE_ENCODE},
    {"mr_json*", MR_FLAME_STAGE_ENCODE},
    {"mr_plan*", MR_FLAME_STAGE_ENCODE},

    {"mr_ack*", MR_FLAME_STAGE_ACK},
    {"kafka_poll", MR_FLAME_STAGE_ACK},
    {"on_delivery*", MR_FLAME_STAGE_ACK},
    {"rd_kafka_poll*", MR_FLAME_STAGE_ACK},
    {"rd_kafka_consume*", MR_FLAME_STAGE_ACK},

    {"kafka_send", MR_FLAME_STAGE_PRODUCE},
    {"file_send", MR_FLAME_STAGE_PRODUCE},
    {"discard_send", MR_FLAME_STAGE_PRODUCE},
    {"rd_kafka_produce*", MR_FLAME_STAGE_PRODUCE},
    {"mr_record_headers*", MR_FLAME_STAGE_PRODUCE},

    {"rdk:*", MR_FLAME_STAGE_FLUSH},
    {"rd_kafka_broker*", MR_FLAME_STAGE_FLUSH},
    {"rd_kafka_transport*", MR_FLAME_STAGE_FLUSH},
    {"rd_kafka_flush", MR_FLAME_STAGE_FLUSH},
    {"kafka_flush", MR_FLAME_STAGE_FLUSH},
    {"file_flush", MR_FLAME_STAGE_FLUSH},
    {"LZ4*", MR_FLAME_STAGE_FLUSH},
    {"ZSTD*", MR_FLAME_STAGE_FLUSH},

    {"mr_pg_*", MR_FLAME_STAGE_RECEIVE},
    {"pg_source_*", MR_FLAME_STAGE_RECEIVE},
    {"PQ*", MR_FLAME_STAGE_RECEIVE},
    {"pq*", MR_FLAME_STAGE_RECEIVE},
    {"[libpq.so*", MR_FLAME_STAGE_RECEIVE},
};

static bool matches(mr_slice function, const char *pattern)
{
    size_t len = strlen(pattern);
    if (pattern[len - 1] == '*') {
        return function.len >= len - 1 && memcmp(function.data, pattern, len - 1) == 0;
    }
    return function.len == len && memcmp(function.data, pattern, len) == 0;
}

const char *mr_flame_stage_name(enum mr_flame_stage stage)
{
    MR_ASSERT(stage < MR_FLAME_STAGES);
    return stages[stage].name;
}

const char *mr_flame_stage_colour(enum mr_flame_stage stage)
{
    MR_ASSERT(stage < MR_FLAME_STAGES);
    return stages[stage].colour;
}

enum mr_flame_stage mr_flame_stage_of(mr_slice frame, enum mr_flame_stage inherited)
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
