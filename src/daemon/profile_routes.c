/* Over HTTP: /pprof/… for people, /debug/pprof/… for `go tool pprof` and what scrapes like it. A
 * CPU profile runs in the handler's own thread for as long as it was asked for, one at a time, and
 * ends when the client leaves. */
#include "base/clock.h"
#include "daemon/profiling.h"
#include "profiler/profiler.h"

enum {
    SECONDS_DEFAULT = 10,
    SECONDS_MAX = 600,
    FREQUENCY_DEFAULT = 200,
    WIDTH_DEFAULT = 2500,
    WAIT_MS = 100,
    LG_SAMPLE_MIN = 9,
    LG_SAMPLE_MAX = 30,
};

enum form { FORM_PPROF, FORM_SVG, FORM_FOLDED };

/* Everything but which samples. */
struct wish {
    enum form form;
    uint32_t value; /* of the profile */
    enum mr_profile_root root;
    enum mr_stage stage;
    const char *thread; /* NULL: all */
    struct mr_flame_drawing drawing;
};

struct list {
    char text[200];
};

static struct list profile_routes_list_of(const char *const *words)
{
    struct list list = {0};
    for (int i = 0; words[i] != NULL; i++) {
        size_t len = strlen(list.text);
        snprintf(list.text + len, sizeof(list.text) - len, "%s%s", i == 0 ? "" : ", ", words[i]);
    }
    return list;
}

/* The number of the word that a parameter has; `fallback` without it; -1: it is none of them, and
 * that is the answer. */
static int wanted_word(struct mr_http_request *request, const char *name, const char *const *words,
                       int fallback)
{
    const char *given = mr_http_parameter(request, name);
    for (int i = 0; given != NULL && words[i] != NULL; i++) {
        if (strcmp(given, words[i]) == 0) {
            return i;
        }
    }
    if (given != NULL) {
        mr_http_fail(request, 400, "parameter %s must be one of: %s", name,
                     profile_routes_list_of(words).text);
    }
    return given == NULL ? fallback : -1;
}

/* The value that ?sample= names, else the kind's last. */
static int wanted_value(struct mr_http_request *request, enum mr_profile_kind kind)
{
    const char *names[MR_PROFILE_VALUES + 1] = {0};
    uint32_t count = mr_profile_values[kind].count;
    for (uint32_t i = 0; i < count; i++) {
        names[i] = mr_profile_values[kind].types[i].name;
    }
    return wanted_word(request, "sample", names, (int)count - 1);
}

/* Threads come and go: any name may be asked for, unlike stages. */
static int wanted_stage(struct mr_http_request *request)
{
    const char *names[MR_STAGES + 1] = {0};
    for (int i = 0; i < MR_STAGES; i++) {
        names[i] = mr_stage_name((enum mr_stage)i);
    }
    return wanted_word(request, "stage", names, MR_STAGE_NONE);
}

static bool wanted_drawing(struct mr_http_request *request, struct mr_flame_drawing *ret)
{
    int64_t width;
    int64_t min_width;
    int inverted = wanted_word(request, "inverted",
                               (const char *const[]){"false", "true", "0", "1", "", NULL}, 0);
    if (!mr_http_number(request, "image_width", WIDTH_DEFAULT, 300, 20000, &width) ||
        !mr_http_number(request, "min_width", 0, 0, 100, &min_width) || inverted < 0) {
        return false;
    }
    const char *title = mr_http_parameter(request, "title");
    *ret = (struct mr_flame_drawing){
        .title = title != NULL ? title : "millrace",
        .search = mr_http_parameter(request, "search"),
        .width = (unsigned)width,
        .min_width = (double)min_width,
        .inverted = inverted != 0 && inverted != 2,
    };
    return true;
}

