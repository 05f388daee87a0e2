/* Whom a password is shown to.
 *
 * libpq's own default (sslmode=prefer) gives the password, in the clear, to anybody on the way who
 * answers "N" to SSLRequest and asks for it. So a server on another machine must prove who it is
 * first: by a certificate that is verified, or, where the user asks for TLS without one
 * (sslmode=require), by SCRAM with channel binding, which a server that does not know the
 * password's verifier can't do, and which ties the proof to this very TLS connection (PostgreSQL
 * documentation, "Database Connection Control Functions": sslmode, channel_binding; RFC 5802,
 * section 6). */

#include "postgres/conn/pg_conn_internal.h"

enum { LIBPQ_WITH_SYSTEM_CERTIFICATES = 160000 };

/* Where distributions keep all certificates in one file: Debian, Fedora, Alpine and SUSE. */
static const char *const certificate_files[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
};

const char *mr_pg_conninfo_value(const PQconninfoOption *parsed, const char *name)
{
    for (const PQconninfoOption *option = parsed; option->keyword != NULL; option++) {
        if (strcmp(option->keyword, name) == 0) {
            return option->val;
        }
    }
    return NULL;
}

bool mr_pg_server_text(const char *conninfo, bool with_database, struct mr_text *ret)
{
    static const char *const names[] = {"host", "hostaddr", "port", "service", "dbname"};
    PQconninfoOption *parsed = PQconninfoParse(conninfo == NULL ? "" : conninfo, NULL);
    for (size_t i = 0; i < MR_ARRAY_LEN(names) - !with_database && parsed != NULL; i++) {
        const char *value = mr_pg_conninfo_value(parsed, names[i]);
        mr_text_add(ret, value == NULL ? "" : value, value == NULL ? 1 : strlen(value) + 1);
    }
    PQconninfoFree(parsed);
    return parsed != NULL;
}

bool mr_pg_same_server(const char *a, const char *b, bool same_database)
{
    MR_TEXT(one);
    MR_TEXT(other);
    return mr_pg_server_text(a, same_database, &one) &&
           mr_pg_server_text(b, same_database, &other) && one.len == other.len &&
           memcmp(one.data, other.data, one.len) == 0;
}

/* As libpq looks it up. Files of services are not looked into: what they say does not count
 * here. */
static const char *or_variable(const char *value, const char *variable)
{
    return value != NULL && value[0] != '\0' ? value : getenv(variable);
}

static const char *pg_conn_trust_said(const PQconninfoOption *parsed, const char *name,
                                      const char *variable)
{
    return or_variable(mr_pg_conninfo_value(parsed, name), variable);
}

static bool is_loopback(const char *address)
{
    return mr_is_among("127.*|::1|localhost", mr_slice_of(address));
}

/* A socket of this machine, or its loopback: nobody is in between. */
static bool is_this_machine(const PQconninfoOption *parsed, const char *host, const char *hostaddr)
{
    hostaddr = or_variable(hostaddr, "PGHOSTADDR");
    if (hostaddr != NULL && hostaddr[0] != '\0') {
        return is_loopback(hostaddr);
    }
    host = or_variable(host, "PGHOST");
    if (host == NULL || host[0] == '\0') {
        return pg_conn_trust_said(parsed, "service", "PGSERVICE") == NULL;
    }
    return host[0] == '/' || host[0] == '@' || is_loopback(host);
}

static bool has_root_certificate(const PQconninfoOption *parsed)
{
    const char *home = getenv("HOME");
    char path[512];
    snprintf(path, sizeof(path), "%s/.postgresql/root.crt", home == NULL ? "" : home);
    return pg_conn_trust_said(parsed, "sslrootcert", "PGSSLROOTCERT") != NULL ||
           access(path, R_OK) == 0;
}

static const char *system_certificates(void)
{
    if (PQlibVersion() >= LIBPQ_WITH_SYSTEM_CERTIFICATES) {
        return "system";
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(certificate_files); i++) {
        if (access(certificate_files[i], R_OK) == 0) {
            return certificate_files[i];
        }
    }
    return NULL;
}

mr_status mr_pg_trust_choose(const PQconninfoOption *parsed, const char *host, const char *hostaddr,
                             bool insecure_tls, struct mr_pg_trust *ret_trust,
                             struct mr_error *ret_error)
{
    if (insecure_tls || is_this_machine(parsed, host, hostaddr)) {
        return MR_OK;
    }
    const char *sslmode = pg_conn_trust_said(parsed, "sslmode", "PGSSLMODE");
    if (sslmode == NULL || strcmp(sslmode, "verify-full") == 0) {
        ret_trust->sslmode = "verify-full";
        ret_trust->sslrootcert = has_root_certificate(parsed) ? NULL : system_certificates();
        return MR_OK;
    }
    if (strcmp(sslmode, "verify-ca") == 0) {
        return MR_OK;
    }
    const char *binding = pg_conn_trust_said(parsed, "channel_binding", "PGCHANNELBINDING");
    if (strcmp(sslmode, "require") == 0 && (binding == NULL || strcmp(binding, "require") == 0)) {
        ret_trust->channel_binding = "require";
        return MR_OK;
    }
    return mr_fail(
        ret_error, MR_ERR_CONFIG,
        "PostgreSQL at \"%s\" is on another machine, and sslmode=%s%s%s lets anybody in between "
        "pass for it and take the password; set sslmode=verify-full in the connection string "
        "(sslrootcert names its CA), or source.postgres.insecure_tls = true to go without",
        host == NULL || host[0] == '\0' ? (hostaddr == NULL ? "" : hostaddr) : host, sslmode,
        binding == NULL ? "" : " with channel_binding=", binding == NULL ? "" : binding);
}
