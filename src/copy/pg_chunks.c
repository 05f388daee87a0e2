#include "copy/pg_copy.h"

#include "base/clock.h"
#include "base/hash.h"
#include "copy/copy_text.h"
#include "event/kin.h"
#include "postgres/catalog/pg_attached.h"
#include "postgres/catalog/pg_sql.h"

enum { TABLES_MAX = 10000 };

/* A table that is not found for so long has gone. */
#define GONE_NS (INT64_C(5000) * 1000000)

struct mr_chunk_reader {
    struct mr_pg_source_options options;
    struct mr_pg_home *home;
    uint64_t streams; /* of `home`, when `conn` was made */
    int stop_fd;
    struct mr_pg_conn *conn; /* NULL: not open */
    bool is_harmless;        /* its role may only read: known of `conn` */
    struct mr_pg_catalog catalog;
    uint32_t gone;   /* the table that could not be found last; 0: none */
    int64_t gone_ns; /* since when */
    char *attached;  /* partitions that were logged last: a last chunk may be read more than once */
    /* The table that was described last. */
    uint32_t oid; /* 0: none */
    int64_t version;
    struct mr_relation *relation, *former;
    struct mr_layouts layouts; /* of both */
    bool is_root;              /* of partitions, which are read by it */
    char *filter;              /* the publication's; NULL: all rows */
    char *by;                  /* mr_chunk_wish.key */
    /* Columns of the key, in the order of its index: one by another order would sort. */
    uint32_t places[MR_COLUMNS_MAX];
    uint32_t place_count;
    uint64_t form;        /* of key and order */
    struct mr_text key;   /* "a", "b" */
    struct mr_text order; /* what stands after ORDER BY */
    struct mr_text above; /* the operator that says so of keys, */
    struct mr_text equal; /* and that of its schema for equal ones */
};

void mr_chunk_done(struct mr_chunk *chunk)
{
    free(chunk->key);
    free(chunk->snapshot);
    free(chunk->values);
    free(chunk->absent);
    free(chunk->bytes);
    mr_pg_copy_row_free(chunk->large);
    *chunk = (struct mr_chunk){0};
}

struct mr_chunk_reader *mr_pg_chunks_new(const struct mr_pg_source_options *options,
                                         struct mr_pg_home *home, int stop_fd)
{
    struct mr_chunk_reader *reader = MR_NEW(struct mr_chunk_reader);
    reader->options = *options;
    mr_counted_hold(options->captured.memory);
    reader->catalog.options = &reader->options;
    reader->home = home;
    reader->stop_fd = stop_fd;
    return reader;
}

static void chunks_rest(struct mr_chunk_reader *reader)
{
    mr_pg_close(reader->conn);
    reader->conn = NULL;
    reader->is_harmless = false;
}

static void forget_table(struct mr_chunk_reader *reader)
{
    free(reader->filter);
    free(reader->by);
    reader->filter = reader->by = NULL;
    reader->oid = 0;
}

static void chunks_free(struct mr_chunk_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    chunks_rest(reader);
    forget_table(reader);
    mr_text_done(&reader->key);
    mr_text_done(&reader->order);
    mr_text_done(&reader->above);
    mr_text_done(&reader->equal);
    mr_relation_free(&reader->layouts, reader->relation);
    mr_relation_free(&reader->layouts, reader->former);
    mr_layouts_done(&reader->layouts);
    mr_pg_catalog_done(&reader->catalog);
    free(reader->attached);
    mr_counted_release(reader->options.captured.memory);
    free(reader);
}

/* Rows come through the index of the key: a plan that sorts would read the whole table for each
 * chunk. A policy must not hide rows without a word. */
static mr_status pg_chunks_set_settings(struct mr_chunk_reader *reader, const char *before,
                                        struct mr_error *ret_error)
{
    MR_TEXT(settings);
    mr_sql_format(&settings,
                  "SET row_security = off; SET enable_seqscan = off; SET enable_sort = off;"
                  " SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0;"
                  " SET default_transaction_isolation = 'read committed';"
                  " SET statement_timeout = %u",
                  reader->options.chunk_timeout_ms);
    return mr_pg_set_for_rows(reader->conn, before, settings.data, ret_error);
}

static mr_status open_reader(struct mr_chunk_reader *reader, struct mr_error *ret_error)
{
    uint64_t streams = mr_pg_home_streams(reader->home);
    if (reader->conn != NULL && reader->streams == streams) {
        return MR_OK;
    }
    chunks_rest(reader);
    reader->streams = streams;
    MR_TRY(mr_pg_copying_connect_home(&reader->options, reader->home, reader->stop_fd,
                                      &reader->conn, ret_error));
    return pg_chunks_set_settings(reader, "", ret_error);
}

/* Only the pipeline's own tables: others' changes are not passed on either. */
static bool is_listed(const struct mr_chunk_reader *reader, const char *schema, const char *table,
                      const char *root_schema, const char *root_table)
{
    return mr_pg_table_listed(&reader->options, mr_slice_of(schema), mr_slice_of(table)) ||
           (root_schema != NULL && root_table != NULL &&
            mr_pg_table_listed(&reader->options, mr_slice_of(root_schema),
                               mr_slice_of(root_table)));
}

static void warn_of_called(const struct mr_chunk_reader *reader, const struct mr_chunk_table *table,
                           const char *called)
{
    mr_log(MR_LOG_WARN, "copy_calls_functions",
           "indexes or statistics of a table that is to be copied have functions of others, which "
           "are called with the rights of the role that copies; where their owners are not to be "
           "trusted, set snapshot.connection, for a role that may only read, give them to a "
           "superuser, or do not copy the table (docs/security.md)",
           MR_LOG_STR("schema", table->schema), MR_LOG_STR("table", table->table),
           MR_LOG_STR("role", mr_pg_user(reader->conn)), MR_LOG_STR("functions", called));
}

static uint32_t pg_chunks_take_tables(const struct mr_chunk_reader *reader,
                                      const struct mr_pg_result *result,
                                      struct mr_chunk_table *tables)
{
    uint32_t count = 0;
    bool is_logged = false; /* of many partitions one will do */
    for (uint32_t i = 0; i < mr_pg_result_rows(result); i++) {
        const char *names[] = {mr_pg_result_value(result, i, 1), mr_pg_result_value(result, i, 2),
                               mr_pg_result_value(result, i, 4), mr_pg_result_value(result, i, 5)};
        if (!is_listed(reader, names[0], names[1], names[2], names[3])) {
            continue;
        }
        struct mr_chunk_table *one = &tables[count++];
        one->oid = (uint32_t)mr_pg_result_number(result, i, 0);
        one->rows = (uint64_t)mr_pg_result_number(result, i, 3);
        snprintf(one->schema, sizeof(one->schema), "%s", names[0]);
        snprintf(one->table, sizeof(one->table), "%s", names[1]);
        const char *called = mr_pg_result_value(result, i, 6);
        if (called != NULL && mr_pg_result_true(result, i, 7) && !is_logged) {
            is_logged = true;
            warn_of_called(reader, one, called);
        }
    }
    return count;
}

