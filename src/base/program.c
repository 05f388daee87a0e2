#include "base/program.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"

extern char **environ;

/* One message of the helper's, cut after the output. */
struct answer {
    enum { RAN, NOT_STARTED, TOO_MUCH } outcome;
    int detail; /* RAN: the status of waitpid; NOT_STARTED: errno */
    char output[MR_PROGRAM_OUTPUT_MAX + 1];
};

/* ---- the helper ---- */

/* In a session of its own, with no signal blocked, and with `out` as standard output. */
static int spawn(const char *const *arguments, int out, pid_t *ret_pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    char *const *words = (char *const *)(uintptr_t)arguments; /* which stay as they are */
    return posix_spawn(ret_pid, words[0], &files, &attributes, words, environ);
}

/* A descriptor that is readable once a child has ended; signals are blocked here. */
static int watch_children(void)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    return signalfd(-1, &child, SFD_CLOEXEC);
}

/* Reads until the program has ended and nobody has its output open any more, or whoever asked is
 * gone; the length of the output. */
static size_t program_collect(pid_t pid, int out, int ended, int asker, struct answer *answer)
{
    struct pollfd fds[] = {
        {.fd = out, .events = POLLIN}, {.fd = ended, .events = POLLIN}, {.fd = asker}};
    size_t len = 0;
    bool runs = true;
    while ((runs || fds[0].fd >= 0) && len <= MR_PROGRAM_OUTPUT_MAX) {
        if (poll(fds, MR_ARRAY_LEN(fds), -1) < 0 || fds[2].revents != 0) {
            break;
        }
        if (fds[0].revents != 0) {
            ssize_t count = read(out, answer->output + len, sizeof(answer->output) - len);
            len += count > 0 ? (size_t)count : 0;
            fds[0].fd = count > 0 ? out : -1;
        }
        if (fds[1].revents != 0) {
            runs = waitpid(pid, &answer->detail, WNOHANG) != pid;
            fds[1].fd = runs ? ended : -1;
        }
    }
    if (runs || fds[0].fd >= 0) {
        kill(-pid, SIGKILL);
    }
    if (runs) {
        waitpid(pid, NULL, 0);
    }
    answer->outcome = len > MR_PROGRAM_OUTPUT_MAX ? TOO_MUCH : RAN;
    return len;
}

static _Noreturn void program_answer_one(const struct mr_program *program, int asker)
{
    struct answer answer = {.outcome = NOT_STARTED};
    size_t len = 0;
    int out[2];
    pid_t pid;
    int ended = watch_children();
    answer.detail =
        ended < 0 || pipe2(out, O_CLOEXEC) != 0 ? errno : spawn(program->arguments, out[1], &pid);
    if (answer.detail == 0) {
        close(out[1]);
        len = program_collect(pid, out[0], ended, asker, &answer);
    }
    send(asker, &answer, offsetof(struct answer, output) + len, MSG_NOSIGNAL);
    _exit(0);
}

struct request {
    uint8_t number;
    struct iovec text;
    struct msghdr message;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control;
};

static void request_init(struct request *request, uint8_t number)
{
    *request = (struct request){.number = number};
    request->text = (struct iovec){.iov_base = &request->number, .iov_len = 1};
    request->message = (struct msghdr){.msg_iov = &request->text,
                                       .msg_iovlen = 1,
                                       .msg_control = &request->control,
                                       .msg_controllen = sizeof(request->control)};
}

/* False: millrace has ended. */
static bool request_take(struct request *request, int requests, int *ret_asker)
{
    request_init(request, 0);
    if (recvmsg(requests, &request->message, MSG_CMSG_CLOEXEC) <= 0) {
        return false;
    }
    *ret_asker = -1;
    if (request->message.msg_controllen >= CMSG_LEN(sizeof(int))) {
        memcpy(ret_asker, CMSG_DATA(&request->control.header), sizeof(*ret_asker));
    }
    return true;
}

static bool request_send(const struct mr_program *program, int asker)
{
    struct request request;
    request_init(&request, program->number);
    request.control.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&request.control.header), &asker, sizeof(asker));
    return sendmsg(program->helper, &request.message, MSG_NOSIGNAL) == 1;
}

/* What asks millrace to stop is not for the helper: millrace may need a password until its end. */
static void leave_terminal(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    /* Nobody waits for those who answer, nor for what a killed program leaves behind. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_IGN);
    int null = open("/dev/null", O_RDWR);
    if (null < 0) {
        _exit(1); /* what a program says must not come into the log */
    }
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        dup2(null, fd);
    }
    if (null > STDERR_FILENO) {
        close(null);
    }
    /* What who started millrace has left open is for no program; an older kernel does not know how
     * (Linux 5.11). */
    (void)close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
}

static _Noreturn void help(const struct mr_programs *programs, int requests)
{
    prctl(PR_SET_NAME, "mr-programs");
    leave_terminal();
    struct request request;
    int asker;
    while (request_take(&request, requests, &asker)) {
        if (request.number < programs->count && asker >= 0 && fork() == 0) {
            close(requests);
            program_answer_one(&programs->items[request.number], asker);
        }
        close(asker);
    }
    _exit(0);
}

/* ---- millrace ---- */

