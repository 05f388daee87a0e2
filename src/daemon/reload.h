/* A reload: the configuration file is read again while the stream runs, because of SIGHUP or of
 * POST /api/reload, and what may change does.
 *
 * Requests are numbered and answered in order by a thread of their own; several that wait share one
 * reading of the file. */
#pragma once

#include "base/object.h"
#include "config/config.h"
#include "control/http.h"
#include "copy/added.h"

struct mr_reload_options {
    const struct mr_config *started; /* as millrace was started */
    struct mr_pipeline *pipeline;
    struct mr_copies *copies;
    struct mr_added *added;
    struct mr_http *http; /* gets the routes; NULL: nothing is served */
};

struct mr_reload;

/* All is the caller's and outlives it. */
struct mr_reload *mr_reload_new(const struct mr_reload_options *options);

/* Asks for a reload and returns at once; the log has the outcome. Any thread. */
void mr_reload_ask(struct mr_reload *reload);

/* Adds what is in effect to the object of /status; the context is the reload. Any thread. */
void mr_reload_show(void *context, cJSON *status);

/* After the pipeline and the server have ended. Takes NULL. */
void mr_reload_free(struct mr_reload *reload);
