#include "daemon/daemon.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing/test.h"

static mr_status config_test_load(const char *text, struct mr_config **ret)
{
    *ret = NULL;
    setenv("DATABASE_URL", "postgresql://u@h/d", 1);
    setenv("TEST_SECRET", "s", 1);
    return mr_daemon_load_text("test.toml", text, strlen(text), ret);
}

static bool has_problem(const struct mr_config *config, bool is_error, uint32_t line,
                        const char *part)
{
    for (uint32_t i = 0; i < config->problems.count; i++) {
        const struct mr_problem *problem = &config->problems.items[i];
        if (problem->is_error == is_error && problem->line == line &&
            strstr(problem->text, part) != NULL) {
            return true;
        }
    }
    return false;
}

static const char good[] = "tables = [\"orders\", 'audit.log', '\"Odd.Schema\".\"t\"\"x\"']\n"
                           "topic_prefix = \"shop\"\n"
                           "skipped_operations = [\"truncate\", \"message\"]\n"
                           "[source.postgres]\n"
                           "slot_name = \"s1\"\n"
                           "[sink]\n"
                           "type = \"kafka\"\n"
                           "[sink.kafka]\n"
                           "brokers = [\"a:1\", \"b:2\"]\n"
                           "compression = \"zstd\"\n"
                           "[sink.kafka.properties]\n"
                           "\"client.rack\" = \"r\"\n"
                           "\"socket.timeout.ms\" = 1000\n"
                           "[pipeline]\n"
                           "latency = \"250us\"\n"
                           "[log]\n"
                           "format = \"json\"\n";

static void assert_secret(struct mr_secret *secret, const char *wanted)
{
    char *text = mr_secret_take(secret);
    assert_string_equal(text, wanted);
    mr_secret_forget(text);
}

static void test_load_native_file(void **state)
{
    (void)state;
    struct mr_config *config;
    assert_int_equal(config_test_load(good, &config), MR_OK);
    assert_int_equal(config->problems.count, 0);
    assert_int_equal(config->source.captured.table_count, 3);
    assert_string_equal(config->source.captured.tables[0].schema, "public");
    assert_string_equal(config->source.captured.tables[0].table, "orders");
    assert_string_equal(config->source.captured.tables[1].schema, "audit");
    assert_string_equal(config->source.captured.tables[2].schema, "Odd.Schema");
    assert_string_equal(config->source.captured.tables[2].table, "t\"x");
    assert_string_equal(config->source.slot, "s1");
    assert_string_equal(config->source.publication, "millrace");
    assert_string_equal(config->source.connection.conninfo, "postgresql://u@h/d");
    assert_int_equal(config->sink_kind, MR_SINK_KAFKA);
    assert_string_equal(config->kafka.brokers, "a:1,b:2");
    assert_string_equal(config->kafka.compression, "zstd");
    assert_int_equal(config->kafka.batch_bytes, 524288);
    assert_int_equal(config->kafka.property_count, 3);
    assert_string_equal(config->kafka.properties[0].value, "PLAINTEXT");
    assert_string_equal(config->kafka.properties[2].value, "1000");
    assert_int_equal(config->daemon->pipeline.latency_us, 250);
    assert_int_equal(config->daemon->pipeline.batches, 16);
    assert_int_equal(config->log_format, MR_LOG_JSON);
    assert_int_equal(config->encode.format, MR_FORMAT_DEBEZIUM);
    assert_int_equal(config->encode.skipped_operations,
                     (1u << MR_OP_TRUNCATE) | (1u << MR_OP_MESSAGE));
    assert_string_equal(config->encode.unavailable_value, "__debezium_unavailable_value");
    assert_int_equal(mr_config_route_count(config), 3);
    assert_null(mr_config_route(config, 0).topic);
    mr_config_free(config);
}

/* Names, one a line, are found by their hash, memory is not kept for all of them at once, and the
 * Kafka client counts nothing for each topic. */
static void test_many_tables(void **state)
{
    enum { MANY = 20000, LINE_MAX_BYTES = 32 };
    (void)state;
    static const struct {
        const char *more;
        uint32_t interval_ms;
    } cases[] = {{"", 0},
                 {"metrics.interval = \"1s\"\n", 1000},
                 {"routing.topic = \"all\"\nrouting.sharing = \"key\"\n", 10000}};
    char *text = malloc(MANY * LINE_MAX_BYTES + 1024);
    struct mr_config *config;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int at = sprintf(
            text, "sink.kafka.brokers = [\"a:1\"]\npipeline.memory = \"128MiB\"\n%stables = [",
            cases[i].more);
        for (uint32_t table = 0; table < MANY; table++) {
            at += sprintf(text + at, "'s%u.t%u',\n", table / 10, table % 10);
        }
        strcpy(text + at, "]\n");
        assert_int_equal(config_test_load(text, &config), MR_OK);
        const struct mr_pg_captured_options *captured = &config->source.captured;
        assert_int_equal(captured->table_count, MANY);
        assert_int_equal(mr_config_route_count(config), MANY);
        assert_int_equal(mr_pg_table_named(captured, MR_SLICE("s1999"), MR_SLICE("t9")), MANY - 1);
        assert_int_equal(mr_pg_table_named(captured, MR_SLICE("s1"), MR_SLICE("99t9")), UINT32_MAX);
        assert_string_equal(mr_config_route(config, 12).schema, "s1");
        assert_int_equal(config->kafka.statistics_interval_ms, cases[i].interval_ms);
        mr_config_free(config);
    }
    strcpy(strstr(text, "'s1999.t9'"), "'s1999.t9', 's7.t7']\n");
    assert_int_equal(config_test_load(text, &config), MR_ERR_CONFIG);
    assert_true(has_problem(config, true, 5, "\"s7.t7\" is listed twice"));
    mr_config_free(config);
    free(text);
}

