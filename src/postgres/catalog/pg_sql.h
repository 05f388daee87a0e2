/* SQL texts put together. */
#pragma once

#include "postgres/catalog/pg_options.h"

/* Publications have row filters, column lists and whole schemas. */
enum { MR_PG_SHAPED_VERSION_MIN = 150000 };

/* For a WITH, without asking anything that waits for a lock on a table. `sent(oid, attrs, qual,
 * generated)`: a row for each table that the publication sends, leaves or roots of partitioned ones
 * as it says; which columns (NULL: all of them, and stored generated ones if `generated`) and which
 * rows (NULL: all). `tree(root, oid, isleaf)`: what is below a partitioned table or a partition,
 * itself included, of those that the publication or `more` names, a query before this with a column
 * `oid`, or NULL. `version` is the server's. */
void mr_sql_add_sent(struct mr_text *sql, const char *publication, const char *more, int version);

/* Whether a row `s` of `sent` has the column `a` of pg_attribute: check_and_fetch_column_list in
 * src/backend/catalog/pg_publication.c, logicalrep_should_publish_column in
 * replication/logical/proto.c. */
#define MR_SQL_IS_SENT                                                                             \
    "CASE WHEN s.attrs IS NULL THEN a.attgenerated = '' OR s.generated AND a.attgenerated = 's'"   \
    " ELSE a.attnum = ANY (s.attrs) END"

/* Of a row of pg_replication_slots, for mr_sql_format with a slot's name (which has nothing that a
 * regular expression would take for something else): it is the slot that existing rows are copied
 * with (pg_setup.h); it is that one or the slot itself. */
#define MR_SQL_IS_COPY_SLOT "database = current_database() AND slot_name ~ '^%s_snapshot_[0-9]+$'"
#define MR_SQL_IS_SLOT      "slot_name ~ '^%s(_snapshot_[0-9]+)?$'"

/* Of a row of pg_replication_slots, after another condition. The second column only PostgreSQL 17
 * and later have. */
#define MR_SQL_SLOT_IS_USABLE                                                                      \
    " AND wal_status IS DISTINCT FROM 'lost'"                                                      \
    " AND to_jsonb(pg_replication_slots)->>'invalidation_reason' IS NULL"

/* Of a transaction that wrote a row of the catalog, for mr_sql_format with a slot's name: it had
 * ended before what the slot still holds began. One that is far behind is. */
#define MR_SQL_IS_BEFORE_SLOT(xmin)                                                                \
    "(age(" xmin ") NOT BETWEEN 0 AND 1000000000 OR age(" xmin ") > (SELECT age(catalog_xmin)"     \
    " FROM pg_replication_slots WHERE slot_name = %L))"

/* A condition: one of the patterns fits "c", which has nspname and relname. */
void mr_sql_add_any_pattern(struct mr_text *sql, const struct mr_table_pattern *patterns,
                            uint32_t count);

/* One row about server, slot and publication; columns as enum mr_server_column. */
void mr_sql_add_server_state(struct mr_text *sql, const struct mr_pg_source_options *options);

enum mr_server_column {
    MR_SERVER_WAL_LEVEL,
    MR_SERVER_ENCODING,
    /* output_plugin_libraries; NULL where the server takes every plugin, or does not tell the
     * role */
    MR_SERVER_PLUGINS,
    MR_SERVER_STANDBY_SLOTS, /* physical slots whose standbys must be ahead of us; NULL before 17 */
    MR_SERVER_PROCESS,       /* that serves the connection */
    MR_SERVER_IS_SET,        /* settings that a connection asks for (pinned_settings) hold */
    MR_SLOT_TYPE,            /* NULL when there is no slot */
    MR_SLOT_PLUGIN,          /* NULL also of a physical slot */
    MR_SLOT_DATABASE,
    MR_SLOT_PID,
    MR_SLOT_WAL_STATUS,
    MR_SLOT_RETAINED_BYTES,
    MR_SLOT_TWO_PHASE,
    MR_SLOT_CONFIRMED,
    MR_SLOT_FAILOVER, /* NULL where the server does not know it */
    MR_SLOT_SYNCED,   /* likewise: a copy that a standby keeps (or kept, before it was promoted) */
    MR_SLOT_COPIES,   /* slots of copies that are not done */
    MR_SLOT_INVALIDATION,  /* why it is lost, where the server says it */
    MR_PUBLICATION_UPDATE, /* NULL when there is no publication */
    MR_PUBLICATION_DELETE,
    MR_PUBLICATION_INSERT,
    MR_PUBLICATION_VIA_ROOT,
};
#define MR_SERVER_SHAPE "ssSSnbSSSNSNBLBBSSBBBB"

