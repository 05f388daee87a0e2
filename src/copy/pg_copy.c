#include "copy/pg_copy.h"

#include <ctype.h>

#include "base/clock.h"
#include "copy/copy_text.h"
#include "postgres/catalog/pg_attached.h"
#include "postgres/catalog/pg_sql.h"

enum { SNAPSHOT_NAME_MAX = 64, TABLES_MAX = 1000 * 1000 };

struct command {
    char *schema, *table; /* whose rows they are: a leaf's */
    char *filter;         /* the publication's; NULL: all rows */
    const char *where;    /* the condition in snapshot.where; NULL: none */
    bool has_places;      /* each row begins with its ctid */
};

struct mr_pg_copy {
    struct mr_copy view;
    struct mr_copy_table *tables;
    struct command *commands; /* a table each */
    struct mr_relation **relations;
    struct mr_layouts layouts; /* of the relations */
    uint32_t relation_count;
    char snapshot[SNAPSHOT_NAME_MAX];
};

enum table_column {
    TABLE_OID, /* as the stream names it, */
    TABLE_SCHEMA,
    TABLE_NAME,
    TABLE_IDENTITY,
    LEAF_OID, /* and whose rows are read */
    LEAF_SCHEMA,
    LEAF_NAME,
    TABLE_FILTER,
    LEAF_BYTES,
    LEAF_ROWS,
    LEAF_PAGES,
    LEAF_HAS_PLACES,
    LEAF_FILENODE,
    LEAF_MAY_RESUME,
};
static const struct mr_pg_shape tables_shape = {"the tables to copy", "niisniiSNnnbnb", 0,
                                                UINT32_MAX};

/* A table as the stream names it, whose relation is made once its columns come. */
struct root {
    uint32_t oid;
    char *schema, *table;
    enum mr_replica_identity identity;
    uint32_t first; /* of the tables whose rows are its rows */
};

struct reading {
    struct mr_pg_copy *copy;
    struct mr_pg_catalog *catalog;
    struct root *roots;
    uint32_t root_count, relation_count; /* these have their relation */
    uint32_t roots_room, tables_room, commands_room;
    struct mr_pg_columns columns;
};

static struct command make_command(const struct mr_pg_source_options *options,
                                   const struct mr_pg_result *row)
{
    const char *schema = mr_pg_result_value(row, 0, LEAF_SCHEMA);
    const char *table = mr_pg_result_value(row, 0, LEAF_NAME);
    const char *filter = mr_pg_result_value(row, 0, TABLE_FILTER);
    const struct mr_copy_where *where =
        mr_pg_where_of(options, mr_slice_of(mr_pg_result_value(row, 0, TABLE_SCHEMA)),
                       mr_slice_of(mr_pg_result_value(row, 0, TABLE_NAME)), mr_slice_of(schema),
                       mr_slice_of(table));
    return (struct command){.schema = MR_STRDUP(schema),
                            .table = MR_STRDUP(table),
                            .filter = filter == NULL ? NULL : MR_STRDUP(filter),
                            .where = where == NULL ? NULL : where->condition,
                            .has_places = mr_pg_result_true(row, 0, LEAF_HAS_PLACES)};
}

static void add_root(struct reading *reading, const struct mr_pg_result *row)
{
    MR_GROW(reading->roots, reading->roots_room, reading->root_count + 1);
    reading->roots[reading->root_count++] = (struct root){
        .oid = (uint32_t)mr_pg_result_number(row, 0, TABLE_OID),
        .schema = MR_STRDUP(mr_pg_result_value(row, 0, TABLE_SCHEMA)),
        .table = MR_STRDUP(mr_pg_result_value(row, 0, TABLE_NAME)),
        .identity = (enum mr_replica_identity)mr_pg_result_value(row, 0, TABLE_IDENTITY)[0],
        .first = reading->copy->view.table_count,
    };
}

