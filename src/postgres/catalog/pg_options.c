#include "postgres/catalog/pg_options.h"

#include "base/hash.h"

static bool pg_options_is_table(const struct mr_table_name *name, mr_slice schema, mr_slice table)
{
    return mr_slice_equal(mr_slice_of(name->table), table) &&
           mr_slice_equal(mr_slice_of(name->schema), schema);
}

bool mr_pg_table_is_signal(const struct mr_pg_source_options *options, mr_slice schema,
                           mr_slice table)
{
    return options->signal_table != NULL &&
           pg_options_is_table(options->signal_table, schema, table);
}

uint64_t mr_pg_table_hash(mr_slice schema, mr_slice table)
{
    return mr_hash_add(mr_hash_add(MR_HASH_BEGIN, schema.data, schema.len), table.data, table.len);
}

uint32_t mr_pg_table_named(const struct mr_pg_captured_options *captured, mr_slice schema,
                           mr_slice table)
{
    uint32_t i = 0;
    if (captured->by_name == NULL) {
        while (i < captured->table_count &&
               !pg_options_is_table(&captured->tables[i], schema, table)) {
            i++;
        }
        return i < captured->table_count ? i : UINT32_MAX;
    }
    MR_INDEX_FIND(i, captured->by_name, mr_pg_table_hash(schema, table),
                  pg_options_is_table(&captured->tables[i], schema, table));
    return i; /* MR_INDEX_NONE is UINT32_MAX */
}

uint32_t mr_pg_table_place(const struct mr_pg_source_options *options, mr_slice schema,
                           mr_slice table)
{
    uint32_t named = mr_pg_table_named(&options->captured, schema, table);
    if (named != UINT32_MAX) {
        return named;
    }
    for (uint32_t i = 0; i < options->captured.pattern_count; i++) {
        if (mr_table_pattern_matches(&options->captured.patterns[i], schema, table)) {
            return options->captured.table_count + i;
        }
    }
    return UINT32_MAX;
}

bool mr_pg_table_listed(const struct mr_pg_source_options *options, mr_slice schema, mr_slice table)
{
    if (options->captured.signal_is_hidden && mr_pg_table_is_signal(options, schema, table)) {
        return false;
    }
    uint32_t place = mr_pg_table_place(options, schema, table);
    return place < options->captured.table_count ||
           (place != UINT32_MAX &&
            !mr_table_patterns_match(options->captured.excluded, options->captured.excluded_count,
                                     schema, table));
}

const struct mr_table_key *mr_pg_key_of(const struct mr_pg_source_options *options, mr_slice schema,
                                        mr_slice table)
{
    return MR_FIND(key, options->keys, options->key_count,
                   pg_options_is_table(&key->table, schema, table));
}

const struct mr_published *mr_pg_published_of(const struct mr_pg_source_options *options,
                                              const struct mr_table_name *table)
{
    return MR_FIND(one, options->captured.published, options->captured.published_count,
                   mr_table_name_equal(&one->table, table));
}

uint64_t mr_pg_tables_mark(const struct mr_pg_source_options *options)
{
    uint64_t mark = options->captured.table_count;
    for (uint32_t i = 0; i < options->captured.table_count; i++) {
        const struct mr_table_name *name = &options->captured.tables[i];
        uint64_t hash = mr_hash_add(MR_HASH_BEGIN, name->schema, strlen(name->schema) + 1);
        mark += mr_hash_add(hash, name->table, strlen(name->table));
    }
    return mark == 0 ? 1 : mark;
}

const struct mr_copy_where *mr_pg_where_of(const struct mr_pg_source_options *options,
                                           mr_slice schema, mr_slice table, mr_slice leaf_schema,
                                           mr_slice leaf)
{
    for (uint32_t i = 0; i < options->where_count; i++) {
        const struct mr_table_pattern *pattern = &options->wheres[i].table;
        if (mr_table_pattern_matches(pattern, schema, table) ||
            mr_table_pattern_matches(pattern, leaf_schema, leaf)) {
            return &options->wheres[i];
        }
    }
    return NULL;
}
