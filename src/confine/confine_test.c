/* Each attempt is made by a child that has confined itself, and by one that has not: what both
 * answer is compared, so that a call which this machine refuses anyway proves nothing and is
 * told. */
#include "confine/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sanitized.h"
#include "testing/test.h"

enum { SANITIZED = MR_ADDRESS_SANITIZER || MR_THREAD_SANITIZER };

typedef void (*prepare_fn)(void);
typedef long (*attempt_fn)(void);

enum { NOT_HERE = 255 };

/* What the attempt answers in a child: 0, or errno. */
static int in_child(prepare_fn prepare, attempt_fn attempt)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prepare();
        errno = 0;
        _exit(attempt() >= 0 ? 0 : errno);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void nothing(void)
{
}

static void give_up_syscalls(void)
{
    if (mr_confine_syscalls(MR_CONFINE_NO_PROCESSES) != MR_CONFINED) {
        _exit(NOT_HERE);
    }
}

static void give_up_all_but_programs(void)
{
    if (mr_confine_syscalls(MR_CONFINE_PROGRAMS) != MR_CONFINED) {
        _exit(NOT_HERE);
    }
}

static long try_exec(void)
{
    char name[] = "true";
    char *const arguments[] = {name, NULL};
    return execv("/bin/true", arguments);
}

static long try_fork(void)
{
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    return child;
}

static long try_vfork_exec(void)
{
    return system("exit 0") == 0 ? 0 : -1;
}

static long try_ptrace(void)
{
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static long try_peek(void)
{
    return syscall(SYS_process_vm_readv, getpid(), NULL, 0UL, NULL, 0UL, 0UL);
}

static long try_kill(void)
{
    return kill(getppid(), 0);
}

static long try_keyctl(void)
{
    return syscall(SYS_keyctl, 0 /* KEYCTL_GET_KEYRING_ID */, -3 /* session */, 0);
}

static long try_user_namespace(void)
{
    return unshare(0);
}

static long try_own_ids(void)
{
    return syscall(SYS_setuid, getuid());
}

static long try_io_uring(void)
{
    char parameters[120] = {0};
    return syscall(SYS_io_uring_setup, 1, parameters);
}

static long try_writable_code(void)
{
    void *at =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? -1 : 0;
}

static long try_code_from_data(void)
{
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? -1 : mprotect(at, 4096, PROT_READ | PROT_EXEC);
}

static long try_vsock(void)
{
    return socket(AF_VSOCK, SOCK_STREAM, 0);
}

static void test_confine_syscalls_denied(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        attempt_fn attempt;
        bool program; /* which the sanitizers need */
    } attempts[] = {
        {"exec", try_exec, true},
        {"fork", try_fork, true},
        {"system", try_vfork_exec, true},
        {"ptrace", try_ptrace, true},
        {"process_vm_readv", try_peek, false},
        {"kill", try_kill, false},
        {"keyctl", try_keyctl, false},
        {"unshare", try_user_namespace, false},
        {"setuid", try_own_ids, false},
        {"io_uring", try_io_uring, false},
        {"writable code", try_writable_code, false},
        {"code from data", try_code_from_data, false},
        {"vsock", try_vsock, false},
    };
    int shown = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(attempts); i++) {
        int confined = in_child(give_up_syscalls, attempts[i].attempt);
        if (confined == NOT_HERE) {
            print_message("no seccomp here\n");
            skip();
        }
        if (SANITIZED && attempts[i].program) {
            continue;
        }
        int free_answer = in_child(nothing, attempts[i].attempt);
        print_message("%s: %d, confined %d\n", attempts[i].name, free_answer, confined);
        assert_int_equal(confined, EPERM);
        shown += free_answer != EPERM;
    }
    assert_true(shown >= 6);
}

static void test_confine_syscalls_programs(void **state)
{
    (void)state;
    int answer = in_child(give_up_all_but_programs, try_vfork_exec);
    assert_true(answer == 0 || answer == NOT_HERE);
    answer = in_child(give_up_all_but_programs, try_keyctl);
    assert_true(answer == EPERM || answer == NOT_HERE);
}

static void *confine_test_answer_one(void *context)
{
    *(int *)context = 1;
    return NULL;
}

