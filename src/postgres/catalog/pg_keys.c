#include "postgres/catalog/pg_keys.h"

enum { MALLOC_BYTES = 16 }; /* around a block */

struct key_column {
    char *name;
    uint32_t type_oid;
    int32_t type_modifier;
    bool collated;  /* by the transaction that made the key, which was of this column before */
    uint32_t born;  /* the transaction that wrote its description last */
    uint32_t place; /* among the table's columns as they are now */
};

/* Transactions are numbers that go round; 0 is one of long ago. */
struct mr_key_facts {
    uint32_t oid;
    struct mr_pg_horizon horizon; /* what it holds for; all zero: not read */
    bool table_exists;
    bool has_generated;
    bool is_deferrable;
    bool told_deferrable;
    char *unsent;         /* a generated column of the identity's index, or NULL, */
    uint32_t unsent_born; /* and the transaction that wrote the index' row last */
    uint32_t table_born;
    uint32_t dropped; /* the transaction that dropped a column last */
    uint32_t key_born;
    int64_t key_time_us; /* when that committed, since 1970; 0: the server does not keep it */
    mr_lsn key_seen;     /* that key was there, in a place that the WAL had come to */
    mr_lsn keyless_at;   /* where it was seen first that there is no key (any more) */
    uint32_t column_count;
    struct key_column *columns;
    bool was_found;
    /* It is what the stream flagged under DEFAULT, and counts only if the table is gone. */
    bool is_flagged;
    mr_lsn found_at; /* holds only for what commits after it */
    uint32_t found_count;
    char **found;
};

static void columns_done(struct mr_key_facts *facts)
{
    for (uint32_t i = 0; i < facts->column_count; i++) {
        free(facts->columns[i].name);
    }
    free(facts->columns);
    free(facts->unsent);
    facts->unsent = NULL;
    facts->columns = NULL;
    facts->column_count = 0;
}

static void found_done(struct mr_key_facts *facts)
{
    mr_free_all(facts->found, facts->found_count);
    facts->found = NULL;
    facts->found_count = 0;
    facts->was_found = false;
}

static void found_begin(struct mr_key_facts *facts, mr_lsn at, uint32_t count)
{
    found_done(facts);
    facts->was_found = true;
    facts->is_flagged = false;
    facts->found_at = at;
    facts->found = MR_NEW_ARRAY(char *, count);
    facts->found_count = count;
}

void mr_pg_keys_done(struct mr_pg_keys *keys)
{
    struct mr_key_facts *facts = keys->tables.items;
    for (uint32_t i = 0; i < keys->tables.count; i++) {
        columns_done(&facts[i]);
        found_done(&facts[i]);
    }
    mr_by_oid_done(&keys->tables);
}

static struct mr_key_facts *facts_of(const struct mr_pg_keys *keys, uint32_t oid)
{
    return mr_by_oid_find(&keys->tables, sizeof(struct mr_key_facts), oid);
}

/* Numbers go round. */
bool mr_pg_horizon_covers(const struct mr_pg_horizon *horizon,
                          const struct mr_transaction *transaction)
{
    return transaction->commit_lsn < horizon->end &&
           (int32_t)(transaction->xid - horizon->next) < 0;
}

bool mr_pg_keys_lack(const struct mr_pg_keys *keys, uint32_t oid)
{
    const struct mr_key_facts *facts = facts_of(keys, oid);
    return facts != NULL && facts->unsent != NULL;
}

bool mr_pg_keys_is_gone(const struct mr_pg_keys *keys, uint32_t oid)
{
    const struct mr_key_facts *facts = facts_of(keys, oid);
    return facts != NULL && !facts->table_exists;
}

bool mr_pg_keys_cover(const struct mr_pg_keys *keys, uint32_t oid,
                      const struct mr_transaction *transaction)
{
    const struct mr_key_facts *facts = facts_of(keys, oid);
    return facts != NULL && mr_pg_horizon_covers(&facts->horizon, transaction);
}

