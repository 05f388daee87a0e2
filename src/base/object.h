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
const cJSON *mr_object_at(const cJSON *object, const char *path);    /* NULL: nothing */
double mr_object_number(const cJSON *object, const char *path);      /* NaN: there is none */
const char *mr_object_string(const cJSON *object, const char *path); /* NULL: there is none */
char *mr_object_copy(const cJSON *object, const char *path);         /* the same, the caller's */

/* Adds a text, unless it is NULL. */
static inline void mr_object_add(cJSON *object, const char *name, const char *text)
{
    if (text != NULL) {
        cJSON_AddStringToObject(object, name, text);
    }
}

/* A whole number up to `most`. False, and 0: there is none; one that does not fit must not be
 * converted, for C leaves open what comes of it. */
#define MR_OBJECT_WHOLE_MAX (UINT64_C(1) << 53) /* as many as a double counts one by one */
bool mr_object_whole(const cJSON *object, const char *path, uint64_t most, uint64_t *ret);
