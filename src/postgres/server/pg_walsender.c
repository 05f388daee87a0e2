/* What the walsender costs, and for whose sake. */
#include <math.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/wake.h"
#include "postgres/server/pg_rules.h"
#include "postgres/server/pg_slot.h"

/* A number of the server's may be another process here: behind a forwarded port, or in a
 * container. */
enum { BEGAN_WITHIN_S = 2 };

/* proc_pid_stat(5): (comm) state, …, utime, stime (14, 15), …, starttime (22). */
double mr_pg_cpu_of_stat(const char *stat, double boot, double began)
{
    static const char name[] = "(postgres) ";
    unsigned long long user;
    unsigned long long system;
    unsigned long long start;
    double ticks = (double)sysconf(_SC_CLK_TCK);
    const char *at = strstr(stat, name);
    if (at == NULL || sscanf(at + strlen(name),
                             "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu"
                             " %*d %*d %*d %*d %*d %*d %llu",
                             &user, &system, &start) != 3) {
        return NAN;
    }
    bool is_it = fabs(boot + (double)start / ticks - began) <= BEGAN_WITHIN_S;
    return is_it ? (double)(user + system) / ticks : NAN;
}

double mr_pg_cpu_seconds(const struct mr_pg_conn *conn, pid_t pid, double began)
{
    char path[64];
    char stat[512];
    struct timespec up;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (!mr_pg_is_local(conn) || clock_gettime(CLOCK_BOOTTIME, &up) != 0 ||
        !mr_file_read_head(path, stat, sizeof(stat))) {
        return NAN;
    }
    double boot = (double)mr_wall_ns() / 1e9 - (double)up.tv_sec - (double)up.tv_nsec / 1e9;
    return mr_pg_cpu_of_stat(stat, boot, began);
}

/* Of a partition, the publication may name the root. */
mr_status mr_pg_costly_tables(struct mr_pg_conn *conn, const char *publication,
                              struct mr_slot_cost *cost, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"what changes most", "ss", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(
        conn, &shape, &result, ret_error,
        "SELECT coalesce((SELECT left(string_agg(relid::regclass::text, ', ' ORDER BY n DESC), 120)"
        " FROM (SELECT relid, n FROM"
        " (SELECT relid, n_tup_ins + n_tup_upd + n_tup_del AS n FROM pg_stat_user_tables"
        " ORDER BY 2 DESC LIMIT 20) busy WHERE n > 0 AND NOT EXISTS"
        " (SELECT FROM pg_publication_tables p JOIN pg_namespace s ON s.nspname = p.schemaname"
        " JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = p.tablename"
        " WHERE p.pubname = %L AND (c.oid = busy.relid"
        " OR c.oid IN (SELECT pg_partition_ancestors(busy.relid)))) ORDER BY n DESC LIMIT 3) o), "
        "''),"
        " coalesce((SELECT string_agg(relname || ' (' || n_dead_tup || ')', ', ' ORDER BY"
        " n_dead_tup DESC) FROM (SELECT relname, n_dead_tup FROM pg_stat_sys_tables"
        " WHERE n_dead_tup > 0 AND schemaname = 'pg_catalog' ORDER BY 2 DESC LIMIT 3) d), '')",
        publication));
    snprintf(cost->others, sizeof(cost->others), "%s", mr_pg_result_value(result, 0, 0));
    snprintf(cost->dead_catalogs, sizeof(cost->dead_catalogs), "%s",
             mr_pg_result_value(result, 0, 1));
    return MR_OK;
}

/* What a process waits for now; "CPU": for nothing; "": there is no such process. */
static mr_status look_at_wait(struct mr_pg_conn *conn, int64_t pid, char ret_wait[MR_SLOT_WAIT_MAX],
                              struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"what the walsender does", "s", 0, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT coalesce(wait_event_type || '/' || wait_event, 'CPU') "
                      "FROM pg_catalog.pg_stat_activity WHERE pid = %u",
                      (unsigned)pid));
    snprintf(ret_wait, MR_SLOT_WAIT_MAX, "%s",
             mr_pg_result_rows(result) == 0 ? "" : mr_pg_result_value(result, 0, 0));
    return MR_OK;
}

mr_status mr_pg_look_at_waits(struct mr_pg_conn *conn, int64_t pid, int stop_fd,
                              char ret_wait[MR_SLOT_WAIT_MAX], uint32_t *ret_percent,
                              struct mr_error *ret_error)
{
    enum { LOOKS = 10, PAUSE_MS = 20 };
    char waits[LOOKS][MR_SLOT_WAIT_MAX];
    uint32_t most = 0, place = 0;
    for (uint32_t i = 0; i < LOOKS; i++) {
        MR_TRY(look_at_wait(conn, pid, waits[i], ret_error));
        if (mr_wait_readable(stop_fd, PAUSE_MS)) {
            return MR_AGAIN;
        }
    }
    for (uint32_t i = 0; i < LOOKS; i++) {
        uint32_t same = 0;
        for (uint32_t j = 0; j < LOOKS; j++) {
            same += strcmp(waits[i], waits[j]) == 0;
        }
        place = same > most ? i : place;
        most = same > most ? same : most;
    }
    memcpy(ret_wait, waits[place], MR_SLOT_WAIT_MAX);
    *ret_percent = most * 100 / LOOKS;
    return MR_OK;
}

/* A reader that is busy in so much of the looks is at its core's limit, and one that is so far
 * behind matters. */
enum { BUSY_PERCENT = 80 };
#define FAR_BYTES (INT64_C(64) << 20)

/* The three tables with most changes, by the cumulative statistics (manual,
 * "pg_stat_all_tables"). */
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
