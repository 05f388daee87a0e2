/* Status records: of each pipeline that this agent runs, on a change and every 30 s, and of the agent itself. A failure to say so is no
 * reason to do anything else: whoever reads takes silence for "unknown". */

#include "base/clock.h"
#include "fleet/agent_internal.h"

/* Of processes that have ended, and of the one that runs, as far as it has said. */
static double sum(double before, double now)
{
    return before + (now > 0 ? now : 0);
}

static char *text(const char *text)
{
    return (char *)(uintptr_t)(text == NULL ? "" : text);
}

/* What is said while all is well is no error. */
static const char *fault_of(const struct fleet_child *child)
{
    bool stands = child->state.has_process && child->seen.at_ms != 0 && !child->seen.is_ready;
    return child->unreadable != NULL ? child->unreadable
           : child->is_surplus       ? "the host's limits are reached ([fleet] max_pipelines, "
                                       "max_memory): it is not started; move it or others, or raise them"
           : stands && child->seen.reason[0] != '\0' ? child->seen.reason
           : child->state.state == FLEET_STREAMING && child->refused_generation == 0 ? ""
                                                                                     : child->error;
}

struct fleet_status mr_tell_status(const struct fleet_agent *agent, const struct fleet_child *child,
                                   int64_t now_ms)
{
    const struct fleet_seen *seen = &child->seen;
    int64_t wall_ms = mr_wall_ns() / 1000000;
    bool is_known = child->state.has_process && seen->at_ms != 0;
    return (struct fleet_status){
        .name = child->definition.name,
        .at_ms = wall_ms,
        .node = text(agent->node),
        .pid = child->process.pid,
        .generation = child->generation,
        .retry = child->retry,
        .state = child->state.state,
        .is_surplus = child->is_surplus,
        .since_ms = wall_ms - (now_ms - child->state.since_ms),
        .exit_code = child->state.exit_code,
        .error = text(fault_of(child)),
        .program = text(seen->program),
        .slot = text(seen->slot),
        .lag_seconds = is_known ? seen->lag_seconds : -1,
        .lag_bytes = is_known ? seen->lag_bytes : -1,
        .retained_wal_bytes = is_known ? seen->retained_wal_bytes : -1,
        .rss_bytes = is_known ? seen->rss_bytes : -1,
        .cpu_seconds = sum(child->before.cpu_seconds, seen->cpu_seconds),
        .rows = sum(child->before.rows, seen->rows),
        .bytes = sum(child->before.bytes, seen->bytes),
        .starts = (double)child->state.starts,
    };
}

static void say(struct fleet_agent *agent, const struct fleet_record *record)
{
    static bool is_silent;
    struct mr_error error;
    bool fails = mr_fleet_store_tell(&agent->store, record, &error) != MR_OK;
    if (fails && !is_silent) {
        mr_log(MR_LOG_WARN, "fleet_status_unsaid", error.text);
    }
    is_silent = fails;
}

static bool has_changed(const struct fleet_child *child)
{
    const struct fleet_told *told = &child->told;
    return told->state.state != child->state.state || told->state.starts != child->state.starts ||
           told->state.has_process != child->state.has_process ||
           told->generation != child->generation || told->retry != child->retry ||
           told->is_surplus != child->is_surplus;
}

/* While a node drains, the one that has a pipeline now is the one to speak of it. */
static bool is_ours(const struct fleet_agent *agent, int32_t partition)
{
    enum fleet_hold hold = agent->holds[partition];
    return hold == HOLD_UNREAD || hold == HOLD_READ || hold == HOLD_LEAVING;
}

static void tell_node(struct fleet_agent *agent, bool is_gone)
{
    char owned[FLEET_PARTITIONS + 1];
    struct fleet_record record = {
        .kind = FLEET_RECORD_NODE_STATUS,
        .is_gone = is_gone,
        .node_status = {.name = text(agent->node),
                        .at_ms = mr_wall_ns() / 1000000,
                        .program = text(MR_VERSION),
                        .revision = agent->reading.revision,
                        .owned = owned,
                        .is_ready = mr_agent_is_ready(agent),
                        .is_drained = agent->reading.drains && agent->member == NULL}};
    for (uint32_t i = 0; i < agent->children.count; i++) {
        bool runs = agent->children.items[i]->state.has_process;
        record.node_status.pipelines += runs;
        record.node_status.is_drained &= !runs;
    }
    for (uint32_t i = 0; i < FLEET_PARTITIONS; i++) {
        owned[i] = is_ours(agent, (int32_t)i) ? '1' : '0';
    }
    owned[FLEET_PARTITIONS] = '\0';
    say(agent, &record);
}

void mr_tell(struct fleet_agent *agent, int64_t now_ms)
{
    bool any = now_ms - agent->node_told_ms >= FLEET_STATUS_MS;
    if (!agent->reading.is_read || agent->is_fenced) {
        return;
    }
    for (uint32_t i = 0; i < agent->children.count; i++) {
        struct fleet_child *child = agent->children.items[i];
        bool changed = has_changed(child);
        if (!changed && now_ms - child->told.at_ms < FLEET_STATUS_MS) {
            continue;
        }
        if (is_ours(agent, child->definition.partition)) {
            say(agent, &(struct fleet_record){.kind = FLEET_RECORD_STATUS,
                                              .status = mr_tell_status(agent, child, now_ms)});
        }
        child->told = (struct fleet_told){.at_ms = now_ms,
                                          .state = child->state,
                                          .generation = child->generation,
                                          .retry = child->retry,
                                          .is_surplus = child->is_surplus};
        any |= changed;
    }
    if (any) {
        tell_node(agent, false);
        agent->node_told_ms = now_ms;
    }
}

void mr_tell_gone(struct fleet_agent *agent, const char *pipeline)
{
    say(agent, &(struct fleet_record){.kind = FLEET_RECORD_STATUS,
                                      .is_gone = true,
                                      .status = {.name = text(pipeline)}});
}

void mr_tell_end(struct fleet_agent *agent)
{
    mr_tell(agent, mr_monotonic_ns() / 1000000);
    if (agent->reading.is_read && !agent->is_fenced) {
        tell_node(agent, true);
    }
}
