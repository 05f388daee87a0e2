#include "source/pg_sql.h"

#include <stdlib.h>

void mr_sql_add_literal(struct mr_text *sql, struct mr_pg_conn *conn, const char *value)
{
    char *quoted = mr_pg_quote_literal(conn, value);
    mr_text_string(sql, quoted);
    free(quoted);
}

void mr_sql_add_identifier(struct mr_text *sql, struct mr_pg_conn *conn, const char *name)
{
    char *quoted = mr_pg_quote_identifier(conn, name);
    mr_text_string(sql, quoted);
    free(quoted);
}

void mr_sql_add_table(struct mr_text *sql, struct mr_pg_conn *conn,
                      const struct mr_table_name *table)
{
    mr_sql_add_identifier(sql, conn, table->schema);
    mr_text_format(sql, ".");
    mr_sql_add_identifier(sql, conn, table->table);
}

void mr_sql_add_tables(struct mr_text *sql, struct mr_pg_conn *conn,
                       const struct mr_pg_source_options *options)
{
    mr_text_format(sql, "ARRAY[");
    for (uint32_t i = 0; i < options->table_count; i++) {
        struct mr_text name = {0};
        mr_sql_add_table(&name, conn, &options->tables[i]);
        mr_text_string(sql, i == 0 ? "" : ",");
        mr_sql_add_literal(sql, conn, name.data);
        mr_text_done(&name);
    }
    mr_text_format(sql, "]::text[]");
}

void mr_sql_add_table_states(struct mr_text *sql, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options)
{
    mr_text_format(sql,
                   "SELECT w.name, c.relkind, c.relpersistence, c.relreplident,"
                   " EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),"
                   " EXISTS (SELECT FROM pg_publication_tables t"
                   "  JOIN pg_namespace tn ON tn.nspname = t.schemaname"
                   "  JOIN pg_class tc ON tc.relnamespace = tn.oid AND tc.relname = t.tablename"
                   "  WHERE t.pubname = ");
    mr_sql_add_literal(sql, conn, options->publication);
    mr_text_format(
        sql,
        "  AND (tc.oid = c.oid OR c.oid IN (SELECT relid FROM pg_partition_ancestors(tc.oid)))),"
        " has_table_privilege(c.oid, 'SELECT')"
        " FROM unnest(");
    mr_sql_add_tables(sql, conn, options);
    mr_text_format(sql, ") WITH ORDINALITY w(name, n)"
                        " LEFT JOIN pg_class c ON c.oid = to_regclass(w.name) ORDER BY w.n");
}

void mr_sql_add_server_state(struct mr_text *sql, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options)
{
    mr_text_format(
        sql,
        "SELECT current_setting('wal_level'), current_setting('server_encoding'),"
        " coalesce(s.plugin, CASE WHEN s.slot_name IS NOT NULL THEN 'none' END), s.slot_type,"
        " s.database, s.active_pid, s.wal_status, s.safe_wal_size,"
        " pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
        "  ELSE pg_current_wal_lsn() END, s.restart_lsn), s.two_phase, s.confirmed_flush_lsn,"
        " p.pubowner, p.puballtables, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,"
        " p.pubviaroot,"
        /* Columns that only PostgreSQL 17 and later have. */
        " to_jsonb(s)->>'failover', to_jsonb(s)->>'synced', to_jsonb(s)->>'invalidation_reason',"
        " current_setting('synchronized_standby_slots', true)"
        " FROM (VALUES (1)) one LEFT JOIN pg_replication_slots s ON s.slot_name = ");
    mr_sql_add_literal(sql, conn, options->slot);
    mr_text_format(sql, " LEFT JOIN pg_publication p ON p.pubname = ");
    mr_sql_add_literal(sql, conn, options->publication);
}
