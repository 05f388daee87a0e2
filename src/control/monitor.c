#include "control/monitor.h"

#include "base/thread.h"

#include <math.h>

#include "base/clock.h"
#include "control/monitor_internal.h"

enum {
    TEXT_SIZE_FIRST = 128 * 1024,
    /* More than this not received is a backlog, not the moment between writing and sending. */
    BEHIND_BYTES = 1024 * 1024,
};

/* Words for the states, and why rows don't flow in them where no cause says it. */
static const struct {
    const char *name, *reason;
} states[] = {
    [MR_STATE_STARTING] = {"starting", "PostgreSQL was not reached yet; the log says what is "
                                       "in the way"},
    [MR_STATE_STREAMING] = {"streaming", ""},
    [MR_STATE_WAITING_FOR_SOURCE] = {"waiting_for_source", "PostgreSQL's stream is opened again"},
    [MR_STATE_WAITING_FOR_SINK] = {"waiting_for_sink", "the sink takes no records; rows wait in "
                                                       "PostgreSQL until it does"},
    [MR_STATE_STOPPING] = {"stopping", "asked to stop: delivering what was read"},
    [MR_STATE_POISON] = {"poison", ""},
    [MR_STATE_STANDBY] = {"standby", "another instance streams from this slot; takes over when "
                                     "that ends"},
    [MR_STATE_SNAPSHOT] = {"snapshot", "copying existing rows; the stream begins after them"},
    [MR_STATE_FAILED] = {"failed", ""},
};

const char *mr_state_name(enum mr_state state)
{
    return states[state].name;
}

static void observe(void *context, enum mr_log_level level, const char *event, const char *sentence,
                    const struct mr_log_field *fields)
{
    struct mr_monitor *monitor = context;
    if (strcmp(event, MR_MONITOR_MEMORY_EVENT) == 0) {
        return; /* the page draws memory; a line a minute would push out what happened */
    }
    MR_HOLD(&monitor->events_lock);
    struct mr_monitor_event *kept = &monitor->events[monitor->event_count++ % MR_MONITOR_EVENTS];
    kept->time_ms = mr_wall_ns() / 1000000;
    kept->level = level;
    snprintf(kept->event, sizeof(kept->event), "%s", event);
    snprintf(kept->text, sizeof(kept->text), "%s", sentence);
    mr_log_fields_text(fields, kept->about, sizeof(kept->about));
}

static void copy_events(struct mr_monitor *monitor, struct mr_monitor_snapshot *snapshot)
{
    MR_HOLD(&monitor->events_lock);
    uint64_t count = monitor->event_count;
    uint64_t first = count > MR_MONITOR_EVENTS ? count - MR_MONITOR_EVENTS : 0;
    snapshot->events.count = (uint32_t)(count - first);
    for (uint64_t i = first; i < count; i++) {
        snapshot->events.items[i - first] = monitor->events[i % MR_MONITOR_EVENTS];
    }
}

static void look_at_sink(struct mr_monitor *monitor, struct mr_monitor_snapshot *now)
{
    struct mr_sink *sink = monitor->options.sink;
    if (sink->ops->view != NULL) {
        sink->ops->view(sink, &now->sink);
        return;
    }
    /* Files and the like take records at once; nothing is in flight. */
    now->sink.name = sink->ops->name;
    now->sink.connected = true;
    now->sink.records_acked = now->pipeline.records_acked;
    now->sink.bytes_acked = now->pipeline.bytes_acked;
}

static void monitor_look_at_tables(struct mr_monitor *monitor, struct mr_monitor_snapshot *now)
{
    const struct mr_table_counts *counts = monitor->options.tables;
    if (counts == NULL) {
        return;
    }
    /* Tables are as many as the limit at most; the list grows with them. */
    uint32_t size = mr_table_counts_size(counts);
    if (size > now->tables.count || now->tables.items == NULL) {
        now->tables.items = MR_REALLOC(now->tables.items, size * sizeof(*now->tables.items));
    }
    now->tables.count = mr_table_counts_read(counts, now->tables.items, size);
}

/* Nothing moves for so long: the sink is the cause, also where it says nothing. */
#define SILENT_NS (INT64_C(30) * 1000000000)

