/* The configuration file, read again while the stream runs: by SIGHUP, or by POST to /api/reload. */
#ifndef MR_CLI_RELOAD_H
#define MR_CLI_RELOAD_H

#include "cli/added.h"
#include "config/config.h"
#include "control/pages.h"

struct mr_reload;

/* All is the caller's and outlives it. `http` and `pages`: NULL where nothing is served; the routes are added. */
struct mr_reload *mr_reload_new(const struct mr_config *config, struct mr_pipeline *pipeline,
                                struct mr_http *http, struct mr_pages *pages,
                                struct mr_added *added);

/* Others reach the server, and it has no password: it takes no commands. */
bool mr_reload_is_closed(const struct mr_config *config);

/* Asks for one; what comes of it the log says. Returns at once. Several at once are one: each reads the file after it was
 * asked for. Any thread. */
void mr_reload_ask(struct mr_reload *reload);

/* Behind the end of the pipeline and of the server. Takes NULL. */
void mr_reload_free(struct mr_reload *reload);

#endif
