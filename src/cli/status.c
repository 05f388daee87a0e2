#include "cli/cli.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin/client.h"

enum {
    TIMEOUT_MS = 5000,
    TEXT_MAX = 48,
    TABLES_SHOWN = 12,
    EVENTS_SHOWN = 6,
    HTTP_OK = 200,
};

/* ---- asking ---- */

static mr_status get_ok(const struct mr_http_options *server, const char *path, char **ret_body,
                        struct mr_error *ret_error)
{
    long http_status = 0;
    char *body = NULL;
    MR_TRY(mr_client_get(server, path, TIMEOUT_MS, &body, NULL, &http_status, ret_error));
    if (http_status == HTTP_OK) {
        *ret_body = body;
        return MR_OK;
    }
    free(body);
    bool refused = http_status == 401 || http_status == 403;
    return mr_fail(ret_error, refused ? MR_ERR_AUTH : MR_ERR_TRANSIENT,
                   "millrace answers %s with HTTP status %ld%s", path, http_status,
                   refused ? "; give its configuration with --config, for user name and password"
                           : "");
}

/* ---- values ---- */

/* The member at a path of names ("lag", "bytes"), or NULL. */
static const cJSON *at(const cJSON *object, const char *first, const char *second)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, first);
    return second == NULL ? item : cJSON_GetObjectItemCaseSensitive(item, second);
}

static double number(const cJSON *item)
{
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static const char *word(const cJSON *item)
{
    return cJSON_IsString(item) ? item->valuestring : "unknown";
}

struct text {
    char bytes[TEXT_MAX];
};

/* 1234567 as "1,234,567". */
static struct text count_text(double value)
{
    struct text ret = {"-"};
    if (!isfinite(value) || value < 0 || value > 1e18) {
        return ret;
    }
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%.0f", value);
    char *to = ret.bytes;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0) {
            *to++ = ',';
        }
        *to++ = digits[i];
    }
    *to = '\0';
    return ret;
}

