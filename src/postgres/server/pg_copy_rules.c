/* What must be true of the tables before their existing rows are copied. */
#include <stdio.h>
#include <string.h>

#include "postgres/server/pg_copying.h"
#include "postgres/server/pg_rules.h"

enum { TEXT_MAX = 1024, SUBJECT_MAX = 600 };

struct copy_rules {
    struct mr_pg_conn *conn;
    const struct mr_pg_source_options *options;
    struct mr_pg_reporter to;
    uint64_t where_fits; /* a bit each, of the first 64 */
    uint32_t tables;
    uint32_t errors;
};

static mr_slice name_at(const struct mr_pg_result *tables, uint32_t row, enum mr_copied_column name)
{
    return mr_slice_of(mr_pg_result_value(tables, row, name));
}

/* Where nothing is copied before the stream, a connection of its own says that something is to be copied beside it. */
static void cannot_copy(struct copy_rules *rules, const char *subject, const char *remedy,
                        const char *reason)
{
    bool is_sure = rules->options->copies != MR_COPIES_NOTHING;
    mr_pg_found(&rules->to, is_sure ? MR_FINDING_ERROR : MR_FINDING_WARNING,
                is_sure ? MR_ERR_AUTH : MR_OK, subject, remedy, "can't be copied: %s", reason);
    rules->errors += is_sure;
}

static void rule_rights(struct copy_rules *rules, const struct mr_pg_result *tables, uint32_t row,
                        const char *name, const char *subject)
{
    const char *role = mr_pg_user(rules->conn);
    const char *instead =
        rules->options->copies == MR_COPIES_NOTHING ? "" : ", or set snapshot.mode = \"no_data\"";
    char remedy[TEXT_MAX];
    char reason[TEXT_MAX];
    if (!mr_pg_result_true(tables, row, MR_COPIED_SCHEMA_USABLE)) {
        snprintf(remedy, sizeof(remedy), "GRANT USAGE ON SCHEMA \"%s\" TO \"%s\"",
                 mr_pg_result_value(tables, row, MR_COPIED_LEAF_SCHEMA), role);
        snprintf(reason, sizeof(reason), "\"%s\" may not use its schema", role);
    } else if (!mr_pg_result_true(tables, row, MR_COPIED_READABLE)) {
        snprintf(remedy, sizeof(remedy), "GRANT SELECT ON %s TO \"%s\"%s", name, role, instead);
        snprintf(reason, sizeof(reason), "\"%s\" may not read its rows", role);
    } else if (mr_pg_result_true(tables, row, MR_COPIED_HIDES_ROWS)) {
        snprintf(remedy, sizeof(remedy), "ALTER ROLE \"%s\" BYPASSRLS%s", role, instead);
        snprintf(reason, sizeof(reason),
                 "its policies for row-level security would hide rows from \"%s\"", role);
    } else {
        return;
    }
    cannot_copy(rules, subject, remedy, reason);
}

/* Whoever owns one of them can have it do anything that the role which copies may do, and only read. */
static void rule_called(struct copy_rules *rules, const struct mr_pg_result *tables, uint32_t row,
                        const char *name, const char *subject)
{
    const char *called = mr_pg_result_value(tables, row, MR_COPIED_CALLED);
    const char *role = mr_pg_user(rules->conn);
    if (called == NULL || !mr_pg_result_true(tables, row, MR_COPIED_SCHEMA_USABLE) ||
        !mr_pg_result_true(tables, row, MR_COPIED_READABLE)) {
        return;
    }
    if (!mr_pg_result_true(tables, row, MR_COPIED_MAY_MORE)) {
        MR_FOUND_OK(&rules->to, subject,
                    "has indexes or statistics with functions that are called with the rights of "
                    "\"%s\", which may only read, when its rows are copied: %s",
                    role, called);
        return;
    }
    char remedy[TEXT_MAX];
    if (mr_pg_copies_apart(rules->options)) {
        snprintf(remedy, sizeof(remedy),
                 "take from \"%s\" what is more than SELECT (ALTER ROLE \"%s\" NOSUPERUSER "
                 "NOREPLICATION NOCREATEDB NOCREATEROLE; REVOKE the roles that it is a member of)",
                 role, role);
    } else {
        snprintf(remedy, sizeof(remedy),
                 "where these roles are not to be trusted, have the rows copied by a role that may "
                 "only read: CREATE ROLE copier LOGIN PASSWORD '...'; GRANT USAGE ON SCHEMA "
                 "\"%s\" TO copier; GRANT SELECT ON %s TO copier; and set "
                 "snapshot.connection_env (docs/security.md)",
                 mr_pg_result_value(tables, row, MR_COPIED_LEAF_SCHEMA), name);
    }
    MR_FOUND_WARNING(&rules->to, subject, remedy,
                     "has indexes or statistics with functions that are called with the rights of "
                     "\"%s\", which may do more than read, when its rows are copied: %s",
                     role, called);
}

