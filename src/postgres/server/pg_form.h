/* What the publication sends: its operations, whether partitions come by their root, and the
 * filters and column lists of listed tables. The stream keeps it as it was opened with, and a
 * watcher compares: somebody may alter a publication while millrace runs, and nothing in the stream
 * tells of a row that is not sent.
 *
 * PostgreSQL decides by the publication of each transaction's commit (get_rel_sync_entry in
 * replication/pgoutput/pgoutput.c reads the catalog of that place), so no end of the stream brings
 * such rows back; a person has to know. Any thread. */
#pragma once

#include "base/object.h"
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

/* Adds what the stream was opened with to what is stored with the position, and takes up what an
 * earlier process stored. Of a table that has left the publication since, its own part stays known
 * by its name: it was swapped for another one. */
void mr_pg_form_keep(struct mr_pg_form *form, cJSON *stored);
void mr_pg_form_remember(struct mr_pg_form *form, const cJSON *stored);

/* Adds the statement that has the publication send the table as it did, under that name. False: a
 * part of it may not be known. */
bool mr_pg_form_add_back(struct mr_pg_form *form, const struct mr_pg_source_options *options,
                         const struct mr_table_name *table, struct mr_text *sql);

/* Of what an earlier process stored only these, which are not published, are still to be known. */
void mr_pg_form_settle(struct mr_pg_form *form, const struct mr_table_name *unpublished,
                       uint32_t count);

/* What is stored, of a publication that is gone: "publish = 'insert', ..." as WITH takes it (NULL:
 * nothing is stored), and what stood behind the table's name ("": nothing; NULL: not known). */
const char *mr_pg_sent_options(const cJSON *stored);
const char *mr_pg_sent_of_table(const cJSON *stored, const struct mr_table_name *table);

/* When (monotonic; 0: never) a difference was seen last that a start sets right
 * (publication.alter), or refuses. */
int64_t mr_pg_form_refused_ns(const struct mr_pg_form *form);
