"""`types = "debezium"`, judged by Debezium itself: its connector in Kafka Connect and millrace read the same statements of one
database, each by a slot of its own, and every record is compared byte for byte."""

import json
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import cases  # noqa: E402
import connect  # noqa: E402
from kit import Database, Millrace, Topic, eventually  # noqa: E402

# What no two programs have in common: who they are, and the time at which they made the event.
OWN = [
    (re.compile(r'"source":\{"version":"[^"]*"'), '"source":{"version":"…"'),
    (re.compile(r',"name":"[^"]*","ts_ms"'), ',"name":"…","ts_ms"'),
    (re.compile(r',"ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+\}$'), "}"),
    (re.compile(r'^\{"op":"m","ts_ms":\d+'), '{"op":"m"'),
    # A message outside transactions: Debezium has the time and end of the transaction before it, millrace its own clock.
    (re.compile(r'"ts_ms":\d+,(?=.*"txId":null)'), ""),
    (re.compile(r'"sequence":"[^]]*\]","ts_us":\d+,"ts_ns":\d+(?=.*"txId":null)'), ""),
]


def normal(value):
    for pattern, text in OWN:
        value = value if value is None else pattern.sub(text, value)
    return value


class Records:
    """All records of a program, by topic without its prefix; read in the order of the topic."""

    def __init__(self, database, prefix, folder=None):
        self.prefix = prefix
        self.by_topic = {}
        for name in database.topics():
            if name.startswith(prefix + "."):
                self.by_topic[name.removeprefix(prefix + ".")] = self._read(name)

    @staticmethod
    def _read(name):
        topic = Topic(name)
        ends = {p.partition: topic.consumer.get_watermark_offsets(p, timeout=10)[1] for p in topic.consumer.assignment()}
        records = topic.take(sum(ends.values()))
        topic.close()
        return records


class Run:
    """Both programs over cases.py. millrace's topics come from a second prefix."""

    def __init__(self, folder):
        self.folder = folder
        self.database = Database()
        self.theirs = self.database.prefix + "-dbz"
        self.connect = connect.Connect(self.database, folder, self.theirs, {
            # Who made an event is no matter of the event; they hold a number that is new at each start.
            "extended.headers.enabled": "false",
            "skipped.operations": "none", "message.prefix.include.list": "judge.*",
        })
        self.millrace = Millrace(self.database, folder, cases.names(), types='"debezium"', skipped_operations="[]",
                                 messages__prefixes='["judge"]')

    def go(self):
        database = self.database
        for statement in cases.setup():
            database.run(statement)
        database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
        self.connect.start()
        self.millrace.start().streaming()
        eventually(self.connect.streams, 120, "Debezium reads")
        for statement in cases.statements():
            database.run(statement)
        for prefix in (self.theirs, database.prefix):
            eventually(lambda prefix=prefix: f"{prefix}.public.last" in database.topics(), 60, f"the end of {prefix}")
        return Records(database, self.theirs), Records(database, database.prefix)

    def end(self):
        self.connect.stop()
        if self.millrace.process is not None and self.millrace.process.poll() is None:
            self.millrace.kill()
        self.database.drop()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The records of Debezium and of millrace."""
    run = Run(tmp_path_factory.mktemp("debezium"))
    try:
        yield run.go()
    except BaseException:
        print(run.connect.said())
        raise
    finally:
        run.end()


def our_headers(record):
    return {name: value for name, value in record.headers.items() if not name.startswith("mr-")}


def columns_apart(theirs, ours):
    """The names of columns whose text differs, with both values; their order too."""
    for part in ("before", "after"):
        a, b = theirs.get(part), ours.get(part)
        if not isinstance(a, dict) or not isinstance(b, dict):
            if a != b:
                yield part, a, b
            continue
        for name in [*a, *(name for name in b if name not in a)]:
            if json.dumps(a.get(name, "(absent)")) != json.dumps(b.get(name, "(absent)")):
                yield f"{part}.{name}", a.get(name, "(absent)"), b.get(name, "(absent)")


def told(topic, at, theirs, ours):
    """What differs between two records, a line each."""
    place = f"{topic} record {at} key {theirs.key}"
    if theirs.key != ours.key:
        yield f"{place}: key {ours.key}"
    if theirs.headers != our_headers(ours):
        yield f"{place}: headers {theirs.headers} {our_headers(ours)}"
    a, b = normal(theirs.value), normal(ours.value)
    if a == b:
        return
    if a is None or b is None:
        yield f"{place}: {a} {b}"
        return
    found = list(columns_apart(json.loads(a), json.loads(b)))
    for name, left, right in found:
        kind = cases.type_of(topic, name)
        if not cases.excepted(kind, left):
            yield f"{place}: {name} {kind}: Debezium {json.dumps(left)[:200]}, millrace {json.dumps(right)[:200]}"
    if not found:
        yield f"{place}: Debezium {a[:1500]}\n    millrace {b[:1500]}"


def test_debezium_equal(both):
    """Topics, keys, values, headers and tombstones, in their order."""
    theirs, ours = both
    wrong = [f"topics {sorted(theirs.by_topic)} {sorted(ours.by_topic)}"] \
        if sorted(theirs.by_topic) != sorted(ours.by_topic) else []
    compared = 0
    for topic, expected in theirs.by_topic.items():
        if topic in cases.WITHOUT_KEY:  # a tombstone for no key is one for nothing
            expected = [record for record in expected if record.value is not None]
        found = ours.by_topic.get(topic, [])
        if len(found) != len(expected):
            wrong.append(f"{topic}: Debezium has {len(expected)} records, millrace {len(found)}")
        for at, (left, right) in enumerate(zip(expected, found)):
            wrong += told(topic, at, left, right)
            compared += 1
    assert not wrong, f"{len(wrong)} differences in {compared} records:\n" + "\n".join(wrong)
    assert compared >= cases.LEAST_RECORDS


def test_debezium_judge_sees(both):
    """A difference in any part of a record is told of."""
    theirs, _ = both
    record = next(record for record in theirs.by_topic["public.numbers"] if record.value is not None)

    class Other:
        key, value, headers = record.key, record.value, record.headers

    assert not list(told("public.numbers", 0, record, Other))
    for name, fault in [("key", '{"id":0}'), ("value", record.value.replace('"i2":1', '"i2":2')), ("value", None),
                        ("value", record.value.replace('"op":"c"', '"op": "c"')), ("headers", {"a": "b"})]:
        changed = type("Changed", (Other,), {name: fault})
        assert fault != getattr(Other, name) and list(told("public.numbers", 0, record, changed)), name
