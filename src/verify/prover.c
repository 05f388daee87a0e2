#include "verify/prover.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verify/verify.h"

/* A message is sent at once, or not at all: less than half of what a socket's buffer has by default (net.core.wmem_default). */
enum { MESSAGE_MAX = 64 * 1024, NICENESS = 10 };

struct mr_prover {
    int socket;
    atomic_bool *paused; /* in memory that the processes share */
};

/* ---- the child ---- */

/* The kernel ends it and not millrace where memory runs out (manual page proc_pid_oom_score_adj(5)), and a processor is millrace's
 * first. */
static void stand_back(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t written = write(fd, "1000", 4);
        (void)written;
        close(fd);
    }
    int now = nice(NICENESS);
    (void)now;
}

/* Secrets are those of the start, unless their files are read again while millrace runs. */
static void take_secrets(const struct mr_config *config)
{
    const struct mr_secret_files *files = &config->kept.files;
    for (uint32_t i = 0; config->values.secrets_watch > 0 && i < files->count; i++) {
        const struct mr_secret_file *file = &files->items[i];
        char *text = mr_secret_file_read(file->path, file->what, true, NULL);
        if (text != NULL) {
            (void)mr_secret_change(file->secret, text);
        }
        mr_secret_forget(text);
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

static void print_error(const struct mr_error *error, FILE *to)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "error", error->text);
    char *text = cJSON_PrintUnformatted(object);
    fprintf(to, "%s\n", text);
    fflush(to);
}

/* `request`: texts that each end with a NUL. */
static _Noreturn void prove(const struct mr_prover *prover, struct mr_config *config,
                            void (*confine)(struct mr_config *config), const char *request,
                            size_t len)
{
    const char *tables[MR_PROVER_TABLES_MAX];
    struct mr_verify_options options = {.tables = tables,
                                        .rate = (uint32_t)config->values.verify_rate,
                                        .json = true,
                                        .paused = prover->paused};
    const char *end = request + len;
    for (const char *at = request + strlen(request) + 1;
         at < end && options.table_count < MR_PROVER_TABLES_MAX; at += strlen(at) + 1) {
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
    take_secrets(config);
    mr_status status = take_reloaded(config, request, &error);
    confine(config);
    if (status == MR_OK) {
        status = mr_verify(config, &options, prover->socket, to, &verdict, &error);
    }
    if (status != MR_OK && status != MR_AGAIN) {
        print_error(&error, to);
    }
    _exit(0);
}

/* ---- the helper ---- */

static void end_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) { /* it has ended before */
        _exit(0);
    }
}

static int run(const struct mr_prover *prover, struct mr_config *config,
               void (*confine)(struct mr_config *config), const char *request, size_t len)
{
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        end_with(self);
        prove(prover, config, confine, request, len);
    }
    int status = 0;
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

static _Noreturn void help(const struct mr_prover *prover, struct mr_config *config,
                           void (*confine)(struct mr_config *config))
{
    static char request[MESSAGE_MAX];
    sigset_t all;
    sigfillset(&all); /* what asks millrace to stop: it says so itself */
    sigprocmask(SIG_BLOCK, &all, NULL);
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_NAME, "mr-prover");
    for (;;) {
        ssize_t len = recv(prover->socket, request, sizeof(request), 0);
        if (len <= 0 || request[len - 1] != '\0') {
            _exit(0);
        }
        char text[32];
        snprintf(text, sizeof(text), "{\"ended\":%d}",
                 run(prover, config, confine, request, (size_t)len));
        send(prover->socket, text, strlen(text), MSG_NOSIGNAL);
    }
}

/* ---- millrace ---- */

mr_status mr_prover_start(struct mr_config *config, void (*confine)(struct mr_config *config),
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
    *prover = (struct mr_prover){.socket = pair[pid == 0], .paused = shared};
    close(pair[pid != 0]);
    if (pid == 0) {
        end_with(self);
        help(prover, config, confine);
    }
    *ret_prover = prover;
    return MR_OK;
}

void mr_prover_free(struct mr_prover *prover)
{
    if (prover != NULL) {
        close(prover->socket);
        munmap(prover->paused, sizeof(*prover->paused));
    }
    free(prover);
}

bool mr_prover_ask(struct mr_prover *prover, const char *digest, const char *const *tables,
                   uint32_t count)
{
    struct mr_text request = {0};
    mr_text_add(&request, digest, strlen(digest) + 1);
    for (uint32_t i = 0; i < count; i++) {
        mr_text_add(&request, tables[i], strlen(tables[i]) + 1);
    }
    MR_ASSERT(count <= MR_PROVER_TABLES_MAX && request.len <= MESSAGE_MAX);
    bool sent = send(prover->socket, request.data, request.len, MSG_NOSIGNAL) > 0;
    mr_text_done(&request);
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
        return MR_END;
    }
    *ret_object = cJSON_ParseWithLength(text, (size_t)len);
    return *ret_object == NULL ? MR_AGAIN : MR_OK;
}
