/* Names and texts as parts of SQL. Any thread. */
#pragma once

#include <stdarg.h>

#include "base/base.h"

struct mr_table_name {
    const char *schema;
    const char *table;
};

static inline bool mr_table_name_equal(const struct mr_table_name *a, const struct mr_table_name *b)
{
    return strcmp(a->schema, b->schema) == 0 && strcmp(a->table, b->table) == 0;
}

/* A value in a replication command. Its scanner has neither E'' nor standard_conforming_strings: a
 * backslash is one (src/backend/replication/repl_scanner.l, <q>). */
void mr_sql_add_option(struct mr_text *command, const char *value);

/* Quoted so that each server takes the text as it is, whatever standard_conforming_strings is
 * (PostgreSQL documentation, "Lexical Structure", String Constants with C-Style Escapes). */
void mr_sql_add_literal(struct mr_text *sql, const char *value);
void mr_sql_add_identifier(struct mr_text *sql, const char *name);

/* "schema"."table" */
void mr_sql_add_table(struct mr_text *sql, const struct mr_table_name *table);

/* Adds a text in which %L stands for a literal, %I for an identifier, %T for a table (const struct
 * mr_table_name *), and %s, %u and %% for what they are in printf. */
void mr_sql_format(struct mr_text *sql, const char *format, ...);
void mr_sql_vformat(struct mr_text *sql, const char *format, va_list arguments);
