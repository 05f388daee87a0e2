#include "profiler/profiler.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>
#include <time.h>

#include "profiler/draw/flame.h"

mr_status mr_file_write_whole(const char *folder, const char *name, const void *bytes, size_t len,
                              struct mr_error *ret_error)
{
    char path[PATH_MAX];
    char temporary[PATH_MAX];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >= sizeof(path) ||
        (size_t)snprintf(temporary, sizeof(temporary), "%s/.%s.part", folder, name) >=
            sizeof(temporary)) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "the folder's name \"%s\" is too long", folder);
    }
    /* Where others may write to the folder, a link put there must not lead elsewhere; nor may
     * others read. */
    unlink(temporary);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (fd < 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "\"%s\" can't be written: %s", temporary,
                       strerror(errno));
    }
    FILE *file = fdopen(fd, "w");
    MR_ASSERT(file != NULL);
    bool good =
        fwrite(bytes, 1, len, file) == len && fflush(file) == 0 && rename(temporary, path) == 0;
    int error_number = errno;
    fclose(file);
    if (!good) {
        unlink(temporary);
        return mr_fail(ret_error, MR_ERR_SYSTEM, "\"%s\" can't be written: %s", path,
                       strerror(error_number));
    }
    return MR_OK;
}

mr_status mr_file_check_folder(const char *folder, struct mr_error *ret_error)
{
    if (folder[0] == '\0' || access(folder, W_OK | X_OK) == 0) {
        return MR_OK;
    }
    int failed = errno;
    MR_FREED char *copy = MR_STRDUP(folder);
    bool can_be_made = failed == ENOENT && access(dirname(copy), W_OK | X_OK) == 0;
    return can_be_made
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG,
                         "the folder for profiles, \"%s\", can't be written: %s; give it to "
                         "millrace's user, or name another in profiling.path",
                         folder, strerror(failed));
}

/* Only names of our own form are ever removed. */
static int is_kept(const struct dirent *entry)
{
    return fnmatch("profile-*.pb.gz", entry->d_name, 0) == 0 ||
           fnmatch("flamegraph-*.svg", entry->d_name, 0) == 0;
}

/* What a process that was killed while it wrote has left; mr_file_write_whole names it so. */
static int is_half_written(const struct dirent *entry)
{
    return fnmatch(".profile-*.pb.gz.part", entry->d_name, 0) == 0 ||
           fnmatch(".flamegraph-*.svg.part", entry->d_name, 0) == 0;
}

/* Names hold the time. */
static int newest_first(const struct dirent **left, const struct dirent **right)
{
    return strcmp(strchr((*right)->d_name, '-'), strchr((*left)->d_name, '-'));
}

enum { INTERVAL_FILES = 2 };

/* Removes what there is beyond so many bytes, but not the newest `spared` files. */
static void remove_beyond(const char *folder, int (*filter)(const struct dirent *), int spared,
                          uint64_t bytes)
{
    MR_FREED struct dirent **found = NULL;
    int all = scandir(folder, &found, filter, newest_first);
    uint64_t sum = 0;
    for (int i = 0; i < all; i++) {
        char path[PATH_MAX];
        struct stat about = {0};
        snprintf(path, sizeof(path), "%s/%s", folder, found[i]->d_name);
        lstat(path, &about);
        sum += (uint64_t)about.st_size;
        if (sum >= bytes && i >= spared) {
            unlink(path);
        }
        free(found[i]);
    }
}

mr_status mr_files_begin(const char *folder, struct mr_error *ret_error)
{
    if (mkdir(folder, 0750) != 0 && errno != EEXIST) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "the folder for profiles, \"%s\", can't be made: %s; make it, or name "
                       "another in profiling.path",
                       folder, strerror(errno));
    }
    MR_TRY(mr_file_check_folder(folder, ret_error));
    remove_beyond(folder, is_half_written, 0, 0);
    return MR_OK;
}

static mr_status write_interval(const struct mr_profiler_options *options,
                                const struct mr_profile *profile, const char *when,
                                struct mr_error *ret_error)
{
    char name[80];
    size_t len;
    snprintf(name, sizeof(name), "profile-%s.pb.gz", when);
    MR_FREED uint8_t *packed = mr_profile_pprof(profile, &len);
    MR_TRY(mr_file_write_whole(options->path, name, packed, len, ret_error));
    struct mr_flame_drawing drawing = {.title = "millrace"};
    snprintf(name, sizeof(name), "flamegraph-%s.svg", when);
    MR_FREED char *picture = mr_profile_svg(profile, 1, MR_PROFILE_ROOT_THREAD, &drawing, &len);
    return mr_file_write_whole(options->path, name, picture, len, ret_error);
}

mr_status mr_files_add(const struct mr_profiler_options *options, const struct mr_profile *profile)
{
    mr_profiler_name_all();
    time_t seconds = (time_t)(profile->start_wall_ns / 1000000000);
    struct tm utc;
    char when[40];
    strftime(when, sizeof(when), "%Y-%m-%d-%H_%M_%S", gmtime_r(&seconds, &utc));
    struct mr_error error;
    mr_status status = write_interval(options, profile, when, &error);
    if (status != MR_OK) {
        mr_log(MR_LOG_WARN, "profile_not_written", error.text);
    }
    remove_beyond(options->path, is_kept, INTERVAL_FILES,
                  options->keep_bytes == 0 ? UINT64_MAX : options->keep_bytes);
    return status;
}
