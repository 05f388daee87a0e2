/* Connecting (hosts one after the other, each with what the user and we say of a connection) and
 * closing. */
#include <poll.h>

#include "postgres/conn/pg_conn_internal.h"
#include "postgres/conn/pg_hosts.h"

enum { CONNINFO_MAX = 72 }; /* keywords we pass */
#define ANY_HOST UINT32_MAX

/* So that the server, too, finds out that we are gone, and lets the claim and the slot go: its own
 * time limit may be off, and does not count for a session that only waits. The last one also ends a
 * stream that nobody reads; it is longer than we keep one without reading. The user's word counts
 * more. */
static const char default_settings[] =
    "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3 "
    "-c tcp_user_timeout=90000";

/* Settings that change how values are written, that could end a session that only waits, or make a
 * question wait for others' transactions (SERIALIZABLE, READ ONLY, DEFERRABLE: the manual's page of
 * SET TRANSACTION), or have the planner call functions of a table's CHECK constraints in our name
 * ("partition" does so for the partitions of a table that is read by its root:
 * relation_excluded_by_constraints in optimizer/util/plancat.c), or plan or compile a question of a
 * few milliseconds for seconds (join_collapse_limit at its maximum; jit, where a role's enable_… =
 * off makes the planner's costs high). */
static const char pinned_settings[] =
    "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=1 "
    "-c bytea_output=hex -c lc_monetary=C -c lc_numeric=C -c lc_time=C -c xmlbinary=base64 "
    "-c quote_all_identifiers=off -c standard_conforming_strings=on -c search_path= "
    "-c default_transaction_isolation=read\\ committed -c default_transaction_deferrable=off "
    "-c constraint_exclusion=off -c jit=off -c geqo=off -c join_collapse_limit=8 "
    "-c from_collapse_limit=8 "
    "-c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0 "
    "-c idle_in_transaction_session_timeout=0 -c client_min_messages=warning";

struct keywords {
    const char *names[CONNINFO_MAX];
    const char *values[CONNINFO_MAX];
    int count;
};

struct host {
    const char *name, *address, *port;
    bool is_one_of_many;
};

/* NULL: nothing is said of it. */
static void keyword_add(struct keywords *keywords, const char *name, const char *value)
{
    if (value != NULL) {
        MR_ASSERT(keywords->count < CONNINFO_MAX - 1);
        keywords->names[keywords->count] = name;
        keywords->values[keywords->count++] = value;
    }
}

struct attempt {
    const struct mr_pg_options *options;
    const char *password;
    const PQconninfoOption *parsed;
    uint32_t only; /* of the hosts; ANY_HOST: the first that will do */
    bool replication;
    int stop_fd;
};

/* In seconds, and PQconnectPoll ignores it: who polls keeps it (libpq manual, "Database Connection
 * Control Functions": PQconnectStartParams). */
static uint32_t connect_timeout(const struct attempt *attempt)
{
    enum { DEFAULT_MS = 10000, MAX_S = 86400 };
    const char *text = mr_pg_conninfo_value(attempt->parsed, "connect_timeout");
    long said_s = text == NULL ? 0 : strtol(text, NULL, 10);
    uint32_t timeout_ms = said_s > 0 && said_s <= MAX_S ? 1000 * (uint32_t)said_s : DEFAULT_MS;
    uint32_t max_ms = attempt->options->connect_max_ms;
    return max_ms == 0 || timeout_ms < max_ms ? timeout_ms : max_ms;
}

static mr_status connect_poll(const struct attempt *attempt, PGconn *libpq,
                              struct mr_error *ret_error)
{
    uint32_t timeout_ms = connect_timeout(attempt);
    struct mr_pg_limit limit = mr_pg_limit_begin(attempt->stop_fd, timeout_ms);
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;
    while (state != PGRES_POLLING_OK) {
        if (state == PGRES_POLLING_FAILED) {
            return mr_pg_fail_connect(libpq, ret_error);
        }
        short events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        mr_status status = mr_pg_wait_socket(libpq, events, &limit, ret_error);
        if (status == MR_ERR_TRANSIENT) {
            return mr_fail(ret_error, status,
                           "PostgreSQL at \"%s\", port %s, does not answer within %u ms",
                           PQhost(libpq), PQport(libpq), timeout_ms);
        }
        MR_TRY(status);
        MR_TRY(mr_pg_check_held(&limit, ret_error));
        state = PQconnectPoll(libpq);
    }
    return MR_OK;
}

