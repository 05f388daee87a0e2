#include "event/relation.h"

#include "base/hash.h"

/* The columns come right after the layout, then those of the key, and last the names. */
struct mr_layout {
    uint64_t number;
    uint64_t hash;
    uint32_t uses; /* relations that have it */
    uint32_t column_count;
    struct mr_column *columns;
    uint32_t *key_columns;
    uint32_t key_count;
    size_t bytes;
};

_Static_assert(sizeof(struct mr_layout) % _Alignof(struct mr_column) == 0, "columns are aligned");

static size_t layout_size(const struct mr_relation *view)
{
    size_t size = sizeof(struct mr_layout) + view->column_count * sizeof(struct mr_column) +
                  view->key_count * sizeof(uint32_t);
    for (uint32_t i = 0; i < view->column_count; i++) {
        const char *type_name = view->columns[i].type_name;
        size += strlen(view->columns[i].name) + 1;
        size += type_name == NULL ? 0 : strlen(type_name) + 1;
    }
    return size;
}

/* Copies a name, or NULL, to `*names` and moves that after it. */
static const char *copy_name(char **names, const char *name)
{
    const char *copy = name == NULL ? NULL : *names;
    *names = name == NULL ? *names : stpcpy(*names, name) + 1;
    return copy;
}

void mr_relation_flagged_key(struct mr_relation *view)
{
    view->key_count = 0;
    view->key_is_chosen = false;
    for (uint32_t i = 0; view->identity != MR_IDENTITY_FULL && i < view->column_count; i++) {
        if (view->columns[i].in_identity) {
            view->key_columns[view->key_count++] = i;
        }
    }
}

bool mr_relation_find_column(const struct mr_relation *view, mr_slice name, uint32_t *ret_column)
{
    uint32_t i = 0;
    while (i < view->column_count && !mr_slice_equal(mr_slice_of(view->columns[i].name), name)) {
        i++;
    }
    *ret_column = i;
    return i < view->column_count;
}

static bool identity_has(const struct mr_relation *relation, const char *name)
{
    for (uint32_t i = 0; i < relation->column_count; i++) {
        const struct mr_column *column = &relation->columns[i];
        if (column->in_identity && strcmp(column->name, name) == 0) {
            return true;
        }
    }
    return false;
}

bool mr_relation_is_less(const struct mr_relation *partition, const struct mr_relation *root)
{
    if (partition->identity == MR_IDENTITY_FULL || partition->identity == MR_IDENTITY_NOTHING) {
        return false;
    }
    bool is_less = root->told_identity == MR_IDENTITY_FULL;
    for (uint32_t i = 0; !is_less && i < root->column_count; i++) {
        const struct mr_column *column = &root->columns[i];
        is_less = column->is_flagged && !identity_has(partition, column->name);
    }
    return is_less;
}

void mr_relation_narrow(struct mr_relation *view, const struct mr_relation *by)
{
    for (uint32_t i = 0; i < view->column_count; i++) {
        view->columns[i].in_identity &= identity_has(by, view->columns[i].name);
    }
    view->identity = by->identity;
    view->is_narrowed = true;
}

static bool type_matches(const struct mr_type *a, const struct mr_type *b)
{
    return a->oid == b->oid && a->modifier == b->modifier && a->kind == b->kind &&
           a->is_array == b->is_array && a->is_of_domain == b->is_of_domain;
}

static bool column_matches(const struct mr_column *a, const struct mr_column *b)
{
    return strcmp(a->name, b->name) == 0 && a->type_oid == b->type_oid &&
           a->type_modifier == b->type_modifier &&
           (a->type_name == NULL) == (b->type_name == NULL) &&
           (a->type_name == NULL || strcmp(a->type_name, b->type_name) == 0) &&
           type_matches(&a->type, &b->type) && a->in_identity == b->in_identity &&
           a->is_flagged == b->is_flagged;
}

static bool layout_matches(const struct mr_layout *layout, const struct mr_relation *view)
{
    bool matches = layout->column_count == view->column_count &&
                   layout->key_count == view->key_count &&
                   memcmp(layout->key_columns, view->key_columns,
                          view->key_count * sizeof(*view->key_columns)) == 0;
    for (uint32_t i = 0; matches && i < view->column_count; i++) {
        matches = column_matches(&layout->columns[i], &view->columns[i]);
    }
    return matches;
}

