#include "fleet/agent_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/thread.h"
#include "base/wake.h"

enum {
    STARTS_MAX = 8, /* at once */
    TURN_MS = 250,
};

extern char **environ;

bool mr_agent_is_ready(const struct fleet_agent *agent)
{
    return agent->reading.is_read && !agent->reading.is_back && agent->has_group;
}

static const char *name_of(const struct fleet_child *child)
{
    return child->definition.name;
}

static bool has_process(const struct fleet_agent *agent, const char *name)
{
    bool found = false;
    for (uint32_t i = 0; i < agent->children.count && !found; i++) {
        const struct fleet_child *child = agent->children.items[i];
        found = child->state.has_process && (name == NULL || strcmp(name_of(child), name) == 0);
    }
    return found;
}

/* ---- ends ---- */

static void end(struct fleet_child *child, int64_t now_ms)
{
    if (mr_child_end(&child->state, child->patience_ms, now_ms)) {
        kill(child->process.pid, SIGTERM);
        child->reload = RELOAD_NONE;
    }
}

static void log_end(const struct fleet_child *child, bool was_asked)
{
    const char *error = child->error == NULL ? "" : child->error;
    if (child->state.state == FLEET_HELD) {
        mr_log(MR_LOG_ERROR, "fleet_pipeline_held",
               "a restart would not mend this: it is started again with another definition, or by "
               "`millrace fleet retry`",
               MR_LOG_STR("pipeline", name_of(child)),
               MR_LOG_INT("exit_code", child->state.exit_code), MR_LOG_STR("error", error));
    } else {
        mr_log(was_asked ? MR_LOG_INFO : MR_LOG_WARN, "fleet_pipeline_ended",
               "the process of a pipeline has ended", MR_LOG_STR("pipeline", name_of(child)),
               MR_LOG_INT("exit_code", child->state.exit_code),
               MR_LOG_STR("state", mr_fleet_states[child->state.state]),
               MR_LOG_STR("error", error));
    }
}

static void take_end(struct fleet_child *child, int32_t code, double cpu_seconds, int64_t now_ms)
{
    bool was_asked = child->state.state == FLEET_ENDING;
    child->before.cpu_seconds += cpu_seconds;
    child->before.rows += child->seen.rows > 0 ? child->seen.rows : 0;
    child->before.bytes += child->seen.bytes > 0 ? child->seen.bytes : 0;
    child->seen = (struct fleet_seen){0};
    child->reload = RELOAD_NONE;
    free(child->error);
    child->error = was_asked || child->process.error.data == NULL
                       ? NULL
                       : MR_STRDUP(child->process.error.data);
    mr_child_ended(&child->state, code, now_ms);
    child->exits[code < FLEET_SIGNALLED ? code : FLEET_SIGNALLED]++;
    log_end(child, was_asked);
}

/* Processes that have ended, what the others say, and those that take too long to end. */
static void watch(struct fleet_agent *agent, int64_t now_ms)
{
    for (uint32_t i = 0; i < agent->children.count; i++) {
        struct fleet_child *child = agent->children.items[i];
        int32_t code;
        double cpu_seconds;
        if (!child->state.has_process) {
            continue;
        }
        mr_process_read_log(&child->process, name_of(child));
        if (mr_process_has_ended(&child->process, name_of(child), &code, &cpu_seconds)) {
            take_end(child, code, cpu_seconds, now_ms);
            continue;
        }
        if (child->seen.at_ms != 0) {
            mr_child_seen(&child->state, child->seen.state, now_ms);
        }
        if (mr_child_is_overdue(&child->state, now_ms)) {
            mr_log(MR_LOG_WARN, "fleet_pipeline_killed",
                   "the process of a pipeline did not end in time; some rows may come twice "
                   "without exactly-once",
                   MR_LOG_STR("pipeline", name_of(child)));
            kill(child->process.pid, SIGKILL);
            child->state.limit_ms = INT64_MAX;
            agent->has_killed = true;
        }
    }
}

/* ---- what is to run ---- */

static void log_reload(const struct fleet_child *child, enum mr_log_level level,
                       const char *sentence)
{
    mr_log(level, "fleet_pipeline_reloaded", sentence, MR_LOG_STR("pipeline", name_of(child)),
           MR_LOG_INT("generation", child->reload_generation),
           MR_LOG_STR("error",
                      child->reload == RELOAD_REFUSED && child->error != NULL ? child->error : ""));
}

