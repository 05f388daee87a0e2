#include "profiler/draw/tree.h"

static const char *const colours[MR_STAGES] = {
    [MR_STAGE_RECEIVE] = "rgb(110,170,230)",  [MR_STAGE_DECODE] = "rgb(120,200,190)",
    [MR_STAGE_ENCODE] = "rgb(245,170,80)",    [MR_STAGE_PRODUCE] = "rgb(150,205,110)",
    [MR_STAGE_FLUSH] = "rgb(190,150,220)",    [MR_STAGE_ACKNOWLEDGE] = "rgb(235,215,95)",
    [MR_STAGE_MALLOC] = "rgb(235,110,100)",   [MR_STAGE_HTTP] = "rgb(190,175,150)",
    [MR_STAGE_PROFILER] = "rgb(170,185,165)", [MR_STAGE_OTHER] = "rgb(200,200,195)",
};

/* The frames of each stage: "name" is a whole frame, "name*" its beginning; the library is cut off
 * before. A thread's name is the root of its stacks: it decides where no function below it does. No
 * two stages may have patterns that fit one frame: the order is the enum's and says nothing. */
static const char *const frames[MR_STAGES] = {
    [MR_STAGE_RECEIVE] = "mr-source|mr-chunks|mr-copy-*|[receive]|mr_pg_*|pg_source_*|PQ*|pq*|"
                         "[libpq.so*",
    [MR_STAGE_DECODE] = "[decode]|[filter]|mr_pgoutput*|mr_relation*|read_tuple",
    /* Of forms: who calls them may have left its frame to them. */
    [MR_STAGE_ENCODE] = "[encode]|mr_encode*|mr_debezium*|debezium_change|flat_change|avro_change|"
                        "bare_change|cloud_change|outbox_change|mr_row*|mr_json*|"
                        "mr_plan*",
    /* Records are handed over while the sink is polled, too. */
    [MR_STAGE_PRODUCE] = "mr-sink|[produce]|mr_kafka_send|kafka_send_produce|rd_kafka_header_add|"
                         "rd_kafka_headers_new|file_send|discard_send|rd_kafka_produce*|"
                         "mr_record_headers*",
    [MR_STAGE_FLUSH] = "rdk:*|mr-kafka-end|[flush]|rd_kafka_broker*|rd_kafka_transport*|"
                       "rd_kafka_flush|file_flush|LZ4*|ZSTD*",
    [MR_STAGE_ACKNOWLEDGE] = "[acknowledge]|mr_ack*|kafka_poll|mr_kafka_take_events|rd_kafka_poll*",
    /* Debian strips jemalloc, so its inner functions have no names. */
    [MR_STAGE_MALLOC] = "[malloc]|malloc|calloc|realloc|free|cfree|__libc_malloc*|__libc_calloc*|"
                        "__libc_free*|__GI___libc_malloc*|__GI___libc_free*|_int_malloc|_int_free*|"
                        "_int_realloc|malloc_consolidate|operator new*|operator delete*|je_*|"
                        "jemalloc|[libjemalloc.so*|mr_alloc|mr_realloc|mr_strndup",
    [MR_STAGE_HTTP] = "mr-http*|mr-registry",
    [MR_STAGE_PROFILER] = "mr-profiler",
};

const char *mr_flame_stage_colour(enum mr_stage stage)
{
    MR_ASSERT(stage > MR_STAGE_NONE && stage < MR_STAGES);
    return colours[stage];
}

/* What GCC calls a copy or a part of a function: a dot, a word and mostly a number. A build has
 * them or not, of one source. */
static size_t name_without_suffix(mr_slice name)
{
    static const char *const words[] = {".isra", ".part", ".constprop", ".cold", ".lto_priv"};
    size_t end = name.len;
    while (end > 0 && name.data[end - 1] >= '0' && name.data[end - 1] <= '9') {
        end--;
    }
    end -= end < name.len && end > 0 && name.data[end - 1] == '.';
    for (size_t i = 0; i < MR_ARRAY_LEN(words); i++) {
        size_t len = strlen(words[i]);
        if (end > len && memcmp(name.data + end - len, words[i], len) == 0) {
            return end - len;
        }
    }
    return name.len;
}

mr_slice mr_flame_function(mr_slice frame)
{
    const uint8_t *library = frame.len > 0 ? memmem(frame.data, frame.len, " [", 2) : NULL;
    frame.len = library != NULL ? (size_t)(library - frame.data) : frame.len;
    size_t len;
    while ((len = name_without_suffix(frame)) < frame.len) {
        frame.len = len;
    }
    return frame;
}

enum mr_stage mr_flame_stage_of(mr_slice frame, enum mr_stage inherited)
{
    frame = mr_flame_function(frame);
    for (enum mr_stage stage = 0; stage < MR_STAGES; stage++) {
        if (frames[stage] != NULL && mr_is_among(frames[stage], frame)) {
            return stage;
        }
    }
    return inherited;
}
