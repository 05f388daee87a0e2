/* What the walsender costs: CPU time, read from /proc where the server runs on this machine, and for whose sake. Inside postgres/ only. */
#pragma once

#include <sys/types.h>

#include "postgres/conn/pg_conn.h"
#include "postgres/server/pg_slot.h"

/* Seconds that a process of this machine has used, which began at `began` (since 1970); NaN: it is none. Any thread. */
double mr_pg_cpu_seconds(const struct mr_pg_conn *conn, pid_t pid, double began);

/* The same of the text of /proc/<pid>/stat, for a machine that was started at `boot`. */
double mr_pg_cpu_of_stat(const char *stat, double boot, double began);

/* cost->others and cost->dead_catalogs, by the server's statistics since those began. */
mr_status mr_pg_costly_tables(struct mr_pg_conn *conn, const char *publication,
                              struct mr_slot_cost *cost, struct mr_error *ret_error);

/* What the process waits for most, in ten looks within a fifth of a second (manual, "Wait Event"): type and event; "CPU": for nothing; "": there
 * is no such process. MR_AGAIN: `stop_fd` (-1: none) ended it. */
mr_status mr_pg_look_at_waits(struct mr_pg_conn *conn, int64_t pid, int stop_fd,
                              char ret_wait[MR_SLOT_WAIT_MAX], uint32_t *ret_percent,
                              struct mr_error *ret_error);
