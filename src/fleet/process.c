#include "fleet/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "base/file.h"
#include "base/object.h"
#include "fleet/child.h"

enum { LINE_MAX_BYTES = 16384, DEAD = 71 };

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

static bool write_below(const char *folder, const char *name, const char *text)
{
    MR_FREED char *path = mr_formatted("%s/%s", folder, name);
    return write_text(path, text);
}

/* systemd says so of a unit with Delegate= (systemd.resource-control(5), "user.delegate" from version 251 on). */
static bool is_delegated(const char *folder)
{
    char word[2] = "";
    return getxattr(folder, "user.delegate", word, 1) == 1 && word[0] == '1';
}

/* A cgroup with controllers for those below may have no process itself (cgroup-v2.rst, "No Internal Process Constraint"). */
void mr_process_find_cgroup(struct fleet_home *home)
{
    char own[512], path[400];
    if (!mr_file_read_head("/proc/self/cgroup", own, sizeof(own)) ||
        sscanf(own, "0::%399[^\n]", path) != 1) {
        return;
    }
    char *folder = mr_formatted("/sys/fs/cgroup%s", path);
    MR_FREED char *below = mr_formatted("%s/agent", folder);
    if (is_delegated(folder) && (mkdir(below, 0755) == 0 || errno == EEXIST) &&
        write_below(below, "cgroup.procs", "0") &&
        write_below(folder, "cgroup.subtree_control", "+memory +cpu")) {
        home->cgroup = folder;
    } else {
        free(folder);
    }
}

/* Of a text whose options have a line each, all but those that are the agent's to say. */
static void add_options(struct mr_text *to, const char *options)
{
    bool hands_over = strstr(options, "source.postgres.handover") != NULL;
    mr_text_string(to, hands_over ? "" : "source.postgres.handover = \"5m\"\n");
    for (const char *line = options; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        len += line[len] == '\n';
        if (strncmp(line, "http.", 5) != 0) {
            mr_text_add(to, line, len);
        }
        line += len;
    }
}

mr_status mr_process_write_options(const struct fleet_home *home,
                                   const struct fleet_definition *definition,
                                   struct fleet_process *process, struct mr_error *ret_error)
{
    MR_TEXT(text);
    if (process->config_path == NULL) {
        process->config_path = mr_formatted("%s/%s.toml", home->folder, definition->name);
    }
    mr_text_format(&text, "# Made by millrace fleet run of generation %" PRIu64 ".\n",
                   definition->generation);
    mr_text_format(&text, "http.address = \"unix:%s\"\n", process->socket_path);
    add_options(&text, definition->config);
    return mr_fleet_write_file(process->config_path, 0600, &text)
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_SYSTEM,
                         "%s can't be written: %s; the agent's folder is [fleet] folder",
                         process->config_path, strerror(errno));
}

static void make_cgroup(const struct fleet_home *home, const struct fleet_definition *definition,
                        struct fleet_process *process)
{
    uint64_t memory = definition->terms.memory_max, weight = definition->terms.cpu_weight;
    MR_FREED char *most = mr_formatted("%" PRIu64, memory);
    MR_FREED char *share = mr_formatted("%" PRIu64, weight == 0 ? 100 : weight);
    process->cgroup = mr_formatted("%s/pipeline-%s", home->cgroup, definition->name);
    mkdir(process->cgroup, 0755);
    write_below(process->cgroup, "memory.max", memory == 0 ? "max" : most);
    write_below(process->cgroup, "cpu.weight", share);
}

/* In the forked process, which may do only what is safe in a signal handler: others of its threads may have held a lock. */
static _Noreturn void become(const struct fleet_home *home, const struct fleet_process *process,
                             const char *cgroup_procs, int parent, int log_fd)
{
    char program[] = "millrace", option[] = "--config";
    char *const arguments[] = {program, option, process->config_path, NULL};
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(DEAD); /* it was gone before it could be heard of */
    }
    if (cgroup_procs != NULL) {
        write_text(cgroup_procs, "0");
    }
    int null_fd = open("/dev/null", O_RDWR);
    dup2(null_fd, STDIN_FILENO);
    dup2(null_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    close_range(STDERR_FILENO + 1, ~0U, 0);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve("/proc/self/exe", arguments, home->environment);
    _exit(DEAD);
}

