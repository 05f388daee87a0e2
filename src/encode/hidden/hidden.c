#include "encode/hidden/hidden.h"

#include "base/thread.h"
#include "encode/hidden/seen.h"
#include "event/relation.h"

/* More tables than columns are asked for (pg_attributes.c). */
enum { LEARNED_MAX = 1000 * 1000 };

struct mr_hidden {
    enum mr_unmatched unmatched;
    struct mr_kin *kin;
    pthread_mutex_t lock;
    struct mr_seen_tables seen;
    /* All that were learned, also those of which nothing is hidden, by OID; kept where some that
     * were seen before are not known (seen.cut). */
    struct mr_index told;
    uint32_t *told_oids;
    uint32_t told_room;
};

struct mr_hidden *mr_hidden_new(enum mr_unmatched unmatched, const struct mr_column_rules *rules,
                                struct mr_kin *kin)
{
    struct mr_hidden *hidden = MR_NEW(struct mr_hidden);
    hidden->unmatched = unmatched;
    hidden->kin = kin;
    mr_seen_init(&hidden->seen, rules, kin);
    pthread_mutex_init(&hidden->lock, NULL);
    return hidden;
}

void mr_hidden_free(struct mr_hidden *hidden)
{
    if (hidden != NULL) {
        mr_seen_done(&hidden->seen);
        mr_index_done(&hidden->told);
        free(hidden->told_oids);
        pthread_mutex_destroy(&hidden->lock);
        free(hidden);
    }
}

static bool is_shown_in(const struct mr_seen *seen, const char *column)
{
    for (uint32_t i = 0; i < seen->count; i++) {
        if (!seen->hides[i] && strcmp(seen->columns[i], column) == 0) {
            return true;
        }
    }
    return false;
}

/* The first hidden column that is not hidden any more, though some other column is shown that was
 * not; NULL: there is none. */
static const char *lost_of(const struct mr_seen *seen, const struct mr_relation *now,
                           const bool *hides)
{
    const char *lost = NULL;
    for (uint32_t i = 0; i < seen->count && lost == NULL; i++) {
        uint32_t column;
        bool is_hidden =
            !seen->hides[i] ||
            (mr_relation_find_column(now, mr_slice_of(seen->columns[i]), &column) && hides[column]);
        lost = is_hidden ? NULL : seen->columns[i];
    }
    for (uint32_t i = 0; i < now->column_count && lost != NULL; i++) {
        if (!hides[i] && !is_shown_in(seen, now->columns[i].name)) {
            return lost;
        }
    }
    return NULL;
}

/* Whether all of `now` before column `end` was, in this order, before column `seen_end`: else one
 * of them may be a column after that. */
static bool was_before(const struct mr_seen *seen, uint32_t seen_end, const struct mr_relation *now,
                       uint32_t end)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < seen_end && at < end; i++) {
        at += strcmp(seen->columns[i], now->columns[at].name) == 0;
    }
    return at == end;
}

