#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"
#include "daemon/daemon.h"
#include "testing/test.h"

#define CONNECTORS MR_SOURCE_DIR "/tests/connectors"

struct converted {
    char *toml;
    char *notes;
    mr_status status;
};

static struct converted convert(const char *text, size_t len)
{
    struct converted ret = {0};
    size_t size;
    FILE *toml = open_memstream(&ret.toml, &size);
    FILE *notes = open_memstream(&ret.notes, &size);
    ret.status = mr_convert("file", text, len, toml, notes);
    fclose(toml);
    fclose(notes);
    return ret;
}

static struct converted convert_text(const char *text)
{
    return convert(text, strlen(text));
}

static void converted_done(struct converted *converted)
{
    free(converted->toml);
    free(converted->notes);
}

/* Reading a secret empties its variable. */
static struct mr_config *convert_test_load(const char *toml)
{
    static const char *const variables[] = {"MILLRACE_PG_PASSWORD", "MILLRACE_KAFKA_PASSWORD",
                                            "PG_PASSWORD", "DATABASE_URL", "MILLRACE_HASH_SALT"};
    for (size_t i = 0; i < MR_ARRAY_LEN(variables); i++) {
        setenv(variables[i], "set", 1);
    }
    char *text = MR_STRDUP(toml);
    for (char *at = text; (at = strstr(at, MR_CONVERT_PLACEHOLDER)) != NULL;) {
        *at = 'N'; /* somebody names a table */
    }
    struct mr_config *config;
    mr_status status = mr_daemon_load_text("converted", text, strlen(text), &config);
    free(text);
    if (status != MR_OK) {
        mr_config_print_problems(config, stderr);
        fail_msg("%s", toml);
    }
    return config;
}

static char *convert_test_read_file(const char *name, size_t *ret_len)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", CONNECTORS, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char *text = MR_ALLOC(65536);
    *ret_len = fread(text, 1, 65535, file);
    assert_true(*ret_len < 65535);
    fclose(file);
    return text;
}

static void each_file(void (*look)(const char *name, const char *text, size_t len))
{
    DIR *folder = opendir(CONNECTORS);
    assert_non_null(folder);
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            size_t len;
            char *text = convert_test_read_file(entry->d_name, &len);
            look(entry->d_name, text, len);
            free(text);
            count++;
        }
    }
    closedir(folder);
    assert_true(count >= 30);
}

static void look_at_result(const char *name, const char *text, size_t len)
{
    struct converted converted = convert(text, len);
    assert_int_equal(converted.status, MR_OK);
    if (strstr(converted.toml, "secret") != NULL || strstr(converted.notes, "secret") != NULL) {
        fail_msg("%s: a secret came out", name);
    }
    mr_config_free(convert_test_load(converted.toml));
    converted_done(&converted);
}

static void test_convert_results_are_configurations(void **state)
{
    (void)state;
    each_file(look_at_result);
}

static void convert_test_add_escaped(struct mr_text *out, const char *text)
{
    for (; *text != '\0'; text++) {
        mr_text_format(out, strchr(" \\:=#!", *text) != NULL ? "\\%c" : "%c", *text);
    }
}

/* The lines as properties, with another value for one of them. */
static char *with_value(const struct mr_convert *lines, uint32_t changed, const char *value)
{
    struct mr_text out = {0};
    for (uint32_t i = 0; i < lines->line_count; i++) {
        convert_test_add_escaped(&out, lines->lines[i].given);
        mr_text_string(&out, "=");
        convert_test_add_escaped(&out, i == changed ? value : lines->lines[i].value);
        mr_text_string(&out, "\n");
    }
    return out.data;
}

/* Each option is named, or another value of it shows in the result or in what is said. */
static void look_at_options(const char *name, const char *text, size_t len)
{
    struct mr_convert lines = {0};
    char reason[256];
    assert_true(mr_cv_read(&lines, text, len, reason, sizeof(reason)));
    struct converted whole = convert(text, len);
    for (uint32_t i = 0; i < lines.line_count; i++) {
        struct mr_text named = {0};
        mr_text_format(&named, "file: %s: ", lines.lines[i].given);
        char *salt = strstr(named.data, ".with.salt.");
        if (salt != NULL) {
            salt[0] = '\0';
        }
        char *changed = with_value(&lines, i, "zzz");
        struct converted other = convert_text(changed);
        bool differs = strcmp(whole.toml, other.toml) != 0 || strcmp(whole.notes, other.notes) != 0;
        if (strstr(whole.notes, named.data) == NULL && !differs) {
            fail_msg("%s: %s is neither carried nor named", name, lines.lines[i].given);
        }
        converted_done(&other);
        free(changed);
        mr_text_done(&named);
    }
    converted_done(&whole);
    mr_cv_done(&lines);
}

static void test_convert_passes_no_option_over(void **state)
{
    (void)state;
    each_file(look_at_options);
}

#define BASE                                                                                       \
    "connector.class=io.debezium.connector.postgresql.PostgresConnector\n"                         \
    "database.hostname=localhost\ndatabase.dbname=d\ndatabase.user=u\ntopic.prefix=p\n"            \
    "plugin.name=pgoutput\nbootstrap.servers=b:9092\n"                                             \
    "key.converter=x.JsonConverter\nkey.converter.schemas.enable=false\n"                          \
    "value.converter=x.JsonConverter\nvalue.converter.schemas.enable=false\n"                      \
    "value.converter.replace.null.with.default=false\n"                                            \
    "publication.autocreate.mode=filtered\n"
#define CLOUD "value.converter=io.debezium.converters.CloudEventsConverter\n"
#define AVRO                                                                                       \
    "key.converter=x.AvroConverter\nvalue.converter=x.AvroConverter\n"                             \
    "value.converter.schema.registry.url=http://a:1,http://b:2\n"
#define OUTBOX(type, pattern)                                                                      \
    "transforms=o\ntransforms.o.type=EventRouter\ntransforms.o.predicate=p\npredicates=p\n"        \
    "predicates.p.type=x." type "\npredicates.p.pattern=" pattern "\n"
