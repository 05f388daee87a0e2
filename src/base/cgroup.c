#include "base/cgroup.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/file.h"

/* Until the kernel has seen the end of what was killed. */
enum { END_MS = 100 };

static bool write_below(const char *folder, const char *name, const char *text)
{
    MR_FREED char *path = mr_formatted("%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

/* systemd says so of a unit with Delegate= (systemd.resource-control(5), "user.delegate" from version 251 on). */
static bool is_delegated(const char *folder)
{
    char word[2] = "";
    return getxattr(folder, "user.delegate", word, 1) == 1 && word[0] == '1';
}

/* A cgroup with controllers for those below may have no process itself (the kernel's cgroup-v2.rst, "No Internal Process Constraint"). */
char *mr_cgroup_take(void)
{
    char own[512], path[400];
    if (!mr_file_read_head("/proc/self/cgroup", own, sizeof(own)) ||
        sscanf(own, "0::%399[^\n]", path) != 1) {
        return NULL;
    }
    char *folder = mr_formatted("/sys/fs/cgroup%s", path);
    MR_FREED char *below = mr_formatted("%s/agent", folder);
    if (is_delegated(folder) && (mkdir(below, 0755) == 0 || errno == EEXIST) &&
        write_below(below, "cgroup.procs", "0") &&
        write_below(folder, "cgroup.subtree_control", "+memory +cpu")) {
        return folder;
    }
    free(folder);
    return NULL;
}

bool mr_cgroup_make(const char *path, uint64_t memory_max, uint64_t cpu_weight)
{
    MR_FREED char *most = mr_formatted("%" PRIu64, memory_max);
    MR_FREED char *share = mr_formatted("%" PRIu64, cpu_weight == 0 ? 100 : cpu_weight);
    return (mkdir(path, 0755) == 0 || errno == EEXIST) &&
           write_below(path, "memory.max", memory_max == 0 ? "max" : most) &&
           write_below(path, "cpu.weight", share);
}

void mr_cgroup_remove(const char *path)
{
    write_below(path, "cgroup.kill", "1");
    for (int i = 0; rmdir(path) != 0 && errno == EBUSY && i < END_MS; i++) {
        usleep(1000);
    }
}