struct description {
    struct mr_pg_columns columns;
    char root_schema[MR_IDENTIFIER_MAX + 1], root_table[MR_IDENTIFIER_MAX + 1];
    struct mr_origins origins;
    uint32_t key[MR_COLUMNS_MAX];
    struct mr_relation view;
};

static mr_status no_key(const struct mr_chunk_table *table, const char *reason,
                        struct mr_error *ret_error)
{
    return mr_fail(
        ret_error, MR_ERR_CONFIG,
        "table %s.%s can't be copied while it is streamed: %s. Choose: a primary key; or "
        "key_columns with columns that are NOT NULL and have a unique index of their own that is "
        "not deferrable; or copy it when the slot is made (snapshot.mode = \"initial\")",
        table->schema, table->table, reason);
}

/* Of each column of a key: what says that it can't be one to read by, and its place in an index. */
enum order_column {
    ORDER_NAME,
    ORDER_FAULT,
    ORDER_ABOVE_SCHEMA, /* NULL, as what follows: there is no such index */
    ORDER_ABOVE,
    ORDER_BELOW_SCHEMA,
    ORDER_BELOW,
    ORDER_COLLATION,
};

/* MR_ERR_PROTOCOL: by a column that nobody asked for. */
static mr_status take_order(struct mr_chunk_reader *reader, const struct mr_relation *view,
                            const struct mr_pg_result *result, struct mr_error *ret_error)
{
    reader->place_count = mr_pg_result_rows(result);
    reader->form = MR_HASH_BEGIN;
    reader->key.len = reader->order.len = reader->above.len = reader->equal.len = 0;
    const char *schema = mr_pg_result_value(result, 0, ORDER_ABOVE_SCHEMA);
    mr_sql_format(&reader->above, " OPERATOR(%I.%s) ", schema,
                  mr_pg_result_value(result, 0, ORDER_ABOVE));
    mr_sql_format(&reader->equal, " OPERATOR(%I.=) ", schema);
    for (uint32_t i = 0; i < reader->place_count; i++) {
        const char *name = mr_pg_result_value(result, i, ORDER_NAME);
        const char *collation = mr_pg_result_value(result, i, ORDER_COLLATION);
        if (!mr_relation_find_column(view, mr_slice_of(name), &reader->places[i])) {
            return mr_fail(ret_error, MR_ERR_PROTOCOL,
                           "the server was asked for the order of a key and answers with another "
                           "column");
        }
        uint32_t type_oid = view->columns[reader->places[i]].type_oid;
        reader->form = mr_hash_add(reader->form, &type_oid, sizeof(type_oid));
        reader->form = mr_hash_add(reader->form, collation, strlen(collation));
        mr_sql_format(&reader->key, "%s%I", i == 0 ? "" : ", ", name);
        mr_sql_format(&reader->order, "%s%I USING OPERATOR(%I.%s)", i == 0 ? "" : ", ", name,
                      mr_pg_result_value(result, i, ORDER_BELOW_SCHEMA),
                      mr_pg_result_value(result, i, ORDER_BELOW));
    }
    reader->form = mr_hash_add(reader->form, reader->above.data, reader->above.len);
    reader->form = mr_hash_add(reader->form, reader->order.data, reader->order.len);
    return MR_OK;
}

/* The order of an index is that of its operator classes, which need not be the one that a bare ">"
 * or ORDER BY means; and with an empty search_path other types' operators are not found at all. So
 * both are named. One name must do for all columns of a comparison of rows (parse_expr.c,
 * make_row_comparison_op).
 *
 * Faults: from 18 on NOT NULL … NOT VALID sets attnotnull, though rows from before may have null,
 * which no comparison finds. A literal of an array or a range of a domain calls the domain's
 * checks, in our name (domain_in in utils/adt/domains.c); one of a domain itself is compared as
 * what the domain is over, and calls none. A literal is read as what the operator compares
 * (binary_oper_exact in parser/parse_oper.c, enforce_generic_type_consistency in
 * parser/parse_coerce.c): where that is another type than the column's, it must read the same
 * texts, which record (of no type's columns) and oid (of a regclass) don't. What a name in the
 * catalog means, and how it is written, changes.
 *
 * From 18 on a key WITHOUT OVERLAPS has a GiST index, which has no order. Of an operator class that
 * is another type's (anyarray, anyenum, anyrange and anymultirange apart) it is known for two that
 * their texts are the same.
 *
 * Of: the table's OID twice, the columns' names, the OID, and twice how many columns they are. */
static const char order_question[] =
    "WITH RECURSIVE held(attnum, oid, inside) AS (SELECT a.attnum, a.atttypid, false"
    " FROM pg_attribute a WHERE a.attrelid = %u AND a.attnum > 0 UNION"
    " SELECT h.attnum, x.oid, h.inside OR t.typtype <> 'd' FROM held h"
    " JOIN pg_type t ON t.oid = h.oid CROSS JOIN LATERAL (SELECT t.typbasetype AS oid"
    " WHERE t.typtype = 'd' UNION ALL SELECT t.typelem WHERE t.typtype <> 'd'"
    " AND t.typelem <> 0 UNION ALL SELECT g.rngsubtype FROM pg_range g"
    " WHERE t.oid IN (g.rngtypid, g.rngmultitypid) UNION ALL SELECT c.atttypid"
    " FROM pg_attribute c WHERE t.typrelid <> 0 AND c.attrelid = t.typrelid"
    " AND c.attnum > 0 AND NOT c.attisdropped) x),"
    " kinds AS MATERIALIZED (SELECT h.attnum, h.inside, t.typtype, t.oid,"
    " t.typtype = 'b' AND t.typname LIKE 'reg%%'"
    " AND t.typnamespace = 'pg_catalog'::regnamespace AS names"
    " FROM held h JOIN pg_type t ON t.oid = h.oid),"
    " wanted AS (SELECT a.attnum, a.attname, a.attcollation, k.oid AS base, CASE"
    " WHEN NOT a.attnotnull OR EXISTS (SELECT FROM pg_constraint n WHERE n.conrelid = a.attrelid"
    " AND n.contype = 'n' AND NOT n.convalidated AND n.conkey[1] = a.attnum)"
    " THEN 'can hold nulls (also where NOT NULL is NOT VALID)'"
    " WHEN EXISTS (SELECT FROM kinds d WHERE d.attnum = a.attnum AND d.inside"
    " AND d.typtype = 'd')"
    " THEN 'holds domains within arrays, ranges or composite types, whose checks would be called'"
    " WHEN k.typtype = 'c' THEN 'is of a composite type, whose texts can''t be compared'"
    " WHEN EXISTS (SELECT FROM kinds r WHERE r.attnum = a.attnum AND r.names)"
    " THEN 'is or holds the name of something in the catalog, which may change' END AS fault"
    " FROM pg_attribute a JOIN kinds k ON k.attnum = a.attnum AND NOT k.inside"
    " AND k.typtype <> 'd' WHERE a.attrelid = %u AND NOT a.attisdropped"
    " AND a.attname = ANY (ARRAY[%s]::text[])),"
    " places AS (SELECT i.indexrelid, p.at, w.attnum, gn.nspname AS gs,"
    " g.oprname AS g, ln.nspname AS ls, l.oprname AS l,"
    " o.opcintype = w.base OR o.opcintype IN ('anyarray'::regtype, 'anyenum'::regtype,"
    " 'anyrange'::regtype, (SELECT oid FROM pg_type WHERE typname = 'anymultirange'))"
    " OR (w.base, o.opcintype) IN (('varchar'::regtype, 'text'::regtype),"
    " ('cidr'::regtype, 'inet'::regtype)) AS fits"
    " FROM pg_index i CROSS JOIN LATERAL"
    " generate_series(0, i.indnkeyatts - 1) p(at) JOIN wanted w ON w.attnum = i.indkey[p.at]"
    " AND w.attcollation = i.indcollation[p.at] JOIN pg_opclass o ON o.oid = i.indclass[p.at]"
    " JOIN pg_am m ON m.oid = o.opcmethod AND m.amname = 'btree'"
    " JOIN pg_amop ga ON ga.amopfamily = o.opcfamily AND ga.amoplefttype = o.opcintype"
    " AND ga.amoprighttype = o.opcintype AND ga.amopstrategy = 5"
    " JOIN pg_operator g ON g.oid = ga.amopopr JOIN pg_namespace gn ON gn.oid = g.oprnamespace"
    " JOIN pg_amop la ON la.amopfamily = o.opcfamily AND la.amoplefttype = o.opcintype"
    " AND la.amoprighttype = o.opcintype AND la.amopstrategy = 1"
    " JOIN pg_operator l ON l.oid = la.amopopr JOIN pg_namespace ln ON ln.oid = l.oprnamespace"
    " WHERE i.indrelid = %u AND i.indisunique AND i.indimmediate AND i.indisvalid"
    " AND i.indislive AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = %u),"
    " chosen AS (SELECT indexrelid FROM places GROUP BY 1 HAVING count(DISTINCT attnum) = %u"
    " ORDER BY NOT bool_and(fits), count(DISTINCT (gs, g, ls, l)), 1 LIMIT 1)"
    " SELECT w.attname, coalesce(w.fault, CASE WHEN NOT p.fits"
    " THEN 'is compared as another type than its own' END), p.gs, p.g, p.ls, p.l,"
    " w.attcollation::text FROM wanted w LEFT JOIN (places JOIN chosen USING (indexrelid)) p"
    " ON p.attnum = w.attnum ORDER BY p.at, w.attnum";

