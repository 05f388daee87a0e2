#include "postgres/conn/pg_errors.h"

#include <string.h>

#include "testing/test.h"

struct sample {
    const char *sqlstate; /* NULL: a connection attempt */
    const char *message;
    mr_status status;
    const char *remedy; /* a part of it; "": there is none */
};

static void check_samples(const struct sample *samples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct sample *sample = &samples[i];
        const char *remedy;
        mr_status status = sample->sqlstate != NULL
                               ? mr_pg_error_classify(sample->sqlstate, sample->message, &remedy)
                               : mr_pg_connect_error_classify("", sample->message, &remedy);
        if (status != sample->status || strstr(remedy, sample->remedy) == NULL ||
            (sample->remedy[0] == '\0') != (remedy[0] == '\0')) {
            fail_msg("\"%s\": %s, \"%s\"", sample->message, mr_status_name(status), remedy);
        }
    }
}

static void test_classify_by_code(void **state)
{
    (void)state;
    static const struct sample samples[] = {
        {"28P01", "password authentication failed for user \"u\"", MR_ERR_AUTH, "pg_hba.conf"},
        {"42501", "output plugin \"pgoutput\" is not allowed", MR_ERR_CONFIG,
         "output_plugin_libraries"},
        {"42501", "permission denied for table t", MR_ERR_AUTH, "grant"},
        {"42501", "query would be affected by row-level security policy for table \"t\"",
         MR_ERR_AUTH, "BYPASSRLS"},
        {"57P01", "terminating connection due to administrator command", MR_ERR_TRANSIENT, ""},
        {"3D000", "database \"x\" does not exist", MR_ERR_CONFIG, "database name"},
        {"53300", "sorry, too many clients already", MR_ERR_TRANSIENT, "max_connections"},
        {"55006", "replication slot \"s\" is active for PID 1", MR_ERR_TRANSIENT, ""},
        {"58P01", "requested WAL segment 0001 has already been removed", MR_ERR_HISTORY,
         "millrace recover"},
        {"55000", "can no longer get changes from replication slot \"s\"", MR_ERR_HISTORY,
         "millrace recover"},
        {"55000", "logical decoding requires wal_level >= logical", MR_ERR_CONFIG, "wal_level"},
        {"55000", "logical decoding on standby requires wal_level >= logical on the primary",
         MR_ERR_CONFIG, "on the primary"},
        {"25006", "cannot execute INSERT in a read-only transaction", MR_ERR_CONFIG,
         "on the primary"},
        {"40001", "terminating connection due to conflict with recovery", MR_ERR_TRANSIENT, ""},
        {"42704", "publication \"p\" does not exist", MR_ERR_HISTORY, "it makes the slot again"},
        {"42704", "replication slot \"s\" does not exist", MR_ERR_HISTORY, "the slot is gone"},
        {"42710", "replication slot \"s\" already exists", MR_ERR_CONFIG, "another slot_name"},
        {"22021", "invalid byte sequence for encoding", MR_ERR_POISON, "encoding"},
        {"22P05", "character has no equivalent", MR_ERR_POISON, "correct it"},
        {"XX000", "something", MR_ERR_TRANSIENT, ""},
        {"42601", "syntax error", MR_ERR_CONFIG, ""},
    };
    check_samples(samples, MR_ARRAY_LEN(samples));
}

static void test_stream_error_classify(void **state)
{
    (void)state;
    static const struct {
        const char *sqlstate;
        bool is_of_change;
        mr_status status;
    } samples[] = {
        {"XX000", true, MR_ERR_POISON},    {"XX000", false, MR_ERR_TRANSIENT},
        {"54000", true, MR_ERR_POISON},    {"54000", false, MR_ERR_CONFIG},
        {"22012", true, MR_ERR_POISON},    {"22012", false, MR_ERR_POISON},
        {"42883", true, MR_ERR_POISON},    {"42883", false, MR_ERR_CONFIG},
        {"57014", true, MR_ERR_TRANSIENT}, {"57P01", false, MR_ERR_TRANSIENT},
        {"53200", true, MR_ERR_TRANSIENT}, {"40001", true, MR_ERR_TRANSIENT},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(samples); i++) {
        const char *remedy;
        assert_int_equal(mr_pg_stream_error_classify(samples[i].sqlstate, "something",
                                                     samples[i].is_of_change, &remedy),
                         samples[i].status);
    }
    const char *remedy;
    assert_int_equal(
        mr_pg_stream_error_classify("42704", "publication \"p\" does not exist", true, &remedy),
        MR_ERR_HISTORY);
}

