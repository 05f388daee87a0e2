#include "postgres/conn/pg_errors.h"

#include "event/checkpoint.h"

/* First match wins; a part of a message narrows it. Codes: PostgreSQL documentation, appendix A. */
static const struct {
    const char *sqlstates;
    const char *part;
    mr_status status;
    const char *remedy;
} by_code[] = {
    {"28*", NULL, MR_ERR_AUTH, "check user, password and pg_hba.conf"},
    {"42501", "output plugin", MR_ERR_CONFIG,
     "add pgoutput to output_plugin_libraries in postgresql.conf and reload the server"},
    {"42501", MR_PG_BY_POLICY, MR_ERR_AUTH,
     "its policies would hide rows: run ALTER ROLE with BYPASSRLS for the role of this connection"},
    {"42501", NULL, MR_ERR_AUTH,
     "grant the role what is missing; millrace check lists what a stream needs"},
    {"3D000", NULL, MR_ERR_CONFIG, "check the database name in the connection settings"},
    /* 53: connections, slots, disk, memory, which may be there again later; 55P03: lock_timeout;
     * 55006: the slot is held by another process. */
    {"53300", "max_wal_senders", MR_ERR_TRANSIENT,
     "raise max_wal_senders, or end an unused walsender (pg_stat_replication)"},
    {"53300", "for role", MR_ERR_TRANSIENT,
     "raise it (ALTER ROLE … CONNECTION LIMIT), or end unused connections "
     "(pg_stat_activity)"},
    {"53300", "for database", MR_ERR_TRANSIENT,
     "raise it (ALTER DATABASE … CONNECTION LIMIT), or end unused connections "
     "(pg_stat_activity)"},
    {"53300", NULL, MR_ERR_TRANSIENT,
     "raise max_connections, or end unused connections (pg_stat_activity)"},
    {"57P01|57P02|57P03|57P05|08*|53*|55P03|55006|40*", NULL, MR_ERR_TRANSIENT, ""},
    {"58P01", "has already been removed", MR_ERR_HISTORY,
     "rows since the slot's position are gone" MR_RECIPE_LEAD MR_RECIPE_OF_COPY},
    /* Of a copy's slot, which was lost a moment ago: the next attempt sees that
     * (copy_replication_slot in slotfuncs.c). */
    {"55000", "cannot copy a replication slot that doesn't reserve WAL", MR_ERR_TRANSIENT, ""},
    {"55000", "cannot copy invalidated", MR_ERR_TRANSIENT, ""},
    {"55000", "can no longer", MR_ERR_HISTORY,
     "the slot is invalidated and rows since its position are gone" MR_RECIPE_LEAD
         MR_RECIPE_OF_COPY},
    {"55000", "cannot read from logical replication slot", MR_ERR_HISTORY,
     "the slot is invalidated and rows since its position are gone" MR_RECIPE_LEAD
         MR_RECIPE_OF_COPY},
    {"55000", "is not currently accepting connections", MR_ERR_CONFIG,
     "ALTER DATABASE … ALLOW_CONNECTIONS true"},
    {"55000", "on the primary", MR_ERR_CONFIG,
     "set wal_level = logical on the primary, whose WAL the standby reads, and restart it"},
    {"55000", "wal_level", MR_ERR_CONFIG,
     "set wal_level = logical in postgresql.conf and restart PostgreSQL"},
    {"42704", "publication", MR_ERR_HISTORY,
     "the publication is younger than the slot's position or was dropped, and the stream can't be "
     "read without it" MR_RECIPE_LEAD "1. if it does not exist, make it as it was (millrace "
     "check prints the statement), and start millrace; 2. if it ends so again, run millrace "
     "recover --config FILE: it makes the slot again, and sends what differs"},
    {"42704", "replication slot", MR_ERR_HISTORY,
     "the slot is gone and with it the rows since its position" MR_RECIPE_LEAD MR_RECIPE_OF_COPY},
    {"42710", "replication slot", MR_ERR_CONFIG,
     "another database of the cluster, or another program, has one of that name; choose another "
     "slot_name"},
    {"25006", NULL, MR_ERR_CONFIG,
     "the server is a standby (do it on the primary), or its sessions are read only "
     "(default_transaction_read_only): ALTER ROLE … SET default_transaction_read_only = off"},
    {"22021", NULL, MR_ERR_POISON,
     "a row holds bytes that are not valid in the database's encoding, so the server can't send it "
     "as UTF-8"},
    {"22P05", NULL, MR_ERR_POISON,
     "a row holds a character that UTF-8 does not have in the database's encoding; correct it"},
    {"XX*|58*", NULL, MR_ERR_TRANSIENT, ""},
};

