#include "cli/arguments.h"

#include <getopt.h>

#include "base/nearest.h"
#include "cli/help.h"
#include "terminal/arguments.h"
#include "terminal/terminal.h"

/* Says what is wrong, and answers so. */
#define REFUSE(...) (fprintf(stderr, "millrace: " __VA_ARGS__), MR_ERR_USAGE)

static const struct mr_argument known[] = {
#define TO(kind, member) MR_ARGUMENT_##kind, offsetof(struct mr_arguments, member)
#define FLAG(member)     TO(FLAG, member)
#define TEXT(member)     TO(TEXT, member)
#define SMALL(member)    TO(SMALL, member)
#define COUNT(member)    TO(COUNT, member)
#define POSITION(member) TO(POSITION, member)
#define PASSED_ON        MR_ARGUMENT_PASSED_ON, 0
#define MR_CLI_OPTION(id, name, letter, argument, target, commands, text)                          \
    [MR_CLI_##id] = {name, letter, argument, target},
#include "cli/commands.def"
};

/* What others call them; run is what starts. */
static const char *const other_commands[][2] = {
    {"start", "run"},      {"stream", "run"},           {"serve", "run"},
    {"validate", "check"}, {"test", "check"},           {"info", "status"},
    {"copy", "snapshot"},  {"ready", "health --ready"}, {"version", "--version"},
    {"upgrade", "move"},   {"migrate", "move"},
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

static mr_status refuse_foreign(enum mr_cli_command command, uint64_t given)
{
    for (int i = 0; i < MR_CLI_OPTION_COUNT; i++) {
        if ((given >> i & 1) != 0 && (mr_cli_options[i].commands >> command & 1) == 0) {
            return REFUSE("%s has no option --%s; try millrace %s --help\n",
                          mr_cli_commands[command].name, mr_cli_options[i].name,
                          mr_cli_commands[command].name);
        }
    }
    return MR_OK;
}

static const char *next_operand(int argc, char **argv)
{
    return optind < argc ? argv[optind++] : NULL;
}

static mr_status cli_arguments_take_tables(int argc, char **argv, struct mr_ask_snapshot *ret)
{
    ret->tables = (const char *const *)&argv[optind];
    ret->table_count = (uint32_t)(argc - optind);
    bool pauses_too = ret->pauses + ret->resumes + ret->stops > 1 ||
                      ((ret->pauses || ret->resumes) && ret->table_count > 0);
    bool has_needless =
        (ret->where != NULL || ret->key != NULL) && (ret->stops || ret->table_count == 0);
    return !pauses_too && !has_needless
               ? MR_OK
               : REFUSE("snapshot wants tables (perhaps with --where or --key), or --pause, or "
                        "--resume, or --stop with or without tables\n");
}

#define BIT(option) (UINT64_C(1) << MR_CLI_##option)

/* Of a word of fleet, what it takes; --config each does. */
static const struct fleet_word {
    const char *name;
    uint64_t takes;
    bool wants_folder; /* as an operand */
} fleet_words[] = {
    {"render", BIT(OUT) | BIT(HELM), false},
    {"plan", 0, true},
    {"apply", BIT(CHECK) | BIT(ACCEPT_POSITION), true},
};

static mr_status take_fleet(int argc, char **argv, uint64_t given, struct mr_arguments *ret)
{
    const struct fleet_word *word = NULL;
    for (size_t i = 0; i < MR_ARRAY_LEN(fleet_words); i++) {
        word = strcmp(ret->files[0], fleet_words[i].name) == 0 ? &fleet_words[i] : word;
    }
    if (word == NULL) {
        return REFUSE("fleet has no %s; try millrace fleet --help\n", ret->files[0]);
    }
    ret->files[1] = word->wants_folder ? next_operand(argc, argv) : NULL;
    const char *fault = (given & ~(word->takes | BIT(CONFIG))) != 0
                            ? "does not take one of these options"
                        : word->wants_folder && ret->files[1] == NULL
                            ? "wants DIR, the folder of the configurations"
                        : (word->takes & BIT(HELM)) != 0 && (given & word->takes) == 0
                            ? "wants --out DIR, or --helm"
                            : NULL;
    return fault == NULL ? MR_OK
                         : REFUSE("fleet %s %s; try millrace fleet --help\n", word->name, fault);
}

static mr_status take_operands(int argc, char **argv, uint64_t given, struct mr_arguments *ret)
{
    static const char *const wishes[MR_COMMAND_COUNT] = {
        [MR_COMMAND_RECORD] = "record wants a file: millrace record FILE --config CONFIG",
        [MR_COMMAND_CONVERT] = "convert wants a file: millrace convert connector.json",
        [MR_COMMAND_FLEET] = "fleet wants a word, such as plan; try millrace fleet --help",
        [MR_COMMAND_PROFILE] = "--diff wants two files: millrace profile --diff BEFORE AFTER",
    };
    bool has_word = wishes[ret->command] != NULL && ret->command != MR_COMMAND_PROFILE;
    for (int i = 0; i < (ret->diff ? 2 : has_word); i++) {
        if ((ret->files[i] = next_operand(argc, argv)) == NULL) {
            return REFUSE("%s\n", wishes[ret->command]);
        }
    }
    ret->record.path = ret->files[0];
    if (ret->command == MR_COMMAND_FLEET) {
        MR_TRY(take_fleet(argc, argv, given, ret));
    }
    if (ret->command == MR_COMMAND_HELP || ret->command == MR_COMMAND_REFERENCE) {
        ret->topic = next_operand(argc, argv);
    }
    if (ret->command == MR_COMMAND_SNAPSHOT) {
        return cli_arguments_take_tables(argc, argv, &ret->snapshot);
    }
    if (ret->command == MR_COMMAND_VERIFY) {
        return MR_OK; /* its program takes the rest */
    }
    if (ret->move.fence && ret->move.accept != NULL) {
        return REFUSE("--fence is for the old cluster, --accept-cluster for the new one\n");
    }
    return optind == argc
               ? MR_OK
               : REFUSE("unexpected argument \"%s\"; try millrace --help\n", argv[optind]);
}

mr_status mr_arguments_parse(int argc, char **argv, struct mr_arguments *ret)
{
    uint64_t given = 0;
    MR_TRY(mr_arguments_take("millrace", known, MR_CLI_OPTION_COUNT, argc, argv, ret, &given));
    if (ret->version) {
        mr_versions_print("millrace", stdout);
        return MR_END;
    }
    if (ret->help && optind == argc) {
        mr_help_print(stdout);
        return MR_END;
    }
    const char *name = optind < argc ? argv[optind++] : mr_cli_commands[MR_COMMAND_RUN].name;
    ret->command = mr_cli_command_find(name);
    if (ret->command == MR_COMMAND_COUNT) {
        tell_unknown_command(name);
        return MR_ERR_USAGE;
    }
    if (ret->help) {
        mr_help_print_command(ret->command, stdout);
        return MR_END;
    }
    MR_TRY(refuse_foreign(ret->command, given));
    ret->profile.seconds = ret->record.seconds = ret->seconds;
    ret->record.blank |= ret->record.blank_names;
    return take_operands(argc, argv, given, ret);
}
