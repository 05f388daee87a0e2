/* What is made of commands.def and options.def for people and their shells. */
#pragma once

#include "cli/commands.h"

/* `millrace --help`: the commands, a line each. */
void mr_help_print(FILE *to);
void mr_help_print_command(enum mr_cli_command command, FILE *to);

/* `millrace help TOPIC`; NULL is mr_help_print. MR_ERR_USAGE, and told on standard error: there is no such topic. */
mr_status mr_help_print_topic(const char *topic, FILE *to);

/* Words of `text`, from column `at` on, broken before a terminal's edge; further lines begin at `indent`. */
void mr_help_wrap(FILE *to, const char *text, int at, int indent);

/* Versions of the libraries, those that were loaded, not those it was built with. */
struct mr_versions {
    char libpq[16];
    char librdkafka[32];
    char allocator[64]; /* "jemalloc 5.3.0", or "libc" */
};

struct mr_versions mr_versions(void);

/* One a line, as `millrace --version` answers. */
void mr_versions_print(FILE *to);

/* `millrace reference PART`, likewise. */
mr_status mr_reference_print(const char *part, FILE *to);
