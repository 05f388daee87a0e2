
#include "verify/pg_side.h"

/* What the configuration makes of the column: what the first rule that fits it does, and a table
 * with columns to be included has only those, and its key. */
static void treat(const struct mr_config *config, const struct mr_verify_listed *listed,
                  bool is_key, struct mr_verify_column *column)
{
    const struct mr_encode_options *encode = &config->encode;
    bool has_included = false;
    bool is_included = is_key;
    const struct mr_column_rule *first = NULL;
    for (uint32_t i = 0; i < encode->column_rules.count; i++) {
        const struct mr_column_rule *rule = &encode->column_rules.items[i];
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
    DESCRIBED_MISSING,          /* what rows have that are older than the column … */
    DESCRIBED_IS_MISSING_KNOWN, /* … and whether that is so of all; else of a partition */
    DESCRIBED_IS_BARE,
    DESCRIBED_IS_PLAIN, /* its text is at least as long as what is stored */
    /* what "other types stay" means for columns.truncate (docs/capture.md) */
    DESCRIBED_IS_NEVER_CUT,
    DESCRIBED_IS_SENT,
    DESCRIBED_IS_GENERATED,
    DESCRIBED_TYPE,
    DESCRIBED_LEAF, /* the type's name, as struct mr_verify_type says … */
    DESCRIBED_LEAF_KIND,
    DESCRIBED_IS_BUILT_IN,
    DESCRIBED_IS_ARRAY,
    DESCRIBED_MODIFIER, /* … up to here */
    DESCRIBED_SINCE,
    DESCRIBED_CREATED,
    DESCRIBED_HAS_DEFAULT,
    DESCRIBED_COUNT,
};

/* Which columns are sent. Publications have columns since a version, and generated ones since
 * another; before, the view lists them nevertheless. */
static void add_is_sent(struct mr_pg_conn *conn, const char *publication,
                        const struct mr_verify_listed *listed, struct mr_text *sql)
{
    enum { GENERATED_VERSION_MIN = 180000 };
    mr_text_string(sql, mr_pg_server_version(conn) < GENERATED_VERSION_MIN ? "a.attgenerated = ''"
                                                                           : "true");
    if (mr_pg_server_version(conn) >= MR_SHAPED_VERSION_MIN) {
        mr_sql_format(sql,
                      " AND a.attname IN (SELECT unnest(t.attnames) FROM pg_publication_tables t"
                      " WHERE t.pubname = %L AND t.schemaname = %L AND t.tablename = %L)",
                      publication, listed->schema, listed->table);
    }
}

static mr_status ask_columns(struct mr_pg_conn *conn, const char *publication,
                             const struct mr_verify_listed *listed,
                             struct mr_pg_result **ret_result, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the columns of a table", "iNbSbbbbbbsisbbsnnb", 0,
                                             MR_COLUMNS_MAX};
    struct mr_text sql = {0};
    mr_text_string(
        &sql,
        "SELECT a.attname, (SELECT array_position((i.indkey::int2[])[0:i.indnkeyatts - 1],"
        "  a.attnum) FROM pg_index i WHERE i.indrelid = a.attrelid"
        "  AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END),"
        " a.attlen = -1 AND a.attstorage <> 'p',"
        " CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1]"
        "  WHEN c.relkind = 'p' THEN (SELECT max((m.attmissingval::text::text[])[1])"
        "  FROM pg_partition_tree(c.oid) t JOIN pg_attribute m ON m.attrelid = t.relid"
        "  WHERE m.attname = a.attname AND m.atthasmissing) END, a.atthasmissing,"
        " y.typcategory IN ('N', 'B'), y.typcategory IN ('N', 'S') OR y.typname = 'bytea',"
        " y.oid < 16384 AND y.typname IN ('bool', 'int2', 'int4', 'int8', 'oid', 'float4',"
        "  'float8', 'numeric', 'uuid', 'bit', 'varbit', 'inet', 'cidr', 'macaddr', 'macaddr8',"
        "  'date', 'time', 'timetz', 'timestamp', 'timestamptz', 'pg_lsn', 'tid',"
        "  'txid_snapshot', 'pg_snapshot'), ");
    add_is_sent(conn, publication, listed, &sql);
    /* A domain is what it is over, and an array what its elements are; the modifier is the first
     * that one has. */
    mr_sql_format(
        &sql,
        ", a.attgenerated <> '', format_type(b.oid, b.modifier), coalesce(e.typname, l.typname),"
        " coalesce(e.typtype, l.typtype), coalesce(e.oid, l.oid) < 16384, e.oid IS NOT NULL,"
        " b.modifier,"
        /* As catalog/pg_sql.c has it: the row of tableoid (-6) is never written again. A default is
         * younger than its column, and written less often; and so is a later column. */
        " (SELECT CASE WHEN h.xmin = o.xmin AND h.cmin = o.cmin THEN 0"
        "  WHEN age(e.xmin) > age(h.xmin) THEN e.xmin::text::bigint ELSE h.xmin::text::bigint END"
        "  FROM pg_attribute h LEFT JOIN pg_attrdef e ON e.adrelid = h.attrelid"
        "  AND e.adnum = h.attnum WHERE h.attrelid = a.attrelid AND h.attnum >= a.attnum"
        "  ORDER BY h.xmin = o.xmin AND h.cmin = o.cmin DESC,"
        "  greatest(age(h.xmin), age(e.xmin)) DESC LIMIT 1), o.xmin::text::bigint,"
        " a.atthasdef OR y.typdefault IS NOT NULL"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " JOIN pg_attribute o ON o.attrelid = a.attrelid AND o.attnum = -6"
        " JOIN pg_type y ON y.oid = a.atttypid"
        " CROSS JOIN LATERAL (WITH RECURSIVE base(oid, modifier) AS ("
        "  SELECT a.atttypid, a.atttypmod UNION ALL SELECT t.typbasetype,"
        "  CASE WHEN o.modifier < 0 THEN t.typtypmod ELSE o.modifier END"
        "  FROM base o JOIN pg_type t ON t.oid = o.oid WHERE t.typtype = 'd')"
        "  SELECT o.oid, o.modifier FROM base o JOIN pg_type t ON t.oid = o.oid"
        "  WHERE t.typtype <> 'd') b"
        " JOIN pg_type l ON l.oid = b.oid"
        " LEFT JOIN pg_type e ON e.oid = l.typelem AND e.typarray = l.oid"
        " WHERE a.attrelid = %u AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        listed->oid);
    return mr_pg_query(conn, &sql, &shape, ret_result, ret_error);
}

static bool is_chosen_key(const struct mr_table_key *chosen, const char *column)
{
    return MR_ANY(one, chosen->columns, chosen->column_count, strcmp(*one, column) == 0);
}

static struct mr_verify_form form_of(const struct mr_encode_options *encode,
                                     const struct mr_pg_result *result, uint32_t row)
{
    if (encode->types == MR_TYPES_TEXT) {
        bool is_bare = mr_pg_result_true(result, row, DESCRIBED_IS_BARE);
        return (struct mr_verify_form){
            .leaf = is_bare ? MR_LEAF_BARE : MR_LEAF_TEXT, .is_text = true, .back = ""};
    }
    const struct mr_verify_type type = {
        .name = mr_pg_result_value(result, row, DESCRIBED_LEAF),
        .kind = mr_pg_result_value(result, row, DESCRIBED_LEAF_KIND)[0],
        .is_built_in = mr_pg_result_true(result, row, DESCRIBED_IS_BUILT_IN),
        .is_array = mr_pg_result_true(result, row, DESCRIBED_IS_ARRAY),
        .modifier = (int32_t)strtol(mr_pg_result_value(result, row, DESCRIBED_MODIFIER), NULL, 10)};
    bool has_schema = encode->format == MR_FORMAT_AVRO || encode->json_schemas != MR_JSON_BARE;
    return mr_verify_form_of(&encode->modes, &type, has_schema);
}

/* What the type makes of what the configuration does. A value that is treated is a text. */
static void pg_describe_settle(struct mr_verify_column *column, bool is_never_cut)
{
    if (column->form.shape == MR_SHAPE_ABSENT) {
        column->treatment = MR_TREAT_LEFT_OUT;
    } else if (column->treatment == MR_TREAT_CUT && (is_never_cut || !column->form.is_text)) {
        column->treatment = MR_TREAT_NOT;
    }
    if (column->treatment != MR_TREAT_NOT) {
        column->form = (struct mr_verify_form){.leaf = MR_LEAF_TEXT};
    } else if (column->form.shape == MR_SHAPE_UNKNOWN) {
        column->treatment = MR_TREAT_UNKNOWN;
    }
}

/* A value that takes less is never stored out of line: its pointer would be as long
 * (toast_tuple_find_biggest_attribute in src/backend/access/table/toast_helper.c). */
enum { LARGE_MIN = 24 };

static void describe_column(const struct mr_config *config, const struct mr_verify_listed *listed,
                            const struct mr_pg_result *result, uint32_t row, bool is_key,
                            struct mr_verify_column *column)
{
    column->form = form_of(&config->encode, result, row);
    column->salt = config->encode.hash_salt;
    static const enum mr_odd_text odd[] = {[MR_INVALID_REPLACED] = MR_ODD_REPLACED,
                                           [MR_INVALID_BASE64] = MR_ODD_BASE64,
                                           [MR_INVALID_REFUSED] = MR_ODD_REFUSED};
    column->odd = odd[config->encode.invalid_utf8];
    treat(config, listed, is_key, column);
    pg_describe_settle(column, mr_pg_result_true(result, row, DESCRIBED_IS_NEVER_CUT));
    if (column->treatment == MR_TREAT_MASKED) {
        mr_verify_column_mask(column, column->length);
    }
    bool is_as_stored = mr_pg_result_true(result, row, DESCRIBED_IS_PLAIN) &&
                        column->treatment == MR_TREAT_NOT && column->form.sql == NULL &&
                        column->form.leaf <= MR_LEAF_BARE;
    column->is_toastable = mr_pg_result_true(result, row, DESCRIBED_IS_TOASTABLE);
    column->large_min = is_as_stored ? LARGE_MIN : 0;
}

/* What events that are older than the column are taken to have: the column's default then, which
 * the catalog forgets when the table is rewritten (RelationClearMissing in
 * src/backend/catalog/heap.c), and which a table with partitions has in these alone. Where it is
 * not known and null is wrong, the events tell (mr_fold_compare). The server makes of the default
 * what it makes of values; of a domain the base type, for its checks call what their owner
 * wrote. */
static mr_status describe_absent(struct mr_pg_conn *conn, const struct mr_pg_result *described,
                                 uint32_t row, struct mr_verify_column *column,
                                 struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"a column's default", "S", 1, 1};
    const char *missing = mr_pg_result_value(described, row, DESCRIBED_MISSING);
    if (missing != NULL && column->form.sql != NULL) {
        struct mr_text value = {0};
        const struct mr_pg_result *result;
        mr_verify_form_sql(&column->form, "c", &value);
        mr_status status =
            mr_pg_askf(conn, &shape, &result, ret_error,
                       "SELECT CASE WHEN v IS NOT NULL THEN format('%%s', v) END"
                       " FROM (SELECT %s AS v FROM (SELECT CAST(%L AS %s) AS c) a) b",
                       value.data, missing, mr_pg_result_value(described, row, DESCRIBED_TYPE));
        mr_text_done(&value);
        MR_TRY(status);
        missing = mr_pg_result_value(result, 0, 0);
    }
    column->since = (uint32_t)mr_pg_result_number(described, row, DESCRIBED_SINCE);
    column->is_absent_known = mr_pg_result_true(described, row, DESCRIBED_IS_MISSING_KNOWN);
    column->created = (uint32_t)mr_pg_result_number(described, row, DESCRIBED_CREATED);
    column->has_default = mr_pg_result_true(described, row, DESCRIBED_HAS_DEFAULT);
    column->is_absent_null = missing == NULL;
    column->absent = mr_verify_server_value(
        column, missing == NULL ? (mr_slice){0} : mr_slice_of(missing), false);
    return MR_OK;
}

