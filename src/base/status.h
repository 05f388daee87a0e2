/* What a function that touches the outside world answers, and the text that goes with a failure.
 *
 * `mr_status` says what kind of thing happened; `struct mr_error` (the caller's) says which, why
 * and what to do about it. Out parameters stay untouched on failure. Any thread. */
#pragma once

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mr_status {
    MR_OK = 0,

    /* Outcomes, not failures. */
    MR_AGAIN, /* nothing there now; wait and ask again */
    MR_END,   /* the other side ended the stream in order */
    MR_FULL,  /* no room now; make room and ask again */

    /* Failures; see mr_status_exit_code for what each becomes. */
    MR_ERR_USAGE,     /* command line */
    MR_ERR_CONFIG,    /* configuration file, environment, or a server not set up for us */
    MR_ERR_AUTH,      /* refused: password, certificate, privilege */
    MR_ERR_TRANSIENT, /* away for now: reconnect with backoff, for ever */
    MR_ERR_HISTORY,   /* rows may be missing before us: slot lost, re-created, ahead */
    MR_ERR_POISON,    /* one record that can't be passed on */
    MR_ERR_PROTOCOL,  /* bytes that the protocol's page does not allow: reconnect */
    MR_ERR_SYSTEM,    /* the operating system refused a resource */
    MR_ERR_DEADLINE,  /* stopped before everything in flight was acknowledged */
} mr_status;

enum { MR_STATUS_COUNT = MR_ERR_DEADLINE + 1 };

enum { MR_ERROR_TEXT_MAX = 1024, MR_SQLSTATE_SIZE = 6 };

/* `text` names thing, reason and remedy, in one or two sentences, without row data. */
struct mr_error {
    mr_status status;
    char sqlstate[MR_SQLSTATE_SIZE]; /* with which a server refused; "": it is not its refusal */
    char text[MR_ERROR_TEXT_MAX];
};

/* The documented exit code of the process (docs/runbook.md):
 * OK 0, DEADLINE 3, HISTORY 10, USAGE 64, POISON 65, PROTOCOL 70, SYSTEM 71, AUTH 77, CONFIG 78;
 * TRANSIENT 69 (only where a start-up deadline was given). */
int mr_status_exit_code(mr_status status);

/* The status as a lower-case word for logs ("transient"). */
const char *mr_status_name(mr_status status);

/* Fills in an error; `ret_error` may be NULL. */
void mr_error_set(struct mr_error *ret_error, mr_status status, const char *format, ...)
    MR_PRINTF(3, 4);

/* The same of what a server refused with that code. */
void mr_error_refused(struct mr_error *ret_error, mr_status status, const char *sqlstate,
                      const char *format, ...) MR_PRINTF(4, 5);

/* Whether a server refused with one of these codes ("42P01|3F000", "57*"; see mr_is_among). Code
 * asks this and not the text. */
bool mr_error_is(const struct mr_error *error, const char *sqlstates);

/* mr_error_set, and answers `status`, so that a function can `return mr_fail(error, MR_ERR_…,
 * "…")`. */
#define mr_fail(ret_error, status, ...) (mr_error_set((ret_error), (status), __VA_ARGS__), (status))

/* What comes next where something must be given up at the end: status = MR_THEN(status,
 * read_rows(…)); */
#define MR_THEN(status, next) ((status) == MR_OK ? (next) : (status))

/* The one control-flow macro: leaves the function with any status that isn't MR_OK. */
#define MR_TRY(expression)                                                                         \
    do {                                                                                           \
        mr_status try_ = (expression);                                                             \
        if (try_ != MR_OK) {                                                                       \
            return try_;                                                                           \
        }                                                                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
