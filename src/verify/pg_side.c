#include "verify/pg_side.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHAPED_VERSION_MIN = 150000, /* publications have columns and conditions */
    GENERATED_VERSION_MIN =
        180000, /* … and generated columns; before, the view lists them nevertheless */
};

enum listed {
    LISTED_OID,
    LISTED_SCHEMA,
    LISTED_TABLE,
    LISTED_KIND,
    LISTED_IS_FULL,
    LISTED_ROWS,
    LISTED_IS_PUBLISHED,
    LISTED_LACKS,
    LISTED_FILTER,
    LISTED_AS_SCHEMA, /* its own name or that of a table that it is a partition of, a row for each */
    LISTED_AS_TABLE,
};

/* All tables that may be streamed. One that has partitions is none itself unless it is published. */
static mr_status ask_tables(struct mr_pg_conn *conn, const char *publication,
                            const struct mr_pg_result **ret_result, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the published tables", "niisbnbbSii", 0, UINT32_MAX};
    return mr_pg_askf(
        conn, &shape, ret_result, ret_error,
        "WITH sent AS MATERIALIZED (SELECT c.oid, %s AS filter FROM pg_publication_tables t"
        "  JOIN pg_namespace n ON n.nspname = t.schemaname"
        "  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename"
        "  WHERE t.pubname = %L)"
        " SELECT c.oid::bigint, n.nspname, c.relname, c.relkind, c.relreplident = 'f',"
        " greatest(c.reltuples, 0)::bigint, s.oid IS NOT NULL,"
        " EXISTS (SELECT FROM pg_publication p WHERE p.pubname = %L"
        "  AND NOT (p.pubinsert AND p.pubupdate AND p.pubdelete)), s.filter, m.nspname, r.relname"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN sent s ON s.oid = c.oid"
        " CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_ancestors(c.oid)) a"
        " JOIN pg_class r ON r.oid = a.oid JOIN pg_namespace m ON m.oid = r.relnamespace"
        " WHERE s.oid IS NOT NULL OR (c.relkind = 'r' AND c.relpersistence = 'p' AND"
        "  c.oid >= 16384 AND NOT EXISTS (SELECT FROM pg_partition_ancestors(c.oid) u"
        "  WHERE u.relid IN (SELECT oid FROM sent))) ORDER BY 2, 3",
        mr_pg_server_version(conn) >= SHAPED_VERSION_MIN ? "t.rowfilter" : "NULL::text",
        publication, publication);
}

static mr_slice text_at(const struct mr_pg_result *result, uint32_t row, enum listed column)
{
    return mr_slice_of(mr_pg_result_value(result, row, column));
}

mr_status mr_verify_list(struct mr_pg_conn *conn, const struct mr_config *config,
                         struct mr_verify_list *ret_list, struct mr_error *ret_error)
{
    const struct mr_pg_source_options *source = &config->source;
    const struct mr_pg_result *result;
    MR_TRY(ask_tables(conn, source->publication, &result, ret_error));
    uint32_t rows = mr_pg_result_rows(result);
    struct mr_verify_list list = {.tables = MR_NEW_ARRAY(struct mr_verify_listed, rows + 1)};
    for (uint32_t i = 0; i < rows; i++) {
        mr_slice schema = text_at(result, i, LISTED_SCHEMA);
        mr_slice table = text_at(result, i, LISTED_TABLE);
        uint32_t oid = (uint32_t)mr_pg_result_number(result, i, LISTED_OID);
        bool is_known = list.count > 0 && list.tables[list.count - 1].oid == oid;
        if (is_known || mr_pg_table_is_signal(source, schema, table) ||
            !mr_pg_table_listed(source, text_at(result, i, LISTED_AS_SCHEMA),
                                text_at(result, i, LISTED_AS_TABLE))) {
            continue;
        }
        const char *filter = mr_pg_result_value(result, i, LISTED_FILTER);
        list.tables[list.count++] = (struct mr_verify_listed){
            .schema = MR_STRNDUP((const char *)schema.data, schema.len),
            .table = MR_STRNDUP((const char *)table.data, table.len),
            .filter = filter == NULL ? NULL : MR_STRDUP(filter),
            .oid = oid,
            .rows = (uint64_t)mr_pg_result_number(result, i, LISTED_ROWS),
            .kind = mr_pg_result_value(result, i, LISTED_KIND)[0],
            .is_full = mr_pg_result_true(result, i, LISTED_IS_FULL),
            .is_published = mr_pg_result_true(result, i, LISTED_IS_PUBLISHED),
            .lacks_operations = mr_pg_result_true(result, i, LISTED_LACKS)};
    }
    *ret_list = list;
    return MR_OK;
}

