#include "encode/hidden/hidden.h"

#include "testing/test.h"

static const struct mr_column_rule rules[] = {
    {.action = MR_COLUMN_MASK,
     .table = {.schema = {.text = "public"}, .table = {.text = "users"}},
     .column = {.text = "email"}}};

static struct mr_hidden *hidden_of_kin(const struct mr_column_rule *items, uint32_t count,
                                       struct mr_kin *kin)
{
    const struct mr_column_rules by = {.items = items, .count = count};
    return mr_hidden_new(MR_UNMATCHED_STOP, &by, kin);
}

static struct mr_hidden *hidden_by(enum mr_unmatched unmatched, const struct mr_column_rule *items,
                                   uint32_t count)
{
    const struct mr_column_rules by = {.items = items, .count = count};
    return mr_hidden_new(unmatched, &by, NULL);
}

/* Columns with a minus before them are hidden. */
static mr_status hidden_test_look(struct mr_hidden *hidden, uint32_t oid, const char *table,
                                  const char *const *columns, uint32_t count)
{
    struct mr_column view_columns[5] = {0};
    bool hides[5];
    struct mr_error error;
    struct mr_relation view = {.oid = oid,
                               .schema = "public",
                               .table = table,
                               .columns = view_columns,
                               .column_count = count};
    for (uint32_t i = 0; i < count; i++) {
        hides[i] = columns[i][0] == '-';
        view_columns[i].name = columns[i] + hides[i];
    }
    return mr_hidden_look(hidden, &view, NULL, hides, &error);
}

/* The same, of that table, with what the catalog knows of the columns by number: a name, "?" (any),
 * "!" (any, and this transaction has dropped it) or NULL (gone before). */
