#include "postgres/conn/pg_conn.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/jemalloc.h"
#include "event/lsn.h"
#include "postgres/conn/pg_conn_internal.h"
#include "postgres/conn/pg_errors.h"

/* What libpq needs for TLS' certificates or for a row of an answer is less, and several connections
 * are within the smallest pipeline.memory. */
enum { HELD_BYTES_MAX = 8 << 20 };

mr_status mr_pg_wait_socket(PGconn *libpq, short events, const struct mr_pg_limit *limit,
                            struct mr_error *ret_error)
{
    struct pollfd fds[2] = {
        {.fd = PQsocket(libpq), .events = events},
        {.fd = limit->stop_fd, .events = POLLIN},
    };
    for (;;) {
        int timeout_ms = -1;
        if (limit->deadline_ns != 0) {
            int64_t left_ns = limit->deadline_ns - mr_monotonic_ns();
            if (left_ns <= 0) {
                return mr_fail(ret_error, MR_ERR_TRANSIENT, "PostgreSQL does not answer in time");
            }
            timeout_ms = (int)(left_ns / 1000000) + 1;
        }
        int ready = poll(fds, 2, timeout_ms);
        if (ready < 0 && errno != EINTR) {
            return mr_fail(ret_error, MR_ERR_SYSTEM, "poll: %s", strerror(errno));
        }
        if (ready > 0 && fds[1].revents != 0) {
            return MR_AGAIN;
        }
        if (ready > 0) {
            return MR_OK;
        }
    }
}

int64_t mr_pg_held(void)
{
    static _Thread_local const uint64_t *allocated, *deallocated;
    size_t len = sizeof(allocated);
    if (allocated == NULL &&
        (mallctl == NULL || mallctl("thread.allocatedp", (void *)&allocated, &len, NULL, 0) != 0 ||
         mallctl("thread.deallocatedp", (void *)&deallocated, &len, NULL, 0) != 0)) {
        allocated = NULL;
        return 0;
    }
    return (int64_t)(*allocated - *deallocated);
}

struct mr_pg_limit mr_pg_limit_begin(int stop_fd, uint32_t limit_ms)
{
    return (struct mr_pg_limit){
        .stop_fd = stop_fd,
        .deadline_ns = limit_ms == 0 ? 0 : mr_monotonic_ns() + (int64_t)limit_ms * 1000000,
        .held_max = mr_pg_held() + HELD_BYTES_MAX,
    };
}

mr_status mr_pg_check_held(const struct mr_pg_limit *limit, struct mr_error *ret_error)
{
    if (MR_LIKELY(limit->held_max == 0 || mr_pg_held() <= limit->held_max)) {
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_PROTOCOL,
                   "PostgreSQL connection: what the server sends takes more memory than any "
                   "answer can; this is no PostgreSQL, or not the one it should be");
}

mr_status mr_pg_consume(PGconn *libpq, const struct mr_pg_limit *limit, struct mr_error *ret_error)
{
    MR_TRY(mr_pg_check_held(limit, ret_error));
    if (!PQconsumeInput(libpq)) {
        return mr_pg_fail_broken(libpq, ret_error);
    }
    PGnotify *notification;
    while ((notification = PQnotifies(libpq)) != NULL) {
        PQfreemem(notification); /* libpq keeps them all until somebody takes them */
    }
    return MR_OK;
}

mr_status mr_pg_wait_result(struct mr_pg_conn *conn, const struct mr_pg_limit *limit,
                            struct mr_error *ret_error)
{
    while (PQisBusy(conn->libpq)) {
        MR_TRY(mr_pg_wait_socket(conn->libpq, POLLIN, limit, ret_error));
        MR_TRY(mr_pg_consume(conn->libpq, limit, ret_error));
    }
    return MR_OK;
}

/* One line without libpq's or the server's decoration. */
static void clean_text(const char *text, char *to, size_t size)
{
    size_t len = 0;
    for (; *text != '\0' && len + 1 < size; text++) {
        bool space = *text == '\n' || *text == '\r' || *text == '\t' || *text == ' ';
        if (!space) {
            to[len++] = *text;
        } else if (len > 0 && to[len - 1] != ' ') {
            to[len++] = ' ';
        }
    }
    while (len > 0 && to[len - 1] == ' ') {
        len--;
    }
    to[len] = '\0';
}

