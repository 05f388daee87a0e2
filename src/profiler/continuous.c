#include "profiler/continuous.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "profiler/draw/flame.h"
#include "profiler/file.h"
#include "profiler/output.h"

/* ---- retention ---- */

struct kept {
    char name[NAME_MAX + 1];
    uint64_t bytes;
};

/* Names hold the time, so their order is their age. Only names of our own form are ever removed. */
static bool is_ours(const char *name, const char *prefix, const char *suffix)
{
    size_t len = strlen(name);
    size_t suffix_len = strlen(suffix);
    return strncmp(name, prefix, strlen(prefix)) == 0 && len > suffix_len &&
           strcmp(name + len - suffix_len, suffix) == 0;
}

static bool is_kept(const char *name)
{
    return is_ours(name, "profile-", ".pb.gz") || is_ours(name, "flamegraph-", ".svg");
}

/* What a process that was killed while it wrote has left; mr_file_write_whole names it so. */
static bool is_half_written(const char *name)
{
    return is_ours(name, ".profile-", ".pb.gz.part") || is_ours(name, ".flamegraph-", ".svg.part");
}

static int by_age(const void *a, const void *b)
{
    const struct kept *left = a;
    const struct kept *right = b;
    return strcmp(strchr(left->name, '-'), strchr(right->name, '-'));
}

static struct kept *list_kept(const char *folder, size_t *ret_count)
{
    struct kept *kept = NULL;
    size_t count = 0;
    DIR *files = opendir(folder);
    const struct dirent *entry;
    while (files != NULL && (entry = readdir(files)) != NULL) {
        struct stat about;
        if (!is_kept(entry->d_name) ||
            fstatat(dirfd(files), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        kept = MR_REALLOC(kept, sizeof(*kept) * (count + 1));
        snprintf(kept[count].name, sizeof(kept[count].name), "%s", entry->d_name);
        kept[count++].bytes = (uint64_t)about.st_size;
    }
    if (files != NULL) {
        closedir(files);
    }
    if (count > 0) {
        qsort(kept, count, sizeof(*kept), by_age);
    }
    *ret_count = count;
    return kept;
}

/* Removes the oldest until both limits hold. Two files an interval. */
static void remove_old(const struct mr_profiler_options *options)
{
    size_t count;
    struct kept *kept = list_kept(options->path, &count);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += kept[i].bytes;
    }
    size_t left = count;
    for (size_t i = 0; i < count; i++) {
        bool too_many = options->keep_count > 0 && left > 2 * (size_t)options->keep_count;
        bool too_much = options->keep_bytes > 0 && bytes > options->keep_bytes && left > 2;
        if (!too_many && !too_much) {
            break;
        }
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", options->path, kept[i].name);
        unlink(path);
        bytes -= kept[i].bytes;
        left--;
    }
    free(kept);
}

static void remove_half_written(const char *folder)
{
    DIR *files = opendir(folder);
    const struct dirent *entry;
    while (files != NULL && (entry = readdir(files)) != NULL) {
        if (is_half_written(entry->d_name)) {
            unlinkat(dirfd(files), entry->d_name, 0);
        }
    }
    if (files != NULL) {
        closedir(files);
    }
}

mr_status mr_continuous_check(const struct mr_profiler_options *options, struct mr_error *ret_error)
{
    MR_TRY(mr_file_make_folder(options->path, "profiling.path", ret_error));
    remove_half_written(options->path);
    return MR_OK;
}

/* ---- one interval ---- */

static mr_status write_picture(const struct mr_profiler_options *options,
                               const struct mr_profile *profile, const char *when,
                               struct mr_error *ret_error)
{
    struct mr_flame_drawing drawing = {.title = options->name};
    size_t len;
    char *picture = mr_output_flamegraph(profile, 1, MR_PROFILE_ROOT_THREAD, &drawing, &len);
    char name[80];
    snprintf(name, sizeof(name), "flamegraph-%s.svg", when);
    mr_status status = mr_file_write_whole(options->path, name, picture, len, ret_error);
    free(picture);
    return status;
}

mr_status mr_continuous_end(const struct mr_profiler_options *options,
                            const struct mr_profile *profile)
{
    mr_profiler_name_all();
    time_t seconds = (time_t)(profile->start_wall_ns / 1000000000);
    struct tm utc;
    char when[40];
    strftime(when, sizeof(when), "%Y-%m-%d-%H_%M_%S", gmtime_r(&seconds, &utc));
    char name[80];
    struct mr_error error;
    snprintf(name, sizeof(name), "profile-%s.pb.gz", when);
    size_t len;
    uint8_t *packed = mr_output_pprof(profile, &len);
    mr_status status = mr_file_write_whole(options->path, name, packed, len, &error);
    free(packed);
    if (status == MR_OK) {
        status = write_picture(options, profile, when, &error);
    }
    if (status != MR_OK) {
        mr_log(MR_LOG_WARN, "profile_not_written", error.text);
    }
    remove_old(options);
    return status;
}