/* The example of Outboxx's own documentation. */
static const char outboxx[] =
    "[metadata]\nversion = \"v0\"\n"
    "[source]\ntype = \"postgres\"\n"
    "[source.postgres]\nconnection_env = \"DATABASE_URL\"\n"
    "slot_name = \"outboxx_slot\"\npublication_name = \"outboxx_pub\"\n"
    "[sink]\ntype = \"kafka\"\n"
    "[sink.kafka]\nbrokers = [\"localhost:9092\"]\n"
    "tls_ca_location = \"/etc\"\n"
    "[sink.kafka.sasl]\nmechanism = \"SCRAM-SHA-512\"\nusername = \"u\"\n"
    "password_env = \"TEST_SASL\"\n"
    "[observability]\naddress = \"0.0.0.0\"\nport = 9464\n"
    "[snapshot]\nmode = \"initial\"\n"
    "[[streams]]\nname = \"users\"\n"
    "[streams.source]\nresource = \"Users\"\n"
    "operations = [\"read\", \"insert\", \"update\", \"delete\"]\n"
    "[streams.flow]\nformat = \"json\"\n"
    "[streams.sink]\ndestination = \"users.out\"\nrouting_key = \"id\"\n"
    "[[streams]]\nname = \"log\"\n"
    "[streams.source]\nresource = \"audit.log\"\noperations = [\"insert\"]\n"
    "[streams.sink]\ndestination = \"log.out\"\n";