enum fact_column {
    FACT_SEEN_AT, /* where the server's WAL ended, or before */
    FACT_OID,     /* null: the table is gone */
    FACT_TABLE_BORN,
    FACT_GENERATED,
    FACT_DROPPED,
    FACT_KEY_BORN, /* null where there is no primary key */
    FACT_KEY_TIME, /* null: not known */
    FACT_DEFERRABLE,
    FACT_UNSENT, /* null: none */
    FACT_UNSENT_BORN,
    FACT_NAME,
    FACT_TYPE,
    FACT_MODIFIER,
    FACT_COLLATED,
    FACT_BORN,
    FACT_PLACE,
};

#define WAL_END                                                                                    \
    "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"                                  \
    " ELSE pg_current_wal_insert_lsn() END"

/* The transaction of a catalog row, 0 for one that is far behind, or was before the numbers went
 * round: the numbers can't be compared then, and need not. */
#define BORN(xmin)                                                                                 \
    "CASE WHEN age(" xmin ") BETWEEN 0 AND 1000000000 THEN " xmin "::text::bigint ELSE 0 END"
#define KEY_BORN       BORN("p.xmin")
#define UNSENT_BORN    BORN("u.xmin")
#define COLUMN_BORN    BORN("a.xmin")
#define ATTRIBUTE_BORN BORN("x.xmin")

/* Of the index that is the replica identity, or was before it became FULL. */
#define GENERATED_OF_IDENTITY                                                                      \
    " FROM pg_index i JOIN pg_attribute g ON g.attrelid = i.indrelid AND g.attgenerated <> ''"     \
    " AND g.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) WHERE i.indrelid = c.oid"       \
    " AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END"

/* Of many tables those whose key the stream does not flag, or not whole, or that have none. Few
 * have a generated column, and only these are looked at more closely. */
#define IS_UNFLAGGED                                                                               \
    "(c.relreplident <> 'd' OR c.oid NOT IN (SELECT indrelid FROM pg_index WHERE indisprimary)"    \
    " OR c.oid IN (SELECT attrelid FROM pg_attribute WHERE attgenerated <> '') AND EXISTS "        \
    "(SELECT" GENERATED_OF_IDENTITY ")) AND "

/* What a row of pg_depend says of an object and what it needs is written when the object is made.
 * Those of a primary key's constraint and its columns stay until it is dropped
 * (CreateConstraintEntry in pg_constraint.c), while its rows of pg_constraint and pg_index are
 * written again by RENAME CONSTRAINT, CLUSTER ON, REINDEX CONCURRENTLY, ATTACH PARTITION and
 * others. */
#define KEY_MADE                                                                                   \
    "(SELECT d.xmin FROM pg_depend d WHERE d.classid = 'pg_catalog.pg_constraint'::regclass"       \
    " AND d.objid = k.oid AND d.objsubid = 0"                                                      \
    " AND d.refclassid = 'pg_catalog.pg_class'::regclass LIMIT 1)"

/* ALTER COLUMN … TYPE makes the key of a column again, and writes the column's description in that
 * transaction. So does ADD PRIMARY KEY where the column may be null until then; but the former has
 * the column need its collation again, unless that is built in (ATExecAlterColumnType in
 * tablecmds.c; dependency.c, isObjectPinned). */
#define COLLATION_MADE                                                                             \
    "(SELECT d.xmin FROM pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::regclass"            \
    " AND d.objid = c.oid AND d.objsubid = a.attnum"                                               \
    " AND d.refclassid = 'pg_catalog.pg_collation'::regclass LIMIT 1)"

/* The row of the column tableoid is written when the table is made and never again. A table's
 * attributes are read once. `oids`: the tables, with commas between. */
