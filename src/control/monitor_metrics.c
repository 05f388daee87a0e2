/* The text of /metrics: every family of metrics.def, in its order, from one snapshot. */
#include <math.h>
#include <stdio.h>

#include "control/monitor_internal.h"
#include "metrics/metrics.h"

#define ONE(value) ((const char *const[]){(value)})

/* ---- words: 1 for the one that holds ---- */

static void expose_words(struct mr_exposition *out, enum mr_metric_id id,
                         const char *(*name_of)(unsigned), unsigned count, unsigned holds)
{
    mr_expose_begin(out, id);
    for (unsigned i = 0; i < count; i++) {
        mr_expose_u64(out, ONE(name_of(i)), i == holds);
    }
}

static const char *state_word(unsigned i)
{
    return mr_state_name((enum mr_state)i);
}

static const char *cause_word(unsigned i)
{
    return mr_cause_name((enum mr_cause)i);
}

static const char *copy_word(unsigned i)
{
    return mr_copy_state_name((enum mr_copy_state)i);
}

static const char *stage_word(unsigned i)
{
    return mr_stage_name((enum mr_stage)i);
}

static const char *wal_word(unsigned i)
{
    return mr_wal_status_name((enum mr_wal_status)i);
}

static const char *invalidation_word(unsigned i)
{
    return mr_invalidation_name((enum mr_invalidation)i);
}

/* ---- groups, in the order of metrics.def ---- */

static void expose_state(struct mr_exposition *out, const struct mr_monitor_snapshot *now)
{
    mr_expose_begin(out, MR_METRIC_BUILD_INFO);
    const char *build[] = {MR_VERSION, __VERSION__, mr_process_allocator(), now->sink.name};
    mr_expose_u64(out, build, 1);
    expose_words(out, MR_METRIC_STATE, state_word, MR_STATE_COUNT, now->state);
    mr_expose_one_u64(out, MR_METRIC_READY, now->ready);
    expose_words(out, MR_METRIC_STANDSTILL, cause_word, MR_CAUSE_COUNT, now->standstill.cause);
    mr_expose_one_f64(out, MR_METRIC_STANDSTILL_SECONDS, now->standstill_seconds);
    mr_expose_one_u64(out, MR_METRIC_SOURCE_CONNECTED, now->pipeline.source_connected);
    mr_expose_one_u64(out, MR_METRIC_SINK_CONNECTED, now->sink.connected);
    expose_words(out, MR_METRIC_BOTTLENECK, stage_word, MR_BOTTLENECKS, now->bottleneck);
    mr_expose_one_f64(out, MR_METRIC_STALLED_SECONDS, now->stalled_seconds);
}

static void expose_positions(struct mr_exposition *out, const struct mr_monitor_snapshot *now)
{
    mr_expose_one_u64(out, MR_METRIC_RECEIVED_LSN, now->pipeline.received_lsn);
    mr_expose_one_u64(out, MR_METRIC_CONFIRMED_LSN, now->confirmed_lsn);
    mr_expose_one_u64(out, MR_METRIC_SERVER_LSN, now->server_lsn);
    mr_expose_one_u64(out, MR_METRIC_LAG_BYTES, now->lag_bytes);
    mr_expose_one_f64(out, MR_METRIC_LAG_SECONDS, now->lag_seconds);
}

static void expose_tables(struct mr_exposition *out, const struct mr_monitor_snapshot *now)
{
    mr_expose_begin(out, MR_METRIC_EVENTS);
    for (uint32_t i = 0; i < now->table_count; i++) {
        const struct mr_table_count *table = &now->tables[i];
        for (uint32_t op = 0; op < MR_OP_COUNT; op++) {
            if (table->events[op] > 0) {
                const char *labels[] = {table->table, mr_op_name((enum mr_op)op)};
                mr_expose_u64(out, labels, table->events[op]);
            }
        }
    }
}

static void expose_flow(struct mr_exposition *out, const struct mr_monitor_snapshot *now)
{
    const struct mr_pipeline_stats *pipeline = &now->pipeline;
    mr_expose_one_u64(out, MR_METRIC_CHANGES, pipeline->changes);
    mr_expose_one_u64(out, MR_METRIC_REPLAYED, pipeline->skipped);
    mr_expose_one_u64(out, MR_METRIC_TRANSACTIONS, pipeline->transactions);
    expose_tables(out, now);
    mr_expose_one_u64(out, MR_METRIC_RECORDS, pipeline->records);
    mr_expose_one_u64(out, MR_METRIC_RECORDS_ACKNOWLEDGED, pipeline->records_acked);
    mr_expose_one_u64(out, MR_METRIC_RECORD_BYTES, pipeline->bytes);
    mr_expose_one_u64(out, MR_METRIC_RECORD_BYTES_ACKNOWLEDGED, pipeline->bytes_acked);
    mr_expose_one_u64(out, MR_METRIC_RECEIVED_BYTES, pipeline->received_bytes);
}

