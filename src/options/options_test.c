/* Each row of options.def is tried: the ends of its range, what is one beyond, a value of another
 * kind, a slip in its name, what it needs, and what a reload says of another value. */
#include "options/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "copy/pg_copy.h"
#include "daemon/daemon.h"
#include "stream/pg_source.h"
#include "testing/page.h"
#include "testing/test.h"

#define TRIED "tried.toml"

static struct mr_config *options_test_load(const char *text, mr_status *ret_status)
{
    struct mr_config *config = NULL;
    setenv("DATABASE_URL", "postgresql://u@h/d", 1);
    *ret_status = mr_daemon_load_text(TRIED, text, strlen(text), &config);
    return config;
}

/* What is read, before anything is made of it. */
struct read {
    struct mr_config_values values;
    struct mr_problems problems;
};

static struct read *options_test_read_text(const char *text)
{
    char reason[256];
    uint32_t line;
    struct mr_toml_node *root = mr_toml_parse(text, strlen(text), &line, reason, sizeof(reason));
    assert_non_null(root);
    struct read *read = MR_NEW(struct read);
    mr_values_read(&read->values, root, &read->problems);
    mr_toml_free(root);
    return read;
}

static void read_free(struct read *read)
{
    mr_values_done(&read->values);
    mr_problems_done(&read->problems);
    free(read);
}

/* Exactly the sentence, at the line. */
static bool says(const struct mr_config *config, bool is_error, const char *sentence)
{
    for (uint32_t i = 0; i < config->problems.count; i++) {
        const struct mr_problem *problem = &config->problems.items[i];
        if (problem->is_error == is_error && problem->line == 1 &&
            strcmp(problem->text, sentence) == 0) {
            return true;
        }
    }
    return false;
}

static void options_test_assert_refused(const char *text, const char *format, ...) MR_PRINTF(2, 3);

static void options_test_assert_refused(const char *text, const char *format, ...)
{
    char sentence[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    mr_status status;
    struct mr_config *config = options_test_load(text, &status);
    assert_int_equal(mr_status_exit_code(status), 78);
    if (!says(config, true, sentence)) {
        mr_config_print_problems(config, stderr);
        fail_msg("%s: not said: %s", text, sentence);
    }
    mr_config_free(config);
}

/* `value` of the option as the first line of a file; the caller frees it. */
static char *file_with(const struct mr_option *option, const char *value)
{
    struct mr_text text = {0};
    mr_text_format(&text, "%s = %s\n", option->path, value);
    return text.data;
}

static bool options_test_is_text(const struct mr_option *option)
{
    return option->kind == MR_KIND_STRING || option->kind == MR_KIND_TOPIC;
}

/* As a file has it: words and what has a unit in quotes. */
static char *quoted(const struct mr_option *option, int64_t value)
{
    struct mr_text text = {0};
    bool bare = option->kind == MR_KIND_COUNT || option->kind == MR_KIND_BOOL;
    mr_text_format(&text, bare ? "%s" : "\"%s\"", mr_option_write(option, value).text);
    return text.data;
}

static char *file_with_number(const struct mr_option *option, int64_t value)
{
    char *written = quoted(option, value);
    char *text = file_with(option, written);
    free(written);
    return text;
}

static void test_default_is_a_value_of_its_kind_and_range(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        int64_t value;
        if (options_test_is_text(option) || mr_kind_is_list(option->kind)) {
            continue;
        }
        assert_true(mr_option_parse(option, option->fallback, &value));
        assert_true(option->high == 0 || (value >= option->low && value <= option->high));
        int64_t again;
        assert_true(mr_option_parse(option, mr_option_write(option, value).text, &again));
        assert_int_equal(again, value);
    }
}

static void assert_taken(uint32_t index, int64_t value)
{
    char *text = file_with_number(mr_option_at(index), value);
    struct read *read = options_test_read_text(text);
    assert_int_equal(read->problems.count, 0);
    assert_int_equal(*(const int64_t *)mr_value_of(&read->values, index), value);
    read_free(read);
    free(text);
}

