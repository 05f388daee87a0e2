#include "encode/column_rules.h"

static bool rule_fits(const struct mr_column_rule *rule, const char *topic, const char *schema,
                      const char *table)
{
    return (rule->topic == NULL || (topic != NULL && strcmp(rule->topic, topic) == 0)) &&
           mr_table_pattern_matches(&rule->table, mr_slice_of(schema), mr_slice_of(table));
}

bool mr_column_rule_is_about(const struct mr_column_rule *rule, const char *topic,
                             const struct mr_relation *relation)
{
    bool is_about = rule_fits(rule, topic, relation->schema, relation->table);
    for (uint32_t i = 0; i < relation->origin_count && !is_about; i++) {
        const struct mr_origin *origin = &relation->origins[i];
        is_about = rule_fits(rule, topic, origin->schema, origin->table);
    }
    return is_about;
}

const struct mr_column_rule *mr_column_rules_find(const struct mr_column_rules *rules,
                                                  const char *topic,
                                                  const struct mr_relation *relation,
                                                  const char *column, enum mr_column_action first,
                                                  enum mr_column_action last)
{
    for (uint32_t i = 0; i < rules->count; i++) {
        const struct mr_column_rule *rule = &rules->items[i];
        if (rule->action >= first && rule->action <= last &&
            mr_pattern_matches(&rule->column, mr_slice_of(column)) &&
            mr_column_rule_is_about(rule, topic, relation)) {
            return rule;
        }
    }
    return NULL;
}

/* Whether there is a list of the table's columns, or of that of the other one's (NULL: there is
 * none), and both lack this column. */
static bool lists_lack(const struct mr_column_rules *rules, const char *topic,
                       const struct mr_relation *relation, const struct mr_origin *origin,
                       const char *column)
{
    bool is_listed = false, is_included = false;
    for (uint32_t i = 0; i < rules->count; i++) {
        const struct mr_column_rule *rule = &rules->items[i];
        if (rule->action == MR_COLUMN_INCLUDE &&
            (rule_fits(rule, topic, relation->schema, relation->table) ||
             (origin != NULL && rule_fits(rule, topic, origin->schema, origin->table)))) {
            is_listed = true;
            is_included |= mr_pattern_matches(&rule->column, mr_slice_of(column));
        }
    }
    return is_listed && !is_included;
}

bool mr_column_rules_leave_out(const struct mr_column_rules *rules, const char *topic,
                               const struct mr_relation *relation, const char *column)
{
    bool lacks = relation->origin_count == 0 && lists_lack(rules, topic, relation, NULL, column);
    for (uint32_t i = 0; i < relation->origin_count && !lacks; i++) {
        lacks = lists_lack(rules, topic, relation, &relation->origins[i], column);
    }
    return lacks;
}

bool mr_column_rules_hide(const struct mr_column_rules *rules, const char *topic,
                          const struct mr_relation *relation, const char *column, bool is_key)
{
    return mr_column_rules_find(rules, topic, relation, column, MR_COLUMN_EXCLUDE,
                                MR_COLUMN_HASH) != NULL ||
           (!is_key && mr_column_rules_leave_out(rules, topic, relation, column));
}
