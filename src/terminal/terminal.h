/* What a program says to who started it: wrapped text, versions, how it ended. Main thread. */
#pragma once

#include "base/base.h"

/* Words of `text`, from column `at` on, broken before a terminal's edge; further lines begin at `indent`. */
void mr_terminal_wrap(FILE *to, const char *text, int at, int indent);

/* Versions of the libraries, those that were loaded, not those it was built with. */
struct mr_versions {
    char libpq[16];
    char librdkafka[32];
    char allocator[64]; /* "jemalloc 5.3.0", or "libc" */
};

struct mr_versions mr_versions(void);

/* One a line, as `millrace --version` answers. */
void mr_versions_print(FILE *to);

/* A failure with its text and where the runbook has more, after the program's name; its exit code. */
int mr_terminal_end(const char *program, mr_status status, const struct mr_error *error);

/* What each program does first: no file that it opens is standard error, no core file has rows in it, and the process has its name. */
void mr_terminal_begin(const char *program);
