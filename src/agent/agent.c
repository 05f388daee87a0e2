#include "agent/agent.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "agent/agent_internal.h"
#include "base/cgroup.h"
#include "base/wake.h"

enum {
    STARTS_MAX = 8, /* at once */
    TURN_MS = 250,
    REST_MS = 10, /* between two turns at least: a lock is not fair to those who wait for it */
};

extern char **environ;

bool mr_agent_is_ready(const struct fleet_agent *agent)
{
    return agent->reading.is_read && !agent->reading.is_back && agent->has_group;
}

uint32_t mr_agent_count(const struct fleet_agent *agent, enum fleet_hold hold)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < FLEET_PARTITIONS; i++) {
        count += agent->holds[i] == hold;
    }
    return count;
}

/* One of that name; NULL: of any. */
static bool has_process(const struct fleet_agent *agent, const char *name)
{
    const struct fleet_child *child = agent->children;
    while (child != NULL && (!child->state.has_process ||
                             (name != NULL && strcmp(child->definition.name, name) != 0))) {
        child = child->next;
    }
    return child != NULL;
}

/* ---- ends ---- */

void mr_agent_end(struct fleet_child *child, int64_t now_ms)
{
    if (mr_child_end(&child->state, child->patience_ms, now_ms)) {
        kill(child->process.pid, SIGTERM);
    }
}

static void take_end(struct fleet_child *child, int32_t code, double cpu_seconds, int64_t now_ms)
{
    bool was_asked = child->state.state == FLEET_ENDING;
    const char *said = was_asked ? NULL : child->process.log.error.data;
    free(child->error);
    child->error = MR_STRDUP(said == NULL ? "" : said);
    child->before.cpu_seconds += cpu_seconds;
    child->before.rows = child->status.rows;
    child->before.bytes = child->status.bytes;
    child->reload = (struct fleet_reload){0};
    mr_look_forget(child);
    mr_process_done(&child->process);
    mr_child_ended(&child->state, code, now_ms);
    child->exits[code < FLEET_SIGNALLED ? code : FLEET_SIGNALLED]++;
    const struct mr_log_field fields[] = {MR_LOG_STR("pipeline", child->definition.name),
                                          MR_LOG_INT("exit_code", code),
                                          MR_LOG_STR("state", mr_fleet_states[child->state.state]),
                                          MR_LOG_STR("error", child->error),
                                          {0}};
    if (child->state.state == FLEET_HELD) {
        mr_log_write(MR_LOG_ERROR, "fleet_pipeline_held",
                     "a restart would not mend this: it is started again with another definition, "
                     "or by `millrace fleet retry`",
                     fields);
    } else {
        mr_log_write(was_asked ? MR_LOG_INFO : MR_LOG_WARN, "fleet_pipeline_ended",
                     "the process of a pipeline has ended", fields);
    }
}

/* Whether the process has ended, what its log has, and whether it takes too long to end. */
static void watch(struct fleet_agent *agent, struct fleet_child *child, int64_t now_ms)
{
    const char *name = child->definition.name;
    int32_t code;
    double cpu_seconds;
    mr_log_relay_read(&child->process.log, name, false);
    if (mr_process_has_ended(&child->process, name, &code, &cpu_seconds)) {
        take_end(child, code, cpu_seconds, now_ms);
    } else if (mr_child_is_overdue(&child->state, now_ms)) {
        mr_log(MR_LOG_WARN, "fleet_pipeline_killed",
               "the process of a pipeline did not end in time; some rows may come twice "
               "without exactly-once",
               MR_LOG_STR("pipeline", name));
        kill(child->process.pid, SIGKILL);
        child->state.limit_ms = INT64_MAX;
        agent->has_killed = true;
    }
}

/* ---- what is to run ---- */

/* Another definition than the process has. One that has no stream yet would refuse to reload. */
static void renew(struct fleet_agent *agent, struct fleet_child *child, int64_t now_ms)
{
    struct mr_error error;
    uint64_t wanted = child->definition.generation;
    if (wanted == child->reload.refused || child->reload.generation != 0) {
        return;
    }
    mr_child_renew(&child->state, now_ms);
    if (child->state.state != FLEET_STREAMING) {
        mr_agent_end(child, now_ms);
        return;
    }
    child->reload.generation = wanted;
    if (mr_process_write_options(&agent->home, &child->definition, &child->process, &error) !=
        MR_OK) {
        mr_look_reloaded(child, false, error.text); /* a start would want the file, too */
    }
}

