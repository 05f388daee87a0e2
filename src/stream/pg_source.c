#include "stream/pg_source.h"

#include <poll.h>

#include "base/clock.h"
#include "postgres/catalog/pg_sql.h"
#include "postgres/server/pg_copying.h"
#include "postgres/server/pg_identity.h"
#include "postgres/server/pg_move.h"
#include "postgres/server/pg_setup.h"
#include "postgres/server/pg_unsent.h"
#include "stream/pg_payload.h"
#include "stream/rejoin.h"
#include "stream/reselect.h"

/* After so many messages the caller gets its turn: feedback, clock, a stop. */
enum { RECEIVE_SHARE = 256 };

/* A server that shuts down sends all its WAL first. So long it may do that; what is left is safe
 * with it. */
#define SHUTDOWN_GRACE_NS (INT64_C(2) * 1000000000)

#define ASKED_KEPT_NS (INT64_C(5) * 1000000000)

struct pg_source {
    struct mr_source base;
    struct mr_pg_source_options options;
    struct mr_pg_conn *conn;
    struct mr_pgoutput *decoder;
    const struct mr_source_handler *handler; /* of the last receive; learns of relations that end */
    struct mr_pg_catalog catalog;
    struct mr_pg_home home;
    struct mr_pg_form *form;
    struct {
        struct mr_pg_conn *conn; /* for questions while the stream runs; NULL: not open */
        int64_t at_ns;           /* the last time */
    } asked;
    int stop_fd;                   /* of the last open */
    const struct mr_pg_seen *seen; /* NULL: nobody looks */
    int64_t opened_ns;             /* what was seen before is of an earlier connection */
    struct {
        bool was_standby; /* at the last open */
        int64_t stops_ns; /* since when it is known to shut down; 0: it does not */
    } server;
    char *database;
    mr_slice message; /* the one at hand, when `pending`: it comes again after MR_FULL */
    bool pending;
    size_t longest;   /* message of this connection */
    mr_lsn start;     /* of its stream */
    mr_lsn unsent[2]; /* a change that the server could not send, and its commit */
    struct mr_rejoin rejoin;
    struct mr_reselect_asker *asker; /* NULL, as the next: no values are read again */
    struct mr_reselect *reselect;
    bool is_held;       /* the message at hand */
    bool slot_is_known; /* it was made or accepted before */
    uint64_t reads;
};

static struct pg_source *pg_source_of(const struct mr_source *source)
{
    return (struct pg_source *)(uintptr_t)source;
}

/* Tables that are gone since this process has looked at them have left; they are not written
 * wrong. */
static struct mr_pg_stream_state pg_source_state_of(const struct pg_source *source,
                                                    const struct mr_checkpoint *stored)
{
    struct mr_pg_stream_state state = mr_pg_stream_state_of(stored, &source->options);
    state.tables_are_known = state.tables_are_known || source->slot_is_known;
    return state;
}

/* All that is asked about tables before the stream, on another connection than its own. */
static mr_status pg_source_prepare(struct pg_source *source, struct mr_pg_conn *desk,
                                   const struct mr_pg_stream_state *state,
                                   struct mr_error *ret_error)
{
    const struct mr_pg_source_options *options = &source->options;
    bool adopted = false;
    MR_TRY(mr_pg_setup(source->conn, desk, options, state, NULL, &adopted, ret_error));
    MR_TRY(mr_pg_form_open(source->form, desk, options, ret_error));
    source->slot_is_known = true;
    if (adopted) {
        atomic_store_explicit(&source->base.slot_adopted, true, memory_order_relaxed);
    }
    MR_TRY(mr_pg_catalog_read(&source->catalog, desk, false, ret_error));
    if (options->relation_bytes_max != 0) {
        size_t left = options->relation_bytes_max - source->catalog.keys.bytes;
        mr_pgoutput_limit_relations(source->decoder, left / MR_RELATION_FACTOR);
    }
    return MR_OK;
}

