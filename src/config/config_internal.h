/* Shared by the files of src/config that turn values into option structs. */
#ifndef MR_CONFIG_CONFIG_INTERNAL_H
#define MR_CONFIG_CONFIG_INTERNAL_H

#include "config/config.h"

/* Characters of a name in PostgreSQL: 63 bytes in the database's encoding, which may need fewer of them than UTF-8. */
enum { IDENTIFIER_MAX = 63 };

/* How many characters a text in UTF-8 has. */
size_t mr_config_characters(const char *text);

#define PROBLEM(config, line, ...) mr_problem_add(&(config)->problems, true, (line), __VA_ARGS__)
#define WARNING(config, line, ...) mr_problem_add(&(config)->problems, false, (line), __VA_ARGS__)
#define LINE(config, field)        MR_VALUE_LINE(&(config)->values, field)
/* Of the one of two options that is there. */
#define LINE_OF(config, a, b) (LINE(config, a) != 0 ? LINE(config, a) : LINE(config, b))

/* What is wrong with "host:port" or "[v6]:port", as the end of a sentence; NULL: nothing. librdkafka takes a port modulo 65536 and
 * looks for a host named "http" for ever; libcurl says what is wrong only once it is asked. */
const char *mr_config_host_fault(const char *host);

/* Memory that lives as long as the configuration; answers it. */
void *mr_config_keep(struct mr_config *config, void *memory);

/* The same for a secret, which is wiped before it is freed. NULL is fine. */
char *mr_config_keep_secret(struct mr_config *config, char *secret);

/* Whether a table's name has an expression in it, or a lone *. */
bool mr_config_is_pattern(const char *text);

/* "schema.table", either part a name, an expression or *. False: the problem is told. */
void mr_config_add_rule(struct mr_config *config, const struct mr_pattern_rule *rule);
bool mr_config_take_table(struct mr_config *config, const char *option, uint32_t line,
                          const char *text, struct mr_table_pattern *ret);

/* "schema.table", both of them names; `fold`: in lower case where they are not quoted. */
bool mr_config_parse_table(struct mr_config *config, const char *text, bool fold,
                           struct mr_table_name *ret);

/* "schema.table:column,column", names all; NULL: the problem is told. */
const struct mr_table_key *mr_config_take_lists(struct mr_config *config, const char *option,
                                                uint32_t line, const struct mr_strings *texts);

/* Updates and deletes of that table need the column's value of before, so that its identity must hold it; `option` says so. */
void mr_config_want_held(struct mr_config *config, const char *option, const struct mr_route *table,
                         const char *column);

/* "table: condition": the table's end, and its condition, "" where there is none. */
const char *mr_config_split_condition(const char *text, const char **ret_table_end);

/* What [publication] says; behind the tables. */
void mr_config_build_publication(struct mr_config *config);

/* "schema.table:column", and what stands behind an = (`*ret_rest` NULL: nothing). False, with `reason` filled where it is an
 * expression's: it is something else. */
bool mr_config_take_column(struct mr_config *config, const char *text,
                           struct mr_table_pattern *ret_table, const char **ret_column,
                           const char **ret_rest, char *reason, size_t size);

/* Warns where an option names a table that is not streamed. */
void mr_config_check_streamed(struct mr_config *config, const char *option, uint32_t line,
                              const char *schema, const char *table);

/* snapshot.where. */
void mr_config_build_wheres(struct mr_config *config);

/* What is added to bare rows. */
void mr_config_build_bare(struct mr_config *config);

/* The rules for columns. */
void mr_config_build_columns(struct mr_config *config);

/* What [outbox] and [routing] say; behind the tables. */
void mr_config_build_outbox(struct mr_config *config);
void mr_config_build_routing(struct mr_config *config);

/* What a replacement (base/rewrite.h) puts between its groups must be good for a topic's name. */
void mr_config_check_topic(struct mr_config *config, const char *option, const char *replacement,
                           uint32_t line);

/* Each fills in the options its name says, from the values, and adds what is wrong with them to the problems.
 * In this order: the sink says what the source must know of its position, the tables count in the memory. */
void mr_config_build_encode(struct mr_config *config); /* and the source's tables */
void mr_config_build_source(struct mr_config *config);
void mr_config_build_registry(struct mr_config *config);
void mr_config_build_sink(struct mr_config *config);
void mr_config_build_pipeline(struct mr_config *config); /* and the log's */
void mr_config_build_http(struct mr_config *config);

/* After all of them: what makes two instances the same pipeline. */
void mr_config_name_pipeline(struct mr_config *config);

#endif