static void expose_partitions(struct mr_exposition *out, const struct mr_sink_view *sink,
                              enum mr_metric_id id)
{
    mr_expose_begin(out, id);
    for (uint32_t i = 0; i < sink->partition_count; i++) {
        const struct mr_sink_partition *one = &sink->partitions[i];
        char partition[16];
        snprintf(partition, sizeof(partition), "%d", one->partition);
        const char *labels[] = {one->topic, partition};
        /* The two counts of a line are read one after the other, so a figure may be one record early. */
        int64_t value = id == MR_METRIC_PARTITION_MESSAGES_IN_FLIGHT ? one->records : one->bytes;
        mr_expose_u64(out, labels, value > 0 ? (uint64_t)value : 0);
    }
}

/* Of the tables under way: as many label sets as threads, or a few more. */
static void expose_copied(struct mr_exposition *out, const struct mr_monitor_snapshot *now,
                          enum mr_metric_id id)
{
    mr_expose_begin(out, id);
    for (uint32_t i = 0; i < now->copied_count; i++) {
        const struct mr_copy_table_stats *table = &now->copied[i];
        if (table->state == MR_COPY_TABLE_READ) {
            const char *labels[] = {table->table};
            mr_expose_u64(out, labels,
                          id == MR_METRIC_SNAPSHOT_TABLE_BYTES ? table->bytes : table->bytes_total);
        }
    }
}

static void expose_copy(struct mr_exposition *out, const struct mr_monitor_snapshot *now)
{
    const struct mr_copy_stats *copy = &now->pipeline.copy;
    expose_words(out, MR_METRIC_SNAPSHOT_STATE, copy_word, MR_COPY_DONE + 1, copy->state);
    mr_expose_one_u64(out, MR_METRIC_SNAPSHOT_TABLES, copy->tables);
    mr_expose_one_u64(out, MR_METRIC_SNAPSHOT_TABLES_DONE, copy->tables_done);
    mr_expose_one_u64(out, MR_METRIC_SNAPSHOT_ROWS, copy->rows);
    mr_expose_one_u64(out, MR_METRIC_SNAPSHOT_ROWS_ESTIMATED, copy->rows_estimated);
    mr_expose_one_f64(out, MR_METRIC_SNAPSHOT_SECONDS, copy->seconds);
    const struct mr_incremental_stats *incremental = &now->pipeline.incremental;
    mr_expose_one_u64(out, MR_METRIC_INCREMENTAL_TABLES, incremental->tables);
    mr_expose_one_u64(out, MR_METRIC_INCREMENTAL_ROWS, incremental->rows);
    mr_expose_one_u64(out, MR_METRIC_INCREMENTAL_PASSED_OVER, incremental->passed_over);
    mr_expose_one_u64(out, MR_METRIC_INCREMENTAL_CHUNKS, incremental->chunks);
    mr_expose_one_u64(out, MR_METRIC_INCREMENTAL_REPEATED, incremental->repeated);
    mr_expose_one_u64(out, MR_METRIC_SNAPSHOT_BYTES, copy->bytes);
    mr_expose_one_u64(out, MR_METRIC_SNAPSHOT_BYTES_ESTIMATED, copy->bytes_total);
    mr_expose_one_f64(out, MR_METRIC_SNAPSHOT_SECONDS_LEFT, copy->seconds_left);
    mr_expose_one_u64(out, MR_METRIC_SNAPSHOT_SLOT_IS_SHORT, now->slot_is_short);
    expose_copied(out, now, MR_METRIC_SNAPSHOT_TABLE_BYTES);
    expose_copied(out, now, MR_METRIC_SNAPSHOT_TABLE_BYTES_ESTIMATED);
}

static void expose_in_flight(struct mr_exposition *out, const struct mr_monitor_snapshot *now)
{
    mr_expose_one_u64(out, MR_METRIC_MESSAGES_IN_FLIGHT, now->sink.records_in_flight);
    mr_expose_one_u64(out, MR_METRIC_BYTES_IN_FLIGHT, now->sink.bytes_in_flight);
    expose_partitions(out, &now->sink, MR_METRIC_PARTITION_MESSAGES_IN_FLIGHT);
    expose_partitions(out, &now->sink, MR_METRIC_PARTITION_BYTES_IN_FLIGHT);
    mr_expose_one_u64(out, MR_METRIC_BATCHES_IN_FLIGHT, now->pipeline.in_flight_batches);
}

