/* What `millrace run` gives up, worked out from its configuration. */
#ifndef MR_CLI_CONFINEMENT_H
#define MR_CLI_CONFINEMENT_H

#include "config/config.h"
#include "confine/confine.h"

struct mr_confinement {
    bool syscalls_wanted, files_wanted;
    bool programs; /* may be started */
    mr_confined syscalls, files;
};

/* Gives up files and system calls, and has the HTTP server give up listeners. Before the first thread. */
struct mr_confinement mr_confine_process(struct mr_config *config);

/* Whether it is given up, for the log: "yes", "off", or why not. */
const char *mr_confinement_syscalls(const struct mr_confinement *confinement);
const char *mr_confinement_files(const struct mr_confinement *confinement);

#endif