/* A daemon's life: threads, timers, memory, files, sockets to others, libraries. */
static long live(void)
{
    int answer = 0;
    pthread_t thread;
    errno = 0;
    if (pthread_create(&thread, NULL, confine_test_answer_one, &answer) != 0 ||
        pthread_join(thread, NULL) != 0 || answer != 1) {
        return -1;
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int memory = memfd_create("x", MFD_CLOEXEC);
    int library = open("/proc/self/exe", O_RDONLY);
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, library, 0);
    return fd < 0 || memory < 0 || code == MAP_FAILED || raise(0) != 0 ? -1 : 0;
}

static void test_confine_syscalls_allowed(void **state)
{
    (void)state;
    int answer = in_child(give_up_syscalls, live);
    assert_true(answer == 0 || answer == NOT_HERE);
}

static void give_up_listeners(void)
{
    if (mr_confine_syscalls(MR_CONFINE_NO_PROCESSES) != MR_CONFINED ||
        mr_confine_listeners() != MR_CONFINED) {
        _exit(NOT_HERE);
    }
}

static long try_bind(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&at, sizeof(at));
}

static long try_listen(void)
{
    return listen(socket(AF_INET, SOCK_STREAM, 0), 1);
}

/* As the resolver does. */
static long try_netlink(void)
{
    struct sockaddr_storage at = {.ss_family = AF_NETLINK};
    return bind(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0), (struct sockaddr *)&at, 12);
}

static int pipe_in[2], pipe_out[2];

static void *bind_when_told(void *unused)
{
    (void)unused;
    char byte = 0;
    if (read(pipe_in[0], &byte, 1) == 1) {
        errno = 0;
        byte = try_bind() < 0 ? (char)errno : 0;
        (void)!write(pipe_out[1], &byte, 1);
    }
    return NULL;
}

/* Another thread, older than the filter. */
static long try_bind_elsewhere(void)
{
    pthread_t thread;
    char byte = 0;
    if (pipe(pipe_in) != 0 || pipe(pipe_out) != 0 ||
        mr_confine_syscalls(MR_CONFINE_NO_PROCESSES) != MR_CONFINED ||
        pthread_create(&thread, NULL, bind_when_told, NULL) != 0 ||
        mr_confine_listeners() != MR_CONFINED) {
        errno = NOT_HERE;
        return -1;
    }
    (void)!write(pipe_in[1], &byte, 1);
    (void)!read(pipe_out[0], &byte, 1);
    pthread_join(thread, NULL);
    errno = byte;
    return byte == 0 ? 0 : -1;
}

static void test_confine_listeners_denied(void **state)
{
    (void)state;
    if (in_child(give_up_listeners, try_listen) == NOT_HERE) {
        skip();
    }
    assert_int_equal(in_child(give_up_syscalls, try_bind), 0);
    assert_int_equal(in_child(give_up_syscalls, try_listen), 0);
    assert_int_equal(in_child(give_up_listeners, try_bind), EPERM);
    assert_int_equal(in_child(give_up_listeners, try_listen), EPERM);
    assert_int_equal(in_child(nothing, try_bind_elsewhere), EPERM);
    assert_int_equal(in_child(give_up_listeners, try_netlink), in_child(nothing, try_netlink));
}

static char folder[] = "/tmp/confine-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4][128];
    static unsigned turn;
    char *ret = path[turn++ % MR_ARRAY_LEN(path)];
    snprintf(ret, sizeof(path[0]), "%s/%s", folder, name);
    return ret;
}

static void confine_test_write_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, "x", 1) == 1);
    close(fd);
}

static int folders_make(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < 3; i++) {
        mkdir(in_folder((const char *[]){"read", "write", "other"}[i]), 0700);
    }
    confine_test_write_file(in_folder("read/file"));
    confine_test_write_file(in_folder("write/file"));
    confine_test_write_file(in_folder("other/file"));
    confine_test_write_file(in_folder("one"));
    confine_test_write_file(in_folder("two"));
    return 0;
}

