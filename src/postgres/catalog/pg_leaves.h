/* Partitions of tables that the publication sends by their roots, as the catalog has them now. The
 * connection is the caller's. */
#pragma once

#include "postgres/catalog/pg_options.h"

struct mr_root {
    uint32_t oid;
    uint32_t mark; /* not 0; another one after pg_upgrade, which makes it again */
    char *schema, *table;
};

struct mr_leaf {
    uint32_t oid, root;
    uint32_t mark; /* not 0; another one after ATTACH of it, or of a partition that it is below */
    uint32_t filenode;
    /* Somebody has counted the rows in this file (pg_class.reltuples), and found some; after
     * TRUNCATE nobody has, or has found none. */
    bool has_rows;
    char *name; /* "schema.table" */
};

/* Roots in the order of their OIDs, also those without a partition; leaves in the order of theirs.
 * All zero is none. */
struct mr_leaves {
    struct mr_root *roots;
    struct mr_leaf *leaves;
    uint32_t root_count, leaf_count;
};

/* Those of tables that are listed. */
mr_status mr_pg_leaves_read(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                            struct mr_leaves *ret_leaves, struct mr_error *ret_error);
void mr_leaves_done(struct mr_leaves *leaves);

const struct mr_root *mr_leaves_root(const struct mr_leaves *leaves, uint32_t oid); /* or NULL */
const struct mr_leaf *mr_leaves_find(const struct mr_leaves *leaves, uint32_t oid); /* or NULL */

/* Whether it was a table before it was a partition; and if `ret_bounds` is not NULL, a condition in
 * SQL that its rows of the root fulfil and few others, the caller's to free; "": all do. NULL: it
 * is none any more. Waits for who has locked it. */
mr_status mr_pg_leaf_ask(struct mr_pg_conn *conn, uint32_t oid, bool *ret_attached,
                         char **ret_bounds, struct mr_error *ret_error);
