#include "ask/client.h"
#include "cli/cli.h"
#include "cli/show.h"
#include "event/lsn.h"

enum { TABLES_SHOWN = 12, EVENTS_SHOWN = 6 };

static void cli_status_print_heading(const cJSON *status, FILE *to)
{
    const cJSON *cause = mr_object_at(status, "standstill.cause");
    bool stands = cJSON_IsString(cause) && strcmp(cause->valuestring, "none") != 0;
    fprintf(to, "millrace %s   %s%s%s%s for %s   bottleneck: %s   up %s\n",
            mr_show_word(status, "version"), mr_show_word(status, "state"), stands ? " (" : "",
            stands ? cause->valuestring : "", stands ? ")" : "", mr_show_since(status).bytes,
            mr_show_word(status, "bottleneck"), MR_SHOW_SECONDS(status, "uptime"));
    const char *reason = mr_show_word(status, "reason");
    if (reason[0] != '\0') {
        fprintf(to, "%s%s\n", cJSON_IsFalse(mr_object_at(status, "ready")) ? "not ready: " : "",
                reason);
    }
    fputc('\n', to);
}

/* Each step of the way by its distance from the one before it, and how long ago the server's WAL
 * ended there. */
static void print_positions(const cJSON *status, FILE *to)
{
    static const char *const steps[] = {"server",       "sent",   "received",
                                        "acknowledged", "stored", "confirmed"};
    mr_lsn before = 0;
    fputs("positions", to);
    for (size_t i = 0; i < MR_ARRAY_LEN(steps); i++) {
        char path[32];
        mr_lsn lsn = 0;
        snprintf(path, sizeof(path), "positions.%s", steps[i]);
        const char *word = mr_show_word(status, path);
        bool is_known = mr_lsn_parse(word, &lsn, NULL) && lsn != 0;
        double behind = before > lsn ? -(double)(before - lsn) : 0;
        fprintf(to, "  %s %s", steps[i],
                !is_known     ? "-"
                : before == 0 ? word
                              : mr_show_bytes(behind).bytes);
        snprintf(path, sizeof(path), "behind.%s", steps[i]);
        if (is_known && mr_object_number(status, path) >= 1) {
            fprintf(to, " (%s)", mr_show_seconds(mr_object_number(status, path)).bytes);
        }
        before = is_known ? lsn : before;
    }
    fputc('\n', to);
}

static void print_why(const cJSON *status, FILE *to)
{
    if (mr_object_at(status, "why") != NULL && mr_show_word(status, "why")[0] != '\0') {
        fprintf(to, "why        %s\n", mr_show_word(status, "why"));
    }
    if (mr_object_at(status, "slot.cost") != NULL) {
        fprintf(to,
                "costs      %s of confirmed WAL   catalog rows of %s transactions   %s spilled\n",
                MR_SHOW_BYTES(status, "slot.cost.held_bytes"),
                MR_SHOW_COUNT(status, "slot.cost.catalog_xmin_age"),
                MR_SHOW_BYTES(status, "slot.cost.spilled_bytes"));
    }
}

static void print_held_up(const cJSON *status, FILE *to)
{
    const char *since = mr_show_word(status, "incremental.held_since");
    if (mr_object_at(status, "incremental.held_by") != NULL) {
        fprintf(to, "copies     wait for %s%s%s\n", mr_show_word(status, "incremental.held_by"),
                since[0] == '\0' ? "" : ", since ", since);
    }
}

static void print_gap(const cJSON *status, FILE *to)
{
    if (mr_show_is(status, "gap.open")) {
        fprintf(to, "gap        what committed between %s and %s is left out: millrace recover\n",
                mr_show_word(status, "gap.from"), mr_show_word(status, "gap.to"));
    }
}

