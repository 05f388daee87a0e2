#include "source/pg_identity.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "source/pg_sql.h"

/* A question of a tenth of a millisecond to the server. Waiting inside the server for the lock would hold back its
 * vacuum for as long. */
enum { CLAIM_RETRY_MS = 100 };

static mr_status run(struct mr_pg_conn *conn, int stop_fd, struct mr_text *sql,
                     struct mr_pg_result **ret_result, struct mr_error *ret_error)
{
    mr_status status = mr_pg_exec(conn, stop_fd, sql->data, ret_result, NULL, ret_error);
    mr_text_done(sql);
    return status;
}

static mr_status try_claim(struct mr_pg_conn *conn, const char *slot, int stop_fd, bool *ret_ours,
                           struct mr_error *ret_error)
{
    struct mr_text name = {0};
    mr_text_format(&name, "millrace/%s", slot);
    struct mr_text sql = {0};
    mr_text_format(&sql, "SELECT pg_try_advisory_lock(hashtextextended(");
    mr_sql_add_literal(&sql, conn, name.data);
    mr_text_format(&sql, ", 0))");
    mr_text_done(&name);
    struct mr_pg_result *result;
    MR_TRY(run(conn, stop_fd, &sql, &result, ret_error));
    *ret_ours = mr_sql_true(mr_pg_result_value(result, 0, 0));
    mr_pg_result_free(result);
    return MR_OK;
}

mr_status mr_pg_claim(struct mr_pg_conn *conn, const char *slot, int stop_fd,
                      struct mr_error *ret_error)
{
    bool told = false;
    for (;;) {
        bool ours;
        MR_TRY(try_claim(conn, slot, stop_fd, &ours, ret_error));
        if (ours && told) {
            mr_log(MR_LOG_INFO, "takeover", "the stream is free; taking it over",
                   MR_LOG_STR("slot", slot));
        }
        if (ours) {
            return MR_OK;
        }
        if (!told) {
            mr_log(MR_LOG_INFO, "standby",
                   "another instance streams from this slot; standing by to take over",
                   MR_LOG_STR("slot", slot));
            told = true;
        }
        struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
        if (poll(&stop, 1, CLAIM_RETRY_MS) == 1) {
            return MR_AGAIN;
        }
    }
}

static mr_lsn parse_lsn(const char *text)
{
    unsigned high;
    unsigned low;
    return text != NULL && sscanf(text, "%8X/%8X", &high, &low) == 2 ? (mr_lsn)high << 32 | low : 0;
}

mr_lsn mr_pg_timeline_end(const char *history, uint32_t timeline)
{
    for (const char *line = history; *line != '\0';) {
        unsigned number;
        char lsn[24];
        if (sscanf(line, "%u\t%23s", &number, lsn) == 2 && number == timeline) {
            return parse_lsn(lsn);
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return 0;
}

/* Where the server left `timeline`; 0 when it never was on it. */
static mr_status read_switch(struct mr_pg_conn *conn, uint32_t current, uint32_t timeline,
                             int stop_fd, mr_lsn *ret_lsn, struct mr_error *ret_error)
{
    struct mr_text sql = {0};
    mr_text_format(&sql, "TIMELINE_HISTORY %u", current);
    struct mr_pg_result *result;
    MR_TRY(run(conn, stop_fd, &sql, &result, ret_error));
    *ret_lsn = mr_pg_timeline_end(mr_pg_result_value(result, 0, 1), timeline);
    mr_pg_result_free(result);
    return MR_OK;
}

static mr_status read_system(struct mr_pg_conn *conn, int stop_fd,
                             struct mr_server_position *server, struct mr_error *ret_error)
{
    struct mr_pg_result *result;
    MR_TRY(mr_pg_exec(conn, stop_fd, "IDENTIFY_SYSTEM", &result, NULL, ret_error));
    struct mr_identity *identity = &server->identity;
    snprintf(identity->system_id, sizeof(identity->system_id), "%s",
             mr_pg_result_value(result, 0, 0));
    identity->timeline = (uint32_t)strtoul(mr_pg_result_value(result, 0, 1), NULL, 10);
    server->flushed = parse_lsn(mr_pg_result_value(result, 0, 2));
    mr_pg_result_free(result);
    return MR_OK;
}

static mr_status read_slot(struct mr_pg_conn *conn, const char *slot, int stop_fd,
                           struct mr_server_position *server, struct mr_error *ret_error)
{
    struct mr_text sql = {0};
    mr_text_format(&sql, "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = ");
    mr_sql_add_literal(&sql, conn, slot);
    struct mr_pg_result *result;
    MR_TRY(run(conn, stop_fd, &sql, &result, ret_error));
    server->slot_exists = mr_pg_result_rows(result) == 1;
    if (server->slot_exists) {
        server->slot_confirmed = parse_lsn(mr_pg_result_value(result, 0, 0));
    }
    mr_pg_result_free(result);
    return MR_OK;
}

mr_status mr_pg_identify(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                         const struct mr_checkpoint *stored, int stop_fd,
                         struct mr_identity *ret_identity, struct mr_error *ret_error)
{
    struct mr_server_position server = {0};
    struct mr_identity *identity = &server.identity;
    MR_TRY(read_system(conn, stop_fd, &server, ret_error));
    snprintf(identity->slot, sizeof(identity->slot), "%s", options->slot);
    snprintf(identity->publication, sizeof(identity->publication), "%s", options->publication);
    if (stored != NULL) {
        MR_TRY(read_slot(conn, options->slot, stop_fd, &server, ret_error));
        if (stored->identity.timeline < identity->timeline) {
            MR_TRY(read_switch(conn, identity->timeline, stored->identity.timeline, stop_fd,
                               &server.switched_at, ret_error));
        }
        MR_TRY(mr_checkpoint_verify(stored, &server, ret_error));
    }
    *ret_identity = server.identity;
    return MR_OK;
}