static bool read_wish(struct mr_http_request *request, enum mr_profile_kind kind, enum form own,
                      struct wish *ret)
{
    int form = wanted_word(request, "format", (const char *const[]){"pprof", "svg", "folded", NULL},
                           (int)own);
    int value = form < 0 ? -1 : wanted_value(request, kind);
    int stage = value < 0 ? -1 : wanted_stage(request);
    int root = stage < 0 ? -1
                         : wanted_word(request, "root",
                                       (const char *const[]){"thread", "stage", "none", NULL},
                                       MR_PROFILE_ROOT_THREAD);
    if (root < 0 || !wanted_drawing(request, &ret->drawing)) {
        return false;
    }
    ret->form = (enum form)form;
    ret->value = (uint32_t)value;
    ret->stage = (enum mr_stage)stage;
    ret->root = (enum mr_profile_root)root;
    ret->thread = mr_http_parameter(request, "thread");
    return true;
}

/* Whether the page knows all names; its own come first. */
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
        mr_http_fail(request, 400, "there is no parameter %.64s here; there are %s", unknown,
                     profile_routes_list_of(known).text);
    }
    return unknown == NULL;
}

static void profile_routes_answer(struct mr_http_request *request, const struct mr_profile *profile,
                                  const struct wish *wish)
{
    size_t len = 0;
    char *bytes;
    switch (wish->form) {
    case FORM_PPROF: /* has all values */
        bytes = (char *)mr_profile_pprof(profile, &len);
        mr_http_header(request, "Content-Disposition",
                       profile->kind == MR_PROFILE_CPU ? "attachment; filename=\"profile.pb.gz\""
                                                       : "attachment; filename=\"heap.pb.gz\"");
        mr_http_take(request, "application/octet-stream", bytes, len);
        return;
    case FORM_FOLDED:
        bytes = mr_profile_folded(profile, wish->value, wish->root, &len);
        mr_http_take(request, "text/plain; charset=utf-8", bytes, len);
        return;
    case FORM_SVG:
        bytes = mr_profile_svg(profile, wish->value, wish->root, &wish->drawing, &len);
        mr_http_header(request, "Vary", "Accept-Encoding");
        if (mr_http_takes_gzip(request)) {
            char *packed = (char *)mr_profile_gzip(bytes, len, &len);
            free(bytes);
            bytes = packed;
            mr_http_header(request, "Content-Encoding", "gzip");
        }
        mr_http_take(request, "image/svg+xml", bytes, len);
        return;
    }
}

/* As mr_http_wait. A client that still listens when millrace ends must not take an empty answer for
 * a profile. */
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
    bool is_available = mr_heap_available(&error) == MR_OK;
    if (!is_available || !mr_heap_is_active()) {
        mr_http_fail(request, 403, "heap profiling not activated: %s",
                     !is_available
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
    status = MR_THEN(status, mr_heap_profile(ret, &error));
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
                 "that the profiler runs all the time");
    return false;
}

static const struct source {
    bool (*collect)(struct mr_http_request *request, struct mr_profile *ret);
    enum mr_profile_kind kind;
    const char *own[3]; /* parameters of `collect` */
} cpu = {collect_cpu, MR_PROFILE_CPU, {"seconds", "frequency"}},
  heap = {collect_heap, MR_PROFILE_HEAP, {"seconds"}},
  last_minute = {collect_last_minute, MR_PROFILE_CPU, {NULL}};

static const struct page {
    const char *path;
    const struct source *source;
    enum form form;
} pages[] = {
    {"/pprof/profile/report", &cpu, FORM_PPROF},
    {"/pprof/profile/flamegraph", &cpu, FORM_SVG},
    {"/pprof/profile/folded", &cpu, FORM_FOLDED},
    {"/pprof/heap/report", &heap, FORM_PPROF},
    {"/pprof/heap/flamegraph", &heap, FORM_SVG},
    {"/pprof/heap/folded", &heap, FORM_FOLDED},
    {"/pprof/last-minute/report", &last_minute, FORM_PPROF},
    {"/pprof/last-minute/flamegraph", &last_minute, FORM_SVG},
    {"/pprof/last-minute/folded", &last_minute, FORM_FOLDED},
    {"/debug/pprof/profile", &cpu, FORM_PPROF},
    {"/debug/pprof/heap", &heap, FORM_PPROF},
    {"/debug/pprof/allocs", &heap, FORM_PPROF},
};