static void pg_copy_add_table(struct reading *reading, const struct mr_pg_result *row)
{
    struct mr_pg_copy *copy = reading->copy;
    const struct mr_pg_source_options *options = reading->catalog->options;
    uint32_t at = copy->view.table_count++;
    MR_GROW(copy->tables, reading->tables_room, copy->view.table_count);
    MR_GROW(copy->commands, reading->commands_room, copy->view.table_count);
    copy->commands[at] = make_command(options, row);
    copy->tables[at] = (struct mr_copy_table){
        .bytes = (uint64_t)mr_pg_result_number(row, 0, LEAF_BYTES),
        .rows = (uint64_t)mr_pg_result_number(row, 0, LEAF_ROWS),
        .pages = (uint32_t)mr_pg_result_number(row, 0, LEAF_PAGES),
        .listed = mr_pg_table_place(options, mr_slice_of(mr_pg_result_value(row, 0, TABLE_SCHEMA)),
                                    mr_slice_of(mr_pg_result_value(row, 0, TABLE_NAME))),
        .oid = (uint32_t)mr_pg_result_number(row, 0, LEAF_OID),
        .filenode = (uint32_t)mr_pg_result_number(row, 0, LEAF_FILENODE),
        .may_resume = mr_pg_result_true(row, 0, LEAF_MAY_RESUME),
    };
}

static mr_status pg_copy_take_table(void *context, const struct mr_pg_result *row,
                                    struct mr_error *ret_error)
{
    struct reading *reading = context;
    uint32_t oid = (uint32_t)mr_pg_result_number(row, 0, TABLE_OID);
    uint32_t last = reading->root_count == 0 ? 0 : reading->roots[reading->root_count - 1].oid;
    if (oid == 0 || oid < last || reading->copy->view.table_count == TABLES_MAX) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server was asked for the tables to copy and answers in another order, "
                       "or with more tables than there can be");
    }
    if (oid > last) {
        add_root(reading, row);
    }
    pg_copy_add_table(reading, row);
    return MR_OK;
}

static mr_status read_tables(struct reading *reading, struct mr_pg_conn *keeper,
                             struct mr_error *ret_error)
{
    struct mr_text sql = {0};
    mr_text_string(&sql, "WITH ");
    mr_sql_add_sent(&sql, reading->catalog->options->publication, NULL,
                    mr_pg_server_version(keeper));
    /* Asking for a table's size waits for the transaction that has it locked: of such a table the
     * estimate must do. */
    mr_text_string(
        &sql,
        ", locked AS MATERIALIZED (SELECT relation FROM pg_locks WHERE locktype = 'relation'"
        " AND mode = 'AccessExclusiveLock' AND relation IS NOT NULL)"
        " SELECT s.oid::bigint, sn.nspname, c.relname, c.relreplident, l.oid::bigint,"
        " n.nspname, l.relname, pg_get_expr(s.qual, s.oid), z.pages * "
        "current_setting('block_size')::bigint,"
        " greatest(l.reltuples, 0)::bigint,"
        /* Ranges of pages are scanned as such from 14 on (TidRangeScan); before, the whole table
         * would be. */
        " CASE WHEN am.amname = 'heap' AND current_setting('server_version_num')::int >= 140000"
        " THEN z.pages ELSE 0 END, coalesce(am.amname = 'heap', false),"
        " l.relfilenode::bigint," /* by the snapshot */
        /* An update leaves out large values that it does not touch (logicalrep_write_tuple in
         * proto.c). */
        " (c.relreplident = 'f' AND l.relreplident = 'f') OR l.reltoastrelid = 0 OR CASE WHEN"
        " l.oid IN (SELECT relation FROM locked) THEN false"
        " ELSE pg_relation_size(l.reltoastrelid) = 0 END FROM sent s"
        " JOIN pg_class c ON c.oid = s.oid JOIN pg_namespace sn ON sn.oid = c.relnamespace"
        " CROSS JOIN LATERAL (SELECT s.oid WHERE c.relkind <> 'p' UNION ALL"
        "  SELECT t.oid FROM tree t WHERE t.root = s.oid AND c.relkind = 'p' AND t.isleaf)"
        " x(oid) JOIN pg_class l ON l.oid = x.oid AND l.relkind = 'r'"
        " JOIN pg_namespace n ON n.oid = l.relnamespace"
        " LEFT JOIN pg_am am ON am.oid = l.relam CROSS JOIN LATERAL (SELECT coalesce("
        "CASE WHEN l.oid IN (SELECT relation FROM locked) THEN l.relpages"
        " ELSE pg_relation_size(l.oid) / current_setting('block_size')::bigint END, 0)"
        "::bigint) z(pages) ORDER BY 1, 5");
    return mr_pg_ask_rows(keeper, &sql, &tables_shape, pg_copy_take_table, reading, ret_error);
}

