/* What the daemon makes of a configuration for its own modules: the pipeline with its memory, and
 * copies. */

#include "config/build.h"
#include "copy/copies.h"
#include "daemon/daemon.h"
#include "flow/memory.h"

enum { STORED_MAX = 200000, BATCHES = 16 };

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

/* Two for each of these, so that each has one to fill. */
static uint32_t batches_of(const struct mr_config *config)
{
    uint32_t least = 2 * readers_of(config);
    return least > BATCHES ? least : BATCHES;
}

static void refuse_memory(struct mr_config *config, const struct mr_memory *memory,
                          uint64_t change_max)
{
    const struct mr_config_values *values = &config->values;
    bool copies = config->source.copies != MR_COPIES_NOTHING;
    uint32_t line = LINE(config, memory);
    line = line == 0 ? LINE(config, change_max) : line;
    PROBLEM(config, line == 0 ? LINE(config, batch_size) : line,
            "pipeline.memory is %.1f MiB, but %.1f MiB are needed: %.1f for millrace itself and %u "
            "tables, %.1f for profiles, %.1f for "
            "%u batches of %.2f MiB with what the Kafka client keeps for them, %.1f for receiving "
            "a change of %.1f MiB (pipeline.change_max)%s, %.1f for copying rows while it streams, "
            "%.1f for descriptions of tables and %.1f for a change's records; raise "
            "pipeline.memory, or lower change_max%s or batch_size",
            mib((uint64_t)values->memory), mib(mr_memory_sum(memory)), mib(memory->own),
            config->source.captured.table_count, mib(memory->profiler), mib(memory->pool),
            batches_of(config), mib((uint64_t)values->batch_size), mib(memory->input),
            mib(change_max), copies ? " by each of snapshot.max.threads" : "", mib(memory->copied),
            mib(memory->relations), mib(memory->large), copies ? ", snapshot.max.threads" : "");
}

/* While a transaction is committed, some 20 ms of a busy machine, what is read waits in the pool.
 * It is as large as takes nothing from the largest change. */
static void size_pool(const struct mr_config *config, struct mr_memory_needs *needs)
{
    enum { EXACTLY_ONCE_BATCHES = 24 };
    if (!config->kafka.exactly_once) {
        return;
    }
    uint64_t change_max = mr_memory_change_max(needs);
    struct mr_memory_needs larger = *needs;
    larger.batches = larger.batches > EXACTLY_ONCE_BATCHES ? larger.batches : EXACTLY_ONCE_BATCHES;
    struct mr_memory memory = mr_memory_of(&larger, change_max);
    if (mr_memory_sum(&memory) <= needs->limit) {
        *needs = larger;
    }
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
        .batches = batches_of(config),
        .batch_bytes = (uint64_t)values->batch_size,
        .readers = readers_of(config),
        .patterns = config->source.captured.pattern_count > 0,
        .profiles = config->daemon->profiles,
        .reselects = config->source.reselect.column_count > 0,
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
    config->daemon->pipeline.batches = (uint32_t)needs.batches;
    config->daemon->pipeline.batches_most =
        config->daemon->pipeline.batches * (LINE(config, batch_size) == 0 ? MR_SINK_TIMES_MAX : 1);
    config->daemon->pipeline.memory_bytes = limit;
    config->daemon->pipeline.change_bytes_max = change_max;
    config->daemon->copies.row_bytes_max = mr_memory_take_row(&memory, &needs, change_max);
    config->source.relation_bytes_max = mr_memory_take_relations(&memory, &needs);
    config->daemon->pipeline.large_bytes_max = mr_memory_large(&memory, limit);
    values->change_max = (int64_t)change_max; /* as it is shown */
    size_t message_max = mr_config_message_max(change_max);
    if (message_max < config->encode.message_bytes_max) {
        config->encode.message_bytes_max = message_max;
    }
}

static void build_copy(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    if (config->source.copies == MR_COPIES_NOTHING) {
        return;
    }
    config->daemon->copies.workers = readers_of(config);
    config->daemon->copies.only = config->source.copies == MR_COPIES_ONLY;
    config->daemon->copies.when_needed = mr_pg_mends_gap(config->source.copies);
    config->daemon->copies.accepts_gap = config->source.copies == MR_COPIES_ACCEPT_GAP;
    config->daemon->copies.leaves_rows_out = config->source.where_count > 0;
    config->daemon->pipeline.lanes_beside = config->daemon->copies.workers;
    enum { SLOT_NAME_MAX = 63 - (sizeof("_snapshot_63") - 1) };
    if (strlen(values->slot_name) > SLOT_NAME_MAX) {
        PROBLEM(config, LINE(config, slot_name),
                "slot_name may have %d characters where rows are copied (snapshot.mode): the slot "
                "is called \"%s_snapshot_1\" meanwhile",
                (int)SLOT_NAME_MAX, values->slot_name);
    }
}

