/* Texts for a terminal of 80 columns. */
#include "cli/help.h"

#include "base/nearest.h"
#include "config/config.h"
#include "options/unknown.h"
#include "terminal/runbook.h"
#include "terminal/terminal.h"

enum { OPTION_INDENT = 6 };

void mr_help_print(FILE *to)
{
    fputs("millrace " MR_VERSION ": streams row changes from PostgreSQL to Kafka\n\n"
          "usage: millrace [COMMAND] [OPTION]…\n\n",
          to);
    for (enum mr_cli_command command = 0; command < MR_COMMAND_COUNT; command++) {
        mr_terminal_row(to, mr_cli_commands[command].name, 13, mr_cli_commands[command].summary);
    }
    fputs("\nmillrace --config FILE streams. millrace COMMAND --help has a command's options,\n"
          "millrace help options those of the configuration file, millrace help sink.kafka\n"
          "those of a section, millrace help exit-codes what an end meant, millrace help\n"
          "runbook the errors and alerts that it explains.\n",
          to);
}

void mr_help_print_command(enum mr_cli_command command, FILE *to)
{
    const struct mr_cli_command_text *text = &mr_cli_commands[command];
    fprintf(to, "usage: millrace %s%s%s [OPTION]…\n\n", text->name,
            text->operands[0] == '\0' ? "" : " ", text->operands);
    mr_terminal_wrap(to, text->text, 0, 0);
    fputc('\n', to);
    for (enum mr_cli_option option = 0; option < MR_CLI_OPTION_COUNT; option++) {
        if ((mr_cli_options[option].commands >> command & 1) != 0) {
            const struct mr_cli_option_text *one = &mr_cli_options[option];
            mr_terminal_option(to, one->name, one->letter, one->argument, one->text);
        }
    }
}

/* Options of the file: one, those of a section, all (an empty name). */
static bool is_or_is_below(const char *path, const char *name)
{
    size_t len = strlen(name);
    return strncmp(path, name, len) == 0 && (len == 0 || path[len] == '\0' || path[len] == '.');
}

static bool print_config_options(const char *name, bool (*has)(const char *path, const char *name),
                                 FILE *to)
{
    bool found = false;
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        if (!has(option->path, name)) {
            continue;
        }
        MR_FREED char *text = mr_plain(mr_option_describe(option));
        fprintf(to, "  %s (%s%s%s)\n%*s", option->path, mr_kinds[option->kind].name,
                option->fallback[0] == '\0' ? "" : ", default ", option->fallback, OPTION_INDENT,
                "");
        mr_terminal_wrap(to, text, OPTION_INDENT, OPTION_INDENT);
        found = true;
    }
    return found;
}

/* Of the runbook, by what a person looks for. */
static const char *section_meant(const char *topic)
{
    static const char *const others[][2] = {
        {"poison", "E-exit-65"},
        {"reload_refused", "E-reload-refused"},
        {"reload", "E-reload-refused"},
        {"disk", "E-disk-full"},
        {"disk-full", "E-disk-full"},
        {"retention", "E-exit-10"},
        {"slot-lost", "E-slot-lost"},
        {"recovery", "E-exit-10"},
        {"topic_made_again", "MillraceTopicMadeAgain"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(others); i++) {
        if (strcmp(topic, others[i][0]) == 0) {
            return others[i][1];
        }
    }
    return topic;
}

static void tell_no_help(const char *topic)
{
    const char *names[MR_COMMAND_COUNT + 4] = {"options", "exit-codes", "runbook"};
    for (int i = 0; i < MR_COMMAND_COUNT; i++) {
        names[i + 3] = mr_cli_commands[i].name;
    }
    const char *meant = mr_nearest(topic, names);
    meant = meant == NULL ? mr_option_nearest(topic) : meant;
    if (meant != NULL) {
        fprintf(stderr, "millrace: no help about \"%s\"; did you mean millrace help %s?\n", topic,
                meant);
        return;
    }
    fprintf(stderr,
            "millrace: no help about \"%s\"; a command, an option or section of the file "
            "(sink.kafka) or a word of one (slot), options, exit-codes, runbook, a section of the "
            "runbook (E-slot-lost), or words of the log (\"No space left on device\")\n",
            topic);
}

mr_status mr_help_print_topic(const char *topic, FILE *to)
{
    if (topic == NULL) {
        mr_help_print(to);
        return MR_OK;
    }
    if (strcmp(topic, "options") == 0) {
        print_config_options("", is_or_is_below, to);
        return MR_OK;
    }
    enum mr_cli_command command = mr_cli_command_find(topic);
    if (command != MR_COMMAND_COUNT) {
        mr_help_print_command(command, to);
        return MR_OK;
    }
    if (strcmp(topic, "runbook") == 0) {
        mr_runbook_print_names(to);
        return MR_OK;
    }
    MR_FREED char *section = mr_runbook_section(section_meant(topic));
    if (section != NULL) {
        fputs(section, to);
        return MR_OK;
    }
    if (print_config_options(topic, is_or_is_below, to) ||
        print_config_options(topic, mr_option_has_word, to)) {
        return MR_OK;
    }
    MR_FREED char *seen_as = mr_runbook_seen_as(topic);
    if (seen_as != NULL) {
        fputs(seen_as, to);
        return MR_OK;
    }
    tell_no_help(topic);
    return MR_ERR_USAGE;
}