static void test_http_options(void **state)
{
    (void)state;
    static const char begin[] = "tables = [\"t\"]\nsink.type = \"discard\"\n"
                                "source.postgres.connection = \"postgresql://h/d\"\n";
    static const struct {
        const char *text;
        const char *problem; /* NULL: none */
    } cases[] = {
        {"", NULL},
        {"http.address = \"unix:/run/m.sock\"", NULL},
        {"http.address = \"[::1]:80\"", NULL},
        {"http.address = \"\"\nhttp.username = \"ann\"", NULL},
        {"http.username = \"ann\"\nhttp.password = \"env:TEST_HTTP\"", NULL},
        {"http.last_events = true\nhttp.username = \"ann\"\nhttp.password = \"env:TEST_HTTP\"",
         NULL},
        {"http.last_events = true", "shows rows"},
        {"http.address = \"nonsense\"", "http.address"},
        {"http.username = \"ann\"", "set both or none"},
        {"http.password = \"env:TEST_HTTP\"", "set both or none"},
        {"http.tls_key = \"/k.pem\"", "set both or none"},
        {"http.tls_certificate = \"/none.pem\"\nhttp.tls_key = \"/none.key\"", "/none.pem"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        char text[512];
        snprintf(text, sizeof(text), "%s%s\n", begin, cases[i].text);
        setenv("TEST_HTTP", "open sesame", 1);
        struct mr_config *config;
        mr_status wanted = cases[i].problem == NULL ? MR_OK : MR_ERR_CONFIG;
        assert_int_equal(config_test_load(text, &config), wanted);
        if (cases[i].problem != NULL) {
            assert_non_null(strstr(config->problems.items[0].text, cases[i].problem));
        } else {
            cJSON *shown = cJSON_CreateObject();
            mr_config_show(config, NULL, shown);
            char *json = cJSON_PrintUnformatted(shown);
            assert_non_null(strstr(json, "\"tables\":[\"t\"]"));
            assert_non_null(strstr(json, "\"sink.type\":\"discard\""));
            assert_non_null(strstr(json, "\"sink.type\":\"line 2 of "));
            assert_null(strstr(json, "sesame"));
            assert_null(strstr(strstr(json, "_origins"), "log.level")); /* a default */
            cJSON_free(json);
            cJSON_Delete(shown);
        }
        mr_config_free(config);
    }
    struct mr_config *config;
    assert_int_equal(mr_config_load_http(NULL, &config), MR_OK); /* no DATABASE_URL needed */
    assert_int_equal(config->http.address.port, 9464);
    mr_config_free(config);
}

static void test_load_outboxx_file(void **state)
{
    (void)state;
    struct mr_config *config;
    setenv("TEST_SASL", "pw", 1);
    assert_int_equal(config_test_load(outboxx, &config), MR_OK);
    assert_string_equal(getenv("TEST_SASL"), ""); /* read once, then emptied */
    assert_int_equal(config->problems.errors, 0);
    assert_int_equal(config->problems.count, 0);
    assert_int_equal(config->daemon->copies.workers, 1); /* snapshot.mode = initial, */
    assert_false(config->daemon->copies.only);
    assert_true((config->encode.routes[0].operations & (1u << MR_OP_READ)) != 0); /* read */
    assert_true(config->http.enabled);
    assert_string_equal(config->http.address.host, "0.0.0.0");
    assert_int_equal(config->http.address.port, 9464);
    assert_int_equal(config->encode.format, MR_FORMAT_FLAT);
    assert_true(config->encode.routes_only);
    assert_int_equal(config->encode.route_count, 2);
    assert_string_equal(config->encode.routes[0].table, "users"); /* folded */
    assert_string_equal(config->encode.routes[0].topic, "users.out");
    assert_string_equal(config->encode.routes[0].key_column, "id");
    assert_int_equal(config->encode.routes[1].operations, 1u << MR_OP_INSERT);
    assert_null(config->encode.routes[1].key_column);
    assert_string_equal(config->encode.unavailable_value, "__outboxx_unknown_value__");
    assert_string_equal(config->kafka.properties[0].value, "SASL_SSL"); /* without tls = true */
    assert_secret(config->kafka.password, "pw");
    assert_string_equal(config->kafka.username, config->values.sasl_username);
    mr_config_free(config);
}

static void test_load_tells_each_error_with_its_line(void **state)
{
    (void)state;
#define T "tables = [\"t\"]\n"
#define K "[sink.kafka]\nbrokers = [\"b\"]\n"
    static const struct {
        const char *text;
        uint32_t line;
        const char *part;
    } cases[] = {
        {"tabels = [\"t\"]\n", 1, "did you mean \"tables\""},
        {T "[sink.kafka]\nbroker = [\"x\"]\n", 3, "did you mean \"sink.kafka.brokers\""},
        {T "[postgres]\nslot_name = \"x\"\n", 2, "did you mean [source.postgres]"},
        {T "[source.postgres]\nbrokers = [\"x\"]\n", 3, "did you mean \"sink.kafka.brokers\""},
        {T "completely_different = 1\n", 2, "help options"},
        {T "[slot]\nname = \"x\"\n", 2, "did you mean \"source.postgres.slot_name\""},
        {T "[slot]\nkeep = 1\n", 2, "did you mean \"source.postgres.slot_name\""},
        {T "slot = \"x\"\n", 2, "did you mean \"source.postgres.slot_name\""},
        {T "[publication]\nname = \"x\"\n", 3, "did you mean \"source.postgres.publication_name\""},
        {T "[publicaiton]\nalter = true\n", 2, "did you mean [publication]"},
        {T "[signal.kafka]\ntopic = \"a\"\n", 2,
         "is gone: signals are no longer read from a topic"},
        {T "[xyz]\nabc = 1\n", 2, "unknown section [xyz]; millrace help options"},
        {T "[source.postgres]\nport = 5432\n", 3, "millrace help source.postgres lists"},
        {T "[source.postgres]\nname = \"x\"\n", 3, "did you mean \"source.postgres.slot_name\""},
        {"{\"name\": \"orders\"}", 0, "this is JSON, and millrace reads TOML; what configures"},
        {"# a\nconnector.class=io.debezium.connector.postgresql.PostgresConnector\n", 0,
         "millrace convert test.toml > millrace.toml"},
        {"tables = []\n", 1, "no tables are configured"},
        {"tables = [\"t\", \"t\"]\n", 1, "listed twice"},
        {"tables = [\"t\", \"public.t\"]\n", 1, "listed twice"},
        {"tables = [\"a.b.c\"]\n", 1, "is not a table's name"},
        {"tables = ['\"a']\n", 1, "is not a table's name"},
        {"tables = [\".t\"]\n", 1, "is not a table's name"},
        {"tables = [\"\"]\n", 1, "is not a table's name"},
        {T "key_columns = [\"t\"]\n", 2, "does not name columns of a table"},
        {T "key_columns = [\"t:\"]\n", 2, "does not name columns of a table"},
        {T "key_columns = [\"t:a,\"]\n", 2, "does not name columns of a table"},
        {T "key_columns = [\"a.b.c:a\"]\n", 2, "does not name columns of a table"},
        {T "key_columns = ['\"t:a']\n", 2, "does not name columns of a table"},
        {T "key_columns = [\"t:a\", \"public.t:b\"]\n", 2, "is listed twice"},
        {T "key_columns = [\"t:a,b,a\"]\n", 2, "column \"a\" of table public.t is listed twice"},
        {T "publication.where = [\"t\"]\n", 2, "is no condition on a table's rows"},
        {T "publication.where = [\"t: \"]\n", 2, "is no condition on a table's rows"},
        {T "publication.where = [\"*: a\"]\n", 2, "names and no patterns"},
        {T "publication.where = [\"u: a\"]\n", 2, "is none of the tables"},
        {T "publication.where = [\"t: a\", \"public.t: b\"]\n", 2, "is listed twice"},
        {T "publication.columns = [\"t:\"]\n", 2, "does not name columns of a table"},
        {T "publication.columns = [\"s.t:a\"]\n", 2, "is none of the tables"},
        {T "publication.columns = [\"t:a,a\"]\n", 2, "is listed twice"},
        {"tables = [\"t\", \"s.*\"]\npublication.columns = [\"t:a\"]\n", 2, "of whole schemas"},
        {"tables = [\"t\", \"public.*\"]\npublication.where = [\"t: a\"]\n", 2, "of whole schemas"},
        {"tables = [\"t\", \"*.a\"]\npublication.where = [\"t: a\"]\n", 2, "of all tables"},
        {T "context.headers = [\"\"]\n" K, 2, "\"\" is not made of 1 to 64 letters"},
        {T "context.headers = [\"a b\"]\n" K, 2, "\"a b\" is not made of 1 to 64 letters"},
        {T "context.headers = [\"mr-pos\"]\n" K, 2, "millrace itself may write"},
        {T "context.headers = [\"ce_user\"]\n" K, 2, "millrace itself may write"},
        {T "context.headers = [\"user\", \"user\"]\n" K, 2, "\"user\" is there twice"},
        {T "context.headers = [\"user\"]\nsink.type = \"stdout\"\n", 2, "only Kafka's records"},
        {T "context.headers = [\"userId\"]\nformat = \"cloudevents\"\n" K, 2,
         "made of a-z and 0-9"},
        {T "context.headers = [\"subject\"]\nformat = \"cloudevents\"\n" K, 2,
         "is an attribute of CloudEvents already"},
        {T "context.headers = [\"id\"]\noutbox.tables = [\"t\"]\n" K, 2,
         "is a header of the outbox already"},
        {T "context.headers = [\"trace\"]\noutbox.tables = [\"t\"]\n"
           "outbox.fields = [\"tid:header:trace\"]\n" K,
         2, "is a header of the outbox already"},
        {T "context.headers = [\"__op\"]\nformat = \"row\"\nrow.add_headers = [\"op\"]\n" K, 2,
         "is a header of row.add_headers already"},
        {T "context.headers = [\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\","
           "\"l\",\"m\",\"n\",\"o\",\"p\",\"q\"]\n" K,
         2, "has more than 16 names"},
        {T "json.schemas = \"both\"\n", 2, "types = \"debezium\""},
        {T "types = \"debezium\"\njson.schemas = \"all\"\n", 3,
         "must be one of none|key|value|both"},
        {T "types = \"debezium\"\nformat = \"flat\"\njson.schemas = \"key\"\n", 4,
         "set format = \"debezium\" or \"row\""},
        {T "types = \"debezium\"\njson.schemas = \"key\"\nschema_topic = \"a\"\n", 4,
         "its records have no schema"},
        {T "types = \"debezium\"\njson.schemas = \"key\"\nresolved.interval = \"1s\"\n"
           "[sink.kafka]\nbrokers = [\"a:1\"]\n",
         4, "set json.schemas = \"value\""},
        {T "types = \"debezium\"\njson.schemas = \"value\"\n[outbox]\ntables = [\"t\"]\n"
           "value_format = \"json\"\n",
         3, "JSON of an outbox"},
        {T "format = \"avro\"\n", 2, "has Debezium's types"},
        {T "format = \"avro\"\ntypes = \"debezium\"\n", 2, "needs a schema registry"},
        {T "format = \"avro\"\ntypes = \"debezium\"\n[schema_registry]\nurl = [\"a:1\"]\n", 5,
         "does not begin with http"},
        {T "format = \"avro\"\ntypes = \"debezium\"\n[schema_registry]\nurl = "
           "[\"https://u:p@a:1\"]\n",
         5, "has a user name in it"},
        {T "format = \"cloudevents\"\n[cloudevents]\nmode = \"binary\"\n", 4,
         "only Kafka's records"},
        {T "skipped_operations = [\"drop\"]\n", 2, "is not an operation"},
        {T "[pipeline]\nchange_max = 1000\n", 3, "out of range"},
        {T "[pipeline]\nchange_max = \"128MiB\"\n", 3, "but 428"},
        {T "[pipeline]\nmemory = \"64MiB\"\nbatch_size = \"2MiB\"\n", 3,
         "lower change_max or batch_size"},
        {T "[pipeline]\nbatch_size = \"-5KiB\"\n", 3, "a size"},
        {T "[pipeline]\nbatch_size = \"99999999999999999999\"\n", 3, "a size"},
        {T "[pipeline]\nlatency = \"1h\"\n", 3, "a duration"},
        {T "[pipeline]\nshutdown_deadline = \"30\"\n", 3, "a duration"},
        {T "[source.postgres]\nslot_name = \"Slot\"\n", 3, "not what PostgreSQL takes"},
        {T "[source.postgres]\nslot_name = \"\"\n", 3, "not what PostgreSQL takes"},
        {T "[source.postgres]\npublication_name = \"\"\n", 3, "1 to 63"},
        {T "[source.postgres]\nconnection = \"env:NOT_SET_AT_ALL\"\n", 3, "is not set"},
        {T "[source.postgres]\nconnection = \"host=x password=y\"\n", 3, "holds a password"},
        {T "[source.postgres]\nconnection = \"postgresql://u:p@h/d\"\n", 3, "holds a password"},
        {T "[source.postgres]\nconnection_env = \"U\"\n", 3,
         "write source.postgres.connection = \"env:U\""},
        {T "[source.postgres]\npassword_file = \"/b\"\n", 3,
         "write source.postgres.password = \"file:/b\""},
        {T "[source.postgres]\npassword_command = [\"/b\"]\n", 3,
         "source.postgres.password with the same list"},
        {T "[snapshot]\nconnection = \"host=x password=y\"\n", 3,
         "snapshot.connection holds a password"},
        {T "[snapshot]\nconnection = \"env:NOT_SET_AT_ALL\"\n", 3, "is not set"},
        {T "[snapshot]\nconnection = \"env:DATABASE_URL\"\n", 3, "leave it out"},
        {T "[snapshot]\npassword = \"env:A\"\n", 3, "no effect without snapshot.connection"},
        {T "[snapshot]\npassword = [\"/bin/true\"]\n", 3, "no effect without snapshot.connection"},
        {T "[source.postgres]\npassword = [\"aws\", \"rds\"]\n", 3,
         "\"aws\" is not the absolute path"},
        {T "[source.postgres]\npassword = [\"/no/such\"]\n", 3, "may run"},
        {T "[source.postgres]\npassword = [\"/etc/passwd\"]\n", 3, "may run"},
        {T "[source.postgres]\npassword = [\"/usr\"]\n", 3, "may run"},
        {T "[source.postgres]\npassword = \"hunter2\"\n", 3,
         "source.postgres.password must be \"env:NAME\""},
        {T "[http]\npassword = [\"/bin/true\"]\n", 3, "http.password must be \"env:NAME\""},
        {T K "[sink.kafka.sasl]\nmechanism = \"OAUTHBEARER\"\n", 5, "needs token_command or"},
        {T K "[sink.kafka.sasl]\nmechanism = \"OAUTHBEARER\"\nclient_secret = "
             "\"env:TEST_SECRET\"\ntoken_command = [\"/bin/true\"]\n",
         5, "needs token_command or"},
        {T K
         "[sink.kafka.sasl]\nmechanism = \"OAUTHBEARER\"\nclient_secret = "
         "\"env:TEST_SECRET\"\n[sink.kafka.properties]\n\"sasl.oauthbearer.token.endpoint.url\" "
         "= \"http://idp/token\"\n",
         8, "in the clear"},
        {T K "[sink.kafka.sasl]\nmechanism = \"PLAIN\"\nusername = \"u\"\npassword = "
             "\"env:TEST_SECRET\"\ntoken_command = [\"/bin/true\"]\n",
         5, "needs username"},
        {T "[sink]\ntype = \"kafka\"\n", 3, "brokers is missing"},
        {T "[sink]\ntype = \"file\"\n", 3, "sink.file.path is missing"},
        {T "[sink.kafka]\nbrokers = [\"b\"]\n[sink.kafka.sasl]\nmechanism = \"NTLM\"\n", 5,
         "must be PLAIN"},
        {T "[sink.kafka]\nbrokers = [\"b\"]\n[sink.kafka.sasl]\nmechanism = \"PLAIN\"\n", 5,
         "needs username"},
        {T "[sink.kafka]\nbrokers = [\"b\"]\n[sink.kafka.properties]\nacks = \"1\"\n", 5,
         "can't be set"},
        {T "[sink.kafka]\nbrokers = [\"b\"]\n[sink.kafka.properties]\n\"enable.idempotence\" = "
           "false\n",
         5, "can't be set"},
        {T "[sink.kafka]\nbrokers = [\"b\"]\n[sink.kafka.properties]\npartitioner = \"random\"\n",
         5, "can't be set"},
        {T "[sink.kafka]\nbrokers = [\"b\"]\n[sink.kafka.properties]\n\"sasl.password\" = \"x\"\n",
         5, "is a secret"},
        {T "[sink.kafka]\nbrokers = [\"b\"]\n[sink.kafka.properties]\n"
           "\"enable.ssl.certificate.verification\" = false\n",
         5, "insecure_tls"},
        {T "[sink.kafka]\nbrokers = [\"b\"]\n[sink.kafka.properties]\nx = [1]\n", 5,
         "string, number"},
        {T K "[sink.kafka.properties]\n\"enable.ssl.certificate.verification\" = \"0\"\n", 5,
         "insecure_tls"},
        {T K "[sink.kafka.properties]\n\"enable.ssl.certificate.verification\" = \"F\"\n", 5,
         "insecure_tls"},
        {T K "[sink.kafka.properties]\n\"ssl.endpoint.identification.algorithm\" = \" None\"\n", 5,
         "insecure_tls"},
        {T K "tls = true\n[sink.kafka.properties]\n\"security.protocol\" = \" PlainText\"\n", 6,
         "sink.kafka.tls = false"},
        {T K "[sink.kafka.properties]\n\"security.protocol\" = \"ssl\"\n", 5,
         "sink.kafka.tls = true"},
        {T K "[sink.kafka.properties]\n\"ssl.engine.location\" = \"/e.so\"\n", 5, "foreign code"},
        {T K "[sink.kafka.properties]\n\"plugin.library.paths\" = \"/e.so\"\n", 5, "foreign code"},
        {T K "[sink.kafka.properties]\n\"ssl.providers\" = \"legacy\"\n", 5, "foreign code"},
        {T K "[sink.kafka.properties]\n\"sasl.kerberos.kinit.cmd\" = \"id\"\n", 5, "command"},
        {T K "[sink.kafka.properties]\n\"sasl.kerberos.keytab\" = \"/k;id\"\n", 5, "command"},
        {T K "[sink.kafka.properties]\n\"sasl.mechanisms\" = \"PLAIN\"\n", 5, "GSSAPI"},
        {T K "[sink.kafka.properties]\n\"sasl.mechanisms\" = \"OAUTHBEARER\"\n", 5, "GSSAPI"},
        {T K "[sink.kafka.properties]\n\"sasl.mechanism\" = \" gssapi\"\n", 5,
         "KRB5_CLIENT_KTNAME"},
        {T K "[sink.kafka.properties]\ndebug = \"all\"\n", 5, "secrets"},
        {T K "[sink.kafka.properties]\ndebug = \"msg, security\"\n", 5, "secrets"},
        {T K "[sink.kafka.properties]\n\"group.id\" = \"g\"\n", 5, "is not accepted"},
        {T K "[sink.kafka.properties]\n\"linger.ms\" = 5\n", 5, "pipeline.latency"},
        {T "[sink.kafka]\npartitions = 3\n", 2, "brokers is missing"},
        {T "[sink.kafka]\n", 2, "brokers is missing"},
        {T "[sink]\ntype = \"file\"\n[sink.file]\npath = \"/f\"\n" K, 6, "sink.type is another"},
        {T "[sink]\ntype = \"stdout\"\n" K, 4, "sink.type is another"},
        {T "[sink.file]\npath = \"/f\"\n" K, 2, "the sink is another"},
        {T "[sink.file]\npath = \"\"\n", 2, "sink.file.path is missing"},
        {T "[sink.kafk]\nbrokers = [\"b\"]\n", 2, "did you mean [sink.kafka]"},
        {T "[sinks.kafka]\nbrokers = [\"b\"]\n", 2, "did you mean [sink]"},
        {T "[sink.kafka]\nbrokers = [\"b:99999\"]\n", 3, "between 1 and 65535"},
        {T "[sink.kafka]\nbrokers = [\"a:1,b:0\"]\n", 3, "\"b:0\" has no port"},
        {T "[sink.kafka]\nbrokers = [\"http://b:9092\"]\n", 3, "has a scheme"},
        {T "[sink.kafka]\nbrokers = [\"::1:9092\"]\n", 3, "[address]:port"},
        {T "[sink.kafka]\nbrokers = [\"\"]\n", 3, "is not host:port"},
        {T K "tls = true\ntls_ca_location = \"/no/ca.pem\"\n", 5, "/no/ca.pem can't be read"},
        {T K "tls = true\ntls_key_location = \"/no/key\"\n", 5, "/no/key can't be read"},
        {T K "state_topic = \"a/b\"\n", 4, "names of topics can't have"},
        {T "topic_prefix = \"a/b\"\n", 2, "names of topics can't have"},
        {T "excluded_tables = [\"a\"]\n", 2, "there is none"},
        {"tables = [\"a.b[\"]\n", 1, "names no table"},
        {"tables = [\"a.\\\\bb.*\"]\n", 1, "for something else"},
        {"tables = [\"a.*\"]\nexcluded_tables = [\"\\\"a.b\"]\n", 2, "names no table"},
        {T "columns.exclude = [\"t\"]\n", 2, "names no columns"},
        {T "columns.exclude = [\"t:\"]\n", 2, "names no columns"},
        {T "columns.exclude = [\"t:a,(\"]\n", 2, "names no columns"},
        {T "columns.mask = [\"t:a\"]\n", 2, "column=8"},
        {T "columns.truncate = [\"t:a=\"]\n", 2, "column=8"},
        {T "columns.truncate = [\"t:a=1x\"]\n", 2, "column=8"},
        {T "columns.hash = [\"t:a\"]\n", 2, "needs a salt"},
        {T "topic_delimiter = \"/\"\n", 2, "dots, underscores and hyphens"},
        {T "topic_delimiter = \"\"\n", 2, "dots, underscores and hyphens"},
        {T "topic_prefix = \"\"\n", 2, "is empty"},
        {T "[profiling]\nendpoints = true\n[http]\naddress = \":9464\"\n", 3, "without a password"},
        {T "[[streams]]\nname = \"s\"\n", 2, "needs source.resource"},
        {T "streams = 1\n", 2, "[[streams]]"},
        {"[[streams]]\n[streams.source]\nresource = \"t\"\ncolour = 1\n[streams.sink]\ndestination "
         "= "
         "\"d\"\n",
         4, "unknown or of the wrong kind"},
        {"[[streams]]\n[streams.source]\nresource = \"t\"\noperations = "
         "[\"drop\"]\n[streams.sink]\n"
         "destination = \"d\"\n",
         1, "is not an operation"},
        {"not toml\n", 1, "not valid TOML"},
        {"\nx = 'caf\xE9'\n", 2, "byte 10 is not UTF-8"},
        {T "x = 1\nx = 2\n", 3, "not valid TOML"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_config *config;
        mr_status status = config_test_load(cases[i].text, &config);
        if (status != MR_ERR_CONFIG || !has_problem(config, true, cases[i].line, cases[i].part)) {
            mr_config_print_problems(config, stderr);
            fail_msg("case %zu: %s", i, cases[i].text);
        }
        mr_config_free(config);
    }
}

/* What sink a file means, and what of librdkafka may be set. */
static void test_load_means_what_it_says(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mr_sink_kind kind;
        uint32_t warnings;
    } cases[] = {
        {T K, MR_SINK_KAFKA, 0},
        {T "[sink.file]\npath = \"/f\"\n", MR_SINK_FILE, 0},
        {T "[sink]\ntype = \"stdout\"\n", MR_SINK_STDOUT, 0},
        {T "[sink]\ntype = \"discard\"\n", MR_SINK_DISCARD, 0},
        {T, MR_SINK_STDOUT, 1},
        {T "[sink.kafka]\nbrokers = [\"a\", \"b:9092,c:1\", \"[::1]:9092\", \"[::1]\"]\n",
         MR_SINK_KAFKA, 0},
        {T K "tls = true\n[sink.kafka.properties]\n\"security.protocol\" = \"Sasl_SSL\"\n"
             "\"sasl.mechanisms\" = \"GSSAPI\"\n\"sasl.kerberos.keytab\" = \"/etc/k.tab\"\n"
             "\"enable.ssl.certificate.verification\" = \"T\"\n"
             "\"ssl.endpoint.identification.algorithm\" = \"HTTPS\"\ndebug = \"broker, MSG\"\n",
         MR_SINK_KAFKA, 0},
        {T K "insecure_tls = true\n[sink.kafka.properties]\n"
             "\"enable.ssl.certificate.verification\" = \"0\"\n",
         MR_SINK_KAFKA, 0},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_config *config;
        mr_status status = config_test_load(cases[i].text, &config);
        if (status != MR_OK || config->sink_kind != cases[i].kind ||
            config->problems.count != cases[i].warnings) {
            mr_config_print_problems(config, stderr);
            fail_msg("case %zu: %s", i, cases[i].text);
        }
        mr_config_free(config);
    }
}

static void test_kinit_runs_where_it_is_needed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool runs;
    } cases[] = {
        {T K, false},
        {T K "[sink.kafka.sasl]\nmechanism = \"OAUTHBEARER\"\ntoken_command = [\"/bin/true\"]\n",
         false},
        {T K "[sink.kafka.properties]\n\"sasl.mechanisms\" = \" GssApi \"\n"
             "\"sasl.kerberos.keytab\" = \"/k\"\n",
         true},
        {T K "[sink.kafka.properties]\n\"sasl.mechanism\" = \"GSSAPI\"\n"
             "\"sasl.kerberos.keytab\" = \"/k\"\n"
             "\"sasl.kerberos.min.time.before.relogin\" = \"10\"\n",
         true},
        {T K "[sink.kafka.properties]\n\"sasl.mechanism\" = \"GSSAPI\"\n"
             "\"sasl.kerberos.min.time.before.relogin\" = \" 0\"\n",
         false},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_config *config;
        assert_int_equal(config_test_load(cases[i].text, &config), MR_OK);
        assert_int_equal(mr_config_runs_kinit(config), cases[i].runs);
        mr_config_free(config);
    }
}