static void pg_describe_add_key(struct mr_verify_table *table, int64_t *places, uint32_t column,
                                int64_t place)
{
    uint32_t at = table->key_count++;
    for (; at > 0 && places[at - 1] > place; at--) {
        places[at] = places[at - 1];
        table->key[at] = table->key[at - 1];
    }
    places[at] = place;
    table->key[at] = column;
}

static struct mr_digest answer_digest(const struct mr_pg_result *result, struct mr_digest key)
{
    MR_TEXT(text);
    for (uint32_t i = 0; i < mr_pg_result_rows(result); i++) {
        for (uint32_t j = 0; j < DESCRIBED_COUNT; j++) {
            const char *value = mr_pg_result_value(result, i, j);
            mr_text_format(&text, "%s|%s\n", value == NULL ? "" : "'", value == NULL ? "" : value);
        }
    }
    return mr_digest_of(key, (mr_slice){.data = (const uint8_t *)text.data, .len = text.len});
}

/* Whether no two rows have the same values of the columns that are the key by configuration
 * (docs/keys.md). */
static mr_status ask_is_unique(struct mr_pg_conn *conn, uint32_t oid,
                               const struct mr_table_key *chosen, bool *ret_is_unique,
                               struct mr_error *ret_error)
{
    MR_TEXT(names);
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
    *ret_is_unique = is_unique != 0;
    return status;
}

