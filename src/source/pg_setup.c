#include "source/pg_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "source/pg_sql.h"

enum { SERVER_VERSION_MIN = 140000, FAILOVER_VERSION_MIN = 170000 };

/* What every step needs. */
struct setup {
    struct mr_pg_conn *conn;
    const struct mr_pg_source_options *options;
    bool is_known;
    bool adopted;
    int stop_fd;
    struct mr_error *ret_error;
};

static mr_status setup_run(struct setup *setup, struct mr_text *sql,
                           struct mr_pg_result **ret_result)
{
    mr_status status =
        mr_pg_exec(setup->conn, setup->stop_fd, sql->data, ret_result, NULL, setup->ret_error);
    mr_text_done(sql);
    return status;
}

static mr_status check_server(struct setup *setup, const struct mr_pg_result *state)
{
    int version = mr_pg_server_version(setup->conn);
    if (version < SERVER_VERSION_MIN) {
        return mr_fail(setup->ret_error, MR_ERR_CONFIG,
                       "PostgreSQL %d is too old: millrace needs 14 or later; upgrade the server",
                       version / 10000);
    }
    const char *wal_level = mr_pg_result_value(state, 0, MR_SERVER_WAL_LEVEL);
    if (strcmp(wal_level, "logical") != 0) {
        return mr_fail(
            setup->ret_error, MR_ERR_CONFIG,
            "wal_level is %s, but logical replication needs logical; run ALTER SYSTEM SET "
            "wal_level = 'logical' and restart PostgreSQL",
            wal_level);
    }
    return MR_OK;
}

/* ---- tables ---- */

static mr_status check_table_exists(struct setup *setup, const struct mr_pg_result *tables, int row)
{
    const char *name = mr_pg_result_value(tables, row, MR_TABLE_NAME);
    const char *kind = mr_pg_result_value(tables, row, MR_TABLE_KIND);
    if (kind == NULL) {
        return mr_fail(setup->ret_error, MR_ERR_CONFIG,
                       "table %s does not exist in database %s; create it or correct \"tables\"",
                       name, mr_pg_database(setup->conn));
    }
    if (strcmp(kind, "r") != 0 && strcmp(kind, "p") != 0) {
        return mr_fail(setup->ret_error, MR_ERR_CONFIG,
                       "%s is no table (kind %s), and only tables can be published; take it out of "
                       "\"tables\"",
                       name, kind);
    }
    if (strcmp(mr_pg_result_value(tables, row, MR_TABLE_PERSISTENCE), "p") != 0) {
        return mr_fail(
            setup->ret_error, MR_ERR_CONFIG,
            "table %s is unlogged or temporary, so its changes are in no log; take it out of "
            "\"tables\" or run ALTER TABLE %s SET LOGGED",
            name, name);
    }
    return MR_OK;
}

/* Without an identity the application's own UPDATE and DELETE fail once the table is published. */
static mr_status check_table_identity(struct setup *setup, const struct mr_pg_result *tables,
                                      int row)
{
    const char *name = mr_pg_result_value(tables, row, MR_TABLE_NAME);
    const char *identity = mr_pg_result_value(tables, row, MR_TABLE_IDENTITY);
    bool has_key = mr_sql_true(mr_pg_result_value(tables, row, MR_TABLE_HAS_KEY));
    if (identity[0] == 'n' || (identity[0] == 'd' && !has_key)) {
        return mr_fail(
            setup->ret_error, MR_ERR_CONFIG,
            "table %s has no replica identity, so the application's own UPDATE and DELETE "
            "would fail once it is published; add a primary key, or run ALTER TABLE %s REPLICA "
            "IDENTITY FULL",
            name, name);
    }
    return MR_OK;
}

/* ---- publication ---- */

static mr_status create_publication(struct setup *setup)
{
    struct mr_text sql = {0};
    mr_text_format(&sql, "CREATE PUBLICATION ");
    mr_sql_add_identifier(&sql, setup->conn, setup->options->publication);
    for (uint32_t i = 0; i < setup->options->table_count; i++) {
        mr_text_string(&sql, i == 0 ? " FOR TABLE " : ", ");
        mr_sql_add_table(&sql, setup->conn, &setup->options->tables[i]);
    }
    MR_TRY(setup_run(setup, &sql, NULL));
    mr_log(MR_LOG_INFO, "publication_created", "the publication did not exist and was created",
           MR_LOG_STR("publication", setup->options->publication),
           MR_LOG_INT("tables", setup->options->table_count));
    return MR_OK;
}