#define UNWRAP_TOO "transforms=o,u\ntransforms.u.type=ExtractNewRecordState\n"
#define UNWRAP     "transforms=u\ntransforms.u.type=io.debezium.transforms.ExtractNewRecordState\n"
#define RESELECT                                                                                   \
    "post.processors=r\nr.type=io.debezium.processors.reselect.ReselectColumnsPostProcessor\n"
#define TABLES                 "table.include.list=public.a,s.b\n"
#define HELD                   "public." MR_CONVERT_PLACEHOLDER
#define HOLDS(option, columns) option " = [\"" HELD columns "\"]"

static const struct {
    const char *lines;
    const char *toml;  /* is in the result; NULL: nothing to look for */
    const char *notes; /* is in what is said; NULL: nothing is said */
} cases[] = {
    {TABLES, "tables = [\"public.a\", \"s.b\"]", NULL},
    {TABLES, "[messages]\nprefixes = [\"*\"]", NULL},
    {TABLES, "mode = \"initial\"", NULL},
    {TABLES, "slot_name = \"debezium\"", NULL},
    {TABLES, "publication_name = \"dbz_publication\"", NULL},
    {TABLES, "[publication]\nalter = true", NULL},
    {TABLES "publish.via.partition.root=true\n", "via_partition_root = true", NULL},
    {TABLES, "connection = \"host=localhost dbname=d user=u\"", NULL},
    {TABLES "database.user=o'x y\\\\z\n", "user='o\\\\'x y\\\\\\\\z'\"", NULL},
    {TABLES "skipped.operations=none\n", "skipped_operations = []", NULL},
    {TABLES "skipped.operations=u,m\n", "skipped_operations = [\"update\", \"message\"]", NULL},
    {TABLES "skipped.operations=x\n", "skipped_operations = []", "none of c, u, d"},
    {TABLES "tombstones.on.delete=false\n", "tombstones = false", NULL},
    {TABLES "tombstones.on.delete=perhaps\n", "types = \"debezium\"", "does not take its value"},
    {TABLES "snapshot.mode=never\n", "mode = \"no_data\"", NULL},
    {TABLES "snapshot.mode=when_needed\n", "mode = \"when_needed\"", NULL},
    {TABLES "snapshot.mode=always\n", "mode = \"always\"", NULL},
    {TABLES "signal.data.collection=s.asks\n", "signal_table = \"s.asks\"", NULL},
    {TABLES "signal.enabled.channels=source,kafka\nsignal.data.collection=s.asks\n",
     "signal_table = \"s.asks\"", "signal.enabled.channels: not carried"},
    {TABLES "signal.kafka.topic=asks\n", NULL, "signal.kafka.topic: not carried"},
    {TABLES "signal.enabled.channels=source,jmx\n", NULL, "signal.enabled.channels: not carried"},
    {TABLES "message.prefix.include.list=a,b\n", "prefixes = [\"(?i)a\", \"(?i)b\"]", NULL},
    {TABLES "message.prefix.exclude.list=a,b\n", "prefixes = [\"*\", \"!(?i)a\", \"!(?i)b\"]",
     NULL},
    {TABLES "decimal.handling.mode=wide\n", NULL, "decimal.handling.mode: not carried over"},
    {TABLES "xmin.fetch.interval.ms=5\n", NULL, "xmin.fetch.interval.ms: not carried over"},
    {TABLES "message.prefix.include.list=a.+\n", "prefixes = [\"name_your_tables_here\"]",
     "regular expression"},
    {TABLES "message.prefix.include.list=a,${file:x:y}\n", "prefixes = [\"name_your_tables_here\"]",
     "value from elsewhere"},
    {TABLES "message.prefix.exclude.list=a{0\\\\,1}b\n",
     "prefixes = [\"*\", \"name_your_tables_here\"]", "regular expression"},
    {TABLES "heartbeat.interval.ms=5000\nheartbeat.action.query=${file:x:y}\n",
     "interval = \"5000ms\"\ntopic_prefix", "write it into heartbeat.query"},
    {TABLES "heartbeat.interval.ms=5000\ntopic.heartbeat.prefix=${file:x:y}\n",
     "interval = \"5000ms\"\n", "write it into heartbeat.topic_prefix"},
    {TABLES "message.key.columns=s.b:x,y;public.(a|c):z\n",
     "key_columns = [\"s.b:x,y\", \"public.a:z\", \"public.c:z\"]", NULL},
    {TABLES "message.key.columns=.*:x\n", NULL, "message.key.columns: not carried over"},
    {TABLES "exactly.once.support=REQUIRED\n", "delivery = \"exactly-once\"", NULL},
    {TABLES "topic.creation.default.partitions=7\n", "partitions = 7", NULL},
    {TABLES "topic.creation.default.partitions=0\n", NULL, "from 1 to 100000"},
    {TABLES "producer.override.max.request.size=2000000\n", "message_max = \"2000000\"", NULL},
    {TABLES "producer.client.id=c\n", "[sink.kafka.properties]\n\"client.id\" = \"c\"", NULL},
    {TABLES "producer.override.acks=1\n", NULL, "acknowledged by all replicas"},
    {TABLES "producer.override.acks=-1\n", NULL, NULL},
    {TABLES "errors.retry.delay.max.ms=5000\n", "reconnect_max = \"5000ms\"", NULL},
    {TABLES "database.server.name=q\n", "topic_prefix = \"p\"", "which is there too"},
    {TABLES "decimal.handling.mode=precise\n", NULL, NULL},
    {TABLES "decimal.handling.mode=DOUBLE\n", "decimal_handling_mode = \"double\"", NULL},
    {TABLES "heartbeat.interval.ms=0\nheartbeat.action.query=SELECT 1\n", NULL, NULL},
    {TABLES "heartbeat.interval.ms=5000\n",
     "[heartbeat]\ninterval = \"5000ms\"\ntopic_prefix = \"__debezium-heartbeat\"", NULL},
    {TABLES "heartbeat.interval.ms=5000\ntopic.heartbeat.prefix=hb\n"
            "heartbeat.action.query=UPDATE h SET t = now()\n",
     "query = \"UPDATE h SET t = now()\"\ntopic_prefix = \"hb\"", NULL},
    {TABLES "heartbeat.interval.ms=soon\n", NULL, "set heartbeat.interval"},
    {TABLES AVRO "heartbeat.interval.ms=5\n", NULL, "have no topic with this format"},
    {TABLES "no.such.option=1\n", NULL, "no.such.option: unknown"},
    {TABLES "column.mask.hash.MD5.with.salt.pepper=s.b.x\n",
     HOLDS("hash", ":name") "\nhash_salt = \"env:MILLRACE_HASH_SALT\"",
     ".with.salt.…: not carried over"},
    {TABLES "value.converter.schemas.enable=true\n", "[json]\nschemas = \"value\"", NULL},
    {TABLES "value.converter.replace.null.with.default=\n", NULL,
     "null, not the default, in a column that has one"},
    {TABLES "key.converter.replace.null.with.default=true\n", NULL, NULL},
    {TABLES "key.converter.schemas.enable=\n", "[json]\nschemas = \"key\"", NULL},
    {TABLES "key.converter.schemas.enable=true\nvalue.converter.schemas.enable=true\n" UNWRAP,
     "[json]\nschemas = \"both\"", NULL},
    {TABLES CLOUD "value.converter.json.schemas.enable=false\nkey.converter.schemas.enable=true\n",
     "format = \"cloudevents\"", "keys of CloudEvents have no schema"},
    {TABLES "key.converter.schemas.enable=true\n" OUTBOX("TopicNameMatches", "p.public.a"),
     "key_format = \"json\"", "events of an outbox have no schema"},
    {TABLES AVRO, "format = \"avro\"", NULL},
    {TABLES AVRO, "url = [\"http://a:1\", \"http://b:2\"]", NULL},
    {TABLES AVRO "value.converter.auto.register.schemas=false\n", "register = false", NULL},
    {TABLES AVRO "value.converter.auto.register.schemas=perhaps\n", NULL, "is true or false"},
    {TABLES AVRO "value.converter.value.subject.name.strategy=x.TopicRecordNameStrategy\n",
     "subject_strategy = \"topic_record\"", NULL},
    {TABLES AVRO "value.converter.value.subject.name.strategy=x.Mine\n", NULL,
     "subjects are named by"},
    {TABLES AVRO "value.converter.basic.auth.user.info=me:secret\n", "username = \"me\"",
     "MILLRACE_REGISTRY_PASSWORD"},
    {TABLES AVRO "value.converter.use.latest.version=true\n", NULL,
     "use.latest.version: not carried over"},
    {TABLES AVRO "key.converter.schema.registry.url=http://c:3\n", NULL,
     "keys have the values' registry"},
    {TABLES AVRO "key.converter=x.StringConverter\n", NULL, "keys are Avro where values are"},
    {TABLES AVRO "field.name.adjustment.mode=avro_unicode\n", NULL, "become underscores"},
    {TABLES AVRO "schema.name.adjustment.mode=avro\n", NULL, NULL},
    {TABLES "key.converter=x.AvroConverter\nvalue.converter=io.apicurio.registry.utils.converter."
            "AvroConverter\nvalue.converter.apicurio.registry.url=http://a/apis/registry/v2\n",
     "format = \"avro\"", "/apis/ccompat/v7"},
    {TABLES CLOUD "value.converter.json.schemas.enable=false\n", "format = \"cloudevents\"", NULL},
    {TABLES CLOUD "value.converter.extension.attributes.enable=false\n", "format = \"cloudevents\"",
     "extension attributes are always written"},
    {TABLES CLOUD "value.converter.data.serializer.type=avro\n", NULL,
     "value.converter.data.serializer.type: not carried over"},
    {TABLES "slot.name=${env:SLOT}\n", NULL, "write it into source.postgres.slot_name"},
    {TABLES "database.user=${env:U}\n", "connection = \"env:DATABASE_URL\"", "whole connection"},
    {TABLES "database.password=${env:PW}\n", "password = \"env:PW\"", "variable PW"},
    {TABLES "database.hostname=pg.example.org\ndatabase.sslmode=verify-full\n",
     "sslmode=verify-full", NULL},
    {TABLES "producer.override.security.protocol=SASL_SSL\nproducer.override.sasl.mechanism=PLAIN\n"
            "producer.override.sasl.jaas.config=X required username=\"me\" password=\"pw\";\n",
     "[sink.kafka.sasl]\nmechanism = \"PLAIN\"\nusername = \"me\"\npassword = \"env:",
     "MILLRACE_KAFKA_PASSWORD"},
    {"table.include.list=public.Orders\n", "tables = [\"public.Orders\"]", "upper from lower"},
    {"table.include.list=d.public.t\n", "name_your_tables_here", "pattern 1 does not name"},
    {"table.include.list=public.t.*,s\\\\..*,s.b\n",
     "tables = [\"s.b\", \"public.(?i)(t.*)\", \"s.*\"]", NULL},
    {"table.include.list=public.*,^sales.*$\n", "tables = [\"public.*\", \"sales.*\"]",
     "all tables of that schema"},
    {"table.include.list=public.t\\\\d\n", "name_your_tables_here", "pattern 1 does not name"},
    {"table.include.list=Public.t.*\n", "\"(?i)Public.(?i)(t.*)\"", NULL},
    {"table.exclude.list=s.tmp.*,s.t1\n",
     "tables = [\"*.*\"]\nexcluded_tables = [\"(?i)s.(?i)(tmp.*)\", \"(?i)s.(?i)t1\"]", NULL},
    {"table.exclude.list=s.Tmp\n", "excluded_tables = [\"(?i)s.(?i)Tmp\"]", NULL},
    {"table.exclude.list=s.t\\\\w\n", "name_your_tables_here", "the tables are not named"},
    {"table.include.list=public\\\\.[a-z]+\n", "tables = [\"public.(?i)[a-z]+\"]", NULL},
    {"table.include.list=Public.*\n", "tables = [\"(?i)Public.*\"]", "all tables of that schema"},
    {"table.include.list=(?i)public\\\\.a\n", "tables = [\"public.a\"]", NULL},
    {"table.include.list=public.a,public.t\\\\d\n", "tables = [\"public.a\", \"" HELD "\"]",
     "pattern 2 does not name"},
    {"table.include.list=s.t.*\nschema.exclude.list=x\n", "s.(?i)(t.*)", "leaves out none"},
    {"", "name_your_tables_here", "the tables are not named"},
    {TABLES
     "transforms=r\ntransforms.r.type=RegexRouter\ntransforms.r.regex=p\\\\.(.*)\\\\.(\\\\w+)\n"
     "transforms.r.replacement=$2-of-$1\n",
     "[routing]\ntopic = [\"p\\\\.(.*)\\\\.(\\\\w+)\", \"$2-of-$1\"]", NULL},
    {TABLES "transforms=r\ntransforms.r.type=io.debezium.transforms.ContentBasedRouter\n"
            "transforms.r.topic.expression=value.after.region\n",
     NULL, "where events are"},
    {TABLES "transforms=r\ntransforms.r.type=RegexRouter\ntransforms.r.regex=q.*\n"
            "transforms.r.replacement=z\n",
     "topic = [\"q.*\", ", NULL},
    {TABLES "transforms=r\ntransforms.r.type=RegexRouter\ntransforms.r.regex=(?<n>.*)\n"
            "transforms.r.replacement=z\n",
     "topic = [\"(?<n>.*)\", ", NULL},
    {TABLES "transforms=r\ntransforms.r.type=RegexRouter\ntransforms.r.regex=(.*)\n"
            "transforms.r.replacement=z${n}\n",
     "tables = [\"public.a\", \"s.b\"]", "only Java knows"},
    {TABLES "transforms=r\ntransforms.r.type=ByLogicalTableRouter\ntransforms.r.topic.regex=(.*)\n"
            "transforms.r.topic.replacement=z\n",
     "topic = [\"(.*)\", \"z\"]\nsharing = \"key\"", NULL},
    {TABLES "transforms=r\ntransforms.r.type=ByLogicalTableRouter\ntransforms.r.topic.regex=(.*)\n"
            "transforms.r.topic.replacement=z\ntransforms.r.key.enforce.uniqueness=false\n",
     "sharing = \"allow\"", NULL},
    {TABLES "transforms=r\ntransforms.r.type=ByLogicalTableRouter\ntransforms.r.topic.regex=(.*)\n"
            "transforms.r.topic.replacement=z\ntransforms.r.key.field.regex=(.).*\n"
            "transforms.r.key.field.replacement=$1\ntransforms.r.key.field.name=shard\n",
     "key_field = \"shard\"\nkey_value = [\"(.).*\", \"$1\"]", NULL},
    {TABLES "transforms=r,q\ntransforms.r.type=RegexRouter\ntransforms.r.regex=a\n"
            "transforms.r.replacement=b\ntransforms.q.type=RegexRouter\n"
            "transforms.q.regex=b\ntransforms.q.replacement=c\n",
     "topic = [\"a\", \"b\"]", "write what both do as one"},
    {TABLES "transforms=o\ntransforms.o.type=EventRouter\n"
            "transforms.o.route.topic.regex=(?<a>.)-(?<b>.*)\n"
            "transforms.o.route.topic.replacement=${b}.${a}\n",
     "tables = [\"public.a\", \"s.b\"]\ntopic = [\"(?<a>.)-(?<b>.*)\", \"${b}.${a}\"]", NULL},
    {TABLES "transforms=o\ntransforms.o.type=EventRouter\n"
            "transforms.o.route.topic.replacement=${other}\n",
     NULL, "only Java knows"},
    {TABLES "transforms=o\ntransforms.o.type=EventRouter\ntransforms.o.predicate=p\n"
            "transforms.o.table.field.event.id=x\n",
     "tables = [\"public.a\", \"s.b\"]", "transforms.o.table.field.event.id: not carried over"},
    {TABLES OUTBOX("TopicNameMatches", "p\\\\.public\\\\.a"), "[outbox]\ntables = [\"public.a\"]",
     NULL},
    {"table.include.list=public.a\xC3\xBC,s.b\n" OUTBOX("TopicNameMatches", "p.public.a_"),
     "[outbox]\ntables = [\"public.a\xC3\xBC\"]", NULL},
    {TABLES OUTBOX("TopicNameMatches", "p.s.(b|c)"), "[outbox]\ntables = [\"s.b\"]", NULL},
    {TABLES OUTBOX("TopicNameMatches", ".*\\\\.[ab]"), "[outbox]\ntables = [\"public.a\", \"s.b\"]",
     NULL},
    {TABLES OUTBOX("TopicNameMatches", "p\\\\.s\\\\.b\ntransforms.o.negate=true"),
     "tables = [\"public.a\", \"s.b\"]", "can't be told from it"},
    {TABLES OUTBOX("TopicNameMatches", "p\\\\.s\\\\.b\ntransforms.o.negate=false"),
     "[outbox]\ntables = [\"s.b\"]", NULL},
    {TABLES OUTBOX("TopicNameMatches", "p.*"), "tables = [\"public.a\", \"s.b\"]",
     "can't be told from it"},
    {TABLES OUTBOX("TopicNameMatches", "public.a"), "tables = [\"public.a\", \"s.b\"]",
     "can't be told from it"},
    {TABLES OUTBOX("TopicNameMatches", "\\\\p{L}.public.a"), "tables = [\"public.a\", \"s.b\"]",
     "predicates.p.pattern: not carried over"},
    {TABLES OUTBOX("RecordIsTombstone", "p.public.a"), "tables = [\"public.a\", \"s.b\"]",
     "transforms.o.predicate: not carried over"},
    {TABLES "topic.delimiter=-\n" OUTBOX("TopicNameMatches", "p-public-a"),
     "[outbox]\ntables = [\"public.a\"]", NULL},
    {"table.include.list=public.t.*,s.b\n" OUTBOX("TopicNameMatches", "p.public.(tx|ty)"),
     "tables = [\"s.b\", \"public.(?i)(t.*)\"]", "can't be told from it"},
    {"table.include.list=public.t.*\n" OUTBOX("TopicNameMatches", ".*tx"),
     "tables = [\"public.(?i)(t.*)\"]", "can't be told from it"},
    {TABLES OUTBOX("TopicNameMatches", "p.public.a") UNWRAP_TOO, "format = \"row\"", NULL},
    {TABLES OUTBOX("TopicNameMatches", "p.public.a") UNWRAP_TOO
     "transforms.u.predicate=p\n"
     "transforms.u.negate=true\ntransforms=u,o\n",
     "[outbox]\ntables = [\"public.a\"]", NULL},
    {TABLES OUTBOX("TopicNameMatches", "p.public.a") UNWRAP_TOO "transforms.u.predicate=p\n",
     "[outbox]\ntables = [\"public.a\"]", "transforms.u.predicate: not carried over"},
    {TABLES OUTBOX("TopicNameMatches", "p.public.a") UNWRAP_TOO "transforms=u,o\n",
     "format = \"row\"", "finds no events to route"},
    {TABLES "transforms=r\ntransforms.r.type=RegexRouter\ntransforms.r.regex=(.*)\n"
            "transforms.r.replacement=$1\ntransforms.r.predicate=p\n"
            "predicates.p.type=x.TopicNameMatches\npredicates.p.pattern=p\\\\..*\npredicates=p\n",
     NULL, "transforms.r.predicate: not carried over"},
    {TABLES "transforms=r\ntransforms.r.type=RegexRouter\ntransforms.r.replacement=$1\n"
            "transforms.r.regex=([^\\\\.]+)[\\\\w\\\\-]+[\\\\]x^]\n",
     "topic = [\"([^\\\\.]+)[\\\\w\\\\-]+[\\\\]x^]\"", NULL},
    {TABLES "transforms=r\ntransforms.r.type=RegexRouter\ntransforms.r.replacement=z\n"
            "transforms.r.regex=[a-z&&[^b]]+\n",
     NULL, "only Java knows"},
    {TABLES AVRO UNWRAP "transforms.u.add.fields=op\n", "format = \"avro\"",
     "transforms.u.type: not carried over: with value.converter's format"},
    {TABLES AVRO, "format = \"avro\"", NULL},
    {TABLES "value.converter=x.StringConverter\n" OUTBOX("TopicNameMatches", "p.public.a"),
     "value_format = \"text\"", "those of other tables are JSON"},
    {"table.include.list=public.a\nvalue.converter=x.StringConverter\n"
     "value.converter.schemas.enable=\n" OUTBOX("TopicNameMatches", "p.public.a"),
     "value_format = \"text\"", NULL},
    {TABLES "transforms=u\ntransforms.u.type=com.example.Extract\n", HOLDS("exclude", ":name"),
     "Extract is a Java class"},
    {TABLES "column.include.list=public\\\\.a\\\\.(x|y),s.b.z\n",
     "include = [\"(?i)public.(?i)a:(?i)(x|y)\", \"(?i)s.(?i)b:(?i)z\"]", NULL},
    {TABLES "column.include.list=public\\\\.a\\\\.(x|y)\n",
     "include = [\"(?i)public.(?i)a:(?i)(x|y)\", \"" HELD ":name\"]", "keep all their columns"},
    {TABLES "column.include.list=public.a.(?!x).*,s.b.z\n",
     "include = [\"(?i)s.(?i)b:(?i)z\", \"" HELD ":name\"]",
     "column.include.list: not carried over"},
    {TABLES RESELECT, "reselect = [\"*.*:*\"]", NULL},
    {TABLES RESELECT "r.reselect.columns.include.list=s\\\\.b:x,s.b:(y|z)\n",
     "reselect = [\"s.(?i)b:(?i)x\", \"s.(?i)b:(?i)(y|z)\"]", NULL},
    {TABLES RESELECT "r.reselect.null.values=true\nr.reselect.error.handling.mode=fail\n",
     "reselect = [\"*.*:*\"]", "what can't be read has the placeholder"},
    {TABLES RESELECT "r.reselect.columns.exclude.list=s.b:x\n", "reselect = [\"*.*:*\"]",
     "there are no exceptions"},
    {TABLES RESELECT "r.reselect.columns.include.list=x\n", NULL,
     "pattern 1 is not schema.table:column"},
    {TABLES RESELECT "r.reselect.unavailable.values=false\n", "tables", NULL},
    {TABLES "post.processors=a\na.type=com.example.Own\n", HOLDS("exclude", ":name"),
     "a is a Java class, which is not loaded"},
    {TABLES "column.exclude.list=s.b.x|y\n", HOLDS("exclude", ":name"), "columns.* can't say"},
    {TABLES "column.exclude.list=public[.]a[.]x\n", HOLDS("exclude", ":name"), "can't say"},
    {TABLES "column.exclude.list=${env:X}\n", HOLDS("exclude", ":name"), "can't say"},
    {TABLES "column.exclude.list=^.*\\\\.users.*\\\\.email$\n",
     "exclude = [\"*.(?i)(users.*):(?i)email\"]", NULL},
    {TABLES "column.exclude.list=s.b\n", HOLDS("exclude", ":name"), "can't say"},
    {TABLES "column.exclude.list=s.b.c.d\n", HOLDS("exclude", ":name"), "can't say"},
    {TABLES "column.exclude.list=s.b.\\\\w+\n", HOLDS("exclude", ":name"), "can't say"},
    {TABLES "column.exclude.list=s.b.x*?\n", HOLDS("exclude", ":name"), "can't say"},
    {TABLES "column.exclude.list=s.(b|.*c).*\n", HOLDS("exclude", ":name"), "can't say"},
    {TABLES "column.exclude.list=s.b.x,s.b.a$b|c\n", "exclude = [\"s.b:(?i)x\", \"" HELD ":name\"]",
     "can't say"},
    {TABLES "column.exclude.list=s.b.name\n", "exclude = [\"s.b:(?i)name\"]", NULL},
    {"table.include.list=s\\\\.[a-zA-Z]+\ncolumn.exclude.list=s.b.x\n",
     "exclude = [\"(?i)s.(?i)b:(?i)x\"]", NULL},
    {TABLES "column.exclude.list=s.b.x{0\\\\,1}y\n", "exclude = [\"s.b:(?i)x{0,1}y\"]", NULL},
    {TABLES "column.exclude.list=s.b.Name\n", "exclude = [\"s.b:(?i)Name\"]", NULL},
    {TABLES "column.exclude.list=(?i)S.b.Name\n", "exclude = [\"s.b:(?i)Name\"]", NULL},
    {TABLES "column.exclude.list=S.C.x\n", "exclude = [\"(?i)S.(?i)C:(?i)x\"]", NULL},
    {TABLES "column.mask.with.3.chars=.*\\\\.ssn\n", "mask = [\"*.*:(?i)ssn=3\"]", NULL},
    {TABLES "column.mask.with.3.chars=.*.ssn,.*ssn\n", "mask = [\"*.*:(?i)(.*ssn)=3\"]", NULL},
    {TABLES "column.exclude.list=s\\\\..*ssn\n", "exclude = [\"(?i)s.*:(?i)(.*ssn)\"]", NULL},
    {TABLES "column.exclude.list=.*ssn.*\n",
     "exclude = [\"*.*:(?i)(.*ssn.*)\", \"*.(?i)(.*ssn.*):*\", \"(?i)(.*ssn.*).*:*\"]", NULL},
    {TABLES "column.exclude.list=s.b.*x\n", "exclude = [\"(?i)s.(?i)(b.*):(?i)(.*x)\"]", NULL},
    {TABLES "column.mask.with.8.chars=s.b.x,s.b.y\ncolumn.mask.with.0.chars=s.b.z\n",
     "mask = [\"s.b:(?i)x=8\", \"s.b:(?i)y=8\", \"s.b:(?i)z=0\"]", NULL},
    {TABLES "column.mask.with.many.chars=s.b.x\n", HOLDS("mask", ":name=1"),
     "column.mask.with.many.chars"},
    {TABLES "column.truncate.to.x.chars=s.b.x\n", HOLDS("truncate", ":name=1"), "can't say"},
    {TABLES "column.mask.hash.v2.SHA-512.with.salt.pepper=s.b.x\n", HOLDS("hash", ":name"),
     "SHA-512.with.salt.…: not carried over"},
    {TABLES "column.mask.hash.v2.SHA-256.with.salt.p=s.b.x\n"
            "column.mask.hash.v2.SHA-256.with.salt.q=s.b.y\n",
     "hash = [\"s.b:(?i)x\", \"" HELD ":name\"]", "a second salt"},
    {TABLES "schema.include.list=public,S\n", "tables = [\"public.a\", \"s.b\"]",
     "schema.include.list: needs nothing"},
    {TABLES "schema.include.list=public\n", "tables = [\"public.a\", \"s.b\", \"" HELD "\"]",
     "schema.include.list: not carried over"},
    {TABLES "schema.exclude.list=x.*\n", NULL, "schema.exclude.list: needs nothing"},
    {"table.include.list=public.x.*,s.b\nschema.exclude.list=pub.*\n", HELD,
     "schema.exclude.list: not carried over"},
    {"table.include.list=s.b,secret.t\nschema.exclude.list=sec{0\\\\,1}ret\n", HELD,
     "schema.exclude.list: not carried over"},
    {TABLES "skipped.operations=${file:x:y}\n", "tables = [\"public.a\", \"s.b\", \"" HELD "\"]",
     "skipped.operations: not carried over"},
    {TABLES "transforms=${file:x:y}\ntransforms.m.type=x.MaskField$Value\n",
     HOLDS("exclude", ":name"), "whose type is not there"},
    {TABLES "transforms=f\ntransforms.f.type=com.acme.transforms.Flatten\n",
     HOLDS("exclude", ":name"), "Flatten is a Java class"},
    {TABLES "transforms=f\ntransforms.f.type=org.apache.kafka.connect.transforms.Flatten$Value\n",
     "tables = [\"public.a\", \"s.b\"]", "do what it does where events are read"},
    {TABLES UNWRAP "transforms.u.drop.fields.header.name=h\n", HOLDS("exclude", ":name"),
     "drop.fields.header.name: not carried over"},
    {TABLES "transforms=r\ntransforms.r.type=RegexRouter\ntransforms.r.regex=${file:x:y}\n"
            "transforms.r.replacement=z\n",
     "tables = [\"public.a\", \"s.b\"]", "only Java knows"},
    {TABLES "table.exclude.list=s\\\\.b\n", HELD, "table.exclude.list: not carried over"},
    {TABLES "snapshot.select.statement.overrides=s.b\n", "where = [\"" HELD ": true\"]",
     "keeps the file from starting"},
    {TABLES "message.prefix.exclude.list=a.+\n", "prefixes = [\"*\", \"name_your_tables_here\"]",
     "messages.prefixes keeps"},
    {TABLES "converters=c\n", HOLDS("exclude", ":name"), "converters: not carried over"},
    {TABLES "transforms=m\ntransforms.m.type=org.apache.kafka.connect.transforms.MaskField$Value\n"
            "transforms.m.fields=x\n",
     HOLDS("exclude", ":name"), "MaskField is a Java class"},
    {TABLES OUTBOX(
         "TopicNameMatches",
         "p.public.a") "transforms=o,r\n"
                       "transforms.r.type=x.ReplaceField$Value\ntransforms.r.predicate=p\n",
     HOLDS("exclude", ":name"), "ReplaceField is a Java class"},
    {TABLES "transforms=m\ntransforms.m.type=TimestampRouter\n", "tables = [\"public.a\"",
     "not loaded; do what it does"},
    {TABLES "column.truncate.to.20.chars=s.b.x\n", "truncate = [\"s.b:(?i)x=20\"]", NULL},
    {TABLES "column.mask.hash.v2.SHA-256.with.salt.pepper=s.b.x\n",
     "hash = [\"s.b:(?i)x\"]\nhash_salt = \"env:MILLRACE_HASH_SALT\"", "MILLRACE_HASH_SALT"},
    {TABLES UNWRAP, "format = \"row\"", NULL},
    {TABLES UNWRAP "transforms.u.delete.tombstone.handling.mode=REWRITE\n",
     "[row]\ndelete_tombstone_handling_mode = \"rewrite\"", NULL},
    {TABLES UNWRAP, "delete_tombstone_handling_mode = \"tombstone\"", NULL},
    {TABLES UNWRAP "transforms.u.drop.tombstones=true\n",
     "delete_tombstone_handling_mode = \"drop\"", NULL},
    {TABLES UNWRAP "transforms.u.drop.tombstones=false\n",
     "delete_tombstone_handling_mode = \"delete-to-tombstone\"", NULL},
    {TABLES UNWRAP "transforms.u.delete.handling.mode=none\n",
     "delete_tombstone_handling_mode = \"tombstone\"", NULL},
    {TABLES UNWRAP
     "transforms.u.delete.handling.mode=rewrite\ntransforms.u.drop.tombstones=false\n",
     "delete_tombstone_handling_mode = \"rewrite-with-tombstone\"", NULL},
    {TABLES UNWRAP
     "transforms.u.add.fields=op,source.ts_ms:at, lsn\ntransforms.u.add.fields.prefix=\n",
     "add_fields = [\"=\", \"op\", \"source.ts_ms:at\", \"lsn\"]", NULL},
    {TABLES UNWRAP "transforms.u.add.headers=op,source.ts_ms,lsn:at\n"
                   "transforms.u.add.headers.prefix=x.\n",
     "add_headers = [\"=x.\", \"op\", \"source.ts_ms\", \"lsn:at\"]", NULL},
    {TABLES OUTBOX("TopicNameMatches",
                   "p.public.a") "transforms.o.table.fields.additional."
                                 "placement=a:header,b:envelope:c\ntransforms.o.table.field."
                                 "additional.missing=ignore\n"
                                 "transforms.o.table.json.payload.null.behavior=optional_bytes\n",
     "fields = [\"a?:header\", \"b?:envelope:c\"]\nkey_format = \"json\"\nvalue_format = \"json\"\n"
     "expand_keeps = \"nulls\"",
     NULL},
    {TABLES UNWRAP "transforms.u.add.headers=op,lsn\n", "add_headers = [\"op\", \"lsn\"]", NULL},
    {TABLES "transforms=r\ntransforms.r.type=x.Filter$Value\ntransforms.r.condition=x\n", NULL,
     "Filter is a Java class"},
};

