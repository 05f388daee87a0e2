/* What a process gives up that has such a configuration. */
#pragma once

#include "config/config.h"

/* Whether it is given up, for the log: "yes", "off", or why not. */
struct mr_confinement {
    const char *syscalls, *files;
};

/* Gives up system calls, and files but those that the configuration names and the folders of
 * `written` (ends with NULL), and has the HTTP server give up listeners. Before the first
 * thread. */
struct mr_confinement mr_confine_process(struct mr_config *config, const char *const *written);
