"""`types = "debezium"`, judged by Debezium itself: its connector in Kafka Connect and millrace read the same statements of one
database, each by a slot of its own, and every record is compared byte for byte."""

import base64
import contextlib
import json
import os
import re
import subprocess
import sys

import pytest
from confluent_kafka.admin import NewTopic

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import cases  # noqa: E402
import connect  # noqa: E402
import kit  # noqa: E402
import odd  # noqa: E402
from kit import Database, Millrace, Topic, eventually, read_whole  # noqa: E402

# What no two programs have in common: who they are, and the time at which they made the event.
OWN = [
    (re.compile(r'"source":\{"version":"[^"]*"'), '"source":{"version":"…"'),
    (re.compile(r',"name":"[^"]*","ts_ms"'), ',"name":"…","ts_ms"'),
    (re.compile(r',"ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+\}$'), "}"),
    (re.compile(r'^\{"op":"m","ts_ms":\d+'), '{"op":"m"'),
    # Of CloudEvents: Debezium gives several events the same id.
    (re.compile(r'^\{"id":"(name:.*?\]|[0-9A-F]{16}-[0-9A-F]{10}-\d)"'), '{"id":"…"'),
    (re.compile(r'"source":"/debezium/postgresql/[^"]*"'), '"source":"…"'),
    (re.compile(r'"iodebeziumversion":"[^"]*"'), '"iodebeziumversion":"…"'),
    (re.compile(r'"iodebeziumname":"[^"]*"'), '"iodebeziumname":"…"'),
    # A message outside transactions: Debezium has the time and end of the transaction before it, millrace its own clock.
    (re.compile(r'"ts_ms":\d+,(?=.*"txId":null)'), ""),
    (re.compile(r'"sequence":"[^]]*\]","ts_us":\d+,"ts_ns":\d+(?=.*"txId":null)'), ""),
    # Debezium has the address of an object of Java's, for each message anew.
    (re.compile(r'io\.debezium\.[\w.$]*LogicalDecodingMessageId@[0-9a-f]+'), "LOGICAL_DECODING_MESSAGE"),
]


def normal(value):
    for pattern, text in OWN:
        value = value if value is None else pattern.sub(text, value)
    return value


class Records:
    """All records of a program, by topic without its prefix, whatever its delimiter; read in the order of the topic."""

    def __init__(self, database, prefix):
        names = [name for name in database.topics() if name.startswith(prefix) and name[len(prefix):][:1] in "._-"]
        self.by_topic = {name[len(prefix) + 1:]: records for name, records in read_whole(database.admin, names).items() if records}