static mr_status pg_source_open_stream(struct pg_source *source, const struct mr_checkpoint *stored,
                                       mr_lsn start, int stop_fd, struct mr_identity *ret_identity,
                                       struct mr_error *ret_error)
{
    const struct mr_pg_source_options *options = &source->options;
    struct mr_server_position server;
    source->opened_ns = mr_monotonic_ns();
    source->server.stops_ns = 0;
    MR_TRY(mr_pg_source_identify(&source->base, stored, start, &server, ret_error));
    source->server.was_standby = server.identity.is_standby;
    atomic_store_explicit(&source->base.server_end, server.flushed, memory_order_relaxed);
    *ret_identity = server.identity;
    MR_TRY(mr_pg_home_read(&source->home, source->conn, options, ret_error));
    struct mr_pg_conn *desk;
    MR_TRY(mr_pg_connect(&options->connection, false, stop_fd, &desk, ret_error));
    struct mr_pg_stream_state state = pg_source_state_of(source, stored);
    state.is_known = state.is_known || source->slot_is_known;
    mr_status status = mr_pg_move_forget(desk, stored, ret_error);
    status = status == MR_OK ? pg_source_prepare(source, desk, &state, ret_error) : status;
    mr_pg_close(desk);
    MR_TRY(status);
    free(source->database);
    source->database = MR_STRDUP(mr_pg_database(source->conn));
    bool is_first = source->handler == NULL; /* nothing was received in this process */
    source->start = mr_rejoin_begin(&source->rejoin, stored, &server, start, is_first);
    mr_pgoutput_set_messages(source->decoder, &(struct mr_pgoutput_messages){
                                                  .are_passed_on = options->messages,
                                                  .context_names = options->captured.context_names,
                                                  .context_count = options->captured.context_count,
                                                  .contexts = source->base.contexts,
                                              });
    return mr_pg_start_replication(source->conn, options->slot, options->publication,
                                   options->messages || options->captured.context_count > 0,
                                   source->start, ret_error);
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
    struct pg_source *source = pg_source_of(base);
    MR_ASSERT(source->conn == NULL);
    MR_TRY(mr_pg_connect(&source->options.connection, true, stop_fd, &source->conn, ret_error));
    mr_status status = mr_pg_claim(source->conn, &source->options, &base->stands_by, ret_error);
    atomic_store_explicit(&base->stands_by, false, memory_order_relaxed);
    return close_if(source, status);
}

static void pg_source_change(struct mr_source *base, const void *options)
{
    struct pg_source *source = pg_source_of(base);
    const struct mr_pg_source_options *wanted = options;
    MR_ASSERT(source->conn == NULL);
    mr_counted_pass(&source->options.captured.memory, wanted->captured.memory);
    source->options.captured = wanted->captured;
    mr_pg_form_forget(source->form);
    mr_pg_captured_done(&source->catalog.captured); /* which partitions were of which tables */
}

static mr_status pg_source_open(struct mr_source *base, const struct mr_checkpoint *stored,
                                mr_lsn start, int stop_fd, struct mr_identity *ret_identity,
                                struct mr_error *ret_error)
{
    struct pg_source *source = pg_source_of(base);
    MR_ASSERT(source->conn != NULL);
    source->stop_fd = stop_fd;
    return close_if(source,
                    pg_source_open_stream(source, stored, start, stop_fd, ret_identity, ret_error));
}

static void count_received(struct pg_source *source)
{
    mr_counter_add(&source->base.received_bytes, source->message.len);
    if (MR_UNLIKELY(source->message.len > source->longest)) {
        source->longest = source->message.len;
        atomic_store_explicit(&source->base.message_bytes_max, source->longest,
                              memory_order_relaxed);
    }
}

/* The server could not send a change, and its transaction has not begun here. It is looked for
 * once, while this connection keeps the claim. */
static mr_status find_unsent(struct pg_source *source, struct mr_error *ret_error)
{
    mr_lsn change = mr_pg_failed_change(source->conn);
    if (change == 0 || mr_pgoutput_in_transaction(source->decoder)) {
        return MR_ERR_POISON;
    }
    if (source->unsent[0] != change) {
        mr_lsn last = mr_pgoutput_last_commit(source->decoder);
        struct mr_error error;
        mr_status status =
            mr_pg_unsent_find(&source->options, change, last > source->start ? last : source->start,
                              source->stop_fd, &source->unsent[1], &error);
        if (status == MR_AGAIN) {
            return status;
        }
        if (status != MR_OK) {
            struct mr_error reason = *ret_error;
            return mr_fail(ret_error, MR_ERR_POISON,
                           "%s; it is the change at " MR_LSN_FORMAT
                           ", and where its transaction commits was not found: %s",
                           reason.text, MR_LSN_ARGS(change), error.text);
        }
        source->unsent[0] = change;
    }
    source->base.failed.commit_lsn = source->unsent[1];
    return MR_ERR_POISON;
}

