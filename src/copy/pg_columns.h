/* The columns of tables whose rows are copied, as the stream's Relation messages have them. The thread of the connection. */
#ifndef MR_COPY_PG_COLUMNS_H
#define MR_COPY_PG_COLUMNS_H

#include "event/relation.h"
#include "postgres/catalog/pg_options.h"

/* Of the table of that OID, or (0) of all that the publication sends, by ascending OIDs; the caller frees the result. */
mr_status mr_pg_columns_read(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             uint32_t oid, struct mr_pg_result **ret_result,
                             struct mr_error *ret_error);

/* Those of the view's table, which come after row `*at`; that moves behind them. They go into `columns`, which are the view's from now on; names
 * are the result's. */
void mr_pg_columns_take(const struct mr_pg_result *result, uint32_t *at,
                        struct mr_relation_view *view, struct mr_column_view *columns);

/* "COPY (SELECT a, b FROM ONLY t WHERE (filter)", so that a condition or what ends the command may follow. `first`: is read before the
 * columns; NULL: nothing. NULL of a filter: all rows. */
void mr_pg_columns_add_select(struct mr_text *sql, const struct mr_relation *relation,
                              const char *first, const struct mr_table_name *from, bool with_parts,
                              const char *filter);

#endif
