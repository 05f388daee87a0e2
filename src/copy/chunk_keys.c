#include "copy/chunk_keys.h"

#include "base/object.h"

enum { COLUMNS_MAX = 32 }; /* of an index (INDEX_MAX_KEYS) */

static const struct {
    const char *why;
    bool deletes;
} kinds[] = {{"missing", false}, {"stale", false}, {"altered", false},
             {"phantom", true},  {"torn", true},   {"unknown", false}};

/* Takes a list of so many texts. */
static bool take_texts(struct mr_chunk_keys *keys, const cJSON *list, char **to)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, list)
    {
        if (!cJSON_IsString(one)) {
            return false;
        }
        *to++ = MR_STRDUP(one->valuestring);
        keys->bytes += strlen(one->valuestring);
    }
    return true;
}

static bool take_keys(struct mr_chunk_keys *keys, const cJSON *columns, const cJSON *list)
{
    keys->texts = MR_NEW_ARRAY(char *, (size_t)(keys->count + 1) * keys->column_count);
    char **to = keys->texts;
    bool good = take_texts(keys, columns, to);
    const cJSON *one;
    cJSON_ArrayForEach(one, list)
    {
        to += keys->column_count;
        good = good && cJSON_IsArray(one) &&
               (uint32_t)cJSON_GetArraySize(one) == keys->column_count && take_texts(keys, one, to);
    }
    return good;
}

struct mr_chunk_keys *mr_chunk_keys_parse(const cJSON *object)
{
    const char *why = mr_object_string(object, "why");
    const cJSON *columns = cJSON_GetObjectItemCaseSensitive(object, "columns");
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, "keys");
    int column_count = cJSON_IsArray(columns) ? cJSON_GetArraySize(columns) : 0;
    int count = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    size_t kind = 0;
    while (kind < MR_ARRAY_LEN(kinds) && (why == NULL || strcmp(why, kinds[kind].why) != 0)) {
        kind++;
    }
    if (kind == MR_ARRAY_LEN(kinds) || column_count == 0 || column_count > COLUMNS_MAX ||
        count == 0 || count > MR_CHUNK_KEYS_MAX) {
        return NULL;
    }
    struct mr_chunk_keys *keys = MR_NEW(struct mr_chunk_keys);
    keys->why = kinds[kind].why;
    keys->deletes = kinds[kind].deletes;
    keys->column_count = (uint32_t)column_count;
    keys->count = (uint32_t)count;
    if (!take_keys(keys, columns, list)) {
        mr_chunk_keys_free(keys);
        return NULL;
    }
    return keys;
}

void mr_chunk_keys_free(struct mr_chunk_keys *keys)
{
    if (keys == NULL) {
        return;
    }
    mr_free_all(keys->texts, (size_t)(keys->count + 1) * keys->column_count);
    free(keys);
}
