#include "copy/pg_copy.h"
#include "postgres/catalog/pg_sql.h"

enum column {
    COLUMN_TABLE,
    COLUMN_NAME,
    COLUMN_TYPE,
    COLUMN_MODIFIER,
    COLUMN_IN_IDENTITY,
    COLUMN_NUMBER
};

static mr_status end_table(struct mr_pg_columns *columns, struct mr_error *ret_error)
{
    bool takes = columns->oid != 0 && columns->take != NULL;
    return takes ? columns->take(columns, ret_error) : MR_OK;
}

static mr_status take_column(void *context, const struct mr_pg_result *row,
                             struct mr_error *ret_error)
{
    struct mr_pg_columns *columns = context;
    uint32_t oid = (uint32_t)mr_pg_result_number(row, 0, COLUMN_TABLE);
    if (oid > columns->oid) {
        MR_TRY(end_table(columns, ret_error));
        columns->oid = oid;
        columns->count = 0;
    }
    if (oid != columns->oid || columns->count == MR_COLUMNS_MAX) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server was asked for the columns to copy and answers in another order, "
                       "or with more than a table can have");
    }
    uint32_t i = columns->count++;
    char *name = columns->names[i];
    snprintf(name, sizeof(columns->names[i]), "%s", mr_pg_result_value(row, 0, COLUMN_NAME));
    columns->columns[i] = (struct mr_column){
        .name = name,
        .type_oid = (uint32_t)mr_pg_result_number(row, 0, COLUMN_TYPE),
        .type_modifier = (int32_t)mr_pg_result_number(row, 0, COLUMN_MODIFIER),
        .in_identity = mr_pg_result_true(row, 0, COLUMN_IN_IDENTITY),
    };
    columns->attributes[i] =
        (struct mr_attribute){.number = (uint32_t)mr_pg_result_number(row, 0, COLUMN_NUMBER),
                              .name = name,
                              .is_there = true};
    return MR_OK;
}

/* Flagged as in the stream: logicalrep_write_attrs in src/backend/replication/logical/proto.c,
 * RelationGetIdentityKeyBitmap in src/backend/utils/cache/relcache.c. */
mr_status mr_pg_columns_read(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             uint32_t oid, struct mr_pg_columns *columns,
                             struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the columns to copy", "ninnbn", 0, UINT32_MAX};
    struct mr_text sql = {0};
    mr_text_string(&sql, "WITH ");
    mr_sql_add_sent(&sql, options->publication, NULL, mr_pg_server_version(conn));
    mr_text_string(
        &sql, " SELECT s.oid::bigint, a.attname, a.atttypid::bigint, a.atttypmod,"
              " c.relreplident = 'f' OR coalesce(a.attnum = ANY"
              " ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false), a.attnum FROM sent s"
              " JOIN pg_class c ON c.oid = s.oid"
              " JOIN pg_attribute a ON a.attrelid = s.oid AND a.attnum > 0 AND NOT a.attisdropped"
              " AND " MR_SQL_IS_SENT
              " LEFT JOIN pg_index i ON i.indrelid = s.oid AND i.indislive AND i.indisvalid AND"
              " CASE c.relreplident WHEN 'd' THEN i.indisprimary AND i.indimmediate"
              " WHEN 'i' THEN i.indisreplident ELSE false END");
    if (oid != 0) {
        mr_sql_format(&sql, " WHERE c.oid = %u", oid);
    }
    mr_text_string(&sql, " ORDER BY 1, a.attnum");
    MR_TRY(mr_pg_ask_rows(conn, &sql, &shape, take_column, columns, ret_error));
    return end_table(columns, ret_error);
}

void mr_pg_columns_add_select(struct mr_text *sql, const struct mr_relation *relation,
                              const char *first, const struct mr_table_name *from, bool with_parts,
                              const char *filter)
{
    const char *joint = first == NULL ? "" : ", ";
    mr_sql_format(sql, "COPY (SELECT %s", first == NULL ? "" : first);
    for (uint32_t i = 0; i < relation->column_count; i++, joint = ", ") {
        mr_sql_format(sql, "%s%I", joint, relation->columns[i].name);
    }
    mr_sql_format(sql, with_parts ? " FROM %T" : " FROM ONLY %T", from);
    if (filter != NULL) {
        mr_sql_format(sql, " WHERE (%s)", filter);
    }
}
