#include "source/pg_conn.h"

#include <endian.h>
#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "source/pg_errors.h"
#include "source/pg_hosts.h"

enum {
    SQLSTATE_SIZE = 6,
    STATUS_UPDATE_LEN = 1 + 8 + 8 + 8 + 8 + 1,
    CONNINFO_MAX = 64, /* keywords we pass */
};

struct mr_pg_conn {
    PGconn *libpq;
    char *received; /* the message handed out last; libpq's memory */
    bool unsent;    /* output that the socket did not take yet */
};

/* So that the server, too, finds out that we are gone, and lets the claim and the slot go: its own time limit may be off,
 * and does not count for a session that only waits. The last one also ends a stream that nobody reads; it is longer than
 * we keep one without reading. The user's word counts more. */
static const char default_settings[] =
    "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3 "
    "-c tcp_user_timeout=90000";

/* Settings that change how values are written, or that could end a session that only waits. */
static const char pinned_settings[] =
    "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=1 "
    "-c bytea_output=hex -c search_path= -c statement_timeout=0 -c lock_timeout=0 "
    "-c idle_in_transaction_session_timeout=0";

/* ---- waiting ---- */

/* MR_OK: the socket is ready; MR_AGAIN: asked to stop; MR_ERR_TRANSIENT: the deadline has passed. */
static mr_status wait_socket(PGconn *libpq, short events, int stop_fd, int64_t deadline_ns,
                             struct mr_error *ret_error)
{
    struct pollfd fds[2] = {
        {.fd = PQsocket(libpq), .events = events},
        {.fd = stop_fd, .events = POLLIN},
    };
    for (;;) {
        int timeout_ms = -1;
        if (deadline_ns != 0) {
            int64_t left_ns = deadline_ns - mr_monotonic_ns();
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

/* ---- errors ---- */

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
    return mr_fail(ret_error, status, "%s: %s%s%s%s%s%s", subject, text,
                   sqlstate[0] == '\0' ? "" : " (", sqlstate, sqlstate[0] == '\0' ? "" : ")",
                   remedy[0] == '\0' ? "" : "; ", remedy);
}

static mr_status fail_connect(PGconn *libpq, struct mr_error *ret_error)
{
    char text[512];
    clean_text(PQerrorMessage(libpq), text, sizeof(text));
    const char *remedy;
    mr_status status = mr_pg_connect_error_classify(text, &remedy);
    return fail_with(ret_error, status, "PostgreSQL connection", text, "", remedy);
}

/* The connection broke: there is a text but no code. */
static mr_status fail_broken(PGconn *libpq, struct mr_error *ret_error)
{
    char text[512];
    clean_text(PQerrorMessage(libpq), text, sizeof(text));
    return fail_with(ret_error, MR_ERR_TRANSIENT, "PostgreSQL connection",
                     text[0] == '\0' ? "it was closed" : text, "", "");
}

/* Only the primary message: detail, hint and context quote values of rows. What ends the stream may be about a value
 * too (class 22: the function of a row filter refused it), and then the primary message quotes it. */
static mr_status fail_result(PGconn *libpq, const PGresult *result, const char *subject,
                             bool streams, char *ret_sqlstate, struct mr_error *ret_error)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (sqlstate == NULL || message == NULL) {
        return fail_broken(libpq, ret_error);
    }
    if (ret_sqlstate != NULL) {
        snprintf(ret_sqlstate, SQLSTATE_SIZE, "%s", sqlstate);
    }
    char text[512];
    clean_text(message, text, sizeof(text));
    const char *remedy;
    mr_status status = mr_pg_error_classify(sqlstate, message, &remedy);
    /* The message quotes bytes of the row. */
    if (streams && strncmp(sqlstate, "22", 2) == 0) {
        status = MR_ERR_POISON;
    }
    return fail_with(ret_error, status, subject,
                     status == MR_ERR_POISON ? "it can't send a row" : text, sqlstate, remedy);
}

/* ---- connecting ---- */

struct keywords {
    const char *names[CONNINFO_MAX];
    const char *values[CONNINFO_MAX];
    int count;
};

/* One host of the connection string. Its texts are ours; NULL: the string says nothing of it. */
struct host {
    char *name;
    char *address;
    char *port;
    bool is_one_of_many;
};

static void keyword_add(struct keywords *keywords, const char *name, const char *value)
{
    MR_ASSERT(keywords->count < CONNINFO_MAX - 1);
    keywords->names[keywords->count] = name;
    keywords->values[keywords->count] = value;
    keywords->count++;
}

static mr_status connect_poll(PGconn *libpq, int stop_fd, uint32_t timeout_ms,
                              struct mr_error *ret_error)
{
    int64_t deadline_ns = mr_monotonic_ns() + (int64_t)timeout_ms * 1000000;
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;
    while (state != PGRES_POLLING_OK) {
        if (state == PGRES_POLLING_FAILED) {
            return fail_connect(libpq, ret_error);
        }
        short events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        mr_status status = wait_socket(libpq, events, stop_fd, deadline_ns, ret_error);
        if (status == MR_ERR_TRANSIENT) {
            return mr_fail(ret_error, status,
                           "PostgreSQL at \"%s\", port %s, does not answer within %u ms",
                           PQhost(libpq), PQport(libpq), timeout_ms);
        }
        MR_TRY(status);
        state = PQconnectPoll(libpq);
    }
    return MR_OK;
}

/* What the user said of an option in the connection string, or NULL. */
static const char *conninfo_value(const PQconninfoOption *parsed, const char *name)
{
    for (const PQconninfoOption *option = parsed; option->keyword != NULL; option++) {
        if (strcmp(option->keyword, name) == 0) {
            return option->val;
        }
    }
    return NULL;
}

/* A password that holds @ : or / and is not encoded ends up in host and port, and errors name those. (A host that
 * begins with @ is a socket without a file.) */
static bool address_is_torn(const PQconninfoOption *parsed)
{
    const char *host = conninfo_value(parsed, "host");
    const char *port = conninfo_value(parsed, "port");
    return (host != NULL && host[0] != '\0' && strchr(host + 1, '@') != NULL) ||
           (port != NULL && port[strspn(port, "0123456789, ")] != '\0');
}

static bool is_of_host(const char *name)
{
    return strcmp(name, "host") == 0 || strcmp(name, "hostaddr") == 0 || strcmp(name, "port") == 0;
}

static void keywords_fill(struct keywords *keywords, const struct mr_pg_options *options,
                          const PQconninfoOption *parsed, const struct host *host, bool replication,
                          const char *settings)
{
    /* Ours first where the user's word counts (the later wins), then the connection string … */
    keyword_add(keywords, "gssencmode", "disable");
    keyword_add(keywords, "keepalives_idle", "30");
    keyword_add(keywords, "keepalives_interval", "10");
    keyword_add(keywords, "keepalives_count", "3");
    keyword_add(keywords, "tcp_user_timeout", "60000");
    keyword_add(keywords, "fallback_application_name", "millrace");
    if (host->is_one_of_many) {
        keyword_add(keywords, "target_session_attrs", "read-write"); /* not a standby among them */
    }
    if (options->application_name != NULL) {
        keyword_add(keywords, "application_name", options->application_name);
    }
    for (const PQconninfoOption *option = parsed; option->keyword != NULL; option++) {
        bool ours = host->is_one_of_many && is_of_host(option->keyword);
        if (option->val != NULL && !ours && keywords->count < CONNINFO_MAX - 12) {
            keyword_add(keywords, option->keyword, option->val);
        }
    }
    /* … and last what must be so. */
    if (host->is_one_of_many) {
        keyword_add(keywords, "host", host->name);
        keyword_add(keywords, "hostaddr", host->address);
        keyword_add(keywords, "port", host->port);
    }
    if (options->password != NULL) {
        keyword_add(keywords, "password", options->password);
    }
    keyword_add(keywords, "client_encoding", "UTF8");
    keyword_add(keywords, "options", settings);
    if (replication) {
        keyword_add(keywords, "replication", "database");
    }
}

/* A server that does not know what its bytes mean can't convert them, and a single row that is no UTF-8 would end
 * every attempt to stream. So they come as they are, and what is no UTF-8 is replaced by the encoder. */
static mr_status take_raw_bytes(struct mr_pg_conn *conn, int stop_fd, struct mr_error *ret_error)
{
    const char *encoding = PQparameterStatus(conn->libpq, "server_encoding");
    if (encoding == NULL || strcmp(encoding, "SQL_ASCII") != 0) {
        return MR_OK;
    }
    return mr_pg_exec(conn, stop_fd, "SET client_encoding = 'SQL_ASCII'", NULL, NULL, ret_error);
}

/* Notices would be written to standard error as they are, and may quote rows. */
static void drop_notice(void *context, const PGresult *result)
{
    (void)context;
    (void)result;
}

/* One host; the connection is the caller's when it is made. */
static mr_status connect_host(const struct mr_pg_options *options, const PQconninfoOption *parsed,
                              const struct host *host, bool replication, int stop_fd,
                              PGconn **ret_libpq, struct mr_error *ret_error)
{
    const char *own = conninfo_value(parsed, "options");
    size_t size =
        sizeof(default_settings) + sizeof(pinned_settings) + (own == NULL ? 0 : strlen(own)) + 3;
    char *settings = MR_ALLOC(size);
    snprintf(settings, size, "%s %s %s", default_settings, own == NULL ? "" : own, pinned_settings);
    struct keywords keywords = {0};
    keywords_fill(&keywords, options, parsed, host, replication, settings);
    PGconn *libpq = PQconnectStartParams(keywords.names, keywords.values, 0);
    free(settings);
    if (libpq == NULL) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "libpq has no memory for a connection");
    }
    PQsetNoticeReceiver(libpq, drop_notice, NULL);
    /* Where a connection breaks there is nothing but libpq's whole text: without details and hints. */
    PQsetErrorVerbosity(libpq, PQERRORS_TERSE);
    mr_status status = PQstatus(libpq) == CONNECTION_BAD
                           ? fail_connect(libpq, ret_error)
                           : connect_poll(libpq, stop_fd, options->connect_timeout_ms, ret_error);
    if (status != MR_OK) {
        PQfinish(libpq);
        return status;
    }
    *ret_libpq = libpq;
    return MR_OK;
}

