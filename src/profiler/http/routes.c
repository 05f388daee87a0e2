#include "profiler/http/routes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "profiler/draw/flame.h"
#include "profiler/heap.h"
#include "profiler/http/commands.h"
#include "profiler/output.h"
#include "profiler/profiler.h"

enum {
    SECONDS_DEFAULT = 10,
    SECONDS_MAX = 600,
    FREQUENCY_DEFAULT = 200,
    WIDTH_DEFAULT = 2500,
    WAIT_MS = 100,
};

#define LAST_MINUTE "/pprof/last-minute/flamegraph"

static const char *graph_title;

/* ---- the forms of an answer ---- */

static void write_bytes(struct mr_http_request *request, const char *type, void *bytes, size_t len)
{
    fwrite(bytes, 1, len, mr_http_body(request, type));
    free(bytes);
}

static void answer_report(struct mr_http_request *request, const struct mr_profile *profile,
                          uint32_t value)
{
    (void)value; /* the file has all */
    size_t len;
    uint8_t *bytes = mr_output_pprof(profile, &len);
    static const char *const files[] = {
        [MR_PROFILE_CPU] = "attachment; filename=\"profile.pb.gz\"",
        [MR_PROFILE_HEAP] = "attachment; filename=\"heap.pb.gz\"",
    };
    mr_http_header(request, "Content-Disposition", files[profile->kind]);
    write_bytes(request, "application/octet-stream", bytes, len);
}

/* ?root=; false: it is none. */
static bool wanted_root(struct mr_http_request *request, enum mr_profile_root *ret)
{
    static const char *const roots[] = {
        [MR_PROFILE_ROOT_THREAD] = "thread",
        [MR_PROFILE_ROOT_STAGE] = "stage",
        [MR_PROFILE_ROOT_NONE] = "none",
    };
    const char *name = mr_http_parameter(request, "root");
    *ret = MR_PROFILE_ROOT_THREAD;
    for (size_t i = 0; name != NULL && i < MR_ARRAY_LEN(roots); i++) {
        if (strcmp(name, roots[i]) == 0) {
            *ret = (enum mr_profile_root)i;
            return true;
        }
    }
    if (name != NULL) {
        mr_http_fail(request, 400, "parameter root must be thread, stage or none");
    }
    return name == NULL;
}

static void answer_folded(struct mr_http_request *request, const struct mr_profile *profile,
                          uint32_t value)
{
    enum mr_profile_root root;
    if (!wanted_root(request, &root)) {
        return;
    }
    size_t len;
    char *text = mr_output_folded(profile, value, root, &len);
    write_bytes(request, "text/plain; charset=utf-8", text, len);
}

/* ?inverted, alone or with true or false; false: it is something else. */
static bool wanted_inverted(struct mr_http_request *request, bool *ret)
{
    const char *word = mr_http_parameter(request, "inverted");
    *ret = word != NULL && (*word == '\0' || strcmp(word, "true") == 0 || strcmp(word, "1") == 0);
    if (*ret || word == NULL || strcmp(word, "false") == 0 || strcmp(word, "0") == 0) {
        return true;
    }
    mr_http_fail(request, 400, "parameter inverted must be true or false");
    return false;
}

/* How a flame graph is wanted; false: a parameter is wrong. */
static bool wanted_drawing(struct mr_http_request *request, struct mr_flame_drawing *ret)
{
    int64_t width;
    int64_t min_width;
    bool inverted;
    if (!mr_http_number(request, "image_width", WIDTH_DEFAULT, 300, 20000, &width) ||
        !mr_http_number(request, "min_width", 0, 0, 100, &min_width) ||
        !wanted_inverted(request, &inverted)) {
        return false;
    }
    const char *title = mr_http_parameter(request, "title");
    *ret = (struct mr_flame_drawing){
        .title = title != NULL ? title : graph_title,
        .search = mr_http_parameter(request, "search"),
        .width = (unsigned)width,
        .min_width = (double)min_width,
        .inverted = inverted,
    };
    return true;
}

