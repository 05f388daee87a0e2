#include "copy/asked_stored.h"

#include <inttypes.h>

#include "base/object.h"

static const char *const known_names[] = {
    [MR_KNOWN_TABLES] = "known", [MR_KNOWN_LEAVES] = "known_partitions"};

void mr_asked_place_done(struct mr_asked_place *place)
{
    mr_free_all(place->after, place->after_count);
    *place = (struct mr_asked_place){0};
}

struct mr_asked_place mr_asked_place_copy(const struct mr_asked_place *place)
{
    struct mr_asked_place copy = *place;
    if (place->after != NULL) {
        copy.after = MR_NEW_ARRAY(char *, place->after_count);
        for (uint32_t i = 0; i < place->after_count; i++) {
            copy.after[i] = MR_STRDUP(place->after[i]);
        }
    }
    return copy;
}

void mr_asked_table_done(struct mr_asked_table *table)
{
    free(table->schema);
    free(table->table);
    free(table->where);
    free(table->key);
    mr_asked_place_done(&table->place);
}

struct mr_asked_table mr_asked_table_copy(const struct mr_asked_table *table,
                                          const struct mr_asked_place *place)
{
    return (struct mr_asked_table){
        .id = table->id,
        .schema = MR_STRDUP(table->schema),
        .table = MR_STRDUP(table->table),
        .where = table->where == NULL ? NULL : MR_STRDUP(table->where),
        .key = table->key == NULL ? NULL : MR_STRDUP(table->key),
        .is_signal = table->is_signal,
        .place = mr_asked_place_copy(place),
    };
}

void mr_asked_stored_forget_known(struct mr_asked_stored *state)
{
    for (uint32_t i = 0; i < MR_KNOWN_KINDS; i++) {
        free(state->known[i]);
        state->known[i] = NULL;
    }
}

void mr_asked_stored_free(struct mr_asked_stored *state)
{
    if (state == NULL) {
        return;
    }
    for (uint32_t i = 0; i < state->count; i++) {
        mr_asked_table_done(&state->tables[i]);
    }
    mr_asked_stored_forget_known(state);
    free(state->tables);
    free(state);
}

static void asked_stored_add_table(cJSON *json, const struct mr_asked_table *table)
{
    const struct mr_asked_place *place = &table->place;
    cJSON_AddNumberToObject(json, "id", (double)table->id);
    cJSON_AddStringToObject(json, "schema", table->schema);
    cJSON_AddStringToObject(json, "table", table->table);
    mr_object_add(json, "where", table->where);
    mr_object_add(json, "key", table->key);
    if (table->is_signal) {
        cJSON_AddTrueToObject(json, "signal");
    }
    if (place->oid == 0) {
        return;
    }
    cJSON_AddNumberToObject(json, "oid", (double)place->oid);
    cJSON_AddNumberToObject(json, "rows", (double)place->rows);
    cJSON_AddNumberToObject(json, "passed_over", (double)place->passed_over);
    if (place->after != NULL) {
        char form[24];
        snprintf(form, sizeof(form), "%" PRIx64, place->form);
        cJSON_AddStringToObject(json, "form", form);
        cJSON *after = cJSON_AddArrayToObject(json, "after");
        for (uint32_t i = 0; i < place->after_count; i++) {
            cJSON_AddItemToArray(after, cJSON_CreateString(place->after[i]));
        }
    }
}

size_t mr_asked_table_size(const struct mr_asked_table *table)
{
    MR_OBJECT cJSON *json = cJSON_CreateObject();
    asked_stored_add_table(json, table);
    MR_FREED char *text = mr_object_text(json);
    return strlen(text) + 1;
}

