#include "postgres/catalog/pg_leaves.h"

#include "postgres/catalog/pg_sql.h"

enum { BOUNDS_MAX = 16 * 1024 }; /* all conditions that are asked for stand in one record */

enum column {
    ROOT_OID,
    ROOT_MARK,
    ROOT_SCHEMA,
    ROOT_TABLE,
    LEAF_OID, /* NULL, as what follows: the root has none */
    LEAF_MARK,
    LEAF_FILENODE,
    LEAF_HAS_ROWS,
    LEAF_NAME,
};

const struct mr_root *mr_leaves_root(const struct mr_leaves *leaves, uint32_t oid)
{
    return mr_search(&oid, leaves->roots, leaves->root_count, sizeof(*leaves->roots),
                     mr_u32_compare);
}

const struct mr_leaf *mr_leaves_find(const struct mr_leaves *leaves, uint32_t oid)
{
    return mr_search(&oid, leaves->leaves, leaves->leaf_count, sizeof(*leaves->leaves),
                     mr_u32_compare);
}

static void add_leaf(struct mr_leaves *leaves, const struct mr_pg_result *result, uint32_t row)
{
    leaves->leaves[leaves->leaf_count++] = (struct mr_leaf){
        .oid = (uint32_t)mr_pg_result_number(result, row, LEAF_OID),
        .root = leaves->roots[leaves->root_count - 1].oid,
        .mark = (uint32_t)mr_pg_result_number(result, row, LEAF_MARK),
        .filenode = (uint32_t)mr_pg_result_number(result, row, LEAF_FILENODE),
        .has_rows = mr_pg_result_true(result, row, LEAF_HAS_ROWS),
        .name = MR_STRDUP(mr_pg_result_value(result, row, LEAF_NAME)),
    };
}

static void pg_leaves_take_row(struct mr_leaves *leaves, const struct mr_pg_source_options *options,
                               const struct mr_pg_result *result, uint32_t row)
{
    uint32_t oid = (uint32_t)mr_pg_result_number(result, row, ROOT_OID);
    const char *schema = mr_pg_result_value(result, row, ROOT_SCHEMA);
    const char *table = mr_pg_result_value(result, row, ROOT_TABLE);
    if (!mr_pg_table_listed(options, mr_slice_of(schema), mr_slice_of(table))) {
        return;
    }
    if (leaves->root_count == 0 || leaves->roots[leaves->root_count - 1].oid != oid) {
        leaves->roots[leaves->root_count++] =
            (struct mr_root){.oid = oid,
                             .mark = (uint32_t)mr_pg_result_number(result, row, ROOT_MARK),
                             .schema = MR_STRDUP(schema),
                             .table = MR_STRDUP(table)};
    }
    if (mr_pg_result_value(result, row, LEAF_OID) != NULL) {
        add_leaf(leaves, result, row);
    }
}

/* A mark is made of the transactions of all links from the root down (pg_inherits.xmin; ATTACH
 * inserts the row, and only DETACH writes it again: commands/tablecmds.c, catalog/pg_inherits.c),
 * and of the root's own, in a row of it that stays (pg_attached.c). VACUUM leaves xmin as it is.
 *
 * Foreign tables have no WAL. libpq holds the answer: of some fifty thousand partitions it is more
 * than it may (pg_conn.h). */
