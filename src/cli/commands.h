/* The command line as commands.def declares it. Values only. */
#pragma once

#include "base/base.h"

enum mr_cli_command {
#define MR_COMMAND(id, name, operands, summary, text) MR_COMMAND_##id,
#include "cli/commands.def"
    MR_COMMAND_COUNT
};

enum mr_cli_option {
#define MR_CLI_OPTION(id, name, letter, argument, target, commands, text) MR_CLI_##id,
#include "cli/commands.def"
    MR_CLI_OPTION_COUNT
};

struct mr_cli_command_text {
    const char *name;
    const char *operands;
    const char *summary;
    const char *text;
};

struct mr_cli_option_text {
    const char *name;
    char letter;          /* 0: none */
    const char *argument; /* NULL: none */
    uint32_t commands;    /* bit of each command that takes it */
    const char *text;
};

extern const struct mr_cli_command_text mr_cli_commands[MR_COMMAND_COUNT];
extern const struct mr_cli_option_text mr_cli_options[MR_CLI_OPTION_COUNT];
enum mr_cli_command mr_cli_command_find(const char *name);
