/* The table of options (options.def), and what follows from a row of it. Constant data; any
 * thread. */
#pragma once

#include "base/base.h"

enum mr_option_kind {
    MR_KIND_STRING,
    MR_KIND_TOPIC,
    MR_KIND_STRINGS,
    MR_KIND_REWRITE,
    MR_KIND_SECRET,
    MR_KIND_LOGIN,
    MR_KIND_BOOL,
    MR_KIND_COUNT,
    MR_KIND_DURATION,
    MR_KIND_DURATION_US,
    MR_KIND_SIZE,
    MR_KIND_CHOICE,
};

enum mr_option_reload {
    MR_RELOAD_RESTART,
    MR_RELOAD_RULE,
    MR_RELOAD_BETWEEN,
    MR_RELOAD_PUBLICATION,
    MR_RELOAD_AT_ONCE,
};

enum mr_option_part {
    MR_PART_CAPTURE,
    MR_PART_ENCODE,
    MR_PART_SINK,
    MR_PART_FLOW,
    MR_PART_COPY,
    MR_PART_METRICS,
    MR_PART_HTTP,
    MR_PART_LOG,
    MR_PART_PROCESS,
    MR_PART_PROFILER,
    MR_PART_COUNT
};

struct mr_option {
    const char *path;
    enum mr_option_kind kind;
    const char *fallback; /* "": none */
    const char *choices;  /* CHOICE: the words, separated by | */
    int64_t low, high;
    enum mr_option_reload reload;
    enum mr_option_part part;
    const char *needs; /* what it has no effect without; NULL: nothing */
    bool is_refused;   /* without that, else there is a warning */
    const char *text;
};

enum mr_option_index {
#define MR_OPTION(path, kind, field, ...) MR_INDEX_##field,
#include "options/options.def"
#undef MR_OPTION
    MR_OPTION_COUNT
};

const struct mr_option *mr_option_at(uint32_t index);

/* The option of that path; whether options are below it. */
bool mr_option_find(const char *path, uint32_t *ret_index);

/* The option whose path is `path` without `end`. */
bool mr_option_find_before(const char *path, const char *end, uint32_t *ret_index);
bool mr_option_is_section(const char *path);

extern const struct mr_kind {
    const char *name;    /* "duration", for people */
    const char *example; /* "a duration such as …", for the message about another */
    const char *unit;    /* "ms", "us", "bytes" or NULL */
    const struct mr_unit *units;
} mr_kinds[];

/* Whether a reload takes up another value while the stream runs. */
bool mr_option_is_live(const struct mr_option *option);

/* The value of any kind but strings, from a text as a file has it. False: it is not of that
 * kind. */
bool mr_option_parse(const struct mr_option *option, const char *text, int64_t *ret);

/* The value as a file would write it, in the largest unit that leaves a whole number. */
struct mr_option_value {
    char text[64];
};
struct mr_option_value mr_option_write(const struct mr_option *option, int64_t value);

/* What the option needs, as a file would write it: "format = \"row\"", "outbox.tables or
 * outbox.messages". malloc'ed. */
char *mr_option_needs(const struct mr_option *option);

/* What the table says beside the text: words, range, needs, reload; each a sentence after a space.
 * malloc'ed. */
char *mr_option_limits(const struct mr_option *option);

/* All that is said of an option: its text, and what the rest of its row says. malloc'ed. */
char *mr_option_describe(const struct mr_option *option);