static int folders_remove(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static void give_up_files(void)
{
    const struct mr_confine_path paths[] = {
        {in_folder("read"), MR_CONFINE_READ},
        {in_folder("write"), MR_CONFINE_READ | MR_CONFINE_WRITE | MR_CONFINE_SOCKET},
        {in_folder("one"), MR_CONFINE_READ | MR_CONFINE_WRITE},
        {in_folder("that is not there"), MR_CONFINE_READ},
    };
    if (mr_confine_files(paths, MR_ARRAY_LEN(paths)) != MR_CONFINED) {
        _exit(NOT_HERE);
    }
}

static const char *at;
static int flags;

static long try_open(void)
{
    return open(in_folder(at), flags, 0600);
}

static long try_remove(void)
{
    return unlink(in_folder(at));
}

static long try_truncate(void)
{
    return truncate(in_folder(at), 0);
}

static long try_list(void)
{
    return open(in_folder(at), O_RDONLY | O_DIRECTORY);
}

static long try_make_folder(void)
{
    return mkdir(in_folder(at), 0700);
}

static long try_rename_over(void)
{
    int fd = open(in_folder("write/part"), O_WRONLY | O_CREAT | O_EXCL, 0600);
    return fd < 0 ? -1 : rename(in_folder("write/part"), in_folder(at));
}

static long try_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", in_folder(at));
    return bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof(address));
}

static long try_memory(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", memfd_create("heap", MFD_CLOEXEC));
    return open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

static void test_confine_files(void **state)
{
    (void)state;
    static const struct {
        attempt_fn attempt;
        const char *at;
        int flags;
        int wanted; /* where confined; else all of them succeed */
    } attempts[] = {
        {try_open, "read/file", O_RDONLY, 0},
        {try_open, "read/file", O_WRONLY, EACCES},
        {try_open, "read/new", O_WRONLY | O_CREAT, EACCES},
        {try_list, "read", 0, 0},
        {try_open, "write/file", O_RDWR, 0},
        {try_open, "write/new", O_RDWR | O_CREAT, 0},
        {try_make_folder, "write/folder", 0, 0},
        {try_rename_over, "write/whole", 0, 0},
        {try_remove, "write/whole", 0, 0},
        {try_socket, "write/socket", 0, 0},
        {try_remove, "write/socket", 0, 0},
        {try_open, "one", O_RDWR | O_TRUNC, 0},
        {try_open, "two", O_RDONLY, EACCES},
        {try_open, "other/file", O_RDONLY, EACCES},
        {try_open, "other/file", O_WRONLY | O_TRUNC, EACCES},
        {try_truncate, "other/file", 0, EACCES},
        {try_list, "other", 0, EACCES},
        {try_make_folder, "other/folder", 0, EACCES},
        {try_socket, "other/socket", 0, EACCES},
        {try_rename_over, "other/file", 0, EACCES},
        {try_remove, "two", 0, EACCES},
        {try_memory, "", 0, 0}, /* the heap profile */
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(attempts); i++) {
        at = attempts[i].at;
        flags = attempts[i].flags;
        int answer = in_child(give_up_files, attempts[i].attempt);
        if (answer == NOT_HERE) {
            print_message("no Landlock here, or a build for coverage\n");
            skip();
        }
        print_message("%zu %s: %d\n", i, at, answer);
        assert_int_equal(answer, attempts[i].wanted);
    }
    at = "two";
    assert_int_equal(in_child(nothing, try_remove), 0);
}

static void give_up_programs_files(void)
{
    const struct mr_confine_path all = {"/", MR_CONFINE_READ};
    if (mr_confine_files(&all, 1) != MR_CONFINED) {
        _exit(NOT_HERE);
    }
}

static void test_confine_files_execute(void **state)
{
    (void)state;
    int answer = in_child(give_up_programs_files, try_exec);
    assert_true(answer == EACCES || answer == NOT_HERE);
    assert_int_equal(in_child(nothing, try_exec), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confine_syscalls_denied),
        cmocka_unit_test(test_confine_syscalls_programs),
        cmocka_unit_test(test_confine_syscalls_allowed),
        cmocka_unit_test(test_confine_listeners_denied),
        cmocka_unit_test_setup_teardown(test_confine_files, folders_make, folders_remove),
        cmocka_unit_test(test_confine_files_execute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
