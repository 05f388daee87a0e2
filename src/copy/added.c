#include "copy/added.h"

#include <inttypes.h>

#include "base/object.h"
#include "base/thread.h"
#include "base/ticker.h"
#include "copy/members.h"
#include "copy/unlogged.h"
#include "event/checkpoint.h"
#include "event/kin.h"
#include "postgres/catalog/pg_captured.h"
#include "postgres/catalog/pg_sql.h"
#include "postgres/server/pg_rules.h"

enum { LOOK_MS = 5000, SOON_MS = 200, KIN_TIDY_MIN = 1000 };
enum { STORED_MAX = 2000, UNPUBLISHED_MAX = 5 };
enum { ROOM_MAX = 640 /* of MR_CAUSE_TEXT_MAX */ };

struct mr_added {
    struct mr_pipeline *pipeline;
    struct mr_copies *copies;
    struct mr_added_listener listener;
    struct mr_pg_form *form;
    struct mr_ticker ticker;
    bool logged; /* that a look failed */
    pthread_mutex_t lock;
    const struct mr_pg_source_options *source; /* in the memory that it says, */
    struct mr_counted *memory;                 /* which is held */
    bool asks;                                 /* for the rows of tables that join */
    struct mr_moved moved;
    struct mr_unlogged unlogged;
    struct mr_members members;
    struct mr_silence *silence;
    bool has_looked;
    struct mr_kin *kin;                     /* the first one's, too */
    const struct mr_pg_options *connection; /* the first one's, for only that has its secrets */
};

/* Of the tables and partitions what is followed. */
static void have_copied(const struct mr_added *added, struct mr_streamed_table *tables,
                        uint32_t count, const struct mr_moved_found *moved)
{
    count = added->asks ? count : 0;
    uint32_t moved_count = added->moved.policy == MR_MOVED_COPY ? moved->count : 0;
    for (uint32_t i = 0; i < moved_count; i++) {
        tables[count++] = moved->tables[i];
    }
    mr_sort(tables, count, sizeof(*tables), mr_u64_compare);
    mr_copies_streamed(added->copies, tables, count);
}

static bool watches(const struct mr_added *added)
{
    return added->moved.policy != MR_MOVED_IGNORE;
}

static uint32_t follows(const struct mr_added *added)
{
    return (added->asks ? MR_FOLLOW_TABLES : 0) |
           (added->moved.policy == MR_MOVED_COPY ? MR_FOLLOW_LEAVES : 0);
}

/* Passes the server's answers on (NULL: it was not asked for tables); their texts are the result's,
 * and what moved has its own. */
static void pass_on(const struct mr_added *added, const struct mr_pg_result *result,
                    const struct mr_moved_found *moved)
{
    const struct mr_pg_source_options *options = added->source;
    uint32_t rows = result == NULL ? 0 : mr_pg_result_rows(result);
    struct mr_streamed_table *tables =
        MR_NEW_ARRAY(struct mr_streamed_table, rows + moved->count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t oid = (uint32_t)mr_pg_result_number(result, i, 0);
        struct mr_streamed_table one = {.id = mr_streamed_id(oid, 0),
                                        .schema = mr_pg_result_value(result, i, 1),
                                        .table = mr_pg_result_value(result, i, 2)};
        bool is_hidden =
            options->captured.signal_is_hidden &&
            mr_pg_table_is_signal(options, mr_slice_of(one.schema), mr_slice_of(one.table));
        tables[count] = one;
        count += !is_hidden;
    }
    if (added->listener.take != NULL) {
        added->listener.take(added->listener.context, tables, count);
    }
    if (follows(added) != 0) {
        have_copied(added, tables, count, moved);
    }
    free(tables);
    mr_moved_tell(&added->moved, moved);
}

static mr_status added_query(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             struct mr_pg_result **ret_result, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the tables that are streamed", "nss", 0, UINT32_MAX};
    struct mr_text sql = {0};
    mr_sql_add_streamed(&sql, options, mr_pg_server_version(conn));
    return mr_pg_query(conn, &sql, &shape, ret_result, ret_error);
}