static void look_for_stall(struct mr_monitor *monitor, struct mr_monitor_snapshot *now,
                           int64_t now_ns)
{
    struct mr_standstill *standstill = mr_pipeline_standstill(monitor->options.pipeline);
    uint64_t acked = now->sink.records_acked;
    bool waits = now->sink.records_in_flight > 0 || now->pipeline.in_flight_batches > 0;
    if (acked != monitor->seen.acked || !waits || monitor->seen.acked_ns == 0) {
        monitor->seen.acked = acked;
        monitor->seen.acked_ns = now_ns;
    }
    now->lag.stalled_seconds = (double)(now_ns - monitor->seen.acked_ns) / 1e9;
    if (now_ns - monitor->seen.acked_ns > SILENT_NS) {
        mr_standstill_begin(standstill, MR_CAUSE_SINK_SILENT,
                            "the sink has records and acknowledges none; see whether it hangs, its "
                            "disk is full or too few replicas are in sync; rows wait in PostgreSQL "
                            "until it goes on");
    } else {
        mr_standstill_end(standstill, MR_CAUSE_SINK_SILENT);
    }
}

static void look_for_standstill(struct mr_monitor *monitor, struct mr_monitor_snapshot *now,
                                int64_t now_ns)
{
    const struct mr_pipeline_stats *pipeline = &now->pipeline;
    struct mr_standstill_view *standstill = &now->standstill;
    if (pipeline->source.stands_by) { /* it is there, and so is who has the stream */
        mr_standstill_end(mr_pipeline_standstill(monitor->options.pipeline),
                          MR_CAUSE_POSTGRESQL_AWAY);
    }
    mr_standstill_look(mr_pipeline_standstill(monitor->options.pipeline), standstill);
    now->standstill_seconds =
        standstill->cause == MR_CAUSE_NONE ? 0 : (double)(now_ns - standstill->since_ns) / 1e9;
    /* A stream ends with the sink's session, and begins when the next one knows its position. */
    now->source_left_alone = pipeline->source.was_connected && !pipeline->source.connected &&
                             !standstill->postgresql_away &&
                             (mr_cause_is_of_sink(standstill->cause) || !pipeline->sink.connected);
    now->danger.slot_is_lost_soon =
        now->slot.known && now->slot.has_limit &&
        (now->slot.forecast_seconds < MR_MONITOR_DANGER_S || mr_slot_is_near(&now->slot));
}

/* The cause decides; without one, a side that is not there yet, or between two sessions. */
static enum mr_state flow_state(const struct mr_monitor_snapshot *now)
{
    enum mr_cause cause = now->standstill.cause;
    if (!now->pipeline.source.was_connected) {
        /* A sink that keeps the position is asked for it before the stream begins. */
        return mr_cause_is_of_sink(cause) ? MR_STATE_WAITING_FOR_SINK : MR_STATE_STARTING;
    }
    if (mr_cause_is_of_sink(cause)) {
        return MR_STATE_WAITING_FOR_SINK;
    }
    if (cause == MR_CAUSE_POSTGRESQL_AWAY) {
        return MR_STATE_WAITING_FOR_SOURCE;
    }
    if (!now->sink.connected || now->source_left_alone) {
        return MR_STATE_WAITING_FOR_SINK;
    }
    return now->pipeline.source.connected ? MR_STATE_STREAMING : MR_STATE_WAITING_FOR_SOURCE;
}

static enum mr_state monitor_state_of(const struct mr_monitor_snapshot *now)
{
    enum mr_cause cause = now->standstill.cause;
    if (cause == MR_CAUSE_ENDED) {
        return MR_STATE_FAILED;
    }
    if (now->pipeline.stopping) {
        return MR_STATE_STOPPING;
    }
    if (mr_cause_is_poison(cause)) {
        return MR_STATE_POISON;
    }
    if (now->pipeline.source.stands_by) {
        /* Without Kafka it could not take over. */
        return cause == MR_CAUSE_KAFKA_AWAY ? MR_STATE_WAITING_FOR_SINK : MR_STATE_STANDBY;
    }
    if (now->copies.snapshot.state == MR_COPY_RUNNING && now->sink.connected &&
        !mr_cause_stops_all(cause)) {
        return MR_STATE_SNAPSHOT;
    }
    return flow_state(now);
}