static mr_status look_view(struct mr_hidden *hidden, struct mr_relation *view,
                           const char *const *attributes, uint32_t attribute_count,
                           const char *const *columns, uint32_t count)
{
    struct mr_column view_columns[4] = {0};
    struct mr_attribute known[8];
    bool hides[4];
    struct mr_error error;
    view->schema = "public";
    view->columns = view_columns;
    view->column_count = count;
    view->attributes = known;
    view->attribute_count = 0;
    for (uint32_t i = 0; i < attribute_count; i++) {
        if (attributes[i] != NULL) {
            bool was_any = strcmp(attributes[i], "!") == 0;
            bool is_any = was_any || strcmp(attributes[i], "?") == 0;
            known[view->attribute_count++] = (struct mr_attribute){
                .number = i + 1, .name = is_any ? NULL : attributes[i], .is_there = !was_any};
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        hides[i] = columns[i][0] == '-';
        view_columns[i].name = columns[i] + hides[i];
    }
    return mr_hidden_look(hidden, view, NULL, hides, &error);
}

static mr_status look_numbered(struct mr_hidden *hidden, const char *const *attributes,
                               uint32_t attribute_count, const char *const *columns, uint32_t count)
{
    struct mr_relation view = {.oid = 1, .table = "users"};
    return look_view(hidden, &view, attributes, attribute_count, columns, count);
}

#define TEXTS(...)                                                                                 \
    (const char *const[]){__VA_ARGS__}, MR_ARRAY_LEN(((const char *const[]){__VA_ARGS__}))

#define LOOK_AT(hidden, oid, table, ...)                                                           \
    hidden_test_look(hidden, oid, table, (const char *const[]){__VA_ARGS__},                       \
                     MR_ARRAY_LEN(((const char *const[]){__VA_ARGS__})))
#define LOOK(...) LOOK_AT(hidden, __VA_ARGS__)

static struct mr_hidden *next_of_kin(struct mr_hidden *before, const struct mr_column_rule *by,
                                     uint32_t count, struct mr_kin *kin)
{
    char *json = mr_hidden_format(before);
    struct mr_hidden *next = hidden_of_kin(by, count, kin);
    if (json != NULL) {
        mr_hidden_take(next, json);
    }
    free(json);
    return next;
}

static struct mr_hidden *next_process(struct mr_hidden *before, const struct mr_column_rule *by,
                                      uint32_t count)
{
    return next_of_kin(before, by, count, NULL);
}

static struct mr_hidden *seen_users(void)
{
    struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
    assert_int_equal(LOOK(1, "users", "id", "-email"), MR_OK);
    return hidden;
}

static void test_hidden_look_names(void **state)
{
    (void)state;
    struct mr_hidden *hidden = seen_users();
    assert_int_equal(LOOK(1, "users", "id", "mail"), MR_ERR_POISON);
    assert_int_equal(LOOK(1, "people", "id", "email"), MR_ERR_POISON);
    assert_int_equal(LOOK(2, "users", "id", "mail"), MR_ERR_POISON);
    assert_int_equal(LOOK(1, "users", "id", "-email", "note"), MR_OK);
    assert_int_equal(LOOK(1, "users", "id", "-mail", "note"), MR_OK);
    /* Dropped, or "note" was, and this is it. */
    assert_int_equal(LOOK(1, "users", "id", "note"), MR_ERR_POISON);
    assert_int_equal(LOOK(1, "users", "id", "note", "-mail"), MR_ERR_POISON);
    assert_int_equal(LOOK(1, "users", "-mail"), MR_OK);
    assert_int_equal(LOOK(3, "others", "id", "email"), MR_OK);
    mr_hidden_free(hidden);
}

static void test_hidden_look_first_sight(void **state)
{
    (void)state;
    struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
    assert_int_equal(LOOK(1, "users", "id", "mail"), MR_ERR_POISON);
    mr_hidden_free(hidden);
    hidden = hidden_by(MR_UNMATCHED_WARN, rules, MR_ARRAY_LEN(rules));
    assert_int_equal(LOOK(1, "users", "id", "mail"), MR_OK);
    mr_hidden_free(hidden);
}

/* What the rules hide of a partition they hide of the table that its rows come as. */
static void test_hidden_look_parts(void **state)
{
    (void)state;
    static const struct mr_column_rule of_parts[] = {
        {.action = MR_COLUMN_INCLUDE,
         .table = {.schema = {.text = "public"}, .table = {.text = "listed"}},
         .column = {.text = "note"}},
        {.action = MR_COLUMN_HASH,
         .table = {.schema = {.text = "public"}, .table = {.text = "routed"}},
         .column = {.text = "email"},
         .topic = "one"},
        {.action = MR_COLUMN_MASK,
         .table = {.schema = {.text = "public"}, .table = {.text = "users"}},
         .column = {.text = "email"}}};
    static const struct {
        const char *part, *topic;
        bool hides;
        mr_status expected;
    } cases[] = {
        {"users", NULL, false, MR_ERR_POISON},   {"users", NULL, true, MR_OK},
        {"listed", NULL, false, MR_ERR_POISON},  {"listed", NULL, true, MR_OK},
        {"routed", "one", false, MR_ERR_POISON}, {"routed", "two", false, MR_OK},
        {"others", NULL, false, MR_OK},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_column columns[] = {{.name = "id"}, {.name = "email"}};
        const struct mr_table_part parts[] = {{2, "public", "spring"},
                                              {3, "public", cases[i].part}};
        struct mr_relation view = {.oid = 1,
                                   .schema = "public",
                                   .table = "people",
                                   .columns = columns,
                                   .column_count = MR_ARRAY_LEN(columns),
                                   .key_columns = (uint32_t[]){0},
                                   .key_count = 1,
                                   .parts = parts,
                                   .part_count = MR_ARRAY_LEN(parts)};
        for (int warns = 0; warns < 2; warns++) {
            struct mr_hidden *hidden = hidden_by(warns ? MR_UNMATCHED_WARN : MR_UNMATCHED_STOP,
                                                 of_parts, MR_ARRAY_LEN(of_parts));
            struct mr_error error;
            mr_status expected = warns ? MR_OK : cases[i].expected;
            assert_int_equal(mr_hidden_look(hidden, &view, cases[i].topic,
                                            (const bool[]){false, cases[i].hides}, &error),
                             expected);
            mr_hidden_free(hidden);
        }
    }
}

/* One column takes another's name, and no name is missing. */
static void test_hidden_look_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *attributes[5]; /* by number, "": there are no more */
        const char *columns[4];
        mr_status expected;
    } cases[] = {
        {{"id", "email", "note", ""}, {"id", "-email", "note"}, MR_OK},
        {{"id", "mail", "note", "email", ""}, {"id", "mail", "note", "-email"}, MR_ERR_POISON},
        {{"id", "note", "email", ""}, {"id", "note", "-email"}, MR_ERR_POISON}, /* swapped */
        {{"id", "note", NULL, ""}, {"id", "note"}, MR_ERR_POISON},
        {{"id", "note", NULL, "email", ""}, {"id", "note", "-email"}, MR_ERR_POISON},
        {{"id", NULL, "note", ""}, {"id", "note"}, MR_OK}, /* dropped */
        {{"id", NULL, "note", "mail", ""}, {"id", "note", "mail"}, MR_OK},
        /* What was written since the rows: in their transaction, too. */
        {{"id", "?", "?", ""}, {"id", "note"}, MR_ERR_POISON},
        {{"id", "?", "note", ""}, {"id", "note"}, MR_OK},
        {{"id", "?", "?", ""}, {"id", "-email", "note"}, MR_OK},
        {{"id", "?", "note", "?", ""}, {"id", "-email", "note"}, MR_OK},
        {{"id", "?", "note", "?", ""}, {"id", "mail", "note", "-email"}, MR_ERR_POISON},
        {{"?", "?", "?", ""}, {"id", "-email", "note"}, MR_OK},
        /* An older transaction has renamed it since. */
        {{"id", "mail", "note", ""}, {"id", "-email", "note"}, MR_OK},
        {{"id", "mail", "note", ""}, {"id", "other", "note"}, MR_ERR_POISON},
        /* The publication has left it out. */
        {{"id", "email", "note", ""}, {"id", "note"}, MR_OK},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
        assert_int_equal(
            look_numbered(hidden, TEXTS("id", "email", "note"), TEXTS("id", "-email", "note")),
            MR_OK);
        char *json = mr_hidden_format(hidden);
        mr_hidden_take(hidden, json); /* as the next process does */
        free(json);
        uint32_t attributes = 0, columns = 0;
        while (cases[i].attributes[attributes] == NULL || cases[i].attributes[attributes][0] != 0) {
            attributes++;
        }
        while (columns < 4 && cases[i].columns[columns] != NULL) {
            columns++;
        }
        mr_status got =
            look_numbered(hidden, cases[i].attributes, attributes, cases[i].columns, columns);
        if (got != cases[i].expected) {
            fail_msg("case %zu", i);
        }
        mr_hidden_free(hidden);
    }
}

