#include "options/unknown.h"

#include "base/nearest.h"

enum { PATH_MAX_LEN = 256 };

#define PROBLEM(problems, line, ...) mr_problem_add((problems), true, (line), __VA_ARGS__)

static bool is_between(char c)
{
    return c == '.' || c == '_' || c == '\0';
}

bool mr_option_has_word(const char *path, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = path; len > 0 && (at = strstr(at, word)) != NULL; at++) {
        if ((at == path || is_between(at[-1])) && is_between(at[len])) {
            return true;
        }
    }
    return false;
}

/* Whether the path ends with these words, whatever stands between them: publication.name of
 * source.postgres.publication_name. */
static bool ends_with_words(const char *path, const char *words)
{
    size_t path_len = strlen(path), len = strlen(words);
    if (len > path_len || (len < path_len && !is_between(path[path_len - len - 1]))) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        char known = path[path_len - len + i];
        if (known != words[i] && !(is_between(known) && is_between(words[i]))) {
            return false;
        }
    }
    return true;
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot == NULL ? path : dot + 1;
}

static bool is_word_of_section(const char *known, const char *path)
{
    size_t section = (size_t)(last_part(path) - path);
    return strncmp(known, path, section) == 0 && strchr(known + section, '.') == NULL &&
           mr_option_has_word(known + section, path + section);
}

/* How little a known option is what `path` means; NOT_AT_ALL: it is not. */
enum { STEP = MR_NEAREST_FAR, NOT_AT_ALL = 6 * STEP };

static uint32_t misfit(const char *known, const char *path)
{
    char as_name[PATH_MAX_LEN + sizeof("_name")];
    snprintf(as_name, sizeof(as_name), "%.*s_name", PATH_MAX_LEN, path);
    uint32_t distance = mr_edit_distance(path, known);
    return strchr(path, '.') != NULL && ends_with_words(known, path) ? 0
           : distance <= mr_slip_max(path)                           ? STEP + distance
           : ends_with_words(known, as_name)                         ? 2 * STEP
           : is_word_of_section(known, path)                         ? 3 * STEP
           : strcmp(last_part(known), last_part(path)) == 0          ? 4 * STEP
           : mr_option_has_word(last_part(known), last_part(path))   ? 5 * STEP
                                                                     : NOT_AT_ALL;
}

const char *mr_option_nearest(const char *path)
{
    const char *best = NULL;
    uint32_t least = NOT_AT_ALL;
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const char *known = mr_option_at(i)->path;
        uint32_t found = misfit(known, path);
        if (found < least) {
            best = known;
            least = found;
        }
    }
    return best;
}

/* The known section nearest to a wrong one, as an option's path up to `*ret_len`; NULL: none is
 * near. */
static const char *nearest_section(const char *path, size_t *ret_len)
{
    const char *best = NULL;
    uint32_t best_distance = mr_slip_max(path) + 1;
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const char *known = mr_option_at(i)->path;
        for (const char *dot = strchr(known, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
            char section[MR_NEAREST_FAR];
            size_t len = (size_t)(dot - known);
            snprintf(section, sizeof(section), "%.*s", (int)len, known);
            /* [kafka] for [sink.kafka] */
            bool is_elsewhere = strcmp(last_part(section), last_part(path)) == 0;
            uint32_t distance = is_elsewhere ? 0 : mr_edit_distance(path, section);
            if (distance < best_distance) {
                best = known;
                best_distance = distance;
                *ret_len = len;
            }
        }
    }
    return best;
}

/* What one of a section's keys is called in truth ("name" in [slot]), or what the section's own
 * name is a word of. */
static const char *meant_by_section(const char *path, const struct mr_toml_node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        char key[PATH_MAX_LEN];
        snprintf(key, sizeof(key), "%s.%s", path, node->children[i].key);
        for (uint32_t k = 0; k < MR_OPTION_COUNT; k++) {
            const char *known = mr_option_at(k)->path;
            if (ends_with_words(known, key)) {
                return known;
            }
        }
    }
    return mr_option_nearest(path);
}

