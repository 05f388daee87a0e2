#include <math.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/show.h"

enum {
    TABLES_SHOWN = 12,
    EVENTS_SHOWN = 6,
};

#define COUNT(...)   mr_show_count(mr_show_number(mr_show_at(__VA_ARGS__))).bytes
#define BYTES(...)   mr_show_bytes(mr_show_number(mr_show_at(__VA_ARGS__))).bytes
#define SECONDS(...) mr_show_seconds(mr_show_number(mr_show_at(__VA_ARGS__))).bytes
#define PART(...)    mr_show_percentile(mr_show_number(mr_show_at(__VA_ARGS__))).bytes

static void print_heading(const cJSON *status, FILE *to)
{
    double since = (mr_show_number(mr_show_at(status, "time_ms", NULL)) -
                    mr_show_number(mr_show_at(status, "state_since_ms", NULL))) /
                   1e3;
    fprintf(to, "millrace %s   %s for %s   bottleneck: %s   up %s\n",
            mr_show_word(mr_show_at(status, "version", NULL)), mr_show_state(status).bytes,
            mr_show_seconds(since).bytes, mr_show_word(mr_show_at(status, "bottleneck", NULL)),
            SECONDS(status, "uptime", NULL));
    const char *reason = mr_show_word(mr_show_at(status, "reason", NULL));
    if (reason[0] != '\0') {
        fprintf(to, "%s%s\n", cJSON_IsFalse(mr_show_at(status, "ready", NULL)) ? "not ready: " : "",
                reason);
    }
    fputc('\n', to);
}

static void print_slot(const cJSON *status, FILE *to)
{
    fprintf(to, "slot       %s", mr_show_word(mr_show_at(status, "slot", "name")));
    if (cJSON_IsTrue(mr_show_at(status, "slot", "known"))) {
        fprintf(to, "   %s   keeps %s of WAL",
                mr_show_word(mr_show_at(status, "slot", "wal_status")),
                BYTES(status, "slot", "retained_bytes"));
    }
    if (mr_show_at(status, "slot", "safe_bytes") != NULL) {
        double forecast = mr_show_number(mr_show_at(status, "slot", "forecast_seconds"));
        fprintf(to, "   lost in %s",
                isfinite(forecast) ? mr_show_seconds(forecast).bytes : "(does not shrink)");
    }
    fputc('\n', to);
}

static void print_held_up(const cJSON *status, FILE *to)
{
    const cJSON *holder = mr_show_at(status, "incremental", "held_by");
    const char *by = mr_show_word(holder);
    const char *since = mr_show_word(mr_show_at(status, "incremental", "held_since"));
    if (holder != NULL) {
        fprintf(to, "copies     wait for %s%s%s\n", by, since[0] == '\0' ? "" : ", since ", since);
    }
}

static void print_figures(const cJSON *status, FILE *to)
{
    fprintf(to, "rate       %s changes/s   %s acknowledged/s   %s/s   %s transactions/s\n",
            COUNT(status, "rates", "changes"), COUNT(status, "rates", "records"),
            BYTES(status, "rates", "bytes"), COUNT(status, "rates", "transactions"));
    fprintf(to, "in flight  %s records   %s   %s batches, %s of %s free\n",
            COUNT(status, "in_flight", "messages"), BYTES(status, "in_flight", "bytes"),
            COUNT(status, "in_flight", "batches"), COUNT(status, "pool", "free"),
            COUNT(status, "pool", "batches"));
    fprintf(to, "flush      p50 %s   p99 %s\n", PART(status, "rates", "flush_p50"),
            PART(status, "rates", "flush_p99"));
    fprintf(to, "latency    p50 %s   p95 %s   p99 %s   (commit to acknowledgement)\n",
            PART(status, "rates", "latency_p50"), PART(status, "rates", "latency_p95"),
            PART(status, "rates", "latency_p99"));
    fprintf(to, "lag        %s   %s   confirmed %s of %s\n", BYTES(status, "lag", "bytes"),
            SECONDS(status, "lag", "seconds"),
            mr_show_word(mr_show_at(status, "positions", "confirmed")),
            mr_show_word(mr_show_at(status, "positions", "server")));
    print_slot(status, to);
    print_held_up(status, to);
    fprintf(to, "ends       PostgreSQL %s   %s %s   %s reconnects   %s rebuilds\n",
            cJSON_IsTrue(mr_show_at(status, "source", "connected"))    ? "connected"
            : cJSON_IsTrue(mr_show_at(status, "source", "left_alone")) ? "left alone"
                                                                       : "away",
            mr_show_word(mr_show_at(status, "sink", "type")),
            cJSON_IsTrue(mr_show_at(status, "sink", "connected")) ? "connected" : "away",
            COUNT(status, "totals", "reconnects"), COUNT(status, "totals", "rebuilds"));
    fprintf(to, "process    %s resident   %.2f cores   %s threads   %s descriptors\n",
            BYTES(status, "process", "resident_bytes"),
            mr_show_number(mr_show_at(status, "rates", "cpu")), COUNT(status, "process", "threads"),
            COUNT(status, "process", "open_fds"));
}

static void print_tables(const cJSON *status, FILE *to)
{
    const cJSON *tables = mr_show_at(status, "tables", NULL);
    const cJSON *table;
    int shown = 0;
    fprintf(to, "\n%-32s %14s %14s %14s %14s\n", "table", "inserts", "updates", "deletes",
            "truncates");
    cJSON_ArrayForEach(table, tables)
    {
        if (shown++ == TABLES_SHOWN) {
            break;
        }
        fprintf(to, "%-32s %14s %14s %14s %14s\n", mr_show_word(mr_show_at(table, "table", NULL)),
                COUNT(table, "insert", NULL), COUNT(table, "update", NULL),
                COUNT(table, "delete", NULL), COUNT(table, "truncate", NULL));
    }
    int count = (int)mr_show_number(mr_show_at(status, "table_count", NULL));
    if (count > TABLES_SHOWN) {
        fprintf(to, "… and %d more\n", count - TABLES_SHOWN);
    }
}

static void print_events(const cJSON *status, FILE *to)
{
    const cJSON *events = mr_show_at(status, "events", NULL);
    int count = cJSON_GetArraySize(events);
    fputc('\n', to);
    for (int i = count > EVENTS_SHOWN ? count - EVENTS_SHOWN : 0; i < count; i++) {
        const cJSON *event = cJSON_GetArrayItem(events, i);
        const char *about = mr_show_word(mr_show_at(event, "about", NULL));
        fprintf(to, "%s %-5s %s: %s%s%s\n",
                mr_show_clock(mr_show_number(mr_show_at(event, "time_ms", NULL))).bytes,
                mr_show_word(mr_show_at(event, "level", NULL)),
                mr_show_word(mr_show_at(event, "event", NULL)),
                mr_show_word(mr_show_at(event, "text", NULL)), about[0] == '\0' ? "" : "  ", about);
    }
}

mr_status mr_ask_status(const struct mr_http_options *server, bool json, FILE *to,
                        struct mr_error *ret_error)
{
    if (json) {
        char *text = NULL;
        MR_TRY(mr_show_ask_text(server, "/status", &text, ret_error));
        fprintf(to, "%s\n", text);
        free(text);
        return MR_OK;
    }
    cJSON *status = NULL;
    MR_TRY(mr_show_ask(server, "/status", &status, ret_error));
    print_heading(status, to);
    print_figures(status, to);
    print_tables(status, to);
    print_events(status, to);
    cJSON_Delete(status);
    return MR_OK;
}
