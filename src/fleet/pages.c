/* What an agent serves: metrics of its pipelines and its own, the state of the fleet as JSON and as a page, and its health. */

#include "control/pages.h"
#include "base/clock.h"
#include "base/thread.h"
#include "control/live_page.h"
#include "fleet/agent_internal.h"
#include "fleet/fleet_page.h"
#include "metrics/metrics.h"

/* Of each pipeline, where [fleet] metrics = "summary". */
static const char summary[] =
    "millrace_build_info|millrace_ready|millrace_standstill|millrace_standstill_seconds|"
    "millrace_lag_seconds|millrace_lag_bytes|millrace_slot_retained_bytes|"
    "millrace_slot_safe_wal_bytes|millrace_changes_total|millrace_records_acknowledged_total|"
    "millrace_record_bytes_acknowledged_total|millrace_memory_used_bytes|"
    "process_start_time_seconds";

/* A family of all pipelines together: Prometheus' text has each family once. */
struct family {
    char *name;
    struct mr_text head, samples; /* HELP and TYPE */
};

struct merged {
    struct family *items;
    uint32_t count, room, last;
};

static void merged_done(struct merged *merged)
{
    for (uint32_t i = 0; i < merged->count; i++) {
        free(merged->items[i].name);
        mr_text_done(&merged->items[i].head);
        mr_text_done(&merged->items[i].samples);
    }
    free(merged->items);
}

/* All pipelines have their families in one order, so the next one is mostly the one behind the last. */
static struct family *family_of(struct merged *merged, mr_slice name)
{
    for (uint32_t i = 0; i < merged->count; i++) {
        uint32_t at = (merged->last + 1 + i) % merged->count;
        if (mr_slice_equal(name, mr_slice_of(merged->items[at].name))) {
            merged->last = at;
            return &merged->items[at];
        }
    }
    MR_GROW(merged->items, merged->room, merged->count + 1);
    merged->last = merged->count++;
    merged->items[merged->last] =
        (struct family){.name = MR_STRNDUP((const char *)name.data, name.len)};
    return &merged->items[merged->last];
}

/* A sample with one label more. Names of pipelines have nothing to escape. */
static void add_sample(struct mr_text *to, const char *line, size_t len, const char *pipeline)
{
    size_t name_len = strcspn(line, "{ ");
    bool has_labels = line[name_len] == '{';
    mr_text_add(to, line, name_len);
    mr_text_format(to, "{pipeline=\"%s\"%s", pipeline, has_labels ? "," : "}");
    name_len += has_labels;
    mr_text_add(to, line + name_len, len - name_len);
}

static void add_text(struct merged *merged, const char *text, const char *pipeline, bool all)
{
    struct family *family = NULL;
    bool is_first = false;
    for (const char *line = text; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        len += line[len] == '\n';
        if (strncmp(line, "# HELP ", 7) == 0) {
            mr_slice name = {.data = (const uint8_t *)line + 7, .len = strcspn(line + 7, " ")};
            family = all || mr_is_among(summary, name) ? family_of(merged, name) : NULL;
            is_first = family != NULL && family->head.len == 0;
        }
        if (family != NULL && line[0] == '#') {
            mr_text_add(&family->head, line, is_first ? len : 0);
        } else if (family != NULL) {
            add_sample(&family->samples, line, len, pipeline);
        }
        line += len;
    }
}

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
    for (uint32_t i = 0; i < agent->children.count; i++) {
        const struct fleet_child *child = agent->children.items[i];
        if (what->expose != NULL) {
            what->expose(to, child);
            continue;
        }
        struct fleet_status status = mr_tell_status(agent, child, mr_monotonic_ns() / 1000000);
        double number = *(const double *)((const char *)&status + what->at);
        if (number >= 0) {
            mr_expose_f64(to, (const char *[]){status.name}, number);
        }
    }
}

static void expose_own(const struct fleet_agent *agent, struct mr_buffer *out)
{
    struct mr_exposition to = {.out = out};
    uint64_t states[FLEET_STATES] = {0}, partitions = 0, surplus = 0;
    for (uint32_t i = 0; i < FLEET_PARTITIONS; i++) {
        partitions += agent->holds[i] == HOLD_UNREAD || agent->holds[i] == HOLD_READ;
    }
    for (uint32_t i = 0; i < agent->children.count; i++) {
        states[agent->children.items[i]->state.state]++;
        surplus += agent->children.items[i]->is_surplus;
    }
    mr_expose_one_u64(&to, MR_METRIC_FLEET_REVISION, agent->reading.revision);
    mr_expose_one_u64(&to, MR_METRIC_FLEET_READY, mr_agent_is_ready(agent));
    mr_expose_one_u64(&to, MR_METRIC_FLEET_PARTITIONS, partitions);
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

struct place {
    char *name, *socket_path;
};

/* Names and sockets of those that run, to be asked without the lock. */
static struct place *places_of(struct fleet_agent *agent, uint32_t *ret_count)
{
    MR_HOLD(&agent->lock);
    struct place *places = MR_NEW_ARRAY(struct place, agent->children.count + 1);
    *ret_count = 0;
    for (uint32_t i = 0; i < agent->children.count; i++) {
        const struct fleet_child *child = agent->children.items[i];
        if (child->state.has_process && child->seen.at_ms != 0) {
            places[(*ret_count)++] =
                (struct place){.name = MR_STRDUP(child->definition.name),
                               .socket_path = MR_STRDUP(child->process.socket_path)};
        }
    }
    return places;
}

static void add_pipelines(struct fleet_agent *agent, FILE *to)
{
    struct merged merged = {0};
    uint32_t count;
    struct place *places = places_of(agent, &count);
    for (uint32_t i = 0; i < count; i++) {
        char *text = mr_look_ask(places[i].socket_path, "/metrics", NULL);
        if (text != NULL) {
            add_text(&merged, text, places[i].name, !agent->own->summary);
        }
        free(text);
        free(places[i].name);
        free(places[i].socket_path);
    }
    free(places);
    for (uint32_t i = 0; i < merged.count; i++) {
        const char *samples = merged.items[i].samples.data;
        fprintf(to, "%s%s", merged.items[i].head.data, samples == NULL ? "" : samples);
    }
    merged_done(&merged);
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
    add_pipelines(agent, to);
}

/* As `millrace fleet status --json` has the whole fleet. Slow: asks Kafka. */
static void status(void *context, struct mr_http_request *request)
{
    struct fleet_agent *agent = context;
    struct mr_error error;
    cJSON *found;
    MR_HOLD(&agent->view_lock);
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
    MR_HOLD(&agent->lock);
    bool is_ready = mr_agent_is_ready(agent);
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
