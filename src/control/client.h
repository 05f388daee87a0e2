/* Asks a running millrace (libcurl). Any thread, one request at a time. */
#ifndef MR_CONTROL_CLIENT_H
#define MR_CONTROL_CLIENT_H

#include "control/http.h"

/* GET `path` from the server that `server` describes; with TLS its certificate is the only one trusted. The body
 * is malloc'ed and NUL-terminated; `ret_len` (NULL: not wanted) gets its length without that. MR_ERR_TRANSIENT:
 * nobody answers. */
mr_status mr_client_get(const struct mr_http_options *server, const char *path, long timeout_ms,
                        char **ret_body, size_t *ret_len, long *ret_http_status,
                        struct mr_error *ret_error);

/* The same with POST, and `text` in it. */
mr_status mr_client_post(const struct mr_http_options *server, const char *path, const char *text,
                         long timeout_ms, char **ret_body, long *ret_http_status,
                         struct mr_error *ret_error);

#endif
