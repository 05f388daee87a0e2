/* What must be true of the tables before their existing rows are copied. */

#include "postgres/server/pg_copying.h"
#include "postgres/server/pg_rules.h"

struct planned {
    const struct mr_copy_where *where;
    char *schema, *table;
};

struct copy_rules {
    struct mr_pg_conn *conn;
    const struct mr_pg_source_options *options;
    struct mr_pg_reporter *to;
    uint64_t where_fits; /* a bit each, of the first 64 */
    uint32_t tables;
    struct planned *planned;
    uint32_t planned_count, planned_room;
};

/* Whose rows are read. */
static struct mr_table_name pg_copy_rules_leaf_of(const struct mr_pg_result *row)
{
    return (struct mr_table_name){.schema = mr_pg_result_value(row, 0, MR_COPIED_LEAF_SCHEMA),
                                  .table = mr_pg_result_value(row, 0, MR_COPIED_LEAF)};
}

/* Where nothing is copied before the stream, a connection of its own says that something is to be
 * copied beside it. */
static void rule_rights(const struct copy_rules *rules, const struct mr_pg_result *row)
{
    const struct mr_table_name leaf = pg_copy_rules_leaf_of(row);
    const char *role = mr_pg_user(rules->conn);
    bool is_sure = mr_pg_copies_rows(rules->options->copies);
    const char *instead = is_sure ? ", or set snapshot.mode = \"no_data\"" : "";
    const char *reason;
    if (!mr_pg_result_true(row, 0, MR_COPIED_SCHEMA_USABLE)) {
        mr_pg_remedy(rules->to, "GRANT USAGE ON SCHEMA %I TO %I", leaf.schema, role);
        reason = "\"%s\" may not use its schema";
    } else if (!mr_pg_result_true(row, 0, MR_COPIED_READABLE)) {
        mr_pg_remedy(rules->to, "GRANT SELECT ON %T TO %I%s", &leaf, role, instead);
        reason = "\"%s\" may not read its rows";
    } else if (mr_pg_result_true(row, 0, MR_COPIED_HIDES_ROWS)) {
        mr_pg_remedy(rules->to, "ALTER ROLE %I BYPASSRLS%s", role, instead);
        reason = "its policies for row-level security would hide rows from \"%s\"";
    } else {
        return;
    }
    MR_TEXT(text);
    mr_sql_format(&text, reason, role);
    mr_pg_found(rules->to, is_sure ? MR_FINDING_ERROR : MR_FINDING_WARNING, MR_ERR_AUTH,
                "can't be copied: %s", text.data);
}

/* The owner of one of them can have it do anything that the role which copies may do, and only
 * read. */
static void rule_called(const struct copy_rules *rules, const struct mr_pg_result *row)
{
    const struct mr_table_name leaf = pg_copy_rules_leaf_of(row);
    const char *role = mr_pg_user(rules->conn);
    const char *called = mr_pg_result_value(row, 0, MR_COPIED_CALLED);
    if (called == NULL || !mr_pg_result_true(row, 0, MR_COPIED_SCHEMA_USABLE) ||
        !mr_pg_result_true(row, 0, MR_COPIED_READABLE)) {
        return;
    }
    if (!mr_pg_result_true(row, 0, MR_COPIED_MAY_MORE)) {
        MR_FOUND_OK(rules->to,
                    "has indexes or statistics with functions that are called with the rights of "
                    "\"%s\", which may only read, when its rows are copied: %s",
                    role, called);
        return;
    }
    if (mr_pg_copies_apart(rules->options)) {
        mr_pg_remedy(rules->to,
                     "take from %I what is more than SELECT (ALTER ROLE %I NOSUPERUSER "
                     "NOREPLICATION NOCREATEDB NOCREATEROLE; REVOKE the roles that it is a member "
                     "of)",
                     role, role);
    } else {
        mr_pg_remedy(rules->to,
                     "where these roles are not to be trusted, have the rows copied by a role that "
                     "may only read: CREATE ROLE copier LOGIN PASSWORD '...'; GRANT USAGE ON "
                     "SCHEMA %I TO copier; GRANT SELECT ON %T TO copier; and set "
                     "snapshot.connection (docs/security.md)",
                     leaf.schema, &leaf);
    }
    MR_FOUND_WARNING(rules->to,
                     "has indexes or statistics with functions that are called with the rights of "
                     "\"%s\", which may do more than read, when its rows are copied: %s",
                     role, called);
}

static bool is_ended(mr_status status, const struct mr_error *error)
{
    return status == MR_ERR_TRANSIENT && mr_error_is(error, "57P01");
}

