#include "encode/hidden/seen.h"

#include "base/hash.h"
#include "event/relation.h"

/* Of tables that are made again and again under one name so many are kept: one that was swapped for
 * another may still be written to. */
enum { SAME_NAME_MAX = 64 };

void mr_seen_init(struct mr_seen_tables *tables, const struct mr_column_rules *rules,
                  struct mr_kin *kin)
{
    *tables = (struct mr_seen_tables){.rules = *rules, .kin = kin};
}

void mr_seen_free(struct mr_seen *seen)
{
    for (uint32_t i = 0; i < seen->count; i++) {
        free(seen->columns[i]);
    }
    for (uint32_t i = 0; i < seen->number_count; i++) {
        free(seen->numbers[i].name);
    }
    free(seen->numbers);
    free(seen->columns);
    free(seen->hides);
    free(seen->name);
    free(seen->topic);
    *seen = (struct mr_seen){0};
}

void mr_seen_forget(struct mr_seen_tables *tables)
{
    for (uint32_t i = 0; i < tables->count; i++) {
        mr_seen_free(&tables->items[i]);
    }
    tables->count = 0;
    mr_index_clear(&tables->by_oid);
    mr_index_clear(&tables->by_name);
    tables->is_formatted = false;
}

void mr_seen_done(struct mr_seen_tables *tables)
{
    mr_seen_forget(tables);
    mr_index_done(&tables->by_oid);
    mr_index_done(&tables->by_name);
    free(tables->items);
    free(tables->stored);
    *tables = (struct mr_seen_tables){0};
}

static uint64_t hash_name(const char *name)
{
    return mr_hash_add(MR_HASH_BEGIN, name, strlen(name));
}

struct mr_seen *mr_seen_find(const struct mr_seen_tables *tables, uint32_t oid, const char *name,
                             const char *topic)
{
    const struct mr_index *index = name == NULL ? &tables->by_oid : &tables->by_name;
    const uint64_t hash = name == NULL ? oid : hash_name(name);
    struct mr_seen *found = NULL;
    uint32_t at = 0;
    for (uint32_t i; (i = mr_index_next(index, hash, &at)) != MR_INDEX_NONE;) {
        struct mr_seen *seen = &tables->items[i];
        bool is_it = name == NULL ? seen->oid == oid : strcmp(seen->name, name) == 0;
        if (is_it && strcmp(seen->topic, topic) == 0 &&
            (found == NULL || found->order < seen->order)) {
            found = seen;
        }
    }
    return found;
}

struct mr_seen *mr_seen_put(struct mr_seen_tables *tables, const struct mr_seen *seen)
{
    MR_GROW(tables->items, tables->room, tables->count + 1);
    mr_index_add(&tables->by_oid, seen->oid);
    mr_index_add(&tables->by_name, hash_name(seen->name));
    struct mr_seen *item = &tables->items[tables->count++];
    *item = *seen;
    item->order = ++tables->last_order;
    tables->is_formatted = false;
    return item;
}

static void seen_remove(struct mr_seen_tables *tables, struct mr_seen *seen)
{
    uint32_t number = (uint32_t)(seen - tables->items);
    const struct mr_seen *last = &tables->items[tables->count - 1];
    mr_index_remove(&tables->by_oid, number, seen->oid, last->oid);
    mr_index_remove(&tables->by_name, number, hash_name(seen->name), hash_name(last->name));
    mr_seen_free(seen);
    *seen = *last;
    tables->count--;
}

const struct mr_seen *mr_seen_learned(const struct mr_seen_tables *tables, uint32_t oid,
                                      const char *topic)
{
    const struct mr_seen *learned = mr_seen_find(tables, oid, NULL, topic);
    learned = learned != NULL ? learned : mr_seen_find(tables, oid, NULL, "");
    return learned != NULL && learned->is_learned ? learned : NULL;
}

const struct mr_seen *mr_seen_origin(const struct mr_seen_tables *tables,
                                     const struct mr_origin *origin, const char *topic)
{
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", origin->schema, origin->table);
    const struct mr_seen *seen = mr_seen_find(tables, origin->oid, NULL, topic);
    seen = seen != NULL ? seen : mr_seen_find(tables, 0, name.data, topic);
    return seen != NULL ? seen : mr_seen_learned(tables, origin->oid, topic);
}