static void expose_view(struct mr_exposition *out, enum mr_metric_id id,
                        const struct mr_histogram_view *view)
{
    mr_expose_begin(out, id);
    mr_expose_histogram(out, NULL, view);
}

static void expose_live(struct mr_exposition *out, enum mr_metric_id id,
                        const struct mr_histogram *histogram)
{
    struct mr_histogram_view view;
    mr_histogram_read(histogram, &view);
    expose_view(out, id, &view);
}

static void expose_times(struct mr_exposition *out, const struct mr_monitor_snapshot *now)
{
    expose_view(out, MR_METRIC_FLUSH_SECONDS, &now->flush);
    mr_expose_begin(out, MR_METRIC_STAGE_SECONDS);
    for (uint32_t i = 0; i < MR_PATH_COUNT; i++) {
        mr_expose_histogram(out, ONE(mr_path_name((enum mr_path)i)), &now->path[i]);
    }
    expose_view(out, MR_METRIC_LATENCY_SECONDS, &now->latency);
    mr_expose_one_ns(out, MR_METRIC_BACKPRESSURE, now->pipeline.backpressure_ns);
    mr_expose_one_ns(out, MR_METRIC_SOURCE_WAIT, now->pipeline.source_wait_ns);
}

static void expose_batches(struct mr_exposition *out, const struct mr_monitor_snapshot *now,
                           const struct mr_meter *meter)
{
    expose_live(out, MR_METRIC_BATCH_RECORDS, &meter->batch_records);
    expose_live(out, MR_METRIC_BATCH_BYTES, &meter->batch_bytes);
    expose_live(out, MR_METRIC_BATCH_FILL, &meter->batch_fill);
    expose_live(out, MR_METRIC_TRANSACTION_CHANGES, &meter->transaction_changes);
    expose_live(out, MR_METRIC_TRANSACTION_BYTES, &meter->transaction_bytes);
    mr_expose_one_u64(out, MR_METRIC_POOL_BATCHES, now->pipeline.pool_batches);
    mr_expose_one_u64(out, MR_METRIC_POOL_FREE, now->pipeline.pool_free);
    mr_expose_one_u64(out, MR_METRIC_ARENA_BYTES, now->pipeline.arena_bytes);
    mr_expose_one_u64(out, MR_METRIC_ARENA_HIGH_WATER, now->pipeline.arena_high_water_bytes);
    mr_expose_one_u64(out, MR_METRIC_MEMORY_LIMIT, now->pipeline.memory_limit_bytes);
    mr_expose_one_u64(out, MR_METRIC_MEMORY_USED, now->pipeline.memory_used_bytes);
    mr_expose_one_u64(out, MR_METRIC_ARENA_USED, now->pipeline.arena_used_bytes);
}

/* The failures that a source or a sink session comes back from; 0 is a figure too. */
static const mr_status retried[] = {MR_ERR_TRANSIENT, MR_ERR_AUTH, MR_ERR_PROTOCOL};

static void expose_errors(struct mr_exposition *out, const struct mr_monitor_snapshot *now)
{
    const struct mr_pipeline_stats *pipeline = &now->pipeline;
    mr_expose_begin(out, MR_METRIC_RECONNECTS);
    for (size_t i = 0; i < MR_ARRAY_LEN(retried); i++) {
        const char *labels[] = {"source", mr_status_name(retried[i])};
        mr_expose_u64(out, labels, pipeline->source_errors[retried[i]]);
    }
    mr_expose_begin(out, MR_METRIC_REBUILDS);
    for (size_t i = 0; i < MR_ARRAY_LEN(retried); i++) {
        mr_expose_u64(out, ONE(mr_status_name(retried[i])), pipeline->rebuild_reasons[retried[i]]);
    }
    mr_expose_begin(out, MR_METRIC_SOURCE_ERRORS);
    for (unsigned i = MR_ERR_CONFIG; i <= MR_ERR_SYSTEM; i++) {
        mr_expose_u64(out, ONE(mr_status_name((mr_status)i)), pipeline->source_errors[i]);
    }
    mr_expose_begin(out, MR_METRIC_KAFKA_ERRORS);
    for (uint32_t i = 0; i < now->sink.error_count; i++) {
        mr_expose_u64(out, ONE(now->sink.errors[i].code), now->sink.errors[i].count);
    }
}

static const char *oversize_word(enum mr_oversize policy)
{
    static const char *const words[] = {[MR_OVERSIZE_FAIL] = "fail",
                                        [MR_OVERSIZE_PLACEHOLDER] = "placeholder",
                                        [MR_OVERSIZE_DEAD_LETTER] = "dead-letter"};
    return words[policy];
}