static bool seen_has(const struct mr_seen *seen, uint32_t end, const char *column)
{
    for (uint32_t i = 0; i < end; i++) {
        if (strcmp(column, seen->columns[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether a column that is shown after `at` may be one that was at `i`: it was before that, which
 * now stands for another one, or it is new, and one of those before is gone. */
static bool may_be_after(const struct mr_seen *seen, uint32_t i, const struct mr_relation *now,
                         uint32_t at, const bool *hides)
{
    for (uint32_t k = at + 1; k < now->column_count; k++) {
        const char *name = now->columns[k].name;
        if (!hides[k] &&
            (seen_has(seen, i, name) || (at < i && !seen_has(seen, seen->count, name)))) {
            return true;
        }
    }
    return false;
}

/* Whether it is hidden still: by its name, or by one that no column had. */
static bool is_still_hidden(const struct mr_seen *seen, uint32_t i, const struct mr_relation *now,
                            const bool *hides)
{
    for (uint32_t at = 0; at < now->column_count; at++) {
        const char *name = now->columns[at].name;
        bool may_be_it = strcmp(name, seen->columns[i]) == 0 || !seen_has(seen, seen->count, name);
        if (hides[at] && may_be_it && was_before(seen, i, now, at) &&
            !may_be_after(seen, i, now, at, hides)) {
            return true;
        }
    }
    return false;
}

/* The first hidden column that another one, which is shown, may be: by names alone, which swap
 * easily. NULL: none. */
static const char *doubtful_of(const struct mr_seen *seen, const struct mr_relation *now,
                               const bool *hides)
{
    bool shows = false;
    for (uint32_t i = 0; i < now->column_count; i++) {
        shows |= !hides[i];
    }
    for (uint32_t i = 0; shows && i < seen->count; i++) {
        if (seen->hides[i] && (seen->is_partial || !is_still_hidden(seen, i, now, hides))) {
            return seen->columns[i];
        }
    }
    return NULL;
}

/* Whether what was learned is under the names that the rules judge now (`judged`, of the table): no
 * row is behind it, and so no value that was hidden then; of a key's columns, say, the rules hide
 * what is sent nevertheless. */
static bool is_as_learned(const struct mr_seen *seen, const char *judged, const char *column,
                          const char *now)
{
    return seen->is_learned && strcmp(seen->name, judged) == 0 && strcmp(column, now) == 0;
}

/* A column that was hidden, and may be one that is shown; NULL: none. `judged`: by whose name the
 * rules see the table; `numbers`: of a partition of what was seen, as those of mr_origin;
 * `is_doubtful`: by doubtful numbers, else by the others. */
static const char *shown_of(const struct mr_seen *seen, const char *judged, const char *numbers,
                            const struct mr_places *places, const bool *hides, bool is_doubtful)
{
    const struct mr_relation *now = places->now;
    for (uint32_t i = 0; i < seen->number_count; i++) {
        const struct mr_seen_number *hidden = &seen->numbers[i];
        uint32_t number = mr_seen_number_in_part(numbers, hidden->number);
        for (uint32_t a = 0; a < now->attribute_count; a++) {
            bool is_it = now->attributes[a].number == number && hidden->is_doubtful == is_doubtful;
            for (uint32_t c = 0; is_it && c < now->column_count; c++) {
                if (!hides[c] && mr_places_may_be(places, a, c) &&
                    !is_as_learned(seen, judged, hidden->name, now->columns[c].name)) {
                    return hidden->name;
                }
            }
        }
    }
    return NULL;
}

/* The same by names, of a table that the catalog does not know any more. */
static const char *shown_by_name(const struct mr_seen *seen, const char *judged,
                                 const struct mr_relation *now, const bool *hides)
{
    if (!is_as_learned(seen, judged, "", "")) {
        return doubtful_of(seen, now, hides);
    }
    const char *lost = NULL;
    bool has_new = false;
    for (uint32_t i = 0; i < seen->count; i++) {
        uint32_t column;
        bool is_there = mr_relation_find_column(now, mr_slice_of(seen->columns[i]), &column);
        lost = seen->hides[i] && !is_there ? seen->columns[i] : lost;
    }
    for (uint32_t c = 0; c < now->column_count; c++) {
        has_new |= !hides[c] && !seen_has(seen, seen->count, now->columns[c].name);
    }
    return has_new ? lost : NULL;
}

/* Where names do not tell what the last version's doubtful columns are now, but each column that is
 * shown surely has another number than those: all of these count as hidden from then on, as nothing
 * is left to tell them by. Not where a new name is shown. */
static void number_lost(struct mr_seen *seen, const char *name, const struct mr_places *places,
                        const bool *hides)
{
    if (seen == NULL || seen->is_numbered || places == NULL || places->is_open ||
        lost_of(seen, places->now, hides) != NULL ||
        shown_by_name(seen, name, places->now, hides) == NULL ||
        shown_of(seen, name, "", places, hides, true) != NULL) {
        return;
    }
    for (uint32_t i = 0; i < seen->number_count; i++) {
        seen->is_numbered |= seen->numbers[i].is_doubtful;
        seen->numbers[i].is_doubtful = false;
    }
}

/* Whether it is about that table and no other. */
static bool rule_names(const struct mr_column_rule *rule, const char *schema, const char *table)
{
    return mr_pattern_is_name(&rule->table.schema) && mr_pattern_is_name(&rule->table.table) &&
           strcmp(rule->table.schema.text, schema) == 0 &&
           strcmp(rule->table.table.text, table) == 0;
}

/* Whether a rule names it: what is hidden of it is somebody's decision. */
static bool is_named(const struct mr_hidden *hidden, const struct mr_relation *now)
{
    for (uint32_t i = 0; i < hidden->seen.rules.count; i++) {
        if (rule_names(&hidden->seen.rules.items[i], now->schema, now->table)) {
            return true;
        }
    }
    return false;
}

static bool rule_names_any(const struct mr_column_rule *rule, const struct mr_relation *now)
{
    bool names = rule_names(rule, now->schema, now->table);
    for (uint32_t i = 0; i < now->origin_count && !names; i++) {
        names = rule_names(rule, now->origins[i].schema, now->origins[i].table);
    }
    return names;
}

/* It was there before the table's first row, and was dropped, says the catalog. */
static bool was_dropped(const struct mr_seen *learned, const struct mr_relation *now,
                        const char *column)
{
    bool was_there = false, is_there = now->attribute_count == 0;
    for (uint32_t i = 0; learned != NULL && i < learned->number_count; i++) {
        const struct mr_seen_number *hidden = &learned->numbers[i];
        bool is_it = strcmp(hidden->name, column) == 0;
        was_there |= is_it;
        for (uint32_t a = 0; is_it && a < now->attribute_count; a++) {
            is_there |= now->attributes[a].number == hidden->number;
        }
    }
    return was_there && !is_there;
}

/* A rule that names this table, or what it is of, and one column, which the table does not have. */
static const char *missing_of(const struct mr_hidden *hidden, const struct mr_relation *now,
                              const char *topic)
{
    const struct mr_seen *learned = mr_seen_learned(&hidden->seen, now->oid, topic);
    for (uint32_t i = 0; i < hidden->seen.rules.count; i++) {
        const struct mr_column_rule *rule = &hidden->seen.rules.items[i];
        bool is_about = rule->action != MR_COLUMN_INCLUDE && !rule->is_unsent &&
                        (rule->topic == NULL || strcmp(rule->topic, topic) == 0) &&
                        mr_pattern_is_name(&rule->column);
        uint32_t column;
        if (is_about && rule_names_any(rule, now) &&
            !mr_relation_find_column(now, mr_slice_of(rule->column.text), &column) &&
            !was_dropped(learned, now, rule->column.text)) {
            return rule->column.text;
        }
    }
    return NULL;
}

static mr_status unmatched(const struct mr_hidden *hidden, const struct mr_relation *now,
                           const char *before, const char *column, struct mr_error *ret_error)
{
    if (hidden->unmatched == MR_UNMATCHED_WARN) {
        mr_log(MR_LOG_WARN, "columns_unmatched",
               "a rule for columns hid a column that the table does not have (any more), or not "
               "surely under that name; if it was renamed, its values go out as they are",
               MR_LOG_STR("schema", now->schema), MR_LOG_STR("table", now->table),
               MR_LOG_STR("column", column));
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_POISON,
                   "table %s.%s: the rules for columns (columns.*) hid column \"%s\"%s%s, and no "
                   "column is surely that one and hidden at this place of the stream: if it was "
                   "renamed, its values would go out as they are, so nothing of the table does; "
                   "name the column and the table as they are now (\"%s.%s:(%s|new_name)\" fits "
                   "rows of both), or, if the column is gone, have the rule fit this table no more "
                   "and the others as before; columns.unmatched = \"warn\" would send such values "
                   "as they are",
                   now->schema, now->table, column, before == NULL ? "" : " of ",
                   before == NULL ? "" : before, now->schema, now->table, column);
}

/* A column that was hidden of what the table is of, and may be shown; NULL: none. Names decide
 * where numbers can't, if `by_names`: what is known of the table itself counts for more. */
static const char *lost_of_origin(const struct mr_hidden *hidden, const struct mr_relation *now,
                                  const struct mr_origin *origin, const struct mr_places *places,
                                  const char *topic, const bool *hides, bool by_names)
{
    const struct mr_seen *seen = mr_seen_origin(&hidden->seen, origin, topic);
    if (seen == NULL) {
        return NULL;
    }
    if (places != NULL && mr_seen_numbers_tell(seen, origin)) {
        MR_TEXT(judged);
        mr_text_format(&judged, "%s.%s", origin->schema, origin->table);
        return shown_of(seen, judged.data, origin->numbers, places, hides, false);
    }
    return by_names && !seen->is_learned ? doubtful_of(seen, now, hides) : NULL;
}

static bool was_told(const struct mr_hidden *hidden, uint32_t oid)
{
    uint32_t number;
    MR_INDEX_FIND(number, &hidden->told, oid, hidden->told_oids[number] == oid);
    return number != MR_INDEX_NONE;
}

/* Whether something of it may have been hidden that is not known any more: it could not be stored,
 * and the table was altered since. */
static bool is_forgotten(const struct mr_hidden *hidden, const struct mr_relation *now)
{
    bool is_about = false;
    if (hidden->seen.cut == 0 || now->oid > hidden->seen.cut || was_told(hidden, now->oid)) {
        return false;
    }
    for (uint32_t i = 0; i < hidden->seen.rules.count; i++) {
        const struct mr_column_rule *rule = &hidden->seen.rules.items[i];
        is_about |= mr_column_rule_is_about(rule, rule->topic, now);
    }
    return is_about && !is_named(hidden, now);
}

/* What was hidden of the table can't be told. True: it goes out nevertheless, which is logged;
 * false: the caller refuses it. */
static bool goes_out(const struct mr_hidden *hidden, const struct mr_relation *now, const char *why)
{
    if (hidden->unmatched != MR_UNMATCHED_WARN) {
        return false;
    }
    mr_log(MR_LOG_WARN, "columns_unmatched", why, MR_LOG_STR("schema", now->schema),
           MR_LOG_STR("table", now->table));
    return true;
}

static mr_status forgotten(const struct mr_hidden *hidden, const struct mr_relation *now,
                           struct mr_error *ret_error)
{
    if (goes_out(hidden, now,
                 "a table was altered while millrace was down, and what the rules for columns hid "
                 "of it before could not be stored; a column that was renamed goes out as it is")) {
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_POISON,
                   "table %s.%s was altered while millrace was down, and what the rules for "
                   "columns (columns.*) hid of it before is not known any more, because the stored "
                   "position can't name so many tables; nothing of it goes out, for a column may "
                   "have been renamed: add a rule that names this table and all that is to be "
                   "hidden of it (\"%s.%s:column\"); columns.unmatched = \"warn\" would send its "
                   "values as they are",
                   now->schema, now->table, now->schema, now->table);
}

/* The first column that was hidden, and may be one that is shown; NULL: none. Of which table it
 * was, if by another name, is `ret_before`. `places`: NULL where the catalog does not know the
 * table. Numbers are certain where both versions have them; else names decide. */
static const char *judge_known(const struct mr_hidden *hidden, const struct mr_relation *now,
                               const struct mr_places *places, const char *name, const char *topic,
                               const bool *hides, const char **ret_before)
{
    const struct mr_seen *by_oid = mr_seen_find(&hidden->seen, now->oid, NULL, topic);
    const struct mr_seen *by_name = mr_seen_find(&hidden->seen, 0, name, topic);
    const char *column = NULL;
    by_oid = by_oid != NULL ? by_oid : mr_seen_learned(&hidden->seen, now->oid, topic);
    for (uint32_t i = 0; i < now->origin_count && column == NULL; i++) {
        column =
            lost_of_origin(hidden, now, &now->origins[i], places, topic, hides, by_oid == NULL);
    }
    if (by_oid != NULL && column == NULL) {
        column = places == NULL ? NULL : shown_of(by_oid, name, "", places, hides, false);
        if (column == NULL && (places == NULL || !by_oid->is_numbered)) {
            column = shown_by_name(by_oid, name, now, hides);
        }
        *ret_before = column == NULL || strcmp(by_oid->name, name) == 0 ? NULL : by_oid->name;
    }
    if (column == NULL && by_name != NULL && by_name != by_oid && !by_name->is_learned) {
        column = lost_of(by_name, now, hides);
    }
    return column;
}

/* The same, or the first column that a rule names and the table lacks, where no row was seen. */
static const char *judge_hidden(const struct mr_hidden *hidden, const struct mr_relation *now,
                                const struct mr_places *places, const char *name, const char *topic,
                                const bool *hides, const char **ret_before)
{
    const struct mr_seen *by_oid = mr_seen_find(&hidden->seen, now->oid, NULL, topic);
    const struct mr_seen *by_name = mr_seen_find(&hidden->seen, 0, name, topic);
    const char *column = NULL;
    if ((by_oid == NULL || by_oid->is_learned) && (by_name == NULL || by_name->is_learned)) {
        column = missing_of(hidden, now, topic);
    }
    return column != NULL ? column
                          : judge_known(hidden, now, places, name, topic, hides, ret_before);
}

/* Whether each rule fits it by its own name: then no rule hides more of it, whatever table it was
 * of. */
static bool all_fit(const struct mr_hidden *hidden, const struct mr_relation *now)
{
    for (uint32_t i = 0; i < hidden->seen.rules.count; i++) {
        const struct mr_table_pattern *table = &hidden->seen.rules.items[i].table;
        if (!mr_table_pattern_matches(table, mr_slice_of(now->schema), mr_slice_of(now->table))) {
            return false;
        }
    }
    return true;
}

/* Which rules are about its table nobody knows. */
static mr_status rootless(const struct mr_hidden *hidden, const struct mr_relation *now,
                          struct mr_error *ret_error)
{
    if (goes_out(hidden, now,
                 "a table was a partition, and it is not known of which table: the rules for "
                 "columns of that do not hide its values")) {
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_POISON,
                   "table %s.%s was a partition, and it is not known of which table; a rule for "
                   "columns (columns.*) of that may hide its values, and no column is surely that "
                   "one and hidden at this place of the stream, so nothing of it goes out; name it "
                   "in \"tables\" and in the rules; columns.unmatched = \"warn\" would send its "
                   "values as they are",
                   now->schema, now->table);
}

static bool is_of_key(const struct mr_relation *relation, uint32_t column)
{
    for (uint32_t k = 0; k < relation->key_count; k++) {
        if (relation->key_columns[k] == column) {
            return true;
        }
    }
    return false;
}

/* The first column that is shown, and that the rules hide of that partition; NULL: none. */
static const char *shown_of_part(const struct mr_hidden *hidden, const struct mr_relation *root,
                                 const struct mr_relation *part, const char *topic,
                                 const bool *hides)
{
    for (uint32_t c = 0; c < part->column_count; c++) {
        const char *column = part->columns[c].name;
        uint32_t of_root;
        bool is_key = mr_relation_find_column(root, mr_slice_of(column), &of_root) &&
                      is_of_key(root, of_root);
        if (!hides[c] && mr_column_rules_hide(&hidden->seen.rules, topic, part, column, is_key)) {
            return column;
        }
    }
    return NULL;
}

/* What the rules hide of a partition while it is one by itself, or hid of it, and not of the table
 * that its rows come as: it was attached since, say. Its columns have the names of the table's. */
static mr_status judge_part(struct mr_hidden *hidden, const struct mr_relation *root,
                            const struct mr_relation *part, const char *topic, const bool *hides,
                            struct mr_error *ret_error)
{
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", part->schema, part->table);
    struct mr_places all;
    const struct mr_places *places = mr_places_init(&all, part) ? &all : NULL;
    const char *before = NULL;
    MR_HOLD(&hidden->lock);
    const char *column = shown_of_part(hidden, root, part, topic, hides);
    if (column == NULL) {
        column = judge_hidden(hidden, part, places, name.data, topic, hides, &before);
    }
    mr_places_done(&all);
    if (column == NULL) {
        return MR_OK;
    }
    if (hidden->unmatched == MR_UNMATCHED_WARN) {
        mr_log(MR_LOG_WARN, "columns_unmatched",
               "a rule for columns hides a column of a partition, or hid it, and the partition's "
               "rows come as its table's, of which no rule surely hides it: its values go out as "
               "they are",
               MR_LOG_STR("schema", root->schema), MR_LOG_STR("table", root->table),
               MR_LOG_STR("partition", part->table), MR_LOG_STR("column", column));
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_POISON,
                   "table %s.%s: the rules for columns (columns.*) hide column \"%s\" of its "
                   "partition %s%s%s, or hid it; the partition's rows come as the table's, and of "
                   "the table they do not, so nothing of it goes out; name the table in the rule, "
                   "too (\"%s.%s:%s\", and its new name if it was renamed), or take the partition "
                   "out of it; columns.unmatched = \"warn\" would send such values as they are",
                   root->schema, root->table, column, name.data, before == NULL ? "" : ", then ",
                   before == NULL ? "" : before, root->schema, root->table, column);
}

mr_status mr_hidden_look_part(struct mr_hidden *hidden, const struct mr_relation *root,
                              const struct mr_relation *part, const char *topic, const bool *hides,
                              struct mr_error *ret_error)
{
    topic = topic == NULL ? "" : topic;
    /* A list of columns that is the table's may name others of the partition (pgoutput.c,
     * send_relation_and_attrs): what is sent are those of the table. */
    bool has_all = true;
    uint32_t at;
    for (uint32_t c = 0; c < root->column_count; c++) {
        has_all &= mr_relation_find_column(part, mr_slice_of(root->columns[c].name), &at);
    }
    struct mr_relation view = *part;
    view.columns = has_all ? part->columns : root->columns;
    view.column_count = has_all ? part->column_count : root->column_count;
    bool *part_hides = MR_NEW_ARRAY(bool, view.column_count);
    for (uint32_t c = 0; c < view.column_count; c++) {
        part_hides[c] =
            !mr_relation_find_column(root, mr_slice_of(view.columns[c].name), &at) || hides[at];
    }
    mr_status status = judge_part(hidden, root, &view, topic, part_hides, ret_error);
    free(part_hides);
    return status;
}

/* A partition as the stream would describe it, with columns of its own order. */
struct part_view {
    struct mr_origins origins;
    struct mr_column columns[MR_COLUMNS_MAX];
    struct mr_attribute attributes[MR_COLUMNS_MAX];
};

static void part_number_columns(struct part_view *made, struct mr_relation *view,
                                const struct mr_relation *root, const char *numbers)
{
    for (uint32_t c = 0; c < root->column_count; c++) {
        uint32_t number = mr_seen_number_in_part(numbers, root->attributes[c].number);
        uint32_t at = c;
        if (number == 0 || number == UINT32_MAX) {
            view->attribute_count = 0; /* names decide */
            return;
        }
        for (; at > 0 && made->attributes[at - 1].number > number; at--) {
            made->attributes[at] = made->attributes[at - 1];
            made->columns[at] = made->columns[at - 1];
        }
        made->attributes[at] =
            (struct mr_attribute){.number = number, .name = root->columns[c].name};
        made->columns[at] = root->columns[c];
    }
    view->attribute_count = root->column_count;
    view->columns = made->columns;
}

/* Of a copy, whose columns are those of the catalog. */
static struct mr_relation view_part(const struct mr_hidden *hidden, const struct mr_relation *root,
                                    const struct mr_table_part *part, struct part_view *made)
{
    struct mr_relation view = {.oid = part->oid,
                               .schema = part->schema,
                               .table = part->table,
                               .column_count = root->column_count,
                               .columns = root->columns,
                               .attributes = made->attributes};
    if (!mr_kin_find(hidden->kin, part->oid, &made->origins)) {
        return view;
    }
    view.origins = made->origins.items;
    view.origin_count = made->origins.count;
    for (uint32_t i = 0; i < view.origin_count; i++) {
        const struct mr_origin *origin = &view.origins[i];
        if (origin->oid == root->oid && origin->numbers != NULL &&
            root->attribute_count == root->column_count) {
            part_number_columns(made, &view, root, origin->numbers);
        }
    }
    return view;
}

static mr_status judge_parts(struct mr_hidden *hidden, const struct mr_relation *root,
                             const char *topic, const bool *hides, struct mr_error *ret_error)
{
    MR_FREED struct part_view *made = root->part_count == 0 ? NULL : MR_NEW(struct part_view);
    for (uint32_t i = 0; i < root->part_count; i++) {
        const struct mr_relation part = view_part(hidden, root, &root->parts[i], made);
        MR_TRY(mr_hidden_look_part(hidden, root, &part, topic, hides, ret_error));
    }
    return MR_OK;
}

mr_status mr_hidden_look(struct mr_hidden *hidden, const struct mr_relation *relation,
                         const char *topic, const bool *hides, struct mr_error *ret_error)
{
    if (relation->is_part && relation->origin_count == 0 && !is_named(hidden, relation) &&
        !all_fit(hidden, relation)) {
        MR_TRY(rootless(hidden, relation, ret_error));
    }
    topic = topic == NULL ? "" : topic;
    MR_TRY(judge_parts(hidden, relation, topic, hides, ret_error));
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", relation->schema, relation->table);
    struct mr_places all;
    const struct mr_places *places = mr_places_init(&all, relation) ? &all : NULL;
    const char *before = NULL;
    MR_HOLD(&hidden->lock);
    mr_seen_adopt(&hidden->seen, relation->oid, name.data, topic);
    number_lost(mr_seen_find(&hidden->seen, relation->oid, NULL, topic), name.data, places, hides);
    const char *column = judge_hidden(hidden, relation, places, name.data, topic, hides, &before);
    mr_status status =
        column == NULL ? MR_OK : unmatched(hidden, relation, before, column, ret_error);
    if (status == MR_OK && mr_seen_find(&hidden->seen, relation->oid, NULL, topic) == NULL &&
        is_forgotten(hidden, relation)) {
        status = forgotten(hidden, relation, ret_error);
    }
    if (status == MR_OK) {
        mr_seen_keep(&hidden->seen, relation, places, name.data, topic, hides);
    }
    mr_places_done(&all);
    return status;
}

static void learn_told(struct mr_hidden *hidden, uint32_t oid)
{
    if (hidden->seen.cut != 0 && hidden->told.count < LEARNED_MAX && !was_told(hidden, oid)) {
        MR_GROW(hidden->told_oids, hidden->told_room, hidden->told.count + 1);
        hidden->told_oids[hidden->told.count] = oid;
        mr_index_add(&hidden->told, oid);
    }
}

/* Of the table's columns, in the stream that goes to `topic`; NULL: in all. The caller's. */
static bool *hides_of(const struct mr_hidden *hidden, const struct mr_relation *relation,
                      const char *topic)
{
    bool *hides = MR_NEW_ARRAY(bool, relation->column_count);
    for (uint32_t i = 0; i < relation->column_count; i++) {
        hides[i] = mr_column_rules_hide(&hidden->seen.rules, topic, relation,
                                        relation->columns[i].name, false);
    }
    return hides;
}

/* What the rules hide of it in the stream that goes to `topic`; NULL: in all. */
static void learn_stream(struct mr_hidden *hidden, const struct mr_relation *relation,
                         const char *topic)
{
    const char *of = topic == NULL ? "" : topic;
    struct mr_places places;
    if (hidden->seen.count >= LEARNED_MAX ||
        mr_seen_find(&hidden->seen, relation->oid, NULL, of) != NULL) {
        return;
    }
    bool *hides = hides_of(hidden, relation, topic);
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", relation->schema, relation->table);
    if (mr_places_init(&places, relation) && mr_seen_hides_any(hides, relation->column_count)) {
        struct mr_seen *learned =
            mr_seen_keep(&hidden->seen, relation, &places, name.data, of, hides);
        learned->is_learned = true;
        mr_seen_reduce(learned);
    }
    mr_places_done(&places);
    free(hides);
}

/* Walks the streams of a table for which rules say what is hidden: NULL, which is all of them, then
 * the topic of each rule of one stream. `at` is 0 at first. False: there are no more. */
static bool next_topic(const struct mr_hidden *hidden, const struct mr_relation *relation,
                       uint32_t *at, const char **ret_topic)
{
    const struct mr_column_rules *rules = &hidden->seen.rules;
    *ret_topic = NULL;
    if (*at == 0) {
        *at = 1;
        return true;
    }
    while (*at <= rules->count) {
        const struct mr_column_rule *rule = &rules->items[(*at)++ - 1];
        if (rule->topic != NULL && mr_column_rule_is_about(rule, rule->topic, relation)) {
            *ret_topic = rule->topic;
            return true;
        }
    }
    return false;
}

void mr_hidden_learn(struct mr_hidden *hidden, const struct mr_relation *relation)
{
    MR_HOLD(&hidden->lock);
    learn_told(hidden, relation->oid);
    const char *topic;
    for (uint32_t at = 0; next_topic(hidden, relation, &at, &topic);) {
        learn_stream(hidden, relation, topic);
    }
}

static mr_status leave_stream(const struct mr_hidden *hidden, const struct mr_relation *now,
                              const char *topic, struct mr_error *ret_error)
{
    struct mr_places all;
    const struct mr_places *places = mr_places_init(&all, now) ? &all : NULL;
    bool *hides = hides_of(hidden, now, topic);
    const char *before = NULL;
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", now->schema, now->table);
    const char *column =
        judge_known(hidden, now, places, name.data, topic == NULL ? "" : topic, hides, &before);
    free(hides);
    mr_places_done(&all);
    return column == NULL ? MR_OK : unmatched(hidden, now, before, column, ret_error);
}

mr_status mr_hidden_leave(struct mr_hidden *hidden, const struct mr_relation *now,
                          struct mr_error *ret_error)
{
    const char *topic;
    for (uint32_t at = 0; next_topic(hidden, now, &at, &topic);) {
        MR_TRY(leave_stream(hidden, now, topic, ret_error));
    }
    mr_hidden_learn(hidden, now);
    return MR_OK;
}

char *mr_hidden_format(struct mr_hidden *hidden)
{
    MR_HOLD(&hidden->lock);
    return mr_seen_format(&hidden->seen);
}

bool mr_hidden_owes(const struct mr_hidden *hidden)
{
    return !atomic_load_explicit(&hidden->seen.is_formatted, memory_order_relaxed);
}

void mr_hidden_take(struct mr_hidden *hidden, const char *json)
{
    MR_HOLD(&hidden->lock);
    mr_seen_take(&hidden->seen, json);
}

void mr_hidden_add_oids(struct mr_hidden *hidden, struct mr_text *text)
{
    MR_HOLD(&hidden->lock);
    for (uint32_t i = 0; i < hidden->seen.count; i++) {
        mr_text_format(text, ",%u", hidden->seen.items[i].oid);
    }
}

char **mr_hidden_names(struct mr_hidden *hidden, uint32_t *ret_count)
{
    MR_HOLD(&hidden->lock);
    char **names = MR_NEW_ARRAY(char *, hidden->seen.count);
    for (uint32_t i = 0; i < hidden->seen.count; i++) {
        names[i] = MR_STRDUP(hidden->seen.items[i].name);
    }
    *ret_count = hidden->seen.count;
    return names;
}

void mr_hidden_moved(struct mr_hidden *there, struct mr_hidden *here, const struct mr_relation *now)
{
    MR_HOLD(&there->lock);
    mr_seen_moved(&there->seen, &here->seen, now);
}