static void pg_keys_add_query(struct mr_text *sql, const char *oids, bool of_many)
{
    mr_text_string(
        sql,
        "SELECT s.*, t.* FROM (SELECT " WAL_END ") s LEFT JOIN (SELECT c.oid, o.born AS table_born,"
        " o.generated, coalesce(o.dropped, 0) AS dropped, " KEY_BORN " AS key_born,"
        " CASE WHEN current_setting('track_commit_timestamp') = 'on' THEN"
        " (extract(epoch FROM pg_xact_commit_timestamp(p.xmin)) * 1000000)::bigint END,"
        " p.condeferrable, u.attname AS unsent, " UNSENT_BORN " AS unsent_born, a.attname,"
        " a.atttypid, a.atttypmod, a.attcollation <> 0 AND a.xmin = p.xmin AND p.xmin"
        " = " COLLATION_MADE " AS collated, " COLUMN_BORN " AS born, CASE WHEN NOT o.shrunk"
        " THEN a.attnum - 1 ELSE (SELECT count(*) FROM pg_attribute b WHERE b.attrelid = c.oid"
        "  AND b.attnum > 0 AND b.attnum < a.attnum AND NOT b.attisdropped) END AS place"
        " FROM (SELECT * FROM pg_class c WHERE ");
    mr_text_format(sql, "%sc.oid = ANY ('{%s}'::oid[]) OFFSET 0) c", of_many ? IS_UNFLAGGED : "",
                   oids);
    mr_text_string(
        sql,
        " CROSS JOIN LATERAL (SELECT (array_agg(" ATTRIBUTE_BORN ") FILTER (WHERE"
        "  x.attname = 'tableoid'))[1] AS born,"
        "  bool_or(x.attnum > 0 AND x.attgenerated <> '' AND NOT x.attisdropped) AS generated,"
        "  bool_or(x.attisdropped) AS shrunk,"
        "  (array_agg(" ATTRIBUTE_BORN " ORDER BY age(x.xmin)) FILTER (WHERE x.attisdropped AND"
        "  age(x.xmin) >= 0))[1] AS dropped FROM pg_attribute x WHERE x.attrelid = c.oid) o"
        " LEFT JOIN LATERAL (SELECT k.conkey, k.condeferrable, " KEY_MADE " AS xmin"
        "  FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'p') p ON true"
        " LEFT JOIN LATERAL (SELECT g.attname,"
        "  CASE WHEN i.indisprimary THEN p.xmin ELSE i.xmin END AS xmin" GENERATED_OF_IDENTITY
        "  AND o.generated ORDER BY g.attnum LIMIT 1) u ON true"
        " LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (p.conkey)) t ON true"
        " ORDER BY t.oid, t.place");
}

static uint32_t pg_keys_number(const struct mr_pg_result *result, uint32_t row,
                               enum fact_column column)
{
    return (uint32_t)mr_pg_result_number(result, row, column); /* of a null 0 */
}

static void pg_keys_add_column(struct mr_key_facts *facts, const struct mr_pg_result *result,
                               uint32_t row)
{
    facts->columns =
        MR_REALLOC(facts->columns, (facts->column_count + 1) * sizeof(*facts->columns));
    facts->columns[facts->column_count++] =
        (struct key_column){.name = MR_STRDUP(mr_pg_result_value(result, row, FACT_NAME)),
                            .type_oid = pg_keys_number(result, row, FACT_TYPE),
                            .type_modifier = (int32_t)pg_keys_number(result, row, FACT_MODIFIER),
                            .collated = mr_pg_result_true(result, row, FACT_COLLATED),
                            .born = pg_keys_number(result, row, FACT_BORN),
                            .place = pg_keys_number(result, row, FACT_PLACE)};
}

static bool is_younger(uint32_t born, uint32_t xid)
{
    return born != 0 && xid != 0 && (int32_t)(born - xid) > 0;
}

/* What was read before is what was found, too, unless it is as young as the transaction (NULL:
 * none) for which it is read again. */
