/* Which columns of the catalog those of a relation's version may be, both in the order of the
 * numbers (struct mr_attribute): one whose name is certain has a column of that name, or none where
 * the publication leaves it out; any other may be any column, or none. Any thread. */
#pragma once

#include "event/event.h"

struct mr_places {
    const struct mr_relation *now;
    bool *is_sure;      /* of each attribute: it has the column of its name */
    bool is_open;       /* no name is certain */
    uint32_t named_end; /* the last one that has a name */
    struct mr_place_fit {
        bool *before, *after; /* [attribute][column]: those before, or from there on, fit */
    } any, all;
};

/* False: the catalog does not know the table any more. Where what should be certain does not fit
 * (an ALTER TABLE of an older transaction came after this place of the stream), nothing is. */
bool mr_places_init(struct mr_places *places, const struct mr_relation *now);
void mr_places_done(struct mr_places *places);

/* Whether the attribute, by its place among them, may be that column. */
bool mr_places_may_be(const struct mr_places *places, uint32_t attribute, uint32_t column);

/* The same if all columns were sent that the table had: those that it has still, or that were
 * dropped later, it had since there was one of a higher number. A publication's list of columns,
 * and generated ones, are not so. */
bool mr_places_may_be_of_all(const struct mr_places *places, uint32_t attribute, uint32_t column);

/* The column's number; 0: it may be one of several, or is none. */
uint32_t mr_places_number(const struct mr_places *places, uint32_t column);
