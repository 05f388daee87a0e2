/* Asks the processes how they are, and has them read their files again. A process that does not answer costs the others a second of a
 * look; the main thread none. */
#include <inttypes.h>
#include <math.h>

#include "base/clock.h"
#include "base/object.h"
#include "base/wake.h"
#include "control/client.h"
#include "fleet/agent_internal.h"

enum {
    TICK_MS = 250,
    SOON_MS = 500,  /* who does not stream is asked again, */
    LATE_MS = 5000, /* and who does: a look costs it half a millisecond */
    ANSWER_MS = 1000,
};

static int64_t now_ms(void)
{
    return mr_monotonic_ns() / 1000000;
}

char *mr_look_ask(const char *socket_path, const char *path, const char *post)
{
    struct mr_http_options server = {.address.is_unix = true};
    struct mr_client_answer answer;
    snprintf(server.address.path, sizeof(server.address.path), "%s", socket_path);
    if (mr_client_ask(&server, path, post, ANSWER_MS, &answer, NULL) != MR_OK) {
        return NULL;
    }
    if (answer.http_status != MR_HTTP_OK) {
        free(answer.body);
        return NULL;
    }
    return answer.body;
}

static cJSON *ask(const char *socket_path, const char *path, const char *post)
{
    MR_FREED char *text = mr_look_ask(socket_path, path, post);
    return text == NULL ? NULL : cJSON_Parse(text);
}

static const cJSON *at(const cJSON *object, const char *section, const char *name)
{
    const cJSON *within =
        section == NULL ? object : cJSON_GetObjectItemCaseSensitive(object, section);
    return cJSON_GetObjectItemCaseSensitive(within, name);
}

static double number_at(const cJSON *object, const char *section, const char *name)
{
    const cJSON *item = at(object, section, name);
    return cJSON_IsNumber(item) && isfinite(item->valuedouble) ? item->valuedouble : -1;
}

static void text_at(const cJSON *object, const char *section, const char *name, char *to,
                    size_t size)
{
    const char *text = cJSON_GetStringValue(at(object, section, name));
    snprintf(to, size, "%s", text == NULL ? "" : text);
}

/* The words are those of /status (docs/http.md). */
static enum fleet_state state_of(const char *word)
{
    return strcmp(word, "standby") == 0                                      ? FLEET_STANDBY
           : strcmp(word, "streaming") == 0 || strcmp(word, "snapshot") == 0 ? FLEET_STREAMING
                                                                             : FLEET_STARTING;
}

static struct fleet_seen seen_of(const cJSON *status)
{
    char state[32];
    text_at(status, NULL, "state", state, sizeof(state));
    struct fleet_seen seen = {
        .at_ms = now_ms(),
        .state = state_of(state),
        .is_ready = cJSON_IsTrue(at(status, NULL, "ready")),
        .lag_seconds = number_at(status, "lag", "seconds"),
        .lag_bytes = number_at(status, "lag", "bytes"),
        .retained_wal_bytes = number_at(status, "slot", "retained_bytes"),
        .rss_bytes = number_at(status, "process", "resident_bytes"),
        .cpu_seconds = number_at(status, "process", "cpu_seconds"),
        .rows = number_at(status, "totals", "acknowledged"),
        .bytes = number_at(status, "totals", "bytes_acknowledged"),
    };
    text_at(status, NULL, "version", seen.program, sizeof(seen.program));
    text_at(status, NULL, "reason", seen.reason, sizeof(seen.reason));
    text_at(status, "slot", "wal_status", seen.slot, sizeof(seen.slot));
    return seen;
}

/* What is asked of one process in a look, and what came of it. */
struct question {
    char *socket_path;
    bool wants_status;
    enum fleet_reload reload;
    uint64_t number;
    struct fleet_seen seen; /* at_ms 0: no answer */
    char *refusal;
};

static void take_outcome(struct question *question, const cJSON *outcome)
{
    if (!cJSON_IsTrue(at(outcome, NULL, "done"))) {
        return;
    }
    int code = (int)number_at(outcome, NULL, "exit_code");
    const char *needs = cJSON_GetStringValue(at(outcome, NULL, "needs_restart"));
    bool is_wrong = code == mr_status_exit_code(MR_ERR_CONFIG);
    question->reload = code == 0 && (needs == NULL || needs[0] == '\0') ? RELOAD_DONE
                       : is_wrong                                       ? RELOAD_REFUSED
                                                                        : RELOAD_RESTART;
    const char *error = cJSON_GetStringValue(at(outcome, NULL, "error"));
    question->refusal = is_wrong && error != NULL ? MR_STRDUP(error) : NULL;
}

