#include "convert/convert.h"

#include "base/markdown.h"
#include "convert/convert_internal.h"

enum fate { CARRIED, MAPPED, SAME, WORKED, SILENT, IDLE, LOST, OLD };

static const struct row {
    const char *names;
    const char *fallback;
    enum fate fate;
    const char *to;
    const char *text;
} rows[] = {
#define MR_DEBEZIUM(names_, fallback_, fate_, to_, text_) {names_, fallback_, fate_, to_, text_},
#include "convert/debezium.def"
#undef MR_DEBEZIUM
};

/* NULL: the option is unknown. The first row that fits holds. */
static const struct row *convert_find_row(const char *name)
{
    size_t i = 0;
    while (i < MR_ARRAY_LEN(rows) && !mr_is_among(rows[i].names, mr_slice_of(name))) {
        i++;
    }
    return i < MR_ARRAY_LEN(rows) ? &rows[i] : NULL;
}

/* The word of "given|given=ours|…" for a value, in any case, or for the last part of a class' name;
 * NULL: there is none. */
static const char *find_word(struct mr_convert *c, const char *words, const char *value)
{
    struct mr_cv_list list = mr_cv_split(c, words, '|');
    const char *dot = strrchr(value, '.');
    for (uint32_t i = 0; i < list.count; i++) {
        const char *equals = strchr(list.items[i], '=');
        const char *word = equals == NULL
                               ? list.items[i]
                               : mr_cv_part(c, list.items[i], (size_t)(equals - list.items[i]));
        if (strcasecmp(word, value) == 0 || (dot != NULL && strcmp(word, dot + 1) == 0)) {
            return equals == NULL ? word : equals + 1;
        }
    }
    return NULL;
}

/* A property of librdkafka has no section. */
static bool convert_set(struct mr_convert *c, const struct row *row, const char *value)
{
    uint32_t index;
    if (mr_option_find(row->to, &index) && mr_option_at(index)->kind == MR_KIND_STRINGS) {
        struct mr_cv_list list = mr_cv_split(c, value, ',');
        mr_cv_set_list(c, row->to, &list);
        return true;
    }
    if (strncmp(row->names, "producer.override.", 18) == 0 && strncmp(row->to, "sink.", 5) != 0) {
        mr_cv_set_property(c, row->to, value);
        return true;
    }
    return mr_cv_set(c, row->to, value);
}

static void carry(struct mr_convert *c, const struct row *row, const struct mr_cv_line *line)
{
    if (mr_cv_is_expression(line->value)) {
        TO_DO(c, line->given, "its value comes from a config provider of Connect; write it into %s",
              row->to);
    } else if (!convert_set(c, row, line->value)) {
        LOST(c, line->given, "%s does not take its value; %s", row->to,
             row->text[0] == '\0' ? "set it yourself" : row->text);
    }
}

/* The text of such a row is its words, a colon, and what is said of other values. */
static void map(struct mr_convert *c, const struct row *row, const struct mr_cv_line *line)
{
    const char *colon = strstr(row->text, ": ");
    const char *words = mr_cv_part(c, row->text, (size_t)(colon - row->text));
    const char *ours = find_word(c, words, line->value);
    if (ours == NULL) {
        LOST(c, line->given, "%s", colon + 2);
        ours = find_word(c, words, "*");
    }
    if (ours != NULL && ours[0] != '\0') {
        mr_cv_set(c, row->to, ours);
    }
}

static void convert_line(struct mr_convert *c, struct mr_cv_line *line, const struct row *row)
{
    line->done = true;
    if (row == NULL) {
        mr_cv_note(c, MR_CV_UNKNOWN, line->given,
                   "is not an option of Debezium's PostgreSQL connector 3.7 that millrace knows");
        return;
    }
    bool is_default = row->fallback[0] != '\0' && strcasecmp(row->fallback, line->value) == 0;
    switch (row->fate) {
    case CARRIED:
        carry(c, row, line);
        break;
    case MAPPED:
        map(c, row, line);
        break;
    case SAME:
    case LOST:
        if (!is_default && find_word(c, row->to, line->value) == NULL) {
            LOST(c, line->given, "%s", row->text);
        }
        break;
    case IDLE:
        if (!is_default) {
            IDLE(c, line->given, "%s", row->text);
        }
        break;
    case WORKED: /* looked at already, together with what is not there */
        LOST(c, line->given, "says nothing without what it belongs to");
        break;
    case SILENT:
        break;
    case OLD:
        MR_ASSERT(!"renamed before");
    }
}

bool mr_cv_class_line(struct mr_convert *c, struct mr_cv_line *line, const char *java,
                      const char *option)
{
    const struct row *row =
        convert_find_row(mr_cv_text(c, "@%.*s.%s", MR_SLICE_ARGS(mr_cv_class(java)), option));
    if (row != NULL) {
        convert_line(c, line, row);
    }
    return row != NULL;
}

/* "transforms.<alias>.<option>". */
static void convert_transform_line(struct mr_convert *c, struct mr_cv_line *line)
{
    const char *alias = strchr(line->name, '.') + 1;
    const char *option = strchr(alias, '.');
    const struct mr_cv_line *type =
        option == NULL
            ? NULL
            : mr_cv_take(c, mr_cv_text(c, "transforms.%.*s.type", (int)(option - alias), alias));
    line->done = true;
    bool is_carried = type != NULL &&
                      (c->has_outbox || !mr_cv_is_class(type->value, "EventRouter")) &&
                      (c->unwraps != NULL || !mr_cv_is_class(type->value, "ExtractNewRecordState"));
    if (!is_carried || !mr_cv_class_line(c, line, type->value, option + 1)) {
        LOST(c, line->given, "see the transformation");
    }
}

