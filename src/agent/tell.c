/* Status records: of each pipeline that this agent runs, on a change and every 30 s, and of the agent itself. A failure to say so is no
 * reason to do anything else: whoever reads takes silence for "unknown". */
#include "agent/agent_internal.h"

static char *text(const char *text)
{
    return (char *)(uintptr_t)(text == NULL ? "" : text);
}

/* What is said while all is well is no error. */
static const char *fault_of(const struct fleet_child *child)
{
    bool is_well = child->state.state == FLEET_STREAMING && child->reload.refused == 0;
    return child->unreadable != NULL ? child->unreadable
           : child->status.is_surplus
               ? "the host's limits are reached ([fleet] max_pipelines, "
                 "max_memory): it is not started; move it or others, or raise them"
           : child->state.has_process && !child->said.is_ready && child->said.reason[0] != '\0'
               ? child->said.reason
           : is_well ? ""
                     : child->error;
}

const struct fleet_status *mr_tell_status(const struct fleet_agent *agent,
                                          struct fleet_child *child)
{
    struct fleet_status *status = &child->status;
    const struct fleet_child_state *state = &child->state;
    status->name = child->definition.name;
    status->at_ms = mr_wall_ns() / 1000000;
    status->node = text(agent->node);
    status->pid = child->process.pid;
    status->state = state->state;
    status->since_ms = status->at_ms - (mr_agent_now_ms() - state->since_ms);
    status->exit_code = state->exit_code;
    status->error = text(fault_of(child));
    status->program = child->said.program;
    status->slot = child->said.slot;
    status->starts = (double)state->starts;
    return status;
}

static void say(struct fleet_agent *agent, const struct fleet_record *record)
{
    static bool is_silent;
    struct mr_error error;
    if (!agent->reading.is_read || agent->is_fenced) {
        return;
    }
    bool fails = mr_fleet_store_tell(&agent->store, record, &error) != MR_OK;
    if (fails && !is_silent) {
        mr_log(MR_LOG_WARN, "fleet_status_unsaid", error.text);
    }
    is_silent = fails;
}

void mr_tell_node(struct fleet_agent *agent, bool is_gone)
{
    char owned[FLEET_PARTITIONS + 1] = "";
    struct fleet_record record = {.kind = FLEET_RECORD_NODE_STATUS,
                                  .is_gone = is_gone,
                                  .node_status = {.name = text(agent->node),
                                                  .at_ms = mr_wall_ns() / 1000000,
                                                  .program = text(MR_VERSION),
                                                  .revision = agent->reading.revision,
                                                  .owned = owned,
                                                  .is_ready = mr_agent_is_ready(agent)}};
    struct fleet_node_status *node = &record.node_status;
    for (const struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        node->processes += child->state.has_process;
    }
    node->is_drained = agent->reading.drains && agent->member == NULL && node->processes == 0;
    for (int32_t i = 0; i < FLEET_PARTITIONS; i++) {
        owned[i] = agent->holds[i] >= HOLD_UNREAD ? '1' : '0';
    }
    say(agent, &record);
    agent->node_told_ms = mr_agent_now_ms();
}

void mr_tell(struct fleet_agent *agent, int64_t now_ms)
{
    bool any = agent->reading.is_read && now_ms - agent->node_told_ms >= FLEET_STATUS_MS;
    for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        int64_t *told_ms = &child->state.told_ms;
        if (*told_ms != 0 && now_ms - *told_ms < FLEET_STATUS_MS) {
            continue;
        }
        any |= *told_ms == 0;
        *told_ms = now_ms;
        /* While a node drains, the one that has a pipeline now is the one to speak of it. */
        if (agent->holds[child->definition.partition] >= HOLD_UNREAD) {
            say(agent, &(struct fleet_record){.kind = FLEET_RECORD_STATUS,
                                              .status = *mr_tell_status(agent, child)});
        }
    }
    if (any) {
        mr_tell_node(agent, false);
    }
}

void mr_tell_gone(struct fleet_agent *agent, char *pipeline)
{
    say(agent, &(struct fleet_record){
                   .kind = FLEET_RECORD_STATUS, .is_gone = true, .status.name = pipeline});
}
