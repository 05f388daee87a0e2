/* The table of connections: what each one is waiting for and since when. */

#include "base/clock.h"
#include "control/http_internal.h"

enum {
    HEAD_MS = 5000,    /* from the handshake to the end of the first request's head */
    ANSWER_MS = 30000, /* for the client to take an answer */
    SPARE = 16,        /* connections above the limit that are being closed */
};

void mr_http_connections_init(struct mr_http_connections *all, uint32_t limit)
{
    all->limit = limit;
    all->room = limit + SPARE;
    all->items = MR_NEW_ARRAY(struct mr_http_connection, all->room);
}

void mr_http_connections_done(struct mr_http_connections *all)
{
    free(all->items);
}

void mr_http_connection_enter(struct mr_http_connection *connection, enum mr_http_state state)
{
    if (connection->state != MR_HTTP_CLOSING) {
        connection->state = state;
        connection->since_ns = mr_monotonic_ns();
    }
}

/* libmicrohttpd sees the end of the stream and gives the connection up. */
static void connection_close(struct mr_http_connection *connection)
{
    mr_http_connection_enter(connection, MR_HTTP_CLOSING);
    shutdown(connection->fd, SHUT_RDWR);
}

uint32_t mr_http_connections_count(const struct mr_http_connections *all, bool with_closing)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < all->room; i++) {
        enum mr_http_state state = all->items[i].state;
        taken += state != MR_HTTP_FREE && (with_closing || state != MR_HTTP_CLOSING);
    }
    return taken;
}

void mr_http_close_oldest(struct mr_http_connections *all)
{
    struct mr_http_connection *oldest = NULL;
    for (uint32_t i = 0; i < all->room; i++) {
        struct mr_http_connection *connection = &all->items[i];
        bool waits = connection->state == MR_HTTP_HEAD || connection->state == MR_HTTP_IDLE;
        if (waits && (oldest == NULL || connection->since_ns < oldest->since_ns)) {
            oldest = connection;
        }
    }
    if (oldest != NULL) {
        connection_close(oldest);
    }
}

void mr_http_connection_changed(void *context, struct MHD_Connection *of, void **socket_context,
                                enum MHD_ConnectionNotificationCode what)
{
    struct mr_http_connections *all = context;
    struct mr_http_connection *connection = *socket_context;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (connection != NULL) {
            connection->state = MR_HTTP_FREE;
        }
        return;
    }
    if (mr_http_connections_count(all, false) >= all->limit) {
        mr_http_close_oldest(all);
    }
    for (uint32_t i = 0; i < all->room; i++) {
        connection = &all->items[i];
        if (connection->state == MR_HTTP_FREE) {
            connection->fd =
                MHD_get_connection_info(of, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
            mr_http_connection_enter(connection, MR_HTTP_HEAD);
            *socket_context = connection;
            return;
        }
    }
}

struct mr_http_connection *mr_http_connection_of(struct MHD_Connection *of)
{
    return MHD_get_connection_info(of, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

void mr_http_close_late(struct mr_http_connections *all)
{
    static const int64_t limit_ms[] = {
        [MR_HTTP_HEAD] = HEAD_MS,
        [MR_HTTP_IDLE] = MR_HTTP_IDLE_MS,
        [MR_HTTP_ANSWERING] = ANSWER_MS,
        [MR_HTTP_CLOSING] = 0,
    };
    int64_t now = mr_monotonic_ns();
    for (uint32_t i = 0; i < all->room; i++) {
        struct mr_http_connection *connection = &all->items[i];
        int64_t limit = limit_ms[connection->state];
        if (limit > 0 && now - connection->since_ns > limit * 1000000) {
            connection_close(connection);
        }
    }
}
