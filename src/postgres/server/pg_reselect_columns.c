#include "postgres/server/pg_reselect_columns.h"

#include "event/places.h"
#include "event/relation.h"

struct read_rows {
    struct mr_pg_conn *conn;
    const char *slot;
    struct mr_reselect_question *questions;
    const uint32_t *asked;
};

static void add_version(struct mr_text *sql, const struct mr_reselect_question *question)
{
    const char *schema = question->names.data;
    const char *name = mr_reselect_next_name(schema);
    mr_sql_format(sql, "%L, %L, ARRAY[", schema, name);
    for (uint32_t i = 0; i < question->key_count + question->column_count; i++) {
        name = mr_reselect_next_name(name);
        mr_sql_format(sql, i == 0 ? "%L" : ", %L", name);
    }
    mr_text_string(sql, "])");
}

/* How old is what the slot still needs of the catalog. */
#define HELD "(SELECT age(catalog_xmin) FROM pg_replication_slots WHERE slot_name = %L)"

/* What is read by names is only that of then if the names meant the same. All that says so are rows
 * of the catalog, each with the number of the transaction that wrote it: if that is older than what
 * the slot still needs of the catalog (catalog_xmin), it ended before anything that the stream
 * still brings was committed; and who alters a table and who writes it wait for each other. So is
 * what was never altered since the table was made, by a transaction older than the update's: its
 * own then has the number that system columns have. The table keeps its lock, so nothing is altered
 * between the reading and this. For partitions the same, and that they were attached before.
 *
 * Of each: whether it is that table, with partitions of then; whether its columns were not altered;
 * numbers of young transactions that made the tables. */
static const char version_question[] =
    " , young AS (SELECT v.i, x.oid, o.xmin AS made, coalesce(age(o.xmin) BETWEEN 0 AND"
    " h.held, true) AS is_young FROM v CROSS JOIN h CROSS JOIN LATERAL (SELECT v.root"
    " UNION SELECT v.leaf"
    " UNION SELECT relid::oid FROM pg_partition_ancestors(v.leaf) WHERE v.leaf <> v.root) x(oid)"
    " JOIN pg_attribute o ON o.attrelid = x.oid AND o.attnum = -1)"
    " SELECT v.i, EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.oid = v.root AND n.nspname = v.schema AND c.relname = v.name)"
    " AND NOT EXISTS (SELECT FROM young y JOIN pg_inherits p ON p.inhrelid = y.oid WHERE y.i = v.i"
    " AND v.leaf <> v.root AND p.xmin <> y.made"
    " AND coalesce(age(p.xmin) BETWEEN 0 AND h.held, true)),"
    " NOT EXISTS (SELECT FROM young y JOIN pg_attribute a ON a.attrelid = y.oid"
    " WHERE y.i = v.i AND a.attname = ANY (v.names) AND a.xmin <> y.made"
    " AND coalesce(age(a.xmin) BETWEEN 0 AND h.held, true)),"
    " (SELECT string_agg(y.made::text, ' ') FROM young y WHERE y.i = v.i AND y.is_young)"
    " FROM v CROSS JOIN h";

/* True: the table was made by one of these numbers that is not older. */
static bool is_too_young(const char *made, uint32_t xid)
{
    for (char *at = (char *)(uintptr_t)made; at != NULL && *at != '\0';) {
        if ((int32_t)((uint32_t)strtoul(at, &at, 10) - xid) >= 0) {
            return true;
        }
    }
    return false;
}