static void keep_as_found(struct mr_key_facts *facts, const struct mr_transaction *transaction)
{
    bool holds = transaction == NULL ? !facts->was_found
                                     : transaction->commit_lsn >= facts->key_seen ||
                                           (facts->key_born != transaction->xid &&
                                            !is_younger(facts->key_born, transaction->xid));
    if (facts->horizon.end == 0 || !facts->table_exists || !holds) {
        return;
    }
    found_begin(facts, facts->horizon.end, facts->column_count);
    for (uint32_t i = 0; i < facts->column_count; i++) {
        facts->found[i] = MR_STRDUP(facts->columns[i].name);
    }
}

static void renew(struct mr_key_facts *facts, const struct mr_pg_result *result, uint32_t row)
{
    columns_done(facts);
    facts->table_exists = true;
    facts->has_generated = mr_pg_result_true(result, row, FACT_GENERATED);
    facts->is_deferrable = mr_pg_result_true(result, row, FACT_DEFERRABLE);
    const char *unsent = mr_pg_result_value(result, row, FACT_UNSENT);
    facts->unsent = unsent == NULL ? NULL : MR_STRDUP(unsent);
    facts->unsent_born = pg_keys_number(result, row, FACT_UNSENT_BORN);
    facts->table_born = pg_keys_number(result, row, FACT_TABLE_BORN);
    facts->dropped = pg_keys_number(result, row, FACT_DROPPED);
    uint32_t key_born = pg_keys_number(result, row, FACT_KEY_BORN);
    if (facts->key_seen == 0 || facts->key_born != key_born) {
        facts->key_seen = mr_pg_result_lsn(result, row, FACT_SEEN_AT);
    }
    facts->key_born = key_born;
    facts->key_time_us = mr_pg_result_number(result, row, FACT_KEY_TIME);
    if (mr_pg_result_value(result, row, FACT_NAME) != NULL) {
        facts->keyless_at = 0;
    } else if (facts->keyless_at == 0) {
        facts->keyless_at = mr_pg_result_lsn(result, row, FACT_SEEN_AT);
    }
}

struct taking {
    struct mr_pg_keys *keys;
    struct mr_pg_horizon horizon;
    uint32_t only; /* the table that was asked for; 0: all, in the order of their OIDs */
    uint32_t last;
    const struct mr_transaction *transaction; /* NULL: none */
    size_t bytes, bytes_max;                  /* of what is kept; 0: no limit */
};

static mr_status take_fact(struct taking *taking, const struct mr_pg_result *result, uint32_t row,
                           struct mr_error *ret_error)
{
    uint32_t oid = pg_keys_number(result, row, FACT_OID);
    if (oid == 0) {
        return MR_OK;
    }
    struct mr_by_oid *tables = &taking->keys->tables;
    struct mr_key_facts *facts = mr_by_oid_make(tables, sizeof(*facts), oid);
    bool is_next = oid != taking->last;
    if (oid < taking->last || (taking->only != 0 && oid != taking->only) ||
        (!is_next && facts->column_count == MR_COLUMNS_MAX)) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server was asked for the tables' keys and answers with other "
                       "tables, or in another order");
    }
    if (is_next) {
        keep_as_found(facts, taking->transaction);
        renew(facts, result, row);
    }
    facts->horizon = taking->horizon;
    if (mr_pg_result_value(result, row, FACT_NAME) != NULL) {
        pg_keys_add_column(facts, result, row);
        taking->bytes += sizeof(*facts->columns) + MALLOC_BYTES;
        taking->bytes += strlen(mr_pg_result_value(result, row, FACT_NAME));
    }
    taking->bytes += is_next ? sizeof(*facts) + MALLOC_BYTES : 0;
    taking->last = oid;
    if (taking->bytes_max != 0 && taking->bytes > taking->bytes_max) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "the keys of the tables whose replica identity does not name one take more "
                       "than the %zu bytes of memory that descriptions of tables may; raise "
                       "pipeline.memory, lower pipeline.change_max, or publish fewer tables",
                       taking->bytes_max);
    }
    return MR_OK;
}