/* Rows of a backlog, whose hidden column may have one of several numbers; then later rows, also of
 * the next process. */
static void test_hidden_look_one_of_several(void **state)
{
    (void)state;
    static const struct {
        const char *attributes[3][6]; /* by number, "": there are no more */
        const char *columns[3][5];    /* none: no such look */
        mr_status expected;           /* of the last one */
    } cases[] = {
        /* note is gone since, or was; email became note then, and another email came. */
        {{{"id", "!", "?", "?", ""}, {"id", NULL, "note", "email", ""}},
         {{"id", "note", "-email"}, {"id", "note", "-email"}},
         MR_ERR_POISON},
        {{{"id", "!", "?", "?", ""}, {"id", NULL, "mail", "email", ""}},
         {{"id", "note", "-email"}, {"id", "-mail", "-email"}},
         MR_OK},
        /* It was dropped, and came again. */
        {{{"id", "!", "?", ""}, {"id", NULL, "?", ""}}, {{"id", "-email"}, {"id"}}, MR_OK},
        {{{"id", "!", "?", ""}, {"id", NULL, "note", ""}},
         {{"id", "-email"}, {"id", "note"}},
         MR_ERR_POISON},
        {{{"id", "?", "?", "?", ""}, {"id", NULL, "note", "email", ""}},
         {{"id", "note", "-email"}, {"id", "note", "-email"}},
         MR_ERR_POISON},
        /* It was altered, and a column came after it; or after another that was dropped later. */
        {{{"id", "?", "?", ""}, {"id", "email", "note", ""}},
         {{"id", "-email"}, {"id", "-email", "note"}},
         MR_OK},
        {{{"id", "?", "?", ""}, {"id", "note", "email", ""}},
         {{"id", "-email"}, {"id", "note", "-email"}},
         MR_ERR_POISON},
        {{{"id", "?", "?", "?", ""}, {"id", "?", "?", "note", ""}},
         {{"id", "-email", "-mail"}, {"id", "-email", "-mail", "note"}},
         MR_OK},
        /* It was dropped, and two others came, which it is only if a list had left one out. */
        {{{"id", "!", "?", "?", ""}, {"id", NULL, "?", "?", ""}, {"id", NULL, "email", "mail", ""}},
         {{"id", "-email"}, {"id"}, {"id", "-email", "-mail"}},
         MR_OK},
        {{{"id", "!", "?", "?", ""}, {"id", NULL, "?", "?", ""}, {"id", NULL, "email", "note", ""}},
         {{"id", "-email"}, {"id"}, {"id", "-email", "note"}},
         MR_ERR_POISON},
    };
    for (size_t i = 0; i < 2 * MR_ARRAY_LEN(cases); i++) {
        struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
        mr_status got = MR_OK;
        for (int look = 0; look < 3 && cases[i / 2].columns[look][0] != NULL; look++) {
            const char *const *attributes = cases[i / 2].attributes[look];
            const char *const *columns = cases[i / 2].columns[look];
            uint32_t known = 0, count = 0;
            for (; attributes[known] == NULL || attributes[known][0] != '\0'; known++) {
            }
            for (; columns[count] != NULL; count++) {
            }
            assert_int_equal(got, MR_OK);
            got = look_numbered(hidden, attributes, known, columns, count);
            if (i % 2 == 0) {
                struct mr_hidden *next = next_process(hidden, rules, MR_ARRAY_LEN(rules));
                mr_hidden_free(hidden);
                hidden = next;
            }
        }
        if (got != cases[i / 2].expected) {
            fail_msg("case %zu", i / 2);
        }
        mr_hidden_free(hidden);
    }
}

/* A partition by its own name, the first time that it is seen: of table 1, users, where email had
 * the number 2. */
