/* Many pipelines of one definition (docs/fleet.md): a template, and databases that are looked up,
 * become plain configurations of millrace in a folder, a file each, or values for the Helm chart.
 * systemd or Kubernetes runs them. What the folder has is also what is known from the time before:
 * a plan compares with it, and a database that is gone is found in it. Main thread. */
#pragma once

#include "config/config.h"

struct mr_fleet_options {
    /* Reads a text that another machine will read, as the daemon does. */
    mr_status (*load)(const char *name, const char *text, size_t len,
                      struct mr_config **ret_config);
    const char *path;   /* of the definition: a file, or a folder with a file for each pipeline */
    const char *folder; /* of the configurations; NULL: none */
    bool helm;
    bool checks;  /* apply: each new or changed configuration by `millrace check` first */
    bool accepts; /* apply: changes of positions, too */
};

/* A command: prints to `to`, and what is wrong or was done to standard error.
 * MR_OK: `*ret_code` is the exit code. */
typedef mr_status mr_fleet_fn(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                              struct mr_error *ret_error);

/* Writes the configurations into the folder, and with `helm` values for the chart to `to`. All or
 * nothing: where something is wrong, or a server can't be asked, no file is touched. */
mr_fleet_fn mr_fleet_render;

/* Tells what that would change, a line for each pipeline. 0: nothing, 2: something, 4: a position
 * is at stake. */
mr_fleet_fn mr_fleet_plan;

/* Tells it on standard error, writes the folder, and prints the commands by which systemd takes it
 * up. 4: a position is at stake and not accepted; nothing was written. Likewise the code of a check
 * that failed. */
mr_fleet_fn mr_fleet_apply;
