/* Texts as numbers, shared by all profiles. */
#include <string.h>

#include "base/hash.h"
#include "base/index.h"
#include "profiler/symbols.h"

/* Text 0 is "", which is not in here. */
static struct {
    char **texts; /* texts[0] is text 1 */
    uint32_t room;
    struct mr_index index;
} interned;

uint32_t mr_symbols_intern(const char *text)
{
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, text, strlen(text));
    uint32_t at = 0;
    uint32_t number;
    do {
        number = mr_index_next(&interned.index, hash, &at);
    } while (number != MR_INDEX_NONE && strcmp(interned.texts[number], text) != 0);
    if (number == MR_INDEX_NONE) {
        number = mr_index_add(&interned.index, hash);
        MR_GROW(interned.texts, interned.room, interned.index.count);
        interned.texts[number] = MR_STRDUP(text);
    }
    return number + 1;
}

const char *mr_symbols_text(uint32_t id)
{
    return id == 0 ? "" : interned.texts[id - 1];
}