static mr_status pg_keys_take_row(void *context, const struct mr_pg_result *row,
                                  struct mr_error *ret_error)
{
    return take_fact(context, row, 0, ret_error);
}

static const struct mr_pg_shape facts_shape = {"the tables' keys", "lNNBNNNBSNSNNBNN", 1,
                                               UINT32_MAX};

mr_status mr_pg_horizon_read(struct mr_pg_conn *conn, bool is_of_rows,
                             struct mr_pg_horizon *ret_horizon, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the end of the WAL", "ln", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT " WAL_END
                      ", mod(pg_snapshot_%s(pg_current_snapshot())::text::numeric,"
                      " 4294967296)::bigint",
                      is_of_rows ? "xmax" : "xmin"));
    ret_horizon->end = mr_pg_result_lsn(result, 0, 0);
    ret_horizon->next = (uint32_t)mr_pg_result_number(result, 0, 1) + is_of_rows;
    return MR_OK;
}

mr_status mr_pg_keys_read(struct mr_pg_keys *keys, struct mr_pg_conn *conn, const char *oids,
                          const struct mr_pg_horizon *horizon, size_t bytes_max,
                          struct mr_error *ret_error)
{
    struct taking taking = {.keys = keys, .horizon = *horizon, .bytes_max = bytes_max};
    struct mr_text sql = {0};
    pg_keys_add_query(&sql, oids, true);
    mr_status status =
        mr_pg_ask_rows(conn, &sql, &facts_shape, pg_keys_take_row, &taking, ret_error);
    if (status != MR_OK && taking.last != 0) { /* of its key a part may have come */
        facts_of(keys, taking.last)->horizon = (struct mr_pg_horizon){0};
    }
    keys->bytes = taking.bytes;
    return status;
}

mr_status mr_pg_sees_end(struct mr_pg_conn *conn, uint32_t xid, bool *ret_sees,
                         struct mr_error *ret_error)
{
    int64_t sees;
    /* The number lacks its upper half here; it is the last such number before the snapshot's
     * end. */
    MR_TRY(mr_pg_ask_number(
        conn, "the transaction", 'b', &sees, ret_error,
        "SELECT q.ago <= 2147483648 AND pg_visible_in_snapshot((q.xmax - q.ago)::text"
        "::xid8, q.s) FROM (SELECT s, pg_snapshot_xmax(s)::text::numeric AS xmax,"
        " mod(mod(pg_snapshot_xmax(s)::text::numeric - %u, 4294967296) + 4294967296,"
        " 4294967296) AS ago FROM pg_current_snapshot() s) q",
        xid));
    *ret_sees = sees;
    return MR_OK;
}

mr_status mr_pg_keys_ask(struct mr_pg_keys *keys, struct mr_pg_conn *conn, uint32_t oid,
                         const struct mr_transaction *transaction, struct mr_error *ret_error)
{
    const struct mr_pg_result *result;
    char oids[sizeof("4294967295")];
    snprintf(oids, sizeof(oids), "%u", oid);
    struct mr_text sql = {0};
    pg_keys_add_query(&sql, oids, false);
    MR_TRY(mr_pg_ask(conn, &sql, &facts_shape, &result, ret_error));
    struct taking taking = {.keys = keys,
                            .horizon = mr_pg_horizon_of(transaction),
                            .only = oid,
                            .transaction = transaction};
    struct mr_key_facts *facts = mr_by_oid_make(&keys->tables, sizeof(*facts), oid);
    keep_as_found(facts, transaction);
    facts->table_exists = false;
    facts->horizon = taking.horizon;
    for (uint32_t row = 0; row < mr_pg_result_rows(result); row++) {
        MR_TRY(take_fact(&taking, result, row, ret_error));
    }
    return MR_OK;
}

