/* What Kafka says to an agent: which partitions are its, which pipelines they define, whether the node is to drain, and what others say of
 * their pipelines. Decides nothing about processes. Main thread, with the lock. */
#include "agent/agent_internal.h"

enum {
    POLL_MS = 120000, /* a process that is revoked may take pipeline.shutdown_deadline */
    REFUSED_MS = 60000,
    AGAIN_MS = 5000,  /* after what was followed was not there */
    LATE_MS = 120000, /* behind a loss; a request may come as late as Kafka waits for one */
    KILL_MS = 6000, /* behind the deadline: a process leaves by itself 5 s behind it (cli/run.c) */
};

/* ---- definitions ---- */

static void definition_done(struct fleet_definition *definition)
{
    struct fleet_record record = {.kind = FLEET_RECORD_DEFINITION, .definition = *definition};
    mr_fleet_record_done(&record);
}

void mr_agent_child_free(struct fleet_child *child)
{
    definition_done(&child->definition);
    mr_process_done(&child->process);
    free(child->unreadable);
    free(child->error);
    free(child);
}

/* Of a partition: a pipeline that moves is there twice for a while. NULL: there is none. */
static struct fleet_child *find(const struct fleet_agent *agent, const char *name,
                                int32_t partition)
{
    struct fleet_child *child = agent->children;
    while (child != NULL && (child->definition.partition != partition ||
                             strcmp(child->definition.name, name) != 0)) {
        child = child->next;
    }
    return child;
}

static struct fleet_child *add(struct fleet_agent *agent, const char *name, int32_t partition,
                               int64_t now_ms)
{
    struct fleet_child *child = MR_NEW(struct fleet_child);
    *child = (struct fleet_child){.definition = {.name = MR_STRDUP(name), .partition = partition},
                                  .state = mr_child_new(now_ms),
                                  .next = agent->children};
    mr_look_forget(child);
    return agent->children = child;
}

/* How long the process may take to end, and its memory, by its options; one that can't be read ends at once. */
static void take_options(struct fleet_child *child)
{
    const struct fleet_definition *definition = &child->definition;
    struct mr_config *config;
    bool good = mr_config_load_elsewhere(definition->name, definition->config,
                                         strlen(definition->config), &config) == MR_OK;
    child->patience_ms = (good ? config->values.shutdown_deadline : 0) + KILL_MS;
    child->memory = definition->terms.memory_max != 0 ? definition->terms.memory_max
                    : good                            ? (uint64_t)config->values.memory
                                                      : 0;
    mr_config_free(config);
}

/* `fault`: why it can't be read; NULL: it can. */
static void take_definition(struct fleet_agent *agent, struct fleet_record *record,
                            const char *fault, int64_t now_ms)
{
    const char *name = record->definition.name;
    struct fleet_child *child = find(agent, name, record->definition.partition);
    if (child == NULL && record->is_gone) {
        return;
    }
    child = child != NULL ? child : add(agent, name, record->definition.partition, now_ms);
    child->is_read = true;
    child->is_defined = !record->is_gone;
    free(child->unreadable);
    child->unreadable = fault == NULL ? NULL : MR_STRDUP(fault);
    if (fault != NULL) {
        mr_log(MR_LOG_ERROR, "fleet_definition_unreadable", fault, MR_LOG_STR("pipeline", name));
    } else if (!record->is_gone) {
        definition_done(&child->definition);
        child->definition = record->definition;
        *record = (struct fleet_record){.kind = FLEET_RECORD_OTHER}; /* its texts are the child's */
        take_options(child);
    }
}

/* ---- what every agent reads ---- */

/* What it has goes on until it is known whose it is: the topic's records are not looked at meanwhile. */
static void leave(struct fleet_agent *agent)
{
    mr_kafka_group_free(agent->member);
    agent->member = NULL;
    agent->has_group = false;
    for (uint32_t i = 0; i < FLEET_PARTITIONS; i++) {
        agent->holds[i] = agent->holds[i] == HOLD_NONE ? HOLD_NONE : HOLD_KEPT;
    }
}

/* 0: there is none, or not any more. */
static void take_revision(struct fleet_agent *agent, uint64_t revision)
{
    struct fleet_reading *reading = &agent->reading;
    bool was_back = reading->is_back;
    reading->revision = revision;
    reading->is_back = revision < reading->newest;
    if (reading->is_back && !was_back) {
        mr_log(MR_LOG_ERROR, "fleet_revision_back",
               "the definitions are gone, or older than what this agent has seen: nothing is "
               "changed, and pipelines go on as they are; apply the definition again",
               MR_LOG_INT("revision", revision), MR_LOG_INT("newest", reading->newest));
    } else if (!reading->is_back) {
        reading->newest = revision;
    }
    if (was_back && !reading->is_back) {
        mr_log(MR_LOG_INFO, "fleet_revision_forward", "the definitions are newer again",
               MR_LOG_INT("revision", revision));
        leave(agent); /* to read all of them again; under the same name, so partitions stay */
    }
}

