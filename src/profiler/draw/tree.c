#include "profiler/draw/tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "profiler/draw/text.h"

/* Far more than a process has; profiles from outside must not take all memory either. */
enum { NODES_MAX = 1 << 20, NAMES_MAX = 1 << 18, FIRST_SIZE = 256 };

static void grow(void **array, size_t *size, size_t need, size_t element)
{
    if (need <= *size) {
        return;
    }
    *size = need * 2 > FIRST_SIZE ? need * 2 : FIRST_SIZE;
    *array = MR_REALLOC(*array, *size * element);
}

#define GROW(array, size, need) grow((void **)&(array), &(size), (need), sizeof(*(array)))

static uint64_t hash_child(uint32_t parent, uint32_t name)
{
    uint64_t hash = ((uint64_t)parent << 32 | name) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t hash_name(const struct mr_flame *flame, uint32_t name)
{
    mr_slice text = mr_flame_name_of(flame, name);
    return mr_hash_add(MR_HASH_BEGIN, text.data, text.len);
}

static uint64_t hash_node(const struct mr_flame *flame, uint32_t node)
{
    return hash_child(flame->nodes[node].parent, flame->nodes[node].name);
}

typedef uint64_t (*hash_fn)(const struct mr_flame *flame, uint32_t item);

static void index_put(const struct mr_flame *flame, struct mr_flame_index *index, uint32_t item,
                      hash_fn hash)
{
    size_t at = hash(flame, item) & (index->size - 1);
    while (index->slots[at] != 0) {
        at = (at + 1) & (index->size - 1);
    }
    index->slots[at] = item + 1;
    index->used++;
}

static void index_add(const struct mr_flame *flame, struct mr_flame_index *index, uint32_t item,
                      hash_fn hash)
{
    if ((index->used + 1) * 2 > index->size) {
        struct mr_flame_index old = *index;
        index->size = old.size == 0 ? FIRST_SIZE : old.size * 2;
        index->used = 0;
        index->slots = MR_NEW_ARRAY(uint32_t, index->size);
        for (size_t i = 0; i < old.size; i++) {
            if (old.slots[i] != 0) {
                index_put(flame, index, old.slots[i] - 1, hash);
            }
        }
        free(old.slots);
    }
    index_put(flame, index, item, hash);
}

mr_slice mr_flame_name_of(const struct mr_flame *flame, uint32_t name)
{
    const struct mr_flame_name *found = &flame->names[name];
    return (mr_slice){.data = flame->bytes + found->at, .len = found->len};
}

/* The name's index, or NONE when there are too many. */
static uint32_t name_intern(struct mr_flame *flame, mr_slice text)
{
    struct mr_flame_index *index = &flame->names_by_text;
    if (text.len > MR_FLAME_NAME_MAX) {
        text.len = MR_FLAME_NAME_MAX;
    }
    if (index->size > 0) {
        size_t at = mr_hash_add(MR_HASH_BEGIN, text.data, text.len) & (index->size - 1);
        for (; index->slots[at] != 0; at = (at + 1) & (index->size - 1)) {
            uint32_t name = index->slots[at] - 1;
            if (mr_slice_equal(mr_flame_name_of(flame, name), text)) {
                return name;
            }
        }
    }
    if (flame->name_count == NAMES_MAX) {
        return MR_FLAME_NONE;
    }
    GROW(flame->bytes, flame->byte_size, flame->byte_count + text.len);
    GROW(flame->names, flame->name_size, flame->name_count + 1);
    if (text.len > 0) {
        memcpy(flame->bytes + flame->byte_count, text.data, text.len);
    }
    uint32_t name = (uint32_t)flame->name_count++;
    flame->names[name] =
        (struct mr_flame_name){.at = (uint32_t)flame->byte_count, .len = (uint32_t)text.len};
    flame->byte_count += text.len;
    index_add(flame, index, name, hash_name);
    return name;
}

static uint32_t child_find(const struct mr_flame *flame, uint32_t parent, uint32_t name)
{
    const struct mr_flame_index *index = &flame->nodes_by_name;
    size_t at = index->size == 0 ? 0 : hash_child(parent, name) & (index->size - 1);
    for (; index->size > 0 && index->slots[at] != 0; at = (at + 1) & (index->size - 1)) {
        uint32_t node = index->slots[at] - 1;
        if (flame->nodes[node].parent == parent && flame->nodes[node].name == name) {
            return node;
        }
    }
    return MR_FLAME_NONE;
}

/* The child of that name, made when it is missing, or NONE when the tree is full. */
static uint32_t child_get(struct mr_flame *flame, uint32_t parent, uint32_t name)
{
    uint32_t found = child_find(flame, parent, name);
    if (found != MR_FLAME_NONE || flame->node_count == NODES_MAX) {
        return found;
    }
    GROW(flame->nodes, flame->node_size, flame->node_count + 1);
    uint32_t node = (uint32_t)flame->node_count++;
    struct mr_flame_node *above = &flame->nodes[parent];
    flame->nodes[node] = (struct mr_flame_node){
        .name = name,
        .parent = parent,
        .child = MR_FLAME_NONE,
        .next = above->child,
        .depth = (uint16_t)(above->depth + 1),
        .stage = (uint8_t)mr_flame_stage_of(mr_flame_name_of(flame, name), above->stage),
    };
    above->child = node;
    index_add(flame, &flame->nodes_by_name, node, hash_node);
    return node;
}

struct mr_flame *mr_flame_new(void)
{
    struct mr_flame *flame = MR_NEW(struct mr_flame);
    *flame = (struct mr_flame){0};
    GROW(flame->nodes, flame->node_size, 1);
    flame->nodes[MR_FLAME_ROOT] = (struct mr_flame_node){.name = MR_FLAME_NONE,
                                                         .parent = MR_FLAME_NONE,
                                                         .child = MR_FLAME_NONE,
                                                         .next = MR_FLAME_NONE,
                                                         .stage = MR_STAGE_OTHER};
    flame->node_count = 1;
    return flame;
}

void mr_flame_free(struct mr_flame *flame)
{
    if (flame == NULL) {
        return;
    }
    free(flame->nodes);
    free(flame->names);
    free(flame->bytes);
    free(flame->nodes_by_name.slots);
    free(flame->names_by_text.slots);
    free(flame);
}

void mr_flame_add(struct mr_flame *flame, mr_flame_side side, const mr_slice *names, size_t count,
                  uint64_t value)
{
    uint32_t node = MR_FLAME_ROOT;
    flame->nodes[node].total[side] += value;
    for (size_t i = 0; i < count && i < MR_FLAME_DEPTH_MAX; i++) {
        uint32_t name = name_intern(flame, names[i]);
        uint32_t child = name == MR_FLAME_NONE ? MR_FLAME_NONE : child_get(flame, node, name);
        if (child == MR_FLAME_NONE) {
            break;
        }
        node = child;
        flame->nodes[node].total[side] += value;
    }
    flame->nodes[node].self[side] += value;
}

uint64_t mr_flame_total(const struct mr_flame *flame, mr_flame_side side)
{
    return flame->nodes[MR_FLAME_ROOT].total[side];
}

struct order {
    mr_slice text;
    uint32_t node;
};

static int order_compare(const void *left, const void *right)
{
    const struct order *a = left;
    const struct order *b = right;
    size_t shorter = a->text.len < b->text.len ? a->text.len : b->text.len;
    int difference = shorter == 0 ? 0 : memcmp(a->text.data, b->text.data, shorter);
    return difference != 0 ? difference : (a->text.len > b->text.len) - (a->text.len < b->text.len);
}

uint32_t *mr_flame_children(const struct mr_flame *flame, uint32_t node, size_t *ret_count)
{
    size_t count = 0;
    for (uint32_t at = flame->nodes[node].child; at != MR_FLAME_NONE; at = flame->nodes[at].next) {
        count++;
    }
    *ret_count = count;
    if (count == 0) {
        return NULL;
    }
    struct order *order = MR_NEW_ARRAY(struct order, count);
    size_t i = 0;
    for (uint32_t at = flame->nodes[node].child; at != MR_FLAME_NONE; at = flame->nodes[at].next) {
        order[i++] =
            (struct order){.text = mr_flame_name_of(flame, flame->nodes[at].name), .node = at};
    }
    qsort(order, count, sizeof(*order), order_compare);
    uint32_t *children = MR_NEW_ARRAY(uint32_t, count);
    for (i = 0; i < count; i++) {
        children[i] = order[i].node;
    }
    free(order);
    return children;
}
