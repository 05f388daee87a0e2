/* The text of /metrics: every family of metrics.def, in its order, from one snapshot. */

#include "control/figures.h"
#include "control/monitor_internal.h"
#include "metrics/metrics.h"

#define ONE(value) ((const char *const[]){(value)})

struct text {
    struct mr_exposition out;
    enum mr_metric_id id;
    const struct family *family;
    const struct mr_monitor_snapshot *now;
    const struct mr_meter *meter;
};

/* A family that is more than one figure. */
struct family {
    void (*expose)(struct text *text);
    size_t at;                        /* of its enum, histogram or figure */
    const char *(*name_of)(unsigned); /* of words */
    unsigned count;
};

static void expose_figure(struct text *text, const struct mr_figure *figure)
{
    struct mr_figure_value value = mr_figure_value(figure, text->now);
    if (value.is_there && value.is_whole) {
        mr_expose_u64(&text->out, NULL, value.whole);
    } else if (value.is_there) {
        mr_expose_f64(&text->out, NULL, value.number);
    }
}

#define WORD(name, type, function)                                                                 \
    static const char *name(unsigned i)                                                            \
    {                                                                                              \
        return function((type)i);                                                                  \
    }
WORD(state_word, enum mr_state, mr_state_name)
WORD(cause_word, enum mr_cause, mr_cause_name)
WORD(copy_word, enum mr_copy_state, mr_copy_state_name)
WORD(stage_word, enum mr_stage, mr_stage_name)
WORD(wal_word, enum mr_wal_status, mr_wal_status_name)
WORD(invalidation_word, enum mr_invalidation, mr_invalidation_name)

static void expose_words(struct text *text)
{
    const void *holds = (const char *)text->now + text->family->at;
    for (unsigned i = 0; i < text->family->count; i++) {
        mr_expose_u64(&text->out, ONE(text->family->name_of(i)), i == *(const unsigned *)holds);
    }
}

static void expose_build(struct text *text)
{
    const char *build[] = {MR_VERSION, __VERSION__, mr_process_allocator(), text->now->sink.name};
    mr_expose_u64(&text->out, build, 1);
}

static void monitor_metrics_expose_tables(struct text *text)
{
    for (uint32_t i = 0; i < text->now->tables.count; i++) {
        const struct mr_table_count *table = &text->now->tables.items[i];
        for (uint32_t op = 0; op < MR_OP_COUNT; op++) {
            if (table->events[op] > 0) {
                const char *labels[] = {table->table, mr_op_name((enum mr_op)op)};
                mr_expose_u64(&text->out, labels, table->events[op]);
            }
        }
    }
}

static void expose_partitions(struct text *text)
{
    for (uint32_t i = 0; i < text->now->sink.partition_count; i++) {
        const struct mr_sink_partition *one = &text->now->sink.partitions[i];
        char partition[16];
        snprintf(partition, sizeof(partition), "%d", one->partition);
        const char *labels[] = {one->topic, partition};
        /* The two counts of a line are read one after the other, so a figure may be one record
         * early. */
        int64_t value =
            text->id == MR_METRIC_PARTITION_MESSAGES_IN_FLIGHT ? one->records : one->bytes;
        mr_expose_u64(&text->out, labels, value > 0 ? (uint64_t)value : 0);
    }
}

/* Of the tables under way: as many label sets as threads, or a few more. */
static void expose_copied(struct text *text)
{
    for (uint32_t i = 0; i < text->now->copies.table_count; i++) {
        const struct mr_copy_table_stats *table = &text->now->copies.tables[i];
        if (table->state == MR_COPY_TABLE_READ) {
            mr_expose_u64(&text->out, ONE(table->table),
                          text->id == MR_METRIC_SNAPSHOT_TABLE_BYTES ? table->bytes
                                                                     : table->bytes_total);
        }
    }
}