char *mr_asked_known_format(const uint64_t *ids, uint32_t count, enum mr_known_kind kind,
                            size_t bytes_max)
{
    struct mr_text text = {0};
    uint32_t before = 0, added = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t oid = (uint32_t)(ids[i] >> 32);
        uint32_t mark = (uint32_t)ids[i];
        if ((mark != 0) == (kind == MR_KNOWN_LEAVES)) {
            mr_text_format(&text, "%s%" PRIx32, added++ == 0 ? "" : ",", oid - before);
            if (mark != 0) {
                mr_text_format(&text, ".%" PRIx32, mark);
            }
            before = oid;
        }
    }
    if ((kind == MR_KNOWN_LEAVES && added > MR_KNOWN_LEAVES_MAX) || text.len > bytes_max) {
        mr_text_done(&text);
        return NULL;
    }
    return text.data == NULL ? MR_STRDUP("") : text.data;
}

static bool asked_stored_take_hex(const char **at, uint32_t *ret)
{
    size_t digits = strspn(*at, "0123456789abcdef");
    bool good = digits > 0 && digits <= 8;
    *ret = good ? (uint32_t)strtoul(*at, NULL, 16) : 0;
    *at += digits;
    return good;
}

bool mr_asked_known_parse(const char *text, enum mr_known_kind kind, uint64_t **ids,
                          uint32_t *count)
{
    *ids = MR_REALLOC(*ids, (*count + strlen(text) / 2 + 1) * sizeof(**ids));
    uint64_t oid = 0;
    uint64_t before = UINT32_MAX; /* no OID is 0 */
    for (const char *at = text; *at != '\0';) {
        uint32_t step, mark = 0;
        bool good = asked_stored_take_hex(&at, &step);
        if (good && kind == MR_KNOWN_LEAVES) {
            good = *at++ == '.' && asked_stored_take_hex(&at, &mark) && mark != 0;
        }
        oid += step;
        uint64_t id = oid << 32 | mark;
        if (!good || oid > UINT32_MAX || id <= before ||
            (*at != '\0' && (*at++ != ',' || *at == '\0'))) {
            return false;
        }
        (*ids)[(*count)++] = before = id;
    }
    return true;
}

char *mr_asked_stored_format(const struct mr_asked_stored *state)
{
    MR_OBJECT cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "step", (double)state->step);
    cJSON_AddNumberToObject(json, "last_id", (double)state->last_id);
    cJSON_AddBoolToObject(json, "paused", state->paused);
    cJSON *tables = cJSON_AddArrayToObject(json, "tables");
    for (uint32_t i = 0; i < state->count; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddItemToArray(tables, one);
        asked_stored_add_table(one, &state->tables[i]);
    }
    for (uint32_t i = 0; i < MR_KNOWN_KINDS; i++) {
        if (state->known[i] != NULL) {
            cJSON_AddItemToObject(json, known_names[i],
                                  cJSON_CreateStringReference(state->known[i]));
        }
    }
    return mr_object_text(json);
}

static bool take_after(const cJSON *json, struct mr_asked_place *place)
{
    const cJSON *after = cJSON_GetObjectItemCaseSensitive(json, "after");
    if (after == NULL) {
        return true;
    }
    const char *form = mr_object_string(json, "form");
    int used = 0;
    if (!cJSON_IsArray(after) || cJSON_GetArraySize(after) == 0 || form == NULL ||
        sscanf(form, "%16" SCNx64 "%n", &place->form, &used) != 1 || form[used] != '\0') {
        return false;
    }
    place->after = MR_NEW_ARRAY(char *, (uint32_t)cJSON_GetArraySize(after));
    const cJSON *value;
    cJSON_ArrayForEach(value, after)
    {
        if (!cJSON_IsString(value)) {
            return false;
        }
        place->after[place->after_count++] = MR_STRDUP(value->valuestring);
    }
    return true;
}

