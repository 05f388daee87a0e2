#include "base/object.h"

#include <math.h>

const cJSON *mr_object_at(const cJSON *object, const char *path)
{
    char name[64];
    while (*path != '\0') {
        size_t len = strcspn(path, ".");
        snprintf(name, sizeof(name), "%.*s", (int)len, path);
        object = cJSON_GetObjectItemCaseSensitive(object, name);
        path += len + (path[len] == '.');
    }
    return object;
}

double mr_object_number(const cJSON *object, const char *path)
{
    const cJSON *item = mr_object_at(object, path);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

const char *mr_object_string(const cJSON *object, const char *path)
{
    return cJSON_GetStringValue(mr_object_at(object, path));
}

char *mr_object_copy(const cJSON *object, const char *path)
{
    const char *text = mr_object_string(object, path);
    return text == NULL ? NULL : MR_STRDUP(text);
}

bool mr_object_whole(const cJSON *object, const char *path, uint64_t most, uint64_t *ret)
{
    double number = mr_object_number(object, path);
    bool good = number >= 0 && number <= (double)most;
    *ret = good ? (uint64_t)number : 0;
    return good;
}
