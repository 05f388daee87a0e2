/* Pages for manuals and shells, made from the declarations.
 *
 * man(7) for the pages; the programmable completions of bash (its manual, "Programmable
 * Completion"), zsh (zshcompsys) and fish (complete). */

#include "cli/help.h"
#include "config/config.h"
#include "convert/convert.h"
#include "metrics/metrics.h"
#include "terminal/runbook.h"

/* man(7) wants a date; that of the last change to what the pages say. */
#define MR_MAN_DATE "2026-11-26"

#define MAN_FILES                                                                                  \
    ".SH FILES\n.TP\n.I /etc/millrace/config.toml\nread by the unit of the packages\n"             \
    ".SH EXAMPLES\n.EX\n"

static const char *const parts[] = {"config",     "reload",     "metrics", "debezium", "man",
                                    "man-verify", "man-config", "bash",    "zsh",      "fish"};

static bool takes(enum mr_cli_command command, enum mr_cli_option option)
{
    return (mr_cli_options[option].commands >> command & 1) != 0;
}

/* Text for roff, in lines of less than 80 bytes: what it would read as its own is escaped. */
static void put_roff(FILE *to, const char *text)
{
    const char *line = text;
    for (; *text != '\0'; text++) {
        if (*text == ' ' && text - line + (ptrdiff_t)strcspn(text + 1, " ") > 60) {
            line = text + 1;
            fputc('\n', to);
            continue;
        }
        if (text == line && (*text == '.' || *text == '\'')) {
            fputs("\\&", to);
        }
        if (*text == '\\') {
            fputs("\\e", to);
        } else if (*text == '-') {
            fputs("\\-", to);
        } else {
            fputc(*text, to);
        }
    }
}

static void put_roff_line(FILE *to, const char *text)
{
    put_roff(to, text);
    fputc('\n', to);
}

static void put_man_option(FILE *to, enum mr_cli_option option)
{
    const struct mr_cli_option_text *text = &mr_cli_options[option];
    fputs(".TP\n", to);
    if (text->letter != 0) {
        fprintf(to, "\\fB\\-%c\\fR, ", text->letter);
    }
    fputs("\\fB\\-\\-", to);
    put_roff(to, text->name);
    fputs("\\fR", to);
    if (text->argument != NULL) {
        fputs(" \\fI", to);
        put_roff(to, text->argument);
        fputs("\\fR", to);
    }
    fputc('\n', to);
    put_roff_line(to, text->text);
}

static void print_man(FILE *to)
{
    fputs(".TH MILLRACE 1 \"" MR_MAN_DATE "\" \"millrace " MR_VERSION "\" \"User Commands\"\n"
          ".SH NAME\nmillrace \\- streams row changes from PostgreSQL to Kafka\n"
          ".SH SYNOPSIS\n.B millrace\n[\\fICOMMAND\\fR] [\\fIOPTION\\fR]...\n.SH COMMANDS\n",
          to);
    for (enum mr_cli_command command = 0; command < MR_COMMAND_COUNT; command++) {
        const struct mr_cli_command_text *text = &mr_cli_commands[command];
        fprintf(to, ".SS \"%s%s", text->name, text->operands[0] == '\0' ? "" : " ");
        put_roff(to, text->operands);
        fputs("\"\n", to);
        put_roff_line(to, text->text);
        for (enum mr_cli_option option = 0; option < MR_CLI_OPTION_COUNT; option++) {
            if (takes(command, option) && option != MR_CLI_HELP && option != MR_CLI_VERSION) {
                put_man_option(to, option);
            }
        }
    }
    fputs(".SH OPTIONS OF ALL COMMANDS\n", to);
    put_man_option(to, MR_CLI_HELP);
    put_man_option(to, MR_CLI_VERSION);
    fputs(".SH EXIT STATUS\n.nf\n", to);
    MR_FREED char *codes = mr_runbook_section("exit-codes");
    for (char *rest = codes, *line; (line = strsep(&rest, "\n")) != NULL;) {
        put_roff_line(to, line);
    }
    fputs(".fi\n" MAN_FILES
          "millrace check \\-\\-config config.toml     # every problem, with its remedy\n"
          "millrace \\-\\-config config.toml           # streams\n"
          "millrace snapshot public.orders         # copies the rows that are there\n"
          "millrace help E\\-slot\\-lost             # what to do\n.EE\n"
          ".SH SEE ALSO\n.BR millrace\\-verify (1),\n.BR millrace.toml (5),\n.BR pg_recvlogical "
          "(1)\n",
          to);
}

