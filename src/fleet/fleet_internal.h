/* A fleet inside. Only src/fleet includes it.
 *
 *   definition.c  the file: template, servers, pipelines by hand
 *   discover.c    what servers say: databases, and whether there is room
 *   template.c    a pipeline's options, with {…} replaced, as a configuration
 *   made.c        the folder: what was made before, and writing it
 *   fleet.c       render, plan and apply */
#pragma once

#include "config/config.h"
#include "fleet/fleet.h"

enum { FLEET_NAME_MAX = 63 };

/* [discover.NAME] */
struct fleet_server {
    const char *name;
    const char *connection_file;
    const char *databases; /* a regular expression of PostgreSQL's */
    const char *pipelines; /* what theirs are called, with {…} */
    const char *template;  /* of [templates]; NULL: none */
    bool stops_gone;
    bool insecure_tls;
    struct mr_pg_conn *conn; /* NULL: not connected */
};

struct fleet_pipeline {
    char *name;
    char *database, *server;  /* "": not known */
    bool is_found;            /* by discovery, not by hand */
    bool is_gone;             /* it was found once */
    struct mr_text text;      /* the configuration: two lines of comment, then an option a line */
    struct mr_config *config; /* NULL: not made yet, or what was made before is wrong */
};

struct fleet_list {
    struct fleet_pipeline *items;
    uint32_t count, room;
};

struct fleet {
    const struct mr_fleet_options *asked;
    struct mr_toml_node *root; /* texts are its */
    const char *name;
    int64_t per_server_max;
    const struct mr_toml_node *options;   /* [template]; NULL: there is none */
    const struct mr_toml_node *templates; /* [templates], likewise */
    const struct mr_toml_node *own;       /* [pipeline], likewise */
    struct fleet_server *servers;
    uint32_t server_count;
    struct fleet_list pipelines;
    const char *folder;       /* NULL: none */
    struct fleet_list before; /* what this fleet has made in it */
    struct mr_problems problems;
};

#define FLEET_PROBLEM(fleet, line, ...)                                                            \
    mr_problem_add(&(fleet)->problems, true, (line), __VA_ARGS__)

void mr_fleet_read(const char *path, struct fleet *fleet);
void mr_fleet_done(struct fleet *fleet);
const struct mr_toml_node *mr_fleet_child(const struct mr_toml_node *table, const char *key);

const struct fleet_server *mr_fleet_server(const struct fleet *fleet, const char *name);

/* NULL: none. */
const struct fleet_pipeline *mr_fleet_find(const struct fleet_list *list, const char *name);

/* The new last one, whose fields are taken over. */
struct fleet_pipeline *mr_fleet_append(struct fleet_list *list,
                                       const struct fleet_pipeline *pipeline);
void mr_fleet_pipeline_done(struct fleet_pipeline *pipeline);

/* Words in braces in `name` are replaced. NULL: the problem is added. */
struct fleet_pipeline *mr_fleet_add(struct fleet *fleet, const char *name, const char *server,
                                    const char *database);

/* Connects to each server and adds its databases' pipelines. Each server that is away is told of;
 * the first failure is the answer. */
mr_status mr_fleet_discover(struct fleet *fleet, struct mr_error *ret_error);

/* Adds pipelines of databases that are there no more, as `gone` says, and of servers that the
 * definition no longer has; then those by hand. */
mr_status mr_fleet_add_gone(struct fleet *fleet, struct mr_error *ret_error);
void mr_fleet_add_by_hand(struct fleet *fleet);

/* Once all texts are made: whether servers have room for them. */
mr_status mr_fleet_check_room(struct fleet *fleet, struct mr_error *ret_error);

/* Adds a text with {name}, {database} and {server} replaced. False: the problem is added. */
bool mr_fleet_expand(struct fleet *fleet, const struct fleet_pipeline *pipeline, const char *text,
                     struct mr_text *to);

/* What options of a pipeline are made of: [template], the one of [templates] that it names, its own
 * section. NULL: there is none. */
enum { FLEET_LAYERS = 3 };
struct fleet_layers {
    const struct mr_toml_node *at[FLEET_LAYERS]; /* the last one that has a key says what it is */
};
struct fleet_layers mr_fleet_layers(struct fleet *fleet, const struct fleet_pipeline *pipeline);

/* Makes text and configuration of each. */
void mr_fleet_make(struct fleet *fleet);

/* What two pipelines have in common that they may not: "slot", "stored position", "transactional
 * id"; NULL: nothing. */
const char *mr_fleet_shared(const struct fleet_pipeline *a, const struct fleet_pipeline *b);

/* Prints them as values for the chart. */
void mr_fleet_print_values(const struct fleet *fleet, FILE *to);

/* Reads what is there; a folder that does not exist is empty. */
mr_status mr_fleet_folder_read(struct fleet *fleet, struct mr_error *ret_error);

/* Adds a problem for each file that would be written over and is not this fleet's. */
void mr_fleet_folder_check(struct fleet *fleet);

/* The lines of comment by which a file is known again. */
void mr_fleet_mark(const struct fleet *fleet, const struct fleet_pipeline *pipeline,
                   struct mr_text *to);

/* Whether the folder has it, text by text. */
bool mr_fleet_is_as_before(const struct fleet *fleet, const struct fleet_pipeline *pipeline);

/* Makes the folder what the fleet is. */
mr_status mr_fleet_folder_write(const struct fleet *fleet, struct mr_error *ret_error);
