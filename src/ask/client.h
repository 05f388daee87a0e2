/* Asks a running millrace (libcurl). Any thread, one request at a time. */
#pragma once

#include "ask/http_options.h"

struct cJSON;

enum {
    MR_HTTP_OK = 200,
    MR_HTTP_UNAUTHORIZED = 401,
    MR_HTTP_FORBIDDEN = 403,
    MR_HTTP_NOT_FOUND = 404,
    MR_HTTP_MISDIRECTED = 421, /* another pipeline's millrace answers */
    MR_HTTP_TOO_MANY = 429,
    MR_HTTP_INTERNAL = 500,
    MR_HTTP_UNAVAILABLE = 503
};

struct mr_client_answer {
    char *body; /* the caller's, to be freed; a NUL follows its `len` bytes */
    size_t len;
    long http_status;
};

/* Asks the server that `server` describes for `path`; with TLS its certificate is the only one
 * trusted. `text`: of a POST; NULL: GET; `timeout_ms` 0: five seconds. MR_ERR_TRANSIENT: there is
 * no answer. */
mr_status mr_client_ask(const struct mr_http_options *server, const char *path, const char *text,
                        long timeout_ms, struct mr_client_answer *ret, struct mr_error *ret_error);

/* Asks for a path of the server that answers with a JSON object, which the caller deletes; `text`:
 * of a POST, NULL: GET. */
mr_status mr_client_object(const struct mr_http_options *server, const char *path, const char *text,
                           struct cJSON **ret_object, struct mr_error *ret_error);

/* The error of an answer with another status than 200. */
mr_status mr_client_refusal(const char *path, long http_status, const char *body,
                            struct mr_error *ret_error);
