/* The connection, the publication, signals, heartbeats, and what is asked for besides rows. */

#include "convert/convert_internal.h"

/* key='value', as libpq reads it (its manual, "Connection Strings"). */
static void add_keyword(struct mr_text *out, const char *keyword, const char *value)
{
    mr_text_format(out, "%s%s=", out->len == 0 ? "" : " ", keyword);
    bool plain = value[0] != '\0' && value[strcspn(value, " '\\\t\n")] == '\0';
    mr_text_string(out, plain ? "" : "'");
    for (; *value != '\0'; value++) {
        mr_text_format(out, *value == '\'' || *value == '\\' ? "\\%c" : "%c", *value);
    }
    mr_text_string(out, plain ? "" : "'");
}

static const char *const keywords[][2] = {
    {"database.hostname", "host"},   {"database.port", "port"},
    {"database.dbname", "dbname"},   {"database.user", "user"},
    {"database.sslmode", "sslmode"}, {"database.sslrootcert", "sslrootcert"},
    {"database.sslcert", "sslcert"}, {"database.sslkey", "sslkey"},
};

/* The name of an environment variable, out of "${env:NAME}"; NULL: it is something else. */
static const char *variable_of(struct mr_convert *c, const char *value)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    size_t len = strncmp(value, "${env:", 6) == 0 ? strspn(value + 6, allowed) : 0;
    return len > 0 && strcmp(value + 6 + len, "}") == 0 ? mr_cv_part(c, value + 6, len) : NULL;
}

static void convert_password(struct mr_convert *c)
{
    const struct mr_cv_line *line = mr_cv_take(c, "database.password");
    if (line == NULL || line->value[0] == '\0') {
        return;
    }
    const char *variable = variable_of(c, line->value);
    const char *name = variable == NULL ? "MILLRACE_PG_PASSWORD" : variable;
    mr_cv_set(c, "source.postgres.password", mr_cv_text(c, "env:%s", name));
    TO_DO(c, line->given,
          "put the password into the environment variable %s, or into a file: "
          "source.postgres.password = \"file:/PATH\"",
          name);
}

static void convert_connection(struct mr_convert *c)
{
    MR_TEXT(connection);
    bool complete = true;
    for (size_t i = 0; i < MR_ARRAY_LEN(keywords); i++) {
        const struct mr_cv_line *line = mr_cv_take(c, keywords[i][0]);
        if (line != NULL && line->value[0] != '\0') {
            complete &= !mr_cv_is_expression(line->value);
            add_keyword(&connection, keywords[i][1], line->value);
            if (strcmp(keywords[i][1], "sslkey") == 0) {
                TO_DO(c, line->given,
                      "must be PEM, readable by its owner only; Java's PKCS-8 is made into it by "
                      "openssl pkey -inform DER -in KEY -out NEW");
            }
        }
    }
    convert_password(c);
    if (complete && connection.len > 0) {
        mr_cv_set(c, "source.postgres.connection", connection.data);
    } else {
        mr_cv_set(c, "source.postgres.connection", "env:DATABASE_URL");
        for (size_t i = 0; i < MR_ARRAY_LEN(keywords); i++) {
            const struct mr_cv_line *line = mr_cv_take(c, keywords[i][0]);
            if (line != NULL) {
                TO_DO(c, line->given, "belongs into DATABASE_URL");
            }
        }
        TO_DO(c, "database.*",
              "parts of the connection are missing, or come from a config provider of Connect; put "
              "the whole connection string into the environment variable DATABASE_URL");
    }
}

static void convert_slot(struct mr_convert *c)
{
    const char *plugin = mr_cv_value(c, "plugin.name");
    if (plugin == NULL || strcmp(plugin, "pgoutput") != 0) {
        TO_DO(
            c, "plugin.name",
            "the connector's slot was made with %s, and millrace reads pgoutput only; make a slot "
            "while the connector streams, as docs/migrating-from-debezium.md says (A slot of "
            "another plugin), and name it in source.postgres.slot_name",
            plugin == NULL ? "decoderbufs, the default" : plugin);
    }
    const char *given = mr_cv_value(c, "publication.autocreate.mode");
    const char *mode = given == NULL ? "all_tables" : given;
    bool disabled = mr_is_among("disabled|no_tables", mr_slice_of(mode));
    mr_cv_set(c, "source.postgres.create_publication", disabled ? "false" : "true");
    if (strcmp(mode, "filtered") == 0) { /* the connector alters it at each start */
        mr_cv_set(c, "publication.alter", "true");
    } else if (!disabled) {
        IDLE(c, "publication.autocreate.mode",
             "the connector's publication is used as it is; a new one is for the listed tables "
             "only");
    }
}

static const char from_provider[] =
    "its value comes from a config provider of Connect; write it into %s";