/* A list of the publication that nobody wrote into the file: what it withholds is not compared, and
 * the proof says so. */
static void note_unsent(const struct mr_config *config, const struct mr_verify_listed *listed,
                        const struct mr_pg_result *result, uint32_t row, bool is_key,
                        struct mr_verify_table *table)
{
    char *name = (char *)(uintptr_t)mr_pg_result_value(result, row, DESCRIBED_NAME);
    const struct mr_table_name named = {.schema = listed->schema, .table = listed->table};
    const struct mr_published *published = mr_pg_published_of(&config->source, &named);
    struct mr_verify_column column = {.name = name};
    treat(config, listed, is_key, &column);
    if (column.treatment != MR_TREAT_LEFT_OUT &&
        !mr_pg_result_true(result, row, DESCRIBED_IS_GENERATED) &&
        (published == NULL || published->column_count == 0)) {
        mr_text_format(&table->unsent, "%s%s", table->unsent.len == 0 ? "" : ", ", name);
    }
}

static mr_status describe_columns(struct mr_pg_conn *conn, const struct mr_config *config,
                                  const struct mr_verify_listed *listed, struct mr_digest key,
                                  const struct mr_pg_result *result, struct mr_verify_table *table,
                                  struct mr_error *ret_error)
{
    const struct mr_table_key *chosen =
        mr_pg_key_of(&config->source, mr_slice_of(listed->schema), mr_slice_of(listed->table));
    int64_t places[MR_COLUMNS_MAX];
    bool has_hidden_key = false;
    for (uint32_t i = 0; i < mr_pg_result_rows(result); i++) {
        const char *name = mr_pg_result_value(result, i, DESCRIBED_NAME);
        bool has_place = mr_pg_result_value(result, i, DESCRIBED_KEY_PLACE) != NULL;
        bool is_key = chosen != NULL ? is_chosen_key(chosen, name) : has_place;
        if (!mr_pg_result_true(result, i, DESCRIBED_IS_SENT)) {
            has_hidden_key = has_hidden_key || is_key;
            note_unsent(config, listed, result, i, is_key, table);
            continue;
        }
        if (is_key) {
            pg_describe_add_key(table, places, table->column_count,
                                has_place ? mr_pg_result_number(result, i, DESCRIBED_KEY_PLACE)
                                          : 0);
        }
        struct mr_verify_column *column = mr_verify_column_add(table, key, name);
        describe_column(config, listed, result, i, is_key, column);
        MR_TRY(describe_absent(conn, result, i, column, ret_error));
    }
    /* Without all of its columns a key is none (docs/keys.md, "Generated columns"). */
    table->key_count = has_hidden_key ? 0 : table->key_count;
    table->is_ordered = chosen == NULL;
    for (uint32_t i = 0; i < table->key_count; i++) {
        const struct mr_verify_form *form = &table->columns[table->key[i]].form;
        table->has_key_twice = table->has_key_twice || form->sql != NULL;
    }
    for (uint32_t i = 0; table->key_count == 0 && i < table->column_count; i++) {
        table->columns[i].form.is_hidden =
            false; /* with REPLICA IDENTITY FULL nothing is left alone */
    }
    table->is_unique = true;
    return chosen == NULL ? MR_OK
                          : ask_is_unique(conn, listed->oid, chosen, &table->is_unique, ret_error);
}

mr_status mr_verify_describe(struct mr_pg_conn *conn, const struct mr_config *config,
                             const struct mr_verify_listed *listed, struct mr_digest key,
                             struct mr_verify_table *ret_table, struct mr_error *ret_error)
{
    struct mr_pg_result *result;
    MR_TRY(ask_columns(conn, config->source.publication, listed, &result, ret_error));
    struct mr_verify_table table = {
        .topic = mr_table_topic(&config->encode, listed->schema, listed->table),
        .key = MR_NEW_ARRAY(uint32_t, mr_pg_result_rows(result) + 1),
        .form = answer_digest(result, key)};
    mr_verify_table_placeholder(&table, config->encode.unavailable_value);
    mr_status status = describe_columns(conn, config, listed, key, result, &table, ret_error);
    mr_pg_result_free(result);
    if (status != MR_OK) {
        mr_verify_table_done(&table);
        return status;
    }
    *ret_table = table;
    return MR_OK;
}