static mr_status make_relation(struct reading *reading, struct mr_error *ret_error)
{
    struct mr_pg_copy *copy = reading->copy;
    uint32_t at = reading->relation_count;
    const struct root *root = &reading->roots[at];
    uint32_t end = at + 1 < reading->root_count ? root[1].first : copy->view.table_count;
    uint32_t key[MR_COLUMNS_MAX];
    struct mr_relation view = {
        .oid = root->oid,
        .schema = root->schema,
        .table = root->table,
        .identity = root->identity,
        .column_count = reading->columns.oid == root->oid ? reading->columns.count : 0,
        .columns = reading->columns.columns,
        .key_columns = key,
        .attribute_count = reading->columns.oid == root->oid ? reading->columns.count : 0,
        .attributes = reading->columns.attributes,
    };
    mr_status status =
        mr_pg_catalog_describe(reading->catalog, &copy->view.transaction, &view, ret_error);
    struct mr_pg_question *question = &reading->catalog->question;
    if (status == MR_FULL && question->kind == MR_PG_ASK_PARENT &&
        mr_pg_captured_find(&reading->catalog->captured, view.oid) != MR_PG_PARTITION) {
        /* What it was before matters to the stream; at the snapshot it is no partition. */
        *question = (struct mr_pg_question){0};
        view.is_unlisted = true;
        status = MR_OK;
    }
    if (status == MR_FULL) { /* all was read in this snapshot */
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server was asked for the columns to copy and for their types, and the "
                       "answers do not fit together");
    }
    MR_TRY(status);
    copy->relations[at] = mr_relation_new(&copy->layouts, &view);
    copy->relation_count = ++reading->relation_count;
    for (uint32_t i = root->first; i < end; i++) {
        copy->tables[i].relation = copy->relations[at];
    }
    return MR_OK;
}

/* Of roots before that one no column came. */
static mr_status pg_copy_take_columns(struct mr_pg_columns *columns, struct mr_error *ret_error)
{
    struct reading *reading = columns->context;
    while (reading->relation_count < reading->root_count &&
           reading->roots[reading->relation_count].oid <= columns->oid) {
        MR_TRY(make_relation(reading, ret_error));
    }
    return MR_OK;
}

/* An offset of 0 is below a page's first row (OffsetNumber counts from 1). */
static void pg_copy_add_copy(struct mr_text *sql, const struct command *command,
                             const struct mr_relation *relation, const struct mr_copy_range *range)
{
    const struct mr_table_name leaf = {.schema = command->schema, .table = command->table};
    mr_pg_columns_add_select(sql, relation, command->has_places ? "ctid" : NULL, &leaf, false,
                             command->filter);
    const char *joint = command->filter != NULL ? " AND" : " WHERE";
    if (command->where != NULL) {
        mr_sql_format(sql, "%s ", joint);
        mr_sql_add_condition(sql, command->where);
        joint = " AND";
    }
    if (range->after != 0) {
        mr_sql_format(sql, "%s ctid > '(%u,%u)'", joint, (uint32_t)(range->after >> 16),
                      (uint32_t)(uint16_t)range->after);
        joint = " AND";
    }
    if (range->end != MR_COPY_NO_END) {
        mr_sql_format(sql, "%s ctid < '(%u,0)'", joint, range->end);
    }
    mr_text_string(sql, ") TO STDOUT");
}