static void expose_behind(struct text *text)
{
    static const char *const positions[MR_BEHIND_COUNT] = {"sent", "received", "acknowledged",
                                                           "stored", "confirmed"};
    for (int i = 0; i < MR_BEHIND_COUNT; i++) {
        mr_expose_f64(&text->out, ONE(positions[i]), text->now->lag.behind[i]);
    }
}

static void expose_copies(struct text *text)
{
    for (uint32_t i = 0; i < text->now->slot.copy_count; i++) {
        const struct mr_slot_copy *copy = &text->now->slot.copies[i];
        mr_expose_u64(&text->out, ONE(copy->host), copy->state == MR_SLOT_COPY_READY);
    }
}

static void monitor_metrics_expose_stages(struct text *text)
{
    for (uint32_t i = 0; i < MR_PATH_COUNT; i++) {
        mr_expose_histogram(&text->out, ONE(mr_path_name((enum mr_path)i)),
                            &text->now->times.path[i]);
    }
}

static void expose_histogram(struct text *text)
{
    const void *histogram = (const char *)text->meter + text->family->at;
    struct mr_histogram_view view;
    mr_histogram_read(histogram, &view);
    mr_expose_histogram(&text->out, NULL, &view);
}

/* The failures that a source or a sink session comes back from; 0 is a figure too. */
static const mr_status retried[] = {MR_ERR_TRANSIENT, MR_ERR_AUTH, MR_ERR_PROTOCOL};

static void expose_retries(struct text *text)
{
    bool of_source = text->id == MR_METRIC_RECONNECTS;
    const struct mr_pipeline_stats *pipeline = &text->now->pipeline;
    const uint64_t *counts = of_source ? pipeline->source.errors : pipeline->sink.rebuild_reasons;
    for (size_t i = 0; i < MR_ARRAY_LEN(retried); i++) {
        const char *labels[] = {"source", mr_status_name(retried[i])};
        mr_expose_u64(&text->out, of_source ? labels : labels + 1, counts[retried[i]]);
    }
}

static void expose_source_errors(struct text *text)
{
    for (unsigned i = MR_ERR_CONFIG; i <= MR_ERR_SYSTEM; i++) {
        mr_expose_u64(&text->out, ONE(mr_status_name((mr_status)i)),
                      text->now->pipeline.source.errors[i]);
    }
}

static void expose_kafka_errors(struct text *text)
{
    for (uint32_t i = 0; i < text->now->sink.error_count; i++) {
        mr_expose_u64(&text->out, ONE(text->now->sink.errors[i].code),
                      text->now->sink.errors[i].count);
    }
}

static void expose_reselected(struct text *text)
{
    for (int i = 0; i < MR_RESELECTED_COUNT; i++) {
        mr_expose_u64(&text->out, ONE(mr_reselected_name((enum mr_reselected)i)),
                      text->now->pipeline.source.reselected[i]);
    }
}

static void expose_oversize(struct text *text)
{
    static const char *const words[] = {[MR_OVERSIZE_FAIL] = "fail",
                                        [MR_OVERSIZE_PLACEHOLDER] = "placeholder",
                                        [MR_OVERSIZE_DEAD_LETTER] = "dead-letter",
                                        [MR_OVERSIZE_BARE] = "without-context"};
    for (unsigned i = 0; i < MR_OVERSIZE_COUNT; i++) {
        mr_expose_u64(&text->out, ONE(words[i]), text->now->pipeline.oversize[i]);
    }
}

static void expose_contexts(struct text *text)
{
    static const char *const words[] = {[MR_CONTEXT_TAKEN] = "taken",
                                        [MR_CONTEXT_ALONE] = "not_transactional",
                                        [MR_CONTEXT_TOO_LARGE] = "too_large",
                                        [MR_CONTEXT_MALFORMED] = "malformed"};
    for (unsigned i = 0; i < MR_CONTEXT_OUTCOMES; i++) {
        mr_expose_u64(&text->out, ONE(words[i]), text->now->pipeline.source.contexts[i]);
    }
}