uint32_t mr_seen_number_in_part(const char *numbers, uint32_t number)
{
    if (numbers[0] == '\0') {
        return number;
    }
    uint32_t last = 0;
    for (const char *at = numbers; *at != '\0';) {
        char *end;
        last = (uint32_t)strtoul(at, &end, 10);
        uint32_t own = *end == ':' ? (uint32_t)strtoul(end + 1, &end, 10) : 0;
        if (last == number || end == at) {
            return end == at ? UINT32_MAX : own;
        }
        at = end + (*end == ',');
    }
    return number > last ? UINT32_MAX : 0; /* it came later */
}

bool mr_seen_numbers_tell(const struct mr_seen *seen, const struct mr_origin *origin)
{
    bool tell = seen->is_numbered && seen->oid == origin->oid && origin->numbers != NULL;
    for (uint32_t i = 0; tell && i < seen->number_count; i++) {
        tell = mr_seen_number_in_part(origin->numbers, seen->numbers[i].number) != UINT32_MAX;
    }
    return tell;
}

bool mr_seen_hides_any(const bool *hides, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (hides[i]) {
            return true;
        }
    }
    return false;
}

static void drop_oldest_seen(struct mr_seen_tables *tables, const char *name, const char *topic)
{
    uint32_t same = 0, at = 0;
    struct mr_seen *first = NULL;
    for (uint32_t i;
         (i = mr_index_next(&tables->by_name, hash_name(name), &at)) != MR_INDEX_NONE;) {
        struct mr_seen *seen = &tables->items[i];
        if (strcmp(seen->name, name) == 0 && strcmp(seen->topic, topic) == 0) {
            same++;
            first = first == NULL || seen->order < first->order ? seen : first;
        }
    }
    if (same >= SAME_NAME_MAX) {
        seen_remove(tables, first);
    }
}

void mr_seen_add_number(struct mr_seen *seen, uint32_t number, const char *name, bool is_doubtful)
{
    if (MR_ANY(known, seen->numbers, seen->number_count,
               known->number == number && known->is_doubtful == is_doubtful &&
                   strcmp(known->name, name) == 0)) {
        return;
    }
    MR_GROW(seen->numbers, seen->number_room, seen->number_count + 1);
    seen->numbers[seen->number_count++] = (struct mr_seen_number){
        .number = number, .is_doubtful = is_doubtful, .name = MR_STRDUP(name)};
}

/* Under the name that it was hidden under last. */
static void number_surely(struct mr_seen *made, uint32_t number, const char *name)
{
    for (uint32_t i = 0; i < made->number_count; i++) {
        if (made->numbers[i].number == number) {
            free(made->numbers[i].name);
            made->numbers[i].name = MR_STRDUP(name);
        }
    }
    mr_seen_add_number(made, number, name, false);
}

/* Whether hidden columns without a certain number have few that they may have. */
static bool may_be_few(const struct mr_seen *made, const struct mr_places *places)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < made->count; c++) {
        bool is_open = made->hides[c] && mr_places_number(places, c) == 0;
        for (uint32_t a = 0; is_open && a < places->now->attribute_count; a++) {
            count += mr_places_may_be(places, a, c);
        }
    }
    return !places->is_open && count <= MR_COLUMNS_MAX;
}

/* It may come back under any name, so all numbers that it may have count as hidden; but those that
 * it may only have if a list of columns left out one before it are doubtful, and names decide
 * (false), as where there are none, because no name is certain or numbers are too many. */
static bool number_hidden(struct mr_seen *made, const struct mr_places *places, uint32_t column,
                          bool has_few)
{
    const struct mr_relation *now = places->now;
    const uint32_t number = mr_places_number(places, column);
    bool has_all = number != 0 || has_few;
    if (number != 0) {
        number_surely(made, number, made->columns[column]);
    }
    for (uint32_t a = 0; number == 0 && has_few && a < now->attribute_count; a++) {
        if (mr_places_may_be(places, a, column)) {
            bool is_doubtful = !mr_places_may_be_of_all(places, a, column);
            mr_seen_add_number(made, now->attributes[a].number, made->columns[column], is_doubtful);
            has_all &= !is_doubtful;
        }
    }
    return has_all;
}