/* The program that the command becomes. */
static void print_man_verify(FILE *to)
{
    const struct mr_cli_command_text *text = &mr_cli_commands[MR_COMMAND_VERIFY];
    fprintf(to,
            ".TH MILLRACE\\-VERIFY 1 \"" MR_MAN_DATE "\" \"millrace " MR_VERSION
            "\" \"User Commands\"\n.SH NAME\nmillrace\\-verify \\- %s\n"
            ".SH SYNOPSIS\n.B millrace\\-verify\n[\\fITABLE\\fR...] [\\fIOPTION\\fR]...\n"
            ".SH DESCRIPTION\n",
            text->summary);
    put_roff_line(to, text->text);
    fputs("\\fBmillrace verify\\fR runs it.\n.SH OPTIONS\n", to);
    for (enum mr_cli_option option = 0; option < MR_CLI_OPTION_COUNT; option++) {
        if (takes(MR_COMMAND_VERIFY, option)) {
            put_man_option(to, option);
        }
    }
    fputs(MAN_FILES
          "millrace\\-verify \\-\\-config config.toml                    # all tables, once\n"
          "millrace\\-verify \\-\\-every 24h \\-\\-figures millrace.prom # again and again\n.EE\n"
          ".SH SEE ALSO\n.BR millrace (1),\n.BR millrace.toml (5)\n",
          to);
}

static void put_man_config(FILE *to, const struct mr_option *option)
{
    MR_FREED char *text = mr_plain(mr_option_describe(option));
    fputs(".TP\n.B ", to);
    put_roff(to, option->path);
    if (option->fallback[0] != '\0') {
        fputs(" \\fR(", to);
        put_roff(to, option->fallback);
        fputc(')', to);
    }
    fputc('\n', to);
    put_roff_line(to, text);
}

static void print_man_config(FILE *to)
{
    fputs(".TH MILLRACE.TOML 5 \"" MR_MAN_DATE "\" \"millrace " MR_VERSION "\" \"File Formats\"\n"
          ".SH NAME\nmillrace.toml \\- configuration of millrace\n"
          ".SH DESCRIPTION\nA TOML file, named by \\fBmillrace \\-\\-config\\fR \\fIFILE\\fR. "
          "A key with dots\nis in the table of its first parts. The default is in parentheses.\n"
          ".SH OPTIONS\n",
          to);
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        put_man_config(to, mr_option_at(i));
    }
    fputs(MAN_FILES
          "tables = [\"public.orders\", \"public.customers\"]\n"
          "topic_prefix = \"shop\"\n\n[source.postgres]\nconnection = \"env:DATABASE_URL\"\n\n"
          "[sink.kafka]\nbrokers = [\"localhost:9092\"]\n.EE\n"
          ".SH SEE ALSO\n.BR millrace (1)\n",
          to);
}

static void put_command_names(FILE *to, const char *between)
{
    for (enum mr_cli_command command = 0; command < MR_COMMAND_COUNT; command++) {
        fprintf(to, "%s%s", command == 0 ? "" : between, mr_cli_commands[command].name);
    }
}

static void cli_reference_put_parts(FILE *to)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(parts); i++) {
        fprintf(to, "%s%s", i == 0 ? "" : " ", parts[i]);
    }
}

static void print_bash(FILE *to)
{
    fputs("# Completion of millrace for bash.\n_millrace()\n{\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} "
          "command=run words i\n"
          "    [[ ${COMP_WORDS[0]} == *millrace-verify ]] && command=verify\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${COMP_WORDS[i]} in\n          "
          "  ",
          to);
    put_command_names(to, " | ");
    fputs(") command=${COMP_WORDS[i]}; break ;;\n        esac\n    done\n    case $previous in\n"
          "        --config | -c | --out | -o) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"
          "        reference) COMPREPLY=($(compgen -W \"",
          to);
    cli_reference_put_parts(to);
    fputs("\" -- \"$word\")); return ;;\n        help) COMPREPLY=($(compgen -W \"", to);
    put_command_names(to, " ");
    fputs(
        " options exit-codes runbook\" -- \"$word\")); return ;;\n    esac\n    case $command in\n",
        to);
    for (enum mr_cli_command command = 0; command < MR_COMMAND_COUNT; command++) {
        fprintf(to, "        %s) words=\"", mr_cli_commands[command].name);
        for (enum mr_cli_option option = 0; option < MR_CLI_OPTION_COUNT; option++) {
            if (takes(command, option)) {
                fprintf(to, "--%s ", mr_cli_options[option].name);
            }
        }
        fputs("\" ;;\n", to);
    }
    fputs("    esac\n    case $word in\n        -*) COMPREPLY=($(compgen -W \"$words\" -- "
          "\"$word\")) ;;\n"
          "        *) if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"",
          to);
    put_command_names(to, " ");
    fputs("\" -- \"$word\")); else COMPREPLY=($(compgen -f -- \"$word\")); fi ;;\n"
          "    esac\n}\ncomplete -F _millrace millrace millrace-verify\n",
          to);
}

/* A text inside single quotes of a shell; brackets and colons mean something to zsh's
 * _arguments. */
static void put_quoted(FILE *to, const char *text, const char *special)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs("'\\''", to);
        } else {
            fprintf(to, "%s%c", strchr(special, *text) != NULL ? "\\" : "", *text);
        }
    }
}

