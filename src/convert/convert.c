#include "convert/convert.h"

#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "convert/convert_internal.h"

enum fate { CARRIED, SAME, WORKED, IDLE, LOST, OLD };

static const struct row {
    const char *name;
    const char *fallback;
    enum fate fate;
    const char *to;
    const char *text;
} rows[] = {
#define MR_DEBEZIUM(name_, fallback_, fate_, to_, text_) {name_, fallback_, fate_, to_, text_},
#include "convert/debezium.def"
#undef MR_DEBEZIUM
};

/* NULL: the option is unknown. The first row that fits holds. */
static const struct row *find_row(const char *name)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        size_t len = strlen(rows[i].name);
        bool prefix = rows[i].name[len - 1] == '*';
        if (prefix ? strncmp(rows[i].name, name, len - 1) == 0 : strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* ---- one option after the other ---- */

static bool is_word(const char *words, const char *value)
{
    size_t len = strlen(value);
    for (const char *at = words;; at++) {
        size_t size = strcspn(at, "|");
        if (size > 0 && size == len && strncasecmp(at, value, len) == 0) {
            return true;
        }
        at += size;
        if (*at == '\0') {
            return false;
        }
    }
}

/* A property of librdkafka has no section. */
static void carry(struct mr_convert *convert, const struct row *row,
                  const struct mr_convert_line *line)
{
    if (mr_convert_is_expression(line->value)) {
        mr_convert_note(convert, MR_NOTE_TO_DO, line->given,
                        "its value comes from a config provider of Connect; write it into %s",
                        row->to);
    } else if (strncmp(row->name, "producer.override.", 18) == 0 &&
               strncmp(row->to, "sink.", 5) != 0) {
        mr_convert_set_property(convert, row->to, line->value);
    } else if (!mr_convert_set(convert, row->to, line->value)) {
        mr_convert_note(convert, MR_NOTE_LOST, line->given, "%s does not take its value; %s",
                        row->to, row->text[0] == '\0' ? "set it yourself" : row->text);
    }
}

static void convert_line(struct mr_convert *convert, struct mr_convert_line *line, const char *name)
{
    const struct row *row = find_row(name);
    line->done = true;
    if (row == NULL) {
        mr_convert_note(
            convert, MR_NOTE_UNKNOWN, line->given,
            "is not an option of Debezium's PostgreSQL connector 3.7 that millrace knows");
        return;
    }
    bool is_default = row->fallback[0] != '\0' && strcasecmp(row->fallback, line->value) == 0;
    switch (row->fate) {
    case CARRIED:
        carry(convert, row, line);
        break;
    case SAME:
    case LOST:
        if (!is_default && !is_word(row->to, line->value)) {
            mr_convert_note(convert, MR_NOTE_LOST, line->given, "%s", row->text);
        }
        break;
    case IDLE:
        if (!is_default) {
            mr_convert_note(convert, MR_NOTE_IDLE, line->given, "%s", row->text);
        }
        break;
    case WORKED: /* looked at already, together with what is not there */
        mr_convert_note(convert, MR_NOTE_LOST, line->given,
                        "says nothing without what it belongs to");
        break;
    case OLD:
        MR_ASSERT(!"renamed before");
    }
}

/* "transforms.<alias>.<option>" of a transformation whose class is known by its last part. */
static void convert_transform_line(struct mr_convert *convert, struct mr_convert_line *line)
{
    const char *alias = line->name + 11;
    const char *option = strchr(alias, '.');
    struct mr_text type_name = {0};
    mr_text_format(&type_name, "transforms.%.*s.type", (int)(option == NULL ? 0 : option - alias),
                   alias);
    const struct mr_convert_line *type = mr_convert_take(convert, type_name.data);
    struct mr_text name = {0};
    if (option != NULL && type != NULL) {
        const char *class = strrchr(type->value, '.');
        class = class == NULL ? type->value : class + 1;
        size_t len = strcspn(class, "$");
        mr_text_format(&name, "@%.*s.%s", (int)len, class, option + 1);
    }
    bool is_carried =
        convert->has_outbox || strstr(name.data == NULL ? "" : name.data, "@EventRouter.") == NULL;
    if (is_carried && name.data != NULL && find_row(name.data) != NULL) {
        convert_line(convert, line, name.data);
    } else {
        line->done = true;
        mr_convert_note(convert, MR_NOTE_LOST, line->given, "see the transformation");
    }
    mr_text_done(&name);
    mr_text_done(&type_name);
}

static void convert_lines(struct mr_convert *convert)
{
    for (uint32_t i = 0; i < convert->lines.count; i++) {
        struct mr_convert_line *line = &convert->lines.items[i];
        if (line->done) {
            continue;
        }
        if (strncmp(line->name, "transforms.", 11) == 0) {
            convert_transform_line(convert, line);
        } else {
            convert_line(convert, line, line->name);
        }
    }
}

/* ---- what is not there ---- */

/* An option that the file does not have is at Debezium's default, which ours may not be. */
static void add_defaults(struct mr_convert *convert)
{
    static const char *const names[] = {"slot.name", "publication.name"};
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        bool there = false;
        for (uint32_t k = 0; k < convert->lines.count; k++) {
            there |= strcmp(convert->lines.items[k].name, names[i]) == 0;
        }
        if (!there) {
            mr_convert_lines_add(&convert->lines, names[i], find_row(names[i])->fallback);
        }
    }
}

