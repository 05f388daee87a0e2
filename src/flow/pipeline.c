#include "flow/pipeline.h"

#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "flow/companions.h"
#include "flow/memory.h"

enum {
    /* Well below any sane wal_sender_timeout; and the server's own question is answered anyway. */
    IDLE_MS = 10000,
};

static void make_lanes(struct mr_pipeline *pipeline, struct mr_encoder *encoder)
{
    pipeline->lanes.count = 1 + pipeline->options.lanes_beside;
    /* A lane that waits for a batch keeps the one it fills. */
    MR_ASSERT(pipeline->lanes.count <= pipeline->pool.count);
    size_t size = pipeline->lanes.count * sizeof(struct mr_lane);
    pipeline->lanes.items = aligned_alloc(_Alignof(struct mr_lane), size);
    MR_ASSERT(pipeline->lanes.items != NULL);
    for (uint32_t i = 0; i < pipeline->lanes.count; i++) {
        mr_lane_init(&pipeline->lanes.items[i], pipeline, i,
                     i == MR_LANE_STREAM ? encoder : mr_encoder_clone(encoder));
    }
}

static void attach_companions(struct mr_pipeline *pipeline)
{
    pipeline->port = (struct mr_port){.stream = &pipeline->lanes.items[MR_LANE_STREAM],
                                      .lanes = pipeline->lanes.count,
                                      .stores = pipeline->sink->storage != MR_STORES_NOTHING,
                                      .takes_over = pipeline->options.handed_over.lsn != 0,
                                      .stop_fd = pipeline->wakes.stop,
                                      .skip = pipeline->options.skip_commit_lsn};
    for (uint32_t i = 0; i < pipeline->options.companion_count; i++) {
        pipeline->options.companions[i]->port = &pipeline->port;
    }
    MR_EACH_COMPANION(pipeline, attach)
    {
        companion->ops->attach(companion);
    }
}

struct mr_pipeline *mr_pipeline_new(const struct mr_pipeline_options *options,
                                    struct mr_source *source, struct mr_sink *sink,
                                    struct mr_encoder *encoder, void (*on_open)(void *context),
                                    void *on_open_context)
{
    /* Over-aligned members want aligned memory, which calloc does not promise. */
    struct mr_pipeline *pipeline = aligned_alloc(_Alignof(struct mr_pipeline), sizeof(*pipeline));
    MR_ASSERT(pipeline != NULL);
    memset(pipeline, 0, sizeof(*pipeline));
    pipeline->options = *options;
    if (options->idle_ms == 0) {
        pipeline->options.idle_ms = IDLE_MS;
    }
    pipeline->source = source;
    pipeline->sink = sink;
    mr_standstill_init(&pipeline->standstill);
    sink->standstill = &pipeline->standstill;
    pipeline->on_open.call = on_open;
    pipeline->on_open.context = on_open_context;
    uint32_t most = options->batches_most == 0 ? options->batches : options->batches_most;
    mr_pool_init(&pipeline->pool, options->batches, most, options->batch_bytes,
                 options->change_bytes_max);
    if (options->large_bytes_max != 0) {
        pipeline->pool.large_max = options->large_bytes_max;
    }
    mr_ring_init(&pipeline->hand_over.to_sink, most);
    pthread_mutex_init(&pipeline->hand_over.lock, NULL);
    make_lanes(pipeline, encoder);
    mr_meter_init(&pipeline->meter);
    mr_mailbox_init(&pipeline->mailbox);
    pthread_mutex_init(&pipeline->shared.lock, NULL);
    pipeline->wakes.source = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pipeline->wakes.sink = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pipeline->schemas = mr_encoder_options(encoder)->schemas;
    if (pipeline->schemas != NULL) {
        mr_schemas_set_wake(pipeline->schemas, pipeline->wakes.sink);
    }
    pipeline->wakes.stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pipeline->wakes.abandon = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    MR_ASSERT(pipeline->wakes.abandon >= 0);
    attach_companions(pipeline);
    return pipeline;
}

void mr_pipeline_free(struct mr_pipeline *pipeline)
{
    if (pipeline == NULL) {
        return;
    }
    MR_ASSERT(!pipeline->threads.started);
    for (uint32_t i = 0; i < pipeline->lanes.count; i++) {
        if (i != MR_LANE_STREAM) {
            mr_encoder_free(pipeline->lanes.items[i].encoder);
        }
        mr_lane_done(&pipeline->lanes.items[i]);
    }
    free(pipeline->lanes.items);
    mr_pool_done(&pipeline->pool);
    mr_ring_done(&pipeline->hand_over.to_sink);
    pthread_mutex_destroy(&pipeline->hand_over.lock);
    mr_standstill_done(&pipeline->standstill);
    pipeline->sink->standstill = NULL;
    pthread_mutex_destroy(&pipeline->shared.lock);
    mr_checkpoint_done(&pipeline->loaded.stored);
    mr_mailbox_done(&pipeline->mailbox);
    close(pipeline->wakes.source);
    close(pipeline->wakes.sink);
    close(pipeline->wakes.stop);
    close(pipeline->wakes.abandon);
    free(pipeline);
}