#define AT(place)                                                                                  \
    {                                                                                              \
        0                                                                                          \
    }
#define NOWHERE AT(none)
#define DAEMON(place)                                                                              \
    {                                                                                              \
        offsetof(struct mr_daemon_options, place),                                                 \
            sizeof(((struct mr_daemon_options *)NULL)->place)                                      \
    }
static const struct mr_config_place places[] = {
#define MR_OPTION(path, kind, field, place, ...) place,
#include "options/options.def"
#undef MR_OPTION
};

static void build_daemon(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    struct mr_daemon_options *daemon = mr_config_keep(config, MR_NEW(struct mr_daemon_options));
    config->daemon = daemon;
    mr_config_place_values(values, places, daemon);
    daemon->profiles = values->profiling_endpoints || values->profiling_path[0] != '\0' ||
                       values->profiling_recorder;
    if (config->sink_kind == MR_SINK_KAFKA) {
        config->kafka.far_bytes = MR_SINK_TIMES_MAX * config->kafka.batch_bytes;
        config->kafka.sections = mr_copy_section_kinds;
    }
    /* A record of Kafka's default size has a fifth for what is asked, two for the names of tables,
     * one for the ledger. */
    uint64_t fifth = config->kafka.message_bytes_max / 5;
    daemon->copies.stored_bytes_max = fifth < STORED_MAX ? fifth : STORED_MAX;
    daemon->copies.converts = config->encode.types != MR_TYPES_TEXT;
    build_memory(config);
    build_copy(config);
    if (values->profiling_endpoints && config->http.username == NULL &&
        !mr_address_is_local(&config->http.address)) {
        REFUSE(config, profiling_endpoints,
               ": profiles tell what runs inside, and other machines can reach http.address "
               "without a password; set http.username and a password, or a loopback address");
    }
}

mr_status mr_daemon_load(const char *path, struct mr_config **ret_config)
{
    return mr_config_read(&(struct mr_config_reading){.path = path, .build = build_daemon},
                          ret_config);
}

mr_status mr_daemon_load_text(const char *name, const char *text, size_t len,
                              struct mr_config **ret_config)
{
    const struct mr_config_reading reading = {
        .name = name, .text = text, .len = len, .build = build_daemon};
    return mr_config_read(&reading, ret_config);
}

mr_status mr_daemon_load_elsewhere(const char *name, const char *text, size_t len,
                                   struct mr_config **ret_config)
{
    const struct mr_config_reading reading = {
        .name = name, .text = text, .len = len, .elsewhere = true, .build = build_daemon};
    return mr_config_read(&reading, ret_config);
}

mr_status mr_daemon_load_mending(const char *path, int64_t snapshot_mode,
                                 struct mr_config **ret_config)
{
    const struct mr_config_reading reading = {
        .path = path, .snapshot_mode = snapshot_mode, .build = build_daemon};
    mr_status status = mr_config_read(&reading, ret_config);
    struct mr_http_options *http = &(*ret_config)->http;
    /* It takes commands by HTTP, so without it nothing goes on; without a password from this
     * machine alone. */
    http->required = true;
    if (http->username == NULL && mr_address_is_any(&http->address)) {
        snprintf(http->address.host, sizeof(http->address.host), "127.0.0.1");
    }
    return status;
}

mr_status mr_daemon_reload(const struct mr_config *running, struct mr_config **ret_config)
{
    if (running->path != NULL) {
        const struct mr_config_reading reading = {
            .path = running->path, .is_reload = true, .build = build_daemon};
        return mr_config_read(&reading, ret_config);
    }
    *ret_config = mr_config_new("environment");
    mr_values_read(&(*ret_config)->values, NULL, &(*ret_config)->problems);
    PROBLEM(*ret_config, 0,
            "there is no file to read again, for millrace was started without one; start it with "
            "--config FILE");
    return MR_ERR_CONFIG;
}