/* Once hidden, a column stays so whatever its name. */
static void number_seen(struct mr_seen *made, const struct mr_seen *before,
                        const struct mr_places *places)
{
    for (uint32_t i = 0; i < before->number_count; i++) {
        const struct mr_seen_number *known = &before->numbers[i];
        if (!known->is_doubtful) {
            mr_seen_add_number(made, known->number, known->name, false);
        }
    }
    made->is_numbered = places != NULL;
    bool has_few = places != NULL && may_be_few(made, places);
    for (uint32_t c = 0; places != NULL && c < made->count; c++) {
        made->is_numbered &= !made->hides[c] || number_hidden(made, places, c, has_few);
    }
}

/* A column that the rules hide, and that is not sent at all: it is generated, or the publication
 * leaves it out. Both may change, and its name, too. */
static bool is_hidden_unsent(const struct mr_seen_tables *tables, const struct mr_places *places,
                             const char *topic, uint32_t attribute)
{
    const char *name = places->now->attributes[attribute].name;
    uint32_t at;
    return name != NULL && !places->is_open &&
           !mr_relation_find_column(places->now, mr_slice_of(name), &at) &&
           mr_column_rules_hide(&tables->rules, topic, places->now, name, false);
}

/* Whether there is any; each gets its number in `made`, which may be NULL. */
static bool number_unsent(const struct mr_seen_tables *tables, const struct mr_places *places,
                          const char *topic, struct mr_seen *made)
{
    bool any = false;
    for (uint32_t a = 0; places != NULL && a < places->now->attribute_count; a++) {
        if (is_hidden_unsent(tables, places, topic, a)) {
            const struct mr_attribute *attribute = &places->now->attributes[a];
            any = true;
            if (made != NULL) {
                number_surely(made, attribute->number, attribute->name);
            }
        }
    }
    return any;
}

static void number_origins(const struct mr_seen_tables *tables, struct mr_seen *made,
                           const struct mr_relation *now)
{
    for (uint32_t i = 0; i < now->origin_count; i++) {
        const struct mr_origin *origin = &now->origins[i];
        const struct mr_seen *seen = mr_seen_origin(tables, origin, made->topic);
        bool tell = seen != NULL && mr_seen_numbers_tell(seen, origin);
        for (uint32_t k = 0; tell && k < seen->number_count; k++) {
            uint32_t number = mr_seen_number_in_part(origin->numbers, seen->numbers[k].number);
            if (number != 0) {
                mr_seen_add_number(made, number, seen->numbers[k].name, false);
            }
        }
    }
}

struct mr_seen *mr_seen_keep(struct mr_seen_tables *tables, const struct mr_relation *now,
                             const struct mr_places *places, const char *name, const char *topic,
                             const bool *hides)
{
    struct mr_seen *seen = mr_seen_find(tables, now->oid, NULL, topic);
    bool matters = mr_seen_hides_any(hides, now->column_count) ||
                   number_unsent(tables, places, topic, NULL) ||
                   mr_seen_find(tables, 0, name, topic) != NULL;
    if (seen == NULL && !matters) {
        return NULL;
    }
    struct mr_seen made = {.oid = now->oid,
                           .name = MR_STRDUP(name),
                           .topic = MR_STRDUP(topic),
                           .columns = MR_NEW_ARRAY(char *, now->column_count),
                           .hides = MR_NEW_ARRAY(bool, now->column_count),
                           .count = now->column_count};
    for (uint32_t i = 0; i < now->column_count; i++) {
        made.columns[i] = MR_STRDUP(now->columns[i].name);
        made.hides[i] = hides[i];
    }
    number_origins(tables, &made, now);
    number_seen(&made, seen == NULL ? &(struct mr_seen){0} : seen, places);
    number_unsent(tables, places, topic, &made);
    if (seen != NULL) {
        seen_remove(tables, seen);
    }
    drop_oldest_seen(tables, name, topic);
    return mr_seen_put(tables, &made);
}

