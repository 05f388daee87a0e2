#include "source/pg_key_order.h"

#include <stdlib.h>
#include <string.h>

#include "postgres/pg_sql.h"

/* What a table may have of each. */
enum kind { OF_PRIMARY_KEY, OF_IDENTITY, KIND_COUNT };

/* The nth column of the key is the places[n]th of them in the table. */
struct places {
    uint32_t count; /* 0: none, or in the table's order */
    uint16_t *places;
};

struct mr_ordered_key {
    uint32_t oid;
    struct mr_pg_horizon horizon;
    struct places keys[KIND_COUNT];
};

static void forget(struct mr_ordered_key *table)
{
    for (uint32_t kind = 0; kind < KIND_COUNT; kind++) {
        free(table->keys[kind].places);
        table->keys[kind] = (struct places){0};
    }
}

void mr_pg_key_order_done(struct mr_pg_key_order *order)
{
    for (uint32_t i = 0; i < order->count; i++) {
        forget(&order->tables[i]);
    }
    free(order->tables);
    *order = (struct mr_pg_key_order){0};
}

static struct mr_ordered_key *find(const struct mr_pg_key_order *order, uint32_t oid)
{
    return order->count == 0
               ? NULL
               : bsearch(&oid, order->tables, order->count, sizeof(*order->tables), mr_u32_compare);
}

/* Most come in order. */
static struct mr_ordered_key *make(struct mr_pg_key_order *order, uint32_t oid)
{
    struct mr_ordered_key *known = find(order, oid);
    if (known != NULL) {
        return known;
    }
    order->tables = MR_REALLOC(order->tables, (order->count + 1) * sizeof(*order->tables));
    uint32_t place = order->count++;
    for (; place > 0 && order->tables[place - 1].oid > oid; place--) {
        order->tables[place] = order->tables[place - 1];
    }
    order->tables[place] = (struct mr_ordered_key){.oid = oid};
    return &order->tables[place];
}

/* "2,0,1". False: these are not the numbers below their count, each once. */
static bool take_places(struct places *to, const char *text)
{
    to->places = MR_NEW_ARRAY(uint16_t, MR_COLUMNS_MAX);
    bool seen[MR_COLUMNS_MAX] = {false};
    char *at = (char *)(uintptr_t)text;
    for (bool more = true; more; at++) {
        unsigned long place = strtoul(at, &at, 10);
        if (to->count == MR_COLUMNS_MAX || place >= MR_COLUMNS_MAX || seen[place]) {
            return false;
        }
        seen[place] = true;
        to->places[to->count++] = (uint16_t)place;
        more = *at == ',';
    }
    for (uint32_t i = 0; i < to->count; i++) {
        if (!seen[i]) {
            return false;
        }
    }
    return at[-1] == '\0';
}

/* Of an index' columns that are its key (INCLUDE adds others); null where they are in the table's order. */
#define PLACES(index)                                                                              \
    "(SELECT string_agg(r::text, ',' ORDER BY n) FROM (SELECT n, rank() OVER (ORDER BY x) - 1"     \
    " AS r FROM unnest((" index ".indkey::int2[])[0:" index ".indnkeyatts - 1])"                   \
    " WITH ORDINALITY u(x, n)) y HAVING bool_or(r <> n - 1))"

static void add_query(struct mr_text *sql, const char *publication, int version, uint32_t oid)
{
    mr_text_string(sql, "SELECT c.oid::bigint, " PLACES("p") ", " PLACES(
                            "i") " FROM pg_class c"
                                 " LEFT JOIN pg_index p ON p.indrelid = c.oid AND p.indisprimary"
                                 " LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisreplident"
                                 " WHERE (p.indnkeyatts > 1 OR i.indnkeyatts > 1) AND ");
    if (oid != 0) {
        mr_text_format(sql, "c.oid = %u", oid);
        return;
    }
    mr_text_string(sql, "c.oid IN (WITH ");
    mr_sql_add_sent(sql, publication, NULL, version);
    mr_text_string(sql, " SELECT oid FROM sent) ORDER BY 1");
}

