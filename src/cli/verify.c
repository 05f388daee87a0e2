/* millrace-verify, which is a program of its own: beside this one, or in PATH. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define PROGRAM "millrace-verify"
/* Its folder, and the reason, follow. */
#define MISSING                                                                                    \
    PROGRAM " is neither in %s nor in PATH: %s; it comes in millrace's packages and image, and "   \
            "belongs beside millrace"

struct place {
    char folder[PATH_MAX]; /* this program's */
    char *path; /* of the other one, malloc'ed; where it is not beside us, its name for PATH */
};

static struct place verify_place(void)
{
    char self[PATH_MAX];
    struct place place;
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    /* Without /proc no folder is known, and the current one, which dirname says of "", is
     * anybody's. */
    self[len < 0 ? 0 : len] = '\0';
    snprintf(place.folder, sizeof(place.folder), "%s",
             len < 0 ? "millrace's folder" : dirname(self));
    place.path = mr_formatted("%s/" PROGRAM, place.folder);
    if (len < 0 || access(place.path, X_OK) != 0) {
        free(place.path);
        place.path = MR_STRDUP(PROGRAM);
    }
    return place;
}

int mr_cli_verify(char **argv)
{
    struct place place = verify_place();
    for (char **word = &argv[optind - 1]; *word != NULL; word++) {
        word[0] = word[1];
    }
    argv[0] = place.path;
    execvp(place.path, argv);
    fprintf(stderr, "millrace: " MISSING "\n", place.folder, strerror(errno));
    free(place.path);
    return mr_status_exit_code(MR_ERR_SYSTEM);
}

mr_status mr_cli_verify_start(const char *const *arguments, char *const *environment, int *ret_pid,
                              int *ret_out, struct mr_error *ret_error)
{
    int fds[2] = {-1, -1};
    struct place place = verify_place();
    sigset_t none;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_init(&actions);
    int failed = ret_out != NULL && pipe2(fds, O_CLOEXEC) != 0 ? errno : 0;
    if (fds[1] >= 0) {
        posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    }
    failed = failed != 0 ? failed
                         : posix_spawnp(ret_pid, place.path, &actions, &attributes,
                                        (char *const *)(uintptr_t)arguments,
                                        environment == NULL ? environ : environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    free(place.path);
    if (fds[1] >= 0) {
        close(fds[1]);
    }
    if (failed != 0) {
        if (fds[0] >= 0) {
            close(fds[0]);
        }
        return mr_fail(ret_error, MR_ERR_SYSTEM, MISSING, place.folder, strerror(failed));
    }
    if (ret_out != NULL) {
        *ret_out = fds[0];
    }
    return MR_OK;
}