/* Old names become the present ones, unless those are there too. */
static void rename_old(struct mr_convert *convert)
{
    for (uint32_t i = 0; i < convert->lines.count; i++) {
        struct mr_convert_line *line = &convert->lines.items[i];
        const struct row *row = find_row(line->name);
        if (row != NULL && row->fate == OLD) {
            bool there = false;
            for (uint32_t k = 0; k < convert->lines.count; k++) {
                there |= strcmp(convert->lines.items[k].name, row->to) == 0;
            }
            mr_convert_note(convert, MR_NOTE_IDLE, line->given, "is an old name of %s%s", row->to,
                            there ? ", which is there too" : "");
            line->done = there;
            if (!there) {
                free(line->name);
                line->name = MR_STRDUP(row->to);
            }
        }
    }
}

/* ---- the file ---- */

/* Length of "source.postgres" in "source.postgres.slot_name"; 0: no section. */
static size_t section_len(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot == NULL ? 0 : (size_t)(dot - path);
}

static bool same_section(const char *a, const char *b)
{
    return section_len(a) == section_len(b) && strncmp(a, b, section_len(a)) == 0;
}

static void write_section(const struct mr_convert *convert, uint32_t first, FILE *to)
{
    const char *path = mr_option_at(first)->path;
    size_t len = section_len(path);
    if (len > 0) {
        fprintf(to, "\n[%.*s]\n", (int)len, path);
    }
    for (uint32_t i = first; i < MR_OPTION_COUNT; i++) {
        const char *other = mr_option_at(i)->path;
        if (convert->options[i] != NULL && same_section(path, other)) {
            fprintf(to, "%s = %s\n", other + (len == 0 ? 0 : len + 1), convert->options[i]);
        }
    }
}

static void write_file(const struct mr_convert *convert, FILE *to)
{
    fputs("# Made by `millrace convert`. docs/migrating-from-debezium.md says how to go on.\n", to);
    if (convert->notes.len > 0) {
        fprintf(to, "#\n%s", convert->notes.data);
    }
    fputs("\n", to);
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        bool is_first = convert->options[i] != NULL;
        for (uint32_t k = 0; k < i; k++) {
            is_first &= convert->options[k] == NULL ||
                        !same_section(mr_option_at(i)->path, mr_option_at(k)->path);
        }
        if (is_first) {
            write_section(convert, i, to);
        }
    }
    if (convert->properties.len > 0) {
        fprintf(to, "\n[sink.kafka.properties]\n%s", convert->properties.data);
    }
}

