#include "terminal/arguments.h"

#include <getopt.h>

#include "base/nearest.h"
#include "event/lsn.h"

enum { LONG_ONLY = 256, SMALL_MAX = 1000000 };

/* A whole number above 0; what is too large is the server's to say. */
static bool argument_number(int64_t most, int64_t *ret)
{
    char *end;
    *ret = strtoll(optarg, &end, 10);
    return end != optarg && *end == '\0' && *ret >= 1 && *ret <= most;
}

static mr_status argument_take(const char *program, const struct mr_argument *known,
                               void *to_struct)
{
    void *to = (char *)to_struct + known->at;
    int64_t number = 0;
    bool good = true;
    switch (known->kind) {
    case MR_ARGUMENT_FLAG:
        *(bool *)to = true;
        break;
    case MR_ARGUMENT_TEXT:
        *(const char **)to = optarg;
        break;
    case MR_ARGUMENT_SMALL:
        good = argument_number(SMALL_MAX, &number);
        *(uint32_t *)to = (uint32_t)number;
        break;
    case MR_ARGUMENT_COUNT:
        good = argument_number(INT64_MAX, &number);
        *(uint64_t *)to = (uint64_t)number;
        break;
    case MR_ARGUMENT_POSITION:
        good = mr_lsn_parse(optarg, to, NULL);
        break;
    case MR_ARGUMENT_PASSED_ON:
        break;
    }
    if (!good) {
        fprintf(stderr, "%s: --%s wants %s, not \"%s\"\n", program, known->name,
                known->kind == MR_ARGUMENT_POSITION ? "a position such as 16/B374D848"
                                                    : "a whole number above 0",
                optarg);
    }
    return good ? MR_OK : MR_ERR_USAGE;
}

static void arguments_declare(const struct mr_argument *known, uint32_t count,
                              struct option *options, char *letters)
{
    for (uint32_t i = 0; i < count; i++) {
        options[i] = (struct option){
            .name = known[i].name,
            .has_arg = known[i].argument != NULL ? required_argument : no_argument,
            .val = LONG_ONLY + (int)i,
        };
        if (known[i].letter != 0) {
            *letters++ = known[i].letter;
            if (known[i].argument != NULL) {
                *letters++ = ':';
            }
        }
    }
    *letters = '\0';
}

static uint32_t argument_place(const struct mr_argument *known, int value)
{
    if (value >= LONG_ONLY) {
        return (uint32_t)(value - LONG_ONLY);
    }
    uint32_t place = 0;
    while (known[place].letter != value) {
        place++;
    }
    return place;
}

/* getopt has said what is wrong with the option that it saw last. */
static void argument_tell_nearest(const char *program, const struct mr_argument *known,
                                  uint32_t count, const char *typed)
{
    const char *names[MR_ARGUMENTS_MAX + 1] = {0};
    for (uint32_t i = 0; i < count; i++) {
        names[i] = known[i].name;
    }
    char name[MR_NEAREST_FAR];
    const char *begin = typed + strspn(typed, "-");
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(begin, "="), begin);
    const char *meant = mr_nearest(name, names);
    if (meant != NULL && strcmp(meant, name) != 0) {
        fprintf(stderr, "%s: did you mean --%s?\n", program, meant);
    } else {
        fprintf(stderr, "%s: try %s --help\n", program, program);
    }
}

mr_status mr_arguments_take(const char *program, const struct mr_argument *known, uint32_t count,
                            int argc, char **argv, void *to, uint64_t *ret_given)
{
    struct option options[MR_ARGUMENTS_MAX + 1] = {0};
    char letters[2 * MR_ARGUMENTS_MAX + 1];
    uint64_t given = 0;
    int value;
    MR_ASSERT(count <= MR_ARGUMENTS_MAX);
    arguments_declare(known, count, options, letters);
    while ((value = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        if (value == '?') {
            argument_tell_nearest(program, known, count, argv[optind - 1]);
            return MR_ERR_USAGE;
        }
        uint32_t place = argument_place(known, value);
        /* Of two values one would be passed over without a word. */
        if (known[place].argument != NULL && (given >> place & 1) != 0) {
            fprintf(stderr, "%s: --%s is given twice; give it once\n", program, known[place].name);
            return MR_ERR_USAGE;
        }
        given |= UINT64_C(1) << place;
        MR_TRY(argument_take(program, &known[place], to));
    }
    *ret_given = given;
    return MR_OK;
}
