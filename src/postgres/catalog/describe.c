#include "postgres/catalog/describe.h"

#include "base/clock.h"
#include "event/kin.h"

#define ASK_LIMIT_NS (INT64_C(10) * 1000000000)

mr_status mr_pg_catalog_read(struct mr_pg_catalog *catalog, struct mr_pg_conn *conn,
                             bool is_of_rows, struct mr_error *ret_error)
{
    const struct mr_pg_source_options *options = catalog->options;
    struct mr_pg_horizon horizon;
    MR_TRY(mr_pg_horizon_read(conn, is_of_rows, &horizon, ret_error));
    catalog->parent_oid = 0; /* what was answered before goes, too */
    MR_TRY(mr_pg_captured_read(&catalog->captured, conn, options, &horizon, ret_error));
    MR_TEXT(oids);
    mr_pg_captured_add_oids(&catalog->captured, &oids);
    const char *of = oids.len == 0 ? "" : oids.data;
    MR_TRY(mr_pg_keys_read(&catalog->keys, conn, of, &horizon, options->relation_bytes_max,
                           ret_error));
    if (options->key_order == MR_KEY_ORDER_INDEX) {
        MR_TRY(mr_pg_key_order_read(&catalog->order, conn, of, &horizon, ret_error));
    }
    if (!is_of_rows) {
        MR_TRY(mr_pg_attributes_tell(conn, options, &catalog->captured, ret_error));
    } else if (options->hides_columns) {
        MR_TRY(mr_pg_parts_read(&catalog->parts, conn, NULL, ret_error));
    }
    return mr_pg_types_read(&catalog->types, conn, ret_error);
}

void mr_pg_catalog_done(struct mr_pg_catalog *catalog)
{
    mr_pg_keys_done(&catalog->keys);
    mr_pg_key_order_done(&catalog->order);
    mr_pg_captured_done(&catalog->captured);
    mr_by_oid_done(&catalog->types);
    mr_pg_attributes_done(&catalog->attributes[0]);
    mr_pg_attributes_done(&catalog->attributes[1]);
    mr_pg_parts_done(&catalog->parts);
    mr_text_done(&catalog->parent_columns);
}

static mr_status describe_leave(struct mr_pg_catalog *catalog, enum mr_pg_question_kind kind,
                                const struct mr_transaction *transaction,
                                const struct mr_relation *view, const struct mr_column *column)
{
    struct mr_pg_question *question = &catalog->question;
    *question = (struct mr_pg_question){
        .kind = kind,
        .oid = view->oid,
        .transaction = {.commit_lsn = transaction->commit_lsn, .xid = transaction->xid},
    };
    snprintf(question->table, sizeof(question->table), "%s.%s", view->schema, view->table);
    question->schema_len = (uint32_t)strlen(view->schema);
    if (kind == MR_PG_ASK_PARENT) {
        mr_text_done(&catalog->parent_columns);
        mr_pg_captured_add_columns(view, &catalog->parent_columns);
    }
    if (column != NULL) {
        question->type_oid = column->type_oid;
        snprintf(question->column, sizeof(question->column), "%s", column->name);
    }
    return MR_FULL;
}

static void log_unlisted(const char *table)
{
    mr_log(
        MR_LOG_WARN, "table_unlisted",
        "the publication sends a table that is neither in \"tables\" nor a partition of one that "
        "is; its changes are not passed on",
        MR_LOG_STR("table", table));
}

/* The table of the question; `schema` has room for its name. */
static struct mr_pg_described described_of(const struct mr_pg_question *question, char *schema)
{
    snprintf(schema, sizeof(question->table), "%.*s", (int)question->schema_len, question->table);
    return (struct mr_pg_described){.oid = question->oid,
                                    .schema = schema,
                                    .table = question->table + question->schema_len + 1};
}

static mr_status ask_parent(struct mr_pg_catalog *catalog, struct mr_pg_conn *conn,
                            struct mr_error *ret_error)
{
    const struct mr_pg_question *question = &catalog->question;
    enum mr_pg_capture before = mr_pg_captured_find(&catalog->captured, question->oid);
    char schema[sizeof(question->table)];
    struct mr_pg_described described = described_of(question, schema);
    described.columns = catalog->parent_columns.len == 0 ? "" : catalog->parent_columns.data;
    MR_TRY(mr_pg_captured_ask(&catalog->captured, conn, catalog->options, &described, ret_error));
    catalog->parent_oid = question->oid;
    catalog->parent_lsn = question->transaction.commit_lsn;
    mr_lsn until;
    if (before != MR_PG_UNLISTED &&
        !mr_pg_table_listed(catalog->options, mr_slice_of(schema), mr_slice_of(described.table)) &&
        !mr_pg_captured_takes(&catalog->captured, question->oid, &question->transaction, &until)) {
        log_unlisted(question->table);
    }
    return MR_OK;
}