void mr_pipeline_identify(struct mr_pipeline *pipeline, const struct mr_identity *identity)
{
    MR_HOLD(&pipeline->shared.lock);
    pipeline->shared.identity = *identity;
    pipeline->shared.is_identified = true;
}

mr_status mr_pipeline_start(struct mr_pipeline *pipeline, int done_fd, struct mr_error *ret_error)
{
    pipeline->wakes.done = done_fd;
    MR_TRY(mr_thread_create(&pipeline->threads.sink, mr_delivery_main, pipeline, ret_error));
    mr_status status =
        mr_thread_create(&pipeline->threads.source, mr_intake_main, pipeline, ret_error);
    if (status != MR_OK) {
        atomic_store(&pipeline->ending.source, true);
        mr_wake(pipeline->wakes.sink);
        pthread_join(pipeline->threads.sink, NULL);
    }
    pipeline->threads.started = status == MR_OK;
    return status;
}

void mr_pipeline_stop_in_order(struct mr_pipeline *pipeline)
{
    int expected = MR_STOP_NONE;
    atomic_compare_exchange_strong(&pipeline->ending.level, &expected, MR_STOP_ORDERLY);
    mr_wake(pipeline->wakes.sink); /* what waits for pipeline.status_interval is stored now */
}

void mr_pipeline_stop(struct mr_pipeline *pipeline)
{
    if (atomic_exchange(&pipeline->ending.asked, true)) {
        atomic_store(&pipeline->ending.level, MR_STOP_NOW);
        mr_wake(pipeline->wakes.abandon);
    } else {
        mr_pipeline_stop_in_order(pipeline);
    }
    mr_wake(pipeline->wakes.stop);
    mr_wake(pipeline->wakes.source);
}

mr_status mr_pipeline_ask(struct mr_pipeline *pipeline, struct mr_command *command,
                          uint32_t deadline_ms, struct mr_error *ret_error)
{
    return mr_mailbox_ask(&pipeline->mailbox, command, pipeline->wakes.source, deadline_ms,
                          ret_error);
}

uint32_t mr_pipeline_shutdown_ms(const struct mr_pipeline *pipeline)
{
    return pipeline->options.shutdown_deadline_ms;
}

struct asked {
    struct mr_command command;
    struct mr_pipeline *pipeline;
    const struct mr_pipeline_change *change; /* NULL: a heartbeat */
};

static mr_status run_asked(struct mr_command *command, struct mr_error *ret_error)
{
    const struct asked *asked = (const struct asked *)command;
    struct mr_intake *intake = asked->pipeline->intake;
    return asked->change == NULL ? mr_intake_beat(intake, ret_error)
                                 : mr_intake_change(intake, asked->change, ret_error);
}

mr_status mr_pipeline_change(struct mr_pipeline *pipeline, const struct mr_pipeline_change *change,
                             uint32_t deadline_ms, struct mr_error *ret_error)
{
    struct asked asked = {
        .command = {.run = run_asked},
        .pipeline = pipeline,
        .change = change,
    };
    return mr_pipeline_ask(pipeline, &asked.command, deadline_ms, ret_error);
}

mr_status mr_pipeline_beat(struct mr_pipeline *pipeline, uint32_t deadline_ms,
                           struct mr_error *ret_error)
{
    return mr_pipeline_change(pipeline, NULL, deadline_ms, ret_error);
}

mr_status mr_pipeline_join(struct mr_pipeline *pipeline, struct mr_error *ret_error)
{
    MR_ASSERT(pipeline->threads.started);
    pthread_join(pipeline->threads.source, NULL);
    pthread_join(pipeline->threads.sink, NULL);
    pipeline->threads.started = false;
    /* A fatal error of the sink is the cause of whatever the source then says. */
    if (pipeline->results.sink != MR_OK && pipeline->results.sink != MR_AGAIN) {
        *ret_error = pipeline->results.sink_error;
        return pipeline->results.sink;
    }
    if (pipeline->results.source != MR_OK) {
        *ret_error = pipeline->results.source_error;
    }
    return pipeline->results.source;
}