static void test_convert_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_text text = {0};
        mr_text_format(&text, "%s%s", BASE, cases[i].lines);
        struct converted converted = convert_text(text.data);
        assert_int_equal(converted.status, MR_OK);
        if (cases[i].toml != NULL && strstr(converted.toml, cases[i].toml) == NULL) {
            fail_msg("%s: no %s in %s", cases[i].lines, cases[i].toml, converted.toml);
        }
        const char *notes = cases[i].notes;
        if (notes == NULL ? converted.notes[0] != '\0' : strstr(converted.notes, notes) == NULL) {
            fail_msg("%s: said %s", cases[i].lines, converted.notes);
        }
        converted_done(&converted);
        mr_text_done(&text);
    }
}

/* What hides and could not be carried over keeps the file from starting. */
static void test_convert_held_does_not_load(void **state)
{
    (void)state;
    static const char *const held[] = {
        "column.exclude.list=s.b.x|y\n",
        "column.include.list=public.a.x\n",
        "column.mask.with.3.chars=s.b\n",
        "column.truncate.to.3.chars=s.b\n",
        "column.mask.hash.MD5.with.salt.p=s.b.x\n",
        "table.exclude.list=s.b\n",
        "snapshot.select.statement.overrides=s.b\n",
        "message.prefix.exclude.list=a.+\n",
        "transforms=m\ntransforms.m.type=x.MaskField$Value\n",
        "transforms=${file:x:y}\n",
        "transforms=m\ntransforms.m.type=com.acme.RegexRouter\n",
        "message.prefix.include.list=${file:x:y}\n",
        "skipped.operations=${file:x:y}\n",
        UNWRAP "transforms.u.drop.fields.header.name=h\n",
    };
    setenv("MILLRACE_HASH_SALT", "set", 1);
    for (size_t i = 0; i < MR_ARRAY_LEN(held); i++) {
        MR_TEXT(text);
        mr_text_format(&text, "%s%s%s", BASE, TABLES, held[i]);
        struct converted converted = convert_text(text.data);
        struct mr_config *config;
        mr_status status =
            mr_daemon_load_text("held", converted.toml, strlen(converted.toml), &config);
        char *said = NULL;
        size_t size;
        FILE *to = open_memstream(&said, &size);
        mr_config_print_problems(config, to);
        fclose(to);
        if (status != MR_ERR_CONFIG || strstr(said, "what millrace convert writes") == NULL) {
            fail_msg("%s: %s", held[i], said);
        }
        free(said);
        mr_config_free(config);
        converted_done(&converted);
    }
}

