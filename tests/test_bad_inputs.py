"""What a person may get wrong: each gets a sentence with the place and the remedy, and the exit code that runbook.md
names. `run` and `check` say the same of a configuration, before anything is connected to."""

import os
import subprocess

import pytest

from kit import BINARY, Topic, check, dsn, expect

T = 'tables = ["t"]\n'
K = T + '[sink.kafka]\nbrokers = ["127.0.0.1:1"]\n'
P = K + "[sink.kafka.properties]\n"
S = T + "[source.postgres]\n"
TLS = K + "tls = true\n"
CLOUD = T + 'format = "cloudevents"\n[cloudevents]\n'
ROW = T + 'format = "row"\n[row]\n'
OUTBOX = K + '[outbox]\ntables = ["t"]\n'
AVRO = 'types = "debezium"\nformat = "avro"\n' + K
STREAM = '[[streams]]\nname = "s"\nsource = {resource = "t"}\nsink = {destination = "%s"}\n%s\n'
REGISTRY = AVRO + "[schema_registry]\n"

# A configuration; the line that is named (0: none); what is said.
CONFIGURATIONS = [
    ("", 0, "no tables are configured; set tables"),
    ("tables = []\n", 1, "no tables are configured"),
    ('tabels = ["t"]\n', 1, 'did you mean "tables"'),
    ('tables = "t"\n', 1, "must be a list of strings"),
    ("tables = [1]\n", 1, "must be a list of strings"),
    ('tables = ["t", "public.t"]\n', 1, "is listed twice; keep it once"),
    ('tables = ["a.b.c"]\n', 1, "is not a table's name; write"),
    ("tables = ['\"a']\n", 1, "is not a table's name"),
    ('tables = [""]\n', 1, "is not a table's name"),
    ("tables = [t]\n", 1, "not valid TOML"),
    ('tables = ["t"\n', 2, "not valid TOML"),
    (T + T, 2, "not valid TOML"),
    (T + 'format = "bson"\n', 2, "format must be one of debezium|"),
    (T + 'tombstones = "yes"\n', 2, "true or false"),
    (T + "topic_prefix = 5\n", 2, "must be a string"),
    (T + 'topic_prefix = ""\n', 2, 'topic_prefix: "" is empty'),
    (T + 'topic_prefix = "a/b"\n', 2, "letters of ASCII, digits, dots, underscores and hyphens"),
    (T + f'topic_prefix = "{"p" * 130}"\n', 2, "longer than 121 characters"),
    (T + 'skipped_operations = ["drop"]\n', 2, "known are insert, update, delete, truncate"),
    (T + '[streams]\nname = "x"\n', 2, "[[streams]]"),
    (T + '[[streams]]\nname = "x"\n', 2, "needs source.resource and sink.destination"),
    (S + 'slot_name = "Slot"\n', 3, "a-z, 0-9 and _"),
    (S + 'slot_name = ""\n', 3, "a-z, 0-9 and _"),
    (S + f'publication_name = "{"p" * 64}"\n', 3, "1 to 63 characters"),
    (S + 'connection = "env:NOT_THERE"\n', 3, "NOT_THERE, which should hold the connection string, is not set"),
    (S + 'connection = "host=x password=canary"\n', 3, "take it out and set password"),
    (S + 'connection = "postgresql://u:canary@h/d"\n', 3, "holds a password"),
    (S + 'connection_env = "TEST_URL"\n', 3, '"source.postgres.connection_env" is gone: write source.postgres.connection = "env:TEST_URL"'),
    (S + 'password = "file:/no/such"\n', 3, "/no/such, which should hold the PostgreSQL password, can't be read"),
    (S + 'password = "env:A"\npassword_file = "/b"\n', 4, 'write source.postgres.password = "file:/b"'),
    (S + 'connect_timeout = "10s"\n', 3, '"source.postgres.connect_timeout" is gone: write connect_timeout=10'),
    (S + 'handover = "10"\n', 3, "a duration such as"),
    (S + 'handover = "25h"\n', 3, "out of range: it goes from 0ms to 24h"),
    (T + '[source]\ntype = "mysql"\n', 3, "must be postgres"),
    (T + '[sink]\ntype = "pigeon"\n', 3, "one of stdout|file|kafka|discard"),
    (T + '[sink]\ntype = "kafka"\n', 3, 'set brokers = ["host:9092"]'),
    (T + "[sink.kafka]\n", 2, "sink.kafka.brokers is missing"),
    (T + "[sink.kafka]\npartitions = 3\n", 2, "sink.kafka.brokers is missing"),
    (T + '[sink.kafk]\nbrokers = ["x"]\n', 2, "did you mean [sink.kafka]"),
    (T + '[sink.kafka]\nbroker = ["x"]\n', 3, 'did you mean "sink.kafka.brokers"'),
    (T + '[sink]\ntype = "file"\n', 3, "sink.file.path is missing"),
    (T + '[sink.file]\npath = ""\n', 2, "sink.file.path is missing"),
    (T + '[sink]\ntype = "file"\n[sink.file]\npath = "/f"\n[sink.kafka]\nbrokers = ["x"]\n', 6, "take [sink.kafka] out"),
    (T + '[sink]\ntype = "stdout"\n[sink.kafka]\nbrokers = ["x"]\n', 4, "take [sink.kafka] out"),
    (T + '[sink.file]\npath = "/f"\n[sink.kafka]\nbrokers = ["x"]\n', 2, "take [sink.file] out"),
    (T + '[sink.kafka]\nbrokers = "x"\n', 3, "must be a list of strings"),
    (T + '[sink.kafka]\nbrokers = ["x:99999"]\n', 3, "no port between 1 and 65535"),
    (T + '[sink.kafka]\nbrokers = ["x:kafka"]\n', 3, "no port between 1 and 65535"),
    (T + '[sink.kafka]\nbrokers = ["http://x:9092"]\n', 3, "has a scheme; write host:port"),
    (T + '[sink.kafka]\nbrokers = ["::1:9092"]\n', 3, "write an IPv6 address as [address]:port"),
    (K + "partitions = 0\n", 4, "out of range"),
    (K + 'compression = "rar"\n', 4, "none|gzip|snappy|lz4|zstd"),
    (K + 'delivery = "once"\n', 4, "at-least-once|exactly-once"),
    (K + 'delivery = "exactly-once"\nstate_topic = ""\n', 5, "name one"),
    (K + 'state_topic = ""\n[resolved]\ninterval = "1s"\n', 6, "name a topic in sink.kafka.state_topic"),
    (K + 'headers = false\n[resolved]\ninterval = "1s"\n', 6, "set sink.kafka.headers = true"),
    (K + 'state_topic = ""\n[ledger]\ntopic = "a"\n', 6, "name a topic in sink.kafka.state_topic"),
    (K + 'headers = false\n[ledger]\ntopic = "a"\n', 6, "set sink.kafka.headers = true"),
    (K + 'state_topic = "a"\n[ledger]\ntopic = "a"\n', 6, "must not be sink.kafka.state_topic"),
    (K + 'state_topic = "a b"\n', 4, "letters of ASCII"),
    (K + 'dead_letter_topic = "ä"\n', 4, "letters of ASCII"),
    (K + 'tls_ca_location = "/etc/passwd"\n', 4, "no effect without sink.kafka.tls; set that"),
    (TLS + 'tls_ca_location = "/no/ca.pem"\n', 5, "/no/ca.pem can't be read: No such file or directory"),
    (TLS + 'tls_certificate_location = "/no/c.pem"\n', 5, "/no/c.pem can't be read"),
    (TLS + 'tls_key_location = "/no/c.key"\n', 5, "/no/c.key can't be read"),
    (K + '[sink.kafka.sasl]\nmechanism = "NTLM"\n', 5, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"),
    (K + '[sink.kafka.sasl]\nmechanism = "PLAIN"\n', 5, "needs username and password"),
    (P + 'acks = "1"\n', 5, "can't be set: every record is acknowledged by all replicas"),
    (P + '"bootstrap.servers" = "x"\n', 5, "set sink.kafka.brokers"),
    (P + '"no.such" = "x"\n', 5, "docs/configuration.md lists those"),
    (P + '"sasl.password" = "canary"\n', 5, "use sink.kafka.sasl.password or"),
    (P + '"enable.ssl.certificate.verification" = "f"\n', 5, "set sink.kafka.insecure_tls = true"),
    (P + '"ssl.endpoint.identification.algorithm" = "None"\n', 5, "set sink.kafka.insecure_tls = true"),
    (TLS + '[sink.kafka.properties]\n"security.protocol" = "plaintext"\n', 6, "set sink.kafka.tls = false"),
    (P + '"plugin.library.paths" = "/x.so"\n', 5, "loads foreign code"),
    (P + '"sasl.kerberos.kinit.cmd" = "id"\n', 5, "runs a command"),
    (P + '"sasl.kerberos.principal" = "a;id"\n', 5, "becomes part of a command"),
    (P + 'debug = "security"\n', 5, "may print secrets"),
    (T + "[outbox]\ntopics_max = 0\n", 3, "out of range: it goes from 1 to 100000"),
    (T + "[outbox]\ntopics_max = 2.5\n", 3, "a whole number"),
    (T + "[pipeline]\nbatches = 8\n", 3, '"pipeline.batches" is gone: pipeline.batch_size says'),
    (T + '[pipeline]\nbatch_size = "1TB"\n', 3, "a size such as"),
    (T + '[pipeline]\nmemory = "63MiB"\n', 3, "out of range"),
    (T + '[pipeline]\nmemory = "64MiB"\nbatch_size = "2MiB"\n', 3, "raise pipeline.memory, or lower change_max"),
    (T + "[pipeline]\nchange_max = 1000\n", 3, "0 is what pipeline.memory allows"),
    (T + '[http]\naddress = "nowhere"\n', 3, "http.address"),
    (T + '[http]\naddress = "127.0.0.1:99999"\n', 3, "http.address"),
    (T + '[http]\nusername = "u"\n', 3, "set both or none"),
    (T + '[http]\ntls_certificate = "/x"\n', 3, "set both or none"),
    (T + '[log]\nlevel = "loud"\n', 3, "one of debug|info|warn|error"),
    (T + '[profiling]\nendpoints = true\n[http]\naddress = ":9464"\n', 3, "set http.username and a password"),
    (T + "[profiling]\nfrequency = 5000\n", 3, "out of range: it goes from 1 to 1000"),
    (TLS + 'tls_key_location = "/etc/passwd"\n', 5, "/etc/passwd is not a file of PEM"),
    (T + 'types = "json"\n', 2, "one of text|debezium|plain"),
    (T + 'decimal_handling_mode = "string"\n', 2, 'decimal_handling_mode has no effect without types = "debezium"'),
    ('tables = ["public.("]\n', 1, "names no table: missing closing parenthesis"),
    (T + 'excluded_tables = ["x"]\n', 2, "takes from what patterns in tables mean, and there is none"),
    (T + '[columns]\nexclude = ["t"]\n', 3, 'names no columns: write "schema.table:column,column"'),
    (T + '[columns]\nmask = ["public.t:email=x"]\n', 3, 'write "schema.table:column=8"'),
    (T + '[columns]\nhash = ["public.t:email"]\n', 3, "needs a salt"),
    (T + '[columns]\nhash = ["public.t:email"]\nhash_salt = "env:NOT_THERE"\n', 4, "export NOT_THERE=…"),
    (T + 'key_columns = ["t"]\n', 2, 'write "schema.table:column,column"'),
    (T + 'key_columns = ["public.t:a,a"]\n', 2, "is listed twice"),
    (T + 'heartbeat.interval = "1s"\n', 2, "set both, or none"),
    (T + 'heartbeat.query = "SELECT 1"\n', 2, "set both, or none"),
    (T + 'heartbeat.interval = "2d"\n', 2, "duration"),
    (T + f'heartbeat.interval = "1s"\nheartbeat.topic_prefix = "{"a" * 250}"\n', 3, "heartbeat.topic_prefix: the topic"),
    (T + 'format = "cloudevents"\nheartbeat.interval = "1s"\nheartbeat.topic_prefix = "a"\n', 4, "are plain JSON"),
    (T + 'publication.where = ["t"]\n', 2, 'write "schema.table: condition"'),
    (T + 'publication.where = ["u: a > 1"]\n', 2, 'is none of the tables that "tables" names'),
    (T + 'publication.columns = ["t"]\n', 2, 'write "schema.table:column,column"'),
    (T + 'publication.alter = "yes"\n', 2, "true or false"),
    ('tables = ["t", "s.*"]\npublication.columns = ["t:a"]\n', 2, "name the tables one by one"),
    (T + 'topic_delimiter = "/"\n', 2, "is not made of dots, underscores and hyphens"),
    (T + 'schema_topic = "a b"\n', 2, "letters of ASCII"),
    (T + '[messages]\nexcluded_prefixes = ["x"]\n', 3, '"messages.excluded_prefixes" is gone: write each with a ! before it'),
    (T + '[cloudevents]\nmode = "binary"\n', 3, 'no effect without format = "cloudevents"'),
    (CLOUD + 'mode = "binary"\n', 4, 'take "structured", or [sink.kafka]'),
    (CLOUD + 'mode = "uuid"\n', 4, "one of structured|binary"),
    (ROW + 'add_fields = ["nonsense"]\n', 4, 'is not a field of the envelope; write "op"'),
    (ROW + 'delete_tombstone_handling_mode = "keep"\n', 4, "one of drop|tombstone|rewrite"),
    (T + '[routing]\ntopic_regex = "(.*)"\n', 3, '"routing.topic_regex" is gone: write routing.topic = [expression, name]'),
    (T + '[routing]\ntopic = ["(.*)"]\n', 3, "routing.topic must be a text, or a list of an expression and a text"),
    (T + '[routing]\ntopic = ["(.*)", ""]\n', 3, "routing.topic must be a text, or a list of an expression and a text"),
    (T + '[routing]\ntopic = ["(", "x"]\n', 3, "missing closing parenthesis"),
    (T + '[routing]\ntopic = "$2"\n', 3, "which has $0 to $1"),
    (T + '[routing]\ntopic = "a/$1"\n', 3, "letters of ASCII"),
    (STREAM % ("a", "") + STREAM % ("a", ""), 6, 'has two streams to topic "a"'),
    ("".join(STREAM % (n, "") for n in "abcdefghi"), 41, "has more than 8 streams"),
    ('format = "cloudevents"\n' + STREAM % ("a", "") + STREAM % ("b", ""), 7, "they would have one id"),
    ('format = "debezium"\nprovide_transaction_metadata = true\n' + STREAM % ("a", "") + STREAM % ("b", ""), 8, "counts one"),
    (STREAM % ("a", "columns.hide = [\"v\"]"), 5, "streams.columns.hide is unknown"),
    (STREAM % ("a", "columns.mask = [\"v\"]"), 1, 'streams.columns.mask: "v" names no columns'),
    (STREAM % ("a", "columns.hash = [\"v\"]"), 1, "set columns.hash_salt"),
    (T + '[routing]\nsharing = "yes"\n', 3, "one of refuse|allow|key"),
    (T + '[routing]\nsharing = "key"\n', 3, "set both"),
    (K + '[outbox]\ntables = ["o"]\n', 5, "is none of the tables that are streamed; add it to tables"),
    (OUTBOX + 'topic = ["(", "x"]\n', 6, "outbox.topic: missing closing parenthesis"),
    (OUTBOX + 'topic = "a b"\n', 6, "letters of ASCII"),
    (OUTBOX + 'fallback_topic = "a b"\n', 6, "letters of ASCII"),
    (OUTBOX + 'fields = ["type"]\n', 6, 'write "column:header"'),
    (OUTBOX + 'fields = ["a:partition", "b:partition"]\n', 6, "keep one"),
    (OUTBOX + 'fields = ["a:header:mr-pos"]\n', 6, "does not begin with mr-"),
    (OUTBOX + "expand_json = true\n", 6, 'set outbox.value_format = "json"'),
    (OUTBOX + 'key_format = "avro"\n', 6, "one of text|json"),
    (T + '[snapshot]\nmode = "sometimes"\n', 3, "one of no_data|initial"),
    (T + "[snapshot.max]\nthreads = 17\n", 3, "out of range: it goes from 1 to 16"),
    (T + '[snapshot]\nwhere = ["t"]\n', 3, 'write "schema.table: condition"'),
    ('format = "avro"\n' + K, 1, 'set types = "debezium"'),
    (AVRO, 2, "needs a schema registry; set [schema_registry] url"),
    (REGISTRY + 'url = ["x:8081"]\n', 7, "does not begin with http:// or https://"),
    (REGISTRY + 'url = ["http://u:canary@x:8081"]\n', 7, "set schema_registry.username and password"),
    (REGISTRY + 'url = ["https://x:8081"]\nusername = "u"\n', 8, "needs schema_registry.password"),
    (T + '[schema_registry]\nurl = ["https://x:8081"]\n', 3, 'no effect without format = "avro"'),
    (T + 'format = "flat"\nprovide_transaction_metadata = true\n', 3, 'no effect without format = "debezium" or "row"'),
    (K + '[signal.kafka]\ntopic = "a"\n', 4, "POST /api/snapshot"),
    ('[[stream]]\nname = "s"\n', 1, "did you mean [[streams]]"),
    ('[[streams]]\nname = "s"\nsource = {resources = "t"}\n', 3, "a stream has name, source.resource, source.operations"),
    ('[[streams]]\nname = "s"\nsource = "t"\n', 3, "a stream has name, source.resource, source.operations"),
    ('[[streams]]\nsource = {resource = "t", operations = ["upsert"]}\nsink = {destination = "a"}\n', 1, '"upsert" is not an operation'),
    (STREAM % ("", ""), 1, 'sink.destination: "" is empty'),
    (STREAM % ("a/b", ""), 1, "letters of ASCII"),
    (STREAM % ("a", "") + "[sink.kafka]\ntopic = 5\n", 7, 'unknown key "sink.kafka.topic"'),
    (T + STREAM % ("a", ""), 1, "keep one of the two"),
    (T + 'snapshot = "initial"\n', 2, "snapshot is a section and takes no value; write [snapshot]"),
    (T + 'heartbeat = "10s"\n', 2, "heartbeat is a section and takes no value; write [heartbeat]"),
    (T + '[kafka]\nbrokers = ["x"]\n', 2, "did you mean [sink.kafka]"),
    (T + '[postgres]\nslot_name = "x"\n', 2, "did you mean [source.postgres]"),
    (T + '[snapshot]\nmax = ["t"]\n', 3, "snapshot.max is a section and takes no value"),
    (T + '[snapshot]\nwhere = ["t:"]\n', 3, 'write "schema.table: condition"'),
    (T + 'heartbeat.interval = "1s"\nheartbeat.topic_prefix = "a b"\n', 3, 'the topic "a b" has a character'),
    (T + 'heartbeat.interval = "-1s"\nheartbeat.query = "SELECT 1"\n', 2, 'a duration such as "500ms"'),
    (T + 'publication.where = ["t: a > 1", "t: b > 1"]\n', 2, "is listed twice"),
    (T + 'publication.columns = ["u:a"]\n', 2, 'is none of the tables that "tables" names'),
    (S + 'password = "canary"\n', 3, 'source.postgres.password must be "env:NAME", "file:/PATH", or a list'),
    (K + '[sink.kafka.sasl]\npassword = "canary"\n', 5, 'sink.kafka.sasl.password must be "env:NAME" or "file:/PATH"'),
    (S + 'password = "file:/dev/null"\n', 3, "/dev/null, which should hold the PostgreSQL password, is not a regular file"),
    (K + '[sink.kafka.sasl]\nmechanism = "PLAIN"\nusername = "u"\npassword = "file:/etc"\n', 7, "/etc, which should hold the Kafka password, is not a"),
    (K + '[sink.kafka.sasl]\nusername = "u"\npassword = "env:TEST_URL"\n', 5, "no effect without sink.kafka.sasl.mechanism"),
    (TLS + 'tls_certificate_location = "/etc/ssl/certs/ca-certificates.crt"\n', 5, "needs sink.kafka.tls_key_location; set both or none"),
    (K + 'tls_certificate_location = "/no/c.pem"\n', 4, "no effect without sink.kafka.tls; set that"),
    (P + '"linger.ms" = 5\n', 5, "set pipeline.latency"),
    (P + '"linger.msx" = 5\n', 5, "docs/configuration.md lists those"),
    (REGISTRY + 'url = "http://x:8081"\n', 7, "must be a list of strings"),
    (REGISTRY + 'url = [""]\n', 7, "does not begin with http:// or https://"),
    (REGISTRY + 'url = ["http://"]\n', 7, '"http://" is not host:port'),
    (REGISTRY + 'url = ["http://a b:8081/x"]\n', 7, "is not host:port"),
    (REGISTRY + 'url = ["http://x:99999/apis"]\n', 7, "has no port between 1 and 65535"),
    (REGISTRY + 'url = ["https://x"]\ntls_ca_location = "/no/ca"\n', 8, "/no/ca, which should hold the registry's certificates, can't be read"),
    (T + '[schema_registy]\nurl = ["https://x"]\n', 2, "did you mean [schema_registry]"),
    (T + '[http]\naddress = "9464"\n', 3, 'write "127.0.0.1:9464"'),
    (T + '[http]\naddress = "unix:x"\n', 3, "must name an absolute path"),
    (T + '[http]\nusername = "u"\npassword = "file:/no"\n', 4, "/no, which should hold the HTTP password, can't be read"),
    (T + '[http]\npassword = "canary"\n', 3, 'http.password must be "env:NAME" or'),
    (T + '[http]\ntls_certificate = "/no"\ntls_key = "/no"\n', 3, "/no, which should hold the certificate, can't be read"),
    (T + '[columns]\ntruncate = ["t:a"]\n', 3, 'write "schema.table:column=8"'),
    (T + '[columns]\nhash_salt = "canary"\n', 3, 'columns.hash_salt must be "env:NAME" or'),
    (T + '[row]\nadd_fields = ["op"]\n', 3, 'no effect without format = "row"'),
    ('tables: [t]\n', 1, "not valid TOML"),
    ('{"tables": ["t"]}\n', 0, "this is JSON, and millrace reads TOML"),
    ('{"name": "orders", "config": {"connector.class": "io.debezium.connector.postgresql.PostgresConnector"}}\n', 0,
     "becomes a file of ours by millrace convert"),
    ("name=orders\nconnector.class=io.debezium.connector.postgresql.PostgresConnector\n", 0,
     "this is a connector's properties, and millrace reads TOML"),
    (T + '[slot]\nname = "x"\n', 2, 'unknown section [slot]; did you mean "source.postgres.slot_name"?'),
    (T + '[publication]\nname = "x"\n', 3, 'did you mean "source.postgres.publication_name"?'),
    (T + '[pipeline]\nmemory = 0\n', 3, "it goes from 64MiB to 1024GiB"),
    (T + '[pipeline]\nlatency = "1s"\n', 3, "out of range: it goes from 0us to 100ms"),
]


def run(*arguments, environment, limit_s=20):
    done = subprocess.run([BINARY, *arguments], env=environment, capture_output=True, text=True, timeout=limit_s,
                          check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("text,line,said", CONFIGURATIONS)
def test_a_wrong_configuration_is_refused_with_its_remedy(tmp_path, text, line, said):
    """Also `check` refuses it, with the same words; nothing is connected to, no secret is repeated."""
    path = tmp_path / "config.toml"
    path.write_text(text)
    environment = {**os.environ, "DATABASE_URL": "postgresql://u@127.0.0.1:1/d", "TEST_URL": "postgresql://u@127.0.0.1:1/d"}
    code, output = run("--config", str(path), environment=environment)
    assert code == 78 and said in output, output
    assert (f"config.toml:{line}: " if line else "config.toml: ") in output, output
    assert "canary" not in output
    assert run("check", "--config", str(path), environment=environment) == (code, output)


@pytest.mark.parametrize("arguments,code,said", [
    (["--config", "/tmp"], 78, "/tmp: the file can't be read: Is a directory; give the path of a TOML file"),
    (["--config", "/no/such.toml"], 78, "the file can't be read: No such file or directory"),
    (["--no-such-option"], 64, "try millrace --help"),
    (["walk"], 64, 'unknown command "walk"; try millrace --help'),
    (["--confg", "x"], 64, "did you mean --config?"),
    (["strat"], 64, 'unknown command "strat"; did you mean millrace run?'),
    (["chekc"], 64, "did you mean millrace check?"),
    (["--config", "a.toml", "-c", "b.toml"], 64, "--config is given twice; give it once"),
    (["help", "slto"], 64, 'no help about "slto"'),
    (["help", "exit-code"], 64, "did you mean millrace help exit-codes?"),
    (["run", "--json"], 64, "run has no option --json"),
    (["run", "fast"], 64, 'unexpected argument "fast"'),
    (["snapshot", "public.t", "--where", "", "--address", "127.0.0.1:1"], 78, "it is empty; write a condition, or none"),
    (["verify", "--every", "1h", "--figures", "x.txt", "--config", "x"], 64, "ends with .prom"),
    (["--skip-commit-lsn", "here", "--config", "x"], 64, "wants a position such as 16/B374D848"),
    (["profile", "--seconds", "soon"], 64, "wants a whole number above 0"),
    (["profile", "--diff", "one"], 64, "wants two files"),
    (["--stop-after", "soon"], 64, "wants a whole number above 0"),
    (["status", "--address", "nowhere"], 78, "--address"),
    (["status", "--address", "127.0.0.1:1"], 69, "127.0.0.1:1"),
    ([], 78, "set MILLRACE_TABLES=public.orders and DATABASE_URL"),
])
def test_command_line(arguments, code, said):
    environment = {name: value for name, value in os.environ.items() if name not in ("MILLRACE_TABLES", "DATABASE_URL")}
    assert run(*arguments, environment=environment)[0] == code
    assert said in run(*arguments, environment=environment)[1]


def test_help_of_a_word_has_the_options_with_it():
    done = subprocess.run([BINARY, "help", "slot"], capture_output=True, text=True, check=True, timeout=20)
    paths = [line.split()[0] for line in done.stdout.splitlines() if line[:3].strip() and not line.startswith("   ")]
    assert "source.postgres.slot_name" in paths and all("slot" in path for path in paths), done.stdout


def test_help_names_every_exit_code():
    done = subprocess.run([BINARY, "help", "exit-codes"], capture_output=True, text=True, check=True, timeout=20)
    told = {int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("- ")}
    assert told == {0, 1, 3, 4, 5, 6, 10, 64, 65, 69, 70, 71, 77, 78}


# ---- what check finds before the run does ----

def both(process, code, *parts):
    """`check` says it, with the code that `run` ends with or waits behind."""
    text = expect(check(process), code)
    for part in parts:
        assert part in text, text
    return text


def test_more_replicas_than_brokers(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    text = both(millrace(sink__kafka__replication_factor="3", sink__kafka__state_topic=f'"{database.prefix}.state"'), 78, "can't be made with 3 replicas on 1 broker",
                "lower sink.kafka.replication_factor")
    assert "2 errors, " in text  # the table's topic and the state topic


def test_broker_that_speaks_tls_and_a_client_that_does_not(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__brokers=f'["{os.environ["KAFKA_SECURE_BOOTSTRAP"]}"]',
                       **{'sink__kafka__properties."broker.address.family"': '"v4"'})
    text = both(process, 69, "set sink.kafka.tls = true")
    assert "1 error," in text and "tls = false" not in text
    process.start()
    assert "set sink.kafka.tls = true" in process.wait_for("kafka_unreachable")["message"]
    process.kill()


def test_servers_that_are_away_are_named_once(database, millrace):
    process = millrace()
    process.environment["TEST_URL"] = "postgresql://x@127.0.0.1:1/x"
    text = both(process, 69, "PostgreSQL: connection to server")
    assert "PostgreSQL: PostgreSQL" not in text


@pytest.mark.parametrize("options,said", [
    ({"profiling__path": '"/no/such/folder"'}, 'the folder for profiles, \\"/no/such/folder\\"'),
    ({"sink__kafka__brokers": None, "sink__file__path": '"/no/such/file"'}, "No such file or directory"),
])
def test_check_finds_what_run_refuses(database, millrace, options, said):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**options)
    both(process, 78, said.replace("\\", ""))
    code, text = process.run_to_end()
    assert code != 0 and said in text, text


def test_first_start_without_a_server_says_that_it_is_tried_again(database, millrace):
    process = millrace()
    process.environment["TEST_URL"] = "postgresql://x@127.0.0.1:1/x"
    said = process.start().wait_for("source_lost")["message"]
    assert said.startswith("not connected yet: ") and said.endswith("; it is tried again until it answers")
    process.kill()


def test_last_line_of_a_failure_is_its_reason(database, millrace):
    process = millrace(tables=("absent",))
    code, _ = process.run_to_end()
    last = process.log("stopped")[-1]
    assert code == last["exit_code"] == 78 and "does not exist" in last["message"]
    assert set(last) == {"time", "level", "event", "message", "exit_code", "see"}


def test_rows_never_go_to_standard_output_unasked(database, millrace):
    """A section that was meant, and one that is not there."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__brokers=None, sink__kafka__partitions="3")
    expect(process.run_to_end(), 78, "sink.kafka.brokers is missing")
    assert database.slot_row("slot_name") is None
    process.configure(sink__kafka__brokers=None).start().streaming()
    assert any("warning: no sink is configured: rows go to standard output" in line for line in process.lines)


def test_profile_that_is_refused_says_why_in_words(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(profiling__endpoints="true").start().streaming()
    expect(run("profile", "--heap", "--address", process.address(), environment=os.environ), 78, "heap profiling not activated", without="{")


@pytest.mark.parametrize("options,said", [
    ({"columns__mask": '["t:emial=8"]'}, ('columns.mask of table "public"."t"', 'names column "emial", which the table does not have')),
    ({"columns__hash": '["t:emial"]', "columns__hash_salt": '"env:SALT"'}, ('columns.hash of table "public"."t"', '"emial"')),
    ({"columns__exclude": '["t:v,emial"]'}, ('columns.exclude of table "public"."t"', '"emial"')),
    ({"columns__include": '["t:emial"]'}, ('columns.include of table "public"."t"', '"emial"')),
    ({"key_columns": '["t:nope"]'}, ('key_columns of table "public"."t"', '"nope"')),
    ({"publication__where": '["t: id >"]'}, ("syntax error", "correct publication.where")),
    ({"publication__columns": '["t:id,nope"]'}, ('column "nope"', "or publication.columns")),
    ({"snapshot__mode": '"initial"', "snapshot__where": '["t: nope = 1"]'}, ('column "nope" does not exist', "correct snapshot.where")),
    ({"snapshot__mode": '"initial"', "snapshot__where": '["u: id = 1"]'}, ("fits none of the tables that are copied", "take the condition out")),
    ({"snapshot__signal_table": '"nope"'}, ('table "public"."nope"', "does not exist")),
])
def test_names_that_the_server_does_not_have(database, millrace, options, said):
    """A mistyped column would go out unmasked: nothing is sent, and nothing is made in Kafka."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text, email text)")
    process = millrace(**options)
    process.environment["SALT"] = "salt"
    both(process, 78, *said)
    code, text = process.run_to_end()
    assert code == 78 and database.slot_row("slot_name") is None, text


@pytest.mark.parametrize("options", [
    {"columns__mask": '["t:email=8"]'}, {"columns__exclude": '["t:e.*l"]'}, {"key_columns": '["t:id,day"]'},
    {"outbox__tables": '["t"]'}])
def test_names_of_tables_whose_rows_come_under_others(database, millrace, options):
    """Rows of partitions have their names: what names the table would do nothing, and a mask not hide."""
    database.run("CREATE TABLE t (id int, day int, email text, PRIMARY KEY (id, day)) PARTITION BY LIST (day); "
                 "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1)")
    both(millrace(**options), 78, f'{next(iter(options)).replace("__", ".")} of table "public"."t"', "has no effect",
         "publication.via_partition_root = true")
    assert database.slot_row("slot_name") is None


def test_stream_of_a_table_whose_rows_come_under_others(database, millrace):
    """None of them would be the stream's."""
    database.run("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (1) TO (9)")
    stream = '[[streams]]\nname = "s"\nsource = {resource = "t", operations = ["insert"]}\nsink = {destination = "%s"}\n' % database.topic("t")
    process = millrace()
    process.write(process.native((), {"tables": None}) + stream)
    both(process, 78, 'streams.source.resource of table "public"."t"', "has no effect")
    process.write(process.native((), {"tables": None, "publication.via_partition_root": "true"}) + stream)
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    Topic(database.topic("t")).take(1)


def test_names_of_partitions_and_of_their_root(database, millrace):
    database.run("CREATE TABLE t (id int, email text, PRIMARY KEY (id)) PARTITION BY LIST (id); "
                 "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1)")
    process = millrace(columns__mask='["public.t_[0-9]+:email=8"]').start().streaming()
    database.run("INSERT INTO t VALUES (1, 'secret')")
    assert Topic(database.topic("t_1")).take(1)[0].json["after"]["email"] == "********"
    assert process.stop() == 0
    # What a stream did until now is no excuse.
    process.configure(columns__mask='["t:email=8"]')
    expect(process.run_to_end(), 78, "has no effect")
    process.configure(tables='["t_1"]', columns__mask='["t:email=8"]')
    assert "has no effect" not in check(process)[1], "t is not streamed"


def test_names_that_are_gone_warn_where_a_backlog_may_wait(database, millrace):
    """And so do those of tables that a pattern may come to mean, and of tables that are not streamed."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, email text)")
    process = millrace(columns__mask='["t:email=8", "u:a=8,b=8"]').start().streaming()
    told = [line for line in process.lines if 'warning: columns.mask: public.u is none of the tables that "tables" names' in line]
    assert len(told) == 1, process.lines
    assert process.stop() == 0
    database.run("ALTER TABLE t RENAME email TO mail")
    text = both(process, 0, 'columns.mask of table "public"."t"', 'names column "email"')
    assert "warning  columns.mask" in text
    process.configure(tables='["t", "part_[0-9]+"]', columns__mask='["part_1:email=8"]')
    assert 'warning  columns.mask of table "public"."part_1"' in check(process)[1]


def test_check_says_what_patterns_mean(database, millrace):
    database.run("CREATE TABLE a1 (id int PRIMARY KEY); CREATE TABLE a2 (v text); CREATE TABLE a3 (v text); CREATE TABLE b (v text);"
                 "ALTER TABLE a3 REPLICA IDENTITY FULL")
    process = millrace(tables=("a[0-9]",))
    text = both(process, 0, 'patterns in "tables": match 3 tables now (public.a1, public.a2, public.a3)',
                "match 1 table without a replica identity (public.a2)", "excluded_tables")
    assert "match no table" not in text
    process.configure(tables='["a[0-9]"]', excluded_tables='["a2"]')
    assert "match 2 tables now" in check(process)[1] and "without a replica identity" not in check(process)[1]
    process.configure(tables='["c[0-9]"]')
    both(process, 0, "match no table that is there now", "correct them")


def test_port_that_is_none(database, millrace):
    process = millrace()
    for port in ("99999", "0", "5432,x"):
        process.environment["TEST_URL"] = f"host=localhost,localhost port={port},5432 dbname=d"
        assert "its port is not a number from 1 to 65535" in both(process, 78)


def test_connection_string_is_not_one(database, millrace):
    process = millrace()
    process.environment["TEST_URL"] = dsn(database.name) + "?no_such_option=1"
    assert "neither a URI nor a list of key=value pairs" in both(process, 78)
