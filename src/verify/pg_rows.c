
#include "verify/pg_side.h"

static mr_status begin_on_primary(struct mr_pg_conn *conn, struct mr_cut *ret_cut,
                                  struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"a snapshot", "s", 1, 1};
    const struct mr_pg_result *result;
    int64_t before;
    MR_TRY(mr_pg_ask_number(conn, "the end of the WAL", 'l', &before, ret_error,
                            "SELECT pg_current_wal_insert_lsn()"));
    MR_TRY(mr_pg_command(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", MR_PG_ANSWER_MS,
                         ret_error));
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error, "SELECT pg_current_snapshot()::text"));
    if (!mr_cut_parse(mr_pg_result_value(result, 0, 0), ret_cut)) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server was asked for a snapshot and answers with what is none");
    }
    ret_cut->before = (mr_lsn)before;
    return MR_OK;
}

/* A standby's snapshot does not tell which transactions it sees (procarray.c, GetSnapshotData: xip
 * stays empty), but the place does that was replayed when it was taken, if no record was being
 * replayed then.
 *
 * What counted as replayed before the snapshot is seen: a commit is shown first, and counts then
 * (xact_redo_commit in xact.c; ApplyWalRecord in xlogrecovery.c sets the place after the redo).
 * While a WAL receiver runs, records are read only of what that has received
 * (WaitForWALToBecomeAvailable in xlogrecovery.c: RecPtr < flushedUpto). So where after the
 * snapshot nothing more was received than was replayed before it, no other record was begun. Nor
 * one from an archive: before the receiver is started that is replayed, which the last look sees.
 * One string, because all of it must fit between two records; CASE, because it fixes the order
 * (manual, "Expression Evaluation Rules"). */
static mr_status begin_on_standby(struct mr_pg_conn *conn, struct mr_cut *ret_cut,
                                  bool *ret_is_known, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"what is replayed", "L", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_command(
        conn,
        "BEGIN; SELECT set_config('millrace.replayed', pg_last_wal_replay_lsn()::text, false);"
        " COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
        " SELECT set_config('millrace.replayed', CASE WHEN EXISTS (SELECT FROM "
        "pg_stat_wal_receiver)"
        " THEN CASE WHEN pg_last_wal_receive_lsn()::text = current_setting('millrace.replayed')"
        " THEN CASE WHEN pg_last_wal_replay_lsn()::text = current_setting('millrace.replayed')"
        " THEN current_setting('millrace.replayed') END END END, false)",
        MR_PG_ANSWER_MS, ret_error));
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT nullif(current_setting('millrace.replayed'), '')::pg_lsn"));
    *ret_is_known = mr_pg_result_value(result, 0, 0) != NULL;
    mr_lsn replayed = *ret_is_known ? mr_pg_result_lsn(result, 0, 0) : 0;
    *ret_cut = (struct mr_cut){.before = replayed, .after = replayed, .replayed = replayed};
    return MR_OK;
}

mr_status mr_verify_begin(struct mr_pg_conn *conn, struct mr_cut *ret_cut, bool *ret_is_known,
                          struct mr_error *ret_error)
{
    *ret_is_known = true;
    MR_TRY(mr_pg_is_standby(conn) ? begin_on_standby(conn, ret_cut, ret_is_known, ret_error)
                                  : begin_on_primary(conn, ret_cut, ret_error));
    /* A policy must not hide rows without a word: with row_security off the server refuses
     * instead. */
    return mr_pg_set_for_rows(conn, "",
                              "SET LOCAL row_security = off;"
                              " SET LOCAL max_parallel_workers_per_gather = 0",
                              ret_error);
}

/* A field of COPY's text format (manual, COPY, "Text Format"), in place: `*at` is then after its
 * tab. False: it ends in a backslash. */
static bool pg_rows_take_field(uint8_t **at, const uint8_t *end, mr_slice *ret)
{
    size_t plain = (size_t)(mr_scan_to(*at, end, '\t', '\\') - *at);
    if (*at + plain == end || (*at)[plain] == '\t') { /* most often */
        *ret = (mr_slice){.data = *at, .len = plain};
        *at += plain + 1;
        return true;
    }
    static const char letters[] = "bfnrtv";
    static const char meant[] = "\b\f\n\r\t\v";
    uint8_t *from = *at;
    uint8_t *to = *at;
    bool is_null = end - from >= 2 && from[0] == '\\' && from[1] == 'N';
    for (; from < end && *from != '\t'; from++) {
        uint8_t byte = *from;
        if (byte == '\\') {
            if (++from == end) {
                return false;
            }
            const char *letter = *from == '\0' ? NULL : strchr(letters, *from);
            byte = letter == NULL ? *from : (uint8_t)meant[letter - letters];
        }
        *to++ = byte;
    }
    *ret = is_null ? (mr_slice){0} : (mr_slice){.data = *at, .len = (size_t)(to - *at)};
    *at = from + 1;
    return true;
}