mr_status mr_programs_start(struct mr_programs *programs, struct mr_error *ret_error)
{
    if (programs->count == 0) {
        return MR_OK;
    }
    int pair[2];
    pid_t pid = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 || (pid = fork()) < 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "%s: no process to run it: %s",
                       programs->items[0].option, strerror(errno));
    }
    if (pid == 0) {
        close(pair[0]);
        help(programs, pair[1]);
    }
    close(pair[1]);
    for (uint8_t i = 0; i < programs->count; i++) {
        programs->items[i].helper = pair[0];
    }
    return MR_OK;
}

/* MR_ERR_TRANSIENT: the time is over. */
static mr_status program_await(int socket, int stop_fd)
{
    int64_t deadline_ns = mr_monotonic_ns() + MR_PROGRAM_LIMIT_S * INT64_C(1000000000);
    struct pollfd fds[] = {{.fd = socket, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    for (;;) {
        int left_ms = mr_timeout_ms(deadline_ns - mr_monotonic_ns());
        int ready = poll(fds, MR_ARRAY_LEN(fds), left_ms);
        if (ready > 0) {
            return fds[1].revents != 0 ? MR_AGAIN : MR_OK;
        }
        if (left_ms == 0) {
            return MR_ERR_TRANSIENT;
        }
    }
}

static const char one_line[] = "it must print one line, the secret alone";

static mr_status program_fail(const struct mr_program *program, mr_status status, const char *what,
                              const char *remedy, struct mr_error *ret_error)
{
    return mr_fail(ret_error, status, "%s: %s %s; %s", program->option, program->arguments[0], what,
                   remedy);
}

/* What the program did that is no answer, if anything. `len`: of the message; 0: there is none. */
static mr_status check_ending(const struct mr_program *program, const struct answer *answer,
                              ssize_t len, struct mr_error *ret_error)
{
    char what[128];
    mr_status status = MR_ERR_TRANSIENT;
    const char *remedy = MR_PROGRAM_REMEDY;
    if (len < (ssize_t)offsetof(struct answer, output)) {
        snprintf(what, sizeof(what), "was not run: there is no process for it");
    } else if (answer->outcome == NOT_STARTED) {
        status = MR_ERR_AUTH;
        remedy = "name a program that millrace's user may run";
        snprintf(what, sizeof(what), "can't be started: %s", strerror(answer->detail));
    } else if (answer->outcome == TOO_MUCH) {
        status = MR_ERR_AUTH;
        remedy = one_line;
        snprintf(what, sizeof(what), "printed more than %d bytes", MR_PROGRAM_OUTPUT_MAX);
    } else if (WIFSIGNALED(answer->detail)) {
        snprintf(what, sizeof(what), "was ended by signal %d", WTERMSIG(answer->detail));
    } else if (WEXITSTATUS(answer->detail) != 0) {
        snprintf(what, sizeof(what), "ended with exit code %d", WEXITSTATUS(answer->detail));
    } else {
        return MR_OK;
    }
    return program_fail(program, status, what, remedy, ret_error);
}

static mr_status take_line(const struct mr_program *program, const char *output, size_t len,
                           char **ret_line, struct mr_error *ret_error)
{
    len -= len > 0 && output[len - 1] == '\n';
    len -= len > 0 && output[len - 1] == '\r';
    const char *fault = len == 0                            ? "printed nothing"
                        : memchr(output, '\n', len) != NULL ? "printed more than one line"
                        : memchr(output, '\0', len) != NULL ? "printed a byte that is 0"
                                                            : NULL;
    if (fault != NULL) {
        return program_fail(program, MR_ERR_AUTH, fault, one_line, ret_error);
    }
    *ret_line = MR_STRNDUP(output, len);
    return MR_OK;
}

static mr_status program_take_answer(const struct mr_program *program, int socket, char **ret_line,
                                     struct mr_error *ret_error)
{
    struct answer answer;
    ssize_t len = recv(socket, &answer, sizeof(answer), 0);
    mr_status status = check_ending(program, &answer, len, ret_error);
    status = MR_THEN(status,
                     take_line(program, answer.output,
                               (size_t)len - offsetof(struct answer, output), ret_line, ret_error));
    explicit_bzero(&answer, sizeof(answer));
    return status;
}

mr_status mr_program_run(const struct mr_program *program, int stop_fd, char **ret_line,
                         struct mr_error *ret_error)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return program_fail(program, MR_ERR_TRANSIENT, "was not run: no descriptor is left",
                            MR_PROGRAM_REMEDY, ret_error);
    }
    bool asked = request_send(program, pair[1]);
    close(pair[1]);
    mr_status status = asked ? program_await(pair[0], stop_fd) : MR_ERR_SYSTEM;
    if (status == MR_OK) {
        status = program_take_answer(program, pair[0], ret_line, ret_error);
    } else if (status == MR_ERR_SYSTEM) {
        status = program_fail(program, status, "can't be run: " MR_PROGRAM_HELPER_GONE,
                              "start millrace again", ret_error);
    } else if (status == MR_ERR_TRANSIENT) {
        status = program_fail(program, status, "did not end within 10 s and was killed",
                              MR_PROGRAM_REMEDY, ret_error);
    }
    close(pair[0]);
    return status;
}
