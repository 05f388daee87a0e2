#include "postgres/server/pg_heartbeat.h"

#include <stdatomic.h>

#include "base/ticker.h"

enum {
    QUERY_MS = 10 * 1000, /* the server ends it then, */
    ANSWER_MS = 2 * 1000, /* and if it does not, we do, so much later */
};

struct mr_pg_heartbeat {
    struct mr_pg_heartbeat_options options;
    struct mr_ticker ticker;
    bool logged; /* that it fails */
    _Atomic uint64_t queries;
    _Atomic uint64_t errors;
};

/* PostgreSQL's own default path in place of our empty one: a query may name its table as in
 * psql. */
static mr_status pg_heartbeat_query(const struct mr_pg_heartbeat *heartbeat,
                                    struct mr_error *ret_error)
{
    MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
    MR_TRY(mr_pg_connect(heartbeat->options.connection, false, heartbeat->ticker.stop_fd, &conn,
                         ret_error));
    MR_TRY(mr_pg_commandf(conn, ANSWER_MS, ret_error,
                          "SET statement_timeout = %u; SET search_path = \"$user\", public",
                          QUERY_MS));
    return mr_pg_command(conn, heartbeat->options.query, QUERY_MS + ANSWER_MS, ret_error);
}

/* The stream goes on whatever comes of it. */
static void beat(struct mr_pg_heartbeat *heartbeat)
{
    const struct mr_pg_heartbeat_options *options = &heartbeat->options;
    if (options->query != NULL) {
        struct mr_error error = {0};
        mr_status status = pg_heartbeat_query(heartbeat, &error);
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

static int pg_heartbeat_tick(void *context)
{
    struct mr_pg_heartbeat *heartbeat = context;
    if (heartbeat->options.has_stream(heartbeat->options.context)) {
        beat(heartbeat);
    }
    return (int)heartbeat->options.interval_ms;
}

struct mr_pg_heartbeat *mr_pg_heartbeat_new(const struct mr_pg_heartbeat_options *options)
{
    struct mr_pg_heartbeat *heartbeat = MR_NEW(struct mr_pg_heartbeat);
    heartbeat->options = *options;
    mr_ticker_init(&heartbeat->ticker, "mr-heartbeat", pg_heartbeat_tick, heartbeat);
    return heartbeat;
}

void mr_pg_heartbeat_free(struct mr_pg_heartbeat *heartbeat)
{
    if (heartbeat != NULL) {
        mr_ticker_done(&heartbeat->ticker);
        free(heartbeat);
    }
}

mr_status mr_pg_heartbeat_start(struct mr_pg_heartbeat *heartbeat, struct mr_error *ret_error)
{
    int interval_ms = (int)heartbeat->options.interval_ms;
    return interval_ms == 0 ? MR_OK : mr_ticker_start(&heartbeat->ticker, interval_ms, ret_error);
}

void mr_pg_heartbeat_stop(struct mr_pg_heartbeat *heartbeat)
{
    mr_ticker_stop(&heartbeat->ticker);
}

struct mr_heartbeat_counts mr_pg_heartbeat_counts(const struct mr_pg_heartbeat *heartbeat)
{
    if (heartbeat == NULL) {
        return (struct mr_heartbeat_counts){0};
    }
    return (struct mr_heartbeat_counts){.queries = atomic_load(&heartbeat->queries),
                                        .errors = atomic_load(&heartbeat->errors)};
}
