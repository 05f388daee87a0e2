/* Names as options write them: of tables and columns, alone or as patterns, of hosts, of topics
 * that are made by rule.
 *
 * "schema.table": each part is bare, "quoted" (where it holds a dot or a sign of expressions), an
 * expression that fits the whole name, or * for any. All memory is the configuration's. */
#pragma once

#include "config/build.h"

/* Characters of a name in PostgreSQL: 63 bytes in the database's encoding, which may need fewer of
 * them than UTF-8. */
enum { MR_NAME_MAX = 63 };
size_t mr_names_characters(const char *text);

/* The end of a sentence about a text that is not what is wanted. */
struct mr_reason {
    char text[256];
};

/* From `at` to one of `ends` outside quotes, brackets and braces, or to the end. */
const char *mr_names_end(const char *at, const char *ends);
bool mr_names_is_pattern(const char *text);

/* One part, and a table up to `end`; a bare one is in public. False: it is neither a name nor a
 * pattern; `reason` says why when an expression is wrong, and stays as it is otherwise. */
bool mr_names_pattern(struct mr_config *config, const char *begin, const char *end,
                      struct mr_pattern *ret, struct mr_reason *reason);
bool mr_names_table_pattern(struct mr_config *config, const char *text, const char *end,
                            struct mr_table_pattern *ret, struct mr_reason *reason);

/* A whole text that is a table's pattern. False: the problem is added. */
bool mr_names_take_pattern(struct mr_config *config, uint32_t option, const char *text,
                           struct mr_table_pattern *ret);

/* A table up to `end`, both parts names; `fold`: in lower case unless they are quoted. */
bool mr_names_table(struct mr_config *config, const char *text, const char *end, bool fold,
                    struct mr_table_name *ret);

/* "schema.table:column,column" of each text of a list option, all names. NULL: the problem is
 * added. */
const struct mr_table_key *mr_names_lists(struct mr_config *config, uint32_t option);

/* "table: condition": where the table ends, and the condition, "" where there is none. One that may
 * not be in a query is refused. */
const char *mr_names_condition(struct mr_config *config, uint32_t option, const char *text,
                               const char **ret_table_end);

/* What is wrong with "host:port" or "[v6]:port", as the end of a sentence; NULL: nothing.
 * librdkafka takes a port modulo 65536 and looks for a host named "http" for ever; libcurl says
 * what is wrong only once it is asked. */
const char *mr_names_host_fault(const char *host);

/* Whether what a URL is sent goes to another machine without TLS. */
bool mr_names_in_clear(const char *url);

/* Makes what an option that is set says of names: its text alone is for all. */
void mr_names_rewrite(struct mr_config *config, uint32_t option, struct mr_rewrite *ret);

/* What its text puts between groups must be good for a topic's name. */
void mr_names_check_topic(struct mr_config *config, uint32_t option);
