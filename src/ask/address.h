/* Where a millrace listens, as options say it: "127.0.0.1:9464", "[::1]:9464",
 * "unix:/run/millrace.sock". Any thread. */
#pragma once

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

/* "host:port", ":port" (all interfaces), "[v6]:port" or "unix:/path". MR_ERR_CONFIG with a sentence
 * that names what is wrong. */
mr_status mr_address_parse(const char *text, struct mr_address *ret, struct mr_error *ret_error);

/* True when only this machine can reach it. */
bool mr_address_is_local(const struct mr_address *address);

/* All interfaces, of which a client takes 127.0.0.1. */
bool mr_address_is_any(const struct mr_address *address);
