#include "encode/hidden.h"

#include <inttypes.h>

#include "base/hash.h"
#include "base/object.h"
#include "base/pattern.h"
#include "base/text.h"
#include "base/thread.h"
#include "event/relation.h"

/* The stored record must fit; a table takes some hundred bytes. Of tables that are made again and again under one name some are kept: one
 * that was swapped for another may still be written to. */
enum { STORED_BYTES_MAX = 64 * 1024, SAME_NAME_MAX = 4 };

struct seen {
    uint32_t oid;
    char *name, *topic; /* "schema.table"; "": all its streams */
    char **columns;     /* all of them, */
    bool *hides;        /* and whether that one is hidden */
    uint32_t count;
};

struct mr_hidden {
    enum mr_unmatched unmatched;
    const struct mr_column_rule *rules;
    uint32_t rule_count;
    char mark[24]; /* of the rules */
    pthread_mutex_t lock;
    struct seen *seen;
    uint32_t count, room;
    bool was_too_much;
};

static uint64_t add_hidden_text(uint64_t hash, const char *text)
{
    return mr_hash_add(hash, text == NULL ? "*" : text, text == NULL ? 2 : strlen(text) + 1);
}

static void mark_rules(struct mr_hidden *hidden)
{
    uint64_t hash = MR_HASH_BEGIN;
    for (uint32_t i = 0; i < hidden->rule_count; i++) {
        const struct mr_column_rule *rule = &hidden->rules[i];
        hash = mr_hash_add(hash, &rule->action, sizeof(rule->action));
        hash = add_hidden_text(hash, rule->table.schema.text);
        hash = add_hidden_text(hash, rule->table.table.text);
        hash = add_hidden_text(hash, rule->column.text);
        hash = add_hidden_text(hash, rule->topic);
    }
    snprintf(hidden->mark, sizeof(hidden->mark), "%" PRIx64, hash);
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
    free(seen->columns);
    free(seen->hides);
    free(seen->name);
    free(seen->topic);
    *seen = (struct seen){0};
}

static void forget_all(struct mr_hidden *hidden)
{
    for (uint32_t i = 0; i < hidden->count; i++) {
        seen_done(&hidden->seen[i]);
    }
    hidden->count = 0;
}