static bool has_operators(const struct mr_pg_result *order)
{
    for (uint32_t i = 0; i < mr_pg_result_rows(order); i++) {
        for (uint32_t c = ORDER_ABOVE_SCHEMA; c <= ORDER_BELOW; c++) {
            if (mr_pg_result_value(order, i, c) == NULL) {
                return false;
            }
        }
    }
    return true;
}

static bool pg_chunks_find_fault(const struct mr_pg_result *order, uint32_t count,
                                 struct mr_text *reason)
{
    if (mr_pg_result_rows(order) != count) {
        mr_text_string(
            reason,
            "a column by which its rows would be read is named twice, or is not there any more");
        return true;
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *fault = mr_pg_result_value(order, i, ORDER_FAULT);
        if (fault != NULL) {
            mr_text_format(reason, "column \"%s\", by which its rows would be read, %s",
                           mr_pg_result_value(order, i, ORDER_NAME), fault);
            return true;
        }
    }
    if (!has_operators(order)) {
        mr_text_string(reason, "there is no unique B-tree index of these columns alone, in "
                               "their collation, that is not deferrable and has no condition");
        return true;
    }
    for (uint32_t i = 1; i < count; i++) {
        for (uint32_t c = ORDER_ABOVE_SCHEMA; c <= ORDER_BELOW; c++) {
            if (strcmp(mr_pg_result_value(order, 0, c), mr_pg_result_value(order, i, c)) != 0) {
                mr_text_format(
                    reason,
                    "the columns by which its rows would be read are ordered by several operators, "
                    "such as \"%s.%s\" and \"%s.%s\", and rows are compared by one; name other "
                    "columns to read it by (--key, surrogate-key)",
                    mr_pg_result_value(order, 0, ORDER_BELOW_SCHEMA),
                    mr_pg_result_value(order, 0, ORDER_BELOW),
                    mr_pg_result_value(order, i, ORDER_BELOW_SCHEMA),
                    mr_pg_result_value(order, i, ORDER_BELOW));
                return true;
            }
        }
    }
    return false;
}

static mr_status find_order(struct mr_chunk_reader *reader, const struct mr_relation *view,
                            const struct mr_chunk_table *table, const uint32_t *columns,
                            uint32_t count, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the order of a key", "sSSSSSs", 0, MR_COLUMNS_MAX};
    MR_TEXT(names);
    for (uint32_t i = 0; i < count; i++) {
        mr_sql_format(&names, i == 0 ? "%L" : ",%L", view->columns[columns[i]].name);
    }
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(reader->conn, &shape, &result, ret_error, order_question, table->oid,
                      table->oid, names.data, table->oid, count, count));
    MR_TEXT(reason);
    return pg_chunks_find_fault(result, count, &reason)
               ? no_key(table, reason.data, ret_error)
               : take_order(reader, view, result, ret_error);
}

/* The columns of a list of names, by their places; they are none twice where an index has as
 * many. */
static mr_status find_named(const struct mr_relation *view, const struct mr_chunk_table *table,
                            const char *names, uint32_t *ret_columns, uint32_t *ret_count,
                            struct mr_error *ret_error)
{
    uint32_t count = 0;
    for (const char *at = names; count < view->column_count;) {
        at += strspn(at, " ");
        size_t len = strcspn(at, ",");
        const char *next = at[len] == ',' ? at + len + 1 : NULL;
        while (len > 0 && at[len - 1] == ' ') {
            len--;
        }
        mr_slice name = {.data = (const uint8_t *)at, .len = len};
        uint32_t column;
        if (!mr_relation_find_column(view, name, &column)) {
            return mr_fail(ret_error, MR_ERR_CONFIG,
                           "table %s.%s has no column \"%.*s\" to be read by, or the publication "
                           "leaves it out",
                           table->schema, table->table, (int)len, at);
        }
        ret_columns[count++] = column;
        if (next == NULL) {
            *ret_count = count;
            return MR_OK;
        }
        at = next;
    }
    return mr_fail(ret_error, MR_ERR_CONFIG,
                   "table %s.%s has fewer columns than it is to be read by", table->schema,
                   table->table);
}

/* The key as the stream has it; one that the table lacks is refused. Rows may be read by other
 * columns (`by`), but the key must be a unique one all the same: it is what tells which row of a
 * chunk the stream has had. */
static mr_status find_orders(struct mr_chunk_reader *reader, struct description *description,
                             const struct mr_chunk_table *table, const char *by,
                             struct mr_error *ret_error)
{
    struct mr_relation *view = &description->view;
    MR_TRY(mr_pg_catalog_describe_now(&reader->catalog, reader->conn, view, ret_error));
    if (view->key_count == 0) {
        return no_key(table, "it has no key by which its rows could be read in order", ret_error);
    }
    MR_TRY(find_order(reader, view, table, view->key_columns, view->key_count, ret_error));
    if (by == NULL) {
        return MR_OK;
    }
    uint32_t columns[MR_COLUMNS_MAX];
    uint32_t count;
    MR_TRY(find_named(view, table, by, columns, &count, ret_error));
    MR_TRY(find_order(reader, view, table, columns, count, ret_error));
    reader->by = MR_STRDUP(by);
    return MR_OK;
}