struct case_at_hand {
    struct mr_key_facts *facts;
    const struct mr_transaction *transaction; /* of the rows */
    struct mr_relation *view;
    struct mr_error *ret_error;
};

/* Under DEFAULT the key's columns are flagged, unless it is deferrable or not in the stream
 * (RelationGetIndexList in utils/cache/relcache.c): rows without a flagged column had none, and
 * were inserted, since nothing else can be done to them. */
static bool tells_keyless(const struct case_at_hand *at_hand)
{
    const struct mr_key_facts *facts = at_hand->facts;
    return at_hand->view->identity == MR_IDENTITY_DEFAULT && !facts->is_deferrable &&
           facts->unsent == NULL;
}

static mr_status pg_keys_unknown(const struct case_at_hand *at_hand, const char *why,
                                 const char *name)
{
    struct mr_relation *view = at_hand->view;
    if (tells_keyless(at_hand)) {
        view->key_count = 0;
        return MR_OK;
    }
    return mr_fail(at_hand->ret_error, MR_ERR_POISON,
                   "the key of table %s.%s at this place of the stream is not known: %s%s%s; its "
                   "replica identity does not name it, and the catalog tells of now only: set "
                   "key_columns = [\"%s.%s:column,…\"]",
                   view->schema, view->table, why, name, name[0] == '\0' ? "" : "\"", view->schema,
                   view->table);
}

static void warn(const struct case_at_hand *at_hand, const char *event, const char *text)
{
    const struct mr_relation *view = at_hand->view;
    mr_log(MR_LOG_WARN, event, text, MR_LOG_STR("schema", view->schema),
           MR_LOG_STR("table", view->table));
}

static bool pg_keys_find_name(const struct mr_relation *view, const char *name,
                              uint32_t *ret_column)
{
    return mr_relation_find_column(view, mr_slice_of(name), ret_column);
}

static void add_to_key(const struct case_at_hand *at_hand, uint32_t column)
{
    uint32_t *columns = at_hand->view->key_columns;
    uint32_t n = at_hand->view->key_count++;
    for (; n > 0 && columns[n - 1] > column; n--) {
        columns[n] = columns[n - 1];
    }
    columns[n] = column;
}

static bool as_before(const struct case_at_hand *at_hand)
{
    const struct mr_key_facts *facts = at_hand->facts;
    if (!facts->was_found || at_hand->transaction->commit_lsn <= facts->found_at) {
        return false;
    }
    for (uint32_t i = 0; i < facts->found_count; i++) {
        uint32_t column;
        if (!pg_keys_find_name(at_hand->view, facts->found[i], &column)) {
            at_hand->view->key_count = 0;
            return false;
        }
        add_to_key(at_hand, column);
    }
    return true;
}

static bool as_before_with_warning(const struct case_at_hand *at_hand)
{
    bool found = as_before(at_hand);
    if (found) {
        warn(at_hand, "key_as_before",
             "the table's primary key has changed, or the table is gone, after this place of the "
             "stream; until then its rows keep the key that they had");
    }
    return found;
}

static mr_status as_before_or_unknown(const struct case_at_hand *at_hand, const char *why)
{
    /* Under another identity the stream does not say that a key was dropped. */
    bool found = !at_hand->facts->is_flagged && as_before_with_warning(at_hand);
    return found ? MR_OK : pg_keys_unknown(at_hand, why, "");
}

/* Whether the table had a key is not known any more. Without one its records still have all that is
 * known of a row, for the identity is FULL, or there are inserts only; and no two rows become one.
 * A key that was flagged before may have been dropped before the table was: the warning is its only
 * sign. */
static void find_dropped(const struct case_at_hand *at_hand)
{
    if (!as_before_with_warning(at_hand)) {
        warn(at_hand, "key_unknown",
             "the table has been dropped since, and its replica identity does not name a key: its "
             "records have none until then, unless key_columns sets one");
    }
}