/* Whether the server, if it takes another connection, ends that by the same command, too. */
static bool ends_another(const struct copy_rules *rules, const char *command)
{
    const struct mr_pg_source_options *options = rules->options;
    MR_PG_CLOSED struct mr_pg_conn *other = NULL;
    struct mr_error error = {0};
    mr_status status =
        mr_pg_connect(mr_pg_copies_apart(options) ? &options->copying : &options->connection, false,
                      mr_pg_stop_fd(rules->conn), &other, &error);
    if (status != MR_OK) {
        return false;
    }
    status = mr_pg_command(other, command, MR_PG_ANSWER_MS, &error);
    return is_ended(status, &error);
}

/* The server plans it, and reads no row. To plan is to call what has constant arguments, also of a
 * view that stands where the table was: what is called may only read, and what it sets goes with
 * the transaction. */
static mr_status rule_where(const struct copy_rules *rules, const struct planned *planned,
                            struct mr_error *ret_error)
{
    const struct mr_copy_where *where = planned->where;
    const struct mr_table_name leaf = {.schema = planned->schema, .table = planned->table};
    MR_TEXT(sql);
    struct mr_error error = {0};
    mr_pg_about(rules->to, "table %T", &leaf);
    mr_sql_format(&sql, "%sBEGIN READ ONLY; EXPLAIN SELECT FROM ONLY %T WHERE ",
                  mr_pg_without_views(rules->conn), &leaf);
    mr_sql_add_condition(&sql, where->condition);
    mr_status status = mr_pg_command(rules->conn, sql.data, MR_PG_ANSWER_MS, &error);
    bool ends = is_ended(status, &error) && ends_another(rules, sql.data);
    if (ends) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "%s has a condition in snapshot.where, %s, that ended each connection which "
                       "planned it (57P01); correct snapshot.where, or the functions that it calls",
                       rules->to->subject, where->condition);
    }
    if (status == MR_AGAIN || status == MR_ERR_TRANSIENT) {
        *ret_error = error;
        return status;
    }
    MR_TRY(mr_pg_command(rules->conn, "ROLLBACK", MR_PG_ANSWER_MS, ret_error));
    if (status != MR_OK) {
        mr_pg_remedy(rules->to, "correct snapshot.where");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG, "has a wrong condition in snapshot.where, %s: %s",
                       where->condition, error.text);
    }
    return MR_OK;
}

static void add_planned(struct copy_rules *rules, const struct mr_copy_where *where,
                        const struct mr_table_name *leaf)
{
    MR_GROW(rules->planned, rules->planned_room, rules->planned_count + 1);
    rules->planned[rules->planned_count++] = (struct planned){
        .where = where, .schema = MR_STRDUP(leaf->schema), .table = MR_STRDUP(leaf->table)};
}

static void planned_done(struct copy_rules *rules)
{
    for (uint32_t i = 0; i < rules->planned_count; i++) {
        free(rules->planned[i].schema);
        free(rules->planned[i].table);
    }
    free(rules->planned);
}

static mr_status pg_copy_rule_table(void *context, const struct mr_pg_result *row,
                                    struct mr_error *ret_error)
{
    struct copy_rules *rules = context;
    const struct mr_pg_source_options *options = rules->options;
    const struct mr_table_name leaf = pg_copy_rules_leaf_of(row);
    const struct mr_copy_where *where =
        mr_pg_where_of(options, mr_slice_of(mr_pg_result_value(row, 0, MR_COPIED_SCHEMA)),
                       mr_slice_of(mr_pg_result_value(row, 0, MR_COPIED_TABLE)),
                       mr_slice_of(leaf.schema), mr_slice_of(leaf.table));
    bool copies = mr_pg_copies_rows(options->copies); /* else maybe while the stream runs */
    uint32_t errors = rules->to->errors;
    mr_pg_about(rules->to, "table %T", &leaf);
    rule_called(rules, row);
    if (copies || mr_pg_copies_apart(options)) {
        rule_rights(rules, row);
    }
    if (copies && where != NULL) {
        uint32_t index = (uint32_t)(where - options->wheres);
        rules->where_fits |= index < 64 ? UINT64_C(1) << index : 0;
        if (rules->to->errors == errors) {
            add_planned(rules, where, &leaf);
        }
    }
    rules->tables++;
    return MR_OK;
}