static void unknown_section(const char *path, const struct mr_toml_node *node,
                            struct mr_problems *problems)
{
    size_t len = 0;
    const char *section = nearest_section(path, &len);
    const char *option = section == NULL ? meant_by_section(path, node) : NULL;
    if (section != NULL) {
        PROBLEM(problems, node->line, "unknown section [%s]; did you mean [%.*s]?", path, (int)len,
                section);
    } else if (option != NULL) {
        PROBLEM(problems, node->line, "unknown section [%s]; did you mean \"%s\"?", path, option);
    } else {
        PROBLEM(problems, node->line,
                "unknown section [%s]; millrace help options lists the known ones", path);
    }
}

static void unknown_key(const char *path, uint32_t line, struct mr_problems *problems)
{
    const char *nearest = mr_option_nearest(path);
    if (nearest != NULL) {
        PROBLEM(problems, line, "unknown key \"%s\"; did you mean \"%s\"?", path, nearest);
        return;
    }
    char section[PATH_MAX_LEN];
    snprintf(section, sizeof(section), "%.*s", (int)(last_part(path) - path), path);
    if (section[0] != '\0') {
        section[strlen(section) - 1] = '\0'; /* the dot */
    }
    bool known = section[0] != '\0' && mr_option_is_section(section);
    PROBLEM(problems, line, "unknown key \"%s\"; millrace help %s lists the known ones", path,
            known ? section : "options");
}

#define MR_GONE_FIXED(value) "it is always " value " now; take the line out"

#define MR_GONE_PAIR(option, text) "write " option " = [expression, " text "]"

