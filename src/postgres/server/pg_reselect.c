#include "postgres/server/pg_reselect.h"

#include "base/clock.h"
#include "base/wake.h"
#include "postgres/server/pg_reselect_columns.h"

enum {
    STATEMENTS_MAX = 64, /* prepared ones; then all are given up */
    RESTING_MAX = 64,    /* tables that were refused; more push the oldest out */
    LOCK_MS = 200,       /* for a lock on a table, which ALTER TABLE holds */
    UNSEEN_MS_MAX = 16,
    /* A table or server that was refused is left alone for a second at first, and for twice as long
     * each time. */
    REST_MS = 1000,
    REST_MS_MAX = 30000,
    COMMIT_TIMES_VERSION_MIN = 140000, /* pg_xact_commit_timestamp_origin */
    KEY_MAX = 32,                      /* INDEX_MAX_KEYS of a stock server */
};

/* What was refused, and until when it is not asked. */
struct rest {
    uint32_t oid;
    uint32_t ms;
    int64_t until_ns;
};

struct mr_reselector {
    struct mr_pg_source_options options;
    struct mr_pg_home *home;
    int stop_fd;
    struct mr_pg_conn *conn; /* NULL: not open */
    bool has_commit_times;
    char *statements[STATEMENTS_MAX]; /* their texts without the operators: what they ask for */
    uint32_t statement_count;
    bool is_crowded; /* there was no room for one more */
    struct rest server, tables[RESTING_MAX];
    uint32_t table_count;
    struct mr_reselect_question *questions; /* of the round at hand, */
    uint32_t *asked;                        /* and which of them the calls are of, */
    char *snapshot;                         /* what it sees, */
    size_t bytes;                           /* and what was answered so far */
    bool is_full;
};

void mr_reselect_question_done(struct mr_reselect_question *question)
{
    mr_text_done(&question->names);
    mr_text_done(&question->version);
    mr_text_done(&question->keys);
    mr_text_done(&question->values);
    free(question->parts);
}

struct mr_reselector *mr_reselector_new(const struct mr_pg_source_options *options,
                                        struct mr_pg_home *home, int stop_fd)
{
    struct mr_reselector *reselector = MR_NEW(struct mr_reselector);
    *reselector = (struct mr_reselector){.options = *options, .home = home, .stop_fd = stop_fd};
    return reselector;
}

static void forget_statements(struct mr_reselector *reselector)
{
    for (uint32_t i = 0; i < reselector->statement_count; i++) {
        free(reselector->statements[i]);
    }
    reselector->statement_count = 0;
}

void mr_reselector_rest(struct mr_reselector *reselector)
{
    mr_pg_close(reselector->conn);
    reselector->conn = NULL;
    forget_statements(reselector);
}

void mr_reselector_free(struct mr_reselector *reselector)
{
    if (reselector == NULL) {
        return;
    }
    mr_reselector_rest(reselector);
    free(reselector->snapshot);
    free(reselector);
}

/* ---- what is refused ---- */

static struct rest *pg_reselect_rest_of(struct mr_reselector *reselector, uint32_t oid)
{
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < reselector->table_count; i++) {
        if (reselector->tables[i].oid == oid) {
            return &reselector->tables[i];
        }
        oldest = reselector->tables[i].until_ns < reselector->tables[oldest].until_ns ? i : oldest;
    }
    struct rest *rest = reselector->table_count < RESTING_MAX
                            ? &reselector->tables[reselector->table_count++]
                            : &reselector->tables[oldest];
    *rest = (struct rest){.oid = oid};
    return rest;
}

static bool rests(const struct mr_reselector *reselector, uint32_t oid)
{
    return MR_ANY(rest, reselector->tables, reselector->table_count,
                  rest->oid == oid && rest->until_ns > mr_monotonic_ns());
}

static void table_came(struct mr_reselector *reselector, uint32_t oid)
{
    for (uint32_t i = 0; i < reselector->table_count; i++) {
        if (reselector->tables[i].oid == oid) {
            reselector->tables[i] = reselector->tables[--reselector->table_count];
        }
    }
}

