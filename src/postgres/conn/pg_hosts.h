/* The hosts of a connection string, as libpq reads them: comma-separated lists of names, addresses
 * and ports.
 *
 * libpq itself goes on to the next host only when one refuses; one that is silent (it lost its
 * power, or is cut off) would take all the time there is. So each host is an attempt of its own. */
#pragma once

#include "base/base.h"

/* How many there are, at least 1. Either list may be NULL. */
uint32_t mr_pg_host_count(const char *host, const char *hostaddr);

/* The n-th item (from 0), copied, the caller's; "" where the list has none so far, and NULL for a
 * NULL list. */
char *mr_pg_host_item(const char *list, uint32_t n);

/* The n-th port: a single one is that of all hosts. Copied, the caller's; NULL for a NULL list. */
char *mr_pg_host_port(const char *ports, uint32_t n);
