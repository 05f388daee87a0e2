/* Many pipelines of one definition (docs/fleet.md): a template, and databases that are looked up, become plain configurations of
 * millrace, a file each in a folder. The folder is also what is known from the time before: what a definition would change is told by
 * it, and a database that is gone is found in it. Starts nothing. Main thread. */
#ifndef MR_FLEET_FLEET_H
#define MR_FLEET_FLEET_H

#include <stdio.h>

#include "base/status.h"

struct mr_fleet_options {
    const char *path;   /* of the definition */
    const char *folder; /* of the configurations; NULL: none */
    bool helm;
};

/* Writes the configurations into the folder, and with `helm` values for the chart to `to`. All or nothing: where something is wrong, or
 * a server can't be asked, no file is touched. What is wrong goes to standard error, and so does what was done. */
mr_status mr_fleet_render(const struct mr_fleet_options *options, FILE *to,
                          struct mr_error *ret_error);

/* Tells what that would change, a line for each pipeline. `*ret_code` is 0 where nothing would, 2, or 4 where a position is at stake. */
mr_status mr_fleet_plan(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                        struct mr_error *ret_error);

#endif
