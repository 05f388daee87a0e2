#include "postgres/server/pg_holder.h"

#include "postgres/catalog/pg_sql.h"

enum holder_column {
    HOLDER_PID,
    HOLDER_ROLE,
    HOLDER_DATABASE,
    HOLDER_SINCE,
    HOLDER_GID,
    HOLDER_END
};

/* Of `a`, of pg_stat_activity, and `p`, of pg_prepared_xacts, of which at most one is there: one
 * that is prepared is no process's. */
#define HOLDER_COLUMNS                                                                             \
    "a.pid::bigint, coalesce(a.usename, p.owner)::text, coalesce(a.datname, p.database)::text,"    \
    " coalesce(a.xact_start, p.prepared)::timestamptz(0)::text, p.gid"
#define HOLDER_SHAPE "NSSSS"

static const char *or_unknown(const char *name)
{
    return name == NULL ? "(unknown)" : name;
}

/* Of the one row; nobody where there is none. */
static void holder_take(const struct mr_pg_result *result, struct mr_pg_holder *ret_holder)
{
    *ret_holder = (struct mr_pg_holder){0};
    if (mr_pg_result_rows(result) == 0) {
        return;
    }
    const char *gid = mr_pg_result_value(result, 0, HOLDER_GID);
    const char *role = or_unknown(mr_pg_result_value(result, 0, HOLDER_ROLE));
    const char *database = or_unknown(mr_pg_result_value(result, 0, HOLDER_DATABASE));
    const char *since = mr_pg_result_value(result, 0, HOLDER_SINCE);
    bool has_pid = mr_pg_result_value(result, 0, HOLDER_PID) != NULL;
    long long pid = (long long)mr_pg_result_number(result, 0, HOLDER_PID);
    struct mr_pg_holder holder = {0};
    MR_TEXT(remedy);
    if (gid != NULL) {
        snprintf(holder.who, sizeof(holder.who),
                 "a prepared transaction of role %s in database %s (pg_prepared_xacts)", role,
                 database);
        mr_sql_format(&remedy, "COMMIT PREPARED or ROLLBACK PREPARED %L in database %s", gid,
                      database);
    } else if (has_pid) {
        snprintf(holder.who, sizeof(holder.who),
                 "the transaction of role %s in database %s, process %lld", role, database, pid);
        mr_text_format(&remedy, "have it end, or SELECT pg_terminate_backend(%lld)", pid);
    }
    snprintf(holder.since, sizeof(holder.since), "%s", since == NULL ? "" : since);
    snprintf(holder.remedy, sizeof(holder.remedy), "%s", remedy.data == NULL ? "" : remedy.data);
    *ret_holder = holder;
}

/* ShareUpdateExclusiveLock is what a publication takes of a table (OpenTableList in
 * commands/publicationcmds.c); what that waits for: the manual, "Conflicting Lock Modes". A
 * prepared transaction's locks are of no process, and all of one virtual transaction, that of its
 * number too (MarkAsPreparingGuts in access/transam/twophase.c). */
mr_status mr_pg_holder_of_tables(struct mr_pg_conn *conn,
                                 const struct mr_pg_source_options *options,
                                 struct mr_pg_holder *ret_holder, struct mr_text *ret_table,
                                 struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"who has a table", HOLDER_SHAPE "s", 0, 1};
    const struct mr_pg_result *result;
    struct mr_text sql = {0};
    mr_text_string(&sql, "WITH RECURSIVE wanted(schema, name) AS (VALUES ");
    for (uint32_t i = 0; i < options->captured.table_count; i++) {
        const struct mr_table_name *table = &options->captured.tables[i];
        mr_sql_format(&sql, "%s(%L, %L)", i == 0 ? "" : ", ", table->schema, table->table);
    }
    mr_text_string(&sql, options->captured.table_count == 0 ? "(NULL::text, NULL::text)" : "");
    mr_text_string(
        &sql,
        "), below(oid) AS (SELECT c.oid FROM wanted w JOIN pg_namespace n ON n.nspname::text = "
        "w.schema"
        " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname::text = w.name"
        " UNION SELECT i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid)"
        " SELECT " HOLDER_COLUMNS ", n.nspname || '.' || c.relname FROM below b"
        " JOIN pg_locks l ON l.locktype = 'relation' AND l.relation = b.oid"
        " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND l.pid IS DISTINCT FROM pg_backend_pid() AND l.mode IN ('ShareUpdateExclusiveLock',"
        " 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')"
        " JOIN pg_class c ON c.oid = b.oid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN pg_stat_activity a ON a.pid = l.pid LEFT JOIN pg_locks x"
        " ON x.locktype = 'transactionid' AND x.granted AND l.pid IS NULL AND x.pid IS NULL"
        " AND x.virtualtransaction = l.virtualtransaction"
        " LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid"
        " ORDER BY l.granted DESC, a.xact_start LIMIT 1");
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &result, ret_error));
    holder_take(result, ret_holder);
    if (mr_pg_result_rows(result) == 1) {
        mr_text_string(ret_table, mr_pg_result_value(result, 0, HOLDER_END));
    }
    return MR_OK;
}

/* SnapBuildWaitSnapshot in replication/logical/snapbuild.c, by XactLockTableWait. */
mr_status mr_pg_holder_of_slot(struct mr_pg_conn *conn, const char *slot,
                               struct mr_pg_holder *ret_holder, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"what the slot waits for", HOLDER_SHAPE, 0, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT " HOLDER_COLUMNS " FROM pg_replication_slots s"
                      " JOIN pg_locks w ON w.pid = s.active_pid AND w.locktype = 'transactionid'"
                      " AND NOT w.granted LEFT JOIN pg_locks h ON h.locktype = 'transactionid'"
                      " AND h.transactionid = w.transactionid AND h.granted"
                      " LEFT JOIN pg_stat_activity a ON a.pid = h.pid"
                      " LEFT JOIN pg_prepared_xacts p ON p.transaction = w.transactionid"
                      " WHERE s." MR_SQL_IS_SLOT " LIMIT 1",
                      slot));
    holder_take(result, ret_holder);
    return MR_OK;
}

/* The number is everybody's to see, other than the rest of pg_stat_activity (pg_stat_get_activity
 * in utils/adt/pgstatfuncs.c). */
mr_status mr_pg_holder_of_number(struct mr_pg_conn *conn, uint32_t xid,
                                 struct mr_pg_holder *ret_holder, char **ret_snapshot,
                                 struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"whose a transaction is", HOLDER_SHAPE "s", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT " HOLDER_COLUMNS ", pg_current_snapshot()::text FROM (VALUES (1)) x"
                      " LEFT JOIN pg_stat_activity a ON a.backend_xid = '%u'::xid"
                      " LEFT JOIN pg_prepared_xacts p ON p.transaction = '%u'::xid LIMIT 1",
                      xid, xid));
    holder_take(result, ret_holder);
    *ret_snapshot = MR_STRDUP(mr_pg_result_value(result, 0, HOLDER_END));
    return MR_OK;
}
