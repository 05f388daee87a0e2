#include "agent/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "agent/child.h"
#include "base/cgroup.h"

enum { DEAD = 71 };

mr_status mr_process_write_options(const struct fleet_home *home,
                                   const struct fleet_definition *definition,
                                   const struct fleet_process *process, struct mr_error *ret_error)
{
    MR_TEXT(text);
    MR_FREED char *path = mr_formatted("%s/%s.toml", home->folder, definition->name);
    mr_text_format(&text, "# Made by millrace fleet run of generation %" PRIu64 ".\n",
                   definition->generation);
    mr_text_format(&text, "http.address = \"unix:%s\"\n", process->socket_path);
    if (strstr(definition->config, "source.postgres.handover") == NULL) {
        mr_text_string(&text, "source.postgres.handover = \"5m\"\n");
    }
    /* Options have a line each; those of http are the agent's to say. */
    for (const char *line = definition->config; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        len += line[len] == '\n';
        mr_text_add(&text, line, strncmp(line, "http.", 5) == 0 ? 0 : len);
        line += len;
    }
    return mr_fleet_write_file(path, 0600, &text)
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_SYSTEM,
                         "%s can't be written: %s; the agent's folder is [fleet] folder", path,
                         strerror(errno));
}

/* In the forked process, which may do only what is safe in a signal handler: others of its threads may have held a lock. */
static _Noreturn void become(const struct fleet_home *home, char *path, const char *cgroup_procs,
                             int parent, int log_fd)
{
    char program[] = "millrace", option[] = "--config";
    char *const arguments[] = {program, option, path, NULL};
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(DEAD); /* it was gone before it could be heard of */
    }
    int procs_fd = cgroup_procs == NULL ? -1 : open(cgroup_procs, O_WRONLY);
    if (cgroup_procs != NULL && write(procs_fd, "0", 1) != 1) {
        _exit(DEAD); /* it would have no limits */
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

mr_status mr_process_start(const struct fleet_home *home, const struct fleet_definition *definition,
                           struct fleet_process *process, struct mr_error *ret_error)
{
    /* A socket of its own, because one that this agent's predecessor has started may still listen on its. */
    static uint64_t started;
    const struct fleet_terms *terms = &definition->terms;
    bool is_limited = terms->memory_max == 0 && terms->cpu_weight == 0;
    int log[2], parent = getpid();
    MR_FREED char *procs = NULL, *path = mr_formatted("%s/%s.toml", home->folder, definition->name);
    snprintf(process->socket_path, sizeof(process->socket_path), "%s/%" PRIu64 ".sock",
             home->folder, (uint64_t)parent * 100000 + ++started);
    MR_TRY(mr_process_write_options(home, definition, process, ret_error));
    if (pipe2(log, O_CLOEXEC | O_NONBLOCK) != 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "no descriptors left: %s", strerror(errno));
    }
    if (home->cgroup != NULL) {
        process->cgroup = mr_formatted("%s/pipeline-%s", home->cgroup, definition->name);
        procs = mr_formatted("%s/cgroup.procs", process->cgroup);
        is_limited = mr_cgroup_make(process->cgroup, terms->memory_max, terms->cpu_weight);
    }
    if (!is_limited) {
        mr_log(MR_LOG_WARN, "fleet_pipeline_unlimited",
               "a pipeline runs without its limits: this agent can't make a cgroup with them; let "
               "systemd delegate cpu and memory to it",
               MR_LOG_STR("pipeline", definition->name));
    }
    int pid = fork();
    if (pid == 0) {
        become(home, path, procs, parent, log[1]);
    }
    close(log[1]);
    process->log.fd = log[0];
    if (pid < 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "no process can be started: %s", strerror(errno));
    }
    process->pid = pid;
    return MR_OK;
}

bool mr_process_has_ended(struct fleet_process *process, const char *name, int32_t *ret_exit_code,
                          double *ret_cpu_seconds)
{
    int how;
    struct rusage usage;
    if (process->pid == 0 || wait4(process->pid, &how, WNOHANG, &usage) != process->pid) {
        return false;
    }
    mr_log_relay_read(&process->log, name, true);
    process->pid = 0;
    *ret_exit_code = WIFSIGNALED(how) ? FLEET_SIGNALLED + WTERMSIG(how) : WEXITSTATUS(how);
    *ret_cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    return true;
}

void mr_process_done(struct fleet_process *process)
{
    if (process->socket_path[0] != '\0') {
        unlink(process->socket_path);
    }
    if (process->cgroup != NULL) {
        mr_cgroup_remove(process->cgroup);
    }
    free(process->cgroup);
    mr_log_relay_done(&process->log);
    *process = (struct fleet_process){0};
}
