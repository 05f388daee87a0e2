#include "base/hash.h"
#include "base/object.h"
#include "encode/hidden/seen.h"

/* The stored record must fit: some thousand tables of like columns. */
enum { STORED_BYTES_MAX = 64 * 1024 };

/* Of a line of the log. */
enum { SHOWN_BYTES_MAX = 1000 };

enum { IS_LEARNED = 1, IS_NUMBERED = 2, IS_PARTIAL = 4 };

/* Tables that differ in their names alone are stored together. */
struct seen_groups {
    struct mr_index by_key;
    char **keys;
    cJSON **tables;
    uint32_t keys_room, tables_room;
    cJSON *all;
};

/* What such tables have in common: schema, topic, what is known, the columns, each with a sign
 * before it, - for one that is hidden, and numbers with names, before the number of a doubtful one:
 * an older millrace leaves that out. */
static cJSON *group_head(const struct mr_seen *seen, bool is_partial)
{
    cJSON *head = cJSON_CreateArray();
    MR_TEXT(schema);
    mr_text_add(&schema, seen->name, strcspn(seen->name, "."));
    is_partial |= seen->is_partial;
    cJSON_AddItemToArray(head, cJSON_CreateString(schema.data));
    cJSON_AddItemToArray(head, cJSON_CreateString(seen->topic));
    cJSON_AddItemToArray(head, cJSON_CreateNumber((seen->is_learned ? IS_LEARNED : 0) |
                                                  (seen->is_numbered ? IS_NUMBERED : 0) |
                                                  (is_partial ? IS_PARTIAL : 0)));
    cJSON *columns = cJSON_CreateArray();
    cJSON_AddItemToArray(head, columns);
    for (uint32_t i = 0; i < seen->count; i++) {
        if (seen->hides[i] || !is_partial) {
            MR_TEXT(column);
            mr_text_format(&column, "%c%s", seen->hides[i] ? '-' : '+', seen->columns[i]);
            cJSON_AddItemToArray(columns, cJSON_CreateString(column.data));
        }
    }
    cJSON *numbers = cJSON_CreateArray();
    cJSON_AddItemToArray(head, numbers);
    for (uint32_t i = 0; i < seen->number_count; i++) {
        bool is_doubtful = seen->numbers[i].is_doubtful;
        cJSON *number = cJSON_CreateNumber(seen->numbers[i].number);
        cJSON *name = cJSON_CreateString(seen->numbers[i].name);
        cJSON_AddItemToArray(numbers, is_doubtful ? name : number);
        cJSON_AddItemToArray(numbers, is_doubtful ? number : name);
    }
    return head;
}

static void group_add(struct seen_groups *groups, const struct mr_seen *seen, bool is_partial)
{
    cJSON *head = group_head(seen, is_partial);
    char *key = mr_object_text(head);
    const uint64_t hash = mr_hash_add(MR_HASH_BEGIN, key, strlen(key));
    uint32_t i;
    MR_INDEX_FIND(i, &groups->by_key, hash, strcmp(groups->keys[i], key) == 0);
    if (i == MR_INDEX_NONE) {
        i = mr_index_add(&groups->by_key, hash);
        MR_GROW(groups->keys, groups->keys_room, i + 1);
        MR_GROW(groups->tables, groups->tables_room, i + 1);
        groups->keys[i] = key;
        groups->tables[i] = cJSON_CreateArray();
        cJSON_AddItemToArray(head, groups->tables[i]);
        cJSON_AddItemToArray(groups->all, head);
    } else {
        free(key);
        cJSON_Delete(head);
    }
    const char *table = seen->name + strcspn(seen->name, ".");
    cJSON_AddItemToArray(groups->tables[i], cJSON_CreateNumber(seen->oid));
    cJSON_AddItemToArray(groups->tables[i], cJSON_CreateString(table + (table[0] == '.')));
}

static char *format_first(const struct mr_seen_tables *tables, const struct mr_seen *const *order,
                          uint32_t end, bool is_partial)
{
    cJSON *json = cJSON_CreateObject();
    uint32_t cut = tables->cut;
    struct seen_groups groups = {.all = cJSON_AddArrayToObject(json, "seen")};
    for (uint32_t i = 0; i < end; i++) {
        group_add(&groups, order[i], is_partial);
    }
    for (uint32_t i = end; i < tables->count; i++) {
        cut = order[i]->oid > cut ? order[i]->oid : cut;
    }
    if (cut != 0) {
        cJSON_AddNumberToObject(json, "cut", cut);
    }
    for (uint32_t i = 0; i < groups.by_key.count; i++) {
        free(groups.keys[i]);
    }
    free(groups.keys);
    free(groups.tables);
    mr_index_done(&groups.by_key);
    char *text = mr_object_text(json);
    cJSON_Delete(json);
    return text;
}

static int compare_seen(const void *a, const void *b)
{
    const struct mr_seen *x = *(const struct mr_seen *const *)a;
    const struct mr_seen *y = *(const struct mr_seen *const *)b;
    return x->is_learned != y->is_learned ? x->is_learned - y->is_learned
                                          : (x->order > y->order) - (x->order < y->order);
}

