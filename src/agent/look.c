/* Asks the processes how they are, and has them read their files again. A process that does not answer costs the others a second of a
 * look; the main thread none. */
#include <inttypes.h>
#include <math.h>

#include "agent/agent_internal.h"
#include "base/object.h"
#include "base/wake.h"
#include "control/client.h"

enum {
    TICK_MS = 250,
    SOON_MS = 500,  /* who does not stream is asked again, */
    LATE_MS = 5000, /* and who does: a look costs it half a millisecond */
    ANSWER_MS = 1000,
};

char *mr_look_ask(struct fleet_agent *agent, struct fleet_child *child, const char *path,
                  const char *post)
{
    struct mr_http_options server = {.address.is_unix = true};
    struct mr_client_answer answer;
    memcpy(server.address.path, child->process.socket_path, sizeof(server.address.path));
    child->askers++;
    pthread_mutex_unlock(&agent->lock);
    mr_status status = mr_client_ask(&server, path, post, ANSWER_MS, &answer, NULL);
    pthread_mutex_lock(&agent->lock);
    child->askers--;
    if (status == MR_OK && answer.http_status != MR_HTTP_OK) {
        free(answer.body);
    }
    return status == MR_OK && answer.http_status == MR_HTTP_OK ? answer.body : NULL;
}

/* ---- how it is ---- */

static const char *text_at(const cJSON *object, const char *path)
{
    const char *text = cJSON_GetStringValue(mr_object_at(object, path));
    return text == NULL ? "" : text;
}

void mr_look_forget(struct fleet_child *child)
{
    struct fleet_status *status = &child->status;
    child->said = (struct fleet_said){0};
    status->lag_seconds = status->lag_bytes = status->retained_wal_bytes = status->rss_bytes = NAN;
    status->cpu_seconds = child->before.cpu_seconds;
    status->rows = child->before.rows;
    status->bytes = child->before.bytes;
}

/* The words are those of /status (docs/http.md). */
static void take_status(struct fleet_child *child, const cJSON *answer)
{
    struct fleet_status *status = &child->status;
    struct fleet_said *said = &child->said;
    const struct fleet_totals *before = &child->before;
    said->is_ready = cJSON_IsTrue(mr_object_at(answer, "ready"));
    if (answer == NULL) {
        return;
    }
    snprintf(said->reason, sizeof(said->reason), "%s", text_at(answer, "reason"));
    snprintf(said->program, sizeof(said->program), "%s", text_at(answer, "version"));
    snprintf(said->slot, sizeof(said->slot), "%s", text_at(answer, "slot.wal_status"));
    status->lag_seconds = mr_object_number(answer, "lag.seconds");
    status->lag_bytes = mr_object_number(answer, "lag.bytes");
    status->retained_wal_bytes = mr_object_number(answer, "slot.retained_bytes");
    status->rss_bytes = mr_object_number(answer, "process.resident_bytes");
    status->cpu_seconds =
        before->cpu_seconds + fmax(mr_object_number(answer, "process.cpu_seconds"), 0);
    status->rows = before->rows + fmax(mr_object_number(answer, "totals.acknowledged"), 0);
    status->bytes = before->bytes + fmax(mr_object_number(answer, "totals.bytes_acknowledged"), 0);
    mr_slice state = mr_slice_of(text_at(answer, "state"));
    mr_child_seen(&child->state,
                  mr_is_among("standby", state)              ? FLEET_STANDBY
                  : mr_is_among("streaming|snapshot", state) ? FLEET_STREAMING
                                                             : FLEET_STARTING,
                  mr_agent_now_ms());
}

/* ---- a reload ---- */

/* One that does not answer is to be restarted by the same right as one that says so. */
static void take_request(struct fleet_child *child, const cJSON *answer)
{
    child->reload.number = (uint64_t)fmax(mr_object_number(answer, "request"), 0);
    if (child->reload.number == 0) {
        mr_agent_end(child, mr_agent_now_ms());
    }
}

void mr_look_reloaded(struct fleet_child *child, bool is_taken_up, const char *refusal)
{
    struct fleet_reload *reload = &child->reload;
    if (refusal != NULL) {
        free(child->error);
        child->error = MR_STRDUP(refusal);
        reload->refused = reload->generation;
    } else if (is_taken_up) {
        child->status.generation = reload->generation;
    } else {
        mr_agent_end(child, mr_agent_now_ms());
    }
    mr_log(refusal != NULL ? MR_LOG_ERROR : MR_LOG_INFO, "fleet_pipeline_reloaded",
           refusal != NULL ? "a pipeline goes on with the definition before its new one"
           : is_taken_up   ? "a pipeline has taken up its new definition"
                           : "the new definition needs a restart",
           MR_LOG_STR("pipeline", child->definition.name),
           MR_LOG_INT("generation", reload->generation),
           MR_LOG_STR("error", refusal == NULL ? "" : refusal));
    child->state.told_ms = 0;
    reload->generation = reload->number = 0;
}

static void take_outcome(struct fleet_child *child, const cJSON *answer)
{
    double code = mr_object_number(answer, "exit_code");
    bool is_wrong = code == mr_status_exit_code(MR_ERR_CONFIG);
    if (cJSON_IsTrue(mr_object_at(answer, "done"))) {
        mr_look_reloaded(child, code == 0 && text_at(answer, "needs_restart")[0] == '\0',
                         is_wrong ? text_at(answer, "error") : NULL);
    }
}

/* ---- the thread ---- */

/* What is asked of a process next, and who hears the answer (NULL: there is none); `take` NULL: nothing. */
struct question {
    char path[64];
    const char *post;
    void (*take)(struct fleet_child *child, const cJSON *answer);
};

static struct question next_question(struct fleet_child *child)
{
    struct question question = {.path = "/status?tables=0"};
    int64_t pause_ms = child->state.state == FLEET_STREAMING ? LATE_MS : SOON_MS;
    if (mr_agent_now_ms() - child->looked_ms >= pause_ms) {
        question.take = take_status;
        child->looked_ms = mr_agent_now_ms();
    } else if (child->reload.number > 0) {
        question.take = take_outcome;
        snprintf(question.path, sizeof(question.path), "/api/reload/outcome?request=%" PRIu64,
                 child->reload.number);
    } else if (child->reload.generation > 0) {
        question = (struct question){"/api/reload", "", take_request};
    }
    return question;
}

int mr_look(void *context)
{
    struct fleet_agent *agent = context;
    MR_HOLD(&agent->lock);
    for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        struct question question =
            child->state.has_process ? next_question(child) : (struct question){0};
        if (question.take == NULL) {
            continue;
        }
        MR_FREED char *text = mr_look_ask(agent, child, question.path, question.post);
        MR_OBJECT cJSON *answer = text == NULL ? NULL : cJSON_Parse(text);
        if (child->state.has_process) { /* it may have ended meanwhile */
            question.take(child, answer);
            mr_wake(agent->wake_fd);
        }
    }
    return TICK_MS;
}