void mr_verify_list_free(struct mr_verify_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->tables[i].schema);
        free(list->tables[i].table);
        free(list->tables[i].filter);
    }
    free(list->tables);
    *list = (struct mr_verify_list){0};
}

mr_status mr_verify_begin(struct mr_pg_conn *conn, struct mr_cut *ret_cut,
                          struct mr_error *ret_error)
{
    static const struct mr_pg_shape before_shape = {"the end of the WAL", "bL", 1, 1};
    static const struct mr_pg_shape snapshot_shape = {"a snapshot", "s", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &before_shape, &result, ret_error,
                      "SELECT pg_is_in_recovery(), CASE WHEN NOT pg_is_in_recovery()"
                      " THEN pg_current_wal_insert_lsn() END"));
    if (mr_pg_result_true(result, 0, 0)) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "the server is a standby, whose snapshots do not say which transactions "
                       "they see; name the primary");
    }
    mr_lsn before = mr_pg_result_lsn(result, 0, 1);
    MR_TRY(mr_pg_command(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", MR_PG_ANSWER_MS,
                         ret_error));
    MR_TRY(mr_pg_askf(conn, &snapshot_shape, &result, ret_error,
                      "SELECT pg_current_snapshot()::text"));
    if (!mr_cut_parse(mr_pg_result_value(result, 0, 0), ret_cut)) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server was asked for a snapshot and answers with what is none");
    }
    ret_cut->before = before;
    /* A policy must not hide rows without a word: with row_security off the server refuses instead. */
    return mr_pg_set_for_rows(conn, "",
                              "SET LOCAL row_security = off;"
                              " SET LOCAL max_parallel_workers_per_gather = 0",
                              ret_error);
}

/* What the configuration makes of the column: what the first rule that fits it does, and a table with columns to be included has only
 * those, and its key. */
static void treat(const struct mr_config *config, const struct mr_verify_listed *listed,
                  bool is_key, struct mr_verify_column *column)
{
    const struct mr_encode_options *encode = &config->encode;
    bool has_included = false;
    bool is_included = is_key;
    const struct mr_column_rule *first = NULL;
    for (uint32_t i = 0; i < encode->column_rule_count; i++) {
        const struct mr_column_rule *rule = &encode->column_rules[i];
        if (rule->topic != NULL ||
            !mr_table_pattern_matches(&rule->table, mr_slice_of(listed->schema),
                                      mr_slice_of(listed->table))) {
            continue;
        }
        bool fits = mr_pattern_matches(&rule->column, mr_slice_of(column->name));
        if (rule->action == MR_COLUMN_INCLUDE) {
            has_included = true;
            is_included = is_included || fits;
        } else if (fits && (first == NULL || rule->action < first->action)) {
            first = rule;
        }
    }
    if (has_included && !is_included) {
        column->treatment = MR_TREAT_LEFT_OUT;
    } else if (first != NULL) {
        static const enum mr_treatment of_action[] = {[MR_COLUMN_EXCLUDE] = MR_TREAT_LEFT_OUT,
                                                      [MR_COLUMN_MASK] = MR_TREAT_MASKED,
                                                      [MR_COLUMN_TRUNCATE] = MR_TREAT_CUT,
                                                      [MR_COLUMN_HASH] = MR_TREAT_HASHED};
        column->treatment = of_action[first->action];
        column->length = first->length;
    }
}

