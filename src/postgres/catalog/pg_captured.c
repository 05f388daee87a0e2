#include "postgres/catalog/pg_captured.h"

#include <stdlib.h>

#include "postgres/catalog/pg_sql.h"

/* The answer is in the order of the OIDs; a server that lies about it finds less. */
mr_status mr_pg_captured_read(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                              const struct mr_pg_source_options *options, int stop_fd,
                              const struct mr_pg_horizon *horizon, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the published tables", "nn", 0, UINT32_MAX};
    struct mr_pg_captured read = {.horizon = *horizon};
    struct mr_text sql = {0};
    mr_sql_add_captured(&sql, options, mr_pg_server_version(conn));
    struct mr_pg_result *result;
    MR_TRY(mr_pg_query(conn, stop_fd, &sql, &shape, &result, ret_error));
    read.count = mr_pg_result_rows(result);
    read.tables = MR_NEW_ARRAY(struct mr_captured_table, read.count);
    for (uint32_t i = 0; i < read.count; i++) {
        uint32_t oid = (uint32_t)mr_pg_result_number(result, i, 0);
        enum mr_pg_capture kind = (enum mr_pg_capture)mr_pg_result_number(result, i, 1);
        bool was_partition = mr_pg_captured_find(captured, oid) == MR_PG_PARTITION;
        read.tables[i] = (struct mr_captured_table){
            .oid = oid,
            .kind = kind == MR_PG_UNLISTED && was_partition ? MR_PG_PARTITION : kind,
        };
    }
    mr_pg_result_free(result);
    mr_pg_captured_done(captured);
    *captured = read;
    return MR_OK;
}

/* Rows that came into a table behind its ATTACH waited for its lock: a list that knows their transaction knows the one that made
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

static void keep_unlisted(struct mr_pg_captured *captured, uint32_t oid)
{
    captured->tables =
        MR_REALLOC(captured->tables, (captured->count + 1) * sizeof(*captured->tables));
    uint32_t place = captured->count++;
    for (; place > 0 && captured->tables[place - 1].oid > oid; place--) {
        captured->tables[place] = captured->tables[place - 1];
    }
    captured->tables[place] = (struct mr_captured_table){.oid = oid, .kind = MR_PG_UNLISTED};
}

mr_status mr_pg_captured_ask(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options, int stop_fd, uint32_t oid,
                             struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"a partition", "b", 1, 1};
    struct mr_text sql = {0};
    mr_text_format(&sql, "SELECT EXISTS (SELECT FROM pg_class WHERE oid = %u AND relispartition)",
                   oid);
    struct mr_pg_result *result;
    MR_TRY(mr_pg_query(conn, stop_fd, &sql, &shape, &result, ret_error));
    bool is_partition = mr_pg_result_true(result, 0, 0);
    mr_pg_result_free(result);
    if (is_partition) {
        struct mr_pg_horizon horizon;
        MR_TRY(mr_pg_horizon_read(conn, stop_fd, false, &horizon, ret_error));
        return mr_pg_captured_read(captured, conn, options, stop_fd, &horizon, ret_error);
    }
    if (mr_pg_captured_find(captured, oid) == MR_PG_UNKNOWN) {
        keep_unlisted(captured, oid);
    }
    return MR_OK;
}

void mr_pg_captured_done(struct mr_pg_captured *captured)
{
    free(captured->tables);
    *captured = (struct mr_pg_captured){0};
}

enum mr_pg_capture mr_pg_captured_find(const struct mr_pg_captured *captured, uint32_t oid)
{
    if (captured->count == 0) {
        return MR_PG_UNKNOWN;
    }
    const struct mr_captured_table *found =
        bsearch(&oid, captured->tables, captured->count, sizeof(*found), mr_u32_compare);
    return found == NULL ? MR_PG_UNKNOWN : found->kind;
}