static void expose_moved(struct text *text)
{
    for (unsigned i = 0; i < MR_MOVED_COUNT; i++) {
        mr_expose_u64(&text->out, ONE(mr_moved_name((enum mr_moved_how)i)),
                      text->now->copies.incremental.moved[i]);
    }
}

static void expose_broker_counts(struct text *text)
{
    const struct mr_sink_client *client = &text->now->sink.client;
    for (uint32_t i = 0; i < client->broker_count; i++) {
        const struct mr_sink_broker *broker = &client->brokers[i];
        const void *count = (const char *)broker + text->family->at;
        char id[16];
        snprintf(id, sizeof(id), "%d", broker->id);
        mr_expose_u64(&text->out, ONE(id),
                      text->id == MR_METRIC_BROKER_UP ? broker->up : *(const uint64_t *)count);
    }
}

/* Two: an average, and the percentile that follows it. */
_Static_assert(offsetof(struct mr_sink_broker, rtt_p99) ==
                       offsetof(struct mr_sink_broker, rtt_avg) + sizeof(double) &&
                   offsetof(struct mr_sink_broker, queue_p99) ==
                       offsetof(struct mr_sink_broker, queue_avg) + sizeof(double) &&
                   offsetof(struct mr_sink_broker, throttle_p99) ==
                       offsetof(struct mr_sink_broker, throttle_avg) + sizeof(double),
               "one after the other");
static void expose_broker_times(struct text *text)
{
    const struct mr_sink_client *client = &text->now->sink.client;
    for (uint32_t i = 0; i < client->broker_count; i++) {
        const void *at = (const char *)&client->brokers[i] + text->family->at;
        const double *times = at;
        char id[16];
        snprintf(id, sizeof(id), "%d", client->brokers[i].id);
        mr_expose_f64(&text->out, (const char *[]){id, "avg"}, times[0]);
        mr_expose_f64(&text->out, (const char *[]){id, "p99"}, times[1]);
    }
}

static void expose_threads(struct text *text)
{
    const struct mr_process_threads *threads = &text->now->own.threads;
    for (uint32_t i = 0; i < threads->count; i++) {
        const struct mr_thread_time *one = &threads->items[i];
        mr_expose_ns(&text->out, ONE(one->name),
                     text->id == MR_METRIC_THREAD_CPU ? one->cpu_ns : one->wait_ns);
    }
}

#define WORDS(member, count, name_of)                                                              \
    {                                                                                              \
        expose_words, offsetof(struct mr_monitor_snapshot, member), name_of, count                 \
    }
#define HISTOGRAM(member)                                                                          \
    {                                                                                              \
        expose_histogram, .at = offsetof(struct mr_meter, member)                                  \
    }
#define OF_BROKERS(kind, member)                                                                   \
    {                                                                                              \
        expose_broker_##kind, .at = offsetof(struct mr_sink_broker, member)                        \
    }