/* One line: the state, its cause, and what threatens the slot. */
static void say_reason(struct mr_monitor_snapshot *now)
{
    MR_TEXT(text);
    const struct mr_standstill_view *standstill = &now->standstill;
    if (now->state == MR_STATE_STARTING && now->slot.held_by[0] != '\0') {
        mr_text_format(&text, "PostgreSQL makes the slot once this has ended: %s",
                       now->slot.held_by);
    } else if (standstill->cause == MR_CAUSE_NONE || now->state == MR_STATE_STANDBY) {
        mr_text_string(&text, states[now->state].reason);
    } else if (now->state == MR_STATE_STOPPING) {
        mr_text_format(&text, "%s; in the way is: %s", states[now->state].reason, standstill->text);
    } else {
        mr_text_string(&text, standstill->text);
    }
    if (now->again.count > 0) {
        mr_text_string(&text, text.data == NULL || text.data[0] == '\0' ? "" : ". ");
        mr_text_string(&text, now->again.text);
    }
    if (now->danger.slot_is_lost_soon) {
        double left = now->slot.forecast_seconds;
        mr_text_string(&text, text.data == NULL || text.data[0] == '\0' ? "" : ". ");
        if (left < MR_MONITOR_DANGER_S) {
            mr_text_format(&text, "at this rate the slot is lost in %.0f %s",
                           left < 120 ? left : left / 60, left < 120 ? "s" : "min");
        } else {
            mr_text_format(&text, "the slot is lost after %lld MB more",
                           (long long)now->slot.safe_bytes / 1000000);
        }
        mr_text_format(&text, ": if the disk has room, run %s",
                       mr_slot_raise(now->slot.limit_bytes, now->slot.retained_bytes).text);
    }
    snprintf(now->reason, sizeof(now->reason), "%s", text.data == NULL ? "" : text.data);
}

static void look_at_state(struct mr_monitor *monitor, struct mr_monitor_snapshot *now,
                          int64_t now_ns)
{
    look_for_standstill(monitor, now, now_ns);
    enum mr_state state = monitor_state_of(now);
    if (state != monitor->state) {
        monitor->state = state;
        monitor->state_since_ns = now_ns;
        monitor->bottleneck = MR_STAGE_NONE; /* what was sampled is the former state's */
    }
    now->state = state;
    now->state_since_ms = now->time_ms - (now_ns - monitor->state_since_ns) / 1000000;
    now->ready =
        state == MR_STATE_STREAMING || state == MR_STATE_STANDBY || state == MR_STATE_SNAPSHOT;
    now->bottleneck = mr_cause_stops_all(now->standstill.cause)
                          ? mr_bottleneck_of(now->standstill.cause)
                          : monitor->bottleneck;
    say_reason(now);
}

static mr_lsn highest(mr_lsn a, mr_lsn b)
{
    return a > b ? a : b;
}

/* How long ago the newest confirmed commit was. A clock that was set, or is not the server's, may
 * say less than has passed since it was confirmed. */
static int64_t commit_age_ns(struct mr_monitor *monitor, const struct mr_monitor_snapshot *now,
                             int64_t now_ns)
{
    if (now->pipeline.commit_us_confirmed != monitor->seen.commit_us) {
        monitor->seen.commit_us = now->pipeline.commit_us_confirmed;
        monitor->seen.commit_ns = now_ns;
    }
    int64_t by_clock_ns = now->time_ms * 1000000 - monitor->seen.commit_us * 1000;
    int64_t passed_ns = now_ns - monitor->seen.commit_ns;
    return by_clock_ns > passed_ns ? by_clock_ns : passed_ns;
}

/* WAL that is not captured (of a vacuum, of other tables) is not lag. What the server had written
 * when it was looked at has been passed by the stream once that has received as much; when nothing
 * is in flight then, all that was captured of it is delivered. */
