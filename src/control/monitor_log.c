/* What the monitor logs: that nothing flows and why, that it flows again, that the slot is in
 * danger, and memory. */
#include <math.h>

#include "control/monitor_internal.h"

/* What is over at once is logged where it is met (source_lost, kafka_unreachable, …). */
#define FIRST_NS (INT64_C(3) * 1000000000)
/* A warning comes again while its reason lasts, sooner while it is young or the slot is in
 * danger. */
#define AGAIN_SOON_NS (INT64_C(60) * 1000000000)
#define AGAIN_NS      (INT64_C(300) * 1000000000)

static bool is_due(int64_t logged_ns, int64_t now_ns, int64_t pause_ns)
{
    return logged_ns == 0 || now_ns - logged_ns >= pause_ns;
}

/* Seconds until the slot is lost, for the log; -1: it is not, at the present rate. */
static int64_t forecast_of(const struct mr_slot_view *slot)
{
    bool known = slot->known && slot->has_limit && isfinite(slot->forecast_seconds);
    return known ? (int64_t)slot->forecast_seconds : -1;
}

static void log_standstill(struct mr_monitor_logged *logged, const struct mr_monitor_snapshot *now,
                           int64_t now_ns)
{
    const struct mr_standstill_view *standstill = &now->standstill;
    int64_t lasts_ns = now_ns - standstill->since_ns;
    bool is_young = lasts_ns < AGAIN_NS || now->danger.slot_is_lost_soon;
    bool is_news = now->danger.slot_is_lost_soon && !logged->standstill_endangers;
    if (lasts_ns < FIRST_NS ||
        !(is_news || is_due(logged->standstill_ns, now_ns, is_young ? AGAIN_SOON_NS : AGAIN_NS))) {
        return;
    }
    logged->standstill_ns = now_ns;
    logged->standstill_endangers |= now->danger.slot_is_lost_soon;
    mr_log(MR_LOG_WARN, "standstill", now->reason,
           MR_LOG_STR("cause", mr_cause_name(standstill->cause)),
           MR_LOG_INT("seconds", lasts_ns / 1000000000), MR_LOG_INT("lag_bytes", now->lag.bytes),
           MR_LOG_INT("retained_bytes", now->slot.retained_bytes),
           MR_LOG_INT("slot_seconds_left", forecast_of(&now->slot)));
}

static void log_over(const struct mr_monitor_logged *logged, const struct mr_monitor_snapshot *now,
                     int64_t now_ns)
{
    bool flows = !mr_cause_stops_all(now->standstill.cause);
    mr_log(MR_LOG_INFO, "standstill_over",
           flows ? "what was in the way is gone; rows flow again"
                 : "what was in the way is gone; something else is",
           MR_LOG_STR("cause", mr_cause_name(logged->cause)),
           MR_LOG_INT("seconds", (now_ns - logged->cause_since_ns) / 1000000000),
           MR_LOG_INT("lag_bytes", now->lag.bytes));
}

static void follow_standstill(struct mr_monitor_logged *logged,
                              const struct mr_monitor_snapshot *now, int64_t now_ns)
{
    const struct mr_standstill_view *standstill = &now->standstill;
    bool is_other =
        standstill->cause != logged->cause ||
        (standstill->cause != MR_CAUSE_NONE && standstill->since_ns != logged->cause_since_ns);
    /* A stop's last line says what it leaves in the way. */
    if (is_other && logged->cause != MR_CAUSE_NONE && standstill->cause != MR_CAUSE_ENDED &&
        !now->pipeline.stopping) {
        log_over(logged, now, now_ns);
    }
    if (is_other) {
        logged->cause = standstill->cause;
        logged->cause_since_ns = standstill->since_ns;
        logged->standstill_ns = 0;
        logged->standstill_endangers = false;
    }
    if (standstill->cause != MR_CAUSE_NONE) {
        log_standstill(logged, now, now_ns);
    }
}

/* A standstill's line says it where there is one. */
static void log_danger(struct mr_monitor_logged *logged, const struct mr_monitor_snapshot *now,
                       int64_t now_ns)
{
    if (!now->danger.slot_is_lost_soon || mr_cause_stops_all(now->standstill.cause) ||
        now->danger.slot_is_short || !is_due(logged->danger_ns, now_ns, AGAIN_NS)) {
        return;
    }
    logged->danger_ns = now_ns;
    mr_log(MR_LOG_WARN, "slot_in_danger", now->reason,
           MR_LOG_INT("slot_seconds_left", forecast_of(&now->slot)),
           MR_LOG_INT("retained_bytes", now->slot.retained_bytes),
           MR_LOG_INT("safe_bytes", now->slot.safe_bytes));
}

static void log_copy(struct mr_monitor_logged *logged, const struct mr_monitor_snapshot *now,
                     int64_t now_ns)
{
    if (!now->danger.slot_is_short || !is_due(logged->copy_ns, now_ns, AGAIN_NS)) {
        return;
    }
    logged->copy_ns = now_ns;
    mr_log(
        MR_LOG_WARN, "snapshot_wal",
        "at this rate the slot is lost before existing rows are copied: raise the limit if the "
        "disk has room",
        MR_LOG_STR("remedy", mr_slot_raise(now->slot.limit_bytes, now->slot.retained_bytes).text),
        MR_LOG_INT("slot_seconds_left", now->slot.forecast_seconds),
        MR_LOG_INT("copy_seconds_left", now->copies.snapshot.seconds_left),
        MR_LOG_INT("retained_bytes", now->slot.retained_bytes),
        MR_LOG_INT("safe_bytes", now->slot.safe_bytes));
}

/* One line every `log_ms`, so that a log alone shows whether memory grew. */
static void log_memory(struct mr_monitor *monitor, const struct mr_monitor_snapshot *now,
                       int64_t now_ns)
{
    int64_t pause_ns = (int64_t)monitor->options.log_ms * 1000000;
    if (pause_ns == 0 || now_ns - monitor->logged.memory_ns < pause_ns) {
        return;
    }
    monitor->logged.memory_ns = now_ns;
    struct mr_process process;
    mr_process_read(&process);
    mr_log(MR_LOG_INFO, MR_MONITOR_MEMORY_EVENT, "memory of the process and of its batches",
           MR_LOG_INT("resident_bytes", process.resident_bytes),
           MR_LOG_INT("resident_peak_bytes", process.resident_peak_bytes),
           MR_LOG_INT("batches_bytes", now->pipeline.memory.used_bytes),
           MR_LOG_INT("batches_limit_bytes", now->pipeline.memory.limit_bytes));
}

void mr_monitor_log(struct mr_monitor *monitor, const struct mr_monitor_snapshot *now,
                    int64_t now_ns)
{
    follow_standstill(&monitor->logged, now, now_ns);
    log_danger(&monitor->logged, now, now_ns);
    log_copy(&monitor->logged, now, now_ns);
    log_memory(monitor, now, now_ns);
}
