#include "cli/arguments.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "cli/help.h"
#include "cli/versions.h"
#include "event/lsn.h"

enum { LONG_ONLY = 256, SMALL_MAX = 1000000 };

/* The option's argument, a whole number above 0; what is too large is the server's to say. */
static mr_status parse_number(const char *option, int64_t most, int64_t *ret)
{
    char *end;
    long long value = strtoll(optarg, &end, 10);
    if (end == optarg || *end != '\0' || value < 1 || value > most) {
        fprintf(stderr, "millrace: --%s wants a whole number above 0, not \"%s\"\n", option,
                optarg);
        return MR_ERR_USAGE;
    }
    *ret = value;
    return MR_OK;
}

static mr_status parse_small(const char *option, uint32_t *ret)
{
    int64_t number = 0;
    MR_TRY(parse_number(option, SMALL_MAX, &number));
    *ret = (uint32_t)number;
    return MR_OK;
}

static mr_status parse_lsn(const char *option, mr_lsn *ret)
{
    if (!mr_lsn_parse(optarg, ret, NULL)) {
        fprintf(stderr, "millrace: --%s wants a position such as 16/B374D848, not \"%s\"\n", option,
                optarg);
        return MR_ERR_USAGE;
    }
    return MR_OK;
}

static mr_status take_option(struct mr_arguments *ret, enum mr_cli_option option, uint32_t *seconds)
{
    const char *name = mr_cli_options[option].name;
    int64_t number = 0;
    switch (option) {
    case MR_CLI_CONFIG:
        ret->config_path = optarg;
        break;
    case MR_CLI_ADDRESS:
        ret->address = optarg;
        break;
    case MR_CLI_READY:
        ret->ready = true;
        break;
    case MR_CLI_DRY_RUN:
        ret->dry_run = true;
        break;
    case MR_CLI_WHERE:
        ret->snapshot.where = optarg;
        break;
    case MR_CLI_KEY:
        ret->snapshot.key = optarg;
        break;
    case MR_CLI_PAUSE:
        ret->snapshot.pauses = true;
        break;
    case MR_CLI_RESUME:
        ret->snapshot.resumes = true;
        break;
    case MR_CLI_STOP:
        ret->snapshot.stops = true;
        break;
    case MR_CLI_SECONDS:
        return parse_small(name, seconds);
    case MR_CLI_FREQUENCY:
        return parse_small(name, &ret->profile.frequency);
    case MR_CLI_HEAP:
        ret->profile.kind = MR_ASK_PROFILE_HEAP;
        break;
    case MR_CLI_DIFF:
        ret->diff = true;
        break;
    case MR_CLI_OUT:
        ret->profile.out = optarg;
        break;
    case MR_CLI_BLANK_NAMES:
        ret->record.blank_names = true;
        ret->record.blank = true;
        break;
    case MR_CLI_BLANK:
        ret->record.blank = true;
        break;
    case MR_CLI_SLOT:
        ret->record.slot = optarg;
        break;
    case MR_CLI_START:
        return parse_lsn(name, &ret->record.start);
    case MR_CLI_END:
        return parse_lsn(name, &ret->record.end);
    case MR_CLI_MEGABYTES:
        return parse_small(name, &ret->record.megabytes);
    case MR_CLI_STOP_AFTER:
        MR_TRY(parse_number(name, INT64_MAX, &number));
        ret->stop_after = (uint64_t)number;
        break;
    case MR_CLI_SKIP_COMMIT_LSN:
        return parse_lsn(name, &ret->skip_commit_lsn);
    case MR_CLI_AFTER_OFFSET:
        ret->offset_path = optarg;
        break;
    case MR_CLI_JSON:
        ret->json = true;
        break;
    case MR_CLI_HELP:
    case MR_CLI_VERSION:
    case MR_CLI_OPTION_COUNT:
        break;
    }
    return MR_OK;
}

