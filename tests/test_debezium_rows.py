"""Existing rows, judged by Debezium itself: what its snapshots and millrace's copies make of the same tables, record by record."""

import json
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import cases  # noqa: E402
import connect  # noqa: E402
from kit import Database, Millrace, Topic, eventually  # noqa: E402
from test_debezium import OWN, Records, told, unwrap  # noqa: E402

# What differs by choice (docs/snapshots.md, "Beside Debezium"). The copied row is the one that the stream would bring: without
# generated columns, and with dates as they are (Debezium's JDBC takes them through the calendar of Java).
BY_CHOICE = {"public.generated": {"after.v"}, "public.times": {"after.d"}}
# A row has no place of its own in the stream: Debezium has none for it, millrace the one that the stream has come to.
OF_CHUNKS = {"source.lsn", "source.txId", "source.sequence", "after.__lsn", "after.__txId", "after.__sequence"}
# Each program has a slot of its own, and so its own place and time of a snapshot.
NUMBERS = re.compile(r'("(?:(?:source_)?(?:lsn|txId|ts_ms|ts_us|ts_ns)|__lsn|__txId|__source_ts_ms)":)\d+')
SEQUENCE = re.compile(r'("(?:__)?sequence":"\[(?:null|\\"\d+\\"),)\\"\d+\\"')



class Neutral:
    """A record without what is its program's own: that there is such a number stays."""

    def __init__(self, record):
        self.key, self.headers = record.key, record.headers
        self.value = record.value
        for pattern, text in [*OWN[:3], (NUMBERS, r"\g<1>0"), (SEQUENCE, r"\g<1>0")]:
            self.value = self.value and pattern.sub(text, self.value)

    def parts(self):
        """Its values by their paths, in their order."""
        def walk(value, path):
            if path.count(".") < 1 and isinstance(value, dict):
                for name, inner in value.items():
                    yield from walk(inner, f"{path}.{name}" if path else name)
            else:
                yield path, value
        value = json.loads(self.value)
        return dict(walk(value if "source" in value else {"after": value}, ""))


def apart(topic, at, theirs, ours):
    """What differs between two records and is no choice."""
    theirs, ours = Neutral(theirs), Neutral(ours)
    if "null" in (theirs.value or "null", ours.value or "null"):
        yield from told(topic, at, theirs, ours)
        return
    a, b = theirs.parts(), ours.parts()
    chosen = set(BY_CHOICE.get(topic, ()))
    if "incremental" in (a.get("source.snapshot"), a.get("after.__source_snapshot")):
        chosen |= OF_CHUNKS
    # The first row of all is marked as the first one, also when the first table has none.
    if (topic, at) == ("public.numbers", 0):
        chosen |= {"source.snapshot", "after.__source_snapshot"}
    differ = {name for name in [*a, *b] if a.get(name) != b.get(name)}
    chosen |= {name for name in differ if cases.excepted(cases.type_of(topic, name), a.get(name), b.get(name))}
    if not chosen & differ:
        yield from told(topic, at, theirs, ours)
        return
    kept = [[f"{name}={json.dumps(value)}" for name, value in parts.items() if name not in chosen] for parts in (a, b)]
    if (theirs.key, kept[0]) != (ours.key, kept[1]):
        yield f"{topic} record {at} key {theirs.key} {ours.key}: Debezium {kept[0]}, millrace {kept[1]}"


PARTED = ["p", "deep"]
LEAVES = ["p1", "p2", "deep1a", "deep1b", "deep2"]
TABLES = ["empty_first", *cases.GROUPS, *cases.IDENTITIES, "large", "empty", "generated", "moved_key", "last"]
# Asked for again while the stream runs; the last one by a condition.
SIGNALLED = ["by_key", "numbers", "texts", "times", "empty", "large", "p", "moved_key", "churned"]
SIGNAL = {"data-collections": [f"public.{table}" for table in SIGNALLED], "type": "incremental",
          "additional-conditions": [{"data-collection": "public.churned", "filter": "id > 20"}]}

