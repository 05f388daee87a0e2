#include "copy/added.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/ticker.h"
#include "postgres/catalog/pg_captured.h"
#include "postgres/catalog/pg_sql.h"

enum { LOOK_MS = 5000, SOON_MS = 200 };

struct mr_added {
    struct mr_pipeline *pipeline;
    struct mr_copies *copies;
    struct mr_added_listener listener;
    struct mr_ticker ticker;
    bool logged; /* that a look failed */
    pthread_mutex_t lock;
    const struct mr_pg_source_options *source;
    bool asks;                              /* for the rows of tables that join */
    const struct mr_pg_options *connection; /* the first one's, for only that has its secrets */
};

/* Passes the server's answer on; its texts are the result's. */
static void pass_on(const struct mr_added *added, const struct mr_pg_result *result)
{
    const struct mr_pg_source_options *options = added->source;
    uint32_t rows = mr_pg_result_rows(result);
    struct mr_streamed_table *tables = MR_NEW_ARRAY(struct mr_streamed_table, rows + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows; i++) {
        struct mr_streamed_table one = {.oid = (uint32_t)mr_pg_result_number(result, i, 0),
                                        .schema = mr_pg_result_value(result, i, 1),
                                        .table = mr_pg_result_value(result, i, 2)};
        bool is_hidden =
            options->captured.signal_is_hidden &&
            mr_pg_table_is_signal(options, mr_slice_of(one.schema), mr_slice_of(one.table));
        tables[count] = one;
        count += !is_hidden;
    }
    if (added->asks) {
        mr_copies_streamed(added->copies, tables, count);
    }
    if (added->listener.take != NULL) {
        added->listener.take(added->listener.context, tables, count);
    }
    free(tables);
}

/* The tables that are streamed with those options, of which the publication may send less; the caller's. */
static mr_status query(const struct mr_added *added, const struct mr_pg_source_options *options,
                       struct mr_pg_result **ret_result, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the tables that are streamed", "nss", 0, UINT32_MAX};
    struct mr_pg_conn *conn;
    MR_TRY(mr_pg_connect(added->connection, false, added->ticker.stop_fd, &conn, ret_error));
    struct mr_text sql = {0};
    mr_sql_add_streamed(&sql, options, mr_pg_server_version(conn));
    mr_status status = mr_pg_query(conn, &sql, &shape, ret_result, ret_error);
    mr_pg_close(conn);
    return status;
}

/* False: whose stream it is, or what is stored, is not known yet. With the lock. */
static bool look(struct mr_added *added)
{
    struct mr_pipeline_stats stats = mr_pipeline_stats(added->pipeline);
    /* Before that the publication may be yet to be made, which sends nothing. */
    if (!mr_copies_knows(added->copies) || stats.source.stands_by || !stats.source.was_connected) {
        return false;
    }
    struct mr_error error;
    struct mr_pg_result *result;
    mr_status status = query(added, added->source, &result, &error);
    if (status == MR_OK) {
        pass_on(added, result);
        mr_pg_result_free(result);
    }
    bool fails = status != MR_OK && status != MR_AGAIN && status != MR_ERR_TRANSIENT;
    if (fails && !added->logged) {
        mr_log(MR_LOG_WARN, "added_tables_unseen", error.text);
    }
    added->logged = fails;
    return true;
}

static bool looks(const struct mr_added *added)
{
    return added->asks || added->listener.take != NULL;
}

static int tick(void *context)
{
    struct mr_added *added = context;
    pthread_mutex_lock(&added->lock);
    int wait_ms = looks(added) && !look(added) ? SOON_MS : LOOK_MS;
    pthread_mutex_unlock(&added->lock);
    return wait_ms;
}

/* With the lock, or before there is a thread. */
static void start(struct mr_added *added)
{
    struct mr_error error;
    mr_copies_follow(added->copies, added->asks);
    if (looks(added) && !added->ticker.runs &&
        mr_ticker_start(&added->ticker, SOON_MS, &error) != MR_OK) {
        mr_log(MR_LOG_WARN, "added_tables_unseen", error.text);
    }
}

struct mr_added *mr_added_new(struct mr_pipeline *pipeline, struct mr_copies *copies,
                              const struct mr_pg_source_options *source, bool asks,
                              struct mr_added_listener listener)
{
    struct mr_added *added = MR_NEW(struct mr_added);
    *added = (struct mr_added){.pipeline = pipeline,
                               .source = source,
                               .copies = copies,
                               .asks = asks,
                               .listener = listener,
                               .connection = &source->connection};
    mr_ticker_init(&added->ticker, "mr-added", tick, added);
    pthread_mutex_init(&added->lock, NULL);
    start(added);
    return added;
}

struct kept {
    const struct mr_pg_source_options *options;
    const struct mr_pg_result *streamed; /* NULL: not known */
};

/* By its own name, or as a partition of a table that is. */
static bool keeps(void *context, const char *schema, const char *table)
{
    const struct kept *kept = context;
    if (mr_pg_table_listed(kept->options, mr_slice_of(schema), mr_slice_of(table))) {
        return true;
    }
    uint32_t rows = kept->streamed == NULL ? 0 : mr_pg_result_rows(kept->streamed);
    for (uint32_t i = 0; i < rows; i++) {
        if (strcmp(mr_pg_result_value(kept->streamed, i, 1), schema) == 0 &&
            strcmp(mr_pg_result_value(kept->streamed, i, 2), table) == 0) {
            return true;
        }
    }
    return false;
}

/* The stream no longer sends what changes in their rows. */
static void end_copies(const struct mr_added *added, const struct mr_pg_source_options *source)
{
    struct mr_error error;
    struct mr_pg_result *streamed = NULL;
    if (mr_copies_incremental(added->copies).tables == 0) {
        return;
    }
    if (query(added, source, &streamed, &error) != MR_OK) {
        streamed = NULL; /* a partition whose copy is ended can be asked for again */
    }
    struct kept kept = {.options = source, .streamed = streamed};
    mr_copies_keep(added->copies, keeps, &kept);
    mr_pg_result_free(streamed);
}

void mr_added_change(struct mr_added *added, const struct mr_pg_source_options *source, bool asks)
{
    pthread_mutex_lock(&added->lock);
    end_copies(added, source);
    added->asks = asks;
    if (asks) {
        /* What is known is what was streamed before; if the thread has not looked yet, the new tables would count as known. */
        mr_copies_follow(added->copies, true);
        look(added);
    }
    added->source = source;
    start(added);
    if (asks) {
        look(added);
    }
    pthread_mutex_unlock(&added->lock);
}

void mr_added_free(struct mr_added *added)
{
    if (added == NULL) {
        return;
    }
    mr_ticker_stop(&added->ticker);
    mr_ticker_done(&added->ticker);
    pthread_mutex_destroy(&added->lock);
    free(added);
}
