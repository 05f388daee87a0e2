/* Conditions that a person writes (snapshot.where, publication.where, signals, /api/snapshot), as
 * parts of SQL. Any thread.
 *
 * Each is pasted between parentheses of ours. Where its own parentheses match, and none of its
 * texts, names and comments is left open, ours match each other, and what the server's grammar
 * takes between them is one expression (gram.y, c_expr: '(' a_expr ')', or a subquery, which is a
 * value): no UNION, no second condition, no other table's rows. */
#pragma once

#include "base/base.h"

/* Why it is not one expression, by the server's own rules for tokens (manual, "Lexical Structure"),
 * with the remedy; NULL: nothing is against it, or there is none (NULL, ""). Whether it means
 * something, the server says. */
const char *mr_sql_condition_fault(const char *condition);

/* What goes before a fault. */
#define MR_SQL_CONDITION_REFUSED "the condition is not one SQL expression: "
/* A fault that only who asks knows: to others, no text is no condition. */
#define MR_SQL_CONDITION_EMPTY "it is empty; write a condition, or none"

/* Adds the condition in parentheses. It has no fault: whoever takes one asks. */
void mr_sql_add_condition(struct mr_text *sql, const char *condition);
