#include "profiler/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "profiler/draw/flame.h"

enum { ENTRIES_MAX = 1000000 };

void mr_profile_init(struct mr_profile *profile, enum mr_profile_kind kind)
{
    *profile = (struct mr_profile){.kind = kind, .start_wall_ns = mr_wall_ns()};
}

void mr_profile_done(struct mr_profile *profile)
{
    free(profile->entries);
    free(profile->stacks);
    mr_index_done(&profile->by_stack);
    *profile = (struct mr_profile){.kind = profile->kind};
}

/* ---- entries ---- */

static uint64_t hash_of(const uint32_t *locations, uint32_t count, uint32_t thread, uint32_t table)
{
    uint64_t hash = mr_hash_number(mr_hash_number(count, thread), table);
    for (uint32_t i = 0; i < count; i++) {
        hash = mr_hash_number(hash, locations[i]);
    }
    return hash;
}

static uint32_t keep_stack(struct mr_profile *profile, const uint32_t *locations, uint32_t count)
{
    MR_GROW(profile->stacks, profile->stacks_room, (size_t)profile->stacks_count + count);
    uint32_t first = profile->stacks_count;
    if (count > 0) {
        memcpy(profile->stacks + first, locations, sizeof(uint32_t) * count);
    }
    profile->stacks_count += count;
    return first;
}

static bool is_same(const struct mr_profile *profile, const struct mr_profile_entry *entry,
                    const struct mr_profile_entry *wanted, const uint32_t *locations)
{
    return entry->thread == wanted->thread && entry->table == wanted->table &&
           entry->stack_count == wanted->stack_count &&
           memcmp(profile->stacks + entry->stack_first, locations,
                  sizeof(uint32_t) * entry->stack_count) == 0;
}

static struct mr_profile_entry *
find_or_add(struct mr_profile *profile, struct mr_profile_entry wanted, const uint32_t *locations)
{
    uint64_t hash = hash_of(locations, wanted.stack_count, wanted.thread, wanted.table);
    uint32_t at = 0;
    uint32_t number;
    do {
        number = mr_index_next(&profile->by_stack, hash, &at);
    } while (number != MR_INDEX_NONE &&
             !is_same(profile, &profile->entries[number], &wanted, locations));
    if (number == MR_INDEX_NONE && profile->count < ENTRIES_MAX) {
        number = mr_index_add(&profile->by_stack, hash);
        MR_GROW(profile->entries, profile->room, ++profile->count);
        wanted.stack_first = keep_stack(profile, locations, wanted.stack_count);
        profile->entries[number] = wanted;
    }
    return number == MR_INDEX_NONE ? NULL : &profile->entries[number];
}

void mr_profile_add(struct mr_profile *profile, const uint32_t *locations, uint32_t count,
                    uint32_t thread, uint32_t table, enum mr_thread_role role,
                    const int64_t values[MR_PROFILE_VALUES])
{
    struct mr_profile_entry wanted = {
        .stack_count = count,
        .thread = thread,
        .table = table,
        .role = role,
    };
    struct mr_profile_entry *entry = find_or_add(profile, wanted, locations);
    if (entry == NULL) {
        profile->dropped++;
        return;
    }
    for (int i = 0; i < MR_PROFILE_VALUES; i++) {
        entry->values[i] += values[i];
    }
}

void mr_profile_merge(struct mr_profile *profile, const struct mr_profile *from, int sign)
{
    for (uint32_t i = 0; i < from->count; i++) {
        const struct mr_profile_entry *entry = &from->entries[i];
        int64_t values[MR_PROFILE_VALUES];
        for (int v = 0; v < MR_PROFILE_VALUES; v++) {
            values[v] = sign * entry->values[v];
        }
        mr_profile_add(profile, from->stacks + entry->stack_first, entry->stack_count,
                       entry->thread, entry->table, entry->role, values);
    }
    profile->period = from->period;
    if (sign > 0) {
        profile->samples += from->samples;
        profile->rooted += from->rooted;
        profile->truncated += from->truncated;
        profile->lost += from->lost;
        profile->dropped += from->dropped;
    }
}

/* ---- values ---- */

