/* The subcommands, a file each; main.c calls them. Main thread. */
#pragma once

#include "config/config.h"
#include "record/record.h"

/* `millrace check`: prints every finding at once, with its remedy, and changes nothing. Answers the
 * status of the worst: MR_OK when the stream could start. */
mr_status mr_check(const struct mr_config *config, FILE *to);

/* The millrace that closes a gap: a child process, which waits until it is told how, and ends with
 * us. */
struct mr_recovery {
    int pid;
    int choice_fd; /* takes the choice; once it is closed without one, the child ends */
    /* as it was, for millrace-verify: reading the configuration empties variables with secrets */
    char **environment;
};

/* Before the configuration is read, which empties variables with secrets, and before the first
 * thread. */
mr_status mr_cli_recover_begin(const char *path, struct mr_recovery *ret,
                               struct mr_error *ret_error);

/* `millrace recover`: says what may be missing after exit code 10, and does something about it.
 * `choice`: "differing", "everything" or "gap"; NULL: none is made yet. `yes`: it is to be done.
 * MR_OK: `*ret_code` is the exit code. */
mr_status mr_cli_recover(const struct mr_config *config, struct mr_recovery *recovery,
                         const char *choice, bool yes, int *ret_code, struct mr_error *ret_error);

struct mr_move_wish {
    bool fence;         /* leave the cluster of the configuration */
    const char *accept; /* system identifier of the one to go on at; NULL: none */
};

/* `millrace move`: has the stream leave a cluster, or go on at another; without a wish only says
 * what would be done, how, and what it costs (docs/upgrading-postgresql.md). MR_ERR_HISTORY: rows
 * would be missing. */
mr_status mr_cli_move(struct mr_config *config, const struct mr_move_wish *wish, int stop_fd,
                      FILE *to, struct mr_error *ret_error);

/* `millrace verify`: becomes millrace-verify, with all arguments but that word. Returns an exit
 * code if there is no such program. */
int mr_cli_verify(char **argv);

/* Runs it beside us, with another environment (NULL: ours). `*ret_out`: the end of a pipe with what
 * it prints; NULL: it prints where we do. Signals of the terminal are not for it. MR_ERR_SYSTEM:
 * there is no such program, or no process. */
mr_status mr_cli_verify_start(const char *const *arguments, char *const *environment, int *ret_pid,
                              int *ret_out, struct mr_error *ret_error);

/* `millrace convert`: a connector's configuration of Debezium's ("-": standard input) as ours. */
mr_status mr_cli_convert(const char *path, FILE *to);

/* Reads what Connect answers of a connector's offset, and has keys as a connector has them, unless
 * the file says otherwise. */
mr_status mr_cli_take_over(struct mr_config *config, const char *path);

/* `millrace health`: one line, of /healthz or with `ready` of /readyz. True: all is well. */
bool mr_ask_health(const struct mr_http_options *server, bool ready, FILE *to);

/* `millrace status`: the state of a running millrace, once; `json`: as /status answers it. */
mr_status mr_ask_status(const struct mr_http_options *server, bool json, FILE *to,
                        struct mr_error *ret_error);

/* `millrace top`: the state, drawn again each second until SIGINT or a "q"; goes on while millrace
 * is away. */
void mr_ask_top(const struct mr_http_options *server, FILE *to);

/* `millrace reload`: has a running millrace read its file again (`dry_run`: only look), and prints
 * what changed. An error says why nothing did. `path` (may be NULL) is the file that the caller
 * means; refused when the running one reads another. */
mr_status mr_ask_reload(const struct mr_http_options *server, const char *path, bool dry_run,
                        FILE *to, struct mr_error *ret_error);

struct mr_ask_snapshot {
    const char *const *tables; /* "schema.table", or "table" in public */
    uint32_t table_count;
    const char *where; /* NULL: all rows */
    const char *key;   /* NULL: the one of events */
    bool pauses, resumes, stops;
};

/* `millrace snapshot`: has a running millrace copy existing rows, waits until the tables were
 * looked at, and prints how far all copies are. An error says which table is refused, and why. */
mr_status mr_ask_snapshots(const struct mr_http_options *server, const struct mr_ask_snapshot *wish,
                           FILE *to, struct mr_error *ret_error);

struct mr_ask_profile {
    bool heap;          /* allocations in place of CPU time */
    uint32_t seconds;   /* 0: 10; of a heap profile: what is there now, in place of a difference */
    uint32_t frequency; /* 0: the server's default */
    const char *out; /* file name, its ending is added; NULL: one with the time, in this folder */
};

/* `millrace profile`: takes a profile of a running millrace. Writes <out>.folded and <out>.svg,
 * prints the stages, and shows the picture where there is a display; or <out>, if that ends in
 * .pb.gz. MR_ERR_TRANSIENT: there is no answer. */
mr_status mr_ask_profile(const struct mr_http_options *server, const struct mr_ask_profile *wish,
                         FILE *to, struct mr_error *ret_error);

/* `millrace profile --diff`: the same of two folded texts: writes <out>.svg, coloured by what
 * changed. */
mr_status mr_ask_profile_diff(const char *before, const char *after, const char *out, FILE *to,
                              struct mr_error *ret_error);
