/* What PostgreSQL does for copies: the tables of functions of readers.h, on the stream's claimed connection and others beside it. */
#ifndef MR_COPY_PG_SERVER_H
#define MR_COPY_PG_SERVER_H

#include "copy/readers.h"
#include "ports/source.h"

struct mr_pg_server;

/* `source` is one of mr_pg_source_new's, the caller's, and outlives the server. */
struct mr_pg_server *mr_pg_server_new(struct mr_source *source);
void mr_pg_server_free(struct mr_pg_server *server); /* NULL is fine */

const struct mr_copy_server *mr_pg_server_functions(const struct mr_pg_server *server);

#endif