/* True: it was good before, so the log is told. */
static bool begin_rest(struct rest *rest)
{
    bool is_first = rest->ms == 0;
    rest->ms = is_first ? REST_MS : rest->ms < REST_MS_MAX / 2 ? 2 * rest->ms : REST_MS_MAX;
    rest->until_ns = mr_monotonic_ns() + (int64_t)rest->ms * 1000000;
    return is_first;
}

static void table_refused(struct mr_reselector *reselector,
                          const struct mr_reselect_question *question, const struct mr_error *error)
{
    const char *schema = question->names.data;
    if (begin_rest(pg_reselect_rest_of(reselector, question->oid))) {
        mr_log(MR_LOG_WARN, "reselect_refused",
               "values that updates did not touch can't be read again in this table now; its "
               "events have the placeholder until they can (columns.reselect)",
               MR_LOG_STR("schema", schema), MR_LOG_STR("table", schema + strlen(schema) + 1),
               MR_LOG_STR("reason", error->text));
    }
}

static void server_refused(struct mr_reselector *reselector, mr_status status,
                           const struct mr_error *error)
{
    mr_reselector_rest(reselector);
    if (status != MR_AGAIN && begin_rest(&reselector->server)) {
        mr_log(MR_LOG_WARN, "reselect_refused",
               "the connection that reads values again is lost or can't be made; events have the "
               "placeholder until it can (columns.reselect)",
               MR_LOG_STR("reason", error->text));
    }
}

/* The server's words are about the table, and not about itself: a shutdown, a lost connection, no
 * memory. */
static bool is_of_table(const struct mr_error *error)
{
    return error->sqlstate[0] != '\0' && !mr_error_is(error, "57P*|08*|53*");
}

static void pg_reselect_answered(struct mr_reselect_question *question, enum mr_reselected outcome)
{
    question->is_answered = true;
    question->outcome = outcome;
}

/* ---- the connection ---- */

/* As for chunks (copy/pg_chunks.c): a policy must not hide rows without a word, and each row comes
 * by its key's index. */
static mr_status pg_reselect_set_settings(struct mr_reselector *reselector, const char *before,
                                          struct mr_error *ret_error)
{
    MR_TEXT(settings);
    mr_text_format(
        &settings,
        "SET row_security = off; SET enable_seqscan = off;"
        " SET plan_cache_mode = force_generic_plan;"
        " SET max_parallel_workers_per_gather = 0; SET default_transaction_read_only = on;"
        " SET default_transaction_isolation = 'read committed';"
        " SET lock_timeout = %d; SET statement_timeout = %u",
        LOCK_MS, reselector->options.reselect.wait_ms);
    return mr_pg_set_for_rows(reselector->conn, before, settings.data, ret_error);
}

static mr_status open_connection(struct mr_reselector *reselector, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"its settings", "b", 1, 1};
    const struct mr_pg_result *result;
    if (reselector->conn != NULL) {
        return MR_OK;
    }
    MR_TRY(mr_pg_copying_connect_home(&reselector->options, reselector->home, reselector->stop_fd,
                                      &reselector->conn, ret_error));
    MR_TRY(mr_pg_askf(reselector->conn, &shape, &result, ret_error,
                      "SELECT current_setting('track_commit_timestamp')::bool"));
    reselector->has_commit_times =
        mr_pg_result_true(result, 0, 0) &&
        mr_pg_server_version(reselector->conn) >= COMMIT_TIMES_VERSION_MIN;
    return pg_reselect_set_settings(reselector, "", ret_error);
}

/* ---- statements ---- */

/* The columns of the key, each with the operator that its unique index takes for equal: with an
 * empty search_path a bare "=" is not that of an extension's type. No row: the replica identity is
 * another one by now. */
