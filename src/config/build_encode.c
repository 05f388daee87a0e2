/* What is streamed and as what: tables, operations, routes, the format. */
#include <stdlib.h>
#include <string.h>

#include "config/config_internal.h"

/* ---- tables ---- */

/* Takes one part of "schema"."table", quoted or bare, up to a quote, one of `ends` or the end; NULL when it is malformed. */
static char *take_part(struct mr_config *config, const char **at, const char *ends, bool fold)
{
    char *part = mr_config_keep(config, MR_ALLOC(strlen(*at) + 1));
    size_t len = 0;
    const char *from = *at;
    if (*from == '"') {
        for (from++; *from != '\0' && (*from != '"' || from[1] == '"'); from++) {
            from += *from == '"';
            part[len++] = *from;
        }
        if (*from != '"') {
            return NULL;
        }
        from++;
    } else {
        for (; *from != '\0' && *from != '"' && strchr(ends, *from) == NULL; from++) {
            bool upper = fold && *from >= 'A' && *from <= 'Z';
            part[len++] = (char)(upper ? *from + ('a' - 'A') : *from);
        }
    }
    *at = from;
    return len == 0 || mr_config_characters(part) > IDENTIFIER_MAX ? NULL : part;
}

bool mr_config_parse_table(struct mr_config *config, const char *text, bool fold,
                           struct mr_table_name *ret)
{
    const char *at = text;
    const char *first = take_part(config, &at, ".", fold);
    if (first == NULL || (*at != '\0' && *at != '.')) {
        return false;
    }
    if (*at == '\0') {
        *ret = (struct mr_table_name){.schema = "public", .table = first};
        return true;
    }
    at++;
    const char *second = take_part(config, &at, ".", fold);
    *ret = (struct mr_table_name){.schema = first, .table = second};
    return second != NULL && *at == '\0';
}

/* False when the table is in the list already. */
static bool add_table(struct mr_table_name *tables, uint32_t *count, struct mr_table_name table)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (mr_table_name_equal(&tables[i], &table)) {
            return false;
        }
    }
    tables[(*count)++] = table;
    return true;
}

static void build_patterns(struct mr_config *config)
{
    const struct mr_strings *names = &config->values.tables;
    const struct mr_strings *excluded = &config->values.excluded_tables;
    struct mr_table_pattern *patterns =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_table_pattern, names->count));
    struct mr_table_pattern *less =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_table_pattern, excluded->count));
    for (uint32_t i = 0; i < names->count; i++) {
        if (mr_config_is_pattern(names->items[i])) {
            config->source.captured.pattern_count +=
                mr_config_take_table(config, "tables", LINE(config, tables), names->items[i],
                                     &patterns[config->source.captured.pattern_count]);
        }
    }
    for (uint32_t i = 0; i < excluded->count; i++) {
        struct mr_table_pattern *one = &less[config->source.captured.excluded_count];
        if (mr_config_take_table(config, "excluded_tables", LINE(config, excluded_tables),
                                 excluded->items[i], one)) {
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
        PROBLEM(config, LINE(config, excluded_tables),
                "excluded_tables takes from what patterns in tables mean, and there is none");
    }
}

static void build_tables(struct mr_config *config)
{
    const struct mr_strings *names = &config->values.tables;
    struct mr_table_name *tables =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_table_name, names->count));
    uint32_t count = 0;
    build_patterns(config);
    for (uint32_t i = 0; i < names->count; i++) {
        struct mr_table_name table;
        if (mr_config_is_pattern(names->items[i])) {
            continue;
        }
        if (!mr_config_parse_table(config, names->items[i], false, &table)) {
            PROBLEM(config, LINE(config, tables),
                    "tables: \"%s\" is not a table's name; write \"schema.table\", and quote parts "
                    "that "
                    "hold "
                    "dots",
                    names->items[i]);
        } else if (!add_table(tables, &count, table)) {
            PROBLEM(config, LINE(config, tables), "tables: \"%s\" is listed twice; keep it once",
                    names->items[i]);
        } else if (strcmp(table.schema, "public") == 0 &&
                   strcmp(table.table, MR_CONVERT_PLACEHOLDER) == 0) {
            PROBLEM(config, LINE(config, tables),
                    "\"%s\" is what millrace convert writes where it can't know the tables; name "
                    "yours",
                    names->items[i]);
        }
    }
    config->source.captured.tables = tables;
    config->source.captured.table_count = count;
}