static struct mr_layout *layout_new(const struct mr_relation *view, uint64_t hash)
{
    static _Atomic uint64_t numbers;
    size_t bytes = layout_size(view);
    struct mr_layout *layout = (struct mr_layout *)MR_ALLOC(bytes);
    struct mr_column *columns = (struct mr_column *)(layout + 1);
    uint32_t *key_columns = (uint32_t *)(columns + view->column_count);
    char *names = (char *)(key_columns + view->key_count);
    *layout = (struct mr_layout){
        .number = ++numbers,
        .hash = hash,
        .column_count = view->column_count,
        .columns = columns,
        .key_columns = key_columns,
        .key_count = view->key_count,
        .bytes = bytes,
    };
    memcpy(key_columns, view->key_columns, view->key_count * sizeof(*key_columns));
    for (uint32_t i = 0; i < view->column_count; i++) {
        columns[i] = view->columns[i];
        columns[i].name = copy_name(&names, view->columns[i].name);
        columns[i].type_name = copy_name(&names, view->columns[i].type_name);
    }
    return layout;
}

static uint64_t layout_hash(const struct mr_relation *view)
{
    uint64_t hash =
        mr_hash_add(MR_HASH_BEGIN, view->key_columns, view->key_count * sizeof(*view->key_columns));
    for (uint32_t i = 0; i < view->column_count; i++) {
        const struct mr_column *column = &view->columns[i];
        hash = mr_hash_add(hash, column->name, strlen(column->name));
        hash = mr_hash_number(hash, (uint64_t)column->type_oid << 1 | column->in_identity);
    }
    return hash;
}

static struct mr_layout *layout_take(struct mr_layouts *layouts, const struct mr_relation *view)
{
    uint64_t hash = layout_hash(view);
    uint32_t number;
    MR_INDEX_FIND(number, &layouts->by_content, hash, layout_matches(layouts->items[number], view));
    if (number == MR_INDEX_NONE) {
        MR_GROW(layouts->items, layouts->room, layouts->by_content.count + 1);
        number = mr_index_add(&layouts->by_content, hash);
        layouts->items[number] = layout_new(view, hash);
        layouts->bytes += layouts->items[number]->bytes;
    }
    layouts->items[number]->uses++;
    return layouts->items[number];
}

static void relation_layout_release(struct mr_layouts *layouts, struct mr_layout *layout)
{
    MR_ASSERT(layout->uses > 0);
    if (--layout->uses > 0) {
        return;
    }
    uint32_t number;
    MR_INDEX_FIND(number, &layouts->by_content, layout->hash, layouts->items[number] == layout);
    MR_ASSERT(number != MR_INDEX_NONE);
    struct mr_layout *last = layouts->items[layouts->by_content.count - 1];
    mr_index_remove(&layouts->by_content, number, layout->hash, last->hash);
    layouts->items[number] = last;
    layouts->bytes -= layout->bytes;
    free(layout);
}

_Static_assert(sizeof(struct mr_relation) % _Alignof(struct mr_attribute) == 0 &&
                   sizeof(struct mr_attribute) % _Alignof(struct mr_table_part) == 0 &&
                   sizeof(struct mr_table_part) % _Alignof(struct mr_origin) == 0,
               "so are these");

static size_t relation_size(const struct mr_relation *view)
{
    size_t size = sizeof(struct mr_relation) + strlen(view->schema) + 1 + strlen(view->table) + 1 +
                  view->attribute_count * sizeof(struct mr_attribute);
    for (uint32_t i = 0; i < view->attribute_count; i++) {
        const char *name = view->attributes[i].name;
        size += name == NULL ? 0 : strlen(name) + 1;
    }
    size += view->part_count * sizeof(struct mr_table_part);
    for (uint32_t i = 0; i < view->part_count; i++) {
        size += strlen(view->parts[i].schema) + strlen(view->parts[i].table) + 2;
    }
    size += view->origin_count * sizeof(struct mr_origin);
    for (uint32_t i = 0; i < view->origin_count; i++) {
        const struct mr_origin *origin = &view->origins[i];
        size += strlen(origin->schema) + strlen(origin->table) + 2;
        size += origin->numbers == NULL ? 0 : strlen(origin->numbers) + 1;
    }
    return size;
}

