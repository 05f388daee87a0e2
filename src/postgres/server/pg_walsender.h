/* CPU time of the walsender, read from /proc where the server runs on this machine. Inside postgres/ only. */
#ifndef MR_POSTGRES_PG_WALSENDER_H
#define MR_POSTGRES_PG_WALSENDER_H

#include <sys/types.h>

#include "postgres/conn/pg_conn.h"

/* Seconds that the process has used, which began at `began` (since 1970), as the server says; NaN: it is none of this machine's. Any
 * thread. */
double mr_pg_cpu_seconds(const struct mr_pg_conn *conn, pid_t pid, double began);

/* The same of the text of /proc/<pid>/stat, for a machine that was started at `boot`. */
double mr_pg_cpu_of_stat(const char *stat, double boot, double began);

#endif