static void assert_out_of_range(const struct mr_option *option, int64_t value)
{
    char *text = file_with_number(option, value);
    options_test_assert_refused(text, "%s is out of range: it goes from %s to %s", option->path,
                                mr_option_write(option, option->low).text,
                                mr_option_write(option, option->high).text);
    free(text);
}

static void test_range_has_both_its_ends_and_nothing_beyond(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        if (option->high == 0) {
            continue;
        }
        assert_taken(i, option->low);
        assert_taken(i, option->high);
        assert_out_of_range(option, option->high + 1);
        if (option->low > 0 || option->kind == MR_KIND_COUNT) {
            assert_out_of_range(option, option->low - 1);
        }
    }
}

static void test_value_of_another_kind_is_refused(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        static const char *const wrong[] = {"1979-05-27", "2.5", "[1]", "[\"a\", 1]"};
        for (size_t k = 0; k < MR_ARRAY_LEN(wrong); k++) {
            char *text = file_with(option, wrong[k]);
            if (option->kind == MR_KIND_CHOICE) {
                options_test_assert_refused(text, "%s must be one of %s", option->path,
                                            option->choices);
            } else {
                options_test_assert_refused(text, "%s must be %s", option->path,
                                            mr_kinds[option->kind].example);
            }
            free(text);
        }
        static const char *const right[] = {"true", "7", "\"7\"", "[\"a\"]"};
        static const char *const kinds[] = {"boolean", "number size", "string", "list"};
        for (size_t k = 0; k < MR_ARRAY_LEN(right); k++) {
            char *text = file_with(option, right[k]);
            struct read *read = options_test_read_text(text);
            bool good =
                strstr(kinds[k], mr_kinds[option->kind].name) != NULL ||
                (k == 2 && (option->kind == MR_KIND_SIZE || option->kind == MR_KIND_REWRITE)) ||
                (k == 3 && option->kind == MR_KIND_LOGIN);
            bool refused = read->problems.count > 0 &&
                           strstr(read->problems.items[0].text, " must be ") != NULL;
            assert_int_equal(refused, !good);
            read_free(read);
            free(text);
        }
    }
}

/* The name but its last letter is not known, and the option is what was meant, or one that is as
 * near. */
static void test_slip_in_the_name_is_told_with_what_was_meant(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const char *path = mr_option_at(i)->path;
        char slip[128];
        snprintf(slip, sizeof(slip), "%sx", path);
        struct mr_text text = {0};
        mr_text_format(&text, "%s = 1\n", slip);
        options_test_assert_refused(text.data, "unknown key \"%s\"; did you mean \"%s\"?", slip,
                                    path);
        mr_text_done(&text);
    }
}

/* Any value that is another than the default, as a file has it; malloc'ed. */
static char *another_value(const struct mr_option *option)
{
    int64_t value = 0;
    switch (option->kind) {
    case MR_KIND_STRING:
    case MR_KIND_TOPIC:
    case MR_KIND_REWRITE:
        return MR_STRDUP("\"another\"");
    case MR_KIND_STRINGS:
        return MR_STRDUP("[\"another\"]");
    case MR_KIND_SECRET:
    case MR_KIND_LOGIN:
        return MR_STRDUP("\"env:ANOTHER\"");
    default:
        MR_ASSERT(mr_option_parse(option, option->fallback, &value));
        if (option->kind == MR_KIND_CHOICE) {
            value = value == 0 && strchr(option->choices, '|') != NULL;
        } else if (option->kind == MR_KIND_BOOL) {
            value = !value;
        } else {
            value = value == option->low ? value + 1 : option->low;
        }
        return quoted(option, value);
    }
}

/* `text` and a line that takes away what is there by default: another word, or false; malloc'ed. */
static char *without(const char *text, const char *needs)
{
    struct mr_text ret = {0};
    mr_text_string(&ret, text);
    char name[64];
    size_t len = strcspn(needs, "=|");
    snprintf(name, sizeof(name), "%.*s", (int)len, needs);
    uint32_t index;
    assert_true(mr_option_find(name, &index));
    const struct mr_option *option = mr_option_at(index);
    if (option->kind == MR_KIND_BOOL) {
        mr_text_format(&ret, "%s = false\n", name);
    }
    for (int64_t i = 0; option->kind == MR_KIND_CHOICE; i++) {
        struct mr_option_value word = mr_option_write(option, i);
        if (strstr(needs + len, word.text) == NULL) {
            mr_text_format(&ret, "%s = \"%s\"\n", name, word.text);
            break;
        }
    }
    return ret.data;
}