#define BEGIN "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

mr_status mr_pg_begin_in_snapshot(struct mr_pg_conn *conn, const char *snapshot,
                                  struct mr_error *ret_error)
{
    struct mr_error reason = {0};
    mr_status status = snapshot[0] == '\0'
                           ? mr_pg_command(conn, BEGIN, MR_PG_ANSWER_MS, &reason)
                           : mr_pg_commandf(conn, MR_PG_ANSWER_MS, &reason,
                                            BEGIN "; SET TRANSACTION SNAPSHOT %L", snapshot);
    /* What the server says once the snapshot's owner is gone: ImportSnapshot in
     * src/backend/utils/time/snapmgr.c, without a file of that name until 16 and from 17 on, and
     * with a file whose owner has just ended. */
    if (status == MR_ERR_CONFIG && mr_error_is(&reason, "22023|42704|55000")) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT,
                       "the snapshot of the rows to copy is gone with the connection that had it; "
                       "the next attempt has a new one: %s",
                       reason.text);
    }
    if (status != MR_OK) {
        *ret_error = reason;
    }
    return status;
}

static mr_status export_snapshot(struct mr_pg_copy *copy, struct mr_pg_conn *keeper,
                                 struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"its snapshot", "snn", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(keeper, &shape, &result, ret_error,
                      "SELECT pg_export_snapshot(),"
                      " mod(pg_snapshot_xmax(pg_current_snapshot())::text::numeric, 4294967296)"
                      "::bigint, (extract(epoch FROM now()) * 1000000)::bigint"));
    const char *name = mr_pg_result_value(result, 0, 0);
    int64_t time_us = mr_pg_result_number(result, 0, 2);
    if (strspn(name, "0123456789ABCDEFabcdef-") != strlen(name) ||
        strlen(name) >= sizeof(copy->snapshot) || time_us < -MR_EVENT_TIME_US_MAX ||
        time_us > MR_EVENT_TIME_US_MAX) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server's snapshot has a name or a time that none has");
    }
    memcpy(copy->snapshot, name, strlen(name) + 1);
    copy->view.transaction.xid = (uint32_t)mr_pg_result_number(result, 0, 1);
    copy->view.transaction.commit_time_us = time_us;
    return MR_OK;
}

static void command_done(struct command *command)
{
    free(command->schema);
    free(command->table);
    free(command->filter);
}

static void leave_out_unlisted(struct mr_pg_copy *copy)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < copy->view.table_count; i++) {
        if (copy->tables[i].relation->is_unlisted) {
            command_done(&copy->commands[i]);
        } else {
            copy->tables[kept] = copy->tables[i];
            copy->commands[kept++] = copy->commands[i];
        }
    }
    copy->view.table_count = kept;
}

static mr_status pg_copy_read_all(struct reading *reading, struct mr_pg_conn *keeper,
                                  struct mr_error *ret_error)
{
    struct mr_pg_copy *copy = reading->copy;
    MR_TRY(export_snapshot(copy, keeper, ret_error));
    MR_TRY(read_tables(reading, keeper, ret_error));
    MR_TRY(mr_pg_captured_guess(keeper, reading->catalog->options, 0, ret_error));
    copy->relations = MR_NEW_ARRAY(struct mr_relation *, reading->root_count);
    MR_TRY(mr_pg_columns_read(keeper, reading->catalog->options, 0, &reading->columns, ret_error));
    while (reading->relation_count < reading->root_count) {
        MR_TRY(make_relation(reading, ret_error));
    }
    leave_out_unlisted(copy);
    copy->view.tables = copy->tables;
    return MR_OK;
}