/* One for each host, with commas between them; an empty one is the default. */
static bool are_ports(const char *text)
{
    while (*text != '\0') {
        size_t digits = strspn(text, "0123456789");
        unsigned long port = strtoul(digits == 0 ? "1" : text, NULL, 10);
        text += digits;
        size_t gap = strspn(text, ", ");
        if (port < 1 || port > UINT16_MAX || digits + gap == 0) {
            return false;
        }
        text += gap;
    }
    return true;
}

/* A password that holds @ : or / and is not encoded ends up in host and port, and errors name
 * those. (A host that begins with @ is a socket without a file.) */
static bool address_is_torn(const PQconninfoOption *parsed)
{
    const char *host = mr_pg_conninfo_value(parsed, "host");
    const char *port = mr_pg_conninfo_value(parsed, "port");
    return (host != NULL && host[0] != '\0' && strchr(host + 1, '@') != NULL) ||
           (port != NULL && !are_ports(port));
}

static bool is_of_host(const char *name)
{
    return strcmp(name, "host") == 0 || strcmp(name, "hostaddr") == 0 || strcmp(name, "port") == 0;
}

/* Where the user's word counts. */
static const char *const defaults[][2] = {
    {"gssencmode", "disable"},     {"keepalives_idle", "30"},
    {"keepalives_interval", "10"}, {"keepalives_count", "3"},
    {"tcp_user_timeout", "60000"}, {"fallback_application_name", "millrace"},
};

static void keywords_fill(struct keywords *keywords, const struct attempt *attempt,
                          const struct host *host, const struct mr_pg_trust *trust,
                          const char *settings)
{
    const struct mr_pg_options *options = attempt->options;
    /* The later wins: ours first, then the connection string … */
    for (size_t i = 0; i < MR_ARRAY_LEN(defaults); i++) {
        keyword_add(keywords, defaults[i][0], defaults[i][1]);
    }
    /* Not a standby among them. */
    keyword_add(keywords, "target_session_attrs", host->is_one_of_many ? "read-write" : NULL);
    keyword_add(keywords, "application_name", options->application_name);
    for (const PQconninfoOption *option = attempt->parsed; option->keyword != NULL; option++) {
        bool ours = host->is_one_of_many && is_of_host(option->keyword);
        if (!ours && keywords->count < CONNINFO_MAX - 16) {
            keyword_add(keywords, option->keyword, option->val);
        }
    }
    /* … and last what must be so. */
    if (host->is_one_of_many) {
        keyword_add(keywords, "host", host->name);
        keyword_add(keywords, "hostaddr", host->address);
        keyword_add(keywords, "port", host->port);
    }
    keyword_add(keywords, "target_session_attrs", attempt->only != ANY_HOST ? "any" : NULL);
    keyword_add(keywords, "sslmode", trust->sslmode);
    keyword_add(keywords, "sslrootcert", trust->sslrootcert);
    keyword_add(keywords, "channel_binding", trust->channel_binding);
    keyword_add(keywords, "password", attempt->password);
    keyword_add(keywords, "client_encoding", "UTF8");
    keyword_add(keywords, "options", settings);
    keyword_add(keywords, "replication", attempt->replication ? "database" : NULL);
}

/* A server that does not know what its bytes mean can't convert them, and a single row that is not
 * UTF-8 would end every attempt to stream. So they come as they are, and what is not UTF-8 is
 * replaced by the encoder. */
static const char *set_encoding(const struct mr_pg_conn *conn)
{
    const char *encoding = PQparameterStatus(conn->libpq, "server_encoding");
    bool is_ascii = encoding != NULL && strcmp(encoding, "SQL_ASCII") == 0;
    return is_ascii ? "SET client_encoding = 'SQL_ASCII'; " : "";
}

/* transaction_timeout (PostgreSQL 17) also counts for the transaction in which a walsender
 * decodes. */
static const char *set_timeout(const struct mr_pg_conn *conn)
{
    return mr_pg_server_version(conn) >= 170000 ? "SET transaction_timeout = 0; " : "";
}

