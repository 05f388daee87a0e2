#include "flow/meter.h"

#include "base/clock.h"
#include "base/stage.h"

/* Clocks of two machines, or a clock that was set, may make a time negative. */
static void record_ns(struct mr_histogram *histogram, int64_t ns)
{
    mr_histogram_record(histogram, ns > 0 ? (uint64_t)ns : 0);
}

const char *mr_path_name(enum mr_path path)
{
    return mr_stage_name((enum mr_stage)(MR_STAGE_RECEIVE + (int)path));
}

void mr_meter_init(struct mr_meter *meter)
{
    struct mr_histogram *seconds[] = {&meter->received,  &meter->decoded,  &meter->encoded,
                                      &meter->confirmed, &meter->enqueued, &meter->flush,
                                      &meter->latency};
    for (size_t i = 0; i < MR_ARRAY_LEN(seconds); i++) {
        mr_histogram_init(seconds[i], MR_HISTOGRAM_SECONDS);
    }
    mr_histogram_init(&meter->batch_records, MR_HISTOGRAM_COUNTS);
    mr_histogram_init(&meter->batch_bytes, MR_HISTOGRAM_BYTES);
    mr_histogram_init(&meter->batch_fill, MR_HISTOGRAM_RATIO);
    mr_histogram_init(&meter->transaction_changes, MR_HISTOGRAM_COUNTS);
    mr_histogram_init(&meter->transaction_bytes, MR_HISTOGRAM_BYTES);
}

void mr_meter_first(struct mr_batch *batch, int64_t received_ns, int64_t received_wall_ns,
                    int64_t decoded_ns)
{
    batch->received_ns = received_ns;
    batch->received_wall_ns = received_wall_ns;
    batch->decoded_ns = decoded_ns;
    batch->encoded_ns = mr_monotonic_ns();
}

void mr_meter_hand_over(struct mr_meter *meter, const struct mr_batch *batch)
{
    MR_ASSERT(batch->state == MR_BATCH_SEALED);
    if (batch->record_count == 0) {
        return; /* a position alone */
    }
    int64_t commit_us = mr_batch_record(batch, 0)->commit_time_us;
    if (commit_us > 0 && batch->lane == 0) {
        record_ns(&meter->received, batch->received_wall_ns - commit_us * 1000);
    }
    int64_t encode_ns = batch->encoded_ns - batch->decoded_ns;
    record_ns(&meter->decoded, batch->decoded_ns - batch->received_ns);
    record_ns(&meter->encoded, encode_ns);
    mr_counter_add(&meter->encode_ns, (uint64_t)encode_ns * batch->record_count);
    uint64_t used = mr_batch_used(batch);
    mr_histogram_record(&meter->batch_records, batch->record_count);
    mr_histogram_record(&meter->batch_bytes, mr_batch_bytes(batch));
    mr_histogram_record(&meter->batch_fill, used * 1000 / batch->block_size);
    mr_counter_add(&meter->used_handed, used);
}

void mr_meter_confirmed(struct mr_meter *meter, int64_t now_ns)
{
    int64_t since_ns = atomic_exchange(&meter->unconfirmed_ns, 0);
    if (since_ns != 0) {
        record_ns(&meter->confirmed, now_ns - since_ns);
    }
}

/* The commit time up to which all is delivered. A batch that closes a gap frees later ones; what is
 * newest of them is known only when no gap is left, else the batch's own time errs on the safe
 * side. */
static void move_commit_time(struct mr_meter *meter, int64_t commit_us, uint64_t delivered)
{
    if (delivered >= meter->newest_sequence) {
        commit_us = meter->newest_commit_us;
    }
    if (commit_us > atomic_load_explicit(&meter->commit_us_confirmed, memory_order_relaxed)) {
        atomic_store_explicit(&meter->commit_us_confirmed, commit_us, memory_order_relaxed);
    }
}

struct mr_meter_mark mr_meter_mark(const struct mr_batch *batch)
{
    struct mr_meter_mark mark = {
        .lane = batch->lane, .sequence = batch->sequence, .records = batch->record_count};
    if (mark.records > 0) {
        mark.bytes = mr_batch_bytes(batch);
        mark.encoded_ns = batch->encoded_ns;
        mark.enqueued_ns = batch->enqueued_ns;
        mark.first_commit_us = mr_batch_record(batch, 0)->commit_time_us;
        mark.last_commit_us = mr_batch_record(batch, mark.records - 1)->commit_time_us;
    }
    return mark;
}

void mr_meter_acknowledge(struct mr_meter *meter, const struct mr_meter_mark *mark,
                          uint64_t delivered)
{
    if (mark->records == 0) {
        return; /* a position alone */
    }
    int64_t now_ns = mr_monotonic_ns();
    record_ns(&meter->enqueued, mark->enqueued_ns - mark->encoded_ns);
    record_ns(&meter->flush, now_ns - mark->enqueued_ns);
    if (mark->first_commit_us > 0 && mark->lane == 0) {
        record_ns(&meter->latency, mr_wall_ns() - mark->first_commit_us * 1000);
    }
    mr_counter_add(&meter->bytes_acked, mark->bytes);
    if (mark->lane != 0) {
        return; /* a copied row is as old as it is: its time says nothing of the way */
    }
    if (mark->sequence > meter->newest_sequence) {
        meter->newest_sequence = mark->sequence;
        meter->newest_commit_us = mark->last_commit_us;
    }
    if (delivered != 0) {
        move_commit_time(meter, mark->last_commit_us, delivered);
        int64_t none = 0;
        atomic_compare_exchange_strong(&meter->unconfirmed_ns, &none, now_ns);
    }
}

const struct mr_histogram *mr_meter_path(const struct mr_meter *meter, enum mr_path path)
{
    const struct mr_histogram *histograms[] = {
        [MR_PATH_RECEIVE] = &meter->received, [MR_PATH_DECODE] = &meter->decoded,
        [MR_PATH_ENCODE] = &meter->encoded,   [MR_PATH_PRODUCE] = &meter->enqueued,
        [MR_PATH_FLUSH] = &meter->flush,      [MR_PATH_ACKNOWLEDGE] = &meter->confirmed,
    };
    return histograms[path];
}
