/* The process of a pipeline: a millrace of this program, with a file of options and a socket of its own. Main thread: it ends, in order,
 * with the thread that has forked it (PR_SET_PDEATHSIG). */
#pragma once

#include "base/log_relay.h"
#include "control/listen.h"
#include "fleet/store.h"

/* Where processes live; the caller's, all texts too. */
struct fleet_home {
    const char *folder; /* of files and sockets */
    char **environment; /* of processes; with the secrets that were read from this one's */
    char *cgroup;       /* a folder that has a cgroup for each; NULL: there are none */
};

/* Zeroed to begin with. */
struct fleet_process {
    int pid; /* 0: there is none */
    char socket_path[MR_ADDRESS_PATH_MAX + 1];
    char *cgroup; /* NULL: none of its own */
    struct mr_log_relay log;
};

/* The options as the process is to read them. MR_ERR_SYSTEM: the file can't be written. */
mr_status mr_process_write_options(const struct fleet_home *home,
                                   const struct fleet_definition *definition,
                                   const struct fleet_process *process, struct mr_error *ret_error);

/* Writes the options, and starts it. */
mr_status mr_process_start(const struct fleet_home *home, const struct fleet_definition *definition,
                           struct fleet_process *process, struct mr_error *ret_error);

/* True: it has ended. Its exit code (128 and the number of a signal), and the CPU time that it took. */
bool mr_process_has_ended(struct fleet_process *process, const char *name, int32_t *ret_exit_code,
                          double *ret_cpu_seconds);

/* What is left of it: files and memory. */
void mr_process_done(struct fleet_process *process);