static void take_drain(struct fleet_agent *agent, bool drains)
{
    if (drains != agent->reading.drains) {
        mr_log(MR_LOG_INFO, "fleet_drain",
               drains ? "this node drains: each pipeline ends once another agent's stands by"
                      : "this node takes part again");
    }
    agent->reading.drains = drains;
}

/* Any agent says so again and again: what came before there was a child is not missed. */
static void take_status(struct fleet_agent *agent, const struct fleet_record *record)
{
    const struct fleet_status *status = &record->status;
    bool is_served = !record->is_gone && strcmp(status->node, agent->node) != 0 &&
                     (status->state == FLEET_STANDBY || status->state == FLEET_STREAMING);
    for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        child->is_taken_over =
            strcmp(child->definition.name, status->name) == 0 ? is_served : child->is_taken_over;
    }
}

static void take_record(struct fleet_agent *agent, const struct mr_kafka_news_item *news,
                        bool is_member, int64_t now_ms)
{
    struct fleet_record record;
    struct mr_error error;
    mr_status status =
        mr_fleet_record_read(news->topic == agent->status_topic, &news->record, &record, &error);
    if (record.kind == FLEET_RECORD_DEFINITION && !agent->reading.is_back) {
        take_definition(agent, &record, status == MR_OK ? NULL : error.text, now_ms);
    } else if (status != MR_OK || is_member) {
        /* The watcher reads the first partition, too. */
    } else if (record.kind == FLEET_RECORD_STATUS) {
        take_status(agent, &record);
    } else if (record.kind == FLEET_RECORD_REVISION && !record.is_gone) {
        take_revision(agent, record.revision.number);
    } else if (record.kind == FLEET_RECORD_NODE && strcmp(record.node.name, agent->node) == 0) {
        take_drain(agent, !record.is_gone && record.node.drains);
    }
    mr_fleet_record_done(&record);
}

/* A partition is read to its end: the group's, or the first one and that of the status topic. */
static void take_end(struct fleet_agent *agent, const struct mr_kafka_news_item *news,
                     bool is_member)
{
    struct fleet_reading *reading = &agent->reading;
    int32_t partition = news->record.partition;
    if (is_member && agent->holds[partition] == HOLD_UNREAD && !reading->is_back) {
        agent->holds[partition] = HOLD_READ;
        for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
            child->is_defined &= child->is_read || child->definition.partition != partition;
        }
    } else if (!is_member && news->topic == agent->topic) {
        reading->is_read = true;
        take_revision(agent, reading->revision);
    }
}

/* ---- the group ---- */

static void hold(struct fleet_agent *agent, const struct mr_kafka_news_item *news,
                 enum fleet_hold hold)
{
    for (uint32_t i = 0; i < news->count; i++) {
        if (news->partitions[i] < FLEET_PARTITIONS) {
            agent->holds[news->partitions[i]] = hold;
        }
    }
}

static void take_assigned(struct fleet_agent *agent, const struct mr_kafka_news_item *news)
{
    for (uint32_t i = 0; i < FLEET_PARTITIONS && !agent->reading.is_back; i++) {
        bool is_others = agent->holds[i] == HOLD_KEPT; /* for the coordinator has answered */
        agent->holds[i] = is_others ? HOLD_NONE : agent->holds[i];
    }
    agent->has_group = true;
    hold(agent, news, HOLD_UNREAD);
    for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        for (uint32_t i = 0; i < news->count; i++) {
            child->is_read &= child->definition.partition != news->partitions[i];
        }
    }
    mr_log(MR_LOG_INFO, "fleet_assigned", "the group has given partitions to this agent",
           MR_LOG_INT("partitions", news->count));
}

/* All partitions are revoked, too, where the topic is deleted. */
static void take_revoked(struct fleet_agent *agent, const struct mr_kafka_news_item *news)
{
    if (mr_kafka_group_topic_is_gone(agent->member)) {
        take_revision(agent, 0);
    }
    hold(agent, news, agent->reading.is_back ? HOLD_KEPT : HOLD_LEAVING);
    if (mr_agent_count(agent, HOLD_LEAVING) == 0) {
        mr_kafka_group_release(agent->member);
        return;
    }
    mr_log(MR_LOG_INFO, "fleet_revoked", "partitions go to other agents: their pipelines end first",
           MR_LOG_INT("partitions", news->count));
}

static void take_lost(struct fleet_agent *agent, const struct mr_kafka_news_item *news,
                      int64_t now_ms)
{
    hold(agent, news, HOLD_KEPT);
    agent->has_group = false;
    agent->reading.lost_ms = now_ms;
    mr_log(MR_LOG_WARN, "fleet_lost",
           "the group has given this agent up; pipelines go on until it is known who has them",
           MR_LOG_INT("partitions", news->count));
}

