/* How much libpq reads at a time.
 *
 * A message is read in one call for as long as bytes of it are there, up to the length that the server announces (pqReadData and
 * pqParseInput3 in src/interfaces/libpq): a gigabyte of a server that sends as fast as we read, before PQconsumeInput
 * returns. libpq has neither an option for that nor a hook, so the recv() that it calls (pqsecure_raw_read, which TLS
 * reads through as well) is this one. Once the allowance is used up, nothing seems to be there. */
#include <errno.h>
#include <sys/socket.h>

#include "postgres/conn/pg_conn_internal.h"

/* Of the call that this thread is in. */
static _Thread_local bool is_metered;
static _Thread_local size_t allowance;

/* For the whole process; without an allowance what glibc's own does. */
ssize_t(recv)(int descriptor, void *to, size_t size, int flags)
{
    if (!is_metered) {
        return recvfrom(descriptor, to, size, flags, NULL, NULL);
    }
    if (allowance == 0) {
        errno = EAGAIN;
        return -1;
    }
    size_t most = size < allowance ? size : allowance;
    ssize_t len = recvfrom(descriptor, to, most, flags, NULL, NULL);
    allowance -= len > 0 ? (size_t)len : 0;
    return len;
}

void mr_pg_allow(size_t bytes)
{
    MR_ASSERT(!is_metered);
    is_metered = true;
    allowance = bytes;
}

size_t mr_pg_disallow(void)
{
    MR_ASSERT(is_metered);
    is_metered = false;
    return allowance;
}

/* jemalloc's; NULL where it is not linked. */
extern int mallctl(const char *name, void *old, size_t *old_len, void *wanted, size_t wanted_len)
    __attribute__((weak));

uint64_t mr_pg_held(void)
{
    static _Thread_local const uint64_t *allocated, *deallocated;
    size_t len = sizeof(allocated);
    if (allocated == NULL &&
        (mallctl == NULL || mallctl("thread.allocatedp", (void *)&allocated, &len, NULL, 0) != 0 ||
         mallctl("thread.deallocatedp", (void *)&deallocated, &len, NULL, 0) != 0)) {
        allocated = NULL;
        return 0;
    }
    return *allocated - *deallocated;
}