/* getopt's form of the declared options. */
static void fill_options(struct option *options, char *letters)
{
    for (int i = 0; i < MR_CLI_OPTION_COUNT; i++) {
        const struct mr_cli_option_text *text = &mr_cli_options[i];
        options[i] = (struct option){
            .name = text->name,
            .has_arg = text->argument != NULL ? required_argument : no_argument,
            .val = LONG_ONLY + i,
        };
        if (text->letter != 0) {
            *letters++ = text->letter;
            if (text->argument != NULL) {
                *letters++ = ':';
            }
        }
    }
    *letters = '\0';
}

static enum mr_cli_option option_of(int value)
{
    if (value >= LONG_ONLY) {
        return (enum mr_cli_option)(value - LONG_ONLY);
    }
    enum mr_cli_option option = 0;
    while (mr_cli_options[option].letter != value) {
        option++;
    }
    return option;
}

/* What others call them; run is what starts. */
static const char *const other_commands[][2] = {
    {"start", "run"},      {"stream", "run"},           {"serve", "run"},
    {"validate", "check"}, {"test", "check"},           {"info", "status"},
    {"copy", "snapshot"},  {"ready", "health --ready"}, {"version", "--version"},
};

static void tell_unknown_command(const char *name)
{
    const char *names[MR_COMMAND_COUNT + MR_ARRAY_LEN(other_commands) + 1] = {0};
    uint32_t count = 0;
    for (int i = 0; i < MR_COMMAND_COUNT; i++) {
        names[count++] = mr_cli_commands[i].name;
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(other_commands); i++) {
        names[count++] = other_commands[i][0];
    }
    const char *meant = mr_nearest(name, names);
    for (size_t i = 0; meant != NULL && i < MR_ARRAY_LEN(other_commands); i++) {
        meant = strcmp(meant, other_commands[i][0]) == 0 ? other_commands[i][1] : meant;
    }
    if (meant != NULL) {
        fprintf(stderr, "millrace: unknown command \"%s\"; did you mean millrace %s?\n", name,
                meant);
    } else {
        fprintf(stderr, "millrace: unknown command \"%s\"; try millrace --help\n", name);
    }
}

/* getopt has said what is wrong with the option that it saw last. */
static void tell_nearest_option(const char *typed)
{
    const char *names[MR_CLI_OPTION_COUNT + 1] = {0};
    for (int i = 0; i < MR_CLI_OPTION_COUNT; i++) {
        names[i] = mr_cli_options[i].name;
    }
    char name[MR_NEAREST_FAR];
    const char *begin = typed + strspn(typed, "-");
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(begin, "="), begin);
    const char *meant = mr_nearest(name, names);
    if (meant != NULL && strcmp(meant, name) != 0) {
        fprintf(stderr, "millrace: did you mean --%s?\n", meant);
    } else {
        fputs("millrace: try millrace --help\n", stderr);
    }
}

/* Of two values one would be passed over without a word. */
static mr_status refuse_second(enum mr_cli_option option, uint32_t given)
{
    const struct mr_cli_option_text *text = &mr_cli_options[option];
    if (text->argument == NULL || (given >> option & 1) == 0) {
        return MR_OK;
    }
    fprintf(stderr, "millrace: --%s is given twice; give it once\n", text->name);
    return MR_ERR_USAGE;
}

static mr_status refuse_foreign(enum mr_cli_command command, uint32_t given)
{
    for (int i = 0; i < MR_CLI_OPTION_COUNT; i++) {
        if ((given >> i & 1) != 0 && (mr_cli_options[i].commands >> command & 1) == 0) {
            fprintf(stderr, "millrace: %s has no option --%s; try millrace %s --help\n",
                    mr_cli_commands[command].name, mr_cli_options[i].name,
                    mr_cli_commands[command].name);
            return MR_ERR_USAGE;
        }
    }
    return MR_OK;
}

/* The next operand; NULL: there is none. */
static const char *next_operand(int argc, char **argv)
{
    return optind < argc ? argv[optind++] : NULL;
}

