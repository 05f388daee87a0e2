/* The tree behind a flame graph, for the writers of this folder. One thread. */
#pragma once

#include "base/index.h"
#include "profiler/draw/flame.h"

enum { MR_FLAME_ROOT = 0, MR_FLAME_NONE = UINT32_MAX };

struct mr_flame_node {
    uint32_t name; /* index of a name; the root has none */
    uint32_t parent;
    uint32_t child; /* the first by name, or NONE */
    uint32_t next;  /* sibling, or NONE */
    uint16_t depth; /* 0: the root */
    uint8_t stage;
    uint64_t self[2];
    uint64_t total[2];
};

struct mr_flame {
    struct mr_flame_node *nodes;
    mr_slice *names;               /* copies */
    struct mr_index nodes_by_name; /* by parent and name; and how many */
    struct mr_index names_by_text;
    uint32_t node_room, name_room;
};

/* The function of a frame: without its library, and without the compiler's .isra.N, .part.N,
 * .constprop.N, .cold and .lto_priv.N. */
mr_slice mr_flame_function(mr_slice frame);

/* The colour of a stage's frames, "rgb(…)". */
const char *mr_flame_stage_colour(enum mr_stage stage);