enum described {
    DESCRIBED_NAME,
    DESCRIBED_KEY_PLACE, /* in the key's index; NULL: none */
    DESCRIBED_IS_TOASTABLE,
    DESCRIBED_MISSING,
    DESCRIBED_IS_BARE,
    DESCRIBED_IS_PLAIN,     /* its text is at least as long as what is stored */
    DESCRIBED_IS_NEVER_CUT, /* what "other types stay" means for columns.truncate (docs/capture.md) */
    DESCRIBED_IS_SENT,
};

static mr_status ask_columns(struct mr_pg_conn *conn, const struct mr_config *config,
                             const struct mr_verify_listed *listed,
                             const struct mr_pg_result **ret_result, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the columns of a table", "iNbSbbbb", 0,
                                             MR_COLUMNS_MAX};
    struct mr_text published = {0};
    if (mr_pg_server_version(conn) < GENERATED_VERSION_MIN) {
        mr_text_string(&published, "a.attgenerated = ''");
    }
    if (mr_pg_server_version(conn) >= SHAPED_VERSION_MIN) {
        mr_text_string(&published, published.len > 0 ? " AND " : "");
        mr_sql_format(&published,
                      "a.attname IN (SELECT unnest(t.attnames) FROM pg_publication_tables t"
                      " WHERE t.pubname = %L AND t.schemaname = %L AND t.tablename = %L)",
                      config->source.publication, listed->schema, listed->table);
    }
    mr_status status = mr_pg_askf(
        conn, &shape, ret_result, ret_error,
        "SELECT a.attname, (SELECT array_position((i.indkey::int2[])[0:i.indnkeyatts - 1],"
        "  a.attnum) FROM pg_index i WHERE i.indrelid = a.attrelid"
        "  AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END),"
        " a.attlen = -1 AND a.attstorage <> 'p',"
        " CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END,"
        " y.typcategory IN ('N', 'B'), y.typcategory IN ('N', 'S') OR y.typname = 'bytea',"
        " y.oid < 16384 AND y.typname IN ('bool', 'int2', 'int4', 'int8', 'oid', 'float4', "
        "'float8',"
        "  'numeric', 'uuid', 'bit', 'varbit', 'inet', 'cidr', 'macaddr', 'macaddr8', 'date', "
        "'time',"
        "  'timetz', 'timestamp', 'timestamptz', 'pg_lsn', 'tid', 'txid_snapshot', 'pg_snapshot'), "
        "%s"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " JOIN pg_type y ON y.oid = a.atttypid"
        " WHERE a.attrelid = %u AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        published.data, listed->oid);
    mr_text_done(&published);
    return status;
}

static bool is_chosen_key(const struct mr_table_key *chosen, const char *column)
{
    for (uint32_t i = 0; i < chosen->column_count; i++) {
        if (strcmp(chosen->columns[i], column) == 0) {
            return true;
        }
    }
    return false;
}

/* A value that takes less is never stored out of line: its pointer would be as long (toast_tuple_find_biggest_attribute in
 * src/backend/access/table/toast_helper.c). */
enum { LARGE_MIN = 24 };

static void describe_column(const struct mr_config *config, const struct mr_verify_listed *listed,
                            const struct mr_pg_result *result, uint32_t row, bool is_key,
                            struct mr_verify_table *table, struct mr_verify_column *column)
{
    const char *missing = mr_pg_result_value(result, row, DESCRIBED_MISSING);
    bool is_plain = mr_pg_result_true(result, row, DESCRIBED_IS_PLAIN);
    column->is_bare = mr_pg_result_true(result, row, DESCRIBED_IS_BARE);
    treat(config, listed, is_key, column);
    if (column->treatment == MR_TREAT_MASKED) {
        mr_verify_column_mask(column, column->length);
    } else if (column->treatment == MR_TREAT_CUT &&
               mr_pg_result_true(result, row, DESCRIBED_IS_NEVER_CUT)) {
        column->treatment = MR_TREAT_NOT;
    }
    column->is_toastable = mr_pg_result_true(result, row, DESCRIBED_IS_TOASTABLE);
    column->large_min = is_plain && column->treatment == MR_TREAT_NOT ? LARGE_MIN : 0;
    mr_verify_column_absent(table, column, missing == NULL ? (mr_slice){0} : mr_slice_of(missing));
}