static mr_status start(const struct fleet_home *home, struct fleet_process *process,
                       struct mr_error *ret_error)
{
    int log[2];
    if (pipe2(log, O_CLOEXEC | O_NONBLOCK) != 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "no descriptors left: %s", strerror(errno));
    }
    MR_FREED char *procs =
        process->cgroup == NULL ? NULL : mr_formatted("%s/cgroup.procs", process->cgroup);
    int parent = getpid();
    int pid = fork();
    if (pid == 0) {
        become(home, process, procs, parent, log[1]);
    }
    close(log[1]);
    if (pid < 0) {
        close(log[0]);
        return mr_fail(ret_error, MR_ERR_SYSTEM, "no process can be started: %s", strerror(errno));
    }
    process->pid = pid;
    process->log_fd = log[0];
    return MR_OK;
}

mr_status mr_process_start(const struct fleet_home *home, const struct fleet_definition *definition,
                           struct fleet_process *process, struct mr_error *ret_error)
{
    /* A socket of its own, because one that this agent's predecessor has started may still listen on its. */
    static uint64_t started;
    MR_ASSERT(process->pid == 0);
    mr_process_done(process);
    process->socket_path = mr_formatted("%s/%s.%" PRIu64 ".sock", home->folder, definition->name,
                                        (uint64_t)getpid() * 100000 + ++started);
    MR_TRY(mr_process_write_options(home, definition, process, ret_error));
    if (home->cgroup != NULL) {
        make_cgroup(home, definition, process);
    }
    return start(home, process, ret_error);
}

/* An error in either form of the log, or what is printed before there is a log. */
static void keep_error(struct fleet_process *process, const char *line)
{
    static const char mark[] = "Z error ";
    MR_OBJECT cJSON *object = line[0] == '{' ? cJSON_Parse(line) : NULL;
    const char *level = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "level"));
    const char *said = NULL;
    if (level != NULL) {
        said = strcmp(level, "error") == 0
                   ? cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "message"))
                   : NULL;
    } else if (strstr(line, mark) != NULL) {
        said = strstr(line, mark) + strlen(mark);
    } else if (strstr(line, "Z info ") == NULL && strstr(line, "Z warn ") == NULL &&
               strstr(line, "Z debug ") == NULL && strncmp(line, "see ", 4) != 0) {
        said = line;
    }
    if (said != NULL && said[0] != '\0') {
        process->error.len = 0;
        mr_text_string(&process->error, said);
    }
}

static void take_log(struct fleet_process *process, const char *name, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != '\n' && process->line.len < LINE_MAX_BYTES) {
            mr_text_add(&process->line, &bytes[i], 1);
        } else if (bytes[i] == '\n' && process->line.len > 0) {
            mr_log_relay(name, process->line.data, process->line.len);
            keep_error(process, process->line.data);
            process->line.len = 0;
        }
    }
}

void mr_process_read_log(struct fleet_process *process, const char *name)
{
    char bytes[8192];
    ssize_t len;
    while (process->log_fd > 0 && (len = read(process->log_fd, bytes, sizeof(bytes))) != -1) {
        if (len == 0) {
            close(process->log_fd);
            process->log_fd = 0;
        }
        take_log(process, name, bytes, (size_t)len);
    }
}

bool mr_process_has_ended(struct fleet_process *process, const char *name, int32_t *ret_exit_code,
                          double *ret_cpu_seconds)
{
    int how;
    struct rusage usage;
    if (process->pid == 0 || wait4(process->pid, &how, WNOHANG, &usage) != process->pid) {
        return false;
    }
    mr_process_read_log(process, name);
    take_log(process, name, "\n", 1);
    process->pid = 0;
    *ret_exit_code = WIFSIGNALED(how) ? FLEET_SIGNALLED + WTERMSIG(how) : WEXITSTATUS(how);
    *ret_cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    return true;
}

void mr_process_done(struct fleet_process *process)
{
    if (process->log_fd > 0) {
        close(process->log_fd);
    }
    if (process->socket_path != NULL) {
        unlink(process->socket_path);
    }
    if (process->cgroup != NULL) {
        rmdir(process->cgroup);
    }
    free(process->config_path);
    free(process->socket_path);
    free(process->cgroup);
    mr_text_done(&process->line);
    mr_text_done(&process->error);
    *process = (struct fleet_process){0};
}