static void reading_free(struct reading *reading)
{
    for (uint32_t i = 0; i < reading->root_count; i++) {
        free(reading->roots[i].schema);
        free(reading->roots[i].table);
    }
    free(reading->roots);
    free(reading);
}

mr_status mr_pg_copy_new(struct mr_pg_conn *keeper, struct mr_pg_catalog *catalog,
                         const struct mr_copy *moment, struct mr_pg_copy **ret_copy,
                         const struct mr_copy **ret_view, struct mr_error *ret_error)
{
    struct mr_pg_copy *copy = MR_NEW(struct mr_pg_copy);
    copy->view = *moment;
    copy->view.database = mr_pg_database(keeper);
    /* No commit record begins there, and all that the stream brings begins after it. */
    copy->view.transaction.commit_lsn = moment->lsn - 1;
    copy->view.transaction.end_lsn = moment->lsn;
    struct reading *reading = MR_NEW(struct reading);
    reading->copy = copy;
    reading->catalog = catalog;
    reading->columns.take = pg_copy_take_columns;
    reading->columns.context = reading;
    mr_status status = mr_pg_copies_rows(catalog->options->copies)
                           ? pg_copy_read_all(reading, keeper, ret_error)
                           : MR_OK;
    reading_free(reading);
    if (status != MR_OK) {
        mr_pg_copy_free(copy);
        return status;
    }
    *ret_copy = copy;
    *ret_view = &copy->view;
    return MR_OK;
}

void mr_pg_copy_free(struct mr_pg_copy *copy)
{
    if (copy == NULL) {
        return;
    }
    for (uint32_t i = 0; i < copy->view.table_count; i++) {
        command_done(&copy->commands[i]);
    }
    for (uint32_t i = 0; i < copy->relation_count; i++) {
        mr_relation_free(&copy->layouts, copy->relations[i]);
    }
    mr_layouts_done(&copy->layouts);
    free(copy->commands);
    free(copy->relations);
    free(copy->tables);
    free(copy);
}

void mr_pg_copy_tell_attached(const struct mr_pg_copy *copy, struct mr_pg_conn *keeper,
                              const struct mr_pg_source_options *options)
{
    uint32_t count = copy->view.table_count;
    MR_FREED char *logged = NULL;
    MR_FREED uint32_t *known = MR_NEW_ARRAY(uint32_t, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        known[i] = copy->tables[i].oid;
    }
    struct mr_attached_wish wish = {.known = known, .known_count = count};
    if (mr_pg_command(keeper, "COMMIT", MR_PG_ANSWER_MS, NULL) == MR_OK) {
        mr_pg_attached_log(keeper, options, &wish, &logged, NULL);
    }
}

struct held {
    uint8_t *bytes;
    struct mr_datum *values;
    uint32_t capacity;
};

struct mr_copy_reader {
    const struct mr_pg_copy *copy;
    const struct mr_pg_source_options *options;
    struct mr_pg_home *home;
    struct mr_pg_conn *conn;
    const struct mr_copy_table *table;
    const struct mr_copy_table *locked;  /* that the transaction reads; NULL: there is none */
    const struct mr_copy_table *checked; /* whose file is the one that the snapshot knows */
    bool has_places;
    struct held held[2]; /* the row handed out last, and room for the next */
    uint32_t last;
};

/* Before each COPY: that of another table may have called what sets them otherwise. */
static mr_status set_for_reading(struct mr_copy_reader *reader, struct mr_error *ret_error)
{
    /* A policy must not hide rows without a word: with row_security off the server refuses instead.
     * Rows come in the order of their places: from the first page on, and through no index. */
    return mr_pg_set_for_rows(
        reader->conn, "",
        "SET LOCAL row_security = off; SET LOCAL synchronize_seqscans = off;"
        " SET LOCAL max_parallel_workers_per_gather = 0;"
        " SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off;"
        " SET LOCAL enable_bitmapscan = off",
        ret_error);
}