static void take_reload(struct fleet_child *child, int64_t now_ms)
{
    if (child->reload == RELOAD_DONE) {
        child->generation = child->reload_generation;
        log_reload(child, MR_LOG_INFO, "a pipeline has taken up its new definition");
        child->reload = RELOAD_NONE;
    } else if (child->reload == RELOAD_RESTART) {
        log_reload(child, MR_LOG_INFO, "the new definition needs a restart");
        end(child, now_ms);
    } else if (child->reload == RELOAD_REFUSED) {
        log_reload(child, MR_LOG_ERROR,
                   "a pipeline refuses its new definition, and goes on with the one before");
        child->reload = RELOAD_NONE;
        child->refused_generation = child->reload_generation;
    }
}

/* Another definition than the process has. */
static void renew(struct fleet_agent *agent, struct fleet_child *child, int64_t now_ms)
{
    struct mr_error error;
    uint64_t wanted = child->definition.generation;
    if (wanted == child->refused_generation || child->reload != RELOAD_NONE) {
        return;
    }
    mr_child_renew(&child->state, now_ms);
    if (!child->state.has_process || child->state.state == FLEET_ENDING) {
        return;
    }
    /* One that has no stream yet would refuse to reload. */
    if (child->state.state == FLEET_STREAMING &&
        mr_process_write_options(&agent->home, &child->definition, &child->process, &error) ==
            MR_OK) {
        child->reload = RELOAD_WANTED;
        child->reload_generation = wanted;
    } else {
        end(child, now_ms);
    }
}

static void settle_defined(struct fleet_agent *agent, struct fleet_child *child, int64_t now_ms)
{
    bool is_to_run = child->is_defined && child->definition.terms.run && child->unreadable == NULL;
    if (child->is_defined && child->unreadable != NULL && child->state.has_process) {
        return; /* it goes on with what it has */
    }
    mr_child_want(&child->state, is_to_run, now_ms);
    if (!is_to_run) {
        end(child, now_ms);
        return;
    }
    if (child->state.starts > 0 && child->retry != child->definition.retry) {
        mr_child_renew(&child->state, now_ms);
        end(child, now_ms);
    } else if (child->state.starts > 0 && child->generation != child->definition.generation) {
        renew(agent, child, now_ms);
    }
}

static void settle(struct fleet_agent *agent, struct fleet_child *child, int64_t now_ms)
{
    take_reload(child, now_ms);
    enum fleet_hold hold = agent->holds[child->definition.partition];
    bool is_given_up = hold == HOLD_NONE || hold == HOLD_LEAVING || agent->is_ending ||
                       (hold == HOLD_KEPT && agent->reading.drains && child->is_taken_over);
    if (is_given_up) {
        mr_child_want(&child->state, false, now_ms);
        end(child, now_ms);
    } else if (hold == HOLD_READ && !agent->reading.is_back) {
        settle_defined(agent, child, now_ms);
    }
}

static void start(struct fleet_agent *agent, struct fleet_child *child, int64_t now_ms)
{
    struct mr_error error;
    mr_child_started(&child->state, now_ms);
    child->generation = child->definition.generation;
    child->retry = child->definition.retry;
    child->refused_generation = 0;
    if (mr_process_start(&agent->home, &child->definition, &child->process, &error) != MR_OK) {
        mr_text_string(&child->process.error, error.text);
        take_end(child, mr_status_exit_code(MR_ERR_SYSTEM), 0, now_ms);
        return;
    }
    mr_log(MR_LOG_INFO, "fleet_pipeline_started", "the process of a pipeline was started",
           MR_LOG_STR("pipeline", name_of(child)), MR_LOG_INT("pid", child->process.pid),
           MR_LOG_INT("generation", child->generation));
}

/* Within the host's limits, beside those that have a place. */
static bool has_room(const struct fleet_agent *agent, const struct fleet_child *child)
{
    const struct fleet_own *own = agent->own;
    uint64_t pipelines = 1, memory = child->memory;
    for (uint32_t i = 0; i < agent->children.count; i++) {
        const struct fleet_child *other = agent->children.items[i];
        pipelines += other->has_place;
        memory += other->has_place ? other->memory : 0;
    }
    return (own->pipelines_max == 0 || pipelines <= own->pipelines_max) &&
           (own->memory_max == 0 || memory <= own->memory_max);
}

static void start_due(struct fleet_agent *agent, int64_t now_ms)
{
    uint32_t starting = 0;
    for (uint32_t i = 0; i < agent->children.count; i++) {
        struct fleet_child *child = agent->children.items[i];
        starting += mr_child_is_being_started(&child->state, now_ms);
        child->has_place &= child->state.state != FLEET_STOPPED && child->state.state != FLEET_HELD;
    }
    for (uint32_t i = 0; i < agent->children.count; i++) {
        struct fleet_child *child = agent->children.items[i];
        enum fleet_hold hold = agent->holds[child->definition.partition];
        bool is_due = (hold == HOLD_READ || hold == HOLD_KEPT) && child->state.is_wanted &&
                      mr_child_may_start(&child->state, now_ms) &&
                      !has_process(agent, name_of(child));
        child->is_surplus = is_due && !child->has_place && !has_room(agent, child);
        if (is_due && !child->is_surplus && starting < STARTS_MAX) {
            child->has_place = true;
            start(agent, child, now_ms);
            starting++;
        }
    }
}