/* ---- topics ---- */

/* Two names of 63 bytes and two dots must still fit behind it. */
static void check_prefix(struct mr_config *config)
{
    enum { PREFIX_MAX = 249 - 2 * (IDENTIFIER_MAX + 1) };
    const char *prefix = config->values.topic_prefix;
    const char *fault = mr_topic_fault(prefix);
    if (fault == NULL && strlen(prefix) > PREFIX_MAX) {
        fault = "is longer than 121 characters, and schema and table must fit behind it";
    }
    if (fault != NULL) {
        PROBLEM(config, LINE(config, topic_prefix), "topic_prefix: \"%s\" %s", prefix, fault);
    }
}

/* ---- keys ---- */

/* schema.table:column,… with each part bare or quoted. */
static bool parse_columns(struct mr_config *config, const char *text, struct mr_table_key *ret)
{
    const char *at = text;
    const char *schema = "public";
    const char *table = take_part(config, &at, ".:", false);
    if (*at == '.') {
        at++;
        schema = table;
        table = take_part(config, &at, ".:", false);
    }
    const char **columns = mr_config_keep(config, MR_NEW_ARRAY(const char *, strlen(text)));
    uint32_t count = 0;
    bool good = schema != NULL && table != NULL && *at == ':';
    while (good && (*at == ':' || *at == ',')) {
        at++;
        columns[count] = take_part(config, &at, ",", false);
        good = columns[count++] != NULL;
    }
    *ret = (struct mr_table_key){
        .table = {.schema = schema, .table = table}, .columns = columns, .column_count = count};
    return good && *at == '\0';
}

const struct mr_table_key *mr_config_take_lists(struct mr_config *config, const char *option,
                                                uint32_t line, const struct mr_strings *texts)
{
    struct mr_table_key *lists =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_table_key, texts->count));
    for (uint32_t i = 0; i < texts->count; i++) {
        const struct mr_table_key *list = &lists[i];
        bool good = parse_columns(config, texts->items[i], &lists[i]);
        lists[i].option = option;
        if (!good) {
            PROBLEM(config, line,
                    "%s: \"%s\" does not name columns of a table; write "
                    "\"schema.table:column,column\", and quote parts that hold dots, colons or "
                    "commas",
                    option, texts->items[i]);
            return NULL;
        }
        for (uint32_t k = 1; k < list->column_count; k++) {
            for (uint32_t before = 0; before < k; before++) {
                if (strcmp(list->columns[k], list->columns[before]) == 0) {
                    PROBLEM(config, line, "%s: column \"%s\" of table %s.%s is listed twice",
                            option, list->columns[k], list->table.schema, list->table.table);
                }
            }
        }
        for (uint32_t k = 0; k < i; k++) {
            if (mr_table_name_equal(&lists[i].table, &lists[k].table)) {
                PROBLEM(config, line, "%s: table %s.%s is listed twice", option,
                        lists[i].table.schema, lists[i].table.table);
            }
        }
    }
    return lists;
}

void mr_config_want_held(struct mr_config *config, const char *option, const struct mr_route *table,
                         const char *column)
{
    const uint32_t needs_old = 1u << MR_OP_UPDATE | 1u << MR_OP_DELETE;
    if ((table->operations & ~config->encode.skipped_operations & needs_old) == 0) {
        return;
    }
    struct mr_pg_source_options *source = &config->source;
    struct mr_table_key *held =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_table_key, source->checked.held_count + 1));
    for (uint32_t i = 0; i < source->checked.held_count; i++) {
        held[i] = source->checked.held[i];
    }
    const char **columns = mr_config_keep(config, MR_NEW_ARRAY(const char *, 1));
    columns[0] = column;
    held[source->checked.held_count++] =
        (struct mr_table_key){.option = option,
                              .table = {.schema = table->schema, .table = table->table},
                              .columns = columns,
                              .column_count = 1};
    source->checked.held = held;
}

/* ---- operations ---- */

