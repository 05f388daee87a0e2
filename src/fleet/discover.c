#include <inttypes.h>

#include "fleet/fleet_internal.h"

enum { CONNECT_MS = 10000, DATABASES_MAX = 100000 };

static mr_status connect_to(struct fleet_server *server, struct mr_error *ret_error)
{
    char *conninfo =
        mr_secret_file_read(server->connection_file, "connection string", true, ret_error);
    if (conninfo == NULL) {
        return MR_ERR_CONFIG;
    }
    const struct mr_pg_options options = {.conninfo = conninfo,
                                          .application_name = "millrace fleet",
                                          .connect_max_ms = CONNECT_MS,
                                          .insecure_tls = server->insecure_tls};
    mr_status status = mr_pg_connect(&options, false, -1, &server->conn, ret_error);
    mr_secret_forget(conninfo);
    return status;
}

/* A limit of -2 has a database whose DROP was broken off (the manual's page of pg_database). */
#define DATABASES "FROM pg_database WHERE datallowconn AND NOT datistemplate AND datconnlimit <> -2"

static mr_status ask_databases(struct fleet *fleet, struct fleet_server *server,
                               struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the databases", "i", 0, DATABASES_MAX};
    const struct mr_pg_result *result;
    MR_TRY(connect_to(server, ret_error));
    MR_TRY(mr_pg_askf(server->conn, &shape, &result, ret_error,
                      "SELECT datname " DATABASES " AND datname ~ %L", server->databases));
    for (uint32_t i = 0; i < mr_pg_result_rows(result); i++) {
        struct fleet_pipeline *added =
            mr_fleet_add(fleet, server->pipelines, server->name, mr_pg_result_value(result, i, 0));
        if (added != NULL) {
            added->is_found = true;
        }
    }
    return MR_OK;
}

mr_status mr_fleet_discover(struct fleet *fleet, struct mr_error *ret_error)
{
    mr_status answer = MR_OK;
    for (uint32_t i = 0; i < fleet->server_count; i++) {
        struct mr_error error;
        mr_status status = ask_databases(fleet, &fleet->servers[i], &error);
        if (status != MR_OK) {
            fprintf(stderr, "millrace: [discover.%s]: %s\n", fleet->servers[i].name, error.text);
            answer = answer == MR_OK ? status : answer;
        }
    }
    return answer == MR_OK
               ? MR_OK
               : mr_fail(ret_error, answer,
                         "a server could not be asked for its databases; nothing was done");
}

/* Its database was, under whatever name. */
static bool is_found(const struct fleet *fleet, const struct fleet_pipeline *made)
{
    bool found = false;
    for (uint32_t i = 0; i < fleet->pipelines.count && !found; i++) {
        const struct fleet_pipeline *one = &fleet->pipelines.items[i];
        found =
            strcmp(one->server, made->server) == 0 && strcmp(one->database, made->database) == 0;
    }
    return found;
}

/* Whether the database of a file is there no more, and its pipeline stays. One that `databases`
 * leaves out is not gone: it goes. */
static mr_status stays(const struct fleet *fleet, const struct fleet_pipeline *made, bool *ret,
                       struct mr_error *ret_error)
{
    const struct fleet_server *server = mr_fleet_server(fleet, made->server);
    int64_t count = 0;
    *ret = made->is_found && mr_fleet_find(&fleet->pipelines, made->name) == NULL &&
           !is_found(fleet, made) && (server == NULL || !server->stops_gone);
    if (*ret && server != NULL) {
        MR_TRY(mr_pg_ask_number(server->conn, "the database", 'n', &count, ret_error,
                                "SELECT count(*) " DATABASES " AND datname = %L", made->database));
    }
    *ret = *ret && count == 0;
    return MR_OK;
}

mr_status mr_fleet_add_gone(struct fleet *fleet, struct mr_error *ret_error)
{
    for (uint32_t i = 0; i < fleet->before.count; i++) {
        const struct fleet_pipeline *made = &fleet->before.items[i];
        bool is_gone;
        MR_TRY(stays(fleet, made, &is_gone, ret_error));
        struct fleet_pipeline *added =
            is_gone ? mr_fleet_add(fleet, made->name, made->server, made->database) : NULL;
        if (added != NULL) {
            added->is_found = added->is_gone = true;
        }
    }
    return MR_OK;
}

/* Most, and those that others have, of slots and of walsenders. */
static mr_status ask_room(const struct fleet_server *server, const struct mr_text *own,
                          int64_t ret[4], struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the server's limits", "nnnn", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(server->conn, &shape, &result, ret_error,
                      "SELECT current_setting('max_replication_slots')::bigint,"
                      " count(*) FILTER (WHERE slot_name NOT IN (%s)),"
                      " current_setting('max_wal_senders')::bigint,"
                      " (SELECT count(*) FROM pg_stat_replication)"
                      "  - count(*) FILTER (WHERE active AND slot_name IN (%s))"
                      " FROM pg_replication_slots",
                      own->data, own->data));
    for (uint32_t i = 0; i < 4; i++) {
        ret[i] = mr_pg_result_number(result, 0, i);
    }
    return MR_OK;
}

static mr_status check_server(struct fleet *fleet, const struct fleet_server *server,
                              struct mr_error *ret_error)
{
    static const char *const settings[] = {"max_replication_slots", "max_wal_senders"};
    MR_TEXT(own);
    int64_t wanted = 0, room[4];
    mr_text_string(&own, "''");
    for (uint32_t i = 0; i < fleet->pipelines.count; i++) {
        const struct fleet_pipeline *pipeline = &fleet->pipelines.items[i];
        if (strcmp(pipeline->server, server->name) == 0 && !pipeline->is_gone) {
            mr_sql_format(&own, ", %L", pipeline->config->source.slot);
            wanted++;
        }
    }
    mr_status status = ask_room(server, &own, room, ret_error);
    MR_TRY(status);
    if (wanted > fleet->per_server_max) {
        FLEET_PROBLEM(fleet, 0,
                      "server %s would have %" PRId64 " pipelines, and each has a walsender that "
                      "reads all WAL; max_per_server is %" PRId64,
                      server->name, wanted, fleet->per_server_max);
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(settings); i++) {
        int64_t most = room[2 * i], others = room[2 * i + 1];
        if (others + wanted > most) {
            FLEET_PROBLEM(fleet, 0,
                          "server %s has %s = %" PRId64 ", of which others use %" PRId64
                          "; %" PRId64 " pipelines need one each: set at least %" PRId64
                          ", and restart PostgreSQL",
                          server->name, settings[i], most, others, wanted, others + wanted);
        }
    }
    return MR_OK;
}

mr_status mr_fleet_check_room(struct fleet *fleet, struct mr_error *ret_error)
{
    for (uint32_t i = 0; i < fleet->server_count; i++) {
        MR_TRY(check_server(fleet, &fleet->servers[i], ret_error));
    }
    return MR_OK;
}