/* A condition that fits no table is a name misspelt, and rows would be copied that nobody wants. */
static void rule_unused(const struct copy_rules *rules)
{
    for (uint32_t i = 0; i < rules->options->where_count && i < 64; i++) {
        if ((rules->where_fits >> i & 1) == 0) {
            char condition[200];
            snprintf(condition, sizeof(condition), "%s", rules->options->wheres[i].condition);
            mr_pg_about(rules->to, "snapshot.where, condition %u (%s)", i + 1, condition);
            mr_pg_remedy(rules->to, "correct the table's name, or take the condition out");
            MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG, "fits none of the tables that are copied");
        }
    }
}

static mr_status rule_tables(struct copy_rules *rules, int version, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the tables to copy", MR_COPIED_SHAPE, 0, UINT32_MAX};
    struct mr_text sql = {0};
    mr_sql_add_copied(&sql, rules->options, version);
    mr_status status =
        mr_pg_ask_rows(rules->conn, &sql, &shape, pg_copy_rule_table, rules, ret_error);
    for (uint32_t i = 0; i < rules->planned_count && status == MR_OK; i++) {
        status = rule_where(rules, &rules->planned[i], ret_error);
    }
    planned_done(rules);
    return status;
}

/* Of signals; what else has a condition is an operator's. */
static mr_status rule_signals(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    if (options->signal_table == NULL) {
        return MR_OK;
    }
    const char *role = mr_pg_user(conn);
    int64_t may_more;
    MR_TRY(mr_pg_ask_number(conn, "the role that copies", 'b', &may_more, ret_error,
                            "SELECT " MR_SQL_MAY_MORE));
    mr_pg_about(to, "conditions of signals");
    if (!may_more) {
        MR_FOUND_OK(to, "are read by role \"%s\", which may only read", role);
    } else if (options->signal_conditions == MR_SIGNAL_CONDITIONS_READ_ONLY) {
        MR_FOUND_OK(to,
                    "are refused, because role \"%s\", which copies, may do more than read: "
                    "snapshot.connection names another (docs/security.md)",
                    role);
    } else {
        mr_pg_remedy(to, "set snapshot.connection, for a role that may only read "
                         "(docs/security.md)");
        MR_FOUND_WARNING(
            to,
            "are SQL that everyone who may write the table of signals has role \"%s\" run, "
            "which may do more than read",
            role);
    }
    return MR_OK;
}

static mr_status rules_of(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                          struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    struct copy_rules rules = {.conn = conn, .options = facts->options, .to = to};
    uint32_t errors = to->errors;
    MR_TRY(rule_tables(&rules, facts->version, ret_error));
    MR_TRY(rule_signals(conn, facts->options, to, ret_error));
    if (!mr_pg_copies_rows(facts->options->copies)) {
        return MR_OK;
    }
    rule_unused(&rules);
    if (to->errors == errors) {
        mr_pg_about(to, "existing rows");
        MR_FOUND_OK(to, "of %u %s can be copied", rules.tables,
                    rules.tables == 1 ? "table" : "tables");
    }
    return MR_OK;
}

/* What has a connection of its own is to have a role that may do less. */
static mr_status rule_role(struct mr_pg_conn *conn, struct mr_pg_reporter *to,
                           struct mr_error *ret_error)
{
    const char *role = mr_pg_user(conn);
    int64_t may_more;
    MR_TRY(mr_pg_ask_number(conn, "the role that copies", 'b', &may_more, ret_error,
                            "SELECT " MR_SQL_MAY_MORE));
    mr_pg_about(to, "existing rows");
    if (may_more) {
        mr_pg_remedy(to,
                     "ALTER ROLE %I NOSUPERUSER NOREPLICATION NOCREATEDB NOCREATEROLE; REVOKE "
                     "the roles that it is a member of",
                     role);
        MR_FOUND_WARNING(to, "are read by role \"%s\", which may do more than read", role);
    } else {
        MR_FOUND_OK(to, "are read by role \"%s\", which may only read", role);
    }
    return MR_OK;
}

mr_status mr_pg_rules_of_copy(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                              struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    if (!mr_pg_copies_apart(facts->options)) {
        return rules_of(conn, facts, to, ret_error);
    }
    struct mr_pg_place place;
    MR_PG_CLOSED struct mr_pg_conn *copying = NULL;
    MR_TRY(mr_pg_place_read(conn, &place, ret_error));
    MR_TRY(mr_pg_copying_connect(facts->options, &place, mr_pg_stop_fd(conn), &copying, ret_error));
    MR_TRY(rule_role(copying, to, ret_error));
    return rules_of(copying, facts, to, ret_error);
}
