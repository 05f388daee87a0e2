/* Keys of events as the server has them (types = "debezium"). The server makes the value, by
 * forms.c, and says what an event of it has; that must be the key that differs. So what an event
 * does not say whole, or somebody else wrote, is not taken for a row's key. */

#include "base/object.h"
#include "verify/proof_internal.h"

/* As rows are read; nothing is written. */
static mr_status keys_begin(struct mr_pg_conn *conn)
{
    MR_TRY(mr_pg_command(conn, "BEGIN READ ONLY", MR_PG_ANSWER_MS, NULL));
    return mr_pg_set_for_rows(conn, "", "", NULL);
}

static bool is_named_so(const struct mr_scanned *name, const char *column)
{
    MR_FREED uint8_t *memory = NULL;
    return mr_slice_equal(mr_verify_text_of(name, &memory), mr_slice_of(column));
}

/* Adds the value's expression; false: the key has none of the column. */
static bool add_back(const struct mr_verify_column *column, const char *key, struct mr_text *sql)
{
    struct mr_scan scan = mr_scan_members(mr_slice_of(key));
    struct mr_scanned name, value;
    while (mr_scan_member(&scan, &name, &value)) {
        if (value.kind == MR_SCAN_NULL || !is_named_so(&name, column->name)) {
            continue;
        }
        uint8_t *memory;
        mr_slice slice = mr_verify_text_of(&value, &memory);
        char *text = MR_STRNDUP((const char *)slice.data, slice.len);
        struct mr_text literal = {0};
        mr_sql_format(&literal, "%L::text", text);
        mr_verify_form_back_sql(&column->form, literal.data, sql);
        mr_text_done(&literal);
        free(text);
        free(memory);
        return true;
    }
    return false;
}

/* SELECT of two texts for each column: the server's, and the event's. False: the key has other
 * columns. */
static bool keys_add_question(const struct mr_verify_table *table, const char *key,
                              struct mr_text *sql)
{
    bool is_good = true;
    for (uint32_t i = 0; i < table->key_count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%u", i);
        mr_text_format(sql, "%s format('%%s', %s), ", i == 0 ? "SELECT" : ",", name);
        mr_verify_form_sql(&table->columns[table->key[i]].form, name, sql);
    }
    for (uint32_t i = 0; i < table->key_count && is_good; i++) {
        mr_text_string(sql, i == 0 ? " FROM (SELECT " : ", ");
        is_good = add_back(&table->columns[table->key[i]], key, sql);
        mr_text_format(sql, " AS c%u", i);
    }
    mr_text_string(sql, ") k");
    return is_good;
}

static bool is_key_of(const struct mr_verify_table *table, const struct mr_pg_result *result,
                      struct mr_digest key)
{
    struct mr_digest sum = {0};
    for (uint32_t i = 0; i < table->key_count; i++) {
        const char *text = mr_pg_result_value(result, 0, 2 * i + 1);
        mr_slice slice = text == NULL ? (mr_slice){0} : mr_slice_of(text);
        sum =
            mr_digest_add(sum, mr_verify_server_value(&table->columns[table->key[i]], slice, true));
    }
    return mr_digest_equal(sum, key);
}

static char *texts_of(const struct mr_verify_table *table, const struct mr_pg_result *result)
{
    MR_OBJECT cJSON *object = cJSON_CreateObject();
    for (uint32_t i = 0; i < table->key_count; i++) {
        cJSON_AddStringToObject(object, table->columns[table->key[i]].name,
                                mr_pg_result_value(result, 0, 2 * i));
    }
    return cJSON_PrintUnformatted(object);
}

/* An error is an answer, too: the transaction is begun again after it. */
static mr_status turn_back(struct mr_work *work, struct mr_verify_named *named)
{
    char kinds[2 * MR_COLUMNS_MAX + 1];
    memset(kinds, 'S', 2 * (size_t)work->table.key_count);
    kinds[2 * work->table.key_count] = '\0';
    const struct mr_pg_shape shape = {"the value of a key", kinds, 1, 1};
    MR_TEXT(sql);
    const struct mr_pg_result *result;
    if (!keys_add_question(&work->table, named->key, &sql)) {
        return MR_OK;
    }
    if (mr_pg_ask(work->tools->conn, &sql, &shape, &result, NULL) != MR_OK) {
        MR_TRY(mr_pg_command(work->tools->conn, "ROLLBACK", MR_PG_ANSWER_MS, NULL));
        return keys_begin(work->tools->conn);
    }
    if (is_key_of(&work->table, result, named->difference.key)) {
        named->asked = texts_of(&work->table, result);
    }
    return MR_OK;
}

void mr_work_turn_back(struct mr_work *work)
{
    struct mr_proof *proof = work->proof;
    mr_status status = keys_begin(work->tools->conn);
    for (uint32_t i = 0; i < proof->named_count && status == MR_OK; i++) {
        struct mr_verify_named *named = &proof->named[i];
        if (named->key != NULL && named->asked == NULL) {
            status = turn_back(work, named);
        }
    }
    (void)mr_pg_command(work->tools->conn, "ROLLBACK", MR_PG_ANSWER_MS, NULL);
}