struct mr_relation *mr_relation_new(struct mr_layouts *layouts, const struct mr_relation *view)
{
    size_t bytes = relation_size(view);
    struct mr_relation *relation = (struct mr_relation *)MR_ALLOC(bytes);
    struct mr_layout *layout = layout_take(layouts, view);
    struct mr_attribute *attributes = (struct mr_attribute *)(relation + 1);
    struct mr_table_part *parts = (struct mr_table_part *)(attributes + view->attribute_count);
    struct mr_origin *origins = (struct mr_origin *)(parts + view->part_count);
    char *names = (char *)(origins + view->origin_count);
    *relation = *view;
    relation->schema = copy_name(&names, view->schema);
    relation->table = copy_name(&names, view->table);
    relation->columns = layout->columns;
    relation->key_columns = layout->key_columns;
    for (uint32_t i = 0; i < view->attribute_count; i++) {
        attributes[i] = view->attributes[i];
        attributes[i].name = copy_name(&names, view->attributes[i].name);
    }
    relation->attributes = attributes;
    for (uint32_t i = 0; i < view->part_count; i++) {
        parts[i].oid = view->parts[i].oid;
        parts[i].schema = copy_name(&names, view->parts[i].schema);
        parts[i].table = copy_name(&names, view->parts[i].table);
    }
    relation->parts = parts;
    for (uint32_t i = 0; i < view->origin_count; i++) {
        origins[i].oid = view->origins[i].oid;
        origins[i].schema = copy_name(&names, view->origins[i].schema);
        origins[i].table = copy_name(&names, view->origins[i].table);
        origins[i].numbers = copy_name(&names, view->origins[i].numbers);
    }
    relation->origins = origins;
    relation->narrows = 0;
    relation->layout = layout;
    relation->bytes = bytes;
    return relation;
}

void mr_relation_free(struct mr_layouts *layouts, struct mr_relation *relation)
{
    if (relation != NULL) {
        relation_layout_release(layouts, relation->layout);
        free(relation);
    }
}

void mr_layouts_done(struct mr_layouts *layouts)
{
    MR_ASSERT(layouts->by_content.count == 0);
    free(layouts->items);
    mr_index_done(&layouts->by_content);
    *layouts = (struct mr_layouts){0};
}

size_t mr_relation_own_bytes(const struct mr_relation *relation)
{
    return relation->bytes + (relation->layout->uses == 1 ? relation->layout->bytes : 0);
}

uint64_t mr_relation_layout_number(const struct mr_relation *relation)
{
    return relation->layout == NULL ? 0 : relation->layout->number;
}

static bool attributes_match(const struct mr_relation *a, const struct mr_relation *b)
{
    bool matches = a->attribute_count == b->attribute_count;
    for (uint32_t i = 0; matches && i < a->attribute_count; i++) {
        const struct mr_attribute *x = &a->attributes[i];
        const struct mr_attribute *y = &b->attributes[i];
        matches = x->number == y->number && x->is_there == y->is_there &&
                  (x->name == NULL) == (y->name == NULL) &&
                  (x->name == NULL || strcmp(x->name, y->name) == 0);
    }
    return matches;
}

static bool origins_match(const struct mr_relation *a, const struct mr_relation *b)
{
    bool matches = a->is_part == b->is_part && a->origin_count == b->origin_count;
    for (uint32_t i = 0; matches && i < a->origin_count; i++) {
        const struct mr_origin *x = &a->origins[i];
        const struct mr_origin *y = &b->origins[i];
        matches = x->oid == y->oid && strcmp(x->table, y->table) == 0 &&
                  strcmp(x->schema, y->schema) == 0 &&
                  (x->numbers == NULL) == (y->numbers == NULL) &&
                  (x->numbers == NULL || strcmp(x->numbers, y->numbers) == 0);
    }
    return matches;
}

static bool parts_match(const struct mr_relation *a, const struct mr_relation *b)
{
    bool matches = a->part_count == b->part_count;
    for (uint32_t i = 0; matches && i < a->part_count; i++) {
        matches = a->parts[i].oid == b->parts[i].oid &&
                  strcmp(a->parts[i].schema, b->parts[i].schema) == 0 &&
                  strcmp(a->parts[i].table, b->parts[i].table) == 0;
    }
    return matches;
}

bool mr_relation_matches(const struct mr_relation *relation, const struct mr_relation *view)
{
    return relation->is_unlisted == view->is_unlisted &&
           relation->listed_until == view->listed_until && relation->identity == view->identity &&
           relation->told_identity == view->told_identity &&
           relation->key_is_chosen == view->key_is_chosen &&
           strcmp(relation->schema, view->schema) == 0 &&
           strcmp(relation->table, view->table) == 0 && layout_matches(relation->layout, view) &&
           attributes_match(relation, view) && parts_match(relation, view) &&
           origins_match(relation, view);
}