static mr_status publication_missing(struct setup *setup, bool slot_exists)
{
    const char *name = setup->options->publication;
    if (slot_exists) {
        return mr_fail(
            setup->ret_error, MR_ERR_HISTORY,
            "publication \"%s\" does not exist, but slot \"%s\" does: a publication made now "
            "would be younger than the slot's position, and the stream could not be read; drop "
            "the slot with SELECT pg_drop_replication_slot('%s') and let millrace make both",
            name, setup->options->slot, setup->options->slot);
    }
    if (!setup->options->create_publication) {
        return mr_fail(
            setup->ret_error, MR_ERR_CONFIG,
            "publication \"%s\" does not exist; create it with CREATE PUBLICATION \"%s\" FOR "
            "TABLE …, or set source.postgres.create_publication = true",
            name, name);
    }
    if (setup->options->table_count == 0) {
        return mr_fail(
            setup->ret_error, MR_ERR_CONFIG,
            "publication \"%s\" does not exist and no tables are configured to make it for; set "
            "tables = [\"schema.table\", …]",
            name);
    }
    return MR_OK;
}

static mr_status check_published(struct setup *setup, const struct mr_pg_result *tables, int row)
{
    if (!mr_sql_true(mr_pg_result_value(tables, row, MR_TABLE_PUBLISHED))) {
        const char *name = mr_pg_result_value(tables, row, MR_TABLE_NAME);
        return mr_fail(
            setup->ret_error, MR_ERR_CONFIG,
            "table %s is not in publication \"%s\"; run ALTER PUBLICATION \"%s\" ADD TABLE %s",
            name, setup->options->publication, setup->options->publication, name);
    }
    return MR_OK;
}

static mr_status check_tables(struct setup *setup, bool published, bool needs_identity)
{
    if (setup->options->table_count == 0) {
        return MR_OK;
    }
    struct mr_text sql = {0};
    mr_sql_add_table_states(&sql, setup->conn, setup->options);
    struct mr_pg_result *tables;
    MR_TRY(setup_run(setup, &sql, &tables));
    mr_status status = MR_OK;
    for (int row = 0; status == MR_OK && row < mr_pg_result_rows(tables); row++) {
        status = check_table_exists(setup, tables, row);
        if (status == MR_OK && published) {
            status = check_published(setup, tables, row);
        }
        if (status == MR_OK && needs_identity) {
            status = check_table_identity(setup, tables, row);
        }
    }
    mr_pg_result_free(tables);
    return status;
}

/* ---- slot ---- */

static void warn_of_failover(const struct setup *setup)
{
    mr_log(
        MR_LOG_WARN, "failover_unsupported",
        "source.postgres.failover needs PostgreSQL 17 or later: after a promotion the slot is gone",
        MR_LOG_STR("slot", setup->options->slot));
}

/* A slot that was made without FAILOVER gets it. One that has it keeps it, whatever is configured. */
static mr_status set_failover(struct setup *setup, const struct mr_pg_result *state)
{
    if (!setup->options->failover) {
        return MR_OK;
    }
    const char *failover = mr_pg_result_value(state, 0, MR_SLOT_FAILOVER);
    if (failover == NULL) {
        warn_of_failover(setup);
        return MR_OK;
    }
    if (mr_sql_true(failover)) {
        return MR_OK;
    }
    struct mr_text sql = {0};
    mr_text_format(&sql, "ALTER_REPLICATION_SLOT ");
    mr_sql_add_identifier(&sql, setup->conn, setup->options->slot);
    mr_text_format(&sql, " (FAILOVER true)");
    MR_TRY(setup_run(setup, &sql, NULL));
    mr_log(MR_LOG_INFO, "slot_failover_set",
           "the slot was made without FAILOVER and has it now: standbys may keep a copy of it",
           MR_LOG_STR("slot", setup->options->slot));
    return MR_OK;
}

/* A slot without a stored position: made by hand for this start, or what was stored is lost, and nobody can say any
 * more whether the slot is still the one that was read from. */
