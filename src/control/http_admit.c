/* Who may ask for what: method, origin, host, password. */
#include <arpa/inet.h>
#include <netdb.h>
#include <strings.h>

#include "base/clock.h"
#include "control/http_internal.h"

/* After FREE_TRIES failures in a row an address has one try a second. */
enum { FREE_TRIES = 5, PAUSE_MS = 1000, FORGET_MS = 60000, LOG_MS = 10000 };

static const struct sockaddr *address_of(struct MHD_Connection *of)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(of, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info == NULL ? NULL : info->client_addr;
}

/* An IPv6 network of 64 bits counts as one: its owner has all of it. */
static uint64_t http_admit_source_of(struct MHD_Connection *of)
{
    const struct sockaddr *address = address_of(of);
    uint64_t source = 0;
    if (address != NULL && address->sa_family == AF_INET) {
        memcpy(&source, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    } else if (address != NULL && address->sa_family == AF_INET6) {
        memcpy(&source, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 8);
    }
    return source;
}

/* Its place, or the one that was silent longest. */
static struct mr_http_login *login_of(struct mr_http_logins *logins, struct MHD_Connection *of)
{
    uint64_t source = http_admit_source_of(of);
    struct mr_http_login *oldest = &logins->items[0];
    for (size_t i = 0; i < MR_HTTP_LOGINS; i++) {
        struct mr_http_login *login = &logins->items[i];
        if (login->failures > 0 && login->source == source) {
            return login;
        }
        oldest = login->last_ns < oldest->last_ns ? login : oldest;
    }
    *oldest = (struct mr_http_login){.source = source};
    return oldest;
}

static bool may_try(struct mr_http_logins *logins, struct MHD_Connection *of)
{
    struct mr_http_login *login = login_of(logins, of);
    int64_t since_ms = (mr_monotonic_ns() - login->last_ns) / 1000000;
    if (since_ms > FORGET_MS) {
        login->failures = 0;
    }
    return login->failures < FREE_TRIES || since_ms >= PAUSE_MS;
}

static void count_try(struct mr_http_logins *logins, struct MHD_Connection *of, bool good)
{
    struct mr_http_login *login = login_of(logins, of);
    int64_t now_ns = mr_monotonic_ns();
    bool is_due = logins->logged_ns == 0 || now_ns - logins->logged_ns >= LOG_MS * INT64_C(1000000);
    login->last_ns = now_ns;
    login->failures = good ? 0 : login->failures + 1;
    logins->failures += !good;
    if (good || !is_due) {
        return;
    }
    logins->logged_ns = now_ns;
    char text[NI_MAXHOST] = "a unix socket";
    const struct sockaddr *from = address_of(of);
    if (from != NULL && (from->sa_family == AF_INET || from->sa_family == AF_INET6)) {
        getnameinfo(from,
                    from->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                               : sizeof(struct sockaddr_in6),
                    text, sizeof(text), NULL, 0, NI_NUMERICHOST);
    }
    mr_log(MR_LOG_WARN, "http_login_failed",
           "a wrong user name or password for the HTTP server; logged every 10 s at most",
           MR_LOG_STR("from", text), MR_LOG_INT("failures", logins->failures));
}

/* As long for a wrong text as for the right one. */
static bool equal_secret(const char *given, const char *wanted)
{
    size_t given_len = given == NULL ? 0 : strlen(given);
    size_t wanted_len = strlen(wanted);
    unsigned difference = given_len != wanted_len;
    for (size_t i = 0; i < wanted_len; i++) {
        difference |= (unsigned char)wanted[i] ^ (unsigned char)(i < given_len ? given[i] : 0);
    }
    return difference == 0;
}

static bool is_authorized(const struct mr_http_options *options, struct MHD_Connection *of,
                          bool *ret_tried)
{
    char *password = NULL;
    char *username = MHD_basic_auth_get_username_password(of, &password);
    *ret_tried = username != NULL;
    bool name_good = equal_secret(username, options->username);
    char *wanted = mr_secret_take(options->password);
    bool password_good = equal_secret(password, wanted);
    mr_secret_forget(wanted);
    MHD_free(username);
    MHD_free(password);
    return name_good && password_good;
}

/* Answers false; `header` NULL: none. */
static bool http_admit_refuse(struct mr_http_request *request, unsigned status, const char *header,
                              const char *value, const char *text)
{
    mr_http_fail(request, status, "%s", text);
    if (header != NULL) {
        mr_http_header(request, header, value);
    }
    return false;
}

/* True: the request has no password to show, or has shown it. Else the answer is there. */
static bool admit_login(const struct mr_http_options *options, struct mr_http_logins *logins,
                        struct MHD_Connection *from, struct mr_http_request *request)
{
    bool tried = false;
    if (options->username == NULL || (request->route != NULL && request->route->open)) {
        return true;
    }
    if (!may_try(logins, from)) {
        return http_admit_refuse(request, MHD_HTTP_TOO_MANY_REQUESTS, MHD_HTTP_HEADER_RETRY_AFTER,
                                 "1",
                                 "too many wrong passwords from this address; one try a second");
    }
    bool good = is_authorized(options, from, &tried);
    if (tried) {
        count_try(logins, from, good);
    }
    return good || http_admit_refuse(request, MHD_HTTP_UNAUTHORIZED, NULL, NULL,
                                     "user name and password are needed");
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text);
    size_t end_len = strlen(end);
    return len > end_len && strcasecmp(text + len - end_len, end) == 0;
}