static mr_status pg_errors_classify(const char *sqlstate, const char *message, mr_status otherwise,
                                    const char **ret_remedy)
{
    *ret_remedy = "";
    for (size_t i = 0; i < MR_ARRAY_LEN(by_code); i++) {
        bool same = mr_is_among(by_code[i].sqlstates, mr_slice_of(sqlstate));
        bool part = by_code[i].part == NULL || strstr(message, by_code[i].part) != NULL;
        if (same && part) {
            *ret_remedy = by_code[i].remedy;
            return by_code[i].status;
        }
    }
    return otherwise;
}

mr_status mr_pg_error_classify(const char *sqlstate, const char *message, const char **ret_remedy)
{
    return pg_errors_classify(sqlstate, message, MR_ERR_CONFIG, ret_remedy);
}

/* What is said of a value's error: the code's name in PostgreSQL's appendix A, or its class'. First
 * match wins. */
static const struct {
    const char *sqlstates;
    const char *text;
} of_value[] = {
    {"22P02", "a value can't be read as that type (invalid_text_representation)"},
    {"22003", "a value is out of range (numeric_value_out_of_range)"},
    {"22007|22008", "a value is no date or time, or out of range"},
    {"22012", "division by zero"},
    {"22*", "a value is not what it should be (data_exception)"},
    {"23*", "a row breaks a rule of its table (integrity_constraint_violation)"},
    {"P0*|38*|39*", "a function has raised an error"},
};

/* Of these the message is the server's own, about itself and its objects: rights, disk,
 * connections, locks, corrupt pages. */
#define OF_SERVER "08*|25*|28*|40*|42501|53*|55*|57*|58*|XX001|XX002"

const char *mr_pg_error_unquoted(const char *sqlstate, const struct mr_pg_origin *origin)
{
    mr_slice code = mr_slice_of(sqlstate);
    if (origin->has_place && !origin->has_context) {
        return NULL;
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(of_value); i++) {
        /* Ours outside of rows: a setting or a snapshot that is not there, a pattern of the
         * configuration. */
        bool is_ours = !origin->is_of_rows && !origin->has_context &&
                       (mr_is_among("22023|2201B", code) || strncmp(sqlstate, "23", 2) == 0);
        if (mr_is_among(of_value[i].sqlstates, code) && !is_ours) {
            return of_value[i].text;
        }
    }
    bool may_quote = origin->is_of_rows || origin->has_context;
    bool is_of_server = mr_is_among(OF_SERVER, code) && !origin->is_raised;
    return may_quote && !is_of_server ? "an error whose text may quote a row" : NULL;
}

/* Of an error within a callback of the output plugin, which is about the change at hand and comes
 * again there. */
static const struct {
    const char *sqlstate;
    const char *remedy;
} of_change[] = {
    {"54", "as text it is more than the server can put together (1 GB)"},
    {"XX", "as text it is more than the server can put together (1 GB), or the server has a fault "
           "of its own, which its log describes"},
};

#define MAY_NOT "the role may not replicate: ALTER ROLE … REPLICATION"

mr_status mr_pg_stream_error_classify(const char *sqlstate, const char *message, bool is_of_change,
                                      const char **ret_remedy)
{
    *ret_remedy = "";
    if (strncmp(sqlstate, "57", 2) == 0) {
        return MR_ERR_TRANSIENT; /* an operator's: cancelled, terminated, shut down */
    }
    for (size_t i = 0; is_of_change && i < MR_ARRAY_LEN(of_change); i++) {
        if (strncmp(sqlstate, of_change[i].sqlstate, 2) == 0) {
            *ret_remedy = of_change[i].remedy;
            return MR_ERR_POISON;
        }
    }
    mr_status status = pg_errors_classify(sqlstate, message,
                                          is_of_change ? MR_ERR_POISON : MR_ERR_CONFIG, ret_remedy);
    return strncmp(sqlstate, "22", 2) == 0 ? MR_ERR_POISON : status;
}