static mr_status connect_nth(const struct mr_pg_options *options, const PQconninfoOption *parsed,
                             uint32_t n, uint32_t count, bool replication, int stop_fd,
                             PGconn **ret_libpq, struct mr_error *ret_error)
{
    struct host host = {
        .name = mr_pg_host_item(conninfo_value(parsed, "host"), n),
        .address = mr_pg_host_item(conninfo_value(parsed, "hostaddr"), n),
        .port = mr_pg_host_port(conninfo_value(parsed, "port"), n),
        .is_one_of_many = count > 1,
    };
    mr_status status =
        connect_host(options, parsed, &host, replication, stop_fd, ret_libpq, ret_error);
    free(host.name);
    free(host.address);
    free(host.port);
    return status;
}

/* The hosts one after the other. The error says what each of them said; that one may come back outweighs what
 * another refuses. */
static mr_status connect_any(const struct mr_pg_options *options, const PQconninfoOption *parsed,
                             bool replication, int stop_fd, PGconn **ret_libpq,
                             struct mr_error *ret_error)
{
    uint32_t count =
        mr_pg_host_count(conninfo_value(parsed, "host"), conninfo_value(parsed, "hostaddr"));
    struct mr_text said = {0};
    mr_status answer = MR_ERR_TRANSIENT;
    for (uint32_t n = 0; n < count; n++) {
        struct mr_error error = {0};
        mr_status status =
            connect_nth(options, parsed, n, count, replication, stop_fd, ret_libpq, &error);
        if (status == MR_OK || status == MR_AGAIN) {
            mr_text_done(&said);
            return status;
        }
        if (n == 0 || status == MR_ERR_TRANSIENT) {
            answer = status;
        }
        mr_text_string(&said, n == 0 ? "" : "; ");
        mr_text_string(&said, error.text);
    }
    mr_error_set(ret_error, answer, "%s", said.data);
    mr_text_done(&said);
    return answer;
}

