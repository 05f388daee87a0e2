#include "postgres/catalog/pg_captured.h"

#include "postgres/catalog/pg_sql.h"

enum { TABLES_MAX = 1000 * 1000 }; /* of one publication: 8 MB */

struct reading {
    const struct mr_pg_captured *before;
    struct mr_pg_captured now;
    uint32_t last;
};

static mr_status take_table(void *context, const struct mr_pg_result *row,
                            struct mr_error *ret_error)
{
    struct reading *reading = context;
    uint32_t oid = (uint32_t)mr_pg_result_number(row, 0, 0);
    enum mr_pg_capture kind = (enum mr_pg_capture)mr_pg_result_number(row, 0, 1);
    if (oid < reading->last || reading->now.tables.count == TABLES_MAX) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server was asked for the published tables and answers in another "
                       "order, or with more tables than there can be");
    }
    reading->last = oid;
    bool was_partition = mr_pg_captured_find(reading->before, oid) == MR_PG_PARTITION;
    struct mr_captured_table *table = mr_by_oid_make(&reading->now.tables, sizeof(*table), oid);
    table->kind = kind == MR_PG_UNLISTED && was_partition ? MR_PG_PARTITION : kind;
    return MR_OK;
}

mr_status mr_pg_captured_read(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                              const struct mr_pg_source_options *options,
                              const struct mr_pg_horizon *horizon, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the published tables", "nn", 0, UINT32_MAX};
    struct reading reading = {.before = captured, .now = {.horizon = *horizon}};
    struct mr_text sql = {0};
    mr_sql_add_captured(&sql, options, mr_pg_server_version(conn));
    mr_status status = mr_pg_ask_rows(conn, &sql, &shape, take_table, &reading, ret_error);
    mr_pg_captured_done(status == MR_OK ? captured : &reading.now);
    if (status == MR_OK) {
        *captured = reading.now;
    }
    return status;
}

void mr_pg_captured_add_oids(const struct mr_pg_captured *captured, struct mr_text *text)
{
    const struct mr_captured_table *tables = captured->tables.items;
    for (uint32_t i = 0; i < captured->tables.count; i++) {
        mr_text_format(text, i == 0 ? "%u" : ",%u", tables[i].oid);
    }
}

/* Rows that came into a table after its ATTACH waited for its lock: a list that knows their transaction knows the one that made
 * it a partition. So a stream that falls behind asks less, and a backlog seldom. ATTACH writes the table's row in pg_class
 * (StorePartitionBound, heap.c), which ends all that is cached of it (CacheInvalidateHeapTuple, inval.c), and pgoutput
 * describes it again before its next row (rel_sync_cache_relation_cb, pgoutput.c). */
bool mr_pg_captured_is_stale(const struct mr_pg_captured *captured, uint32_t oid,
                             const struct mr_transaction *transaction)
{
    enum mr_pg_capture kind = mr_pg_captured_find(captured, oid);
    return kind == MR_PG_UNKNOWN ||
           (kind != MR_PG_PARTITION && !mr_pg_horizon_covers(&captured->horizon, transaction));
}

mr_status mr_pg_captured_ask(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options, uint32_t oid,
                             struct mr_error *ret_error)
{
    int64_t is_partition;
    MR_TRY(mr_pg_ask_number(
        conn, "a partition", 'b', &is_partition, ret_error,
        "SELECT EXISTS (SELECT FROM pg_class WHERE oid = %u AND relispartition)", oid));
    if (is_partition) {
        struct mr_pg_horizon horizon;
        MR_TRY(mr_pg_horizon_read(conn, false, &horizon, ret_error));
        return mr_pg_captured_read(captured, conn, options, &horizon, ret_error);
    }
    mr_by_oid_make(&captured->tables, sizeof(struct mr_captured_table), oid); /* MR_PG_UNLISTED */
    return MR_OK;
}

void mr_pg_captured_done(struct mr_pg_captured *captured)
{
    mr_by_oid_done(&captured->tables);
    captured->horizon = (struct mr_pg_horizon){0};
}

enum mr_pg_capture mr_pg_captured_find(const struct mr_pg_captured *captured, uint32_t oid)
{
    const struct mr_captured_table *found = mr_by_oid_find(&captured->tables, sizeof(*found), oid);
    return found == NULL ? MR_PG_UNKNOWN : found->kind;
}
