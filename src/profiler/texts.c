/* Texts as numbers, shared by all profiles. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "profiler/symbols.h"

static struct {
    char **texts;
    uint32_t count, room;
    uint32_t *table; /* text number; 0: free, for "" is never looked for */
    uint32_t mask;
} interned;

static uint64_t hash_bytes(const void *data, size_t len)
{
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, data, len);
    return hash ^ hash >> 29;
}

static void interned_grow(void)
{
    uint32_t size = interned.table == NULL ? 1024 : (interned.mask + 1) * 2;
    free(interned.table);
    interned.table = MR_NEW_ARRAY(uint32_t, size);
    interned.mask = size - 1;
    for (uint32_t id = 1; id < interned.count; id++) {
        uint64_t at = hash_bytes(interned.texts[id], strlen(interned.texts[id]));
        while (interned.table[at & interned.mask] != 0) {
            at++;
        }
        interned.table[at & interned.mask] = id;
    }
}

static uint32_t interned_append(const char *text)
{
    if (interned.count == interned.room) {
        interned.room = interned.room == 0 ? 512 : interned.room * 2;
        interned.texts = MR_REALLOC(interned.texts, sizeof(char *) * interned.room);
    }
    interned.texts[interned.count] = MR_STRDUP(text);
    return interned.count++;
}

uint32_t mr_symbols_intern(const char *text)
{
    if (interned.count == 0) {
        interned_append("");
    }
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    if (interned.table == NULL || interned.count * 2 > interned.mask) {
        interned_grow();
    }
    uint64_t at = hash_bytes(text, strlen(text));
    uint32_t id;
    while ((id = interned.table[at & interned.mask]) != 0) {
        if (strcmp(interned.texts[id], text) == 0) {
            return id;
        }
        at++;
    }
    id = interned_append(text);
    interned.table[at & interned.mask] = id;
    return id;
}

const char *mr_symbols_text(uint32_t id)
{
    return id == 0 ? "" : interned.texts[id];
}