# What both are told: Debezium's options and ours; whether partitions are read by their root.
VARIANTS = {
    "initial": ({"snapshot.mode": "initial"}, {"snapshot__mode": '"initial"'}, True),
    "only": ({"snapshot.mode": "initial_only", "decimal.handling.mode": "string", "time.precision.mode": "connect",
              "binary.handling.mode": "hex", "interval.handling.mode": "string", "hstore.handling.mode": "map"},
             {"snapshot__mode": '"initial_only"', "decimal_handling_mode": '"string"', "time_precision_mode": '"connect"',
              "binary_handling_mode": '"hex"', "interval_handling_mode": '"string"', "hstore_handling_mode": '"map"'}, False),
    "rows": ({"snapshot.mode": "initial", **unwrap("tombstone"),
              "transforms.unwrap.add.fields": "op,source.snapshot,lsn,txId,sequence,source.ts_ms,table"},
             {"snapshot__mode": '"initial"', "format": '"row"', "row__delete_tombstone_handling_mode": '"tombstone"',
              "row__add_fields": '["op", "source.snapshot", "lsn", "txId", "sequence", "source.ts_ms", "table"]'}, True),
}


def setup():
    yield "CREATE TABLE empty_first (id int PRIMARY KEY, v text)"
    yield from cases.setup()
    yield "CREATE TABLE empty (id int PRIMARY KEY, v text)"
    yield "CREATE TABLE generated (id int PRIMARY KEY, v int GENERATED ALWAYS AS (id * 2) STORED, w text)"
    yield "CREATE TABLE moved_key (v text, b int, w text, a int, PRIMARY KEY (a, b))"
    yield ("CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
           "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)")
    yield ("CREATE TABLE deep (a int, b int, v text, PRIMARY KEY (a, b)) PARTITION BY LIST (a);"
           "CREATE TABLE deep1 PARTITION OF deep FOR VALUES IN (1) PARTITION BY LIST (b);"
           "CREATE TABLE deep1a PARTITION OF deep1 FOR VALUES IN (1); CREATE TABLE deep1b PARTITION OF deep1 FOR VALUES IN (2);"
           "CREATE TABLE deep2 PARTITION OF deep FOR VALUES IN (2)")
    yield "CREATE TABLE signal (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))"
    for group, columns in cases.GROUPS.items():
        yield from cases.rows(group, columns, group)
    for table in cases.IDENTITIES:
        yield f"INSERT INTO {table} VALUES (1, 'one', NULL), (3, 'three', 'y'), (2, 'two', 'x')"
        yield f"UPDATE {table} SET c = 'changed' WHERE a = 3"
    yield f"INSERT INTO large VALUES (1, 1, {', '.join(value for _, _, value in cases.LARGE)}), (2, 2)".replace("(2, 2)", f"(2, 2{', NULL' * len(cases.LARGE)})")
    yield "INSERT INTO generated (id, w) VALUES (1, 'x'), (2, NULL)"
    yield "INSERT INTO moved_key VALUES ('x', 2, NULL, 1), ('y', 1, 'w', 2), ('z', 1, 'w', 1)"
    yield "INSERT INTO p VALUES (1, 'one'), (11, 'eleven'), (2, 'two'); INSERT INTO deep VALUES (2, 9, 'x'), (1, 2, 'y'), (1, 1, 'z')"
    yield "INSERT INTO churned SELECT i, 'w' || i, i FROM generate_series(1, 30) i"
    yield "INSERT INTO last VALUES (1)"