/* Puts a column of the key where the key's index has it. */
static void add_key(struct mr_verify_table *table, int64_t *places, uint32_t column, int64_t place)
{
    uint32_t at = table->key_count++;
    for (; at > 0 && places[at - 1] > place; at--) {
        places[at] = places[at - 1];
        table->key[at] = table->key[at - 1];
    }
    places[at] = place;
    table->key[at] = column;
}

/* What the answer to a question says, in a digest. */
static struct mr_digest answer_digest(const struct mr_pg_result *result, struct mr_digest key)
{
    struct mr_text text = {0};
    for (uint32_t i = 0; i < mr_pg_result_rows(result); i++) {
        for (uint32_t j = 0; j <= DESCRIBED_IS_SENT; j++) {
            const char *value = mr_pg_result_value(result, i, j);
            mr_text_format(&text, "%s|%s\n", value == NULL ? "" : "'", value == NULL ? "" : value);
        }
    }
    struct mr_digest digest =
        mr_digest_of(key, (mr_slice){.data = (const uint8_t *)text.data, .len = text.len});
    mr_text_done(&text);
    return digest;
}

/* Whether no two rows have the same values of the columns that are the key by configuration (docs/keys.md). */
static mr_status ask_is_unique(struct mr_pg_conn *conn, uint32_t oid,
                               const struct mr_table_key *chosen, bool *ret_is_unique,
                               struct mr_error *ret_error)
{
    struct mr_text names = {0};
    for (uint32_t i = 0; i < chosen->column_count; i++) {
        mr_sql_format(&names, "%s%L", i == 0 ? "" : ", ", chosen->columns[i]);
    }
    int64_t is_unique = 0;
    mr_status status = mr_pg_ask_number(
        conn, "whether a key is unique", 'b', &is_unique, ret_error,
        "SELECT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = %u AND i.indisunique"
        " AND i.indisvalid AND i.indpred IS NULL AND NOT EXISTS (SELECT"
        " FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) k(number) WHERE NOT EXISTS (SELECT"
        " FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = k.number"
        " AND a.attnotnull AND a.attname IN (%s))))",
        oid, names.data);
    mr_text_done(&names);
    *ret_is_unique = is_unique != 0;
    return status;
}

mr_status mr_verify_describe(struct mr_pg_conn *conn, const struct mr_config *config,
                             const struct mr_verify_listed *listed, struct mr_digest key,
                             struct mr_verify_table *ret_table, struct mr_error *ret_error)
{
    const struct mr_pg_result *result;
    const struct mr_table_key *chosen =
        mr_pg_key_of(&config->source, mr_slice_of(listed->schema), mr_slice_of(listed->table));
    bool is_unique = true;
    if (chosen != NULL) {
        MR_TRY(ask_is_unique(conn, listed->oid, chosen, &is_unique, ret_error));
    }
    MR_TRY(ask_columns(conn, config, listed, &result, ret_error));
    uint32_t count = mr_pg_result_rows(result);
    struct mr_verify_table table = {
        .topic = mr_table_topic(&config->encode, listed->schema, listed->table),
        .key = MR_NEW_ARRAY(uint32_t, count + 1),
        .is_ordered = chosen == NULL,
        .is_unique = is_unique,
        .form = answer_digest(result, key),
        .salt = config->encode.hash_salt,
        .unavailable = config->encode.unavailable_value};
    int64_t places[MR_COLUMNS_MAX];
    bool has_hidden_key = false;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = mr_pg_result_value(result, i, DESCRIBED_NAME);
        bool has_place = mr_pg_result_value(result, i, DESCRIBED_KEY_PLACE) != NULL;
        bool is_key = chosen != NULL ? is_chosen_key(chosen, name) : has_place;
        if (!mr_pg_result_true(result, i, DESCRIBED_IS_SENT)) {
            has_hidden_key = has_hidden_key || is_key;
            continue;
        }
        if (is_key) {
            add_key(&table, places, table.column_count,
                    has_place ? mr_pg_result_number(result, i, DESCRIBED_KEY_PLACE) : 0);
        }
        describe_column(config, listed, result, i, is_key, &table,
                        mr_verify_column_add(&table, key, name));
    }
    /* Without all of its columns a key is none (docs/keys.md, "Generated columns"). */
    table.key_count = has_hidden_key ? 0 : table.key_count;
    *ret_table = table;
    return MR_OK;
}

