/* What is wrong in a configuration, or worth a word: collected, so that a person sees all of it at
 * once. */
#pragma once

#include "base/base.h"

struct mr_problem {
    bool is_error;
    uint32_t line; /* 0: of the whole file */
    char *text;
};

struct mr_problems {
    char *name; /* of the file */
    struct mr_problem *items;
    uint32_t count;
    uint32_t errors;
    bool without_secrets; /* they were read at the start and can't be read again: each is "" */
    bool elsewhere;       /* the file is for another machine: what it names need not be here */
};

void mr_problem_add(struct mr_problems *problems, bool is_error, uint32_t line, const char *format,
                    ...) MR_PRINTF(4, 5);

/* One "file:line: sentence" a problem. */
void mr_problems_print(const struct mr_problems *problems, FILE *to);
void mr_problems_done(struct mr_problems *problems);