static void expose_policies(struct mr_exposition *out, const struct mr_pipeline_stats *pipeline)
{
    mr_expose_begin(out, MR_METRIC_OVERSIZE);
    for (unsigned i = 0; i < MR_OVERSIZE_COUNT; i++) {
        mr_expose_u64(out, ONE(oversize_word((enum mr_oversize)i)), pipeline->oversize[i]);
    }
    mr_expose_one_u64(out, MR_METRIC_SKIPPED_TRANSACTIONS, pipeline->skipped_transactions);
}

static void expose_slot(struct mr_exposition *out, const struct mr_slot_view *slot, bool adopted)
{
    mr_expose_begin(out, MR_METRIC_SLOT_RETAINED);
    if (slot->exists) {
        mr_expose_u64(out, NULL, slot->retained_bytes);
    }
    mr_expose_begin(out, MR_METRIC_SLOT_SAFE);
    if (slot->has_limit) {
        mr_expose_f64(out, NULL, (double)slot->safe_bytes);
    }
    expose_words(out, MR_METRIC_SLOT_WAL_STATUS, wal_word, MR_WAL_STATUS_COUNT, slot->wal_status);
    mr_expose_one_u64(out, MR_METRIC_SLOT_FAILOVER, slot->failover);
    expose_words(out, MR_METRIC_SLOT_INVALIDATION, invalidation_word, MR_INVALIDATION_COUNT,
                 slot->invalidation);
    mr_expose_begin(out, MR_METRIC_SLOT_FORECAST);
    if (slot->exists) {
        mr_expose_f64(out, NULL, slot->forecast_seconds);
    }
    mr_expose_begin(out, MR_METRIC_SLOT_AGE);
    if (slot->known) {
        mr_expose_f64(out, NULL, slot->age_seconds);
    }
    mr_expose_one_u64(out, MR_METRIC_SLOT_ADOPTED, adopted);
    mr_expose_one_u64(out, MR_METRIC_SLOT_ERRORS, slot->errors);
}

/* ---- the Kafka client ---- */

/* One figure of each broker; a family with a `stat` label has two. */
struct broker_figure {
    enum mr_metric_id id;
    double (*value)(const struct mr_sink_broker *broker);
    double (*p99)(const struct mr_sink_broker *broker); /* NULL: no `stat` */
};

static double broker_retries(const struct mr_sink_broker *broker)
{
    return (double)broker->retries;
}

static double broker_up(const struct mr_sink_broker *broker)
{
    return broker->up ? 1 : 0;
}

static double broker_rtt(const struct mr_sink_broker *broker)
{
    return broker->rtt_avg;
}

static double broker_rtt_p99(const struct mr_sink_broker *broker)
{
    return broker->rtt_p99;
}

static double broker_queue(const struct mr_sink_broker *broker)
{
    return broker->queue_avg;
}

static double broker_queue_p99(const struct mr_sink_broker *broker)
{
    return broker->queue_p99;
}

static double broker_requests(const struct mr_sink_broker *broker)
{
    return (double)broker->requests_in_flight;
}

static double broker_timeouts(const struct mr_sink_broker *broker)
{
    return (double)broker->timeouts;
}

static void expose_brokers(struct mr_exposition *out, const struct mr_sink_client *client,
                           const struct broker_figure *figure)
{
    mr_expose_begin(out, figure->id);
    for (uint32_t i = 0; i < client->broker_count; i++) {
        const struct mr_sink_broker *broker = &client->brokers[i];
        char id[16];
        snprintf(id, sizeof(id), "%d", broker->id);
        const char *labels[] = {id, "avg"};
        mr_expose_f64(out, labels, figure->value(broker));
        if (figure->p99 != NULL) {
            labels[1] = "p99";
            mr_expose_f64(out, labels, figure->p99(broker));
        }
    }
}

static void expose_client_one(struct mr_exposition *out, const struct mr_sink_client *client,
                              enum mr_metric_id id, uint64_t value)
{
    mr_expose_begin(out, id);
    if (client->known) {
        mr_expose_u64(out, NULL, value);
    }
}