/* Numbers, names without a dot and names that no registry gives away: no stranger's name server
 * answers for those. */
static bool is_private_name(const char *name)
{
    struct in_addr v4;
    struct in6_addr v6;
    char own[256] = "";
    gethostname(own, sizeof(own) - 1);
    return inet_pton(AF_INET6, name, &v6) == 1 || inet_pton(AF_INET, name, &v4) == 1 ||
           strchr(name, '.') == NULL || strcasecmp(name, own) == 0 ||
           ends_with(name, ".internal") || ends_with(name, ".localhost") ||
           ends_with(name, ".svc") || ends_with(name, ".cluster.local");
}

static bool http_admit_is_named(const struct mr_http_options *options, const char *name)
{
    return MR_ANY(host_name, options->host_names, options->host_name_count,
                  strcasecmp(name, *host_name) == 0);
}

bool mr_http_host_is_ours(const struct mr_http_options *options, const char *host)
{
    struct mr_address asked = {0};
    char with_port[MR_ADDRESS_HOST_MAX + 8];
    snprintf(with_port, sizeof(with_port), "%s:0", host);
    if ((mr_address_parse(host, &asked, NULL) != MR_OK &&
         mr_address_parse(with_port, &asked, NULL) != MR_OK) ||
        asked.is_unix) {
        return false;
    }
    if (http_admit_is_named(options, asked.host)) {
        return true;
    }
    /* A whole name may end with a dot; one without another dot is then a top-level domain, which
     * may have an address. */
    char *end = strrchr(asked.host, '.');
    if (end != NULL && end[1] == '\0' &&
        (strchr(asked.host, '.') != end || strcasecmp(asked.host, "localhost.") == 0)) {
        *end = '\0';
    }
    if (http_admit_is_named(options, asked.host)) {
        return true;
    }
    return mr_address_is_local(&options->address) ? mr_address_is_local(&asked)
                                                  : is_private_name(asked.host);
}

struct headers {
    uint32_t hosts, lengths, encodings;
    bool is_malformed;
};

static enum MHD_Result take_header(void *context, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    struct headers *headers = context;
    bool is_encoding = strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
    headers->hosts += strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0;
    headers->lengths += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
    headers->encodings += is_encoding;
    headers->is_malformed |= strpbrk(name, " \t") != NULL ||
                             (is_encoding && (value == NULL || strcasecmp(value, "chunked") != 0));
    return MHD_YES;
}

/* What a proxy may read in one way and we in another: RFC 9112, 3.2 (Host), 5.1 (no space before
 * the colon), 6.1 and 6.3 (length and encoding). libmicrohttpd 0.9.75 takes all of these. It hides
 * what follows a zero byte in a header. */
static bool is_ambiguous(struct MHD_Connection *of)
{
    struct headers headers = {0};
    MHD_get_connection_values(of, MHD_HEADER_KIND, take_header, &headers);
    return headers.is_malformed || headers.hosts > 1 || headers.lengths + headers.encodings > 1;
}

/* A page of somewhere else may let its reader's browser send us a POST; it then says where that
 * comes from. */