static void look_what_has_passed(struct mr_monitor *monitor, const struct mr_monitor_snapshot *now,
                                 int64_t now_ns)
{
    const struct mr_pipeline_stats *pipeline = &now->pipeline;
    /* What a session held when it failed is in flight no more, and delivered no more. */
    bool delivered = pipeline->source.connected && now->sink.records_in_flight == 0 &&
                     pipeline->in_flight_batches == 0 && !mr_cause_stops_all(now->standstill.cause);
    if (pipeline->received_lsn < monitor->seen.server_lsn) {
        return;
    }
    bool passed_all = pipeline->received_lsn >= now->lag.server_lsn;
    int64_t until_ns = passed_all ? now_ns : monitor->seen.server_ns;
    if (delivered && pipeline->received_lsn != 0 && until_ns > monitor->seen.caught_up_ns) {
        monitor->seen.caught_up_ns = until_ns;
    }
    monitor->seen.server_lsn = now->lag.server_lsn;
    monitor->seen.server_ns = now_ns;
}

/* The age of what is not confirmed: all up to the newest confirmed commit is, and so was all at the
 * moment when nothing was left to confirm. Where neither was seen yet, it is older than we have
 * seen it wait. */
static void look_at_lag(struct mr_monitor *monitor, struct mr_monitor_snapshot *now, int64_t now_ns)
{
    const struct mr_pipeline_stats *pipeline = &now->pipeline;
    now->lag.server_lsn = highest(now->slot.server_lsn, pipeline->received_lsn);
    mr_lsn confirmed = highest(pipeline->confirmed_lsn, now->slot.confirmed_lsn);
    now->lag.confirmed_lsn = confirmed;
    /* Until it is known what is confirmed, the whole address of the WAL's end would look like
     * lag. */
    now->lag.bytes =
        confirmed != 0 && now->lag.server_lsn > confirmed ? now->lag.server_lsn - confirmed : 0;
    if (now->state == MR_STATE_STANDBY) {
        /* Only the instance that streams knows how old the oldest waiting row is. */
        monitor->seen.caught_up_ns = now_ns;
        now->lag.seconds = NAN;
        return;
    }
    if (now->lag.bytes == 0 && confirmed != 0) {
        monitor->seen.caught_up_ns = now_ns;
    }
    look_what_has_passed(monitor, now, now_ns);
    if (now->lag.bytes > 0 && monitor->seen.waiting_ns == 0) {
        monitor->seen.waiting_ns = now_ns;
    }
    int64_t age_ns = INT64_MAX;
    if (pipeline->commit_us_confirmed != 0) {
        age_ns = commit_age_ns(monitor, now, now_ns);
    }
    if (monitor->seen.caught_up_ns != 0 && now_ns - monitor->seen.caught_up_ns < age_ns) {
        age_ns = now_ns - monitor->seen.caught_up_ns;
    }
    if (age_ns == INT64_MAX) {
        age_ns = monitor->seen.waiting_ns != 0 ? now_ns - monitor->seen.waiting_ns : 0;
    }
    now->lag.seconds = (double)age_ns / 1e9;
}

static void look_behind(struct mr_monitor *monitor, struct mr_monitor_snapshot *now, int64_t now_ns)
{
    const mr_lsn places[MR_BEHIND_COUNT] = {
        [MR_BEHIND_SENT] = highest(now->slot.cost.sent_lsn, now->pipeline.received_lsn),
        [MR_BEHIND_RECEIVED] = now->pipeline.received_lsn,
        [MR_BEHIND_ACKNOWLEDGED] = now->pipeline.acknowledged_lsn,
        [MR_BEHIND_STORED] = now->pipeline.stored_lsn,
        [MR_BEHIND_CONFIRMED] = now->lag.confirmed_lsn,
    };
    mr_ladder_add(&monitor->ladder, now_ns, now->lag.server_lsn);
    for (int i = 0; i < MR_BEHIND_COUNT; i++) {
        now->lag.behind[i] = mr_ladder_seconds(&monitor->ladder, now_ns, places[i]);
    }
}

bool mr_monitor_slot_is_short(const struct mr_copy_stats *copy, const struct mr_slot_view *slot)
{
    return copy->state == MR_COPY_RUNNING && slot->known && slot->has_limit &&
           isfinite(slot->forecast_seconds) && isfinite(copy->seconds_left) &&
           slot->forecast_seconds < copy->seconds_left;
}

