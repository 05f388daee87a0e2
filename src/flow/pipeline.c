#include "flow/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "flow/memory.h"
#include "flow/pipeline_internal.h"

enum {
    /* Well below any sane wal_sender_timeout; and the server's own question is answered anyway. */
    IDLE_MS = 10000,
};

static void make_lanes(struct mr_pipeline *pipeline, struct mr_encoder *encoder)
{
    pipeline->lane_count = 1 + pipeline->options.lanes_beside;
    /* A lane that waits for a batch keeps the one it fills. */
    MR_ASSERT(pipeline->lane_count <= pipeline->pool.count);
    size_t size = pipeline->lane_count * sizeof(struct mr_lane);
    pipeline->lanes = aligned_alloc(_Alignof(struct mr_lane), size);
    MR_ASSERT(pipeline->lanes != NULL);
    for (uint32_t i = 0; i < pipeline->lane_count; i++) {
        mr_lane_init(&pipeline->lanes[i], pipeline, i,
                     i == MR_LANE_STREAM ? encoder : mr_encoder_clone(encoder));
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
    pipeline->on_open = on_open;
    pipeline->on_open_context = on_open_context;
    mr_pool_init(&pipeline->pool, options->batches, options->batch_bytes,
                 options->change_bytes_max);
    if (options->large_bytes_max != 0) {
        pipeline->pool.large_max = options->large_bytes_max;
    }
    mr_ring_init(&pipeline->to_sink, options->batches);
    pthread_mutex_init(&pipeline->hand_over, NULL);
    make_lanes(pipeline, encoder);
    mr_meter_init(&pipeline->meter);
    mr_mailbox_init(&pipeline->mailbox);
    pthread_mutex_init(&pipeline->identity_lock, NULL);
    pipeline->source_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pipeline->sink_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pipeline->schemas = mr_encoder_options(encoder)->schemas;
    if (pipeline->schemas != NULL) {
        mr_schemas_set_wake(pipeline->schemas, pipeline->sink_wake);
    }
    pipeline->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pipeline->abandon = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    MR_ASSERT(pipeline->abandon >= 0);
    mr_companions_attach(pipeline);
    return pipeline;
}

void mr_pipeline_free(struct mr_pipeline *pipeline)
{
    if (pipeline == NULL) {
        return;
    }
    MR_ASSERT(!pipeline->started);
    for (uint32_t i = 0; i < pipeline->lane_count; i++) {
        if (i != MR_LANE_STREAM) {
            mr_encoder_free(pipeline->lanes[i].encoder);
        }
        mr_lane_done(&pipeline->lanes[i]);
    }
    free(pipeline->lanes);
    mr_pool_done(&pipeline->pool);
    mr_ring_done(&pipeline->to_sink);
    pthread_mutex_destroy(&pipeline->hand_over);
    mr_standstill_done(&pipeline->standstill);
    pipeline->sink->standstill = NULL;
    pthread_mutex_destroy(&pipeline->identity_lock);
    mr_checkpoint_done(&pipeline->stored);
    mr_mailbox_done(&pipeline->mailbox);
    close(pipeline->source_wake);
    close(pipeline->sink_wake);
    close(pipeline->stop);
    close(pipeline->abandon);
    free(pipeline);
}

mr_status mr_pipeline_start(struct mr_pipeline *pipeline, int done_fd, struct mr_error *ret_error)
{
    pipeline->done_fd = done_fd;
    int failed = mr_thread_create(&pipeline->sink_thread, mr_delivery_main, pipeline);
    if (failed == 0) {
        failed = mr_thread_create(&pipeline->source_thread, mr_intake_main, pipeline);
        if (failed != 0) {
            atomic_store(&pipeline->source_ended, true);
            mr_wake(pipeline->sink_wake);
            pthread_join(pipeline->sink_thread, NULL);
        }
    }
    if (failed != 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "a thread can't be started: %s", strerror(failed));
    }
    pipeline->started = true;
    return MR_OK;
}

void mr_pipeline_stop_in_order(struct mr_pipeline *pipeline)
{
    int expected = MR_STOP_NONE;
    atomic_compare_exchange_strong(&pipeline->stop_level, &expected, MR_STOP_ORDERLY);
}

void mr_pipeline_stop(struct mr_pipeline *pipeline)
{
    if (atomic_exchange(&pipeline->stop_asked, true)) {
        atomic_store(&pipeline->stop_level, MR_STOP_NOW);
        mr_wake(pipeline->abandon);
    } else {
        mr_pipeline_stop_in_order(pipeline);
    }
    mr_wake(pipeline->stop);
    mr_wake(pipeline->source_wake);
}

mr_status mr_pipeline_ask(struct mr_pipeline *pipeline, struct mr_command *command,
                          uint32_t deadline_ms, struct mr_error *ret_error)
{
    return mr_mailbox_ask(&pipeline->mailbox, command, pipeline->source_wake, deadline_ms,
                          ret_error);
}

uint32_t mr_pipeline_shutdown_ms(const struct mr_pipeline *pipeline)
{
    return pipeline->options.shutdown_deadline_ms;
}

struct change {
    struct mr_command command;
    struct mr_pipeline *pipeline;
    const struct mr_pipeline_change *wanted;
};