/* The names of columns that are not hidden give way, and then tables: first those of which there
 * was no row. */
static char *format_bounded(struct mr_seen_tables *tables)
{
    const struct mr_seen **order = MR_NEW_ARRAY(const struct mr_seen *, tables->count);
    uint32_t end = 0;
    for (; end < tables->count; end++) {
        order[end] = &tables->items[end];
    }
    mr_sort(order, end, sizeof(*order), compare_seen);
    char *text = format_first(tables, order, end, false);
    bool is_partial = false;
    while (strlen(text) > STORED_BYTES_MAX) {
        size_t fits = (size_t)end * STORED_BYTES_MAX / strlen(text);
        end = is_partial ? (uint32_t)(fits - fits / 16) : end;
        is_partial = true;
        free(text);
        text = format_first(tables, order, end, true);
    }
    free(order);
    if (end < tables->count && !tables->was_too_much) {
        tables->was_too_much = true;
        mr_log(MR_LOG_WARN, "columns_not_stored",
               "rules for columns hide columns of more tables than the stored position can name: "
               "one of the others that is altered while millrace is down stops it at its first row",
               MR_LOG_INT("tables", tables->count), MR_LOG_INT("stored", end));
    }
    return text;
}

char *mr_seen_format(struct mr_seen_tables *tables)
{
    if (!tables->is_formatted) {
        bool has_any = tables->count > 0 || tables->cut != 0;
        free(tables->stored);
        tables->stored = has_any ? format_bounded(tables) : NULL;
        tables->is_formatted = true;
    }
    return tables->stored == NULL ? NULL : MR_STRDUP(tables->stored);
}

/* Whether a rule of now hides a column of that name there, or in what the table was a partition of.
 * A name may have dots. */
static bool is_hidden_now(const struct mr_seen_tables *tables, const struct mr_seen *seen,
                          const char *column)
{
    struct mr_origins origins = {0};
    bool is_hidden = false;
    (void)mr_kin_find(tables->kin, seen->oid, &origins);
    for (char *dot = strchr(seen->name, '.'); dot != NULL && !is_hidden;
         dot = strchr(dot + 1, '.')) {
        *dot = '\0';
        const struct mr_relation table = {.schema = seen->name,
                                          .table = dot + 1,
                                          .origins = origins.items,
                                          .origin_count = origins.count};
        is_hidden = mr_column_rules_hide(&tables->rules, seen->topic, &table, column, false);
        *dot = '.';
    }
    return is_hidden;
}

/* What no rule hides any more somebody has decided to show. */
static void drop_decided(const struct mr_seen_tables *tables, struct mr_seen *seen)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < seen->count; i++) {
        seen->hides[i] = seen->hides[i] && is_hidden_now(tables, seen, seen->columns[i]);
    }
    for (uint32_t i = 0; i < seen->number_count; i++) {
        if (is_hidden_now(tables, seen, seen->numbers[i].name)) {
            seen->numbers[kept++] = seen->numbers[i];
        } else {
            free(seen->numbers[i].name);
        }
    }
    seen->number_count = kept;
}

void mr_seen_put_undecided(struct mr_seen_tables *tables, struct mr_seen *seen)
{
    drop_decided(tables, seen);
    if (seen->number_count == 0 && !mr_seen_hides_any(seen->hides, seen->count)) {
        mr_seen_free(seen);
    } else {
        mr_seen_put(tables, seen);
    }
}

static void note_shown(struct mr_seen_tables *tables, const struct mr_seen *seen)
{
    for (uint32_t i = 0; i < seen->count; i++) {
        if (!seen->hides[i] || is_hidden_now(tables, seen, seen->columns[i])) {
            continue;
        }
        tables->shown_count++;
        if (tables->shown.len < SHOWN_BYTES_MAX) {
            mr_text_format(&tables->shown, "%s%s.%s", tables->shown.len == 0 ? "" : ", ",
                           seen->name, seen->columns[i]);
        }
    }
}

/* Takes over what it is made of. */
static void seen_take_made(struct mr_seen_tables *tables, struct mr_seen *seen)
{
    note_shown(tables, seen);
    mr_seen_put_undecided(tables, seen);
}

static bool is_filled(const cJSON *text)
{
    return cJSON_IsString(text) && text->valuestring[0] != '\0';
}

static void take_columns(struct mr_seen *seen, const cJSON *column, int count)
{
    seen->columns = MR_NEW_ARRAY(char *, (size_t)count);
    seen->hides = MR_NEW_ARRAY(bool, (size_t)count);
    for (; column != NULL; column = column->next) {
        if (is_filled(column)) {
            seen->columns[seen->count] = MR_STRDUP(column->valuestring + 1);
            seen->hides[seen->count++] = column->valuestring[0] == '-';
        }
    }
}