static void answer_flamegraph(struct mr_http_request *request, const struct mr_profile *profile,
                              uint32_t value)
{
    enum mr_profile_root root;
    struct mr_flame_drawing drawing;
    if (!wanted_drawing(request, &drawing) || !wanted_root(request, &root)) {
        return;
    }
    size_t len;
    char *picture = mr_output_flamegraph(profile, value, root, &drawing, &len);
    mr_http_header(request, "Vary", "Accept-Encoding");
    if (mr_http_takes_gzip(request)) {
        uint8_t *compressed = mr_output_gzip((const uint8_t *)picture, len, &len);
        free(picture);
        picture = (char *)compressed;
        mr_http_header(request, "Content-Encoding", "gzip");
    }
    write_bytes(request, "image/svg+xml", picture, len);
}

typedef void (*answer_fn)(struct mr_http_request *request, const struct mr_profile *profile,
                          uint32_t value);

/* The value that ?sample= names, else the kind's last. */
static bool wanted_value(struct mr_http_request *request, enum mr_profile_kind kind, uint32_t *ret)
{
    const char *name = mr_http_parameter(request, "sample");
    int found =
        name == NULL ? (int)mr_profile_value_count(kind) - 1 : mr_profile_value_find(kind, name);
    if (found < 0) {
        mr_http_fail(request, 400, "sample names no value of this profile; the last is \"%s\"",
                     mr_profile_value_name(kind, mr_profile_value_count(kind) - 1));
        return false;
    }
    *ret = (uint32_t)found;
    return true;
}

/* The form that ?format= names, else the path's own; NULL: it is none. */
static answer_fn wanted_form(struct mr_http_request *request, answer_fn own)
{
    static const struct {
        const char *name;
        answer_fn answer;
    } forms[] = {{"pprof", answer_report}, {"folded", answer_folded}, {"svg", answer_flamegraph}};
    const char *name = mr_http_parameter(request, "format");
    for (size_t i = 0; name != NULL && i < MR_ARRAY_LEN(forms); i++) {
        if (strcmp(name, forms[i].name) == 0) {
            return forms[i].answer;
        }
    }
    if (name != NULL) {
        mr_http_fail(request, 400, "parameter format must be pprof, folded or svg");
        return NULL;
    }
    return own;
}

/* ?stage=, MR_STAGE_NONE without; false: it is none. Threads come and go: any name may be asked for. */
static bool wanted_stage(struct mr_http_request *request, enum mr_stage *ret)
{
    const char *name = mr_http_parameter(request, "stage");
    *ret = MR_STAGE_NONE;
    for (int i = MR_STAGE_NONE + 1; name != NULL && i < MR_STAGES; i++) {
        if (strcmp(name, mr_stage_name((enum mr_stage)i)) == 0) {
            *ret = (enum mr_stage)i;
            return true;
        }
    }
    if (name != NULL) {
        mr_http_fail(request, 400,
                     "parameter stage must be receive, decode, encode, produce, flush, "
                     "acknowledge, malloc, http, profiler or other");
    }
    return name == NULL;
}

/* The names a page knows; the first few only where they mean something. */
static bool are_names_good(struct mr_http_request *request, const char *const *own)
{
    static const char *const common[] = {"thread", "stage", "format",   "sample",      "root",
                                         "search", "title", "inverted", "image_width", "min_width"};
    enum { COMMON = MR_ARRAY_LEN(common) };
    const char *known[COMMON + 3] = {0};
    size_t count = 0;
    for (; *own != NULL; own++) {
        known[count++] = *own;
    }
    memcpy(known + count, common, sizeof(common));
    const char *unknown = mr_http_parameter_beyond(request, known);
    if (unknown != NULL) {
        char names[200] = "";
        for (size_t i = 0; known[i] != NULL; i++) {
            size_t len = strlen(names);
            snprintf(names + len, sizeof(names) - len, "%s%s", i == 0 ? "" : ", ", known[i]);
        }
        mr_http_fail(request, 400, "there is no parameter %.64s here; there are %s", unknown,
                     names);
    }
    return unknown == NULL;
}

/* ---- what is profiled; true: `ret` is filled ---- */

/* As mr_http_wait. Who still listens when millrace ends must not take an empty answer for a profile. */
static bool wait_on(struct mr_http_request *request, uint32_t ms)
{
    if (mr_http_wait(request, ms)) {
        return true;
    }
    mr_http_fail_ending(request);
    return false;
}

