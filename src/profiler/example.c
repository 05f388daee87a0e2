/* The profiler in a program that is not millrace: http://127.0.0.1:PORT/ answers with a flame graph
 * of the next two seconds. README.md beside this file says how it is built. */
#include <microhttpd.h>
#include <stdlib.h>

#include "profiler/profiler.h"

static void *burn(void *unused)
{
    mr_thread_begin(MR_THREAD_MAIN, "burner"); /* from here on it is sampled */
    for (volatile unsigned i = 0;; i++) {
    }
    return unused;
}

static enum MHD_Result example_answer(void *unused, struct MHD_Connection *connection,
                                      const char *url, const char *method, const char *version,
                                      const char *body, size_t *body_len, void **state)
{
    struct mr_profile profile;
    if (mr_profiler_session_begin(100) != MR_OK) {
        return MHD_NO; /* somebody else is profiling */
    }
    sleep(2);
    mr_profiler_session_end(&profile);
    mr_profiler_name_all();
    size_t len;
    char *svg = mr_profile_svg(&profile, 1, MR_PROFILE_ROOT_THREAD,
                               &(struct mr_flame_drawing){.title = "Example"}, &len);
    mr_profile_done(&profile);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, svg, MHD_RESPMEM_MUST_FREE);
    MHD_add_response_header(response, "Content-Type", "image/svg+xml");
    enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    struct mr_error error;
    uint16_t port = (uint16_t)atoi(argc > 1 ? argv[1] : "8080");
    mr_sampler_watch(); /* before any thread begins */
    if (mr_profiler_start(&(struct mr_profiler_options){.path = ""}, &error) != MR_OK ||
        mr_thread_create(&thread, burn, NULL, &error) != MR_OK ||
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION, port,
                         NULL, NULL, example_answer, NULL, MHD_OPTION_END) == NULL) {
        return 1;
    }
    pause();
    return 0;
}
