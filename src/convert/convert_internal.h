/* Shared by the files of src/convert. */
#ifndef MR_CONVERT_CONVERT_INTERNAL_H
#define MR_CONVERT_CONVERT_INTERNAL_H

#include "base/pattern.h"
#include "base/text.h"
#include "config/values.h"
#include "convert/convert.h"

/* One option of the input. */
struct mr_convert_line {
    char *given; /* its name as the file has it */
    char *name;  /* without Debezium Server's prefixes, and by its present name */
    char *value;
    bool done; /* somebody has looked at it */
};

struct mr_convert_lines {
    struct mr_convert_line *items;
    uint32_t count;
};

/* Some texts of our own. */
struct mr_convert_list {
    char **items;
    uint32_t count;
};

void mr_convert_list_add(struct mr_convert_list *list, char *text); /* takes it over */
void mr_convert_list_done(struct mr_convert_list *list);

struct mr_convert {
    const char *file;
    FILE *told;
    struct mr_convert_lines lines;
    char *options[MR_OPTION_COUNT];  /* TOML of the value; NULL: not set */
    struct mr_text properties;       /* lines of [sink.kafka.properties] */
    struct mr_text notes;            /* as comments */
    struct mr_convert_list tables;   /* "schema.table", whatever is known of them */
    struct mr_convert_list patterns; /* of tables that are not named one by one */
    struct mr_convert_list outboxes; /* of both those whose rows an EventRouter is for */
    bool tables_known;               /* all of them */
    bool only_outboxes;              /* no table is something else */
    bool brokers_known;
    bool has_router;       /* a router is [routing] */
    bool has_outbox;       /* an EventRouter is carried over */
    const char *unwraps;   /* the option with which ExtractNewRecordState is; NULL: it is not */
    bool unwraps_outboxes; /* before an EventRouter would see them */
};

/* Adds an option; a later one of the same name takes the earlier one's place. */
void mr_convert_lines_add(struct mr_convert_lines *lines, const char *name, const char *value);
void mr_convert_lines_done(struct mr_convert_lines *lines);

/* Reads JSON or properties. On failure answers false and fills `ret_reason`, which never holds any of the text. */
bool mr_convert_read(const char *text, size_t len, struct mr_convert_lines *ret, char *ret_reason,
                     size_t reason_size);

/* The option of that name, NULL: it is not there. Marks it as done. */
struct mr_convert_line *mr_convert_take(struct mr_convert *convert, const char *name);
/* The same without marking it. */
const struct mr_convert_line *mr_convert_find(const struct mr_convert *convert, const char *name);
/* Its value; NULL: not there, or an expression of a config provider, which is told. */
const char *mr_convert_value(struct mr_convert *convert, const char *name);
bool mr_convert_is_expression(const char *value);

enum mr_convert_note { MR_NOTE_TO_DO, MR_NOTE_LOST, MR_NOTE_IDLE, MR_NOTE_UNKNOWN };

/* Says something about an option, on standard error and as a comment. */
void mr_convert_note(struct mr_convert *convert, enum mr_convert_note kind, const char *option,
                     const char *format, ...) MR_PRINTF(4, 5);

/* The option of a transformation, "transforms.<alias>.<option>"; as mr_convert_take. */
struct mr_convert_line *mr_convert_take_option(struct mr_convert *convert, const char *alias,
                                               const char *option);

/* What a transformation is for: the events of all tables, or, by its predicate, of some. */
enum mr_convert_scope { MR_SCOPE_ALL, MR_SCOPE_TABLES, MR_SCOPE_UNKNOWN };

/* Looks at the predicate of that alias. With MR_SCOPE_TABLES `ret` gets the tables, which are among those that are known or that a
 * pattern may mean. `takes` marks its options as done, and tells MR_SCOPE_UNKNOWN. */
enum mr_convert_scope mr_convert_scope(struct mr_convert *convert, const char *alias, bool takes,
                                       struct mr_convert_list *ret);

/* ExtractNewRecordState under that alias. */
void mr_convert_unwrap(struct mr_convert *convert, const char *alias);

/* Sets an option of ours from a text; false when the option does not take it. */
bool mr_convert_set(struct mr_convert *convert, const char *path, const char *value);
void mr_convert_set_list(struct mr_convert *convert, const char *path,
                         const struct mr_convert_list *list);
void mr_convert_set_property(struct mr_convert *convert, const char *name, const char *value);

/* `text` as a TOML string. */
void mr_convert_quote(struct mr_text *out, const char *text);

/* The parts of a list with commas, trimmed; a comma behind a backslash belongs to its part. */
void mr_convert_split(const char *text, char separator, struct mr_convert_list *ret);

/* All texts that a regular expression matches, where they are few and it is simple (a dot counts as a dot); false: it is not. */
bool mr_convert_expand(const char *pattern, struct mr_convert_list *ret);

/* "schema.table" (2 parts) or "schema.table:column" (3) of an expression, as our options write patterns; NULL: it has what they
 * can't say. The caller frees it. */
char *mr_convert_pattern(const char *pattern, int parts);

/* Whether an expression of Java's is one here too, and means the same. */
bool mr_convert_same_regex(const char *java);

/* Sets an expression and its replacement; false: they mean something else here. */
bool mr_convert_rewrite(struct mr_convert *convert, const char *java, const char *replacement,
                        const char *regex_option, const char *option);

/* The transformation EventRouter of that alias, whose type is the option `given`. */
void mr_convert_outbox(struct mr_convert *convert, const char *alias, const char *given);

/* The converter of keys or values, where values are Avro; false: they are not. */
bool mr_convert_avro(struct mr_convert *convert, const char *side);

/* Each looks at the options that belong together. */
void mr_convert_source(struct mr_convert *convert);
void mr_convert_tables(struct mr_convert *convert);
void mr_convert_columns(struct mr_convert *convert);
void mr_convert_kafka(struct mr_convert *convert);
void mr_convert_transforms(struct mr_convert *convert); /* behind the tables, before Kafka */

#endif
