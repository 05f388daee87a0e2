#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/log_writer.h"

static _Atomic int log_level = MR_LOG_INFO;
static enum mr_log_format log_format = MR_LOG_TEXT;
static mr_log_observer_fn log_observer;
static void *log_observer_context;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void mr_log_observe(mr_log_observer_fn observer, void *context)
{
    log_observer = observer;
    log_observer_context = context;
}

static void append_text(struct mr_buffer *line, const char *text)
{
    mr_buffer_append(line, text, strlen(text));
}

/* A JSON string. Also used for values of the text form, so that no value can forge a line. */
static void append_quoted(struct mr_buffer *line, const char *text)
{
    append_text(line, "\"");
    for (const char *c = text; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\') {
            mr_buffer_append(line, (const char[]){'\\', (char)byte}, 2);
        } else if (byte < 0x20) {
            char escaped[8];
            snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
            append_text(line, escaped);
        } else {
            mr_buffer_append(line, c, 1);
        }
    }
    append_text(line, "\"");
}

static void append_value(struct mr_buffer *line, const struct mr_log_field *field)
{
    char number[40];
    switch (field->kind) {
    case MR_LOG_FIELD_STRING:
        append_quoted(line, field->string == NULL ? "" : field->string);
        break;
    case MR_LOG_FIELD_INT:
        snprintf(number, sizeof(number), "%lld", (long long)field->number);
        append_text(line, number);
        break;
    case MR_LOG_FIELD_LSN:
        snprintf(number, sizeof(number), "\"%X/%X\"", (unsigned)(field->lsn >> 32),
                 (unsigned)field->lsn);
        append_text(line, number);
        break;
    case MR_LOG_FIELD_END:
        break;
    }
}

static void append_time(struct mr_buffer *line)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char text[48];
    size_t len = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
    len += (size_t)snprintf(text + len, sizeof(text) - len, ".%03ldZ", now.tv_nsec / 1000000);
    mr_buffer_append(line, text, len);
}

static void append_json(struct mr_buffer *line, enum mr_log_level level, const char *event,
                        const char *sentence, const struct mr_log_field *fields)
{
    append_text(line, "{\"time\":\"");
    append_time(line);
    append_text(line, "\",\"level\":\"");
    append_text(line, level_names[level]);
    append_text(line, "\",\"event\":\"");
    append_text(line, event);
    append_text(line, "\",\"message\":");
    append_quoted(line, sentence);
    for (; fields != NULL && fields->kind != MR_LOG_FIELD_END; fields++) {
        append_text(line, ",\"");
        append_text(line, fields->name);
        append_text(line, "\":");
        append_value(line, fields);
    }
    append_text(line, "}\n");
}

/* What a terminal would obey becomes blank: control characters, DEL, C1 (U+0080 to U+009F), and bytes that are not UTF-8. */
static void make_printable(uint8_t *text, size_t len)
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

static void append_plain(struct mr_buffer *line, enum mr_log_level level, const char *event,
                         const char *sentence, const struct mr_log_field *fields)
{
    uint8_t *begin = line->at;
    append_time(line);
    append_text(line, " ");
    append_text(line, level_names[level]);
    append_text(line, " ");
    append_text(line, event);
    append_text(line, ": ");
    append_text(line, sentence);
    for (; fields != NULL && fields->kind != MR_LOG_FIELD_END; fields++) {
        append_text(line, " ");
        append_text(line, fields->name);
        append_text(line, "=");
        append_value(line, fields);
    }
    make_printable(begin, (size_t)(line->at - begin));
    append_text(line, "\n");
}

static size_t format(char bytes[MR_LOG_LINE_MAX], enum mr_log_level level, const char *event,
                     const char *sentence, const struct mr_log_field *fields)
{
    struct mr_buffer line = mr_buffer_init((uint8_t *)bytes, MR_LOG_LINE_MAX);
    if (log_format == MR_LOG_JSON) {
        append_json(&line, level, event, sentence, fields);
    } else {
        append_plain(&line, level, event, sentence, fields);
    }
    if (line.full) { /* too long for a line: the event's name survives, its fields don't */
        return format(bytes, level, event, "(record too long)", NULL);
    }
    return (size_t)((char *)line.at - bytes);
}

static size_t format_dropped(char bytes[MR_LOG_LINE_MAX], uint64_t dropped)
{
    const struct mr_log_field fields[] = {MR_LOG_INT("lines", dropped), {0}};
    return format(bytes, MR_LOG_WARN, "log_dropped",
                  "standard error took no lines for a while; these are missing", fields);
}

void mr_log_configure(enum mr_log_level level, enum mr_log_format form)
{
    mr_log_set_level(level);
    log_format = form;
    mr_log_writer_tell(format_dropped);
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
        char number[32] = "";
        const char *value = number;
        if (fields->kind == MR_LOG_FIELD_STRING) {
            value = fields->string;
        } else if (fields->kind == MR_LOG_FIELD_INT) {
            snprintf(number, sizeof(number), "%" PRId64, fields->number);
        } else {
            snprintf(number, sizeof(number), "%X/%X", (unsigned)(fields->lsn >> 32),
                     (unsigned)fields->lsn);
        }
        len += (size_t)snprintf(ret_text + len, size - len, "%s%s %s", len == 0 ? "" : ", ",
                                fields->name, value);
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
