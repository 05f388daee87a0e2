#include "control/http.h"

#include <poll.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/nearest.h"
#include "base/thread.h"
#include "base/wake.h"
#include "control/http_internal.h"
#include "control/listen.h"

enum {
    TICK_MS = 1000,
    FAREWELL_MS = 200,                 /* for answers on their way when the server ends */
    LONG_S = 60,                       /* a slow request of more is long */
    NICENESS = 10,                     /* the flow comes first */
    ACCEPTS_MAX = 32,                  /* in one turn */
    REQUEST_BYTES_MAX = 12 * 1024,     /* head of a request and of its answer */
    HELD_BYTES_MAX = 16 * 1024 * 1024, /* answers that clients have not taken yet */
};

struct mr_http {
    struct mr_http_options options;
    struct mr_http_route routes[MR_HTTP_ROUTES_MAX];
    size_t route_count;

    int listen_fd;     /* -1: not yet */
    bool accepts_late; /* no descriptors: not before the next tick */
    struct MHD_Daemon *daemon;
    struct mr_http_connections connections;
    struct mr_http_logins logins;
    uint32_t slow_count, long_count; /* slow handlers that run, and those of long requests */
    _Atomic size_t held_bytes;

    pthread_t thread;
    bool running;
    bool refused_logged;
    int stop_fd; /* readable: end */
    int wake_fd; /* readable: a slow handler is done */
};

struct mr_http *mr_http_new(const struct mr_http_options *options)
{
    struct mr_http *http = MR_NEW(struct mr_http);
    http->options = *options;
    http->listen_fd = -1;
    mr_http_connections_init(&http->connections, options->connections);
    http->stop_fd = mr_wake_new();
    http->wake_fd = mr_wake_new();
    return http;
}

void mr_http_add(struct mr_http *http, const struct mr_http_route *route)
{
    MR_ASSERT(!http->running);
    MR_ASSERT(http->route_count < MR_HTTP_ROUTES_MAX);
    MR_ASSERT(!(route->slow && route->post));
    http->routes[http->route_count++] = *route;
}

void mr_http_add_all(struct mr_http *http, const struct mr_http_route *routes, size_t count,
                     void *context)
{
    for (size_t i = 0; i < count; i++) {
        struct mr_http_route route = routes[i];
        route.context = context;
        mr_http_add(http, &route);
    }
}

const struct mr_http_route *mr_http_route_at(const struct mr_http *http, size_t index)
{
    return index < http->route_count ? &http->routes[index] : NULL;
}

static const struct mr_http_route *http_find_route(const struct mr_http *http, const char *path)
{
    for (size_t i = 0; i < http->route_count; i++) {
        const char *known = http->routes[i].path;
        size_t len = strlen(known);
        bool folder = len > 1 && known[len - 1] == '/';
        if (folder ? strncmp(path, known, len) == 0 : strcmp(path, known) == 0) {
            return &http->routes[i];
        }
    }
    return NULL;
}

static enum MHD_Result http_answer(struct mr_http *http, struct mr_http_request *request)
{
    struct MHD_Connection *to = request->connection;
    struct MHD_Response *response = mr_http_response(request, &http->held_bytes, HELD_BYTES_MAX);
    if (response == NULL) {
        /* closes the connection: clients hold more answers than there is memory for */
        return MHD_NO;
    }
    mr_http_connection_enter(mr_http_connection_of(to), MR_HTTP_ANSWERING);
    enum MHD_Result queued = request->status == MHD_HTTP_UNAUTHORIZED
                                 ? MHD_queue_basic_auth_fail_response(to, "millrace", response)
                                 : MHD_queue_response(to, request->status, response);
    MHD_destroy_response(response);
    return queued;
}

/* Text after a zero byte would go unseen: a path or a value that has one stays as it was sent, and
 * is not a known one. */
static size_t http_unescape(void *context, struct MHD_Connection *of, char *text)
{
    return strstr(text, "%00") == NULL ? MHD_http_unescape(text) : strlen(text);
}

static bool stopping(const struct mr_http *http)
{
    return mr_wait_readable(http->stop_fd, 0);
}

static void *slow_main(void *context)
{
    struct mr_http_request *request = context;
    setpriority(PRIO_PROCESS, 0, NICENESS); /* Linux: of this thread alone */
    mr_thread_begin(MR_THREAD_HTTP, "mr-http-slow");
    request->route->handler(request->route->context, request);
    mr_thread_end();
    MHD_resume_connection(request->connection); /* has `handle` called again, */
    mr_wake(request->slow.wake_fd);             /* and alone does not wake the server */
    return NULL;
}