class Run:
    """Both programs, once for each variant, on one database; then signals, which ask both for tables again."""

    def __init__(self, folder):
        self.database = Database()
        theirs = []
        for name, (options, _, by_root) in VARIANTS.items():
            tables = [*TABLES, *(PARTED if by_root else LEAVES), "churned"]
            theirs.append((self._prefix("dbz", name), {
                "extended.headers.enabled": "false", "publication.name": self._publication(by_root), "snapshot.max.threads": 1,
                "table.include.list": ",".join(f"public.{table}".replace('"', "") for table in tables),
                "signal.data.collection": "public.signal", **options}))
        self.connect = connect.Connect(self.database, folder, *theirs[0], more=theirs[1:])
        self.ours = {}
        for name, (_, options, by_root) in VARIANTS.items():
            place = folder / name
            place.mkdir()
            self.ours[name] = Millrace(self.database, place, [*TABLES, *(PARTED if by_root else LEAVES), "churned"], types='"debezium"', **{
                "key_columns": '["public.moved_key:a,b"]',  # the order of its primary key
                "topic_prefix": json.dumps(self._prefix("mr", name)), "snapshot__signal_table": '"public.signal"', "snapshot__signal_conditions": '"any_role"',
                "source__postgres__publication_name": json.dumps(self._publication(by_root)),
                "source__postgres__slot_name": json.dumps(f"{self.database.slot}_{name}"), **options})

    def _prefix(self, program, name):
        return f"{self.database.prefix}{program}{name}"

    def _publication(self, by_root):
        return self.database.publication + ("_root" if by_root else "")

    def go(self):
        database = self.database
        for statement in setup():
            database.run(statement)
        database.run(f"CREATE PUBLICATION {self._publication(False)} FOR ALL TABLES")
        database.run(f"CREATE PUBLICATION {self._publication(True)} FOR ALL TABLES WITH (publish_via_partition_root = true)")
        self.connect.start()
        for name, millrace in self.ours.items():
            millrace.start()
        assert self.ours["only"].ended(60) == 0
        for name, millrace in self.ours.items():
            if name != "only":
                millrace.streaming()
        prefixes = {name: (self._prefix("dbz", name), self._prefix("mr", name)) for name in VARIANTS}

        def copied():
            assert self.connect.process.poll() is None, self.connect.said()
            topics = set(database.topics())
            return all(f"{prefix}.public.churned" in topics for pair in prefixes.values() for prefix in pair)
        eventually(copied, 200, "the last table of all")
        streamed = [slot for slot, name in zip(self.connect.slots, VARIANTS) if name != "only"]
        eventually(lambda: database.is_streamed(*streamed), 60, "Debezium's stream")
        database.run("INSERT INTO moved_key VALUES ('n', 5, NULL, 6); UPDATE moved_key SET w = 'changed' WHERE a = 2;"
                     "UPDATE moved_key SET a = 7 WHERE a = 6; DELETE FROM moved_key WHERE a = 7; INSERT INTO p VALUES (3, 'three')")
        database.run("INSERT INTO signal VALUES ('again', 'execute-snapshot', %s)", [json.dumps(SIGNAL)])
        for millrace in self.ours.values():
            if millrace.process.poll() is None:
                millrace.wait_for("incremental_done", times=len(SIGNALLED))
        for name, pair in prefixes.items():
            if name != "only":
                for prefix in pair:
                    source = Topic(f"{prefix}.public.churned")
                    source.take(40)
                    source.close()
        return {name: [Records(database, prefix) for prefix in pair] for name, pair in prefixes.items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    yield from connect.both(Run(tmp_path_factory.mktemp("rows")))


@pytest.mark.parametrize("variant", VARIANTS)
def test_debezium_rows_equal(both, variant):
    theirs, ours = both[variant]
    theirs.by_topic.pop("public.signal", None)  # rows of it are no events here
    wrong = [f"topics {sorted(theirs.by_topic)} {sorted(ours.by_topic)}"] \
        if sorted(theirs.by_topic) != sorted(ours.by_topic) else []
    compared = 0
    marks = set()
    for topic, expected in theirs.by_topic.items():
        found = ours.by_topic.get(topic, [])
        if len(found) != len(expected):
            wrong.append(f"{topic}: Debezium has {len(expected)} records, millrace {len(found)}")
        for at, (left, right) in enumerate(zip(expected, found)):
            wrong += apart(topic, at, left, right)
            compared += 1
            if right.value not in (None, "null"):
                parts = Neutral(right).parts()
                marks.add(parts.get("source.snapshot", parts.get("after.__source_snapshot")))
    assert not wrong, f"{len(wrong)} differences in {compared} records:\n" + "\n".join(wrong)
    assert compared >= (114 if variant == "only" else 175)
    streamed = {"initial": {"incremental", "false"}, "only": set(), "rows": {"incremental", None}}[variant]
    assert marks == {"first", "first_in_data_collection", "true", "last_in_data_collection", "last"} | streamed


def test_the_judge_of_rows_sees(both):
    """A wrong mark, value, key or order of columns is told of, also beside what differs by choice."""
    theirs, ours = both["initial"]
    for topic, at in [("public.texts", 1), ("public.times", 3), ("public.generated", 0), ("public.numbers", 0)]:
        left, right = theirs.by_topic[topic][at], ours.by_topic[topic][at]
        assert not list(apart(topic, at, left, right))
        for name, fault in [("key", '{"id":0}'), ("value", right.value.replace('"op":"r"', '"op":"c"')), ("value", None),
                            ("value", right.value.replace('"db":', '"dB":')), ("value", right.value.replace('"id":', '"id":1')),
                            ("value", right.value.replace('"snapshot":"true"', '"snapshot":"last"'))]:
            if fault != getattr(right, name):
                changed = type("Changed", (), {"key": right.key, "value": right.value, "headers": right.headers, name: fault})
                assert list(apart(topic, at, left, changed)), (topic, name, fault)
