/* One sentence that names the part which holds the flow, or keeps WAL, and what shows it. A
 * standstill has its own. */

#include "control/monitor_internal.h"

#define WINDOW_NS (INT64_C(5) * 1000000000)
enum {
    MIX_BYTES_MIN = 1024 * 1024, /* of WAL, below which shares mean nothing */
    MIX_EVENTS_MIN = 1000,
    /* of the WAL is not sent: rows' own WAL is at most a few times as large as their messages */
    OTHERS_PERCENT = 80,
    HOT_PERCENT = 60,
};

static void monitor_why_begin_window(struct mr_monitor_mix_begin *begin,
                                     const struct mr_monitor_snapshot *now, int64_t now_ns)
{
    begin->time_ns = now_ns;
    begin->lsn = now->pipeline.received_lsn;
    begin->bytes = now->pipeline.source.received_bytes;
    begin->counted = MR_REALLOC(begin->counted, now->tables.count * sizeof(*begin->counted));
    begin->count = now->tables.count;
    for (uint32_t i = 0; i < now->tables.count; i++) {
        begin->counted[i] = (struct mr_monitor_counted){now->tables.items[i].table,
                                                        mr_table_count_sum(&now->tables.items[i])};
    }
}

/* Of a table that stands at `place` or before; 0: it had none. */
static uint64_t events_before(const struct mr_monitor_mix_begin *begin, const char *table,
                              uint32_t place)
{
    uint32_t i = place < begin->count ? place + 1 : begin->count;
    while (i > 0 && begin->counted[i - 1].table != table) {
        i--;
    }
    return i == 0 ? 0 : begin->counted[i - 1].events;
}

static void end_window(struct mr_monitor_mix *mix, const struct mr_monitor_snapshot *now)
{
    const struct mr_monitor_mix_begin *begin = &mix->begin;
    mix->wal_bytes = begin->lsn == 0 ? 0 : mr_monitor_grown(now->pipeline.received_lsn, begin->lsn);
    mix->sent_bytes = mr_monitor_grown(now->pipeline.source.received_bytes, begin->bytes);
    mix->events = mix->table_events = 0;
    for (uint32_t i = 0; i < now->tables.count; i++) {
        const struct mr_table_count *table = &now->tables.items[i];
        uint64_t events =
            mr_monitor_grown(mr_table_count_sum(table), events_before(begin, table->table, i));
        mix->events += events;
        if (events > mix->table_events) {
            mix->table_events = events;
            mix->table = now->tables.items[i].table;
        }
    }
}

void mr_monitor_mix_add(struct mr_monitor_mix *mix, const struct mr_monitor_snapshot *now,
                        int64_t now_ns)
{
    if (now_ns - mix->begin.time_ns < WINDOW_NS) {
        return;
    }
    if (mix->begin.time_ns != 0) {
        end_window(mix, now);
    }
    monitor_why_begin_window(&mix->begin, now, now_ns);
}

static uint32_t monitor_why_percent(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : (uint32_t)(part * 100 / whole);
}

static void add_hot_table(struct mr_text *text, const struct mr_monitor_mix *mix)
{
    uint32_t share = monitor_why_percent(mix->table_events, mix->events);
    if (mix->events >= MIX_EVENTS_MIN && share >= HOT_PERCENT) {
        mr_text_format(text, "; %u %% of the changes are of table %s", share, mix->table);
    }
}

static void add_other_wal(struct mr_text *text, const struct mr_monitor_mix *mix,
                          const char *tables)
{
    uint64_t sent = mix->sent_bytes < mix->wal_bytes ? mix->sent_bytes : mix->wal_bytes;
    uint32_t others = monitor_why_percent(mix->wal_bytes - sent, mix->wal_bytes);
    if (mix->wal_bytes >= MIX_BYTES_MIN && others >= OTHERS_PERCENT) {
        mr_text_format(text, "; %u %% of the WAL that it reads is not of captured rows%s%s%s",
                       others, tables[0] == '\0' ? "" : " (others that change most: ", tables,
                       tables[0] == '\0' ? "" : ")");
    }
}

/* What walsenders wait for: the manual, "Wait Events". */
static void explain_receive(struct mr_text *text, const struct mr_monitor_snapshot *now,
                            const struct mr_monitor_mix *mix)
{
    const struct mr_slot_cost *cost = &now->slot.cost;
    if (cost->wait[0] == '\0') {
        return; /* it is not far behind, or was not looked at yet */
    }
    if (strcmp(cost->wait, "CPU") == 0) {
        mr_text_string(text, "PostgreSQL's walsender is at its core's limit");
    } else if (strncmp(cost->wait, "Client/", 7) == 0) {
        mr_text_string(text, "PostgreSQL's walsender waits for its bytes to be taken: the network "
                             "is the limit, or this machine");
    } else {
        mr_text_string(text, "PostgreSQL's walsender waits in the server");
    }
    mr_text_format(text, " (%s in %u %% of the looks", cost->wait, cost->wait_percent);
    if (cost->has_cpu && cost->cpu_cores >= 0) {
        mr_text_format(text, ", %.0f %% of a core", cost->cpu_cores * 100);
    }
    mr_text_string(text, ")");
    add_other_wal(text, mix, cost->others);
    add_hot_table(text, mix);
}

