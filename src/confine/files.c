/* Landlock, by its system calls: neither Debian's C library nor another one wraps them. Linux 5.13
 * and later; each version of the interface knows more rights, and a right that it does not know
 * must not be named (kernel's documentation, userspace-api/landlock.rst, "Compatibility"). */
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "confine/confine.h"

/* From include/uapi/linux/landlock.h, which distributions have in the version of their kernel. */
enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446 };
enum { CREATE_RULESET_VERSION = 1, RULE_PATH_BENEATH = 1 };

#define EXECUTE     (UINT64_C(1) << 0)
#define WRITE_FILE  (UINT64_C(1) << 1)
#define READ_FILE   (UINT64_C(1) << 2)
#define READ_DIR    (UINT64_C(1) << 3)
#define REMOVE_DIR  (UINT64_C(1) << 4)
#define REMOVE_FILE (UINT64_C(1) << 5)
#define MAKE_DIR    (UINT64_C(1) << 7)
#define MAKE_REG    (UINT64_C(1) << 8)
#define MAKE_SOCK   (UINT64_C(1) << 9)
#define REFER       (UINT64_C(1) << 13) /* version 2 */
#define TRUNCATE    (UINT64_C(1) << 14) /* version 3 */
#define IOCTL_DEV   (UINT64_C(1) << 15) /* version 5 */

#define OF_A_FILE (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV)

struct ruleset {
    uint64_t fs, net, scoped;
};

struct path_beneath {
    uint64_t access;
    int32_t parent_fd;
} __attribute__((packed));

static uint64_t known_rights(long version)
{
    uint64_t all = (REFER << 1) - 1;
    all &= version < 2 ? ~REFER : UINT64_MAX;
    return all | (version >= 3 ? TRUNCATE : 0) | (version >= 5 ? IOCTL_DEV : 0);
}

static uint64_t rights(unsigned access)
{
    uint64_t rights = 0;
    rights |= access & MR_CONFINE_READ ? READ_FILE | READ_DIR : 0;
    rights |= access & MR_CONFINE_WRITE
                  ? WRITE_FILE | TRUNCATE | MAKE_REG | MAKE_DIR | REMOVE_FILE | REMOVE_DIR | REFER
                  : 0;
    rights |= access & MR_CONFINE_SOCKET ? MAKE_SOCK | REMOVE_FILE : 0;
    return rights | (access & MR_CONFINE_EXECUTE ? EXECUTE : 0);
}

static bool allow(int rules, const struct mr_confine_path *path, uint64_t known)
{
    int fd = open(path->path, O_PATH | O_CLOEXEC);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) {
        return true;
    }
    struct path_beneath beneath = {.access = rights(path->access) & known, .parent_fd = fd};
    if (!S_ISDIR(about.st_mode)) {
        beneath.access &= OF_A_FILE;
    }
    bool good =
        beneath.access == 0 || syscall(ADD_RULE, rules, RULE_PATH_BENEATH, &beneath, 0) == 0;
    close(fd);
    return good;
}

static mr_confined restrict_to(const struct mr_confine_path *paths, size_t count)
{
    long version = syscall(CREATE_RULESET, NULL, 0, CREATE_RULESET_VERSION);
    if (version < 1) {
        return MR_CONFINE_NOT_HERE;
    }
    struct ruleset handled = {.fs = known_rights(version)};
    /* A kernel that does not know the other two fields takes them while they are zero. */
    int rules = (int)syscall(CREATE_RULESET, &handled, sizeof(handled), 0);
    if (rules < 0) {
        return MR_CONFINE_NOT_HERE;
    }
    bool good = true;
    for (size_t i = 0; i < count; i++) {
        good = allow(rules, &paths[i], handled.fs) && good;
    }
    good = good && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(RESTRICT_SELF, rules, 0) == 0;
    close(rules);
    return good ? MR_CONFINED : MR_CONFINE_NOT_HERE;
}

mr_confined mr_confine_files(const struct mr_confine_path *paths, size_t count)
{
#ifdef MILLRACE_COVERAGE
    (void)paths;
    (void)count;
    (void)restrict_to;
    return MR_CONFINE_NOT_COMPILED;
#else
    return restrict_to(paths, count);
#endif
}
