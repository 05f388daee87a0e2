/* [outbox]: tables whose rows are events themselves. */

#include "config/names.h"

static void build_outbox_tables(struct mr_config *config)
{
    const struct mr_strings *names = &config->values.outbox_tables;
    struct mr_table_pattern *tables = KEPT_ARRAY(config, struct mr_table_pattern, names->count);
    for (uint32_t i = 0; i < names->count; i++) {
        struct mr_table_pattern *table = &tables[config->outbox.table_count];
        if (!mr_names_take_pattern(config, MR_INDEX_outbox_tables, names->items[i], table)) {
            continue;
        }
        config->outbox.table_count++;
        mr_config_add_rule(config, &(struct mr_pattern_rule){.option = "outbox.tables",
                                                             .text = names->items[i],
                                                             .table = *table});
        /* What is streamed under the names of its partitions is compared with what there is. */
        if (mr_pattern_is_name(&table->schema) && mr_pattern_is_name(&table->table)) {
            mr_config_name_column(config,
                                  &(struct mr_named_column){.option = "outbox.tables",
                                                            .table = {.schema = table->schema.text,
                                                                      .table = table->table.text},
                                                            .column = ""});
        }
        const struct mr_pg_captured_options *captured = &config->source.captured;
        if (captured->pattern_count == 0 &&
            !MR_ANY(one, captured->tables, captured->table_count,
                    mr_table_pattern_matches(table, mr_slice_of(one->schema),
                                             mr_slice_of(one->table)))) {
            REFUSE(config, outbox_tables,
                   ": \"%s\" is none of the tables that are streamed; add it to tables",
                   names->items[i]);
        }
    }
    config->outbox.tables = tables;
}

/* "column:placement" or "column:placement:name"; no part has a colon. A column with a ? may be
 * lacking. */
static bool build_outbox_take_field(struct mr_config *config, const char *text,
                                    struct mr_outbox_field *ret)
{
    static const char *const placements[] = {[MR_OUTBOX_HEADER] = "header",
                                             [MR_OUTBOX_ENVELOPE] = "envelope",
                                             [MR_OUTBOX_PARTITION] = "partition"};
    char *copy = mr_config_keep(config, MR_STRDUP(text));
    char *colon = strchr(copy, ':');
    if (colon == NULL || colon == copy) {
        return false;
    }
    *colon = '\0';
    char *word = colon + 1;
    colon = strchr(word, ':');
    char *end = copy + strlen(copy) - 1;
    bool may_lack = end != copy && *end == '?';
    *end = may_lack ? '\0' : *end;
    *ret = (struct mr_outbox_field){
        .column = copy, .name = colon == NULL ? copy : colon + 1, .may_lack = may_lack};
    if (colon != NULL) {
        *colon = '\0';
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(placements); i++) {
        if (strcmp(word, placements[i]) == 0) {
            ret->placement = (enum mr_outbox_placement)i;
            return ret->name[0] != '\0' && strchr(ret->name, ':') == NULL;
        }
    }
    return false;
}

static void build_outbox_build_fields(struct mr_config *config)
{
    const struct mr_strings *texts = &config->values.outbox_fields;
    struct mr_outbox_field *fields = KEPT_ARRAY(config, struct mr_outbox_field, texts->count);
    bool has_envelope = false;
    bool has_partition = false;
    for (uint32_t i = 0; i < texts->count; i++) {
        if (!build_outbox_take_field(config, texts->items[i], &fields[i])) {
            REFUSE(config, outbox_fields,
                   ": \"%s\" does not say where a column goes; write \"column:header\", "
                   "\"column:envelope\" or \"column:partition\", and a name after another colon "
                   "where it has another",
                   texts->items[i]);
            continue;
        }
        bool is_partition = fields[i].placement == MR_OUTBOX_PARTITION;
        if (is_partition && has_partition) {
            REFUSE(config, outbox_fields,
                   ": \"%s\" is the second one that names the partition; keep one",
                   texts->items[i]);
        }
        if (fields[i].placement == MR_OUTBOX_HEADER && strncmp(fields[i].name, "mr-", 3) == 0) {
            REFUSE(config, outbox_fields,
                   ": \"%s\" is a header that looks like one of millrace's own; take a name that "
                   "does not begin with mr-",
                   texts->items[i]);
        }
        has_partition |= is_partition;
        has_envelope |= fields[i].placement == MR_OUTBOX_ENVELOPE;
    }
    config->outbox.fields = fields;
    config->outbox.field_count = texts->count;
    if (config->outbox.expands && !config->outbox.value_is_json && !has_envelope) {
        REFUSE(config, outbox_expand,
               " is for values that are JSON; set outbox.value_format = \"json\", or leave it "
               "out: with \"text\" the payload is sent as it is");
    }
}

void mr_config_build_outbox(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    if (values->outbox_tables.count == 0 && values->outbox_messages[0] == '\0') {
        return;
    }
    config->outbox.timestamp = mr_config_or_null(values->outbox_timestamp);
    config->outbox.messages = mr_config_or_null(values->outbox_messages);
    build_outbox_tables(config);
    build_outbox_build_fields(config);
    mr_names_rewrite(config, MR_INDEX_outbox_topic, &config->outbox.route.rewrite);
    mr_names_check_topic(config, MR_INDEX_outbox_topic);
    config->encode.outbox = &config->outbox;
}
