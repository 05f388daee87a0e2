/* What the publication sends: its operations, whether partitions come by their root, and the
 * filters and column lists of listed tables. The stream keeps it as it was opened with, and a
 * watcher compares: somebody may alter a publication while millrace runs, and nothing in the stream
 * tells of a row that is not sent.
 *
 * PostgreSQL decides by the publication of each transaction's commit (get_rel_sync_entry in
 * replication/pgoutput/pgoutput.c reads the catalog of that place), so no end of the stream brings
 * such rows back; a person has to know. Any thread. */
#pragma once

#include "postgres/catalog/pg_options.h"

struct mr_pg_form;

struct mr_pg_form *mr_pg_form_new(void);
void mr_pg_form_free(struct mr_pg_form *form); /* takes NULL */

/* Reads it, where nothing is known yet: the rules of a start hold now. */
mr_status mr_pg_form_open(struct mr_pg_form *form, struct mr_pg_conn *conn,
                          const struct mr_pg_source_options *options, struct mr_error *ret_error);

/* Other tables, rows or columns are wanted: what is read next counts. */
void mr_pg_form_forget(struct mr_pg_form *form);

/* Adds what is different now, "a; b"; nothing where all is as it was, or nothing is known. And the
 * statements that take it back, which belong into one transaction: nothing where they are not
 * known. */
mr_status mr_pg_form_compare(struct mr_pg_form *form, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options,
                             struct mr_text *ret_changes, struct mr_text *ret_back,
                             struct mr_error *ret_error);

/* When (monotonic; 0: never) a difference was seen last that a start sets right
 * (publication.alter), or refuses. */
int64_t mr_pg_form_refused_ns(const struct mr_pg_form *form);
