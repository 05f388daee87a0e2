/* Versions of millrace and of what it runs with; the libraries' are those that were loaded, not those it was
 * built with. */
#ifndef MR_VERSIONS_H
#define MR_VERSIONS_H

#include <stdio.h>

struct mr_versions {
    char libpq[16];
    char librdkafka[32];
    char allocator[64]; /* "jemalloc 5.3.0", or "libc" */
};

struct mr_versions mr_versions(void);

/* One a line, as `millrace --version` answers. */
void mr_versions_print(FILE *to);

#endif
