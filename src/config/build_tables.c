/* Which tables are streamed, and the routes of their events: from tables and excluded_tables, or
 * from [[streams]]. */

#include "config/names.h"

void mr_config_add_rule(struct mr_config *config, const struct mr_pattern_rule *rule)
{
    struct mr_pg_source_options *source = &config->source;
    struct mr_pattern_rule *rules =
        mr_config_grow(config, source->checked.rules, source->checked.rule_count, sizeof(*rules));
    rules[source->checked.rule_count++] = *rule;
    source->checked.rules = rules;
}

void mr_config_name_column(struct mr_config *config, const struct mr_named_column *column)
{
    struct mr_pg_source_options *source = &config->source;
    struct mr_named_column *named =
        mr_config_grow(config, source->checked.named, source->checked.named_count, sizeof(*named));
    named[source->checked.named_count++] = *column;
    source->checked.named = named;
}

/* Updates and deletes of that table need the value of before of the column that makes its key, so
 * its identity must hold it. */
static void want_key_held(struct mr_config *config, const struct mr_route *table)
{
    const uint32_t needs_old = 1u << MR_OP_UPDATE | 1u << MR_OP_DELETE;
    if ((table->operations & ~config->encode.skipped_operations & needs_old) == 0) {
        return;
    }
    struct mr_pg_source_options *source = &config->source;
    struct mr_table_key *held =
        mr_config_grow(config, source->checked.held, source->checked.held_count, sizeof(*held));
    held[source->checked.held_count++] =
        (struct mr_table_key){.option = "streams.sink.routing_key",
                              .table = {.schema = table->schema, .table = table->table},
                              .columns = &table->key_column,
                              .column_count = 1};
    source->checked.held = held;
}

bool mr_config_names_table(const struct mr_config *config, const struct mr_table_name *table)
{
    return mr_pg_table_named(&config->source.captured, mr_slice_of(table->schema),
                             mr_slice_of(table->table)) != UINT32_MAX;
}

void mr_config_check_streamed(struct mr_config *config, uint32_t option, const char *schema,
                              const char *table)
{
    const struct mr_pg_source_options *source = &config->source;
    const struct mr_table_name name = {.schema = schema, .table = table};
    if (!mr_config_names_table(config, &name) &&
        !mr_table_patterns_match(source->captured.patterns, source->captured.pattern_count,
                                 mr_slice_of(schema), mr_slice_of(table))) {
        WARNING(config, config->values.lines[option],
                "%s: %s.%s is none of the tables that \"tables\" names; correct it, or take it out",
                mr_option_at(option)->path, schema, table);
    }
}

static void begin_tables(struct mr_config *config, uint32_t count)
{
    config->source.captured.tables = KEPT_ARRAY(config, struct mr_table_name, count + 1);
    config->source.captured.by_name = &config->tables_by_name;
}

static struct mr_table_name *next_table(const struct mr_config *config)
{
    const struct mr_pg_captured_options *captured = &config->source.captured;
    return (struct mr_table_name *)(uintptr_t)captured->tables + captured->table_count;
}

/* False: it is named already. */
static bool build_tables_add_table(struct mr_config *config, struct mr_table_name table)
{
    if (mr_config_names_table(config, &table)) {
        return false;
    }
    *next_table(config) = table;
    config->source.captured.table_count++;
    mr_index_add(&config->tables_by_name,
                 mr_pg_table_hash(mr_slice_of(table.schema), mr_slice_of(table.table)));
    return true;
}

static void build_patterns(struct mr_config *config)
{
    const struct mr_strings *names = &config->values.tables;
    const struct mr_strings *excluded = &config->values.excluded_tables;
    struct mr_table_pattern *patterns = KEPT_ARRAY(config, struct mr_table_pattern, names->count);
    struct mr_table_pattern *less = KEPT_ARRAY(config, struct mr_table_pattern, excluded->count);
    for (uint32_t i = 0; i < names->count; i++) {
        if (mr_names_is_pattern(names->items[i])) {
            config->source.captured.pattern_count +=
                mr_names_take_pattern(config, MR_INDEX_tables, names->items[i],
                                      &patterns[config->source.captured.pattern_count]);
        }
    }
    for (uint32_t i = 0; i < excluded->count; i++) {
        struct mr_table_pattern *one = &less[config->source.captured.excluded_count];
        if (mr_names_take_pattern(config, MR_INDEX_excluded_tables, excluded->items[i], one)) {
            config->source.captured.excluded_count++;
            mr_config_add_rule(config, &(struct mr_pattern_rule){.option = "excluded_tables",
                                                                 .text = excluded->items[i],
                                                                 .table = *one,
                                                                 .takes_away = true});
        }
    }
    config->source.captured.patterns = patterns;
    config->source.captured.excluded = less;
    if (excluded->count > 0 && config->source.captured.pattern_count == 0) {
        REFUSE(config, excluded_tables,
               " takes from what patterns in tables mean, and there is none");
    }
}

