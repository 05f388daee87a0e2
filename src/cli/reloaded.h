/* The configuration in effect: as millrace was started, and as its file was reloaded since. Gives control/reload its functions. */
#ifndef MR_CLI_RELOADED_H
#define MR_CLI_RELOADED_H

#include "config/config.h"
#include "control/pages.h"
#include "control/reload.h"

/* The caller's, who sets the first two and keeps both; the rest belongs to the reload's thread. */
struct mr_reloaded {
    const struct mr_config *started;
    struct mr_pages *pages; /* show what is in effect; NULL: nothing is served */
    struct mr_config *newest, *wanted;
    char *configuration, *origins; /* shown since a reload; NULL: as at the start */
};

extern const struct mr_reload_ops mr_reloaded_ops; /* their context is the struct */

/* After the reload is freed. */
void mr_reloaded_done(struct mr_reloaded *reloaded);

#endif
