#include "postgres/server/pg_heartbeat.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"

enum {
    QUERY_MS = 10 * 1000, /* the server ends it then, */
    ANSWER_MS = 2 * 1000, /* and if it does not, we do, so much later */
};

struct mr_pg_heartbeat {
    struct mr_pg_heartbeat_options options;
    int stop_fd;
    pthread_t thread;
    bool started;
    bool logged; /* that it fails */
    _Atomic uint64_t queries;
    _Atomic uint64_t errors;
};

/* PostgreSQL's own default path in place of our empty one: a query may name its table as in psql. */
static mr_status run_query(const struct mr_pg_heartbeat *heartbeat, struct mr_pg_conn *conn,
                           struct mr_error *ret_error)
{
    MR_TRY(mr_pg_commandf(conn, ANSWER_MS, ret_error,
                          "SET statement_timeout = %u; SET search_path = \"$user\", public",
                          QUERY_MS));
    return mr_pg_command(conn, heartbeat->options.query, QUERY_MS + ANSWER_MS, ret_error);
}

static mr_status query(const struct mr_pg_heartbeat *heartbeat, struct mr_error *ret_error)
{
    struct mr_pg_conn *conn;
    MR_TRY(
        mr_pg_connect(heartbeat->options.connection, false, heartbeat->stop_fd, &conn, ret_error));
    mr_status status = run_query(heartbeat, conn, ret_error);
    mr_pg_close(conn);
    return status;
}

/* The stream goes on whatever comes of it. */
static void beat(struct mr_pg_heartbeat *heartbeat)
{
    const struct mr_pg_heartbeat_options *options = &heartbeat->options;
    if (options->query != NULL) {
        struct mr_error error = {0};
        mr_status status = query(heartbeat, &error);
        if (status == MR_AGAIN) {
            return; /* a stop */
        }
        atomic_fetch_add(status == MR_OK ? &heartbeat->queries : &heartbeat->errors, 1);
        if (status != MR_OK && !heartbeat->logged) {
            mr_log(MR_LOG_WARN, "heartbeat_failed", error.text,
                   MR_LOG_STR("remedy", "correct heartbeat.query, or give the role what it needs"));
        }
        heartbeat->logged = status != MR_OK;
    }
    if (options->beat != NULL) {
        options->beat(options->context);
    }
}

static void *heartbeat_main(void *context)
{
    struct mr_pg_heartbeat *heartbeat = context;
    const struct mr_pg_heartbeat_options *options = &heartbeat->options;
    prctl(PR_SET_NAME, "mr-heartbeat");
    mr_alloc_leave_out();
    struct pollfd stop = {.fd = heartbeat->stop_fd, .events = POLLIN};
    while (poll(&stop, 1, (int)options->interval_ms) <= 0) {
        if (options->has_stream(options->context)) {
            beat(heartbeat);
        }
    }
    return NULL;
}

struct mr_pg_heartbeat *mr_pg_heartbeat_new(const struct mr_pg_heartbeat_options *options)
{
    struct mr_pg_heartbeat *heartbeat = MR_NEW(struct mr_pg_heartbeat);
    heartbeat->options = *options;
    heartbeat->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return heartbeat;
}

void mr_pg_heartbeat_free(struct mr_pg_heartbeat *heartbeat)
{
    if (heartbeat == NULL) {
        return;
    }
    MR_ASSERT(!heartbeat->started);
    close(heartbeat->stop_fd);
    free(heartbeat);
}

mr_status mr_pg_heartbeat_start(struct mr_pg_heartbeat *heartbeat, struct mr_error *ret_error)
{
    if (heartbeat->options.interval_ms == 0) {
        return MR_OK;
    }
    int failed = mr_thread_create(&heartbeat->thread, heartbeat_main, heartbeat);
    if (failed != 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "a thread can't be started: %s", strerror(failed));
    }
    heartbeat->started = true;
    return MR_OK;
}

void mr_pg_heartbeat_stop(struct mr_pg_heartbeat *heartbeat)
{
    if (heartbeat->started) {
        eventfd_write(heartbeat->stop_fd, 1);
        pthread_join(heartbeat->thread, NULL);
        heartbeat->started = false;
    }
}

struct mr_heartbeat_counts mr_pg_heartbeat_counts(const struct mr_pg_heartbeat *heartbeat)
{
    if (heartbeat == NULL) {
        return (struct mr_heartbeat_counts){0};
    }
    return (struct mr_heartbeat_counts){.queries = atomic_load(&heartbeat->queries),
                                        .errors = atomic_load(&heartbeat->errors)};
}
