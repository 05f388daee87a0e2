#include "cli/show.h"

#include <math.h>
#include <time.h>

#include "metrics/histogram.h"

const char *mr_show_word(const cJSON *object, const char *path)
{
    const cJSON *item = mr_object_at(object, path);
    return cJSON_IsString(item) ? item->valuestring : "unknown";
}

char *mr_show_argument(const char *word)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:,+=@%-";
    struct mr_text text = {0};
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        mr_text_string(&text, word);
        return text.data;
    }
    mr_text_string(&text, "'");
    for (; *word != '\0'; word++) {
        mr_text_format(&text, *word == '\'' ? "'\\%c'" : "%c", *word);
    }
    mr_text_string(&text, "'");
    return text.data;
}

bool mr_show_is(const cJSON *object, const char *path)
{
    return cJSON_IsTrue(mr_object_at(object, path));
}

struct mr_show_text mr_show_percentile(double seconds)
{
    enum mr_histogram_layout layout = MR_HISTOGRAM_SECONDS;
    double most = mr_histogram_bound(layout, mr_histogram_bound_count(layout) - 1);
    if (seconds < most || !isfinite(seconds)) {
        return mr_show_seconds(seconds);
    }
    struct mr_show_text ret;
    snprintf(ret.bytes, sizeof(ret.bytes), ">%.0f s", most);
    return ret;
}

struct mr_show_text mr_show_count(double value)
{
    struct mr_show_text ret = {"-"};
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

struct mr_show_text mr_show_bytes(double value)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct mr_show_text ret = {"-"};
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

struct mr_show_text mr_show_seconds(double seconds)
{
    static const struct {
        double below, unit;
        int digits;
        const char *name;
    } units[] = {{0.001, 1e-6, 0, "µs"}, {1, 1e-3, 1, "ms"},     {120, 1, 1, "s"},
                 {7200, 60, 0, "min"},   {172800, 3600, 1, "h"}, {INFINITY, 86400, 1, "days"}};
    struct mr_show_text ret = {"-"};
    size_t i = 0;
    while (isfinite(seconds) && seconds >= units[i].below) {
        i++;
    }
    if (isfinite(seconds)) {
        snprintf(ret.bytes, sizeof(ret.bytes), "%.*f %s", units[i].digits, seconds / units[i].unit,
                 units[i].name);
    }
    return ret;
}

static struct mr_show_text show_clock(double time_ms)
{
    time_t when = (time_t)(time_ms / 1e3);
    struct tm local;
    struct mr_show_text ret = {"-"};
    strftime(ret.bytes, sizeof(ret.bytes), "%H:%M:%S", localtime_r(&when, &local));
    return ret;
}

struct mr_show_text mr_show_since(const cJSON *status)
{
    return mr_show_seconds(
        (mr_object_number(status, "time_ms") - mr_object_number(status, "state_since_ms")) / 1e3);
}

void mr_show_slot(const cJSON *status, FILE *to)
{
    fprintf(to, "slot       %s", mr_show_word(status, "slot.name"));
    if (mr_show_is(status, "slot.known")) {
        fprintf(to, "   %s   keeps %s of WAL", mr_show_word(status, "slot.wal_status"),
                MR_SHOW_BYTES(status, "slot.retained_bytes"));
    }
    bool has_limit = mr_object_at(status, "slot.limit_bytes") != NULL;
    double forecast = mr_object_number(status, "slot.forecast_seconds");
    if (has_limit) {
        fprintf(to, " of at most %s", MR_SHOW_BYTES(status, "slot.limit_bytes"));
    }
    bool is_near = mr_object_number(status, "slot.retained_bytes") >
                   mr_object_number(status, "slot.limit_bytes") * 3 / 4;
    if (mr_object_at(status, "slot.safe_bytes") != NULL) {
        fprintf(to,
                isfinite(forecast) ? "   at this rate lost in %s"
                : is_near          ? "   near its limit"
                                   : "   not in danger",
                mr_show_seconds(forecast).bytes);
    }
    fputc('\n', to);
    if (has_limit && (isfinite(forecast) || is_near ||
                      strcmp(mr_show_word(status, "slot.wal_status"), "reserved") != 0)) {
        fprintf(to, "           if PostgreSQL's disk has room for it: %s\n",
                mr_show_word(status, "slot.raise"));
    }
}

void mr_show_events(const cJSON *status, int shown, FILE *to)
{
    const cJSON *events = mr_object_at(status, "events");
    int count = cJSON_GetArraySize(events);
    for (int i = count > shown ? count - shown : 0; i < count; i++) {
        const cJSON *event = cJSON_GetArrayItem(events, i);
        const char *about = mr_show_word(event, "about");
        fprintf(to, "%s %-5s %s: %s%s%s\n", show_clock(mr_object_number(event, "time_ms")).bytes,
                mr_show_word(event, "level"), mr_show_word(event, "event"),
                mr_show_word(event, "text"), about[0] == '\0' ? "" : "  ", about);
    }
}