/* What is listed and there, and not published: it was swapped for another one, made again, or taken
 * out. */
static mr_status look_for_unpublished(const struct mr_added *added, struct mr_pg_conn *conn,
                                      struct mr_text *text, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the tables that are not published", "nss", 0,
                                             UNPUBLISHED_MAX};
    const struct mr_pg_result *result;
    struct mr_text sql = {0};
    MR_TEXT(names);
    MR_TEXT(add);
    struct mr_table_name tables[UNPUBLISHED_MAX];
    bool is_known = true;
    mr_sql_add_unpublished(&sql, added->source, mr_pg_server_version(conn));
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &result, ret_error));
    uint32_t rows = mr_pg_result_rows(result);
    for (uint32_t i = 0; i < rows; i++) {
        const struct mr_table_name table = {.schema = mr_pg_result_value(result, i, 1),
                                            .table = mr_pg_result_value(result, i, 2)};
        mr_text_format(&names, "%s%s.%s", i == 0 ? "" : ", ", table.schema, table.table);
        tables[i] = table;
        is_known = mr_pg_form_add_back(added->form, added->source, &table, &add) && is_known;
    }
    int64_t count = rows == 0 ? 0 : mr_pg_result_number(result, 0, 0);
    if (count <= rows) {
        mr_pg_form_settle(added->form, tables, rows);
    }
    bool is_short = names.len + add.len < ROOM_MAX;
    if (rows > 0) {
        mr_text_format(
            text,
            "%s%lld listed %s not in publication \"%s\", so nothing comes of %s: %s%s; was it "
            "made again, or swapped for another one? Run %sor take it out of \"tables\"; %s; then "
            "send what differs: " MR_REPAIR_COMMAND,
            text->len == 0 ? "" : "; ", (long long)count, count == 1 ? "table is" : "tables are",
            added->source->publication, count == 1 ? "it" : "them", names.data,
            count > UNPUBLISHED_MAX ? ", …" : "",
            is_short ? add.data : "ALTER PUBLICATION … ADD TABLE ONLY …, ",
            is_short && is_known
                ? "a row filter or a list of columns that it had there when it was last seen "
                  "is in the statement"
                : "a row filter or a list of columns that it had there must be in the "
                  "statement, or what they hid goes out (setup_warning in the log has them)");
    }
    return MR_OK;
}

/* As "0123abcd…", in order; of more than are stored none. */
static void add_hashes(cJSON *object, const char *name, const uint64_t *hashes, uint32_t count)
{
    MR_TEXT(text);
    for (uint32_t i = 0; i < count && count <= STORED_MAX; i++) {
        mr_text_format(&text, "%08" PRIx64, hashes[i]);
    }
    cJSON_AddStringToObject(object, name, text.data == NULL ? "" : text.data);
}

/* For the next process. */
static void keep_silence(const struct mr_added *added)
{
    MR_OBJECT cJSON *object = cJSON_CreateObject();
    const struct mr_members *members = &added->members;
    cJSON_AddNumberToObject(object, "last", members->tables.last);
    add_hashes(object, "published", members->tables.names, members->tables.count);
    cJSON_AddNumberToObject(object, "last_schema", members->schemas.last);
    add_hashes(object, "schemas", members->schemas.names, members->schemas.count);
    add_hashes(object, "logged", added->unlogged.logged, added->unlogged.logged_count);
    cJSON *names = cJSON_AddArrayToObject(object, "unlogged");
    for (uint32_t i = 0; i < added->unlogged.count; i++) {
        cJSON_AddItemToArray(names, cJSON_CreateString(added->unlogged.tables[i].name));
    }
    mr_pg_form_keep(added->form, object);
    mr_silence_set(added->silence, mr_object_text(object));
}

