/* `millrace health`, `status` and `top`: ask a running millrace and print for a person. */
#ifndef MR_ASK_H
#define MR_ASK_H

#include "admin/http.h"

/* One line, of /healthz or with `ready` of /readyz. True: all is well. */
bool mr_ask_health(const struct mr_http_options *server, bool ready, FILE *to);

/* The state, once. */
mr_status mr_ask_status(const struct mr_http_options *server, FILE *to, struct mr_error *ret_error);

/* The state, drawn again each second until SIGINT or a "q"; goes on while millrace is away. */
void mr_ask_top(const struct mr_http_options *server, FILE *to);

#endif
