#include "base/standstill.h"

#include "base/clock.h"
#include "base/thread.h"

static const char *const names[] = {
    [MR_CAUSE_NONE] = "none",
    [MR_CAUSE_POISON] = "poison",
    [MR_CAUSE_RECORD_REFUSED] = "record_refused",
    [MR_CAUSE_POSTGRESQL_AWAY] = "postgresql_away",
    [MR_CAUSE_KAFKA_AWAY] = "kafka_away",
    [MR_CAUSE_TOPIC_MISSING] = "topic_missing",
    [MR_CAUSE_REGISTRY_AWAY] = "registry_away",
    [MR_CAUSE_SINK_FAILS] = "sink_fails",
    [MR_CAUSE_SINK_SILENT] = "sink_silent",
    [MR_CAUSE_TABLE_UNPUBLISHED] = "table_unpublished",
    [MR_CAUSE_PUBLICATION_CHANGED] = "publication_changed",
    [MR_CAUSE_ENDED] = "ended",
};

const char *mr_cause_name(enum mr_cause cause)
{
    return names[cause];
}

void mr_standstill_init(struct mr_standstill *standstill)
{
    pthread_mutex_init(&standstill->lock, NULL);
}

void mr_standstill_done(struct mr_standstill *standstill)
{
    pthread_mutex_destroy(&standstill->lock);
}

void mr_standstill_begin(struct mr_standstill *standstill, enum mr_cause cause, const char *text)
{
    MR_ASSERT(cause != MR_CAUSE_NONE);
    if (standstill == NULL) {
        return;
    }
    MR_HOLD(&standstill->lock);
    if (!mr_standstill_has(standstill, cause)) {
        standstill->causes[cause].since_ns = mr_monotonic_ns();
    }
    snprintf(standstill->causes[cause].text, MR_CAUSE_TEXT_MAX, "%s", text);
    atomic_fetch_or(&standstill->there, UINT32_C(1) << cause);
}

void mr_standstill_forget(struct mr_standstill *standstill, enum mr_cause cause)
{
    MR_HOLD(&standstill->lock);
    atomic_fetch_and(&standstill->there, ~(UINT32_C(1) << cause));
}

/* Lower ranks are shown first: an end, then what ends millrace if it lasts, what only waits, and
 * what is about one table. */
static int standstill_rank_of(enum mr_cause cause)
{
    return cause == MR_CAUSE_ENDED                                        ? 0
           : cause == MR_CAUSE_POISON || cause == MR_CAUSE_RECORD_REFUSED ? 1
           : mr_cause_stops_all(cause)                                    ? 2
                                                                          : 3;
}

/* A silent sink is shown only where no other cause says more of the sink. */
static bool counts_before(const struct mr_standstill *standstill, enum mr_cause a, enum mr_cause b)
{
    if (b == MR_CAUSE_NONE || standstill_rank_of(a) != standstill_rank_of(b)) {
        return b == MR_CAUSE_NONE || standstill_rank_of(a) < standstill_rank_of(b);
    }
    if (b == MR_CAUSE_SINK_SILENT && mr_cause_is_of_sink(a)) {
        return true;
    }
    if (a == MR_CAUSE_SINK_SILENT && mr_cause_is_of_sink(b)) {
        return false;
    }
    return standstill->causes[a].since_ns < standstill->causes[b].since_ns;
}

void mr_standstill_look(struct mr_standstill *standstill, struct mr_standstill_view *ret_view)
{
    MR_HOLD(&standstill->lock);
    enum mr_cause found = MR_CAUSE_NONE;
    for (int i = MR_CAUSE_NONE + 1; i < MR_CAUSE_COUNT; i++) {
        enum mr_cause cause = (enum mr_cause)i;
        if (mr_standstill_has(standstill, cause) && counts_before(standstill, cause, found)) {
            found = cause;
        }
    }
    ret_view->cause = found;
    ret_view->since_ns = standstill->causes[found].since_ns;
    ret_view->postgresql_away = mr_standstill_has(standstill, MR_CAUSE_POSTGRESQL_AWAY);
    snprintf(ret_view->text, sizeof(ret_view->text), "%s", standstill->causes[found].text);
}
