#include "source/pg_source.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "source/pg_identity.h"
#include "source/pg_payload.h"
#include "source/pg_setup.h"

/* After so many messages the caller gets its turn: feedback, clock, a stop. */
enum { RECEIVE_SHARE = 256 };

/* A server that shuts down sends all its log first. So long it may do that; what is left is safe with it. */
#define SHUTDOWN_GRACE_NS (INT64_C(2) * 1000000000)

struct pg_source {
    struct mr_source base;
    struct mr_pg_source_options options;
    struct mr_pg_conn *conn;
    struct mr_pgoutput *decoder;
    const struct mr_source_handler *handler; /* of the last receive; told of relations that end */
    struct mr_key_list keys;
    char *database;
    mr_slice message; /* the one at hand, when `pending`: it comes again after MR_FULL */
    bool pending;
    size_t longest;     /* message of this connection */
    bool slot_is_known; /* it was made or accepted before */
    uint64_t reads;
};

static struct pg_source *source_of(const struct mr_source *source)
{
    return (struct pg_source *)(uintptr_t)source;
}

static void remember_database(struct pg_source *source)
{
    free(source->database);
    source->database = MR_STRDUP(mr_pg_database(source->conn));
}

static mr_status open_stream(struct pg_source *source, const struct mr_checkpoint *stored,
                             mr_lsn start, int stop_fd, struct mr_identity *ret_identity,
                             struct mr_error *ret_error)
{
    const struct mr_pg_source_options *options = &source->options;
    MR_TRY(mr_pg_identify(source->conn, options, stored, stop_fd, ret_identity, ret_error));
    bool adopted = false;
    MR_TRY(mr_pg_setup(source->conn, options, stored != NULL || source->slot_is_known, stop_fd,
                       &adopted, ret_error));
    source->slot_is_known = true;
    if (adopted) {
        atomic_store_explicit(&source->base.slot_adopted, true, memory_order_relaxed);
    }
    mr_key_list_done(&source->keys);
    MR_TRY(
        mr_pg_read_keys(source->conn, stop_fd, options->publication, 0, &source->keys, ret_error));
    remember_database(source);
    return mr_pg_start_replication(source->conn, stop_fd, options->slot, options->publication,
                                   start, ret_error);
}

static mr_status close_if(struct pg_source *source, mr_status status)
{
    if (status != MR_OK) {
        mr_pg_close(source->conn);
        source->conn = NULL;
    }
    return status;
}

static mr_status pg_source_claim(struct mr_source *base, int stop_fd, struct mr_error *ret_error)
{
    struct pg_source *source = source_of(base);
    MR_ASSERT(source->conn == NULL);
    MR_TRY(mr_pg_connect(&source->options.connection, true, stop_fd, &source->conn, ret_error));
    atomic_store_explicit(&base->server_stops_ns, 0, memory_order_relaxed);
    return close_if(source, mr_pg_claim(source->conn, source->options.slot, stop_fd, ret_error));
}

static mr_status pg_source_open(struct mr_source *base, const struct mr_checkpoint *stored,
                                mr_lsn start, int stop_fd, struct mr_identity *ret_identity,
                                struct mr_error *ret_error)
{
    struct pg_source *source = source_of(base);
    MR_ASSERT(source->conn != NULL);
    return close_if(source, open_stream(source, stored, start, stop_fd, ret_identity, ret_error));
}

static void count_received(struct pg_source *source)
{
    uint64_t bytes = atomic_load_explicit(&source->base.received_bytes, memory_order_relaxed);
    atomic_store_explicit(&source->base.received_bytes, bytes + source->message.len,
                          memory_order_relaxed);
    if (MR_UNLIKELY(source->message.len > source->longest)) {
        source->longest = source->message.len;
        atomic_store_explicit(&source->base.message_bytes_max, source->longest,
                              memory_order_relaxed);
    }
}

static mr_status pg_source_receive(struct mr_source *base, const struct mr_source_handler *handler,
                                   struct mr_error *ret_error)
{
    struct pg_source *source = source_of(base);
    MR_ASSERT(source->conn != NULL);
    source->handler = handler;
    for (int i = 0; i < RECEIVE_SHARE; i++) {
        if (MR_UNLIKELY(handler->hold)) {
            if (!source->pending) {
                mr_pg_forget(source->conn);
            }
            return MR_FULL;
        }
        if (!source->pending) {
            MR_TRY(mr_pg_receive(source->conn, &source->message, &source->reads, ret_error));
            source->pending = true;
            count_received(source);
        }
        MR_TRY(mr_pg_payload_take(source->decoder, source->message, handler, ret_error));
        source->pending = false;
    }
    return MR_OK;
}

