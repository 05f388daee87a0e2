#include "encode/hidden.h"

#include <inttypes.h>

#include "base/hash.h"
#include "base/object.h"
#include "base/pattern.h"
#include "base/text.h"
#include "base/thread.h"
#include "event/places.h"
#include "event/relation.h"

/* The stored record must fit; a table takes some hundred bytes. Of tables that are made again and
 * again under one name some are kept: one that was swapped for another may still be written to. */
enum {
    STORED_BYTES_MAX = 64 * 1024,
    SAME_NAME_MAX = 4,
    LEARNED_MAX = 2000, /* each is looked for among all others */
};

/* A column that was hidden once, by the number that only it has, and the name that it had then. */
struct numbered {
    uint32_t number;
    char *name;
};

struct seen {
    uint32_t oid;
    char *name, *topic; /* "schema.table"; "": all its streams */
    char **columns;     /* all of them, */
    bool *hides;        /* and whether that one is hidden */
    uint32_t count;
    struct numbered *numbers; /* of all that ever were */
    uint32_t number_count, number_room;
    bool is_numbered; /* those that are hidden are all among them */
    bool is_learned;  /* from the catalog: the stream has brought nothing of it */
    char *rules;      /* their marks, of those that are about it, with spaces between */
};

struct mr_hidden {
    enum mr_unmatched unmatched;
    const struct mr_column_rule *rules;
    uint32_t rule_count;
    char mark[24]; /* of the rules */
    pthread_mutex_t lock;
    struct seen *seen;
    uint32_t count, room;
    char *stored;      /* as it is stored; NULL: it is too much, or */
    bool is_formatted; /* it has changed */
    bool was_too_much;
};

static uint64_t add_hidden_text(uint64_t hash, const char *text)
{
    return mr_hash_add(hash, text == NULL ? "*" : text, text == NULL ? 2 : strlen(text) + 1);
}

static uint64_t hash_rule(uint64_t hash, const struct mr_column_rule *rule)
{
    hash = mr_hash_add(hash, &rule->action, sizeof(rule->action));
    hash = add_hidden_text(hash, rule->table.schema.text);
    hash = add_hidden_text(hash, rule->table.table.text);
    hash = add_hidden_text(hash, rule->column.text);
    return add_hidden_text(hash, rule->topic);
}

static void mark_rules(struct mr_hidden *hidden)
{
    uint64_t hash = MR_HASH_BEGIN;
    for (uint32_t i = 0; i < hidden->rule_count; i++) {
        hash = hash_rule(hash, &hidden->rules[i]);
    }
    snprintf(hidden->mark, sizeof(hidden->mark), "%" PRIx64, hash);
}

static uint32_t mark_of_rule(const struct mr_column_rule *rule)
{
    uint64_t hash = hash_rule(MR_HASH_BEGIN, rule);
    return (uint32_t)(hash ^ hash >> 32);
}

static bool rule_is_about(const struct mr_column_rule *rule, const char *schema, const char *table)
{
    return mr_table_pattern_matches(&rule->table, mr_slice_of(schema), mr_slice_of(table));
}

/* The marks of the rules about it, or about what it is a partition of; the caller's. */
static char *rule_marks(const struct mr_hidden *hidden, const struct mr_relation *relation)
{
    struct mr_text marks = {0};
    mr_text_string(&marks, "");
    for (uint32_t i = 0; i < hidden->rule_count; i++) {
        const struct mr_column_rule *rule = &hidden->rules[i];
        bool is_about = rule_is_about(rule, relation->schema, relation->table);
        for (uint32_t k = 0; k < relation->origin_count && !is_about; k++) {
            const struct mr_origin *origin = &relation->origins[k];
            is_about = rule_is_about(rule, origin->schema, origin->table);
        }
        if (is_about) {
            mr_text_format(&marks, marks.len == 0 ? "%" PRIx32 : " %" PRIx32, mark_of_rule(rule));
        }
    }
    return marks.data;
}

