/* Tables that were taken out of the publication and added again between two looks, or while no
 * process ran, by name or with their schema: what was written to them meanwhile is not in the
 * stream, and the publication looks as before. Each membership has a number of its own in the
 * catalog (pg_publication_rel.oid, pg_publication_namespace.oid), and a new one a larger one. What
 * millrace itself has set anew in one transaction is no such table (postgres/server/pg_altered.h).
 * One thread, or under the caller's lock. */
#pragma once

#include "postgres/catalog/pg_options.h"

/* All zero is one that has not looked yet. */
struct mr_members_known {
    uint64_t *names; /* hashes of the names that were members at some look, in order */
    uint32_t count, room;
    uint32_t last; /* the largest number that was seen */
};

struct mr_members {
    struct mr_members_known tables, schemas;
};

mr_status mr_members_look(struct mr_members *members, struct mr_pg_conn *conn,
                          const struct mr_pg_source_options *options, struct mr_error *ret_error);

void mr_members_done(struct mr_members *members);