static void settle(struct fleet_agent *agent, struct fleet_child *child, int64_t now_ms)
{
    const struct fleet_definition *definition = &child->definition;
    struct fleet_child_state *state = &child->state;
    enum fleet_hold hold = agent->holds[definition->partition];
    bool is_given_up = hold == HOLD_NONE || hold == HOLD_LEAVING || agent->is_ending ||
                       (hold == HOLD_KEPT && agent->reading.drains && child->is_taken_over);
    bool is_unknown = child->is_defined && child->unreadable != NULL;
    if (!is_given_up &&
        (hold != HOLD_READ || agent->reading.is_back || (is_unknown && state->has_process))) {
        return; /* it goes on with what it has */
    }
    bool is_wanted = !is_given_up && child->is_defined && !is_unknown && definition->terms.run;
    bool has_started = state->starts > 0;
    mr_child_want(state, is_wanted, now_ms);
    if (!is_wanted) {
        mr_agent_end(child, now_ms);
    } else if (has_started && child->status.retry != definition->retry) {
        mr_child_renew(state, now_ms);
        mr_agent_end(child, now_ms);
    } else if (has_started && child->status.generation != definition->generation) {
        renew(agent, child, now_ms);
    }
}

static void start(struct fleet_agent *agent, struct fleet_child *child, int64_t now_ms)
{
    struct mr_error error;
    const struct fleet_definition *definition = &child->definition;
    mr_child_started(&child->state, now_ms);
    child->has_place = true;
    child->looked_ms = now_ms;
    child->status.generation = definition->generation;
    child->status.retry = definition->retry;
    if (mr_process_start(&agent->home, definition, &child->process, &error) != MR_OK) {
        mr_text_string(&child->process.log.error, error.text);
        take_end(child, mr_status_exit_code(MR_ERR_SYSTEM), 0, now_ms);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(agent->wait_fd, EPOLL_CTL_ADD, child->process.log.fd, &event);
    mr_log(MR_LOG_INFO, "fleet_pipeline_started", "the process of a pipeline was started",
           MR_LOG_STR("pipeline", definition->name), MR_LOG_INT("pid", child->process.pid),
           MR_LOG_INT("generation", definition->generation));
}

/* Within the host's limits, of which those that have a place take their part. */
static void start_due(struct fleet_agent *agent, int64_t now_ms)
{
    const struct fleet_own *own = agent->own;
    uint64_t starting = 0, pipelines = 0, memory = 0;
    for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        enum fleet_state state = child->state.state;
        starting += mr_child_is_being_started(&child->state, now_ms);
        child->has_place &= state != FLEET_STOPPED && state != FLEET_HELD;
        pipelines += child->has_place;
        memory += child->has_place ? child->memory : 0;
    }
    for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        enum fleet_hold hold = agent->holds[child->definition.partition];
        bool is_due = (hold == HOLD_READ || hold == HOLD_KEPT) && child->state.is_wanted &&
                      child->askers == 0 && mr_child_may_start(&child->state, now_ms);
        bool fits = (own->pipelines_max == 0 || pipelines < own->pipelines_max) &&
                    (own->memory_max == 0 || memory + child->memory <= own->memory_max);
        bool is_surplus = is_due && !child->has_place && !fits;
        if (is_surplus != child->status.is_surplus) {
            child->status.is_surplus = is_surplus;
            child->state.told_ms = 0;
        }
        if (is_due && !is_surplus && starting < STARTS_MAX &&
            !has_process(agent, child->definition.name)) {
            starting++;
            pipelines += !child->has_place;
            memory += child->has_place ? 0 : child->memory;
            start(agent, child, now_ms);
        }
    }
}

/* Those whose definition is gone, or that others have. */
static void forget(struct fleet_agent *agent)
{
    for (struct fleet_child **at = &agent->children; *at != NULL;) {
        struct fleet_child *child = *at;
        enum fleet_hold hold = agent->holds[child->definition.partition];
        bool is_gone = hold == HOLD_READ && !child->is_defined && !agent->reading.is_back;
        if (child->state.has_process || child->askers > 0 || (hold != HOLD_NONE && !is_gone)) {
            at = &child->next;
            continue;
        }
        if (is_gone) {
            mr_tell_gone(agent, child->definition.name);
        }
        *at = child->next;
        mr_agent_child_free(child);
    }
}

/* What was revoked is given up at once, when the last of its processes has ended. */
static void release(struct fleet_agent *agent, int64_t now_ms)
{
    bool is_busy = mr_agent_count(agent, HOLD_LEAVING) == 0;
    for (const struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        is_busy |=
            agent->holds[child->definition.partition] == HOLD_LEAVING && child->state.has_process;
    }
    if (is_busy) {
        return;
    }
    mr_tell(agent, now_ms); /* before others speak of them */
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
        for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
            child->state.limit_ms = agent->is_ending ? 0 : child->state.limit_ms; /* no more time */
        }
        agent->is_ending = true;
    }
}