static void test_load_tells_all_errors_at_once(void **state)
{
    (void)state;
    struct mr_config *config;
    assert_int_equal(config_test_load("tabels = []\nformat = \"x\"\n[log]\nlevel = 1\n", &config),
                     MR_ERR_CONFIG);
    assert_int_equal(config->problems.errors, 3);
    mr_config_free(config);
}

static void test_load_file_cut_at_every_byte(void **state)
{
    (void)state;
    const char *const texts[] = {good, outboxx};
    for (size_t t = 0; t < MR_ARRAY_LEN(texts); t++) {
        size_t len = strlen(texts[t]);
        for (size_t cut = 0; cut < len; cut++) {
            struct mr_config *config = NULL;
            setenv("DATABASE_URL", "postgresql://u@h/d", 1);
            setenv("TEST_SASL", "pw", 1);
            mr_status status = mr_daemon_load_text("cut.toml", texts[t], cut, &config);
            assert_true(status == MR_OK || config->problems.errors > 0);
            mr_config_free(config);
        }
    }
}

static void test_secret_file(void **state)
{
    (void)state;
    char path[] = "/tmp/millrace-secret-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "pa ss\n", 6), 6);
    close(fd);
    char text[256];
    snprintf(text, sizeof(text), "tables = [\"t\"]\n[source.postgres]\npassword = \"file:%s\"\n",
             path);
    struct mr_config *config;
    assert_int_equal(config_test_load(text, &config), MR_OK);
    assert_secret(config->source.connection.password, "pa ss");
    mr_config_free(config);
    chmod(path, 0644);
    assert_int_equal(config_test_load(text, &config), MR_ERR_CONFIG);
    assert_true(has_problem(config, true, 3, "chmod 600"));
    mr_config_free(config);
    /* As systemd and Kubernetes give it to a process that is not root: root's file, readable by a
     * group. */
    chmod(path, 0440);
    assert_int_equal(config_test_load(text, &config), geteuid() == 0 ? MR_OK : MR_ERR_CONFIG);
    mr_config_free(config);
    unlink(path);
    assert_int_equal(config_test_load(text, &config), MR_ERR_CONFIG);
    assert_true(has_problem(config, true, 3, "can't be read"));
    mr_config_free(config);
}

