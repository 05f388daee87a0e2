#include "verify/prover.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>

#include "base/sanitized.h"
#include "event/lsn.h"
#include "verify/proof.h"

/* A message is sent at once, or not at all: less than half of what a socket's buffer has by default (net.core.wmem_default). */
enum { MESSAGE_MAX = 64 * 1024, NICENESS = 10, REST_MAX_S = 64 };
enum {
    IS_SANITIZED = MR_ADDRESS_SANITIZER || MR_THREAD_SANITIZER
};                                     /* which takes much more memory */
#define MEMORY_MAX (UINT64_C(1) << 30) /* twice what 10^9 keys take (docs/verify.md) */

struct mr_prover {
    int socket;
    pid_t keeper;
    atomic_bool *paused; /* in memory that the processes share */
    struct mr_config *config;
    mr_prover_confine_fn confine;
    char *request; /* texts that each end with a NUL */
    size_t request_len;
};

/* ---- the child ---- */

/* The kernel ends it and not millrace where memory runs out (manual page proc_pid_oom_score_adj(5)), and a processor is millrace's
 * first. RLIMIT_DATA is of all memory of its own that it writes (manual page getrlimit(2), since Linux 4.7). */
static void stand_back(void)
{
    /* The files of a process that can't be dumped are root's (manual page proc_pid(5)). */
    int dumpable = prctl(PR_GET_DUMPABLE);
    prctl(PR_SET_DUMPABLE, 1);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    prctl(PR_SET_DUMPABLE, dumpable == 1);
    if (fd >= 0) {
        ssize_t written = write(fd, "1000", 4);
        (void)written;
        close(fd);
    }
    int now = nice(NICENESS);
    (void)now;
    const struct rlimit memory = {.rlim_cur = MEMORY_MAX, .rlim_max = MEMORY_MAX};
    if (!IS_SANITIZED) {
        setrlimit(RLIMIT_DATA, &memory);
    }
}

/* What a reload has put into effect, as it and mr_encoder_change do: tables, and which of their operations are sent. */
static mr_status take_reloaded(struct mr_config *config, const char *digest,
                               struct mr_error *ret_error)
{
    struct mr_config *wanted = NULL; /* as long as the process lives */
    if (digest[0] == '\0') {
        return MR_OK;
    }
    mr_status status = mr_config_reload(config, &wanted);
    if (status != MR_OK || strcmp(wanted->digest.text, digest) != 0) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "there is another file than the one in effect, by which tables are proved; "
                       "reload it");
    }
    config->source.captured = wanted->source.captured;
    config->encode.routes = wanted->encode.routes;
    config->encode.route_count = wanted->encode.route_count;
    config->encode.routes_only = wanted->encode.routes_only;
    config->encode.skipped_operations = wanted->encode.skipped_operations;
    return MR_OK;
}

/* The request: the file's digest, the shift of places, tables. */
static void prove(const struct mr_prover *prover)
{
    struct mr_config *config = prover->config;
    const char *tables[MR_PROVER_TABLES_MAX];
    struct mr_verify_options options = {.tables = tables,
                                        .rate = (uint32_t)config->values.verify_rate,
                                        .json = true,
                                        .paused = prover->paused};
    const char *end = prover->request + prover->request_len;
    const char *at = prover->request + strlen(prover->request) + 1;
    mr_lsn_shift = strtoull(at, NULL, 16);
    while ((at += strlen(at) + 1) < end && options.table_count < MR_PROVER_TABLES_MAX) {
        tables[options.table_count++] = at;
    }
    options.lists = options.table_count == 0;
    FILE *to = fdopen(prover->socket, "w");
    if (to == NULL || setvbuf(to, NULL, _IOFBF, MESSAGE_MAX) != 0) {
        _exit(EXIT_FAILURE);
    }
    prctl(PR_SET_NAME, "mr-proof");
    stand_back();
    enum mr_verify_verdict verdict;
    struct mr_error error = {0};
    mr_status status = take_reloaded(config, prover->request, &error);
    prover->confine(config, false);
    status = MR_THEN(status, mr_verify(config, &options, prover->socket, to, &verdict, &error));
    if (status != MR_OK && status != MR_AGAIN) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "error", error.text);
        mr_said_print(object, to);
    }
    _exit(0);
}

/* ---- the keeper and its helper ---- */

static void end_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) { /* it has ended before */
        _exit(0);
    }
}

/* Does it in a process of its own, and answers what waitpid does. */
static int run(const struct mr_prover *prover, void (*work)(const struct mr_prover *prover))
{
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        end_with(self);
        work(prover);
        _exit(0);
    }
    int status = 0;
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

