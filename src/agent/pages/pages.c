/* What an agent serves: metrics of its pipelines and its own, the state of the fleet as JSON and as a page, and its health. */

#include "control/pages.h"
#include "agent/agent_internal.h"
#include "agent/pages/fleet_page.h"
#include "control/live_page.h"
#include "metrics/merge.h"
#include "metrics/metrics.h"

/* Of each pipeline, where [fleet] metrics = "summary". */
static const char summary[] =
    "millrace_build_info|millrace_ready|millrace_standstill|millrace_standstill_seconds|"
    "millrace_lag_seconds|millrace_lag_bytes|millrace_slot_retained_bytes|"
    "millrace_slot_safe_wal_bytes|millrace_changes_total|millrace_records_acknowledged_total|"
    "millrace_record_bytes_acknowledged_total|millrace_memory_used_bytes|"
    "process_start_time_seconds";

/* ---- the agent's own ---- */

static void expose_state(struct mr_exposition *to, const struct fleet_child *child)
{
    mr_expose_u64(to, (const char *[]){child->definition.name, mr_fleet_states[child->state.state]},
                  1);
}

static void expose_exits(struct mr_exposition *to, const struct fleet_child *child)
{
    for (int i = 0; i <= FLEET_SIGNALLED; i++) {
        char code[16];
        snprintf(code, sizeof(code), "%d", i);
        if (child->exits[i] > 0) {
            const char *word = i < FLEET_SIGNALLED ? code : "signal";
            mr_expose_u64(to, (const char *[]){child->definition.name, word}, child->exits[i]);
        }
    }
}

/* Of each pipeline: by a function, or the number at a place of its status. */
static const struct each {
    enum mr_metric_id id;
    void (*expose)(struct mr_exposition *to, const struct fleet_child *child);
    size_t at;
} each[] = {
    {MR_METRIC_FLEET_STATE, expose_state, 0},
    {MR_METRIC_FLEET_EXITS, expose_exits, 0},
    {MR_METRIC_FLEET_STARTS, NULL, offsetof(struct fleet_status, starts)},
    {MR_METRIC_FLEET_CPU, NULL, offsetof(struct fleet_status, cpu_seconds)},
    {MR_METRIC_FLEET_ROWS, NULL, offsetof(struct fleet_status, rows)},
    {MR_METRIC_FLEET_BYTES, NULL, offsetof(struct fleet_status, bytes)},
    {MR_METRIC_FLEET_RSS, NULL, offsetof(struct fleet_status, rss_bytes)},
};

static void expose_each(const struct fleet_agent *agent, struct mr_exposition *to,
                        const struct each *what)
{
    mr_expose_begin(to, what->id);
    for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        const struct fleet_status *status = mr_tell_status(agent, child);
        double number = *(const double *)((const char *)status + what->at);
        if (what->expose != NULL) {
            what->expose(to, child);
        } else if (number >= 0) {
            mr_expose_f64(to, (const char *[]){status->name}, number);
        }
    }
}

static void expose_own(const struct fleet_agent *agent, struct mr_buffer *out)
{
    struct mr_exposition to = {.out = out};
    uint64_t states[FLEET_STATES] = {0}, surplus = 0;
    for (const struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        states[child->state.state]++;
        surplus += child->status.is_surplus;
    }
    mr_expose_one_u64(&to, MR_METRIC_FLEET_REVISION, agent->reading.revision);
    mr_expose_one_u64(&to, MR_METRIC_FLEET_READY, mr_agent_is_ready(agent));
    mr_expose_one_u64(&to, MR_METRIC_FLEET_PARTITIONS,
                      mr_agent_count(agent, HOLD_UNREAD) + mr_agent_count(agent, HOLD_READ));
    mr_expose_one_u64(&to, MR_METRIC_FLEET_SURPLUS, surplus);
    mr_expose_begin(&to, MR_METRIC_FLEET_PIPELINES);
    for (uint32_t i = 0; i < FLEET_STATES; i++) {
        mr_expose_u64(&to, &mr_fleet_states[i], states[i]);
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(each); i++) {
        expose_each(agent, &to, &each[i]);
    }
}