static bool is_long(const struct mr_http_request *request)
{
    const char *seconds = mr_http_parameter(request, "seconds");
    return seconds != NULL && strtol(seconds, NULL, 10) > LONG_S;
}

/* Whether one more may run; else the request has an answer that says so. Notes whether it is long:
 * such requests leave one place free: an operator must get in. */
static bool slow_admit(const struct mr_http *http, struct mr_http_request *request)
{
    request->slow.is_long = is_long(request);
    if (request->slow.is_long && http->long_count + 1 >= MR_HTTP_SLOW_MAX) {
        mr_http_fail(request, MHD_HTTP_TOO_MANY_REQUESTS,
                     "%d requests of over a minute run already, and one place is kept for short "
                     "ones; ask for at most %d seconds, or try again later",
                     MR_HTTP_SLOW_MAX - 1, LONG_S);
        mr_http_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "60");
        return false;
    }
    if (http->slow_count == MR_HTTP_SLOW_MAX) {
        mr_http_fail(request, MHD_HTTP_TOO_MANY_REQUESTS,
                     "%d requests of this kind run already; try again when one has ended",
                     MR_HTTP_SLOW_MAX);
        mr_http_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "10");
        return false;
    }
    return true;
}

/* Suspends the connection while the handler's thread runs. */
static enum MHD_Result slow_start(struct mr_http *http, struct mr_http_request *request,
                                  struct mr_http_connection *connection)
{
    if (!slow_admit(http, request)) {
        return http_answer(http, request);
    }
    request->slow.client_fd = connection->fd;
    request->slow.stop_fd = http->stop_fd;
    request->slow.wake_fd = http->wake_fd;
    mr_http_connection_enter(connection, MR_HTTP_WORKING);
    MHD_suspend_connection(request->connection);
    request->slow.runs = mr_thread_create(&request->slow.thread, slow_main, request, NULL) == MR_OK;
    if (request->slow.runs) {
        http->slow_count++;
        http->long_count += request->slow.is_long;
    } else {
        mr_http_fail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "no thread can be started; try again");
        MHD_resume_connection(request->connection);
    }
    return MHD_YES;
}

static void slow_end(struct mr_http *http, struct mr_http_request *request)
{
    if (request != NULL && request->slow.runs) {
        pthread_join(request->slow.thread, NULL);
        request->slow.runs = false;
        http->slow_count--;
        http->long_count -= request->slow.is_long;
    }
}

/* The handler runs when all of it is there. */
static enum MHD_Result take_upload(struct mr_http *http, struct mr_http_request *request,
                                   const char *bytes, size_t *len)
{
    if (*len > 0) {
        bool fits = mr_http_request_upload(request, bytes, *len);
        *len = 0;
        return fits ? MHD_YES : MHD_NO;
    }
    request->uploading = false;
    request->route->handler(request->route->context, request);
    return http_answer(http, request);
}

/* The callback of MHD_OPTION_URI_LOG_CALLBACK: the target as it was sent. What it returns is the
 * request's context, which is made later: a request that libmicrohttpd refuses itself has none. */
static void *take_target(void *context, const char *uri, struct MHD_Connection *from)
{
    if (mr_http_connection_of(from) != NULL) {
        mr_http_target_parse(uri, &mr_http_connection_of(from)->target);
    }
    return NULL;
}

/* The answer to a guessed address lists those there are: the live page, and what has a link on
 * it. */
static void list_routes(const struct mr_http *http, struct mr_http_request *request)
{
    const char *paths[MR_HTTP_ROUTES_MAX + 1] = {0};
    size_t count = 0;
    char list[512] = "/";
    size_t len = 1;
    for (size_t i = 0; i < http->route_count; i++) {
        const struct mr_http_route *route = &http->routes[i];
        if (route->title != NULL && len < sizeof(list)) {
            len += (size_t)snprintf(list + len, sizeof(list) - len, ", %s", route->path);
            paths[count++] = route->path;
        }
    }
    const char *meant = mr_nearest(request->path, paths);
    mr_http_fail(request, MHD_HTTP_NOT_FOUND, "nothing is served at this path%s%s%s; there are %s",
                 meant == NULL ? "" : ", did you mean ", meant == NULL ? "" : meant,
                 meant == NULL ? "" : "?", list);
}

/* Makes the request of a head that is there. The path follows scheme and authority, which have no
 * escapes. */
static struct mr_http_request *begin_request(struct mr_http *http, struct MHD_Connection *from,
                                             const char *url)
{
    const struct mr_http_target *target = &mr_http_connection_of(from)->target;
    const char *path = &url[target->is_malformed ? 0 : target->len];
    path = *path == '\0' ? "/" : path; /* RFC 9110, 4.2.3 */
    struct mr_http_request *request = mr_http_request_new(path);
    request->connection = from;
    request->target = *target;
    request->route = strlen(path) > PATH_MAX_BYTES ? NULL : http_find_route(http, path);
    return request;
}