static mr_status pg_source_describe(void *context, const struct mr_transaction *transaction,
                                    struct mr_relation *view, struct mr_error *ret_error)
{
    return mr_pg_catalog_describe(context, transaction, view, ret_error);
}

static void pg_source_note_parted(void *context, const struct mr_relation *partition,
                                  const struct mr_relation *root)
{
    const struct mr_origin origin = {
        .oid = root->oid, .schema = root->schema, .table = root->table};
    mr_kin_note(context, partition->oid, &origin);
}

static void end_asking(struct pg_source *source)
{
    mr_pg_close(source->asked.conn);
    source->asked.conn = NULL;
    source->asked.at_ns = 0;
}

/* Questions while the stream runs have a connection of their own. A stop is heard, unless it came
 * before: then what is partly out is read to its end. */
static mr_status begin_asking(struct pg_source *source, struct mr_error *ret_error)
{
    struct pollfd stop = {.fd = source->stop_fd, .events = POLLIN};
    int stop_fd = poll(&stop, 1, 0) == 1 ? -1 : source->stop_fd;
    if (source->asked.conn == NULL) {
        MR_TRY(mr_pg_connect(&source->options.connection, false, stop_fd, &source->asked.conn,
                             ret_error));
        MR_TRY(mr_pg_command(source->asked.conn, "SET statement_timeout = 5000", MR_PG_ANSWER_MS,
                             ret_error));
    }
    mr_pg_set_stop_fd(source->asked.conn, stop_fd);
    source->asked.at_ns = mr_monotonic_ns();
    return MR_OK;
}

/* The message at hand needs an answer first, and comes again. One look a turn: in between the
 * caller confirms, and sees a stop. An answer takes a millisecond or two, and only descriptions of
 * tables need one; so there is no thread for it. */
static mr_status answer_question(struct pg_source *source, struct mr_error *ret_error)
{
    mr_status status = begin_asking(source, ret_error);
    status = status == MR_OK ? mr_pg_catalog_ask(&source->catalog, source->asked.conn, ret_error)
                             : mr_pg_catalog_drop(&source->catalog, status, ret_error);
    if (status == MR_FULL) {
        poll(NULL, 0, MR_PG_ASK_AGAIN_MS);
        return MR_OK;
    }
    if (status != MR_OK) {
        end_asking(source);
    }
    return status;
}

static mr_status pg_source_take_message(struct pg_source *source, struct mr_error *ret_error)
{
    mr_status status = mr_pg_receive(source->conn, &source->message, &source->reads, ret_error);
    if (MR_UNLIKELY(status != MR_OK)) {
        return status == MR_ERR_POISON ? find_unsent(source, ret_error) : status;
    }
    source->pending = true;
    count_received(source);
    return MR_OK;
}

/* The next message is the first of those that are held, if that may go, or one that comes and
 * passes; one that does not is held. MR_AGAIN, too, when all that may be held is, and the first
 * waits for an answer. */
static mr_status take_in_order(struct pg_source *source, struct mr_error *ret_error)
{
    source->is_held = mr_reselect_next(source->reselect, &source->message);
    if (source->is_held) {
        source->pending = true;
        return MR_OK;
    }
    if (!mr_reselect_has_room(source->reselect)) {
        return MR_AGAIN;
    }
    MR_TRY(pg_source_take_message(source, ret_error));
    source->pending = !mr_reselect_put(source->reselect, source->message);
    return MR_OK;
}

/* It was taken. */
static void message_done(struct pg_source *source)
{
    source->pending = false;
    if (MR_UNLIKELY(source->is_held)) {
        source->is_held = false;
        mr_reselect_taken(source->reselect);
    }
}