static void test_hidden_look_origins(void **state)
{
    (void)state;
    static const struct {
        const char *numbers;
        const char *attributes[5]; /* by number, "": there are no more */
        const char *columns[4];
        mr_status expected;
    } cases[] = {
        {"", {"id", "email", "note", ""}, {"id", "-email", "note"}, MR_OK},
        {"", {"id", "note", "email", ""}, {"id", "note", "-email"}, MR_ERR_POISON},
        {"", {"id", "email", NULL, "x", ""}, {"id", "-email", "x"}, MR_OK},
        {"1:3,2:1,3:2", {"email", "note", "id", ""}, {"-email", "note", "id"}, MR_OK},
        {"1:3,2:1,3:2", {"note", "email", "id", ""}, {"note", "-email", "id"}, MR_ERR_POISON},
        {"1:1,3:2", {"id", "note", ""}, {"id", "note"}, MR_ERR_POISON}, /* a rule names it */
        {"1:1,2:3,3:4", {"id", NULL, "email", "note", ""}, {"id", "-email", "note"}, MR_OK},
        {"1:1,2:3,3:4", {"id", NULL, "note", "email", ""}, {"id", "note", "-email"}, MR_ERR_POISON},
        /* Names decide: numbers are not known, or from before the table got the column. */
        {NULL, {"id", "email", "note", ""}, {"id", "-email", "note"}, MR_OK},
        {NULL, {"id", "note", "email", ""}, {"id", "note", "-email"}, MR_ERR_POISON},
        {"1:1", {"id", "note", "email", ""}, {"id", "note", "-email"}, MR_ERR_POISON},
        {"1:1", {"id", "email", "note", ""}, {"id", "-email", "note"}, MR_OK},
        {"what", {"id", "email", "note", ""}, {"id", "-email", "note"}, MR_OK},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
        assert_int_equal(
            look_numbered(hidden, TEXTS("id", "email", "note"), TEXTS("id", "-email", "note")),
            MR_OK);
        const struct mr_origin origins[] = {
            {.oid = 7, .schema = "public", .table = "others"},
            {.oid = 1, .schema = "public", .table = "users", .numbers = cases[i].numbers}};
        uint32_t attributes = 0, columns = 0;
        while (cases[i].attributes[attributes] == NULL || cases[i].attributes[attributes][0] != 0) {
            attributes++;
        }
        while (columns < 4 && cases[i].columns[columns] != NULL) {
            columns++;
        }
        struct mr_relation view = {
            .oid = 2, .table = "spring", .origins = origins, .origin_count = MR_ARRAY_LEN(origins)};
        if (look_view(hidden, &view, cases[i].attributes, attributes, cases[i].columns, columns) !=
            cases[i].expected) {
            fail_msg("case %zu", i);
        }
        mr_hidden_free(hidden);
    }
}

/* What was known by the table's numbers is known by the partition's from then on. */
static void test_hidden_look_origins_stay(void **state)
{
    (void)state;
    struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
    assert_int_equal(look_numbered(hidden, TEXTS("id", "email"), TEXTS("id", "-email")), MR_OK);
    const struct mr_origin origin = {
        .oid = 1, .schema = "public", .table = "users", .numbers = "1:2,2:1"};
    struct mr_relation view = {.oid = 2, .table = "spring", .origins = &origin, .origin_count = 1};
    assert_int_equal(
        look_view(hidden, &view, TEXTS("email", "id", "x"), TEXTS("-email", "id", "-x")), MR_OK);
    view.origin_count = 0;
    assert_int_equal(
        look_view(hidden, &view, TEXTS("x", "id", "email"), TEXTS("x", "id", "-email")),
        MR_ERR_POISON);
    mr_hidden_free(hidden);
}

/* By names alone: the catalog does not know the table any more. */
static void test_hidden_look_places(void **state)
{
    (void)state;
    static const struct {
        const char *columns[5];
        mr_status expected;
    } cases[] = {
        {{"id", "name", "-email", "note"}, MR_OK},
        {{"id", "name", "-email", "note", "more"}, MR_OK},
        {{"id", "name", "-email"}, MR_OK},
        {{"id", "-email", "note"}, MR_OK},
        {{"id", "-email", "name", "note"}, MR_ERR_POISON}, /* swapped */
        {{"id", "-email", "more", "note"}, MR_ERR_POISON}, /* renamed, and name took its name */
        {{"id", "-email", "-more", "note"}, MR_OK},
        {{"name", "-email", "note", "id"}, MR_ERR_POISON},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
        assert_int_equal(LOOK(1, "users", "id", "name", "-email", "note"), MR_OK);
        uint32_t columns = 0;
        while (columns < 5 && cases[i].columns[columns] != NULL) {
            columns++;
        }
        if (hidden_test_look(hidden, 1, "users", cases[i].columns, columns) != cases[i].expected) {
            fail_msg("case %zu", i);
        }
        mr_hidden_free(hidden);
    }
}

