#include "metrics/merge.h"

#include "metrics/metrics.h"

static void print_sample(FILE *to, const char *line, size_t len, const char *name,
                         const char *value)
{
    size_t before = strcspn(line, "{ ");
    bool has_labels = line[before] == '{';
    fprintf(to, "%.*s{%s=\"%s\"%s", (int)before, line, name, value, has_labels ? "," : "}");
    before += has_labels;
    fwrite(line + before, 1, len - before, to);
}

/* What one of them has of a family, from its HELP to the next one; with the head, unless that was printed. */
static bool print_family(FILE *to, const char *name, const struct mr_exposed *exposed,
                         const char *family, bool has_head)
{
    static const char help[] = "# HELP ";
    MR_FREED char *begin = mr_formatted("%s%s ", help, family);
    const char *line = exposed->text == NULL ? NULL : strstr(exposed->text, begin);
    bool is_own = line != NULL;
    for (size_t len; is_own; line += len) {
        len = strcspn(line, "\n");
        len += line[len] == '\n';
        if (line[0] != '#') {
            print_sample(to, line, len, name, exposed->value);
        } else if (!has_head) {
            fwrite(line, 1, len, to);
        }
        is_own = line[len] != '\0' && strncmp(line + len, help, strlen(help)) != 0;
    }
    return line != NULL;
}

void mr_metrics_print_merged(FILE *to, const char *name, const struct mr_exposed *exposed,
                             uint32_t count, const char *only)
{
    for (enum mr_metric_id id = 0; id < MR_METRIC_COUNT; id++) {
        const char *family = mr_metric_at(id)->name;
        bool is_wanted = only == NULL || mr_is_among(only, mr_slice_of(family));
        bool has_head = false;
        for (uint32_t i = 0; i < count && is_wanted; i++) {
            has_head |= print_family(to, name, &exposed[i], family, has_head);
        }
    }
}