static void convert_lines(struct mr_convert *c)
{
    for (uint32_t i = 0; i < c->line_count; i++) {
        struct mr_cv_line *line = &c->lines[i];
        if (line->done) {
            continue;
        }
        if (strncmp(line->name, "transforms.", 11) == 0) {
            convert_transform_line(c, line);
        } else {
            convert_line(c, line, convert_find_row(line->name));
        }
    }
}

/* An option that the file does not have is at Debezium's default, which ours may not be. */
static void add_defaults(struct mr_convert *c)
{
    static const char *const names[] = {"slot.name", "publication.name", "snapshot.mode"};
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        if (mr_cv_find(c, names[i]) == NULL) {
            mr_cv_line_add(c, names[i], convert_find_row(names[i])->fallback);
        }
    }
}

/* Old names become the present ones, unless those are there too. */
static void rename_old(struct mr_convert *c)
{
    for (uint32_t i = 0; i < c->line_count; i++) {
        struct mr_cv_line *line = &c->lines[i];
        const struct row *row = convert_find_row(line->name);
        if (row != NULL && row->fate == OLD) {
            line->done = mr_cv_find(c, row->to) != NULL;
            IDLE(c, line->given, "is an old name of %s%s", row->to,
                 line->done ? ", which is there too" : "");
            line->name = line->done ? line->name : row->to;
        }
    }
}

static bool is_ours(struct mr_convert *c)
{
    const struct mr_cv_line *class = mr_cv_take(c, "connector.class");
    bool good = class == NULL || /* as Debezium's own examples of a task have it */
                mr_is_among("io.debezium.connector.postgresql.PostgresConnector|PostgresConnector|"
                            "Postgres|PostgresCdcSource|PostgresCdcSourceV2",
                            mr_slice_of(class->value));
    if (!good) {
        fprintf(c->told,
                "%s: connector.class is not Debezium's PostgreSQL connector "
                "(io.debezium.connector.postgresql.PostgresConnector)\n",
                c->file);
    }
    return good;
}

static void convert_all(struct mr_convert *c)
{
    rename_old(c);
    add_defaults(c);
    mr_cv_set(c, "types", "debezium");
    mr_cv_set(c, "sink.kafka.null_keys", "spread");
    mr_cv_source(c);
    mr_cv_tables(c);
    mr_cv_columns(c);
    mr_cv_processors(c);
    mr_cv_transforms(c);
    mr_cv_hidden(c);
    mr_cv_kafka(c);
    convert_lines(c);
}

mr_status mr_convert(const char *name, const char *text, size_t len, FILE *to, FILE *notes)
{
    struct mr_convert convert = {.file = name, .told = notes};
    char reason[256];
    bool good = mr_cv_read(&convert, text, len, reason, sizeof(reason));
    if (!good) {
        fprintf(notes, "%s: %s\n", name, reason);
    } else if (is_ours(&convert)) {
        convert_all(&convert);
        mr_cv_write(&convert, to);
    } else {
        good = false;
    }
    mr_cv_done(&convert);
    return good ? MR_OK : MR_ERR_CONFIG;
}

static void put_cell(FILE *to, const char *before, const char *text)
{
    fputs(before, to);
    mr_markdown_print(text, to);
}

static void put_words(FILE *to, const char *words)
{
    mr_slice word;
    for (const char *mark = ""; mr_next_word(&words, &word); mark = ", ") {
        fprintf(to, "%s`%.*s`", mark, MR_SLICE_ARGS(word));
    }
}

static void put_fate(FILE *to, const struct row *row)
{
    static const struct {
        const char *before, *after; /* what the option becomes */
    } becomes[] = {
        [CARRIED] = {"becomes `", "`"},
        [MAPPED] = {"becomes `", "`"},
        [WORKED] = {"becomes ", ""},
        [OLD] = {"old name of `", "`"},
    };
    switch (row->fate) {
    case SAME:
        fputs("if not ", to);
        put_words(to, row->to);
        put_cell(to, ": ", row->text);
        break;
    case SILENT:
    case IDLE:
        put_cell(to, "needs nothing: ", row->text);
        break;
    case LOST:
        put_cell(to, "**not carried over**: ", row->text);
        break;
    default:
        fprintf(to, "%s%s%s", becomes[row->fate].before, row->to, becomes[row->fate].after);
    }
}

void mr_convert_print_reference(FILE *to)
{
    fputs("| option=default | what becomes of it |\n|---|---|\n", to);
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        const char *is = rows[i].fallback[0] == '\0' ? "" : "=", *mark = "| ";
        mr_slice name;
        for (const char *names = rows[i].names; mr_next_word(&names, &name); mark = ", ") {
            fprintf(to, "%s`%.*s%s%s`", mark, MR_SLICE_ARGS(name), is, rows[i].fallback);
        }
        fputs(" | ", to);
        put_fate(to, &rows[i]);
        fputs(" |\n", to);
    }
}