/* It comes back under another name, after versions that did not have it. */
static void test_hidden_look_numbers_stay(void **state)
{
    (void)state;
    struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
    assert_int_equal(look_numbered(hidden, TEXTS("id", "email"), TEXTS("id", "-email")), MR_OK);
    assert_int_equal(look_numbered(hidden, TEXTS("id", "email"), TEXTS("id")), MR_OK);
    assert_int_equal(look_numbered(hidden, TEXTS("id", "mail"), TEXTS("id", "mail")),
                     MR_ERR_POISON);
    mr_hidden_free(hidden);
}

/* The one that was swapped for another is still known. */
static void test_hidden_look_swapped(void **state)
{
    (void)state;
    struct mr_hidden *hidden = seen_users();
    for (uint32_t oid = 2; oid < 20; oid++) {
        assert_int_equal(LOOK(oid, "users", "id", "-email"), MR_OK);
    }
    assert_int_equal(LOOK(1, "old", "id", "email"), MR_ERR_POISON);
    mr_hidden_free(hidden);
}

static void test_hidden_format_take(void **state)
{
    (void)state;
    struct mr_hidden *hidden = seen_users();
    char *json = mr_hidden_format(hidden);
    mr_hidden_free(hidden);
    assert_non_null(json);
    hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
    assert_true(mr_hidden_owes(hidden));
    assert_null(mr_hidden_format(hidden));
    assert_false(mr_hidden_owes(hidden)); /* though it is nothing */
    mr_hidden_take(hidden, json);
    assert_int_equal(LOOK(1, "people", "id", "email"), MR_ERR_POISON);
    mr_hidden_free(hidden);
    hidden = hidden_by(MR_UNMATCHED_STOP, NULL, 0); /* somebody has changed the rules */
    mr_hidden_take(hidden, json);
    assert_int_equal(LOOK(1, "people", "id", "email"), MR_OK);
    static const char *const wrong[] = {"", "[]", "{\"rules\":1}", "{\"tables\":[[1]]}"};
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        mr_hidden_take(hidden, wrong[i]);
    }
    mr_hidden_free(hidden);
    free(json);
}

/* What older ones have stored: without numbers, and with them. */
static void test_hidden_take_of_an_older_one(void **state)
{
    (void)state;
    static const char *const stored[] = {
        "{\"rules\":\"1\",\"tables\":[[1,\"public.users\",\"\",\"+id\",\"-email\"]]}",
        "{\"rules\":\"1\",\"tables\":[[1,\"public.users\",\"\",\"+id\",\"-email\"]],"
        "\"numbers\":[[true,2,\"email\"]],\"table_rules\":[\"=1a2b\"]}"};
    for (size_t i = 0; i < MR_ARRAY_LEN(stored); i++) {
        struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
        mr_hidden_take(hidden, stored[i]);
        struct mr_hidden *next = next_process(hidden, rules, MR_ARRAY_LEN(rules));
        mr_hidden_free(hidden);
        assert_int_equal(LOOK_AT(next, 1, "people", "id", "email"), MR_ERR_POISON);
        assert_int_equal(LOOK_AT(next, 1, "users", "id", "-email"), MR_OK);
        mr_hidden_free(next);
    }
}

static void learn(struct mr_hidden *hidden, uint32_t oid, const char *table, const char *root)
{
    struct mr_column columns[] = {{.name = "id"}, {.name = "email"}, {.name = "note"}};
    const struct mr_attribute attributes[] = {
        {1, "id", true}, {2, "email", true}, {3, "note", true}};
    const struct mr_origin origin = {.schema = "public", .table = root};
    mr_hidden_learn(hidden, &(struct mr_relation){.oid = oid,
                                                  .schema = "public",
                                                  .table = table,
                                                  .origins = &origin,
                                                  .origin_count = root != NULL,
                                                  .columns = columns,
                                                  .column_count = MR_ARRAY_LEN(columns),
                                                  .attributes = attributes,
                                                  .attribute_count = MR_ARRAY_LEN(attributes)});
}

/* Before the first row two columns have swapped their names, or one was renamed; in the same
 * process, and in the next. */
static void test_hidden_learn(void **state)
{
    (void)state;
    for (int later = 0; later < 2; later++) {
        struct mr_kin *kin = mr_kin_new();
        const struct mr_origin of = {.oid = 1, .schema = "public", .table = "users"};
        mr_kin_note(kin, 3, &of);
        struct mr_hidden *hidden = hidden_of_kin(rules, MR_ARRAY_LEN(rules), kin);
        learn(hidden, 1, "users", NULL);
        learn(hidden, 2, "others", NULL);
        learn(hidden, 3, "spring", "users");
        if (later) {
            struct mr_hidden *next = next_of_kin(hidden, rules, MR_ARRAY_LEN(rules), kin);
            mr_hidden_free(hidden);
            hidden = next;
        }
        assert_int_equal(
            look_numbered(hidden, TEXTS("id", "note", "email"), TEXTS("id", "note", "-email")),
            MR_ERR_POISON);
        assert_int_equal(
            look_numbered(hidden, TEXTS("id", "mail", "note"), TEXTS("id", "mail", "note")),
            MR_ERR_POISON);
        assert_int_equal(LOOK(2, "others", "id", "email", "note"), MR_OK);
        assert_int_equal(LOOK(3, "spring", "id", "mail", "note"), MR_ERR_POISON);
        assert_int_equal(
            look_numbered(hidden, TEXTS("id", "email", "note"), TEXTS("id", "-email", "note")),
            MR_OK);
        mr_hidden_free(hidden);
        mr_kin_free(kin);
    }
}

