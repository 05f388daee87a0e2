/* What Kafka says to an agent: which partitions are its, which pipelines they define, whether the node is to drain, and what others say of
 * their pipelines. Decides nothing about processes. Main thread, with the lock. */
#include <inttypes.h>

#include "fleet/agent_internal.h"

enum {
    POLL_MS =
        120000, /* above the longest turn: a process that is revoked may take pipeline.shutdown_deadline */
    REFUSED_MS = 60000,
    AGAIN_MS = 5000,  /* after what was followed was not there */
    LATE_MS = 120000, /* behind a loss; a request may come as late as Kafka waits for one */
    KILL_MS = 6000, /* behind the deadline: a process leaves by itself 5 s behind it (cli/run.c) */
};

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

/* Of a partition: a pipeline that moves is there twice for a while. */
static struct fleet_child *find(const struct fleet_agent *agent, const char *name,
                                int32_t partition)
{
    for (uint32_t i = 0; i < agent->children.count; i++) {
        struct fleet_child *child = agent->children.items[i];
        if (child->definition.partition == partition && strcmp(child->definition.name, name) == 0) {
            return child;
        }
    }
    return NULL;
}

static struct fleet_child *add(struct fleet_agent *agent, const char *name, int32_t partition,
                               int64_t now_ms)
{
    struct fleet_children *children = &agent->children;
    struct fleet_child *child = MR_NEW(struct fleet_child);
    *child = (struct fleet_child){.definition = {.name = MR_STRDUP(name), .partition = partition},
                                  .state = mr_child_new(now_ms)};
    MR_GROW(children->items, children->room, children->count + 1);
    children->items[children->count++] = child;
    return child;
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

static void take_definition(struct fleet_agent *agent, struct fleet_record *record,
                            const char *fault, int32_t partition, int64_t now_ms)
{
    struct fleet_child *child = find(agent, record->definition.name, partition);
    if (child == NULL) {
        if (record->is_gone) {
            return;
        }
        child = add(agent, record->definition.name, partition, now_ms);
    }
    child->is_read = true;
    child->is_defined = !record->is_gone;
    free(child->unreadable);
    child->unreadable = fault == NULL ? NULL : MR_STRDUP(fault);
    if (fault != NULL) {
        mr_log(MR_LOG_ERROR, "fleet_definition_unreadable", fault,
               MR_LOG_STR("pipeline", child->definition.name));
    } else if (!record->is_gone) {
        definition_done(&child->definition);
        child->definition = record->definition;
        child->definition.partition = partition;
        *record = (struct fleet_record){0}; /* its texts are the child's now */
        take_options(child);
    }
}

/* ---- the group ---- */

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

static void take_assigned(struct fleet_agent *agent, const struct mr_kafka_news_item *news)
{
    for (uint32_t i = 0; i < FLEET_PARTITIONS && !agent->reading.is_back; i++) {
        bool is_others = agent->holds[i] == HOLD_KEPT; /* for the coordinator has answered */
        agent->holds[i] = is_others ? HOLD_NONE : agent->holds[i];
    }
    agent->has_group = true;
    for (uint32_t i = 0; i < news->count; i++) {
        int32_t partition = news->partitions[i];
        MR_ASSERT(partition >= 0 && partition < FLEET_PARTITIONS);
        agent->holds[partition] = HOLD_UNREAD;
        for (uint32_t k = 0; k < agent->children.count; k++) {
            struct fleet_child *child = agent->children.items[k];
            child->is_read &= child->definition.partition != partition;
        }
    }
    mr_log(MR_LOG_INFO, "fleet_assigned", "the group has given partitions to this agent",
           MR_LOG_INT("partitions", news->count));
}

static void set_back(struct fleet_agent *agent, const char *why)
{
    if (!agent->reading.is_back) {
        mr_log(MR_LOG_ERROR, "fleet_revision_back", why,
               MR_LOG_INT("revision", agent->reading.revision),
               MR_LOG_INT("newest", agent->reading.newest));
        agent->reading.is_back = true;
    }
}

static void set_gone(struct fleet_agent *agent)
{
    agent->reading.revision = 0;
    set_back(agent, "the topic with the definitions is gone: nothing is changed, and pipelines go "
                    "on as they are; apply the definition again");
}

static void hold(struct fleet_agent *agent, const struct mr_kafka_news_item *news,
                 enum fleet_hold hold)
{
    for (uint32_t i = 0; i < news->count; i++) {
        agent->holds[news->partitions[i]] = hold;
    }
}

/* All partitions are revoked, too, where the topic is deleted. */
static void take_revoked(struct fleet_agent *agent, const struct mr_kafka_news_item *news)
{
    bool is_gone = mr_kafka_group_topic_is_gone(agent->member);
    if (is_gone) {
        set_gone(agent);
    }
    if (agent->reading.is_back) {
        hold(agent, news, HOLD_KEPT);
        mr_kafka_group_release(agent->member);
        return;
    }
    hold(agent, news, HOLD_LEAVING);
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
           "the group has given this agent up; its pipelines go on until it is known who "
           "has them",
           MR_LOG_INT("partitions", news->count));
}

