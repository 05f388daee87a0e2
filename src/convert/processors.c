/* Debezium's post-processors: ReselectColumnsPostProcessor (debezium-core,
 * io.debezium.processors.reselect) as columns.reselect. */

#include "convert/convert_internal.h"

static const struct mr_cv_line *reselect_option(struct mr_convert *c, const char *alias,
                                                const char *option)
{
    return mr_cv_take(c, mr_cv_text(c, "%s.%s", alias, option));
}

static bool is_no(const struct mr_cv_line *line)
{
    return line != NULL && strcasecmp(line->value, "false") == 0;
}

/* "schema.table:column", expressions, as "schema.table:column,column" here. */
static void add_reselected(struct mr_convert *c, const struct mr_cv_line *line,
                           struct mr_cv_list *columns)
{
    struct mr_cv_list patterns = mr_cv_patterns(c, line->value);
    for (uint32_t i = 0; i < patterns.count; i++) {
        const char *pattern = patterns.items[i];
        size_t table = strcspn(pattern, ":");
        const char *text =
            pattern[table] == '\0'
                ? NULL
                : mr_cv_pattern(
                      c, mr_cv_text(c, "%.*s\\.%s", (int)table, pattern, pattern + table + 1), 3,
                      false);
        if (text == NULL) {
            LOST(c, line->given,
                 "pattern %u is not schema.table:column as POSIX's expressions have it; name its "
                 "columns in columns.reselect",
                 i + 1);
        } else {
            mr_cv_add(c, columns, text);
        }
    }
}

static void convert_reselect(struct mr_convert *c, const char *alias)
{
    struct mr_cv_list columns = {0};
    const struct mr_cv_line *included = reselect_option(c, alias, "reselect.columns.include.list");
    const struct mr_cv_line *excluded = reselect_option(c, alias, "reselect.columns.exclude.list");
    const struct mr_cv_line *unavailable = reselect_option(c, alias, "reselect.unavailable.values");
    const struct mr_cv_line *nulls = reselect_option(c, alias, "reselect.null.values");
    const struct mr_cv_line *mode = reselect_option(c, alias, "reselect.error.handling.mode");
    reselect_option(c, alias, "reselect.use.event.key"); /* it is the replica identity */
    if (nulls != NULL) {
        IDLE(c, nulls->given, "a null is sent as such by PostgreSQL, and not read again");
    }
    if (mode != NULL && strcasecmp(mode->value, "fail") == 0) {
        LOST(c, mode->given,
             "what can't be read has the placeholder; alert on millrace_reselected_total");
    }
    if (is_no(unavailable)) {
        return;
    }
    if (included != NULL) {
        add_reselected(c, included, &columns);
    } else {
        mr_cv_add(c, &columns, "*.*:*");
    }
    if (excluded != NULL) {
        LOST(c, excluded->given, "there are no exceptions; name the others in columns.reselect");
    }
    if (columns.count > 0) {
        mr_cv_set_list(c, "columns.reselect", &columns);
    }
}

void mr_cv_processors(struct mr_convert *c)
{
    const struct mr_cv_line *line = mr_cv_take(c, "post.processors");
    struct mr_cv_list aliases = mr_cv_split(c, line == NULL ? NULL : line->value, ',');
    for (uint32_t i = 0; i < aliases.count; i++) {
        const struct mr_cv_line *type = mr_cv_take(c, mr_cv_text(c, "%s.type", aliases.items[i]));
        if (type != NULL && mr_cv_is_class(type->value, "ReselectColumnsPostProcessor")) {
            convert_reselect(c, aliases.items[i]);
        } else {
            mr_cv_hold(c, line->given, "columns.exclude",
                       mr_cv_text(c, "%s is a Java class, which is not loaded", aliases.items[i]));
        }
    }
}