def unwrap(deletes):
    """Rows without an envelope."""
    return {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.unwrap.delete.tombstone.handling.mode": deletes}


# What both are told in each run: Debezium's options, and ours.
VARIANTS = {
    "default": ({"skipped.operations": "none", "message.prefix.include.list": "judge.*"},
                {"skipped_operations": "[]", "messages__prefixes": '["judge"]'}),
    "text": ({"decimal.handling.mode": "string", "time.precision.mode": "connect", "binary.handling.mode": "hex",
              "interval.handling.mode": "string", "hstore.handling.mode": "map", "message.prefix.include.list": "judge.*"},
             {"decimal_handling_mode": '"string"', "time_precision_mode": '"connect"', "binary_handling_mode": '"hex"',
              "interval_handling_mode": '"string"', "hstore_handling_mode": '"map"', "messages__prefixes": '["judge"]'}),
    "double": ({"decimal.handling.mode": "double", "time.precision.mode": "isostring", "binary.handling.mode": "base64",
                "skipped.operations": "u,t", "message.prefix.exclude.list": "other"},
               {"decimal_handling_mode": '"double"', "time_precision_mode": '"isostring"', "binary_handling_mode": '"base64"',
                "skipped_operations": '["update", "truncate"]', "messages__prefixes": '["*", "!other"]'}),
    "micro": ({"time.precision.mode": "adaptive_time_microseconds", "binary.handling.mode": "base64-url-safe",
               "unavailable.value.placeholder": "gone", "tombstones.on.delete": "false", "topic.delimiter": "-",
               "skip.messages.without.change": "true"},
              {"time_precision_mode": '"adaptive_time_microseconds"', "binary_handling_mode": '"base64-url-safe"',
               "unavailable_value": '"gone"', "tombstones": "false", "topic_delimiter": '"-"',
               "skip_messages_without_change": "true", "messages__prefixes": '["*"]'}),
    "micros": ({"time.precision.mode": "microseconds", "column.exclude.list": "public.by_full.c",
                "column.mask.with.3.chars": "public.by_full.b", "column.truncate.to.2.chars": "public.without_key.b",
                "column.mask.hash.v2.SHA-256.with.salt.pepper": "public.by_nothing.b"},
               {"time_precision_mode": '"microseconds"', "messages__prefixes": '["*"]', "columns__exclude": '["by_full:c"]',
                "columns__mask": '["by_full:b=3"]', "columns__truncate": '["without_key:b=2"]', "columns__hash": '["by_nothing:b"]',
                "columns__hash_salt": '"env:TEST_SALT"'}),
    "cloud": ({"value.converter": "io.debezium.converters.CloudEventsConverter", "value.converter.json.schemas.enable": "false",
               "skipped.operations": "none", "message.prefix.include.list": "nothing"},
              {"format": '"cloudevents"', "skipped_operations": "[]"}),
    "nanos": ({"time.precision.mode": "nanoseconds"}, {"time_precision_mode": '"nanoseconds"', "messages__prefixes": '["*"]'}),
    "rows": ({**unwrap("rewrite-with-tombstone"), "skipped.operations": "none",
              "transforms.unwrap.add.fields": "op,source.ts_ms,lsn,table,txId:transaction,sequence,source.snapshot,db,origin,schema:s,xmin"},
             {"format": '"row"', "row__delete_tombstone_handling_mode": '"rewrite-with-tombstone"', "skipped_operations": "[]",
              "row__add_fields": '["op", "source.ts_ms", "lsn", "table", "txId:transaction", "sequence", "source.snapshot", "db",'
                                 ' "origin", "schema:s", "xmin"]', "messages__prefixes": '["*"]'}),
    "transactions": ({"provide.transaction.metadata": "true", "message.prefix.include.list": "judge.*",
                      "skip.messages.without.change": "true"},
                     {"provide_transaction_metadata": "true", "messages__prefixes": '["judge"]',
                      "skip_messages_without_change": "true"}),
    # Values of headers as Connect has them by itself.
    "headed": ({**unwrap("tombstone"), "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
                "transforms.unwrap.add.headers": "op,source.ts_us,lsn:at,table,connector",
                "transforms.unwrap.add.headers.prefix": "of_"},
               {"format": '"row"', "row__delete_tombstone_handling_mode": '"tombstone"',
                "row__add_headers": '["=of_", "op", "source.ts_us", "lsn:at", "table", "connector"]',
                "messages__prefixes": '["*"]'}),
}


def described(*sides):
    """Schemas around keys, values, or both, as Connect has them unless it is told otherwise."""
    return {**{f"{side}.converter": connect.CONVERTER for side in ("key", "value")},
            **{f"{side}.converter.schemas.enable": str(side in sides).lower() for side in ("key", "value")}}


# JSON with schemas: of every type in every mode, in both forms of events that have them.
VARIANTS |= {
    "described": ({**described("key", "value"), **VARIANTS["transactions"][0], "skipped.operations": "none"},
                  {"json__schemas": '"both"', **VARIANTS["transactions"][1], "skipped_operations": "[]"}),
    "describedtext": ({**described("value"), **VARIANTS["text"][0]}, {"json__schemas": '"value"', **VARIANTS["text"][1]}),
    "describeddouble": ({**described("key", "value"), **VARIANTS["double"][0]}, {"json__schemas": '"both"', **VARIANTS["double"][1]}),
    "describedcolumns": ({**described("key", "value"), **VARIANTS["micros"][0]}, {"json__schemas": '"both"', **VARIANTS["micros"][1]}),
    "describedkeys": ({**described("key"), **VARIANTS["micro"][0]}, {"json__schemas": '"key"', **VARIANTS["micro"][1]}),
    "describedrows": ({**described("key", "value"), **VARIANTS["rows"][0], **VARIANTS["nanos"][0]},
                       {"json__schemas": '"both"', **VARIANTS["rows"][1], **VARIANTS["nanos"][1]}),
    "describednulls": ({**described("value"), **unwrap("tombstone")},
                        {"json__schemas": '"value"', "format": '"row"', "row__delete_tombstone_handling_mode": '"tombstone"',
                         "messages__prefixes": '["*"]'}),
}


# Those that have the tables of odd.py, too: Debezium takes long to make so many topics.
WITH_ODD = ("default", "transactions", "described")


class Run:
    """Both programs over cases.py, once for each of these variants: all of them at once, on one worker of Kafka Connect."""

    def __init__(self, folder, names):
        self.database = Database()
        self.variants = {name: VARIANTS[name] for name in VARIANTS if name in names}
        # Who made an event is no matter of the event; these headers hold a number that is new at each start.
        theirs = [(self._prefix("dbz", name), {"extended.headers.enabled": "false", **options,
                                               **({} if name in WITH_ODD else {"table.exclude.list": odd.EXCLUDED})})
                  for name, (options, _) in self.variants.items()]
        self.connect = connect.Connect(self.database, folder, *theirs[0], more=theirs[1:])
        self.ours = []
        for name, (_, options) in self.variants.items():
            place = folder / name
            place.mkdir()
            tables = cases.names() + (odd.names() if name in WITH_ODD else [])
            self.ours.append(Millrace(self.database, place, tables, types='"debezium"', **{
                "topic_prefix": json.dumps(self._prefix("mr", name)),
                "source__postgres__slot_name": json.dumps(f"{self.database.slot}_{name}"), **options}))
            self.ours[-1].environment["TEST_SALT"] = "pepper"

    def _prefix(self, program, name):
        return f"{self.database.prefix}{program}{name}"

    def _topic(self, program, name, *table):
        """Schema and table: their topic in a variant."""
        return VARIANTS[name][0].get("topic.delimiter", ".").join([self._prefix(program, name), *table])

    def _make_topics(self):
        """Connect makes one at a time, which takes it longer than all the rest; those with odd names it still makes."""
        tables = self.database.run("SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
                                   r" AND schemaname || tablename ~ '^[A-Za-z0-9_]+$'")
        topics = [self._topic("dbz", name, *table) for name in self.variants for table in tables
                  if name in WITH_ODD or not re.fullmatch(odd.EXCLUDED.replace(",", "|"), ".".join(table))]
        for made in self.database.admin.create_topics([NewTopic(topic, 1, 1) for topic in topics], request_timeout=60).values():
            made.result()

    def _all_have(self, nth):
        """Waits until each connector has sent all rows. A table that is gone by its name when Debezium looks has no key there."""
        here = self.database.run("SELECT pg_current_wal_lsn()")[0][0]
        # Debezium confirms up to the end of the transaction before its last. Between that of the rows and `here` the server may have
        # written on its own (a checkpoint, running transactions), so it takes two that are surely after it.
        for row in (2 * nth, 2 * nth + 1):
            self.database.run(f"INSERT INTO churned VALUES ({-1000 - row}, 'after it', 0)")
        eventually(lambda: not self.database.run("SELECT 1 FROM pg_replication_slots WHERE slot_name = ANY(%s) AND"
                                                 " confirmed_flush_lsn < %s", [self.connect.slots, here], database="postgres"),
                   120, "Debezium has all rows so far")

    def go(self):
        database = self.database
        for statement in [*cases.setup(), *odd.setup()]:
            database.run(statement)
        database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
        # First, while the broker has nothing else to do: with four hundred topics to make, it leaves the first one's state waiting.
        for millrace in self.ours:
            millrace.start()
        for millrace in self.ours:
            millrace.streaming()
        self._make_topics()
        self.connect.start()
        eventually(self.connect.streams, 280, "Debezium reads")
        with kit.connect(database.name) as connection:
            for nth, statement in enumerate(cases.statements(odd.statements()), 1):
                if " RENAME TO " in statement or statement.startswith(odd.WAIT):
                    self._all_have(nth)
                connection.execute(statement)
        prefixes = {name: (self._prefix("dbz", name), self._prefix("mr", name)) for name in self.variants}

        for name in self.variants:
            for program in ("dbz", "mr"):
                last = Topic(self._topic(program, name, "public", "last"))
                last.take(1, 240)
                last.close()
        # A topic is there before its record is, and one partition's records don't wait for another's.
        for millrace in self.ours:
            assert millrace.stop() == 0
        self.connect.finish()
        return {name: [Records(database, prefix) for prefix in pair] for name, pair in prefixes.items()}


AT_ONCE = 10  # each has two walsenders, of the stand's twenty


@pytest.fixture(scope="module")
def both(request, tmp_path_factory):
    """The records of Debezium and of millrace, by variant: of those that this run has chosen, and the default's."""
    chosen = {item.callspec.params["variant"] for item in request.session.items
              if item.originalname in ("test_debezium_equal", "test_connect_reads_what_has_schemas")}
    names = [name for name in VARIANTS if name in {"default", *chosen}]
    found = {}
    for first in range(0, len(names), AT_ONCE):
        run = Run(tmp_path_factory.mktemp("debezium"), names[first:first + AT_ONCE])
        with contextlib.contextmanager(connect.both)(run) as records:
            found |= records
    yield found


def our_headers(record):
    return {name: value for name, value in record.headers.items() if not name.startswith("mr-") and name != "content-type"}


def rows(value):
    """`before` and `after` of an event, and of a CloudEvent what else there is."""
    value = json.loads(value)
    return {**value.get("data", value), **{name: value[name] for name in value if "specversion" in value and name != "data"}}


def headers_apart(theirs, ours):
    """Connect's own converter of headers has no form for the key in one."""
    struct = {name for name, value in theirs.items() if value.startswith("Struct{")}
    return {name: value for name, value in theirs.items() if name not in struct} != \
        {name: value for name, value in ours.items() if name not in struct}


def columns_apart(theirs, ours):
    """The names of columns whose text differs, with both values; their order too."""
    if "source" not in theirs and "specversion" not in theirs:  # a row without an envelope
        theirs, ours = {"after": theirs}, {"after": ours}
    for part in [*theirs, *(part for part in ours if part not in theirs)] if "specversion" in theirs else ("before", "after"):
        a, b = theirs.get(part), ours.get(part)
        if not isinstance(a, dict) or not isinstance(b, dict):
            if a != b:
                yield part, a, b
            continue
        for name in [*a, *(name for name in b if name not in a)]:
            if json.dumps(a.get(name, "(absent)")) != json.dumps(b.get(name, "(absent)")):
                yield f"{part}.{name}", a.get(name, "(absent)"), b.get(name, "(absent)")


# The beginning of each topic's name, which is in the names of schemas.
OWN_PREFIX = re.compile(r'"name":"t_[0-9a-f]{10}(?:dbz|mr)')


def unwrapped(text):
    """Schema and payload of a key or value, as they are written; no schema: it comes without."""
    if text is None or not text.startswith('{"schema":{'):
        return None, text
    end = json.JSONDecoder().raw_decode(text, len('{"schema":'))[1]
    assert text[end:].startswith(',"payload":') and text[-1] == "}", text
    return OWN_PREFIX.sub('"name":"', text[len('{"schema":'):end]), text[end + len(',"payload":'):-1]


def columns_of(schema):
    """The schemas of a row's columns, and of `before` and `after`, wherever the row is."""
    for field in schema["fields"]:
        if field.get("field") in ("before", "after") and field["type"] == "struct":
            yield from field["fields"]
        else:
            yield field


def schemas_apart(topic, theirs, ours):
    """What differs between two schemas."""
    if theirs == ours:
        return
    if theirs is None or ours is None:
        yield f"schema {theirs} {ours}"
        return
    theirs, ours = json.loads(theirs), json.loads(ours)
    for left, right in zip(columns_of(theirs), columns_of(ours)):
        if left != right:
            kind = cases.type_of(topic.replace("-", "."), f"after.{left['field']}")
            cases.excuse(kind, left, right)
    a, b = json.dumps(theirs, ensure_ascii=False), json.dumps(ours, ensure_ascii=False)
    if a != b:
        at = next(i for i, (left, right) in enumerate(zip(a + "!", b + "?")) if left != right)
        yield f"schema: Debezium …{a[max(0, at - 300):at + 200]}\n    millrace …{b[max(0, at - 300):at + 200]}"


def told(topic, at, theirs, ours):
    """What differs between two records, a line each."""
    place = f"{topic} record {at} key {theirs.key}"
    (key_schema, key), (our_key_schema, our_key) = unwrapped(theirs.key), unwrapped(ours.key)
    (schema, value), (our_schema, our_value) = unwrapped(theirs.value), unwrapped(ours.value)
    for what, left, right in (("key", key_schema, our_key_schema), ("value", schema, our_schema)):
        yield from (f"{place}: {what} {line}" for line in schemas_apart(topic, left, right))
    if key != our_key:
        yield f"{place}: key {ours.key}"
    if headers_apart(theirs.headers, our_headers(ours)):
        yield f"{place}: headers {theirs.headers} {our_headers(ours)}"
    a, b = normal(value), normal(our_value)
    if "LOGICAL_DECODING_MESSAGE" in (a or "") and "data_collections" in a:  # whose place among the tables is that of its address
        a, b = (re.sub(r'(?<=data_collections":)\[.*\]', lambda found: json.dumps(sorted(json.loads(found[0]), key=str)), value)
                for value in (a, b))
    if topic in cases.BEHIND_MESSAGE:
        a, b = (value and re.sub(r'sequence("?:"?)[^,]*', r'sequence\1…', value) for value in (a, b))
    if a == b:
        return
    if a is None or b is None:
        yield f"{place}: {a} {b}"
        return
    if "null" in (a, b):
        yield f"{place}: Debezium {a}, millrace {b}"
        return
    found = list(columns_apart(rows(a), rows(b)))
    for name, left, right in found:
        kind = cases.type_of(topic.replace("-", "."), name)
        if not cases.excepted(kind, left, right):
            yield f"{place}: {name} {kind}: Debezium {json.dumps(left)[:200]}, millrace {json.dumps(right)[:200]}"
    if not found:
        yield f"{place}: Debezium {a[:1500]}\n    millrace {b[:1500]}"


@pytest.mark.timeout(900)  # ten connectors in one Java, beside the builds
@pytest.mark.parametrize("variant", VARIANTS)
def test_debezium_equal(both, variant):
    """Topics, keys, values, headers and tombstones, in their order."""
    theirs, ours = both[variant]
    wrong = [f"topics {sorted(theirs.by_topic)} {sorted(ours.by_topic)}"] \
        if sorted(theirs.by_topic) != sorted(ours.by_topic) else []
    compared = 0
    for topic, expected in theirs.by_topic.items():
        if topic.replace("-", ".") in cases.WITHOUT_KEY:  # a tombstone for no key is one for nothing
            expected = [record for record in expected if record.value is not None]
        found = ours.by_topic.get(topic, [])
        if len(found) != len(expected):
            wrong.append(f"{topic}: Debezium has {len(expected)} records, millrace {len(found)}")
        for at, (left, right) in enumerate(zip(expected, found)):
            wrong += told(topic, at, left, right)
            compared += 1
    assert not wrong, f"{len(wrong)} differences in {compared} records:\n" + "\n".join(wrong)
    assert compared >= cases.LEAST_RECORDS[variant]


def test_debezium_judge_sees(both):
    """A difference in any part of a record is told of."""
    theirs, _ = both["default"]
    record = next(record for record in theirs.by_topic["public.numbers"] if record.value is not None)

    class Other:
        key, value, headers = record.key, record.value, record.headers

    assert not list(told("public.numbers", 0, record, Other))
    for name, fault in [("key", '{"id":0}'), ("value", record.value.replace('"i2":1', '"i2":2')), ("value", None),
                        ("value", record.value.replace('"op":"c"', '"op": "c"')), ("headers", {"a": "b"})]:
        changed = type("Changed", (Other,), {name: fault})
        assert fault != getattr(Other, name) and list(told("public.numbers", 0, record, changed)), name


def read_by_connect(texts):
    """What Kafka Connect's own converter says of keys and values with schemas, a line each."""
    said = subprocess.run(["java", "-XX:TieredStopAtLevel=1", "-cp", connect.jars(),
                           os.path.join(connect.ROOT, "tests", "debezium", "Reader.java")],
                          input="".join(base64.b64encode(text.encode()).decode() + "\n" for text in texts), capture_output=True,
                          encoding="utf-8", timeout=240, check=True)
    return said.stdout.splitlines()


def countable(text):
    """Connect's reader takes what is no number for 0, and has no sign of it (JsonConverter's FLOAT64 is Jackson's doubleValue()); its maps
    have another order."""
    return json.loads(re.sub(r'"(?:NaN|-?Infinity)"|-0\.0(?=[,}\]])', "0.0", text))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant.startswith("described")])
