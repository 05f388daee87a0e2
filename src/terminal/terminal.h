/* What a program says to who started it: wrapped text, versions, how it ended. Main thread. */
#pragma once

#include "base/base.h"

/* millrace-verify, which `millrace verify` runs: what it says of itself, and its exit codes where
 * it came to a verdict (docs/verify.md). */
#define MR_VERIFY_SUMMARY "prove that the topics equal the tables"
#define MR_VERIFY_TEXT                                                                             \
    "Reads the tables under a snapshot and their topics from the beginning, and compares them "    \
    "row by row as of that moment, while millrace streams. Names each difference. With --repair "  \
    "--yes a running millrace sends what differs again. Ends with 0: equal; 4: different; 5: "     \
    "nothing differs, but not all can be proved; 6: no verdict. See docs/verify.md."
enum mr_verify_code {
    MR_VERIFY_CODE_EQUAL = 0,
    MR_VERIFY_CODE_DIFFERENT = 4,
    MR_VERIFY_CODE_IN_PART = 5,
    MR_VERIFY_CODE_NONE = 6,
};

/* Words of `text`, from column `at` on, broken before a terminal's edge; further lines begin at
 * `indent`. */
void mr_terminal_wrap(FILE *to, const char *text, int at, int indent);

/* A row of a list: a label, and a text from `column` on. */
void mr_terminal_row(FILE *to, const char *label, int column, const char *text);

/* An option of a command line; `letter` 0, `argument` NULL: it has none. */
void mr_terminal_option(FILE *to, const char *name, char letter, const char *argument,
                        const char *text);

/* Versions of the libraries, those that were loaded, not those it was built with. */
struct mr_versions {
    char libpq[16];
    char librdkafka[32];
    char allocator[64]; /* "jemalloc 5.3.0", or "libc" */
};

struct mr_versions mr_versions(void);

/* One a line, as --version answers. */
void mr_versions_print(const char *program, FILE *to);

/* A failure with its text and where the runbook has more, after the program's name; its exit
 * code. */
int mr_terminal_end(const char *program, mr_status status, const struct mr_error *error);

/* What each program does first: no file that it opens is standard error, no core file has rows in
 * it, the process has its name, and the C library's allocator, if it is that one, gives back what
 * it can. */
void mr_terminal_begin(const char *program);