static mr_status set_for_server(struct mr_pg_conn *conn, struct mr_error *ret_error)
{
    const char *encoding = set_encoding(conn);
    const char *timeout = set_timeout(conn);
    return encoding[0] == '\0' && timeout[0] == '\0'
               ? MR_OK
               : mr_pg_commandf(conn, MR_PG_ANSWER_MS, ret_error, "%s%s", encoding, timeout);
}

mr_status mr_pg_set_for_rows(struct mr_pg_conn *conn, const char *before, const char *settings,
                             struct mr_error *ret_error)
{
    return mr_pg_commandf(conn, MR_PG_ANSWER_MS, ret_error, "%sRESET ALL; RESET ROLE; %s%s%s%s",
                          before, set_encoding(conn), set_timeout(conn), mr_pg_without_views(conn),
                          settings);
}

/* Notices would be written to standard error as they are, and may quote rows. Before there is a
 * connection of ours. */
static void drop_notice(void *context, const PGresult *result)
{
}

/* One of them is about rows that are lost: PostgreSQL 18 streams on where a publication did not
 * exist when a row was written, and leaves the row out with this warning (pgoutput.c,
 * LoadPublications); before, that was an error. The name of the function is in no language, unlike
 * the text. */
static void take_notice(void *context, const PGresult *result)
{
    struct mr_pg_conn *conn = context;
    const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
    conn->publication_skipped |= function != NULL && strcmp(function, "LoadPublications") == 0;
}

/* One host; the connection is the caller's when it is made. */
static mr_status connect_nth(const struct attempt *attempt, uint32_t n, uint32_t count,
                             PGconn **ret_libpq, struct mr_error *ret_error)
{
    const PQconninfoOption *parsed = attempt->parsed;
    MR_FREED char *name = mr_pg_host_item(mr_pg_conninfo_value(parsed, "host"), n);
    MR_FREED char *address = mr_pg_host_item(mr_pg_conninfo_value(parsed, "hostaddr"), n);
    MR_FREED char *port = mr_pg_host_port(mr_pg_conninfo_value(parsed, "port"), n);
    const struct host host = {name, address, port, .is_one_of_many = count > 1};
    struct mr_pg_trust trust = {0};
    MR_TRY(mr_pg_trust_choose(parsed, name, address, attempt->options->insecure_tls, &trust,
                              ret_error));
    const char *own = mr_pg_conninfo_value(attempt->parsed, "options");
    MR_TEXT(settings);
    mr_text_format(&settings, "%s %s %s", default_settings, own == NULL ? "" : own,
                   pinned_settings);
    struct keywords keywords = {0};
    keywords_fill(&keywords, attempt, &host, &trust, settings.data);
    PGconn *libpq = PQconnectStartParams(keywords.names, keywords.values, 0);
    if (libpq == NULL) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "libpq has no memory for a connection");
    }
    PQsetNoticeReceiver(libpq, drop_notice, NULL);
    /* For the SQLSTATE of a refusal: libpq gives it in its text only. */
    PQsetErrorVerbosity(libpq, PQERRORS_VERBOSE);
    mr_status status = PQstatus(libpq) == CONNECTION_BAD ? mr_pg_fail_connect(libpq, ret_error)
                                                         : connect_poll(attempt, libpq, ret_error);
    if (status != MR_OK) {
        PQfinish(libpq);
        return status;
    }
    /* Where a connection breaks there is nothing but libpq's whole text: without details and
     * hints. */
    PQsetErrorVerbosity(libpq, PQERRORS_TERSE);
    *ret_libpq = libpq;
    return MR_OK;
}

/* The hosts one after the other. The error holds what each of them said; that one may come back
 * outweighs what another refuses. */
static mr_status connect_any(const struct attempt *attempt, PGconn **ret_libpq,
                             struct mr_error *ret_error)
{
    uint32_t count = mr_pg_host_count(mr_pg_conninfo_value(attempt->parsed, "host"),
                                      mr_pg_conninfo_value(attempt->parsed, "hostaddr"));
    MR_TEXT(said);
    mr_status answer = MR_ERR_TRANSIENT;
    char code[MR_SQLSTATE_SIZE] = "";
    uint32_t first = attempt->only == ANY_HOST ? 0 : attempt->only;
    uint32_t end = attempt->only == ANY_HOST ? count : first + 1;
    for (uint32_t n = first; n < end; n++) {
        struct mr_error error = {0};
        mr_status status = connect_nth(attempt, n, count, ret_libpq, &error);
        if (status == MR_OK || status == MR_AGAIN) {
            return status;
        }
        if (n == first || status == MR_ERR_TRANSIENT) {
            answer = status;
            if (error.sqlstate[0] != '\0') {
                memcpy(code, error.sqlstate, sizeof(code));
            }
        }
        mr_text_format(&said, "%s%s", n == first ? "" : "; ", error.text);
    }
    mr_error_refused(ret_error, answer, code, "%s", said.data);
    return answer;
}