static void keep_relation(struct mr_chunk_reader *reader, const struct mr_relation *view)
{
    if (reader->relation == NULL || reader->relation->oid != view->oid ||
        !mr_relation_matches(reader->relation, view)) {
        mr_relation_free(&reader->layouts, reader->former);
        reader->former = reader->relation;
        reader->relation = mr_relation_new(&reader->layouts, view);
    }
}

/* It may come back: some give a table another name for a moment. */
static mr_status table_gone(struct mr_chunk_reader *reader, const struct mr_chunk_table *table,
                            struct mr_error *ret_error)
{
    int64_t now_ns = mr_monotonic_ns();
    if (reader->gone != table->oid) {
        reader->gone = table->oid;
        reader->gone_ns = now_ns;
    }
    return mr_fail(
        ret_error, now_ns - reader->gone_ns < GONE_NS ? MR_ERR_TRANSIENT : MR_ERR_CONFIG,
        "table %s.%s was dropped, renamed, or taken out of the publication while its rows "
        "were copied",
        table->schema, table->table);
}

static mr_status pg_chunks_read_table(struct mr_chunk_reader *reader,
                                      const struct mr_chunk_table *table,
                                      struct description *description, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the table to copy", "ssSnSS", 0, 1};
    const struct mr_pg_result *result;
    struct mr_text sql = {0};
    mr_text_string(&sql, "WITH ");
    mr_sql_add_sent(&sql, reader->options.publication, NULL, mr_pg_server_version(reader->conn));
    mr_sql_format(&sql,
                  " SELECT c.relreplident, c.relkind, pg_get_expr(s.qual, s.oid),"
                  " coalesce(r.oid, 0)::bigint, n.nspname, r.relname FROM sent s JOIN pg_class c "
                  "ON c.oid = s.oid LEFT JOIN pg_class r"
                  " ON c.relispartition AND r.oid = pg_partition_root(c.oid) LEFT JOIN"
                  " pg_namespace n ON n.oid = r.relnamespace WHERE c.oid = %u",
                  table->oid);
    MR_TRY(mr_pg_ask(reader->conn, &sql, &shape, &result, ret_error));
    if (mr_pg_result_rows(result) == 0) {
        return table_gone(reader, table, ret_error);
    }
    const char *filter = mr_pg_result_value(result, 0, 2);
    reader->filter = filter == NULL ? NULL : MR_STRDUP(filter);
    reader->is_root = mr_pg_result_value(result, 0, 1)[0] == 'p';
    description->view = (struct mr_relation){
        .oid = table->oid,
        .schema = table->schema,
        .table = table->table,
        .identity = (enum mr_replica_identity)mr_pg_result_value(result, 0, 0)[0],
        .columns = description->columns.columns,
        .key_columns = description->key,
    };
    struct mr_origins *origins = &description->origins;
    if (mr_pg_result_value(result, 0, 5) == NULL) {
        MR_TRY(mr_pg_captured_guess(reader->conn, &reader->options, table->oid, ret_error));
    } else { /* the rules for that are about it, too */
        snprintf(description->root_schema, sizeof(description->root_schema), "%s",
                 mr_pg_result_value(result, 0, 4));
        snprintf(description->root_table, sizeof(description->root_table), "%s",
                 mr_pg_result_value(result, 0, 5));
        origins->count = 1;
        origins->items[0] = (struct mr_origin){.oid = (uint32_t)mr_pg_result_number(result, 0, 3),
                                               .schema = description->root_schema,
                                               .table = description->root_table};
    }
    description->view.is_part =
        mr_kin_find(reader->options.kin, table->oid, origins) && origins->count == 0;
    description->view.origins = origins->items;
    description->view.origin_count = origins->count;
    MR_TRY(mr_pg_columns_read(reader->conn, &reader->options, table->oid, &description->columns,
                              ret_error));
    bool has_columns = description->columns.oid == table->oid;
    description->view.column_count = has_columns ? description->columns.count : 0;
    description->view.attributes = description->columns.attributes;
    description->view.attribute_count = description->view.column_count;
    return MR_OK;
}

static mr_status pg_chunks_describe(struct mr_chunk_reader *reader,
                                    const struct mr_chunk_table *table, const char *by,
                                    const int64_t *version, struct mr_error *ret_error)
{
    MR_FREED struct description *description = MR_NEW(struct description);
    forget_table(reader);
    mr_status status = pg_chunks_read_table(reader, table, description, ret_error);
    status = MR_THEN(status, find_orders(reader, description, table, by, ret_error));
    if (status == MR_OK && version != NULL) {
        keep_relation(reader, &description->view);
        reader->oid = table->oid;
        reader->version = *version;
    } else {
        forget_table(reader);
    }
    return status;
}

static mr_status chunks_number(struct mr_chunk_reader *reader, uint32_t *ret_xid,
                               struct mr_error *ret_error)
{
    MR_TRY(open_reader(reader, ret_error));
    int64_t number;
    MR_TRY(mr_pg_ask_number(reader->conn, "a transaction number", 'n', &number, ret_error,
                            "SELECT mod((CASE WHEN pg_is_in_recovery() THEN"
                            " pg_snapshot_xmax(pg_current_snapshot()) ELSE pg_current_xact_id() END"
                            ")::text::numeric, 4294967296)::bigint"));
    *ret_xid = (uint32_t)number;
    return MR_OK;
}

/* A snapshot, and the end of the WAL as read after it.
 *
 * A standby shows a transaction as ended when it replays its commit record, and sends that only
 * then (walsender.c, WalSndWaitForWal), so a snapshot sees all that the stream has had; of the
 * others it does not tell which it sees (procarray.c, GetSnapshotData: xip stays empty). All that
 * it sees was received, but the record may not be replayed to its end. */
static const char of_primary[] = "pg_current_snapshot()::text, pg_current_wal_insert_lsn()";
static const char of_standby[] =
    "format('%1$s:%1$s:', pg_snapshot_xmax(pg_current_snapshot())),"
    " CASE WHEN pg_is_in_recovery() AND EXISTS (SELECT FROM pg_stat_wal_receiver)"
    " AND pg_last_wal_receive_lsn() >= pg_last_wal_replay_lsn() THEN pg_last_wal_receive_lsn() END";

static mr_status unknown_end(struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_TRANSIENT,
                   "the standby does not stream from its primary now (it reads an archive, or was "
                   "promoted), so the end of its WAL is not known");
}

static bool is_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static mr_status may_not_read(const struct mr_chunk_reader *reader,
                              const struct mr_chunk_table *table, struct mr_error *ret_error)
{
    struct mr_error reason = *ret_error;
    const char *user = mr_pg_user(reader->conn);
    MR_TEXT(remedy);
    mr_sql_format(&remedy, "GRANT USAGE ON SCHEMA %I TO %I; GRANT SELECT ON %I.%I TO %I",
                  table->schema, user, table->schema, table->table, user);
    return mr_fail(ret_error, MR_ERR_AUTH, "\"%s\" may not read it: %s; %s", user, reason.text,
                   remedy.data);
}

