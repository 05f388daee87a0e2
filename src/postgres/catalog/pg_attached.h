/* Partitions that were attached to a table while its existing rows were copied: what they had
 * before is neither copied nor in the stream. The connection is the caller's. */
#pragma once

#include "postgres/catalog/pg_options.h"

struct mr_attached_wish {
    const char *schema, *table; /* below which they are; NULL: any that the publication sends */
    const uint32_t *known;      /* those that were copied, or not to be */
    uint32_t known_count;
    uint32_t since; /* a transaction: older ones ended before the first row; 0: `known` says all */
};

/* Adds their names, "schema.table, schema.table", to `ret_names`, ten at most; to `ret_roots`,
 * whose name the publication sends them by: the same, or their tables'. */
mr_status mr_pg_attached_find(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              const struct mr_attached_wish *wish, struct mr_text *ret_names,
                              struct mr_text *ret_roots, struct mr_error *ret_error);

/* Logs them, where they are others than `*logged` says (NULL: none were), which is set and the
 * caller's. */
mr_status mr_pg_attached_log(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             const struct mr_attached_wish *wish, char **logged,
                             struct mr_error *ret_error);