mr_status mr_pg_connect(const struct mr_pg_options *options, bool replication, int stop_fd,
                        struct mr_pg_conn **ret_conn, struct mr_error *ret_error)
{
    char *reason = NULL;
    PQconninfoOption *parsed = PQconninfoParse(options->conninfo, &reason);
    if (parsed == NULL) {
        /* The reason may quote the string, and with it a password. */
        PQfreemem(reason);
        return mr_fail(
            ret_error, MR_ERR_CONFIG,
            "the connection string is neither a URI nor a list of key=value pairs that libpq "
            "knows; see libpq's connection strings");
    }
    if (address_is_torn(parsed)) {
        PQconninfoFree(parsed);
        return mr_fail(
            ret_error, MR_ERR_CONFIG,
            "the connection string's host holds @ or its port is no number; in a URI, what a user "
            "name or password holds of : / ? # [ ] @ %% is written as %%3A, %%2F, %%40 and so on");
    }
    PGconn *libpq = NULL;
    mr_status status = connect_any(options, parsed, replication, stop_fd, &libpq, ret_error);
    PQconninfoFree(parsed);
    MR_TRY(status);
    PQsetnonblocking(libpq, 1);
    struct mr_pg_conn *conn = MR_NEW(struct mr_pg_conn);
    conn->libpq = libpq;
    status = take_raw_bytes(conn, stop_fd, ret_error);
    if (status != MR_OK) {
        mr_pg_close(conn);
        return status;
    }
    *ret_conn = conn;
    return MR_OK;
}