/* A type may have been dropped after the rows at hand: an enum that became text, say. */
static mr_status ask_type(struct mr_pg_catalog *catalog, struct mr_pg_conn *conn,
                          struct mr_error *ret_error)
{
    const struct mr_pg_question *question = &catalog->question;
    MR_TRY(mr_pg_types_ask(&catalog->types, conn, question->type_oid, ret_error));
    if (mr_pg_types_is_gone(&catalog->types, question->type_oid)) {
        char name[sizeof(question->table) + sizeof(question->column)];
        snprintf(name, sizeof(name), "%s.%s", question->table, question->column);
        mr_log(MR_LOG_WARN, "type_gone",
               "the type that a column had at this place of the stream was dropped since; until "
               "then its values are PostgreSQL's text",
               MR_LOG_STR("column", name), MR_LOG_INT("type_oid", question->type_oid));
    }
    return MR_OK;
}

static mr_status describe_ask(struct mr_pg_catalog *catalog, struct mr_pg_conn *conn,
                              struct mr_error *ret_error)
{
    const struct mr_pg_question *question = &catalog->question;
    bool with_order = question->kind == MR_PG_ASK_ORDER;
    if (question->kind == MR_PG_ASK_PARENT) {
        return ask_parent(catalog, conn, ret_error);
    }
    if (question->kind == MR_PG_ASK_TYPE) {
        return ask_type(catalog, conn, ret_error);
    }
    if (question->kind == MR_PG_ASK_COLUMNS) {
        catalog->attributes_last ^= 1;
        return mr_pg_attributes_ask(&catalog->attributes[catalog->attributes_last], conn,
                                    question->oid, &question->transaction, ret_error);
    }
    if (question->kind == MR_PG_ASK_KEY) {
        MR_TRY(
            mr_pg_keys_ask(&catalog->keys, conn, question->oid, &question->transaction, ret_error));
        with_order = catalog->options->key_order == MR_KEY_ORDER_INDEX;
    }
    if (with_order) {
        return mr_pg_key_order_ask(&catalog->order, conn, question->oid, &question->transaction,
                                   ret_error);
    }
    return MR_OK;
}

mr_status mr_pg_catalog_ask(struct mr_pg_catalog *catalog, struct mr_pg_conn *conn,
                            struct mr_error *ret_error)
{
    struct mr_pg_question *question = &catalog->question;
    MR_ASSERT(mr_pg_catalog_asks(catalog));
    int64_t now_ns = mr_monotonic_ns();
    question->deadline_ns =
        question->deadline_ns == 0 ? now_ns + ASK_LIMIT_NS : question->deadline_ns;
    bool sees_end = false;
    mr_status status = mr_pg_sees_end(conn, question->transaction.xid, &sees_end, ret_error);
    if (status == MR_OK && sees_end) {
        status = describe_ask(catalog, conn, ret_error);
    } else if (status == MR_OK && now_ns <= question->deadline_ns) {
        return MR_FULL;
    } else if (status == MR_OK) {
        status = mr_fail(ret_error, MR_ERR_TRANSIENT,
                         "the server has sent a transaction that its own sessions do not see "
                         "yet; is a synchronous standby away?");
    }
    if (status != MR_OK) {
        return mr_pg_catalog_drop(catalog, status, ret_error);
    }
    question->kind = MR_PG_ASK_NOTHING;
    return MR_OK;
}

/* Whatever the reason is, the stream itself works; one that stays is reported by its next
 * connection. */
mr_status mr_pg_catalog_drop(struct mr_pg_catalog *catalog, mr_status status,
                             struct mr_error *ret_error)
{
    static const char *const names[] = {
        [MR_PG_ASK_NOTHING] = "",   [MR_PG_ASK_PARENT] = "parent",
        [MR_PG_ASK_KEY] = "key",    [MR_PG_ASK_ORDER] = "order of the key",
        [MR_PG_ASK_TYPE] = "types", [MR_PG_ASK_COLUMNS] = "columns"};
    struct mr_pg_question question = catalog->question;
    catalog->question = (struct mr_pg_question){0};
    if (status == MR_AGAIN) {
        return status;
    }
    struct mr_error reason = *ret_error;
    return mr_fail(ret_error, MR_ERR_TRANSIENT, "the %s of table %s can't be looked up: %s",
                   names[question.kind], question.table, reason.text);
}