/* Of any list: what it says of tables, columns or messages is still to be written. */
static void refuse_placeholders(struct mr_config *config)
{
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_strings *texts =
            mr_option_at(i)->kind == MR_KIND_STRINGS ? mr_value_of(&config->values, i) : NULL;
        for (uint32_t k = 0; texts != NULL && k < texts->count; k++) {
            if (strstr(texts->items[k], MR_CONVERT_PLACEHOLDER) == NULL) {
                continue;
            }
            REFUSE_AT(config, i,
                      ": \"%s\" is what millrace convert writes where it can't know %s; %s",
                      texts->items[k], i == MR_INDEX_tables ? "the tables" : "what is hidden",
                      i == MR_INDEX_tables
                          ? "name yours"
                          : "its comment above names the option: write what that hid, or nothing");
        }
    }
}

static void build_tables(struct mr_config *config)
{
    const struct mr_strings *names = &config->values.tables;
    begin_tables(config, names->count);
    build_patterns(config);
    for (uint32_t i = 0; i < names->count; i++) {
        struct mr_table_name table;
        if (mr_names_is_pattern(names->items[i])) {
            continue;
        }
        if (!mr_names_table(config, names->items[i], names->items[i] + strlen(names->items[i]),
                            false, &table)) {
            REFUSE(config, tables,
                   ": \"%s\" is not a table's name; write \"schema.table\", and quote parts that "
                   "hold dots",
                   names->items[i]);
        } else if (!build_tables_add_table(config, table)) {
            REFUSE(config, tables, ": \"%s\" is listed twice; keep it once", names->items[i]);
        }
    }
}

/* Beside other streams of its table: a topic of its own, in which a position tells its events
 * apart. What tells each event of all topics its place or name can't do so for two that are of one
 * change. */
static void check_stream(struct mr_config *config, const struct mr_stream *stream,
                         const struct mr_table_name *table, const struct mr_route *routes,
                         uint32_t count)
{
    uint32_t others = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(routes[i].schema, table->schema) != 0 ||
            strcmp(routes[i].table, table->table) != 0) {
            continue;
        }
        others++;
        if (stream->destination != NULL && routes[i].topic != NULL &&
            strcmp(stream->destination, routes[i].topic) == 0) {
            PROBLEM(config, stream->line,
                    "table %s.%s has two streams to topic \"%s\"; give one another "
                    "sink.destination, or take it out",
                    table->schema, table->table, stream->destination);
        }
    }
    if (others == MR_STREAMS_PER_TABLE_MAX) {
        PROBLEM(config, stream->line, "table %s.%s has more than %d streams", table->schema,
                table->table, MR_STREAMS_PER_TABLE_MAX);
    }
    if (others == 1 && (config->encode.transaction_topic != NULL ||
                        config->encode.format == MR_FORMAT_CLOUDEVENTS)) {
        PROBLEM(config, stream->line,
                "table %s.%s has two streams, so a change has two events: %s; keep one of the two",
                table->schema, table->table,
                config->encode.transaction_topic != NULL ? "provide_transaction_metadata counts one"
                                                         : "as CloudEvents they would have one id");
    }
}

static void build_routes_from_streams(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    struct mr_route *routes = KEPT_ARRAY(config, struct mr_route, values->stream_count);
    begin_tables(config, values->stream_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < values->stream_count; i++) {
        struct mr_stream *stream = &values->streams[i];
        struct mr_table_name table;
        if (stream->resource == NULL ||
            !mr_names_table(config, stream->resource, stream->resource + strlen(stream->resource),
                            true, &table)) {
            PROBLEM(config, stream->line, "source.resource must be \"table\" or \"schema.table\"");
            continue;
        }
        const char *fault =
            stream->destination == NULL ? NULL : mr_topic_fault(stream->destination);
        if (fault != NULL) {
            PROBLEM(config, stream->line, "sink.destination: \"%s\" %s", stream->destination,
                    fault);
        }
        uint32_t bits = mr_config_operations(config, &stream->operations, stream->line, true);
        build_tables_add_table(config, table);
        check_stream(config, stream, &table, routes, count);
        routes[count++] = (struct mr_route){
            .schema = table.schema,
            .table = table.table,
            .topic = stream->destination,
            .key_column = stream->routing_key,
            .operations = bits,
        };
        /* Outboxx's own form has the key "null" for what it does not know. */
        if (stream->routing_key != NULL && config->encode.format != MR_FORMAT_FLAT) {
            want_key_held(config, &routes[count - 1]);
        }
    }
    config->encode.routes = routes;
    config->encode.route_count = count;
    config->encode.routes_only = true;
}

