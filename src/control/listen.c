#include "control/listen.h"

#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

/* Connections that wait to be accepted: a crowd of them must not keep a probe's handshake out. */
enum { BACKLOG = 1024 };

static mr_status listen_on(const struct sockaddr *at, socklen_t len, int *ret_fd)
{
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(fd, at, len) == 0 && listen(fd, BACKLOG) == 0) {
        *ret_fd = fd;
        return MR_OK;
    }
    int failed = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = failed;
    return MR_ERR_SYSTEM;
}

/* True when it is a socket that a process left behind. Connecting to a file of another kind is
 * refused as well (unix(7)). */
static bool is_stale(const struct sockaddr_un *at)
{
    struct stat about;
    if (lstat(at->sun_path, &about) != 0 || !S_ISSOCK(about.st_mode)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof(*at)) != 0 &&
                 errno == ECONNREFUSED;
    if (fd >= 0) {
        close(fd);
    }
    return stale;
}

static mr_status listen_unix(const struct mr_address *address, int *ret_fd)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, address->path, sizeof(address->path));
    if (is_stale(&at)) {
        unlink(address->path);
    }
    MR_TRY(listen_on((const struct sockaddr *)&at, sizeof(at), ret_fd));
    chmod(address->path, S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP);
    return MR_OK;
}

static mr_status listen_tcp(const struct mr_address *address, int *ret_fd, const char **ret_reason)
{
    char port[8];
    snprintf(port, sizeof(port), "%u", address->port);
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(address->host[0] == '\0' ? NULL : address->host, port, &hints, &found);
    if (failed != 0) {
        *ret_reason = gai_strerror(failed);
        return MR_ERR_SYSTEM;
    }
    mr_status status = listen_on(found->ai_addr, found->ai_addrlen, ret_fd);
    *ret_reason = strerror(errno);
    freeaddrinfo(found);
    return status;
}

mr_status mr_listen(const struct mr_address *address, int *ret_fd, struct mr_error *ret_error)
{
    const char *reason = NULL;
    if (address->is_unix) {
        if (listen_unix(address, ret_fd) == MR_OK) {
            return MR_OK;
        }
        return mr_fail(ret_error, MR_ERR_SYSTEM,
                       "unix:%s can't be listened on: %s; set http.address", address->path,
                       strerror(errno));
    }
    if (listen_tcp(address, ret_fd, &reason) == MR_OK) {
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_SYSTEM,
                   "port %u of %s can't be listened on: %s; set http.address to a free one",
                   address->port, address->host[0] == '\0' ? "all interfaces" : address->host,
                   reason);
}

/* Descriptors that are left for PostgreSQL, Kafka and files. The lowest free one is always taken,
 * so that a high number says that few are left. */
static int descriptors_max(void)
{
    enum { KEPT_MAX = 16, KEPT_SHARE = 8 };
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t kept = limit.rlim_cur / KEPT_SHARE < KEPT_MAX ? limit.rlim_cur / KEPT_SHARE : KEPT_MAX;
    return limit.rlim_cur - kept > INT_MAX ? INT_MAX : (int)(limit.rlim_cur - kept);
}

mr_status mr_accept(int listen_fd, int *ret_fd, struct sockaddr_storage *ret_from,
                    socklen_t *ret_len)
{
    socklen_t len = sizeof(*ret_from);
    int fd = accept4(listen_fd, (struct sockaddr *)ret_from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        bool used_up = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        return used_up ? MR_ERR_SYSTEM : MR_AGAIN;
    }
    if (fd >= descriptors_max()) {
        close(fd);
        return MR_FULL;
    }
    *ret_fd = fd;
    *ret_len = len;
    return MR_OK;
}

void mr_listen_close(const struct mr_address *address, int fd)
{
    close(fd);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, address->path, sizeof(address->path));
    /* Another process may have put its own there. */
    if (address->is_unix && is_stale(&at)) {
        unlink(address->path);
    }
}

void mr_listen_name(const struct mr_address *address, int fd, char *ret, size_t size)
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof(at);
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (address->is_unix) {
        snprintf(ret, size, "unix:%s", address->path);
    } else if (getsockname(fd, (struct sockaddr *)&at, &len) == 0 &&
               getnameinfo((struct sockaddr *)&at, len, host, sizeof(host), port, sizeof(port),
                           NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        snprintf(ret, size, at.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    } else {
        snprintf(ret, size, "%s:%u", address->host, address->port);
    }
}
