#include "postgres/server/pg_walsender.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

/* A number of the server's may be another process here: behind a forwarded port, or in a container. */
enum { BEGAN_WITHIN_S = 2 };

/* proc_pid_stat(5): (comm) state, …, utime, stime (14, 15), …, starttime (22). */
double mr_pg_cpu_of_stat(const char *stat, double boot, double began)
{
    static const char name[] = "(postgres) ";
    unsigned long long user;
    unsigned long long system;
    unsigned long long start;
    double ticks = (double)sysconf(_SC_CLK_TCK);
    const char *at = strstr(stat, name);
    if (at == NULL || sscanf(at + strlen(name),
                             "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu"
                             " %*d %*d %*d %*d %*d %*d %llu",
                             &user, &system, &start) != 3) {
        return NAN;
    }
    bool is_it = fabs(boot + (double)start / ticks - began) <= BEGAN_WITHIN_S;
    return is_it ? (double)(user + system) / ticks : NAN;
}

double mr_pg_cpu_seconds(const struct mr_pg_conn *conn, pid_t pid, double began)
{
    char path[64];
    char stat[512];
    struct timespec up;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (!mr_pg_is_local(conn) || clock_gettime(CLOCK_BOOTTIME, &up) != 0 ||
        !mr_file_read_head(path, stat, sizeof(stat))) {
        return NAN;
    }
    double boot = (double)mr_wall_ns() / 1e9 - (double)up.tv_sec - (double)up.tv_nsec / 1e9;
    return mr_pg_cpu_of_stat(stat, boot, began);
}