/* The publication has it as well, and the rules for tables hold for it. */
static void build_signal_table(struct mr_config *config)
{
    struct mr_pg_source_options *source = &config->source;
    const char *text = config->values.signal_table;
    if (text[0] == '\0') {
        return;
    }
    struct mr_table_name signal;
    if (mr_names_is_pattern(text) ||
        !mr_names_table(config, text, text + strlen(text), false, &signal)) {
        REFUSE(config, signal_table, ": \"%s\" is not a table's name; write \"schema.table\"",
               text);
        return;
    }
    source->captured.signal_is_hidden =
        !mr_pg_table_listed(source, mr_slice_of(signal.schema), mr_slice_of(signal.table));
    struct mr_table_name *place = next_table(config);
    *place = signal;
    source->signal_table = place;
    if (source->captured.signal_is_hidden) {
        build_tables_add_table(config, signal);
    }
}

static void build_keys(struct mr_config *config)
{
    struct mr_pg_source_options *source = &config->source;
    source->keys = mr_names_lists(config, MR_INDEX_key_columns);
    source->key_count = source->keys == NULL ? 0 : config->values.key_columns.count;
    source->key_order = (enum mr_key_order)config->values.key_order;
    if (source->key_order == MR_KEY_ORDER_AUTO && config->encode.types == MR_TYPES_DEBEZIUM) {
        source->key_order = MR_KEY_ORDER_INDEX;
    }
    for (uint32_t i = 0; i < source->key_count; i++) {
        const struct mr_table_name *table = &source->keys[i].table;
        mr_config_check_streamed(config, MR_INDEX_key_columns, table->schema, table->table);
    }
}

void mr_config_build_tables(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    refuse_placeholders(config);
    if (values->stream_count > 0 && values->tables.count > 0) {
        REFUSE(config, tables, " and [[streams]] both say what is streamed; keep one of the two");
    }
    if (values->stream_count > 0) {
        build_routes_from_streams(config);
    } else {
        build_tables(config);
    }
    build_keys(config);
}

struct mr_route mr_config_route(const struct mr_config *config, uint32_t number)
{
    const struct mr_pg_captured_options *captured = &config->source.captured;
    if (config->encode.routes_only) {
        return config->encode.routes[number];
    }
    return (struct mr_route){.schema = captured->tables[number].schema,
                             .table = captured->tables[number].table,
                             .operations = MR_OPERATIONS_ALL};
}

uint32_t mr_config_route_count(const struct mr_config *config)
{
    return config->encode.routes_only
               ? config->encode.route_count
               : config->source.captured.table_count - config->source.captured.signal_is_hidden;
}

struct named_topic {
    char *name;
    struct mr_route route;
};

static int compare_topics(const void *a, const void *b)
{
    const struct named_topic *left = a;
    const struct named_topic *right = b;
    return strcmp(left->name, right->name);
}

/* What Kafka does not take in a name becomes "_", and a dot in a table's name is a dot: two tables
 * may come to one topic. Where the file names both destinations that is what is wanted. */
static void check_topics(struct mr_config *config)
{
    const struct mr_encode_options *encode = &config->encode;
    if (encode->routing != NULL && encode->routing->sharing != MR_SHARING_REFUSED) {
        return;
    }
    uint32_t routes = mr_config_route_count(config);
    MR_FREED struct named_topic *topics = MR_NEW_ARRAY(struct named_topic, routes);
    uint32_t count = 0;
    for (uint32_t i = 0; i < routes; i++) {
        const struct mr_route route = mr_config_route(config, i);
        if (!mr_is_outbox(encode, route.schema, route.table)) {
            topics[count++] = (struct named_topic){
                .name = route.topic != NULL ? MR_STRDUP(route.topic)
                                            : mr_table_topic(encode, route.schema, route.table),
                .route = route};
        }
    }
    qsort(topics, count, sizeof(*topics), compare_topics);
    for (uint32_t i = 1; i < count; i++) {
        const struct mr_route *a = &topics[i - 1].route;
        const struct mr_route *b = &topics[i].route;
        if (strcmp(topics[i - 1].name, topics[i].name) == 0 &&
            (a->topic == NULL || b->topic == NULL)) {
            PROBLEM(
                config, LINE(config, tables),
                "tables \"%s\".\"%s\" and \"%s\".\"%s\" would share topic \"%s\", where rows of "
                "the one could pass for the other's; rename one of them, take it out, or allow it "
                "with routing.sharing",
                a->schema, a->table, b->schema, b->table, topics[i].name);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        free(topics[i].name);
    }
}

void mr_config_build_topics(struct mr_config *config)
{
    const struct mr_pg_source_options *source = &config->source;
    check_topics(config);
    if (source->captured.table_count + source->captured.pattern_count == 0 &&
        config->problems.errors == 0) {
        PROBLEM(config, LINE(config, tables),
                "no tables are configured; set tables = [\"schema.table\", …]");
    }
    build_signal_table(config);
}
