"""Outboxes and routing, judged by Debezium itself: its connector with EventRouter, RegexRouter and ByLogicalTableRouter in Kafka Connect and
millrace read the same statements, and every record of every topic is compared: topic, partition, key, value, headers, and the time where a
column says it."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import connect  # noqa: E402
from test_debezium import normal  # noqa: E402
from kit import BINARY, BOOTSTRAP, Database, Millrace, Topic, eventually, read_whole  # noqa: E402

STRING = "org.apache.kafka.connect.storage.StringConverter"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"

COLUMNS = ("id uuid DEFAULT gen_random_uuid() PRIMARY KEY, aggregatetype text, aggregateid text, type text, {}, n int, big bigint, "
           "amount numeric(10,2), loose numeric, ok boolean, ratio float8, day date, at timestamp, zoned timestamptz, raw bytea, "
           "part int, tags text[], doc json")
HEADERS = "type:header:eventType,n:header,big:header,amount:header,ok:header,ratio:header,day:header,at:header,zoned:header"
FIELDS = [*HEADERS.split(","), "raw:header"]

# What is told to both, by the name of the run. {} is what its topics begin with.
VARIANTS = {
    "text": ({"key.converter": STRING, "value.converter": STRING, "transforms.o.table.fields.additional.placement":
              HEADERS + ",raw:header", "transforms.o.table.field.event.timestamp": "at",
              "transforms.o.route.topic.replacement": "{}.${routedByValue}"},
             {"outbox__fields": FIELDS, "outbox__timestamp": "at", "outbox__topic": "{}.$1"}),
    "json": ({"transforms.o.route.topic.regex": "([A-Za-z.]+)(-.*)?", "transforms.o.route.topic.replacement": "{}.$1",
              "transforms.o.table.field.event.key": "n", "transforms.o.route.tombstone.on.empty.payload": "true"},
             {"outbox__key_format": "json", "outbox__value_format": "json", "outbox__topic": ["([A-Za-z.]+)(-.*)?", "{}.$1"], "outbox__key": "n", "outbox__tombstones": True}),
    "tombstones": ({"key.converter": STRING, "value.converter": STRING, "transforms.o.table.field.event.id": "n",
                    "transforms.o.route.topic.replacement": "{}.${routedByValue}",
                    "transforms.o.route.tombstone.on.empty.payload": "true",
                    "transforms.o.table.fields.additional.placement": "part:partition,type:header"},
                   {"outbox__tombstones": True, "outbox__fields": ["part:partition", "type:header"], "outbox__topic": "{}.$1",
                    "outbox__id": "n"}),
    "envelope": ({"transforms.o.route.topic.replacement": "{}.${routedByValue}", "transforms.o.table.fields.additional.placement":
                  "type:envelope:eventType,n:envelope,amount:envelope,loose:envelope,zoned:envelope,tags:envelope,raw:header"},
                 {"outbox__fields": ["type:envelope:eventType", "n:envelope", "amount:envelope", "loose:envelope", "zoned:envelope",
                                     "tags:envelope", "raw:header"], "outbox__key_format": "json", "outbox__topic": "{}.$1"}),
    "expand": ({"key.converter": STRING, "transforms.o.route.topic.replacement": "{}.${routedByValue}",
                "transforms.o.table.expand.json.payload": "true"},
               {"outbox__value_format": "json", "outbox__expand_json": True, "outbox__topic": "{}.$1"}),
    "keep": ({"key.converter": STRING, "transforms.o.route.topic.replacement": "{}.${routedByValue}",
              "transforms.o.table.expand.json.payload": "true", "transforms.o.table.field.event.payload": "doc",
              "transforms.o.table.json.payload.null.behavior": "optional_bytes",
              "transforms.o.table.json.payload.empty.array.behavior": "optional_string",
              "transforms.o.table.fields.additional.placement": "type:envelope"},
             {"outbox__expand_json": True, "outbox__payload": "doc", "outbox__expand_keeps": "both",
              "outbox__fields": ["type:envelope"], "outbox__topic": "{}.$1"}),
    "bytes": ({"key.converter": STRING, "value.converter": BYTES, "transforms.o.route.topic.replacement": "{}.${routedByValue}",
               "transforms.o.table.field.event.payload": "raw", "transforms.o.table.field.additional.missing": "ignore",
               "transforms.o.table.fields.additional.placement": "none:header,type:header"},
              {"outbox__payload": "raw", "outbox__fields": ["none?:header", "type?:header"],
               "outbox__topic": "{}.$1"}),
}

# The other routers, over tables of their own; both are told to route what is not an outbox.
TABLES = ["shard_1.t", "shard_2.t", "shard_1.end"]
MANY = {"table.include.list": ",".join(TABLES), "key.converter": "org.apache.kafka.connect.json.JsonConverter"}
VARIANTS |= {
    "regex": ({**MANY, "transforms.o.type": "org.apache.kafka.connect.transforms.RegexRouter",
               "transforms.o.regex": "[^.]*[.](.*)[.](t|end)", "transforms.o.replacement": "{}.$2"},
              {"routing__topic": ["[^.]*[.](.*)[.](t|end)", "{}.$2"], "routing__sharing": "allow"}),
    "logical": ({**MANY, "transforms.o.type": "io.debezium.transforms.ByLogicalTableRouter",
                 "transforms.o.topic.regex": "[^.]*[.](.*)[.](t|end)", "transforms.o.topic.replacement": "{}.$2",
                 "transforms.o.key.field.regex": ".*[.]shard_(.)[.].*", "transforms.o.key.field.replacement": "$1"},
                {"routing__topic": ["[^.]*[.](.*)[.](t|end)", "{}.$2"], "routing__sharing": "key",
                 "routing__key_value": [".*[.]shard_(.)[.].*", "$1"]}),
}
OTHERS = ("regex", "logical")

# An outbox beside another table, by a predicate. What millrace is told of tables is what `millrace convert` makes of it.
VARIANTS["predicate"] = (
    {"table.include.list": "public.outbox,shard_1.t", "transforms.o.predicate": "outboxes", "predicates": "outboxes",
     "predicates.outboxes.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
     "predicates.outboxes.pattern": r"{}\.public\.out[a-z\-]+", "transforms.o.route.topic.replacement": "{}.${routedByValue}"},
    {"topic_prefix": "{}", "outbox__key_format": "json", "outbox__value_format": "json", "outbox__topic": "{}.$1"})


def converted_tables(options, prefix):
    """`tables` and `outbox.tables` of the connector's options."""
    done = subprocess.run([BINARY, "convert", "-"], capture_output=True, text=True, check=True, input=json.dumps({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": prefix, "transforms": "o",
        "transforms.o.type": "io.debezium.transforms.outbox.EventRouter",
        **{name: value.replace("{}", prefix) for name, value in options.items()}}))
    made = tomllib.loads(done.stdout)
    return made["tables"], made["outbox"]["tables"]

