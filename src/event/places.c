#include "event/places.h"

#include "event/relation.h"

static bool *place_at(bool *table, const struct mr_relation *now, uint32_t attribute,
                      uint32_t column)
{
    return &table[(size_t)attribute * (now->column_count + 1) + column];
}

static bool place_fits(const struct mr_places *places, uint32_t attribute, uint32_t column)
{
    const struct mr_relation *now = places->now;
    const char *name = now->attributes[attribute].name;
    return places->is_open || name == NULL || strcmp(name, now->columns[column].name) == 0;
}

static bool may_be(const struct mr_places *places, const struct mr_place_fit *fit,
                   uint32_t attribute, uint32_t column)
{
    return place_fits(places, attribute, column) &&
           *place_at(fit->before, places->now, attribute, column) &&
           *place_at(fit->after, places->now, attribute + 1, column + 1);
}

bool mr_places_may_be(const struct mr_places *places, uint32_t attribute, uint32_t column)
{
    return may_be(places, &places->any, attribute, column);
}

bool mr_places_may_be_of_all(const struct mr_places *places, uint32_t attribute, uint32_t column)
{
    return may_be(places, &places->all, attribute, column);
}

/* Whether the attribute may be no column, `columns` of which are before it. */
static bool may_be_none(const struct mr_places *places, const struct mr_place_fit *fit,
                        uint32_t attribute, uint32_t columns)
{
    const struct mr_relation *now = places->now;
    const struct mr_attribute *it = &now->attributes[attribute];
    bool has_later = columns < now->column_count || attribute < places->named_end;
    bool was_there = it->is_there && it->name == NULL && has_later;
    return !places->is_sure[attribute] && (fit == &places->any || !was_there);
}

static void fill_before(struct mr_places *places, struct mr_place_fit *fit)
{
    const struct mr_relation *now = places->now;
    for (uint32_t a = 0; a <= now->attribute_count; a++) {
        for (uint32_t c = 0; c <= now->column_count; c++) {
            *place_at(fit->before, now, a, c) =
                (a == 0 && c == 0) ||
                (a > 0 && *place_at(fit->before, now, a - 1, c) &&
                 may_be_none(places, fit, a - 1, c)) ||
                (a > 0 && c > 0 && *place_at(fit->before, now, a - 1, c - 1) &&
                 place_fits(places, a - 1, c - 1));
        }
    }
}

static void fill_after(struct mr_places *places, struct mr_place_fit *fit)
{
    const struct mr_relation *now = places->now;
    const uint32_t attributes = now->attribute_count, columns = now->column_count;
    for (uint32_t a = attributes + 1; a-- > 0;) {
        for (uint32_t c = columns + 1; c-- > 0;) {
            *place_at(fit->after, now, a, c) =
                (a == attributes && c == columns) ||
                (a < attributes && *place_at(fit->after, now, a + 1, c) &&
                 may_be_none(places, fit, a, c)) ||
                (a < attributes && c < columns && *place_at(fit->after, now, a + 1, c + 1) &&
                 place_fits(places, a, c));
        }
    }
}

static bool fill_places(struct mr_places *places, bool is_open)
{
    const struct mr_relation *now = places->now;
    places->is_open = is_open;
    for (uint32_t a = 0; a < now->attribute_count; a++) {
        const char *name = now->attributes[a].name;
        uint32_t column;
        places->is_sure[a] =
            !is_open && name != NULL && mr_relation_find_column(now, mr_slice_of(name), &column);
        places->named_end = name != NULL ? a : places->named_end;
    }
    fill_before(places, &places->any);
    fill_after(places, &places->any);
    fill_before(places, &places->all);
    fill_after(places, &places->all);
    return *place_at(places->any.after, now, 0, 0);
}

bool mr_places_init(struct mr_places *places, const struct mr_relation *now)
{
    size_t size = (size_t)(now->attribute_count + 1) * (now->column_count + 1);
    *places = (struct mr_places){.now = now,
                                 .is_sure = MR_NEW_ARRAY(bool, now->attribute_count + 1),
                                 .any = {MR_NEW_ARRAY(bool, size), MR_NEW_ARRAY(bool, size)},
                                 .all = {MR_NEW_ARRAY(bool, size), MR_NEW_ARRAY(bool, size)}};
    return fill_places(places, false) || fill_places(places, true);
}

void mr_places_done(struct mr_places *places)
{
    free(places->is_sure);
    free(places->any.before);
    free(places->any.after);
    free(places->all.before);
    free(places->all.after);
}

uint32_t mr_places_number(const struct mr_places *places, uint32_t column)
{
    uint32_t number = 0;
    for (uint32_t a = 0; a < places->now->attribute_count; a++) {
        if (mr_places_may_be(places, a, column)) {
            if (number != 0) {
                return 0;
            }
            number = places->now->attributes[a].number;
        }
    }
    return number;
}