/* A key is made again when the type of one of its columns changes, or its collation. */
static bool was_retyped(const struct case_at_hand *at_hand)
{
    const struct mr_key_facts *facts = at_hand->facts;
    bool retyped = false;
    for (uint32_t i = 0; i < facts->column_count; i++) {
        uint32_t column;
        if (!pg_keys_find_name(at_hand->view, facts->columns[i].name, &column)) {
            return false;
        }
        const struct mr_column *then = &at_hand->view->columns[column];
        retyped |= facts->columns[i].collated || then->type_oid != facts->columns[i].type_oid ||
                   then->type_modifier != facts->columns[i].type_modifier;
    }
    return retyped;
}

/* A column of the key whose description was written again after the rows: its name may have been
 * another one. As long as no column was dropped since, the columns of then are the first of those
 * of now. */
static mr_status find_changed(const struct case_at_hand *at_hand, const struct key_column *column,
                              uint32_t *ret_column)
{
    const struct mr_key_facts *facts = at_hand->facts;
    if (!facts->has_generated && !is_younger(facts->dropped, at_hand->transaction->xid) &&
        column->place < at_hand->view->column_count) {
        *ret_column = column->place;
        return MR_OK;
    }
    if (!pg_keys_find_name(at_hand->view, column->name, ret_column)) {
        return pg_keys_unknown(
            at_hand, "a column was renamed since, and one was dropped: now it is \"", column->name);
    }
    return MR_OK;
}

static mr_status map_columns(const struct case_at_hand *at_hand)
{
    const struct mr_key_facts *facts = at_hand->facts;
    for (uint32_t i = 0; i < facts->column_count; i++) {
        const struct key_column *column = &facts->columns[i];
        uint32_t found = 0;
        bool has_name = pg_keys_find_name(at_hand->view, column->name, &found);
        bool is_new = column->born != facts->table_born;
        if (is_new && is_younger(column->born, at_hand->transaction->xid)) {
            MR_TRY(find_changed(at_hand, column, &found));
        } else if (!has_name && is_new && column->born == at_hand->transaction->xid) {
            /* The rows' own transaction named it so, or added it, after them. */
            bool keeps_places = !facts->has_generated &&
                                facts->dropped != at_hand->transaction->xid &&
                                !is_younger(facts->dropped, at_hand->transaction->xid);
            if (!keeps_places || column->place >= at_hand->view->column_count) {
                at_hand->view->key_count = 0;
                return as_before_or_unknown(at_hand, "their transaction made it after them");
            }
            found = column->place;
        } else if (!has_name) {
            at_hand->view->key_count = 0;
            warn(at_hand, "key_not_published",
                 "the stream lacks a column of the primary key, because the publication's list of "
                 "columns leaves it out or it is generated: the table's records have no key");
            return MR_OK;
        }
        add_to_key(at_hand, found);
    }
    return MR_OK;
}

/* Whether the key was made after the rows. Who makes it locks out who writes to the table, until
 * the end of either; so the order of the commits decides. The numbers are those of the beginnings,
 * and stand for it where nothing else does. */
static bool is_of_later_key(const struct case_at_hand *at_hand)
{
    const struct mr_key_facts *facts = at_hand->facts;
    const struct mr_transaction *transaction = at_hand->transaction;
    if (facts->key_born == facts->table_born || facts->key_born == 0 ||
        facts->key_born == at_hand->transaction->xid ||
        transaction->commit_lsn >= facts->key_seen) {
        return false;
    }
    if (facts->key_time_us != 0 && transaction->origin.len == 0) {
        return facts->key_time_us > transaction->commit_time_us;
    }
    return is_younger(facts->key_born, at_hand->transaction->xid);
}