static mr_status fail_with(struct mr_error *ret_error, mr_status status, const char *subject,
                           const char *text, const char *sqlstate, const char *remedy)
{
    mr_error_refused(ret_error, status, sqlstate, "%s: %s%s%s%s%s%s", subject, text,
                     sqlstate[0] == '\0' ? "" : " (", sqlstate, sqlstate[0] == '\0' ? "" : ")",
                     remedy[0] == '\0' ? "" : "; ", remedy);
    return status;
}

/* A server's refusal reads "FATAL:  57P03: the database system is …", then lines that are left out.
 * Answers where the last one begins, at its code, or NULL: what libpq itself has to say has
 * none. */
static const char *pg_conn_find_refusal(const char *text)
{
    const char *found = NULL;
    for (const char *at = strstr(text, ":  "); at != NULL; at = strstr(at, ":  ")) {
        at += 3;
        if (strspn(at, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == MR_SQLSTATE_SIZE - 1 &&
            strncmp(at + MR_SQLSTATE_SIZE - 1, ": ", 2) == 0) {
            found = at;
        }
    }
    return found;
}

mr_status mr_pg_fail_connect(PGconn *libpq, struct mr_error *ret_error)
{
    const char *whole = PQerrorMessage(libpq);
    const char *refusal = pg_conn_find_refusal(whole);
    char text[512], subject[300] = "PostgreSQL connection", sqlstate[MR_SQLSTATE_SIZE] = "";
    const char *remedy;
    if (refusal == NULL) {
        clean_text(whole, text, sizeof(text));
    } else {
        const char *message = refusal + MR_SQLSTATE_SIZE + 1;
        MR_FREED char *line = MR_STRNDUP(message, strcspn(message, "\n"));
        clean_text(line, text, sizeof(text));
        snprintf(sqlstate, sizeof(sqlstate), "%s", refusal);
        snprintf(subject, sizeof(subject), "PostgreSQL at \"%s\", port %s", PQhost(libpq),
                 PQport(libpq));
    }
    mr_status status = mr_pg_connect_error_classify(sqlstate, text, &remedy);
    return fail_with(ret_error, status, subject, text, sqlstate, remedy);
}

mr_status mr_pg_fail_broken(PGconn *libpq, struct mr_error *ret_error)
{
    char text[512];
    clean_text(PQerrorMessage(libpq), text, sizeof(text));
    return fail_with(ret_error, MR_ERR_TRANSIENT, "PostgreSQL connection",
                     text[0] == '\0' ? "it was closed" : text, "", "");
}

/* A row that is copied, as text: one value is more than PostgreSQL takes at once (XX000, mcxt.c),
 * or all of them are (54000, stringinfo.c). The names of files are the same in each language. */
static bool is_too_large(const char *sqlstate, const char *file)
{
    return file != NULL && ((strcmp(sqlstate, "XX000") == 0 && strcmp(file, "mcxt.c") == 0) ||
                            (strcmp(sqlstate, "54000") == 0 && strcmp(file, "stringinfo.c") == 0));
}

/* The last line of the context is that of the callback: 'slot "s", output plugin "pgoutput", in the
 * change callback, associated LSN 0/1934580' (logical.c, output_plugin_error_callback). In other
 * languages the LSN is the same, and the names before it hold no slash. */
static mr_lsn change_of_context(const char *context)
{
    mr_lsn found = 0;
    for (const char *at = context; at != NULL && *at != '\0';) {
        size_t digits = strspn(at, "0123456789ABCDEF");
        const char *rest = at + (digits == 0 ? 1 : digits);
        if (digits > 0) {
            (void)mr_lsn_parse(at, &found, &rest);
        }
        at = rest;
    }
    return mr_lsn_of_server(found);
}

/* What the server reported: of its texts only the primary message, because detail, hint and context
 * quote values of rows; and that only where it does not. */
struct report {
    const char *sqlstate, *message;
    char text[512]; /* the message, in one line, or what is said instead */
};

/* False: libpq reports something itself. */
static bool read_report(const PGresult *result, struct report *ret_report)
{
    ret_report->sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    ret_report->message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (ret_report->sqlstate == NULL || ret_report->message == NULL) {
        return false;
    }
    clean_text(ret_report->message, ret_report->text, sizeof(ret_report->text));
    return true;
}

/* Where it is about a row, the message may quote it. */
static mr_status fail_report(const struct report *report, mr_status status, const char *subject,
                             const char *remedy, struct mr_error *ret_error)
{
    const char *text = status == MR_ERR_POISON ? "it can't send a row" : report->text;
    return fail_with(ret_error, status, subject, text, report->sqlstate, remedy);
}

static mr_status fail_answered(PGconn *libpq, const PGresult *result, const char *subject,
                               bool is_of_rows, struct mr_error *ret_error)
{
    struct report report;
    if (!read_report(result, &report)) {
        return mr_pg_fail_broken(libpq, ret_error);
    }
    const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
    const struct mr_pg_origin origin = {
        .is_raised = function != NULL && strcmp(function, "exec_stmt_raise") == 0, /* pl_exec.c */
        .has_place = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION) != NULL,
        .has_context = PQresultErrorField(result, PG_DIAG_CONTEXT) != NULL,
        .is_of_rows = is_of_rows};
    const char *instead = mr_pg_error_unquoted(report.sqlstate, &origin);
    if (instead != NULL) {
        snprintf(report.text, sizeof(report.text), "%s", instead);
    }
    /* The code stands for what was not granted, too; the function's name is the same in each
     * language (rls.c, check_enable_rls; elog.c, send_message_to_frontend). */
    bool by_policy = function != NULL && strcmp(function, "check_enable_rls") == 0;
    const char *remedy;
    mr_status status = mr_pg_error_classify(report.sqlstate,
                                            by_policy ? MR_PG_BY_POLICY : report.message, &remedy);
    if (is_too_large(report.sqlstate, PQresultErrorField(result, PG_DIAG_SOURCE_FILE))) {
        status = mr_pg_stream_error_classify("54000", "", true, &remedy);
    }
    return fail_report(&report, status, subject, remedy, ret_error);
}