static mr_status receive(struct pg_source *source, const struct mr_source_handler *handler,
                         struct mr_error *ret_error)
{
    struct mr_reselect *reselect = source->reselect;
    for (int i = 0; i < RECEIVE_SHARE; i++) {
        if (MR_UNLIKELY(handler->hold != NULL && *handler->hold)) {
            if (!source->pending && (reselect == NULL || !mr_reselect_holds_message(reselect))) {
                mr_pg_forget(source->conn);
            }
            return MR_FULL;
        }
        if (!source->pending && MR_UNLIKELY(reselect != NULL)) {
            MR_TRY(take_in_order(source, ret_error));
            if (!source->pending) {
                continue;
            }
        } else if (!source->pending) {
            MR_TRY(pg_source_take_message(source, ret_error));
        } else if (mr_pg_catalog_asks(&source->catalog)) {
            return answer_question(source, ret_error);
        }
        if (MR_UNLIKELY(reselect != NULL)) {
            mr_pgoutput_set_later(source->decoder,
                                  source->is_held ? mr_reselect_later(reselect) : NULL);
        }
        mr_status status = mr_pg_payload_take(source->decoder, source->message, handler, ret_error);
        if (MR_UNLIKELY(status != MR_OK)) {
            return mr_pg_catalog_asks(&source->catalog) ? MR_OK : status;
        }
        message_done(source);
    }
    return MR_OK;
}

static mr_status pg_source_receive(struct mr_source *base, const struct mr_source_handler *handler,
                                   struct mr_error *ret_error)
{
    struct pg_source *source = pg_source_of(base);
    MR_ASSERT(source->conn != NULL);
    source->handler = handler;
    const struct mr_source_handler *taker = mr_rejoin_handler(&source->rejoin, handler);
    mr_status status = receive(source, taker, ret_error);
    if (MR_UNLIKELY(taker != handler)) {
        if (status == MR_ERR_POISON && mr_rejoin_passes(&source->rejoin)) {
            status = mr_fail(ret_error, MR_ERR_TRANSIENT,
                             "a change that was delivered can't be read again, and is left out");
        }
        MR_TRY(mr_rejoin_look(&source->rejoin, ret_error));
    }
    if (MR_UNLIKELY(status == MR_ERR_POISON || status == MR_ERR_PROTOCOL)) {
        mr_lsn commit_lsn = base->failed.commit_lsn;
        base->failed = mr_pgoutput_place(source->decoder);
        base->failed.commit_lsn = commit_lsn;
    }
    return status;
}

void mr_pg_source_heed(struct mr_source *base, const struct mr_pg_seen *seen)
{
    pg_source_of(base)->seen = seen;
}

static mr_status leave_if_seen(struct pg_source *source, int64_t now_ns, struct mr_error *ret_error)
{
    const struct mr_pg_seen *seen = source->seen;
    bool stops = seen != NULL && atomic_load(&seen->stops_ns) > source->opened_ns;
    if (MR_UNLIKELY(stops) && source->server.stops_ns == 0) {
        source->server.stops_ns = now_ns;
    }
    if (MR_UNLIKELY(stops) && now_ns - source->server.stops_ns > SHUTDOWN_GRACE_NS) {
        return mr_fail(
            ret_error, MR_ERR_TRANSIENT,
            "PostgreSQL is shutting down and has a backlog to send first; leaving, so that "
            "it can stop, and coming back for the rest");
    }
    if (MR_UNLIKELY(source->server.was_standby) && seen != NULL &&
        atomic_load(&seen->primary_ns) > source->opened_ns) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT,
                       "the standby was promoted; connecting again, so that what is stored is of "
                       "its new timeline");
    }
    if (MR_UNLIKELY(mr_pg_form_refused_ns(source->form) > source->opened_ns)) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT,
                       "the publication was altered and is not as configured; connecting again, "
                       "by the rules of a start");
    }
    return MR_OK;
}

/* One that is kept open would hold up a server that stops in order. */
static void close_asked(struct pg_source *source, int64_t now_ns)
{
    if (source->asked.conn != NULL && now_ns - source->asked.at_ns > ASKED_KEPT_NS) {
        end_asking(source);
    }
}

