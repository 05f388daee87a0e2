/* The publication: made, compared with what is configured of it, and altered where that is allowed.
 *
 * Row filters and column lists (PostgreSQL 15 and later) are PostgreSQL's to judge: what is configured becomes a draft, a
 * publication in a transaction that is rolled back. So its rules are the server's own (CREATE PUBLICATION), and two filters
 * are compared in the server's spelling. Inside postgres/, and for a reload.
 */
#pragma once

#include "postgres/server/pg_rules.h"

/* Makes it for the configured tables, with their filters and lists. */
mr_status mr_pg_publication_create(struct mr_pg_conn *conn,
                                   const struct mr_pg_source_options *options, int version,
                                   struct mr_error *ret_error);

/* Reports what is wrong with the configured filters and lists, and how an existing publication differs. With `change` one
 * that may be altered (options->alter_publication) is altered, in one transaction, unless something is wrong. An error is
 * one of the asking, or of the altering. */
mr_status mr_pg_publication_follow(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                   bool change, struct mr_pg_reporter *to,
                                   struct mr_error *ret_error);

/* Reports as good which filters and lists the existing publication has. */
mr_status mr_pg_publication_describe(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                     struct mr_pg_reporter *to, struct mr_error *ret_error);
