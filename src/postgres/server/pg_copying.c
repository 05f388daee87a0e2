#include "postgres/server/pg_copying.h"

#include "base/thread.h"

static const char option[] = "the connection for existing rows (snapshot.connection)";

/* The timeline that WAL is written on now: pg_control_checkpoint() tells that of the last
 * checkpoint, which a promotion does not wait for (manual, "Recovery Control Functions" and "Backup
 * Control Functions": pg_walfile_name). */
mr_status mr_pg_place_read(struct mr_pg_conn *conn, struct mr_pg_place *ret_place,
                           struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"its identity", "bsins", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(
        conn, &shape, &result, ret_error,
        "SELECT pg_is_in_recovery(), system_identifier::text, current_database(),"
        " CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || left(pg_walfile_name("
        "pg_current_wal_insert_lsn()), 8))::bit(32)::bigint END, pg_postmaster_start_time()::text"
        " FROM pg_control_system()"));
    struct mr_pg_place place = {.is_standby = mr_pg_result_true(result, 0, 0),
                                .timeline = (uint32_t)mr_pg_result_number(result, 0, 3)};
    snprintf(place.system_id, sizeof(place.system_id), "%s", mr_pg_result_value(result, 0, 1));
    snprintf(place.started, sizeof(place.started), "%s", mr_pg_result_value(result, 0, 4));
    snprintf(place.database, sizeof(place.database), "%s", mr_pg_result_value(result, 0, 2));
    *ret_place = place;
    return MR_OK;
}

void mr_pg_home_init(struct mr_pg_home *home)
{
    *home = (struct mr_pg_home){0};
    pthread_mutex_init(&home->lock, NULL);
}

void mr_pg_home_done(struct mr_pg_home *home)
{
    pthread_mutex_destroy(&home->lock);
}

mr_status mr_pg_home_read(struct mr_pg_home *home, struct mr_pg_conn *conn,
                          const struct mr_pg_source_options *options, struct mr_error *ret_error)
{
    struct mr_pg_place place = {0};
    if (mr_pg_copies_apart(options)) {
        MR_TRY(mr_pg_place_read(conn, &place, ret_error));
        place.may_move = true;
    }
    MR_HOLD(&home->lock);
    home->place = place;
    home->streams++;
    return MR_OK;
}

uint64_t mr_pg_home_streams(struct mr_pg_home *home)
{
    MR_HOLD(&home->lock);
    return home->streams;
}

static mr_status verify(const struct mr_pg_place *place, const struct mr_pg_place *beside,
                        struct mr_error *ret_error)
{
    mr_status passing = beside->may_move ? MR_ERR_TRANSIENT : MR_ERR_CONFIG;
    if (strcmp(place->system_id, beside->system_id) != 0) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "%s leads to another cluster (system identifier %s) than the stream's (%s); "
                       "its rows are not those of the stream",
                       option, place->system_id, beside->system_id);
    }
    if (strcmp(place->database, beside->database) != 0) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "%s leads to database \"%s\", and the stream is of \"%s\"; name that one",
                       option, place->database, beside->database);
    }
    bool is_same_standby =
        place->is_standby && beside->is_standby && strcmp(place->started, beside->started) == 0;
    if (place->is_standby != beside->is_standby || (place->is_standby && !is_same_standby)) {
        return mr_fail(ret_error, passing,
                       "%s leads to %s, which has neither the stream's snapshot nor its place; "
                       "name the server that is streamed from",
                       option, place->is_standby ? "a standby" : "the primary of a standby");
    }
    if (place->timeline != beside->timeline) {
        return mr_fail(ret_error, passing,
                       "%s leads to a server on timeline %u, and the stream is of one on timeline "
                       "%u: one of the two was promoted, and their rows may differ; name the same "
                       "server",
                       option, (unsigned)place->timeline, (unsigned)beside->timeline);
    }
    return MR_OK;
}

mr_status mr_pg_copying_connect(const struct mr_pg_source_options *options,
                                const struct mr_pg_place *beside, int stop_fd,
                                struct mr_pg_conn **ret_conn, struct mr_error *ret_error)
{
    if (!mr_pg_copies_apart(options)) {
        return mr_pg_connect(&options->connection, false, stop_fd, ret_conn, ret_error);
    }
    MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
    struct mr_error reason = {0};
    mr_status status = mr_pg_connect(&options->copying, false, stop_fd, &conn, &reason);
    if (status != MR_OK) {
        return mr_fail(ret_error, status, "%s can't be made: %s", option, reason.text);
    }
    struct mr_pg_place place;
    MR_TRY(mr_pg_place_read(conn, &place, ret_error));
    MR_TRY(verify(&place, beside, ret_error));
    *ret_conn = conn;
    conn = NULL;
    return MR_OK;
}

mr_status mr_pg_copying_connect_home(const struct mr_pg_source_options *options,
                                     struct mr_pg_home *home, int stop_fd,
                                     struct mr_pg_conn **ret_conn, struct mr_error *ret_error)
{
    pthread_mutex_lock(&home->lock);
    struct mr_pg_place place = home->place;
    pthread_mutex_unlock(&home->lock);
    return mr_pg_copying_connect(options, &place, stop_fd, ret_conn, ret_error);
}

bool mr_pg_copying_is_ended(const struct mr_pg_source_options *options, struct mr_pg_home *home,
                            const struct mr_pg_conn *conn, uint32_t table)
{
    /* A server that shuts down ends all with that code, and takes nobody (57P03). */
    struct mr_pg_conn *other;
    if (strcmp(mr_pg_copy_refusal(conn)->sqlstate, "57P01") != 0 ||
        mr_pg_copying_connect_home(options, home, mr_pg_stop_fd(conn), &other, NULL) != MR_OK) {
        return false;
    }
    mr_pg_close(other);
    MR_HOLD(&home->lock);
    home->ended_table = table;
    return ++home->ended >= MR_PG_ENDED_MAX;
}

void mr_pg_home_came(struct mr_pg_home *home, uint32_t table)
{
    MR_HOLD(&home->lock);
    if (home->ended_table == table) {
        home->ended = 0;
    }
}
