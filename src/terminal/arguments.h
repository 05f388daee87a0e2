/* Options of a command line, from a table (getopt_long). Main thread. */
#pragma once

#include "base/base.h"

enum mr_argument_kind {
    MR_ARGUMENT_FLAG,      /* bool */
    MR_ARGUMENT_TEXT,      /* const char * */
    MR_ARGUMENT_SMALL,     /* uint32_t above 0 */
    MR_ARGUMENT_COUNT,     /* uint64_t above 0 */
    MR_ARGUMENT_POSITION,  /* mr_lsn */
    MR_ARGUMENT_PASSED_ON, /* another program takes it */
};

struct mr_argument {
    const char *name;
    char letter;          /* 0: none */
    const char *argument; /* NULL: none */
    enum mr_argument_kind kind;
    size_t at; /* in the struct that it is put into */
};

enum { MR_ARGUMENTS_MAX = 64 };

/* Puts options into `to`, and moves operands behind them: optind is the first one's place in
 * `argv`. `*ret_given` gets a bit for each option by its place in `known`. Texts stay in `argv`.
 * MR_ERR_USAGE: standard error has what is wrong, after the program's name. */
mr_status mr_arguments_take(const char *program, const struct mr_argument *known, uint32_t count,
                            int argc, char **argv, void *to, uint64_t *ret_given);
