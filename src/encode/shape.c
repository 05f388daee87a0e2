/* What the configuration makes of columns: left out, masked, cut, hashed. Compiled into the plan of
 * a relation version, so that a table that no rule names pays nothing. */
#include "base/sha256.h"
#include "encode/values/put.h"
#include "encode/values/types.h"

static bool rule_fits(const struct mr_column_rule *rule, const struct mr_plan *plan,
                      const char *schema, const char *table)
{
    const char *topic = plan->route == NULL ? NULL : plan->route->topic;
    return (rule->topic == NULL || (topic != NULL && strcmp(rule->topic, topic) == 0)) &&
           mr_table_pattern_matches(&rule->table, mr_slice_of(schema), mr_slice_of(table));
}

/* Rows of a partition may come by its own name (it was detached, or the publication altered); its
 * table's rules are about them, too. */
static bool rule_shapes(const struct mr_column_rule *rule, const struct mr_plan *plan)
{
    const struct mr_relation *relation = plan->relation;
    bool is_about = rule_fits(rule, plan, relation->schema, relation->table);
    for (uint32_t i = 0; i < relation->origin_count && !is_about; i++) {
        is_about = rule_fits(rule, plan, relation->origins[i].schema, relation->origins[i].table);
    }
    return is_about;
}

/* The first rule of these kinds that names the column; NULL: none does. */
static const struct mr_column_rule *find_rule(const struct mr_encode_options *options,
                                              const struct mr_plan *plan, const char *column,
                                              enum mr_column_action first,
                                              enum mr_column_action last)
{
    for (uint32_t i = 0; i < options->column_rule_count; i++) {
        const struct mr_column_rule *rule = &options->column_rules[i];
        if (rule->action >= first && rule->action <= last &&
            mr_pattern_matches(&rule->column, mr_slice_of(column)) && rule_shapes(rule, plan)) {
            return rule;
        }
    }
    return NULL;
}

static bool shape_is_named(const struct mr_encode_options *options, const struct mr_plan *plan,
                           const char *column, enum mr_column_action action)
{
    return find_rule(options, plan, column, action, action) != NULL;
}

/* Whether there is a list of the table's columns, or of that of the other one's (NULL: there is
 * none), and both lack this column. */
static bool lists_lack(const struct mr_encode_options *options, const struct mr_plan *plan,
                       const struct mr_origin *origin, const char *column)
{
    const struct mr_relation *relation = plan->relation;
    bool is_listed = false, is_included = false;
    for (uint32_t i = 0; i < options->column_rule_count; i++) {
        const struct mr_column_rule *rule = &options->column_rules[i];
        if (rule->action == MR_COLUMN_INCLUDE &&
            (rule_fits(rule, plan, relation->schema, relation->table) ||
             (origin != NULL && rule_fits(rule, plan, origin->schema, origin->table)))) {
            is_listed = true;
            is_included |= mr_pattern_matches(&rule->column, mr_slice_of(column));
        }
    }
    return is_listed && !is_included;
}

/* Of several that it may be of, each one's list counts. */
static bool shape_leaves_out(const struct mr_encode_options *options, const struct mr_plan *plan,
                             const char *column)
{
    const struct mr_relation *relation = plan->relation;
    bool lacks = relation->origin_count == 0 && lists_lack(options, plan, NULL, column);
    for (uint32_t i = 0; i < relation->origin_count && !lacks; i++) {
        lacks = lists_lack(options, plan, &relation->origins[i], column);
    }
    return lacks;
}

bool mr_shape_names(const struct mr_encode_options *options, const struct mr_plan *plan,
                    const char *column)
{
    return find_rule(options, plan, column, MR_COLUMN_MASK, MR_COLUMN_HASH) != NULL;
}

static mr_status shape_refuse(const struct mr_relation *relation, const char *column,
                              const char *what, struct mr_error *ret_error)
{
    return mr_fail(
        ret_error, MR_ERR_CONFIG,
        "column \"%s\" of table %s.%s is part of the key, and is to be %s: rows could no "
        "longer be told apart; choose another key (key_columns), or take it out of the "
        "rule",
        column, relation->schema, relation->table, what);
}

static void shape(struct mr_type_form *form, const struct mr_encode_options *options,
                  const struct mr_column_rule *rule)
{
    static const enum mr_rule rules[] = {[MR_COLUMN_MASK] = MR_RULE_MASK,
                                         [MR_COLUMN_TRUNCATE] = MR_RULE_TRUNCATED,
                                         [MR_COLUMN_HASH] = MR_RULE_HASH};
    if (form->writer != MR_WRITE_ABSENT &&
        (rule->action != MR_COLUMN_TRUNCATE || form->writer == MR_WRITE_STRING)) {
        *form = mr_type_form_of(rules[rule->action], -1);
        form->conversion.salt = options->hash_salt;
        form->conversion.detail = (int32_t)rule->length;
    }
}

mr_status mr_shape_column(const struct mr_encode_options *options, const struct mr_plan *plan,
                          uint32_t index, struct mr_type_form *form, struct mr_error *ret_error)
{
    const struct mr_relation *relation = plan->relation;
    const char *column = relation->columns[index].name;
    bool is_key = mr_plan_is_key(plan, index);
    if (options->column_rule_count == 0) {
        return MR_OK;
    }
    if (shape_is_named(options, plan, column, MR_COLUMN_EXCLUDE)) {
        if (is_key) {
            return shape_refuse(relation, column, "left out", ret_error);
        }
        *form = mr_type_form_of(MR_RULE_ABSENT, -1);
        return MR_OK;
    }
    if (!is_key && shape_leaves_out(options, plan, column)) {
        *form = mr_type_form_of(MR_RULE_ABSENT, -1);
        return MR_OK;
    }
    const struct mr_column_rule *rule =
        find_rule(options, plan, column, MR_COLUMN_MASK, MR_COLUMN_HASH);
    if (rule == NULL) {
        return MR_OK;
    }
    if (is_key && (rule->action != MR_COLUMN_HASH || plan->key.is_text)) {
        return shape_refuse(relation, column,
                            rule->action == MR_COLUMN_MASK ? "masked"
                            : rule->action == MR_COLUMN_TRUNCATE
                                ? "cut"
                                : "hashed, which a key of bare text "
                                  "can't be",
                            ret_error);
    }
    shape(form, options, rule);
    return MR_OK;
}

/* `detail` asterisks. */
MR_CONVERT(mask)
{
    size_t len = (size_t)how->detail;
    uint8_t *string = mr_put_text(out);
    uint8_t *room = mr_buffer_reserve(out, len);
    if (room != NULL) {
        memset(room, '*', len);
    }
    mr_put_text_end(out, string);
    return true;
}

/* The first `detail` characters. */
MR_CONVERT(truncated)
{
    size_t len = 0;
    for (int32_t i = 0; i < how->detail && len < text.len; i++) {
        size_t sequence = mr_utf8_sequence(text.data + len, text.len - len);
        len += sequence == 0 ? 1 : sequence;
    }
    mr_put_string(out, text.data, len);
    return true;
}

/* SHA-256 of the salt and the text, in hexadecimal. */
MR_CONVERT(hash)
{
    uint8_t bytes[MR_SHA256_BYTES];
    mr_sha256(mr_slice_of(how->salt), text, bytes);
    mr_convert_binary(out, MR_BINARY_HEX, bytes, sizeof(bytes));
    return true;
}
