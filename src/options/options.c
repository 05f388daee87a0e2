#include "options/options.h"

/* CHOICE rows hold their words where the others hold the lower bound. */
#define WORDS(low) _Generic((low), int : NULL, default : (low))
#define BOUND(low) _Generic((low), int : (low), default : 0)

#define ONLY(what) (what), true
#define IDLE(what) (what), false
#define NONE       NULL, false

static const struct mr_option options[] = {
#define MR_OPTION(path_, kind_, field_, place_, fallback_, low_, high_, reload_, part_, needs_,    \
                  text_)                                                                           \
    {path_, MR_KIND_##kind_,     fallback_,       WORDS(low_), BOUND(low_),                        \
     high_, MR_RELOAD_##reload_, MR_PART_##part_, needs_,      text_},
#include "options/options.def"
#undef MR_OPTION
};

const struct mr_option *mr_option_at(uint32_t index)
{
    MR_ASSERT(index < MR_OPTION_COUNT);
    return &options[index];
}

bool mr_option_find_before(const char *path, const char *end, uint32_t *ret_index)
{
    size_t len = strlen(path), end_len = strlen(end);
    if (len < end_len || strcmp(path + len - end_len, end) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        if (strlen(options[i].path) == len - end_len &&
            strncmp(options[i].path, path, len - end_len) == 0) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

bool mr_option_find(const char *path, uint32_t *ret_index)
{
    return mr_option_find_before(path, "", ret_index);
}

bool mr_option_is_section(const char *path)
{
    size_t len = strlen(path);
    return MR_ANY(option, options, MR_OPTION_COUNT,
                  strncmp(option->path, path, len) == 0 && option->path[len] == '.');
}

bool mr_option_is_live(const struct mr_option *option)
{
    return option->reload != MR_RELOAD_RESTART && option->reload != MR_RELOAD_RULE;
}

struct mr_unit {
    const char *name;
    int64_t factor;
};

static const struct mr_unit no_units[] = {{"", 1}, {NULL, 0}};
static const struct mr_unit sizes[] = {
    {"", 1},      {"B", 1},     {"KiB", 1024},   {"MiB", 1048576},   {"GiB", 1073741824},
    {"kB", 1000}, {"KB", 1000}, {"MB", 1000000}, {"GB", 1000000000}, {NULL, 0}};
static const struct mr_unit ms_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {0}};
static const struct mr_unit us_units[] = {{"us", 1}, {"ms", 1000}, {"s", 1000000}, {0}};

const struct mr_kind mr_kinds[] = {
    [MR_KIND_STRING] = {.name = "string", .example = "a string"},
    [MR_KIND_TOPIC] = {.name = "string", .example = "a string"},
    [MR_KIND_STRINGS] = {.name = "list", .example = "a list of strings, [\"…\", \"…\"]"},
    [MR_KIND_REWRITE] = {.name = "text or pair",
                         .example = "a text, or a list of an expression and a text"},
    [MR_KIND_SECRET] = {.name = "secret",
                        .example = "\"env:NAME\" or \"file:/PATH\", for secrets are kept out of "
                                   "this file"},
    [MR_KIND_LOGIN] = {.name = "secret or program",
                       .example = "\"env:NAME\", \"file:/PATH\", or a list, [\"/PROGRAM\", …], for "
                                  "secrets are kept out of this file"},
    [MR_KIND_BOOL] = {.name = "boolean", .example = "true or false"},
    [MR_KIND_COUNT] = {.name = "number", .example = "a whole number", .units = no_units},
    [MR_KIND_DURATION] = {"duration", "a duration such as \"500ms\", \"10s\" or \"2m\"", "ms",
                          ms_units},
    [MR_KIND_DURATION_US] = {"duration", "a duration such as \"500us\" or \"2ms\"", "us", us_units},
    [MR_KIND_SIZE] = {"size", "a size such as \"64KiB\" or \"10MB\"", "bytes", sizes},
    [MR_KIND_CHOICE] = {.name = "word"},
};

static bool parse_number(const char *text, enum mr_option_kind kind, int64_t *ret)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || errno != 0 || (number < 0 && kind != MR_KIND_COUNT)) {
        return false;
    }
    for (const struct mr_unit *unit = mr_kinds[kind].units; unit->name != NULL; unit++) {
        if (strcmp(end, unit->name) == 0) {
            return !__builtin_mul_overflow((int64_t)number, unit->factor, ret);
        }
    }
    return false;
}

