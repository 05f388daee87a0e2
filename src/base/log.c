#include "base/log.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>

#include "base/json.h"
#include "base/log_writer.h"

static _Atomic int log_level = MR_LOG_INFO;
static enum mr_log_format log_format = MR_LOG_TEXT;
static mr_log_observer_fn log_observer;
static void *log_observer_context;
void (*mr_log_see)(mr_slice said, char ret_see[MR_LOG_SEE_MAX]);

static const char *const level_names[] = {"debug", "info", "warn", "error"};

const char *mr_log_level_name(enum mr_log_level level)
{
    return level_names[level];
}

void mr_log_observe(mr_log_observer_fn observer, void *context)
{
    log_observer = observer;
    log_observer_context = context;
}

/* Also values of the text form, so that none can forge a line. */
static void append_quoted(struct mr_buffer *line, const char *text)
{
    mr_json_string(line, (const uint8_t *)text, strlen(text));
}

enum { NUMBER_MAX = 40 };

/* A field's value, which may be in `number`. */
static const char *log_text_of(const struct mr_log_field *field, char number[NUMBER_MAX])
{
    if (field->kind == MR_LOG_FIELD_STRING) {
        return field->string == NULL ? "" : field->string;
    }
    if (field->kind == MR_LOG_FIELD_INT) {
        snprintf(number, NUMBER_MAX, "%" PRId64, field->number);
    } else {
        snprintf(number, NUMBER_MAX, "%X/%X", (unsigned)(field->lsn >> 32), (unsigned)field->lsn);
    }
    return number;
}

static void append_fields(struct mr_buffer *line, const struct mr_log_field *fields)
{
    for (; fields != NULL && fields->kind != MR_LOG_FIELD_END; fields++) {
        char number[NUMBER_MAX];
        mr_buffer_format(line, log_format == MR_LOG_JSON ? ",\"%s\":" : " %s=", fields->name);
        if (fields->kind == MR_LOG_FIELD_INT) {
            mr_buffer_format(line, "%s", log_text_of(fields, number));
        } else {
            append_quoted(line, log_text_of(fields, number));
        }
    }
}

/* What a terminal would obey becomes blank: control characters, DEL, C1 (U+0080 to U+009F), and
 * bytes that are not UTF-8. */
static void log_make_printable(uint8_t *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t size = mr_utf8_sequence(text + at, len - at);
        bool control = size == 1 && (text[at] < 0x20 || text[at] == 0x7f);
        bool c1 = size == 2 && text[at] == 0xc2 && text[at + 1] < 0xa0;
        size = size == 0 ? 1 : size;
        if (control || c1 || (size == 1 && text[at] >= 0x80)) {
            memset(text + at, ' ', size);
        }
        at += size;
    }
}

static size_t format(char bytes[MR_LOG_LINE_MAX], enum mr_log_level level, const char *event,
                     const char *sentence, const struct mr_log_field *fields)
{
    struct mr_buffer line = mr_buffer_init((uint8_t *)bytes, MR_LOG_LINE_MAX);
    struct timespec now;
    struct tm utc;
    char time[32];
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    int ms = (int)(now.tv_nsec / 1000000);
    if (log_format == MR_LOG_JSON) {
        mr_buffer_format(
            &line, "{\"time\":\"%s.%03dZ\",\"level\":\"%s\",\"event\":\"%s\",\"message\":", time,
            ms, level_names[level], event);
        append_quoted(&line, sentence);
        append_fields(&line, fields);
    } else {
        mr_buffer_format(&line, "%s.%03dZ %s %s: %s", time, ms, level_names[level], event,
                         sentence);
        append_fields(&line, fields);
        log_make_printable((uint8_t *)bytes, (size_t)((char *)line.at - bytes));
    }
    char see[MR_LOG_SEE_MAX] = "";
    if (mr_log_see != NULL && level >= MR_LOG_WARN) {
        mr_log_see((mr_slice){(uint8_t *)bytes, (size_t)((char *)line.at - bytes)}, see);
    }
    const struct mr_log_field field[] = {MR_LOG_STR("see", see), {0}};
    append_fields(&line, see[0] == '\0' ? NULL : field);
    mr_buffer_format(&line, log_format == MR_LOG_JSON ? "}\n" : "\n");
    if (line.full) { /* too long for a line: the event's name survives, its fields don't */
        return format(bytes, level, event, "(record too long)", NULL);
    }
    return (size_t)((char *)line.at - bytes);
}

size_t mr_log_format_dropped(char bytes[MR_LOG_LINE_MAX], uint64_t dropped)
{
    const struct mr_log_field fields[] = {MR_LOG_INT("lines", dropped), {0}};
    return format(bytes, MR_LOG_WARN, "log_dropped",
                  "standard error took no lines for a while; these are missing", fields);
}

void mr_log_configure(enum mr_log_level level, enum mr_log_format form)
{
    mr_log_set_level(level);
    log_format = form;
}

void mr_log_set_level(enum mr_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

void mr_log_fields_text(const struct mr_log_field *fields, char *ret_text, size_t size)
{
    size_t len = 0;
    ret_text[0] = '\0';
    for (; fields != NULL && fields->kind != MR_LOG_FIELD_END && len < size; fields++) {
        char number[NUMBER_MAX];
        len += (size_t)snprintf(ret_text + len, size - len, "%s%s %s", len == 0 ? "" : ", ",
                                fields->name, log_text_of(fields, number));
    }
}

void mr_log_write(enum mr_log_level level, const char *event, const char *sentence,
                  const struct mr_log_field *fields)
{
    if (log_observer != NULL && level >= MR_LOG_INFO) {
        log_observer(log_observer_context, level, event, sentence, fields);
    }
    if ((int)level < atomic_load_explicit(&log_level, memory_order_relaxed)) {
        return;
    }
    int saved_errno = errno;
    char line[MR_LOG_LINE_MAX];
    mr_log_emit(line, format(line, level, event, sentence, fields));
    errno = saved_errno;
}
