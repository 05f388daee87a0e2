#include "profiler/heap.h"

#include <inttypes.h>
#include <math.h>
#include <sys/mman.h>

#include "base/jemalloc.h"

enum { THREADS_MAX = 256 };

static bool read_flag(const char *name)
{
    bool value = false;
    size_t len = sizeof(value);
    return mallctl != NULL && mallctl(name, &value, &len, NULL, 0) == 0 && value;
}

mr_status mr_heap_available(struct mr_error *ret_error)
{
    if (mallctl == NULL) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "heap profiles need jemalloc, and this millrace was built without it; "
                       "build with -DMILLRACE_JEMALLOC=ON");
    }
    if (!read_flag("config.prof")) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "the jemalloc that is linked has no heap profiles (Debian's for arm64 has "
                       "none); leave profiling.heap out, or link one made with --enable-prof");
    }
    if (!read_flag("opt.prof")) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "jemalloc was started without heap profiling; take prof:false out of the "
                       "environment variable MALLOC_CONF");
    }
    return MR_OK;
}

bool mr_heap_is_active(void)
{
    return read_flag("prof.active");
}

static mr_status answer_of(int failed, const char *what, struct mr_error *ret_error)
{
    return failed == 0
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_SYSTEM, "jemalloc %s: %s", what, strerror(failed));
}

mr_status mr_heap_set_active(bool active, struct mr_error *ret_error)
{
    MR_TRY(mr_heap_available(ret_error));
    return answer_of(mallctl("prof.active", NULL, NULL, &active, sizeof(active)),
                     "does not switch heap profiling", ret_error);
}

mr_status mr_heap_reset(uint32_t lg_sample, struct mr_error *ret_error)
{
    MR_TRY(mr_heap_available(ret_error));
    size_t power = lg_sample;
    bool is_given = lg_sample != 0;
    return answer_of(
        mallctl("prof.reset", NULL, NULL, is_given ? &power : NULL, is_given ? sizeof(power) : 0),
        "does not forget its samples", ret_error);
}

void mr_heap_name_thread(const char *name)
{
    if (mallctl != NULL) {
        mallctl("thread.prof.name", NULL, NULL, (void *)&name, sizeof(name));
    }
}

/* heap_v2/<mean bytes between samples>
 *   t*: <objects>: <bytes> [<all objects>: <all bytes>]      the whole process
 *   t<number>: … <name of the thread>
 * @ <return address> …                                       then, for each stack, innermost first
 *   t*: …
 *   t<number>: …                                             what that thread has allocated there
 * MAPPED_LIBRARIES: */
struct dump {
    double rate;
    struct mr_profile *profile;
    struct {
        uint64_t number;
        uint32_t name; /* texts */
    } threads[THREADS_MAX];
    uint32_t thread_count;
    struct mr_stack stack;
};

struct counts {
    uint64_t number; /* of the thread */
    uint64_t inuse_objects, inuse_bytes, all_objects, all_bytes;
    char name[32];
};

/* False for the whole process's line too: threads add up to it. */
static bool parse_counts(const char *line, struct counts *ret)
{
    *ret = (struct counts){0};
    return sscanf(line, " t%" SCNu64 ": %" SCNu64 ": %" SCNu64 " [%" SCNu64 ": %" SCNu64 "] %31s",
                  &ret->number, &ret->inuse_objects, &ret->inuse_bytes, &ret->all_objects,
                  &ret->all_bytes, ret->name) >= 5;
}

/* A small object is seen less often than a large one; this takes the bias out (jeprof does the
 * same). */
static double unbias(const struct dump *dump, uint64_t objects, uint64_t bytes)
{
    if (objects == 0 || bytes == 0 || dump->rate <= 1) {
        return 1;
    }
    return 1 / (1 - exp(-((double)bytes / (double)objects) / dump->rate));
}

static uint32_t thread_name(const struct dump *dump, uint64_t number)
{
    for (uint32_t i = 0; i < dump->thread_count; i++) {
        if (dump->threads[i].number == number) {
            return dump->threads[i].name;
        }
    }
    return mr_symbols_intern("thread");
}