/* One row a configured table, in their order; columns as enum mr_table_column. A constant number of
 * joins, however many tables. */
void mr_sql_add_table_states(struct mr_text *sql, const struct mr_pg_source_options *options,
                             int version);

enum mr_table_column {
    MR_TABLE_KIND,        /* pg_class.relkind, NULL when the table does not exist */
    MR_TABLE_PERSISTENCE, /* pg_class.relpersistence */
    MR_TABLE_IDENTITY,    /* pg_class.relreplident; n where the index is none that can be one */
    MR_TABLE_HAS_KEY,     /* a primary key */
    MR_TABLE_PUBLISHED,   /* in the publication, or by its partitions */
    MR_TABLE_LESSER,      /* how many of its partitions have less of an identity than it takes */
    MR_TABLE_LESSER_CURE, /* statements that mend the first of them, or NULL */
    MR_TABLE_UNSENT, /* a generated column of its identity that the stream does not have, or NULL */
    MR_TABLE_UNPROVEN, /* a column of its identity that old rows may have null in, or NULL */
};
#define MR_TABLE_SHAPE "SSSbbnSSS"

/* A row for each table whose existing rows would be copied; columns as enum mr_copied_column. */
void mr_sql_add_copied(struct mr_text *sql, const struct mr_pg_source_options *options,
                       int version);

enum mr_copied_column {
    MR_COPIED_SCHEMA, /* as the stream names it, */
    MR_COPIED_TABLE,
    MR_COPIED_LEAF_SCHEMA, /* and whose rows are read */
    MR_COPIED_LEAF,
    MR_COPIED_READABLE,
    MR_COPIED_SCHEMA_USABLE,
    MR_COPIED_HIDES_ROWS, /* by policies, from this role */
    MR_COPIED_CALLED,     /* mr_sql_add_called */
    MR_COPIED_MAY_MORE,   /* MR_SQL_MAY_MORE */
};
#define MR_COPIED_SHAPE "ssssbbbSb"

/* A value: names of the functions of others that the planner may call with our rights where rows of
 * `tables`, a query of OIDs, are read; NULL: none. */
void mr_sql_add_called(struct mr_text *sql, const char *tables);

/* A value: whether the role may do more than read, by itself or as another that it may become: what
 * a function that only reads could use of it (the manual's chapters "Role Attributes" and
 * "Predefined Roles"). Amazon RDS gives the right to replicate by membership. */
#define MR_SQL_MAY_MORE                                                                            \
    "EXISTS (SELECT FROM pg_roles m WHERE pg_has_role(m.oid, 'MEMBER') AND (m.rolsuper OR"         \
    " m.rolreplication OR m.rolcreaterole OR m.rolcreatedb OR m.rolname IN ('rds_superuser',"      \
    " 'rds_replication', 'pg_write_all_data', 'pg_execute_server_program',"                        \
    " 'pg_read_server_files', 'pg_write_server_files', 'pg_signal_backend',"                       \
    " 'pg_create_subscription', 'pg_maintain', 'pg_checkpoint')))"

/* One row a column that an option names (keys, held, named), in the order of configuration; columns
 * as enum mr_key_column. */
void mr_sql_add_key_columns(struct mr_text *sql, const struct mr_pg_source_options *options);

enum mr_key_column {
    MR_KEY_EXISTS,
    MR_KEY_HELD,    /* by the replica identity, or that holds nothing at all */
    MR_KEY_DIVIDED, /* its table has partitions */
};
#define MR_KEY_SHAPE "bbb"

/* One row a pattern_rule, in their order, columns as enum mr_rule_column: what there is now under
 * the names that rows have, or will have with the publication that is to be made or altered. */
void mr_sql_add_rules(struct mr_text *sql, const struct mr_pg_source_options *options, int version);