/* The snapshot is taken before the query runs, and with it the functions. The last value is another
 * one when a catalog row of the table is: of itself, its columns, its indexes, its place in
 * publications; NULL where the name, which is locked, stands for something else by now: what is
 * read is read by name. */
static mr_status pg_chunks_begin_chunk(struct mr_chunk_reader *reader,
                                       const struct mr_chunk_wish *wish, struct mr_chunk *chunk,
                                       struct mr_error *ret_error)
{
    const struct mr_chunk_table *table = wish->table;
    static const struct mr_pg_shape shape = {"a chunk's snapshot", "sLN", 1, 1};
    mr_status status = mr_pg_commandf(reader->conn, MR_PG_CHANGE_MS, ret_error,
                                      "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
                                      " LOCK TABLE ONLY %I.%I IN ACCESS SHARE MODE",
                                      table->schema, table->table);
    if (status == MR_ERR_AUTH) {
        return may_not_read(reader, table, ret_error);
    }
    if (status == MR_ERR_CONFIG &&
        mr_error_is(ret_error, "42P01|3F000")) { /* a table or a schema of that name */
        return table_gone(reader, table, ret_error);
    }
    MR_TRY(status);
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(
        reader->conn, &shape, &result, ret_error,
        "SELECT %s, (SELECT hashtextextended(concat_ws(';', c.xmin,"
        " (SELECT string_agg(a.xmin::text, ',' ORDER BY a.attnum) FROM pg_attribute a"
        " WHERE a.attrelid = c.oid AND a.attnum > 0),"
        " (SELECT string_agg(concat(i.indexrelid, ' ', i.xmin), ',' ORDER BY i.indexrelid)"
        " FROM pg_index i WHERE i.indrelid = c.oid),"
        " (SELECT string_agg(concat(p.oid, ' ', p.xmin), ',' ORDER BY p.oid)"
        " FROM pg_publication_rel p WHERE p.prrelid = c.oid)), 0)"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = %u AND c.relkind IN ('r', 'p') AND n.nspname = %L AND c.relname = %L)",
        mr_pg_is_standby(reader->conn) ? of_standby : of_primary, table->oid, table->schema,
        table->table));
    if (mr_pg_result_value(result, 0, 1) == NULL) {
        return unknown_end(ret_error);
    }
    free(chunk->snapshot);
    chunk->snapshot = MR_STRDUP(mr_pg_result_value(result, 0, 0));
    chunk->wal_end = mr_pg_result_lsn(result, 0, 1);
    int64_t version = mr_pg_result_number(result, 0, 2);
    if (mr_pg_result_value(result, 0, 2) == NULL) {
        return table_gone(reader, table, ret_error);
    }
    bool is_known = reader->oid == table->oid && reader->version == version &&
                    is_same_text(reader->by, wish->key);
    if (!is_known) {
        MR_TRY(pg_chunks_describe(reader, table, wish->key, &version, ret_error));
    }
    reader->gone = 0; /* it is there, and published */
    return MR_OK;
}

static void add_chunk(struct mr_text *sql, const struct mr_chunk_reader *reader,
                      const struct mr_chunk_wish *wish, bool is_anew)
{
    const struct mr_table_name from = {.schema = wish->table->schema, .table = wish->table->table};
    mr_pg_columns_add_select(sql, reader->relation, NULL, &from, reader->is_root, reader->filter);
    const char *joint = reader->filter != NULL ? " AND " : " WHERE ";
    if (wish->where != NULL) {
        mr_text_string(sql, joint);
        mr_sql_add_condition(sql, wish->where);
        joint = " AND ";
    }
    if (wish->after != NULL && !is_anew) {
        mr_sql_format(sql, "%sROW(%s)%sROW(", joint, reader->key.data, reader->above.data);
        for (uint32_t i = 0; i < wish->after_count; i++) {
            mr_sql_format(sql, i == 0 ? "%L" : ", %L", wish->after[i]);
        }
        mr_text_string(sql, ")");
    }
    mr_sql_format(sql, " ORDER BY %s LIMIT %u) TO STDOUT", reader->order.data, wish->rows_max);
}

static struct mr_datum *next_values(struct mr_chunk *chunk)
{
    uint32_t columns = chunk->relation->column_count;
    size_t used = (size_t)chunk->rows * columns;
    if (chunk->value_capacity < used + columns) {
        chunk->value_capacity = 2 * (used + columns);
        chunk->values = MR_REALLOC(chunk->values, chunk->value_capacity * sizeof(struct mr_datum));
    }
    return chunk->values + used;
}

/* Takes the row, or its bytes: there is room for those of a chunk, and the row that has none is its
 * last. */
static mr_status keep_row(struct mr_chunk *chunk, uint8_t *row, size_t len, size_t bytes_max,
                          struct mr_error *ret_error)
{
    struct mr_datum *values = next_values(chunk);
    if (len <= bytes_max - chunk->len) {
        memcpy(chunk->bytes + chunk->len, row, len);
        mr_pg_copy_row_free(row);
        row = chunk->bytes + chunk->len;
    } else {
        chunk->large = row;
    }
    bool good = mr_copy_text_decode(row, len, values, chunk->relation->column_count);
    for (uint32_t i = 0; good && i < chunk->key_count; i++) {
        good = values[chunk->key[i]].kind == MR_DATUM_TEXT;
    }
    if (!good) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server sends a row that is not in COPY's text form, or has no key");
    }
    chunk->len += len;
    chunk->rows++;
    return MR_OK;
}

static mr_status too_large(const struct mr_chunk_wish *wish, size_t len, struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_CONFIG,
                   "a row takes %zu bytes, and one that is copied while the stream runs may take "
                   "%zu, so that it fits into pipeline.memory; raise that, or lower "
                   "pipeline.change_max, or leave the row out by a condition, or copy it when the "
                   "slot is made (snapshot.mode = \"initial\")",
                   len, wish->row_bytes_max);
}

static bool is_full(const struct mr_chunk *chunk, const struct mr_chunk_wish *wish)
{
    size_t values = (size_t)chunk->rows * chunk->relation->column_count;
    return chunk->len + values * sizeof(struct mr_datum) >= wish->bytes_max;
}

/* MR_FULL: the bytes were reached, and rows may be left in the connection. */
static mr_status pg_chunks_read_rows(struct mr_chunk_reader *reader,
                                     const struct mr_chunk_wish *wish, struct mr_chunk *chunk,
                                     struct mr_error *ret_error)
{
    for (;;) {
        uint8_t *row;
        size_t len;
        mr_status status = mr_pg_copy_next(reader->conn, &row, &len, ret_error);
        if (status != MR_OK) {
            return status == MR_END ? MR_OK : status;
        }
        if (chunk->rows == wish->rows_max) {
            status = mr_fail(ret_error, MR_ERR_PROTOCOL,
                             "the server was asked for %u rows and sends more", wish->rows_max);
        } else if (wish->row_bytes_max != 0 && len > wish->row_bytes_max) {
            status = too_large(wish, len, ret_error);
        }
        if (status != MR_OK) {
            mr_pg_copy_row_free(row);
            return status;
        }
        MR_TRY(keep_row(chunk, row, len, wish->bytes_max, ret_error));
        if (is_full(chunk, wish) && chunk->rows < wish->rows_max) {
            return MR_FULL;
        }
    }
}

