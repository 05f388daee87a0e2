/* Objects of cJSON that end with their block, or become a text. */
#pragma once

#include <cjson/cJSON.h>

#include "base/base.h"

/* MR_OBJECT cJSON *answer = cJSON_Parse(text); */
#define MR_OBJECT __attribute__((cleanup(mr_object_end)))
static inline void mr_object_end(cJSON **object)
{
    cJSON_Delete(*object);
}

/* Its text, the caller's. */
static inline char *mr_object_text(const cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);
    MR_ASSERT(text != NULL);
    return text;
}

/* What is at a path of names, "lag.bytes" ("": the object itself). */
const cJSON *mr_object_at(const cJSON *object, const char *path); /* NULL: nothing */
double mr_object_number(const cJSON *object, const char *path);   /* NaN: there is none */