static void print_figures(const cJSON *status, FILE *to)
{
    fprintf(to, "rate       %s changes/s   %s acknowledged/s   %s/s   %s transactions/s\n",
            MR_SHOW_COUNT(status, "rates.changes"), MR_SHOW_COUNT(status, "rates.records"),
            MR_SHOW_BYTES(status, "rates.bytes"), MR_SHOW_COUNT(status, "rates.transactions"));
    fprintf(to, "in flight  %s records   %s   %s batches, %s of %s free\n",
            MR_SHOW_COUNT(status, "in_flight.messages"), MR_SHOW_BYTES(status, "in_flight.bytes"),
            MR_SHOW_COUNT(status, "in_flight.batches"), MR_SHOW_COUNT(status, "pool.free"),
            MR_SHOW_COUNT(status, "pool.batches"));
    fprintf(to, "flush      p50 %s   p99 %s\n", MR_SHOW_PERCENTILE(status, "rates.flush_p50"),
            MR_SHOW_PERCENTILE(status, "rates.flush_p99"));
    fprintf(to, "latency    p50 %s   p95 %s   p99 %s   (commit to acknowledgement)\n",
            MR_SHOW_PERCENTILE(status, "rates.latency_p50"),
            MR_SHOW_PERCENTILE(status, "rates.latency_p95"),
            MR_SHOW_PERCENTILE(status, "rates.latency_p99"));
    fprintf(to, "lag        %s   %s   confirmed %s of %s\n", MR_SHOW_BYTES(status, "lag.bytes"),
            MR_SHOW_SECONDS(status, "lag.seconds"), mr_show_word(status, "positions.confirmed"),
            mr_show_word(status, "positions.server"));
    print_positions(status, to);
    mr_show_slot(status, to);
    print_why(status, to);
    print_held_up(status, to);
    print_gap(status, to);
    fprintf(to, "ends       PostgreSQL %s   %s %s   %s reconnects   %s rebuilds\n",
            mr_show_is(status, "source.connected")    ? "connected"
            : mr_show_is(status, "source.left_alone") ? "left alone"
                                                      : "away",
            mr_show_word(status, "sink.type"),
            mr_show_is(status, "sink.connected") ? "connected" : "away",
            MR_SHOW_COUNT(status, "totals.reconnects"), MR_SHOW_COUNT(status, "totals.rebuilds"));
    fprintf(to, "process    %s resident   %.2f cores   %s threads   %s descriptors\n",
            MR_SHOW_BYTES(status, "process.resident_bytes"), mr_object_number(status, "rates.cpu"),
            MR_SHOW_COUNT(status, "process.threads"), MR_SHOW_COUNT(status, "process.open_fds"));
}

static void cli_status_print_tables(const cJSON *status, FILE *to)
{
    const cJSON *tables = mr_object_at(status, "tables");
    const cJSON *table;
    int shown = 0;
    fprintf(to, "\n%-32s %14s %14s %14s %14s\n", "table", "inserts", "updates", "deletes",
            "truncates");
    cJSON_ArrayForEach(table, tables)
    {
        if (shown++ == TABLES_SHOWN) {
            break;
        }
        fprintf(to, "%-32s %14s %14s %14s %14s\n", mr_show_word(table, "table"),
                MR_SHOW_COUNT(table, "insert"), MR_SHOW_COUNT(table, "update"),
                MR_SHOW_COUNT(table, "delete"), MR_SHOW_COUNT(table, "truncate"));
    }
    int count = (int)mr_object_number(status, "table_count");
    if (count > TABLES_SHOWN) {
        fprintf(to, "… and %d more\n", count - TABLES_SHOWN);
    }
}

mr_status mr_ask_status(const struct mr_http_options *server, bool json, FILE *to,
                        struct mr_error *ret_error)
{
    MR_OBJECT cJSON *status = NULL;
    MR_TRY(mr_client_object(server, "/status", NULL, &status, ret_error));
    if (json) {
        MR_FREED char *text = mr_object_text(status);
        fprintf(to, "%s\n", text);
        return MR_OK;
    }
    cli_status_print_heading(status, to);
    print_figures(status, to);
    cli_status_print_tables(status, to);
    fputc('\n', to);
    mr_show_events(status, EVENTS_SHOWN, to);
    return MR_OK;
}

bool mr_ask_health(const struct mr_http_options *server, bool ready, FILE *to)
{
    struct mr_error error = {0};
    struct mr_client_answer answer;
    const char *path = ready ? "/readyz" : "/healthz";
    if (mr_client_ask(server, path, NULL, 0, &answer, &error) != MR_OK) {
        fprintf(to, "%s\n", error.text);
        return false;
    }
    MR_FREED char *body = answer.body;
    MR_OBJECT cJSON *object = cJSON_Parse(body);
    if (!cJSON_IsBool(mr_object_at(object, ready ? "ready" : "alive")) &&
        mr_client_refusal(path, answer.http_status, body, &error) != MR_OK) {
        fprintf(to, "%s\n", error.text);
        return false;
    }
    fputs(body, to);
    return answer.http_status == MR_HTTP_OK;
}
