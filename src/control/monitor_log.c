/* What the monitor says in the log of its own accord: that nothing flows and why, that it flows again, that the slot is in
 * danger, and memory. */
#include <math.h>

#include "control/monitor_internal.h"

/* What is over at once is told by who meets it (source_lost, kafka_unreachable, …). */
#define FIRST_NS (INT64_C(3) * 1000000000)
/* A warning that nobody has heeded comes again, sooner while it is young or the slot is in danger. */
#define AGAIN_SOON_NS (INT64_C(60) * 1000000000)
#define AGAIN_NS      (INT64_C(300) * 1000000000)

static bool is_due(int64_t told_ns, int64_t now_ns, int64_t pause_ns)
{
    return told_ns == 0 || now_ns - told_ns >= pause_ns;
}

/* Seconds until the slot is lost, for the log; -1: it is not, at the present rate. */
static int64_t forecast_of(const struct mr_slot_view *slot)
{
    bool known = slot->known && slot->has_limit && isfinite(slot->forecast_seconds);
    return known ? (int64_t)slot->forecast_seconds : -1;
}

static void tell_standstill(struct mr_monitor_told *told, const struct mr_monitor_snapshot *now,
                            int64_t now_ns)
{
    const struct mr_standstill_view *standstill = &now->standstill;
    int64_t lasts_ns = now_ns - standstill->since_ns;
    bool is_young = lasts_ns < AGAIN_NS || now->slot_is_in_danger;
    bool is_news = now->slot_is_in_danger && !told->standstill_endangers;
    if (lasts_ns < FIRST_NS ||
        !(is_news || is_due(told->standstill_ns, now_ns, is_young ? AGAIN_SOON_NS : AGAIN_NS))) {
        return;
    }
    told->standstill_ns = now_ns;
    told->standstill_endangers |= now->slot_is_in_danger;
    mr_log(MR_LOG_WARN, "standstill", now->reason,
           MR_LOG_STR("cause", mr_cause_name(standstill->cause)),
           MR_LOG_INT("seconds", lasts_ns / 1000000000), MR_LOG_INT("lag_bytes", now->lag_bytes),
           MR_LOG_INT("retained_bytes", now->slot.retained_bytes),
           MR_LOG_INT("slot_seconds_left", forecast_of(&now->slot)));
}

static void tell_over(const struct mr_monitor_told *told, const struct mr_monitor_snapshot *now,
                      int64_t now_ns)
{
    bool flows = now->standstill.cause == MR_CAUSE_NONE;
    mr_log(MR_LOG_INFO, "standstill_over",
           flows ? "what was in the way is gone; rows flow again"
                 : "what was in the way is gone; something else is",
           MR_LOG_STR("cause", mr_cause_name(told->cause)),
           MR_LOG_INT("seconds", (now_ns - told->cause_since_ns) / 1000000000),
           MR_LOG_INT("lag_bytes", now->lag_bytes));
}

static void follow_standstill(struct mr_monitor_told *told, const struct mr_monitor_snapshot *now,
                              int64_t now_ns)
{
    const struct mr_standstill_view *standstill = &now->standstill;
    bool is_other =
        standstill->cause != told->cause ||
        (standstill->cause != MR_CAUSE_NONE && standstill->since_ns != told->cause_since_ns);
    /* What a stop leaves in the way, its last line tells. */
    if (is_other && told->cause != MR_CAUSE_NONE && standstill->cause != MR_CAUSE_ENDED &&
        !now->pipeline.stopping) {
        tell_over(told, now, now_ns);
    }
    if (is_other) {
        told->cause = standstill->cause;
        told->cause_since_ns = standstill->since_ns;
        told->standstill_ns = 0;
        told->standstill_endangers = false;
    }
    if (standstill->cause != MR_CAUSE_NONE) {
        tell_standstill(told, now, now_ns);
    }
}

/* Where a standstill is told of, that line says it. */
static void tell_danger(struct mr_monitor_told *told, const struct mr_monitor_snapshot *now,
                        int64_t now_ns)
{
    if (!now->slot_is_in_danger || now->standstill.cause != MR_CAUSE_NONE || now->slot_is_short ||
        !is_due(told->danger_ns, now_ns, AGAIN_NS)) {
        return;
    }
    told->danger_ns = now_ns;
    mr_log(MR_LOG_WARN, "slot_in_danger", now->reason,
           MR_LOG_INT("slot_seconds_left", forecast_of(&now->slot)),
           MR_LOG_INT("retained_bytes", now->slot.retained_bytes),
           MR_LOG_INT("safe_bytes", now->slot.safe_bytes));
}

static void tell_copy(struct mr_monitor_told *told, const struct mr_monitor_snapshot *now,
                      int64_t now_ns)
{
    if (!now->slot_is_short || !is_due(told->copy_ns, now_ns, AGAIN_NS)) {
        return;
    }
    told->copy_ns = now_ns;
    mr_log(MR_LOG_WARN, "snapshot_wal",
           "at this rate the slot is lost before existing rows are copied: raise "
           "max_slot_wal_keep_size (ALTER SYSTEM SET max_slot_wal_keep_size = '…'; SELECT "
           "pg_reload_conf()), or set it to -1 until the copy is done",
           MR_LOG_INT("slot_seconds_left", now->slot.forecast_seconds),
           MR_LOG_INT("copy_seconds_left", now->pipeline.copy.seconds_left),
           MR_LOG_INT("retained_bytes", now->slot.retained_bytes),
           MR_LOG_INT("safe_bytes", now->slot.safe_bytes));
}

/* One line every `log_ms`, so that a log alone shows whether memory grew. */
static void tell_memory(struct mr_monitor *monitor, const struct mr_monitor_snapshot *now,
                        int64_t now_ns)
{
    int64_t pause_ns = (int64_t)monitor->options.log_ms * 1000000;
    if (pause_ns == 0 || now_ns - monitor->told.memory_ns < pause_ns) {
        return;
    }
    monitor->told.memory_ns = now_ns;
    mr_log(MR_LOG_INFO, MR_MONITOR_MEMORY_EVENT, "memory of the process and of its batches",
           MR_LOG_INT("resident_bytes", now->process.resident_bytes),
           MR_LOG_INT("resident_peak_bytes", now->process.resident_peak_bytes),
           MR_LOG_INT("batches_bytes", now->pipeline.memory_used_bytes),
           MR_LOG_INT("batches_limit_bytes", now->pipeline.memory_limit_bytes));
}

void mr_monitor_tell(struct mr_monitor *monitor, const struct mr_monitor_snapshot *now,
                     int64_t now_ns)
{
    follow_standstill(&monitor->told, now, now_ns);
    tell_danger(&monitor->told, now, now_ns);
    tell_copy(&monitor->told, now, now_ns);
    tell_memory(monitor, now, now_ns);
}