static mr_status take_tables(int argc, char **argv, struct mr_ask_snapshot *ret)
{
    ret->tables = (const char *const *)&argv[optind];
    ret->table_count = (uint32_t)(argc - optind);
    bool pauses_too = ret->pauses + ret->resumes + ret->stops > 1 ||
                      ((ret->pauses || ret->resumes) && ret->table_count > 0);
    bool has_needless =
        (ret->where != NULL || ret->key != NULL) && (ret->stops || ret->table_count == 0);
    if (pauses_too || has_needless) {
        fputs("millrace: snapshot wants tables (perhaps with --where or --key), or --pause, or "
              "--resume, or "
              "--stop with or without tables\n",
              stderr);
        return MR_ERR_USAGE;
    }
    return MR_OK;
}

static mr_status take_operands(int argc, char **argv, struct mr_arguments *ret)
{
    if (ret->command == MR_COMMAND_RECORD &&
        (ret->record.path = next_operand(argc, argv)) == NULL) {
        fputs("millrace: record wants a file: millrace record FILE --config CONFIG\n", stderr);
        return MR_ERR_USAGE;
    }
    if (ret->command == MR_COMMAND_CONVERT && (ret->files[0] = next_operand(argc, argv)) == NULL) {
        fputs("millrace: convert wants a file: millrace convert connector.json\n", stderr);
        return MR_ERR_USAGE;
    }
    for (int i = 0; i < 2 && ret->diff; i++) {
        if ((ret->files[i] = next_operand(argc, argv)) == NULL) {
            fputs("millrace: --diff wants two files: millrace profile --diff BEFORE AFTER\n",
                  stderr);
            return MR_ERR_USAGE;
        }
    }
    if (ret->command == MR_COMMAND_HELP || ret->command == MR_COMMAND_REFERENCE) {
        ret->topic = next_operand(argc, argv);
    }
    if (ret->command == MR_COMMAND_SNAPSHOT) {
        return take_tables(argc, argv, &ret->snapshot);
    }
    if (optind < argc) {
        fprintf(stderr, "millrace: unexpected argument \"%s\"; try millrace --help\n",
                argv[optind]);
        return MR_ERR_USAGE;
    }
    return MR_OK;
}

mr_status mr_arguments_parse(int argc, char **argv, struct mr_arguments *ret)
{
    _Static_assert(MR_CLI_OPTION_COUNT <= 32, "a bit for each option");
    struct option options[MR_CLI_OPTION_COUNT + 1] = {0};
    char letters[2 * MR_CLI_OPTION_COUNT + 1];
    fill_options(options, letters);
    uint32_t given = 0;
    uint32_t seconds = 0;
    int value;
    while ((value = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        if (value == '?') {
            tell_nearest_option(argv[optind - 1]);
            return MR_ERR_USAGE;
        }
        enum mr_cli_option option = option_of(value);
        MR_TRY(refuse_second(option, given));
        given |= 1u << option;
        MR_TRY(take_option(ret, option, &seconds));
    }
    if ((given >> MR_CLI_VERSION & 1) != 0) {
        mr_versions_print(stdout);
        return MR_END;
    }
    bool help = (given >> MR_CLI_HELP & 1) != 0;
    if (help && optind == argc) {
        mr_help_print(stdout);
        return MR_END;
    }
    const char *name = optind < argc ? argv[optind++] : mr_cli_commands[MR_COMMAND_RUN].name;
    ret->command = mr_cli_command_find(name);
    if (ret->command == MR_COMMAND_COUNT) {
        tell_unknown_command(name);
        return MR_ERR_USAGE;
    }
    if (help) {
        mr_help_print_command(ret->command, stdout);
        return MR_END;
    }
    MR_TRY(refuse_foreign(ret->command, given));
    ret->profile.seconds = seconds;
    ret->record.seconds = seconds;
    return take_operands(argc, argv, ret);
}
