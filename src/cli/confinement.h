/* What `millrace run` gives up, worked out from its configuration. */
#pragma once

#include "config/config.h"

/* Whether it is given up, for the log: "yes", "off", or why not. */
struct mr_confinement {
    const char *syscalls, *files;
};

/* Gives up files and system calls, and has the HTTP server give up listeners. Before the first thread. */
struct mr_confinement mr_confine_process(struct mr_config *config);

/* The same in a process that proves tables again and again, which listens nowhere, and writes temporary files and its figures (NULL: none). */
void mr_confine_verify(struct mr_config *config, const char *figures);