static mr_status take(struct mr_pg_key_order *order, const struct mr_pg_result *result,
                      struct mr_error *ret_error)
{
    for (uint32_t row = 0; row < mr_pg_result_rows(result); row++) {
        for (uint32_t kind = 0; kind < KIND_COUNT; kind++) {
            const char *text = mr_pg_result_value(result, row, 1 + kind);
            if (text == NULL) {
                continue;
            }
            struct mr_ordered_key *table =
                make(order, (uint32_t)mr_pg_result_number(result, row, 0));
            if (table->keys[kind].places != NULL || !take_places(&table->keys[kind], text)) {
                return mr_fail(ret_error, MR_ERR_PROTOCOL,
                               "the server was asked for the order of keys and answers with "
                               "something else");
            }
        }
    }
    return MR_OK;
}

static mr_status ask(struct mr_pg_key_order *order, struct mr_pg_conn *conn, int stop_fd,
                     struct mr_text *sql, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the order of keys", "nSS", 0, UINT32_MAX};
    struct mr_pg_result *result;
    MR_TRY(mr_pg_query(conn, stop_fd, sql, &shape, &result, ret_error));
    mr_status status = take(order, result, ret_error);
    mr_pg_result_free(result);
    return status;
}

mr_status mr_pg_key_order_read(struct mr_pg_key_order *order, struct mr_pg_conn *conn, int stop_fd,
                               const char *publication, const struct mr_pg_horizon *horizon,
                               struct mr_error *ret_error)
{
    mr_pg_key_order_done(order);
    struct mr_text sql = {0};
    add_query(&sql, publication, mr_pg_server_version(conn), 0);
    MR_TRY(ask(order, conn, stop_fd, &sql, ret_error));
    order->horizon = *horizon;
    return MR_OK;
}

bool mr_pg_key_order_covers(const struct mr_pg_key_order *order, uint32_t oid,
                            const struct mr_transaction *transaction)
{
    const struct mr_ordered_key *table = find(order, oid);
    return mr_pg_horizon_covers(&order->horizon, transaction) ||
           (table != NULL && mr_pg_horizon_covers(&table->horizon, transaction));
}

mr_status mr_pg_key_order_ask(struct mr_pg_key_order *order, struct mr_pg_conn *conn, int stop_fd,
                              uint32_t oid, const struct mr_transaction *transaction,
                              struct mr_error *ret_error)
{
    if (transaction != NULL) {
        MR_TRY(mr_pg_await_commit(conn, stop_fd, transaction->xid, ret_error));
    }
    struct mr_ordered_key *table = make(order, oid);
    forget(table);
    table->horizon = (struct mr_pg_horizon){0};
    struct mr_text sql = {0};
    add_query(&sql, NULL, 0, oid);
    MR_TRY(ask(order, conn, stop_fd, &sql, ret_error));
    if (transaction != NULL) {
        find(order, oid)->horizon = (struct mr_pg_horizon){.end = transaction->commit_lsn + 1,
                                                           .next = transaction->xid + 1};
    }
    return MR_OK;
}

void mr_pg_key_order_apply(const struct mr_pg_key_order *order, const struct mr_relation_view *view,
                           uint32_t *columns)
{
    const struct mr_ordered_key *table = find(order, view->oid);
    if (table == NULL) {
        return;
    }
    /* Without its index, an identity flags nothing, and the key is the primary one. */
    bool by_index = view->identity == MR_IDENTITY_INDEX && view->key_count > 0 &&
                    view->columns[columns[0]].in_identity;
    const struct places *places = &table->keys[by_index ? OF_IDENTITY : OF_PRIMARY_KEY];
    if (places->count != view->key_count) {
        return;
    }
    uint32_t sorted[MR_COLUMNS_MAX];
    memcpy(sorted, columns, view->key_count * sizeof(*columns));
    for (uint32_t n = 0; n < places->count; n++) {
        columns[n] = sorted[places->places[n]];
    }
}