static bool is_same_names(const struct mr_text *a, const struct mr_text *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static bool is_as_first(const struct mr_reselect_question *a, const struct mr_reselect_question *b)
{
    return a->oid == b->oid && a->leaf == b->leaf && a->key_count == b->key_count &&
           is_same_names(&a->names, &b->names) && is_same_names(&a->version, &b->version);
}

static bool question_has_values(const struct mr_reselect_question *question)
{
    return question->is_read && question->outcome <= MR_RESELECTED_LATER;
}

/* The first of those with values that is of its kind: what is asked for that is all theirs. */
static uint32_t first_as(const struct read_rows *read, uint32_t i)
{
    const struct mr_reselect_question *one = &read->questions[read->asked[i]];
    for (uint32_t k = 0; k < i; k++) {
        const struct mr_reselect_question *other = &read->questions[read->asked[k]];
        if (question_has_values(other) && is_as_first(other, one)) {
            return k;
        }
    }
    return i;
}

static mr_status ask_versions(const struct read_rows *read, uint32_t count,
                              const struct mr_pg_result **ret_result, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the tables that were read", "nbbS", 1, UINT32_MAX};
    MR_TEXT(values);
    for (uint32_t i = 0; i < count; i++) {
        struct mr_reselect_question *one = &read->questions[read->asked[i]];
        one->as = first_as(read, i);
        if (one->as == i && question_has_values(one)) {
            mr_text_format(&values, "%s(%u, %u::oid, %u::oid, ", values.len == 0 ? "" : ", ", i,
                           one->oid, one->leaf);
            add_version(&values, one);
        }
    }
    if (values.len == 0) {
        *ret_result = NULL;
        return MR_OK;
    }
    struct mr_text sql = {0};
    mr_sql_format(&sql,
                  "WITH h AS (SELECT " HELD " AS held), v(i, root, leaf, schema, name, names) AS"
                  " (VALUES ",
                  read->slot);
    mr_text_add(&sql, values.data, values.len);
    mr_text_string(&sql, ")");
    mr_text_string(&sql, version_question);
    return mr_pg_ask(read->conn, &sql, &shape, ret_result, ret_error);
}

/* The columns of now, and those of them that are certain to be what they were. */
struct columns_now {
    struct mr_attribute known[MR_COLUMNS_MAX];
    char *names[MR_COLUMNS_MAX]; /* of now; NULL: it was dropped */
    uint32_t count;
};

static void columns_now_done(struct columns_now *now)
{
    for (uint32_t i = 0; i < now->count; i++) {
        free(now->names[i]);
    }
}

static mr_status ask_columns_now(const struct read_rows *read, uint32_t oid,
                                 struct columns_now *now, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the columns of a table", "nSb", 0, MR_COLUMNS_MAX};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(read->conn, &shape, &result, ret_error,
                      "SELECT a.attnum, CASE WHEN NOT a.attisdropped THEN a.attname END,"
                      " coalesce(age(a.xmin) BETWEEN 0 AND " HELD ", true) FROM pg_attribute a"
                      " WHERE a.attrelid = %u AND a.attnum > 0 ORDER BY 1",
                      read->slot, oid));
    for (uint32_t i = 0; i < mr_pg_result_rows(result); i++) {
        const char *name = mr_pg_result_value(result, i, 1);
        bool is_young = mr_pg_result_true(result, i, 2);
        if (name != NULL || is_young) {
            char *copy = name == NULL ? NULL : MR_STRDUP(name);
            now->names[now->count] = copy;
            now->known[now->count++] =
                (struct mr_attribute){.number = (uint32_t)mr_pg_result_number(result, i, 0),
                                      .name = is_young ? NULL : copy};
        }
    }
    return MR_OK;
}

/* Whether that column of the version has the same name now, by its number. */
static bool keeps_name(const struct mr_places *places, const struct columns_now *now,
                       const char *name)
{
    uint32_t column;
    uint32_t number = mr_relation_find_column(places->now, mr_slice_of(name), &column)
                          ? mr_places_number(places, column)
                          : 0;
    for (uint32_t i = 0; i < now->count; i++) {
        if (number != 0 && now->known[i].number == number) {
            return now->names[i] != NULL && strcmp(now->names[i], name) == 0;
        }
    }
    return false;
}

/* Whether all that was read, and all that it was read by, is surely of the columns of then, though
 * they were altered. */
