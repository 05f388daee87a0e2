/* What is streamed and as what: tables, operations, routes, the format. */
#include <string.h>

#include "config/config_internal.h"

/* ---- tables ---- */

/* Takes one part of "schema"."table", quoted or bare, up to a dot or the end; NULL when it is malformed. */
static char *take_part(struct mr_config *config, const char **at, bool fold)
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
        for (; *from != '\0' && *from != '.' && *from != '"'; from++) {
            bool upper = fold && *from >= 'A' && *from <= 'Z';
            part[len++] = (char)(upper ? *from + ('a' - 'A') : *from);
        }
    }
    *at = from;
    return len == 0 || len > IDENTIFIER_MAX ? NULL : part;
}

static bool parse_table(struct mr_config *config, const char *text, bool fold,
                        struct mr_table_name *ret)
{
    const char *at = text;
    const char *first = take_part(config, &at, fold);
    if (first == NULL || (*at != '\0' && *at != '.')) {
        return false;
    }
    if (*at == '\0') {
        *ret = (struct mr_table_name){.schema = "public", .table = first};
        return true;
    }
    at++;
    const char *second = take_part(config, &at, fold);
    *ret = (struct mr_table_name){.schema = first, .table = second};
    return second != NULL && *at == '\0';
}

static bool table_equal(const struct mr_table_name *a, const struct mr_table_name *b)
{
    return strcmp(a->schema, b->schema) == 0 && strcmp(a->table, b->table) == 0;
}

/* False when the table is in the list already. */
static bool add_table(struct mr_table_name *tables, uint32_t *count, struct mr_table_name table)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (table_equal(&tables[i], &table)) {
            return false;
        }
    }
    tables[(*count)++] = table;
    return true;
}

static void build_tables(struct mr_config *config)
{
    const struct mr_strings *names = &config->values.tables;
    struct mr_table_name *tables =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_table_name, names->count));
    uint32_t count = 0;
    for (uint32_t i = 0; i < names->count; i++) {
        struct mr_table_name table;
        if (!parse_table(config, names->items[i], false, &table)) {
            PROBLEM(config, LINE(config, tables),
                    "tables: \"%s\" is no table name; write \"schema.table\", and quote parts that "
                    "hold "
                    "dots",
                    names->items[i]);
        } else if (!add_table(tables, &count, table)) {
            PROBLEM(config, LINE(config, tables), "tables: \"%s\" stands there twice",
                    names->items[i]);
        }
    }
    config->source.tables = tables;
    config->source.table_count = count;
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
        if (found == 0 && outboxx && strcmp(names->items[i], "read") == 0) {
            WARNING(config, line,
                    "operation \"read\": rows that are in the table before the slot is made are "
                    "not copied "
                    "yet; the stream begins with the slot");
        } else if (found == 0) {
            PROBLEM(config, line,
                    "\"%s\" is no operation; known are insert, update, delete, truncate%s",
                    names->items[i], outboxx ? " and read" : " and message");
        }
        bits |= found;
    }
    return bits;
}

/* ---- events ---- */

static void build_routes_from_streams(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    struct mr_route *routes =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_route, values->stream_count));
    struct mr_table_name *tables =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_table_name, values->stream_count));
    uint32_t count = 0;
    for (uint32_t i = 0; i < values->stream_count; i++) {
        struct mr_stream *stream = &values->streams[i];
        struct mr_table_name table;
        if (stream->resource == NULL || !parse_table(config, stream->resource, true, &table)) {
            PROBLEM(config, stream->line, "source.resource must be \"table\" or \"schema.table\"");
            continue;
        }
        uint32_t bits = operation_bits(config, &stream->operations, stream->line, true);
        if (!add_table(tables, &count, table)) {
            PROBLEM(config, stream->line, "table %s.%s has two streams; one is enough",
                    table.schema, table.table);
            continue;
        }
        routes[count - 1] = (struct mr_route){
            .schema = table.schema,
            .table = table.table,
            .topic = stream->destination,
            .key_column = stream->routing_key,
            .operations = bits,
        };
    }
    config->source.tables = tables;
    config->source.table_count = count;
    config->encode.routes = routes;
    config->encode.route_count = count;
    config->encode.routes_only = true;
}

static void build_routes_from_tables(struct mr_config *config)
{
    build_tables(config);
    uint32_t count = config->source.table_count;
    struct mr_route *routes = mr_config_keep(config, MR_NEW_ARRAY(struct mr_route, count));
    for (uint32_t i = 0; i < count; i++) {
        routes[i] = (struct mr_route){
            .schema = config->source.tables[i].schema,
            .table = config->source.tables[i].table,
            .operations = MR_OPERATIONS_ALL,
        };
    }
    config->encode.routes = routes;
    config->encode.route_count = count;
}

void mr_config_build_encode(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    bool outboxx = LINE(config, metadata_version) != 0 || values->stream_count > 0;
    bool flat = LINE(config, format) == 0 ? outboxx : values->format == MR_FORMAT_FLAT;
    config->encode.format = flat ? MR_FORMAT_FLAT : MR_FORMAT_DEBEZIUM;
    config->encode.topic_prefix = values->topic_prefix;
    config->encode.tombstones = values->tombstones != 0;
    const char *fallback = flat ? "__outboxx_unknown_value__" : "__debezium_unavailable_value";
    config->encode.unavailable_value =
        LINE(config, unavailable_value) == 0 ? fallback : values->unavailable_value;
    config->encode.skipped_operations = operation_bits(config, &values->skipped_operations,
                                                       LINE(config, skipped_operations), false);
    if (values->stream_count > 0 && values->tables.count > 0) {
        PROBLEM(config, LINE(config, tables),
                "tables and [[streams]] both say what is streamed; keep one of the two");
    }
    if (values->stream_count > 0) {
        build_routes_from_streams(config);
    } else {
        build_routes_from_tables(config);
    }
    if (config->source.table_count == 0 && config->problems.errors == 0) {
        PROBLEM(config, LINE(config, tables),
                "no tables are configured; set tables = [\"schema.table\", …]");
    }
}