static const struct {
    const char *name;
    uint32_t bits;
} operations[] = {
    {"insert", 1u << MR_OP_INSERT},   {"update", 1u << MR_OP_UPDATE},
    {"delete", 1u << MR_OP_DELETE},   {"truncate", 1u << MR_OP_TRUNCATE},
    {"message", 1u << MR_OP_MESSAGE},
};

static uint32_t operation_bits(struct mr_config *config, const struct mr_strings *names,
                               uint32_t line, bool outboxx)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < names->count; i++) {
        uint32_t found = 0;
        for (size_t k = 0; k < MR_ARRAY_LEN(operations); k++) {
            if (strcmp(names->items[i], operations[k].name) == 0) {
                found = operations[k].bits;
            }
        }
        if (outboxx && strcmp(names->items[i], "read") == 0) {
            found = 1u << MR_OP_READ;
        }
        if (found == 0) {
            PROBLEM(config, line,
                    "\"%s\" is not an operation; known are insert, update, delete, truncate%s",
                    names->items[i], outboxx ? " and read" : " and message");
        }
        bits |= found;
    }
    return bits;
}

/* ---- events ---- */

/* Beside other streams of its table: a topic of its own, in which a position tells its events apart. What tells each event of
 * all topics its place or name can't do so for two that are of one change. */
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
    struct mr_route *routes =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_route, values->stream_count));
    struct mr_table_name *tables =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_table_name, values->stream_count));
    uint32_t count = 0;
    uint32_t table_count = 0;
    for (uint32_t i = 0; i < values->stream_count; i++) {
        struct mr_stream *stream = &values->streams[i];
        struct mr_table_name table;
        if (stream->resource == NULL ||
            !mr_config_parse_table(config, stream->resource, true, &table)) {
            PROBLEM(config, stream->line, "source.resource must be \"table\" or \"schema.table\"");
            continue;
        }
        const char *fault =
            stream->destination == NULL ? NULL : mr_topic_fault(stream->destination);
        if (fault != NULL) {
            PROBLEM(config, stream->line, "sink.destination: \"%s\" %s", stream->destination,
                    fault);
        }
        uint32_t bits = operation_bits(config, &stream->operations, stream->line, true);
        add_table(tables, &table_count, table);
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
            mr_config_want_held(config, "streams.sink.routing_key", &routes[count - 1],
                                stream->routing_key);
        }
    }
    config->source.captured.tables = tables;
    config->source.captured.table_count = table_count;
    config->encode.routes = routes;
    config->encode.route_count = count;
    config->encode.routes_only = true;
}

static void build_routes_from_tables(struct mr_config *config)
{
    build_tables(config);
    uint32_t count = config->source.captured.table_count;
    struct mr_route *routes = mr_config_keep(config, MR_NEW_ARRAY(struct mr_route, count));
    for (uint32_t i = 0; i < count; i++) {
        routes[i] = (struct mr_route){
            .schema = config->source.captured.tables[i].schema,
            .table = config->source.captured.tables[i].table,
            .operations = MR_OPERATIONS_ALL,
        };
    }
    config->encode.routes = routes;
    config->encode.route_count = count;
}

/* ---- topics ---- */

struct named_topic {
    char *name;
    const struct mr_route *route;
};

static int compare_topics(const void *a, const void *b)
{
    const struct named_topic *left = a;
    const struct named_topic *right = b;
    return strcmp(left->name, right->name);
}

/* What Kafka does not take in a name becomes "_", and a dot in a table's name is a dot: two tables may come to one topic.
 * Where the file names both destinations that is what is wanted. */
