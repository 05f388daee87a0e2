#include <math.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "ask/client.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/show.h"

enum {
    PERIOD_MS = 1000,
    BARS = 38, /* seconds of history */
    COLUMNS_DEFAULT = 80,
    ROWS_DEFAULT = 24,
    TABLES_MIN = 3,
    EVENTS_SHOWN = 3,
    COPIED_SHOWN = 3,
    REASON_LINES = 4,
    REASON_BYTES = 480,
    TABLES_MAX = 200,
    NAME_COLUMNS = 30,
    FILTER_BYTES_MAX = 60,
    ESCAPE = 27,
    BACKSPACE = 8,
    DELETE = 127,
};

struct top {
    char sort;                         /* the key that was typed: one of sorts[] */
    bool typing;                       /* the keys are the filter's */
    char filter[FILTER_BYTES_MAX + 1]; /* part of a table's name; empty: all tables */
    cJSON *newest, *before;            /* answers; rates are between them */
    unsigned columns, rows;            /* of the terminal */
};

static const struct {
    char key;
    const char *name;   /* in the hint */
    const char *member; /* of a table; NULL: the rate */
} sorts[] = {
    {'r', "rate", NULL},        {'n', "name", "table"},     {'i', "inserts", "insert"},
    {'u', "updates", "update"}, {'d', "deletes", "delete"},
};

typedef struct mr_show_text (*show_fn)(double value);

static int top_column_of(const cJSON *history, const char *name)
{
    int at = 0;
    const cJSON *title;
    cJSON_ArrayForEach(title, mr_object_at(history, "columns"))
    {
        if (strcmp(mr_show_word(title, ""), name) == 0) {
            break;
        }
        at++;
    }
    return at;
}

/* The newest seconds as bars, with the last value and the largest one. NaN: nothing was
 * measured. */
static void print_history(const cJSON *history, const char *label, const char *name, show_fn show,
                          FILE *to)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const cJSON *rows = mr_object_at(history, "rows");
    int at = top_column_of(history, name);
    int first = cJSON_GetArraySize(rows) - BARS;
    double values[BARS], most = 0;
    for (int i = 0; i < BARS; i++) {
        const cJSON *row = first + i < 0 ? NULL : cJSON_GetArrayItem(rows, first + i);
        values[i] = mr_object_number(cJSON_GetArrayItem(row, at), "");
        most = values[i] > most ? values[i] : most;
    }
    fprintf(to, "%-14s %11s  ", label, show(values[BARS - 1]).bytes);
    for (int i = 0; i < BARS; i++) {
        double part = most > 0 ? values[i] / most : 0;
        fputs(isfinite(values[i]) ? bars[(int)(part * 7 + 0.5)] : " ", to);
    }
    fprintf(to, "  %s\n", show(most).bytes);
}

/* The length of as much of a line as fits into that many columns; each character takes one. */
static size_t top_fitting(const char *line, size_t len, unsigned columns)
{
    size_t at = 0;
    while (at < len && columns-- > 0) {
        do {
            at++;
        } while (at < len && ((unsigned char)line[at] & 0xc0) == 0x80);
    }
    return at;
}

/* Cause and reason, as many lines as they take and a few at most: the remedy comes last. Returns
 * how many. */
static unsigned print_reason(const struct top *top, const cJSON *status, FILE *to)
{
    const char *cause = mr_show_word(status, "standstill.cause");
    const char *reason = mr_show_word(status, "reason");
    char text[2 * REASON_BYTES];
    bool stands = strcmp(cause, "none") != 0 && strcmp(cause, "unknown") != 0;
    snprintf(text, sizeof(text), "%s%s%.*s", stands ? cause : "", stands ? ": " : "", REASON_BYTES,
             reason);
    unsigned lines = 0;
    const char *rest = text;
    do {
        size_t len = top_fitting(rest, strlen(rest), top->columns);
        if (rest[len] != '\0') { /* between two words */
            size_t end = len;
            while (end > 0 && rest[end] != ' ') {
                end--;
            }
            len = end > 0 ? end : len;
        }
        fprintf(to, "%.*s\n", (int)len, rest);
        rest += len;
        rest += *rest == ' ';
        lines++;
    } while (*rest != '\0' && lines < REASON_LINES);
    return lines;
}

static unsigned top_print_heading(const struct top *top, const cJSON *status, FILE *to)
{
    fprintf(to, "millrace %s  %s for %s  bottleneck: %s\n", mr_show_word(status, "version"),
            mr_show_word(status, "state"), mr_show_since(status).bytes,
            mr_show_word(status, "bottleneck"));
    return print_reason(top, status, to);
}

