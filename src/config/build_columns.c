/* What becomes of columns, and which rows of a table are copied: columns.*, those of [[streams]],
 * snapshot.where. */

#include "config/names.h"

enum { RESELECT_WAIT_MS = 1000 };

struct columns {
    const char *option;
    enum mr_column_action action;
    const struct mr_strings *texts;
    uint32_t line;
    const struct mr_route *stream; /* whose columns they are; NULL: each text names the table */
};

struct rules {
    struct mr_column_rule *items;
    uint32_t count;
};

static bool has_length(const struct columns *columns)
{
    return columns->action == MR_COLUMN_MASK || columns->action == MR_COLUMN_TRUNCATE;
}

/* The number of "column=8", from = to `end`. */
static bool take_length(const char *at, const char *end, uint32_t *ret)
{
    enum { LENGTH_DIGITS_MAX = 6 };
    size_t digits = *at == '=' ? strspn(at + 1, "0123456789") : 0;
    if (digits == 0 || digits > LENGTH_DIGITS_MAX || at + 1 + digits != end) {
        return false;
    }
    *ret = (uint32_t)strtoul(at + 1, NULL, 10);
    return true;
}

static bool build_columns_take_columns(struct mr_config *config, const struct columns *columns,
                                       const char *at, const struct mr_table_pattern *table,
                                       struct rules *rules, struct mr_reason *reason)
{
    for (;; at++) {
        const char *end = mr_names_end(at, ",");
        const char *name_end = has_length(columns) ? mr_names_end(at, "=,") : end;
        struct mr_column_rule *rule = &rules->items[rules->count];
        *rule = (struct mr_column_rule){
            .action = columns->action,
            .table = *table,
            .topic = columns->stream == NULL ? NULL : columns->stream->topic,
        };
        if (!mr_names_pattern(config, at, name_end, &rule->column, reason) ||
            (has_length(columns) && !take_length(name_end, end, &rule->length))) {
            return false;
        }
        rules->count++;
        at = end;
        if (*at == '\0') {
            return true;
        }
    }
}

/* Each text names a table before its colon; a stream's names columns alone. */
static bool build_columns_take_text(struct mr_config *config, const struct columns *columns,
                                    const char *text, struct rules *rules, struct mr_reason *reason)
{
    struct mr_table_pattern table;
    if (columns->stream != NULL) {
        table = (struct mr_table_pattern){.schema = {.text = columns->stream->schema},
                                          .table = {.text = columns->stream->table}};
        return build_columns_take_columns(config, columns, text, &table, rules, reason);
    }
    const char *colon = mr_names_end(text, ":");
    return *colon == ':' && mr_names_table_pattern(config, text, colon, &table, reason) &&
           build_columns_take_columns(config, columns, colon + 1, &table, rules, reason);
}

static bool names_one(const struct mr_column_rule *rule)
{
    return mr_pattern_is_name(&rule->table.schema) && mr_pattern_is_name(&rule->table.table) &&
           mr_pattern_is_name(&rule->column);
}

static void build_columns(struct mr_config *config, const struct columns *columns,
                          struct rules *rules)
{
    for (uint32_t i = 0; i < columns->texts->count; i++) {
        const char *text = columns->texts->items[i];
        struct mr_reason reason = {"write \"schema.table:column,column\""};
        if (has_length(columns)) {
            reason = (struct mr_reason){"write \"schema.table:column=8\""};
        }
        uint32_t first = rules->count;
        if (!build_columns_take_text(config, columns, text, rules, &reason)) {
            PROBLEM(config, columns->line, "%s: \"%s\" names no columns: %s", columns->option, text,
                    reason.text);
        }
        for (uint32_t k = first; k < rules->count; k++) {
            const struct mr_column_rule *rule = &rules->items[k];
            if (!names_one(rule)) { /* else name_columns */
                mr_config_add_rule(config, &(struct mr_pattern_rule){.option = columns->option,
                                                                     .text = text,
                                                                     .table = rule->table,
                                                                     .column = &rule->column});
            }
        }
    }
}

static void build_stream_columns(struct mr_config *config, const struct mr_stream *stream,
                                 const struct mr_route *route, struct rules *rules)
{
    for (uint32_t i = 0; i < MR_STREAM_COLUMNS; i++) {
        const char *option =
            mr_config_text(config, "streams.%s", mr_option_at(MR_INDEX_columns_include + i)->path);
        const struct columns columns = {option, (enum mr_column_action)i, &stream->columns[i],
                                        stream->line, route};
        build_columns(config, &columns, rules);
    }
}

/* No text names more columns than it has bytes. */
static size_t columns_max(const struct mr_strings *texts)
{
    size_t most = 0;
    for (uint32_t i = 0; i < texts->count; i++) {
        most += strlen(texts->items[i]);
    }
    return most;
}

/* Rules that name one column of one table can be compared with what there is, and so can the tables
 * of streams. */