static void heap_add_counts(struct dump *dump, const struct counts *counts)
{
    double inuse = unbias(dump, counts->inuse_objects, counts->inuse_bytes);
    double all = unbias(dump, counts->all_objects, counts->all_bytes);
    struct mr_profile_entry entry = {
        .stack_count = dump->stack.count,
        .thread = thread_name(dump, counts->number),
        .values = {llround(all * (double)counts->all_objects),
                   llround(all * (double)counts->all_bytes),
                   llround(inuse * (double)counts->inuse_objects),
                   llround(inuse * (double)counts->inuse_bytes)},
    };
    mr_profile_add(dump->profile, dump->stack.locations, &entry);
    dump->profile->samples += counts->all_objects;
}

/* Where jemalloc asks itself for the stack says nothing. */
static void parse_stack(struct dump *dump, const char *line)
{
    dump->stack.count = 0;
    char *end;
    for (const char *at = line + 1; dump->stack.count < MR_STACK_FRAMES_MAX; at = end) {
        uint64_t address = strtoull(at, &end, 16);
        if (end == at) {
            break;
        }
        uint32_t location = mr_symbols_location(address, true);
        if (dump->stack.count > 0 ||
            strstr(mr_symbols_object(mr_symbols_get(location)), "jemalloc") == NULL) {
            dump->stack.locations[dump->stack.count++] = location;
        }
    }
}

static void parse_lines(struct dump *dump, FILE *from)
{
    MR_FREED char *line = NULL;
    size_t room = 0;
    bool in_stack = false;
    while (getline(&line, &room, from) > 0 && strncmp(line, "MAPPED_LIBRARIES", 16) != 0) {
        struct counts counts;
        if (line[0] == '@') {
            in_stack = true;
            parse_stack(dump, line);
        } else if (parse_counts(line, &counts)) {
            if (in_stack) {
                heap_add_counts(dump, &counts);
            } else if (dump->thread_count < THREADS_MAX && counts.name[0] != '\0') {
                dump->threads[dump->thread_count].number = counts.number;
                dump->threads[dump->thread_count++].name = mr_symbols_intern(counts.name);
            }
        }
    }
}

mr_status mr_heap_parse(FILE *from, struct mr_profile *ret, struct mr_error *ret_error)
{
    char head[64] = "";
    uint64_t rate = 0;
    if (fgets(head, sizeof(head), from) == NULL || sscanf(head, "heap_v2/%" SCNu64, &rate) != 1) {
        return mr_fail(ret_error, MR_ERR_SYSTEM,
                       "jemalloc's dump has a form that is not known here (\"%.*s\"); millrace "
                       "reads heap_v2, as jemalloc 5 writes it",
                       (int)strcspn(head, "\n"), head);
    }
    MR_FREED struct dump *dump = MR_NEW(struct dump);
    dump->rate = (double)rate;
    dump->profile = ret;
    mr_profile_init(ret, MR_PROFILE_HEAP);
    ret->period = (int64_t)rate;
    mr_symbols_lock();
    parse_lines(dump, from);
    mr_symbols_unlock();
    ret->rooted = ret->samples;
    return MR_OK;
}

/* jemalloc writes to a file by name; this one is only in memory. */
mr_status mr_heap_profile(struct mr_profile *ret, struct mr_error *ret_error)
{
    MR_TRY(mr_heap_available(ret_error));
    int fd = memfd_create("heap", MFD_CLOEXEC);
    if (fd < 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "no memory for a heap profile: %s",
                       strerror(errno));
    }
    FILE *file = fdopen(fd, "r");
    MR_ASSERT(file != NULL);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const char *name = path;
    mr_status status = answer_of(mallctl("prof.dump", NULL, NULL, (void *)&name, sizeof(name)),
                                 "can't write its profile", ret_error);
    status = MR_THEN(status, mr_heap_parse(file, ret, ret_error));
    fclose(file);
    return status;
}