/* Their columns must be those of the table's key: else the key is another one than when the topic
 * was compared. */
static mr_status pg_chunks_find_key(const struct mr_chunk_wish *wish,
                                    const struct mr_relation *relation, uint32_t *ret_columns,
                                    struct mr_error *ret_error)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < relation->key_count && wish->keys->column_count == relation->key_count;
         i++) {
        const char *name = relation->columns[relation->key_columns[i]].name;
        uint32_t at = 0;
        while (at < relation->key_count && strcmp(wish->keys->texts[at], name) != 0) {
            at++;
        }
        if (at < relation->key_count) {
            ret_columns[at] = relation->key_columns[i];
            found++;
        }
    }
    return found == relation->key_count
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG,
                         "its key has other columns than the keys that are to be repaired; compare "
                         "its topic again (millrace verify)");
}

static bool has_key(const struct mr_chunk *chunk, const char *const *texts, const uint32_t *columns,
                    uint32_t count)
{
    const struct mr_datum *row = mr_chunk_row(chunk, chunk->rows - 1);
    uint32_t i = 0;
    while (i < count &&
           mr_slice_equal((mr_slice){.data = row[columns[i]].data, .len = row[columns[i]].len},
                          mr_slice_of(texts[i]))) {
        i++;
    }
    return i == count;
}

/* In the place of a row that is not there, its key; of one that is not to be deleted either, if it
 * is not `is_absent`. */
static void add_absent(struct mr_chunk *chunk, const char *const *texts, const uint32_t *columns,
                       uint32_t count, bool is_absent)
{
    struct mr_datum *values = next_values(chunk);
    for (uint32_t i = 0; i < chunk->relation->column_count; i++) {
        values[i] = (struct mr_datum){.kind = MR_DATUM_NULL};
    }
    for (uint32_t i = 0; i < count; i++) {
        values[columns[i]] = (struct mr_datum){.kind = MR_DATUM_TEXT,
                                               .data = (const uint8_t *)texts[i],
                                               .len = (uint32_t)strlen(texts[i])};
    }
    chunk->absent[chunk->rows++] = is_absent;
}

/* What a domain is over, where that was looked up. */
static struct mr_type pg_chunks_type_of(const struct mr_column *column)
{
    return column->type.kind == MR_TYPE_BUILT_IN
               ? column->type
               : (struct mr_type){.oid = column->type_oid, .modifier = column->type_modifier};
}

/* Whether two texts of a value that the server calls equal may be one in an event: 1.5 and 1.50, a
 * day and 24 hours. */
static bool has_equals(const struct mr_relation *relation)
{
    enum { INTERVAL = 1186, NUMERIC = 1700 }; /* pg_type.dat */
    bool has = false;
    for (uint32_t i = 0; i < relation->key_count; i++) {
        uint32_t oid = pg_chunks_type_of(&relation->columns[relation->key_columns[i]]).oid;
        has = has || oid == INTERVAL || oid == NUMERIC;
    }
    return has;
}

/* The types of the key's columns, as they are cast to; null: one that is not built in, whose
 * owner's checks a cast would call. Where events have values in forms of their own, digits that a
 * column would not keep must not make a second text of a value. */
static mr_status ask_types(struct mr_chunk_reader *reader, const struct mr_chunk_wish *wish,
                           const uint32_t *columns, struct mr_pg_result **ret_types,
                           struct mr_error *ret_error)
{
    const struct mr_relation *relation = reader->relation;
    char kinds[MR_COLUMNS_MAX + 1];
    memset(kinds, 'S', relation->key_count);
    kinds[relation->key_count] = '\0';
    struct mr_text sql = {0};
    for (uint32_t i = 0; i < relation->key_count; i++) {
        const struct mr_type type = pg_chunks_type_of(&relation->columns[columns[i]]);
        mr_text_string(&sql, i == 0 ? "SELECT " : ", ");
        if (type.oid < MR_FIRST_USER_OID) {
            mr_text_format(&sql, "format_type(%u, %d)", type.oid,
                           wish->is_converted ? type.modifier : -1);
        } else {
            mr_text_string(&sql, "NULL");
        }
    }
    const struct mr_pg_shape shape = {"the types of a key", kinds, 1, 1};
    return mr_pg_query(reader->conn, &sql, &shape, ret_types, ret_error);
}

/* Whether the server itself would write the key so. Another text may stand for a value that a row
 * has, and its event's key be the row's. */
static mr_status is_as_written(struct mr_chunk_reader *reader, const struct mr_chunk_wish *wish,
                               const char *const *texts, const uint32_t *columns, bool *ret_is,
                               struct mr_error *ret_error)
{
    const struct mr_relation *relation = reader->relation;
    const struct mr_table_name table = {.schema = wish->table->schema, .table = wish->table->table};
    struct mr_pg_result *types;
    int64_t is_as_written = 0;
    MR_TRY(ask_types(reader, wish, columns, &types, ret_error));
    MR_TEXT(sql);
    for (uint32_t i = 0; i < relation->key_count; i++) {
        const char *type = mr_pg_result_value(types, 0, i);
        mr_sql_format(&sql, i == 0 ? "SELECT format('%%s', " : " AND format('%%s', ");
        if (type != NULL) {
            mr_sql_format(&sql, "CAST(%L AS %s)", texts[i], type);
        } else { /* a literal becomes what the column is over */
            mr_sql_format(&sql, "CASE WHEN true THEN %L ELSE (NULL::%T).%I END", texts[i], &table,
                          relation->columns[columns[i]].name);
        }
        mr_sql_format(&sql, ") = %L", texts[i]);
    }
    mr_pg_result_free(types);
    mr_status status = mr_pg_ask_number(reader->conn, "a key's text", 'b', &is_as_written,
                                        ret_error, "%s", sql.data);
    *ret_is = is_as_written != 0;
    return status == MR_ERR_CONFIG /* whose words may have the key */
               ? mr_fail(ret_error, status, "the server refuses a key")
               : status;
}

/* Whether a row may have the key. None has a value that its column's type does not take: a label of
 * an enum that was renamed since, a number of a column that has become narrower. The server says so
 * before it reads (class 22, of the literals' input functions), and the transaction goes on after
 * it. */
static mr_status ask_possible(struct mr_chunk_reader *reader, const struct mr_table_name *from,
                              const char *const *texts, const uint32_t *columns, bool *ret_is,
                              struct mr_error *ret_error)
{
    const struct mr_relation *relation = reader->relation;
    struct mr_error error = {0};
    MR_TEXT(sql);
    mr_sql_format(&sql, "SAVEPOINT k; SELECT FROM %T", from);
    for (uint32_t i = 0; i < relation->key_count; i++) {
        mr_sql_format(&sql, "%s%I%s%L", i == 0 ? " WHERE " : " AND ",
                      relation->columns[columns[i]].name, reader->equal.data, texts[i]);
    }
    mr_text_string(&sql, " LIMIT 0; RELEASE k");
    mr_status status = mr_pg_command(reader->conn, sql.data, MR_PG_ANSWER_MS, &error);
    *ret_is = status == MR_OK;
    if (mr_error_is(&error, "22*")) {
        return mr_pg_command(reader->conn, "ROLLBACK TO k", MR_PG_ANSWER_MS, ret_error);
    }
    if (status != MR_OK && error.sqlstate[0] != '\0') { /* its words may have the key */
        mr_error_refused(ret_error, status, error.sqlstate, "the server refuses a key (%s)",
                         error.sqlstate);
    } else if (status != MR_OK) {
        *ret_error = error;
    }
    return status;
}