static void take_hashes(const cJSON *text, uint64_t **hashes, uint32_t *room, uint32_t *count)
{
    enum { DIGITS = 8 };
    const char *at = cJSON_IsString(text) ? text->valuestring : "";
    for (; strlen(at) >= DIGITS; at += DIGITS) {
        char digits[DIGITS + 1] = "";
        memcpy(digits, at, DIGITS);
        MR_GROW(*hashes, *room, *count + 1);
        (*hashes)[(*count)++] = strtoull(digits, NULL, 16);
    }
    mr_sort(*hashes, *count, sizeof(uint64_t), mr_u64_compare);
}

/* Where none are known, all come. */
static void take_members(const cJSON *stored, const char *names, const char *number,
                         struct mr_members_known *known)
{
    take_hashes(cJSON_GetObjectItemCaseSensitive(stored, names), &known->names, &known->room,
                &known->count);
    double last = mr_object_number(stored, number);
    known->last = known->count > 0 && last >= 0 && last <= UINT32_MAX ? (uint32_t)last : 0;
}

/* What an earlier process knew. */
static void take_silence(struct mr_added *added)
{
    MR_FREED char *text = mr_silence_text(added->silence);
    MR_OBJECT cJSON *stored = text == NULL ? NULL : cJSON_Parse(text);
    take_members(stored, "published", "last", &added->members.tables);
    take_members(stored, "schemas", "last_schema", &added->members.schemas);
    mr_pg_form_remember(added->form, stored);
    struct mr_unlogged *unlogged = &added->unlogged;
    take_hashes(cJSON_GetObjectItemCaseSensitive(stored, "logged"), &unlogged->logged,
                &unlogged->logged_room, &unlogged->logged_count);
    const cJSON *name;
    cJSON_ArrayForEach(name, cJSON_GetObjectItemCaseSensitive(stored, "unlogged"))
    {
        if (cJSON_IsString(name)) {
            mr_unlogged_add(unlogged, name->valuestring);
        }
    }
}

/* Tables of which nothing comes. */
static mr_status look_for_silent(struct mr_added *added, struct mr_pg_conn *conn,
                                 struct mr_error *ret_error)
{
    struct mr_standstill *standstill = mr_pipeline_standstill(added->pipeline);
    MR_TEXT(text);
    if (!added->has_looked) {
        take_silence(added);
        added->has_looked = true;
    }
    MR_TRY(mr_unlogged_look(&added->unlogged, conn, added->source, &text, ret_error));
    MR_TRY(mr_members_look(&added->members, conn, added->source, ret_error));
    keep_silence(added);
    MR_TRY(look_for_unpublished(added, conn, &text, ret_error));
    if (text.len == 0) {
        mr_standstill_end(standstill, MR_CAUSE_TABLE_UNPUBLISHED);
    } else {
        mr_standstill_begin(standstill, MR_CAUSE_TABLE_UNPUBLISHED, text.data);
    }
    return MR_OK;
}

/* Somebody altered the publication: rows, changes or columns are no longer sent, or are that were
 * withheld. */
static mr_status look_for_changes(const struct mr_added *added, struct mr_pg_conn *conn,
                                  struct mr_error *ret_error)
{
    struct mr_standstill *standstill = mr_pipeline_standstill(added->pipeline);
    MR_TEXT(changes);
    MR_TEXT(back);
    MR_TEXT(text);
    MR_TRY(mr_pg_form_compare(added->form, conn, added->source, &changes, &back, ret_error));
    if (changes.len == 0) {
        mr_standstill_end(standstill, MR_CAUSE_PUBLICATION_CHANGED);
        return MR_OK;
    }
    bool has_back = back.len > 0 && back.len + changes.len < ROOM_MAX;
    mr_text_format(&text,
                   "publication \"%s\" was altered while it is streamed: %s; what is not sent "
                   "meanwhile never comes: alter it back (%s%s%s), then run " MR_REPAIR_COMMAND
                   "; if it is meant, restart millrace, with a file that "
                   "says the same",
                   added->source->publication, changes.data, has_back ? "BEGIN; " : "as it was",
                   has_back ? back.data : "", has_back ? "COMMIT;" : "");
    mr_standstill_begin(standstill, MR_CAUSE_PUBLICATION_CHANGED, text.data);
    return MR_OK;
}