static bool is_ended(mr_status status, const struct mr_error *error)
{
    return status == MR_ERR_TRANSIENT && strstr(error->text, "(57P01)") != NULL;
}

/* Whether the server, if it takes another connection, ends that by the same command, too. */
static bool ends_another(const struct copy_rules *rules, const char *command)
{
    const struct mr_pg_source_options *options = rules->options;
    struct mr_pg_conn *other;
    struct mr_error error = {0};
    mr_status status =
        mr_pg_connect(mr_pg_copies_apart(options) ? &options->copying : &options->connection, false,
                      mr_pg_stop_fd(rules->conn), &other, &error);
    if (status != MR_OK) {
        return false;
    }
    status = mr_pg_command(other, command, MR_PG_ANSWER_MS, &error);
    mr_pg_close(other);
    return is_ended(status, &error);
}

/* The server plans it, and reads no row. To plan is to call what has constant arguments, also of a view that stands where the table
 * was: what is called may only read, and what it sets goes with the transaction. */
static mr_status rule_where(struct copy_rules *rules, const struct mr_copy_where *where,
                            const char *name, const char *subject, struct mr_error *ret_error)
{
    struct mr_text sql = {0};
    struct mr_error error = {0};
    mr_text_format(&sql, "%sBEGIN READ ONLY; EXPLAIN SELECT FROM ONLY %s WHERE (%s\n)",
                   mr_pg_without_views(rules->conn), name, where->condition);
    mr_status status = mr_pg_command(rules->conn, sql.data, MR_PG_ANSWER_MS, &error);
    bool ends = is_ended(status, &error) && ends_another(rules, sql.data);
    mr_text_done(&sql);
    if (ends) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "%s has a condition in snapshot.where, %s, that ended each connection which "
                       "planned it (57P01); correct snapshot.where, or the functions that it calls",
                       subject, where->condition);
    }
    if (status != MR_AGAIN && status != MR_ERR_TRANSIENT) {
        MR_TRY(mr_pg_command(rules->conn, "ROLLBACK", MR_PG_ANSWER_MS, ret_error));
    }
    if (status == MR_AGAIN || status == MR_ERR_TRANSIENT) {
        *ret_error = error;
        return status;
    }
    if (status != MR_OK) {
        MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, subject, "correct snapshot.where",
                       "has a wrong condition in snapshot.where, %s: %s", where->condition,
                       error.text);
        rules->errors++;
    }
    return MR_OK;
}

static mr_status rule_table(struct copy_rules *rules, const struct mr_pg_result *tables,
                            uint32_t row, struct mr_error *ret_error)
{
    struct mr_table_name leaf = {.schema = mr_pg_result_value(tables, row, MR_COPIED_LEAF_SCHEMA),
                                 .table = mr_pg_result_value(tables, row, MR_COPIED_LEAF)};
    const struct mr_copy_where *where = mr_pg_where_of(
        rules->options, name_at(tables, row, MR_COPIED_SCHEMA),
        name_at(tables, row, MR_COPIED_TABLE), mr_slice_of(leaf.schema), mr_slice_of(leaf.table));
    struct mr_text name = {0};
    mr_sql_add_table(&name, &leaf);
    char subject[SUBJECT_MAX];
    snprintf(subject, sizeof(subject), "table %s", name.data);
    uint32_t errors = rules->errors;
    mr_status status = MR_OK;
    rule_called(rules, tables, row, name.data, subject);
    bool copies =
        rules->options->copies != MR_COPIES_NOTHING; /* else maybe while the stream runs */
    if (copies || mr_pg_copies_apart(rules->options)) {
        rule_rights(rules, tables, row, name.data, subject);
    }
    if (!copies) {
        mr_text_done(&name);
        return MR_OK;
    }
    if (where != NULL) {
        uint32_t index = (uint32_t)(where - rules->options->wheres);
        rules->where_fits |= index < 64 ? UINT64_C(1) << index : 0;
        if (rules->errors == errors) {
            status = rule_where(rules, where, name.data, subject, ret_error);
        }
    }
    mr_text_done(&name);
    rules->tables++;
    return status;
}

