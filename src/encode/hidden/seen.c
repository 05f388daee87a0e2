#include "encode/hidden/seen.h"

#include <inttypes.h>

#include "base/hash.h"
#include "base/object.h"
#include "event/relation.h"

/* The stored record must fit; a table takes some hundred bytes. Of tables that are made again and
 * again under one name some are kept: one that was swapped for another may still be written to. */
enum { STORED_BYTES_MAX = 64 * 1024, SAME_NAME_MAX = 4 };

static uint64_t add_rule_text(uint64_t hash, const char *text)
{
    return mr_hash_add(hash, text == NULL ? "*" : text, text == NULL ? 2 : strlen(text) + 1);
}

static uint64_t hash_rule(uint64_t hash, const struct mr_column_rule *rule)
{
    hash = mr_hash_add(hash, &rule->action, sizeof(rule->action));
    hash = add_rule_text(hash, rule->table.schema.text);
    hash = add_rule_text(hash, rule->table.table.text);
    hash = add_rule_text(hash, rule->column.text);
    return add_rule_text(hash, rule->topic);
}

void mr_seen_init(struct mr_seen_tables *tables, const struct mr_column_rules *rules,
                  struct mr_kin *kin)
{
    uint64_t hash = MR_HASH_BEGIN;
    *tables = (struct mr_seen_tables){.rules = *rules, .kin = kin};
    for (uint32_t i = 0; i < tables->rules.count; i++) {
        hash = hash_rule(hash, &tables->rules.items[i]);
    }
    snprintf(tables->mark, sizeof(tables->mark), "%" PRIx64, hash);
}

static void seen_free(struct mr_seen *seen)
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
    *seen = (struct mr_seen){0};
}

static void forget_all(struct mr_seen_tables *tables)
{
    for (uint32_t i = 0; i < tables->count; i++) {
        seen_free(&tables->items[i]);
    }
    tables->count = 0;
    tables->is_formatted = false;
}

void mr_seen_done(struct mr_seen_tables *tables)
{
    forget_all(tables);
    free(tables->items);
    free(tables->stored);
    *tables = (struct mr_seen_tables){0};
}

struct mr_seen *mr_seen_find(const struct mr_seen_tables *tables, uint32_t oid, const char *name,
                             const char *topic)
{
    for (uint32_t i = tables->count; i-- > 0;) {
        struct mr_seen *seen = &tables->items[i];
        bool is_it = name == NULL ? seen->oid == oid : strcmp(seen->name, name) == 0;
        if (is_it && strcmp(seen->topic, topic) == 0) {
            return seen;
        }
    }
    return NULL;
}

const struct mr_seen *mr_seen_learned(const struct mr_seen_tables *tables, uint32_t oid)
{
    const struct mr_seen *learned = mr_seen_find(tables, oid, NULL, "");
    return learned != NULL && learned->is_learned ? learned : NULL;
}

const struct mr_seen *mr_seen_origin(const struct mr_seen_tables *tables,
                                     const struct mr_origin *origin, const char *topic)
{
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", origin->schema, origin->table);
    const struct mr_seen *seen = mr_seen_find(tables, origin->oid, NULL, topic);
    seen = seen != NULL ? seen : mr_seen_find(tables, 0, name.data, topic);
    return seen != NULL ? seen : mr_seen_learned(tables, origin->oid);
}

uint32_t mr_seen_number_in_part(const char *numbers, uint32_t number)
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

