#include "cli/commands.h"

#include "terminal/terminal.h"

#define OF(id) (1u << MR_COMMAND_##id)
#define OF_ALL UINT32_MAX

const struct mr_cli_command_text mr_cli_commands[] = {
#define MR_COMMAND(id, name, operands, summary, text)                                              \
    [MR_COMMAND_##id] = {name, operands, summary, text},
#include "cli/commands.def"
};

const struct mr_cli_option_text mr_cli_options[] = {
#define MR_CLI_OPTION(id, name, letter, argument, target, commands, text)                          \
    [MR_CLI_##id] = {name, letter, argument, commands, text},
#include "cli/commands.def"
};

enum mr_cli_command mr_cli_command_find(const char *name)
{
    enum mr_cli_command command = 0;
    while (command < MR_COMMAND_COUNT && strcmp(mr_cli_commands[command].name, name) != 0) {
        command++;
    }
    return command;
}
