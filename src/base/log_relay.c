#include "base/log_relay.h"

#include "base/log_writer.h"
#include "base/object.h"

/* What a pipe holds, in reads of 8 KiB: who writes without end gets its turn, no more. */
enum { READS_MAX = 8 };

static void pass_on(const char *name, const char *line, size_t len)
{
    char bytes[MR_LOG_LINE_MAX];
    int size = line[0] == '{' && len > 1
                   ? snprintf(bytes, sizeof(bytes), "{\"pipeline\":\"%s\",%s\n", name, line + 1)
                   : snprintf(bytes, sizeof(bytes), "%s: %s\n", name, line);
    if (size >=
        (int)sizeof(bytes)) { /* cut, it would be no JSON, and the end of its line is gone */
        size = snprintf(bytes, sizeof(bytes), "%s: (line too long)\n", name);
    }
    mr_log_emit(bytes, (size_t)size);
}

/* An error in either form of the log, or what is printed before there is a log. */
static void keep_error(struct mr_log_relay *relay, const char *line)
{
    static const char mark[] = "Z error ";
    MR_OBJECT cJSON *object = line[0] == '{' ? cJSON_Parse(line) : NULL;
    const char *said = strstr(line, mark);
    if (object != NULL) {
        bool is_error = strstr(line, "\"level\":\"error\"") != NULL;
        said = is_error ? cJSON_GetStringValue(cJSON_GetObjectItem(object, "message")) : NULL;
    } else if (said != NULL) {
        said += strlen(mark);
    } else if (strstr(line, "Z info ") == NULL && strstr(line, "Z warn ") == NULL &&
               strstr(line, "Z debug ") == NULL && strncmp(line, "see ", 4) != 0) {
        said = line;
    }
    if (said != NULL) {
        relay->error.len = 0;
        mr_text_string(&relay->error, said);
    }
}

static void take(struct mr_log_relay *relay, const char *name, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != '\n' && relay->line.len < MR_LOG_LINE_MAX) {
            mr_text_add(&relay->line, &bytes[i], 1);
        } else if (bytes[i] == '\n' && relay->line.len > 0) {
            pass_on(name, relay->line.data, relay->line.len);
            keep_error(relay, relay->line.data);
            relay->line.len = 0;
        }
    }
}

void mr_log_relay_read(struct mr_log_relay *relay, const char *name, bool is_end)
{
    char bytes[8192];
    ssize_t len = 0;
    int reads = 0;
    while (relay->fd > 0 && reads++ < READS_MAX &&
           (len = read(relay->fd, bytes, sizeof(bytes))) > 0) {
        take(relay, name, bytes, (size_t)len);
    }
    if (relay->fd > 0 && len == 0) {
        close(relay->fd);
        relay->fd = 0;
    }
    take(relay, name, "\n", is_end);
}

void mr_log_relay_done(struct mr_log_relay *relay)
{
    if (relay->fd > 0) {
        close(relay->fd);
    }
    mr_text_done(&relay->line);
    mr_text_done(&relay->error);
    *relay = (struct mr_log_relay){0};
}
