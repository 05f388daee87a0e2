/* Guessing a password takes time: after FREE_TRIES failures in a row an address has one try a second. */
#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/http_internal.h"

enum { FREE_TRIES = 5, PAUSE_MS = 1000, FORGET_MS = 60000, LOG_MS = 10000 };

static const struct sockaddr *address_of(struct MHD_Connection *of)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(of, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info == NULL ? NULL : info->client_addr;
}

/* An IPv6 network of 64 bits counts as one: its owner has all of it. */
static uint64_t source_of(struct MHD_Connection *of)
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
    uint64_t source = source_of(of);
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

bool mr_http_login_may_try(struct mr_http_logins *logins, struct MHD_Connection *of)
{
    struct mr_http_login *login = login_of(logins, of);
    int64_t since_ms = (mr_monotonic_ns() - login->last_ns) / 1000000;
    if (since_ms > FORGET_MS) {
        login->failures = 0;
    }
    return login->failures < FREE_TRIES || since_ms >= PAUSE_MS;
}

void mr_http_login_count(struct mr_http_logins *logins, struct MHD_Connection *of, bool good)
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
           "a wrong user name or password for the HTTP server; told every 10 s at most",
           MR_LOG_STR("from", text), MR_LOG_INT("failures", logins->failures));
}