static void print_bar(const char *name, double percent, FILE *to)
{
    enum { WIDTH = 16 };
    fprintf(to, "%-18.18s [", name);
    for (int i = 0; i < WIDTH; i++) {
        fputs(i < (int)(percent / 100 * WIDTH) ? "█" : "░", to);
    }
    fprintf(to, "] %3.0f %%", percent);
}

/* Existing rows, while they are copied, and a line for each of the first tables under way. Returns
 * how many lines. */
static unsigned print_copy(const cJSON *status, FILE *to)
{
    const cJSON *copy = mr_object_at(status, "snapshot");
    if (strcmp(mr_show_word(copy, "state"), "running") != 0) {
        return 0;
    }
    print_bar("existing rows", mr_object_number(copy, "percent"), to);
    fprintf(to, "  left %s%s  %s of %s tables  %s rows/s\n", MR_SHOW_SECONDS(copy, "seconds_left"),
            mr_show_is(copy, "slot_is_short") ? ", the slot is lost before" : "",
            MR_SHOW_COUNT(copy, "tables_done"), MR_SHOW_COUNT(copy, "tables"),
            MR_SHOW_COUNT(copy, "rows_per_second"));
    unsigned lines = 1;
    const cJSON *table;
    cJSON_ArrayForEach(table, mr_object_at(copy, "progress"))
    {
        bool is_read = strcmp(mr_show_word(table, "state"), "read") == 0;
        if (is_read && lines <= COPIED_SHOWN) {
            print_bar(mr_show_word(table, "table"), mr_object_number(table, "percent"), to);
            fprintf(to, "  %s rows\n", MR_SHOW_COUNT(table, "rows"));
            lines++;
        }
    }
    return lines;
}

static uint64_t changes_of(const cJSON *table)
{
    double sum = 0;
    for (int op = 0; op < MR_OP_READ; op++) {
        double value = mr_object_number(table, mr_op_name((enum mr_op)op));
        sum += isfinite(value) ? value : 0;
    }
    return (uint64_t)sum;
}

/* Changes a second since the answer before; NaN for a table that was not there. */
static double rate_of(const struct top *top, const cJSON *status, const cJSON *table)
{
    const cJSON *other;
    double seconds =
        (mr_object_number(status, "time_ms") - mr_object_number(top->before, "time_ms")) / 1e3;
    cJSON_ArrayForEach(other, mr_object_at(top->before, "tables"))
    {
        if (strcmp(mr_show_word(other, "table"), mr_show_word(table, "table")) == 0) {
            double grown = (double)changes_of(table) - (double)changes_of(other);
            return seconds > 0 && grown >= 0 ? grown / seconds : NAN;
        }
    }
    return NAN;
}

struct line {
    const cJSON *table;
    double rate;
    const char *member; /* that is sorted by; NULL: the rate */
};

static double sort_value(const struct line *line)
{
    double value = line->member == NULL ? line->rate : mr_object_number(line->table, line->member);
    return isfinite(value) ? value : -1;
}

static int by_choice(const void *a, const void *b)
{
    const struct line *first = a;
    const struct line *second = b;
    double x = sort_value(first);
    double y = sort_value(second);
    if (x != y) {
        return x < y ? 1 : -1;
    }
    return strcmp(mr_show_word(first->table, "table"), mr_show_word(second->table, "table"));
}

static void print_name(const char *name, FILE *to)
{
    size_t len = top_fitting(name, strlen(name), NAME_COLUMNS);
    int columns = 0;
    for (size_t i = 0; i < len; i++) {
        columns += ((unsigned char)name[i] & 0xc0) != 0x80;
    }
    fprintf(to, "%.*s%*s", (int)len, name, NAME_COLUMNS - columns, "");
}

static void print_filter(const struct top *top, const cJSON *status, FILE *to)
{
    if (top->typing || top->filter[0] != '\0') {
        fprintf(to, "/%s%s  %s of %s tables", top->filter, top->typing ? "_" : "",
                MR_SHOW_COUNT(status, "table_found"), MR_SHOW_COUNT(status, "table_count"));
    }
    fputc('\n', to);
}