static mr_status ask_key(struct mr_reselector *reselector,
                         const struct mr_reselect_question *question,
                         const struct mr_pg_result **ret_result, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"a key", "siis", 0, KEY_MAX};
    const char *schema = question->names.data;
    return mr_pg_askf(
        reselector->conn, &shape, ret_result, ret_error,
        "SELECT c.relkind::text, a.attname, n.nspname, o.oprname FROM pg_class c"
        " JOIN pg_namespace s ON s.oid = c.relnamespace JOIN pg_index i ON i.indrelid = c.oid"
        " AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL"
        " AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END"
        " CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) p(at)"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[p.at]"
        " JOIN pg_opclass k ON k.oid = i.indclass[p.at]"
        " JOIN pg_am m ON m.oid = k.opcmethod AND m.amname = 'btree'"
        " JOIN pg_amop e ON e.amopfamily = k.opcfamily AND e.amoplefttype = k.opcintype"
        " AND e.amoprighttype = k.opcintype AND e.amopstrategy = 3"
        " JOIN pg_operator o ON o.oid = e.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace"
        " WHERE c.oid = %u AND s.nspname = %L AND c.relname = %L AND c.relkind IN ('r', 'p')",
        question->oid, schema, schema + strlen(schema) + 1);
}

static void pg_reselect_add_value(struct mr_text *sql, const char *column, uint32_t bytes_max)
{
    mr_sql_format(sql, ", CASE WHEN octet_length(format('%%s', t.%I)) <= %u THEN t.%I END", column,
                  bytes_max, column);
}

/* A row without its children's, unless they are partitions. xmin and commit time come first, the
 * values then. */
static mr_status make_statement(struct mr_reselector *reselector,
                                const struct mr_reselect_question *question, struct mr_text *sql,
                                struct mr_error *ret_error)
{
    const struct mr_pg_result *key;
    MR_TRY(ask_key(reselector, question, &key, ret_error));
    const char *schema = question->names.data;
    const char *table = mr_reselect_next_name(schema);
    const char *names = mr_reselect_next_name(table);
    bool is_root = mr_pg_result_rows(key) > 0 && mr_pg_result_value(key, 0, 0)[0] == 'p';
    mr_text_format(sql, "SELECT t.tableoid, t.xmin, ");
    mr_text_string(
        sql, !reselector->has_commit_times
                 ? "false AND $1::xid IS NULL AND $2::bigint IS NULL"
                 : "CASE WHEN t.xmin <> $1::xid THEN (SELECT c.roident = 0 AND c.timestamp ="
                   " timestamptz '2000-01-01 00:00:00+00' + $2::bigint * interval '1 microsecond'"
                   " FROM pg_xact_commit_timestamp_origin(t.xmin) c) END");
    const char *name = names;
    for (uint32_t i = 0; i < question->key_count; i++) {
        name = mr_reselect_next_name(name);
    }
    for (uint32_t i = 0; i < question->column_count; i++, name = mr_reselect_next_name(name)) {
        pg_reselect_add_value(sql, name, MR_RESELECT_VALUES_MAX / question->column_count);
    }
    mr_sql_format(sql, " FROM %s%I.%I AS t", is_root ? "" : "ONLY ", schema, table);
    uint32_t found = 0;
    name = names;
    for (uint32_t i = 0; i < question->key_count; i++, name = mr_reselect_next_name(name)) {
        for (uint32_t k = 0; k < mr_pg_result_rows(key); k++) {
            if (strcmp(mr_pg_result_value(key, k, 1), name) == 0) {
                mr_sql_format(sql, "%s t.%I OPERATOR(%I.%s) $%u", i == 0 ? " WHERE" : " AND", name,
                              mr_pg_result_value(key, k, 2), mr_pg_result_value(key, k, 3), i + 3);
                found++;
            }
        }
    }
    mr_text_string(sql, " LIMIT 2");
    return found == question->key_count && found == mr_pg_result_rows(key)
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG,
                         "it was dropped or renamed, or has another replica identity by now");
}