static void say(const struct mr_prover *prover, const char *what, int status)
{
    char text[32];
    snprintf(text, sizeof(text), "{\"%s\":%d}", what, status);
    send(prover->socket, text, strlen(text), MSG_NOSIGNAL);
}

/* Until millrace has ended. */
static void help(const struct mr_prover *prover)
{
    static char text[MESSAGE_MAX];
    struct mr_prover asked = *prover;
    asked.request = text;
    prctl(PR_SET_NAME, "mr-prover");
    for (ssize_t len;
         (len = recv(prover->socket, text, sizeof(text), 0)) > 0 && text[len - 1] == '\0';) {
        asked.request_len = (size_t)len;
        say(prover, "ended", run(&asked, prove));
    }
}

/* What else millrace has open is not for it. */
static void keep_open(int socket, int programs)
{
    for (int fd = STDERR_FILENO + 1; fd < FD_SETSIZE; fd++) {
        if (fd != socket && fd != programs) {
            close(fd);
        }
    }
    (void)close_range(FD_SETSIZE, ~0U, 0); /* Linux 5.9 */
}

static _Noreturn void keep(const struct mr_prover *prover)
{
    sigset_t all;
    sigfillset(&all); /* what asks millrace to stop: it says so itself */
    sigprocmask(SIG_BLOCK, &all, NULL);
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_NAME, "mr-keeper");
    const struct mr_programs *programs = &prover->config->programs;
    keep_open(prover->socket, programs->count > 0 ? programs->items[0].helper : -1);
    prover->confine(prover->config, true);
    for (unsigned rest_s = 1;;) {
        int status = run(prover, help);
        if (status == 0) { /* so has millrace */
            _exit(0);
        }
        say(prover, "lost", status);
        sleep(rest_s);
        rest_s = rest_s < REST_MAX_S ? 2 * rest_s : rest_s;
    }
}

/* ---- millrace ---- */

mr_status mr_prover_start(struct mr_config *config, mr_prover_confine_fn confine,
                          struct mr_prover **ret_prover, struct mr_error *ret_error)
{
    int pair[2];
    pid_t self = getpid();
    pid_t pid = -1;
    void *shared =
        mmap(NULL, sizeof(atomic_bool), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 ||
        (pid = fork()) < 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM,
                       "verify.continuous: there is no process for it: %s", strerror(errno));
    }
    struct mr_prover *prover = MR_NEW(struct mr_prover);
    *prover = (struct mr_prover){.socket = pair[pid == 0],
                                 .keeper = pid,
                                 .paused = shared,
                                 .config = config,
                                 .confine = confine};
    close(pair[pid != 0]);
    if (pid == 0) {
        end_with(self);
        keep(prover);
    }
    *ret_prover = prover;
    return MR_OK;
}

void mr_prover_free(struct mr_prover *prover)
{
    if (prover != NULL) {
        close(prover->socket);
        waitpid(prover->keeper, NULL, WNOHANG);
        munmap(prover->paused, sizeof(*prover->paused));
    }
    free(prover);
}

bool mr_prover_ask(struct mr_prover *prover, const char *digest, const char *const *tables,
                   uint32_t count)
{
    MR_TEXT(request);
    char shift[24];
    snprintf(shift, sizeof(shift), "%" PRIX64, mr_lsn_shift);
    mr_text_add(&request, digest, strlen(digest) + 1);
    mr_text_add(&request, shift, strlen(shift) + 1);
    for (uint32_t i = 0; i < count; i++) {
        mr_text_add(&request, tables[i], strlen(tables[i]) + 1);
    }
    MR_ASSERT(count <= MR_PROVER_TABLES_MAX && request.len <= MESSAGE_MAX);
    bool sent = send(prover->socket, request.data, request.len, MSG_NOSIGNAL) > 0;
    if (!sent) {
        waitpid(prover->keeper, NULL, WNOHANG);
    }
    return sent;
}

void mr_prover_pause(struct mr_prover *prover, bool paused)
{
    atomic_store(prover->paused, paused);
}

mr_status mr_prover_next(struct mr_prover *prover, int stop_fd, int ms, cJSON **ret_object)
{
    struct pollfd fds[] = {{.fd = prover->socket, .events = POLLIN},
                           {.fd = stop_fd, .events = POLLIN}};
    if (poll(fds, MR_ARRAY_LEN(fds), ms) <= 0 || fds[1].revents != 0) {
        return MR_AGAIN;
    }
    char text[MESSAGE_MAX];
    ssize_t len = recv(prover->socket, text, sizeof(text), MSG_DONTWAIT);
    if (len <= 0) {
        waitpid(prover->keeper, NULL, 0); /* all that have the socket end with it */
        return MR_END;
    }
    *ret_object = cJSON_ParseWithLength(text, (size_t)len);
    return *ret_object == NULL ? MR_AGAIN : MR_OK;
}