/* As it is now: one that a program prints may be good for minutes, and a file may have a new one.
 * NULL: there is none. */
static mr_status pg_conn_open_take_password(const struct mr_pg_options *options, int stop_fd,
                                            char **ret_password, struct mr_error *ret_error)
{
    if (options->password_program != NULL) {
        return mr_program_run(options->password_program, stop_fd, ret_password, ret_error);
    }
    *ret_password = mr_secret_take(options->password);
    return MR_OK;
}

static mr_status connect_as(const struct mr_pg_options *options, uint32_t only, bool replication,
                            int stop_fd, struct mr_pg_conn **ret_conn, struct mr_error *ret_error)
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
            "the connection string's host holds @ or its port is not a number from 1 to 65535; in "
            "a URI, what a user name or password holds of : / ? # [ ] @ %% is written as %%3A, "
            "%%2F, %%40 and so on");
    }
    PGconn *libpq = NULL;
    char *password = NULL;
    mr_status status = pg_conn_open_take_password(options, stop_fd, &password, ret_error);
    if (status == MR_OK) {
        const struct attempt attempt = {options, password, parsed, only, replication, stop_fd};
        status = connect_any(&attempt, &libpq, ret_error);
    }
    mr_secret_forget(password);
    PQconninfoFree(parsed);
    MR_TRY(status);
    PQsetnonblocking(libpq, 1);
    MR_PG_CLOSED struct mr_pg_conn *conn = MR_NEW(struct mr_pg_conn);
    conn->libpq = libpq;
    conn->stop_fd = stop_fd;
    PQsetNoticeReceiver(libpq, take_notice, conn);
    MR_TRY(set_for_server(conn, ret_error));
    *ret_conn = conn;
    conn = NULL;
    return MR_OK;
}

mr_status mr_pg_connect(const struct mr_pg_options *options, bool replication, int stop_fd,
                        struct mr_pg_conn **ret_conn, struct mr_error *ret_error)
{
    return connect_as(options, ANY_HOST, replication, stop_fd, ret_conn, ret_error);
}

mr_status mr_pg_connect_to(const struct mr_pg_options *options, uint32_t host, int stop_fd,
                           struct mr_pg_conn **ret_conn, struct mr_error *ret_error)
{
    return connect_as(options, host, false, stop_fd, ret_conn, ret_error);
}

char *mr_pg_host_name(const struct mr_pg_options *options, uint32_t host)
{
    PQconninfoOption *parsed = PQconninfoParse(options->conninfo, NULL);
    struct mr_text text = {0};
    const char *names = parsed == NULL ? NULL : mr_pg_conninfo_value(parsed, "host");
    const char *addresses = parsed == NULL ? NULL : mr_pg_conninfo_value(parsed, "hostaddr");
    uint32_t count = mr_pg_host_count(names, addresses);
    if (count > 1 && host < count) {
        MR_FREED char *name = mr_pg_host_item(names == NULL ? addresses : names, host);
        MR_FREED char *port = mr_pg_host_port(mr_pg_conninfo_value(parsed, "port"), host);
        mr_text_format(&text, "%s%s%s", name, port == NULL ? "" : ":", port == NULL ? "" : port);
    }
    PQconninfoFree(parsed);
    return text.data;
}

bool mr_pg_is_local(const struct mr_pg_conn *conn)
{
    const char *host = PQhost(conn->libpq);
    const char *address = PQhostaddr(conn->libpq);
    return (host != NULL && (host[0] == '/' || host[0] == '@')) ||
           (address != NULL && mr_is_among("127.*|::1", mr_slice_of(address)));
}

void mr_pg_close(struct mr_pg_conn *conn)
{
    if (conn == NULL) {
        return;
    }
    mr_pg_result_free(conn->answer);
    PQfreemem(conn->received);
    PQfinish(conn->libpq);
    free(conn);
}
