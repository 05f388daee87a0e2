#include "postgres/catalog/by_oid.h"

static uint32_t oid_at(const struct mr_by_oid *table, size_t size, uint32_t place)
{
    uint32_t oid;
    memcpy(&oid, (const char *)table->items + place * size, sizeof(oid));
    return oid;
}

static uint32_t place_of(const struct mr_by_oid *table, size_t size, uint32_t oid)
{
    uint32_t place = 0;
    for (uint32_t end = table->count; place < end;) {
        uint32_t middle = place + (end - place) / 2;
        bool is_lower = oid_at(table, size, middle) < oid;
        place = is_lower ? middle + 1 : place;
        end = is_lower ? end : middle;
    }
    return place;
}

static void *item_at(const struct mr_by_oid *table, size_t size, uint32_t place, uint32_t oid)
{
    bool is_there = place < table->count && oid_at(table, size, place) == oid;
    return is_there ? (char *)table->items + place * size : NULL;
}

void *mr_by_oid_find(const struct mr_by_oid *table, size_t size, uint32_t oid)
{
    return item_at(table, size, place_of(table, size, oid), oid);
}

void *mr_by_oid_make(struct mr_by_oid *table, size_t size, uint32_t oid)
{
    uint32_t place = place_of(table, size, oid);
    void *known = item_at(table, size, place, oid);
    if (known != NULL) {
        return known;
    }
    if (table->count == table->room) {
        table->room = 2 * table->room + 4;
        table->items = MR_REALLOC(table->items, table->room * size);
    }
    char *item = (char *)table->items + place * size;
    memmove(item + size, item, (table->count++ - place) * size);
    memset(item, 0, size);
    memcpy(item, &oid, sizeof(oid));
    return item;
}

void mr_by_oid_done(struct mr_by_oid *table)
{
    free(table->items);
    *table = (struct mr_by_oid){0};
}
