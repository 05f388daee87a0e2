#include "options/problems.h"

void mr_problem_add(struct mr_problems *problems, bool is_error, uint32_t line, const char *format,
                    ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    problems->items = MR_REALLOC(problems->items, (problems->count + 1) * sizeof(*problems->items));
    problems->items[problems->count++] =
        (struct mr_problem){.is_error = is_error, .line = line, .text = MR_STRDUP(text)};
    problems->errors += is_error;
}

void mr_problems_print(const struct mr_problems *problems, FILE *to)
{
    for (uint32_t i = 0; i < problems->count; i++) {
        const struct mr_problem *problem = &problems->items[i];
        fprintf(to, "%s:", problems->name);
        if (problem->line != 0) {
            fprintf(to, "%u:", problem->line);
        }
        fprintf(to, " %s%s\n", problem->is_error ? "" : "warning: ", problem->text);
    }
}

void mr_problems_done(struct mr_problems *problems)
{
    for (uint32_t i = 0; i < problems->count; i++) {
        free(problems->items[i].text);
    }
    free(problems->items);
    free(problems->name);
    *problems = (struct mr_problems){0};
}