static mr_status pg_source_confirm(struct mr_source *base, mr_lsn flushed, bool ping,
                                   struct mr_error *ret_error)
{
    struct pg_source *source = pg_source_of(base);
    int64_t now_ns = mr_monotonic_ns();
    MR_TRY(leave_if_seen(source, now_ns, ret_error));
    close_asked(source, now_ns);
    flushed = mr_rejoin_confirms(&source->rejoin, flushed);
    /* Before it is sent: whether it arrived may never be known. */
    return mr_pg_send_status(source->conn, flushed, flushed, ping, NULL, ret_error);
}

static int pg_source_descriptor(const struct mr_source *base)
{
    const struct pg_source *source = pg_source_of(base);
    int socket = mr_pg_socket(source->conn);
    return source->reselect == NULL ? socket : mr_reselect_descriptor(source->reselect, socket);
}

static void pg_source_close(struct mr_source *base, int64_t deadline_ns)
{
    struct pg_source *source = pg_source_of(base);
    if (source->conn == NULL) {
        return;
    }
    base->unanswered = deadline_ns > 0 && mr_pg_end_replication(source->conn, deadline_ns) != MR_OK;
    if (base->unanswered) {
        mr_log(MR_LOG_WARN, "confirm_unanswered",
               "the server did not answer the last confirmation in time; some rows may come twice");
    }
    mr_pg_close(source->conn);
    source->conn = NULL;
    mr_rejoin_end(&source->rejoin);
    end_asking(source);
    source->catalog.question = (struct mr_pg_question){0};
    source->pending = source->is_held = false;
    if (source->reselect != NULL) {
        mr_reselect_reset(source->reselect);
    }
    base->failed = (struct mr_failed_place){0};
    source->longest = 0;
    atomic_store_explicit(&source->base.message_bytes_max, 0, memory_order_relaxed);
    if (source->handler != NULL) {
        mr_pgoutput_reset(source->decoder, source->handler);
    }
}

void mr_pg_tables_done(struct mr_pg_tables *tables)
{
    mr_free_all(tables->names, 2 * tables->count);
    *tables = (struct mr_pg_tables){0};
}

static mr_status pg_source_ask_tables(struct pg_source *source, struct mr_pg_tables *tables,
                                      struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the published tables", "nii", 0, UINT32_MAX};
    MR_TRY(begin_asking(source, ret_error));
    struct mr_text sql = {0};
    mr_text_string(&sql, "WITH ");
    mr_sql_add_sent(&sql, source->options.publication, NULL,
                    mr_pg_server_version(source->asked.conn));
    mr_text_string(&sql, " SELECT c.oid::bigint, n.nspname, c.relname FROM sent"
                         " JOIN pg_class c USING (oid)"
                         " JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY 2, 3");
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_ask(source->asked.conn, &sql, &shape, &result, ret_error));
    uint32_t rows = mr_pg_result_rows(result);
    tables->names = MR_NEW_ARRAY(char *, 2 * (size_t)rows);
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t oid = (uint32_t)mr_pg_result_number(result, i, 0);
        const char *schema = mr_pg_result_value(result, i, 1);
        const char *table = mr_pg_result_value(result, i, 2);
        if (mr_pg_captured_find(&source->catalog.captured, oid) == MR_PG_PARTITION ||
            mr_pg_table_listed(&source->options, mr_slice_of(schema), mr_slice_of(table))) {
            tables->names[2 * tables->count] = MR_STRDUP(schema);
            tables->names[2 * tables->count + 1] = MR_STRDUP(table);
            tables->count++;
        }
    }
    return MR_OK;
}

mr_status mr_pg_source_tables(struct mr_source *base, struct mr_pg_tables *ret_tables,
                              struct mr_error *ret_error)
{
    struct pg_source *source = pg_source_of(base);
    struct mr_pg_tables tables = {0};
    mr_status status = pg_source_ask_tables(source, &tables, ret_error);
    if (status != MR_OK) {
        end_asking(source);
        return status;
    }
    *ret_tables = tables;
    return MR_OK;
}

struct mr_pg_conn *mr_pg_source_conn(const struct mr_source *base)
{
    return pg_source_of(base)->conn;
}

