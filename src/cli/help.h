/* What is made of commands.def and options.def for people and their shells. */
#pragma once

#include "cli/commands.h"

/* `millrace --help`: the commands, a line each. */
void mr_help_print(FILE *to);
void mr_help_print_command(enum mr_cli_command command, FILE *to);

/* `millrace help TOPIC`; NULL is mr_help_print. MR_ERR_USAGE, and told on standard error: there is
 * no such topic. */
mr_status mr_help_print_topic(const char *topic, FILE *to);

/* `millrace reference PART`, likewise. */
mr_status mr_reference_print(const char *part, FILE *to);