static bool collect_cpu(struct mr_http_request *request, struct mr_profile *ret)
{
    int64_t seconds;
    int64_t frequency;
    if (!mr_http_number(request, "seconds", SECONDS_DEFAULT, 1, SECONDS_MAX, &seconds) ||
        !mr_http_number(request, "frequency", FREQUENCY_DEFAULT, 1, MR_SAMPLER_HZ_MAX,
                        &frequency)) {
        return false;
    }
    mr_status status = mr_profiler_session_begin((uint32_t)frequency);
    if (status == MR_FULL) {
        mr_http_fail(request, 429,
                     "a profile is being taken already; one at a time, try again when it is done");
        return false;
    }
    if (status != MR_OK) {
        mr_http_fail(request, 503, "the profiler has ended");
        return false;
    }
    mr_log(MR_LOG_INFO, "profile_started", "a CPU profile was asked for",
           MR_LOG_INT("seconds", seconds), MR_LOG_INT("frequency", frequency));
    int64_t until_ns = mr_monotonic_ns() + seconds * 1000000000;
    bool stays = true;
    while (stays && mr_monotonic_ns() < until_ns) {
        int64_t left_ms = (until_ns - mr_monotonic_ns()) / 1000000 + 1;
        stays = wait_on(request, left_ms < WAIT_MS ? (uint32_t)left_ms : WAIT_MS);
    }
    mr_profiler_session_end(ret);
    if (!stays) {
        mr_profile_done(ret);
    }
    return stays;
}

static bool collect_heap(struct mr_http_request *request, struct mr_profile *ret)
{
    int64_t seconds;
    if (!mr_http_number(request, "seconds", 0, 0, SECONDS_MAX, &seconds)) {
        return false;
    }
    struct mr_error error;
    if (mr_heap_available(&error) != MR_OK || !mr_heap_is_active()) {
        mr_http_fail(request, 403, "heap profiling not activated: %s",
                     mr_heap_available(&error) != MR_OK
                         ? error.text
                         : "set heap = true under [profiling] and start again, or POST to "
                           "/pprof/heap/activate");
        return false;
    }
    int64_t start_ns = mr_monotonic_ns();
    struct mr_profile before;
    mr_profile_init(&before, MR_PROFILE_HEAP);
    mr_status status = seconds > 0 ? mr_heap_profile(&before, &error) : MR_OK;
    if (status == MR_OK && seconds > 0 && !wait_on(request, (uint32_t)seconds * 1000)) {
        mr_profile_done(&before);
        return false;
    }
    if (status == MR_OK) {
        status = mr_heap_profile(ret, &error);
    }
    if (status == MR_OK) {
        mr_profile_merge(ret, &before, -1);
        ret->duration_ns = mr_monotonic_ns() - start_ns;
    } else {
        mr_http_fail(request, 500, "%s", error.text);
    }
    mr_profile_done(&before);
    return status == MR_OK;
}

static bool collect_last_minute(struct mr_http_request *request, struct mr_profile *ret)
{
    struct mr_profiler_stats stats;
    mr_profiler_stats(&stats);
    mr_profiler_last_minute(ret);
    if (ret->samples > 0 || stats.frequency_hz > 0) {
        return true;
    }
    mr_profile_done(ret);
    mr_http_fail(request, 404,
                 "no samples of the last minute; set recorder = true or path under [profiling], so "
                 "that the profiler runs when nobody asks");
    return false;
}

/* ---- routes ---- */

static const struct {
    const char *path;
    bool (*collect)(struct mr_http_request *request, struct mr_profile *ret);
    enum mr_profile_kind kind;
    answer_fn answer;
    const char *own[3]; /* parameters of `collect` */
} pages[] = {
    {"/pprof/profile/report", collect_cpu, MR_PROFILE_CPU, answer_report, {"seconds", "frequency"}},
    {"/pprof/profile/flamegraph",
     collect_cpu,
     MR_PROFILE_CPU,
     answer_flamegraph,
     {"seconds", "frequency"}},
    {"/pprof/profile/folded", collect_cpu, MR_PROFILE_CPU, answer_folded, {"seconds", "frequency"}},
    {"/pprof/heap/report", collect_heap, MR_PROFILE_HEAP, answer_report, {"seconds"}},
    {"/pprof/heap/flamegraph", collect_heap, MR_PROFILE_HEAP, answer_flamegraph, {"seconds"}},
    {"/pprof/heap/folded", collect_heap, MR_PROFILE_HEAP, answer_folded, {"seconds"}},
    {"/pprof/last-minute/report", collect_last_minute, MR_PROFILE_CPU, answer_report, {NULL}},
    {LAST_MINUTE, collect_last_minute, MR_PROFILE_CPU, answer_flamegraph, {NULL}},
    {"/pprof/last-minute/folded", collect_last_minute, MR_PROFILE_CPU, answer_folded, {NULL}},
    {"/debug/pprof/profile", collect_cpu, MR_PROFILE_CPU, answer_report, {"seconds", "frequency"}},
    {"/debug/pprof/heap", collect_heap, MR_PROFILE_HEAP, answer_report, {"seconds"}},
    {"/debug/pprof/allocs", collect_heap, MR_PROFILE_HEAP, answer_report, {"seconds"}},
};

