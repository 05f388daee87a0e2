/* `millrace check`: whether the slot that is read now still suffices. */
#include "postgres/server/pg_rules.h"

/* How often the reader is looked at, and from how often without a wait on it is at its core's limit. */
enum { LOOKS = 10, BUSY_LOOKS = 8 };
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

/* Who reads a slot that is far behind and waits for nothing decodes as fast as its core can (manual, "Wait Event"). */
mr_status mr_pg_rules_of_load(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                              struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"what the slot's reader does", "bn", 0, 1};
    const struct mr_pg_result *result;
    int busy = 0;
    int64_t behind = 0;
    for (int i = 0; i < LOOKS && !mr_pg_is_standby(conn); i++) {
        MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                          "SELECT a.wait_event IS NULL,"
                          " (pg_catalog.pg_current_wal_lsn() - s.confirmed_flush_lsn)::bigint"
                          " FROM pg_catalog.pg_sleep(0.05), pg_catalog.pg_replication_slots s"
                          " JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid"
                          " WHERE s.slot_name = %L AND s.confirmed_flush_lsn IS NOT NULL",
                          facts->options->slot));
        behind = mr_pg_result_rows(result) == 0 ? 0 : mr_pg_result_number(result, 0, 1);
        if (behind < FAR_BYTES) {
            return MR_OK;
        }
        busy += mr_pg_result_true(result, 0, 0);
    }
    if (busy < BUSY_LOOKS) {
        return MR_OK;
    }
    const char *tables;
    MR_TRY(name_tables(conn, &tables, ret_error));
    mr_pg_remedy(to, "docs/sizing.md, \"One database that outgrows a slot\"");
    MR_FOUND_WARNING(to,
                     "PostgreSQL decodes it at a core's limit (%d of %d looks) and is %lld MiB "
                     "behind; of the rows written since the statistics began: %s",
                     busy, LOOKS, (long long)(behind >> 20), tables);
    return MR_OK;
}