/* The key is sent although no rule names it; so is what another stream's rules name. */
static void test_hidden_learn_what_rules_leave_out(void **state)
{
    (void)state;
    const struct mr_column_rule listed = {
        .action = MR_COLUMN_INCLUDE,
        .table = {.schema = {.text = "public"}, .table = {.text = "users"}},
        .column = {.text = "note"}};
    struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, &listed, 1);
    learn(hidden, 1, "users", NULL);
    assert_int_equal(
        look_numbered(hidden, TEXTS("id", "email", "note"), TEXTS("id", "-email", "note")), MR_OK);
    assert_int_equal(
        look_numbered(hidden, TEXTS("id", "mail", "note"), TEXTS("id", "mail", "note")),
        MR_ERR_POISON);
    mr_hidden_free(hidden);
    hidden = hidden_by(MR_UNMATCHED_STOP, &listed, 1);
    learn(hidden, 1, "users", NULL);
    assert_int_equal(LOOK(1, "users", "id", "-email", "note"), MR_OK); /* it was dropped since */
    mr_hidden_free(hidden);
    hidden = hidden_by(MR_UNMATCHED_STOP, &listed, 1);
    learn(hidden, 1, "users", NULL);
    assert_int_equal(LOOK(2, "users", "id", "note", "more"), MR_OK); /* made again, without a row */
    mr_hidden_free(hidden);
}

/* A rule that fits nothing of a table is told with its first row, as if nothing was learned. */
static void test_hidden_learn_is_not_seen(void **state)
{
    (void)state;
    struct mr_column_rule all[] = {rules[0], rules[0]};
    all[1].column.text = "phone";
    struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, all, MR_ARRAY_LEN(all));
    learn(hidden, 1, "users", NULL);
    assert_int_equal(
        look_numbered(hidden, TEXTS("id", "email", "note"), TEXTS("id", "-email", "note")),
        MR_ERR_POISON);
    mr_hidden_free(hidden);
}

/* What was hidden counts until no rule hides its name there any more. */
static void test_hidden_take_with_other_rules(void **state)
{
    (void)state;
    const struct mr_column_rule other = {
        .action = MR_COLUMN_MASK,
        .table = {.schema = {.text = "public"}, .table = {.text = "items"}},
        .column = {.text = "x"}};
    char reason[100];
    struct mr_regex *regex = mr_regex_new("email|phone", reason, sizeof(reason));
    struct mr_column_rule both = rules[0], longer = rules[0], wider = rules[0], all = rules[0];
    both.column.text = "mail";
    longer.length = 3;
    wider.column = (struct mr_pattern){.text = "email|phone", .regex = regex};
    all.action = MR_COLUMN_EXCLUDE;
    all.column.text = NULL;
    const struct {
        struct mr_column_rule rules[2];
        uint32_t count;
        mr_status expected; /* of "mail" without a rule */
    } cases[] = {
        {{rules[0], other}, 2, MR_ERR_POISON},
        {{other, rules[0]}, 2, MR_ERR_POISON},
        {{rules[0], both}, 2, MR_ERR_POISON},
        {{longer}, 1, MR_ERR_POISON},
        {{wider}, 1, MR_ERR_POISON},
        {{all}, 1, MR_ERR_POISON},
        {{other}, 1, MR_OK},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        const struct mr_column_rule before_rules[] = {rules[0], other};
        struct mr_hidden *before = hidden_by(MR_UNMATCHED_STOP, before_rules, 2);
        assert_int_equal(look_numbered(before, TEXTS("id", "email"), TEXTS("id", "-email")), MR_OK);
        struct mr_hidden *hidden = next_process(before, cases[i].rules, cases[i].count);
        if (cases[i].expected != MR_OK) { /* and back */
            struct mr_hidden *then = hidden;
            hidden = next_process(then, before_rules, 2);
            mr_hidden_free(then);
        }
        if (look_numbered(hidden, TEXTS("id", "mail"), TEXTS("id", "mail")) != cases[i].expected) {
            fail_msg("case %zu", i);
        }
        mr_hidden_free(before);
        mr_hidden_free(hidden);
    }
    mr_regex_free(regex);
}