/* Whether all of these rules are there still. */
static bool has_rules(const struct mr_hidden *hidden, const char *marks)
{
    for (const char *at = marks; *at != '\0';) {
        char *end;
        uint32_t mark = (uint32_t)strtoul(at, &end, 16);
        uint32_t i = 0;
        while (i < hidden->rule_count && mark_of_rule(&hidden->rules[i]) != mark) {
            i++;
        }
        if (end == at || i == hidden->rule_count) {
            return false;
        }
        at = *end == ' ' ? end + 1 : end;
    }
    return true;
}

struct mr_hidden *mr_hidden_new(enum mr_unmatched unmatched, const struct mr_column_rule *rules,
                                uint32_t rule_count)
{
    struct mr_hidden *hidden = MR_NEW(struct mr_hidden);
    hidden->unmatched = unmatched;
    hidden->rules = rules;
    hidden->rule_count = rule_count;
    mark_rules(hidden);
    pthread_mutex_init(&hidden->lock, NULL);
    return hidden;
}

static void seen_done(struct seen *seen)
{
    for (uint32_t i = 0; i < seen->count; i++) {
        free(seen->columns[i]);
    }
    for (uint32_t i = 0; i < seen->number_count; i++) {
        free(seen->numbers[i].name);
    }
    free(seen->numbers);
    free(seen->columns);
    free(seen->hides);
    free(seen->name);
    free(seen->topic);
    free(seen->rules);
    *seen = (struct seen){0};
}

static void forget_all(struct mr_hidden *hidden)
{
    for (uint32_t i = 0; i < hidden->count; i++) {
        seen_done(&hidden->seen[i]);
    }
    hidden->count = 0;
    hidden->is_formatted = false;
}

void mr_hidden_free(struct mr_hidden *hidden)
{
    if (hidden != NULL) {
        forget_all(hidden);
        free(hidden->seen);
        free(hidden->stored);
        pthread_mutex_destroy(&hidden->lock);
        free(hidden);
    }
}

static bool is_shown_in(const struct seen *seen, const char *column)
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
static const char *lost_of(const struct seen *seen, const struct mr_relation *now,
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
static bool was_before(const struct seen *seen, uint32_t seen_end, const struct mr_relation *now,
                       uint32_t end)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < seen_end && at < end; i++) {
        at += strcmp(seen->columns[i], now->columns[at].name) == 0;
    }
    return at == end;
}

