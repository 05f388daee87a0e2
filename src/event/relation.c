#include "event/relation.h"

#include <stdlib.h>
#include <string.h>

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

static size_t layout_size(const struct mr_relation_view *view)
{
    size_t size = sizeof(struct mr_layout) + view->column_count * sizeof(struct mr_column) +
                  view->key_count * sizeof(uint32_t);
    for (uint32_t i = 0; i < view->column_count; i++) {
        size += view->columns[i].name.len + 1;
        size += view->columns[i].type_name.len + (view->columns[i].type_name.len > 0);
    }
    return size;
}

/* Copies a name to `*names` and moves that after it. The block is zeroed: the NUL is there. */
static char *copy_name(char **names, mr_slice name)
{
    char *copy = *names;
    memcpy(copy, name.data, name.len);
    *names += name.len + 1;
    return copy;
}

void mr_relation_flagged_key(struct mr_relation_view *view, uint32_t *columns)
{
    view->key_count = 0;
    view->key_columns = columns;
    view->key_is_chosen = false;
    for (uint32_t i = 0; view->identity != MR_IDENTITY_FULL && i < view->column_count; i++) {
        if (view->columns[i].in_identity) {
            columns[view->key_count++] = i;
        }
    }
}

static bool name_matches(const char *name, mr_slice view)
{
    return mr_slice_equal(mr_slice_of(name), view);
}

struct mr_relation_view mr_relation_viewed(const struct mr_relation *relation,
                                           struct mr_column_view *columns)
{
    for (uint32_t i = 0; i < relation->column_count; i++) {
        const struct mr_column *column = &relation->columns[i];
        columns[i] = (struct mr_column_view){
            .name = mr_slice_of(column->name),
            .type_oid = column->type_oid,
            .type_modifier = column->type_modifier,
            .type = column->type,
            .type_name = mr_slice_of(column->type_name == NULL ? "" : column->type_name),
            .in_identity = column->in_identity,
            .is_flagged = column->is_flagged,
        };
    }
    return (struct mr_relation_view){
        .oid = relation->oid,
        .schema = mr_slice_of(relation->schema),
        .table = mr_slice_of(relation->table),
        .identity = relation->identity,
        .told_identity = relation->told_identity,
        .column_count = relation->column_count,
        .columns = columns,
        .key_count = relation->key_count,
        .key_columns = relation->key_columns,
        .key_is_chosen = relation->key_is_chosen,
        .is_unlisted = relation->is_unlisted,
        .is_signal = relation->is_signal,
        .is_narrowed = relation->is_narrowed,
    };
}

bool mr_relation_find_column(const struct mr_relation_view *view, mr_slice name,
                             uint32_t *ret_column)
{
    for (uint32_t i = 0; i < view->column_count; i++) {
        if (mr_slice_equal(view->columns[i].name, name)) {
            *ret_column = i;
            return true;
        }
    }
    return false;
}

static bool identity_has(const struct mr_relation *relation, mr_slice name)
{
    for (uint32_t i = 0; i < relation->column_count; i++) {
        const struct mr_column *column = &relation->columns[i];
        if (column->in_identity && name_matches(column->name, name)) {
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
        is_less = column->is_flagged && !identity_has(partition, mr_slice_of(column->name));
    }
    return is_less;
}

void mr_relation_narrow(struct mr_relation_view *view, struct mr_column_view *columns,
                        const struct mr_relation *by)
{
    for (uint32_t i = 0; i < view->column_count; i++) {
        columns[i].in_identity &= identity_has(by, columns[i].name);
    }
    view->identity = by->identity;
    view->is_narrowed = true;
}

static bool type_matches(const struct mr_type *a, const struct mr_type *b)
{
    return a->oid == b->oid && a->modifier == b->modifier && a->kind == b->kind &&
           a->is_array == b->is_array && a->is_of_domain == b->is_of_domain;
}

static bool column_matches(const struct mr_column *column, const struct mr_column_view *view)
{
    return name_matches(column->name, view->name) && column->type_oid == view->type_oid &&
           column->type_modifier == view->type_modifier &&
           name_matches(column->type_name == NULL ? "" : column->type_name, view->type_name) &&
           type_matches(&column->type, &view->type) && column->in_identity == view->in_identity &&
           column->is_flagged == view->is_flagged;
}

static bool layout_matches(const struct mr_layout *layout, const struct mr_relation_view *view)
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

static struct mr_layout *layout_new(const struct mr_relation_view *view, uint64_t hash)
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
        columns[i] = (struct mr_column){
            .name = copy_name(&names, view->columns[i].name),
            .type_oid = view->columns[i].type_oid,
            .type_modifier = view->columns[i].type_modifier,
            .type = view->columns[i].type,
            .type_name = view->columns[i].type_name.len == 0
                             ? NULL
                             : copy_name(&names, view->columns[i].type_name),
            .in_identity = view->columns[i].in_identity,
            .is_flagged = view->columns[i].is_flagged,
        };
    }
    return layout;
}

static uint64_t layout_hash(const struct mr_relation_view *view)
{
    uint64_t hash =
        mr_hash_add(MR_HASH_BEGIN, view->key_columns, view->key_count * sizeof(*view->key_columns));
    for (uint32_t i = 0; i < view->column_count; i++) {
        const struct mr_column_view *column = &view->columns[i];
        hash = mr_hash_add(hash, column->name.data, column->name.len);
        hash = mr_hash_number(hash, (uint64_t)column->type_oid << 1 | column->in_identity);
    }
    return hash;
}

static struct mr_layout *layout_take(struct mr_layouts *layouts,
                                     const struct mr_relation_view *view)
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

static void layout_release(struct mr_layouts *layouts, struct mr_layout *layout)
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

struct mr_relation *mr_relation_new(struct mr_layouts *layouts, const struct mr_relation_view *view)
{
    size_t bytes = sizeof(struct mr_relation) + view->schema.len + 1 + view->table.len + 1;
    struct mr_relation *relation = (struct mr_relation *)MR_ALLOC(bytes);
    struct mr_layout *layout = layout_take(layouts, view);
    char *names = (char *)(relation + 1);
    *relation = (struct mr_relation){
        .oid = view->oid,
        .schema = copy_name(&names, view->schema),
        .table = copy_name(&names, view->table),
        .identity = view->identity,
        .told_identity = view->told_identity,
        .column_count = layout->column_count,
        .columns = layout->columns,
        .key_count = layout->key_count,
        .key_columns = layout->key_columns,
        .key_is_chosen = view->key_is_chosen,
        .is_unlisted = view->is_unlisted,
        .is_signal = view->is_signal,
        .is_narrowed = view->is_narrowed,
        .layout = layout,
        .bytes = bytes,
    };
    return relation;
}

void mr_relation_free(struct mr_layouts *layouts, struct mr_relation *relation)
{
    if (relation != NULL) {
        layout_release(layouts, relation->layout);
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

bool mr_relation_matches(const struct mr_relation *relation, const struct mr_relation_view *view)
{
    return relation->is_unlisted == view->is_unlisted && relation->identity == view->identity &&
           relation->told_identity == view->told_identity &&
           relation->key_is_chosen == view->key_is_chosen &&
           name_matches(relation->schema, view->schema) &&
           name_matches(relation->table, view->table) && layout_matches(relation->layout, view);
}
