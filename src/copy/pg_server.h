/* What PostgreSQL does for copies: the tables of functions of readers.h, on the stream's claimed
 * connection and others beside it. */
#pragma once

#include "copy/readers.h"
#include "ports/source.h"

/* `source` is one of mr_pg_source_new's, the caller's, and outlives the server. */
const struct mr_copy_server *mr_pg_server_new(struct mr_source *source);
void mr_pg_server_free(const struct mr_copy_server *server);