static void take_numbers(struct mr_seen *seen, const cJSON *at)
{
    for (; at != NULL && at->next != NULL; at = at->next->next) {
        bool is_doubtful = cJSON_IsString(at);
        const cJSON *number = is_doubtful ? at->next : at, *name = is_doubtful ? at : at->next;
        if (cJSON_IsNumber(number) && cJSON_IsString(name)) {
            mr_seen_add_number(seen, (uint32_t)number->valuedouble, name->valuestring, is_doubtful);
        }
    }
}

static void seen_take_group(struct mr_seen_tables *tables, const cJSON *group)
{
    const cJSON *schema = cJSON_GetArrayItem(group, 0);
    const cJSON *topic = cJSON_GetArrayItem(group, 1);
    const cJSON *flags = cJSON_GetArrayItem(group, 2);
    const cJSON *columns = cJSON_GetArrayItem(group, 3);
    const cJSON *numbers = cJSON_GetArrayItem(group, 4);
    const cJSON *all = cJSON_GetArrayItem(group, 5);
    if (!cJSON_IsString(schema) || !cJSON_IsString(topic) || !cJSON_IsNumber(flags) ||
        !cJSON_IsArray(columns) || !cJSON_IsArray(numbers) || !cJSON_IsArray(all)) {
        return;
    }
    const uint32_t known = (uint32_t)flags->valuedouble;
    for (const cJSON *oid = all->child; oid != NULL && oid->next != NULL; oid = oid->next->next) {
        if (cJSON_IsNumber(oid) && cJSON_IsString(oid->next)) {
            struct mr_seen seen = {
                .oid = (uint32_t)oid->valuedouble,
                .name = mr_formatted("%s.%s", schema->valuestring, oid->next->valuestring),
                .topic = MR_STRDUP(topic->valuestring),
                .is_learned = (known & IS_LEARNED) != 0,
                .is_numbered = (known & IS_NUMBERED) != 0,
                .is_partial = (known & IS_PARTIAL) != 0};
            take_columns(&seen, columns->child, cJSON_GetArraySize(columns));
            take_numbers(&seen, numbers->child);
            seen_take_made(tables, &seen);
        }
    }
}

/* As an older millrace has stored it: OID, name, topic and columns; whether all are numbered, then
 * numbers and names; a sign for one that was learned. */
static void take_older(struct mr_seen_tables *tables, const cJSON *table, const cJSON *numbers,
                       const cJSON *rules)
{
    const cJSON *oid = cJSON_GetArrayItem(table, 0);
    const cJSON *name = cJSON_GetArrayItem(table, 1);
    const cJSON *topic = cJSON_GetArrayItem(table, 2);
    if (!cJSON_IsNumber(oid) || !is_filled(name) || !cJSON_IsString(topic)) {
        return;
    }
    const cJSON *is_numbered = cJSON_GetArrayItem(numbers, 0);
    struct mr_seen seen = {.oid = (uint32_t)oid->valuedouble,
                           .name = MR_STRDUP(name->valuestring),
                           .topic = MR_STRDUP(topic->valuestring),
                           .is_numbered = cJSON_IsTrue(is_numbered),
                           .is_learned = is_filled(rules) && rules->valuestring[0] == '~'};
    take_columns(&seen, topic->next, cJSON_GetArraySize(table));
    take_numbers(&seen, is_numbered == NULL ? NULL : is_numbered->next);
    seen_take_made(tables, &seen);
}

static const cJSON *stored_list(const cJSON *object, const char *name)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsArray(list) ? list->child : NULL;
}

/* Once a process. Else a rule that does not have a table's new name would show its values in
 * silence. */
static void tell_shown(struct mr_seen_tables *tables)
{
    if (tables->shown_count > 0 && !tables->has_told_shown) {
        tables->has_told_shown = true;
        mr_log(MR_LOG_WARN, "columns_shown",
               "no rule for columns hides any more what one hid: it goes out as it is",
               MR_LOG_STR("columns", tables->shown.data), MR_LOG_INT("count", tables->shown_count));
    }
    mr_text_done(&tables->shown);
    tables->shown_count = 0;
}

void mr_seen_take(struct mr_seen_tables *tables, const char *json)
{
    MR_OBJECT cJSON *object = cJSON_Parse(json);
    const cJSON *cut = cJSON_GetObjectItemCaseSensitive(object, "cut");
    const cJSON *numbers = stored_list(object, "numbers");
    const cJSON *rules = stored_list(object, "table_rules");
    mr_seen_forget(tables);
    /* This process' own says nothing new. */
    if (cJSON_IsNumber(cut) && !tables->was_too_much) {
        tables->cut = (uint32_t)cut->valuedouble;
    }
    for (const cJSON *group = stored_list(object, "seen"); group != NULL; group = group->next) {
        seen_take_group(tables, group);
    }
    for (const cJSON *table = stored_list(object, "tables"); table != NULL; table = table->next) {
        take_older(tables, table, numbers, rules);
        numbers = numbers == NULL ? NULL : numbers->next;
        rules = rules == NULL ? NULL : rules->next;
    }
    tell_shown(tables);
}
