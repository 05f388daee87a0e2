/* What the configuration makes of columns: left out, masked, cut, hashed. Compiled into the plan of
 * a relation version, so that a table that no rule names pays nothing. */
#include "base/sha256.h"
#include "encode/values/put.h"
#include "encode/values/types.h"

static const struct mr_column_rule *find_rule(const struct mr_encode_options *options,
                                              const struct mr_plan *plan, const char *column,
                                              enum mr_column_action first,
                                              enum mr_column_action last)
{
    return mr_column_rules_find(&options->column_rules, mr_plan_named_topic(plan), plan->relation,
                                column, first, last);
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
    if (options->column_rules.count == 0) {
        return MR_OK;
    }
    if (find_rule(options, plan, column, MR_COLUMN_EXCLUDE, MR_COLUMN_EXCLUDE) != NULL) {
        if (is_key) {
            return shape_refuse(relation, column, "left out", ret_error);
        }
        *form = mr_type_form_of(MR_RULE_ABSENT, -1);
        return MR_OK;
    }
    if (!is_key && mr_column_rules_leave_out(&options->column_rules, mr_plan_named_topic(plan),
                                             relation, column)) {
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