static void test_convert_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } bad[] = {
        {"", "no option"},
        {"# nothing\n", "no option"},
        {"{\"a\": ", "line 1"},
        {"{\n\"a\": 1,\n\"pw\" secret}", "line 3"},
        {"[1]", "not a JSON object"},
        {"{\"config\": {\"a\": [1]}}", "\"a\" is not a string"},
        {"a=\xff", "UTF-8"},
        {"connector.class=io.debezium.connector.mysql.MySqlConnector", "not Debezium's PostgreSQL"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++) {
        struct converted converted = convert_text(bad[i].text);
        assert_int_equal(converted.status, MR_ERR_CONFIG);
        assert_string_equal(converted.toml, "");
        assert_non_null(strstr(converted.notes, bad[i].said));
        assert_null(strstr(converted.notes, "secret"));
        converted_done(&converted);
    }
}

static void test_convert_read_properties(void **state)
{
    (void)state;
    static const char text[] = " a = 1 \r\nb:2\\\n   3\n!c=4\n#d\ne\\ f  g\\u00e9\\t\\q\nh\na=5\\";
    struct mr_convert lines = {0};
    char reason[64];
    assert_true(mr_cv_read(&lines, text, sizeof(text) - 1, reason, sizeof(reason)));
    static const char *const expected[][2] = {{"a", "5"}, {"b", "23"}, {"e f", "gé\tq"}, {"h", ""}};
    assert_int_equal(lines.line_count, MR_ARRAY_LEN(expected));
    for (size_t i = 0; i < MR_ARRAY_LEN(expected); i++) {
        assert_string_equal(lines.lines[i].name, expected[i][0]);
        assert_string_equal(lines.lines[i].value, expected[i][1]);
    }
    mr_cv_done(&lines);
}