static void name_columns(struct mr_config *config, const struct columns *all,
                         const struct rules *rules)
{
    uint32_t streams = config->encode.routes_only ? config->encode.route_count : 0;
    for (uint32_t i = 0; i < streams; i++) {
        const struct mr_route *route = &config->encode.routes[i];
        mr_config_name_column(config, &(struct mr_named_column){
                                          .option = "streams.source.resource",
                                          .table = {.schema = route->schema, .table = route->table},
                                          .column = "",
                                          .must_fit = true});
    }
    for (uint32_t i = 0; i < rules->count; i++) {
        const struct mr_column_rule *rule = &rules->items[i];
        const struct columns *columns = &all[rule->action];
        if (!mr_pattern_is_name(&rule->table.schema) || !mr_pattern_is_name(&rule->table.table)) {
            continue;
        }
        if (i == 0 || rules->items[i - 1].table.table.text != rule->table.table.text) {
            mr_config_check_streamed(config, MR_INDEX_columns_include + rule->action,
                                     rule->table.schema.text, rule->table.table.text);
        }
        mr_config_name_column(
            config,
            &(struct mr_named_column){
                .option = columns->option,
                .table = {.schema = rule->table.schema.text, .table = rule->table.table.text},
                .column = mr_pattern_is_name(&rule->column) ? rule->column.text : "",
                .must_fit = true});
    }
}

static void build_reselect(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    const struct columns columns = {.option = "columns.reselect",
                                    .action = MR_COLUMN_INCLUDE,
                                    .texts = &values->columns_reselect,
                                    .line = LINE(config, columns_reselect)};
    struct rules rules = {
        .items = KEPT_ARRAY(config, struct mr_column_rule, columns_max(columns.texts))};
    build_columns(config, &columns, &rules);
    struct mr_column_pattern *patterns = KEPT_ARRAY(config, struct mr_column_pattern, rules.count);
    for (uint32_t i = 0; i < rules.count; i++) {
        patterns[i] = (struct mr_column_pattern){.table = rules.items[i].table,
                                                 .column = rules.items[i].column};
    }
    config->source.reselect =
        (struct mr_pg_reselect_options){.columns = patterns,
                                        .column_count = rules.count,
                                        .keeps_placeholder = values->columns_reselect_later == 1,
                                        .wait_ms = RESELECT_WAIT_MS};
}

static void build_wheres(struct mr_config *config)
{
    const struct mr_strings *texts = &config->values.snapshot_where;
    struct mr_copy_where *wheres = KEPT_ARRAY(config, struct mr_copy_where, texts->count);
    for (uint32_t i = 0; i < texts->count; i++) {
        const char *text = texts->items[i];
        const char *colon;
        const char *condition = mr_names_condition(config, MR_INDEX_snapshot_where, text, &colon);
        struct mr_reason reason = {"write \"schema.table: condition\""};
        if (condition[0] == '\0' ||
            !mr_names_table_pattern(config, text, colon, &wheres[i].table, &reason)) {
            REFUSE(config, snapshot_where, ": \"%s\" is no condition on a table's rows: %s", text,
                   reason.text);
        }
        wheres[i].condition = condition;
        mr_config_add_rule(config, &(struct mr_pattern_rule){.option = "snapshot.where",
                                                             .text = text,
                                                             .table = wheres[i].table});
    }
    config->source.wheres = wheres;
    config->source.where_count = texts->count;
}

static void take_salt(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    uint32_t line = values->columns_hash.count == 0 ? 0 : LINE(config, columns_hash);
    for (uint32_t i = 0; i < values->stream_count; i++) {
        if (values->streams[i].columns[MR_COLUMN_HASH].count > 0) {
            line = values->streams[i].line;
        }
    }
    if (line == 0) {
        return;
    }
    if (values->columns_hash_salt.count == 0) {
        PROBLEM(config, line,
                "columns.hash needs a salt, or a reader of the topics finds values by trying; set "
                "columns.hash_salt");
        return;
    }
    config->encode.hash_salt = mr_config_secret(config, "salt", MR_INDEX_columns_hash_salt);
}

void mr_config_build_columns(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    struct columns all[MR_STREAM_COLUMNS]; /* in the order of enum mr_column_action */
    size_t most = 0;
    for (uint32_t i = 0; i < MR_STREAM_COLUMNS; i++) {
        const uint32_t index = MR_INDEX_columns_include + i;
        all[i] = (struct columns){.option = mr_option_at(index)->path,
                                  .action = (enum mr_column_action)i,
                                  .texts = mr_value_of(values, index),
                                  .line = values->lines[index]};
        most += columns_max(all[i].texts);
        for (uint32_t k = 0; k < values->stream_count; k++) {
            most += columns_max(&values->streams[k].columns[i]);
        }
    }
    struct rules rules = {.items = KEPT_ARRAY(config, struct mr_column_rule, most)};
    /* A stream's own rule comes before one for all. Where a stream makes no route, the file is
     * refused. */
    uint32_t streams =
        config->encode.route_count == values->stream_count ? values->stream_count : 0;
    for (uint32_t i = 0; i < streams; i++) {
        build_stream_columns(config, &values->streams[i], &config->encode.routes[i], &rules);
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++) {
        build_columns(config, &all[i], &rules);
    }
    config->encode.column_rules = (struct mr_column_rules){rules.items, rules.count};
    config->source.hides_columns = rules.count > 0;
    config->source.hiding_count = rules.count;
    struct mr_table_pattern *hiding = KEPT_ARRAY(config, struct mr_table_pattern, rules.count);
    for (uint32_t i = 0; i < rules.count; i++) {
        hiding[i] = rules.items[i].table;
    }
    config->source.hiding = hiding;
    name_columns(config, all, &rules);
    take_salt(config);
    build_reselect(config);
    build_wheres(config);
}
