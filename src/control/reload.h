/* A reload: the configuration file is read again while the stream runs, because of SIGHUP or of POST /api/reload, and what may
 * change does.
 *
 * Requests are numbered and answered in order by a thread that lives while there are any; several that wait share one reading of
 * the file. What the file means is the configuration's matter: it gives a table of functions, and options as the modules take
 * them. */
#ifndef MR_CONTROL_RELOAD_H
#define MR_CONTROL_RELOAD_H

#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "control/http.h"
#include "copy/added.h"

/* What is said of a reading: lists of names, "a, b", and of problems a line each. */
enum mr_reading_text {
    MR_READING_CHANGED, /* options that change now */
    MR_READING_NEEDS_RESTART,
    MR_READING_TABLES_ADDED,
    MR_READING_TABLES_REMOVED,
    MR_READING_PROBLEMS,
    MR_READING_TEXTS
};

/* One reading of the file. */
struct mr_reading {
    struct mr_text texts[MR_READING_TEXTS];
    struct mr_text rules;  /* of needs_restart those about tables' rows */
    bool patterns;         /* the patterns of tables differ */
    bool publication;      /* the publication is to send something else */
    struct mr_error error; /* why nothing was done */
    /* The options of the start, those in effect, and what the file wants. */
    const struct mr_pg_source_options *started, *running, *wanted;
    const struct mr_pipeline_options *pipeline;
    const struct mr_encode_options *encode;
    enum mr_log_level log_level;
    bool copies_added; /* the rows of tables that join are copied */
};

void mr_reading_name(struct mr_reading *reading, enum mr_reading_text list, const char *name);
void mr_reading_problem(struct mr_reading *reading, const char *format, ...) MR_PRINTF(2, 3);

struct mr_reload_ops {
    /* Reads the file and compares it with what is in effect: fills in all but the lists of tables. An error stands in the
     * reading. */
    mr_status (*read)(void *context, struct mr_reading *reading);
    /* Follows each read: what was read is in effect now, and the options before it are freed; or it is forgotten. */
    void (*settle)(void *context, bool in_effect);
    /* Tells the file's content from another's; "" where it can't be read. */
    struct mr_sha256_short (*digest)(void *context);
};

struct mr_reload_options {
    const struct mr_reload_ops *ops;
    void *context;
    const char *path; /* of the file; "": there is none */
    struct mr_pipeline *pipeline;
    struct mr_copies *copies;
    struct mr_added *added;
    struct mr_http *http; /* gets the routes; NULL: nothing is served */
    bool closed; /* other machines reach the server and it has no password: it takes no commands */
};

struct mr_reload;

/* All is the caller's and outlives it. */
struct mr_reload *mr_reload_new(const struct mr_reload_options *options);

/* Asks for a reload and returns at once; the log has the outcome. Any thread. */
void mr_reload_ask(struct mr_reload *reload);

/* After the pipeline and the server have ended. Takes NULL. */
void mr_reload_free(struct mr_reload *reload);

#endif