static mr_status added_take_gone(void *context, const struct mr_pg_result *row,
                                 struct mr_error *ret_error)
{
    (void)ret_error;
    mr_kin_note_gone(context, (uint32_t)mr_pg_result_number(row, 0, 0), mr_pg_result_lsn(row, 0, 1),
                     mr_pg_result_lsn(row, 0, 2));
    return MR_OK;
}

/* Which of so many were dropped. */
static mr_status tidy_kin(const struct mr_added *added, struct mr_pg_conn *conn,
                          struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"partitions that are gone", "nll", 0, UINT32_MAX};
    struct mr_text sql = {0};
    MR_TEXT(oids);
    if (mr_kin_add_oids(added->kin, &oids) < KIN_TIDY_MIN) {
        return MR_OK;
    }
    mr_sql_format(&sql,
                  "SELECT x.oid::bigint, CASE WHEN pg_is_in_recovery() THEN"
                  " pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END,"
                  " s.confirmed_flush_lsn FROM pg_replication_slots s,"
                  " unnest('{%s}'::oid[]) x(oid) WHERE s.slot_name = %L"
                  " AND s.confirmed_flush_lsn IS NOT NULL"
                  " AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = x.oid)",
                  oids.data + 1, added->source->slot);
    return mr_pg_ask_rows(conn, &sql, &shape, added_take_gone, added->kin, ret_error);
}

/* Which tables are partitions of which: once one is detached, the catalog does not tell. */
static mr_status added_keep_kin(const struct mr_added *added, struct mr_pg_conn *conn,
                                struct mr_error *ret_error)
{
    struct mr_pg_captured captured = {0};
    struct mr_pg_source_options options = *added->source;
    if (added->kin == NULL) {
        return MR_OK;
    }
    options.kin = added->kin;
    mr_status status = mr_pg_captured_read(&captured, conn, &options, &captured.horizon, ret_error);
    mr_pg_captured_done(&captured);
    return MR_THEN(status, tidy_kin(added, conn, ret_error));
}

static mr_status look_at_once(struct mr_added *added, struct mr_error *ret_error)
{
    struct mr_pg_conn *conn;
    struct mr_pg_result *result = NULL;
    struct mr_moved_found moved = {0};
    MR_TRY(mr_pg_connect(added->connection, false, added->ticker.stop_fd, &conn, ret_error));
    bool wants_tables = added->asks || added->listener.take != NULL;
    mr_status status = wants_tables ? added_query(conn, added->source, &result, ret_error) : MR_OK;
    bool passes = status == MR_OK;
    if (status == MR_OK && watches(added)) {
        status = mr_moved_look(&added->moved, conn, added->source, &moved, ret_error);
        /* Where partitions are only told of, tables need not wait for what could not be seen of
         * them. */
        passes = status == MR_OK || (follows(added) & MR_FOLLOW_LEAVES) == 0;
    }
    mr_pg_close(conn);
    if (passes) {
        pass_on(added, result, &moved);
    }
    mr_moved_found_done(&moved);
    mr_pg_result_free(result);
    return status;
}

/* False: whose stream it is, or what is stored, is not known yet. With the lock. */
static bool added_look(struct mr_added *added)
{
    struct mr_pipeline_stats stats = mr_pipeline_stats(added->pipeline);
    /* Before that the publication may be yet to be made, which sends nothing. */
    if (!mr_copies_knows(added->copies) || stats.source.stands_by || !stats.source.was_connected) {
        return false;
    }
    struct mr_error error;
    mr_status status = look_at_once(added, &error);
    bool fails = status != MR_OK && status != MR_AGAIN && status != MR_ERR_TRANSIENT;
    if (fails && !added->logged) {
        mr_log(MR_LOG_WARN, "added_tables_unseen", error.text);
    }
    added->logged = fails;
    return true;
}

static bool looks(const struct mr_added *added)
{
    return added->asks || added->listener.take != NULL || watches(added);
}