/* What stands in a name or a value stays in its string, or its comment. */
static void test_convert_result_is_not_written_by_input(void **state)
{
    (void)state;
    struct converted converted =
        convert_text("{\"x\\ntypes = \\\"text\\\"\\n#\": 1, \"topic.prefix\": \"p\", "
                     "\"table.include.list\": \"public.a\\\"\\ntypes = 1\", "
                     "\"database.hostname\": \"h\\\"\\n[sink]\\n\"}");
    assert_int_equal(converted.status, MR_OK);
    struct mr_config *config = convert_test_load(converted.toml);
    assert_int_equal(config->encode.types, MR_TYPES_DEBEZIUM);
    assert_int_equal(config->sink_kind, MR_SINK_KAFKA);
    mr_config_free(config);
    converted_done(&converted);
}

static void test_convert_cut_anywhere(void **state)
{
    (void)state;
    size_t len;
    char *text = convert_test_read_file("cloud-kafka.json", &len);
    for (size_t cut = 0; cut < len; cut++) {
        struct converted converted = convert(text, cut);
        assert_null(strstr(converted.notes, "secret"));
        converted_done(&converted);
    }
    free(text);
    text = convert_test_read_file("server.properties", &len);
    for (size_t cut = 0; cut < len; cut++) {
        struct converted converted = convert(text, cut);
        assert_null(strstr(converted.notes, "secret"));
        converted_done(&converted);
    }
    free(text);
}

