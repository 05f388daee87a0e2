"""Resolved markers (docs/consumers.md): what one promises, judged by the commits that test_decoding, another output plugin, saw; and the examples
that build a view across topics from them."""

import contextlib
import json
import os
import random
import re
import sqlite3
import subprocess
import sys

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions

from endless import Endless
from kit import BOOTSTRAP, CLIENT, Millrace, Record, eventually, expect

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "examples")
DELIVERIES = pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
KILLS = 5
TABLE = "CREATE TABLE {} (id int PRIMARY KEY, n bigint NOT NULL)"
TABLES = "CREATE SEQUENCE ids START 1000; CREATE SEQUENCE ns; " + "; ".join(TABLE.format(t) for t in "abq")


QUICK = '{ "topic.metadata.refresh.interval.ms" = "200" }'  # partitions that were added are seen soon


class Writers(Endless):
    """Transactions over several tables, some of which are rolled back. Each change that commits has a number of its own."""

    def __init__(self, database):
        self.database, self.tables, self.written = database, ["a", "b"], 0
        super().__init__(database, self._write, 3)

    def _write(self, connection, number_of):
        chance, connection.autocommit = random.Random(number_of), False
        while True:
            for _ in range(chance.randint(1, 6)):
                table = chance.choice(self.tables)
                if chance.random() < 0.6:
                    connection.execute(f"INSERT INTO {table} VALUES (nextval('ids'), nextval('ns'))")
                else:
                    connection.execute(f"UPDATE {table} SET n = nextval('ns') WHERE id = %s", [chance.randint(1, 50)])
            if chance.random() < 0.2:
                connection.rollback()
            else:
                try:
                    connection.commit()
                    self.written += 1
                except psycopg.errors.DeadlockDetected:
                    connection.rollback()
            yield

    def finish(self):
        self.end()
        return self.database.run("SELECT pg_current_wal_lsn()::text")[0][0]


def number(lsn):
    """Of PostgreSQL's text."""
    high, low = lsn.split("/")
    return int(high, 16) << 32 | int(low, 16)


def commits(database, slot):
    """{number of a change: end of the commit that it is in}, by test_decoding."""
    ends, changes = {}, []
    for lsn, text in database.run("SELECT lsn::text, data FROM pg_logical_slot_get_changes(%s, NULL, NULL)", [slot]):
        change = re.search(r"^table .* n\[bigint\]:(\d+)", text)
        if change:
            changes.append(int(change[1]))
        elif text.startswith("COMMIT"):
            ends.update((change, number(lsn)) for change in changes)
            changes = []
    return ends


class Reader:
    """All partitions of topics, each in its order."""

    def __init__(self, database, tables):
        self.topics = [database.topic(table) for table in tables]
        self.consumer = Consumer({**CLIENT, "group.id": "r", "isolation.level": "read_committed"})
        self.partitions = {}
        for topic in self.topics:
            for p in self.consumer.list_topics(topic, timeout=10).topics[topic].partitions:
                self.partitions[topic, p] = []
        self.consumer.assign([TopicPartition(topic, p, 0) for topic, p in self.partitions])

    def read(self):
        for message in self.consumer.consume(5000, timeout=0.3):
            if message.error() is None:
                self.partitions[message.topic(), message.partition()].append(Record(message))

    def cut(self):
        """What the markers that were read say of all partitions together; 0: nothing yet."""
        self.read()
        marks, counts = {}, {}
        for (topic, p), records in self.partitions.items():
            for headers in (record.headers for record in records if "mr-resolved" in record.headers):
                marks[topic, p] = int(headers["mr-resolved"], 16)
                counts[topic] = max(counts.get(topic, 0), int(headers["mr-partitions"]))
        wanted = [(topic, p) for topic in self.topics for p in range(counts.get(topic, 0))]
        whole = all(counts.get(topic) for topic in self.topics) and set(wanted) <= set(marks)
        return min(marks[one] for one in wanted) if whole else 0


def judge(partitions, ends):
    """The changes that the partitions have. In each, no change comes for the first time below a marker that promised it."""
    found = set()
    for place, records in partitions.items():
        promised, here = 0, set()
        for record in records:
            if "mr-resolved" in record.headers:
                assert record.json == {"resolved": record.headers["mr-resolved"], "partitions": int(record.headers["mr-partitions"])}
                promised = max(promised, int(record.headers["mr-resolved"], 16))
            elif record.json["op"] == "r":
                assert int(record.position[:16], 16) >= promised - 1, f"{place}: a copied row below what a marker promised"
            else:
                change = record.json["after"]["n"]
                assert change in here or ends[change] > promised, f"{place}: change {change} below the marker that promised it"
                here.add(change)
        found |= here
    return found


