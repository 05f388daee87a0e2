/* The pipeline's options, and how its memory is shared out. */

#include "config/build.h"
#include "flow/memory.h"

enum { STORED_MAX = 200000 };

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* Threads that copy existing rows before the stream; one to find none. */
static uint32_t readers_of(const struct mr_config *config)
{
    enum mr_pg_copies copies = config->source.copies;
    return mr_pg_copies_rows(copies) ? (uint32_t)config->values.snapshot_threads
                                     : copies == MR_COPIES_ACCEPT_GAP;
}

static void refuse_memory(struct mr_config *config, const struct mr_memory *memory,
                          uint64_t change_max)
{
    const struct mr_config_values *values = &config->values;
    bool copies = config->source.copies != MR_COPIES_NOTHING;
    uint32_t line = LINE(config, memory);
    line = line == 0 ? LINE(config, change_max) : line;
    line = line == 0 ? LINE(config, batches) : line;
    PROBLEM(
        config, line == 0 ? LINE(config, batch_size) : line,
        "pipeline.memory is %.1f MiB, but %.1f MiB are needed: %.1f for millrace itself and %u "
        "tables, %.1f for profiles, %.1f for "
        "%lld batches of %.2f MiB with what the Kafka client keeps for them, %.1f for receiving "
        "a change of %.1f MiB (pipeline.change_max)%s, %.1f for copying rows while it streams, "
        "%.1f for descriptions of tables and %.1f for a change's records; raise "
        "pipeline.memory, or lower change_max, batches%s or batch_size",
        mib((uint64_t)values->memory), mib(mr_memory_sum(memory)), mib(memory->own),
        config->source.captured.table_count, mib(memory->profiler), mib(memory->pool),
        (long long)values->batches, mib((uint64_t)values->batch_size), mib(memory->input),
        mib(change_max), copies ? " by each of snapshot.max.threads" : "", mib(memory->copied),
        mib(memory->relations), mib(memory->large), copies ? ", snapshot.max.threads" : "");
}

/* While a transaction is committed, some 20 ms of a busy machine, what is read waits in the pool. It is as large as takes
 * nothing from the largest change. */
static void size_pool(struct mr_config *config, struct mr_memory_needs *needs)
{
    enum { EXACTLY_ONCE_BATCHES = 24 };
    struct mr_config_values *values = &config->values;
    if (LINE(config, batches) != 0 || !config->kafka.exactly_once) {
        return;
    }
    uint64_t change_max = mr_memory_change_max(needs);
    struct mr_memory_needs larger = *needs;
    larger.batches = EXACTLY_ONCE_BATCHES;
    struct mr_memory memory = mr_memory_of(&larger, change_max);
    if (mr_memory_sum(&memory) <= needs->limit) {
        *needs = larger;
    }
    values->batches = (int64_t)needs->batches;
}

/* What is set must fit into the budget; what is not is made of it. */
static void build_memory(struct mr_config *config)
{
    enum { CHANGE_MAX_LEAST = 65536 };
    struct mr_config_values *values = &config->values;
    if (values->change_max != 0 && values->change_max < CHANGE_MAX_LEAST) {
        REFUSE(config, change_max,
               " is out of range: it goes from %d bytes; 0 is what pipeline.memory allows",
               CHANGE_MAX_LEAST);
        return;
    }
    uint64_t limit = (uint64_t)values->memory;
    struct mr_memory_needs needs = {
        .limit = limit,
        .tables = config->source.captured.table_count,
        .batches = (uint64_t)values->batches,
        .batch_bytes = (uint64_t)values->batch_size,
        .readers = readers_of(config),
        .patterns = config->source.captured.pattern_count > 0,
        .profiles = config->profiles,
    };
    size_pool(config, &needs);
    uint64_t change_max = (uint64_t)values->change_max;
    if (change_max == 0) {
        change_max = mr_memory_change_max(&needs);
    }
    struct mr_memory memory = mr_memory_of(&needs, change_max);
    if (mr_memory_sum(&memory) > limit) {
        refuse_memory(config, &memory, change_max);
        return;
    }
    config->pipeline.batches = (uint32_t)needs.batches;
    config->pipeline.batches_most =
        config->pipeline.batches * (LINE(config, batches) == 0 ? MR_SINK_TIMES_MAX : 1);
    config->pipeline.memory_bytes = limit;
    config->pipeline.change_bytes_max = change_max;
    config->copies.row_bytes_max = mr_memory_take_row(&memory, &needs, change_max);
    config->source.relation_bytes_max = mr_memory_take_relations(&memory, &needs);
    config->pipeline.large_bytes_max = mr_memory_large(&memory, limit);
    values->change_max = (int64_t)change_max; /* as it is shown */
}

/* The words of snapshot.mode, in their order in options.def. */
static const enum mr_pg_copies snapshot_modes[] = {
    MR_COPIES_NOTHING,
    MR_COPIES_INITIALLY,
    MR_COPIES_ONLY,
    MR_COPIES_NOTHING,
    MR_COPIES_NOTHING,
    MR_COPIES_ALWAYS,
    [MR_MODE_WHEN_NEEDED] = MR_COPIES_WHEN_NEEDED,
    [MR_MODE_ACCEPT_GAP] = MR_COPIES_ACCEPT_GAP,
};

static void build_copy(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    if (config->source.copies == MR_COPIES_NOTHING) {
        return;
    }
    config->copies.workers = readers_of(config);
    config->copies.only = config->source.copies == MR_COPIES_ONLY;
    config->copies.when_needed = mr_pg_mends_gap(config->source.copies);
    config->copies.accepts_gap = config->source.copies == MR_COPIES_ACCEPT_GAP;
    config->copies.order = (enum mr_copy_order)values->snapshot_order;
    config->pipeline.lanes_beside = config->copies.workers;
    if (config->pipeline.batches != 0 && config->copies.workers > config->pipeline.batches / 2) {
        REFUSE(config, snapshot_threads,
               " is %u, and pipeline.batches only %u; at most half as many threads as batches",
               config->copies.workers, config->pipeline.batches);
    }
    enum { SLOT_NAME_MAX = 63 - (sizeof("_snapshot_63") - 1) };
    if (strlen(values->slot_name) > SLOT_NAME_MAX) {
        PROBLEM(config, LINE(config, slot_name),
                "slot_name may have %d characters where rows are copied (snapshot.mode): the slot "
                "is called \"%s_snapshot_1\" meanwhile",
                (int)SLOT_NAME_MAX, values->slot_name);
    }
}

void mr_config_build_pipeline(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    config->profiles = values->profiling_endpoints || values->profiling_path[0] != '\0' ||
                       values->profiling_recorder;
    config->source.copies = snapshot_modes[values->snapshot_mode];
    /* A record of Kafka's default size has a fifth for what is asked, two for the names of tables, one for the ledger. */
    uint64_t fifth = config->kafka.message_bytes_max / 5;
    config->copies.stored_bytes_max = fifth < STORED_MAX ? fifth : STORED_MAX;
    config->copies.converts = config->encode.types != MR_TYPES_TEXT;
    build_memory(config);
    build_copy(config);
    if (values->profiling_endpoints && config->http.username == NULL &&
        !mr_address_is_local(&config->http.address)) {
        REFUSE(config, profiling_endpoints,
               ": profiles tell what runs inside, and other machines can reach http.address "
               "without a password; set http.username and a password, or a loopback address");
    }
}
