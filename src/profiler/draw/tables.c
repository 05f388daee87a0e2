/* What the tree says in numbers: by function, by stage, and how fit it is for reading. */
#include <stdlib.h>
#include <string.h>

#include "profiler/draw/tree.h"

static int by_self(const void *left, const void *right)
{
    const struct mr_flame_function *a = left;
    const struct mr_flame_function *b = right;
    uint64_t x = a->self[0] + a->self[1];
    uint64_t y = b->self[0] + b->self[1];
    return x != y ? (x < y) - (x > y)
                  : (a->total[0] + a->total[1] < b->total[0] + b->total[1]) -
                        (a->total[0] + a->total[1] > b->total[0] + b->total[1]);
}

/* A recursive function stands on a stack several times, and is counted for the lowest only. */
static bool is_repeated(const struct mr_flame *flame, const struct mr_flame_node *node)
{
    for (uint32_t at = node->parent; at != MR_FLAME_ROOT; at = flame->nodes[at].parent) {
        if (flame->nodes[at].name == node->name) {
            return true;
        }
    }
    return false;
}

struct mr_flame_function *mr_flame_functions(const struct mr_flame *flame, size_t *ret_count)
{
    size_t count = flame->names_by_text.count;
    struct mr_flame_function *rows = MR_NEW_ARRAY(struct mr_flame_function, count + 1);
    for (size_t i = 0; i < count; i++) {
        mr_slice name = mr_flame_name_of(flame, (uint32_t)i);
        rows[i] = (struct mr_flame_function){.name = name,
                                             .stage = mr_flame_stage_of(name, MR_STAGE_OTHER)};
    }
    uint64_t *largest = MR_NEW_ARRAY(uint64_t, count + 1);
    for (size_t i = 1; i < flame->nodes_by_name.count; i++) {
        const struct mr_flame_node *node = &flame->nodes[i];
        struct mr_flame_function *row = &rows[node->name];
        bool repeated = is_repeated(flame, node);
        for (int side = 0; side < 2; side++) {
            row->self[side] += node->self[side];
            row->total[side] += repeated ? 0 : node->total[side];
        }
        /* The stage it was in most often. */
        if (node->total[0] + node->total[1] > largest[node->name]) {
            largest[node->name] = node->total[0] + node->total[1];
            row->stage = node->stage;
        }
    }
    free(largest);
    qsort(rows, count, sizeof(*rows), by_self);
    *ret_count = count;
    return rows;
}

void mr_flame_stages(const struct mr_flame *flame, mr_flame_side side,
                     uint64_t ret_values[MR_STAGES])
{
    memset(ret_values, 0, MR_STAGES * sizeof(*ret_values));
    for (size_t i = 0; i < flame->nodes_by_name.count; i++) {
        ret_values[flame->nodes[i].stage] += flame->nodes[i].self[side];
    }
}

/* "[libc.so.6]", "[unknown]" and "0x7f…" are no functions. */
static bool is_named(mr_slice name)
{
    return name.len > 0 && name.data[0] != '[' &&
           !(name.len > 2 && name.data[0] == '0' && name.data[1] == 'x');
}

static bool is_entry(mr_slice name)
{
    static const char *const entries[] = {
        "start_thread",     "clone",  "clone3",        "__clone",
        "__clone3",         "_start", "ret_from_fork", "ret_from_fork_asm",
        "__libc_start_main"};
    const uint8_t *library = name.len > 0 ? memmem(name.data, name.len, " [", 2) : NULL;
    size_t len = library == NULL ? name.len : (size_t)(library - name.data);
    for (size_t i = 0; i < MR_ARRAY_LEN(entries); i++) {
        size_t entry_len = strlen(entries[i]);
        /* Symbol versions follow an @. */
        if (len >= entry_len && memcmp(name.data, entries[i], entry_len) == 0 &&
            (len == entry_len || name.data[entry_len] == '@')) {
            return true;
        }
    }
    return false;
}

/* The thread's name comes first, then its first function. */
static bool is_rooted(const struct mr_flame *flame, uint32_t node)
{
    while (flame->nodes[node].depth > 2) {
        node = flame->nodes[node].parent;
    }
    if (flame->nodes[node].depth == 0) {
        return false;
    }
    uint32_t below = flame->nodes[node].parent;
    return is_entry(mr_flame_name_of(flame, flame->nodes[node].name)) ||
           (below != MR_FLAME_ROOT && is_entry(mr_flame_name_of(flame, flame->nodes[below].name)));
}

static double percent(uint64_t value, uint64_t total)
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
        double before = percent(values[0][stage], total[0]);
        double after = percent(values[1][stage], total[1]);
        fprintf(to, "%-12s %8.2f%%", mr_stage_name(stage), before);
        if (compared) {
            fprintf(to, " %8.2f%% %+8.2f", after, after - before);
        }
        fputc('\n', to);
    }
}

struct mr_flame_quality mr_flame_quality(const struct mr_flame *flame, mr_flame_side side)
{
    struct mr_flame_quality quality = {.total = mr_flame_total(flame, side)};
    for (size_t i = 1; i < flame->nodes_by_name.count; i++) {
        const struct mr_flame_node *node = &flame->nodes[i];
        if (node->self[side] > 0) {
            quality.named += is_named(mr_flame_name_of(flame, node->name)) ? node->self[side] : 0;
            quality.rooted += is_rooted(flame, (uint32_t)i) ? node->self[side] : 0;
        }
    }
    return quality;
}
