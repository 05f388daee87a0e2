#include "profiler/http/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "profiler/heap.h"

/* ---- heap profiling on and off ---- */

enum { LG_SAMPLE_MIN = 9, LG_SAMPLE_MAX = 30 };

static void answer_heap(struct mr_http_request *request, mr_status status,
                        const struct mr_error *error, const char *done)
{
    if (status == MR_ERR_CONFIG) {
        mr_http_fail(request, 403, "heap profiling not activated: %s", error->text);
    } else if (status != MR_OK) {
        mr_http_fail(request, 500, "%s", error->text);
    } else {
        mr_log(MR_LOG_INFO, "heap_profiling", "switched over HTTP", MR_LOG_STR("to", done));
        fprintf(mr_http_body(request, "text/plain; charset=utf-8"), "heap profiling %s\n", done);
    }
}

static void activate(void *context, struct mr_http_request *request)
{
    (void)context;
    struct mr_error error;
    answer_heap(request, mr_heap_set_active(true, &error), &error, "activated");
}

static void deactivate(void *context, struct mr_http_request *request)
{
    (void)context;
    struct mr_error error;
    answer_heap(request, mr_heap_set_active(false, &error), &error, "deactivated");
}

static void reset(void *context, struct mr_http_request *request)
{
    (void)context;
    int64_t lg_sample = 0;
    struct mr_error error;
    if (mr_http_parameter(request, "lg_sample") == NULL ||
        mr_http_number(request, "lg_sample", 0, LG_SAMPLE_MIN, LG_SAMPLE_MAX, &lg_sample)) {
        answer_heap(request, mr_heap_reset((uint32_t)lg_sample, &error), &error, "reset");
    }
}

/* ---- for tools that know Go's paths ---- */

/* As Go's: the arguments, separated by NUL. Ours hold a file name and no secret. */
static void answer_cmdline(void *context, struct mr_http_request *request)
{
    (void)context;
    FILE *body = mr_http_body(request, "text/plain; charset=utf-8");
    FILE *from = fopen("/proc/self/cmdline", "re");
    int byte;
    while (from != NULL && (byte = fgetc(from)) != EOF) {
        fputc(byte, body);
    }
    if (from != NULL) {
        fclose(from);
    }
}

/* The name of an address that a profile had; others are not looked up, so that nobody can fill our memory. */
static void write_symbol(FILE *body, uint64_t address)
{
    uint32_t id = mr_symbols_find(address);
    const struct mr_location *location = id == 0 ? NULL : mr_symbols_get(id);
    const char *name = location == NULL || location->frame_count == 0
                           ? ""
                           : mr_symbols_text(location->frames[0].function);
    if (name[0] != '\0') {
        fprintf(body, "0x%" PRIx64 " %s\n", address, name);
    }
}

/* "0x12+0x34" to lines of "0x12 name", for objects whose functions are not all named. `go tool pprof http://…`
 * gives up without an answer. */
static void answer_symbols(void *context, struct mr_http_request *request)
{
    (void)context;
    mr_slice upload = mr_http_upload(request);
    char *text = MR_STRNDUP(upload.len == 0 ? "" : (const char *)upload.data, upload.len);
    FILE *body = mr_http_body(request, "text/plain; charset=utf-8");
    fputs("num_symbols: 1\n", body);
    char *rest = NULL;
    mr_symbols_lock();
    for (const char *part = strtok_r(text, "+\n", &rest); part != NULL;
         part = strtok_r(NULL, "+\n", &rest)) {
        write_symbol(body, strtoull(part, NULL, 0));
    }
    mr_symbols_unlock();
    free(text);
}

void mr_pprof_add_commands(struct mr_http *http)
{
    static const struct mr_http_route routes[] = {
        {.path = "/pprof/heap/activate", .handler = activate, .post = true},
        {.path = "/pprof/heap/deactivate", .handler = deactivate, .post = true},
        {.path = "/pprof/heap/reset", .handler = reset, .post = true},
        {.path = "/debug/pprof/cmdline", .handler = answer_cmdline},
        {.path = "/debug/pprof/symbol", .handler = answer_symbols, .post = true},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(routes); i++) {
        mr_http_add(http, &routes[i]);
    }
}