DOCUMENTS = [
    '{"a": 1, "b": "x", "c": null, "d": [], "e": {}, "f": [1, 2], "g": {"h": null, "i": [{"j": 1.50}]}, "k": true}',
    r'{"s": "q\"u\\o\/v \u00e9 \ud83d\ude00 \t", "é😀": "🐎"}',
    '{"i": 2147483648, "m": -9223372036854775808, "x": 1e2, "y": -0.5, "z": 12345678901234567000.25, "w": 1E-7, "v": 100000000.0}',
    '{"first": null, "second": 2}', '{"first": [], "second": {"third": []}, "last": null}', "{}", '{"nested": [[1, 2], [3]]}',
    '[]not', "5", '"text"', "null", "plain text", "", " \t", "{broken",
]  # docs/outbox.md names what the two make otherwise: fields without a name, text behind an object, lists of mixed elements


def statements():
    """Each is a transaction."""
    yield "INSERT INTO shard_1.t VALUES (1, 'a'), (2, 'b')"
    yield "INSERT INTO shard_2.t VALUES (1, 'c')"
    yield "UPDATE shard_1.t SET v = 'é' WHERE id = 1"
    yield "UPDATE shard_2.t SET id = 3 WHERE id = 1"
    yield "DELETE FROM shard_1.t WHERE id = 1"
    yield "INSERT INTO shard_1.end VALUES (1, 'end')"
    yield ("INSERT INTO outbox (aggregatetype, aggregateid, type, payload, n, big, amount, loose, ok, ratio, day, at, zoned, raw, part, "
           "tags, doc) VALUES ('order', 'k1', 'OrderPlaced', '{\"id\": 1}', 7, 8000000000, 12.50, 1.10, true, 1e10, '2020-02-29', "
           "now() AT TIME ZONE 'UTC', '2020-02-29 01:02:03.5+00', '\\xdeadbeef00', 0, '{a,null}', '{\"id\": 1}')")
    for value in ("order", "order-v2", "a.b-c_D9", "x" * 150):
        yield f"INSERT INTO outbox (aggregatetype, aggregateid, type, payload, n) VALUES ('{value}', 'k', 't', 'p', 1)"
    for document in DOCUMENTS:
        text = document.replace("'", "''")
        doc = "NULL"
        try:
            json.loads(document)
            doc = f"'{text}'"
        except ValueError:
            pass
        yield (f"INSERT INTO outbox (aggregatetype, aggregateid, type, payload, n, doc, raw) "
               f"VALUES ('documents', 'd', '🐎 \"x\"', '{text}', 2, {doc}, '\\x')")
    yield "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ('nulls', 'key', NULL)"
    yield "INSERT INTO outbox (aggregatetype, aggregateid, payload, part) VALUES ('nulls', NULL, 'payload', 0)"
    yield "INSERT INTO outbox (aggregatetype, aggregateid, payload, part) VALUES ('parts', 'key', 'payload', 0), ('parts', 'key', 'p', 2)"
    yield "INSERT INTO outbox (aggregatetype, aggregateid, payload, ratio) VALUES ('order', 'quote\"\\\n', 'é', 'NaN')"
    yield "UPDATE outbox SET type = 'changed' WHERE aggregatetype = 'nulls'"
    yield "UPDATE outbox SET id = gen_random_uuid(), type = 'moved' WHERE aggregatetype = 'order-v2'"
    yield "DELETE FROM outbox WHERE aggregatetype <> 'order'"
    yield "INSERT INTO outbox (aggregatetype, aggregateid, type, payload, n, raw, doc) VALUES ('end-v1', 'e', 't', '{}', 1, '\\x00', '{}')"