mr_status mr_pg_source_identify(const struct mr_source *base, const struct mr_checkpoint *stored,
                                mr_lsn start, struct mr_server_position *ret_server,
                                struct mr_error *ret_error)
{
    const struct pg_source *source = pg_source_of(base);
    MR_TRY(mr_pg_identify(source->conn, &source->options, stored, start, ret_server, ret_error));
    return mr_rejoin_refuses(&source->rejoin, stored, ret_server)
               ? mr_checkpoint_refuse(stored, ret_server, ret_error)
               : MR_OK;
}

const struct mr_pg_source_options *mr_pg_source_options(const struct mr_source *base)
{
    return &pg_source_of(base)->options;
}

struct mr_pg_home *mr_pg_source_home(struct mr_source *base)
{
    return &pg_source_of(base)->home;
}

struct mr_pg_stream_state mr_pg_source_state(const struct mr_source *base,
                                             const struct mr_checkpoint *stored)
{
    return pg_source_state_of(pg_source_of(base), stored);
}

mr_status mr_pg_source_read_catalog(struct mr_source *base, struct mr_pg_conn *keeper, int stop_fd,
                                    struct mr_pg_catalog **ret_catalog, struct mr_error *ret_error)
{
    struct pg_source *source = pg_source_of(base);
    MR_ASSERT(source->conn != NULL);
    source->stop_fd = stop_fd;
    source->slot_is_known = true;
    *ret_catalog = &source->catalog;
    return mr_pg_catalog_read(&source->catalog, keeper, true, ret_error);
}

struct mr_source *mr_pg_source_new(const struct mr_pg_source_options *options)
{
    static const struct mr_source_ops ops = {
        .name = "postgres",
        .claim = pg_source_claim,
        .open = pg_source_open,
        .change = pg_source_change,
        .receive = pg_source_receive,
        .confirm = pg_source_confirm,
        .descriptor = pg_source_descriptor,
        .close = pg_source_close,
    };
    struct pg_source *source = MR_NEW(struct pg_source);
    source->base.ops = &ops;
    source->options = *options;
    mr_counted_hold(options->captured.memory);
    mr_pg_home_init(&source->home);
    source->form = mr_pg_form_new();
    source->decoder = mr_pgoutput_new();
    source->catalog.options = &source->options;
    mr_pgoutput_set_describe(source->decoder, pg_source_describe, &source->catalog);
    mr_pgoutput_set_parted(source->decoder, pg_source_note_parted, options->kin);
    source->stop_fd = -1;
    source->database = MR_STRDUP("");
    return &source->base;
}

static const struct mr_relation *announced(void *context, uint32_t oid)
{
    return mr_pgoutput_relation(((const struct pg_source *)context)->decoder, oid);
}

void mr_pg_source_reselect(struct mr_source *base,
                           bool (*shows)(void *context, const struct mr_relation *relation,
                                         uint32_t column),
                           void *context)
{
    struct pg_source *source = pg_source_of(base);
    source->asker = mr_reselect_thread_new(&source->options, &source->home);
    source->reselect =
        mr_reselect_new(&(struct mr_reselect_wiring){.options = &source->options.reselect,
                                                     .source = base,
                                                     .asker = source->asker,
                                                     .relation = announced,
                                                     .relation_context = source,
                                                     .shows = shows,
                                                     .shows_context = context});
}

void mr_pg_source_free(struct mr_source *base)
{
    if (base == NULL) {
        return;
    }
    struct pg_source *source = pg_source_of(base);
    mr_reselect_free(source->reselect);
    mr_reselect_thread_free(source->asker);
    mr_pg_close(source->conn);
    mr_pgoutput_free(source->decoder);
    mr_pg_close(source->asked.conn);
    mr_pg_catalog_done(&source->catalog);
    mr_pg_home_done(&source->home);
    mr_pg_form_free(source->form);
    free(source->database);
    mr_counted_release(source->options.captured.memory);
    free(source);
}

struct mr_pg_form *mr_pg_source_form(const struct mr_source *base)
{
    return pg_source_of(base)->form;
}

const char *mr_pg_source_database(const struct mr_source *base)
{
    return pg_source_of(base)->database;
}