void mr_pg_close(struct mr_pg_conn *conn)
{
    if (conn == NULL) {
        return;
    }
    PQfreemem(conn->received);
    PQfinish(conn->libpq);
    free(conn);
}

/* ---- commands ---- */

struct mr_pg_result {
    PGresult *libpq;
};

int mr_pg_result_rows(const struct mr_pg_result *result)
{
    return PQntuples(result->libpq);
}

const char *mr_pg_result_value(const struct mr_pg_result *result, int row, int column)
{
    return PQgetisnull(result->libpq, row, column) ? NULL : PQgetvalue(result->libpq, row, column);
}

void mr_pg_result_free(struct mr_pg_result *result)
{
    if (result != NULL) {
        PQclear(result->libpq);
        free(result);
    }
}

/* Sends what is queued; the caller waits for the socket between calls. */
static mr_status flush_output(struct mr_pg_conn *conn, int stop_fd, struct mr_error *ret_error)
{
    int left;
    while ((left = PQflush(conn->libpq)) == 1) {
        MR_TRY(wait_socket(conn->libpq, POLLOUT, stop_fd, 0, ret_error));
    }
    return left == 0 ? MR_OK : fail_broken(conn->libpq, ret_error);
}

static mr_status wait_result(struct mr_pg_conn *conn, int stop_fd, struct mr_error *ret_error)
{
    while (PQisBusy(conn->libpq)) {
        MR_TRY(wait_socket(conn->libpq, POLLIN, stop_fd, 0, ret_error));
        if (!PQconsumeInput(conn->libpq)) {
            return fail_broken(conn->libpq, ret_error);
        }
    }
    return MR_OK;
}

/* A command that still runs when we leave (a slot that waits for old transactions) must end with us. */
static void cancel_command(struct mr_pg_conn *conn)
{
    char reason[256];
    PGcancel *cancel = PQgetCancel(conn->libpq);
    if (cancel != NULL) {
        PQcancel(cancel, reason, sizeof(reason));
        PQfreeCancel(cancel);
    }
}

/* Sends a command and waits for its first result. */
static mr_status run_command(struct mr_pg_conn *conn, int stop_fd, const char *command,
                             PGresult **ret_result, struct mr_error *ret_error)
{
    if (!PQsendQuery(conn->libpq, command)) {
        return fail_broken(conn->libpq, ret_error);
    }
    mr_status status = flush_output(conn, stop_fd, ret_error);
    if (status == MR_OK) {
        status = wait_result(conn, stop_fd, ret_error);
    }
    if (status == MR_AGAIN) {
        cancel_command(conn);
    }
    MR_TRY(status);
    *ret_result = PQgetResult(conn->libpq);
    return *ret_result == NULL ? fail_broken(conn->libpq, ret_error) : MR_OK;
}

