/* Programs of the configuration that print a secret: a password, a token.
 *
 * millrace gives up to start programs (confine/), so a helper does it, a process that is forked
 * before. It knows the programs of the configuration and starts no other. A program has no shell,
 * the user and the environment of millrace, /dev/null as standard input and error, and a session of
 * its own; it and what it started in that session are killed once nobody waits for it. The helper
 * ends with millrace.
 *
 * mr_programs_start is called once, before the first thread; all else by any thread, and several
 * programs run at a time. */
#pragma once

#include "base/secret.h"

enum { MR_PROGRAMS_MAX = 3, MR_PROGRAM_LIMIT_S = 10, MR_PROGRAM_OUTPUT_MAX = 16 * 1024 };

struct mr_program {
    const char *option;           /* that names it, for messages */
    const char *const *arguments; /* absolute path, arguments, NULL; the caller's */
    int helper;                   /* the socket to it; -1: it was not started */
    uint8_t number;
};

/* Those of one configuration. Modules have pointers to the items. */
struct mr_programs {
    struct mr_program items[MR_PROGRAMS_MAX];
    uint8_t count;
};

/* Starts the helper, unless there is no program. */
mr_status mr_programs_start(struct mr_programs *programs, struct mr_error *ret_error);

/* Runs the program and waits for its end, ten seconds at most. `*ret_line` is what it printed, one
 * line without its end; the caller's, to be given to mr_secret_forget. MR_AGAIN: `stop_fd` (-1:
 * none) is readable. MR_ERR_TRANSIENT: the program failed or took too long, and the text has
 * MR_PROGRAM_REMEDY. MR_ERR_AUTH: it can't be started, or printed something else than one line.
 * MR_ERR_SYSTEM: the helper is gone, and millrace can start no other. No text quotes what was
 * printed. */
mr_status mr_program_run(const struct mr_program *program, int stop_fd, char **ret_line,
                         struct mr_error *ret_error);

#define MR_PROGRAM_REMEDY      "run it as millrace's user to see why"
#define MR_PROGRAM_HELPER_GONE "the helper process is gone" /* in the text of MR_ERR_SYSTEM */