static void check_topics(struct mr_config *config)
{
    const struct mr_encode_options *encode = &config->encode;
    if (encode->routing != NULL && encode->routing->sharing != MR_SHARING_REFUSED) {
        return;
    }
    struct named_topic *topics = MR_NEW_ARRAY(struct named_topic, encode->route_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < encode->route_count; i++) {
        const struct mr_route *route = &encode->routes[i];
        if (mr_is_outbox(encode, route->schema, route->table)) {
            continue;
        }
        topics[count++] = (struct named_topic){
            .name = route->topic != NULL ? MR_STRDUP(route->topic)
                                         : mr_table_topic(encode, route->schema, route->table),
            .route = route,
        };
    }
    qsort(topics, count, sizeof(*topics), compare_topics);
    for (uint32_t i = 1; i < count; i++) {
        const struct mr_route *a = topics[i - 1].route;
        const struct mr_route *b = topics[i].route;
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
    free(topics);
}

/* ---- modes ---- */

static void build_modes(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->encode.modes = (struct mr_value_modes){
        .decimal = (enum mr_decimal_mode)values->decimal_mode,
        .time = (enum mr_time_mode)values->time_mode,
        .binary = (enum mr_binary_mode)values->binary_mode,
        .interval = (enum mr_interval_mode)values->interval_mode,
        .hstore = (enum mr_hstore_mode)values->hstore_mode,
    };
    config->encode.topic_delimiter = values->topic_delimiter;
    config->encode.schema_topic = values->schema_topic[0] == '\0' ? NULL : values->schema_topic;
    if (values->topic_delimiter[0] == '\0' ||
        values->topic_delimiter[strspn(values->topic_delimiter, "._-")] != '\0') {
        PROBLEM(config, LINE(config, topic_delimiter),
                "topic_delimiter: \"%s\" is not made of dots, underscores and hyphens",
                values->topic_delimiter);
    }
}

static void build_transactions(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    struct mr_encode_options *encode = &config->encode;
    if (values->transaction_metadata == 0) {
        return;
    }
    char *name = mr_config_keep(config, mr_topic_name(values->topic_prefix, values->topic_delimiter,
                                                      "", values->topic_transaction));
    const char *fault = mr_topic_fault(name);
    if (fault != NULL || values->topic_transaction[0] == '\0') {
        PROBLEM(config, LINE(config, topic_transaction), "topic_transaction: the topic \"%s\" %s",
                name, fault == NULL ? "needs a last part" : fault);
    }
    encode->transaction_topic = name;
}

static void build_heartbeat(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    bool has_topic = values->heartbeat_prefix[0] != '\0';
    config->heartbeat_ms = (uint32_t)values->heartbeat_interval;
    if ((values->heartbeat_interval != 0) != (has_topic || values->heartbeat_query[0] != '\0')) {
        PROBLEM(config,
                LINE(config, heartbeat_interval) != 0
                    ? LINE(config, heartbeat_interval)
                    : LINE_OF(config, heartbeat_query, heartbeat_prefix),
                "heartbeat.interval says how often, heartbeat.query and heartbeat.topic_prefix "
                "what; set both, or none");
    }
    if (!has_topic) {
        return;
    }
    if (config->encode.format == MR_FORMAT_AVRO || config->encode.format == MR_FORMAT_CLOUDEVENTS) {
        PROBLEM(config, LINE(config, heartbeat_prefix),
                "heartbeat.topic_prefix: records of heartbeats are plain JSON, which format = "
                "\"avro\" and \"cloudevents\" don't mix with; a heartbeat.query that updates a "
                "captured table does");
    }
    char *name =
        mr_config_keep(config, mr_topic_name(values->heartbeat_prefix, values->topic_delimiter, "",
                                             values->topic_prefix));
    const char *of_prefix = mr_topic_fault(values->heartbeat_prefix);
    const char *fault = of_prefix == NULL ? mr_topic_fault(name) : of_prefix;
    if (fault != NULL) {
        PROBLEM(config, LINE(config, heartbeat_prefix),
                "heartbeat.topic_prefix: the topic \"%s\" %s",
                of_prefix == NULL ? name : values->heartbeat_prefix, fault);
    }
    config->encode.heartbeat_topic = name;
}

/* The publication has it as well, and the rules for tables hold for it. */
static void build_signal_table(struct mr_config *config)
{
    struct mr_pg_source_options *source = &config->source;
    const char *text = config->values.signal_table;
    if (text[0] == '\0') {
        return;
    }
    struct mr_table_name *tables = mr_config_keep(
        config, MR_NEW_ARRAY(struct mr_table_name, source->captured.table_count + 1));
    struct mr_table_name *signal = &tables[source->captured.table_count];
    if (mr_config_is_pattern(text) || !mr_config_parse_table(config, text, false, signal)) {
        PROBLEM(config, LINE(config, signal_table),
                "snapshot.signal_table: \"%s\" is not a table's name; write \"schema.table\"",
                text);
        return;
    }
    mr_slice schema = mr_slice_of(signal->schema);
    mr_slice table = mr_slice_of(signal->table);
    bool is_listed = mr_table_patterns_match(source->captured.patterns,
                                             source->captured.pattern_count, schema, table) &&
                     !mr_table_patterns_match(source->captured.excluded,
                                              source->captured.excluded_count, schema, table);
    for (uint32_t i = 0; i < source->captured.table_count; i++) {
        tables[i] = source->captured.tables[i];
        is_listed |= strcmp(tables[i].schema, signal->schema) == 0 &&
                     strcmp(tables[i].table, signal->table) == 0;
    }
    source->signal_table = signal;
    source->captured.signal_is_hidden = !is_listed;
    if (!is_listed) {
        source->captured.tables = tables;
        source->captured.table_count++;
    }
}

void mr_config_build_encode(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->encode.format = (enum mr_format)values->format;
    bool flat = config->encode.format == MR_FORMAT_FLAT;
    config->encode.cloud = (struct mr_cloud_options){
        .mode = (enum mr_cloud_mode)values->cloud_mode,
        .id = (enum mr_cloud_id)values->cloud_id,
        .extensions = values->cloud_extensions != 0,
    };
    config->encode.types = (enum mr_types)values->types;
    config->encode.invalid_utf8 = (enum mr_invalid_utf8)values->invalid_utf8;
    config->encode.topic_prefix = values->topic_prefix;
    config->encode.tombstones = values->tombstones != 0;
    const char *fallback = flat ? "__outboxx_unknown_value__" : "__debezium_unavailable_value";
    config->encode.unavailable_value =
        LINE(config, unavailable_value) == 0 ? fallback : values->unavailable_value;
    config->encode.skipped_operations = operation_bits(config, &values->skipped_operations,
                                                       LINE(config, skipped_operations), false);
    config->encode.message_prefixes = (const char *const *)values->message_prefixes.items;
    config->encode.message_prefix_count = values->message_prefixes.count;
    config->encode.message_bytes_max = (size_t)values->message_size_max;
    config->encode.message_excluded = (const char *const *)values->message_excluded.items;
    config->encode.message_excluded_count = values->message_excluded.count;
    config->encode.skip_unchanged = values->skip_unchanged != 0;
    build_modes(config);
    build_transactions(config);
    build_heartbeat(config);
    mr_config_build_bare(config);
    check_prefix(config);
    if (values->stream_count > 0 && values->tables.count > 0) {
        PROBLEM(config, LINE(config, tables),
                "tables and [[streams]] both say what is streamed; keep one of the two");
    }
    if (values->stream_count > 0) {
        build_routes_from_streams(config);
    } else {
        build_routes_from_tables(config);
    }
    config->source.keys = mr_config_take_lists(config, "key_columns", LINE(config, key_columns),
                                               &values->key_columns);
    config->source.key_count = config->source.keys == NULL ? 0 : values->key_columns.count;
    config->source.key_order = (enum mr_key_order)values->key_order;
    if (config->source.key_order == MR_KEY_ORDER_AUTO &&
        config->encode.types == MR_TYPES_DEBEZIUM) {
        config->source.key_order = MR_KEY_ORDER_INDEX;
    }
    for (uint32_t i = 0; i < config->source.key_count; i++) {
        const struct mr_table_name *table = &config->source.keys[i].table;
        mr_config_check_streamed(config, "key_columns", LINE(config, key_columns), table->schema,
                                 table->table);
    }
    mr_config_build_columns(config);
    mr_config_build_outbox(config);
    mr_config_build_routing(config);
    check_topics(config);
    if (config->source.captured.table_count + config->source.captured.pattern_count == 0 &&
        config->problems.errors == 0) {
        PROBLEM(config, LINE(config, tables),
                "no tables are configured; set tables = [\"schema.table\", …]");
    }
    build_signal_table(config);
    config->encode.kept_topic = values->state_topic[0] == '\0' ? NULL : values->state_topic;
}