static void print_zsh(FILE *to)
{
    fputs("#compdef millrace millrace-verify\n# Completion of millrace for zsh.\n_millrace() {\n"
          "    local -a commands=(\n",
          to);
    for (enum mr_cli_command command = 0; command < MR_COMMAND_COUNT; command++) {
        fprintf(to, "        '%s:", mr_cli_commands[command].name);
        put_quoted(to, mr_cli_commands[command].summary, "");
        fputs("'\n", to);
    }
    fputs("    )\n    if [[ $service == millrace-verify ]]; then\n"
          "        words=(millrace verify ${words[2,-1]}); ((CURRENT++))\n    fi\n"
          "    if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n"
          "        _describe command commands\n        return\n    fi\n    case $words[2] in\n",
          to);
    for (enum mr_cli_command command = 0; command < MR_COMMAND_COUNT; command++) {
        fprintf(to, "        %s) shift words; ((CURRENT--)); _arguments",
                mr_cli_commands[command].name);
        for (enum mr_cli_option option = 0; option < MR_CLI_OPTION_COUNT; option++) {
            const struct mr_cli_option_text *text = &mr_cli_options[option];
            if (takes(command, option)) {
                fprintf(to, " \\\n            '--%s%s[", text->name, text->argument ? "=" : "");
                put_quoted(to, text->text, "[]:");
                fprintf(to, "]%s%s%s'", text->argument ? ":" : "",
                        text->argument ? text->argument : "",
                        text->argument && strcmp(text->argument, "FILE") == 0 ? ":_files" : "");
            }
        }
        if (command == MR_COMMAND_REFERENCE) {
            fputs(" \\\n            ':part:(", to);
            cli_reference_put_parts(to);
            fputs(")'", to);
        } else {
            fputs(" \\\n            '*:file:_files'", to);
        }
        fputs(" ;;\n", to);
    }
    fputs("        *) _files ;;\n    esac\n}\n_millrace \"$@\"\n", to);
}

static void print_fish(FILE *to)
{
    fputs("# Completion of millrace for fish.\n", to);
    for (enum mr_cli_command command = 0; command < MR_COMMAND_COUNT; command++) {
        fprintf(to, "complete -c millrace -n __fish_use_subcommand -f -a %s -d '",
                mr_cli_commands[command].name);
        put_quoted(to, mr_cli_commands[command].summary, "\\");
        fputs("'\n", to);
    }
    for (enum mr_cli_option option = 0; option < MR_CLI_OPTION_COUNT; option++) {
        const struct mr_cli_option_text *text = &mr_cli_options[option];
        fprintf(to, "complete -c millrace");
        if (text->commands != UINT32_MAX) {
            fputs(" -n '__fish_seen_subcommand_from", to);
            for (enum mr_cli_command command = 0; command < MR_COMMAND_COUNT; command++) {
                if (takes(command, option)) {
                    fprintf(to, " %s", mr_cli_commands[command].name);
                }
            }
            fputs("'", to);
        }
        if (text->letter != 0) {
            fprintf(to, " -s %c", text->letter);
        }
        fprintf(to, " -l %s%s -d '", text->name, text->argument != NULL ? " -r" : "");
        put_quoted(to, text->text, "\\");
        fputs("'\n", to);
    }
    for (enum mr_cli_option option = 0; option < MR_CLI_OPTION_COUNT; option++) {
        const struct mr_cli_option_text *text = &mr_cli_options[option];
        if (takes(MR_COMMAND_VERIFY, option)) {
            fprintf(to, "complete -c millrace-verify -l %s%s -d '", text->name,
                    text->argument != NULL ? " -r" : "");
            put_quoted(to, text->text, "\\");
            fputs("'\n", to);
        }
    }
    fputs("complete -c millrace -n '__fish_seen_subcommand_from reference' -f -a '", to);
    cli_reference_put_parts(to);
    fputs("'\n", to);
}

mr_status mr_reference_print(const char *part, FILE *to)
{
    static void (*const print[])(FILE * to) = {mr_config_print_reference,
                                               mr_config_print_reloads,
                                               mr_metrics_print_reference,
                                               mr_convert_print_reference,
                                               print_man,
                                               print_man_verify,
                                               print_man_config,
                                               print_bash,
                                               print_zsh,
                                               print_fish};
    _Static_assert(MR_ARRAY_LEN(print) == MR_ARRAY_LEN(parts), "a function for each part");
    for (size_t i = 0; i < MR_ARRAY_LEN(parts); i++) {
        if (part != NULL && strcmp(part, parts[i]) == 0) {
            print[i](to);
            return MR_OK;
        }
    }
    fputs("millrace: reference wants one of: ", stderr);
    cli_reference_put_parts(stderr);
    fputs("\n", stderr);
    return MR_ERR_USAGE;
}