/* It was renamed while rules hid both names; then the one of before is not needed any more. */
static void test_hidden_take_under_the_last_name(void **state)
{
    (void)state;
    struct mr_column_rule both[] = {rules[0], rules[0]};
    both[1].column.text = "mail";
    struct mr_hidden *before = hidden_by(MR_UNMATCHED_STOP, both, 2);
    assert_int_equal(look_numbered(before, TEXTS("id", "email"), TEXTS("id", "-email")),
                     MR_ERR_POISON); /* no column is "mail" */
    mr_hidden_free(before);
    before = hidden_by(MR_UNMATCHED_STOP, rules, 1);
    assert_int_equal(look_numbered(before, TEXTS("id", "email"), TEXTS("id", "-email")), MR_OK);
    assert_int_equal(look_numbered(before, TEXTS("id", "mail"), TEXTS("id", "-mail")), MR_OK);
    struct mr_hidden *hidden = next_process(before, &both[1], 1);
    assert_int_equal(look_numbered(hidden, TEXTS("id", "post"), TEXTS("id", "post")),
                     MR_ERR_POISON);
    mr_hidden_free(before);
    mr_hidden_free(hidden);
}

/* What a partition had hidden by a rule of its table stays known, too, under names with dots. */
static void test_hidden_take_of_a_partition(void **state)
{
    (void)state;
    struct mr_kin *kin = mr_kin_new();
    const struct mr_origin origin = {.oid = 1, .schema = "public", .table = "users"};
    mr_kin_note(kin, 2, &origin);
    struct mr_relation view = {.oid = 2, .table = "spr.ing", .origins = &origin, .origin_count = 1};
    struct mr_hidden *before = hidden_of_kin(rules, MR_ARRAY_LEN(rules), kin);
    assert_int_equal(look_view(before, &view, TEXTS("id", "email"), TEXTS("id", "-email")), MR_OK);
    struct mr_hidden *hidden = next_of_kin(before, rules, MR_ARRAY_LEN(rules), kin);
    mr_hidden_free(before);
    view.origin_count = 0;
    assert_int_equal(look_view(hidden, &view, TEXTS("id", "mail"), TEXTS("id", "mail")),
                     MR_ERR_POISON);
    mr_hidden_free(hidden);
    mr_kin_free(kin);
}

/* Rows of a partition that come as its table's: what was hidden of it, by its number, and what the
 * rules hide of it, or of another table that it was of. */
static void test_hidden_look_part(void **state)
{
    (void)state;
    static const struct {
        const char *part, *of;
        const char *attributes[3], *columns[3]; /* of the partition */
        bool hides[2];                          /* id, mail of the table */
        mr_status expected;
    } cases[] = {
        {"people_1", NULL, {"id", "mail", ""}, {"id", "mail", ""}, {false, false}, MR_ERR_POISON},
        {"people_1", NULL, {"id", "mail", ""}, {"id", "mail", ""}, {false, true}, MR_OK},
        {"people_1", NULL, {"mail", "id", ""}, {"mail", "id", ""}, {false, true}, MR_ERR_POISON},
        {"people_1", NULL, {"mail", "id", ""}, {"mail", "id", ""}, {true, false}, MR_OK},
        /* A list of columns is the table's, and names what the partition has at those numbers. */
        {"people_1", NULL, {"id", "mail", ""}, {"id", ""}, {false, false}, MR_ERR_POISON},
        {"others", NULL, {"id", "mail", ""}, {"id", "mail", ""}, {false, true}, MR_OK},
        {"others", "users", {"id", "mail", ""}, {"id", "mail", ""}, {false, false}, MR_ERR_POISON},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
        assert_int_equal(look_numbered(hidden, TEXTS("id", "email"), TEXTS("id", "-email")), MR_OK);
        struct mr_column columns[2] = {0}, of_root[] = {{.name = "id"}, {.name = "mail"}};
        struct mr_attribute attributes[2];
        const struct mr_origin origin = {
            .oid = 1, .schema = "public", .table = cases[i].of, .numbers = ""};
        struct mr_relation part = {.oid = strcmp(cases[i].part, "others") == 0 ? 3 : 1,
                                   .schema = "public",
                                   .table = cases[i].part,
                                   .columns = columns,
                                   .attributes = attributes,
                                   .origins = &origin,
                                   .origin_count = cases[i].of != NULL};
        for (; cases[i].columns[part.column_count][0] != '\0'; part.column_count++) {
            columns[part.column_count].name = cases[i].columns[part.column_count];
        }
        for (; cases[i].attributes[part.attribute_count][0] != '\0'; part.attribute_count++) {
            attributes[part.attribute_count] = (struct mr_attribute){
                part.attribute_count + 1, cases[i].attributes[part.attribute_count], true};
        }
        const struct mr_relation root = {.oid = 9,
                                         .schema = "public",
                                         .table = "people",
                                         .columns = of_root,
                                         .column_count = MR_ARRAY_LEN(of_root)};
        struct mr_error error;
        if (mr_hidden_look_part(hidden, &root, &part, NULL, cases[i].hides, &error) !=
            cases[i].expected) {
            fail_msg("case %zu", i);
        }
        mr_hidden_free(hidden);
    }
}

