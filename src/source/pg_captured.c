#include "source/pg_captured.h"

#include <stdlib.h>

#include "postgres/pg_sql.h"

/* The answer is in the order of the OIDs; a server that lies about it finds less. */
mr_status mr_pg_captured_read(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                              const struct mr_pg_source_options *options, int stop_fd,
                              struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the published tables", "nn", 0, UINT32_MAX};
    struct mr_text sql = {0};
    mr_sql_add_captured(&sql, options);
    struct mr_pg_result *result;
    mr_status status = mr_pg_query(conn, stop_fd, sql.data, &shape, &result, ret_error);
    mr_text_done(&sql);
    MR_TRY(status);
    mr_pg_captured_done(captured);
    captured->count = mr_pg_result_rows(result);
    captured->oids = MR_NEW_ARRAY(uint32_t, captured->count);
    captured->kinds = MR_NEW_ARRAY(uint8_t, captured->count);
    for (uint32_t i = 0; i < captured->count; i++) {
        captured->oids[i] = (uint32_t)mr_pg_result_number(result, i, 0);
        captured->kinds[i] = (uint8_t)mr_pg_result_number(result, i, 1);
    }
    mr_pg_result_free(result);
    return MR_OK;
}

void mr_pg_captured_done(struct mr_pg_captured *captured)
{
    free(captured->oids);
    free(captured->kinds);
    *captured = (struct mr_pg_captured){0};
}

enum mr_pg_capture mr_pg_captured_find(const struct mr_pg_captured *captured, uint32_t oid)
{
    uint32_t low = 0;
    uint32_t high = captured->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (captured->oids[middle] == oid) {
            return (enum mr_pg_capture)captured->kinds[middle];
        }
        if (captured->oids[middle] < oid) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return MR_PG_UNKNOWN;
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