bool mr_seen_numbers_tell(const struct mr_seen *seen, const struct mr_origin *origin)
{
    bool tell = seen->is_numbered && seen->oid == origin->oid && origin->numbers != NULL;
    for (uint32_t i = 0; tell && i < seen->number_count; i++) {
        tell = mr_seen_number_in_part(origin->numbers, seen->numbers[i].number) != UINT32_MAX;
    }
    return tell;
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

static void drop_oldest_seen(struct mr_seen_tables *tables, const char *name, const char *topic)
{
    uint32_t same = 0, first = 0;
    for (uint32_t i = tables->count; i-- > 0;) {
        const struct mr_seen *seen = &tables->items[i];
        if (strcmp(seen->name, name) == 0 && strcmp(seen->topic, topic) == 0) {
            same++;
            first = i;
        }
    }
    if (same >= SAME_NAME_MAX) {
        seen_free(&tables->items[first]);
        tables->count--;
        memmove(&tables->items[first], &tables->items[first + 1],
                (tables->count - first) * sizeof(*tables->items));
    }
}

/* Under the name that it was hidden under last. */
static void add_seen_number(struct mr_seen *seen, uint32_t number, const char *name)
{
    for (uint32_t i = 0; i < seen->number_count; i++) {
        if (seen->numbers[i].number == number) {
            free(seen->numbers[i].name);
            seen->numbers[i].name = MR_STRDUP(name);
            return;
        }
    }
    MR_GROW(seen->numbers, seen->number_room, seen->number_count + 1);
    seen->numbers[seen->number_count++] =
        (struct mr_seen_number){.number = number, .name = MR_STRDUP(name)};
}

/* Once hidden, a column stays so whatever its name. */
static void number_seen(struct mr_seen *made, const struct mr_seen *before,
                        const struct mr_places *places)
{
    for (uint32_t i = 0; i < before->number_count; i++) {
        add_seen_number(made, before->numbers[i].number, before->numbers[i].name);
    }
    made->is_numbered = places != NULL;
    for (uint32_t c = 0; places != NULL && c < made->count; c++) {
        uint32_t number = made->hides[c] ? mr_places_number(places, c) : 0;
        if (number != 0) {
            add_seen_number(made, number, made->columns[c]);
        }
        made->is_numbered &= !made->hides[c] || number != 0;
    }
}

static void number_origins(const struct mr_seen_tables *tables, struct mr_seen *made,
                           const struct mr_relation *now)
{
    for (uint32_t i = 0; i < now->origin_count; i++) {
        const struct mr_origin *origin = &now->origins[i];
        const struct mr_seen *seen = mr_seen_origin(tables, origin, made->topic);
        bool tell = seen != NULL && mr_seen_numbers_tell(seen, origin);
        for (uint32_t k = 0; tell && k < seen->number_count; k++) {
            uint32_t number = mr_seen_number_in_part(origin->numbers, seen->numbers[k].number);
            if (number != 0) {
                add_seen_number(made, number, seen->numbers[k].name);
            }
        }
    }
}

struct mr_seen *mr_seen_keep(struct mr_seen_tables *tables, const struct mr_relation *now,
                             const struct mr_places *places, const char *name, const char *topic,
                             const bool *hides)
{
    struct mr_seen *seen = mr_seen_find(tables, now->oid, NULL, topic);
    bool matters =
        hides_any(hides, now->column_count) || mr_seen_find(tables, 0, name, topic) != NULL;
    if (seen == NULL && !matters) {
        return NULL;
    }
    tables->is_formatted = false;
    struct mr_seen made = {.oid = now->oid,
                           .name = MR_STRDUP(name),
                           .topic = MR_STRDUP(topic),
                           .columns = MR_NEW_ARRAY(char *, now->column_count),
                           .hides = MR_NEW_ARRAY(bool, now->column_count),
                           .count = now->column_count};
    for (uint32_t i = 0; i < now->column_count; i++) {
        made.columns[i] = MR_STRDUP(now->columns[i].name);
        made.hides[i] = hides[i];
    }
    number_origins(tables, &made, now);
    number_seen(&made, seen == NULL ? &(struct mr_seen){0} : seen, places);
    if (seen == NULL) {
        drop_oldest_seen(tables, name, topic);
        MR_GROW(tables->items, tables->room, tables->count + 1);
        seen = &tables->items[tables->count++];
    } else {
        seen_free(seen);
    }
    *seen = made;
    return seen;
}

/* Each column's name has a sign before it: - for one that is hidden. */
static void add_seen(cJSON *tables, const struct mr_seen *seen)
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
static void add_numbers(cJSON *all, const struct mr_seen *seen)
{
    cJSON *numbers = cJSON_CreateArray();
    cJSON_AddItemToArray(all, numbers);
    cJSON_AddItemToArray(numbers, cJSON_CreateBool(seen->is_numbered));
    for (uint32_t i = 0; i < seen->number_count; i++) {
        cJSON_AddItemToArray(numbers, cJSON_CreateNumber(seen->numbers[i].number));
        cJSON_AddItemToArray(numbers, cJSON_CreateString(seen->numbers[i].name));
    }
}

static char *format_seen(const struct mr_seen_tables *tables, bool with_learned)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "rules", tables->mark);
    cJSON *items = cJSON_AddArrayToObject(json, "tables");
    cJSON *numbers = cJSON_AddArrayToObject(json, "numbers");
    cJSON *rules = cJSON_AddArrayToObject(json, "table_rules");
    for (uint32_t i = 0; i < tables->count; i++) {
        const struct mr_seen *seen = &tables->items[i];
        if (with_learned || !seen->is_learned) {
            add_seen(items, seen);
            add_numbers(numbers, seen);
            cJSON_AddItemToArray(rules, cJSON_CreateString(seen->is_learned ? "~" : "="));
        }
    }
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