/* What took the place of an option or section that is gone; NULL: it never was. */
static const char *place_taken_by(const char *path)
{
    static const struct {
        const char *names; /* "a|b" */
        const char *text;
    } gone[] = {
        {"verify.continuous|verify.rate|verify.lag_max",
         "tables are proved beside millrace now, by \"millrace verify --every 24h --rate 20000 "
         "--figures FILE\" (docs/verify.md, \"On a schedule\")"},
        {"topic_transaction", MR_GONE_FIXED("transaction")},
        {"cloudevents.extensions|sink.file.sync", MR_GONE_FIXED("true")},
        {"source.postgres.connect_timeout",
         "write connect_timeout=10, in seconds, into source.postgres.connection"},
        {"routing.topic_regex", MR_GONE_PAIR("routing.topic", "name")},
        {"routing.key_regex", MR_GONE_PAIR("routing.key_value", "value")},
        {"outbox.topic_regex", MR_GONE_PAIR("outbox.topic", "topic")},
        {"outbox.missing_fields",
         "write a ? after the columns in outbox.fields that may be lacking"},
        {"outbox.json_nulls|outbox.json_empty_arrays",
         "write outbox.expand_keeps = \"nulls\", \"empty_arrays\" or \"both\""},
        {"messages.excluded_prefixes", "write each with a ! before it into messages.prefixes"},
        {"row.add_fields_prefix|row.add_headers_prefix",
         "write it as the first item of the list, after =: [\"=__\", \"op\"]"},
        {"columns.reselect_wait", MR_GONE_FIXED("one second")},
        {"messages.max_size", "a logical message is dropped where its event would be larger than "
                              "sink.kafka.message_max"},
        {"cloudevents.id", "the id of an event is its position, which no other event has"},
        {"schema_registry.timeout", MR_GONE_FIXED("10 s")},
        {"source.postgres.slot_interval|sink.kafka.statistics_interval",
         "it is metrics.interval now"},
        {"metrics.max_tables", MR_GONE_FIXED("500")},
        {"sink.kafka.linger", "it had no effect; see pipeline.latency"},
        {"sink.kafka.batch_size",
         "requests have up to 512 KiB, and grow by themselves where the broker is far away"},
        {"pipeline.batches",
         "pipeline.batch_size says how large the pool of 16 batches is; not set, the pool grows by "
         "itself where the broker is far away"},
        {"pipeline.coalesce", "write pipeline.latency, with twice the time"},
        {"http.enabled", "write http.address = \"\" to serve nothing"},
        {"http.connections", MR_GONE_FIXED("64")},
        {"secrets.watch", "reload.watch says how often files with secrets are looked at, too"},
        {"profiling.name", "flame graphs are called millrace; ?title= gives another title"},
        {"profiling.keep_intervals", "profiling.keep_size says what is kept"},
        {"snapshot.tables.order.by.row.count",
         "tables are copied in the order of \"tables\", names before patterns"},
        {"profiling.capture|profiling.capture.*",
         "profiling.path keeps a profile of each interval, and Prometheus has the metrics"},
        {"signal|signal.*",
         "signals are no longer read from a topic of Kafka; ask with \"millrace snapshot\" "
         "or POST /api/snapshot, or by a row of snapshot.signal_table"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(gone); i++) {
        if (mr_is_among(gone[i].names, mr_slice_of(path))) {
            return gone[i].text;
        }
    }
    return NULL;
}

/* How an option is written now whose name once said where a secret is, such as password_env; NULL:
 * it was none. The caller's. */
static char *secret_meant(const char *path, const struct mr_toml_node *node)
{
    static const char *const forms[][2] = {
        {"_env", "env:"}, {"_file", "file:"}, {"_command", NULL}};
    for (size_t i = 0; i < MR_ARRAY_LEN(forms); i++) {
        uint32_t index;
        if (!mr_option_find_before(path, forms[i][0], &index)) {
            continue;
        }
        const char *base = mr_option_at(index)->path;
        return forms[i][1] == NULL
                   ? mr_formatted("%s with the same list", base)
                   : mr_formatted("%s = \"%s%s\"", base, forms[i][1],
                                  node->kind == MR_TOML_STRING ? node->string : "…");
    }
    return NULL;
}

void mr_config_unknown(const char *path, const struct mr_toml_node *node,
                       struct mr_problems *problems)
{
    const char *taken_by = place_taken_by(path);
    MR_FREED char *secret = secret_meant(path, node);
    if (taken_by != NULL) {
        PROBLEM(problems, node->line, "\"%s\" is gone: %s", path, taken_by);
    } else if (secret != NULL) {
        PROBLEM(problems, node->line, "\"%s\" is gone: write %s", path, secret);
    } else if (mr_edit_distance(path, "streams") <= 2) {
        PROBLEM(problems, node->line, "unknown key \"%s\"; did you mean [[streams]]?", path);
    } else if (mr_option_is_section(path)) {
        PROBLEM(problems, node->line,
                "%s is a section and takes no value; write [%s] and its keys below it, which "
                "millrace help %s lists",
                path, path, path);
    } else if (node->kind == MR_TOML_TABLE) {
        unknown_section(path, node, problems);
    } else {
        unknown_key(path, node->line, problems);
    }
}

/* Both are what `millrace convert` reads. In a file of Debezium Server a prefix comes before
 * connector.class. */
static const char *other_form(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '{'      ? "JSON"
           : strstr(text, "connector.class") != NULL ? "a connector's properties"
                                                     : NULL;
}

void mr_config_not_toml(const char *text, size_t len, uint32_t line, const char *reason,
                        struct mr_problems *problems)
{
    char begin[8192];
    snprintf(begin, sizeof(begin), "%.*s", (int)(len < sizeof(begin) ? len : sizeof(begin) - 1),
             text);
    const char *form = other_form(begin);
    if (form != NULL) {
        PROBLEM(problems, 0,
                "this is %s, and millrace reads TOML; what configures Debezium's connector becomes "
                "a file of ours by millrace convert %s > millrace.toml",
                form, problems->name);
    } else {
        PROBLEM(problems, line, "not valid TOML: %s", reason);
    }
}
