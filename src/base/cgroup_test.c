/* On a real kernel; where no cgroup is delegated that can limit memory, nothing can be tried, which fails where MILLRACE_TEST_CGROUP says that one is
 * (tests/test_cgroup.py). */
#include "base/cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "testing/test.h"

enum { LIMIT = 16 << 20, MUCH = 64 << 20 };

/* A process in the cgroup that touches so much memory, and then waits for ever or ends. */
static pid_t start(const char *path, size_t much, bool stays)
{
    MR_FREED char *procs = mr_formatted("%s/cgroup.procs", path);
    int pipe_fds[2];
    char byte;
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(procs, O_WRONLY | O_CLOEXEC);
        if (write(fd, "0", 1) != 1) {
            _exit(1);
        }
        char *bytes = mmap(NULL, much, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t i = 0; i < much; i += 4096) {
            bytes[i] = 1;
        }
        close(pipe_fds[1]);
        while (stays) {
            pause();
        }
        _exit(0);
    }
    close(pipe_fds[1]);
    assert_int_equal(read(pipe_fds[0], &byte, 1), 0);
    close(pipe_fds[0]);
    return pid;
}

static int end_of(pid_t pid)
{
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return how;
}

static void test_one_that_needs_too_much_ends_alone(void **state)
{
    (void)state;
    MR_FREED char *own = mr_cgroup_take();
    if (own == NULL && getenv("MILLRACE_TEST_CGROUP") == NULL) {
        skip();
    }
    assert_non_null(own);
    MR_FREED char *small = mr_formatted("%s/small", own);
    MR_FREED char *large = mr_formatted("%s/large", own);
    assert_true(mr_cgroup_make(small, LIMIT, 50));
    assert_true(mr_cgroup_make(large, 0, 0));
    pid_t other = start(large, MUCH, true);
    int how = end_of(start(small, MUCH, false));
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    assert_int_equal(kill(other, 0), 0);
    /* Again, as after a restart with another definition. */
    assert_true(mr_cgroup_make(small, 0, 0));
    assert_int_equal(end_of(start(small, MUCH, false)), 0);
    mr_cgroup_remove(small);
    assert_int_not_equal(access(small, F_OK), 0);
    /* What is left in it ends with it. */
    signal(SIGCHLD, SIG_IGN);
    mr_cgroup_remove(large);
    assert_int_not_equal(access(large, F_OK), 0);
    assert_int_not_equal(kill(other, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_that_needs_too_much_ends_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