/* While rows are copied nothing is confirmed, and the slot retains all WAL. */
static void look_at_copy(struct mr_monitor *monitor, struct mr_monitor_snapshot *now)
{
    struct mr_copies *copies = monitor->options.copies;
    if (copies != NULL) {
        now->copies.snapshot = mr_copies_stats(copies);
        now->copies.incremental = mr_copies_incremental(copies);
        now->copies.gap = mr_copies_gap(copies);
        now->copies.table_count =
            now->copies.snapshot.state == MR_COPY_IDLE
                ? 0
                : mr_copies_tables(copies, now->copies.tables, MR_MONITOR_COPIED);
    }
    now->danger.slot_is_short = mr_monitor_slot_is_short(&now->copies.snapshot, &now->slot);
}

/* Reads everything into `monitor->now`. With the lock. */
static void monitor_look(struct mr_monitor *monitor)
{
    struct mr_monitor_snapshot *now = monitor->now;
    int64_t now_ns = mr_monotonic_ns();
    now->time_ms = mr_wall_ns() / 1000000;
    now->uptime_ms = (now_ns - monitor->begin_ns) / 1000000;
    now->pipeline = mr_pipeline_stats(monitor->options.pipeline);
    look_at_sink(monitor, now);
    if (monitor->options.slot != NULL) {
        const struct mr_source_stats *source = &now->pipeline.source;
        mr_pg_slot_follow(monitor->options.slot, now->pipeline.received_lsn,
                          source->connected || source->stands_by);
        mr_pg_slot_view(monitor->options.slot, &now->slot);
    }
    now->heartbeat = mr_pg_heartbeat_counts(monitor->options.heartbeat);
    monitor_look_at_tables(monitor, now);
    look_for_stall(monitor, now, now_ns);
    now->again = mr_known_topics_view(monitor->options.topics);
    look_at_state(monitor, now, now_ns);
    look_at_lag(monitor, now, now_ns);
    look_behind(monitor, now, now_ns);
    look_at_copy(monitor, now);
    mr_process_sample(&now->process);
    now->own.log_dropped = mr_log_dropped();
    const struct mr_meter *meter = mr_pipeline_meter(monitor->options.pipeline);
    mr_histogram_read(&meter->flush, &now->times.flush);
    mr_histogram_read(&meter->latency, &now->times.latency);
    for (uint32_t i = 0; i < MR_PATH_COUNT; i++) {
        mr_histogram_read(mr_meter_path(meter, (enum mr_path)i), &now->times.path[i]);
    }
    if (monitor->sample_count > 0) {
        now->rates = monitor->samples[(monitor->sample_count - 1) % MR_MONITOR_SAMPLES];
    }
}

static struct mr_monitor_mark make_mark(const struct mr_monitor *monitor)
{
    const struct mr_monitor_snapshot *now = monitor->now;
    return (struct mr_monitor_mark){
        .time_ns = mr_monotonic_ns(),
        .pipeline = now->pipeline,
        .flush = now->times.flush,
        .latency = now->times.latency,
        .cpu_seconds = now->process.cpu_seconds,
        .encode_ns = atomic_load(&mr_pipeline_meter(monitor->options.pipeline)->encode_ns),
        .source_cpu_ns = mr_process_busy_ns(now->pipeline.source.tid),
        .sink_cpu_ns = mr_process_busy_ns(now->pipeline.sink.tid),
    };
}

static enum mr_stage find_bottleneck(const struct mr_monitor *monitor,
                                     const struct mr_monitor_mark *mark)
{
    const struct mr_monitor_mark *before = &monitor->mark;
    const struct mr_monitor_snapshot *now = monitor->now;
    if (mr_cause_stops_all(now->standstill.cause)) {
        return mr_bottleneck_of(now->standstill.cause);
    }
    struct mr_flow flow = {
        .elapsed_ns = (uint64_t)(mark->time_ns - before->time_ns),
        .backpressure_ns =
            mr_monitor_grown(mark->pipeline.backpressure_ns, before->pipeline.backpressure_ns),
        .source_cpu_ns = mr_monitor_grown(mark->source_cpu_ns, before->source_cpu_ns),
        .sink_cpu_ns = mr_monitor_grown(mark->sink_cpu_ns, before->sink_cpu_ns),
        .encode_ns = mr_monitor_grown(mark->encode_ns, before->encode_ns),
        .source_connected = now->pipeline.source.connected || now->source_left_alone ||
                            now->state == MR_STATE_STANDBY,
        .sink_connected = now->sink.connected,
        .behind = now->state != MR_STATE_STANDBY &&
                  now->lag.server_lsn > now->pipeline.received_lsn + BEHIND_BYTES,
        .in_flight = now->pipeline.in_flight_batches > 0,
    };
    return mr_bottleneck(&flow);
}

