/* The process of a pipeline: a millrace of this program, with a file of options and a socket of its own. Main thread: it ends, in order,
 * with the thread that has forked it (PR_SET_PDEATHSIG). */
#pragma once

#include "fleet/store.h"

/* Where processes live; the caller's, all texts too. */
struct fleet_home {
    const char *folder;       /* of files and sockets */
    char *const *environment; /* of processes; with the secrets that were read from this one's */
    char *cgroup;             /* a folder that has a cgroup for each; NULL: there are none */
};

/* Zeroed to begin with. */
struct fleet_process {
    int pid; /* 0: there is none */
    int log_fd;
    char *config_path, *socket_path, *cgroup;
    struct mr_text line;  /* of the log, its beginning */
    struct mr_text error; /* what the log said last of an error */
};

/* Takes a cgroup that was delegated to this process, and moves it to one below; `home->cgroup` stays NULL where there is none. */
void mr_process_find_cgroup(struct fleet_home *home);

/* The options as the process is to read them. `socket_path` NULL: of a new process. MR_ERR_SYSTEM: the file can't be written. */
mr_status mr_process_write_options(const struct fleet_home *home,
                                   const struct fleet_definition *definition,
                                   struct fleet_process *process, struct mr_error *ret_error);

/* Writes the options, and starts it. */
mr_status mr_process_start(const struct fleet_home *home, const struct fleet_definition *definition,
                           struct fleet_process *process, struct mr_error *ret_error);

/* Passes the lines of its log on. */
void mr_process_read_log(struct fleet_process *process, const char *name);

/* True: it has ended. Its exit code (128 and the number of a signal), and the CPU time that it took. */
bool mr_process_has_ended(struct fleet_process *process, const char *name, int32_t *ret_exit_code,
                          double *ret_cpu_seconds);

/* What is left of it: files and memory. */
void mr_process_done(struct fleet_process *process);