/* As configured, and in that order. Deletes lack what the identity does not hold; one that holds
 * nothing allows no deletes. What does not fit is wrong for this place of the stream only: what is
 * before it is delivered, so that another configuration can begin there. */
static mr_status take_chosen(const struct mr_table_key *key, struct mr_relation *view,
                             struct mr_error *ret_error)
{
    bool flags = view->key_count > 0; /* found in the stream, before this */
    view->key_count = 0;
    view->key_is_chosen = true;
    for (uint32_t k = 0; k < key->column_count; k++) {
        uint32_t i;
        if (!mr_relation_find_column(view, mr_slice_of(key->columns[k]), &i)) {
            return mr_fail(ret_error, MR_ERR_POISON,
                           "key_columns: \"%s\" is not a published column of table %s.%s at this "
                           "place of the stream; set the name that it has there",
                           key->columns[k], key->table.schema, key->table.table);
        }
        if (flags && !view->columns[i].in_identity) {
            return mr_fail(
                ret_error, MR_ERR_POISON,
                "key_columns: the replica identity of table %s.%s does not hold column \"%s\", so "
                "its deletes would have no key; run ALTER TABLE %s.%s REPLICA IDENTITY FULL",
                key->table.schema, key->table.table, key->columns[k], key->table.schema,
                key->table.table);
        }
        view->key_columns[view->key_count++] = i;
    }
    return MR_OK;
}

/* All questions come before the judgement, which logs what it finds, and so is made once a
 * message. */
static mr_status describe_find_key(struct mr_pg_catalog *catalog,
                                   const struct mr_transaction *transaction,
                                   struct mr_relation *view, struct mr_error *ret_error)
{
    mr_slice schema = mr_slice_of(view->schema);
    mr_relation_flagged_key(view);
    const struct mr_table_key *chosen =
        mr_pg_key_of(catalog->options, schema, mr_slice_of(view->table));
    if (chosen != NULL) {
        return take_chosen(chosen, view, ret_error);
    }
    bool needs_facts = view->key_count == 0 || mr_pg_keys_lack(&catalog->keys, view->oid);
    bool needs_order =
        catalog->options->key_order == MR_KEY_ORDER_INDEX && (needs_facts || view->key_count > 1);
    if (needs_facts && !mr_pg_keys_cover(&catalog->keys, view->oid, transaction)) {
        return describe_leave(catalog, MR_PG_ASK_KEY, transaction, view, NULL);
    }
    if (needs_order && !mr_pg_key_order_covers(&catalog->order, view->oid, transaction)) {
        return describe_leave(catalog, MR_PG_ASK_ORDER, transaction, view, NULL);
    }
    if (needs_facts) {
        MR_TRY(mr_pg_keys_find(&catalog->keys, transaction, view, ret_error));
    } else if (view->identity == MR_IDENTITY_DEFAULT) {
        mr_pg_keys_note(&catalog->keys, view);
    }
    if (needs_order && view->key_count > 1) {
        mr_pg_key_order_apply(&catalog->order, view);
    }
    return MR_OK;
}

/* What was seen counts before what is guessed. */
static void take_origins(struct mr_pg_catalog *catalog, struct mr_relation *view)
{
    struct mr_origins *origins = &catalog->origins;
    if (mr_kin_find(catalog->options->kin, view->oid, origins)) {
        view->is_part |= origins->count == 0;
        view->origins = origins->items;
        view->origin_count = origins->count;
    }
}

/* Names decide, as the stream has them: rows from before a table was renamed or dropped have the
 * old one. Tables that the publication sent besides when the stream was opened were logged then;
 * one that comes later, or is renamed, is logged here. */
static mr_status find_listed(struct mr_pg_catalog *catalog,
                             const struct mr_transaction *transaction, struct mr_relation *view)
{
    mr_slice schema = mr_slice_of(view->schema);
    mr_slice table = mr_slice_of(view->table);
    /* Of pg_catalog (logicalrep_write_namespace in proto.c), which nobody can publish. Ours without
     * a schema is that of messages. */
    if (schema.len == 0) {
        view->is_unlisted = true;
        return MR_OK;
    }
    view->is_signal = mr_pg_table_is_signal(catalog->options, schema, table);
    bool was_asked =
        catalog->parent_oid == view->oid && catalog->parent_lsn == transaction->commit_lsn;
    if (mr_pg_table_listed(catalog->options, schema, table)) {
        /* A pattern may list partitions, too. A copy has read all of this with the columns. */
        bool has_root = catalog->options->hides_columns;
        if (has_root && view->attributes == NULL && !was_asked &&
            mr_pg_captured_is_stale(&catalog->captured, view->oid, transaction)) {
            return describe_leave(catalog, MR_PG_ASK_PARENT, transaction, view, NULL);
        }
        take_origins(catalog, view);
        return MR_OK;
    }
    if (view->is_signal) {
        view->is_unlisted = true;
        return MR_OK;
    }
    if (!was_asked && mr_pg_captured_is_stale(&catalog->captured, view->oid, transaction)) {
        return describe_leave(catalog, MR_PG_ASK_PARENT, transaction, view, NULL);
    }
    view->is_unlisted =
        !mr_pg_captured_takes(&catalog->captured, view->oid, transaction, &view->listed_until);
    view->is_part = !view->is_unlisted;
    if (view->is_part) {
        take_origins(catalog, view);
    }
    if (mr_pg_captured_find(&catalog->captured, view->oid) == MR_PG_CONFIGURED && !was_asked) {
        char name[2 * MR_IDENTIFIER_MAX + 2];
        snprintf(name, sizeof(name), "%s.%s", view->schema, view->table);
        log_unlisted(name);
    }
    return MR_OK;
}