mr_status mr_pg_reader_new(const struct mr_pg_copy *copy,
                           const struct mr_pg_source_options *options, struct mr_pg_home *home,
                           int stop_fd, struct mr_copy_reader **ret_reader,
                           struct mr_error *ret_error)
{
    struct mr_copy_reader *reader = MR_NEW(struct mr_copy_reader);
    reader->copy = copy;
    reader->options = options;
    reader->home = home;
    mr_status status = mr_pg_copying_connect_home(options, home, stop_fd, &reader->conn, ret_error);
    if (status != MR_OK) {
        mr_pg_reader_free(reader);
        return status;
    }
    *ret_reader = reader;
    return MR_OK;
}

static bool pg_copy_is_named(const char *text, const char *name)
{
    for (const char *at = text; (at = strstr(at, name)) != NULL; at++) {
        char before = at == text ? ' ' : at[-1];
        if (!isalnum((unsigned char)before) && before != '_' &&
            !isalnum((unsigned char)at[strlen(name)]) && at[strlen(name)] != '_') {
            return true;
        }
    }
    return false;
}

static bool is_view(const struct mr_pg_refusal *refusal)
{
    return strcmp(refusal->sqlstate, "55000") == 0;
}

/* A table, a column or a schema of the command does not exist, or a view has the table's name, in
 * whatever language the server says so. What a function of the condition misses, or reads, it will
 * miss next time, too: that has a context, or, of a function in C that asks the catalog itself
 * (has_table_privilege), no place. */
static bool is_gone(const struct mr_pg_refusal *refusal, const char *text, const char *table)
{
    bool is_missed = mr_is_among("42P01|42703|3F000", mr_slice_of(refusal->sqlstate));
    return !refusal->has_context && ((is_missed && refusal->has_place) ||
                                     (is_view(refusal) && pg_copy_is_named(text, table)));
}

static mr_status pg_copy_fail_table(const struct mr_copy_reader *reader, mr_status status,
                                    struct mr_error *ret_error)
{
    if (status == MR_OK || status == MR_AGAIN || status == MR_END) {
        return status;
    }
    struct mr_error reason = *ret_error;
    const struct mr_pg_refusal *refusal = mr_pg_copy_refusal(reader->conn);
    const struct mr_relation *relation = reader->table->relation;
    const struct command *command = &reader->copy->commands[reader->table - reader->copy->tables];
    /* It was altered or dropped since it was looked at: the next attempt takes it as it is then. */
    if (status == MR_ERR_CONFIG && is_gone(refusal, reason.text, command->table)) {
        status = MR_ERR_TRANSIENT;
    }
    bool ends =
        status == MR_ERR_TRANSIENT && command->where != NULL &&
        mr_pg_copying_is_ended(reader->options, reader->home, reader->conn, reader->table->oid);
    if (ends) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "the rows of table %s.%s can't be copied: the server ended %u connections "
                       "in a row while they read them by its condition in snapshot.where, and "
                       "takes others (57P01); check the condition, and the functions that it calls",
                       relation->schema, relation->table, MR_PG_ENDED_MAX);
    }
    const char *remedy = status == MR_ERR_POISON ? "; leave that row out by snapshot.where" : "";
    if (status == MR_ERR_CONFIG && command->where != NULL && refusal->sqlstate[0] != '\0') {
        remedy = is_view(refusal)
                     ? "; have no function in snapshot.where read a view"
                     : "; check its condition in snapshot.where, and the functions that it calls";
    }
    return mr_fail(ret_error, status, "the rows of table %s.%s can't be copied: %s%s",
                   relation->schema, relation->table, reason.text, remedy);
}

/* A table's lock goes with its transaction (manual, "Explicit Locking"), so each table has one, all
 * in the snapshot that the keeper has. Between two ranges of one table it stays: one that has
 * waited to rewrite the table would have the attempt begin again. */