struct mr_pipeline_stats mr_pipeline_stats(const struct mr_pipeline *pipeline)
{
    const struct mr_meter *meter = &pipeline->meter;
    uint64_t returned = atomic_load(&meter->used_returned);
    struct mr_pipeline_stats stats = {
        .changes = atomic_load(&pipeline->by_source.changes),
        .records_acked = atomic_load(&pipeline->by_sink.records_acked),
        .skipped = atomic_load(&pipeline->by_source.skipped),
        .transactions = atomic_load(&pipeline->by_source.transactions),
        .source.reconnects = atomic_load(&pipeline->by_source.reconnects),
        .sink.rebuilds = atomic_load(&pipeline->by_sink.rebuilds),
        .backpressure_ns = atomic_load(&pipeline->by_source.backpressure_ns),
        .received_lsn = atomic_load(&pipeline->by_source.received),
        .acknowledged_lsn = atomic_load(&pipeline->by_sink.acknowledged),
        .stored_lsn = atomic_load(&pipeline->published),
        .confirmed_lsn = atomic_load(&pipeline->by_source.confirmed),
        .source.turn_ns = atomic_load(&pipeline->by_source.turn_ns),
        .sink.turn_ns = atomic_load(&pipeline->by_sink.turn_ns),
        .source.tid = atomic_load(&pipeline->by_source.tid),
        .sink.tid = atomic_load(&pipeline->by_sink.tid),
        .source.connected = mr_handshake_look(&pipeline->handshake).state == MR_HANDSHAKE_OPEN,
        .sink.connected = atomic_load(&pipeline->by_sink.connected),
        .source.was_connected = atomic_load(&pipeline->by_source.was_connected),
        .source.stands_by = atomic_load(&pipeline->source->stands_by),
        .stopping = atomic_load(&pipeline->ending.level) != MR_STOP_NONE,
        .skipped_transactions = atomic_load(&pipeline->by_source.skipped_transactions),
        .commit_us_confirmed = atomic_load(&meter->commit_us_confirmed),
        .source.received_bytes = atomic_load(&pipeline->source->received_bytes),
        .source.backlog = mr_backlog_is_there(&pipeline->backlog),
        .source.slot_adopted = atomic_load(&pipeline->source->slot_adopted),
        .source.reselect_wait_ns = atomic_load(&pipeline->source->reselect_wait_ns),
        .bytes_acked = atomic_load(&meter->bytes_acked),
        .source.wait_ns = atomic_load(&meter->source_wait_ns),
        .memory.batches = pipeline->pool.count + atomic_load(&pipeline->pool.lent),
        .memory.free_batches = mr_ring_count(&pipeline->pool.free),
        .memory.arena_bytes = atomic_load(&pipeline->pool.arena_bytes),
        .memory.high_water_bytes = atomic_load(&pipeline->pool.arena_bytes_high),
        .memory.limit_bytes = pipeline->options.memory_bytes,
        .memory.used_bytes = atomic_load(&pipeline->pool.arena_bytes) +
                             mr_memory_input(atomic_load(&pipeline->source->message_bytes_max)),
        .memory.arena_used_bytes = atomic_load(&meter->used_handed) - returned,
    };
    for (uint32_t i = 0; i < pipeline->lanes.count; i++) {
        const struct mr_lane *lane = &pipeline->lanes.items[i];
        uint64_t stored = mr_lane_stored(lane);
        uint64_t handed = atomic_load(&lane->counts.sequence);
        stats.records += atomic_load(&lane->counts.records);
        stats.bytes += atomic_load(&lane->counts.bytes);
        stats.in_flight_batches += handed > stored ? (uint32_t)(handed - stored) : 0;
    }
    for (size_t i = 0; i < MR_CONTEXT_OUTCOMES; i++) {
        stats.source.contexts[i] = atomic_load(&pipeline->source->contexts[i]);
    }
    for (size_t i = 0; i < MR_RESELECTED_COUNT; i++) {
        stats.source.reselected[i] = atomic_load(&pipeline->source->reselected[i]);
    }
    for (size_t i = 0; i < MR_OVERSIZE_COUNT; i++) {
        stats.oversize[i] = atomic_load(&pipeline->by_source.oversize[i]);
    }
    for (size_t i = 0; i < MR_STATUS_COUNT; i++) {
        stats.source.errors[i] = atomic_load(&meter->source_errors[i]);
        stats.sink.rebuild_reasons[i] = atomic_load(&meter->rebuild_reasons[i]);
    }
    return stats;
}

struct mr_standstill *mr_pipeline_standstill(struct mr_pipeline *pipeline)
{
    return &pipeline->standstill;
}

const struct mr_meter *mr_pipeline_meter(const struct mr_pipeline *pipeline)
{
    return &pipeline->meter;
}