static void answer_page(void *context, struct mr_http_request *request)
{
    const struct page *page = &pages[(uintptr_t)context];
    const struct source *source = page->source;
    struct wish wish;
    struct mr_profile profile;
    /* What is wrong is said before the seconds it takes. */
    if (!are_names_good(request, source->own) ||
        !read_wish(request, source->kind, page->form, &wish) ||
        !source->collect(request, &profile)) {
        return;
    }
    mr_profiler_name_all();
    mr_symbols_lock();
    mr_profile_filter(&profile, wish.thread, wish.stage);
    mr_symbols_unlock();
    profile_routes_answer(request, &profile, &wish);
    mr_profile_done(&profile);
}

static void answer_index(void *context, struct mr_http_request *request)
{
    if (!mr_is_among("/pprof/|/debug/pprof/", mr_slice_of(mr_http_path(request)))) {
        mr_http_fail(request, 404, "no such profile; /pprof/ lists them");
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

/* What a POST does to heap profiling is in its path. */
static void switch_heap(void *context, struct mr_http_request *request)
{
    const char *path = mr_http_path(request);
    bool resets = strcmp(path, "/pprof/heap/reset") == 0;
    bool activates = strcmp(path, "/pprof/heap/activate") == 0;
    const char *done = resets ? "reset" : activates ? "activated" : "deactivated";
    int64_t lg_sample = 0;
    struct mr_error error;
    if (resets && mr_http_parameter(request, "lg_sample") != NULL &&
        !mr_http_number(request, "lg_sample", 0, LG_SAMPLE_MIN, LG_SAMPLE_MAX, &lg_sample)) {
        return;
    }
    mr_status status =
        resets ? mr_heap_reset((uint32_t)lg_sample, &error) : mr_heap_set_active(activates, &error);
    if (status == MR_ERR_CONFIG) {
        mr_http_fail(request, 403, "heap profiling not activated: %s", error.text);
    } else if (status != MR_OK) {
        mr_http_fail(request, 500, "%s", error.text);
    } else {
        mr_log(MR_LOG_INFO, "heap_profiling", "switched over HTTP", MR_LOG_STR("to", done));
        fprintf(mr_http_body(request, "text/plain; charset=utf-8"), "heap profiling %s\n", done);
    }
}

void mr_pprof_add(struct mr_http *http, const struct mr_http_options *options, bool has_last_minute)
{
    /* The configuration has been refused otherwise. */
    MR_ASSERT(options->username != NULL || mr_address_is_local(&options->address));
    for (size_t i = 0; i < MR_ARRAY_LEN(pages); i++) {
        bool on_live_page = pages[i].source == &last_minute && pages[i].form == FORM_SVG;
        mr_http_add(
            http, &(struct mr_http_route){
                      .path = pages[i].path,
                      .title = has_last_minute && on_live_page ? "last minute's flame graph" : NULL,
                      .handler = answer_page,
                      .context = (void *)(uintptr_t)i, /* NOLINT */
                      .slow = true,
                  });
    }
    static const struct mr_http_route others[] = {
        {.path = "/pprof/heap/activate", .handler = switch_heap, .post = true},
        {.path = "/pprof/heap/deactivate", .handler = switch_heap, .post = true},
        {.path = "/pprof/heap/reset", .handler = switch_heap, .post = true},
        {.path = "/pprof/", .title = "profiles", .handler = answer_index},
        {.path = "/debug/pprof/", .handler = answer_index},
    };
    mr_http_add_all(http, others, MR_ARRAY_LEN(others), NULL);
}