static mr_status adopt(struct setup *setup, const struct mr_pg_result *state)
{
    const struct mr_pg_source_options *options = setup->options;
    if (setup->is_known || !options->position_is_stored) {
        return MR_OK;
    }
    const char *confirmed = mr_pg_result_value(state, 0, MR_SLOT_CONFIRMED);
    confirmed = confirmed == NULL ? "an unknown position" : confirmed;
    if (!options->adopt_slot) {
        return mr_fail(
            setup->ret_error, MR_ERR_HISTORY,
            "slot \"%s\" exists and stands at %s, but no position is stored for it: if one was, "
            "it is lost, and rows before the slot's position may be missing; look at "
            "sink.kafka.state_topic and state_name, or set source.postgres.adopt_slot = true for "
            "one start to go on from the slot",
            options->slot, confirmed);
    }
    setup->adopted = true;
    mr_log(MR_LOG_WARN, "slot_adopted",
           "the slot exists, but no position is stored for it; starting where the slot stands. "
           "Right for a "
           "slot that was made for this start; if a position was stored before, rows may be "
           "missing or come "
           "twice",
           MR_LOG_STR("slot", options->slot), MR_LOG_STR("start", confirmed));
    return MR_OK;
}

static mr_status check_slot(struct setup *setup, const struct mr_pg_result *state)
{
    const char *slot = setup->options->slot;
    const char *plugin = mr_pg_result_value(state, 0, MR_SLOT_PLUGIN);
    const char *database = mr_pg_result_value(state, 0, MR_SLOT_DATABASE);
    const char *wal_status = mr_pg_result_value(state, 0, MR_SLOT_WAL_STATUS);
    const char *pid = mr_pg_result_value(state, 0, MR_SLOT_PID);
    const char *reason = mr_pg_result_value(state, 0, MR_SLOT_INVALIDATION);
    if (strcmp(plugin, "pgoutput") != 0) {
        return mr_fail(
            setup->ret_error, MR_ERR_CONFIG,
            "slot \"%s\" uses plugin %s, but millrace reads pgoutput; choose another slot_name",
            slot, plugin);
    }
    if (database == NULL || strcmp(database, mr_pg_database(setup->conn)) != 0) {
        return mr_fail(setup->ret_error, MR_ERR_CONFIG,
                       "slot \"%s\" belongs to database %s, not to %s; choose another slot_name",
                       slot, database == NULL ? "none" : database, mr_pg_database(setup->conn));
    }
    if (reason != NULL && strcmp(reason, "wal_removed") != 0) {
        return mr_fail(
            setup->ret_error, MR_ERR_HISTORY,
            "slot \"%s\" is lost: the server has invalidated it (%s), so rows since then "
            "are missing; drop it with SELECT pg_drop_replication_slot('%s'), start again, "
            "and copy the tables",
            slot, reason, slot);
    }
    if (wal_status != NULL && strcmp(wal_status, "lost") == 0) {
        return mr_fail(
            setup->ret_error, MR_ERR_HISTORY,
            "slot \"%s\" is lost: the server has removed write-ahead log that it needed, so "
            "rows since then are missing; drop it with SELECT pg_drop_replication_slot('%s'), "
            "start again, and copy the tables; raise max_slot_wal_keep_size to avoid it",
            slot, slot);
    }
    if (pid != NULL) {
        return mr_fail(setup->ret_error, MR_ERR_TRANSIENT,
                       "slot \"%s\" is held by process %s of the server", slot, pid);
    }
    MR_TRY(adopt(setup, state));
    return set_failover(setup, state);
}

static mr_status create_slot(struct setup *setup)
{
    const struct mr_pg_source_options *options = setup->options;
    if (!options->create_slot) {
        return mr_fail(setup->ret_error, MR_ERR_CONFIG,
                       "slot \"%s\" does not exist; create it with SELECT "
                       "pg_create_logical_replication_slot('%s', 'pgoutput'), or set "
                       "source.postgres.create_slot = true",
                       options->slot, options->slot);
    }
    int version = mr_pg_server_version(setup->conn);
    struct mr_text sql = {0};
    mr_text_format(&sql, "CREATE_REPLICATION_SLOT ");
    mr_sql_add_identifier(&sql, setup->conn, options->slot);
    mr_text_format(&sql, " LOGICAL pgoutput");
    if (version < FAILOVER_VERSION_MIN && options->failover) {
        warn_of_failover(setup);
    }
    if (version >= FAILOVER_VERSION_MIN && options->failover) {
        mr_text_format(&sql, " (SNAPSHOT 'nothing', FAILOVER)");
    } else {
        mr_text_format(&sql, version >= 150000 ? " (SNAPSHOT 'nothing')" : " NOEXPORT_SNAPSHOT");
    }
    MR_TRY(setup_run(setup, &sql, NULL));
    mr_log(MR_LOG_WARN, "slot_created",
           "the slot did not exist and was created: the stream begins here, rows that are in the "
           "tables "
           "already are not copied",
           MR_LOG_STR("slot", options->slot));
    return MR_OK;
}