static mr_status begin_table(struct mr_copy_reader *reader, const struct mr_copy_table *table,
                             struct mr_error *ret_error)
{
    reader->table = table;
    if (reader->locked == table) {
        return MR_OK;
    }
    if (reader->locked != NULL) {
        MR_TRY(mr_pg_command(reader->conn, "COMMIT", MR_PG_ANSWER_MS, ret_error));
    }
    reader->checked = NULL;
    reader->locked = table;
    return mr_pg_begin_in_snapshot(reader->conn, reader->copy->snapshot, ret_error);
}

/* Rows are read by the names that the columns had in the snapshot, and the server looks names up as
 * of now: another column may have one, which rules for columns (columns.mask and others) hide by
 * the name of then. So before the rows the catalog, read as of the snapshot, is compared with what
 * the server looks up (get_attname in utils/cache/lsyscache.c). To name the table locks it until
 * the transaction's end; nothing of it is read. */
static mr_status check_names(struct mr_copy_reader *reader, struct mr_error *ret_error)
{
    const struct mr_copy_table *table = reader->table;
    const struct command *command = &reader->copy->commands[table - reader->copy->tables];
    const struct mr_table_name leaf = {.schema = command->schema, .table = command->table};
    MR_TEXT(sql);
    mr_sql_format(&sql,
                  "COPY (WITH locked AS (SELECT FROM ONLY %T) SELECT EXISTS (SELECT FROM"
                  " pg_attribute a WHERE a.attrelid = %u AND a.attnum > 0 AND NOT a.attisdropped"
                  " AND a.attname IS DISTINCT FROM (pg_identify_object_as_address("
                  "'pg_class'::regclass, a.attrelid, a.attnum)).object_names[3])) TO STDOUT",
                  &leaf, table->oid);
    MR_TRY(mr_pg_copy_start(reader->conn, sql.data, ret_error));
    bool has_changed = true;
    mr_status status = MR_OK;
    for (uint32_t rows = 0; status == MR_OK; rows++) {
        uint8_t *bytes;
        size_t len;
        status = mr_pg_copy_next(reader->conn, &bytes, &len, ret_error);
        if (status == MR_OK) {
            has_changed = rows > 0 || len == 0 || bytes[0] != 'f';
            mr_pg_copy_row_free(bytes);
        }
    }
    MR_TRY(status == MR_END ? MR_OK : status);
    return !has_changed ? MR_OK
                        : mr_fail(ret_error, MR_ERR_TRANSIENT,
                                  "columns of it were renamed or dropped since the snapshot was "
                                  "taken; the next attempt has a new snapshot");
}

mr_status mr_pg_reader_begin(struct mr_copy_reader *reader, uint32_t table,
                             const struct mr_copy_range *range, struct mr_error *ret_error)
{
    MR_ASSERT(table < reader->copy->view.table_count);
    bool is_first = reader->locked != &reader->copy->tables[table];
    MR_TRY(begin_table(reader, &reader->copy->tables[table], ret_error));
    reader->has_places = reader->copy->commands[table].has_places;
    MR_TEXT(sql);
    pg_copy_add_copy(&sql, &reader->copy->commands[table], reader->table->relation, range);
    mr_status status = set_for_reading(reader, ret_error);
    status = MR_THEN(status, is_first ? check_names(reader, ret_error) : MR_OK);
    status = MR_THEN(status, mr_pg_copy_start(reader->conn, sql.data, ret_error));
    return pg_copy_fail_table(reader, status, ret_error);
}

