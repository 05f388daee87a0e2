/* Values of options become the modules' option structs: what the files build_*.c share, the
 * daemon's too. Each fills in the options that its name says, adds what is wrong with them to the
 * problems, and calls only files that run before it. */
#pragma once

#include "config/config.h"

#define PROBLEM(config, line, ...) mr_problem_add(&(config)->problems, true, (line), __VA_ARGS__)
#define WARNING(config, line, ...) mr_problem_add(&(config)->problems, false, (line), __VA_ARGS__)
#define LINE(config, field)        MR_VALUE_LINE(&(config)->values, field)
/* The line of the one of two options that is set. */
#define LINE_OF(config, a, b) (LINE(config, a) != 0 ? LINE(config, a) : LINE(config, b))
/* A problem of an option, by its place in the table, at its line; the text follows its name. */
#define REFUSE_AT(config, option, format, ...)                                                     \
    mr_problem_add(&(config)->problems, true, (config)->values.lines[option], "%s" format,         \
                   mr_option_at(option)->path, ##__VA_ARGS__)
#define REFUSE(config, field, ...) REFUSE_AT(config, MR_INDEX_##field, __VA_ARGS__)

struct mr_config *mr_config_new(const char *name);

/* As mr_secret_read; the configuration's. */
const char *mr_config_secret(struct mr_config *config, const char *what, uint32_t option);

/* The same, of a secret that may be read again from its file while millrace runs
 * (options/secrets.h). */
struct mr_secret *mr_config_watched(struct mr_config *config, const char *what, uint32_t option);

/* The program that an option names, with its arguments; NULL when it names none, or one that can't
 * be run, which is added to the problems. The configuration's. */
const struct mr_program *mr_config_program(struct mr_config *config, uint32_t option);

/* The same as mr_config_secret of a file that everybody may read: a certificate. */
const char *mr_config_public_file(struct mr_config *config, const char *what, uint32_t file);

/* Adds what is wrong with a property of librdkafka to the problems; and with all of them together,
 * once all are checked. */
void mr_kafka_property_check(struct mr_config *config, const struct mr_property *property);
void mr_kafka_kerberos_check(struct mr_config *config);
void mr_kafka_properties_print(FILE *to);

/* Memory, a text, and an item that `end` frees, which live as long as the configuration. */
#define KEPT_ARRAY(config, type, count) mr_config_keep((config), MR_NEW_ARRAY(type, (count)))
void *mr_config_keep(struct mr_config *config, void *memory);
char *mr_config_text(struct mr_config *config, const char *format, ...) MR_PRINTF(2, 3);
void *mr_config_keep_until(struct mr_config *config, void *item, void (*end)(void *item));

/* Room for one item more, which is zero, at the end of `items` (NULL, or what this returned
 * before), of which there are `count`. */
void *mr_config_grow(struct mr_config *config, const void *items, uint32_t count, size_t size);

/* Whether both of two options are set; one without the other is refused. */
bool mr_config_pair(struct mr_config *config, uint32_t one, uint32_t other);

/* NULL for "", which is how an option is not set. */
const char *mr_config_or_null(const char *text);

/* The most bytes of a logical message whose event is a record of at most so many, so that one
 * that any role may write does not stop the stream. */
size_t mr_config_message_max(uint64_t record_bytes);

/* Bits of a list of operations; `outboxx`: of a stream's, which has no messages and has "read". */
uint32_t mr_config_operations(struct mr_config *config, const struct mr_strings *names,
                              uint32_t line, bool outboxx);

/* A pattern of an option, so that what it means can be compared with what there is. */
void mr_config_add_rule(struct mr_config *config, const struct mr_pattern_rule *rule);

/* The same of a column of one table, or of the table alone. */
void mr_config_name_column(struct mr_config *config, const struct mr_named_column *column);

/* Whether it is one of the tables that are streamed by their names. */
bool mr_config_names_table(const struct mr_config *config, const struct mr_table_name *table);

/* Warns where an option names a table that is not streamed. */
void mr_config_check_streamed(struct mr_config *config, uint32_t option, const char *schema,
                              const char *table);

/* Puts the values where options.def says for which `places` (an item for each option) has a place
 * in `to`; size 0: it has none. */
struct mr_config_place {
    size_t offset, size;
};
void mr_config_place_values(const struct mr_config_values *values,
                            const struct mr_config_place *places, void *to);

/* Called in this order (load.c); the daemon's builder comes before the last. */
void mr_config_build_encode(struct mr_config *config);
void mr_config_build_tables(struct mr_config *config);
void mr_config_build_columns(struct mr_config *config);
void mr_config_build_outbox(struct mr_config *config);
void mr_config_build_routing(struct mr_config *config);
void mr_config_build_topics(struct mr_config *config); /* no two tables have one that must not */
void mr_config_build_publication(struct mr_config *config);
void mr_config_build_source(struct mr_config *config);
void mr_config_build_sink(struct mr_config *config);
void mr_config_build_context(struct mr_config *config);
void mr_config_build_registry(struct mr_config *config);
void mr_config_build_http(struct mr_config *config);
void mr_config_name_pipeline(struct mr_config *config); /* what makes two instances the same one */
