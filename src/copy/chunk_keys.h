/* Keys of rows that a topic has wrong, and that are to be repaired: what is there of them is copied
 * once more, or what is not there is deleted. `millrace verify --repair` names them.
 *
 * Keys are values of rows. They are in memory alone until their request ends: in no stored record,
 * log line, metric or page. Their owner is the request (chunk_requests.h); the reader's thread
 * reads them meanwhile. Values only. */
#pragma once

#include "base/base.h"

struct cJSON;

struct mr_chunk_keys {
    const char
        *why; /* "missing", "stale", "altered", "phantom", "torn", "unknown"; outlives the keys */
    bool deletes; /* those that are not there; else those that are there are copied */
    uint32_t column_count;
    uint32_t count;
    size_t bytes; /* of all texts */
    char **texts; /* the columns' names, then key by key their values */
};

enum { MR_CHUNK_KEYS_MAX = 1000 };

/* Of {"why": …, "columns": [name, …], "keys": [[text, …], …]}; the caller's. NULL: it has another
 * form. */
struct mr_chunk_keys *mr_chunk_keys_parse(const struct cJSON *object);
void mr_chunk_keys_free(struct mr_chunk_keys *keys); /* NULL is fine */

static inline const char *const *mr_chunk_key(const struct mr_chunk_keys *keys, uint32_t number)
{
    MR_ASSERT(number < keys->count);
    return (const char *const *)keys->texts + (size_t)(number + 1) * keys->column_count;
}