static bool take_apart(uint8_t *row, size_t len, mr_slice *values, uint32_t count)
{
    uint8_t *at = row;
    uint8_t *end = row + len - (len > 0 && row[len - 1] == '\n');
    for (uint32_t i = 0; i < count; i++) {
        if (at > end || !pg_rows_take_field(&at, end, &values[i])) {
            return false;
        }
    }
    return at == end + 1;
}

static void add_key_columns(struct mr_text *sql, const struct mr_verify_table *table)
{
    for (uint32_t i = 0; i < table->key_count; i++) {
        mr_sql_format(sql, "%smr_row.%I", i == 0 ? "" : ", ", table->columns[table->key[i]].name);
    }
}

char *mr_verify_after(const struct mr_verify_table *table, const mr_slice *values)
{
    struct mr_text sql = {0};
    mr_text_string(&sql, "(");
    add_key_columns(&sql, table);
    for (uint32_t i = 0; i < table->key_count; i++) {
        mr_slice value = values[table->has_key_twice ? table->column_count + i : table->key[i]];
        char *text = MR_STRNDUP((const char *)value.data, value.len);
        mr_sql_format(&sql, "%s%L", i == 0 ? ") > (" : ", ", text);
        free(text);
    }
    mr_text_string(&sql, ")");
    return sql.data;
}

/* What a column is asked for with. Nothing in an expression is called as the row is. */
static void pg_rows_add_value(struct mr_text *sql, const struct mr_verify_column *column)
{
    MR_TEXT(name);
    mr_sql_format(&name, "mr_row.%I", column->name);
    mr_verify_form_sql(&column->form, name.data, sql);
}

static bool is_asked(const struct mr_verify_table *table, uint32_t column)
{
    return mr_verify_is_compared(&table->columns[column]) ||
           MR_ANY(key, table->key, table->key_count, *key == column);
}

static void pg_rows_add_columns(struct mr_text *sql, const struct mr_verify_table *table)
{
    for (uint32_t i = 0; i < table->column_count; i++) {
        mr_text_string(sql, ", ");
        if (is_asked(table, i)) {
            pg_rows_add_value(sql, &table->columns[i]);
        } else {
            mr_text_string(sql, "NULL");
        }
    }
    if (table->has_key_twice) {
        mr_text_string(sql, ", ");
        add_key_columns(sql, table);
    }
}

/* A column's name before its value. */
static void add_member(struct mr_text *sql, const struct mr_verify_column *column, bool is_first)
{
    mr_sql_format(sql, "%s to_json(%L::text)::text || ':' || ",
                  is_first ? ", '{' ||" : " || ',' ||", column->name);
}

/* The key as JSON, in which what is a text in events is one, too; and once more with the server's
 * texts. */
static void add_key_object(struct mr_text *sql, const struct mr_verify_table *table)
{
    for (uint32_t i = 0; i < table->key_count; i++) {
        const struct mr_verify_column *column = &table->columns[table->key[i]];
        bool is_text = column->form.leaf == MR_LEAF_TEXT && column->form.sql == NULL;
        add_member(sql, column, i == 0);
        mr_sql_format(sql, "coalesce(to_json(%s", is_text ? "format('%s', " : "(");
        pg_rows_add_value(sql, column);
        mr_sql_format(sql, "))::text, json_build_object('text', mr_row.%I::text)::text)",
                      column->name);
    }
    mr_text_string(sql, " || '}'");
    for (uint32_t i = 0; i < table->key_count; i++) {
        const struct mr_verify_column *column = &table->columns[table->key[i]];
        add_member(sql, column, i == 0);
        mr_sql_format(sql,
                      "CASE WHEN mr_row.%I IS NULL THEN 'null' ELSE to_json(format('%%s', "
                      "mr_row.%I))::text END",
                      column->name, column->name);
    }
    mr_text_string(sql, " || '}'");
}

