#include "source/pg_history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mr_lsn lsn_parse(const char *text)
{
    unsigned high, low;
    return text != NULL && sscanf(text, "%X/%X", &high, &low) == 2 ? (mr_lsn)high << 32 | low : 0;
}

void mr_pg_history_done(struct mr_pg_history *history)
{
    free(history->system_id);
    *history = (struct mr_pg_history){0};
}

/* A line of the file: timeline, where it ended, why; separated by tabs. PostgreSQL, "Timeline history files". */
mr_lsn mr_pg_timeline_end(const char *history_file, uint32_t timeline)
{
    const char *line = history_file;
    while (line != NULL) {
        unsigned found, high, low;
        if (sscanf(line, "%u %X/%X", &found, &high, &low) == 3 && found == timeline) {
            return (mr_lsn)high << 32 | low;
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return 0;
}

/* A standby was promoted, or the server restored to a point in time. */
static mr_status check_timeline(const struct mr_pg_history *history, struct mr_pg_conn *conn,
                                int stop_fd, uint32_t timeline, struct mr_error *ret_error)
{
    char command[64];
    snprintf(command, sizeof(command), "TIMELINE_HISTORY %u", timeline);
    struct mr_pg_result *result;
    MR_TRY(mr_pg_exec(conn, stop_fd, command, &result, NULL, ret_error));
    const char *file = mr_pg_result_rows(result) == 1 ? mr_pg_result_value(result, 0, 1) : NULL;
    mr_lsn end = mr_pg_timeline_end(file, history->timeline);
    mr_pg_result_free(result);
    if (end >= history->confirmed) {
        return MR_OK;
    }
    return mr_fail(
        ret_error, MR_ERR_HISTORY,
        "the server is on timeline %u, which left timeline %u at " MR_LSN_FORMAT
        ", before " MR_LSN_FORMAT " that is delivered already: Kafka has rows that this server "
        "does not have, and rows of its own may be missing; drop the slot, start again, and copy "
        "the tables",
        (unsigned)timeline, (unsigned)history->timeline, MR_LSN_ARGS(end),
        MR_LSN_ARGS(history->confirmed));
}

static mr_status check_identity(const struct mr_pg_history *history, struct mr_pg_conn *conn,
                                int stop_fd, const struct mr_pg_result *identity, const char *slot,
                                struct mr_error *ret_error)
{
    const char *system_id = mr_pg_result_value(identity, 0, 0);
    if (strcmp(history->system_id, system_id) != 0) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "the server is another one than before (system identifier %s, not %s), so rows may be "
            "missing; if it is to be so, start again with another slot than \"%s\", and copy the "
            "tables",
            system_id, history->system_id, slot);
    }
    mr_lsn end = lsn_parse(mr_pg_result_value(identity, 0, 2));
    if (end < history->confirmed) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "the server's log ends at " MR_LSN_FORMAT ", before " MR_LSN_FORMAT
            " that is delivered already: it was restored from an older copy, and rows written "
            "since then may be missing; drop slot \"%s\", start again, and copy the tables",
            MR_LSN_ARGS(end), MR_LSN_ARGS(history->confirmed), slot);
    }
    uint32_t timeline = (uint32_t)strtoul(mr_pg_result_value(identity, 0, 1), NULL, 10);
    return timeline == history->timeline
               ? MR_OK
               : check_timeline(history, conn, stop_fd, timeline, ret_error);
}

mr_status mr_pg_history_check_server(struct mr_pg_history *history, struct mr_pg_conn *conn,
                                     int stop_fd, const char *slot, struct mr_error *ret_error)
{
    struct mr_pg_result *identity;
    MR_TRY(mr_pg_exec(conn, stop_fd, "IDENTIFY_SYSTEM", &identity, NULL, ret_error));
    mr_status status = MR_OK;
    if (history->system_id == NULL) {
        history->system_id = MR_STRDUP(mr_pg_result_value(identity, 0, 0));
    } else {
        status = check_identity(history, conn, stop_fd, identity, slot, ret_error);
    }
    if (status == MR_OK) {
        history->timeline = (uint32_t)strtoul(mr_pg_result_value(identity, 0, 1), NULL, 10);
    }
    mr_pg_result_free(identity);
    return status;
}

mr_status mr_pg_history_check_missing(const struct mr_pg_history *history, const char *slot,
                                      struct mr_error *ret_error)
{
    if (history->confirmed == 0) {
        return MR_OK;
    }
    return mr_fail(
        ret_error, MR_ERR_HISTORY,
        "slot \"%s\" is gone although this process streamed from it: it was dropped, and rows "
        "since " MR_LSN_FORMAT " may be missing; start again, which makes a new slot, and copy the "
        "tables",
        slot, MR_LSN_ARGS(history->confirmed));
}

mr_status mr_pg_history_check_slot(struct mr_pg_history *history, struct mr_pg_conn *conn,
                                   const char *slot, const char *confirmed,
                                   struct mr_error *ret_error)
{
    mr_lsn at = lsn_parse(confirmed);
    if (history->confirmed != 0 && at > history->confirmed) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "slot \"%s\" stands at " MR_LSN_FORMAT ", beyond " MR_LSN_FORMAT
            " that this process has confirmed: it was made again, moved or read by somebody else, "
            "and rows between may be missing; start again to go on from there, and copy the tables",
            slot, MR_LSN_ARGS(at), MR_LSN_ARGS(history->confirmed));
    }
    mr_pg_history_confirmed(history, at);
    history->backend = mr_pg_backend(conn);
    return MR_OK;
}

void mr_pg_history_slot_held(struct mr_pg_history *history, int backend)
{
    if (backend != history->backend) {
        history->confirmed = 0;
    }
}
