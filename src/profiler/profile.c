#include "profiler/profile.h"

#include <inttypes.h>

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

static uint64_t hash_of(const uint32_t *locations, uint32_t count, uint32_t thread, uint32_t table)
{
    uint64_t hash = mr_hash_number(mr_hash_number(count, thread), table);
    for (uint32_t i = 0; i < count; i++) {
        hash = mr_hash_number(hash, locations[i]);
    }
    return hash;
}

static bool profiler_profile_is_same(const struct mr_profile *profile,
                                     const struct mr_profile_entry *entry,
                                     const struct mr_profile_entry *wanted,
                                     const uint32_t *locations)
{
    return entry->thread == wanted->thread && entry->table == wanted->table &&
           entry->stack_count == wanted->stack_count &&
           memcmp(profile->stacks + entry->stack_first, locations,
                  sizeof(uint32_t) * entry->stack_count) == 0;
}

/* The entry's number, or MR_INDEX_NONE: the profile is full. */
static uint32_t find_or_add(struct mr_profile *profile, const uint32_t *locations,
                            const struct mr_profile_entry *wanted)
{
    uint64_t hash = hash_of(locations, wanted->stack_count, wanted->thread, wanted->table);
    uint32_t number;
    MR_INDEX_FIND(number, &profile->by_stack, hash,
                  profiler_profile_is_same(profile, &profile->entries[number], wanted, locations));
    if (number == MR_INDEX_NONE && profile->count < ENTRIES_MAX) {
        number = mr_index_add(&profile->by_stack, hash);
        MR_GROW(profile->entries, profile->room, ++profile->count);
        profile->entries[number] = *wanted;
        profile->entries[number].stack_first = profile->stacks_count;
        memset(profile->entries[number].values, 0, sizeof(wanted->values));
        MR_GROW(profile->stacks, profile->stacks_room,
                (size_t)profile->stacks_count + wanted->stack_count);
        for (uint32_t i = 0; i < wanted->stack_count; i++) {
            profile->stacks[profile->stacks_count++] = locations[i];
        }
    }
    return number;
}

void mr_profile_add(struct mr_profile *profile, const uint32_t *locations,
                    const struct mr_profile_entry *added)
{
    uint32_t number = find_or_add(profile, locations, added);
    if (number == MR_INDEX_NONE) {
        profile->dropped++;
        return;
    }
    for (int i = 0; i < MR_PROFILE_VALUES; i++) {
        profile->entries[number].values[i] += added->values[i];
    }
}