/* What tells the statement from others. */
static char *statement_text(const struct mr_reselect_question *question)
{
    MR_FREED char *names = MR_ALLOC(question->names.len + 1);
    memcpy(names, question->names.data, question->names.len + 1);
    for (size_t i = 0; i + 1 < question->names.len; i++) {
        names[i] = names[i] == '\0' ? '\n' : names[i];
    }
    return mr_formatted("%u %u %u %s", question->oid, question->key_count, question->column_count,
                        names);
}

static void statement_name(uint32_t number, char ret[16])
{
    snprintf(ret, 16, "s%u", number);
}

/* MR_FULL: there are too many, and all are forgotten before the next round. */
static mr_status find_statement(struct mr_reselector *reselector,
                                const struct mr_reselect_question *question, uint32_t *ret_number,
                                struct mr_error *ret_error)
{
    char *text = statement_text(question);
    for (uint32_t i = 0; i < reselector->statement_count; i++) {
        if (strcmp(reselector->statements[i], text) == 0) {
            free(text);
            *ret_number = i;
            return MR_OK;
        }
    }
    if (reselector->statement_count == STATEMENTS_MAX) {
        free(text);
        reselector->is_crowded = true;
        return MR_FULL;
    }
    MR_TEXT(sql);
    mr_status status = make_statement(reselector, question, &sql, ret_error);
    char name[16];
    statement_name(reselector->statement_count, name);
    status = MR_THEN(status, mr_pg_prepare(reselector->conn, name, sql.data, ret_error));
    if (status != MR_OK) {
        free(text);
        return status;
    }
    reselector->statements[reselector->statement_count] = text;
    *ret_number = reselector->statement_count++;
    return MR_OK;
}

/* ---- a round ---- */

/* The calls of a round: BEGIN, the snapshot, one for each question. */
enum { CALL_BEGIN, CALL_SNAPSHOT, CALLS_BEFORE };

static void keep_values(struct mr_reselector *reselector, struct mr_reselect_question *question,
                        const mr_slice *values)
{
    question->values.len = 0;
    for (uint32_t i = 0; i < question->column_count; i++) {
        struct mr_reselect_part *part = &question->parts[i];
        part->at = SIZE_MAX;
        if (values[i].data != NULL) {
            part->at = question->values.len;
            part->len = values[i].len;
            mr_text_add(&question->values, values[i].data, values[i].len);
        }
    }
    reselector->bytes += question->values.len;
}

/* Columns of an answer, before the values. */
enum { ROW_TABLE, ROW_XMIN, ROW_SAME_TIME, ROW_VALUES };

static uint32_t pg_reselect_number_of(mr_slice text)
{
    return (uint32_t)strtoul((const char *)text.data, NULL, 10);
}

static void pg_reselect_take_answer(void *context, uint32_t call,
                                    const struct mr_pg_call_answer *answer)
{
    struct mr_reselector *reselector = context;
    if (call == CALL_SNAPSHOT && answer->rows == 1) {
        free(reselector->snapshot);
        reselector->snapshot =
            MR_STRNDUP((const char *)answer->first[0].data, answer->first[0].len);
    }
    if (call < CALLS_BEFORE || reselector->is_full) {
        return;
    }
    struct mr_reselect_question *question =
        &reselector->questions[reselector->asked[call - CALLS_BEFORE]];
    if (answer->rows != 1 || answer->columns != ROW_VALUES + question->column_count) {
        question->outcome = MR_RESELECTED_GONE;
        question->leaf = 0;
    } else {
        const mr_slice *row = answer->first;
        bool is_same = pg_reselect_number_of(row[ROW_XMIN]) == question->xid ||
                       (!question->has_origin && row[ROW_SAME_TIME].data != NULL &&
                        row[ROW_SAME_TIME].data[0] == 't');
        question->outcome = is_same ? MR_RESELECTED_EXACT : MR_RESELECTED_LATER;
        question->leaf = pg_reselect_number_of(row[ROW_TABLE]);
        keep_values(reselector, question, row + ROW_VALUES);
    }
    question->is_read = true;
    reselector->is_full = reselector->bytes >= MR_RESELECT_ROUND_BYTES;
}