static mr_status start_rows(struct mr_pg_conn *conn, const struct mr_verify_listed *listed,
                            const struct mr_verify_table *table,
                            const struct mr_verify_range *range, struct mr_error *ret_error)
{
    const struct mr_table_name name = {.schema = listed->schema, .table = listed->table};
    MR_TEXT(sql);
    mr_text_string(&sql, "COPY (SELECT xmin");
    (range->keys_alone ? add_key_object : pg_rows_add_columns)(&sql, table);
    mr_sql_format(&sql, " FROM %s%T mr_row WHERE %s", listed->kind == 'p' ? "" : "ONLY ", &name,
                  listed->filter == NULL ? "true" : listed->filter);
    if (range->after != NULL) {
        mr_sql_format(&sql, " AND %s", range->after);
    }
    if (range->rows_max > 0) {
        mr_text_string(&sql, " ORDER BY ");
        add_key_columns(&sql, table);
        mr_sql_format(&sql, " LIMIT %u", range->rows_max);
    }
    mr_text_string(&sql, ") TO STDOUT");
    return mr_pg_copy_start(conn, sql.data, ret_error);
}

static mr_status pg_rows_take_row(const struct mr_verify_listed *listed, uint32_t count,
                                  uint8_t *row, size_t len, mr_verify_row_fn take, void *context,
                                  struct mr_error *ret_error)
{
    mr_slice values[2 * MR_COLUMNS_MAX + 1];
    uint64_t xid;
    return take_apart(row, len, values, count + 1) && mr_scan_digits(values[0], 10, &xid)
               ? take(context, (uint32_t)xid, values + 1, ret_error)
               : mr_fail(ret_error, MR_ERR_PROTOCOL,
                         "the server was asked for the rows of %s.%s, and a row of its answer "
                         "has not the columns",
                         listed->schema, listed->table);
}

mr_status mr_verify_rows(struct mr_pg_conn *conn, const struct mr_verify_listed *listed,
                         const struct mr_verify_table *table, const struct mr_verify_range *range,
                         mr_verify_row_fn take, void *context, struct mr_error *ret_error)
{
    uint32_t more = table->has_key_twice ? table->key_count : 0;
    uint32_t count = range->keys_alone ? 2 : table->column_count + more;
    mr_status status = start_rows(conn, listed, table, range, ret_error);
    while (status == MR_OK) {
        uint8_t *row;
        size_t len;
        status = mr_pg_copy_next(conn, &row, &len, ret_error);
        if (status == MR_OK) {
            status = pg_rows_take_row(listed, count, row, len, take, context, ret_error);
            mr_pg_copy_row_free(row);
        }
    }
    return status == MR_END ? MR_OK : status;
}

mr_status mr_verify_is_void(struct mr_pg_conn *conn, uint32_t oid, bool *ret_is_void,
                            struct mr_error *ret_error)
{
    int64_t is_void;
    MR_TRY(mr_pg_ask_number(
        conn, "whether the table was rewritten", 'b', &is_void, ret_error,
        "SELECT EXISTS (SELECT FROM pg_class c WHERE c.relkind IN ('r', 'm') AND (c.oid = %u OR"
        " c.oid IN (SELECT relid FROM pg_partition_tree(%u))) AND"
        " c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid))"
        " OR NOT EXISTS (SELECT FROM pg_class WHERE oid = %u)",
        oid, oid, oid));
    *ret_is_void = is_void != 0;
    return MR_OK;
}

mr_status mr_verify_end(struct mr_pg_conn *conn, struct mr_cut *cut, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"a place in the WAL", "ln", 1, 1};
    const struct mr_pg_result *result;
    /* A transaction that writes something, so that the WAL is flushed to there, and the stream of a
     * quiet server passes it. A synchronous standby, which may be away, is not waited for. Of a
     * standby the place is one that its stream comes to. */
    if (cut->replayed != 0) {
        return mr_pg_command(conn, "COMMIT", MR_PG_ANSWER_MS, ret_error);
    }
    MR_TRY(
        mr_pg_command(conn, "COMMIT; SET synchronous_commit = local", MR_PG_ANSWER_MS, ret_error));
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT pg_logical_emit_message(true, 'millrace-verify', ''),"
                      " pg_current_xact_id()::text::bigint"));
    cut->after = mr_pg_result_lsn(result, 0, 0);
    cut->next = (uint64_t)mr_pg_result_number(result, 0, 1);
    return MR_OK;
}

mr_status mr_verify_confirmed(struct mr_pg_conn *conn, const char *slot, mr_lsn *ret_confirmed,
                              bool *ret_is_active, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the slot", "Lb", 0, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT confirmed_flush_lsn, active FROM pg_replication_slots"
                      " WHERE slot_name = %L AND database = current_database()",
                      slot));
    bool is_there = mr_pg_result_rows(result) == 1;
    *ret_confirmed = is_there ? mr_pg_result_lsn(result, 0, 0) : 0;
    *ret_is_active = is_there && mr_pg_result_true(result, 0, 1);
    return MR_OK;
}
