/* `millrace check`: whether the slot that is read now still suffices. */
#include "postgres/server/pg_rules.h"
#include "postgres/server/pg_walsender.h"

enum {
    BUSY_PERCENT = 80
}; /* of the looks at its reader; from there on it is at its core's limit */
#define FAR_BYTES (INT64_C(64) << 20)

/* The three tables with most changes, by the cumulative statistics (manual, "pg_stat_all_tables"). */
static mr_status name_tables(struct mr_pg_conn *conn, const char **ret_tables,
                             struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the tables' changes", "s", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(
        conn, &shape, &result, ret_error,
        "SELECT coalesce(string_agg(t.name || ' ' || t.share || ' %%', ', '), 'none') FROM ("
        "SELECT schemaname || '.' || relname AS name, (100 * n / greatest(sum(n) OVER (), 1))::int "
        "AS share"
        " FROM (SELECT schemaname, relname, n_tup_ins + n_tup_upd + n_tup_del AS n"
        " FROM pg_catalog.pg_stat_user_tables) s ORDER BY n DESC LIMIT 3) t"));
    *ret_tables = mr_pg_result_value(result, 0, 0);
    return MR_OK;
}

/* Who reads a slot that is far behind and waits for nothing decodes as fast as its core can. */
mr_status mr_pg_rules_of_load(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                              struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the slot's reader", "nn", 0, 1};
    const struct mr_pg_result *result;
    if (mr_pg_is_standby(conn)) {
        return MR_OK;
    }
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT active_pid::bigint,"
                      " (pg_catalog.pg_current_wal_lsn() - confirmed_flush_lsn)::bigint"
                      " FROM pg_catalog.pg_replication_slots WHERE slot_name = %L"
                      " AND active_pid IS NOT NULL AND confirmed_flush_lsn IS NOT NULL",
                      facts->options->slot));
    int64_t behind = mr_pg_result_rows(result) == 0 ? 0 : mr_pg_result_number(result, 0, 1);
    if (behind < FAR_BYTES) {
        return MR_OK;
    }
    char wait[MR_SLOT_WAIT_MAX];
    uint32_t percent;
    MR_TRY(mr_pg_look_at_waits(conn, mr_pg_result_number(result, 0, 0), -1, wait, &percent,
                               ret_error));
    if (strcmp(wait, "CPU") != 0 || percent < BUSY_PERCENT) {
        return MR_OK;
    }
    const char *tables;
    MR_TRY(name_tables(conn, &tables, ret_error));
    mr_pg_remedy(to, "docs/sizing.md, \"One database that outgrows a slot\"");
    MR_FOUND_WARNING(to,
                     "PostgreSQL decodes it at a core's limit (CPU in %u %% of the looks) and is "
                     "%lld MiB behind; of the rows written since the statistics began: %s",
                     percent, (long long)(behind >> 20), tables);
    return MR_OK;
}
