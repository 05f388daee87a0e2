#include "postgres/catalog/pg_attributes.h"

#include "event/kin.h"
#include "postgres/catalog/pg_sql.h"

enum column { NUMBER, NAME, WRITTEN };

void mr_pg_attributes_done(struct mr_pg_attributes *attributes)
{
    for (uint32_t i = 0; i < attributes->count; i++) {
        free((char *)attributes->items[i].name);
    }
    free(attributes->items);
    *attributes = (struct mr_pg_attributes){0};
}

struct reading {
    struct mr_pg_attributes *attributes;
    uint32_t xid;
};

/* Numbers of transactions turn round (manual, "Routine Vacuuming"); 0 stands for one that is far
 * behind. */
static bool is_older(uint32_t written, uint32_t xid)
{
    return written == 0 || (int32_t)(written - xid) < 0;
}

static mr_status take_attribute(void *context, const struct mr_pg_result *row,
                                struct mr_error *ret_error)
{
    struct reading *reading = context;
    struct mr_pg_attributes *attributes = reading->attributes;
    const char *name = mr_pg_result_value(row, 0, NAME); /* NULL: it was dropped */
    const uint32_t written = (uint32_t)mr_pg_result_number(row, 0, WRITTEN);
    bool is_certain = is_older(written, reading->xid);
    if (attributes->count == MR_COLUMNS_MAX) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server was asked for the columns of a table and answers with more than "
                       "one can have");
    }
    if (is_certain && name == NULL) {
        return MR_OK; /* was dropped before */
    }
    MR_GROW(attributes->items, attributes->room, attributes->count + 1);
    attributes->items[attributes->count++] =
        (struct mr_attribute){.number = (uint32_t)mr_pg_result_number(row, 0, NUMBER),
                              .name = is_certain ? MR_STRDUP(name) : NULL,
                              .is_there = name != NULL || written != reading->xid};
    return MR_OK;
}

mr_status mr_pg_attributes_ask(struct mr_pg_attributes *attributes, struct mr_pg_conn *conn,
                               uint32_t oid, const struct mr_transaction *transaction,
                               struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the columns of a table", "nSn", 0, UINT32_MAX};
    mr_pg_attributes_done(attributes);
    struct reading reading = {.attributes = attributes, .xid = transaction->xid};
    struct mr_text sql = {0};
    mr_text_format(&sql,
                   "SELECT attnum, CASE WHEN NOT attisdropped THEN attname END, CASE WHEN"
                   " age(xmin) BETWEEN 0 AND 1000000000 THEN xmin::text::bigint ELSE 0 END"
                   " FROM pg_attribute WHERE attrelid = %u AND attnum > 0 ORDER BY attnum",
                   oid);
    MR_TRY(mr_pg_ask_rows(conn, &sql, &shape, take_attribute, &reading, ret_error));
    attributes->oid = oid;
    attributes->lsn = transaction->commit_lsn;
    return MR_OK;
}

enum first_column { FIRST_OID, FIRST_SCHEMA, FIRST_TABLE, FIRST_NUMBER, FIRST_NAME, FIRST_CERTAIN };

struct telling {
    const struct mr_columns_listener *listener;
    struct mr_kin *kin;
    struct mr_origins origins;
    struct mr_relation table; /* at hand; its OID 0: none */
    bool is_certain;
    struct mr_column columns[MR_COLUMNS_MAX];
    struct mr_attribute attributes[MR_COLUMNS_MAX];
};

static void tell_table(struct telling *telling)
{
    struct mr_relation *table = &telling->table;
    if (mr_kin_find(telling->kin, table->oid, &telling->origins)) {
        table->origins = telling->origins.items;
        table->origin_count = telling->origins.count;
    }
    if (table->oid != 0 && telling->is_certain) {
        telling->listener->take(telling->listener->context, table);
    }
    for (uint32_t i = 0; i < table->column_count; i++) {
        free((char *)table->columns[i].name);
    }
    free((char *)table->schema);
    free((char *)table->table);
    *table = (struct mr_relation){.columns = telling->columns, .attributes = telling->attributes};
    telling->is_certain = true;
}

