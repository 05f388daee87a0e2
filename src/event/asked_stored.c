#include "event/asked_stored.h"

#include <stdlib.h>

void mr_asked_place_done(struct mr_asked_place *place)
{
    for (uint32_t i = 0; i < place->after_count; i++) {
        free(place->after[i]);
    }
    free(place->after);
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

void mr_asked_stored_free(struct mr_asked_stored *state)
{
    if (state == NULL) {
        return;
    }
    for (uint32_t i = 0; i < state->count; i++) {
        struct mr_asked_table *one = &state->tables[i];
        free(one->schema);
        free(one->table);
        free(one->where);
        free(one->key);
        mr_asked_place_done(&one->place);
    }
    free(state->tables);
    free(state->known);
    free(state);
}
