#include "postgres/catalog/pg_key_order.h"

enum { TABLES_MAX = 1000 * 1000 };

enum kind { OF_PRIMARY_KEY, OF_IDENTITY, KIND_COUNT };

/* The nth column of the key is the rank'th of them in the table, and the place'th of all columns
 * there are now. */
struct part {
    uint32_t rank, place;
    char *name;
};

struct ordered {
    uint32_t count; /* 0: none, or in the table's order */
    struct part *parts;
};

struct mr_ordered_key {
    uint32_t oid;
    struct mr_pg_horizon horizon;
    struct ordered keys[KIND_COUNT];
};

static void pg_key_order_forget(struct mr_ordered_key *table)
{
    for (uint32_t kind = 0; kind < KIND_COUNT; kind++) {
        struct ordered *key = &table->keys[kind];
        for (uint32_t n = 0; n < key->count; n++) {
            free(key->parts[n].name);
        }
        free(key->parts);
        *key = (struct ordered){0};
    }
}

void mr_pg_key_order_done(struct mr_pg_key_order *order)
{
    struct mr_ordered_key *tables = order->tables.items;
    for (uint32_t i = 0; i < order->tables.count; i++) {
        pg_key_order_forget(&tables[i]);
    }
    mr_by_oid_done(&order->tables);
    order->horizon = (struct mr_pg_horizon){0};
}

static struct mr_ordered_key *pg_key_order_find(const struct mr_pg_key_order *order, uint32_t oid)
{
    return mr_by_oid_find(&order->tables, sizeof(struct mr_ordered_key), oid);
}

enum column { OID, KIND, RANK, PLACE, NAME };

/* The columns of keys (INCLUDE adds others), key by key and in their order; not of those that are
 * in the table's. */
static void pg_key_order_add_query(struct mr_text *sql, const char *oids)
{
    mr_text_format(
        sql,
        "SELECT oid, kind, rank, place, attname FROM (SELECT *, bool_or(rank <> n - 1) OVER"
        " (PARTITION BY oid, kind) AS turned FROM (SELECT c.oid::bigint AS oid, f.kind, u.n,"
        " rank() OVER (PARTITION BY c.oid, f.kind ORDER BY u.x) - 1 AS rank, (SELECT count(*)"
        " FROM pg_attribute b WHERE b.attrelid = c.oid AND b.attnum > 0 AND b.attnum < u.x"
        " AND NOT b.attisdropped) AS place, a.attname FROM pg_class c"
        " JOIN pg_index i ON i.indrelid = c.oid AND i.indnkeyatts > 1 CROSS JOIN LATERAL"
        " (SELECT 0 AS kind WHERE i.indisprimary UNION ALL SELECT 1 WHERE i.indisreplident) f"
        " CROSS JOIN LATERAL unnest((i.indkey::int2[])[0:i.indnkeyatts - 1])"
        " WITH ORDINALITY u(x, n) JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.x"
        " WHERE c.oid IN (SELECT unnest('{%s}'::oid[]))) k) t WHERE turned"
        " ORDER BY oid, kind, n",
        oids);
}

static bool pg_key_order_add_part(struct ordered *key, const struct mr_pg_result *row)
{
    int64_t rank = mr_pg_result_number(row, 0, RANK);
    if (key->count == MR_COLUMNS_MAX || rank >= MR_COLUMNS_MAX) {
        return false;
    }
    key->parts = MR_REALLOC(key->parts, (key->count + 1) * sizeof(*key->parts));
    key->parts[key->count++] = (struct part){.rank = (uint32_t)rank,
                                             .place = (uint32_t)mr_pg_result_number(row, 0, PLACE),
                                             .name = MR_STRDUP(mr_pg_result_value(row, 0, NAME))};
    return true;
}

static bool is_whole(const struct ordered *key)
{
    bool seen[MR_COLUMNS_MAX] = {false};
    for (uint32_t n = 0; n < key->count; n++) {
        uint32_t rank = key->parts[n].rank;
        if (rank >= key->count || seen[rank]) {
            return false;
        }
        seen[rank] = true;
    }
    return true;
}

struct taking {
    struct mr_pg_key_order *order;
    uint32_t oid; /* of the key at hand; 0: none yet, */
    int64_t kind;
};

static bool last_is_whole(const struct taking *taking)
{
    return taking->oid == 0 ||
           is_whole(&pg_key_order_find(taking->order, taking->oid)->keys[taking->kind]);
}

