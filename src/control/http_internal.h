/* Shared by http.c (server), http_connections.c, http_admit.c and http_request.c. All is the
 * server's thread's, but for a slow handler's request. Such a handler reads its request from
 * libmicrohttpd, too: the connection is suspended meanwhile, so no other thread touches it. */
#pragma once

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "control/http.h"

enum {
    PATH_MAX_BYTES = 255,
    HEADERS_MAX = 4,
    AUTHORITY_MAX = 255,
};

/* What comes before the path in a target of the absolute form, "http://host:port/path" (RFC 9112,
 * 3.2.2). */
struct mr_http_target {
    char authority[AUTHORITY_MAX + 1]; /* counts in place of Host */
    size_t len;                        /* of scheme and authority; 0: the target is a path */
    bool is_secure;                    /* https */
    bool is_malformed;
};

struct mr_http_request {
    struct MHD_Connection *connection;
    const struct mr_http_route *route; /* NULL: there is none at its path */

    struct mr_http_target target;
    char path[PATH_MAX_BYTES + 1];
    bool uploading; /* a POST whose text is not all there */
    char *upload;
    size_t upload_len;

    unsigned status;
    const char *type;
    FILE *body;
    char *bytes; /* of `body` */
    size_t len;
    struct mr_http_header {
        const char *name, *value;
    } headers[HEADERS_MAX];
    uint32_t header_count;

    struct {
        bool runs; /* the handler, in a thread of its own; read by the server's alone */
        bool is_long;
        pthread_t thread;
        int client_fd, stop_fd, wake_fd;
    } slow;
};

struct mr_http_request *mr_http_request_new(const char *path);
void mr_http_request_free(struct mr_http_request *request); /* NULL is fine */

void mr_http_target_parse(const char *uri, struct mr_http_target *ret);

/* Digits, with a minus before them at most, of a number from `low` to `high`. */
bool mr_http_parse_number(const char *text, int64_t low, int64_t high, int64_t *ret);

/* Takes a part of what a POST brings; false: it is too long. */
bool mr_http_request_upload(struct mr_http_request *request, const char *bytes, size_t len);

/* Turns the answer into libmicrohttpd's response, whose bytes count in `held` until the client has
 * them. NULL: they would be more than `held_max`. */
struct MHD_Response *mr_http_response(struct mr_http_request *request, _Atomic size_t *held,
                                      size_t held_max);

enum { MR_HTTP_LOGINS = 64 };

/* Addresses that were wrong lately. */
struct mr_http_logins {
    struct mr_http_login {
        uint64_t source;   /* IPv4, or the network of IPv6; 0: a unix socket */
        uint32_t failures; /* in a row; 0: the place is free */
        int64_t last_ns;
    } items[MR_HTTP_LOGINS];
    uint64_t failures; /* ever */
    int64_t logged_ns;
};

/* Whether a name in a request's Host header can't be one that a stranger has pointed at this
 * machine. */
bool mr_http_host_is_ours(const struct mr_http_options *options, const char *host);

/* Refuses what no handler should see; true: the handler may run. `ending`: the server ends, and
 * slow handlers don't begin. */
bool mr_http_admit(const struct mr_http_options *options, struct mr_http_logins *logins,
                   const char *method, bool ending, struct mr_http_request *request);

enum { MR_HTTP_IDLE_MS = 30000 /* from an answer to the end of the next request's head */ };

enum mr_http_state {
    MR_HTTP_FREE,
    MR_HTTP_HEAD, /* of the first request */
    MR_HTTP_IDLE,
    MR_HTTP_WORKING, /* a slow handler */
    MR_HTTP_ANSWERING,
    MR_HTTP_CLOSING,
};

struct mr_http_connection {
    enum mr_http_state state;
    int fd;
    int64_t since_ns;             /* when it got into its state */
    struct mr_http_target target; /* of the request whose head is being read */
};

struct mr_http_connections {
    struct mr_http_connection *items;
    uint32_t limit; /* most at once */
    uint32_t room;  /* with those above the limit that are being closed */
};

void mr_http_connections_init(struct mr_http_connections *all, uint32_t limit);
void mr_http_connections_done(struct mr_http_connections *all);

/* With those that are being closed there is no more than `room`. */
uint32_t mr_http_connections_count(const struct mr_http_connections *all, bool with_closing);

/* Its place in the table; NULL: it got none. */
struct mr_http_connection *mr_http_connection_of(struct MHD_Connection *of);

/* One that is being closed stays so. */
void mr_http_connection_enter(struct mr_http_connection *connection, enum mr_http_state state);

/* Closes the one that has had no request for the longest time. */
void mr_http_close_oldest(struct mr_http_connections *all);

/* Closes those that have been in their state for too long. */
void mr_http_close_late(struct mr_http_connections *all);

void mr_http_connection_changed(void *context, struct MHD_Connection *of, void **socket_context,
                                enum MHD_ConnectionNotificationCode what);
