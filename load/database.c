#include "database.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

struct load_database {
    PGconn *connection;
    const struct load_options *options;
};

/* The first row's columns as text, or NULL after a message. The caller clears it. */
static PGresult *ask(struct load_database *database, const char *sql, int count,
                     const char *const *values)
{
    PGresult *result = PQexecParams(database->connection, sql, count, NULL, values, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        load_say("PostgreSQL: %s", PQresultErrorMessage(result));
        PQclear(result);
        return NULL;
    }
    return result;
}

static bool make_table(struct load_database *database, unsigned number)
{
    const struct load_options *options = database->options;
    char sql[1024];
    snprintf(
        sql, sizeof(sql),
        "CREATE TABLE IF NOT EXISTS public.%s_%u (id bigint PRIMARY KEY, account_id bigint NOT "
        "NULL, amount numeric(20,6) NOT NULL, due_us bigint NOT NULL, payload text NOT NULL, "
        "updated_at timestamptz NOT NULL DEFAULT now())",
        options->table, number);
    PGresult *result = ask(database, sql, 0, NULL);
    PQclear(result);
    if (result == NULL) {
        return false;
    }
    snprintf(sql, sizeof(sql), "ALTER TABLE public.%s_%u REPLICA IDENTITY %s", options->table,
             number, options->identity);
    result = ask(database, sql, 0, NULL);
    PQclear(result);
    return result != NULL;
}

/* "p FOR TABLE public.t_1, public.t_2", unless it is there. */
static bool make_publication(struct load_database *database)
{
    const struct load_options *options = database->options;
    PGresult *result =
        ask(database, "SELECT FROM pg_publication WHERE pubname = $1", 1, &options->publication);
    bool there = result != NULL && PQntuples(result) > 0;
    PQclear(result);
    if (there || result == NULL) {
        return there;
    }
    char sql[64 + LOAD_TABLES_MAX * 64];
    size_t len = (size_t)snprintf(sql, sizeof(sql), "CREATE PUBLICATION %s FOR TABLE ",
                                  options->publication);
    for (unsigned i = 1; i <= options->tables; i++) {
        len += (size_t)snprintf(sql + len, sizeof(sql) - len, "%spublic.%s_%u", i == 1 ? "" : ", ",
                                options->table, i);
    }
    result = ask(database, sql, 0, NULL);
    PQclear(result);
    return result != NULL;
}

struct load_database *load_database_open(const struct load_options *options)
{
    struct load_database *database = MR_NEW(struct load_database);
    database->options = options;
    database->connection = PQconnectdb(options->url);
    bool fine = PQstatus(database->connection) == CONNECTION_OK;
    if (!fine) {
        load_say("cannot connect to PostgreSQL: %s", PQerrorMessage(database->connection));
    }
    PQclear(fine ? ask(database, "SET client_min_messages = warning", 0, NULL) : NULL);
    for (unsigned i = 1; fine && i <= options->tables; i++) {
        fine = make_table(database, i);
    }
    fine = fine && (options->publication == NULL || make_publication(database));
    if (!fine) {
        load_database_close(database);
        return NULL;
    }
    return database;
}

void load_database_close(struct load_database *database)
{
    PQfinish(database->connection);
    free(database);
}

bool load_database_next_ids(struct load_database *database, uint64_t ret_ids[LOAD_TABLES_MAX])
{
    for (unsigned i = 0; i < database->options->tables; i++) {
        char sql[256];
        snprintf(sql, sizeof(sql), "SELECT coalesce(max(id), 0) + 1 FROM public.%s_%u",
                 database->options->table, i + 1);
        PGresult *result = ask(database, sql, 0, NULL);
        if (result == NULL) {
            return false;
        }
        ret_ids[i] = strtoull(PQgetvalue(result, 0, 0), NULL, 10);
        PQclear(result);
    }
    return true;
}

struct load_slot load_database_slot(struct load_database *database)
{
    struct load_slot slot = {0};
    if (database->options->slot == NULL) {
        return slot;
    }
    PGresult *result =
        ask(database,
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, (SELECT CASE WHEN "
            "setting::bigint < 0 THEN 0 ELSE setting::bigint * 1048576 END FROM pg_settings WHERE "
            "name = "
            "'max_slot_wal_keep_size') FROM pg_replication_slots WHERE slot_name = $1",
            1, &database->options->slot);
    if (result != NULL && PQntuples(result) == 1) {
        slot.known = true;
        slot.retained = strtoull(PQgetvalue(result, 0, 0), NULL, 10);
        slot.budget = database->options->slot_budget != 0
                          ? database->options->slot_budget
                          : strtoull(PQgetvalue(result, 0, 1), NULL, 10);
    }
    PQclear(result);
    return slot;
}

bool load_database_mark(struct load_database *database, char ret_mark[32])
{
    PGresult *result = ask(database, "SELECT pg_current_wal_insert_lsn()", 0, NULL);
    if (result == NULL) {
        return false;
    }
    snprintf(ret_mark, 32, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    return true;
}

bool load_database_confirmed(struct load_database *database, const char *mark)
{
    const char *values[] = {database->options->slot, mark};
    PGresult *result = ask(database,
                           "SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots "
                           "WHERE slot_name = $1",
                           2, values);
    bool confirmed = result != NULL && PQntuples(result) == 1 && *PQgetvalue(result, 0, 0) == 't';
    PQclear(result);
    return confirmed;
}
