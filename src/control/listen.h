/* The sockets that are made of addresses. Any thread. */
#pragma once

#include <sys/socket.h>

#include "ask/address.h"

/* A listening, non-blocking socket, or MR_ERR_SYSTEM. A socket file that no process listens on is
 * replaced; the file is for the owner and the group. */
mr_status mr_listen(const struct mr_address *address, int *ret_fd, struct mr_error *ret_error);

/* Takes a waiting connection, non-blocking. MR_AGAIN: there is none. MR_FULL: one was closed,
 * because the few descriptors that are left are for the flow's own connections. MR_ERR_SYSTEM: none
 * is left at all; it goes on waiting. */
mr_status mr_accept(int listen_fd, int *ret_fd, struct sockaddr_storage *ret_from,
                    socklen_t *ret_len);

/* Closes the socket and takes its file away. */
void mr_listen_close(const struct mr_address *address, int fd);

/* The address a socket has, port included, in the form that mr_address_parse takes. */
void mr_listen_name(const struct mr_address *address, int fd, char *ret, size_t size);