static void test_option_without_what_it_needs_is_told(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        if (option->needs == NULL) {
            continue;
        }
        char *value = option->kind == MR_KIND_BOOL ? MR_STRDUP("true") : another_value(option);
        char *line = file_with(option, value);
        char *text = without(line, option->needs);
        char *needs = mr_option_needs(option);
        char sentence[256];
        snprintf(sentence, sizeof(sentence),
                 "%s has no effect without %s; set that, or take this out", option->path, needs);
        mr_status status;
        struct mr_config *config = options_test_load(text, &status);
        if (!says(config, option->is_refused, sentence)) {
            mr_config_print_problems(config, stderr);
            fail_msg("%s: not said: %s", text, sentence);
        }
        mr_config_free(config);
        free(needs);
        free(text);
        free(line);
        free(value);
    }
}

static void test_needs_name_options_and_their_words(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const char *needs = mr_option_at(i)->needs;
        uint32_t index = 0;
        int64_t value;
        for (const char *at = needs; at != NULL && *at != '\0';) {
            char name[64];
            size_t len = strcspn(at, "=|");
            snprintf(name, sizeof(name), "%.*s", (int)len, at);
            bool is_word = at != needs && strchr(needs, '=') != NULL;
            assert_true(is_word ? mr_option_parse(mr_option_at(index), name, &value)
                                : mr_option_find(name, &index));
            at += len + (at[len] != '\0');
        }
    }
}

struct told {
    const struct mr_option *option;
    uint32_t count;
};

static void options_test_take(void *context, const struct mr_option *option)
{
    struct told *told = context;
    told->option = option;
    told->count++;
}

static void test_reload_tells_what_differs(void **state)
{
    (void)state;
    mr_status status;
    struct mr_config *running = options_test_load("", &status);
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        if (option->kind == MR_KIND_CHOICE && strchr(option->choices, '|') == NULL) {
            continue; /* has no other */
        }
        char *value = another_value(option);
        char *text = file_with(option, value);
        struct mr_config *wanted = options_test_load(text, &status);
        struct told told = {0};
        mr_config_differences(running, NULL, wanted, options_test_take, &told);
        if (told.count != 1 || told.option != option) {
            fail_msg("%s: %u differ", text, told.count);
        }
        /* What a reload took up is in effect; what needs a restart is still as it was. */
        told = (struct told){0};
        mr_config_differences(running, wanted, wanted, options_test_take, &told);
        assert_int_equal(told.count, !mr_option_is_live(option));
        mr_config_free(wanted);
        free(text);
        free(value);
    }
    mr_config_free(running);
}

/* The file of reload number `n`, with the tables of that number. */
static struct mr_config *load_of_reload(uint32_t n, uint32_t tables_of)
{
    char text[160];
    snprintf(text, sizeof(text),
             "tables = ['t', 'of_%u']\nsink.kafka.brokers = ['b:1']\n"
             "sink.kafka.oversize = 'dead-letter'\nsink.kafka.dead_letter_topic = 'letters_%u'\n",
             tables_of, n);
    mr_status status;
    struct mr_config *config = options_test_load(text, &status);
    assert_int_equal(status, MR_OK);
    return config;
}

static void assert_reloaded(const struct mr_pg_source_options *source,
                            const struct mr_encode_options *encode, uint32_t n, uint32_t tables_of)
{
    char text[16];
    snprintf(text, sizeof(text), "of_%u", tables_of);
    assert_int_equal(mr_pg_table_named(&source->captured, mr_slice_of("public"), mr_slice_of("t")),
                     0);
    assert_int_equal(mr_pg_table_named(&source->captured, mr_slice_of("public"), mr_slice_of(text)),
                     1);
    assert_int_equal(strlen(source->captured.pipeline), 16);
    snprintf(text, sizeof(text), "letters_%u", n);
    assert_string_equal(encode->dead_letter_topic, text);
}