/* Behind a cut, a request to join that this agent sent into it may come late, and fence the one that has joined since: that was no other. */
static mr_status take_fence(struct fleet_agent *agent, int64_t now_ms, struct mr_error *ret_error)
{
    int64_t lost_ms = agent->reading.lost_ms;
    agent->is_fenced = lost_ms == 0 || now_ms - lost_ms > LATE_MS;
    if (agent->is_fenced) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "another agent has joined as node %s, so this one ends: each agent needs a "
                       "name of its own (--node)",
                       agent->node);
    }
    mr_log(MR_LOG_WARN, "fleet_fenced",
           "its place was taken by a late request of its own, or by another; it joins once more");
    agent->reading.lost_ms = 0;
    leave(agent);
    return MR_OK;
}

/* Later on it is no reason to end what runs. */
static mr_status take_refusal(struct fleet_agent *agent, const char *reason, int64_t now_ms,
                              struct mr_error *ret_error)
{
    mr_status status =
        mr_fail(ret_error, MR_ERR_AUTH,
                "Kafka refuses this agent: %s; grant its user Read on topics %s and %s, and on the "
                "group called as the first one",
                reason, agent->topic, agent->status_topic);
    if (agent->reading.newest != 0 && now_ms - agent->reading.refused_ms >= REFUSED_MS) {
        mr_log(MR_LOG_WARN, "fleet_refused", ret_error->text);
        agent->reading.refused_ms = now_ms;
    }
    return agent->reading.newest == 0 ? status : MR_OK;
}

/* ---- all of it ---- */

static mr_status take(struct fleet_agent *agent, const struct mr_kafka_news_item *news,
                      bool is_member, int64_t now_ms, struct mr_error *ret_error)
{
    if (news->record.partition >= FLEET_PARTITIONS) {
        return MR_OK; /* somebody has added them: `apply` refuses such a topic */
    }
    switch (news->kind) {
    case MR_NEWS_RECORD:
        take_record(agent, news, is_member, now_ms);
        break;
    case MR_NEWS_READ:
        take_end(agent, news, is_member);
        break;
    case MR_NEWS_ASSIGNED:
        take_assigned(agent, news);
        break;
    case MR_NEWS_REVOKED:
        take_revoked(agent, news);
        break;
    case MR_NEWS_LOST:
        take_lost(agent, news, now_ms);
        break;
    case MR_NEWS_GONE:
        if (!is_member && agent->reading.follow_ms == 0) { /* else the watcher meets it, too */
            agent->reading.follow_ms = now_ms + AGAIN_MS;
            mr_log(MR_LOG_WARN, "fleet_topic_missing",
                   "a topic of the fleet is missing; `millrace fleet apply` makes it",
                   MR_LOG_STR("reason", news->text));
        }
        break;
    case MR_NEWS_FENCED:
        return take_fence(agent, now_ms, ret_error);
    case MR_NEWS_REFUSED:
        return take_refusal(agent, news->text, now_ms, ret_error);
    }
    return MR_OK;
}

static mr_status join(struct fleet_agent *agent, struct mr_error *ret_error)
{
    struct mr_kafka_group_options options = {.kafka = &agent->own->config->kafka,
                                             .topics = {agent->topic},
                                             .group = agent->topic,
                                             .member = agent->node,
                                             .session_ms = agent->own->session_ms,
                                             .wake_fd = agent->wake_fd};
    options.poll_ms = options.session_ms > POLL_MS ? options.session_ms : POLL_MS;
    return mr_kafka_group_new(&options, &agent->member, ret_error);
}

mr_status mr_agent_news(struct fleet_agent *agent, int64_t now_ms, struct mr_error *ret_error)
{
    struct fleet_reading *reading = &agent->reading;
    struct mr_kafka_news_item news;
    while (mr_kafka_group_next(agent->watcher, &news)) {
        MR_TRY(take(agent, &news, false, now_ms, ret_error));
    }
    if (reading->follow_ms != 0 && now_ms >= reading->follow_ms) {
        if (mr_kafka_group_topic_is_gone(agent->watcher)) {
            take_revision(agent, 0);
        }
        reading->revision = 0;
        reading->follow_ms = 0;
        mr_kafka_group_follow_again(agent->watcher);
    }
    while (agent->member != NULL && mr_kafka_group_next(agent->member, &news)) {
        MR_TRY(take(agent, &news, true, now_ms, ret_error));
    }
    if (agent->member != NULL && reading->drains) {
        leave(agent);
    }
    bool joins = reading->is_read && !reading->drains && !agent->is_ending;
    return agent->member == NULL && joins ? join(agent, ret_error) : MR_OK;
}
