#include "source/pg_sql.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void sql_room(struct mr_sql *sql, size_t more)
{
    if (sql->len + more + 1 > sql->size) {
        sql->size = 2 * (sql->len + more + 1);
        sql->text = MR_REALLOC(sql->text, sql->size);
    }
}

void mr_sql_add(struct mr_sql *sql, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    MR_ASSERT(len >= 0);
    sql_room(sql, (size_t)len);
    vsnprintf(sql->text + sql->len, (size_t)len + 1, format, again);
    sql->len += (size_t)len;
    va_end(again);
    va_end(args);
}

void mr_sql_add_literal(struct mr_sql *sql, struct mr_pg_conn *conn, const char *value)
{
    char *quoted = mr_pg_quote_literal(conn, value);
    mr_sql_add(sql, "%s", quoted);
    free(quoted);
}

void mr_sql_add_identifier(struct mr_sql *sql, struct mr_pg_conn *conn, const char *name)
{
    char *quoted = mr_pg_quote_identifier(conn, name);
    mr_sql_add(sql, "%s", quoted);
    free(quoted);
}

void mr_sql_add_table(struct mr_sql *sql, struct mr_pg_conn *conn,
                      const struct mr_table_name *table)
{
    mr_sql_add_identifier(sql, conn, table->schema);
    mr_sql_add(sql, ".");
    mr_sql_add_identifier(sql, conn, table->table);
}

void mr_sql_add_tables(struct mr_sql *sql, struct mr_pg_conn *conn,
                       const struct mr_pg_source_options *options)
{
    mr_sql_add(sql, "ARRAY[");
    for (uint32_t i = 0; i < options->table_count; i++) {
        struct mr_sql name = {0};
        mr_sql_add_table(&name, conn, &options->tables[i]);
        mr_sql_add(sql, "%s", i == 0 ? "" : ",");
        mr_sql_add_literal(sql, conn, name.text);
        mr_sql_done(&name);
    }
    mr_sql_add(sql, "]::text[]");
}

void mr_sql_add_table_states(struct mr_sql *sql, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options)
{
    mr_sql_add(sql, "SELECT w.name, c.relkind, c.relpersistence, c.relreplident,"
                    " EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),"
                    " EXISTS (SELECT FROM pg_publication_tables t"
                    "  JOIN pg_namespace tn ON tn.nspname = t.schemaname"
                    "  JOIN pg_class tc ON tc.relnamespace = tn.oid AND tc.relname = t.tablename"
                    "  WHERE t.pubname = ");
    mr_sql_add_literal(sql, conn, options->publication);
    mr_sql_add(
        sql,
        "  AND (tc.oid = c.oid OR c.oid IN (SELECT relid FROM pg_partition_ancestors(tc.oid)))),"
        " has_table_privilege(c.oid, 'SELECT')"
        " FROM unnest(");
    mr_sql_add_tables(sql, conn, options);
    mr_sql_add(sql, ") WITH ORDINALITY w(name, n)"
                    " LEFT JOIN pg_class c ON c.oid = to_regclass(w.name) ORDER BY w.n");
}

void mr_sql_add_server_state(struct mr_sql *sql, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options)
{
    mr_sql_add(
        sql, "SELECT current_setting('wal_level'), current_setting('server_encoding'),"
             " coalesce(s.plugin, CASE WHEN s.slot_name IS NOT NULL THEN 'none' END), s.slot_type,"
             " s.database, s.active_pid, s.wal_status, s.safe_wal_size,"
             " pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
             "  ELSE pg_current_wal_lsn() END, s.restart_lsn), s.two_phase, s.confirmed_flush_lsn,"
             " p.pubowner, p.puballtables, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,"
             " p.pubviaroot"
             " FROM (VALUES (1)) one LEFT JOIN pg_replication_slots s ON s.slot_name = ");
    mr_sql_add_literal(sql, conn, options->slot);
    mr_sql_add(sql, " LEFT JOIN pg_publication p ON p.pubname = ");
    mr_sql_add_literal(sql, conn, options->publication);
}

void mr_sql_done(struct mr_sql *sql)
{
    free(sql->text);
    *sql = (struct mr_sql){0};
}
