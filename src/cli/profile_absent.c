/* `millrace profile` of a build without the profiler. */
#include "cli/cli.h"

static mr_status no_profiler(struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_USAGE,
                   "this millrace was built without the profiler; build with "
                   "-DMILLRACE_PROFILING=ON");
}

mr_status mr_ask_profile(const struct mr_http_options *server, const struct mr_ask_profile *wish,
                         FILE *to, struct mr_error *ret_error)
{
    return no_profiler(ret_error);
}

mr_status mr_ask_profile_diff(const char *before, const char *after, const char *out, FILE *to,
                              struct mr_error *ret_error)
{
    return no_profiler(ret_error);
}