/* What is dropped before the table's first row is not missing; what may have been renamed is. */
static void test_hidden_learn_and_drop(void **state)
{
    (void)state;
    struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
    learn(hidden, 1, "users", NULL);
    assert_int_equal(look_numbered(hidden, TEXTS("id", "?", "note"), TEXTS("id", "note")),
                     MR_ERR_POISON);
    assert_int_equal(
        look_numbered(hidden, TEXTS("id", NULL, "note", "mail"), TEXTS("id", "note", "mail")),
        MR_OK);
    mr_hidden_free(hidden);
}

static struct mr_hidden *learned_many(const struct mr_column_rule *rule, uint32_t end)
{
    struct mr_hidden *hidden = hidden_by(MR_UNMATCHED_STOP, rule, 1);
    assert_int_equal(look_numbered(hidden, TEXTS("id", "email"), TEXTS("id", "-email")), MR_OK);
    for (uint32_t oid = 2; oid < end; oid++) {
        char name[32];
        snprintf(name, sizeof(name), "table_%u", oid);
        learn(hidden, oid, name, NULL);
    }
    return hidden;
}

/* Thousands of tables of like columns. */
static void test_hidden_format_many(void **state)
{
    (void)state;
    enum { END = 3000 };
    struct mr_column_rule all = rules[0];
    all.table.table.text = NULL;
    struct mr_hidden *hidden = learned_many(&all, END);
    struct mr_hidden *next = next_process(hidden, &all, 1);
    struct mr_relation view = {.oid = END - 1, .table = "table_2999"};
    assert_int_equal(
        look_view(next, &view, TEXTS("id", "mail", "note"), TEXTS("id", "mail", "note")),
        MR_ERR_POISON);
    assert_int_equal(look_numbered(next, TEXTS("id", "mail"), TEXTS("id", "mail")), MR_ERR_POISON);
    mr_hidden_free(hidden);
    mr_hidden_free(next);
}

/* Of those that are not stored nothing goes out once they were altered: the start can't learn them.
 * Rows count before what was learned. */
static void test_hidden_format_is_bounded(void **state)
{
    (void)state;
    enum { END = 20000 };
    struct mr_column_rule all[] = {rules[0], rules[0]};
    all[0].table.table.text = NULL;
    all[1].table.table.text = "named";
    struct mr_hidden *hidden = learned_many(all, END);
    struct mr_hidden *then = next_process(hidden, all, MR_ARRAY_LEN(all));
    struct mr_hidden *next = next_process(then, all, MR_ARRAY_LEN(all));
    learn(next, END - 2, "table", NULL);
    static const struct {
        uint32_t oid;
        const char *table;
        mr_status expected;
    } cases[] = {{END - 1, "table_", MR_ERR_POISON},
                 {END - 1, "named", MR_OK},
                 {END - 2, "table", MR_OK},
                 {END, "new", MR_OK}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_relation view = {.oid = cases[i].oid, .table = cases[i].table};
        mr_status status =
            look_view(next, &view, TEXTS("id", "email", "note"), TEXTS("id", "-email", "note"));
        if (status != cases[i].expected) {
            fail_msg("case %zu", i);
        }
    }
    assert_int_equal(look_numbered(next, TEXTS("id", "mail"), TEXTS("id", "mail")), MR_ERR_POISON);
    mr_hidden_free(hidden);
    mr_hidden_free(then);
    mr_hidden_free(next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden_look_names),
        cmocka_unit_test(test_hidden_look_first_sight),
        cmocka_unit_test(test_hidden_look_parts),
        cmocka_unit_test(test_hidden_look_numbers),
        cmocka_unit_test(test_hidden_look_one_of_several),
        cmocka_unit_test(test_hidden_look_origins),
        cmocka_unit_test(test_hidden_look_origins_stay),
        cmocka_unit_test(test_hidden_look_places),
        cmocka_unit_test(test_hidden_learn),
        cmocka_unit_test(test_hidden_learn_what_rules_leave_out),
        cmocka_unit_test(test_hidden_learn_is_not_seen),
        cmocka_unit_test(test_hidden_take_with_other_rules),
        cmocka_unit_test(test_hidden_take_under_the_last_name),
        cmocka_unit_test(test_hidden_take_of_a_partition),
        cmocka_unit_test(test_hidden_look_part),
        cmocka_unit_test(test_hidden_learn_and_drop),
        cmocka_unit_test(test_hidden_format_many),
        cmocka_unit_test(test_hidden_format_is_bounded),
        cmocka_unit_test(test_hidden_look_numbers_stay),
        cmocka_unit_test(test_hidden_look_swapped),
        cmocka_unit_test(test_hidden_format_take),
        cmocka_unit_test(test_hidden_take_of_an_older_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
