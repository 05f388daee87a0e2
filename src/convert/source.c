/* The connection, the publication, the first copy, and what is asked for besides rows. */
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"

/* ---- the connection ---- */

/* key='value', as libpq reads it (its manual, "Connection Strings"). */
static void add_keyword(struct mr_text *out, const char *keyword, const char *value)
{
    mr_text_format(out, "%s%s=", out->len == 0 ? "" : " ", keyword);
    bool plain = value[0] != '\0' && value[strcspn(value, " '\\\t\n")] == '\0';
    mr_text_string(out, plain ? "" : "'");
    for (; *value != '\0'; value++) {
        if (*value == '\'' || *value == '\\') {
            mr_text_string(out, "\\");
        }
        mr_text_add(out, value, 1);
    }
    mr_text_string(out, plain ? "" : "'");
}

static const struct {
    const char *option, *keyword;
} keywords[] = {
    {"database.hostname", "host"},   {"database.port", "port"},
    {"database.dbname", "dbname"},   {"database.user", "user"},
    {"database.sslmode", "sslmode"}, {"database.sslrootcert", "sslrootcert"},
    {"database.sslcert", "sslcert"}, {"database.sslkey", "sslkey"},
};

/* A name of an environment variable, out of "${env:NAME}". NULL: it is something else; the caller frees it. */
static char *variable_of(const char *value)
{
    size_t len = strlen(value);
    if (strncmp(value, "${env:", 6) != 0 || len < 8 || value[len - 1] != '}') {
        return NULL;
    }
    size_t size =
        strspn(value + 6, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    return size == len - 7 ? MR_STRNDUP(value + 6, size) : NULL;
}

static void convert_password(struct mr_convert *convert)
{
    const struct mr_convert_line *line = mr_convert_take(convert, "database.password");
    if (line == NULL || line->value[0] == '\0') {
        return;
    }
    char *variable = variable_of(line->value);
    const char *name = variable == NULL ? "MILLRACE_PG_PASSWORD" : variable;
    mr_convert_set(convert, "source.postgres.password_env", name);
    mr_convert_note(convert, MR_NOTE_TO_DO, line->given,
                    "put the password into the environment variable %s, or into a file that "
                    "source.postgres.password_file names",
                    name);
    free(variable);
}

static bool is_this_machine(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0 || host[0] == '/';
}

static void warn_of_trust(struct mr_convert *convert, const char *host, const char *mode)
{
    if (host != NULL && !is_this_machine(host) && strncmp(mode, "verify-", 7) != 0) {
        mr_convert_note(convert, MR_NOTE_TO_DO, "database.sslmode",
                        "%s does not have a server on another machine prove who it is, which "
                        "millrace refuses; set sslmode=verify-full and sslrootcert in "
                        "source.postgres.connection, or source.postgres.insecure_tls = true",
                        mode);
    }
}

static void convert_connection(struct mr_convert *convert)
{
    struct mr_text connection = {0};
    bool complete = true;
    const char *host = NULL;
    const char *mode = "prefer";
    for (size_t i = 0; i < MR_ARRAY_LEN(keywords); i++) {
        const struct mr_convert_line *line = mr_convert_take(convert, keywords[i].option);
        if (line == NULL || line->value[0] == '\0') {
            continue;
        }
        complete &= !mr_convert_is_expression(line->value);
        add_keyword(&connection, keywords[i].keyword, line->value);
        host = i == 0 ? line->value : host;
        mode = strcmp(keywords[i].keyword, "sslmode") == 0 ? line->value : mode;
        if (strcmp(keywords[i].keyword, "sslkey") == 0) {
            mr_convert_note(
                convert, MR_NOTE_TO_DO, line->given,
                "must be PEM, readable by its owner only; Java's PKCS-8 is made into it by "
                "openssl pkey -inform DER -in KEY -out NEW");
        }
    }
    const char *keepalive = mr_convert_value(convert, "database.tcpKeepAlive");
    if (keepalive != NULL && strcmp(keepalive, "false") == 0) {
        add_keyword(&connection, "keepalives", "0");
    } else if (keepalive != NULL && strcmp(keepalive, "true") != 0) {
        mr_convert_note(convert, MR_NOTE_LOST, "database.tcpKeepAlive", "is true or false");
    }
    convert_password(convert);
    if (complete && connection.len > 0) {
        mr_convert_set(convert, "source.postgres.connection", connection.data);
        warn_of_trust(convert, host, mode);
    } else {
        mr_convert_set(convert, "source.postgres.connection_env", "DATABASE_URL");
        for (size_t i = 0; i < MR_ARRAY_LEN(keywords); i++) {
            const struct mr_convert_line *line = mr_convert_take(convert, keywords[i].option);
            if (line != NULL) {
                mr_convert_note(convert, MR_NOTE_TO_DO, line->given, "belongs into DATABASE_URL");
            }
        }
        mr_convert_note(convert, MR_NOTE_TO_DO, "database.*",
                        "parts of the connection are missing, or come from a config provider of "
                        "Connect; put the whole connection string into the environment variable "
                        "DATABASE_URL");
    }
    mr_text_done(&connection);
}

/* ---- slot and publication ---- */

static void convert_slot(struct mr_convert *convert)
{
    const char *plugin = mr_convert_value(convert, "plugin.name");
    if (plugin == NULL || strcmp(plugin, "pgoutput") != 0) {
        mr_convert_note(convert, MR_NOTE_TO_DO, "plugin.name",
                        "the connector's slot was made with %s, and millrace reads pgoutput only; "
                        "name a slot of its own in source.postgres.slot_name "
                        "(docs/migrating-from-debezium.md)",
                        plugin == NULL ? "decoderbufs, the default" : plugin);
    }
    const char *mode = mr_convert_value(convert, "publication.autocreate.mode");
    bool disabled =
        mode != NULL && (strcmp(mode, "disabled") == 0 || strcmp(mode, "no_tables") == 0);
    mr_convert_set(convert, "source.postgres.create_publication", disabled ? "false" : "true");
    bool filtered = mode != NULL && strcmp(mode, "filtered") == 0;
    if (filtered) { /* the connector alters it at each start */
        mr_convert_set(convert, "publication.alter", "true");
    }
    if (!disabled && !filtered) {
        mr_convert_note(convert, MR_NOTE_IDLE, "publication.autocreate.mode",
                        "the connector's publication is used as it is; a new one is for the listed "
                        "tables only");
    }
}

/* ---- existing rows ---- */

static void convert_snapshot(struct mr_convert *convert)
{
    static const struct {
        const char *mode, *to, *text;
    } modes[] = {
        {"initial", "initial", ""},
        {"initial_only", "initial_only", ""},
        {"no_data", "no_data", ""},
        {"never", "no_data", ""},
        {"schema_only", "no_data", ""},
        {"exported", "initial", ""},
        {"always", "always", ""},
        {"when_needed", "when_needed", ""},
        {"", "no_data", "its rule is not known; docs/snapshots.md says what there is"},
    };
    const struct mr_convert_line *line = mr_convert_take(convert, "snapshot.mode");
    const char *mode = line == NULL ? "initial" : line->value;
    size_t i = 0;
    while (modes[i].mode[0] != '\0' && strcmp(modes[i].mode, mode) != 0) {
        i++;
    }
    mr_convert_set(convert, "snapshot.mode", modes[i].to);
    if (line != NULL && modes[i].text[0] != '\0') {
        mr_convert_note(convert, MR_NOTE_LOST, line->given, "%s", modes[i].text);
    }
}

/* Debezium takes signals from the table, unless it is told of other channels. */
static void convert_signals(struct mr_convert *convert)
{
    const struct mr_convert_line *line = mr_convert_take(convert, "signal.enabled.channels");
    const struct mr_convert_line *table = mr_convert_take(convert, "signal.data.collection");
    struct mr_convert_list channels = {0};
    mr_convert_split(line == NULL ? "source" : line->value, ',', &channels);
    for (uint32_t i = 0; i < channels.count; i++) {
        if (strcmp(channels.items[i], "source") != 0) {
            mr_convert_note(convert, MR_NOTE_LOST, line->given,
                            "signals come by a table only; \"millrace snapshot\" and POST "
                            "/api/snapshot ask for the same (docs/snapshots.md)");
        } else if (table != NULL) {
            mr_convert_set(convert, "snapshot.signal_table", table->value);
        }
    }
    mr_convert_list_done(&channels);
}

/* ---- heartbeats ---- */

/* Without an interval the others say nothing. */
static void convert_heartbeat(struct mr_convert *convert)
{
    const struct mr_convert_line *line = mr_convert_take(convert, "heartbeat.interval.ms");
    const struct mr_convert_line *prefix = mr_convert_take(convert, "topic.heartbeat.prefix");
    const struct mr_convert_line *query = mr_convert_take(convert, "heartbeat.action.query");
    if (line == NULL || strcmp(line->value, "0") == 0) {
        return;
    }
    if (!mr_convert_set(convert, "heartbeat.interval", line->value)) {
        mr_convert_note(convert, MR_NOTE_LOST, line->given,
                        "set heartbeat.interval, up to 24h, and what a heartbeat is");
        return;
    }
    const char *converter = mr_convert_value(convert, "value.converter");
    bool is_json = converter == NULL ||
                   (strstr(converter, "Avro") == NULL && strstr(converter, "CloudEvents") == NULL);
    if (is_json) {
        mr_convert_set(convert, "heartbeat.topic_prefix",
                       prefix == NULL ? "__debezium-heartbeat" : prefix->value);
    } else {
        mr_convert_note(convert, MR_NOTE_LOST, line->given,
                        "heartbeats have no topic with this format; consumers see that the stream "
                        "lives by a row that heartbeat.query writes");
    }
    if (query != NULL) {
        mr_convert_set(convert, "heartbeat.query", query->value);
    } else if (!is_json) {
        mr_convert_set(convert, "heartbeat.interval", "0");
    }
}

/* ---- operations and messages ---- */

static void convert_operations(struct mr_convert *convert, bool *ret_no_messages)
{
    static const struct {
        const char *code, *name;
    } operations[] = {
        {"c", "insert"}, {"u", "update"}, {"d", "delete"}, {"t", "truncate"}, {"m", "message"}};
    const struct mr_convert_line *line = mr_convert_take(convert, "skipped.operations");
    if (line == NULL) {
        return; /* truncate, here as there */
    }
    struct mr_convert_list codes = {0};
    struct mr_convert_list names = {0};
    mr_convert_split(line->value, ',', &codes);
    for (uint32_t i = 0; i < codes.count; i++) {
        size_t k = 0;
        while (k < MR_ARRAY_LEN(operations) && strcmp(operations[k].code, codes.items[i]) != 0) {
            k++;
        }
        if (k < MR_ARRAY_LEN(operations)) {
            mr_convert_list_add(&names, MR_STRDUP(operations[k].name));
            *ret_no_messages |= operations[k].code[0] == 'm';
        } else if (strcmp(codes.items[i], "none") != 0) {
            mr_convert_note(convert, MR_NOTE_LOST, line->given,
                            "has a part that is none of c, u, d, t, m and none");
        }
    }
    mr_convert_set_list(convert, "skipped_operations", &names);
    mr_convert_list_done(&codes);
    mr_convert_list_done(&names);
}

/* The prefixes that patterns match, as far as they are simple; ".*" is all. */
static void take_prefixes(struct mr_convert *convert, const char *option, const char *value,
                          struct mr_convert_list *prefixes)
{
    struct mr_convert_list patterns = {0};
    mr_convert_split(value, ',', &patterns);
    for (uint32_t i = 0; i < patterns.count; i++) {
        if (strcmp(patterns.items[i], ".*") == 0) {
            mr_convert_list_add(prefixes, MR_STRDUP("*"));
        } else if (!mr_convert_expand(patterns.items[i], prefixes)) {
            mr_convert_note(
                convert, MR_NOTE_LOST, option,
                "holds a regular expression; name the prefixes in messages.prefixes and "
                "messages.excluded_prefixes");
        }
    }
    mr_convert_list_done(&patterns);
}

/* Debezium passes all logical messages on unless it is told otherwise. */
static void convert_messages(struct mr_convert *convert, bool no_messages)
{
    static const char include_name[] = "message.prefix.include.list";
    static const char exclude_name[] = "message.prefix.exclude.list";
    const char *include = mr_convert_value(convert, include_name);
    const char *exclude = mr_convert_value(convert, exclude_name);
    struct mr_convert_list prefixes = {0};
    struct mr_convert_list excluded = {0};
    take_prefixes(convert, include_name, include == NULL || include[0] == '\0' ? ".*" : include,
                  &prefixes);
    take_prefixes(convert, exclude_name, exclude == NULL ? "" : exclude, &excluded);
    if (!no_messages) {
        mr_convert_set_list(convert, "messages.prefixes", &prefixes);
    }
    if (excluded.count > 0) {
        mr_convert_set_list(convert, "messages.excluded_prefixes", &excluded);
    }
    mr_convert_list_done(&prefixes);
    mr_convert_list_done(&excluded);
}

void mr_convert_source(struct mr_convert *convert)
{
    bool no_messages = false;
    convert_connection(convert);
    convert_slot(convert);
    convert_snapshot(convert);
    convert_signals(convert);
    convert_heartbeat(convert);
    convert_operations(convert, &no_messages);
    convert_messages(convert, no_messages);
}