static bool seen_has(const struct seen *seen, uint32_t end, const char *column)
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
static bool may_be_after(const struct seen *seen, uint32_t i, const struct mr_relation *now,
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
static bool is_still_hidden(const struct seen *seen, uint32_t i, const struct mr_relation *now,
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
static const char *doubtful_of(const struct seen *seen, const struct mr_relation *now,
                               const bool *hides)
{
    bool shows = false;
    for (uint32_t i = 0; i < now->column_count; i++) {
        shows |= !hides[i];
    }
    for (uint32_t i = 0; shows && i < seen->count; i++) {
        if (seen->hides[i] && !is_still_hidden(seen, i, now, hides)) {
            return seen->columns[i];
        }
    }
    return NULL;
}

/* Which number a partition's column has that is that one of its table: 0: it has none; UINT32_MAX:
 * that is not known. */
static uint32_t number_in_part(const char *numbers, uint32_t number)
{
    if (numbers[0] == '\0') {
        return number;
    }
    uint32_t last = 0;
    for (const char *at = numbers; *at != '\0';) {
        char *end;
        last = (uint32_t)strtoul(at, &end, 10);
        uint32_t own = *end == ':' ? (uint32_t)strtoul(end + 1, &end, 10) : 0;
        if (last == number || end == at) {
            return end == at ? UINT32_MAX : own;
        }
        at = end + (*end == ',');
    }
    return number > last ? UINT32_MAX : 0; /* it came later */
}

/* Whether what was learned is under the names that the rules judge now (`judged`, of the table): no
 * row is behind it, and so no value that was hidden then; of a key's columns, say, the rules hide
 * what is sent nevertheless. */
static bool is_as_learned(const struct seen *seen, const char *judged, const char *column,
                          const char *now)
{
    return seen->is_learned && strcmp(seen->name, judged) == 0 && strcmp(column, now) == 0;
}

/* A column that was hidden, and may be one that is shown; NULL: none. `judged`: by whose name the
 * rules see the table; `numbers`: of a partition of what was seen, as those of mr_origin. */
static const char *shown_of(const struct seen *seen, const char *judged, const char *numbers,
                            const struct mr_places *places, const bool *hides)
{
    const struct mr_relation *now = places->now;
    for (uint32_t i = 0; i < seen->number_count; i++) {
        const struct numbered *hidden = &seen->numbers[i];
        uint32_t number = number_in_part(numbers, hidden->number);
        for (uint32_t a = 0; a < now->attribute_count; a++) {
            bool is_it = now->attributes[a].number == number;
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
static const char *shown_by_name(const struct seen *seen, const char *judged,
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

static bool rule_names(const struct mr_column_rule *rule, const char *schema, const char *table)
{
    return strcmp(rule->table.schema.text, schema) == 0 &&
           strcmp(rule->table.table.text, table) == 0;
}

static bool rule_names_any(const struct mr_column_rule *rule, const struct mr_relation *now)
{
    bool names = rule_names(rule, now->schema, now->table);
    for (uint32_t i = 0; i < now->origin_count && !names; i++) {
        names = rule_names(rule, now->origins[i].schema, now->origins[i].table);
    }
    return names;
}

/* A rule that names this table, or what it is of, and one column, which the table does not have. */
static const char *missing_of(const struct mr_hidden *hidden, const struct mr_relation *now,
                              const char *topic)
{
    for (uint32_t i = 0; i < hidden->rule_count; i++) {
        const struct mr_column_rule *rule = &hidden->rules[i];
        bool is_about = rule->action != MR_COLUMN_INCLUDE && !rule->is_unsent &&
                        (rule->topic == NULL || strcmp(rule->topic, topic) == 0) &&
                        mr_pattern_is_name(&rule->table.schema) &&
                        mr_pattern_is_name(&rule->table.table) && mr_pattern_is_name(&rule->column);
        uint32_t column;
        if (is_about && rule_names_any(rule, now) &&
            !mr_relation_find_column(now, mr_slice_of(rule->column.text), &column)) {
            return rule->column.text;
        }
    }
    return NULL;
}

/* By its OID, or by its name (NULL: not) the one that was seen last. */
static struct seen *find_seen(const struct mr_hidden *hidden, uint32_t oid, const char *name,
                              const char *topic)
{
    for (uint32_t i = hidden->count; i-- > 0;) {
        struct seen *seen = &hidden->seen[i];
        bool is_it = name == NULL ? seen->oid == oid : strcmp(seen->name, name) == 0;
        if (is_it && strcmp(seen->topic, topic) == 0) {
            return seen;
        }
    }
    return NULL;
}

static bool hides_any(const bool *hides, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (hides[i]) {
            return true;
        }
    }
    return false;
}

static void hidden_drop_oldest(struct mr_hidden *hidden, const char *name, const char *topic)
{
    uint32_t same = 0, first = 0;
    for (uint32_t i = hidden->count; i-- > 0;) {
        const struct seen *seen = &hidden->seen[i];
        if (strcmp(seen->name, name) == 0 && strcmp(seen->topic, topic) == 0) {
            same++;
            first = i;
        }
    }
    if (same >= SAME_NAME_MAX) {
        seen_done(&hidden->seen[first]);
        hidden->count--;
        memmove(&hidden->seen[first], &hidden->seen[first + 1],
                (hidden->count - first) * sizeof(*hidden->seen));
    }
}

static void hidden_add_number(struct seen *seen, uint32_t number, const char *name)
{
    for (uint32_t i = 0; i < seen->number_count; i++) {
        if (seen->numbers[i].number == number) {
            return;
        }
    }
    MR_GROW(seen->numbers, seen->number_room, seen->number_count + 1);
    seen->numbers[seen->number_count++] =
        (struct numbered){.number = number, .name = MR_STRDUP(name)};
}

/* Once hidden, a column stays so whatever its name: that of before goes on. */
static void number_seen(struct seen *made, const struct seen *before,
                        const struct mr_places *places)
{
    for (uint32_t i = 0; i < before->number_count; i++) {
        hidden_add_number(made, before->numbers[i].number, before->numbers[i].name);
    }
    made->is_numbered = places != NULL;
    for (uint32_t c = 0; places != NULL && c < made->count; c++) {
        uint32_t number = made->hides[c] ? mr_places_number(places, c) : 0;
        if (number != 0) {
            hidden_add_number(made, number, made->columns[c]);
        }
        made->is_numbered &= !made->hides[c] || number != 0;
    }
}

/* Of whichever stream. */
static const struct seen *seen_learned(const struct mr_hidden *hidden, uint32_t oid)
{
    const struct seen *learned = find_seen(hidden, oid, NULL, "");
    return learned != NULL && learned->is_learned ? learned : NULL;
}

static const struct seen *seen_origin(const struct mr_hidden *hidden,
                                      const struct mr_origin *origin, const char *topic)
{
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", origin->schema, origin->table);
    const struct seen *seen = find_seen(hidden, origin->oid, NULL, topic);
    seen = seen != NULL ? seen : find_seen(hidden, 0, name.data, topic);
    return seen != NULL ? seen : seen_learned(hidden, origin->oid);
}

/* Whether numbers tell which of its columns are those that were hidden of that. */
static bool numbers_tell(const struct seen *seen, const struct mr_origin *origin)
{
    bool tell = seen->is_numbered && seen->oid == origin->oid && origin->numbers != NULL;
    for (uint32_t i = 0; tell && i < seen->number_count; i++) {
        tell = number_in_part(origin->numbers, seen->numbers[i].number) != UINT32_MAX;
    }
    return tell;
}

static void number_origins(const struct mr_hidden *hidden, struct seen *made,
                           const struct mr_relation *now)
{
    for (uint32_t i = 0; i < now->origin_count; i++) {
        const struct mr_origin *origin = &now->origins[i];
        const struct seen *seen = seen_origin(hidden, origin, made->topic);
        bool tell = seen != NULL && numbers_tell(seen, origin);
        for (uint32_t k = 0; tell && k < seen->number_count; k++) {
            uint32_t number = number_in_part(origin->numbers, seen->numbers[k].number);
            if (number != 0) {
                hidden_add_number(made, number, seen->numbers[k].name);
            }
        }
    }
}

static void keep_seen(struct mr_hidden *hidden, const struct mr_relation *now,
                      const struct mr_places *places, const char *name, const char *topic,
                      const bool *hides)
{
    struct seen *seen = find_seen(hidden, now->oid, NULL, topic);
    bool matters = hides_any(hides, now->column_count) || find_seen(hidden, 0, name, topic) != NULL;
    if (seen == NULL && !matters) {
        return;
    }
    hidden->is_formatted = false;
    struct seen made = {.oid = now->oid,
                        .name = MR_STRDUP(name),
                        .topic = MR_STRDUP(topic),
                        .columns = MR_NEW_ARRAY(char *, now->column_count),
                        .hides = MR_NEW_ARRAY(bool, now->column_count),
                        .count = now->column_count};
    for (uint32_t i = 0; i < now->column_count; i++) {
        made.columns[i] = MR_STRDUP(now->columns[i].name);
        made.hides[i] = hides[i];
    }
    made.rules = rule_marks(hidden, now);
    number_seen(&made, seen == NULL ? &(struct seen){0} : seen, places);
    number_origins(hidden, &made, now);
    if (seen == NULL) {
        hidden_drop_oldest(hidden, name, topic);
        MR_GROW(hidden->seen, hidden->room, hidden->count + 1);
        hidden->seen[hidden->count++] = made;
        return;
    }
    seen_done(seen);
    *seen = made;
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
                   "rows of both), or take the rule out if the column is gone; columns.unmatched = "
                   "\"warn\" would send such values as they are",
                   now->schema, now->table, column, before == NULL ? "" : " of ",
                   before == NULL ? "" : before, now->schema, now->table, column);
}

/* A column that was hidden of what the table is of, and may be shown; NULL: none. Names decide
 * where numbers can't, if `by_names`: what is known of the table itself counts for more. */
static const char *lost_of_origin(const struct mr_hidden *hidden, const struct mr_relation *now,
                                  const struct mr_origin *origin, const struct mr_places *places,
                                  const char *topic, const bool *hides, bool by_names)
{
    const struct seen *seen = seen_origin(hidden, origin, topic);
    if (seen == NULL) {
        return NULL;
    }
    if (places != NULL && numbers_tell(seen, origin)) {
        MR_TEXT(judged);
        mr_text_format(&judged, "%s.%s", origin->schema, origin->table);
        return shown_of(seen, judged.data, origin->numbers, places, hides);
    }
    return by_names && !seen->is_learned ? doubtful_of(seen, now, hides) : NULL;
}

/* `places`: NULL where the catalog does not know the table. Numbers are certain where both versions
 * have them; else names decide. */
static mr_status judge_hidden(struct mr_hidden *hidden, const struct mr_relation *now,
                              const struct mr_places *places, const char *name, const char *topic,
                              const bool *hides, struct mr_error *ret_error)
{
    const struct seen *by_oid = find_seen(hidden, now->oid, NULL, topic);
    const struct seen *by_name = find_seen(hidden, 0, name, topic);
    const char *column = NULL;
    const char *before = NULL;
    if ((by_oid == NULL || by_oid->is_learned) && (by_name == NULL || by_name->is_learned)) {
        column = missing_of(hidden, now, topic);
    }
    by_oid = by_oid != NULL ? by_oid : seen_learned(hidden, now->oid);
    for (uint32_t i = 0; i < now->origin_count && column == NULL; i++) {
        column =
            lost_of_origin(hidden, now, &now->origins[i], places, topic, hides, by_oid == NULL);
    }
    if (by_oid != NULL && column == NULL) {
        column = places == NULL ? NULL : shown_of(by_oid, name, "", places, hides);
        if (column == NULL && (places == NULL || !by_oid->is_numbered)) {
            column = shown_by_name(by_oid, name, now, hides);
        }
        before = column == NULL || strcmp(by_oid->name, name) == 0 ? NULL : by_oid->name;
    }
    if (column == NULL && by_name != NULL && by_name != by_oid && !by_name->is_learned) {
        column = lost_of(by_name, now, hides);
    }
    return column == NULL ? MR_OK : unmatched(hidden, now, before, column, ret_error);
}

/* Whether all rules are about this table by its own name, or one names it and no other: somebody
 * has decided. */
static bool all_name(const struct mr_hidden *hidden, const struct mr_relation *now)
{
    for (uint32_t i = 0; i < hidden->rule_count; i++) {
        const struct mr_table_pattern *table = &hidden->rules[i].table;
        if (mr_pattern_is_name(&table->schema) && mr_pattern_is_name(&table->table) &&
            rule_names(&hidden->rules[i], now->schema, now->table)) {
            return true;
        }
    }
    for (uint32_t i = 0; i < hidden->rule_count; i++) {
        if (!mr_table_pattern_matches(&hidden->rules[i].table, mr_slice_of(now->schema),
                                      mr_slice_of(now->table))) {
            return false;
        }
    }
    return true;
}

/* Which rules are about its table nobody knows. */
static mr_status rootless(const struct mr_hidden *hidden, const struct mr_relation *now,
                          struct mr_error *ret_error)
{
    if (hidden->unmatched == MR_UNMATCHED_WARN) {
        mr_log(MR_LOG_WARN, "columns_unmatched",
               "a table was a partition, and it is not known of which table: the rules for columns "
               "of that do not hide its values",
               MR_LOG_STR("schema", now->schema), MR_LOG_STR("table", now->table));
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

static bool rule_is_for(const struct mr_column_rule *rule, const char *topic,
                        const struct mr_table_ref *table)
{
    return (rule->topic == NULL || strcmp(rule->topic, topic) == 0) &&
           mr_table_pattern_matches(&rule->table, mr_slice_of(table->schema),
                                    mr_slice_of(table->table));
}

/* Whether the rules hide it of a table of this name; of a key's columns those that leave out all
 * others do not. */
static bool rules_hide(const struct mr_hidden *hidden, const struct mr_table_ref *table,
                       const char *topic, const char *column, bool is_key)
{
    bool is_listed = false, is_included = is_key;
    for (uint32_t i = 0; i < hidden->rule_count; i++) {
        const struct mr_column_rule *rule = &hidden->rules[i];
        bool names = rule_is_for(rule, topic, table) &&
                     mr_pattern_matches(&rule->column, mr_slice_of(column));
        if (rule->action == MR_COLUMN_INCLUDE) {
            is_listed |= rule_is_for(rule, topic, table);
            is_included |= names;
        } else if (names) {
            return true;
        }
    }
    return is_listed && !is_included;
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
static const char *shown_of_part(const struct mr_hidden *hidden, const struct mr_relation *now,
                                 const struct mr_table_ref *part, const char *topic,
                                 const bool *hides)
{
    for (uint32_t c = 0; c < now->column_count; c++) {
        const char *column = now->columns[c].name;
        if (!hides[c] && rules_hide(hidden, part, topic, column, is_of_key(now, c))) {
            return column;
        }
    }
    return NULL;
}

/* What the rules hide of a partition while it is one by itself, and not of the table that its rows
 * come as: it was attached since, say. */
static mr_status judge_parts(const struct mr_hidden *hidden, const struct mr_relation *now,
                             const char *topic, const bool *hides, struct mr_error *ret_error)
{
    const struct mr_table_ref *part = now->parts;
    const char *column = NULL;
    for (uint32_t i = 0; i < now->part_count && column == NULL; i++) {
        part = &now->parts[i];
        column = shown_of_part(hidden, now, part, topic, hides);
    }
    if (column == NULL) {
        return MR_OK;
    }
    if (hidden->unmatched == MR_UNMATCHED_WARN) {
        mr_log(MR_LOG_WARN, "columns_unmatched",
               "a rule for columns hides a column of a partition, whose rows come as its table's, "
               "and of that no rule hides it: its values go out as they are",
               MR_LOG_STR("schema", now->schema), MR_LOG_STR("table", now->table),
               MR_LOG_STR("partition", part->table), MR_LOG_STR("column", column));
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_POISON,
                   "table %s.%s: the rules for columns (columns.*) hide column \"%s\" of its "
                   "partition %s.%s, whose rows come as the table's, and of the table they do not, "
                   "so nothing of it goes out; name the table in the rule, too (\"%s.%s:%s\"), or "
                   "take the partition out of it; columns.unmatched = \"warn\" would send such "
                   "values as they are",
                   now->schema, now->table, column, part->schema, part->table, now->schema,
                   now->table, column);
}

mr_status mr_hidden_look(struct mr_hidden *hidden, const struct mr_relation *relation,
                         const char *topic, const bool *hides, struct mr_error *ret_error)
{
    if (relation->is_part && relation->origin_count == 0 && !all_name(hidden, relation)) {
        MR_TRY(rootless(hidden, relation, ret_error));
    }
    topic = topic == NULL ? "" : topic;
    MR_TRY(judge_parts(hidden, relation, topic, hides, ret_error));
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", relation->schema, relation->table);
    struct mr_places all;
    const struct mr_places *places = mr_places_init(&all, relation) ? &all : NULL;
    MR_HOLD(&hidden->lock);
    mr_status status = judge_hidden(hidden, relation, places, name.data, topic, hides, ret_error);
    if (status == MR_OK) {
        keep_seen(hidden, relation, places, name.data, topic, hides);
    }
    mr_places_done(&all);
    return status;
}

static bool rules_hide_at_start(const struct mr_hidden *hidden, const struct mr_relation *relation,
                                const char *column)
{
    const struct mr_table_ref own = {relation->schema, relation->table};
    bool hides = rules_hide(hidden, &own, "", column, false);
    for (uint32_t k = 0; k < relation->origin_count && !hides; k++) {
        const struct mr_table_ref of = {relation->origins[k].schema, relation->origins[k].table};
        hides = rules_hide(hidden, &of, "", column, false);
    }
    return hides;
}

void mr_hidden_learn(struct mr_hidden *hidden, const struct mr_relation *relation)
{
    MR_HOLD(&hidden->lock);
    if (hidden->count >= LEARNED_MAX || find_seen(hidden, relation->oid, NULL, "") != NULL) {
        return;
    }
    bool *hides = MR_NEW_ARRAY(bool, relation->column_count);
    for (uint32_t i = 0; i < relation->column_count; i++) {
        hides[i] = rules_hide_at_start(hidden, relation, relation->columns[i].name);
    }
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", relation->schema, relation->table);
    struct mr_places places;
    if (mr_places_init(&places, relation) && hides_any(hides, relation->column_count)) {
        keep_seen(hidden, relation, &places, name.data, "", hides);
        hidden->seen[hidden->count - 1].is_learned = true;
    }
    mr_places_done(&places);
    free(hides);
}

/* Each column's name has a sign before it: - for one that is hidden. */
static void add_seen(cJSON *tables, const struct seen *seen)
{
    cJSON *table = cJSON_CreateArray();
    cJSON_AddItemToArray(tables, table);
    cJSON_AddItemToArray(table, cJSON_CreateNumber(seen->oid));
    cJSON_AddItemToArray(table, cJSON_CreateString(seen->name));
    cJSON_AddItemToArray(table, cJSON_CreateString(seen->topic));
    for (uint32_t i = 0; i < seen->count; i++) {
        MR_TEXT(column);
        mr_text_format(&column, "%c%s", seen->hides[i] ? '-' : '+', seen->columns[i]);
        cJSON_AddItemToArray(table, cJSON_CreateString(column.data));
    }
}

/* Apart from the tables, so that an older millrace reads those: whether all are there, then numbers
 * and names. */
static void add_numbers(cJSON *all, const struct seen *seen)
{
    cJSON *numbers = cJSON_CreateArray();
    cJSON_AddItemToArray(all, numbers);
    cJSON_AddItemToArray(numbers, cJSON_CreateBool(seen->is_numbered));
    for (uint32_t i = 0; i < seen->number_count; i++) {
        cJSON_AddItemToArray(numbers, cJSON_CreateNumber(seen->numbers[i].number));
        cJSON_AddItemToArray(numbers, cJSON_CreateString(seen->numbers[i].name));
    }
}

/* The marks of its rules, after a sign for one that was learned. */
static void add_table_rules(cJSON *all, const struct seen *seen)
{
    MR_TEXT(text);
    mr_text_format(&text, "%c%s", seen->is_learned ? '~' : '=', seen->rules);
    cJSON_AddItemToArray(all, cJSON_CreateString(text.data));
}

static char *format_seen(const struct mr_hidden *hidden, bool with_learned)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "rules", hidden->mark);
    cJSON *tables = cJSON_AddArrayToObject(json, "tables");
    cJSON *numbers = cJSON_AddArrayToObject(json, "numbers");
    cJSON *rules = cJSON_AddArrayToObject(json, "table_rules");
    for (uint32_t i = 0; i < hidden->count; i++) {
        const struct seen *seen = &hidden->seen[i];
        if (with_learned || !seen->is_learned) {
            add_seen(tables, seen);
            add_numbers(numbers, seen);
            add_table_rules(rules, seen);
        }
    }
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

/* NULL: too much. What the next process can learn itself gives way. */
static char *format_bounded(struct mr_hidden *hidden)
{
    for (int with_learned = 1; with_learned >= 0; with_learned--) {
        char *text = format_seen(hidden, with_learned);
        if (strlen(text) <= STORED_BYTES_MAX) {
            return text;
        }
        free(text);
    }
    if (!hidden->was_too_much) {
        hidden->was_too_much = true;
        mr_log(MR_LOG_WARN, "columns_not_stored",
               "rules for columns hide columns of so many tables that the stored position does not "
               "name them: a column that is renamed while millrace is down is not noticed, unless "
               "a rule names table and column",
               MR_LOG_INT("tables", hidden->count));
    }
    return NULL;
}

char *mr_hidden_format(struct mr_hidden *hidden)
{
    MR_HOLD(&hidden->lock);
    if (hidden->count == 0) {
        return NULL;
    }
    if (!hidden->is_formatted) {
        free(hidden->stored);
        hidden->stored = format_bounded(hidden);
        hidden->is_formatted = true;
    }
    return hidden->stored == NULL ? NULL : MR_STRDUP(hidden->stored);
}

static void take_numbers(struct seen *seen, const cJSON *numbers)
{
    const cJSON *number = cJSON_GetArrayItem(numbers, 0);
    seen->is_numbered = cJSON_IsTrue(number);
    number = number == NULL ? NULL : number->next;
    for (; number != NULL && number->next != NULL; number = number->next->next) {
        if (cJSON_IsNumber(number) && cJSON_IsString(number->next)) {
            hidden_add_number(seen, (uint32_t)number->valuedouble, number->next->valuestring);
        }
    }
}

static void take_seen(struct mr_hidden *hidden, const cJSON *table, const cJSON *numbers,
                      const cJSON *rules)
{
    const int size = cJSON_GetArraySize(table);
    const cJSON *oid = cJSON_GetArrayItem(table, 0);
    const char *marks = cJSON_IsString(rules) ? rules->valuestring : NULL;
    if (size < 3 || !cJSON_IsNumber(oid) || (marks != NULL && marks[0] == '\0')) {
        return;
    }
    for (int i = 1; i < size; i++) {
        const cJSON *text = cJSON_GetArrayItem(table, i);
        if (!cJSON_IsString(text) || (i >= 3 && text->valuestring[0] == '\0')) {
            return;
        }
    }
    struct seen seen = {.oid = (uint32_t)oid->valuedouble,
                        .name = MR_STRDUP(cJSON_GetArrayItem(table, 1)->valuestring),
                        .topic = MR_STRDUP(cJSON_GetArrayItem(table, 2)->valuestring),
                        .columns = MR_NEW_ARRAY(char *, (size_t)size),
                        .hides = MR_NEW_ARRAY(bool, (size_t)size),
                        .is_learned = marks != NULL && marks[0] == '~',
                        .rules = MR_STRDUP(marks == NULL ? "" : marks + 1)};
    const cJSON *column = cJSON_GetArrayItem(table, 3);
    for (; column != NULL; column = column->next) {
        seen.columns[seen.count] = MR_STRDUP(column->valuestring + 1);
        seen.hides[seen.count++] = column->valuestring[0] == '-';
    }
    take_numbers(&seen, numbers);
    MR_GROW(hidden->seen, hidden->room, hidden->count + 1);
    hidden->seen[hidden->count++] = seen;
}

static const cJSON *stored_list(const cJSON *object, const char *name)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, name);
    return list == NULL ? NULL : list->child; /* an older millrace has none */
}

/* An older millrace has stored no rules of each table: there all must be as they were. */
void mr_hidden_take(struct mr_hidden *hidden, const char *json)
{
    cJSON *object = cJSON_Parse(json);
    const cJSON *mark = cJSON_GetObjectItemCaseSensitive(object, "rules");
    const cJSON *numbers = stored_list(object, "numbers");
    const cJSON *rules = stored_list(object, "table_rules");
    const cJSON *table;
    MR_HOLD(&hidden->lock);
    bool is_same = cJSON_IsString(mark) && strcmp(mark->valuestring, hidden->mark) == 0;
    if (is_same || rules != NULL) {
        forget_all(hidden);
        cJSON_ArrayForEach(table, cJSON_GetObjectItemCaseSensitive(object, "tables"))
        {
            if (is_same || (cJSON_IsString(rules) && rules->valuestring[0] != '\0' &&
                            has_rules(hidden, rules->valuestring + 1))) {
                take_seen(hidden, table, numbers, rules);
            }
            numbers = numbers == NULL ? NULL : numbers->next;
            rules = rules == NULL ? NULL : rules->next;
        }
    }
    cJSON_Delete(object);
}