static void answer_page(void *context, struct mr_http_request *request)
{
    size_t page = (size_t)(uintptr_t)context;
    uint32_t value;
    enum mr_profile_root root;
    enum mr_stage stage;
    struct mr_flame_drawing drawing;
    struct mr_profile profile;
    /* What is wrong is said before the seconds it takes. */
    if (!are_names_good(request, pages[page].own)) {
        return;
    }
    answer_fn form = wanted_form(request, pages[page].answer);
    if (form == NULL || !wanted_value(request, pages[page].kind, &value) ||
        !wanted_stage(request, &stage) || !wanted_root(request, &root) ||
        !wanted_drawing(request, &drawing) || !pages[page].collect(request, &profile)) {
        return;
    }
    mr_profiler_name_all();
    mr_symbols_lock();
    if (pages[page].kind == MR_PROFILE_HEAP && stage != MR_STAGE_PROFILER) {
        mr_profile_leave_out(&profile, MR_STAGE_PROFILER);
    }
    mr_profile_filter(&profile, mr_http_parameter(request, "thread"), stage);
    mr_symbols_unlock();
    form(request, &profile, value);
    mr_profile_done(&profile);
}

static void answer_index(void *context, struct mr_http_request *request)
{
    const char *own_path = context;
    if (strcmp(mr_http_path(request), own_path) != 0) {
        mr_http_fail(request, 404, "no such profile; %s lists them", own_path);
        return;
    }
    FILE *body = mr_http_body(request, "text/html; charset=utf-8");
    fputs("<!doctype html><title>millrace profiles</title><h1>Profiles</h1><ul>\n", body);
    for (size_t i = 0; i < MR_ARRAY_LEN(pages); i++) {
        fprintf(body, "<li><a href=\"%s\">%s</a>\n", pages[i].path, pages[i].path);
    }
    fputs(
        "</ul><p>Parameters: seconds, frequency, thread, stage, format (pprof, folded, svg), "
        "sample; of flame\n"
        "graphs also image_width, min_width, root (thread, stage, none), search, title, inverted.\n"
        "<p>POST /pprof/heap/activate, /pprof/heap/deactivate and /pprof/heap/reset?lg_sample=19 "
        "switch heap\n"
        "profiling.\n",
        body);
}

void mr_pprof_add(struct mr_http *http, const struct mr_http_options *options, const char *name,
                  bool has_last_minute)
{
    graph_title = name;
    /* The configuration has been refused otherwise. */
    MR_ASSERT(options->username != NULL || mr_address_is_local(&options->address));
    for (size_t i = 0; i < MR_ARRAY_LEN(pages); i++) {
        mr_http_add(http, &(struct mr_http_route){
                              .path = pages[i].path,
                              .title = has_last_minute && strcmp(pages[i].path, LAST_MINUTE) == 0
                                           ? "last minute's flame graph"
                                           : NULL,
                              .handler = answer_page,
                              .context = (void *)(uintptr_t)i, /* NOLINT */
                              .slow = true,
                          });
    }
    mr_pprof_add_commands(http);
    static char own_paths[][16] = {"/pprof/", "/debug/pprof/"};
    for (size_t i = 0; i < MR_ARRAY_LEN(own_paths); i++) {
        mr_http_add(http, &(struct mr_http_route){
                              .path = own_paths[i],
                              .title = i == 0 ? "profiles" : NULL,
                              .handler = answer_index,
                              .context = own_paths[i],
                          });
    }
}
