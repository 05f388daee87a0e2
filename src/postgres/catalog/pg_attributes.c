#include "postgres/catalog/pg_attributes.h"

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
    bool is_certain = is_older((uint32_t)mr_pg_result_number(row, 0, WRITTEN), reading->xid);
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
                              .name = is_certain ? MR_STRDUP(name) : NULL};
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
