#include "agent/child.h"

static void move_to(struct fleet_child_state *child, enum fleet_state state, int64_t now_ms)
{
    child->state = state;
    child->since_ms = now_ms;
    child->told_ms = 0;
}

struct fleet_child_state mr_child_new(int64_t now_ms)
{
    return (struct fleet_child_state){
        .state = FLEET_STOPPED, .since_ms = now_ms, .pause_ms = FLEET_PAUSE_MS};
}

void mr_child_want(struct fleet_child_state *child, bool is_wanted, int64_t now_ms)
{
    child->is_wanted = is_wanted;
    if (is_wanted && child->state == FLEET_STOPPED) {
        move_to(child, FLEET_WAITING, now_ms);
    } else if (!is_wanted && !child->has_process && child->state != FLEET_STOPPED) {
        move_to(child, FLEET_STOPPED, now_ms);
    }
}

void mr_child_renew(struct fleet_child_state *child, int64_t now_ms)
{
    child->pause_ms = FLEET_PAUSE_MS;
    if (child->state == FLEET_HELD || child->state == FLEET_BACKOFF) {
        move_to(child, FLEET_WAITING, now_ms);
    }
}

bool mr_child_may_start(const struct fleet_child_state *child, int64_t now_ms)
{
    return child->state == FLEET_WAITING ||
           (child->state == FLEET_BACKOFF && now_ms >= child->limit_ms);
}

bool mr_child_is_being_started(const struct fleet_child_state *child, int64_t now_ms)
{
    return child->state == FLEET_STARTING && now_ms - child->started_ms < FLEET_START_MS;
}

void mr_child_started(struct fleet_child_state *child, int64_t now_ms)
{
    MR_ASSERT(!child->has_process);
    move_to(child, FLEET_STARTING, now_ms);
    child->has_process = true;
    child->started_ms = now_ms;
    child->starts++;
}

void mr_child_seen(struct fleet_child_state *child, enum fleet_state seen, int64_t now_ms)
{
    MR_ASSERT(seen == FLEET_STARTING || seen == FLEET_STANDBY || seen == FLEET_STREAMING);
    if (!child->has_process || child->state == FLEET_ENDING) {
        return;
    }
    if (child->state != seen) {
        move_to(child, seen, now_ms);
    }
    if (now_ms - child->started_ms >= FLEET_GOOD_MS) {
        child->pause_ms = FLEET_PAUSE_MS;
    }
}

bool mr_child_end(struct fleet_child_state *child, int64_t patience_ms, int64_t now_ms)
{
    if (!child->has_process || child->state == FLEET_ENDING) {
        return false;
    }
    move_to(child, FLEET_ENDING, now_ms);
    child->limit_ms = now_ms + patience_ms;
    return true;
}

bool mr_child_is_overdue(const struct fleet_child_state *child, int64_t now_ms)
{
    return child->state == FLEET_ENDING && now_ms >= child->limit_ms;
}

/* Ends that a restart does not mend (docs/running.md). */
static bool needs_person(int32_t exit_code)
{
    return exit_code == 10 || exit_code == 64 || exit_code == 65 || exit_code == 77 ||
           exit_code == 78;
}

void mr_child_ended(struct fleet_child_state *child, int32_t exit_code, int64_t now_ms)
{
    MR_ASSERT(child->has_process);
    child->has_process = false;
    child->exit_code = exit_code;
    if (child->state == FLEET_ENDING) {
        move_to(child, child->is_wanted ? FLEET_WAITING : FLEET_STOPPED, now_ms);
    } else if (needs_person(exit_code)) {
        move_to(child, FLEET_HELD, now_ms);
    } else {
        move_to(child, FLEET_BACKOFF, now_ms);
        child->limit_ms = now_ms + child->pause_ms;
        child->pause_ms =
            child->pause_ms < FLEET_PAUSE_MS_MAX / 2 ? 2 * child->pause_ms : FLEET_PAUSE_MS_MAX;
    }
}
