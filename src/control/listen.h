/* Addresses as in options ("127.0.0.1:9464", "[::1]:9464", "unix:/run/millrace.sock"), and the
 * sockets made of them. Any thread. */
#pragma once

#include <sys/socket.h>

#include "base/base.h"

enum {
    MR_ADDRESS_HOST_MAX = 255,
    MR_ADDRESS_PATH_MAX = 107, /* what a struct sockaddr_un holds */
};

struct mr_address {
    bool is_unix;
    char host[MR_ADDRESS_HOST_MAX + 1]; /* a name or a numeric address, without brackets */
    uint16_t port;                      /* 0: any free one */
    char path[MR_ADDRESS_PATH_MAX + 1];
};

/* "host:port", ":port" (all interfaces), "[v6]:port" or "unix:/path". MR_ERR_CONFIG with a sentence that
 * names what is wrong. */
mr_status mr_address_parse(const char *text, struct mr_address *ret, struct mr_error *ret_error);

/* True when only this machine can reach it. */
bool mr_address_is_local(const struct mr_address *address);

/* All interfaces, of which a client takes 127.0.0.1. */
bool mr_address_is_any(const struct mr_address *address);

/* A listening, non-blocking socket, or MR_ERR_SYSTEM. A socket file that no process listens on is
 * replaced; the file is for the owner and the group. */
mr_status mr_listen(const struct mr_address *address, int *ret_fd, struct mr_error *ret_error);

/* Takes a waiting connection, non-blocking. MR_AGAIN: there is none. MR_FULL: one was closed,
 * because the few descriptors that are left are for the flow's own connections. MR_ERR_SYSTEM: none is left at all; it
 * goes on waiting. */
mr_status mr_accept(int listen_fd, int *ret_fd, struct sockaddr_storage *ret_from,
                    socklen_t *ret_len);

/* Closes the socket and takes its file away. */
void mr_listen_close(const struct mr_address *address, int fd);

/* The address a socket has, port included, in the form that mr_address_parse takes. */
void mr_listen_name(const struct mr_address *address, int fd, char *ret, size_t size);