void mr_hidden_free(struct mr_hidden *hidden)
{
    if (hidden != NULL) {
        forget_all(hidden);
        free(hidden->seen);
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

/* The first hidden column that is not hidden any more, though some other column is shown that was not; NULL: there is none. */
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

/* A rule that names this table and one column, which the table does not have. */
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
        if (is_about && strcmp(rule->table.schema.text, now->schema) == 0 &&
            strcmp(rule->table.table.text, now->table) == 0 &&
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

static void drop_oldest(struct mr_hidden *hidden, const char *name, const char *topic)
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

static void keep_seen(struct mr_hidden *hidden, const struct mr_relation *now, const char *name,
                      const char *topic, const bool *hides)
{
    struct seen *seen = find_seen(hidden, now->oid, NULL, topic);
    bool matters = hides_any(hides, now->column_count) || find_seen(hidden, 0, name, topic) != NULL;
    if (seen == NULL && !matters) {
        return;
    }
    if (seen == NULL) {
        drop_oldest(hidden, name, topic);
        MR_GROW(hidden->seen, hidden->room, hidden->count + 1);
        seen = &hidden->seen[hidden->count++];
        *seen = (struct seen){0};
    }
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
    seen_done(seen);
    *seen = made;
}

static mr_status unmatched(const struct mr_hidden *hidden, const struct mr_relation *now,
                           const char *before, const char *column, struct mr_error *ret_error)
{
    if (hidden->unmatched == MR_UNMATCHED_WARN) {
        mr_log(MR_LOG_WARN, "columns_unmatched",
               "a rule for columns hid a column that the table does not have (any more); if it was "
               "renamed, its values go out as they are",
               MR_LOG_STR("schema", now->schema), MR_LOG_STR("table", now->table),
               MR_LOG_STR("column", column));
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_POISON,
                   "table %s.%s: the rules for columns (columns.*) hid column \"%s\"%s%s, and no "
                   "column of that name is hidden at this place of the stream: if it was renamed, "
                   "its values would go out as they are, so nothing of the table does; name the "
                   "column and the table as they are now (\"%s.%s:(%s|new_name)\" fits rows of "
                   "both), take the rule out if the column is gone, or set columns.unmatched = "
                   "\"warn\"",
                   now->schema, now->table, column, before == NULL ? "" : " of ",
                   before == NULL ? "" : before, now->schema, now->table, column);
}

static mr_status judge_hidden(struct mr_hidden *hidden, const struct mr_relation *now,
                              const char *name, const char *topic, const bool *hides,
                              struct mr_error *ret_error)
{
    const struct seen *by_oid = find_seen(hidden, now->oid, NULL, topic);
    const struct seen *by_name = find_seen(hidden, 0, name, topic);
    const char *column = NULL;
    const char *before = NULL;
    if (by_oid == NULL && by_name == NULL) {
        column = missing_of(hidden, now, topic);
    }
    if (column == NULL && by_oid != NULL && (column = lost_of(by_oid, now, hides)) != NULL) {
        before = strcmp(by_oid->name, name) == 0 ? NULL : by_oid->name;
    }
    if (column == NULL && by_name != NULL) {
        column = lost_of(by_name, now, hides);
    }
    return column == NULL ? MR_OK : unmatched(hidden, now, before, column, ret_error);
}

mr_status mr_hidden_look(struct mr_hidden *hidden, const struct mr_relation *relation,
                         const char *topic, const bool *hides, struct mr_error *ret_error)
{
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", relation->schema, relation->table);
    topic = topic == NULL ? "" : topic;
    MR_HOLD(&hidden->lock);
    MR_TRY(judge_hidden(hidden, relation, name.data, topic, hides, ret_error));
    keep_seen(hidden, relation, name.data, topic, hides);
    return MR_OK;
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

char *mr_hidden_format(struct mr_hidden *hidden)
{
    MR_HOLD(&hidden->lock);
    if (hidden->count == 0) {
        return NULL;
    }
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "rules", hidden->mark);
    cJSON *tables = cJSON_AddArrayToObject(json, "tables");
    for (uint32_t i = 0; i < hidden->count; i++) {
        add_seen(tables, &hidden->seen[i]);
    }
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    if (strlen(text) > STORED_BYTES_MAX) {
        free(text);
        text = NULL;
        if (!hidden->was_too_much) {
            hidden->was_too_much = true;
            mr_log(MR_LOG_WARN, "columns_not_stored",
                   "rules for columns hide columns of so many tables that the stored position does "
                   "not name them: a column that is renamed while millrace is down is not noticed, "
                   "unless a rule names table and column",
                   MR_LOG_INT("tables", hidden->count));
        }
    }
    return text;
}

static void take_seen(struct mr_hidden *hidden, const cJSON *table)
{
    const int size = cJSON_GetArraySize(table);
    const cJSON *oid = cJSON_GetArrayItem(table, 0);
    if (size < 3 || !cJSON_IsNumber(oid)) {
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
                        .hides = MR_NEW_ARRAY(bool, (size_t)size)};
    const cJSON *column = cJSON_GetArrayItem(table, 3);
    for (; column != NULL; column = column->next) {
        seen.columns[seen.count] = MR_STRDUP(column->valuestring + 1);
        seen.hides[seen.count++] = column->valuestring[0] == '-';
    }
    MR_GROW(hidden->seen, hidden->room, hidden->count + 1);
    hidden->seen[hidden->count++] = seen;
}

void mr_hidden_take(struct mr_hidden *hidden, const char *json)
{
    cJSON *object = cJSON_Parse(json);
    const cJSON *mark = cJSON_GetObjectItemCaseSensitive(object, "rules");
    MR_HOLD(&hidden->lock);
    if (cJSON_IsString(mark) && strcmp(mark->valuestring, hidden->mark) == 0) {
        forget_all(hidden);
        const cJSON *table;
        cJSON_ArrayForEach(table, cJSON_GetObjectItemCaseSensitive(object, "tables"))
        {
            take_seen(hidden, table);
        }
    }
    cJSON_Delete(object);
}