/* Without an interval the others say nothing. */
static void convert_heartbeat(struct mr_convert *c)
{
    const struct mr_cv_line *line = mr_cv_take(c, "heartbeat.interval.ms");
    const struct mr_cv_line *prefix = mr_cv_take(c, "topic.heartbeat.prefix");
    const struct mr_cv_line *query = mr_cv_take(c, "heartbeat.action.query");
    if (line == NULL || strcmp(line->value, "0") == 0) {
        return;
    }
    if (prefix != NULL && mr_cv_is_expression(prefix->value)) {
        TO_DO(c, prefix->given, from_provider, "heartbeat.topic_prefix");
        prefix = NULL;
    }
    if (query != NULL && mr_cv_is_expression(query->value)) {
        TO_DO(c, query->given, from_provider, "heartbeat.query");
        query = NULL;
    }
    if (!mr_cv_set(c, "heartbeat.interval", line->value)) {
        LOST(c, line->given, "set heartbeat.interval, up to 24h, and what a heartbeat is");
        return;
    }
    const char *converter = mr_cv_value(c, "value.converter");
    bool is_json = converter == NULL ||
                   (strstr(converter, "Avro") == NULL && strstr(converter, "CloudEvents") == NULL);
    if (is_json) {
        mr_cv_set(c, "heartbeat.topic_prefix",
                  prefix == NULL ? "__debezium-heartbeat" : prefix->value);
    } else {
        LOST(c, line->given,
             "heartbeats have no topic with this format; consumers see that the stream lives by a "
             "row that heartbeat.query writes");
    }
    if (query != NULL) {
        mr_cv_set(c, "heartbeat.query", query->value);
    } else if (!is_json) {
        mr_cv_set(c, "heartbeat.interval", "0");
    }
}

/* Answers whether messages are skipped. Without the option truncate is, here as there. */
static bool convert_operations(struct mr_convert *c)
{
    static const char codes[] = "cudtm"; /* by enum mr_op */
    const struct mr_cv_line *line = mr_cv_take(c, "skipped.operations");
    if (line == NULL || mr_cv_is_expression(line->value)) { /* mr_cv_hidden */
        return false;
    }
    struct mr_cv_list given = mr_cv_split(c, line->value, ',');
    struct mr_cv_list skipped = {0};
    for (uint32_t i = 0; i < given.count; i++) {
        const char *code = given.items[i][1] == '\0' ? strchr(codes, given.items[i][0]) : NULL;
        if (code != NULL) {
            mr_cv_add(c, &skipped, mr_op_name((enum mr_op)(code - codes)));
        } else if (strcmp(given.items[i], "none") != 0) {
            LOST(c, line->given, "has a part that is none of c, u, d, t, m and none");
        }
    }
    mr_cv_set_list(c, "skipped_operations", &skipped);
    return mr_cv_holds(&skipped, "message");
}

/* Adds the prefixes that patterns match, in any case of letters, after `mark`, as far as they are
 * simple; ".*" is all. False: one is not. */
static bool add_prefixes(struct mr_convert *c, const char *value, const char *mark,
                         struct mr_cv_list *prefixes)
{
    bool good = value == NULL || !mr_cv_is_expression(value);
    struct mr_cv_list patterns = mr_cv_patterns(c, good ? value : NULL);
    struct mr_cv_list names = {0};
    for (uint32_t i = 0; i < patterns.count; i++) {
        if (strcmp(patterns.items[i], ".*") == 0) {
            mr_cv_add(c, prefixes, mr_cv_text(c, "%s*", mark));
        } else {
            good &= mr_cv_expand(c, patterns.items[i], &names);
        }
    }
    for (uint32_t i = 0; i < names.count; i++) {
        mr_cv_add(c, prefixes, mr_cv_text(c, "%s(?i)%s", mark, names.items[i]));
    }
    return good;
}

/* Debezium passes all logical messages on unless these options say otherwise. What can't be said of
 * them holds the file back, unless no message goes out. */
static void convert_messages(struct mr_convert *c, bool are_skipped)
{
    static const char *const given[] = {"message.prefix.include.list",
                                        "message.prefix.exclude.list"};
    struct mr_cv_list prefixes = {0};
    bool good[2];
    for (int i = 0; i < 2; i++) {
        const struct mr_cv_line *line = mr_cv_take(c, given[i]);
        bool is_set = line != NULL && line->value[0] != '\0';
        good[i] = add_prefixes(c,
                               is_set   ? line->value
                               : i == 0 ? ".*"
                                        : NULL,
                               i == 0 ? "" : "!", &prefixes);
    }
    if (are_skipped) {
        return;
    }
    mr_cv_set_list(c, "messages.prefixes", &prefixes);
    for (int i = 0; i < 2; i++) {
        if (!good[i]) {
            mr_cv_hold(c, given[i], "messages.prefixes",
                       "holds a regular expression, or a value from elsewhere");
        }
    }
}

void mr_cv_source(struct mr_convert *c)
{
    convert_connection(c);
    convert_slot(c);
    convert_heartbeat(c);
    convert_messages(c, convert_operations(c));
}
