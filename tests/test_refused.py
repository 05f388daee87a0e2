"""Messages of outbox.messages that their topic refuses, many of them between good ones. Any role that connects can write one: it is
dropped or has another time, no good one goes with it, and the stream is not held up."""
# pylint: disable=redefined-outer-name  # fixtures
import collections
import itertools
import json
import os
import random

import pytest

from kit import batches_on_disk, connect, eventually, read_whole, set_topic

pytestmark = pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])


class Outbox:
    """A pipeline with a table beside its messages, whose topic is `topic`."""

    def __init__(self, database, millrace, delivery, config, **options):
        self.database = database
        self.topic = f"{database.prefix}.x"
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        database.create_topic(self.topic, 1, config)
        database.create_topic(database.topic("t"))
        self.process = millrace(outbox__messages='"outbox"', outbox__topic=json.dumps(f"{database.prefix}.$1"), outbox__timestamp='"ts"',
                                sink__kafka__delivery=json.dumps(delivery), **options).start().streaming()

    def write(self, messages, rows_every=20):
        """Each in a transaction of its own, {field: value}; and now and then a row."""
        with connect(self.database.name) as connection:
            for i, message in enumerate(messages):
                whole = {"id": i, "aggregatetype": "x", "aggregateid": None, "payload": "p", **message}
                connection.execute("SELECT pg_logical_emit_message(true, 'outbox', %s)", [json.dumps(whole)])
                if i % rows_every == 0:
                    connection.execute("INSERT INTO t VALUES (%s) ON CONFLICT DO NOTHING", [i])

    def write_while(self, waits, messages):
        """Into the stream, or (`waits`) into a backlog."""
        if waits:
            assert self.process.stop() == 0
        self.write(messages)
        if waits:
            self.process.start().streaming()

    def records(self, name):
        return read_whole(self.database.admin, [name])[name]

    def numbers(self):
        """What each message's payload begins with, as they came."""
        return [int(record.value.split()[0]) for record in self.records(self.topic)]

    def wait_for(self, last):
        """The number of the last message; a process that has ended sends none."""
        eventually(lambda: self.process.process.poll() is not None or last in self.numbers(), 90)
        assert self.process.process.poll() is None, self.process.lines[-3:]

    def rows(self):
        return [record.json["after"]["id"] for record in self.records(self.database.topic("t"))]

    def lost(self):
        return [line["message"] for line in self.process.log("sink_session_lost")]


def assert_in_order(numbers, expected, delivery):
    """As often as sessions sent them, and in order within each."""
    assert sorted(set(numbers)) == expected
    first = list(dict.fromkeys(numbers))
    assert first == expected
    if delivery == "exactly-once":
        assert numbers == expected


@pytest.mark.parametrize("waits", [False, True], ids=["streaming", "backlog"])
def test_no_good_message_goes_with_one_of_another_time(database, millrace, delivery, waits):
    """Without keys, in a topic that is not compacted: it was taken for one, because the time of one was refused."""
    outbox = Outbox(database, millrace, delivery, {"message.timestamp.before.max.ms": "3600000"})
    count = 2000
    messages = [{"payload": str(i), "ts": "2020-01-01T00:00:00Z" if i % 2 else None} for i in range(count)]
    outbox.write_while(waits, messages)
    outbox.wait_for(count - 1)
    assert_in_order(outbox.numbers(), list(range(count)), delivery)
    assert not outbox.process.log("outbox_message_dropped")
    assert len(outbox.lost()) <= 2, outbox.lost()


def test_messages_without_keys_and_of_another_time(database, millrace, delivery):
    """The topic is compacted, keys and times are refused in turns."""
    outbox = Outbox(database, millrace, delivery, {"cleanup.policy": "compact", "message.timestamp.before.max.ms": "3600000"})
    count = 300
    outbox.write([{"payload": str(i), "aggregateid": None if i % 3 == 1 else "k", "ts": "2020-01-01T00:00:00Z" if i % 3 == 2 else None}
                  for i in range(count)])
    outbox.wait_for(count - 1)
    assert_in_order(outbox.numbers(), [i for i in range(count) if i % 3 != 1], delivery)
    assert len(outbox.lost()) <= 4, outbox.lost()