static mr_status find_types(struct mr_pg_catalog *catalog, const struct mr_transaction *transaction,
                            const struct mr_relation *view)
{
    for (uint32_t i = 0; i < view->column_count; i++) {
        struct mr_column *column = &view->columns[i];
        if (!mr_pg_types_find(&catalog->types, column->type_oid, column->type_modifier,
                              &column->type)) {
            return describe_leave(catalog, MR_PG_ASK_TYPE, transaction, view, column);
        }
    }
    return MR_OK;
}

/* A copy has read them with the columns. */
static mr_status find_attributes(struct mr_pg_catalog *catalog,
                                 const struct mr_transaction *transaction, struct mr_relation *view)
{
    if (!catalog->options->hides_columns) {
        return MR_OK;
    }
    if (view->attributes != NULL) {
        mr_pg_parts_find(&catalog->parts, view);
        return MR_OK;
    }
    for (uint32_t i = 0; i < MR_ARRAY_LEN(catalog->attributes); i++) {
        const struct mr_pg_attributes *known = &catalog->attributes[i];
        if (known->oid == view->oid && known->lsn == transaction->commit_lsn) {
            view->attributes = known->items;
            view->attribute_count = known->count;
            catalog->attributes_last = i;
            return MR_OK;
        }
    }
    return describe_leave(catalog, MR_PG_ASK_COLUMNS, transaction, view, NULL);
}

static mr_status describe_ours(struct mr_pg_catalog *catalog,
                               const struct mr_transaction *transaction, struct mr_relation *view,
                               struct mr_error *ret_error)
{
    MR_TRY(find_types(catalog, transaction, view));
    MR_TRY(find_attributes(catalog, transaction, view));
    return describe_find_key(catalog, transaction, view, ret_error);
}

mr_status mr_pg_catalog_describe(struct mr_pg_catalog *catalog,
                                 const struct mr_transaction *transaction, struct mr_relation *view,
                                 struct mr_error *ret_error)
{
    MR_ASSERT(!mr_pg_catalog_asks(catalog));
    if (view->oid == 0) { /* InvalidOid of postgres_ext.h; in questions it stands for all tables */
        return mr_fail(ret_error, MR_ERR_PROTOCOL, "the server describes a table without an OID");
    }
    MR_TRY(find_listed(catalog, transaction, view));
    if (view->is_unlisted) {
        return MR_OK; /* nobody needs its key */
    }
    return describe_ours(catalog, transaction, view, ret_error);
}

mr_status mr_pg_catalog_describe_now(struct mr_pg_catalog *catalog, struct mr_pg_conn *conn,
                                     struct mr_relation *view, struct mr_error *ret_error)
{
    static const struct mr_transaction now = {.commit_lsn = UINT64_MAX - 1};
    mr_pg_keys_done(&catalog->keys);
    mr_pg_key_order_done(&catalog->order);
    MR_TRY(mr_pg_keys_ask(&catalog->keys, conn, view->oid, &now, ret_error));
    mr_relation_flagged_key(view);
    if (view->key_count == 0 && mr_pg_keys_is_gone(&catalog->keys, view->oid)) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT, "table %s.%s was just dropped", view->schema,
                       view->table);
    }
    if (catalog->options->hides_columns) {
        MR_TRY(mr_pg_parts_read(&catalog->parts, conn, &view->oid, ret_error));
    }
    mr_status status;
    while ((status = describe_ours(catalog, &now, view, ret_error)) == MR_FULL) {
        MR_TRY(describe_ask(catalog, conn, ret_error));
        catalog->question.kind = MR_PG_ASK_NOTHING;
    }
    return status;
}
