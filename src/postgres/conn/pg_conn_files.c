/* Which files libpq reads: PostgreSQL documentation, "Database Connection Control Functions" (ssl*,
 * passfile), "The Password File", "The Connection Service File", "Environment Variables". */

#include "postgres/conn/pg_conn_internal.h"

static const char *const parameters[] = {"sslcert", "sslkey",    "sslrootcert",
                                         "sslcrl",  "sslcrldir", "passfile"};
static const char *const variables[] = {"PGSSLCERT",     "PGSSLKEY",    "PGSSLROOTCERT",
                                        "PGSSLCRL",      "PGSSLCRLDIR", "PGPASSFILE",
                                        "PGSERVICEFILE", "PGSYSCONFDIR"};
static const char *const in_home[] = {".postgresql", ".pgpass", ".pg_service.conf"};

void mr_pg_each_file(const char *conninfo, void (*take)(void *context, const char *path),
                     void *context)
{
    PQconninfoOption *parsed = PQconninfoParse(conninfo, NULL);
    for (size_t i = 0; parsed != NULL && i < MR_ARRAY_LEN(parameters); i++) {
        const char *path = mr_pg_conninfo_value(parsed, parameters[i]);
        if (path != NULL && path[0] != '\0') {
            take(context, path);
        }
    }
    PQconninfoFree(parsed);
    for (size_t i = 0; i < MR_ARRAY_LEN(variables); i++) {
        const char *path = getenv(variables[i]);
        if (path != NULL && path[0] != '\0') {
            take(context, path);
        }
    }
    const char *home = getenv("HOME");
    for (size_t i = 0; home != NULL && i < MR_ARRAY_LEN(in_home); i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", home, in_home[i]);
        take(context, path);
    }
}
