#include "postgres/catalog/by_oid.h"

void *mr_by_oid_find(const struct mr_by_oid *table, size_t size, uint32_t oid)
{
    return mr_search(&oid, table->items, table->count, size, mr_u32_compare);
}

void *mr_by_oid_make(struct mr_by_oid *table, size_t size, uint32_t oid)
{
    void *known = mr_by_oid_find(table, size, oid);
    if (known != NULL) {
        return known;
    }
    if (table->count == table->room) {
        table->room = 2 * table->room + 4;
        table->items = MR_REALLOC(table->items, table->room * size);
    }
    char *end = (char *)table->items + table->count++ * size;
    char *item = end; /* what is read comes in this order */
    while (item > (char *)table->items && mr_u32_compare(item - size, &oid) > 0) {
        item -= size;
    }
    memmove(item + size, item, (size_t)(end - item));
    memset(item, 0, size);
    memcpy(item, &oid, sizeof(oid));
    return item;
}

void mr_by_oid_done(struct mr_by_oid *table)
{
    free(table->items);
    *table = (struct mr_by_oid){0};
}