enum mr_rule_column {
    MR_RULE_HAS_TABLE,
    MR_RULE_HAS_COLUMN, /* in one of the tables; true where it is about tables alone */
};
#define MR_RULE_SHAPE "bb"

/* One row: how many unlogged tables the patterns fit, whose changes are in no WAL, and the names of
 * five ("nS"). */
void mr_sql_add_unlogged(struct mr_text *sql, const struct mr_pg_source_options *options);

/* The same of partitions of configured tables. */
void mr_sql_add_unlogged_parts(struct mr_text *sql, const struct mr_pg_source_options *options,
                               int version);

/* Configured tables and their partitions: those that are unlogged, those whose OID is above
 * `since`, and those of `oids` (", 1, 2" or ""): OID, name, whether it is unlogged, whether it is
 * configured by name ("nsbb"). */
void mr_sql_add_logging(struct mr_text *sql, const struct mr_pg_source_options *options,
                        uint32_t since, const char *oids, int version);

/* One row: tables that the publication sends and that are neither configured nor partitions of one
 * that is; some of their names; row changes that the server has counted in them, and in all that is
 * sent (0 where there is no such table). Then tables that patterns alone mean, some of their names;
 * those of them without a replica identity, some names; those that the publication, which is there,
 * does not send; and of the first those without a replica identity. */
void mr_sql_add_meant(struct mr_text *sql, const struct mr_pg_source_options *options, int version);

enum mr_meant_column {
    MR_UNLISTED_COUNT,
    MR_UNLISTED_NAMES,
    MR_UNLISTED_CHANGES,
    MR_SENT_CHANGES,
    MR_MEANT_COUNT,
    MR_MEANT_NAMES,
    MR_MEANT_UNHELD_COUNT,
    MR_MEANT_UNHELD_NAMES,
    MR_UNPUBLISHED_COUNT, /* of what patterns mean */
    MR_UNPUBLISHED_NAMES,
    MR_UNLISTED_UNHELD_COUNT,
    MR_UNLISTED_UNHELD_NAMES,
};
#define MR_MEANT_SHAPE "nSnnnSnSnSnS"

/* One row: how many listed tables are there and not published, though there is a publication; some
 * names. */
void mr_sql_add_unpublished(struct mr_text *sql, const struct mr_pg_source_options *options,
                            int version);

/* A row for each table that is streamed, by ascending OIDs: OID, schema, name. */
void mr_sql_add_streamed(struct mr_text *sql, const struct mr_pg_source_options *options,
                         int version);

/* A row for each table that the publication sends, or that is configured or a partition of one that
 * is, in the order of OIDs: the OID, which of these it is, as enum mr_pg_capture, whether it would
 * be sent if it were no partition; of a partition, the outermost listed table: its OID, schema and
 * name, and, where rules hide columns, which column of the two is which (struct mr_origin). */
void mr_sql_add_captured(struct mr_text *sql, const struct mr_pg_source_options *options,
                         int version);

/* One row: where the WAL has come to; whether there is a table of that OID; whether it is a
 * partition; whether within what the slot holds neither it nor what it is a partition of can have
 * been attached or detached; whether the latter may have got another name; who wrote the
 * descriptions of their first columns; whether a column is as it was made, so that the table never
 * was attached or detached. */
void mr_sql_add_look(struct mr_text *sql, const struct mr_pg_source_options *options, uint32_t oid);

/* A row for each table that is not a partition, but may have been one: no column, nor the table, is
 * as it was made. OID, schema, name, columns as mr_sql_add_kin wants them. `oid`: that one; 0: all
 * that are listed. */
void mr_sql_add_unsettled(struct mr_text *sql, const struct mr_pg_source_options *options,
                          uint32_t oid, int version);

/* Rows, of a table that had these columns (mr_pg_captured_add_columns): a partitioned table of ours
 * that has them, too, but for what was changed within what the slot holds (asked only if it
 * `was_attached`, or detached, meanwhile); whether the publication sends nothing but what is
 * listed, or names what it is a partition of, which may have got another name, and this one for
 * another table's sake; a listed table that is gone, or was made within that time. Then each of
 * the former, or else of the latter: OID (0), schema, name; else one row without. */
void mr_sql_add_kin(struct mr_text *sql, const struct mr_pg_source_options *options,
                    const char *schema, uint32_t oid, const char *columns, bool was_attached,
                    int version);