static mr_status drop_results(struct mr_pg_conn *conn, int stop_fd, struct mr_error *ret_error)
{
    for (;;) {
        MR_TRY(wait_result(conn, stop_fd, ret_error));
        PGresult *more = PQgetResult(conn->libpq);
        if (more == NULL) {
            return MR_OK;
        }
        PQclear(more);
    }
}

mr_status mr_pg_exec(struct mr_pg_conn *conn, int stop_fd, const char *command,
                     struct mr_pg_result **ret_result, char *ret_sqlstate,
                     struct mr_error *ret_error)
{
    PGresult *result;
    MR_TRY(run_command(conn, stop_fd, command, &result, ret_error));
    ExecStatusType kind = PQresultStatus(result);
    mr_status status = MR_OK;
    if (kind != PGRES_TUPLES_OK && kind != PGRES_COMMAND_OK) {
        status = fail_result(conn->libpq, result, "PostgreSQL", false, ret_sqlstate, ret_error);
    }
    mr_status rest = drop_results(conn, stop_fd, status == MR_OK ? ret_error : NULL);
    if (status == MR_OK) {
        status = rest;
    }
    if (status == MR_OK && ret_result != NULL) {
        *ret_result = MR_NEW(struct mr_pg_result);
        (*ret_result)->libpq = result;
        return MR_OK;
    }
    PQclear(result);
    return status;
}

static char *own_copy(char *libpq_text)
{
    MR_ASSERT(libpq_text != NULL); /* fails only on text that is no valid UTF-8, refused earlier */
    char *copy = MR_STRDUP(libpq_text);
    PQfreemem(libpq_text);
    return copy;
}

char *mr_pg_quote_identifier(struct mr_pg_conn *conn, const char *text)
{
    return own_copy(PQescapeIdentifier(conn->libpq, text, strlen(text)));
}

char *mr_pg_quote_literal(struct mr_pg_conn *conn, const char *text)
{
    return own_copy(PQescapeLiteral(conn->libpq, text, strlen(text)));
}

int mr_pg_library_version(void)
{
    return PQlibVersion();
}

int mr_pg_server_version(const struct mr_pg_conn *conn)
{
    return PQserverVersion(conn->libpq);
}

const char *mr_pg_database(const struct mr_pg_conn *conn)
{
    return PQdb(conn->libpq);
}

const char *mr_pg_user(const struct mr_pg_conn *conn)
{
    return PQuser(conn->libpq);
}

int mr_pg_backend(const struct mr_pg_conn *conn)
{
    return PQbackendPID(conn->libpq);
}

bool mr_pg_uses_tls(const struct mr_pg_conn *conn)
{
    return PQsslInUse(conn->libpq) == 1;
}

/* ---- the stream ---- */

/* An identifier inside a literal inside the command: quoted twice. */
static char *quote_publication(struct mr_pg_conn *conn, const char *publication)
{
    char *identifier = mr_pg_quote_identifier(conn, publication);
    char *literal = mr_pg_quote_literal(conn, identifier);
    free(identifier);
    return literal;
}

mr_status mr_pg_start_replication(struct mr_pg_conn *conn, int stop_fd, const char *slot,
                                  const char *publication, mr_lsn start, struct mr_error *ret_error)
{
    char *slot_name = mr_pg_quote_identifier(conn, slot);
    char *publications = quote_publication(conn, publication);
    bool knows_messages = mr_pg_server_version(conn) >= 140000;
    size_t size = strlen(slot_name) + strlen(publications) + 160;
    char *command = MR_ALLOC(size);
    snprintf(command, size,
             "START_REPLICATION SLOT %s LOGICAL " MR_LSN_FORMAT
             " (proto_version '1', publication_names %s%s)",
             slot_name, MR_LSN_ARGS(start), publications,
             knows_messages ? ", messages 'true'" : "");
    PGresult *result;
    mr_status status = run_command(conn, stop_fd, command, &result, ret_error);
    free(command);
    free(publications);
    free(slot_name);
    MR_TRY(status);
    if (PQresultStatus(result) != PGRES_COPY_BOTH) {
        status = fail_result(conn->libpq, result, "replication slot", false, NULL, ret_error);
    }
    PQclear(result);
    return status;
}

