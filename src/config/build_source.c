/* The PostgreSQL source's options. */
#include <string.h>

#include "config/config_internal.h"
#include "config/secrets.h"

static void build_connection(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    struct mr_pg_options *connection = &config->source.connection;
    if (LINE(config, connection) != 0) {
        if (LINE(config, connection_env) != 0) {
            PROBLEM(
                config, LINE(config, connection),
                "source.postgres.connection and connection_env are both set; keep one of the two");
        }
        if (mr_secret_in_conninfo(values->connection)) {
            PROBLEM(
                config, LINE(config, connection),
                "source.postgres.connection holds a password; take it out and set password_env or "
                "password_file");
        }
        connection->conninfo = values->connection;
    } else {
        connection->conninfo = mr_config_keep_secret(
            config, mr_secret_read("connection string", values->connection_env, "",
                                   LINE(config, connection_env), &config->problems));
    }
    connection->password = mr_config_keep_secret(
        config, mr_secret_read("PostgreSQL password", values->password_env, values->password_file,
                               LINE(config, password_env), &config->problems));
    connection->application_name = "millrace";
    connection->connect_timeout_ms = (uint32_t)values->connect_timeout;
}

/* What PostgreSQL takes as a slot's name. */
static bool slot_name_good(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return len > 0 && len <= IDENTIFIER_MAX && name[len] == '\0';
}

void mr_config_build_source(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    build_connection(config);
    config->source.slot = values->slot_name;
    config->source.publication = values->publication_name;
    config->source.create_slot = values->create_slot != 0;
    config->source.create_publication = values->create_publication != 0;
    config->source.failover = values->failover != 0;
    config->source.adopt_slot = values->adopt_slot != 0;
    config->slot_interval_ms = (uint32_t)values->slot_interval;
    config->metrics_tables_max = (uint32_t)values->metrics_max_tables;
    if (!slot_name_good(values->slot_name)) {
        PROBLEM(config, LINE(config, slot_name),
                "slot_name \"%s\" is not what PostgreSQL takes: up to 63 of a-z, 0-9 and _",
                values->slot_name);
    }
    size_t len = strlen(values->publication_name);
    if (len == 0 || len > IDENTIFIER_MAX) {
        PROBLEM(config, LINE(config, publication_name),
                "publication_name must have 1 to 63 characters");
    }
}