/* Those whose definition is gone, or that others have. */
static void forget(struct fleet_agent *agent)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < agent->children.count; i++) {
        struct fleet_child *child = agent->children.items[i];
        enum fleet_hold hold = agent->holds[child->definition.partition];
        bool is_gone = hold == HOLD_READ && !child->is_defined && !agent->reading.is_back;
        if (child->state.has_process || (hold != HOLD_NONE && !is_gone)) {
            agent->children.items[kept++] = child;
            continue;
        }
        if (is_gone) {
            mr_tell_gone(agent, name_of(child));
        }
        mr_agent_child_free(child);
    }
    agent->children.count = kept;
}

/* What was revoked is given up at once, when the last of its processes has ended. */
static void release(struct fleet_agent *agent)
{
    bool has_leaving = false, is_busy = false;
    for (uint32_t i = 0; i < FLEET_PARTITIONS; i++) {
        has_leaving |= agent->holds[i] == HOLD_LEAVING;
    }
    for (uint32_t i = 0; i < agent->children.count; i++) {
        const struct fleet_child *child = agent->children.items[i];
        is_busy |=
            agent->holds[child->definition.partition] == HOLD_LEAVING && child->state.has_process;
    }
    if (!has_leaving || is_busy) {
        return;
    }
    mr_tell(agent, mr_monotonic_ns() / 1000000); /* before others speak of them */
    for (uint32_t i = 0; i < FLEET_PARTITIONS; i++) {
        agent->holds[i] = agent->holds[i] == HOLD_LEAVING ? HOLD_NONE : agent->holds[i];
    }
    mr_kafka_group_release(agent->member);
}

/* ---- the loop ---- */

static void take_signals(struct fleet_agent *agent)
{
    struct signalfd_siginfo info;
    while (read(agent->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo != SIGTERM && info.ssi_signo != SIGINT) {
            continue;
        }
        mr_log(MR_LOG_INFO, "stopping", "asked to stop: ending all pipelines in order",
               MR_LOG_INT("signal", info.ssi_signo));
        for (uint32_t i = 0; agent->is_ending && i < agent->children.count; i++) {
            agent->children.items[i]->state.limit_ms = 0; /* the second one leaves no time */
        }
        agent->is_ending = true;
    }
}

static mr_status turn(struct fleet_agent *agent, struct mr_error *ret_error)
{
    int64_t now_ms = mr_monotonic_ns() / 1000000;
    take_signals(agent);
    watch(agent, now_ms);
    mr_status status = agent->is_fenced ? MR_OK : mr_agent_news(agent, now_ms, ret_error);
    agent->is_ending |= status != MR_OK;
    for (uint32_t i = 0; i < agent->children.count; i++) {
        settle(agent, agent->children.items[i], now_ms);
    }
    release(agent);
    start_due(agent, now_ms);
    forget(agent);
    mr_tell(agent, now_ms);
    return status;
}