static bool is_ours(struct mr_convert *convert)
{
    const struct mr_convert_line *class = mr_convert_take(convert, "connector.class");
    static const char *const classes[] = {"io.debezium.connector.postgresql.PostgresConnector",
                                          "PostgresConnector", "Postgres", "PostgresCdcSource",
                                          "PostgresCdcSourceV2"};
    if (class == NULL) {
        return true; /* as Debezium's own examples of a task have it */
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(classes); i++) {
        if (strcmp(class->value, classes[i]) == 0) {
            return true;
        }
    }
    fprintf(convert->told,
            "%s: connector.class is not Debezium's PostgreSQL connector "
            "(io.debezium.connector.postgresql.PostgresConnector)\n",
            convert->file);
    return false;
}

mr_status mr_convert(const char *name, const char *text, size_t len, FILE *to, FILE *notes)
{
    struct mr_convert convert = {.file = name, .told = notes};
    char reason[256];
    if (!mr_convert_read(text, len, &convert.lines, reason, sizeof(reason))) {
        fprintf(notes, "%s: %s\n", name, reason);
        return MR_ERR_CONFIG;
    }
    bool ours = is_ours(&convert);
    if (ours) {
        rename_old(&convert);
        add_defaults(&convert);
        mr_convert_set(&convert, "types", "debezium");
        mr_convert_set(&convert, "sink.kafka.null_keys", "spread");
        mr_convert_source(&convert);
        mr_convert_tables(&convert);
        mr_convert_columns(&convert);
        mr_convert_transforms(&convert);
        mr_convert_kafka(&convert);
        convert_lines(&convert);
        write_file(&convert, to);
    }
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        free(convert.options[i]);
    }
    mr_convert_list_done(&convert.tables);
    mr_convert_list_done(&convert.patterns);
    mr_convert_list_done(&convert.outboxes);
    mr_convert_lines_done(&convert.lines);
    mr_text_done(&convert.properties);
    mr_text_done(&convert.notes);
    return ours ? MR_OK : MR_ERR_CONFIG;
}

/* ---- the reference ---- */

/* "|" would end a cell. */
static void put_cell(FILE *to, const char *text)
{
    for (; *text != '\0'; text++) {
        fputs(*text == '|' ? "\\|" : (char[]){*text, '\0'}, to);
    }
}

static void put_words(FILE *to, const char *words)
{
    for (const char *at = words; *at != '\0';) {
        size_t len = strcspn(at, "|");
        fprintf(to, "%s`%.*s`", at == words ? "" : ", ", (int)len, at);
        at += len + (at[len] == '|');
    }
}

static void put_fate(FILE *to, const struct row *row)
{
    switch (row->fate) {
    case CARRIED:
    case OLD:
        fprintf(to, row->fate == OLD ? "old name of `%s`" : "becomes `%s`", row->to);
        break;
    case WORKED:
        fprintf(to, "becomes %s", row->to);
        break;
    case SAME:
        fputs("with ", to);
        put_words(to, row->to);
        fputs(" nothing is needed; otherwise: ", to);
        put_cell(to, row->text);
        break;
    case IDLE:
        fputs("needs nothing: ", to);
        put_cell(to, row->text);
        break;
    case LOST:
        fputs("**not carried over**: ", to);
        put_cell(to, row->text);
        break;
    }
}

void mr_convert_print_reference(FILE *to)
{
    fputs(
        "# Debezium's options\n\n"
        "<!-- Made by `millrace reference debezium`; a test compares the two. -->\n\n"
        "The table lists the options of Debezium's PostgreSQL connector 3.7.0, of its "
        "transformations, and of Kafka Connect, and\n"
        "says what [`millrace convert`](migrating-from-debezium.md) does with each. `*` stands for "
        "the rest of a name, and\n"
        "`@Transformation.option` for an option of a transformation of that class. \"Needs "
        "nothing\" means that the option can be left\n"
        "out; the reason follows.\n\n"
        "| option | default | what becomes of it |\n|---|---|---|\n",
        to);
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        fprintf(to, "| `%s` | %s%s%s | ", rows[i].name, rows[i].fallback[0] == '\0' ? "" : "`",
                rows[i].fallback, rows[i].fallback[0] == '\0' ? "" : "`");
        put_fate(to, &rows[i]);
        fputs(" |\n", to);
    }
}