static void add_fullest_partition(struct mr_text *text, const struct mr_sink_view *sink)
{
    const struct mr_sink_partition *fullest = NULL;
    for (uint32_t i = 0; i < sink->partition_count; i++) {
        if (fullest == NULL || sink->partitions[i].bytes > fullest->bytes) {
            fullest = &sink->partitions[i];
        }
    }
    uint64_t bytes = fullest == NULL || fullest->bytes < 0 ? 0 : (uint64_t)fullest->bytes;
    uint32_t share = monitor_why_percent(bytes, sink->bytes_in_flight);
    if (sink->partition_count > 1 && share >= HOT_PERCENT) {
        mr_text_format(text, "; %u %% of what is in flight is for topic %s, partition %d", share,
                       fullest->topic, (int)fullest->partition);
    }
}

static void explain_flush(struct mr_text *text, const struct mr_monitor_snapshot *now)
{
    const struct mr_sink_client *client = &now->sink.client;
    const struct mr_sink_broker *slowest = NULL;
    for (uint32_t i = 0; i < client->broker_count; i++) {
        if (slowest == NULL || client->brokers[i].rtt_p99 > slowest->rtt_p99) {
            slowest = &client->brokers[i];
        }
    }
    mr_text_format(text,
                   "the sink acknowledges no faster: millrace waited for it %.0f %% of the last "
                   "second, with %llu records in flight",
                   (double)now->rates.backpressure * 100,
                   (unsigned long long)now->sink.records_in_flight);
    if (slowest != NULL) {
        mr_text_format(text, "; broker %s answers in %.0f ms (p99)", slowest->name,
                       slowest->rtt_p99 * 1000);
    }
    add_fullest_partition(text, &now->sink);
}

static void explain_thread(struct mr_text *text, const char *thread,
                           const struct mr_monitor_mix *mix)
{
    mr_text_format(text, "millrace's %s thread is at its core's limit", thread);
    add_hot_table(text, mix);
}

static void explain_slot(struct mr_text *text, const struct mr_slot_cost *cost)
{
    if (cost->holder[0] != '\0') {
        mr_text_format(text, "%s keeps %.0f MiB of WAL that is confirmed: have it end",
                       cost->holder, (double)cost->held_bytes / (1024 * 1024));
    }
}

/* What follows from it is in flow/backlog.h. */
static void add_backlog(struct mr_text *text, const struct mr_monitor_snapshot *now)
{
    if (now->pipeline.source.backlog && text->len > 0) {
        mr_text_string(text, "; what comes is older than a second, so it is read in gulps");
    }
}

static void add_reselect(struct mr_text *text, const struct mr_monitor_snapshot *now)
{
    enum { MUCH_PERCENT = 30 };
    uint32_t waited = (uint32_t)(now->reselect_waited * 100);
    if (waited >= MUCH_PERCENT) {
        mr_text_format(text,
                       "%schanges waited %u %% of the last second for values that are read again "
                       "(columns.reselect)",
                       text->len > 0 ? "; " : "", waited);
    }
}

void mr_monitor_explain(struct mr_monitor_snapshot *now, const struct mr_monitor_mix *mix)
{
    MR_TEXT(text);
    bool is_there = !mr_cause_stops_all(now->standstill.cause) && now->state != MR_STATE_STANDBY;
    switch (is_there ? now->bottleneck : MR_STAGE_OTHER) {
    case MR_STAGE_RECEIVE:
        explain_receive(&text, now, mix);
        add_backlog(&text, now);
        break;
    case MR_STAGE_DECODE:
    case MR_STAGE_ENCODE:
        explain_thread(&text, "source", mix);
        break;
    case MR_STAGE_PRODUCE:
        explain_thread(&text, "sink", mix);
        break;
    case MR_STAGE_FLUSH:
        explain_flush(&text, now);
        break;
    case MR_STAGE_NONE:
        explain_slot(&text, &now->slot.cost);
        break;
    default:
        break;
    }
    if (is_there && now->bottleneck != MR_STAGE_NONE) {
        add_reselect(&text, now);
    }
    snprintf(now->why, sizeof(now->why), "%s", text.data == NULL ? "" : text.data);
}