mr_status mr_pg_leaves_read(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                            struct mr_leaves *ret_leaves, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"partitions", "nnssNNNBS", 0, UINT32_MAX};
    const struct mr_pg_result *result;
    struct mr_text sql = {0};
    mr_text_string(&sql, "WITH RECURSIVE ");
    mr_sql_add_sent(&sql, options->publication, NULL, mr_pg_server_version(conn));
    mr_text_string(
        &sql, ", linked(root, oid, mark) AS (SELECT r.oid, r.oid, a.xmin::text::bigint FROM sent s"
              " JOIN pg_class r ON r.oid = s.oid AND r.relkind = 'p'"
              " JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = -6"
              " UNION ALL SELECT l.root, i.inhrelid,"
              " (l.mark * 1000003 + i.xmin::text::bigint) % 4294967291 + 1 FROM linked l"
              " JOIN pg_inherits i ON i.inhparent = l.oid AND NOT i.inhdetachpending)"
              " SELECT r.oid::bigint, k.mark, rn.nspname, r.relname, c.oid::bigint, l.mark,"
              " c.relfilenode::bigint, c.reltuples > 0, n.nspname || '.' || c.relname"
              " FROM linked k JOIN pg_class r ON r.oid = k.oid AND k.oid = k.root"
              " JOIN pg_namespace rn ON rn.oid = r.relnamespace"
              " LEFT JOIN (linked l JOIN pg_class c ON c.oid = l.oid AND c.relkind = 'r'"
              " JOIN pg_namespace n ON n.oid = c.relnamespace) ON l.root = k.root ORDER BY r.oid");
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &result, ret_error));
    uint32_t rows = mr_pg_result_rows(result);
    struct mr_leaves leaves = {.roots = MR_NEW_ARRAY(struct mr_root, rows + 1),
                               .leaves = MR_NEW_ARRAY(struct mr_leaf, rows + 1)};
    for (uint32_t i = 0; i < rows; i++) {
        pg_leaves_take_row(&leaves, options, result, i);
    }
    qsort(leaves.roots, leaves.root_count, sizeof(struct mr_root), mr_u32_compare);
    qsort(leaves.leaves, leaves.leaf_count, sizeof(struct mr_leaf), mr_u32_compare);
    *ret_leaves = leaves;
    return MR_OK;
}

void mr_leaves_done(struct mr_leaves *leaves)
{
    for (uint32_t i = 0; i < leaves->root_count; i++) {
        free(leaves->roots[i].schema);
        free(leaves->roots[i].table);
    }
    for (uint32_t i = 0; i < leaves->leaf_count; i++) {
        free(leaves->leaves[i].name);
    }
    free(leaves->roots);
    free(leaves->leaves);
    *leaves = (struct mr_leaves){0};
}

/* Attached where a link above it is younger than itself (pg_attached.c). The bounds are those of
 * all links (RelationGetPartitionQual in utils/cache/partcache.c); a partition that takes all rows
 * has none. Of a key with expressions they would call functions of others with our rights: then,
 * and where they are too long, rows are found by where they lie, at the price of reading the
 * others' for each chunk. */
mr_status mr_pg_leaf_ask(struct mr_pg_conn *conn, uint32_t oid, bool *ret_attached,
                         char **ret_bounds, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"a partition", "bS", 0, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(
        conn, &shape, &result, ret_error,
        "WITH RECURSIVE up(oid, youngest) AS (SELECT %u::oid, 2147483647 UNION ALL"
        " SELECT i.inhparent, least(u.youngest, CASE WHEN age(i.xmin) < 0 THEN 2147483647"
        " ELSE age(i.xmin) END) FROM up u JOIN pg_inherits i ON i.inhrelid = u.oid)"
        " SELECT (SELECT min(youngest) FROM up) < age(a.xmin), CASE WHEN %s OR EXISTS (SELECT"
        " FROM up JOIN pg_partitioned_table p ON p.partrelid = up.oid AND p.partexprs IS NOT NULL)"
        " THEN NULL ELSE coalesce(pg_get_partition_constraintdef(a.attrelid), '') END"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relispartition"
        " WHERE a.attrelid = %u AND a.attnum = -6",
        oid, ret_bounds == NULL ? "true" : "false", oid));
    bool is_leaf = mr_pg_result_rows(result) == 1;
    *ret_attached = is_leaf && mr_pg_result_true(result, 0, 0);
    if (ret_bounds != NULL) {
        const char *bounds = is_leaf ? mr_pg_result_value(result, 0, 1) : NULL;
        struct mr_text where = {0};
        if (bounds != NULL && strlen(bounds) <= BOUNDS_MAX) {
            mr_text_format(&where, "%s", bounds);
        } else if (is_leaf) {
            mr_text_format(&where, "tableoid = '%u'::oid", oid);
        }
        *ret_bounds = where.data;
    }
    return MR_OK;
}