static void take_end(struct fleet_agent *agent, int32_t partition)
{
    if (agent->holds[partition] != HOLD_UNREAD || agent->reading.is_back) {
        return;
    }
    agent->holds[partition] = HOLD_READ;
    for (uint32_t i = 0; i < agent->children.count; i++) {
        struct fleet_child *child = agent->children.items[i];
        if (child->definition.partition == partition) {
            child->is_defined &= child->is_read;
        }
    }
}

static void take_record(struct fleet_agent *agent, const struct mr_kafka_news_item *news,
                        int64_t now_ms)
{
    struct fleet_record record;
    struct mr_error error;
    mr_status status = mr_fleet_record_read(false, &news->record, &record, &error);
    if (record.kind == FLEET_RECORD_DEFINITION && !agent->reading.is_back) {
        take_definition(agent, &record, status == MR_OK ? NULL : error.text, news->record.partition,
                        now_ms);
    }
    mr_fleet_record_done(&record);
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
    if (agent->reading.newest == 0) {
        return status;
    }
    if (now_ms - agent->reading.refused_ms >= REFUSED_MS) {
        mr_log(MR_LOG_WARN, "fleet_refused", ret_error->text);
        agent->reading.refused_ms = now_ms;
    }
    return MR_OK;
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
           "a late request of this agent's, or another agent of its name, has taken its place in "
           "the group; it joins once more");
    agent->reading.lost_ms = 0;
    leave(agent);
    return MR_OK;
}

static mr_status take_member(struct fleet_agent *agent, const struct mr_kafka_news_item *news,
                             int64_t now_ms, struct mr_error *ret_error)
{
    switch (news->kind) {
    case MR_NEWS_RECORD:
        take_record(agent, news, now_ms);
        break;
    case MR_NEWS_READ:
        take_end(agent, news->record.partition);
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
    case MR_NEWS_FENCED:
        return take_fence(agent, now_ms, ret_error);
    case MR_NEWS_GONE:
        break; /* the watcher meets it, too */
    case MR_NEWS_REFUSED:
        return take_refusal(agent, news->text, now_ms, ret_error);
    }
    return MR_OK;
}

/* ---- what every agent reads ---- */

static void take_revision(struct fleet_agent *agent, uint64_t revision)
{
    struct fleet_reading *reading = &agent->reading;
    reading->revision = revision;
    if (revision < reading->newest) {
        set_back(agent, "the definitions are older than what this agent has seen: nothing is "
                        "changed, and pipelines go on as they are; apply the definition again");
        return;
    }
    reading->newest = revision;
    if (reading->is_back) {
        mr_log(MR_LOG_INFO, "fleet_revision_forward", "the definitions are newer again",
               MR_LOG_INT("revision", revision));
        reading->is_back = false;
        leave(agent); /* to read all of them again; under the same name, so partitions stay */
    }
}