static struct text bytes_text(double value)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct text ret = {"-"};
    size_t unit = 0;
    if (!isfinite(value)) {
        return ret;
    }
    while (fabs(value) >= 1024 && unit + 1 < MR_ARRAY_LEN(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(ret.bytes, sizeof(ret.bytes), unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
             units[unit]);
    return ret;
}

static struct text seconds_text(double seconds)
{
    struct text ret = {"-"};
    if (!isfinite(seconds)) {
        return ret;
    }
    if (seconds < 0.001) {
        snprintf(ret.bytes, sizeof(ret.bytes), "%.0f µs", seconds * 1e6);
    } else if (seconds < 1) {
        snprintf(ret.bytes, sizeof(ret.bytes), "%.1f ms", seconds * 1e3);
    } else if (seconds < 120) {
        snprintf(ret.bytes, sizeof(ret.bytes), "%.1f s", seconds);
    } else if (seconds < 7200) {
        snprintf(ret.bytes, sizeof(ret.bytes), "%.0f min", seconds / 60);
    } else if (seconds < 172800) {
        snprintf(ret.bytes, sizeof(ret.bytes), "%.1f h", seconds / 3600);
    } else {
        snprintf(ret.bytes, sizeof(ret.bytes), "%.1f days", seconds / 86400);
    }
    return ret;
}

#define COUNT(...)   count_text(number(at(__VA_ARGS__))).bytes
#define BYTES(...)   bytes_text(number(at(__VA_ARGS__))).bytes
#define SECONDS(...) seconds_text(number(at(__VA_ARGS__))).bytes

/* ---- printing ---- */

static void print_heading(const cJSON *status, FILE *to)
{
    double since =
        (number(at(status, "time_ms", NULL)) - number(at(status, "state_since_ms", NULL))) / 1e3;
    fprintf(to, "millrace %s   %s for %s   bottleneck: %s   up %s\n",
            word(at(status, "version", NULL)), word(at(status, "state", NULL)),
            seconds_text(since).bytes, word(at(status, "bottleneck", NULL)),
            SECONDS(status, "uptime", NULL));
    const char *reason = word(at(status, "reason", NULL));
    if (reason[0] != '\0') {
        fprintf(to, "%s%s\n", cJSON_IsFalse(at(status, "ready", NULL)) ? "not ready: " : "",
                reason);
    }
    fputc('\n', to);
}

static void print_slot(const cJSON *status, FILE *to)
{
    fprintf(to, "slot       %s", word(at(status, "slot", "name")));
    if (cJSON_IsTrue(at(status, "slot", "known"))) {
        fprintf(to, "   %s   keeps %s of log", word(at(status, "slot", "wal_status")),
                BYTES(status, "slot", "retained_bytes"));
    }
    if (at(status, "slot", "safe_bytes") != NULL) {
        double forecast = number(at(status, "slot", "forecast_seconds"));
        fprintf(to, "   lost in %s",
                isfinite(forecast) ? seconds_text(forecast).bytes : "(does not shrink)");
    }
    fputc('\n', to);
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
    fprintf(to, "flush      p50 %s   p99 %s\n", SECONDS(status, "rates", "flush_p50"),
            SECONDS(status, "rates", "flush_p99"));
    fprintf(to, "latency    p50 %s   p95 %s   p99 %s   (commit to acknowledgement)\n",
            SECONDS(status, "rates", "latency_p50"), SECONDS(status, "rates", "latency_p95"),
            SECONDS(status, "rates", "latency_p99"));
    fprintf(to, "lag        %s   %s   confirmed %s of %s\n", BYTES(status, "lag", "bytes"),
            SECONDS(status, "lag", "seconds"), word(at(status, "positions", "confirmed")),
            word(at(status, "positions", "server")));
    print_slot(status, to);
    fprintf(to, "ends       PostgreSQL %s   %s %s   %s reconnects   %s rebuilds\n",
            cJSON_IsTrue(at(status, "source", "connected")) ? "connected" : "away",
            word(at(status, "sink", "type")),
            cJSON_IsTrue(at(status, "sink", "connected")) ? "connected" : "away",
            COUNT(status, "totals", "reconnects"), COUNT(status, "totals", "rebuilds"));
    fprintf(to, "process    %s resident   %.2f cores   %s threads   %s descriptors\n",
            BYTES(status, "process", "resident_bytes"), number(at(status, "rates", "cpu")),
            COUNT(status, "process", "threads"), COUNT(status, "process", "open_fds"));
}

static void print_tables(const cJSON *status, FILE *to)
{
    const cJSON *tables = at(status, "tables", NULL);
    const cJSON *table;
    int shown = 0;
    fprintf(to, "\n%-32s %14s %14s %14s %14s\n", "table", "inserts", "updates", "deletes",
            "truncates");
    cJSON_ArrayForEach(table, tables)
    {
        if (shown++ == TABLES_SHOWN) {
            break;
        }
        fprintf(to, "%-32s %14s %14s %14s %14s\n", word(at(table, "table", NULL)),
                COUNT(table, "insert", NULL), COUNT(table, "update", NULL),
                COUNT(table, "delete", NULL), COUNT(table, "truncate", NULL));
    }
    int count = (int)number(at(status, "table_count", NULL));
    if (count > TABLES_SHOWN) {
        fprintf(to, "… and %d more\n", count - TABLES_SHOWN);
    }
}

static void print_events(const cJSON *status, FILE *to)
{
    const cJSON *events = at(status, "events", NULL);
    int count = cJSON_GetArraySize(events);
    fputc('\n', to);
    for (int i = count > EVENTS_SHOWN ? count - EVENTS_SHOWN : 0; i < count; i++) {
        const cJSON *event = cJSON_GetArrayItem(events, i);
        time_t when = (time_t)(number(at(event, "time_ms", NULL)) / 1e3);
        struct tm local;
        char clock[16];
        strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&when, &local));
        fprintf(to, "%s %-5s %s: %s\n", clock, word(at(event, "level", NULL)),
                word(at(event, "event", NULL)), word(at(event, "text", NULL)));
    }
}

mr_status mr_ask_status(const struct mr_http_options *server, FILE *to, struct mr_error *ret_error)
{
    char *body = NULL;
    MR_TRY(get_ok(server, "/status", &body, ret_error));
    cJSON *status = cJSON_Parse(body);
    free(body);
    if (status == NULL) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "what answers there is no millrace; set --address or --config");
    }
    print_heading(status, to);
    print_figures(status, to);
    print_tables(status, to);
    print_events(status, to);
    cJSON_Delete(status);
    return MR_OK;
}
