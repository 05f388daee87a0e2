#include "control/figures.h"

#include "metrics/metrics.h"

#define AT(member) offsetof(struct mr_monitor_snapshot, member)
#define KIND_OF(member)                                                                            \
    _Generic(((struct mr_monitor_snapshot *)NULL)->member, bool                                    \
             : MR_FIGURE_BOOL, uint32_t                                                            \
             : MR_FIGURE_U32, uint64_t                                                             \
             : MR_FIGURE_U64, int64_t                                                              \
             : MR_FIGURE_I64, float                                                                \
             : MR_FIGURE_F32, double                                                               \
             : MR_FIGURE_F64)

#define ROW(metric, section, name, kind, member, when)                                             \
    {                                                                                              \
        metric, section, name, kind, AT(member), when                                              \
    }
/* By metric, section and name, and member of the snapshot. */
#define FIGURE(metric, section, name, member)                                                      \
    ROW(MR_METRIC_##metric, section, name, KIND_OF(member), member, 0)
#define FIGURE_AS(kind, metric, section, name, member)                                             \
    ROW(MR_METRIC_##metric, section, name, MR_FIGURE_##kind, member, 0)
/* Of metrics alone, of /status alone. */
#define METRIC(metric, member) FIGURE(metric, NULL, NULL, member)
#define METRIC_IF(condition, metric, member)                                                       \
    ROW(MR_METRIC_##metric, NULL, NULL, KIND_OF(member), member, AT(condition))
#define STATUS(section, name, member)                                                              \
    ROW(MR_METRIC_COUNT, section, name, KIND_OF(member), member, 0)

/* In /status they have this order; metrics have that of metrics.def. */
const struct mr_figure mr_figures[] = {
    STATUS(NULL, "time_ms", time_ms),
    STATUS(NULL, "state_since_ms", state_since_ms),
    FIGURE(READY, NULL, "ready", ready),
    FIGURE(STANDSTILL_SECONDS, "standstill", "seconds", standstill_seconds),
    FIGURE(SOURCE_CONNECTED, "source", "connected", pipeline.source.connected),
    STATUS("source", "left_alone", source_left_alone),
    FIGURE(SOURCE_STANDBY, "source", "standby", slot.is_standby),
    FIGURE(SOURCE_BACKLOG, "source", "backlog", pipeline.source.backlog),
    FIGURE(SINK_CONNECTED, "sink", "connected", sink.connected),
    FIGURE(TOPICS_MADE_AGAIN, "sink", "topics_made_again", again.count),
    FIGURE_AS(LSN, RECEIVED_LSN, "positions", "received", pipeline.received_lsn),
    FIGURE_AS(LSN, SENT_LSN, "positions", "sent", slot.cost.sent_lsn),
    FIGURE_AS(LSN, ACKNOWLEDGED_LSN, "positions", "acknowledged", pipeline.acknowledged_lsn),
    FIGURE_AS(LSN, STORED_LSN, "positions", "stored", pipeline.stored_lsn),
    FIGURE_AS(LSN, CONFIRMED_LSN, "positions", "confirmed", lag.confirmed_lsn),
    FIGURE_AS(LSN, SERVER_LSN, "positions", "server", lag.server_lsn),
    STATUS("behind", "sent", lag.behind[MR_BEHIND_SENT]),
    STATUS("behind", "received", lag.behind[MR_BEHIND_RECEIVED]),
    STATUS("behind", "acknowledged", lag.behind[MR_BEHIND_ACKNOWLEDGED]),
    STATUS("behind", "stored", lag.behind[MR_BEHIND_STORED]),
    STATUS("behind", "confirmed", lag.behind[MR_BEHIND_CONFIRMED]),
    FIGURE(LAG_BYTES, "lag", "bytes", lag.bytes),
    FIGURE(LAG_SECONDS, "lag", "seconds", lag.seconds),
    FIGURE(STALLED_SECONDS, "lag", "stalled_seconds", lag.stalled_seconds),
    STATUS("rates", "changes", rates.changes_rate),
    STATUS("rates", "records", rates.records_rate),
    STATUS("rates", "bytes", rates.bytes_rate),
    STATUS("rates", "transactions", rates.transactions_rate),
    STATUS("rates", "backpressure", rates.backpressure),
    STATUS("rates", "cpu", rates.cpu),
    STATUS("rates", "flush_p50", rates.flush_p50),
    STATUS("rates", "flush_p99", rates.flush_p99),
    STATUS("rates", "latency_p50", rates.latency_p50),
    STATUS("rates", "latency_p95", rates.latency_p95),
    STATUS("rates", "latency_p99", rates.latency_p99),
    FIGURE(MESSAGES_IN_FLIGHT, "in_flight", "messages", sink.records_in_flight),
    FIGURE(BYTES_IN_FLIGHT, "in_flight", "bytes", sink.bytes_in_flight),
    FIGURE(BATCHES_IN_FLIGHT, "in_flight", "batches", pipeline.in_flight_batches),
    FIGURE(POOL_BATCHES, "pool", "batches", pipeline.memory.batches),
    FIGURE(POOL_FREE, "pool", "free", pipeline.memory.free_batches),
    FIGURE(ARENA_BYTES, "pool", "bytes", pipeline.memory.arena_bytes),
    FIGURE(ARENA_HIGH_WATER, "pool", "high_water_bytes", pipeline.memory.high_water_bytes),
    METRIC(ARENA_USED, pipeline.memory.arena_used_bytes),
    FIGURE(MEMORY_LIMIT, "memory", "limit_bytes", pipeline.memory.limit_bytes),
    FIGURE(MEMORY_USED, "memory", "used_bytes", pipeline.memory.used_bytes),
    FIGURE(CHANGES, "totals", "changes", pipeline.changes),
    FIGURE(REPLAYED, "totals", "skipped", pipeline.skipped),
    FIGURE(TRANSACTIONS, "totals", "transactions", pipeline.transactions),
    METRIC(SKIPPED_TRANSACTIONS, pipeline.skipped_transactions),
    FIGURE(RECORDS, "totals", "records", pipeline.records),
    FIGURE(RECORDS_ACKNOWLEDGED, "totals", "acknowledged", pipeline.records_acked),
    FIGURE(RECORD_BYTES, "totals", "bytes", pipeline.bytes),
    FIGURE(RECORD_BYTES_ACKNOWLEDGED, "totals", "bytes_acknowledged", pipeline.bytes_acked),
    FIGURE(RECEIVED_BYTES, "totals", "received_bytes", pipeline.source.received_bytes),
    STATUS("totals", "reconnects", pipeline.source.reconnects),
    STATUS("totals", "rebuilds", pipeline.sink.rebuilds),
    FIGURE_AS(NS, BACKPRESSURE, "totals", "backpressure_seconds", pipeline.backpressure_ns),
    FIGURE_AS(NS, SOURCE_WAIT, NULL, NULL, pipeline.source.wait_ns),
    FIGURE_AS(NS, RESELECT_WAIT, NULL, NULL, pipeline.source.reselect_wait_ns),
    FIGURE(SNAPSHOT_TABLES, "snapshot", "tables", copies.snapshot.tables),
    FIGURE(SNAPSHOT_TABLES_DONE, "snapshot", "tables_done", copies.snapshot.tables_done),
    FIGURE(SNAPSHOT_ROWS, "snapshot", "rows", copies.snapshot.rows),
    FIGURE(SNAPSHOT_ROWS_ESTIMATED, "snapshot", "rows_estimated", copies.snapshot.rows_estimated),
    FIGURE(SNAPSHOT_BYTES, "snapshot", "bytes", copies.snapshot.bytes),
    FIGURE(SNAPSHOT_BYTES_ESTIMATED, "snapshot", "bytes_total", copies.snapshot.bytes_total),
    FIGURE(SNAPSHOT_SECONDS, "snapshot", "seconds", copies.snapshot.seconds),
    FIGURE(SNAPSHOT_SECONDS_LEFT, "snapshot", "seconds_left", copies.snapshot.seconds_left),
    FIGURE(SNAPSHOT_SLOT_IS_SHORT, "snapshot", "slot_is_short", danger.slot_is_short),
    STATUS("incremental", "paused", copies.incremental.paused),
    FIGURE(INCREMENTAL_TABLES, "incremental", "tables", copies.incremental.tables),
    FIGURE(INCREMENTAL_ROWS, "incremental", "rows", copies.incremental.rows),
    FIGURE(INCREMENTAL_PASSED_OVER, "incremental", "passed_over", copies.incremental.passed_over),
    FIGURE(INCREMENTAL_CHUNKS, "incremental", "chunks", copies.incremental.chunks),
    FIGURE(INCREMENTAL_REPEATED, "incremental", "repeated", copies.incremental.repeated),
    FIGURE(GAP_OPEN, "gap", "open", copies.gap.is_open),
    FIGURE_AS(LSN, COUNT, "gap", "from", copies.gap.from),
    FIGURE_AS(LSN, COUNT, "gap", "to", copies.gap.to),
    METRIC_IF(slot.exists, SLOT_RETAINED, slot.retained_bytes),
    METRIC_IF(slot.exists, SLOT_HELD, slot.cost.held_bytes),
    METRIC_IF(slot.exists, SLOT_CATALOG_AGE, slot.cost.catalog_xmin_age),
    METRIC_IF(slot.exists, SLOT_DECODED, slot.cost.decoded_bytes),
    METRIC_IF(slot.exists, SLOT_SPILLED, slot.cost.spilled_bytes),
    METRIC_IF(slot.exists, SLOT_SPILLED_TRANSACTIONS, slot.cost.spilled_transactions),
    METRIC_IF(slot.cost.has_cpu, WALSENDER_CPU, slot.cost.cpu_seconds),
    METRIC_IF(slot.has_limit, SLOT_SAFE, slot.safe_bytes),
    METRIC_IF(slot.exists, SLOT_FORECAST, slot.forecast_seconds),
    METRIC_IF(slot.known, SLOT_AGE, slot.age_seconds),
    METRIC(SLOT_FAILOVER, slot.failover),
    METRIC(SLOT_ADOPTED, pipeline.source.slot_adopted),
    METRIC(SLOT_ERRORS, slot.errors),
    METRIC(HEARTBEAT_QUERIES, heartbeat.queries),
    METRIC(HEARTBEAT_ERRORS, heartbeat.errors),
    METRIC_IF(sink.client.known, CLIENT_QUEUE_MESSAGES, sink.client.queue_messages),
    METRIC_IF(sink.client.known, CLIENT_QUEUE_BYTES, sink.client.queue_bytes),
    METRIC_IF(sink.client.known, CLIENT_REPLIES, sink.client.pending_events),
    METRIC_IF(sink.client.known, CLIENT_MESSAGES, sink.client.sent_messages),
    METRIC_IF(sink.client.known, CLIENT_BYTES, sink.client.sent_bytes),
    METRIC_IF(sink.client.known, CLIENT_REQUESTS, sink.client.requests),
    FIGURE(START_TIME, "process", "start_time", process.start_time),
    FIGURE(CPU_SECONDS, "process", "cpu_seconds", process.cpu_seconds),
    FIGURE(RESIDENT, "process", "resident_bytes", process.resident_bytes),
    FIGURE(RESIDENT_PEAK, "process", "resident_peak_bytes", process.resident_peak_bytes),
    METRIC(VIRTUAL, process.virtual_bytes),
    FIGURE(OPEN_FDS, "process", "open_fds", process.open_fds),
    METRIC(MAX_FDS, process.max_fds),
    FIGURE(THREADS, "process", "threads", process.threads),
    METRIC(ALLOCATIONS, process.allocations),
    METRIC_IF(process.has_jemalloc, JEMALLOC_ALLOCATED, process.jemalloc_allocated),
    METRIC_IF(process.has_jemalloc, JEMALLOC_ACTIVE, process.jemalloc_active),
    METRIC_IF(process.has_jemalloc, JEMALLOC_RESIDENT, process.jemalloc_resident),
    METRIC(LOG_DROPPED, own.log_dropped),
    METRIC(WRITE_SECONDS, own.write_seconds),
};
const size_t mr_figure_count = MR_ARRAY_LEN(mr_figures);

static struct mr_figure_value whole(uint64_t value)
{
    return (struct mr_figure_value){.is_whole = true, .whole = value, .number = (double)value};
}

static struct mr_figure_value figures_number(double value)
{
    return (struct mr_figure_value){.number = value};
}

static struct mr_figure_value read_figure(enum mr_figure_kind kind, const void *at)
{
    switch (kind) {
    case MR_FIGURE_BOOL:
        return whole(*(const bool *)at);
    case MR_FIGURE_U32:
        return whole(*(const uint32_t *)at);
    case MR_FIGURE_U64:
    case MR_FIGURE_LSN:
        return whole(*(const uint64_t *)at);
    case MR_FIGURE_I64:
        return figures_number((double)*(const int64_t *)at);
    case MR_FIGURE_F32:
        return figures_number(*(const float *)at);
    case MR_FIGURE_NS:
        return figures_number((double)*(const uint64_t *)at / 1e9);
    case MR_FIGURE_F64:
        break;
    }
    return figures_number(*(const double *)at);
}

struct mr_figure_value mr_figure_value(const struct mr_figure *figure,
                                       const struct mr_monitor_snapshot *snapshot)
{
    const char *base = (const char *)snapshot;
    const void *condition = base + figure->when;
    struct mr_figure_value value = read_figure(figure->kind, base + figure->at);
    value.is_there = figure->when == 0 || *(const bool *)condition;
    return value;
}