/* Without a word of it they use the stream's; with one, nothing of the stream's but what holds for
 * all connections. */
static void test_connection_for_copies(void **state)
{
    (void)state;
    struct mr_config *config;
    assert_int_equal(config_test_load(good, &config), MR_OK);
    assert_null(config->source.copying.conninfo);
    mr_config_free(config);
    setenv("TEST_COPY_URL", "postgresql://copier:pw@h/d", 1);
    setenv("TEST_STREAM_PASSWORD", "stream's", 1);
    assert_int_equal(
        config_test_load("tables = [\"t\"]\n[source.postgres]\nconnection = \"host=x\"\n"
                         "password = \"env:TEST_STREAM_PASSWORD\"\n"
                         "insecure_tls = true\n"
                         "[snapshot]\nconnection = \"env:TEST_COPY_URL\"\n",
                         &config),
        MR_OK);
    assert_string_equal(config->source.copying.conninfo, "postgresql://copier:pw@h/d");
    assert_string_equal(getenv("TEST_COPY_URL"), "");
    assert_null(config->source.copying.password);
    assert_true(config->source.copying.insecure_tls);
    assert_secret(config->source.connection.password, "stream's");
    mr_config_free(config);
    setenv("TEST_COPY_PASSWORD", "copier's", 1);
    assert_int_equal(
        config_test_load("tables = [\"t\"]\n[source.postgres]\nconnection = \"host=x\"\n"
                         "[snapshot]\nconnection = \"host=y\"\n"
                         "password = \"env:TEST_COPY_PASSWORD\"\n",
                         &config),
        MR_OK);
    assert_string_equal(config->source.copying.conninfo, "host=y");
    assert_secret(config->source.copying.password, "copier's");
    assert_false(config->source.copying.insecure_tls);
    assert_null(config->source.connection.password);
    mr_config_free(config);
}

