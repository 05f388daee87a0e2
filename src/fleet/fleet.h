/* Many pipelines of one definition (docs/fleet.md): a template, and databases that are looked up, become plain configurations of
 * millrace. They go into a folder, a file each; or into a topic of Kafka, where agents take them from. What is there is also what is known from the
 * time before: what a definition would change is told by it, and a database that is gone is found in it. Main thread. */
#pragma once

#include "base/base.h"

enum mr_fleet_change { MR_FLEET_DRAIN, MR_FLEET_UNDRAIN, MR_FLEET_MOVE, MR_FLEET_RETRY };

struct mr_fleet_options {
    const char *path;   /* of the definition: a file, or a folder with a file for each pipeline */
    const char *folder; /* of the configurations; NULL: none */
    const char *plan;   /* file that is to have what `apply` would do; NULL: none */
    const char *name;   /* of a pipeline or a node; of apply a plan's file; NULL: none */
    const char *node;   /* where a pipeline is to move (NULL: elsewhere), or an agent's own */
    enum mr_fleet_change change;
    bool helm;
    bool checks;  /* each new or changed configuration by `millrace check`, before */
    bool accepts; /* changes of positions */
};

/* A command: prints to `to`, and what is wrong or was done to standard error. MR_OK: `*ret_code` is the exit code. */
typedef mr_status mr_fleet_fn(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                              struct mr_error *ret_error);

/* Writes the configurations into the folder, and with `helm` values for the chart to `to`. All or nothing: where something is wrong, or
 * a server can't be asked, no file is touched. */
mr_fleet_fn mr_fleet_render;

/* Tells what that would change, or `apply` (no folder), a line for each pipeline. 0: nothing, 2, or 4 where a position is at stake. */
mr_fleet_fn mr_fleet_plan;

/* Writes definitions to Kafka, all in one transaction: those of a plan, or of the definition as it is now. 2: another was faster; 4: a position
 * is at stake, and not accepted. */
mr_fleet_fn mr_fleet_apply;

/* A node gives its pipelines to others, or takes some again; a pipeline goes to another partition, or is started again. 2: another was
 * faster. */
mr_fleet_fn mr_fleet_change;

/* Restarts those that stream, one after the other: each streams again before the next one ends. 1: one does not. */
mr_fleet_fn mr_fleet_restart;

/* What is kept of a fleet in Kafka, for who looks at it. */
struct mr_fleet_view;
struct cJSON;
mr_status mr_fleet_view_open(const char *path, struct mr_fleet_view **ret,
                             struct mr_error *ret_error);

/* {"fleet","revision",…,"pipelines":[…],"nodes":[…]}, the worst first (docs/fleet.md); the caller's. */
mr_status mr_fleet_view_look(struct mr_fleet_view *view, struct cJSON **ret,
                             struct mr_error *ret_error);
void mr_fleet_view_close(struct mr_fleet_view *view); /* NULL is fine */