static float rate(uint64_t now, uint64_t before, double seconds)
{
    return (float)((double)mr_monitor_grown(now, before) / seconds);
}

static void add_sample(struct mr_monitor *monitor, const struct mr_monitor_mark *mark)
{
    const struct mr_monitor_mark *before = &monitor->mark;
    const struct mr_pipeline_stats *was = &before->pipeline;
    const struct mr_monitor_snapshot *now = monitor->now;
    struct mr_histogram_view flush, latency;
    mr_histogram_since(&mark->flush, &before->flush, &flush);
    mr_histogram_since(&mark->latency, &before->latency, &latency);
    double seconds = (double)(mark->time_ns - before->time_ns) / 1e9;
    const struct mr_pipeline_stats *is = &mark->pipeline;
    uint64_t count = monitor->sample_count;
    if (count > 0 && monitor->samples[(count - 1) % MR_MONITOR_SAMPLES].time_ms > now->time_ms) {
        /* The clock was set back: samples after a time would be the wrong ones. */
        monitor->sample_count = 0;
    }
    monitor->samples[monitor->sample_count++ % MR_MONITOR_SAMPLES] = (struct mr_monitor_sample){
        .time_ms = now->time_ms,
        .changes_rate = rate(is->changes, was->changes, seconds),
        .records_rate = rate(is->records_acked, was->records_acked, seconds),
        .bytes_rate = rate(is->bytes_acked, was->bytes_acked, seconds),
        .transactions_rate = rate(is->transactions, was->transactions, seconds),
        .flush_p50 = (float)mr_histogram_quantile(&flush, 0.5),
        .flush_p99 = (float)mr_histogram_quantile(&flush, 0.99),
        .latency_p50 = (float)mr_histogram_quantile(&latency, 0.5),
        .latency_p95 = (float)mr_histogram_quantile(&latency, 0.95),
        .latency_p99 = (float)mr_histogram_quantile(&latency, 0.99),
        .lag_seconds = (float)now->lag.seconds,
        .backpressure = rate(is->backpressure_ns, was->backpressure_ns, seconds * 1e9),
        .cpu = (float)((mark->cpu_seconds - before->cpu_seconds) / seconds),
        .lag_bytes = now->lag.bytes,
        .messages_in_flight = now->sink.records_in_flight,
        .bytes_in_flight = now->sink.bytes_in_flight,
        .resident_bytes = now->process.resident_bytes,
        .state = (uint8_t)now->state,
        .stage = (uint8_t)monitor->bottleneck,
    };
}

static int sample(void *context)
{
    struct mr_monitor *monitor = context;
    pthread_mutex_lock(&monitor->lock);
    monitor_look(monitor);
    struct mr_monitor_mark mark = make_mark(monitor);
    if (monitor->mark.time_ns != 0) {
        monitor->bottleneck = find_bottleneck(monitor, &mark);
        monitor->now->bottleneck = monitor->bottleneck;
        add_sample(monitor, &mark);
        monitor->now->reselect_waited = rate(mark.pipeline.source.reselect_wait_ns,
                                             monitor->mark.pipeline.source.reselect_wait_ns,
                                             (double)(mark.time_ns - monitor->mark.time_ns));
        mr_monitor_mix_add(&monitor->mix, monitor->now, mark.time_ns);
        mr_monitor_explain(monitor->now, &monitor->mix);
    }
    monitor->mark = mark;
    mr_monitor_log(monitor, monitor->now, mark.time_ns);
    pthread_mutex_unlock(&monitor->lock);
    return (int)monitor->options.sample_ms;
}