static mr_status pg_source_confirm(struct mr_source *base, mr_lsn flushed, bool ping,
                                   struct mr_error *ret_error)
{
    struct pg_source *source = source_of(base);
    int64_t stops_ns = atomic_load_explicit(&base->server_stops_ns, memory_order_relaxed);
    if (MR_UNLIKELY(stops_ns != 0) && mr_monotonic_ns() - stops_ns > SHUTDOWN_GRACE_NS) {
        return mr_fail(
            ret_error, MR_ERR_TRANSIENT,
            "PostgreSQL is shutting down and has a backlog to send first; leaving, so that "
            "it can stop, and coming back for the rest");
    }
    /* Before it is sent: whether it arrived may never be known. */
    return mr_pg_send_status(source->conn, flushed, ping, ret_error);
}

static int pg_source_descriptor(const struct mr_source *base)
{
    return mr_pg_socket(source_of(base)->conn);
}

static void pg_source_close(struct mr_source *base, int64_t deadline_ns)
{
    struct pg_source *source = source_of(base);
    if (source->conn == NULL) {
        return;
    }
    if (deadline_ns > 0 && mr_pg_end_replication(source->conn, deadline_ns) != MR_OK) {
        mr_log(MR_LOG_WARN, "confirm_unanswered",
               "the server did not answer the last confirmation in time; some rows may come twice");
    }
    mr_pg_close(source->conn);
    source->conn = NULL;
    source->pending = false;
    source->longest = 0;
    atomic_store_explicit(&source->base.message_bytes_max, 0, memory_order_relaxed);
    if (source->handler != NULL) {
        mr_pgoutput_reset(source->decoder, source->handler);
    }
}

struct mr_source *mr_pg_source_new(const struct mr_pg_source_options *options)
{
    static const struct mr_source_ops ops = {
        .name = "postgres",
        .claim = pg_source_claim,
        .open = pg_source_open,
        .receive = pg_source_receive,
        .confirm = pg_source_confirm,
        .descriptor = pg_source_descriptor,
        .close = pg_source_close,
    };
    struct pg_source *source = MR_NEW(struct pg_source);
    source->base.ops = &ops;
    source->options = *options;
    source->decoder = mr_pgoutput_new();
    source->database = MR_STRDUP("");
    return &source->base;
}

void mr_pg_source_free(struct mr_source *base)
{
    if (base == NULL) {
        return;
    }
    struct pg_source *source = source_of(base);
    mr_pg_close(source->conn);
    mr_pgoutput_free(source->decoder);
    mr_key_list_done(&source->keys);
    free(source->database);
    free(source);
}

/* A table that joined the publication, or changed, after the stream began. The stream's own connection can't
 * be asked while it streams. */
static void look_up_keys(struct pg_source *source, uint32_t oid)
{
    struct mr_pg_conn *conn;
    struct mr_error error;
    mr_status status = mr_pg_connect(&source->options.connection, false, -1, &conn, &error);
    if (status == MR_OK) {
        status = mr_pg_read_keys(conn, -1, source->options.publication, oid, &source->keys, &error);
        mr_pg_close(conn);
    }
    if (status != MR_OK) {
        mr_log(MR_LOG_WARN, "key_unknown", error.text, MR_LOG_INT("relation", oid));
    }
}

struct mr_key_columns mr_pg_source_key_columns(struct mr_source *base,
                                               const struct mr_relation *relation)
{
    struct pg_source *source = source_of(base);
    struct mr_table_keys *keys = mr_key_list_find(&source->keys, relation->oid);
    /* With the default identity the stream itself flags the key; elsewhere only the catalog knows it, and a
     * second question is of a new version of the relation. */
    bool flagged = relation->identity == MR_IDENTITY_DEFAULT;
    if (keys != NULL && keys->asked && !flagged) {
        mr_key_list_forget(&source->keys, keys);
        keys = NULL;
    }
    if (keys == NULL && !flagged) {
        look_up_keys(source, relation->oid);
        keys = mr_key_list_find(&source->keys, relation->oid);
    }
    if (keys == NULL) {
        return (struct mr_key_columns){0};
    }
    keys->asked = true;
    return (struct mr_key_columns){.names = (const char *const *)keys->names, .count = keys->count};
}

const char *mr_pg_source_database(const struct mr_source *base)
{
    return source_of(base)->database;
}