@DELIVERIES
def test_no_marker_promises_what_is_not_above_it(database, pair, delivery):
    """Under load: kills, takeovers by a second instance, added partitions, a new table, a quiet one, copies before and beside."""
    database.run(TABLES + "; INSERT INTO b SELECT n, nextval('ns') FROM generate_series(1, 50) n; INSERT INTO q VALUES (1, 0);"
                 f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    witness = database.slot + "_witness"
    database.run("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [witness])
    database.make_topic("a", partitions=3)
    database.make_topic("b")
    instances = pair(resolved__interval='"100ms"', snapshot__mode='"initial"', sink__kafka__delivery=f'"{delivery}"',
                     sink__kafka__properties=QUICK)
    instances[0].start().streaming()
    writers = Writers(database)
    for kill in range(KILLS):
        active, standby = instances[kill % 2], instances[(kill + 1) % 2]
        writers.more(300)
        if kill == 1:
            database.run(TABLE.format("c"))
            writers.tables.append("c")
        if kill == 2:
            new = database.admin.create_partitions([NewPartitions(database.topic("b"), 4)])
            eventually(lambda new=new: new[database.topic("b")].result(10) is None, 30, "more partitions")
            assert active.get("/api/snapshot", method="POST", body='{"type":"start","tables":["public.b"]}').status == 200
            writers.more(300)
        standby.start()
        active.kill()
        standby.streaming()
    writers.more(300)
    end = number(writers.finish())
    reader = Reader(database, "abcq")
    assert len(reader.partitions) == 3 + 4 + 1 + 1
    eventually(lambda: reader.cut() >= end, 60, "markers for all that was written")
    ends = commits(database, witness)
    assert len(ends) > 100 * KILLS
    found = judge(reader.partitions, ends)
    assert found == set(ends)
    assert all(sum("mr-resolved" in record.headers for record in records) > 1 for records in reader.partitions.values())
    assert instances[KILLS % 2].stop() == 0
    reader.consumer.close()
    judge_finds_what_is_wrong(reader.partitions, ends)


def judge_finds_what_is_wrong(partitions, ends):
    """A marker before a change that it promises: the judge must not believe it."""
    for place, records in partitions.items():
        changes = {}
        for record in records:
            if "mr-resolved" in record.headers:
                promised = [at for change, at in changes.items() if ends[change] <= int(record.headers["mr-resolved"], 16)]
                if promised:
                    with pytest.raises(AssertionError, match="promised"):
                        judge({place: [*records[:promised[-1]], record, *records[promised[-1]:]]}, ends)
                    return
            elif record.json["op"] != "r":
                changes.setdefault(record.json["after"]["n"], records.index(record))
    raise AssertionError("no marker promises a change")


def test_nothing_without_the_option_and_only_for_kafka(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (2)")
    reader = topic(database.topic("t"))
    assert [record.headers.get("mr-resolved") for record in reader.take(1)] == [None]
    assert process.stop() == 0
    process.configure(resolved__interval='"1s"', sink__kafka__brokers=None, sink__type='"discard"')
    expect(process.run_to_end(), 78, "resolved.interval")
    assert reader.read() == []


def test_a_quiet_server_gets_no_more_of_them(database, millrace, topic):
    """What is new to say is an LSN or a partition; an empty topic has its marker all the same."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(resolved__interval='"100ms"').start().streaming()
    eventually(lambda: database.topic("t") in database.topics(), what="the topic of a table without rows")
    reader = topic(database.topic("t"))
    marker = reader.take(1)[0]
    assert marker.json_key == {"mr-resolved": True} and re.fullmatch("[0-9A-F]{16}", marker.headers["mr-resolved"])
    records = []
    eventually(lambda: records.extend(reader.read(2)) or len(records) < 25, what="quiet", limit_s=1)
    lsns = [record.headers["mr-resolved"] for record in records]
    assert lsns == sorted(lsns) and len(records) <= len(set(lsns)) + 1, lsns


class View:
    """An example at work, and what it has: {topic of a table: {id: balance}}, of one moment."""

    def __init__(self, language, folder, topics):
        self.language, self.path = language, str(folder / "view")
        if language == "python":
            command = [sys.executable, os.path.join(EXAMPLES, "consistent_view.py"), BOOTSTRAP, self.path, *topics]
        else:
            classes = os.path.join(os.environ["MILLRACE_TOOLS_DIR"], "kafka", "libs", "*")
            source = os.path.join(EXAMPLES, "consumers", "ConsistentView.java")
            subprocess.run(["javac", "-Xlint:all", "-Werror", "-cp", classes, "-d", str(folder), source], check=True)
            command = ["java", "-XX:+UseSerialGC", "-cp", f"{folder}:{classes}", "ConsistentView", BOOTSTRAP, self.path, *topics]
        self.process = subprocess.Popen(command)

    def close(self):
        self.process.kill()
        self.process.wait()

    def read(self):
        """Its cut, and its rows."""
        assert self.process.poll() is None
        if not os.path.exists(self.path):
            return 0, []
        if self.language == "python":
            store = sqlite3.connect(self.path)
            try:
                rows = store.execute("SELECT lsn, row FROM cut LEFT JOIN view ON true").fetchall()
            except sqlite3.OperationalError:
                return 0, []  # it is just being made
            finally:
                store.close()
            return (int(rows[0][0], 16) if rows else 0), [json.loads(row) for _, row in rows if row]
        with open(self.path, encoding="utf-8") as file:
            cut, *lines = file.read().splitlines()
        return int(cut, 16), [json.loads(line.split("\t")[2])["after"] for line in lines]


class Money:
    """Moves between accounts of two tables; its sum is the same at each moment."""

    def __init__(self, database):
        database.run("CREATE TABLE a (id int PRIMARY KEY, balance int); CREATE TABLE b (LIKE a INCLUDING ALL)")
        self.database, self.cuts = database, set()

    def put(self):
        """The first of it, after the stream has begun."""
        self.database.run("; ".join(f"INSERT INTO {table} SELECT n, 100 FROM generate_series(1, 20) n" for table in "ab"))

    @staticmethod
    def move(connection, _):
        chance = random.Random(1)
        while True:
            a, b, amount = chance.randint(1, 20), chance.randint(1, 20), chance.randint(-50, 50)
            with connection.transaction():
                connection.execute("UPDATE a SET balance = balance - %s WHERE id = %s", [amount, a])
                connection.execute("UPDATE b SET balance = balance + %s WHERE id = %s", [amount, b])
            yield 0.001

    def seen(self, view, count):
        """Whether the view has been that of so many moments. Each must have all of the money, or none before it was put."""
        cut, rows = view.read()
        whole = len(rows) == 40 and sum(row["balance"] for row in rows) == 4000
        assert whole or not rows and not self.cuts, (cut, rows)
        if whole:
            self.cuts.add(cut)
        return len(self.cuts) >= count

    def all_seen(self, view):
        """Nothing moves any more."""
        end = number(self.database.run("SELECT pg_current_wal_lsn()::text")[0][0])
        eventually(lambda: self.seen(view, 1) and max(self.cuts) >= end, 60, "the last cut")
        rows = sorted(self.database.run("SELECT id, balance FROM a UNION ALL SELECT id, balance FROM b"))
        assert sorted((row["id"], row["balance"]) for row in view.read()[1]) == rows


@pytest.mark.parametrize("language", ["python", "java"])
def test_a_view_across_topics_is_that_of_one_moment(database, millrace, tmp_path, language):
    """Also after a kill, and while partitions are added."""
    money = Money(database)
    database.make_topic("a", partitions=2)
    database.make_topic("b")
    process = millrace(tables=("a", "b"), resolved__interval='"50ms"', sink__kafka__properties=QUICK).start().streaming()
    money.put()
    with contextlib.closing(View(language, tmp_path, [database.topic("a"), database.topic("b")])) as view:
        with Endless(database, money.move):
            eventually(lambda: money.seen(view, 10), 60, "cuts")
            process.kill().start().streaming()
            new = database.admin.create_partitions([NewPartitions(database.topic("b"), 3)])
            eventually(lambda: new[database.topic("b")].result(10) is None, 30, "more partitions")
            eventually(lambda: money.seen(view, 30), 60, "more cuts")
        money.all_seen(view)


@DELIVERIES
def test_a_stream_that_is_split_between_two_slots_is_one_view(database, millrace, topic, tmp_path, delivery):
    """By a copy of the slot: no row is lost, none comes twice, and markers put the transactions together again (docs/sizing.md)."""
    money = Money(database)
    options = {"resolved__interval": '"50ms"', "sink__kafka__properties": QUICK, "sink__kafka__delivery": json.dumps(delivery)}
    first = millrace(tables=("a", "b"), **options).start().streaming()
    money.put()
    database.run(f"CREATE PUBLICATION {database.publication}_b FOR TABLE b")
    with contextlib.closing(View("python", tmp_path, [database.topic("a"), database.topic("b")])) as view:
        with Endless(database, money.move):
            eventually(lambda: money.seen(view, 10), 60, "cuts")  # so it is past the publication
            assert first.stop() == 0
            database.run("SELECT pg_copy_logical_replication_slot(%s, %s)", [database.slot, database.slot + "_b"])
            database.run(f"ALTER PUBLICATION {database.publication} DROP TABLE b")
            first.tables = ("a",)
            first.configure(**options).start().streaming()
            (tmp_path / "b").mkdir()
            second = Millrace(database, tmp_path / "b", ("b",), **options, source__postgres__slot_name=json.dumps(database.slot + "_b"),
                              source__postgres__publication_name=json.dumps(database.publication + "_b"))
            try:
                second.start().streaming()
                eventually(lambda: money.seen(view, 30), 60, "more cuts")
            except BaseException:
                second.kill()
                raise
        try:
            money.all_seen(view)
            assert first.stop() == 0 and second.stop() == 0
        finally:
            second.kill()
    for table in "ab":
        reader, places = topic(database.topic(table)), []
        while records := reader.read(1):
            places += [record.position for record in records if "mr-resolved" not in record.headers]
        assert len(places) == len(set(places)) > 20, "a record comes twice"