/* Whether the snapshot "xmin:xmax:xip,…" (pg_snapshot; of top-level transactions) sees the end of a
 * transaction, of whose number the upper half is not known: it is the last such number below the
 * snapshot's end. A standby shows a transaction as ended before it sends it, and its list is empty
 * (pg_chunks.c, of_standby). */
static bool pg_reselect_sees(const char *snapshot, uint32_t xid)
{
    char *at;
    (void)strtoull(snapshot, &at, 10);
    uint64_t next = *at == ':' ? strtoull(at + 1, &at, 10) : 0;
    if (*at != ':' || (int32_t)(xid - (uint32_t)next) >= 0) {
        return false;
    }
    while (*at != '\0' && at[1] != '\0') {
        if ((uint32_t)strtoull(at + 1, &at, 10) == xid) {
            return false;
        }
    }
    return true;
}

/* Those that were read are answered, but for the transactions that the snapshot does not see; the
 * number of these. */
static uint32_t pg_reselect_judge(struct mr_reselector *reselector, uint32_t count)
{
    uint32_t unseen = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct mr_reselect_question *question = &reselector->questions[reselector->asked[i]];
        bool is_seen = pg_reselect_sees(reselector->snapshot, question->xid);
        unseen += !is_seen;
        if (question->is_read && is_seen) {
            bool is_large = false;
            for (uint32_t k = 0;
                 question->outcome < MR_RESELECTED_GONE && k < question->column_count; k++) {
                is_large = is_large || question->parts[k].at == SIZE_MAX;
            }
            pg_reselect_answered(question, is_large ? MR_RESELECTED_LARGE : question->outcome);
            table_came(reselector, question->oid);
        }
    }
    return unseen;
}

static int64_t left_ms(int64_t deadline_ns)
{
    return (deadline_ns - mr_monotonic_ns()) / 1000000;
}

/* Asks those that are not answered, of tables that are not left alone. `*ret_unseen`: how many have
 * to be asked again later. */
