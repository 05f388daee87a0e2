/* What the configuration says of columns (columns.*): which are left out, masked, cut or hashed.
 *
 * A rule is about a table by its name, or by that of one that it is or was a partition of
 * (mr_relation.origins): its rows may come by either. Pure; any thread. */
#pragma once

#include "base/pattern.h"
#include "event/event.h"

/* What becomes of columns. The first rule that fits a column holds; a table with an INCLUDE has
 * only the columns that one names. */
enum mr_column_action {
    MR_COLUMN_INCLUDE,
    MR_COLUMN_EXCLUDE,
    MR_COLUMN_MASK,     /* `length` asterisks stand for each value */
    MR_COLUMN_TRUNCATE, /* text is cut after `length` characters */
    MR_COLUMN_HASH,     /* SHA-256 of the salt and the value's text, in hexadecimal */
};

struct mr_column_rule {
    enum mr_column_action action;
    struct mr_table_pattern table;
    struct mr_pattern column;
    const char *topic; /* of the stream alone that goes there; NULL: of all */
    uint32_t length;
    bool is_unsent; /* the publication's list of the table, as configured, lacks the column */
};

struct mr_column_rules {
    const struct mr_column_rule *items;
    uint32_t count;
};

/* Whether it is about the table, or one that it is of, in the stream that goes to `topic` (NULL: to
 * none that the configuration names). */
bool mr_column_rule_is_about(const struct mr_column_rule *rule, const char *topic,
                             const struct mr_relation *relation);

/* The first rule of these kinds about that column; NULL: none. */
const struct mr_column_rule *mr_column_rules_find(const struct mr_column_rules *rules,
                                                  const char *topic,
                                                  const struct mr_relation *relation,
                                                  const char *column, enum mr_column_action first,
                                                  enum mr_column_action last);

/* Whether the table has a list of columns (INCLUDE) that lacks this one. Of several tables that it
 * may be of, each one's list counts, together with its own. */
bool mr_column_rules_leave_out(const struct mr_column_rules *rules, const char *topic,
                               const struct mr_relation *relation, const char *column);

/* Whether a value of that column goes out otherwise than it is, or not at all. Lists keep a key's
 * columns in. */
bool mr_column_rules_hide(const struct mr_column_rules *rules, const char *topic,
                          const struct mr_relation *relation, const char *column, bool is_key);
