#include "source/pg_captured.h"

#include <stdlib.h>

#include "postgres/pg_sql.h"
#include "source/relation_cache.h"

/* The answer is in the order of the OIDs; a server that lies about it finds less. */
mr_status mr_pg_captured_read(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                              const struct mr_pg_source_options *options, int stop_fd,
                              struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the published tables", "nn", 0, UINT32_MAX};
    struct mr_text sql = {0};
    mr_sql_add_captured(&sql, options);
    struct mr_pg_result *result;
    MR_TRY(mr_pg_query(conn, stop_fd, &sql, &shape, &result, ret_error));
    mr_pg_captured_done(captured);
    captured->count = mr_pg_result_rows(result);
    captured->tables = MR_NEW_ARRAY(struct mr_captured_table, captured->count);
    for (uint32_t i = 0; i < captured->count; i++) {
        captured->tables[i] = (struct mr_captured_table){
            .oid = (uint32_t)mr_pg_result_number(result, i, 0),
            .kind = (enum mr_pg_capture)mr_pg_result_number(result, i, 1),
        };
    }
    mr_pg_result_free(result);
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
        bsearch(&oid, captured->tables, captured->count, sizeof(*found), mr_oid_compare);
    return found == NULL ? MR_PG_UNKNOWN : found->kind;
}

bool mr_pg_table_listed(const struct mr_pg_source_options *options, mr_slice schema, mr_slice table)
{
    for (uint32_t i = 0; i < options->table_count; i++) {
        if (mr_slice_equal(mr_slice_of(options->tables[i].table), table) &&
            mr_slice_equal(mr_slice_of(options->tables[i].schema), schema)) {
            return true;
        }
    }
    return false;
}