struct mr_monitor *mr_monitor_new(const struct mr_monitor_options *options)
{
    struct mr_monitor *monitor = MR_NEW(struct mr_monitor);
    monitor->options = *options;
    monitor->begin_ns = mr_monotonic_ns();
    monitor->state_since_ns = monitor->begin_ns;
    monitor->now = MR_NEW(struct mr_monitor_snapshot);
    monitor->text_size = TEXT_SIZE_FIRST;
    mr_ticker_init(&monitor->ticker, "mr-monitor", sample, monitor);
    pthread_mutex_init(&monitor->lock, NULL);
    pthread_mutex_init(&monitor->events_lock, NULL);
    mr_log_observe(observe, monitor);
    return monitor;
}

void mr_monitor_free(struct mr_monitor *monitor)
{
    if (monitor == NULL) {
        return;
    }
    mr_log_observe(NULL, NULL);
    pthread_mutex_destroy(&monitor->lock);
    pthread_mutex_destroy(&monitor->events_lock);
    mr_ticker_done(&monitor->ticker);
    mr_monitor_snapshot_free(monitor->now);
    free(monitor->mix.begin.counted);
    free(monitor);
}

mr_status mr_monitor_start(struct mr_monitor *monitor, struct mr_error *ret_error)
{
    monitor->logged.memory_ns = mr_monotonic_ns();
    return mr_ticker_start(&monitor->ticker, 0, ret_error);
}

void mr_monitor_stop(struct mr_monitor *monitor)
{
    mr_ticker_stop(&monitor->ticker);
}

struct mr_monitor_snapshot *mr_monitor_snapshot_new(struct mr_monitor *monitor)
{
    struct mr_monitor_snapshot *snapshot = MR_NEW(struct mr_monitor_snapshot);
    pthread_mutex_lock(&monitor->lock);
    monitor_look(monitor);
    mr_process_read(&monitor->now->process);
    *snapshot = *monitor->now;
    snapshot->tables.items = NULL;
    if (snapshot->tables.count > 0) {
        size_t size = snapshot->tables.count * sizeof(*snapshot->tables.items);
        snapshot->tables.items = MR_ALLOC(size);
        memcpy(snapshot->tables.items, monitor->now->tables.items, size);
    }
    pthread_mutex_unlock(&monitor->lock);
    copy_events(monitor, snapshot);
    return snapshot;
}

void mr_monitor_snapshot_free(struct mr_monitor_snapshot *snapshot)
{
    if (snapshot != NULL) {
        free(snapshot->tables.items);
        free(snapshot);
    }
}

uint32_t mr_monitor_history(struct mr_monitor *monitor, int64_t after_ms,
                            struct mr_monitor_sample *ret_samples, uint32_t capacity)
{
    MR_HOLD(&monitor->lock);
    uint64_t count = monitor->sample_count;
    uint64_t i = count > MR_MONITOR_SAMPLES ? count - MR_MONITOR_SAMPLES : 0;
    uint32_t copied = 0;
    for (; i < count && copied < capacity; i++) {
        const struct mr_monitor_sample *one = &monitor->samples[i % MR_MONITOR_SAMPLES];
        if (one->time_ms > after_ms) {
            ret_samples[copied++] = *one;
        }
    }
    return copied;
}

char *mr_monitor_metrics(struct mr_monitor *monitor, size_t *ret_len)
{
    pthread_mutex_lock(&monitor->lock);
    int64_t begin_ns = mr_monotonic_ns();
    monitor_look(monitor);
    mr_process_read(&monitor->now->process);
    mr_process_threads(&monitor->now->own.threads);
    uint8_t *text = NULL;
    struct mr_buffer out = {.full = true};
    for (; out.full; monitor->text_size *= out.full ? 2 : 1) {
        text = MR_REALLOC(text, monitor->text_size);
        out = mr_buffer_init(text, monitor->text_size);
        mr_monitor_expose(monitor->now, mr_pipeline_meter(monitor->options.pipeline), &out);
        if (monitor->options.more_metrics != NULL) {
            monitor->options.more_metrics(monitor->options.context, &out);
        }
    }
    monitor->now->own.write_seconds = (double)(mr_monotonic_ns() - begin_ns) / 1e9;
    pthread_mutex_unlock(&monitor->lock);
    *ret_len = (size_t)(out.at - text);
    return (char *)text;
}