static mr_status flush_some(struct mr_pg_conn *conn, struct mr_error *ret_error)
{
    int left = PQflush(conn->libpq);
    conn->unsent = left == 1;
    return left < 0 ? fail_broken(conn->libpq, ret_error) : MR_OK;
}

/* The stream ended: libpq has the reason as a result. */
static mr_status stream_end(struct mr_pg_conn *conn, struct mr_error *ret_error)
{
    PGresult *result = PQgetResult(conn->libpq);
    if (result == NULL) {
        return fail_broken(conn->libpq, ret_error);
    }
    mr_status status = MR_END;
    if (PQresultStatus(result) == PGRES_FATAL_ERROR) {
        status = fail_result(conn->libpq, result, "replication stream", true, NULL, ret_error);
    }
    PQclear(result);
    return status;
}

void mr_pg_forget(struct mr_pg_conn *conn)
{
    if (conn->received != NULL) {
        PQfreemem(conn->received);
        conn->received = NULL;
    }
}

mr_status mr_pg_receive(struct mr_pg_conn *conn, mr_slice *ret_payload, uint64_t *ret_reads,
                        struct mr_error *ret_error)
{
    mr_pg_forget(conn);
    int len = PQgetCopyData(conn->libpq, &conn->received, 1);
    if (len == 0) {
        if (conn->unsent) {
            MR_TRY(flush_some(conn, ret_error));
        }
        if (!PQconsumeInput(conn->libpq)) {
            return fail_broken(conn->libpq, ret_error);
        }
        if (ret_reads != NULL) {
            ++*ret_reads;
        }
        len = PQgetCopyData(conn->libpq, &conn->received, 1);
    }
    if (MR_LIKELY(len > 0)) {
        *ret_payload = (mr_slice){.data = (const uint8_t *)conn->received, .len = (size_t)len};
        return MR_OK;
    }
    return len == 0 ? MR_AGAIN : stream_end(conn, ret_error);
}

static uint8_t *put_u64(uint8_t *to, uint64_t value)
{
    uint64_t big = htobe64(value);
    memcpy(to, &big, sizeof(big));
    return to + sizeof(big);
}

/* Standby status update: Byte1('r') Int64(written) Int64(flushed) Int64(applied) Int64(client time, µs
 * since 2000) Byte1(reply now). PostgreSQL documentation, "Streaming Replication Protocol". */
mr_status mr_pg_send_status(struct mr_pg_conn *conn, mr_lsn flushed, bool reply_requested,
                            struct mr_error *ret_error)
{
    uint8_t message[STATUS_UPDATE_LEN] = {'r'};
    uint8_t *at = message + 1;
    at = put_u64(at, flushed);
    at = put_u64(at, flushed);
    at = put_u64(at, flushed);
    at = put_u64(at, (uint64_t)(mr_wall_ns() / 1000 - MR_PG_EPOCH_US));
    *at = reply_requested ? 1 : 0;
    if (PQputCopyData(conn->libpq, (const char *)message, STATUS_UPDATE_LEN) < 0) {
        return fail_broken(conn->libpq, ret_error);
    }
    return flush_some(conn, ret_error);
}

int mr_pg_socket(const struct mr_pg_conn *conn)
{
    return PQsocket(conn->libpq);
}

mr_status mr_pg_end_replication(struct mr_pg_conn *conn, int64_t deadline_ns)
{
    if (PQputCopyEnd(conn->libpq, NULL) < 0) {
        return MR_ERR_TRANSIENT;
    }
    for (;;) {
        mr_slice payload;
        mr_status status = mr_pg_receive(conn, &payload, NULL, NULL);
        if (status == MR_AGAIN) {
            MR_TRY(flush_some(conn, NULL));
            short events = (short)(POLLIN | (conn->unsent ? POLLOUT : 0));
            status = wait_socket(conn->libpq, events, -1, deadline_ns, NULL);
        }
        if (status != MR_OK) {
            return status == MR_END ? MR_OK : status;
        }
    }
}