static bool keeps_names(const struct mr_reselect_question *question, const struct columns_now *now)
{
    MR_FREED struct mr_column *columns = MR_NEW_ARRAY(struct mr_column, MR_COLUMNS_MAX);
    struct mr_relation then = {
        .columns = columns, .attributes = now->known, .attribute_count = now->count};
    const char *end = question->version.data + question->version.len;
    const char *name = question->version.data;
    for (; name < end; name = mr_reselect_next_name(name)) {
        MR_ASSERT(then.column_count < MR_COLUMNS_MAX);
        columns[then.column_count++].name = name;
    }
    struct mr_places places;
    bool keeps = mr_places_init(&places, &then) && !places.is_open;
    name = mr_reselect_next_name(question->names.data); /* the table's, after the schema's */
    for (uint32_t i = 0; keeps && i < question->key_count + question->column_count; i++) {
        name = mr_reselect_next_name(name);
        keeps = keeps_name(&places, now, name);
    }
    mr_places_done(&places);
    return keeps;
}

static mr_status look_at_columns(const struct read_rows *read,
                                 const struct mr_reselect_question *question, bool *ret_keeps,
                                 struct mr_error *ret_error)
{
    MR_FREED struct columns_now *now = MR_NEW(struct columns_now);
    mr_status status = ask_columns_now(read, question->oid, now, ret_error);
    if (status == MR_OK) {
        *ret_keeps = keeps_names(question, now);
    }
    columns_now_done(now);
    return status;
}

enum columns_are { COLUMNS_OTHERS, COLUMNS_IN_DOUBT, COLUMNS_THE_SAME, COLUMNS_UNALTERED };

/* What the server says of the question's kind. */
static enum columns_are take_version(const struct mr_reselect_question *one,
                                     const struct mr_pg_result *result)
{
    for (uint32_t k = 0; k < mr_pg_result_rows(result); k++) {
        if (mr_pg_result_number(result, k, 0) == one->as && mr_pg_result_true(result, k, 1)) {
            return mr_pg_result_true(result, k, 2) &&
                           !is_too_young(mr_pg_result_value(result, k, 3), one->xid)
                       ? COLUMNS_UNALTERED
                       : COLUMNS_IN_DOUBT;
        }
    }
    return COLUMNS_OTHERS;
}

mr_status mr_reselect_check_columns(struct mr_pg_conn *conn, const char *slot,
                                    struct mr_reselect_question *questions, const uint32_t *asked,
                                    uint32_t count, struct mr_error *ret_error)
{
    const struct read_rows all = {conn, slot, questions, asked};
    const struct read_rows *read = &all;
    const struct mr_pg_result *result = NULL;
    MR_TRY(ask_versions(read, count, &result, ret_error));
    MR_FREED enum columns_are *are = MR_NEW_ARRAY(enum columns_are, count);
    MR_FREED enum columns_are *looked = MR_NEW_ARRAY(enum columns_are, count); /* of each kind */
    for (uint32_t i = 0; result != NULL && i < count; i++) {
        are[i] = take_version(&read->questions[read->asked[i]], result);
        looked[i] = COLUMNS_IN_DOUBT;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct mr_reselect_question *one = &read->questions[read->asked[i]];
        if (!question_has_values(one) || are[i] == COLUMNS_UNALTERED) {
            continue;
        }
        if (are[i] == COLUMNS_IN_DOUBT && looked[one->as] == COLUMNS_IN_DOUBT) {
            bool keeps = false;
            MR_TRY(look_at_columns(read, one, &keeps, ret_error));
            looked[one->as] = keeps ? COLUMNS_THE_SAME : COLUMNS_OTHERS;
        }
        are[i] = are[i] == COLUMNS_IN_DOUBT ? looked[one->as] : are[i];
        one->outcome = are[i] == COLUMNS_THE_SAME ? MR_RESELECTED_LATER : MR_RESELECTED_GONE;
    }
    return MR_OK;
}