/* MHD_AccessHandlerCallback: when the head is there, with each part of an upload, and when a slow
 * handler is done. */
static enum MHD_Result handle(void *context, struct MHD_Connection *from, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **request_context)
{
    struct mr_http *http = context;
    struct mr_http_request *request = *request_context;
    if (mr_http_connection_of(from) == NULL) {
        return MHD_NO;
    }
    if (request != NULL && request->uploading) {
        return take_upload(http, request, upload, upload_size);
    }
    if (request != NULL) {
        slow_end(http, request);
        return http_answer(http, request);
    }
    request = begin_request(http, from, url);
    *request_context = request;
    if (!mr_http_admit(&http->options, &http->logins, method, stopping(http), request)) {
        return http_answer(http, request);
    }
    if (request->route == NULL) {
        list_routes(http, request);
        return http_answer(http, request);
    }
    if (request->route->slow) {
        return slow_start(http, request, mr_http_connection_of(from));
    }
    request->uploading = request->route->post;
    if (request->uploading) {
        return MHD_YES;
    }
    request->route->handler(request->route->context, request);
    return http_answer(http, request);
}

/* MHD_RequestCompletedCallback */
static void request_completed(void *context, struct MHD_Connection *of, void **request_context,
                              enum MHD_RequestTerminationCode how)
{
    slow_end(context, *request_context);
    mr_http_request_free(*request_context);
    *request_context = NULL;
    if (mr_http_connection_of(of) != NULL) {
        mr_http_connection_enter(mr_http_connection_of(of), MR_HTTP_IDLE);
    }
}

static mr_status start_daemon(struct mr_http *http, struct mr_error *ret_error)
{
    bool tls = http->options.certificate != NULL;
    struct MHD_OptionItem tls_options[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)http->options.certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)http->options.key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0,
         (void *)(uintptr_t) "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL},
    };
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
            (tls ? MHD_USE_TLS : 0u),
        0, NULL, NULL, handle, http, MHD_OPTION_CONNECTION_LIMIT, http->connections.room,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(MR_HTTP_IDLE_MS / 1000),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES_MAX, MHD_OPTION_STRICT_FOR_CLIENT,
        1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_NOTIFY_COMPLETED, request_completed,
        http, MHD_OPTION_URI_LOG_CALLBACK, take_target, http, MHD_OPTION_UNESCAPE_CALLBACK,
        http_unescape, NULL, MHD_OPTION_NOTIFY_CONNECTION, mr_http_connection_changed,
        &http->connections, MHD_OPTION_ARRAY, tls ? tls_options : &tls_options[3], MHD_OPTION_END);
    if (http->daemon == NULL) {
        mr_listen_close(&http->options.address, http->listen_fd);
        http->listen_fd = -1;
        return mr_fail(ret_error, MR_ERR_CONFIG, "the HTTP server does not start%s",
                       tls ? ": http.tls_certificate and http.tls_key must be a certificate and "
                             "its key in PEM form"
                           : "");
    }
    return MR_OK;
}

static mr_status open_server(struct mr_http *http, struct mr_error *ret_error)
{
    MR_TRY(mr_listen(&http->options.address, &http->listen_fd, ret_error));
    MR_TRY(start_daemon(http, ret_error));
    char name[MR_ADDRESS_HOST_MAX + 8];
    mr_listen_name(&http->options.address, http->listen_fd, name, sizeof(name));
    mr_log(MR_LOG_INFO, "http_listening", "metrics, health and the live page are served",
           MR_LOG_STR("address", name),
           MR_LOG_STR("scheme", http->options.certificate == NULL ? "http" : "https"));
    if (!mr_address_is_local(&http->options.address) &&
        (http->options.username == NULL || http->options.certificate == NULL)) {
        mr_log(MR_LOG_WARN, "http_exposed",
               "other machines can reach the HTTP server, without a password or without "
               "encryption; set http.username with http.password, and http.tls_certificate "
               "with http.tls_key, or leave http.address at 127.0.0.1",
               MR_LOG_STR("address", name));
    }
    if (http->options.listening != NULL) {
        http->options.listening();
    }
    return MR_OK;
}

/* An address that is taken gets free when the millrace before us has ended. */
static void try_again(struct mr_http *http)
{
    struct mr_error error = {0};
    if (open_server(http, &error) != MR_OK && !http->refused_logged) {
        http->refused_logged = true;
        mr_log(MR_LOG_WARN, "http_unavailable", error.text,
               MR_LOG_STR("meanwhile", "streaming goes on; tried again each second"));
    }
}

