#include "cli/added.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "postgres/pg_sql.h"
#include "source/pg_captured.h"

enum { LOOK_MS = 5000, SOON_MS = 200 };

struct mr_added {
    struct mr_pipeline *pipeline;
    int stop_fd;
    pthread_t thread;
    bool started;
    bool told; /* that a look failed */
    pthread_mutex_t lock;
    const struct mr_config *config;
    const struct mr_pg_options *connection; /* the first one's, for only that has its secrets */
};

/* The server's answer as the pipeline wants it; its texts are the result's. */
static void pass_on(const struct mr_added *added, const struct mr_pg_source_options *options,
                    const struct mr_pg_result *result)
{
    uint32_t rows = mr_pg_result_rows(result);
    struct mr_streamed_table *tables = MR_NEW_ARRAY(struct mr_streamed_table, rows + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows; i++) {
        struct mr_streamed_table one = {.oid = (uint32_t)mr_pg_result_number(result, i, 0),
                                        .schema = mr_pg_result_value(result, i, 1),
                                        .table = mr_pg_result_value(result, i, 2)};
        bool is_hidden =
            options->signal_is_hidden &&
            mr_pg_table_is_signal(options, mr_slice_of(one.schema), mr_slice_of(one.table));
        tables[count] = one;
        count += !is_hidden;
    }
    mr_pipeline_copy_streamed(added->pipeline, tables, count);
    free(tables);
}

static mr_status query(const struct mr_added *added, struct mr_error *ret_error)
{
    const struct mr_pg_source_options *options = &added->config->source;
    static const struct mr_pg_shape shape = {"the tables that are streamed", "nss", 0, UINT32_MAX};
    struct mr_pg_conn *conn;
    MR_TRY(mr_pg_connect(added->connection, false, added->stop_fd, &conn, ret_error));
    struct mr_text sql = {0};
    mr_sql_add_streamed(&sql, options, mr_pg_server_version(conn));
    struct mr_pg_result *result;
    mr_status status = mr_pg_query(conn, added->stop_fd, &sql, &shape, &result, ret_error);
    if (status == MR_OK) {
        pass_on(added, options, result);
        mr_pg_result_free(result);
    }
    mr_pg_close(conn);
    return status;
}

/* False: whose stream it is, or what is stored, is not known yet. With the lock. */
static bool look(struct mr_added *added)
{
    if (!mr_pipeline_copy_knows(added->pipeline) ||
        mr_pipeline_stats(added->pipeline).source_stands_by) {
        return false;
    }
    struct mr_error error;
    mr_status status = query(added, &error);
    bool fails = status != MR_OK && status != MR_AGAIN && status != MR_ERR_TRANSIENT;
    if (fails && !added->told) {
        mr_log(MR_LOG_WARN, "added_tables_unseen", error.text);
    }
    added->told = fails;
    return true;
}

static void *added_main(void *context)
{
    struct mr_added *added = context;
    prctl(PR_SET_NAME, "mr-added");
    mr_alloc_leave_out();
    struct pollfd stop = {.fd = added->stop_fd, .events = POLLIN};
    int wait_ms = SOON_MS;
    while (poll(&stop, 1, wait_ms) <= 0) {
        pthread_mutex_lock(&added->lock);
        wait_ms = added->config->values.snapshot_added && !look(added) ? SOON_MS : LOOK_MS;
        pthread_mutex_unlock(&added->lock);
    }
    return NULL;
}

/* With the lock, or before there is a thread. */
static void start(struct mr_added *added)
{
    mr_pipeline_copy_follow(added->pipeline, added->config->values.snapshot_added);
    if (added->config->values.snapshot_added && !added->started) {
        int failed = mr_thread_create(&added->thread, added_main, added);
        added->started = failed == 0;
        if (failed != 0) {
            mr_log(MR_LOG_WARN, "added_tables_unseen", strerror(failed));
        }
    }
}

struct mr_added *mr_added_new(const struct mr_config *config, struct mr_pipeline *pipeline)
{
    struct mr_added *added = MR_NEW(struct mr_added);
    *added = (struct mr_added){
        .pipeline = pipeline, .config = config, .connection = &config->source.connection};
    added->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    MR_ASSERT(added->stop_fd >= 0);
    pthread_mutex_init(&added->lock, NULL);
    start(added);
    return added;
}

void mr_added_change(struct mr_added *added, const struct mr_config *config)
{
    pthread_mutex_lock(&added->lock);
    if (config->values.snapshot_added) {
        /* What is known is what was streamed before: where the thread has not looked yet, the new tables would be. */
        mr_pipeline_copy_follow(added->pipeline, true);
        look(added);
    }
    added->config = config;
    start(added);
    if (config->values.snapshot_added) {
        look(added);
    }
    pthread_mutex_unlock(&added->lock);
}

void mr_added_free(struct mr_added *added)
{
    if (added == NULL) {
        return;
    }
    eventfd_write(added->stop_fd, 1);
    if (added->started) {
        pthread_join(added->thread, NULL);
    }
    close(added->stop_fd);
    pthread_mutex_destroy(&added->lock);
    free(added);
}