static void expose_client(struct mr_exposition *out, const struct mr_sink_client *client)
{
    expose_client_one(out, client, MR_METRIC_CLIENT_QUEUE_MESSAGES, client->queue_messages);
    expose_client_one(out, client, MR_METRIC_CLIENT_QUEUE_BYTES, client->queue_bytes);
    expose_client_one(out, client, MR_METRIC_CLIENT_REPLIES, client->pending_events);
    expose_client_one(out, client, MR_METRIC_CLIENT_MESSAGES, client->sent_messages);
    expose_client_one(out, client, MR_METRIC_CLIENT_BYTES, client->sent_bytes);
    expose_client_one(out, client, MR_METRIC_CLIENT_REQUESTS, client->requests);
    static const struct broker_figure figures[] = {
        {MR_METRIC_KAFKA_RETRIES, broker_retries, NULL},
        {MR_METRIC_BROKER_UP, broker_up, NULL},
        {MR_METRIC_BROKER_RTT, broker_rtt, broker_rtt_p99},
        {MR_METRIC_BROKER_QUEUE, broker_queue, broker_queue_p99},
        {MR_METRIC_BROKER_REQUESTS, broker_requests, NULL},
        {MR_METRIC_BROKER_TIMEOUTS, broker_timeouts, NULL},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(figures); i++) {
        expose_brokers(out, client, &figures[i]);
    }
}

/* ---- the process ---- */

static void expose_threads(struct mr_exposition *out)
{
    struct mr_thread_time threads[MR_PROCESS_THREADS_MAX];
    uint32_t count = mr_process_threads(threads);
    mr_expose_begin(out, MR_METRIC_THREAD_CPU);
    for (uint32_t i = 0; i < count; i++) {
        mr_expose_ns(out, ONE(threads[i].name), threads[i].cpu_ns);
    }
    mr_expose_begin(out, MR_METRIC_THREAD_WAIT);
    for (uint32_t i = 0; i < count; i++) {
        mr_expose_ns(out, ONE(threads[i].name), threads[i].wait_ns);
    }
}

static void expose_jemalloc(struct mr_exposition *out, const struct mr_process *process)
{
    const struct {
        enum mr_metric_id id;
        uint64_t value;
    } figures[] = {
        {MR_METRIC_JEMALLOC_ALLOCATED, process->jemalloc_allocated},
        {MR_METRIC_JEMALLOC_ACTIVE, process->jemalloc_active},
        {MR_METRIC_JEMALLOC_RESIDENT, process->jemalloc_resident},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(figures); i++) {
        mr_expose_begin(out, figures[i].id);
        if (process->has_jemalloc) {
            mr_expose_u64(out, NULL, figures[i].value);
        }
    }
}

static void expose_process(struct mr_exposition *out, const struct mr_process *process)
{
    mr_expose_one_f64(out, MR_METRIC_CPU_SECONDS, process->cpu_seconds);
    expose_threads(out);
    mr_expose_one_u64(out, MR_METRIC_RESIDENT, process->resident_bytes);
    mr_expose_one_u64(out, MR_METRIC_RESIDENT_PEAK, process->resident_peak_bytes);
    mr_expose_one_u64(out, MR_METRIC_VIRTUAL, process->virtual_bytes);
    mr_expose_one_u64(out, MR_METRIC_OPEN_FDS, process->open_fds);
    mr_expose_one_u64(out, MR_METRIC_MAX_FDS, process->max_fds);
    mr_expose_one_u64(out, MR_METRIC_THREADS, process->threads);
    mr_expose_one_f64(out, MR_METRIC_START_TIME, process->start_time);
    mr_expose_one_u64(out, MR_METRIC_ALLOCATIONS, mr_alloc_count());
    expose_jemalloc(out, process);
}

void mr_monitor_expose(const struct mr_monitor_snapshot *snapshot, const struct mr_meter *meter,
                       double write_seconds, struct mr_buffer *buffer)
{
    struct mr_exposition exposition = mr_exposition_begin(buffer);
    struct mr_exposition *out = &exposition;
    expose_state(out, snapshot);
    expose_positions(out, snapshot);
    expose_flow(out, snapshot);
    expose_copy(out, snapshot);
    expose_in_flight(out, snapshot);
    expose_times(out, snapshot);
    expose_batches(out, snapshot, meter);
    expose_errors(out, snapshot);
    expose_policies(out, &snapshot->pipeline);
    mr_expose_one_u64(out, MR_METRIC_LOG_DROPPED, mr_log_dropped());
    expose_slot(out, &snapshot->slot, snapshot->pipeline.slot_adopted);
    mr_expose_one_u64(out, MR_METRIC_HEARTBEAT_QUERIES, snapshot->heartbeat.queries);
    mr_expose_one_u64(out, MR_METRIC_HEARTBEAT_ERRORS, snapshot->heartbeat.errors);
    expose_client(out, &snapshot->sink.client);
    expose_process(out, &snapshot->process);
    mr_expose_one_f64(out, MR_METRIC_WRITE_SECONDS, write_seconds);
}
