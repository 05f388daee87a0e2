/* What `millrace run` gives up, worked out from its configuration. */
#ifndef MR_CLI_CONFINEMENT_H
#define MR_CLI_CONFINEMENT_H

#include "config/config.h"

/* Whether it is given up, for the log: "yes", "off", or why not. */
struct mr_confinement {
    const char *syscalls, *files;
};

/* Gives up files and system calls, and has the HTTP server give up listeners. Before the first thread. */
struct mr_confinement mr_confine_process(struct mr_config *config);

/* The same in the process that proves a table (verify/prover.h), which listens nowhere and may write temporary files. */
void mr_confine_proof(struct mr_config *config);

#endif
