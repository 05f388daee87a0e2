/* The order of a key's columns in its index, which only the catalog tells: the stream has them in
 * the order of the table.
 *
 * Debezium's keys have that order, as the catalog has it when a table is described in the stream
 * (its PgOutputMessageDecoder.handleRelationMessage; the driver's getPrimaryKeys orders by the
 * place in pg_constraint.conkey). So it is here, and a key that was turned after rows of a backlog
 * turns theirs, too. Columns that were renamed keep their places. Source thread. */
#pragma once

#include "postgres/catalog/pg_keys.h"

/* Of the tables whose keys are in another order than the table; all zero is one that knows
 * nothing. */
struct mr_pg_key_order {
    struct mr_by_oid tables;
    struct mr_pg_horizon horizon; /* of all that were read together */
};

/* Reads of these tables: their OIDs, with commas between. The horizon was read before. */
mr_status mr_pg_key_order_read(struct mr_pg_key_order *order, struct mr_pg_conn *conn,
                               const char *oids, const struct mr_pg_horizon *horizon,
                               struct mr_error *ret_error);

/* True when what is known of the table holds for the transaction; else it is to be asked for. */
bool mr_pg_key_order_covers(const struct mr_pg_key_order *order, uint32_t oid,
                            const struct mr_transaction *transaction);

/* Reads of one table, so that it covers the transaction, whose end the connection sees. */
mr_status mr_pg_key_order_ask(struct mr_pg_key_order *order, struct mr_pg_conn *conn, uint32_t oid,
                              const struct mr_transaction *transaction, struct mr_error *ret_error);

/* Puts the view's key, in the table's order, into that of its index. One that the catalog does not
 * have any more stays as it is. */
void mr_pg_key_order_apply(const struct mr_pg_key_order *order, struct mr_relation *view);

void mr_pg_key_order_done(struct mr_pg_key_order *order);