static void test_convert_expand(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *texts; /* NULL: it is not simple */
    } expected[] = {
        {"public.a", "public.a"},
        {"^public\\.a$", "public.a"},
        {"s\\.(a|(b|c)_d)(e|)", "s.ae s.a s.b_de s.b_d s.c_de s.c_d"},
        {"s.(a|b_[12])", NULL},
        {"(?:a|b).c", "a.c b.c"},
        {"a|b", "a b"},
        {"a.*", NULL},
        {"a+", NULL},
        {"a{2}", NULL},
        {"\\d", NULL},
        {"[a-z]", NULL},
        {"[^a]", NULL},
        {"[", NULL},
        {"(a", NULL},
        {"a)", NULL},
        {"(?!a)", NULL},
        {"(a|b)??", NULL},
        {"\\", NULL},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(expected); i++) {
        struct mr_convert own = {0};
        struct mr_cv_list list = {0};
        bool good = mr_cv_expand(&own, expected[i].pattern, &list);
        struct mr_text joined = {0};
        for (uint32_t k = 0; k < list.count; k++) {
            mr_text_format(&joined, "%s%s", k == 0 ? "" : " ", list.items[k]);
        }
        assert_int_equal(good, expected[i].texts != NULL);
        if (good) {
            assert_string_equal(joined.data, expected[i].texts);
        }
        mr_text_done(&joined);
        mr_cv_done(&own);
    }
}