mr_status mr_pg_fail_result(PGconn *libpq, const PGresult *result, const char *subject,
                            struct mr_error *ret_error)
{
    return fail_answered(libpq, result, subject, false, ret_error);
}

mr_status mr_pg_fail_rows(PGconn *libpq, const PGresult *result, const char *subject,
                          struct mr_error *ret_error)
{
    return fail_answered(libpq, result, subject, true, ret_error);
}

mr_status mr_pg_fail_stream(PGconn *libpq, const PGresult *result, mr_lsn *ret_change,
                            struct mr_error *ret_error)
{
    struct report report;
    if (!read_report(result, &report)) {
        return mr_pg_fail_broken(libpq, ret_error);
    }
    *ret_change = change_of_context(PQresultErrorField(result, PG_DIAG_CONTEXT));
    const char *remedy;
    mr_status status =
        mr_pg_stream_error_classify(report.sqlstate, report.message, *ret_change != 0, &remedy);
    return fail_report(&report, status, "replication stream", remedy, ret_error);
}

int mr_pg_library_version(void)
{
    return PQlibVersion();
}

int mr_pg_server_version(const struct mr_pg_conn *conn)
{
    return PQserverVersion(conn->libpq);
}

int mr_pg_local_port(const struct mr_pg_conn *conn)
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof(address);
    if (getsockname(PQsocket(conn->libpq), (struct sockaddr *)&address, &len) != 0) {
        return 0;
    }
    in_port_t port = address.ss_family == AF_INET    ? ((struct sockaddr_in *)&address)->sin_port
                     : address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                     : 0;
    return ntohs(port);
}

int mr_pg_process(const struct mr_pg_conn *conn)
{
    return PQbackendPID(conn->libpq);
}

bool mr_pg_is_standby(const struct mr_pg_conn *conn)
{
    const char *standby = PQparameterStatus(conn->libpq, "in_hot_standby");
    return standby != NULL && strcmp(standby, "on") == 0;
}

/* The release notes of 14.13, 15.8, 16.4 and 17 (CVE-2024-7348: what pg_dump reads by name). */
const char *mr_pg_without_views(const struct mr_pg_conn *conn)
{
    static const int since[] = {140013, 150008, 160004};
    int version = mr_pg_server_version(conn);
    bool knows = version >= 170000 || MR_ANY(one, since, MR_ARRAY_LEN(since),
                                             version / 10000 == *one / 10000 && version >= *one);
    return knows ? "SET restrict_nonsystem_relation_kind = 'view'; " : "";
}

int mr_pg_stop_fd(const struct mr_pg_conn *conn)
{
    return conn->stop_fd;
}

void mr_pg_set_stop_fd(struct mr_pg_conn *conn, int stop_fd)
{
    conn->stop_fd = stop_fd;
}

const char *mr_pg_database(const struct mr_pg_conn *conn)
{
    return PQdb(conn->libpq);
}

const char *mr_pg_user(const struct mr_pg_conn *conn)
{
    return PQuser(conn->libpq);
}

bool mr_pg_uses_tls(const struct mr_pg_conn *conn)
{
    return PQsslInUse(conn->libpq) == 1;
}
