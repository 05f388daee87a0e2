#include "postgres/server/pg_left.h"

#include "event/lsn.h"
#include "postgres/catalog/pg_captured.h"

enum {
    LOOK_MS = 20000,      /* what the server has not found out by then can't be told */
    MESSAGES_MAX = 20000, /* that it decodes, but for the rest of a transaction */
    OTHERS_MAX = 200,     /* tables that are asked about */
};

#define PEEK                                                                                       \
    "pg_logical_slot_peek_binary_changes(%L, %L, %u, 'proto_version', '1', 'publication_names', "  \
    "%L%s)"

struct lsn_text {
    char text[32];
};

static struct lsn_text at_server(mr_lsn lsn)
{
    struct lsn_text ret;
    snprintf(ret.text, sizeof(ret.text), MR_LSN_FORMAT, MR_LSN_ARGS(mr_lsn_at_server(lsn)));
    return ret;
}

struct holding {
    const struct mr_pg_source_options *options;
    uint32_t others[OTHERS_MAX]; /* tables whose names, as they were then, are not configured */
    uint32_t count;
    bool is_ours; /* another one is, or it can't be told */
};

/* How much there is, and how much of it is logical messages; or a table that has changes. */
static mr_status pg_left_take(void *context, const struct mr_pg_result *row,
                              struct mr_error *ret_error)
{
    struct holding *holding = context;
    const char *schema = mr_pg_result_value(row, 0, 3);
    const char *table = mr_pg_result_value(row, 0, 4);
    (void)ret_error;
    if (schema == NULL || table == NULL) {
        holding->is_ours |=
            mr_pg_result_number(row, 0, 0) >= MESSAGES_MAX || mr_pg_result_number(row, 0, 1) != 0;
        return MR_OK;
    }
    holding->is_ours |=
        holding->count == OTHERS_MAX ||
        mr_pg_table_place(holding->options, mr_slice_of(schema), mr_slice_of(table)) != UINT32_MAX;
    if (!holding->is_ours) {
        holding->others[holding->count++] = (uint32_t)mr_pg_result_number(row, 0, 2);
    }
    return MR_OK;
}

/* pgoutput describes a table (R, 82) right before the first of its changes that the publication
 * sends, TRUNCATE included; with a partition also its root (maybe_send_schema in PostgreSQL's
 * pgoutput.c). M, 77, is a logical message (PostgreSQL manual, Logical Replication Message
 * Formats). */
static mr_status ask_what_it_holds(struct mr_pg_conn *conn, struct holding *holding,
                                   const char *publication, mr_lsn until)
{
    static const struct mr_pg_shape shape = {"what the slot holds", "NNNSS", 1, UINT32_MAX};
    const struct mr_pg_source_options *options = holding->options;
    struct mr_text sql = {0};
    mr_sql_format(&sql,
                  "WITH held AS MATERIALIZED (SELECT data FROM " PEEK
                  "), described AS (SELECT DISTINCT substring(data FROM 2 FOR 4) AS oid,"
                  " substring(data FROM 6) AS names FROM held WHERE get_byte(data, 0) = 82),"
                  " parted AS (SELECT oid, names, position('\\x00'::bytea IN names) AS one"
                  " FROM described), named AS (SELECT oid, substring(names FOR one - 1) AS schema,"
                  " substring(names FROM one + 1) AS rest FROM parted)"
                  " SELECT count(*), count(*) FILTER (WHERE get_byte(data, 0) = 77), NULL::bigint,"
                  " NULL::text, NULL::text FROM held UNION ALL SELECT DISTINCT NULL::bigint,"
                  " NULL::bigint, ('x' || encode(oid, 'hex'))::bit(32)::bigint,"
                  " convert_from(schema, current_setting('client_encoding')),"
                  " convert_from(substring(rest FOR position('\\x00'::bytea IN rest) - 1),"
                  " current_setting('client_encoding')) FROM named",
                  options->slot, at_server(until).text, MESSAGES_MAX, publication,
                  options->messages ? ", 'messages', 'true'" : "");
    return mr_pg_ask_rows(conn, &sql, &shape, pg_left_take, holding, NULL);
}

/* A name alone does not tell: it may be, or may have been, a partition of a table that is
 * streamed. */
static bool others_are_foreign(struct mr_pg_conn *conn, const struct holding *holding)
{
    struct mr_pg_captured captured = {0};
    const struct mr_pg_horizon none = {0};
    bool are = holding->count == 0 ||
               mr_pg_captured_read(&captured, conn, holding->options, &none, NULL) == MR_OK;
    for (uint32_t i = 0; i < holding->count && are; i++) {
        are = mr_pg_captured_is_foreign(&captured, conn, holding->options, holding->others[i]);
    }
    mr_pg_captured_done(&captured);
    return are;
}

/* Begin messages (B, 66) of it that the slot holds: then the server has what was delivered, and no
 * other history since. */
static void skip_delivered(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                           const struct mr_pg_delivered *delivered, const char *publication)
{
    int64_t found = 0;
    uint64_t lsn = mr_lsn_at_server(delivered->last.lsn);
    struct lsn_text end = at_server(delivered->end);
    char begins[2 * 9 + 1];
    char xid[2 * 4 + 1];
    snprintf(begins, sizeof(begins), "42%016llx", (unsigned long long)lsn);
    snprintf(xid, sizeof(xid), "%08x", delivered->last.xid);
    mr_status status = mr_pg_ask_number(
        conn, "a transaction that was delivered", 'n', &found, NULL,
        "SELECT count(*) FROM " PEEK " WHERE substring(data FOR 9) = decode(%L, 'hex')"
        " AND substring(data FROM 18 FOR 4) = decode(%L, 'hex')",
        options->slot, end.text, MESSAGES_MAX, publication, "", begins, xid);
    if (status == MR_OK && found == 1) {
        (void)mr_pg_commandf(conn, MR_PG_ANSWER_MS, NULL,
                             "SELECT pg_replication_slot_advance(%L, %L)", options->slot, end.text);
    }
}

bool mr_pg_slot_holds_changes(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              const struct mr_pg_delivered *delivered, mr_lsn confirmed,
                              mr_lsn until)
{
    struct holding holding = {.options = options};
    MR_TEXT(name);
    mr_sql_add_identifier(&name, options->publication);
    mr_status status =
        mr_pg_commandf(conn, MR_PG_ANSWER_MS, NULL, "SET statement_timeout = %u", LOOK_MS);
    /* One before that was confirmed is none that the slot has. */
    if (delivered->last.xid != 0 && delivered->last.lsn >= confirmed) {
        skip_delivered(conn, options, delivered, name.data);
    }
    status = MR_THEN(status, ask_what_it_holds(conn, &holding, name.data, until));
    bool holds = status != MR_OK || holding.is_ours || !others_are_foreign(conn, &holding);
    mr_status reset = mr_pg_command(conn, "SET statement_timeout = 0", MR_PG_ANSWER_MS, NULL);
    return holds || reset != MR_OK;
}