static mr_status run_change(struct mr_command *command, struct mr_error *ret_error)
{
    const struct change *change = (const struct change *)command;
    return mr_intake_change(change->pipeline->intake, change->wanted, ret_error);
}

mr_status mr_pipeline_change(struct mr_pipeline *pipeline, const struct mr_pipeline_change *change,
                             uint32_t deadline_ms, struct mr_error *ret_error)
{
    struct change asked = {
        .command = {.when = MR_COMMAND_BETWEEN_TRANSACTIONS, .run = run_change},
        .pipeline = pipeline,
        .wanted = change,
    };
    return mr_pipeline_ask(pipeline, &asked.command, deadline_ms, ret_error);
}

static mr_status run_beat(struct mr_command *command, struct mr_error *ret_error)
{
    return mr_intake_beat(((const struct change *)command)->pipeline->intake, ret_error);
}

mr_status mr_pipeline_beat(struct mr_pipeline *pipeline, uint32_t deadline_ms,
                           struct mr_error *ret_error)
{
    struct change asked = {
        .command = {.when = MR_COMMAND_BETWEEN_TRANSACTIONS, .run = run_beat},
        .pipeline = pipeline,
    };
    return mr_pipeline_ask(pipeline, &asked.command, deadline_ms, ret_error);
}

mr_status mr_pipeline_join(struct mr_pipeline *pipeline, struct mr_error *ret_error)
{
    MR_ASSERT(pipeline->started);
    pthread_join(pipeline->source_thread, NULL);
    pthread_join(pipeline->sink_thread, NULL);
    pipeline->started = false;
    /* A fatal error of the sink is the cause of whatever the source then says. */
    if (pipeline->sink_status != MR_OK && pipeline->sink_status != MR_AGAIN) {
        *ret_error = pipeline->sink_error;
        return pipeline->sink_status;
    }
    if (pipeline->source_status != MR_OK) {
        *ret_error = pipeline->source_error;
    }
    return pipeline->source_status;
}

struct mr_pipeline_stats mr_pipeline_stats(const struct mr_pipeline *pipeline)
{
    const struct mr_meter *meter = &pipeline->meter;
    uint64_t returned = atomic_load(&meter->used_returned);
    struct mr_pipeline_stats stats = {
        .changes = atomic_load(&pipeline->changes),
        .records_acked = atomic_load(&pipeline->records_acked),
        .skipped = atomic_load(&pipeline->skipped),
        .transactions = atomic_load(&pipeline->transactions),
        .reconnects = atomic_load(&pipeline->reconnects),
        .rebuilds = atomic_load(&pipeline->rebuilds),
        .backpressure_ns = atomic_load(&pipeline->backpressure_ns),
        .received_lsn = atomic_load(&pipeline->received),
        .confirmed_lsn = atomic_load(&pipeline->confirmed),
        .source_turn_ns = atomic_load(&pipeline->source_turn_ns),
        .sink_turn_ns = atomic_load(&pipeline->sink_turn_ns),
        .source_connected = mr_handshake_look(&pipeline->handshake).state == MR_HANDSHAKE_OPEN,
        .sink_connected = atomic_load(&pipeline->sink_connected),
        .source_was_connected = atomic_load(&pipeline->source_was_connected),
        .source_stands_by = atomic_load(&pipeline->source->stands_by),
        .stopping = atomic_load(&pipeline->stop_level) != MR_STOP_NONE,
        .skipped_transactions = atomic_load(&pipeline->skipped_transactions),
        .commit_us_confirmed = atomic_load(&meter->commit_us_confirmed),
        .received_bytes = atomic_load(&pipeline->source->received_bytes),
        .slot_adopted = atomic_load(&pipeline->source->slot_adopted),
        .bytes_acked = atomic_load(&meter->bytes_acked),
        .source_wait_ns = atomic_load(&meter->source_wait_ns),
        .pool_batches = pipeline->pool.count,
        .pool_free = mr_ring_count(&pipeline->pool.free),
        .arena_bytes = atomic_load(&pipeline->pool.arena_bytes),
        .arena_high_water_bytes = atomic_load(&pipeline->pool.arena_bytes_high),
        .memory_limit_bytes = pipeline->options.memory_bytes,
        .memory_used_bytes = atomic_load(&pipeline->pool.arena_bytes) +
                             mr_memory_input(atomic_load(&pipeline->source->message_bytes_max)),
        .arena_used_bytes = atomic_load(&meter->used_handed) - returned,
    };
    for (uint32_t i = 0; i < pipeline->lane_count; i++) {
        const struct mr_lane *lane = &pipeline->lanes[i];
        uint64_t published = atomic_load(&lane->published);
        uint64_t handed = atomic_load(&lane->handed);
        stats.records += atomic_load(&lane->records);
        stats.bytes += atomic_load(&lane->bytes);
        stats.in_flight_batches += handed > published ? (uint32_t)(handed - published) : 0;
    }
    for (size_t i = 0; i < MR_OVERSIZE_COUNT; i++) {
        stats.oversize[i] = atomic_load(&pipeline->oversize[i]);
    }
    for (size_t i = 0; i < MR_STATUS_COUNT; i++) {
        stats.source_errors[i] = atomic_load(&meter->source_errors[i]);
        stats.rebuild_reasons[i] = atomic_load(&meter->rebuild_reasons[i]);
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
