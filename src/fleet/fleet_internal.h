/* A fleet inside. Only src/fleet includes it.
 *
 *   definition.c  the file: template, servers, pipelines by hand
 *   discover.c    what servers say: databases, and whether there is room
 *   template.c    a pipeline's options, with {…} replaced, as a configuration
 *   made.c        the folder: what was made before, and writing it
 *   fleet.c       the two commands */
#ifndef MR_FLEET_INTERNAL_H
#define MR_FLEET_INTERNAL_H

#include "base/text.h"
#include "config/config.h"
#include "fleet/fleet.h"

enum { FLEET_NAME_MAX = 63 };

/* [discover.NAME] */
struct fleet_server {
    const char *name;
    const char *connection_file;
    const char *databases; /* a regular expression of PostgreSQL's */
    const char *pipelines; /* what theirs are called, with {…} */
    bool stops_gone;
    bool insecure_tls;
    struct mr_pg_conn *conn; /* NULL: not connected */
};

struct fleet_pipeline {
    char *name;
    char *database, *server; /* "": not known */
    bool is_found;           /* by discovery, not by hand */
    bool is_gone;            /* it was found once */
    struct mr_text text;     /* the configuration: two lines of comment, then an option a line */
    struct mr_config *config;
};

struct fleet {
    struct mr_toml_node *root; /* texts are its */
    const char *name;
    int64_t per_server_max;
    const struct mr_toml_node *options, *own; /* [template], [pipeline]; NULL: there is none */
    struct fleet_server *servers;
    uint32_t server_count;
    struct fleet_pipeline *pipelines;
    uint32_t pipeline_count, pipeline_room;
    struct mr_problems problems;
};

/* A file of the folder that this fleet has made. */
struct fleet_made {
    char *name, *path, *text;
    bool is_found;
    char server[FLEET_NAME_MAX + 1], database[FLEET_NAME_MAX + 1];
};

struct fleet_folder {
    struct fleet_made *items;
    uint32_t count, room;
};

#define FLEET_PROBLEM(fleet, line, ...)                                                            \
    mr_problem_add(&(fleet)->problems, true, (line), __VA_ARGS__)

void mr_fleet_read(const char *path, struct fleet *fleet);
void mr_fleet_done(struct fleet *fleet);
const struct mr_toml_node *mr_fleet_child(const struct mr_toml_node *table, const char *key);

/* By its name, or (`name` NULL) by its database; NULL: none. */
const struct fleet_pipeline *mr_fleet_find(const struct fleet *fleet, const char *name,
                                           const char *server, const char *database);

/* Words in braces in `name` are replaced. NULL: the problem is added. */
struct fleet_pipeline *mr_fleet_add(struct fleet *fleet, const char *name, const char *server,
                                    const char *database);

/* Connects to each server and adds its databases' pipelines. Each server that is away is told of; the first failure is the answer. */
mr_status mr_fleet_discover(struct fleet *fleet, struct mr_error *ret_error);

/* Adds pipelines of databases that are there no more, as `gone` says; then those by hand. */
void mr_fleet_add_gone(struct fleet *fleet, const struct fleet_folder *folder);
void mr_fleet_add_by_hand(struct fleet *fleet, const struct fleet_folder *folder);

/* Once all texts are made: whether servers have room for them. */
mr_status mr_fleet_check_room(struct fleet *fleet, struct mr_error *ret_error);

/* Adds a text with {name}, {database} and {server} replaced. False: the problem is added. */
bool mr_fleet_expand(struct fleet *fleet, const struct fleet_pipeline *pipeline, const char *text,
                     struct mr_text *to);

/* Makes text and configuration of each. */
void mr_fleet_make(struct fleet *fleet);

/* Prints them as values for the chart. */
void mr_fleet_print_values(const struct fleet *fleet, FILE *to);

/* Reads what is there; a folder that does not exist, or NULL, is empty. */
mr_status mr_fleet_folder_read(const struct fleet *fleet, const char *path,
                               struct fleet_folder *ret, struct mr_error *ret_error);
void mr_fleet_folder_done(struct fleet_folder *folder);
const struct fleet_made *mr_fleet_made(const struct fleet_folder *folder, const char *name);

/* The lines of comment by which a file is known again. */
void mr_fleet_mark(const struct fleet *fleet, const struct fleet_pipeline *pipeline,
                   struct mr_text *to);

/* Makes the folder what the fleet is. */
mr_status mr_fleet_folder_write(const struct fleet *fleet, const struct fleet_folder *before,
                                const char *path, struct mr_error *ret_error);

#endif