class Run:
    """Both programs, once for each variant."""

    def __init__(self, folder):
        self.database = Database()
        begin = {name: (f"{self.database.prefix}d{name}", f"{self.database.prefix}m{name}") for name in VARIANTS}
        theirs = []
        for name, (options, _) in VARIANTS.items():
            told = {key: value.replace("{}", begin[name][0]) for key, value in options.items()}
            theirs.append((begin[name][0], {
                "transforms": "o", "transforms.o.type": "io.debezium.transforms.outbox.EventRouter", "header.converter": SIMPLE,
                "table.include.list": "public.outbox",
                "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
                "extended.headers.enabled": "false", **told}))
        self.connect = connect.Connect(self.database, folder, *theirs[0], more=theirs[1:])
        self.ours = []
        for name, (theirs, options) in VARIANTS.items():
            place = folder / name
            place.mkdir()
            told = {key: json.dumps(value).replace("{}", begin[name][1]) for key, value in options.items()}
            tables, outboxes = (TABLES, None) if name in OTHERS else (["outbox"], ["outbox"])
            if name == "predicate":
                tables, outboxes = converted_tables(theirs, begin[name][1])
                assert outboxes == ["public.outbox"] and "shard_1.t" in tables
            self.ours.append(Millrace(self.database, place, tables, types='"debezium"', outbox__tables=outboxes and json.dumps(outboxes), **{
                "source__postgres__slot_name": json.dumps(f"{self.database.slot}_{name}"), **told}))
        self.begin = begin

    def go(self):
        database = self.database
        database.run("CREATE TABLE outbox (" + COLUMNS.format("payload text") + ")")
        database.run("CREATE SCHEMA shard_1; CREATE SCHEMA shard_2")
        for table in TABLES:
            database.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
        database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
        for pair in self.begin.values():
            for begin in pair:
                database.create_topic(f"{begin}.parts", 3)
        self.connect.start()
        for millrace in self.ours:
            millrace.start().streaming()
        eventually(self.connect.streams, 200, "Debezium reads")
        for statement in statements():
            database.run(statement)

        def ended():
            for millrace in self.ours:
                assert millrace.process.poll() is None, "".join(millrace.lines)
            topics = set(database.topics())
            return all({f"{begin}.end", f"{begin}.end-v1"} & topics for pair in self.begin.values() for begin in pair)
        eventually(ended, 120, "the end of all")
        # A topic is there before its record is: a stop delivers it. The connectors' last records are waited for before theirs, for they
        # may have more to read.
        for millrace in self.ours:
            assert millrace.stop() == 0
        for begin, _ in self.begin.values():
            topic = Topic(next(name for name in (f"{begin}.end", f"{begin}.end-v1") if name in database.topics()))
            topic.take(1)
            topic.close()
        self.connect.finish()
        return {name: [self._read(begin) for begin in pair] for name, pair in self.begin.items()}

    def _read(self, begin):
        """By topic without its beginning; of topics that no beginning has, nothing can be told apart."""
        names = [name for name in self.database.topics() if name.startswith(begin + ".")]
        return {name[len(begin) + 1:]: records for name, records in read_whole(self.database.admin, names).items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    yield from connect.both(Run(tmp_path_factory.mktemp("outbox")))


def told(record):
    headers = {name: value for name, value in record.headers.items() if not name.startswith("mr-")}
    for name in ("__debezium.oldkey", "__debezium.newkey"):  # docs/events.md: the other key as its records have it
        if name in headers:
            headers[name] = re.sub(r',"__dbz__physicalTableIdentifier":"[^"]*"', "", headers[name])
    return record.partition, record.key, normal(record.value), headers


@pytest.mark.parametrize("variant", VARIANTS)
def test_outbox_equal(both, variant):
    theirs, ours = both[variant]
    assert sorted(theirs) == sorted(ours)
    wrong, compared = [], 0
    for topic, expected in theirs.items():
        # Neither key nor value: millrace leaves it out, as docs/outbox.md says.
        expected = [record for record in expected if record.key is not None or record.value is not None]
        assert len(ours[topic]) == len(expected), topic
        for left, right in zip(expected, ours[topic]):
            if told(left) != told(right):
                wrong.append(f"{topic}:\n  Debezium {told(left)}\n  millrace {told(right)}")
            compared += 1
    assert not wrong, f"{len(wrong)} differences in {compared} records:\n" + "\n".join(wrong)
    assert compared > (9 if variant in OTHERS else 25)
    if variant == "text":
        assert theirs["order"][0].timestamp_ms == ours["order"][0].timestamp_ms


def test_outbox_document(database, tmp_path):
    """The examples of docs/outbox.md, as they stand: a row, and a message without a table."""
    with open(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "outbox.md"), encoding="utf-8") as file:
        page = file.read()
    table, rows, message = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    setting = re.search(r"`(outbox\.messages) = (.*?)`", page).groups()
    text = re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1]
    topic, key, value, headers = re.search(r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \| (.+?), and those", page, re.MULTILINE).groups()
    database.run(table)
    database.run("CREATE TABLE orders (id int PRIMARY KEY, total numeric)")
    for ours, theirs in (("localhost:9092", BOOTSTRAP), ("shop", database.prefix),
                         ("[outbox]", f'[outbox]\n{setting[0].partition(".")[2]} = {setting[1]}\ntopic = "{database.prefix}.{topic.replace("order", "$1")}"')):
        assert ours in text
        text = text.replace(ours, theirs)
    text += ('\n[source.postgres]\nconnection = "env:TEST_URL"\n'
             f'slot_name = "{database.slot}"\npublication_name = "{database.publication}"\n[http]\naddress = ""\n')
    millrace = Millrace(database, tmp_path, text=text).start()
    eventually(lambda: database.is_streamed(database.slot), 60, "the stream")
    database.run(rows)
    database.run("SELECT pg_logical_emit_message(true, 'outbox', 'no event')")
    database.run(message)
    records = Topic(f"{database.prefix}.{topic}").take(2)
    eventually(lambda: any("outbox_message_dropped" in line for line in millrace.lines), 60, "the word of what is no event")
    millrace.kill()
    wanted = dict(re.findall(r"`(\w+)` = `([^`]+)`", headers))
    for record in records:
        assert (record.key, record.value) == (key, value)
        assert record.headers["eventType"] == wanted["eventType"]
    assert {name: text for name, text in records[0].headers.items() if not name.startswith("mr-")} == wanted


def test_a_partition_that_is_not_there_names_the_row(database, millrace):
    """So that it can be skipped."""
    database.create_topic(f"{database.prefix}.x", 1)
    database.run("CREATE TABLE o (id int PRIMARY KEY, aggregatetype text, aggregateid text, payload text, part int)")
    process = millrace(("o",), outbox__tables='["public.o"]', outbox__fields='["part:partition"]',
                       outbox__topic=json.dumps(f"{database.prefix}.$1")).start().streaming()
    database.run("INSERT INTO o VALUES (1, 'x', 'k', 'v', 2147483647)")
    assert process.ended(120) == 65
    stopped = process.log("stopped")[-1]["message"]
    assert "wants partition 2147483647" in stopped and "whose key has SHA-256" in stopped, stopped
    place = re.search(r"--skip-commit-lsn (\S+) skips", stopped).group(1)
    process.start("--skip-commit-lsn", place).streaming()


def test_outbox_message_names_a_partition(database, millrace):
    """Any role that connects can write one: a number that the topic does not have ends nothing."""
    database.create_topic(f"{database.prefix}.x", 3)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(outbox__messages='"outbox"', outbox__fields='["part:partition"]',
                       outbox__topic=json.dumps(f"{database.prefix}.$1")).start().streaming()
    parts = [0, 1, 2, None, 3, 77, 2147483647]
    for part in parts:
        event = {"aggregatetype": "x", "aggregateid": "k", "payload": str(part), "part": part}
        database.run("SELECT pg_logical_emit_message(true, 'outbox', %s)", [json.dumps(event)])
    topic = Topic(f"{database.prefix}.x")
    found = {record.value: record.partition for record in topic.take(len(parts))}
    topic.close()
    by_key = found["None"]
    assert found == {str(part): part if part in (0, 1, 2) else by_key for part in parts}


NO_KEY = '{"id": 1, "aggregatetype": "x", "aggregateid": null, "payload": "p"}'
OLD = '{"id": 1, "aggregatetype": "x", "aggregateid": "k", "payload": "p", "ts": "2000-01-01T00:00:00Z"}'
LARGE = json.dumps({"id": 1, "aggregatetype": "x", "aggregateid": "k", "payload": "y" * 100000})


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("message,setting,records,said", [
    (NO_KEY, {"cleanup.policy": "compact"}, 0, "outbox_message_dropped"),
    (OLD, {"message.timestamp.before.max.ms": "3600000"}, 2, "outbox_ignored"),
    (LARGE, {"max.message.bytes": "50000"}, 0, "message_dropped")], ids=["no key", "old", "large"])
def test_outbox_message_that_its_topic_refuses(database, millrace, delivery, message, setting, records, said):
    """Any role that connects can write one: it is dropped, or has another time, and the stream goes on. The next is known at once."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    topic = f"{database.prefix}.x"
    database.create_topic(topic, 1, setting)
    database.create_topic(database.topic("t"))
    process = millrace(outbox__messages='"outbox"', outbox__topic=json.dumps(f"{database.prefix}.$1"), outbox__timestamp='"ts"',
                       sink__kafka__delivery=json.dumps(delivery), sink__kafka__oversize='"fail"',
                       sink__kafka__compression='"none"').start().streaming()
    for row in (1, 2):
        database.run("SELECT pg_logical_emit_message(true, 'outbox', %s)", [message])
        database.run("INSERT INTO t VALUES (%s)", [row])
        eventually(lambda row=row: len(read_whole(database.admin, [database.topic("t")])[database.topic("t")]) >= row)
    eventually(lambda: process.get("/readyz").status == 200)
    assert len(read_whole(database.admin, [topic])[topic]) == records
    assert process.log(said) and len(process.log("sink_session_lost")) == 1


def test_outbox_row_without_a_key_in_a_compacted_topic(database, millrace):
    """A row is not dropped: its table says who may write it."""
    database.run("CREATE TABLE o (id int PRIMARY KEY, aggregatetype text, aggregateid text, payload text)")
    database.create_topic(f"{database.prefix}.x", 1, {"cleanup.policy": "compact"})
    process = millrace(tables=["public.o"], outbox__tables='["public.o"]',
                       outbox__topic=json.dumps(f"{database.prefix}.$1")).start().streaming()
    database.run("INSERT INTO o VALUES (1, 'x', NULL, 'p')")
    assert process.ended(60) == 65
