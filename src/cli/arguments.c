#include "cli/arguments.h"

#include <getopt.h>

#include "base/nearest.h"
#include "cli/help.h"
#include "event/lsn.h"
#include "terminal/terminal.h"

enum { LONG_ONLY = 256, SMALL_MAX = 1000000 };

/* Says what is wrong, and answers so. */
#define REFUSE(...) (fprintf(stderr, "millrace: " __VA_ARGS__), MR_ERR_USAGE)

static const struct target {
    enum { IS_FLAG, IS_TEXT, IS_SMALL, IS_COUNT, IS_POSITION } kind;
    size_t at; /* in struct mr_arguments */
} targets[] = {
#define TO(kind, member)                                                                           \
    {                                                                                              \
        kind, offsetof(struct mr_arguments, member)                                                \
    }
#define FLAG(member)                                                      TO(IS_FLAG, member)
#define TEXT(member)                                                      TO(IS_TEXT, member)
#define SMALL(member)                                                     TO(IS_SMALL, member)
#define COUNT(member)                                                     TO(IS_COUNT, member)
#define POSITION(member)                                                  TO(IS_POSITION, member)
#define MR_CLI_OPTION(id, name, letter, argument, target, commands, text) [MR_CLI_##id] = target,
#include "cli/commands.def"
};

/* A whole number above 0; what is too large is the server's to say. */
static bool parse_number(int64_t most, int64_t *ret)
{
    char *end;
    *ret = strtoll(optarg, &end, 10);
    return end != optarg && *end == '\0' && *ret >= 1 && *ret <= most;
}

static mr_status take_option(struct mr_arguments *ret, enum mr_cli_option option)
{
    const struct target *target = &targets[option];
    void *to = (char *)ret + target->at;
    int64_t number = 0;
    bool good = true;
    switch (target->kind) {
    case IS_FLAG:
        *(bool *)to = true;
        break;
    case IS_TEXT:
        *(const char **)to = optarg;
        break;
    case IS_SMALL:
        good = parse_number(SMALL_MAX, &number);
        *(uint32_t *)to = (uint32_t)number;
        break;
    case IS_COUNT:
        good = parse_number(INT64_MAX, &number);
        *(uint64_t *)to = (uint64_t)number;
        break;
    case IS_POSITION:
        good = mr_lsn_parse(optarg, to, NULL);
        break;
    }
    return good ? MR_OK
                : REFUSE("--%s wants %s, not \"%s\"\n", mr_cli_options[option].name,
                         target->kind == IS_POSITION ? "a position such as 16/B374D848"
                                                     : "a whole number above 0",
                         optarg);
}

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
static mr_status refuse_second(enum mr_cli_option option, uint64_t given)
{
    const struct mr_cli_option_text *text = &mr_cli_options[option];
    return text->argument == NULL || (given >> option & 1) == 0
               ? MR_OK
               : REFUSE("--%s is given twice; give it once\n", text->name);
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

static mr_status take_tables(int argc, char **argv, struct mr_ask_snapshot *ret)
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

static bool take_interval(const char *text, int64_t *ret_ms)
{
    static const struct mr_option interval = {.kind = MR_KIND_DURATION};
    return mr_option_parse(&interval, text, ret_ms) && *ret_ms >= 1000 &&
           *ret_ms <= INT64_C(31) * 86400000;
}

static mr_status take_verified(int argc, char **argv, struct mr_arguments *ret)
{
    struct mr_verify_options *verify = &ret->verify;
    verify->tables = (const char *const *)&argv[optind];
    verify->table_count = (uint32_t)(argc - optind);
    verify->json = ret->json;
    if (verify->yes && !verify->repairs) {
        return REFUSE("--yes wants --repair\n");
    }
    if (ret->every != NULL && !take_interval(ret->every, &ret->every_ms)) {
        return REFUSE("--every wants a time from 1s to 31d, such as 24h, not \"%s\"\n", ret->every);
    }
    if (verify->repairs && ret->every != NULL) {
        return REFUSE("--every repairs nothing; run it without --repair\n");
    }
    if (ret->figures != NULL && ret->every == NULL) {
        return REFUSE("--figures wants --every\n");
    }
    char *end = NULL;
    verify->sample = ret->sample == NULL ? 0 : strtod(ret->sample, &end);
    if (ret->sample != NULL && (end == ret->sample || strcmp(end + (*end == '%'), "") != 0 ||
                                !(verify->sample > 0 && verify->sample <= 100))) {
        return REFUSE("--sample wants percent above 0 and up to 100, not \"%s\"\n", ret->sample);
    }
    return MR_OK;
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
        return take_tables(argc, argv, &ret->snapshot);
    }
    if (ret->command == MR_COMMAND_VERIFY) {
        return take_verified(argc, argv, ret);
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
    _Static_assert(MR_CLI_OPTION_COUNT <= 64, "a bit for each option");
    struct option options[MR_CLI_OPTION_COUNT + 1] = {0};
    char letters[2 * MR_CLI_OPTION_COUNT + 1];
    fill_options(options, letters);
    uint64_t given = 0;
    int value;
    while ((value = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        if (value == '?') {
            tell_nearest_option(argv[optind - 1]);
            return MR_ERR_USAGE;
        }
        enum mr_cli_option option = option_of(value);
        MR_TRY(refuse_second(option, given));
        given |= UINT64_C(1) << option;
        MR_TRY(take_option(ret, option));
    }
    if (ret->version) {
        mr_versions_print(stdout);
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