static bool parse_choice(const char *text, const char *choices, int64_t *ret)
{
    mr_slice word;
    for (int64_t index = 0; mr_next_word(&choices, &word); index++) {
        if (mr_slice_equal(word, mr_slice_of(text))) {
            *ret = index;
            return true;
        }
    }
    return false;
}

bool mr_option_parse(const struct mr_option *option, const char *text, int64_t *ret)
{
    if (option->kind == MR_KIND_BOOL) {
        *ret = strcmp(text, "true") == 0;
        return *ret == 1 || strcmp(text, "false") == 0;
    }
    return option->kind == MR_KIND_CHOICE
               ? parse_choice(text, option->choices, ret)
               : mr_kinds[option->kind].units != NULL && parse_number(text, option->kind, ret);
}

static struct mr_option_value word_at(const char *choices, int64_t index)
{
    struct mr_option_value ret;
    mr_slice word = {0};
    while (index-- >= 0 && mr_next_word(&choices, &word)) {
    }
    snprintf(ret.text, sizeof(ret.text), "%.*s", MR_SLICE_ARGS(word));
    return ret;
}

struct mr_option_value mr_option_write(const struct mr_option *option, int64_t value)
{
    struct mr_option_value ret;
    if (option->kind == MR_KIND_CHOICE) {
        return word_at(option->choices, value);
    }
    if (option->kind == MR_KIND_BOOL) {
        snprintf(ret.text, sizeof(ret.text), "%s", value != 0 ? "true" : "false");
        return ret;
    }
    const struct mr_unit *best = mr_kinds[option->kind].units;
    MR_ASSERT(best != NULL);
    for (const struct mr_unit *unit = best; unit->name != NULL; unit++) {
        bool fits = value != 0 && value % unit->factor == 0;
        best = fits && unit->factor > best->factor ? unit : best;
    }
    snprintf(ret.text, sizeof(ret.text), "%lld%s", (long long)(value / best->factor), best->name);
    return ret;
}

static void add_words(struct mr_text *to, const char *words, const char *quote, const char *between)
{
    mr_slice word;
    for (const char *mark = ""; mr_next_word(&words, &word); mark = between) {
        mr_text_format(to, "%s%s%.*s%s", mark, quote, MR_SLICE_ARGS(word), quote);
    }
}

char *mr_option_needs(const struct mr_option *option)
{
    struct mr_text text = {0};
    const char *what = option->needs;
    const char *equals = strchr(what, '=');
    if (equals != NULL) {
        mr_text_format(&text, "%.*s = ", (int)(equals - what), what);
        add_words(&text, equals + 1, "\"", " or ");
    } else {
        add_words(&text, what, "", " or ");
    }
    return text.data;
}

char *mr_option_limits(const struct mr_option *option)
{
    struct mr_text text = {0};
    mr_text_string(&text, "");
    if (option->choices != NULL) {
        mr_text_string(&text, " One of: ");
        add_words(&text, option->choices, "", ", ");
        mr_text_string(&text, ".");
    }
    if (option->high != 0) {
        mr_text_format(&text, " From %s to %s.", mr_option_write(option, option->low).text,
                       mr_option_write(option, option->high).text);
    }
    if (option->needs != NULL) {
        MR_FREED char *needs = mr_option_needs(option);
        mr_text_format(&text, " Needs %s.", needs);
    }
    if (mr_option_is_live(option)) {
        mr_text_string(&text, " A reload takes it up.");
    }
    return text.data;
}

char *mr_option_describe(const struct mr_option *option)
{
    struct mr_text text = {0};
    MR_FREED char *limits = mr_option_limits(option);
    mr_text_format(&text, "%s%s", option->text, limits);
    return text.data;
}
