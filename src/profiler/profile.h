/* A profile in memory: stacks with labels and values, whatever it measures; and its three written forms.
 *
 * A profile has one owner at a time. Functions marked so want the symbols' lock, for names are shared.
 */
#ifndef MR_PROF_PROFILE_H
#define MR_PROF_PROFILE_H

#include "base/index.h"
#include "base/stage.h"
#include "profiler/symbols.h"

struct mr_flame;

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
    enum mr_thread_role role;
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

/* Adds values to the entry with this stack and these labels. Bounded: what exceeds a million entries is
 * counted as dropped. */
void mr_profile_add(struct mr_profile *profile, const uint32_t *locations, uint32_t count,
                    uint32_t thread, uint32_t table, enum mr_thread_role role,
                    const int64_t values[MR_PROFILE_VALUES]);

/* Adds everything of `from`; `sign` -1 takes it away (entries that come to nothing stay, at 0). */
void mr_profile_merge(struct mr_profile *profile, const struct mr_profile *from, int sign);

/* Number and names of the values. */
uint32_t mr_profile_value_count(enum mr_profile_kind kind);
const char *mr_profile_value_name(enum mr_profile_kind kind, uint32_t value);
const char *mr_profile_value_unit(enum mr_profile_kind kind, uint32_t value);

/* The index of a value's name, or -1. */
int mr_profile_value_find(enum mr_profile_kind kind, const char *name);

/* ---- with the symbols' lock ---- */

/* The stage that an entry's frames and thread tell. */
enum mr_stage mr_profile_stage(const struct mr_profile *profile,
                               const struct mr_profile_entry *entry);

/* Whether it belongs to the stage. To MR_STAGE_MALLOC belongs what the allocator does, whatever stage asked it. */
bool mr_profile_is_in(const struct mr_profile *profile, const struct mr_profile_entry *entry,
                      enum mr_stage stage);

/* "function", "function [library.so]", "0xbeginning [library.so]" (of a function without a name) or
 * "[library.so]", as draw/ wants it. Needs no lock. */
void mr_profile_name(const char *function, const char *object, char *to, size_t size);

/* The same of a location's frame. */
void mr_profile_frame_name(const struct mr_location *location, uint32_t frame, char *to,
                           size_t size);

/* Leaves what has this thread (NULL: any) and this stage (MR_STAGE_NONE: any); everything else comes to nothing. */
void mr_profile_filter(struct mr_profile *profile, const char *thread, enum mr_stage stage);

/* Everything of the stage comes to nothing. */
void mr_profile_leave_out(struct mr_profile *profile, enum mr_stage stage);

/* What a flame graph has under the outermost frames. */
enum mr_profile_root {
    MR_PROFILE_ROOT_THREAD,
    MR_PROFILE_ROOT_STAGE,
    MR_PROFILE_ROOT_NONE, /* nothing: equal stacks of all threads are one */
};

/* As a flame graph of one value. The caller frees it. */
struct mr_flame *mr_profile_flame(const struct mr_profile *profile, uint32_t value,
                                  enum mr_profile_root root);

/* gzip'd profile.proto; the caller frees it. `comments` (each may be NULL) go into the file. */
uint8_t *mr_profile_pprof(const struct mr_profile *profile, const char *const *comments,
                          size_t comment_count, size_t *ret_len);

#endif