static const struct family families[MR_METRIC_COUNT] = {
    [MR_METRIC_BUILD_INFO] = {.expose = expose_build},
    [MR_METRIC_STATE] = WORDS(state, MR_STATE_COUNT, state_word),
    [MR_METRIC_STANDSTILL] = WORDS(standstill.cause, MR_CAUSE_COUNT, cause_word),
    [MR_METRIC_BOTTLENECK] = WORDS(bottleneck, MR_BOTTLENECKS, stage_word),
    [MR_METRIC_BEHIND_SECONDS] = {.expose = expose_behind},
    [MR_METRIC_EVENTS] = {.expose = monitor_metrics_expose_tables},
    [MR_METRIC_SNAPSHOT_STATE] = WORDS(copies.snapshot.state, MR_COPY_DONE + 1, copy_word),
    [MR_METRIC_SNAPSHOT_TABLE_BYTES] = {.expose = expose_copied},
    [MR_METRIC_SNAPSHOT_TABLE_BYTES_ESTIMATED] = {.expose = expose_copied},
    [MR_METRIC_PARTITION_MESSAGES_IN_FLIGHT] = {.expose = expose_partitions},
    [MR_METRIC_PARTITION_BYTES_IN_FLIGHT] = {.expose = expose_partitions},
    [MR_METRIC_FLUSH_SECONDS] = HISTOGRAM(flush),
    [MR_METRIC_STAGE_SECONDS] = {.expose = monitor_metrics_expose_stages},
    [MR_METRIC_LATENCY_SECONDS] = HISTOGRAM(latency),
    [MR_METRIC_BATCH_RECORDS] = HISTOGRAM(batch_records),
    [MR_METRIC_BATCH_BYTES] = HISTOGRAM(batch_bytes),
    [MR_METRIC_BATCH_FILL] = HISTOGRAM(batch_fill),
    [MR_METRIC_TRANSACTION_CHANGES] = HISTOGRAM(transaction_changes),
    [MR_METRIC_TRANSACTION_BYTES] = HISTOGRAM(transaction_bytes),
    [MR_METRIC_RECONNECTS] = {.expose = expose_retries},
    [MR_METRIC_REBUILDS] = {.expose = expose_retries},
    [MR_METRIC_SOURCE_ERRORS] = {.expose = expose_source_errors},
    [MR_METRIC_KAFKA_ERRORS] = {.expose = expose_kafka_errors},
    [MR_METRIC_KAFKA_RETRIES] = OF_BROKERS(counts, retries),
    [MR_METRIC_RESELECTED] = {.expose = expose_reselected},
    [MR_METRIC_OVERSIZE] = {.expose = expose_oversize},
    [MR_METRIC_CONTEXTS] = {.expose = expose_contexts},
    [MR_METRIC_PARTITIONS_MOVED] = {.expose = expose_moved},
    [MR_METRIC_SLOT_WAL_STATUS] = WORDS(slot.wal_status, MR_WAL_STATUS_COUNT, wal_word),
    [MR_METRIC_SLOT_COPY_READY] = {.expose = expose_copies},
    [MR_METRIC_SLOT_INVALIDATION] =
        WORDS(slot.invalidation, MR_INVALIDATION_COUNT, invalidation_word),
    [MR_METRIC_BROKER_UP] = OF_BROKERS(counts, up),
    [MR_METRIC_BROKER_RTT] = OF_BROKERS(times, rtt_avg),
    [MR_METRIC_BROKER_THROTTLE] = OF_BROKERS(times, throttle_avg),
    [MR_METRIC_BROKER_QUEUE] = OF_BROKERS(times, queue_avg),
    [MR_METRIC_BROKER_REQUESTS] = OF_BROKERS(counts, requests_in_flight),
    [MR_METRIC_BROKER_TIMEOUTS] = OF_BROKERS(counts, timeouts),
    [MR_METRIC_THREAD_CPU] = {.expose = expose_threads},
    [MR_METRIC_THREAD_WAIT] = {.expose = expose_threads},
};

void mr_monitor_expose(const struct mr_monitor_snapshot *snapshot, const struct mr_meter *meter,
                       struct mr_buffer *out)
{
    struct text text = {.out = {.out = out}, .now = snapshot, .meter = meter};
    const struct mr_figure *figures[MR_METRIC_COUNT + 1] = {NULL};
    for (size_t i = 0; i < mr_figure_count; i++) {
        figures[mr_figures[i].metric] = &mr_figures[i];
    }
    for (text.id = 0; text.id < MR_METRIC_COUNT; text.id++) {
        const struct mr_figure *figure = figures[text.id];
        text.family = &families[text.id];
        if (figure != NULL || text.family->expose != NULL) { /* else another room's */
            mr_expose_begin(&text.out, text.id);
        }
        if (figure != NULL) {
            expose_figure(&text, figure);
        } else if (text.family->expose != NULL) {
            text.family->expose(&text);
        }
    }
}