/* A field of COPY's text format (manual, COPY, "Text Format"), in place: `*at` is then after its tab. False: it ends in a backslash. */
static bool take_field(uint8_t **at, const uint8_t *end, mr_slice *ret)
{
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
        if (at > end || !take_field(&at, end, &values[i])) {
            return false;
        }
    }
    return at == end + 1;
}

static void add_key_columns(struct mr_text *sql, const struct mr_verify_table *table)
{
    for (uint32_t i = 0; i < table->key_count; i++) {
        mr_sql_format(sql, "%s%I", i == 0 ? "" : ", ", table->columns[table->key[i]].name);
    }
}

char *mr_verify_after(const struct mr_verify_table *table, const mr_slice *values)
{
    struct mr_text sql = {0};
    mr_text_string(&sql, "(");
    add_key_columns(&sql, table);
    for (uint32_t i = 0; i < table->key_count; i++) {
        mr_slice value = values[table->key[i]];
        char *text = MR_STRNDUP((const char *)value.data, value.len);
        mr_sql_format(&sql, "%s%L", i == 0 ? ") > (" : ", ", text);
        free(text);
    }
    mr_text_string(&sql, ")");
    return sql.data;
}

static mr_status start_rows(struct mr_pg_conn *conn, const struct mr_verify_listed *listed,
                            const struct mr_verify_table *table,
                            const struct mr_verify_range *range, struct mr_error *ret_error)
{
    const struct mr_table_name name = {.schema = listed->schema, .table = listed->table};
    struct mr_text sql = {0};
    mr_text_string(&sql, "COPY (SELECT xmin");
    for (uint32_t i = 0; i < table->column_count; i++) {
        mr_sql_format(&sql, ", %I", table->columns[i].name);
    }
    mr_sql_format(&sql, " FROM %s%T WHERE %s", listed->kind == 'p' ? "" : "ONLY ", &name,
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
    mr_status status = mr_pg_copy_start(conn, sql.data, ret_error);
    mr_text_done(&sql);
    return status;
}

static mr_status take_row(const struct mr_verify_listed *listed,
                          const struct mr_verify_table *table, uint8_t *row, size_t len,
                          mr_verify_row_fn take, void *context, struct mr_error *ret_error)
{
    mr_slice values[MR_COLUMNS_MAX + 1];
    uint64_t xid = 0;
    bool good = take_apart(row, len, values, table->column_count + 1) && values[0].len <= 10;
    for (size_t i = 0; good && i < values[0].len; i++) {
        good = values[0].data[i] >= '0' && values[0].data[i] <= '9';
        xid = xid * 10 + values[0].data[i] - '0';
    }
    return good ? take(context, (uint32_t)xid, values + 1, ret_error)
                : mr_fail(ret_error, MR_ERR_PROTOCOL,
                          "the server was asked for the rows of %s.%s, and a row of its answer "
                          "has not the columns",
                          listed->schema, listed->table);
}

mr_status mr_verify_rows(struct mr_pg_conn *conn, const struct mr_verify_listed *listed,
                         const struct mr_verify_table *table, const struct mr_verify_range *range,
                         mr_verify_row_fn take, void *context, struct mr_error *ret_error)
{
    mr_status status = start_rows(conn, listed, table, range, ret_error);
    while (status == MR_OK) {
        uint8_t *row;
        size_t len;
        status = mr_pg_copy_next(conn, &row, &len, ret_error);
        if (status == MR_OK) {
            status = take_row(listed, table, row, len, take, context, ret_error);
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
    /* A transaction that writes something, so that the WAL is flushed to there, and the stream of a quiet server passes it. A
     * synchronous standby, which may be away, is not waited for. */
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