static int added_tick(void *context)
{
    struct mr_added *added = context;
    MR_HOLD(&added->lock);
    return looks(added) && !added_look(added) ? SOON_MS : LOOK_MS;
}

/* With the lock, or before there is a thread. */
static void added_start(struct mr_added *added)
{
    struct mr_error error;
    mr_copies_follow(added->copies, follows(added));
    if (looks(added) && !added->ticker.runs &&
        mr_ticker_start(&added->ticker, SOON_MS, &error) != MR_OK) {
        mr_log(MR_LOG_WARN, "added_tables_unseen", error.text);
    }
}

struct mr_added *mr_added_new(struct mr_pipeline *pipeline, struct mr_copies *copies,
                              const struct mr_pg_source_options *source, bool asks,
                              enum mr_moved_policy moved, struct mr_added_listener listener,
                              struct mr_pg_form *form, struct mr_silence *silence)
{
    struct mr_added *added = MR_NEW(struct mr_added);
    *added = (struct mr_added){
        .pipeline = pipeline,
        .source = source,
        .copies = copies,
        .asks = asks,
        .moved = {.copies = copies, .policy = source->via_root ? moved : MR_MOVED_IGNORE},
        .listener = listener,
        .form = form,
        .silence = silence,
        .kin = source->kin,
        .connection = &source->connection};
    mr_counted_pass(&added->memory, source->captured.memory);
    mr_ticker_init(&added->ticker, "mr-added", added_tick, added);
    pthread_mutex_init(&added->lock, NULL);
    added_start(added);
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
    struct mr_pg_conn *conn = NULL;
    if (mr_copies_incremental(added->copies).tables == 0) {
        return;
    }
    if (mr_pg_connect(added->connection, false, added->ticker.stop_fd, &conn, &error) != MR_OK ||
        added_query(conn, source, &streamed, &error) != MR_OK) {
        streamed = NULL; /* a partition whose copy is ended can be asked for again */
    }
    mr_pg_close(conn);
    struct kept kept = {.options = source, .streamed = streamed};
    mr_copies_keep(added->copies, keeps, &kept);
    mr_pg_result_free(streamed);
}

void mr_added_change(struct mr_added *added, const struct mr_pg_source_options *source, bool asks)
{
    MR_HOLD(&added->lock);
    end_copies(added, source);
    added->asks = asks;
    if (asks) {
        /* What is known is what was streamed before; if the thread has not looked yet, the new
         * tables would count as known. */
        mr_copies_follow(added->copies, follows(added));
        added_look(added);
    }
    added->source = source;
    mr_unlogged_change(&added->unlogged);
    mr_counted_pass(&added->memory, source->captured.memory);
    added_start(added);
    if (asks) {
        added_look(added);
    }
}

bool mr_added_compare(void *context, struct mr_pg_conn *conn)
{
    struct mr_added *added = context;
    struct mr_error error;
    struct mr_pipeline_stats stats = mr_pipeline_stats(added->pipeline);
    if (stats.source.stands_by || !stats.source.was_connected ||
        pthread_mutex_trylock(&added->lock) != 0) {
        return stats.source.stands_by; /* the next look */
    }
    mr_status status = added_keep_kin(added, conn, &error);
    status = MR_THEN(status, look_for_silent(added, conn, &error));
    status = status == MR_OK ? look_for_changes(added, conn, &error) : status;
    pthread_mutex_unlock(&added->lock);
    if (status != MR_OK && status != MR_AGAIN && status != MR_ERR_TRANSIENT) {
        mr_log(MR_LOG_WARN, "added_tables_unseen", error.text);
    }
    return true;
}

void mr_added_free(struct mr_added *added)
{
    mr_ticker_stop(&added->ticker);
    mr_ticker_done(&added->ticker);
    mr_moved_done(&added->moved);
    mr_unlogged_done(&added->unlogged);
    mr_members_done(&added->members);
    mr_counted_release(added->memory);
    pthread_mutex_destroy(&added->lock);
    free(added);
}