def test_connect_reads_what_has_schemas(both, variant):
    """Connect's converter takes each record, with the schema's types, and writes the same again: those that differ from Debezium's,
    too."""
    texts = [text for records in both[variant][1].by_topic.values() for record in records for text in (record.key, record.value)
             if text is not None and text.startswith('{"schema":')]
    found = read_by_connect(texts)
    assert len(found) == len(texts) >= cases.LEAST_RECORDS[variant]
    wrong = [f"{text[-600:]}: {line[:20]} … {line[-600:]}" for text, line in zip(texts, found)
             if line != "same" and not (line.startswith("other: ") and countable(line[len("other: "):]) == countable(text))]
    assert not wrong, f"{len(wrong)} of {len(texts)}:\n" + "\n".join(wrong[:10])


def test_connects_reader_sees():
    """It refuses, or writes otherwise, what does not fit the schema."""
    column = '{"type":"%s","optional":%s,"field":"a"}'
    text = '{"schema":{"type":"struct","fields":[' + column + '],"optional":false},"payload":{"a":%s}}'
    good = [text % ("int32", "true", "null"), text % ("int32", "false", "1"), text % ("string", "false", '"x"')]
    bad = [text % ("int32", "false", "null"), text % ("int32", "true", "[1]"), text % ("string", "true", "1"),
           text % ("bytes", "true", "{}"), '{"a":1}', good[0].replace("payload", "pay"), good[1].replace('"a":1', '"a":1,"b":2')]
    assert [line == "same" for line in read_by_connect(good + bad)] == [True] * len(good) + [False] * len(bad)