static mr_status ask_round(struct mr_reselector *reselector, uint32_t count, int64_t deadline_ns,
                           uint32_t *ret_unseen, struct mr_error *ret_error)
{
    MR_FREED struct mr_pg_call *calls = MR_NEW_ARRAY(struct mr_pg_call, CALLS_BEFORE + count);
    MR_FREED const char **values = MR_NEW_ARRAY(const char *, count *(KEY_MAX + 2));
    MR_FREED char(*numbers)[2][24] = MR_ALLOC(count * sizeof(*numbers));
    MR_FREED char(*names)[16] = MR_ALLOC(count * sizeof(*names));
    MR_FREED uint32_t *asked = MR_NEW_ARRAY(uint32_t, count);
    uint32_t asked_count = 0;
    if (reselector->is_crowded) {
        MR_TRY(mr_pg_command(reselector->conn, "DEALLOCATE ALL", MR_PG_ANSWER_MS, ret_error));
        forget_statements(reselector);
        reselector->is_crowded = false;
    }
    calls[CALL_BEGIN].command = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";
    calls[CALL_SNAPSHOT].command = "SELECT txid_current_snapshot()";
    for (uint32_t i = 0; i < count && !reselector->is_crowded; i++) {
        struct mr_reselect_question *question = &reselector->questions[i];
        uint32_t number = 0;
        if (question->is_answered) {
            continue;
        }
        if (rests(reselector, question->oid) || question->key_count > KEY_MAX) {
            pg_reselect_answered(question, MR_RESELECTED_PASSED);
            continue;
        }
        mr_status status = find_statement(reselector, question, &number, ret_error);
        if (status == MR_FULL) {
            break;
        }
        if (status != MR_OK) {
            MR_TRY(status == MR_ERR_CONFIG || is_of_table(ret_error) ? MR_OK : status);
            table_refused(reselector, question, ret_error);
            pg_reselect_answered(question, MR_RESELECTED_REFUSED);
            continue;
        }
        question->is_read = false;
        uint32_t n = asked_count++;
        asked[n] = i;
        statement_name(number, names[n]);
        snprintf(numbers[n][0], sizeof(numbers[n][0]), "%u", question->xid);
        snprintf(numbers[n][1], sizeof(numbers[n][1]), "%lld", (long long)question->commit_us);
        const char **row = &values[n * (KEY_MAX + 2)];
        row[0] = numbers[n][0];
        row[1] = numbers[n][1];
        const char *key = question->keys.data;
        for (uint32_t k = 0; k < question->key_count; k++, key = mr_reselect_next_name(key)) {
            row[2 + k] = key;
        }
        calls[CALLS_BEFORE + n] = (struct mr_pg_call){
            .statement = names[n], .values = row, .value_count = question->key_count + 2};
    }
    *ret_unseen = reselector->is_crowded;
    if (asked_count == 0) {
        return MR_OK;
    }
    uint32_t failed;
    int64_t limit_ms = left_ms(deadline_ns) + reselector->options.reselect.wait_ms;
    reselector->asked = asked;
    reselector->is_full = false;
    free(reselector->snapshot);
    reselector->snapshot = NULL;
    mr_status status = mr_pg_pipeline(reselector->conn, calls, CALLS_BEFORE + asked_count,
                                      (uint32_t)(limit_ms > 0 ? limit_ms : 1),
                                      pg_reselect_take_answer, reselector, &failed, ret_error);
    if (status != MR_OK && status != MR_AGAIN && failed >= CALLS_BEFORE &&
        failed < CALLS_BEFORE + asked_count && is_of_table(ret_error)) {
        struct mr_reselect_question *question =
            &reselector->questions[asked[failed - CALLS_BEFORE]];
        struct mr_error reason = *ret_error;
        table_refused(reselector, question, &reason);
        pg_reselect_answered(question, MR_RESELECTED_REFUSED);
        *ret_unseen = 1; /* the others are asked again */
        return pg_reselect_set_settings(reselector, "ROLLBACK; ", ret_error);
    }
    MR_TRY(status);
    if (reselector->snapshot == NULL) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL, "the server does not tell its snapshot");
    }
    MR_TRY(mr_reselect_check_columns(reselector->conn, reselector->options.slot,
                                     reselector->questions, asked, asked_count, ret_error));
    *ret_unseen += pg_reselect_judge(reselector, asked_count);
    return pg_reselect_set_settings(reselector, "COMMIT; ", ret_error);
}

void mr_reselector_answer(struct mr_reselector *reselector, struct mr_reselect_question *questions,
                          uint32_t count, int64_t deadline_ns)
{
    struct mr_error error = {0};
    reselector->questions = questions;
    reselector->bytes = 0;
    uint32_t unseen = 1;
    mr_status status = MR_OK;
    if (reselector->server.until_ns > mr_monotonic_ns()) {
        status = MR_FULL;
    }
    for (int wait_ms = 1; status == MR_OK && unseen > 0; wait_ms *= 2) {
        status = open_connection(reselector, &error);
        status = MR_THEN(status, ask_round(reselector, count, deadline_ns, &unseen, &error));
        if (status != MR_OK || unseen == 0 || reselector->is_full || left_ms(deadline_ns) <= 0) {
            break;
        }
        wait_ms = wait_ms > UNSEEN_MS_MAX ? UNSEEN_MS_MAX : wait_ms;
        status = mr_wait_readable(reselector->stop_fd, wait_ms) ? MR_AGAIN : MR_OK;
    }
    if (status == MR_OK) {
        reselector->server.ms = 0;
    } else if (status != MR_FULL) {
        server_refused(reselector, status, &error);
    }
    for (uint32_t i = 0; i < count && !(status == MR_OK && reselector->is_full); i++) {
        if (!questions[i].is_answered) {
            pg_reselect_answered(&questions[i], status == MR_FULL ? MR_RESELECTED_PASSED
                                                : status == MR_OK ? MR_RESELECTED_LATE
                                                                  : MR_RESELECTED_REFUSED);
        }
    }
}