/* For news, a signal, a line of a log, or a while. */
static void wait_for_more(struct fleet_agent *agent)
{
    struct pollfd *fds = MR_NEW_ARRAY(struct pollfd, agent->children.count + 2);
    nfds_t count = 2;
    fds[0] = (struct pollfd){.fd = agent->signal_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = agent->wake_fd, .events = POLLIN};
    for (uint32_t i = 0; i < agent->children.count; i++) {
        int fd = agent->children.items[i]->process.log_fd;
        if (fd > 0) {
            fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
    pthread_mutex_unlock(&agent->lock);
    poll(fds, count, TURN_MS);
    if (fds[1].revents != 0) {
        mr_wake_clear(agent->wake_fd);
    }
    pthread_mutex_lock(&agent->lock);
    free(fds);
}

/* Until all has ended that was asked to. The first failure is the answer. */
static mr_status loop(struct fleet_agent *agent, struct mr_error *ret_error)
{
    mr_status status = MR_OK;
    struct mr_error error;
    pthread_mutex_lock(&agent->lock);
    while (!agent->is_ending || has_process(agent, NULL)) {
        mr_status one = turn(agent, &error);
        if (one != MR_OK && status == MR_OK) {
            status = one;
            *ret_error = error;
            mr_log(MR_LOG_ERROR, "fleet_ends", error.text);
        }
        wait_for_more(agent);
    }
    mr_tell_end(agent);
    pthread_mutex_unlock(&agent->lock);
    return status == MR_OK && agent->has_killed
               ? mr_fail(ret_error, MR_ERR_DEADLINE, "a pipeline did not end in time")
               : status;
}

/* ---- beginning and end ---- */

static mr_status begin(struct fleet_agent *agent, struct mr_error *ret_error)
{
    const struct fleet_own *own = agent->own;
    MR_TRY(mr_programs_start(&own->config->programs, ret_error));
    agent->signal_fd = mr_thread_signals(true);
    if (agent->signal_fd < 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "no descriptors left: %s", strerror(errno));
    }
    if (mkdir(own->folder, 0700) != 0 && errno != EEXIST) {
        return mr_fail(ret_error, MR_ERR_SYSTEM,
                       "folder %s can't be made: %s; set [fleet] folder to one that this user may "
                       "write",
                       own->folder, strerror(errno));
    }
    mr_process_find_cgroup(&agent->home);
    mr_log_start();
    mr_log(MR_LOG_INFO, "fleet_started", "millrace " MR_VERSION " runs pipelines of a fleet",
           MR_LOG_STR("fleet", own->name), MR_LOG_STR("node", agent->node),
           MR_LOG_STR("folder", own->folder),
           MR_LOG_STR("cgroup", agent->home.cgroup == NULL ? "none" : agent->home.cgroup));
    MR_TRY(mr_kafka_group_new(
        &(struct mr_kafka_group_options){.kafka = &own->config->kafka,
                                         .topics = {agent->topic, agent->status_topic},
                                         .wake_fd = agent->wake_fd},
        &agent->watcher, ret_error));
    MR_TRY(mr_agent_pages_start(agent, ret_error));
    return mr_look_start(agent, ret_error);
}

static void agent_done(struct fleet_agent *agent)
{
    mr_look_stop(agent);
    mr_http_free(agent->http);
    mr_fleet_view_close(agent->view);
    mr_kafka_group_free(agent->member);
    mr_kafka_group_free(agent->watcher);
    mr_fleet_store_close(&agent->store);
    for (uint32_t i = 0; i < agent->children.count; i++) {
        mr_agent_child_free(agent->children.items[i]);
    }
    free(agent->children.items);
    pthread_mutex_destroy(&agent->lock);
    pthread_mutex_destroy(&agent->view_lock);
    close(agent->signal_fd);
    close(agent->wake_fd);
    free(agent->home.cgroup);
    free(agent->topic);
    free(agent->status_topic);
}

static mr_status run(const struct fleet_own *own, const char *node, char *const *environment,
                     struct mr_error *ret_error)
{
    struct fleet_agent *agent = MR_NEW(struct fleet_agent);
    *agent = (struct fleet_agent){
        .own = own,
        .node = node,
        .home = {.folder = own->folder, .environment = environment},
        .store = {.own = own},
        .signal_fd = -1,
        .wake_fd = mr_wake_new(),
        .topic = mr_fleet_topic(own->name, false),
        .status_topic = mr_fleet_topic(own->name, true),
    };
    pthread_mutex_init(&agent->lock, NULL);
    pthread_mutex_init(&agent->view_lock, NULL);
    mr_status status = begin(agent, ret_error);
    status = status == MR_OK ? loop(agent, ret_error) : status;
    agent_done(agent);
    mr_log(status == MR_OK ? MR_LOG_INFO : MR_LOG_ERROR, "stopped",
           status == MR_OK ? "all pipelines have ended in order" : ret_error->text,
           MR_LOG_INT("exit_code", mr_status_exit_code(status)));
    mr_log_stop();
    ret_error->text[0] = '\0'; /* the log has it */
    free(agent);
    return status;
}

/* As it is before secrets are read, which empties their variables: processes need them, too. */
static char **copy_environment(void)
{
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **copy = MR_NEW_ARRAY(char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        copy[i] = MR_STRDUP(environ[i]);
    }
    copy[count] = NULL;
    return copy;
}

mr_status mr_fleet_run(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                       struct mr_error *ret_error)
{
    *ret_code = 0;
    struct fleet_own own;
    char **environment = copy_environment();
    mr_status status = mr_fleet_own_read(options->path, &own, ret_error);
    if (status == MR_OK && !mr_fleet_is_name(options->node)) {
        status =
            mr_fail(ret_error, MR_ERR_USAGE,
                    "--node wants a name: letters, digits, _ . and -, %d at most", FLEET_NAME_MAX);
    }
    if (status == MR_OK) {
        mr_log_configure(own.config->log_level, own.config->log_format);
        status = run(&own, options->node, environment, ret_error);
    }
    mr_fleet_own_done(&own);
    for (char **one = environment; *one != NULL; one++) {
        mr_secret_forget(*one);
    }
    free(environment);
    return status;
}
