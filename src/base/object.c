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
