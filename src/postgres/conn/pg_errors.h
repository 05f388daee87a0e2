/* What each failure of PostgreSQL means to us, in one table. Inside postgres/ only. */
#pragma once

#include "base/base.h"

/* The class of an error that the server reported; `message` is its primary message, for the few
 * codes that stand for several things. `ret_remedy` gets a sentence to append, or "". */
mr_status mr_pg_error_classify(const char *sqlstate, const char *message, const char **ret_remedy);

/* Instead of the server's message, where that may quote a value of a row; NULL: it does not.
 * Detail, hint and context may at any time, and are never said. `has_place`: it is about a place in
 * the statement's text. `has_context`: it came from within a function, which says what it likes.
 * `is_of_rows`: rows are read, or decoded; a cast then quotes a value in errors of many kinds
 * ("type \"…\" does not exist"). */
struct mr_pg_origin {
    bool has_place, has_context, is_of_rows;
    bool is_raised; /* by RAISE of PL/pgSQL, whose code is whatever it likes, too */
};
const char *mr_pg_error_unquoted(const char *sqlstate, const struct mr_pg_origin *origin);

/* As the first, for one that ends a stream. `is_of_change`: it came from the output plugin, at a
 * change (the manual, "Logical Decoding Output Plugins"). MR_ERR_POISON: it comes again at the same
 * change. */
mr_status mr_pg_stream_error_classify(const char *sqlstate, const char *message, bool is_of_change,
                                      const char **ret_remedy);

/* The message where row-level security would hide rows, for one in any language. */
#define MR_PG_BY_POLICY "row-level security"

/* The same for a connection that was not made. The code decides ("": libpq gives a text alone); an
 * English text that is known has the better remedy. */
mr_status mr_pg_connect_error_classify(const char *sqlstate, const char *message,
                                       const char **ret_remedy);