/* NULL: too much. What the next process can learn itself gives way. */
static char *format_bounded(struct mr_seen_tables *tables)
{
    for (int with_learned = 1; with_learned >= 0; with_learned--) {
        char *text = format_seen(tables, with_learned);
        if (strlen(text) <= STORED_BYTES_MAX) {
            return text;
        }
        free(text);
    }
    if (!tables->was_too_much) {
        tables->was_too_much = true;
        mr_log(MR_LOG_WARN, "columns_not_stored",
               "rules for columns hide columns of so many tables that the stored position does not "
               "name them: a column that is renamed while millrace is down is not noticed, unless "
               "a rule names table and column",
               MR_LOG_INT("tables", tables->count));
    }
    return NULL;
}

char *mr_seen_format(struct mr_seen_tables *tables)
{
    if (tables->count == 0) {
        return NULL;
    }
    if (!tables->is_formatted) {
        free(tables->stored);
        tables->stored = format_bounded(tables);
        tables->is_formatted = true;
    }
    return tables->stored == NULL ? NULL : MR_STRDUP(tables->stored);
}

static void take_numbers(struct mr_seen *seen, const cJSON *numbers)
{
    const cJSON *number = cJSON_GetArrayItem(numbers, 0);
    seen->is_numbered = cJSON_IsTrue(number);
    number = number == NULL ? NULL : number->next;
    for (; number != NULL && number->next != NULL; number = number->next->next) {
        if (cJSON_IsNumber(number) && cJSON_IsString(number->next)) {
            add_seen_number(seen, (uint32_t)number->valuedouble, number->next->valuestring);
        }
    }
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

static void take_seen(struct mr_seen_tables *tables, const cJSON *table, const cJSON *numbers,
                      const cJSON *rules)
{
    const int size = cJSON_GetArraySize(table);
    const cJSON *oid = cJSON_GetArrayItem(table, 0);
    const char *marks = cJSON_IsString(rules) ? rules->valuestring : "";
    if (size < 3 || !cJSON_IsNumber(oid)) {
        return;
    }
    for (int i = 1; i < size; i++) {
        const cJSON *text = cJSON_GetArrayItem(table, i);
        if (!cJSON_IsString(text) || (i >= 3 && text->valuestring[0] == '\0')) {
            return;
        }
    }
    struct mr_seen seen = {.oid = (uint32_t)oid->valuedouble,
                           .name = MR_STRDUP(cJSON_GetArrayItem(table, 1)->valuestring),
                           .topic = MR_STRDUP(cJSON_GetArrayItem(table, 2)->valuestring),
                           .columns = MR_NEW_ARRAY(char *, (size_t)size),
                           .hides = MR_NEW_ARRAY(bool, (size_t)size),
                           .is_learned = marks[0] == '~'};
    const cJSON *column = cJSON_GetArrayItem(table, 3);
    for (; column != NULL; column = column->next) {
        seen.columns[seen.count] = MR_STRDUP(column->valuestring + 1);
        seen.hides[seen.count++] = column->valuestring[0] == '-';
    }
    take_numbers(&seen, numbers);
    drop_decided(tables, &seen);
    if (seen.number_count == 0 && !hides_any(seen.hides, seen.count)) {
        seen_free(&seen);
        return;
    }
    MR_GROW(tables->items, tables->room, tables->count + 1);
    tables->items[tables->count++] = seen;
}

static const cJSON *stored_list(const cJSON *object, const char *name)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, name);
    return list == NULL ? NULL : list->child; /* an older millrace has none */
}

void mr_seen_take(struct mr_seen_tables *tables, const char *json)
{
    cJSON *object = cJSON_Parse(json);
    const cJSON *numbers = stored_list(object, "numbers");
    const cJSON *rules = stored_list(object, "table_rules");
    const cJSON *table;
    forget_all(tables);
    cJSON_ArrayForEach(table, cJSON_GetObjectItemCaseSensitive(object, "tables"))
    {
        take_seen(tables, table, numbers, rules);
        numbers = numbers == NULL ? NULL : numbers->next;
        rules = rules == NULL ? NULL : rules->next;
    }
    cJSON_Delete(object);
}
