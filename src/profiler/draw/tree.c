#include "profiler/draw/tree.h"

#include "base/hash.h"

/* Far more than a process has; profiles from outside must not take all memory either. */
enum { NODES_MAX = 1 << 20, NAMES_MAX = 1 << 18 };

/* The name's index, or NONE when there are too many. */
static uint32_t name_intern(struct mr_flame *flame, mr_slice text)
{
    if (text.len > MR_FLAME_NAME_MAX) {
        text.len = MR_FLAME_NAME_MAX;
    }
    uint32_t name;
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, text.data, text.len);
    MR_INDEX_FIND(name, &flame->names_by_text, hash, mr_slice_equal(flame->names[name], text));
    if (name != MR_INDEX_NONE) {
        return name;
    }
    if (flame->names_by_text.count == NAMES_MAX) {
        return MR_FLAME_NONE;
    }
    MR_GROW(flame->names, flame->name_room, flame->names_by_text.count + 1);
    name = mr_index_add(&flame->names_by_text, hash);
    text.data = text.len == 0 ? NULL : (uint8_t *)MR_STRNDUP((const char *)text.data, text.len);
    flame->names[name] = text;
    return name;
}

static uint32_t child_find(const struct mr_flame *flame, uint32_t parent, uint32_t name)
{
    uint32_t node;
    MR_INDEX_FIND(node, &flame->nodes_by_name, mr_hash_number(parent, name),
                  flame->nodes[node].parent == parent && flame->nodes[node].name == name);
    return node;
}

static uint32_t node_add(struct mr_flame *flame, struct mr_flame_node node)
{
    uint32_t number = mr_index_add(&flame->nodes_by_name, mr_hash_number(node.parent, node.name));
    MR_GROW(flame->nodes, flame->node_room, flame->nodes_by_name.count);
    flame->nodes[number] = node;
    return number;
}

static int tree_compare_names(const struct mr_flame *flame, uint32_t left, uint32_t right)
{
    mr_slice a = flame->names[left];
    mr_slice b = flame->names[right];
    size_t shorter = a.len < b.len ? a.len : b.len;
    int difference = shorter == 0 ? 0 : memcmp(a.data, b.data, shorter);
    return difference != 0 ? difference : (a.len > b.len) - (a.len < b.len);
}

/* The child after which one of that name comes; NONE: it is the first. */
static uint32_t sibling_before(const struct mr_flame *flame, uint32_t parent, uint32_t name)
{
    uint32_t before = MR_FLAME_NONE;
    for (uint32_t at = flame->nodes[parent].child;
         at != MR_FLAME_NONE && tree_compare_names(flame, flame->nodes[at].name, name) < 0;
         at = flame->nodes[at].next) {
        before = at;
    }
    return before;
}

/* The child of that name, made when it is missing, or NONE when the tree is full. */
static uint32_t child_get(struct mr_flame *flame, uint32_t parent, uint32_t name)
{
    uint32_t found = child_find(flame, parent, name);
    if (found != MR_FLAME_NONE || flame->nodes_by_name.count == NODES_MAX) {
        return found;
    }
    const struct mr_flame_node *above = &flame->nodes[parent];
    uint32_t before = sibling_before(flame, parent, name);
    struct mr_flame_node node = {
        .name = name,
        .parent = parent,
        .child = MR_FLAME_NONE,
        .next = before == MR_FLAME_NONE ? above->child : flame->nodes[before].next,
        .depth = (uint16_t)(above->depth + 1),
        .stage = (uint8_t)mr_flame_stage_of(flame->names[name], above->stage),
    };
    found = node_add(flame, node);
    *(before == MR_FLAME_NONE ? &flame->nodes[parent].child : &flame->nodes[before].next) = found;
    return found;
}

struct mr_flame *mr_flame_new(void)
{
    struct mr_flame *flame = MR_NEW(struct mr_flame);
    node_add(flame, (struct mr_flame_node){.name = MR_FLAME_NONE,
                                           .parent = MR_FLAME_NONE,
                                           .child = MR_FLAME_NONE,
                                           .next = MR_FLAME_NONE,
                                           .stage = MR_STAGE_OTHER});
    return flame;
}

void mr_flame_free(struct mr_flame *flame)
{
    if (flame == NULL) {
        return;
    }
    for (uint32_t i = 0; i < flame->names_by_text.count; i++) {
        free((void *)(uintptr_t)flame->names[i].data);
    }
    free(flame->nodes);
    free(flame->names);
    mr_index_done(&flame->nodes_by_name);
    mr_index_done(&flame->names_by_text);
    free(flame);
}

/* Copies and parts of one function are one frame: names of two builds would not meet, and no list
 * knows them. */
static uint32_t frame_intern(struct mr_flame *flame, mr_slice frame)
{
    mr_slice function = mr_flame_function(frame);
    const uint8_t *library = frame.len > 0 ? memmem(frame.data, frame.len, " [", 2) : NULL;
    size_t end = library != NULL ? (size_t)(library - frame.data) : frame.len;
    if (function.len == end || frame.len > MR_FLAME_NAME_MAX) {
        return name_intern(flame, frame);
    }
    uint8_t plain[MR_FLAME_NAME_MAX];
    memcpy(plain, function.data, function.len);
    memcpy(plain + function.len, frame.data + end, frame.len - end);
    return name_intern(flame, (mr_slice){.data = plain, .len = function.len + frame.len - end});
}

void mr_flame_add(struct mr_flame *flame, mr_flame_side side, const mr_slice *names, size_t count,
                  uint64_t value)
{
    uint32_t node = MR_FLAME_ROOT;
    flame->nodes[node].total[side] += value;
    for (size_t i = 0; i < count && i < MR_FLAME_DEPTH_MAX; i++) {
        uint32_t name = frame_intern(flame, names[i]);
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

void mr_flame_stages(const struct mr_flame *flame, mr_flame_side side,
                     uint64_t ret_values[MR_STAGES])
{
    memset(ret_values, 0, MR_STAGES * sizeof(*ret_values));
    for (size_t i = 0; i < flame->nodes_by_name.count; i++) {
        ret_values[flame->nodes[i].stage] += flame->nodes[i].self[side];
    }
}

static double tree_percent(uint64_t value, uint64_t total)
{
    return total == 0 ? 0 : 100.0 * (double)value / (double)total;
}

void mr_flame_print_stages(const struct mr_flame *flame, bool compared, FILE *to)
{
    uint64_t values[2][MR_STAGES];
    uint64_t total[2];
    for (int side = 0; side < 2; side++) {
        mr_flame_stages(flame, side, values[side]);
        total[side] = mr_flame_total(flame, side);
    }
    fputs(compared ? "stage           before     after    change\n" : "stage            share\n",
          to);
    for (int stage = MR_STAGE_NONE + 1; stage < MR_STAGES; stage++) {
        double before = tree_percent(values[0][stage], total[0]);
        double after = tree_percent(values[1][stage], total[1]);
        fprintf(to, "%-12s %8.2f%%", mr_stage_name(stage), before);
        if (compared) {
            fprintf(to, " %8.2f%% %+8.2f", after, after - before);
        }
        fputc('\n', to);
    }
}