@pytest.mark.parametrize("waits", [False, True], ids=["streaming", "backlog"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_messages_larger_than_their_topic_takes(database, millrace, delivery, codec, waits):
    """Digits at random are too large with each codec; what is larger, and small when it is compressed, comes."""
    outbox = Outbox(database, millrace, delivery, {"max.message.bytes": "3000"}, sink__kafka__compression=json.dumps(codec))
    count = 600
    messages = [{"payload": f"{i} {os.urandom(4000 + i).hex() if i % 2 else 'y' * 6000 if i % 20 == 4 else ''}"} for i in range(count)]
    outbox.write_while(waits, messages)
    outbox.wait_for(count - 2)
    came = [i for i in range(0, count, 2) if codec != "none" or i % 20 != 4]
    assert_in_order(outbox.numbers(), came, delivery)
    assert len(outbox.lost()) <= 2, outbox.lost()
    rows = outbox.rows()
    assert sorted(set(rows)) == list(range(0, count, 20))
    most = max(collections.Counter(rows).values())
    assert most <= (1 if delivery == "exactly-once" else 3), collections.Counter(rows)
    assert outbox.process.log("message_dropped") and outbox.process.stop() == 0


def sizes_on_disk(topic):
    """Those of transactions' ends left out."""
    return [batch.bytes for batch in batches_on_disk(topic) if not batch.is_control]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_message_that_fits_compressed_comes(database, millrace, delivery, codec):
    """Whether it does, is told by the codec that sends it: of four letters at random one makes half as much again as another."""
    letters = "".join(random.Random(1).choices("ACGT", k=60000))
    outbox = Outbox(database, millrace, delivery, {}, sink__kafka__compression=json.dumps(codec))
    outbox.write([{"payload": f"0 {letters}"}])
    outbox.wait_for(0)
    set_topic(database.admin, outbox.topic, "max.message.bytes", max(sizes_on_disk(outbox.topic)) + 64)
    outbox.write([{"payload": f"1 {os.urandom(60000).hex()}"}, {"payload": f"2 {letters}"}, {"payload": "3"}])
    outbox.wait_for(3)
    assert_in_order(outbox.numbers(), [0, 2, 3], delivery)
    assert len(outbox.process.log("message_dropped")) == 1 and len(outbox.lost()) <= 2, outbox.lost()


@pytest.mark.parametrize("headers", ["true", "false"])
def test_a_message_as_large_as_its_topic_takes(database, millrace, delivery, headers):
    """To the byte: of messages of each size around it, none is dropped that fits, and none that does not is tried."""
    most = 3000
    outbox = Outbox(database, millrace, delivery, {"max.message.bytes": str(most)}, sink__kafka__compression='"none"',
                    sink__kafka__headers=headers)
    outbox.write([{"payload": f"0 {'y' * most}"}, {"payload": "1"}])
    outbox.wait_for(1)
    assert len(outbox.lost()) == 1
    sizes = range(most - 300, most + 1)
    outbox.write([{"payload": f"{size} {'y' * (size - 5)}", "aggregateid": "k"} for size in sizes] + [{"payload": "2"}])
    outbox.wait_for(2)
    assert max(sizes_on_disk(outbox.topic)) == most and len(outbox.lost()) == 1, outbox.lost()
    numbers = outbox.numbers()[1:-1]
    assert numbers == list(range(sizes[0], sizes[0] + len(numbers))) and 0 < len(numbers) < len(sizes)


def test_topics_of_many_tables_take_less(database, millrace, delivery):
    """What they take is learned of all that refuse at once: each topic cost a session or two, a second each, and what is sent again grew."""
    tables, rows = [f"t{i}" for i in range(20)], 100
    for table in tables:
        database.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
        database.make_topic(table, 1, {"max.message.bytes": "4000"})
    process = millrace(tables, sink__kafka__delivery=json.dumps(delivery), sink__kafka__compression='"none"').start().streaming()
    assert process.stop() == 0
    database.run(";".join(f"INSERT INTO {table} SELECT n, repeat('x', 300) FROM generate_series(1, {rows}) n" for table in tables))
    process.start().streaming()
    database.all_confirmed(90)
    lost = [line["message"] for line in process.log("sink_session_lost")]
    assert 1 <= len(lost) <= 5 and all("its requests are smaller from now on" in text for text in lost), lost
    for records in read_whole(database.admin, [database.topic(table) for table in tables]).values():
        assert_in_order([record.json_key["id"] for record in records], list(range(1, rows + 1)), delivery)


def test_a_topic_that_takes_more_again(database, millrace, delivery):
    """Its requests grow again within a minute; they stayed small until a restart, and so did what a partition took in a second."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.make_topic("t", 1, {"max.message.bytes": "4000"})
    topic, numbers = database.topic("t"), itertools.count(1)
    process = millrace(sink__kafka__delivery=json.dumps(delivery), sink__kafka__compression='"none"').start().streaming()

    def largest():
        first = next(numbers) * 100
        database.run("INSERT INTO t SELECT n, repeat('x', 300) FROM generate_series(%s::int, %s::int) n", [first, first + 99])
        return max(sizes_on_disk(topic), default=0)
    eventually(lambda: largest() > 2000 and process.log("sink_session_lost"), 90, "smaller requests")
    assert largest() <= 4000
    set_topic(database.admin, topic, "max.message.bytes", 1000000)
    eventually(lambda: largest() > 8000, 120, "larger requests")
    assert process.stop() == 0 and len(process.log("sink_session_lost")) == 1
    records = read_whole(database.admin, [topic])[topic]
    assert_in_order([record.json_key["id"] for record in records], list(range(100, next(numbers) * 100)), delivery)
