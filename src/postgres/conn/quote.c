#include "postgres/conn/quote.h"

static void add_doubled(struct mr_text *sql, const char *value, char quote, bool escapes)
{
    for (; *value != '\0'; value++) {
        if (*value == quote || (escapes && *value == '\\')) {
            mr_text_add(sql, value, 1);
        }
        mr_text_add(sql, value, 1);
    }
}

void mr_sql_add_literal(struct mr_text *sql, const char *value)
{
    bool escapes = strchr(value, '\\') != NULL;
    mr_text_string(sql, escapes ? " E'" : "'");
    add_doubled(sql, value, '\'', escapes);
    mr_text_string(sql, "'");
}

void mr_sql_add_option(struct mr_text *command, const char *value)
{
    mr_text_string(command, "'");
    add_doubled(command, value, '\'', false);
    mr_text_string(command, "'");
}

void mr_sql_add_identifier(struct mr_text *sql, const char *name)
{
    mr_text_string(sql, "\"");
    add_doubled(sql, name, '"', false);
    mr_text_string(sql, "\"");
}

void mr_sql_add_table(struct mr_text *sql, const struct mr_table_name *table)
{
    mr_sql_add_identifier(sql, table->schema);
    mr_text_string(sql, ".");
    mr_sql_add_identifier(sql, table->table);
}

void mr_sql_vformat(struct mr_text *sql, const char *format, va_list arguments)
{
    for (const char *at; (at = strchr(format, '%')) != NULL; format = at + 2) {
        mr_text_add(sql, format, (size_t)(at - format));
        switch (at[1]) {
        case 's':
            mr_text_string(sql, va_arg(arguments, const char *));
            break;
        case 'u':
            mr_text_format(sql, "%u", va_arg(arguments, unsigned));
            break;
        case 'L':
            mr_sql_add_literal(sql, va_arg(arguments, const char *));
            break;
        case 'I':
            mr_sql_add_identifier(sql, va_arg(arguments, const char *));
            break;
        case 'T':
            mr_sql_add_table(sql, va_arg(arguments, const struct mr_table_name *));
            break;
        default:
            MR_ASSERT(at[1] == '%');
            mr_text_string(sql, "%");
        }
    }
    mr_text_string(sql, format);
}

void mr_sql_format(struct mr_text *sql, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    mr_sql_vformat(sql, format, arguments);
    va_end(arguments);
}