static void take_watched(struct fleet_agent *agent, const struct fleet_record *record)
{
    if (record->kind == FLEET_RECORD_REVISION && !record->is_gone) {
        take_revision(agent, record->revision.number);
    } else if (record->kind == FLEET_RECORD_NODE && strcmp(record->node.name, agent->node) == 0) {
        bool drains = !record->is_gone && record->node.drains;
        if (drains != agent->reading.drains) {
            mr_log(MR_LOG_INFO, "fleet_drain",
                   drains ? "this node drains: each pipeline ends once another agent's stands by"
                          : "this node takes part again");
        }
        agent->reading.drains = drains;
    }
}

/* Any agent says so again and again: what came before there was a child is not missed. */
static void take_status(struct fleet_agent *agent, const struct fleet_record *record)
{
    const struct fleet_status *status = &record->status;
    for (uint32_t i = 0; i < agent->children.count; i++) {
        struct fleet_child *child = agent->children.items[i];
        if (strcmp(child->definition.name, status->name) == 0) {
            child->is_taken_over =
                !record->is_gone && strcmp(status->node, agent->node) != 0 &&
                (status->state == FLEET_STANDBY || status->state == FLEET_STREAMING);
        }
    }
}

static void take_watcher(struct fleet_agent *agent, const struct mr_kafka_news_item *news,
                         int64_t now_ms)
{
    struct mr_error error;
    struct fleet_record record = {0};
    bool is_status = news->topic == agent->status_topic;
    switch (news->kind) {
    case MR_NEWS_RECORD:
        if (mr_fleet_record_read(is_status, &news->record, &record, &error) == MR_OK) {
            if (record.kind == FLEET_RECORD_STATUS) {
                take_status(agent, &record);
            } else {
                take_watched(agent, &record);
            }
        }
        mr_fleet_record_done(&record);
        break;
    case MR_NEWS_READ:
        agent->reading.is_read |= !is_status;
        if (!is_status && agent->reading.revision < agent->reading.newest) {
            set_gone(agent);
        }
        break;
    case MR_NEWS_GONE:
        if (agent->reading.follow_ms == 0) {
            mr_log(MR_LOG_WARN, "fleet_topic_missing",
                   "a topic of the fleet is not there; it is looked for again, and `millrace fleet "
                   "apply` makes it",
                   MR_LOG_STR("reason", news->text));
            agent->reading.follow_ms = now_ms + AGAIN_MS;
        }
        break;
    default:
        break;
    }
}

static void follow_again(struct fleet_agent *agent, int64_t now_ms)
{
    struct fleet_reading *reading = &agent->reading;
    if (reading->follow_ms == 0 || now_ms < reading->follow_ms) {
        return;
    }
    if (reading->newest > 0 && mr_kafka_group_topic_is_gone(agent->watcher)) {
        set_gone(agent);
    }
    reading->revision = 0;
    reading->follow_ms = 0;
    mr_kafka_group_follow_again(agent->watcher);
}

static mr_status join(struct fleet_agent *agent, struct mr_error *ret_error)
{
    return mr_kafka_group_new(
        &(struct mr_kafka_group_options){
            .kafka = &agent->own->config->kafka,
            .topics = {agent->topic},
            .group = agent->topic,
            .member = agent->node,
            .session_ms = agent->own->session_ms,
            .poll_ms = agent->own->session_ms > POLL_MS ? agent->own->session_ms : POLL_MS,
            .wake_fd = agent->wake_fd},
        &agent->member, ret_error);
}

mr_status mr_agent_news(struct fleet_agent *agent, int64_t now_ms, struct mr_error *ret_error)
{
    struct mr_kafka_news_item news;
    while (mr_kafka_group_next(agent->watcher, &news)) {
        if (news.kind == MR_NEWS_REFUSED) {
            MR_TRY(take_refusal(agent, news.text, now_ms, ret_error));
        }
        take_watcher(agent, &news, now_ms);
    }
    follow_again(agent, now_ms);
    while (agent->member != NULL && mr_kafka_group_next(agent->member, &news)) {
        MR_TRY(take_member(agent, &news, now_ms, ret_error));
    }
    bool joins = agent->reading.is_read && !agent->reading.drains && !agent->is_ending;
    if (agent->member != NULL && agent->reading.drains) {
        leave(agent);
    }
    return agent->member == NULL && joins ? join(agent, ret_error) : MR_OK;
}
