/* Shared by the files of src/convert, whose functions for each other begin with mr_cv_. `struct
 * mr_convert` is what one call of mr_convert gathers; all texts and lists are its own and live
 * until it ends, so nothing is given back before. Each part takes the lines that belong together
 * and marks them as done; convert.c goes through what is left by the table in debezium.def. */
#pragma once

#include "base/pattern.h"
#include "convert/convert.h"
#include "options/values.h"

/* One option of the input. */
struct mr_cv_line {
    const char *given; /* its name in the file */
    const char *name;  /* without Debezium Server's prefixes, and by its present name */
    const char *value;
    bool done;
};

/* All zero: empty. */
struct mr_cv_list {
    const char **items;
    uint32_t count;
};

struct mr_convert {
    const char *file;
    FILE *told;
    void **memory;
    uint32_t memory_count, memory_room;
    struct mr_cv_line *lines;
    uint32_t line_count;
    const char *options[MR_OPTION_COUNT]; /* TOML of the value; NULL: not set */
    struct mr_text properties;            /* lines of [sink.kafka.properties] */
    struct mr_text notes;                 /* as comments */
    struct mr_cv_list tables;             /* "schema.table", as far as they are known */
    struct mr_cv_list patterns;           /* of tables that are not named one by one */
    struct mr_cv_list outboxes;           /* those of both whose rows an EventRouter is for */
    bool tables_known;                    /* all of them */
    bool has_router;                      /* a router became [routing] */
    bool has_outbox;                      /* an EventRouter became [outbox] */
    bool unwraps_outboxes;                /* before an EventRouter would see their events */
    uint32_t schemas;                     /* of keys and values, enum mr_json_schemas */
    const char *unwraps; /* the option that names ExtractNewRecordState; NULL: there is none */
};

void *mr_cv_keep(struct mr_convert *c, void *memory); /* until the end; returns it */
const char *mr_cv_text(struct mr_convert *c, const char *format, ...) MR_PRINTF(2, 3);
const char *mr_cv_part(struct mr_convert *c, const char *text, size_t len);
void mr_cv_add(struct mr_convert *c, struct mr_cv_list *list, const char *text);
bool mr_cv_holds(const struct mr_cv_list *list, const char *text);
void mr_cv_done(struct mr_convert *c); /* wipes and gives back all */

/* Adds an option; a later one of the same name replaces the earlier one. */
void mr_cv_line_add(struct mr_convert *c, const char *name, const char *value);

/* Reads JSON or properties. On failure answers false and fills `ret_reason`, which never holds any
 * of the text. */
bool mr_cv_read(struct mr_convert *c, const char *text, size_t len, char *ret_reason,
                size_t reason_size);

/* The option of that name, or NULL; mr_cv_take marks it as done. */
struct mr_cv_line *mr_cv_find(struct mr_convert *c, const char *name);
struct mr_cv_line *mr_cv_take(struct mr_convert *c, const char *name);
/* Takes its value; NULL: not there, or an expression of a config provider, which a note says. */
const char *mr_cv_value(struct mr_convert *c, const char *name);
bool mr_cv_is_expression(const char *value);

/* The last part of a Java class' name, without a class within it ("$Value"), and whether it is
 * that. */
mr_slice mr_cv_class(const char *java);
bool mr_cv_is_class(const char *java, const char *name);

enum mr_cv_kind { MR_CV_TO_DO, MR_CV_LOST, MR_CV_IDLE, MR_CV_UNKNOWN };

/* Says something about an option, on standard error and as a comment. */
void mr_cv_note(struct mr_convert *c, enum mr_cv_kind kind, const char *option, const char *format,
                ...) MR_PRINTF(4, 5);

#define TO_DO(c, option, ...) mr_cv_note(c, MR_CV_TO_DO, option, __VA_ARGS__)
#define LOST(c, option, ...)  mr_cv_note(c, MR_CV_LOST, option, __VA_ARGS__)
#define IDLE(c, option, ...)  mr_cv_note(c, MR_CV_IDLE, option, __VA_ARGS__)

/* Sets an option of ours from a text; false when the option does not take it. */
bool mr_cv_set(struct mr_convert *c, const char *path, const char *value);
void mr_cv_set_list(struct mr_convert *c, const char *path, const struct mr_cv_list *list);
void mr_cv_set_property(struct mr_convert *c, const char *name, const char *value);
/* Says that an option, which hides what would be shown without it, is not carried over, and why;
 * and has ours (columns.*, tables, ...) name what nobody has: the file does not start until
 * somebody has looked at it. */
void mr_cv_hold(struct mr_convert *c, const char *given, const char *path, const char *reason);
void mr_cv_write(const struct mr_convert *c, FILE *to);

/* The parts of a list, trimmed; a separator after a backslash belongs to its part. NULL: an empty
 * list. */
struct mr_cv_list mr_cv_split(struct mr_convert *c, const char *text, char separator);

/* All texts that a regular expression matches, where they are few and it is simple (a dot counts as
 * a dot); false: it is not. */
bool mr_cv_expand(struct mr_convert *c, const char *pattern, struct mr_cv_list *ret);

/* The expressions of a list of Debezium's. */
struct mr_cv_list mr_cv_patterns(struct mr_convert *c, const char *text);

/* "schema.table" (2 parts) or "schema.table:column" (3) of an expression, as our options write
 * patterns, in any case of letters; NULL: it has what they can't say. Unless it `hides`, a schema
 * in lower case stays that name: a publication can be for it. */
const char *mr_cv_pattern(struct mr_convert *c, const char *pattern, int parts, bool hides);
bool mr_cv_has_upper(const char *text);

/* The rules "schema.table:column" of an expression that hides columns, which may leave out dots
 * (".*ssn"), in any case of letters. After the tables. False: our options can't say it. */
bool mr_cv_fits(struct mr_convert *c, const char *pattern, const char *table); /* its first two */
bool mr_cv_hiding(struct mr_convert *c, const char *pattern, struct mr_cv_list *ret);

/* Whether an expression of Java's is one here too, and means the same. */
bool mr_cv_same_regex(const char *java);

/* Sets an expression and its replacement; false: they mean something else here. */
bool mr_cv_rewrite(struct mr_convert *c, const char *java, const char *replacement,
                   const char *option);

/* Converts a line by the row "@<class>.<option>"; false: there is none. */
bool mr_cv_class_line(struct mr_convert *c, struct mr_cv_line *line, const char *java,
                      const char *option);

void mr_cv_source(struct mr_convert *c);
void mr_cv_tables(struct mr_convert *c);
void mr_cv_columns(struct mr_convert *c);
void mr_cv_processors(struct mr_convert *c);
void mr_cv_transforms(struct mr_convert *c); /* after the tables, before Kafka */
void mr_cv_hidden(struct mr_convert *c);     /* after them: what else hides, and has no place */
void mr_cv_kafka(struct mr_convert *c);