/* The last one that rows came of, of whichever stream. */
static const struct mr_seen *seen_elsewhere(const struct mr_seen_tables *tables, uint32_t oid,
                                            const char *name)
{
    const struct mr_index *index = name == NULL ? &tables->by_oid : &tables->by_name;
    const struct mr_seen *found = NULL;
    uint32_t at = 0;
    for (uint32_t i;
         (i = mr_index_next(index, name == NULL ? oid : hash_name(name), &at)) != MR_INDEX_NONE;) {
        const struct mr_seen *seen = &tables->items[i];
        bool is_it = name == NULL ? seen->oid == oid : strcmp(seen->name, name) == 0;
        if (is_it && !seen->is_learned && (found == NULL || found->order < seen->order)) {
            found = seen;
        }
    }
    return found;
}

static struct mr_seen seen_copy(const struct mr_seen *from, const char *topic)
{
    struct mr_seen made = {.oid = from->oid,
                           .name = MR_STRDUP(from->name),
                           .topic = MR_STRDUP(topic),
                           .columns = MR_NEW_ARRAY(char *, from->count),
                           .hides = MR_NEW_ARRAY(bool, from->count),
                           .count = from->count,
                           .is_numbered = from->is_numbered,
                           .is_partial = from->is_partial};
    for (uint32_t i = 0; i < from->count; i++) {
        made.columns[i] = MR_STRDUP(from->columns[i]);
        made.hides[i] = from->hides[i];
    }
    return made;
}

void mr_seen_adopt(struct mr_seen_tables *tables, uint32_t oid, const char *name, const char *topic)
{
    const struct mr_seen *from = seen_elsewhere(tables, oid, NULL);
    from = from != NULL ? from : seen_elsewhere(tables, 0, name);
    if (from == NULL || mr_seen_find(tables, oid, NULL, topic) != NULL ||
        mr_seen_find(tables, 0, name, topic) != NULL) {
        return;
    }
    struct mr_seen made = seen_copy(from, topic);
    for (uint32_t i = 0; i < from->number_count; i++) {
        const struct mr_seen_number *known = &from->numbers[i];
        mr_seen_add_number(&made, known->number, known->name, known->is_doubtful);
    }
    mr_seen_put_undecided(tables, &made);
}

static uint32_t number_of(const struct mr_relation *now, const char *column)
{
    for (uint32_t a = 0; a < now->attribute_count; a++) {
        if (strcmp(now->attributes[a].name, column) == 0) {
            return now->attributes[a].number;
        }
    }
    return 0;
}

/* A hidden column that has another name there has no number: then names decide. */
static void seen_move(struct mr_seen_tables *there, const struct mr_seen *from,
                      const struct mr_relation *now)
{
    struct mr_seen made = seen_copy(from, from->topic);
    made.oid = now->oid;
    made.is_learned = from->is_learned;
    made.is_numbered = true;
    for (uint32_t i = 0; i < made.count; i++) {
        uint32_t number = made.hides[i] ? number_of(now, made.columns[i]) : 0;
        if (number != 0) {
            mr_seen_add_number(&made, number, made.columns[i], false);
        }
        made.is_numbered &= !made.hides[i] || number != 0;
    }
    mr_seen_put(there, &made);
}

void mr_seen_moved(struct mr_seen_tables *there, const struct mr_seen_tables *here,
                   const struct mr_relation *now)
{
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", now->schema, now->table);
    uint32_t at = 0;
    for (uint32_t i;
         (i = mr_index_next(&here->by_name, hash_name(name.data), &at)) != MR_INDEX_NONE;) {
        const struct mr_seen *seen = &here->items[i];
        if (strcmp(seen->name, name.data) != 0) {
            continue;
        }
        mr_kin_moved(there->kin, now->oid, here->kin, seen->oid);
        if (mr_seen_find(here, 0, name.data, seen->topic) == seen) {
            seen_move(there, seen, now);
        }
    }
}

void mr_seen_reduce(struct mr_seen *seen)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < seen->count; i++) {
        if (seen->hides[i]) {
            seen->columns[kept] = seen->columns[i];
            seen->hides[kept++] = true;
        } else {
            free(seen->columns[i]);
        }
    }
    seen->count = kept;
    seen->is_partial = true;
}