/* ---- all of it ---- */

static mr_status setup_all(struct setup *setup, const struct mr_pg_result *state)
{
    MR_TRY(check_server(setup, state));
    bool slot_exists = mr_pg_result_value(state, 0, MR_SLOT_TYPE) != NULL;
    bool published = mr_pg_result_value(state, 0, MR_PUBLICATION_OWNER) != NULL;
    bool needs_identity = !published ||
                          mr_sql_true(mr_pg_result_value(state, 0, MR_PUBLICATION_UPDATE)) ||
                          mr_sql_true(mr_pg_result_value(state, 0, MR_PUBLICATION_DELETE));
    if (!published) {
        MR_TRY(publication_missing(setup, slot_exists));
    }
    MR_TRY(check_tables(setup, published, needs_identity));
    if (!published) {
        MR_TRY(create_publication(setup));
    }
    return slot_exists ? check_slot(setup, state) : create_slot(setup);
}

mr_status mr_pg_setup(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                      bool is_known, int stop_fd, bool *ret_adopted, struct mr_error *ret_error)
{
    struct setup setup = {.conn = conn,
                          .options = options,
                          .is_known = is_known,
                          .stop_fd = stop_fd,
                          .ret_error = ret_error};
    struct mr_text sql = {0};
    mr_sql_add_server_state(&sql, conn, options);
    struct mr_pg_result *state;
    MR_TRY(setup_run(&setup, &sql, &state));
    mr_status status = setup_all(&setup, state);
    mr_pg_result_free(state);
    if (status == MR_OK) {
        *ret_adopted = setup.adopted;
    }
    return status;
}

/* ---- keys ---- */

static void key_list_add(struct mr_key_list *list, uint32_t oid, const char *name)
{
    struct mr_table_keys *table = list->count == 0 ? NULL : &list->tables[list->count - 1];
    if (table == NULL || table->oid != oid) {
        list->tables = MR_REALLOC(list->tables, (list->count + 1) * sizeof(*list->tables));
        table = &list->tables[list->count++];
        *table = (struct mr_table_keys){.oid = oid};
    }
    table->names = MR_REALLOC(table->names, (table->count + 1) * sizeof(*table->names));
    table->names[table->count++] = MR_STRDUP(name);
}

mr_status mr_pg_read_keys(struct mr_pg_conn *conn, int stop_fd, const char *publication,
                          uint32_t oid, struct mr_key_list *list, struct mr_error *ret_error)
{
    struct mr_text sql = {0};
    mr_text_format(&sql, "SELECT i.indrelid, a.attname FROM pg_index i"
                         " CROSS JOIN unnest(i.indkey) WITH ORDINALITY k(attnum, n)"
                         " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
                         " WHERE i.indisprimary AND i.indrelid ");
    if (oid != 0) {
        mr_text_format(&sql, "= %u", oid);
    } else {
        mr_text_format(&sql,
                       "IN (SELECT c.oid FROM pg_publication_tables t"
                       " JOIN pg_namespace n ON n.nspname = t.schemaname"
                       " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename"
                       " WHERE t.pubname = ");
        mr_sql_add_literal(&sql, conn, publication);
        mr_text_format(&sql, ")");
    }
    mr_text_format(&sql, " ORDER BY i.indrelid, k.n");
    struct mr_pg_result *result;
    mr_status status = mr_pg_exec(conn, stop_fd, sql.data, &result, NULL, ret_error);
    mr_text_done(&sql);
    MR_TRY(status);
    for (int row = 0; row < mr_pg_result_rows(result); row++) {
        key_list_add(list, (uint32_t)strtoul(mr_pg_result_value(result, row, 0), NULL, 10),
                     mr_pg_result_value(result, row, 1));
    }
    mr_pg_result_free(result);
    return MR_OK;
}

struct mr_table_keys *mr_key_list_find(struct mr_key_list *list, uint32_t oid)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->tables[i].oid == oid) {
            return &list->tables[i];
        }
    }
    return NULL;
}

static void table_keys_done(struct mr_table_keys *table)
{
    for (uint32_t i = 0; i < table->count; i++) {
        free(table->names[i]);
    }
    free(table->names);
}

void mr_key_list_forget(struct mr_key_list *list, struct mr_table_keys *table)
{
    table_keys_done(table);
    *table = list->tables[--list->count];
}

void mr_key_list_done(struct mr_key_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        table_keys_done(&list->tables[i]);
    }
    free(list->tables);
    *list = (struct mr_key_list){0};
}