static mr_status something_else(struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_PROTOCOL,
                   "the server was asked for the order of keys and answers with something else");
}

static mr_status pg_key_order_take(void *context, const struct mr_pg_result *row,
                                   struct mr_error *ret_error)
{
    struct taking *taking = context;
    struct mr_by_oid *tables = &taking->order->tables;
    uint32_t oid = (uint32_t)mr_pg_result_number(row, 0, OID);
    int64_t kind = mr_pg_result_number(row, 0, KIND);
    bool is_next = oid != taking->oid || kind != taking->kind;
    if (oid < taking->oid || kind < 0 || kind >= KIND_COUNT || tables->count > TABLES_MAX ||
        (is_next && !last_is_whole(taking))) {
        return something_else(ret_error);
    }
    struct mr_ordered_key *table = mr_by_oid_make(tables, sizeof(*table), oid);
    taking->oid = oid;
    taking->kind = kind;
    return pg_key_order_add_part(&table->keys[kind], row) ? MR_OK : something_else(ret_error);
}

static mr_status pg_key_order_ask(struct mr_pg_key_order *order, struct mr_pg_conn *conn,
                                  const char *oids, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the order of keys", "nnnni", 0, UINT32_MAX};
    struct taking taking = {.order = order};
    struct mr_text sql = {0};
    pg_key_order_add_query(&sql, oids);
    MR_TRY(mr_pg_ask_rows(conn, &sql, &shape, pg_key_order_take, &taking, ret_error));
    return last_is_whole(&taking) ? MR_OK : something_else(ret_error);
}

mr_status mr_pg_key_order_read(struct mr_pg_key_order *order, struct mr_pg_conn *conn,
                               const char *oids, const struct mr_pg_horizon *horizon,
                               struct mr_error *ret_error)
{
    mr_pg_key_order_done(order);
    MR_TRY(pg_key_order_ask(order, conn, oids, ret_error));
    order->horizon = *horizon;
    return MR_OK;
}

bool mr_pg_key_order_covers(const struct mr_pg_key_order *order, uint32_t oid,
                            const struct mr_transaction *transaction)
{
    const struct mr_ordered_key *table = pg_key_order_find(order, oid);
    return mr_pg_horizon_covers(&order->horizon, transaction) ||
           (table != NULL && mr_pg_horizon_covers(&table->horizon, transaction));
}

mr_status mr_pg_key_order_ask(struct mr_pg_key_order *order, struct mr_pg_conn *conn, uint32_t oid,
                              const struct mr_transaction *transaction, struct mr_error *ret_error)
{
    struct mr_ordered_key *table = mr_by_oid_make(&order->tables, sizeof(*table), oid);
    pg_key_order_forget(table);
    table->horizon = (struct mr_pg_horizon){0};
    char oids[sizeof("4294967295")];
    snprintf(oids, sizeof(oids), "%u", oid);
    MR_TRY(pg_key_order_ask(order, conn, oids, ret_error));
    pg_key_order_find(order, oid)->horizon = mr_pg_horizon_of(transaction);
    return MR_OK;
}

/* Whether the key at hand, in the table's order, is of these columns. One may have been renamed
 * since, and then has its place; or one before it was dropped, and it has its name. */
static bool is_of(const struct ordered *key, const struct mr_relation *view, const uint32_t *sorted)
{
    bool same = key->count == view->key_count;
    for (uint32_t n = 0; same && n < key->count; n++) {
        uint32_t column = sorted[key->parts[n].rank];
        same = column == key->parts[n].place ||
               strcmp(view->columns[column].name, key->parts[n].name) == 0;
    }
    return same;
}

void mr_pg_key_order_apply(const struct mr_pg_key_order *order, struct mr_relation *view)
{
    uint32_t *columns = view->key_columns;
    const struct mr_ordered_key *table = pg_key_order_find(order, view->oid);
    if (table == NULL) {
        return;
    }
    /* Without its index, an identity flags nothing, and the key is the primary one. */
    bool by_index = view->identity == MR_IDENTITY_INDEX && view->key_count > 0 &&
                    view->columns[columns[0]].in_identity;
    const struct ordered *key = &table->keys[by_index ? OF_IDENTITY : OF_PRIMARY_KEY];
    uint32_t sorted[MR_COLUMNS_MAX];
    memcpy(sorted, columns, view->key_count * sizeof(*columns));
    bool applies = is_of(key, view, sorted);
    for (uint32_t n = 0; applies && n < key->count; n++) {
        columns[n] = sorted[key->parts[n].rank];
    }
}