/* Two options may name one variable; what made it may have left a line's end there. */
static void test_one_variable_for_two_secrets(void **state)
{
    (void)state;
    struct mr_config *config;
    setenv("TEST_SHARED", "both's\n", 1);
    assert_int_equal(
        config_test_load("tables = [\"t\"]\n[source.postgres]\nconnection = \"host=x\"\n"
                         "password = \"env:TEST_SHARED\"\n"
                         "[snapshot]\nconnection = \"host=y\"\npassword = \"env:TEST_SHARED\"\n",
                         &config),
        MR_OK);
    assert_secret(config->source.connection.password, "both's");
    assert_secret(config->source.copying.password, "both's");
    assert_string_equal(getenv("TEST_SHARED"), "");
    mr_config_free(config);
}

static void test_programs(void **state)
{
    (void)state;
    struct mr_config *config;
    assert_int_equal(
        config_test_load("tables = [\"t\"]\n[source.postgres]\nconnection = \"host=x\"\n"
                         "password = [\"/bin/echo\", \"a b\"]\n"
                         "[snapshot]\nconnection = \"host=y\"\n"
                         "password = [\"/bin/true\"]\n"
                         "[sink.kafka]\nbrokers = [\"b\"]\ntls = true\n"
                         "[sink.kafka.sasl]\nmechanism = \"OAUTHBEARER\"\n"
                         "client_secret = \"env:TEST_SECRET\"\n"
                         "[sink.kafka.properties]\n\"sasl.oauthbearer.client.id\" = \"m\"\n"
                         "\"sasl.oauthbearer.token.endpoint.url\" = \"http://localhost:1/t\"\n",
                         &config),
        MR_OK);
    assert_int_equal(config->problems.count, 0);
    assert_int_equal(config->programs.count, 2);
    const struct mr_program *program = config->source.connection.password_program;
    assert_string_equal(program->option, "source.postgres.password");
    assert_string_equal(program->arguments[0], "/bin/echo");
    assert_string_equal(program->arguments[1], "a b");
    assert_null(program->arguments[2]);
    assert_ptr_equal(config->source.copying.password_program, &config->programs.items[1]);
    assert_null(config->kafka.token_program);
    assert_string_equal(config->kafka.properties[0].value, "SASL_SSL");
    assert_string_equal(config->kafka.properties[1].value, "OAUTHBEARER");
    assert_string_equal(config->kafka.properties[2].value, "oidc");
    assert_secret(config->kafka.client_secret, "s");
    mr_config_free(config);
}

