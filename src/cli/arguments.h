/* What the command line asks for. */
#pragma once

#include "cli/cli.h"
#include "cli/commands.h"

struct mr_arguments {
    enum mr_cli_command command;
    const char *config_path;
    const char *address; /* of the millrace to ask */
    const char *topic;   /* help, reference; NULL: none was named */
    bool help, version, ready, json, dry_run;
    uint32_t seconds; /* of a profile, or a recording */
    uint64_t stop_after;
    mr_lsn skip_commit_lsn;
    const char *offset_path; /* NULL: none */
    struct mr_ask_profile profile;
    struct mr_record_options record;
    struct mr_ask_snapshot snapshot;
    struct mr_move_wish move;
    bool diff;
    bool yes;
    bool helm, checks, accepts_position;
    const char *choose;   /* of recover; NULL: nothing yet */
    const char *files[2]; /* what is compared or converted; of fleet the word, and the folder */
};

/* Strings stay in `argv`, whose operands are moved after the options. Standard error has what is
 * wrong (MR_ERR_USAGE). MR_END: --help or --version, answered already. */
mr_status mr_arguments_parse(int argc, char **argv, struct mr_arguments *ret);