/* Texts of libpq 15 to 18 and of the server. */
static void test_classify_connection(void **state)
{
    (void)state;
    static const struct sample samples[] = {
        {NULL, "connection to server at \"h\", port 1 failed: Connection refused", MR_ERR_TRANSIENT,
         ""},
        {NULL, "FATAL: the database system is starting up", MR_ERR_TRANSIENT, ""},
        {NULL, "FATAL: password authentication failed for user \"u\"", MR_ERR_AUTH,
         "user and password"},
        {NULL, "fe_sendauth: no password supplied", MR_ERR_AUTH, "set password beside"},
        {NULL, "SSL error: certificate verify failed", MR_ERR_AUTH, "still valid"},
        {NULL, "server certificate for \"a\" does not match host name \"b\"", MR_ERR_AUTH,
         "connect by a name"},
        {NULL, "root certificate file \"/x\" does not exist", MR_ERR_CONFIG, "sslrootcert"},
        {NULL, "FATAL: certificate authentication failed for user \"u\"", MR_ERR_AUTH, "sslcert"},
        {NULL, "server does not support SSL, but SSL was required", MR_ERR_CONFIG, "switch TLS on"},
        {NULL, "SSL error: unexpected eof while reading", MR_ERR_TRANSIENT, ""},
        {NULL, "definition of service \"x\" not found", MR_ERR_CONFIG, "PGSERVICEFILE"},
        {NULL, "service file \"/x\" not found", MR_ERR_CONFIG, "PGSERVICEFILE"},
        {NULL, "invalid channel_binding value: \"x\"", MR_ERR_CONFIG, "connection strings"},
        {NULL, "private key file \"/x\" has group or world access", MR_ERR_CONFIG, "sslkey"},
        {NULL,
         "FATAL: pg_hba.conf rejects connection for host \"h\", user \"u\", database \"d\", no "
         "encryption",
         MR_ERR_AUTH, "reject is before"},
    };
    check_samples(samples, MR_ARRAY_LEN(samples));
}

/* The code decides where the text is not English. */
static void test_classify_refusal(void **state)
{
    (void)state;
    static const struct {
        const char *sqlstate;
        const char *message;
        mr_status status;
        const char *remedy;
    } samples[] = {
        {"28P01", "Passwort-Authentifizierung fehlgeschlagen", MR_ERR_AUTH, "pg_hba.conf"},
        {"57P03", "das Datenbanksystem wird heruntergefahren", MR_ERR_TRANSIENT, ""},
        {"3D000", "Datenbank »x« existiert nicht", MR_ERR_CONFIG, "database name"},
        {"28000", "pg_hba.conf rejects connection for host \"h\", user \"u\", database \"d\"",
         MR_ERR_AUTH, "reject is before"},
        {"3D000", "database \"x\" does not exist", MR_ERR_CONFIG, "database name"},
        {"28000", "role \"x\" does not exist", MR_ERR_AUTH, "CREATE ROLE"},
        {"53300", "sorry, too many clients already", MR_ERR_TRANSIENT, "max_connections"},
        {"53300", "zu viele Verbindungen für Rolle »x«", MR_ERR_TRANSIENT, "max_connections"},
        {"53300", "too many connections for role \"x\"", MR_ERR_TRANSIENT, "ALTER ROLE"},
        {"53300", "too many connections for database \"x\"", MR_ERR_TRANSIENT, "ALTER DATABASE"},
        {"53300", "number of requested standby connections exceeds max_wal_senders (currently 1)",
         MR_ERR_TRANSIENT, "raise max_wal_senders"},
        {"55000", "database \"x\" is not currently accepting connections", MR_ERR_CONFIG,
         "ALLOW_CONNECTIONS"},
        {"42501", "permission denied for database \"x\"", MR_ERR_AUTH, "GRANT CONNECT"},
        {"42501", "must be superuser or replication role to start walsender", MR_ERR_AUTH,
         "the role may not replicate"}, /* as docs/runbook.md has it */
        {"ZZZZZ", "something new", MR_ERR_TRANSIENT, ""},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(samples); i++) {
        const char *remedy;
        assert_int_equal(
            mr_pg_connect_error_classify(samples[i].sqlstate, samples[i].message, &remedy),
            samples[i].status);
        assert_non_null(strstr(remedy, samples[i].remedy));
    }
}

static void test_unquoted(void **state)
{
    (void)state;
    static const struct {
        const char *sqlstate;
        struct mr_pg_origin origin;
        bool is_said;
    } cases[] = {
        {"22P02", {0}, false},
        {"22P02", {.is_of_rows = true}, false},
        {"22P02", {.has_place = true, .is_of_rows = true}, true}, /* 'x'::int in the statement */
        {"22P02", {.has_place = true, .has_context = true}, false},
        {"22023", {0}, true}, /* invalid snapshot identifier */
        {"22023", {.is_of_rows = true}, false},
        {"23505", {0}, true},                   /* a constraint's name */
        {"42704", {0}, true},                   /* publication "p" does not exist */
        {"42704", {.is_of_rows = true}, false}, /* type "a value" does not exist */
        {"42703", {.has_place = true, .is_of_rows = true}, true},
        {"42501", {.is_of_rows = true}, true},
        {"57014", {.is_of_rows = true}, true},
        {"57014", {.has_context = true}, true},
        {"57014", {.has_context = true, .is_raised = true}, false}, /* RAISE … USING ERRCODE */
        {"P0001", {0}, false},
        {"XX000", {.is_of_rows = true}, false}, /* elog of an extension */
        {"XX001", {.is_of_rows = true}, true},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        bool is_said = mr_pg_error_unquoted(cases[i].sqlstate, &cases[i].origin) == NULL;
        if (is_said != cases[i].is_said) {
            fail_msg("case %zu: %s", i, cases[i].sqlstate);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classify_by_code),      cmocka_unit_test(test_unquoted),
        cmocka_unit_test(test_stream_error_classify), cmocka_unit_test(test_classify_connection),
        cmocka_unit_test(test_classify_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