static mr_status pg_keys_judge(const struct case_at_hand *at_hand)
{
    const struct mr_key_facts *facts = at_hand->facts;
    if (!facts->table_exists) {
        find_dropped(at_hand);
        return MR_OK;
    }
    if (facts->column_count == 0) {
        if (at_hand->transaction->commit_lsn < facts->keyless_at && !facts->is_flagged) {
            as_before(at_hand); /* it may have had one until just now */
        }
        return MR_OK;
    }
    /* A table that is as young as the rows was made by their own transaction, or in one that began
     * later. */
    bool table_is_young = facts->table_born == at_hand->transaction->xid ||
                          is_younger(facts->table_born, at_hand->transaction->xid);
    if (!table_is_young && is_of_later_key(at_hand) && !was_retyped(at_hand)) {
        return as_before_or_unknown(at_hand, "its primary key was made after these rows");
    }
    MR_TRY(map_columns(at_hand));
    if (facts->is_deferrable && !facts->told_deferrable) {
        at_hand->facts->told_deferrable = true;
        warn(at_hand, "key_deferrable",
             "the table's primary key is deferrable: a statement that swaps or shifts keys makes "
             "events that do not fold into its rows (docs/keys.md, \"Keys swapped in one "
             "statement\")");
    }
    return MR_OK;
}

/* A row's key without it would be that of other rows, too. An index that is younger than the row
 * may not have been the identity then. (A stream of PostgreSQL 18 may have the column.) */
static mr_status check_unsent(const struct case_at_hand *at_hand)
{
    const struct mr_key_facts *facts = at_hand->facts;
    const struct mr_relation *view = at_hand->view;
    bool by_index = view->identity == MR_IDENTITY_DEFAULT || view->identity == MR_IDENTITY_INDEX;
    uint32_t column;
    if (facts->unsent == NULL || !by_index ||
        is_younger(facts->unsent_born, at_hand->transaction->xid) ||
        pg_keys_find_name(view, facts->unsent, &column)) {
        return MR_OK;
    }
    return mr_fail(at_hand->ret_error, MR_ERR_POISON,
                   "the replica identity of table %s.%s holds column \"%s\", which is generated "
                   "and not in the stream, so several rows would have one key: give the table an "
                   "identity without it (REPLICA IDENTITY USING INDEX or FULL); for what is in the "
                   "stream already set key_columns = [\"%s.%s:column,…\"] with columns that "
                   "this identity holds",
                   view->schema, view->table, facts->unsent, view->schema, view->table);
}

/* Tables come and go, and notes of them stay: with this many they take a megabyte. A dropped table
 * that was not noted has no key. */
enum { NOTED_MAX = 4096 };

static void pg_keys_remember(struct mr_key_facts *facts, const struct mr_relation *view)
{
    found_begin(facts, 0, view->key_count);
    for (uint32_t i = 0; i < view->key_count; i++) {
        facts->found[i] = MR_STRDUP(view->columns[view->key_columns[i]].name);
    }
}

mr_status mr_pg_keys_find(struct mr_pg_keys *keys, const struct mr_transaction *transaction,
                          struct mr_relation *view, struct mr_error *ret_error)
{
    struct case_at_hand at_hand = {.facts = facts_of(keys, view->oid),
                                   .transaction = transaction,
                                   .view = view,
                                   .ret_error = ret_error};
    MR_ASSERT(at_hand.facts != NULL);
    MR_TRY(check_unsent(&at_hand));
    if (view->key_count > 0) {
        return MR_OK;
    }
    MR_TRY(pg_keys_judge(&at_hand));
    if (at_hand.facts->table_exists) {
        pg_keys_remember(at_hand.facts, view);
    }
    return MR_OK;
}

void mr_pg_keys_note(struct mr_pg_keys *keys, const struct mr_relation *view)
{
    struct mr_key_facts *facts = facts_of(keys, view->oid);
    if (facts == NULL && keys->tables.count >= NOTED_MAX) {
        return;
    }
    facts = mr_by_oid_make(&keys->tables, sizeof(*facts), view->oid);
    pg_keys_remember(facts, view);
    facts->is_flagged = true;
}
