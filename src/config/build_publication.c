/* Row filters and column lists of the publication. */

#include "config/names.h"

/* The entry of that table, made if there is none; NULL: the table is not one that may have one,
 * which is told. */
static struct mr_published *build_publication_entry_of(struct mr_config *config, uint32_t option,
                                                       struct mr_published *entries,
                                                       struct mr_table_name table)
{
    struct mr_pg_source_options *source = &config->source;
    if (!mr_config_names_table(config, &table)) {
        REFUSE_AT(config, option,
                  ": %s.%s is none of the tables that \"tables\" names; name it there",
                  table.schema, table.table);
        return NULL;
    }
    struct mr_published *known = MR_FIND(entry, entries, source->captured.published_count,
                                         mr_table_name_equal(&entry->table, &table));
    if (known != NULL) {
        return known;
    }
    entries[source->captured.published_count] = (struct mr_published){.table = table};
    return &entries[source->captured.published_count++];
}

static void take_where(struct mr_config *config, const char *text, struct mr_published *entries)
{
    const char *colon;
    const char *condition = mr_names_condition(config, MR_INDEX_publication_where, text, &colon);
    struct mr_table_name table;
    if (condition[0] == '\0' || !mr_names_table(config, text, colon, false, &table)) {
        REFUSE(config, publication_where,
               ": \"%s\" is no condition on a table's rows: write \"schema.table: condition\", "
               "with names and no patterns",
               text);
        return;
    }
    struct mr_published *entry =
        build_publication_entry_of(config, MR_INDEX_publication_where, entries, table);
    if (entry != NULL && entry->where != NULL) {
        REFUSE(config, publication_where, ": table %s.%s is listed twice", table.schema,
               table.table);
    } else if (entry != NULL) {
        entry->where = condition;
    }
}

/* A publication of whole schemas or of all tables sends them whole (CREATE PUBLICATION). */
static void check_patterns(struct mr_config *config, const struct mr_published *entries)
{
    const struct mr_pg_source_options *source = &config->source;
    for (uint32_t i = 0; i < source->captured.published_count; i++) {
        const struct mr_published *entry = &entries[i];
        for (uint32_t k = 0; k < source->captured.pattern_count; k++) {
            const struct mr_pattern *schema = &source->captured.patterns[k].schema;
            bool all = !mr_pattern_is_name(schema);
            if (entry->column_count > 0 || all || strcmp(schema->text, entry->table.schema) == 0) {
                REFUSE_AT(config,
                          entry->column_count > 0 ? MR_INDEX_publication_columns
                                                  : MR_INDEX_publication_where,
                          ": patterns in tables make it a publication of %s, which sends table "
                          "%s.%s whole; name the tables one by one",
                          all ? "all tables" : "whole schemas", entry->table.schema,
                          entry->table.table);
                return;
            }
        }
    }
}

static bool lists_column(const struct mr_published *entry, const char *column)
{
    return MR_ANY(one, entry->columns, entry->column_count, strcmp(*one, column) == 0);
}

/* A rule for a column that the publication does not send anyway finds none in the stream, and
 * misses nothing. */
static void mark_unsent(struct mr_config *config)
{
    struct mr_encode_options *encode = &config->encode;
    const struct mr_pg_source_options *source = &config->source;
    if (encode->column_rules.count == 0 || source->captured.published_count == 0) {
        return;
    }
    struct mr_column_rule *rules =
        KEPT_ARRAY(config, struct mr_column_rule, encode->column_rules.count);
    for (uint32_t i = 0; i < encode->column_rules.count; i++) {
        rules[i] = encode->column_rules.items[i];
        for (uint32_t k = 0; k < source->captured.published_count; k++) {
            const struct mr_published *entry = &source->captured.published[k];
            rules[i].is_unsent |=
                entry->column_count > 0 && mr_pattern_is_name(&rules[i].table.schema) &&
                mr_pattern_is_name(&rules[i].table.table) && mr_pattern_is_name(&rules[i].column) &&
                strcmp(rules[i].table.schema.text, entry->table.schema) == 0 &&
                strcmp(rules[i].table.table.text, entry->table.table) == 0 &&
                !lists_column(entry, rules[i].column.text);
        }
    }
    encode->column_rules.items = rules;
}

void mr_config_build_publication(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    const struct mr_strings *wheres = &values->publication_where;
    const struct mr_strings *columns = &values->publication_columns;
    struct mr_pg_source_options *source = &config->source;
    struct mr_published *entries =
        KEPT_ARRAY(config, struct mr_published, wheres->count + columns->count);
    source->captured.published = entries;
    for (uint32_t i = 0; i < wheres->count; i++) {
        take_where(config, wheres->items[i], entries);
    }
    const struct mr_table_key *lists = mr_names_lists(config, MR_INDEX_publication_columns);
    for (uint32_t i = 0; lists != NULL && i < columns->count; i++) {
        struct mr_published *entry = build_publication_entry_of(
            config, MR_INDEX_publication_columns, entries, lists[i].table);
        if (entry != NULL) {
            entry->columns = lists[i].columns;
            entry->column_count = lists[i].column_count;
        }
    }
    check_patterns(config, entries);
    mark_unsent(config);
}
