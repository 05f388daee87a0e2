#include "profiler/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static mr_status write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t written = write(fd, bytes, len);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return MR_ERR_SYSTEM;
        }
        bytes += written;
        len -= (size_t)written;
    }
    return MR_OK;
}

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
    /* Function names and call counts are nobody else's business. */
    /* Where others may write to the folder, a link put there must not lead elsewhere. */
    unlink(temporary);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (fd < 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "\"%s\" can't be written: %s", temporary,
                       strerror(errno));
    }
    mr_status status = write_all(fd, bytes, len);
    int error_number = errno;
    close(fd);
    if (status == MR_OK && rename(temporary, path) != 0) {
        error_number = errno;
        status = MR_ERR_SYSTEM;
    }
    if (status != MR_OK) {
        unlink(temporary);
        return mr_fail(ret_error, status, "\"%s\" can't be written: %s", path,
                       strerror(error_number));
    }
    return MR_OK;
}

mr_status mr_file_check_folder(const char *folder, const char *option, struct mr_error *ret_error)
{
    if (folder[0] == '\0' || access(folder, W_OK | X_OK) == 0) {
        return MR_OK;
    }
    int failed = errno;
    char *copy = MR_STRDUP(folder);
    bool can_be_made = failed == ENOENT && access(dirname(copy), W_OK | X_OK) == 0;
    free(copy);
    return can_be_made
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG,
                         "the folder for profiles, \"%s\", can't be written: %s; give it to "
                         "millrace's user, or name another in %s",
                         folder, strerror(failed), option);
}

mr_status mr_file_make_folder(const char *folder, const char *option, struct mr_error *ret_error)
{
    if (mkdir(folder, 0750) != 0 && errno != EEXIST) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "the folder for profiles, \"%s\", can't be made: %s; make it, or name "
                       "another in %s",
                       folder, strerror(errno), option);
    }
    if (access(folder, W_OK | X_OK) != 0) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "the folder for profiles, \"%s\", can't be written: %s; give it to "
                       "millrace's user, or name another in %s",
                       folder, strerror(errno), option);
    }
    return MR_OK;
}