static void test_convert_offset(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct mr_handed_over found;
        const char *said;
    } offsets[] = {
        {"{\"lsn\":27352216,\"lsn_commit\":27365520,\"txId\":861,\"messageType\":\"UPDATE\"}",
         {.end_lsn = 27365520, .lsn = 27352216, .xid = 861},
         NULL},
        {"{\"offsets\":[{\"partition\":{\"server\":\"s\"},\"offset\":{\"lsn\":7,\"txId\":"
         "4294967295}}]}",
         {.lsn = 7, .xid = UINT32_MAX},
         NULL},
        {"{\"server\":\"a\\\"lsn\\\":7\",\"lsn\" : "
         "9223372036854775809,\"lsn_commit\":18446744073709551615}",
         {.end_lsn = UINT64_MAX, .lsn = (UINT64_C(1) << 63) + 1},
         NULL},
        {"{\"lsn\":1.5e3}", {0}, "no \"lsn\""},
        {"{\"lsn\":18446744073709551616}", {0}, "no \"lsn\""},
        {"{\"offsets\":[]}", {0}, "one connector"},
        {"{\"offsets\":[{\"offset\":{\"lsn\":1}},{\"offset\":{\"lsn\":2}}]}", {0}, "one connector"},
        {"{\"pos\":4,\"file\":\"binlog\"}", {0}, "no \"lsn\""},
        {"{\"lsn\":-1}", {0}, "no \"lsn\""},
        {"{\"lsn\":\"1\"}", {0}, "no \"lsn\""},
        {"{\"lsn\":1,\"snapshot\":\"INITIAL\"}", {0}, "snapshot"},
        {"{\"lsn\":", {0}, "not JSON"},
        {"", {0}, "not JSON"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(offsets); i++) {
        struct mr_handed_over found = {0};
        char reason[256] = "";
        bool good = mr_convert_offset(offsets[i].text, strlen(offsets[i].text), &found, reason,
                                      sizeof(reason));
        assert_int_equal(good, offsets[i].said == NULL);
        assert_true(good || strstr(reason, offsets[i].said) != NULL);
        assert_int_equal(found.end_lsn, offsets[i].found.end_lsn);
        assert_int_equal(found.lsn, offsets[i].found.lsn);
        assert_int_equal(found.xid, offsets[i].found.xid);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convert_results_are_configurations),
        cmocka_unit_test(test_convert_passes_no_option_over),
        cmocka_unit_test(test_convert_cases),
        cmocka_unit_test(test_convert_held_does_not_load),
        cmocka_unit_test(test_convert_refuses),
        cmocka_unit_test(test_convert_read_properties),
        cmocka_unit_test(test_convert_result_is_not_written_by_input),
        cmocka_unit_test(test_convert_cut_anywhere),
        cmocka_unit_test(test_convert_expand),
        cmocka_unit_test(test_convert_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