static bool asked_stored_take_table(const cJSON *json, struct mr_asked_table *table)
{
    uint64_t oid;
    table->schema = mr_object_copy(json, "schema");
    table->table = mr_object_copy(json, "table");
    table->where = mr_object_copy(json, "where");
    table->key = mr_object_copy(json, "key");
    table->is_signal = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "signal"));
    if (table->schema == NULL || table->table == NULL ||
        !mr_object_whole(json, "id", MR_OBJECT_WHOLE_MAX, &table->id)) {
        return false;
    }
    if (cJSON_GetObjectItemCaseSensitive(json, "oid") == NULL) {
        return true;
    }
    bool good =
        mr_object_whole(json, "oid", UINT32_MAX, &oid) &&
        mr_object_whole(json, "rows", MR_OBJECT_WHOLE_MAX, &table->place.rows) &&
        mr_object_whole(json, "passed_over", MR_OBJECT_WHOLE_MAX, &table->place.passed_over);
    table->place.oid = (uint32_t)oid;
    return good && take_after(json, &table->place);
}

static bool take_known(const cJSON *json, enum mr_known_kind kind, struct mr_asked_stored *state)
{
    MR_FREED uint64_t *ids = NULL;
    uint32_t count = 0;
    state->known[kind] = mr_object_copy(json, known_names[kind]);
    return state->known[kind] == NULL
               ? !cJSON_HasObjectItem(json, known_names[kind])
               : mr_asked_known_parse(state->known[kind], kind, &ids, &count);
}

static struct mr_asked_stored *asked_stored_take_state(const cJSON *json)
{
    struct mr_asked_stored *state = MR_NEW(struct mr_asked_stored);
    const cJSON *tables = cJSON_GetObjectItemCaseSensitive(json, "tables");
    const cJSON *paused = cJSON_GetObjectItemCaseSensitive(json, "paused");
    bool good = mr_object_whole(json, "step", MR_OBJECT_WHOLE_MAX, &state->step) &&
                mr_object_whole(json, "last_id", MR_OBJECT_WHOLE_MAX, &state->last_id) &&
                cJSON_IsBool(paused) && cJSON_IsArray(tables) &&
                take_known(json, MR_KNOWN_TABLES, state) &&
                take_known(json, MR_KNOWN_LEAVES, state);
    state->paused = cJSON_IsTrue(paused);
    if (good) {
        state->tables = MR_NEW_ARRAY(struct mr_asked_table, (uint32_t)cJSON_GetArraySize(tables));
        const cJSON *one;
        cJSON_ArrayForEach(one, tables)
        {
            good = good && asked_stored_take_table(one, &state->tables[state->count++]);
        }
    }
    if (!good) {
        mr_asked_stored_free(state);
        return NULL;
    }
    return state;
}

struct mr_asked_stored *mr_asked_stored_parse(const char *text)
{
    MR_OBJECT cJSON *json = cJSON_Parse(text);
    return asked_stored_take_state(json);
}

/* A build that knows nothing of requests may go on where none is open. */
static struct mr_section_rank asked_stored_rank_of(const struct mr_asked_stored *state)
{
    return (struct mr_section_rank){
        .minor = state->step,
        .version = state->count > 0 || state->paused ? MR_ASKED_STORED_VERSION : 0};
}

bool mr_asked_stored_rank(const char *json, struct mr_section_rank *ret_rank)
{
    struct mr_asked_stored *state = mr_asked_stored_parse(json);
    if (state == NULL) {
        return false;
    }
    *ret_rank = asked_stored_rank_of(state);
    mr_asked_stored_free(state);
    return true;
}

void mr_asked_stored_add(const struct mr_asked_stored *state, struct mr_checkpoint *checkpoint)
{
    struct mr_section_rank rank = asked_stored_rank_of(state);
    mr_checkpoint_add(checkpoint, MR_SECTION_ASKED, mr_asked_stored_format(state), &rank);
}

struct mr_asked_stored *mr_asked_stored_of(const struct mr_checkpoint *checkpoint)
{
    const struct mr_section *section = mr_checkpoint_section(checkpoint, MR_SECTION_ASKED);
    return section == NULL ? NULL : mr_asked_stored_parse(section->json);
}