static void test_environment_alone(void **state)
{
    (void)state;
    struct mr_config *config = NULL;
    unsetenv("MILLRACE_TABLES");
    setenv("DATABASE_URL", "postgresql://u@h/d", 1);
    assert_int_equal(mr_config_load(NULL, &config), MR_ERR_CONFIG);
    mr_config_free(config);
    config = NULL;
    setenv("MILLRACE_TABLES", "public.a, b", 1);
    setenv("DATABASE_URL", "postgresql://u@h/d", 1);
    assert_int_equal(mr_config_load(NULL, &config), MR_OK);
    assert_int_equal(config->source.captured.table_count, 2);
    assert_int_equal(config->sink_kind, MR_SINK_STDOUT);
    mr_config_free(config);
}

static void test_missing_file(void **state)
{
    (void)state;
    struct mr_config *config = NULL;
    assert_int_equal(mr_config_load("/no/such/file.toml", &config), MR_ERR_CONFIG);
    assert_true(has_problem(config, true, 0, "No such file"));
    mr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_native_file),
        cmocka_unit_test(test_http_options),
        cmocka_unit_test(test_load_outboxx_file),
        cmocka_unit_test(test_load_tells_each_error_with_its_line),
        cmocka_unit_test(test_load_means_what_it_says),
        cmocka_unit_test(test_kinit_runs_where_it_is_needed),
        cmocka_unit_test(test_load_tells_all_errors_at_once),
        cmocka_unit_test(test_load_file_cut_at_every_byte),
        cmocka_unit_test(test_many_tables),
        cmocka_unit_test(test_secret_file),
        cmocka_unit_test(test_connection_for_copies),
        cmocka_unit_test(test_one_variable_for_two_secrets),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_environment_alone),
        cmocka_unit_test(test_missing_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
