/* A profile in memory: stacks with labels and values, whatever they measure; and its written forms.
 *
 * A profile has one owner at a time. mr_profile_stage and mr_profile_filter want the symbols' lock
 * (symbols.h), because names are shared; mr_profile_pprof, _svg and _folded take it themselves. The
 * caller frees what these three and mr_profile_gzip return. */
#pragma once

#include "base/index.h"
#include "base/stage.h"
#include "profiler/symbols.h"

struct mr_flame_drawing;

enum { MR_PROFILE_VALUES = 4 };

enum mr_profile_kind {
    MR_PROFILE_CPU,  /* samples, cpu nanoseconds */
    MR_PROFILE_HEAP, /* alloc_objects, alloc_space, inuse_objects, inuse_space */
};

struct mr_profile_entry {
    uint32_t stack_first; /* in `stacks` */
    uint32_t stack_count;
    uint32_t thread; /* texts */
    uint32_t table;
    int64_t values[MR_PROFILE_VALUES];
};

struct mr_profile {
    enum mr_profile_kind kind;
    struct mr_profile_entry *entries;
    uint32_t count, room;
    uint32_t *stacks; /* locations, innermost first */
    uint32_t stacks_count, stacks_room;
    struct mr_index by_stack; /* and labels */
    int64_t start_wall_ns;
    int64_t duration_ns;
    int64_t period; /* in the unit of the last value */
    uint64_t samples;
    uint64_t rooted;    /* samples whose stack reaches the thread's entry */
    uint64_t truncated; /* samples whose stack was too long */
    uint64_t lost;
    uint64_t dropped; /* left out because the profile is full */
};

void mr_profile_init(struct mr_profile *profile, enum mr_profile_kind kind);
void mr_profile_done(struct mr_profile *profile);

/* Adds the values to the entry with this stack, thread and table. What exceeds a million entries is
 * counted as dropped. */
void mr_profile_add(struct mr_profile *profile, const uint32_t *locations,
                    const struct mr_profile_entry *added);

/* Adds everything of `from`; `sign` -1 subtracts it (entries whose values become 0 stay). */
void mr_profile_merge(struct mr_profile *profile, const struct mr_profile *from, int sign);

/* What the values of a kind are. */
struct mr_profile_values {
    uint32_t count;
    struct {
        const char *name, *unit;
    } types[MR_PROFILE_VALUES];
};
extern const struct mr_profile_values mr_profile_values[];

/* The stage of an entry, by its frames and its thread. */
enum mr_stage mr_profile_stage(const struct mr_profile *profile,
                               const struct mr_profile_entry *entry);

/* Sets to 0 what has another thread (NULL: any) or another stage (MR_STAGE_NONE: any), and in a
 * heap profile what the profiler asked for, unless its stage is wanted. To MR_STAGE_MALLOC belongs
 * what the allocator does, for whichever stage. */
void mr_profile_filter(struct mr_profile *profile, const char *thread, enum mr_stage stage);

/* What a flame graph has under the outermost frames. */
enum mr_profile_root {
    MR_PROFILE_ROOT_THREAD,
    MR_PROFILE_ROOT_STAGE,
    MR_PROFILE_ROOT_NONE, /* nothing: equal stacks of all threads are one */
};

enum { MR_TABLE_TIMES_MAX = 64 };

/* CPU time by table, of as many tables as there is room for; what the rest use goes to the last,
 * "other", so that the times add up. All zero: none. */
struct mr_table_times {
    struct {
        char name[MR_SAMPLE_TABLE_MAX];
        uint64_t cpu_ns;
    } tables[MR_TABLE_TIMES_MAX];
    uint32_t count;
};

void mr_table_times_add(struct mr_table_times *times, const char *name, uint64_t cpu_ns);

/* gzip'd pprof. */
uint8_t *mr_profile_pprof(const struct mr_profile *profile, size_t *ret_len);

/* SVG of one value. The subtitle and unit of `drawing` are filled in here. */
char *mr_profile_svg(const struct mr_profile *profile, uint32_t value, enum mr_profile_root root,
                     const struct mr_flame_drawing *drawing, size_t *ret_len);

/* Lines of "root;outer;inner 12". */
char *mr_profile_folded(const struct mr_profile *profile, uint32_t value, enum mr_profile_root root,
                        size_t *ret_len);

/* Any bytes, gzip'd. */
uint8_t *mr_profile_gzip(const void *bytes, size_t len, size_t *ret_len);