/* "(page,number)" */
static bool pg_copy_take_place(const struct mr_datum *value, uint64_t *ret_place)
{
    uint64_t numbers[2] = {0, 0};
    uint32_t at = 0;
    for (uint32_t i = 1; i + 1 < value->len; i++) {
        if (value->data[i] == ',') {
            at++;
        } else if (at < 2 && value->data[i] >= '0' && value->data[i] <= '9') {
            numbers[at] = numbers[at] * 10 + (value->data[i] - '0');
        } else {
            return false;
        }
    }
    *ret_place = mr_copy_place((uint32_t)numbers[0], (uint16_t)numbers[1]);
    return value->kind == MR_DATUM_TEXT && at == 1;
}

/* Some of ALTER TABLE, and TRUNCATE, are not safe with snapshots: one that is older sees an empty
 * table (the manual's chapter on concurrency control, "Caveats"). And the table's name may have
 * come to stand for another one. After a COPY nobody can do that any more until the transaction's
 * end, for it has the table locked. */
static mr_status pg_copy_check_file(struct mr_copy_reader *reader, struct mr_error *ret_error)
{
    const struct mr_copy_table *table = reader->table;
    const struct command *command = &reader->copy->commands[table - reader->copy->tables];
    const struct mr_table_name leaf = {.schema = command->schema, .table = command->table};
    MR_TEXT(name);
    int64_t now;
    if (reader->checked == table) {
        return MR_OK;
    }
    mr_sql_add_table(&name, &leaf);
    MR_TRY(mr_pg_ask_number(reader->conn, "a table's file", 'n', &now, ret_error,
                            "SELECT CASE to_regclass(%L) WHEN %u::oid::regclass THEN"
                            " coalesce(pg_relation_filenode(%u), 0) ELSE 0 END::bigint",
                            name.data, table->oid, table->oid));
    if (now != table->filenode) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT,
                       "table %s.%s was rewritten or renamed since the snapshot was taken, "
                       "which may not show its rows any more; the next attempt has a new snapshot",
                       table->relation->schema, table->relation->table);
    }
    reader->checked = reader->table;
    return MR_OK;
}

mr_status mr_pg_reader_next(struct mr_copy_reader *reader, struct mr_tuple *ret_row,
                            uint64_t *ret_place, struct mr_error *ret_error)
{
    uint8_t *bytes;
    size_t len;
    mr_status status = mr_pg_copy_next(reader->conn, &bytes, &len, ret_error);
    if (status == MR_END) {
        MR_TRY(pg_copy_check_file(reader, ret_error));
        mr_pg_home_came(reader->home, reader->table->oid);
    }
    if (status != MR_OK) {
        return pg_copy_fail_table(reader, status, ret_error);
    }
    uint32_t count = reader->table->relation->column_count + reader->has_places;
    uint64_t place = 0;
    struct held *held = &reader->held[1 - reader->last];
    mr_pg_copy_row_free(held->bytes);
    held->bytes = bytes;
    if (held->capacity < count) {
        free(held->values);
        held->values = MR_NEW_ARRAY(struct mr_datum, count);
        held->capacity = count;
    }
    if (!mr_copy_text_decode(bytes, len, held->values, count) ||
        (reader->has_places && !pg_copy_take_place(&held->values[0], &place))) {
        return pg_copy_fail_table(reader,
                                  mr_fail(ret_error, MR_ERR_PROTOCOL,
                                          "the server sends a row that is not in COPY's text form"),
                                  ret_error);
    }
    reader->last = 1 - reader->last;
    *ret_row = (struct mr_tuple){.kind = MR_TUPLE_NEW, .values = held->values + reader->has_places};
    *ret_place = place;
    return MR_OK;
}

void mr_pg_reader_rest(struct mr_copy_reader *reader)
{
    mr_pg_close(reader->conn);
    reader->conn = NULL;
}

void mr_pg_reader_free(struct mr_copy_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    for (uint32_t i = 0; i < MR_ARRAY_LEN(reader->held); i++) {
        mr_pg_copy_row_free(reader->held[i].bytes);
        free(reader->held[i].values);
    }
    mr_pg_close(reader->conn);
    free(reader);
}
