#include "prof/offcpu.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

static bool read_task(const char *tid, const char *file, char *to, size_t size)
{
    char path[80];
    snprintf(path, sizeof(path), "/proc/self/task/%.16s/%s", tid, file);
    FILE *from = fopen(path, "re");
    if (from == NULL) {
        return false;
    }
    bool got = fgets(to, (int)size, from) != NULL;
    fclose(from);
    return got;
}

static const char *state_name(char letter)
{
    switch (letter) {
    case 'R':
        return "[running]";
    case 'S':
        return "[sleeping]";
    case 'D':
        return "[disk]";
    case 'T':
    case 't':
        return "[stopped]";
    default:
        return "[other]";
    }
}

static void call_name(long number, char *to, size_t size)
{
    static const struct {
        long number;
        const char *name;
    } calls[] = {
#ifdef SYS_poll
        {SYS_poll, "poll"},
        {SYS_epoll_wait, "epoll_wait"},
#endif
        {SYS_ppoll, "ppoll"},
        {SYS_epoll_pwait, "epoll_pwait"},
        {SYS_futex, "futex"},
        {SYS_read, "read"},
        {SYS_write, "write"},
        {SYS_recvfrom, "recvfrom"},
        {SYS_recvmsg, "recvmsg"},
        {SYS_sendto, "sendto"},
        {SYS_sendmsg, "sendmsg"},
        {SYS_clock_nanosleep, "clock_nanosleep"},
        {SYS_nanosleep, "nanosleep"},
        {SYS_fdatasync, "fdatasync"},
        {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
        {SYS_accept4, "accept4"},
        {SYS_connect, "connect"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(calls); i++) {
        if (calls[i].number == number) {
            snprintf(to, size, "[call %s]", calls[i].name);
            return;
        }
    }
    snprintf(to, size, "[call %ld]", number);
}

/* Innermost first: the state, the call, the function that made it. Under the symbols' lock. */
static uint32_t stack_of(const char *tid, char state, uint32_t stack[3])
{
    uint32_t count = 0;
    stack[count++] = mr_symbols_pseudo(state_name(state));
    char line[256];
    long number;
    if (state == 'R' || !read_task(tid, "syscall", line, sizeof(line)) ||
        sscanf(line, "%ld", &number) != 1 || number < 0) {
        return count;
    }
    char name[48];
    call_name(number, name, sizeof(name));
    stack[count++] = mr_symbols_pseudo(name);
    /* The line ends with the stack pointer and the program counter. */
    const char *last = strrchr(line, ' ');
    if (last != NULL) {
        stack[count++] = mr_symbols_location(strtoull(last, NULL, 16), true);
    }
    return count;
}

static void look_at(struct mr_profile *profile, const char *tid, uint64_t wall_ns)
{
    char line[512];
    char name[32] = "";
    if (!read_task(tid, "stat", line, sizeof(line))) {
        return; /* it has ended */
    }
    const char *open = strchr(line, '(');
    const char *close = strrchr(line, ')');
    if (open == NULL || close == NULL || close[1] == '\0') {
        return;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(close - open - 1), open + 1);
    uint32_t stack[3];
    int64_t values[MR_PROFILE_VALUES] = {1, (int64_t)wall_ns};
    uint32_t count = stack_of(tid, close[2], stack);
    mr_profile_add(profile, stack, count, mr_symbols_intern(name), 0, MR_PROF_MAIN, values);
    profile->samples++;
    profile->rooted++;
}

void mr_offcpu_look(struct mr_profile *profile, uint64_t wall_ns)
{
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) {
        return;
    }
    const struct dirent *entry;
    mr_symbols_lock();
    while ((entry = readdir(tasks)) != NULL) {
        if (entry->d_name[0] != '.') {
            look_at(profile, entry->d_name, wall_ns);
        }
    }
    mr_symbols_unlock();
    closedir(tasks);
}