static mr_status pg_chunks_read_key(struct mr_chunk_reader *reader,
                                    const struct mr_chunk_wish *wish, const char *const *texts,
                                    const uint32_t *columns, struct mr_chunk *chunk,
                                    struct mr_error *ret_error)
{
    const struct mr_relation *relation = reader->relation;
    const struct mr_table_name from = {.schema = wish->table->schema, .table = wish->table->table};
    uint32_t before = chunk->rows;
    size_t len = chunk->len;
    bool is_possible;
    MR_TRY(ask_possible(reader, &from, texts, columns, &is_possible, ret_error));
    if (!is_possible) {
        add_absent(chunk, texts, columns, relation->key_count, true);
        return MR_OK;
    }
    MR_TEXT(sql);
    mr_pg_columns_add_select(&sql, relation, NULL, &from, reader->is_root, reader->filter);
    for (uint32_t i = 0; i < relation->key_count; i++) {
        mr_sql_format(&sql, "%s%I%s%L", i == 0 && reader->filter == NULL ? " WHERE " : " AND ",
                      relation->columns[columns[i]].name, reader->equal.data, texts[i]);
    }
    mr_text_string(&sql, ") TO STDOUT");
    struct mr_chunk_wish one = *wish;
    one.rows_max = before + 1;
    mr_status status = mr_pg_copy_start(reader->conn, sql.data, ret_error);
    status = MR_THEN(status, pg_chunks_read_rows(reader, &one, chunk, ret_error));
    const char *sqlstate = mr_pg_copy_refusal(reader->conn)->sqlstate;
    if (status == MR_ERR_CONFIG && sqlstate[0] != '\0') { /* its words may have the key */
        return mr_fail(ret_error, status, "the server refuses a key, or its row (%s)", sqlstate);
    }
    MR_TRY(status);
    bool has_equal = chunk->rows > before;
    bool is_there = has_equal && has_key(chunk, texts, columns, relation->key_count);
    if (!is_there) {
        /* what the server calls equal may have another text, which the topic calls another key */
        chunk->rows = before;
        chunk->len = len;
        mr_pg_copy_row_free(chunk->large);
        chunk->large = NULL;
        /* What is neither there nor gone is passed over: a delete wants those that are absent, and
         * anything else those that are not. */
        bool is_absent =
            !wish->keys->deletes || !(has_equal && wish->is_converted && has_equals(relation));
        if (wish->keys->deletes && is_absent) {
            MR_TRY(is_as_written(reader, wish, texts, columns, &is_absent, ret_error));
        }
        add_absent(chunk, texts, columns, relation->key_count, is_absent);
    }
    return MR_OK;
}

/* As many of the keys as there is room for, one after the other under the chunk's snapshot: each by
 * its index, and each with an answer. */
static mr_status pg_chunks_read_keys(struct mr_chunk_reader *reader,
                                     const struct mr_chunk_wish *wish, struct mr_chunk *chunk,
                                     struct mr_error *ret_error)
{
    const struct mr_chunk_keys *keys = wish->keys;
    uint32_t columns[MR_COLUMNS_MAX] = {0};
    MR_TRY(pg_chunks_find_key(wish, reader->relation, columns, ret_error));
    chunk->keys_from = wish->keys_from;
    chunk->absent = MR_NEW_ARRAY(bool, wish->rows_max);
    uint32_t at = wish->keys_from;
    for (; at < keys->count && chunk->rows < wish->rows_max && !is_full(chunk, wish); at++) {
        MR_TRY(pg_chunks_read_key(reader, wish, mr_chunk_key(keys, at), columns, chunk, ret_error));
    }
    chunk->is_last = at == keys->count;
    return MR_OK;
}

static mr_status tell_attached(struct mr_chunk_reader *reader, const struct mr_chunk_wish *wish,
                               struct mr_error *ret_error)
{
    MR_FREED uint32_t *known = MR_NEW_ARRAY(uint32_t, wish->part_count);
    for (uint32_t i = 0; i < wish->part_count; i++) {
        known[i] = wish->parts[i].oid;
    }
    struct mr_attached_wish attached = {.schema = wish->named_schema,
                                        .table = wish->named_table,
                                        .known = known,
                                        .known_count = wish->part_count,
                                        .since = reader->is_root ? wish->since : 0};
    return mr_pg_attached_log(reader->conn, &reader->options, &attached, &reader->attached,
                              ret_error);
}

/* MR_FULL as read_rows. A condition that few rows meet reads a whole table, and one may sleep:
 * others wait for their copies. */
static mr_status pg_chunks_copy_rows(struct mr_chunk_reader *reader,
                                     const struct mr_chunk_wish *wish, struct mr_chunk *chunk,
                                     struct mr_error *ret_error)
{
    MR_TEXT(sql);
    add_chunk(&sql, reader, wish, chunk->is_anew);
    int64_t begun_ns = mr_monotonic_ns();
    mr_status status = mr_pg_copy_start(reader->conn, sql.data, ret_error);
    status = MR_THEN(status, pg_chunks_read_rows(reader, wish, chunk, ret_error));
    uint32_t limit_ms = reader->options.chunk_timeout_ms;
    /* By the time, because pg_cancel_backend has the same code. */
    bool is_late = status != MR_OK && status != MR_FULL &&
                   strcmp(mr_pg_copy_refusal(reader->conn)->sqlstate, "57014") == 0 &&
                   mr_monotonic_ns() - begun_ns >= (int64_t)limit_ms * 1000000;
    return !is_late ? status
                    : mr_fail(ret_error, MR_ERR_CONFIG,
                              "the server has not read a chunk of its rows within %u s; raise "
                              "snapshot.chunk_timeout%s",
                              limit_ms / 1000,
                              wish->where == NULL
                                  ? ""
                                  : ", or ask with a condition that is quicker to look at, or "
                                    "that more rows meet");
}

/* An older build stored conditions without a look at them. */
static mr_status check_condition(const char *where, struct mr_error *ret_error)
{
    const char *fault = mr_sql_condition_fault(where);
    return fault == NULL ? MR_OK
                         : mr_fail(ret_error, MR_ERR_CONFIG, MR_SQL_CONDITION_REFUSED "%s", fault);
}

/* A transaction that only reads does not keep a function from dropping a slot, or writing a logical
 * message. */
static mr_status pg_chunks_check_role(struct mr_chunk_reader *reader,
                                      const struct mr_chunk_wish *wish, struct mr_error *ret_error)
{
    if (wish->where == NULL || !wish->is_signal || reader->is_harmless ||
        reader->options.signal_conditions == MR_SIGNAL_CONDITIONS_ANY_ROLE) {
        return MR_OK;
    }
    int64_t may_more;
    MR_TRY(mr_pg_ask_number(reader->conn, "the role that copies", 'b', &may_more, ret_error,
                            "SELECT " MR_SQL_MAY_MORE));
    reader->is_harmless = !may_more;
    return reader->is_harmless
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG,
                         "a signal asks for it with a condition, and role \"%s\", which copies, "
                         "may do more than read; let a role copy that may only read "
                         "(snapshot.connection; docs/security.md has its SQL), or set "
                         "snapshot.signal_conditions = \"any_role\" if all who may write the table "
                         "of signals are to be trusted",
                         mr_pg_user(reader->conn));
}