static void top_print_tables(const struct top *top, const cJSON *status, unsigned shown, FILE *to)
{
    static struct line lines[TABLES_MAX];
    const char *member = NULL;
    for (size_t i = 0; i < MR_ARRAY_LEN(sorts); i++) {
        member = sorts[i].key == top->sort ? sorts[i].member : member;
    }
    unsigned count = 0;
    const cJSON *table;
    cJSON_ArrayForEach(table, mr_object_at(status, "tables"))
    {
        if (count < TABLES_MAX) {
            lines[count++] = (struct line){table, rate_of(top, status, table), member};
        }
    }
    qsort(lines, count, sizeof(*lines), by_choice);
    fprintf(to, "%-*s %11s %11s %11s %11s\n", NAME_COLUMNS, "table", "inserts", "updates",
            "deletes", "changes/s");
    for (unsigned i = 0; i < count && i < shown; i++) {
        table = lines[i].table;
        print_name(mr_show_word(table, "table"), to);
        fprintf(to, " %11s %11s %11s %11s\n", MR_SHOW_COUNT(table, "insert"),
                MR_SHOW_COUNT(table, "update"), MR_SHOW_COUNT(table, "delete"),
                mr_show_count(lines[i].rate).bytes);
    }
}

static void print_hint(const struct top *top, FILE *to)
{
    if (top->typing) {
        fputs("type part of a table's name  Enter keeps the filter  Esc ends it\n", to);
        return;
    }
    fputs("q quit  / filter  sort by", to);
    for (size_t i = 0; i < MR_ARRAY_LEN(sorts); i++) {
        fprintf(to, sorts[i].key == top->sort ? "  [%c] %s" : "  %c %s", sorts[i].key,
                sorts[i].name);
    }
    fputc('\n', to);
}

static const struct {
    const char *label, *column;
    show_fn show;
} histories[] = {
    {"changes/s", "changes_rate", mr_show_count},
    {"delivered/s", "records_rate", mr_show_count},
    {"bytes/s", "bytes_rate", mr_show_bytes},
    {"in flight", "messages_in_flight", mr_show_count},
    {"flush p99", "flush_p99", mr_show_percentile},
    {"latency p99", "latency_p99", mr_show_percentile},
    {"behind", "lag_seconds", mr_show_seconds},
    {"not confirmed", "lag_bytes", mr_show_bytes},
    {"memory", "resident_bytes", mr_show_bytes},
};

static void print_all(const struct top *top, const cJSON *status, const cJSON *history, FILE *to)
{
    unsigned reason = top_print_heading(top, status, to);
    for (size_t i = 0; i < MR_ARRAY_LEN(histories); i++) {
        print_history(history, histories[i].label, histories[i].column, histories[i].show, to);
    }
    mr_show_slot(status, to);
    unsigned copied = print_copy(status, to);
    /* Above the tables 11 lines, the reason and their heading, below them events and hint, and two
     * lines between. */
    unsigned others = reason + copied + 12 + EVENTS_SHOWN + 1 + 2;
    unsigned room = top->rows > others + TABLES_MIN ? top->rows - others : TABLES_MIN;
    print_filter(top, status, to);
    top_print_tables(top, status, room, to);
    fputc('\n', to);
    mr_show_events(status, EVENTS_SHOWN, to);
    print_hint(top, to);
}

/* The last line, the hint, is always there; lines above it that don't fit are left out. What is
 * left of an earlier drawing is wiped. */
static void top_draw(const struct top *top, bool terminal, const char *text, FILE *to)
{
    unsigned count = 0;
    for (const char *c = text; *c != '\0'; c++) {
        count += *c == '\n';
    }
    fputs(terminal ? "\033[H" : "", to);
    for (unsigned row = 0; *text != '\0'; row++) {
        size_t len = strcspn(text, "\n");
        bool left_out =
            terminal && count > top->rows - 1 && row >= top->rows - 2 && row + 1 < count;
        if (!left_out) {
            fprintf(to, "%.*s%s\n", (int)top_fitting(text, len, top->columns), text,
                    terminal ? "\033[K" : "");
        }
        text += len + (text[len] == '\n');
    }
    fputs(terminal ? "\033[J" : "\n", to);
    fflush(to);
}

static bool measure(struct top *top, FILE *to)
{
    struct winsize window = {0};
    bool terminal = ioctl(fileno(to), TIOCGWINSZ, &window) == 0 && window.ws_row > 2;
    top->columns = terminal ? window.ws_col : COLUMNS_DEFAULT;
    top->rows = terminal ? window.ws_row : ROWS_DEFAULT;
    return terminal;
}

/* What is asked for: the tables that the filter means, each byte of it written as %XX. */
static void status_path(const struct top *top, char *ret, size_t size)
{
    size_t len = (size_t)snprintf(ret, size, "/status?tables=%d&filter=", TABLES_MAX);
    for (const char *c = top->filter; *c != '\0'; c++) {
        len += (size_t)snprintf(ret + len, size - len, "%%%02X", (unsigned char)*c);
    }
}