static mr_status turn(struct fleet_agent *agent, struct mr_error *ret_error)
{
    int64_t now_ms = mr_agent_now_ms();
    take_signals(agent);
    mr_status status = agent->is_fenced ? MR_OK : mr_agent_news(agent, now_ms, ret_error);
    atomic_store(&agent->is_ready, mr_agent_is_ready(agent));
    agent->is_ending |= status != MR_OK;
    for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        watch(agent, child, now_ms);
        settle(agent, child, now_ms);
    }
    release(agent, now_ms);
    start_due(agent, now_ms);
    forget(agent);
    mr_tell(agent, now_ms);
    return status;
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
        struct epoll_event event; /* news, a signal, a line of a log, or a while */
        pthread_mutex_unlock(&agent->lock);
        usleep(REST_MS * 1000);
        epoll_wait(agent->wait_fd, &event, 1, TURN_MS);
        mr_wake_clear(agent->wake_fd);
        pthread_mutex_lock(&agent->lock);
    }
    mr_tell(agent, mr_agent_now_ms());
    mr_tell_node(agent, true);
    pthread_mutex_unlock(&agent->lock);
    return status == MR_OK && agent->has_killed
               ? mr_fail(ret_error, MR_ERR_DEADLINE, "a pipeline did not end in time")
               : status;
}

/* ---- beginning and end ---- */

static mr_status begin(struct fleet_agent *agent, struct mr_error *ret_error)
{
    const struct fleet_own *own = agent->own;
    struct epoll_event event = {.events = EPOLLIN};
    agent->home.cgroup = mr_cgroup_take(); /* with no process yet that would stay in it */
    MR_TRY(mr_programs_start(&own->config->programs, ret_error));
    agent->signal_fd = mr_thread_signals(true);
    agent->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ctl(agent->wait_fd, EPOLL_CTL_ADD, agent->signal_fd, &event) != 0 ||
        epoll_ctl(agent->wait_fd, EPOLL_CTL_ADD, agent->wake_fd, &event) != 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "no descriptors left: %s", strerror(errno));
    }
    if (mkdir(own->folder, 0700) != 0 && errno != EEXIST) {
        return mr_fail(ret_error, MR_ERR_SYSTEM,
                       "%s can't be made: %s; set [fleet] folder to one that this user may write",
                       own->folder, strerror(errno));
    }
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
    return mr_ticker_start(&agent->looker, TURN_MS, ret_error);
}

static void agent_done(struct fleet_agent *agent)
{
    mr_ticker_stop(&agent->looker);
    mr_ticker_done(&agent->looker);
    mr_http_free(agent->http);
    mr_fleet_view_close(agent->view);
    mr_kafka_group_free(agent->member);
    mr_kafka_group_free(agent->watcher);
    mr_fleet_store_close(&agent->store);
    for (struct fleet_child *child = agent->children, *next; child != NULL; child = next) {
        next = child->next;
        mr_agent_child_free(child);
    }
    pthread_mutex_destroy(&agent->lock);
    close(agent->signal_fd);
    close(agent->wake_fd);
    close(agent->wait_fd);
    free(agent->home.cgroup);
    free(agent->topic);
    free(agent->status_topic);
    free(agent);
}

static mr_status run(const struct fleet_own *own, const char *node, char **environment,
                     struct mr_error *ret_error)
{
    struct fleet_agent *agent = MR_NEW(struct fleet_agent);
    *agent = (struct fleet_agent){
        .own = own,
        .node = node,
        .home = {.folder = own->folder, .environment = environment},
        .store = {.own = own},
        .signal_fd = -1,
        .wait_fd = -1,
        .wake_fd = mr_wake_new(),
        .topic = mr_fleet_topic(own->name, false),
        .status_topic = mr_fleet_topic(own->name, true),
    };
    pthread_mutex_init(&agent->lock, NULL);
    mr_ticker_init(&agent->looker, "mr-look", mr_look, agent);
    mr_status status = begin(agent, ret_error);
    status = MR_THEN(status, loop(agent, ret_error));
    agent_done(agent);
    mr_log(status == MR_OK ? MR_LOG_INFO : MR_LOG_ERROR, "stopped",
           status == MR_OK ? "all pipelines have ended in order" : ret_error->text,
           MR_LOG_INT("exit_code", mr_status_exit_code(status)));
    mr_log_stop();
    ret_error->text[0] = '\0'; /* the log has it */
    return status;
}

mr_status mr_agent_run(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                       struct mr_error *ret_error)
{
    struct fleet_own own;
    char **environment = NULL;
    uint32_t count = 0, room = 0;
    *ret_code = 0;
    /* As it is before secrets are read, which empties their variables: processes need them, too. */
    for (char **one = environ; one == environ || one[-1] != NULL; one++) {
        MR_GROW(environment, room, count + 1);
        environment[count++] = *one == NULL ? NULL : MR_STRDUP(*one);
    }
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
    for (uint32_t i = 0; i < count; i++) {
        mr_secret_forget(environment[i]);
    }
    free(environment);
    return status;
}