static bool is_origin_good(struct MHD_Connection *of, const char *host)
{
    const char *origin = MHD_lookup_connection_value(of, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    const char *name = origin == NULL ? NULL : strstr(origin, "://");
    return origin == NULL || (name != NULL && host != NULL && strcmp(name + 3, host) == 0);
}

/* Browsers say where a request comes from that a page makes, also a plain link or picture, which
 * has no Origin (W3C, Fetch Metadata). */
static bool is_site_good(struct MHD_Connection *of)
{
    const char *site = MHD_lookup_connection_value(of, MHD_HEADER_KIND, "Sec-Fetch-Site");
    return site == NULL || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0;
}

static bool admit_method(struct mr_http_request *request, const char *method)
{
    bool is_post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    bool is_get =
        strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    const struct mr_http_route *route = request->route;
    if (route != NULL && route->post && !is_post) {
        return http_admit_refuse(request, MHD_HTTP_METHOD_NOT_ALLOWED, MHD_HTTP_HEADER_ALLOW,
                                 "POST", "this changes something: ask with POST");
    }
    return is_get || (is_post && (route == NULL || route->post)) ||
           http_admit_refuse(request, MHD_HTTP_METHOD_NOT_ALLOWED, MHD_HTTP_HEADER_ALLOW,
                             "GET, HEAD", "only GET and HEAD are served");
}

static bool admit_form(const struct mr_http_options *options, const char *method,
                       struct mr_http_request *request)
{
    struct MHD_Connection *from = request->connection;
    const char *host = request->target.len > 0 ? request->target.authority
                                               : MHD_lookup_connection_value(from, MHD_HEADER_KIND,
                                                                             MHD_HTTP_HEADER_HOST);
    bool is_post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    bool starts_work = is_post || (request->route != NULL && request->route->slow);
    if (is_ambiguous(from)) {
        return http_admit_refuse(
            request, MHD_HTTP_BAD_REQUEST, MHD_HTTP_HEADER_CONNECTION, "close",
            "a request has one Host, one length or the encoding \"chunked\", and no "
            "header with a space in its name");
    }
    if (request->target.is_malformed) {
        return http_admit_refuse(request, MHD_HTTP_BAD_REQUEST, NULL, NULL,
                                 "a whole address is http://, a host, perhaps a port, and a path");
    }
    if (request->target.is_secure && options->certificate == NULL) { /* RFC 9110, 7.4 */
        return http_admit_refuse(
            request, MHD_HTTP_MISDIRECTED_REQUEST, NULL, NULL,
            "this server has no TLS: ask for http://, or set http.tls_certificate");
    }
    if (!admit_method(request, method)) {
        return false;
    }
    if ((is_post && !is_origin_good(from, host)) || (starts_work && !is_site_good(from))) {
        return http_admit_refuse(request, MHD_HTTP_FORBIDDEN, NULL, NULL,
                                 "a page of another server can't ask for this");
    }
    if (request->route != NULL && request->route->commands && options->username == NULL &&
        !mr_address_is_local(&options->address)) {
        return http_admit_refuse(
            request, MHD_HTTP_FORBIDDEN, NULL, NULL,
            "other machines reach http.address without a password; set http.username and "
            "a password (a reload can be asked for by SIGHUP, too)");
    }
    /* A page of somewhere else could reach us through a name of its own that resolves to this
     * machine's address; then that name stands in Host. With a password it has nothing to say. */
    return host == NULL || options->username != NULL || options->address.is_unix ||
           mr_http_host_is_ours(options, host) ||
           http_admit_refuse(
               request, MHD_HTTP_FORBIDDEN, NULL, NULL,
               "a server without a password answers to its numeric address and to names that "
               "only this network knows, on a loopback address to localhost; ask for one of "
               "these, or set http.host_names or http.username");
}

static bool admit_pipeline(const struct mr_http_options *options, struct mr_http_request *request)
{
    const struct mr_pipeline_name *own = &options->pipeline;
    const char *mark =
        MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, MR_PIPELINE_HEADER);
    if (mr_pipeline_is_meant(own, mark)) {
        return true;
    }
    bool is_told = options->username == NULL || (request->route != NULL && !request->route->open);
    mr_http_fail(request, MHD_HTTP_MISDIRECTED_REQUEST,
                 "the millrace that answers at this http.address runs another pipeline%s%s, so "
                 "nothing was asked or done; give each millrace of a machine an http.address of "
                 "its own, and start yours again",
                 is_told ? ": " : "", is_told ? own->words : "");
    return false;
}

bool mr_http_admit(const struct mr_http_options *options, struct mr_http_logins *logins,
                   const char *method, bool ending, struct mr_http_request *request)
{
    if (!admit_form(options, method, request) ||
        !admit_login(options, logins, request->connection, request)) {
        return false;
    }
    if (!admit_pipeline(options, request)) {
        return false;
    }
    enum { PARAMETERS_MAX = 8 };
    int parameters =
        MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, NULL, NULL);
    if (request->route != NULL && request->route->slow && ending) {
        mr_http_fail_ending(request);
        return false;
    }
    if (request->route != NULL && parameters > PARAMETERS_MAX) {
        mr_http_fail(request, MHD_HTTP_BAD_REQUEST, "at most %d parameters are taken",
                     PARAMETERS_MAX);
        return false;
    }
    return true;
}