/* ---- routes ---- */

static void print_pipelines(struct fleet_agent *agent, FILE *to)
{
    struct mr_exposed *exposed = NULL;
    uint32_t count = 0, room = 0;
    pthread_mutex_lock(&agent->lock);
    for (struct fleet_child *child = agent->children; child != NULL; child = child->next) {
        if (child->state.has_process) {
            MR_GROW(exposed, room, count + 1);
            exposed[count].value = MR_STRDUP(child->definition.name);
            exposed[count++].text = mr_look_ask(agent, child, "/metrics", NULL);
        }
    }
    pthread_mutex_unlock(&agent->lock);
    mr_metrics_print_merged(to, "pipeline", exposed, count, agent->own->summary ? summary : NULL);
    for (uint32_t i = 0; i < count; i++) {
        free(exposed[i].value);
        free(exposed[i].text);
    }
    free(exposed);
}

static void metrics(void *context, struct mr_http_request *request)
{
    struct fleet_agent *agent = context;
    FILE *to = mr_http_body(request, "text/plain; version=0.0.4; charset=utf-8");
    uint8_t *text = NULL;
    struct mr_buffer out = {.full = true};
    pthread_mutex_lock(&agent->lock);
    for (size_t size = 16384; out.full; size *= 2) {
        text = MR_REALLOC(text, size);
        out = mr_buffer_init(text, size);
        expose_own(agent, &out);
    }
    pthread_mutex_unlock(&agent->lock);
    fwrite(text, 1, (size_t)(out.at - text), to);
    free(text);
    print_pipelines(agent, to);
}

/* As `millrace fleet status --json` has the whole fleet. Slow: asks Kafka. */
static void status(void *context, struct mr_http_request *request)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct fleet_agent *agent = context;
    struct mr_error error;
    cJSON *found;
    MR_HOLD(&lock);
    if (mr_fleet_view_look(agent->view, &found, &error) == MR_OK) {
        mr_http_json(request, found);
    } else {
        mr_http_fail(request, 503, "%s", error.text);
    }
}

static void healthz(void *context, struct mr_http_request *request)
{
    fputs("{\"alive\":true}\n", mr_http_body(request, "application/json"));
}

static void readyz(void *context, struct mr_http_request *request)
{
    struct fleet_agent *agent = context;
    bool is_ready = atomic_load(&agent->is_ready);
    mr_http_status(request, is_ready ? 200 : 503);
    fprintf(mr_http_body(request, "application/json"), "{\"ready\":%s}\n",
            is_ready ? "true" : "false");
}

mr_status mr_agent_pages_start(struct fleet_agent *agent, struct mr_error *ret_error)
{
    static const struct mr_http_route routes[] = {
        {.path = "/metrics", .handler = metrics, .slow = true},
        {.path = "/status", .handler = status, .slow = true},
        {.path = "/healthz", .handler = healthz, .open = true},
        {.path = "/readyz", .handler = readyz, .open = true},
    };
    static const struct mr_page_file files[] = {
        {"/", "text/html; charset=utf-8", mr_fleet_page_html},
        {"/fleet_page.js", "text/javascript; charset=utf-8", mr_fleet_page_js},
        {"/live_page.css", "text/css; charset=utf-8", mr_live_page_css},
        {"/fleet_page.css", "text/css; charset=utf-8", mr_fleet_page_css},
    };
    const struct mr_http_options *options = &agent->own->config->http;
    if (!options->enabled) {
        return MR_OK;
    }
    agent->view = mr_fleet_view_of(agent->own);
    agent->http = mr_http_new(options);
    mr_pages_add_files(agent->http, files, MR_ARRAY_LEN(files));
    mr_http_add_all(agent->http, routes, MR_ARRAY_LEN(routes), agent);
    return mr_http_start(agent->http, ret_error);
}