static mr_status take_first_column(void *context, const struct mr_pg_result *row,
                                   struct mr_error *ret_error)
{
    struct telling *telling = context;
    struct mr_relation *table = &telling->table;
    uint32_t oid = (uint32_t)mr_pg_result_number(row, 0, FIRST_OID);
    (void)ret_error;
    if (oid != table->oid) {
        tell_table(telling);
        table->oid = oid;
        table->schema = MR_STRDUP(mr_pg_result_value(row, 0, FIRST_SCHEMA));
        table->table = MR_STRDUP(mr_pg_result_value(row, 0, FIRST_TABLE));
    }
    telling->is_certain &=
        mr_pg_result_true(row, 0, FIRST_CERTAIN) && table->column_count < MR_COLUMNS_MAX;
    if (telling->is_certain) {
        const char *name = MR_STRDUP(mr_pg_result_value(row, 0, FIRST_NAME));
        telling->columns[table->column_count++] = (struct mr_column){.name = name};
        telling->attributes[table->attribute_count++] =
            (struct mr_attribute){.number = (uint32_t)mr_pg_result_number(row, 0, FIRST_NUMBER),
                                  .name = name,
                                  .is_there = true};
    }
    return MR_OK;
}

static mr_status tell_all(struct mr_pg_conn *conn, struct mr_text *sql,
                          const struct mr_columns_listener *listener, struct mr_kin *kin,
                          struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the columns of all tables", "nssnsb", 0, UINT32_MAX};
    MR_FREED struct telling *telling = MR_NEW(struct telling);
    telling->listener = listener;
    telling->kin = kin;
    tell_table(telling);
    mr_status status = mr_pg_ask_rows(conn, sql, &shape, take_first_column, telling, ret_error);
    telling->is_certain &= status == MR_OK;
    tell_table(telling);
    return status;
}

mr_status mr_pg_attributes_tell(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                                const struct mr_pg_captured *captured, struct mr_error *ret_error)
{
    if (options->columns_at_start.take == NULL || captured->tables.count == 0) {
        return MR_OK;
    }
    MR_TEXT(oids);
    mr_pg_captured_add_oids(captured, &oids);
    struct mr_text sql = {0};
    mr_text_format(&sql,
                   "SELECT c.oid::bigint, c.nspname, c.relname, a.attnum, a.attname, coalesce(");
    mr_sql_format(&sql, MR_SQL_IS_BEFORE_SLOT("a.xmin") " AND ", options->slot);
    mr_sql_format(&sql, MR_SQL_IS_BEFORE_SLOT("c.xmin"), options->slot);
    mr_text_format(&sql,
                   ", false) FROM (SELECT k.oid, k.relname, k.xmin, n.nspname FROM pg_class k"
                   " JOIN pg_namespace n ON n.oid = k.relnamespace"
                   " WHERE k.oid = ANY ('{%s}'::oid[]) OFFSET 0) c JOIN pg_attribute a"
                   " ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped WHERE ",
                   oids.data);
    mr_sql_add_any_pattern(&sql, options->hiding, options->hiding_count);
    mr_text_string(&sql, " ORDER BY 1, 4 LIMIT 1000000");
    return tell_all(conn, &sql, &options->columns_at_start, options->kin, ret_error);
}

#define COLUMNS_OF                                                                                 \
    "SELECT c.oid::bigint, n.nspname, c.relname, a.attnum, a.attname, true"                        \
    " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"                               \
    " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped WHERE "

mr_status mr_pg_attributes_tell_parts(struct mr_pg_conn *conn, const char *oids, const char *parts,
                                      struct mr_kin *kin,
                                      const struct mr_columns_listener *listener,
                                      struct mr_error *ret_error)
{
    struct mr_text sql = {0};
    mr_text_format(&sql,
                   COLUMNS_OF "c.oid = ANY ('{0%s}'::oid[]) OR (c.oid = ANY ('{0%s}'::oid[])"
                              " AND NOT c.relispartition) ORDER BY 1, 4",
                   oids, parts);
    return tell_all(conn, &sql, listener, kin, ret_error);
}

mr_status mr_pg_attributes_tell_named(struct mr_pg_conn *conn, char *const *names, uint32_t count,
                                      const struct mr_columns_listener *listener,
                                      struct mr_error *ret_error)
{
    struct mr_text sql = {0};
    mr_text_string(&sql, COLUMNS_OF "n.nspname || '.' || c.relname IN (NULL");
    for (uint32_t i = 0; i < count; i++) {
        mr_sql_format(&sql, ", %L", names[i]);
    }
    mr_text_string(&sql, ") ORDER BY 1, 4");
    return tell_all(conn, &sql, listener, NULL, ret_error);
}