/* A condition that fits no table is a name misspelt, and rows would be copied that nobody wants. */
static void rule_unused(struct copy_rules *rules)
{
    for (uint32_t i = 0; i < rules->options->where_count && i < 64; i++) {
        if ((rules->where_fits >> i & 1) == 0) {
            char subject[SUBJECT_MAX];
            snprintf(subject, sizeof(subject), "snapshot.where, condition %u (%.200s)", i + 1,
                     rules->options->wheres[i].condition);
            MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, subject,
                           "correct the table's name, or take the condition out",
                           "fits none of the tables that are copied");
            rules->errors++;
        }
    }
}

static mr_status rules_of(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                          mr_finding_fn report, void *context, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the tables to copy", MR_COPIED_SHAPE, 0, UINT32_MAX};
    struct copy_rules rules = {
        .conn = conn, .options = options, .to = {.report = report, .context = context}};
    struct mr_text sql = {0};
    struct mr_pg_result *tables;
    mr_sql_add_copied(&sql, options, mr_pg_server_version(conn));
    MR_TRY(mr_pg_query(conn, &sql, &shape, &tables, ret_error));
    mr_status status = MR_OK;
    for (uint32_t row = 0; status == MR_OK && row < mr_pg_result_rows(tables); row++) {
        status = rule_table(&rules, tables, row, ret_error);
    }
    mr_pg_result_free(tables);
    MR_TRY(status);
    if (options->copies == MR_COPIES_NOTHING) {
        return MR_OK;
    }
    rule_unused(&rules);
    if (rules.errors == 0) {
        MR_FOUND_OK(&rules.to, "existing rows", "of %u %s can be copied", rules.tables,
                    rules.tables == 1 ? "table" : "tables");
    }
    return MR_OK;
}

/* What has a connection of its own is to have a role that may do less. */
static mr_status rule_role(struct mr_pg_conn *conn, const struct mr_pg_reporter *to,
                           struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the role that copies", "b", 1, 1};
    const char *role = mr_pg_user(conn);
    struct mr_text sql = {0};
    struct mr_pg_result *result;
    mr_text_string(&sql, "SELECT ");
    mr_sql_add_may_more(&sql);
    MR_TRY(mr_pg_query(conn, &sql, &shape, &result, ret_error));
    if (mr_pg_result_true(result, 0, 0)) {
        char remedy[TEXT_MAX];
        snprintf(remedy, sizeof(remedy),
                 "ALTER ROLE \"%s\" NOSUPERUSER NOREPLICATION NOCREATEDB NOCREATEROLE; REVOKE the "
                 "roles that it is a member of",
                 role);
        MR_FOUND_WARNING(to, "existing rows", remedy,
                         "are read by role \"%s\", which may do more than read", role);
    } else {
        MR_FOUND_OK(to, "existing rows", "are read by role \"%s\", which may only read", role);
    }
    mr_pg_result_free(result);
    return MR_OK;
}

mr_status mr_pg_rules_of_copy(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              mr_finding_fn report, void *context, struct mr_error *ret_error)
{
    if (!mr_pg_copies_apart(options)) {
        return rules_of(conn, options, report, context, ret_error);
    }
    struct mr_pg_place place;
    struct mr_pg_conn *copying;
    MR_TRY(mr_pg_place_read(conn, &place, ret_error));
    MR_TRY(mr_pg_copying_connect(options, &place, mr_pg_stop_fd(conn), &copying, ret_error));
    struct mr_pg_reporter to = {.report = report, .context = context};
    mr_status status = rule_role(copying, &to, ret_error);
    if (status == MR_OK) {
        status = rules_of(copying, options, report, context, ret_error);
    }
    mr_pg_close(copying);
    return status;
}
