/* `millrace verify --every`: proves all tables again and again, and says in a file for Prometheus
 * (the text files of node_exporter) when each was proved last, and what differed. What came to
 * nothing is tried again sooner. Main thread. */
#pragma once

#include "verify/verify.h"

struct mr_every_options {
    int64_t interval_ms;
    const char *figures; /* the file; NULL: none */
};

/* Until `stop_fd` becomes readable (MR_AGAIN), or an error that does not pass by itself. */
mr_status mr_verify_every(const struct mr_config *config, const struct mr_verify_options *options,
                          const struct mr_every_options *every, int stop_fd, FILE *to,
                          struct mr_error *ret_error);