static int wait_ms(struct mr_http *http, int64_t next_tick_ns)
{
    if (http->daemon != NULL && !http->accepts_late &&
        mr_http_connections_count(&http->connections, true) == 0) {
        return -1; /* there is nothing to tick for: a server that nobody asks anything sleeps */
    }
    int64_t ms = (next_tick_ns - mr_monotonic_ns() + 999999) / 1000000;
    MHD_UNSIGNED_LONG_LONG wanted;
    if (http->daemon != NULL && MHD_get_timeout(http->daemon, &wanted) == MHD_YES &&
        (int64_t)wanted < ms) {
        ms = (int64_t)wanted;
    }
    return ms < 0 ? 0 : (int)ms;
}

static int epoll_descriptor(struct mr_http *http)
{
    return http->daemon == NULL
               ? -1
               : MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

static bool may_accept(const struct mr_http *http)
{
    return http->daemon != NULL && !http->accepts_late &&
           mr_http_connections_count(&http->connections, true) < http->connections.room;
}

/* libmicrohttpd would stop accepting for good once there are no descriptors. */
static void accept_new(struct mr_http *http)
{
    for (int i = 0; i < ACCEPTS_MAX && may_accept(http); i++) {
        struct sockaddr_storage from;
        socklen_t len;
        int fd;
        mr_status status = mr_accept(http->listen_fd, &fd, &from, &len);
        if (status == MR_AGAIN) {
            return;
        }
        if (status == MR_OK) {
            MHD_add_connection(http->daemon, fd, (struct sockaddr *)&from, len); /* or closes it */
            continue;
        }
        mr_http_close_oldest(&http->connections);
        http->accepts_late = status == MR_ERR_SYSTEM;
    }
}

static void turn(struct mr_http *http, int64_t next_tick_ns)
{
    struct pollfd fds[] = {
        {.fd = http->stop_fd, .events = POLLIN},
        {.fd = http->wake_fd, .events = POLLIN},
        {.fd = epoll_descriptor(http), .events = POLLIN},
        {.fd = may_accept(http) ? http->listen_fd : -1, .events = POLLIN},
    };
    poll(fds, MR_ARRAY_LEN(fds), wait_ms(http, next_tick_ns));
    if (fds[3].revents != 0) {
        accept_new(http);
    }
    mr_wake_clear(http->wake_fd);
    if (http->daemon != NULL) {
        MHD_run(http->daemon);
    }
}

static void http_tick(struct mr_http *http)
{
    if (http->daemon == NULL) {
        try_again(http);
    }
    http->accepts_late = false;
    mr_http_close_late(&http->connections);
}

/* Waits for slow handlers, which see the end, and gives answers on their way a moment. */
static void say_farewell(struct mr_http *http)
{
    int64_t deadline_ns = mr_monotonic_ns() + FAREWELL_MS * INT64_C(1000000);
    if (http->daemon == NULL) {
        return;
    }
    MHD_run(http->daemon);
    while (http->slow_count > 0 ||
           (atomic_load(&http->held_bytes) > 0 && mr_monotonic_ns() < deadline_ns)) {
        mr_wait_readable(epoll_descriptor(http), 10);
        MHD_run(http->daemon);
    }
    MHD_stop_daemon(http->daemon);
    mr_listen_close(&http->options.address, http->listen_fd);
}

static void *http_main(void *context)
{
    struct mr_http *http = context;
    setpriority(PRIO_PROCESS, 0, NICENESS); /* Linux: of this thread alone */
    mr_thread_begin(MR_THREAD_HTTP, "mr-http");
    int64_t next_tick_ns = mr_monotonic_ns();
    while (!stopping(http)) {
        int64_t now_ns = mr_monotonic_ns();
        if (now_ns >= next_tick_ns) {
            next_tick_ns = now_ns + TICK_MS * INT64_C(1000000);
            http_tick(http);
        }
        turn(http, next_tick_ns);
    }
    say_farewell(http);
    mr_thread_end();
    return NULL;
}

mr_status mr_http_start(struct mr_http *http, struct mr_error *ret_error)
{
    if (http->options.required) {
        MR_TRY(open_server(http, ret_error));
    }
    MR_TRY(mr_thread_create(&http->thread, http_main, http, ret_error));
    pthread_setname_np(http->thread, "http");
    http->running = true;
    return MR_OK;
}

void mr_http_free(struct mr_http *http)
{
    if (http == NULL) {
        return;
    }
    if (http->running) {
        mr_wake(http->stop_fd);
        pthread_join(http->thread, NULL);
    }
    close(http->stop_fd);
    close(http->wake_fd);
    mr_http_connections_done(&http->connections);
    free(http);
}