static mr_status pg_chunks_read_chunk(struct mr_chunk_reader *reader,
                                      const struct mr_chunk_wish *wish, struct mr_chunk *chunk,
                                      struct mr_error *ret_error)
{
    chunk->rows = 0;
    chunk->len = 0;
    mr_pg_copy_row_free(chunk->large);
    chunk->large = NULL;
    free(chunk->absent);
    chunk->absent = NULL;
    if (chunk->bytes == NULL) {
        chunk->bytes = MR_ALLOC(wish->bytes_max);
    }
    MR_TRY(check_condition(wish->where, ret_error));
    MR_TRY(open_reader(reader, ret_error));
    MR_TRY(pg_chunks_check_role(reader, wish, ret_error));
    MR_TRY(pg_chunks_begin_chunk(reader, wish, chunk, ret_error));
    chunk->relation = reader->relation;
    chunk->key_count = reader->place_count;
    chunk->key = MR_REALLOC(chunk->key, chunk->key_count * sizeof(*chunk->key));
    memcpy(chunk->key, reader->places, chunk->key_count * sizeof(*chunk->key));
    chunk->form = reader->form;
    chunk->is_anew =
        wish->after != NULL && (wish->form != chunk->form || wish->after_count != chunk->key_count);
    if (wish->keys != NULL) {
        MR_TRY(pg_chunks_read_keys(reader, wish, chunk, ret_error));
        return pg_chunks_set_settings(reader, "COMMIT; ", ret_error);
    }
    mr_status status = pg_chunks_copy_rows(reader, wish, chunk, ret_error);
    if (status == MR_FULL) {
        chunks_rest(reader); /* cheaper than to read what nobody has room for */
        chunk->is_last = false;
    } else {
        MR_TRY(status);
        chunk->is_last = chunk->rows < wish->rows_max;
        /* What was called while rows were read may have set them otherwise, for the next table and
         * for what is asked besides. */
        MR_TRY(pg_chunks_set_settings(reader, "COMMIT; ", ret_error));
    }
    return chunk->is_last && wish->parts != NULL ? tell_attached(reader, wish, ret_error) : MR_OK;
}

static mr_status chunks_find(struct mr_chunk_reader *reader, const char *schema, const char *table,
                             const char *key, struct mr_chunk_table **ret_tables,
                             uint32_t *ret_count, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"a table to copy", "niinIISb", 0, TABLES_MAX};
    MR_TRY(open_reader(reader, ret_error));
    struct mr_text sql = {0};
    mr_sql_format(&sql,
                  "WITH named AS MATERIALIZED (SELECT c.oid FROM pg_class c JOIN pg_namespace"
                  " n ON n.oid = c.relnamespace WHERE n.nspname = %L AND c.relname = %L), ",
                  schema, table);
    mr_sql_add_sent(&sql, reader->options.publication, "named", mr_pg_server_version(reader->conn));
    mr_text_string(&sql,
                   ", family AS MATERIALIZED (SELECT oid FROM named UNION SELECT t.oid FROM named"
                   " JOIN tree t ON t.root = named.oid)"
                   " SELECT c.oid::bigint, n.nspname, c.relname, greatest(c.reltuples, 0)::bigint,"
                   " rn.nspname, r.relname, ");
    mr_sql_add_called(&sql, "SELECT c.oid UNION SELECT t.oid FROM tree t WHERE t.root = c.oid");
    mr_text_string(&sql, ", " MR_SQL_MAY_MORE " FROM family f"
                         " JOIN sent s ON s.oid = f.oid JOIN pg_class c ON c.oid = f.oid"
                         " JOIN pg_namespace n ON n.oid = c.relnamespace"
                         " LEFT JOIN pg_class r ON r.oid = pg_partition_root(c.oid)"
                         " LEFT JOIN pg_namespace rn ON rn.oid = r.relnamespace ORDER BY 1");
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_ask(reader->conn, &sql, &shape, &result, ret_error));
    struct mr_chunk_table *tables = MR_NEW_ARRAY(struct mr_chunk_table, mr_pg_result_rows(result));
    uint32_t count = pg_chunks_take_tables(reader, result, tables);
    mr_status status =
        count > 0
            ? MR_OK
            : mr_fail(ret_error, MR_ERR_CONFIG,
                      "table %s.%s is not there, or not one of this stream's: it must be in "
                      "\"tables\" and in publication \"%s\" (a partition that is published by its "
                      "root: name the root)",
                      schema, table, reader->options.publication);
    for (uint32_t i = 0; i < count && status == MR_OK; i++) {
        status = pg_chunks_describe(reader, &tables[i], key, NULL, ret_error);
    }
    if (status != MR_OK) {
        free(tables);
        return status;
    }
    *ret_tables = tables;
    *ret_count = count;
    return MR_OK;
}

static mr_status chunks_holder(struct mr_chunk_reader *reader, uint32_t xid,
                               struct mr_chunk_holder *ret_holder, struct mr_error *ret_error)
{
    MR_TRY(open_reader(reader, ret_error));
    return mr_pg_holder_of_number(reader->conn, xid, &ret_holder->by, &ret_holder->snapshot,
                                  ret_error);
}

static mr_status pg_chunks_fail_table(const struct mr_chunk_table *table, mr_status status,
                                      struct mr_error *ret_error)
{
    if (status == MR_OK || status == MR_AGAIN) {
        return status;
    }
    struct mr_error reason = *ret_error;
    return mr_fail(ret_error, status, "the rows of table %s.%s can't be copied: %s", table->schema,
                   table->table, reason.text);
}

static mr_status chunks_read(struct mr_chunk_reader *reader, const struct mr_chunk_wish *wish,
                             struct mr_chunk *chunk, struct mr_error *ret_error)
{
    mr_status status = pg_chunks_read_chunk(reader, wish, chunk, ret_error);
    if (status == MR_OK) {
        mr_pg_home_came(reader->home, wish->table->oid);
    } else if (status == MR_ERR_TRANSIENT && wish->where != NULL && reader->conn != NULL &&
               mr_pg_copying_is_ended(&reader->options, reader->home, reader->conn,
                                      wish->table->oid)) {
        status = mr_fail(ret_error, MR_ERR_CONFIG,
                         "the server ended %u connections in a row while they read them by the "
                         "condition that was asked for, and takes others (57P01); check the "
                         "condition, and the functions that it calls",
                         MR_PG_ENDED_MAX);
    }
    return pg_chunks_fail_table(wish->table, status, ret_error);
}

const struct mr_chunk_ops mr_pg_chunk_ops = {.find = chunks_find,
                                             .number = chunks_number,
                                             .holder = chunks_holder,
                                             .read = chunks_read,
                                             .rest = chunks_rest,
                                             .free = chunks_free};
