/* What `millrace run` gives up, worked out from its configuration. */
#pragma once

#include "config/config.h"

/* Whether it is given up, for the log: "yes", "off", or why not. */
struct mr_confinement {
    const char *syscalls, *files;
};

/* Gives up files and system calls, and has the HTTP server give up listeners. Before the first thread. */
struct mr_confinement mr_confine_process(struct mr_config *config);

/* The same in a process that proves tables (verify/prover.h), which listens nowhere and may write temporary files; with `forks` in one that
 * forks those, which then say for themselves that they go first where memory runs out. */
void mr_confine_proof(struct mr_config *config, bool forks);