/* A key has all drawn again at once: that answer takes the newest one's place, so that rates are of
 * a second or so. */
static void keep_answer(struct top *top, cJSON *status)
{
    double passed_ms =
        mr_object_number(status, "time_ms") - mr_object_number(top->newest, "time_ms");
    bool replaces = passed_ms >= 0 && passed_ms < PERIOD_MS / 2.0;
    cJSON_Delete(replaces ? top->newest : top->before);
    top->before = replaces ? top->before : top->newest;
    top->newest = status;
}

static void show(struct top *top, const struct mr_http_options *server, FILE *to)
{
    bool terminal = measure(top, to);
    MR_FREED char *text = NULL;
    size_t len = 0;
    FILE *page = open_memstream(&text, &len);
    MR_ASSERT(page != NULL);
    struct mr_error error = {0};
    cJSON *status = NULL;
    MR_OBJECT cJSON *history = NULL;
    char path[64 + 3 * FILTER_BYTES_MAX];
    status_path(top, path, sizeof(path));
    mr_status asked = mr_client_object(server, path, NULL, &status, &error);
    if (asked == MR_OK) {
        keep_answer(top, status);
        double newest_ms = mr_object_number(status, "time_ms");
        snprintf(path, sizeof(path), "/api/history?after=%.0f", newest_ms - (BARS + 2) * 1e3);
        asked = mr_client_object(server, path, NULL, &history, &error);
    }
    if (asked == MR_OK) {
        print_all(top, status, history, page);
    } else {
        fprintf(page, "%s\nq quit\n", error.text);
    }
    fclose(page);
    top_draw(top, terminal, text, to);
}

static void take_filter_key(struct top *top, char key)
{
    size_t len = strlen(top->filter);
    if (key == '\n' || key == '\r') {
        top->typing = false;
    } else if (key == BACKSPACE || key == DELETE) {
        while (len > 0 && ((unsigned char)top->filter[len - 1] & 0xc0) == 0x80) {
            len--;
        }
        top->filter[len > 0 ? len - 1 : 0] = '\0';
    } else if ((unsigned char)key >= ' ' && len < FILTER_BYTES_MAX) {
        top->filter[len] = key;
        top->filter[len + 1] = '\0';
    }
}

/* True: leave. */
static bool top_take_key(struct top *top, char key)
{
    if (key == ESCAPE) {
        top->typing = false;
        top->filter[0] = '\0';
    } else if (top->typing) {
        take_filter_key(top, key);
    } else {
        top->typing = key == '/';
        for (size_t i = 0; i < MR_ARRAY_LEN(sorts); i++) {
            top->sort = key == sorts[i].key ? key : top->sort;
        }
    }
    return !top->typing && key == 'q';
}

/* The length of what a key sends that has no character, as an arrow does ("\033[A", "\033OP",
 * "\033[15~"); 0 for others. */
static size_t sequence_length(const char *keys, size_t len)
{
    if (len < 3 || keys[0] != ESCAPE || (keys[1] != '[' && keys[1] != 'O')) {
        return 0;
    }
    size_t at = 2;
    while (at < len - 1 && keys[at] < '@') {
        at++;
    }
    return at + 1;
}

/* Waits a period, or for keys or a signal. True: leave. */
static bool wait_for_keys(struct top *top, int signal_fd)
{
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN},
                           {.fd = STDIN_FILENO, .events = POLLIN}};
    char keys[64];
    int ready = poll(fds, isatty(STDIN_FILENO) ? 2 : 1, PERIOD_MS);
    bool leave = ready > 0 && fds[0].revents != 0;
    if (ready > 0 && !leave) {
        ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));
        leave = count <= 0;
        for (size_t at = 0; !leave && at < (size_t)count;) {
            size_t skipped = sequence_length(keys + at, (size_t)count - at);
            leave = skipped == 0 && top_take_key(top, keys[at]);
            at += skipped == 0 ? 1 : skipped;
        }
    }
    return leave;
}

void mr_ask_top(const struct mr_http_options *server, FILE *to)
{
    int signal_fd = mr_thread_signals();
    struct termios before;
    bool terminal = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    if (terminal) {
        struct termios raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    struct top top = {.sort = 'r'};
    do {
        show(&top, server, to);
    } while (!wait_for_keys(&top, signal_fd) && !ferror(to));
    close(signal_fd);
    cJSON_Delete(top.newest);
    cJSON_Delete(top.before);
    if (terminal) {
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
}