/* Every order of four reloads, with other tables or not, where each frees the one before it: the
 * source gets only those with tables, who copies has what was in effect when it began, each encoder
 * has all. */
static void test_what_is_reloaded_stays_while_it_is_in_use(void **state)
{
    (void)state;
    enum { RELOADS = 4 };
    for (uint32_t order = 0; order < (1u << RELOADS) * RELOADS; order++) {
        uint32_t copies_from = order >> RELOADS, tables_of = 0;
        struct mr_config *started = load_of_reload(0, 0);
        struct mr_config *newest = NULL;
        struct mr_topics topics = {0};
        struct mr_source *source = mr_pg_source_new(&started->source);
        const struct mr_pg_source_options *options = mr_pg_source_options(source);
        struct mr_encoder *encoder = mr_encoder_new(&started->encode, &topics);
        struct mr_encoder *clone = mr_encoder_clone(encoder);
        struct mr_chunk_reader *reader = NULL;
        struct mr_counted *copied = NULL;
        for (uint32_t n = 1; n <= RELOADS; n++) {
            bool has_tables = (order & (1u << (n - 1))) != 0;
            tables_of = has_tables ? n : tables_of;
            struct mr_config *wanted = load_of_reload(n, tables_of);
            if (has_tables) {
                source->ops->change(source, &wanted->source);
            }
            mr_encoder_change(encoder, &wanted->encode);
            mr_encoder_change(clone, &wanted->encode);
            mr_config_free(newest);
            newest = wanted;
            assert_reloaded(options, mr_encoder_options(clone), n, tables_of);
            if (n == copies_from + 1) {
                reader = mr_pg_chunks_new(options, NULL, -1);
                copied = options->captured.memory;
            }
        }
        mr_config_free(newest);
        assert_reloaded(options, mr_encoder_options(encoder), RELOADS, tables_of);
        mr_encoder_free(encoder);
        mr_encoder_free(clone);
        mr_pg_source_free(source);
        assert_int_equal(atomic_load(&copied->holders), copied == &started->counted ? 2 : 1);
        mr_pg_chunk_ops.free(reader);
        mr_topics_done(&topics);
        assert_int_equal(atomic_load(&started->counted.holders), 1);
        mr_config_free(started);
    }
}

/* For 50,000 places toml11 takes minutes. */
static void test_texts_of_an_array_have_its_line(void **state)
{
    (void)state;
    static const char text[] = "a = ['x',\n'y']\nb = 1\n";
    char reason[256];
    uint32_t line;
    struct mr_toml_node *root = mr_toml_parse(text, strlen(text), &line, reason, sizeof(reason));
    assert_non_null(root);
    assert_int_equal(root->children[0].children[1].line, 1);
    assert_int_equal(root->children[1].line, 3);
    mr_toml_free(root);
}

static void test_pages_are_up_to_date(void **state)
{
    (void)state;
    /* If one fails: millrace reference config and millrace reference reload print the tables. */
    mr_assert_page_has("docs/configuration.md", mr_config_print_reference);
    mr_assert_page_has("docs/upgrading.md", mr_config_print_reloads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_is_a_value_of_its_kind_and_range),
        cmocka_unit_test(test_range_has_both_its_ends_and_nothing_beyond),
        cmocka_unit_test(test_value_of_another_kind_is_refused),
        cmocka_unit_test(test_slip_in_the_name_is_told_with_what_was_meant),
        cmocka_unit_test(test_option_without_what_it_needs_is_told),
        cmocka_unit_test(test_needs_name_options_and_their_words),
        cmocka_unit_test(test_reload_tells_what_differs),
        cmocka_unit_test(test_what_is_reloaded_stays_while_it_is_in_use),
        cmocka_unit_test(test_texts_of_an_array_have_its_line),
        cmocka_unit_test(test_pages_are_up_to_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