void mr_profile_merge(struct mr_profile *profile, const struct mr_profile *from, int sign)
{
    for (uint32_t i = 0; i < from->count; i++) {
        struct mr_profile_entry entry = from->entries[i];
        for (int v = 0; v < MR_PROFILE_VALUES; v++) {
            entry.values[v] *= sign;
        }
        mr_profile_add(profile, from->stacks + entry.stack_first, &entry);
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

const struct mr_profile_values mr_profile_values[] = {
    [MR_PROFILE_CPU] = {2, {{"samples", "count"}, {"cpu", "nanoseconds"}}},
    [MR_PROFILE_HEAP] = {4,
                         {{"alloc_objects", "count"},
                          {"alloc_space", "bytes"},
                          {"inuse_objects", "count"},
                          {"inuse_space", "bytes"}}},
};

typedef enum mr_stage (*frame_fn)(const char *function);

/* What the innermost frame answers that does not answer MR_STAGE_NONE. */
static enum mr_stage ask_frames(const struct mr_profile *profile,
                                const struct mr_profile_entry *entry, frame_fn ask)
{
    for (uint32_t i = 0; i < entry->stack_count; i++) {
        const struct mr_location *location =
            mr_symbols_get(profile->stacks[entry->stack_first + i]);
        for (uint32_t f = 0; f < location->frame_count; f++) {
            enum mr_stage stage = ask(mr_symbols_text(location->frames[f].function));
            if (stage != MR_STAGE_NONE) {
                return stage;
            }
        }
    }
    return MR_STAGE_NONE;
}

static enum mr_stage stage_named(const char *function)
{
    return mr_flame_stage_of(mr_slice_of(function), MR_STAGE_NONE);
}

/* The same, where the allocator is no stage of its own: its time is its caller's. */
static enum mr_stage stage_of_caller(const char *function)
{
    enum mr_stage stage = stage_named(function);
    return stage == MR_STAGE_MALLOC ? MR_STAGE_NONE : stage;
}

/* What the profiler asked memory for, in whichever thread: reading DWARF takes more than millrace
 * itself. */
static enum mr_stage profilers(const char *function)
{
    return mr_is_among("mr_symbols_*|mr_profile*|mr_heap_*|mr_flame_*|mr_sampler_*",
                       mr_slice_of(function))
               ? MR_STAGE_PROFILER
               : MR_STAGE_NONE;
}

enum mr_stage mr_profile_stage(const struct mr_profile *profile,
                               const struct mr_profile_entry *entry)
{
    enum mr_stage of_thread =
        mr_flame_stage_of(mr_slice_of(mr_symbols_text(entry->thread)), MR_STAGE_OTHER);
    enum mr_stage stage = MR_STAGE_NONE;
    if (profile->kind == MR_PROFILE_HEAP) {
        stage = ask_frames(profile, entry, profilers);
    }
    /* Only the threads of the flow change their stage by function. */
    bool varies = of_thread == MR_STAGE_RECEIVE || of_thread == MR_STAGE_PRODUCE;
    if (stage == MR_STAGE_NONE && varies) {
        stage = ask_frames(profile, entry, stage_of_caller);
    }
    return stage != MR_STAGE_NONE ? stage : of_thread;
}

static bool is_in(const struct mr_profile *profile, const struct mr_profile_entry *entry,
                  enum mr_stage stage)
{
    return stage == MR_STAGE_MALLOC ? ask_frames(profile, entry, stage_named) == MR_STAGE_MALLOC
                                    : mr_profile_stage(profile, entry) == stage;
}

/* "function", "function [library.so]", or "[library.so]" (of a function without a name), as draw/
 * reads it. */
static void write_name(const char *function, const char *object, char *to, size_t size)
{
    bool is_program = strstr(object, ".so") == NULL && object[0] != '[';
    if (function[0] == '\0') {
        snprintf(to, size, "[%s]", object[0] == '\0' ? "unknown" : object);
    } else if (is_program) {
        snprintf(to, size, "%s", function);
    } else {
        snprintf(to, size, "%s [%s]", function, object);
    }
}

void mr_profile_filter(struct mr_profile *profile, const char *thread, enum mr_stage stage)
{
    for (uint32_t i = 0; i < profile->count; i++) {
        struct mr_profile_entry *entry = &profile->entries[i];
        bool is_ours = profile->kind == MR_PROFILE_HEAP && stage != MR_STAGE_PROFILER &&
                       is_in(profile, entry, MR_STAGE_PROFILER);
        bool stays = !is_ours &&
                     (thread == NULL || strcmp(mr_symbols_text(entry->thread), thread) == 0) &&
                     (stage == MR_STAGE_NONE || is_in(profile, entry, stage));
        if (!stays) {
            memset(entry->values, 0, sizeof(entry->values));
        }
    }
}

void mr_table_times_add(struct mr_table_times *times, const char *name, uint64_t cpu_ns)
{
    uint32_t i = 0;
    while (i < times->count && strcmp(times->tables[i].name, name) != 0) {
        i++;
    }
    if (i == MR_TABLE_TIMES_MAX) {
        i--;
    } else if (i == times->count) {
        snprintf(times->tables[i].name, sizeof(times->tables[i].name), "%s",
                 i == MR_TABLE_TIMES_MAX - 1 ? "other" : name);
        times->count++;
    }
    times->tables[i].cpu_ns += cpu_ns;
}

enum { FRAME_NAME_MAX = 256 };
struct frame_names {
    char texts[MR_FLAME_DEPTH_MAX][FRAME_NAME_MAX];
    mr_slice slices[MR_FLAME_DEPTH_MAX];
    size_t count;
};

static char *profiler_profile_next_name(struct frame_names *names)
{
    return names->texts[names->count++];
}

/* From the root up: what stands at the root, then the frames from the outermost in. */
static void name_frames(const struct mr_profile *profile, const struct mr_profile_entry *entry,
                        enum mr_profile_root root, struct frame_names *names)
{
    names->count = 0;
    if (root != MR_PROFILE_ROOT_NONE) {
        snprintf(profiler_profile_next_name(names), FRAME_NAME_MAX, "%s",
                 root == MR_PROFILE_ROOT_THREAD ? mr_symbols_text(entry->thread)
                                                : mr_stage_name(mr_profile_stage(profile, entry)));
    }
    for (uint32_t i = entry->stack_count; i-- > 0;) {
        const struct mr_location *location =
            mr_symbols_get(profile->stacks[entry->stack_first + i]);
        uint32_t frames = location->frame_count == 0 ? 1 : location->frame_count;
        for (uint32_t f = frames; f-- > 0 && names->count < MR_FLAME_DEPTH_MAX;) {
            uint32_t function = f < location->frame_count ? location->frames[f].function : 0;
            write_name(mr_symbols_text(function), mr_symbols_object(location),
                       profiler_profile_next_name(names), FRAME_NAME_MAX);
        }
    }
    for (size_t i = 0; i < names->count; i++) {
        names->slices[i] = mr_slice_of(names->texts[i]);
    }
}

static struct mr_flame *profiler_profile_flame_of(const struct mr_profile *profile, uint32_t value,
                                                  enum mr_profile_root root)
{
    struct mr_flame *flame = mr_flame_new();
    MR_FREED struct frame_names *names = MR_NEW(struct frame_names);
    mr_symbols_lock();
    for (uint32_t i = 0; i < profile->count; i++) {
        const struct mr_profile_entry *entry = &profile->entries[i];
        if (entry->values[value] > 0) {
            name_frames(profile, entry, root, names);
            mr_flame_add(flame, MR_FLAME_BEFORE, names->slices, names->count,
                         (uint64_t)entry->values[value]);
        }
    }
    mr_symbols_unlock();
    return flame;
}

char *mr_profile_svg(const struct mr_profile *profile, uint32_t value, enum mr_profile_root root,
                     const struct mr_flame_drawing *drawing, size_t *ret_len)
{
    struct mr_flame *flame = profiler_profile_flame_of(profile, value, root);
    char subtitle[200];
    struct mr_flame_drawing with = *drawing;
    with.subtitle = subtitle;
    with.unit = mr_profile_values[profile->kind].types[value].unit;
    snprintf(subtitle, sizeof(subtitle), "%s, %s; %.1f s, %" PRIu64 " samples, %" PRIu64 " lost",
             mr_profile_values[profile->kind].types[value].name, with.unit,
             (double)profile->duration_ns / 1e9, profile->samples, profile->lost);
    char *picture = mr_flame_svg(flame, &with, ret_len);
    mr_flame_free(flame);
    return picture;
}

char *mr_profile_folded(const struct mr_profile *profile, uint32_t value, enum mr_profile_root root,
                        size_t *ret_len)
{
    struct mr_flame *flame = profiler_profile_flame_of(profile, value, root);
    char *text = mr_flame_folded(flame, MR_FLAME_BEFORE, ret_len);
    mr_flame_free(flame);
    return text;
}
