/* Types that are not built in, as the catalog has them: what a column of such a type is in the end.
 *
 * The types of the database's columns are read once a connection; one that is not among them is
 * asked for when a relation with it is described. What is read of a type holds for good: its OID is
 * never given to another that is alive, and what a domain is over or an array is of never changes
 * (ALTER TYPE and ALTER DOMAIN have no form that would). Source thread. */
#pragma once

#include "event/event.h"
#include "postgres/catalog/by_oid.h"
#include "postgres/conn/pg_conn.h"

/* Adds the types of all columns of the database, 50,000 at most: where most tables are published,
 * it would take longer to choose those of the published ones. What is known is a table that
 * mr_by_oid_done ends. */
mr_status mr_pg_types_read(struct mr_by_oid *types, struct mr_pg_conn *conn,
                           struct mr_error *ret_error);

/* Adds one type, and those it is made of: mr_pg_types_find finds it then. */
mr_status mr_pg_types_ask(struct mr_by_oid *types, struct mr_pg_conn *conn, uint32_t oid,
                          struct mr_error *ret_error);

/* False: that type was not read. One that the catalog does not have (any more) is text: what it was
 * nobody knows, most are enums, and a value that is left out would be lost. */
bool mr_pg_types_find(const struct mr_by_oid *types, uint32_t oid, int32_t modifier,
                      struct mr_type *ret_type);

/* True when the catalog did not have the type. */
bool mr_pg_types_is_gone(const struct mr_by_oid *types, uint32_t oid);