/* One that does not answer is to be restarted by the same right as one that says so. */
static void ask_to_reload(struct question *question)
{
    bool is_first = question->reload == RELOAD_WANTED;
    MR_FREED char *path =
        is_first ? MR_STRDUP("/api/reload")
                 : mr_formatted("/api/reload/outcome?request=%" PRIu64, question->number);
    MR_OBJECT cJSON *answer = ask(question->socket_path, path, is_first ? "" : NULL);
    if (is_first) {
        question->number = (uint64_t)number_at(answer, NULL, "request");
        question->reload = answer == NULL ? RELOAD_RESTART : RELOAD_ASKED;
    } else {
        take_outcome(question, answer);
    }
}

static void ask_one(struct question *question)
{
    MR_OBJECT cJSON *status =
        question->wants_status ? ask(question->socket_path, "/status?tables=0", NULL) : NULL;
    if (status != NULL) {
        question->seen = seen_of(status);
    }
    if (question->reload != RELOAD_NONE) {
        ask_to_reload(question);
    }
}

/* The process may be another one by now. */
static void take_answers(struct fleet_agent *agent, struct question *question)
{
    for (uint32_t i = 0; i < agent->children.count; i++) {
        struct fleet_child *child = agent->children.items[i];
        if (child->process.pid == 0 ||
            strcmp(child->process.socket_path, question->socket_path) != 0) {
            continue;
        }
        if (question->seen.at_ms != 0) {
            child->seen = question->seen;
        } else if (question->wants_status) {
            child->seen.is_ready = false;
        }
        if (child->reload == RELOAD_WANTED || child->reload == RELOAD_ASKED) {
            child->reload = question->reload == RELOAD_NONE ? child->reload : question->reload;
            child->reload_number = question->number;
            if (question->refusal != NULL) {
                free(child->error);
                child->error = question->refusal;
                question->refusal = NULL;
            }
        }
    }
}

static uint32_t make_questions(const struct fleet_agent *agent, struct question *questions)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < agent->children.count; i++) {
        const struct fleet_child *child = agent->children.items[i];
        bool is_asked = child->reload == RELOAD_WANTED || child->reload == RELOAD_ASKED;
        int64_t pause_ms = child->state.state == FLEET_STREAMING ? LATE_MS : SOON_MS;
        bool wants_status = now_ms() - child->seen.at_ms >= pause_ms;
        if (child->process.pid != 0 && (is_asked || wants_status)) {
            questions[count++] =
                (struct question){.socket_path = MR_STRDUP(child->process.socket_path),
                                  .wants_status = wants_status,
                                  .reload = is_asked ? child->reload : RELOAD_NONE,
                                  .number = child->reload_number};
        }
    }
    return count;
}

static int look(void *context)
{
    struct fleet_agent *agent = context;
    pthread_mutex_lock(&agent->lock);
    struct question *questions = MR_NEW_ARRAY(struct question, agent->children.count + 1);
    uint32_t count = make_questions(agent, questions);
    pthread_mutex_unlock(&agent->lock);
    for (uint32_t i = 0; i < count; i++) {
        ask_one(&questions[i]);
        pthread_mutex_lock(&agent->lock);
        take_answers(agent, &questions[i]);
        pthread_mutex_unlock(&agent->lock);
        free(questions[i].socket_path);
        free(questions[i].refusal);
    }
    free(questions);
    if (count > 0) {
        mr_wake(agent->wake_fd);
    }
    return TICK_MS;
}

mr_status mr_look_start(struct fleet_agent *agent, struct mr_error *ret_error)
{
    mr_ticker_init(&agent->looker, "mr-look", look, agent);
    return mr_ticker_start(&agent->looker, TICK_MS, ret_error);
}

void mr_look_stop(struct fleet_agent *agent)
{
    if (agent->looker.tick != NULL) {
        mr_ticker_stop(&agent->looker);
        mr_ticker_done(&agent->looker);
    }
}
