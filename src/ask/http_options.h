/* How a millrace is reached by HTTP: what its server is made of, and what who asks it has to know.
 * Values only. */
#pragma once

#include "ask/address.h"
#include "ask/pipeline.h"
#include "base/secret.h"

/* Strings are the caller's and outlive the server. */
struct mr_http_options {
    bool enabled;
    bool required; /* not being able to listen is an error, else a warning and tried again */
    struct mr_address address;
    const char *certificate; /* PEM text; NULL: no TLS */
    const char *key;         /* PEM text */
    const char *username;    /* NULL: no login */
    struct mr_secret *password;
    uint32_t connections; /* most at once */
    struct mr_pipeline_name pipeline;
    /* Names of this server, for requests by name and without a password. */
    const char *const *host_names;
    uint32_t host_name_count;
    void (*listening)(void); /* called once the address is listened on; may be NULL */
};