static const struct {
    const char *name, *unit;
} value_types[][MR_PROFILE_VALUES] = {
    [MR_PROFILE_CPU] = {{"samples", "count"}, {"cpu", "nanoseconds"}},
    [MR_PROFILE_HEAP] = {{"alloc_objects", "count"},
                         {"alloc_space", "bytes"},
                         {"inuse_objects", "count"},
                         {"inuse_space", "bytes"}},
};

uint32_t mr_profile_value_count(enum mr_profile_kind kind)
{
    return kind == MR_PROFILE_HEAP ? 4 : 2;
}

const char *mr_profile_value_name(enum mr_profile_kind kind, uint32_t value)
{
    return value_types[kind][value].name;
}

const char *mr_profile_value_unit(enum mr_profile_kind kind, uint32_t value)
{
    return value_types[kind][value].unit;
}

int mr_profile_value_find(enum mr_profile_kind kind, const char *name)
{
    for (uint32_t i = 0; i < mr_profile_value_count(kind); i++) {
        if (strcmp(value_types[kind][i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* ---- stages and frames ---- */

static enum mr_stage stage_of_role(enum mr_thread_role role)
{
    static const enum mr_stage stages[MR_THREAD_ROLES] = {
        [MR_THREAD_MAIN] = MR_STAGE_OTHER,        [MR_THREAD_SOURCE] = MR_STAGE_RECEIVE,
        [MR_THREAD_SINK] = MR_STAGE_PRODUCE,      [MR_THREAD_KAFKA] = MR_STAGE_FLUSH,
        [MR_THREAD_HTTP] = MR_STAGE_HTTP,         [MR_THREAD_MONITOR] = MR_STAGE_OTHER,
        [MR_THREAD_PROFILER] = MR_STAGE_PROFILER,
    };
    return stages[role];
}

/* The stage that the innermost frame to name one names, or MR_STAGE_NONE. Where memory is asked for is a stage of its own
 * only for who asks for that. */
static enum mr_stage stage_of_frames(const struct mr_profile *profile,
                                     const struct mr_profile_entry *entry, bool with_malloc)
{
    for (uint32_t i = 0; i < entry->stack_count; i++) {
        const struct mr_location *location =
            mr_symbols_get(profile->stacks[entry->stack_first + i]);
        for (uint32_t f = 0; f < location->frame_count; f++) {
            const char *name = mr_symbols_text(location->frames[f].function);
            enum mr_stage stage = mr_flame_stage_of(mr_slice_of(name), MR_STAGE_NONE);
            if (stage != MR_STAGE_NONE && (stage != MR_STAGE_MALLOC || with_malloc)) {
                return stage;
            }
        }
    }
    return MR_STAGE_NONE;
}

/* What the profiler asked memory for, in whichever thread: reading DWARF takes more than millrace itself. */
static bool is_profilers(const struct mr_profile *profile, const struct mr_profile_entry *entry)
{
    static const char *const prefixes[] = {"mr_symbols_", "mr_profile", "mr_heap_",
                                           "mr_output_",  "mr_flame_",  "mr_sampler_"};
    for (uint32_t i = 0; i < entry->stack_count; i++) {
        const struct mr_location *location =
            mr_symbols_get(profile->stacks[entry->stack_first + i]);
        for (uint32_t f = 0; f < location->frame_count; f++) {
            const char *name = mr_symbols_text(location->frames[f].function);
            for (size_t p = 0; p < MR_ARRAY_LEN(prefixes); p++) {
                if (strncmp(name, prefixes[p], strlen(prefixes[p])) == 0) {
                    return true;
                }
            }
        }
    }
    return false;
}

enum mr_stage mr_profile_stage(const struct mr_profile *profile,
                               const struct mr_profile_entry *entry)
{
    if (profile->kind == MR_PROFILE_HEAP && is_profilers(profile, entry)) {
        return MR_STAGE_PROFILER;
    }
    /* Only our own threads change their stage by function. */
    bool varies = entry->role == MR_THREAD_SOURCE || entry->role == MR_THREAD_SINK;
    enum mr_stage stage = varies ? stage_of_frames(profile, entry, false) : MR_STAGE_NONE;
    return stage != MR_STAGE_NONE ? stage : stage_of_role(entry->role);
}

bool mr_profile_is_in(const struct mr_profile *profile, const struct mr_profile_entry *entry,
                      enum mr_stage stage)
{
    return stage == MR_STAGE_MALLOC ? stage_of_frames(profile, entry, true) == MR_STAGE_MALLOC
                                    : mr_profile_stage(profile, entry) == stage;
}

void mr_profile_name(const char *function, const char *object, char *to, size_t size)
{
    size_t len = strlen(object);
    bool is_program = strstr(object, ".so") == NULL && object[0] != '[';
    if (function[0] == '\0') {
        snprintf(to, size, "[%s]", len == 0 ? "unknown" : object);
    } else if (strncmp(function, object, len) == 0 && function[len] == '!') {
        snprintf(to, size, "%s [%s]", function + len + 1, object);
    } else if (is_program) {
        snprintf(to, size, "%s", function);
    } else {
        snprintf(to, size, "%s [%s]", function, object);
    }
}

void mr_profile_frame_name(const struct mr_location *location, uint32_t frame, char *to,
                           size_t size)
{
    mr_profile_name(
        frame < location->frame_count ? mr_symbols_text(location->frames[frame].function) : "",
        mr_symbols_object(location), to, size);
}

void mr_profile_filter(struct mr_profile *profile, const char *thread, enum mr_stage stage)
{
    for (uint32_t i = 0; i < profile->count; i++) {
        struct mr_profile_entry *entry = &profile->entries[i];
        bool stays = (thread == NULL || strcmp(mr_symbols_text(entry->thread), thread) == 0) &&
                     (stage == MR_STAGE_NONE || mr_profile_is_in(profile, entry, stage));
        if (!stays) {
            memset(entry->values, 0, sizeof(entry->values));
        }
    }
}

void mr_profile_leave_out(struct mr_profile *profile, enum mr_stage stage)
{
    for (uint32_t i = 0; i < profile->count; i++) {
        if (mr_profile_is_in(profile, &profile->entries[i], stage)) {
            memset(profile->entries[i].values, 0, sizeof(profile->entries[i].values));
        }
    }
}

/* ---- flame graph ---- */

enum { FRAME_NAME_MAX = 256 };
struct frame_name {
    char text[FRAME_NAME_MAX];
};

/* From the root up: what stands at the root, then the frames from the outermost in. Answers how many. */
static size_t frame_names(const struct mr_profile *profile, const struct mr_profile_entry *entry,
                          enum mr_profile_root root, struct frame_name *names, size_t room)
{
    size_t count = 0;
    if (root != MR_PROFILE_ROOT_NONE) {
        snprintf(names[count++].text, FRAME_NAME_MAX, "%s",
                 root == MR_PROFILE_ROOT_THREAD ? mr_symbols_text(entry->thread)
                                                : mr_stage_name(mr_profile_stage(profile, entry)));
    }
    for (uint32_t i = entry->stack_count; i-- > 0;) {
        const struct mr_location *location =
            mr_symbols_get(profile->stacks[entry->stack_first + i]);
        uint32_t frames = location->frame_count == 0 ? 1 : location->frame_count;
        for (uint32_t f = frames; f-- > 0 && count < room;) {
            mr_profile_frame_name(location, f, names[count++].text, FRAME_NAME_MAX);
        }
    }
    return count;
}

struct mr_flame *mr_profile_flame(const struct mr_profile *profile, uint32_t value,
                                  enum mr_profile_root root)
{
    struct mr_flame *flame = mr_flame_new();
    struct frame_name *names = MR_NEW_ARRAY(struct frame_name, MR_FLAME_DEPTH_MAX);
    mr_slice slices[MR_FLAME_DEPTH_MAX];
    for (uint32_t i = 0; i < profile->count; i++) {
        const struct mr_profile_entry *entry = &profile->entries[i];
        if (entry->values[value] <= 0) {
            continue;
        }
        size_t count = frame_names(profile, entry, root, names, MR_FLAME_DEPTH_MAX);
        for (size_t n = 0; n < count; n++) {
            slices[n] = mr_slice_of(names[n].text);
        }
        mr_flame_add(flame, MR_FLAME_BEFORE, slices, count, (uint64_t)entry->values[value]);
    }
    free(names);
    return flame;
}