static const struct {
    const char *sqlstates; /* NULL: any, or none, which is libpq's own text */
    const char *part;
    mr_status status;
    const char *remedy;
} by_text[] = {
    {NULL, "does not match host name", MR_ERR_AUTH,
     "connect by a name that is in the server's certificate, or have one issued for this name"},
    {NULL, "root certificate file", MR_ERR_CONFIG,
     "sslrootcert must name a readable file with the CA of the server's certificate"},
    {NULL, "certificate verify failed", MR_ERR_AUTH,
     "check that sslrootcert holds the CA of the server's certificate, and that the certificate is "
     "still valid"},
    {NULL, "certificate", MR_ERR_AUTH, "check sslrootcert, sslcert and the server's certificate"},
    {NULL, "private key file", MR_ERR_CONFIG,
     "sslkey must name the key of sslcert, in a file that only its owner may read"},
    {NULL, "password authentication failed", MR_ERR_AUTH, "check user and password"},
    {NULL, "no password supplied", MR_ERR_AUTH,
     "set password beside the connection, or a password in its variable"},
    {NULL, "pg_hba.conf rejects", MR_ERR_AUTH,
     "a line of pg_hba.conf with reject is before one that would let the role in"},
    {NULL, "no pg_hba.conf entry", MR_ERR_AUTH,
     "allow the role in pg_hba.conf; logical replication uses the line of the database"},
    {NULL, "authentication failed", MR_ERR_AUTH, "check user and password"},
    {"42501", "for database", MR_ERR_AUTH, "GRANT CONNECT ON DATABASE … TO the role"},
    {NULL, "permission denied", MR_ERR_AUTH, MAY_NOT},
    {NULL, "must be superuser or replication role", MR_ERR_AUTH, MAY_NOT},
    {NULL, "is not permitted to log in", MR_ERR_AUTH, "ALTER ROLE … LOGIN"},
    {NULL, "does not support SSL", MR_ERR_CONFIG,
     "switch TLS on in the server, or choose a weaker sslmode on purpose"},
    {NULL, "channel binding", MR_ERR_AUTH,
     "with sslmode=require the server must prove itself by SCRAM and channel binding; set "
     "password_encryption = scram-sha-256 and then the password again, or use sslmode=verify-full "
     "with the server's CA in sslrootcert"},
    {"28*|08*", "role \"", MR_ERR_AUTH, "check the user name; CREATE ROLE … LOGIN REPLICATION"},
    {"3D*|08*", "database \"", MR_ERR_CONFIG, "check the database name in the connection settings"},
    {NULL, "unsupported startup parameter", MR_ERR_CONFIG,
     "this is a pooler's answer (PgBouncer's): connect to PostgreSQL itself, docs/postgresql.md"},
    {NULL, " value: \"", MR_ERR_CONFIG, "see libpq's connection strings"}, /* "invalid sslmode …" */
    {NULL, "definition of service", MR_ERR_CONFIG,
     "the service must be in the file that PGSERVICEFILE names, else in ~/.pg_service.conf"},
    {NULL, "service file \"", MR_ERR_CONFIG, "PGSERVICEFILE must name a file that is there"},
};

mr_status mr_pg_connect_error_classify(const char *sqlstate, const char *message,
                                       const char **ret_remedy)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(by_text); i++) {
        const char *codes = by_text[i].sqlstates;
        bool same = codes == NULL || mr_is_among(codes, mr_slice_of(sqlstate));
        if (same && strstr(message, by_text[i].part) != NULL) {
            *ret_remedy = by_text[i].remedy;
            return by_text[i].status;
        }
    }
    return pg_errors_classify(sqlstate, message, MR_ERR_TRANSIENT, ret_remedy);
}
