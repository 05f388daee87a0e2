/* Which columns of which tables the rules hide (mask, cut, hash, leave out), so that a table that
 * changes does not show them.
 *
 * A rule names a table and a column, and both can be renamed, or dropped and made again under other
 * names; then the rule fits nothing, and what it hid would go out as it is. So each version of a
 * table is compared with what was seen of it before, by its OID and by its name: where a hidden
 * column is gone and another column is shown that was not there, nobody can tell these two apart,
 * and nothing of the table goes out. Of a table that was not seen before, a rule that names it and
 * one column of it must find that.
 *
 * What was seen may be stored as JSON and read again, so that it holds for the next process, too.
 * All encoders of a process share one; any thread, a lock is held for a moment and for each version
 * of a table. */
#pragma once

#include "encode/encode.h"
#include "event/kin.h"

enum mr_unmatched {
    MR_UNMATCHED_STOP, /* nothing of the table goes out */
    MR_UNMATCHED_WARN, /* a line in the log */
};

struct mr_hidden;

/* `kin`: the caller's, NULL: none. */
struct mr_hidden *mr_hidden_new(enum mr_unmatched unmatched, const struct mr_column_rules *rules,
                                struct mr_kin *kin);
void mr_hidden_free(struct mr_hidden *hidden); /* takes NULL */

/* A version of a table, of which the columns that `hides` names are hidden. `topic`: of one of the
 * table's streams, or NULL. MR_ERR_POISON: one that was hidden may be among the others. */
mr_status mr_hidden_look(struct mr_hidden *hidden, const struct mr_relation *relation,
                         const char *topic, const bool *hides, struct mr_error *ret_error);

/* Rows of a partition come as those of `root`, of which the columns that `hides` names are hidden:
 * as if they came by the partition's own name, with these hidden. */
mr_status mr_hidden_look_part(struct mr_hidden *hidden, const struct mr_relation *root,
                              const struct mr_relation *part, const char *topic, const bool *hides,
                              struct mr_error *ret_error);

/* A table as the stream will have it first, of which it has had nothing yet: what the rules hide of
 * it is known before somebody renames that. Its columns have numbers. Of many tables some. */
void mr_hidden_learn(struct mr_hidden *hidden, const struct mr_relation *relation);

/* All that was seen, as JSON, the caller's; NULL: nothing is hidden. What is too much to be stored
 * the next process does not know: of a table of these that was altered then nothing goes out. */
char *mr_hidden_format(struct mr_hidden *hidden);

/* Something was seen that `format` has not said yet. Any thread, without the lock. */
bool mr_hidden_owes(const struct mr_hidden *hidden);

/* The stream leaves the cluster, and elsewhere names alone count. A table as the catalog has it,
 * with numbers: what was hidden of it, or of what it is of, is hidden under its name of now, or
 * MR_ERR_POISON, as at its next row; then it is learned. No other thread uses it. */
mr_status mr_hidden_leave(struct mr_hidden *hidden, const struct mr_relation *now,
                          struct mr_error *ret_error);

/* Of tables of which something was hidden, as numbers with commas before them; some twice. */
void mr_hidden_add_oids(struct mr_hidden *hidden, struct mr_text *text);

/* The names, "schema.table", of tables of which something was hidden; some twice. The caller's. */
char **mr_hidden_names(struct mr_hidden *hidden, uint32_t *ret_count);

/* The stream goes on in another cluster, where tables and columns have other numbers. What `here`
 * knows of the table that is named as `now`, and whose partition it was, goes to `there`, by the
 * names of columns; those of `now` have their numbers. No other thread uses the two. */
void mr_hidden_moved(struct mr_hidden *there, struct mr_hidden *here,
                     const struct mr_relation *now);

/* Takes what `format` said, but for columns whose names no rule of now hides there: that somebody
 * has decided. Other rules may have come and gone. What kin stored is taken before. */
void mr_hidden_take(struct mr_hidden *hidden, const char *json);
