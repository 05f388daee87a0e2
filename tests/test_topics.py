"""Topics and partitions: made together, waited for, changed and deleted under load, one slower than the others; a reader that
stands still."""

import array
import collections
import fcntl
import signal
import subprocess
import termios
import time

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from kit import BINARY, Millrace, eventually
from ledger import TABLE, Writers, size

TABLES = 40
DELIVERIES = pytest.mark.parametrize("options", [{}, {"sink__kafka__delivery": '"exactly-once"'}],
                                     ids=["at-least-once", "exactly-once"])


def test_several_partitions_under_load(database, millrace, topic):
    """Batches come home in any order, the slot is confirmed in one."""
    database.run(TABLE)
    database.make_topic("t", partitions=12)
    changes = size("MILLRACE_TEST_CHANGES", 100000) // 2
    process = millrace().start().streaming()
    writers = Writers(database, count=8, rows_each=changes // 8).start()
    writers.finish()
    records = topic(database.topic("t")).take(changes // 8 * 8, 300)
    keys = {(record.json_key["writer"], record.json_key["n"]) for record in records}
    assert keys == {(w, n + 1) for w in range(8) for n in range(changes // 8)}
    highest = {}
    for record in records:
        assert record.position > highest.get(record.partition, "")
        highest[record.partition] = record.position
    assert len(highest) == 12


def written(database):
    return database.run("SELECT count(*) FROM t")[0][0]


def write_more(database, rows=2000):
    before = written(database)
    eventually(lambda: written(database) > before + rows, 60, "more rows")


def limit_records(database, name, operation):
    """Each record is too old, and the session ends."""
    entry = ConfigEntry("message.timestamp.before.max.ms", "1", incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    eventually(lambda: database.admin.incremental_alter_configs([resource])[resource].result(10) is None, 30, "the topic's limit")


def keys(records):
    return [(record.json_key["writer"], record.json_key["n"]) for record in records]


def delete(database, topic):
    eventually(lambda: database.admin.delete_topics([topic])[topic].result(10) is None, 30, f"the end of {topic}")


def add_partitions(database, name, count):
    eventually(lambda: database.admin.create_partitions([NewPartitions(name, count)])[name].result(10) is None, 30, "more partitions")


def test_partitions_are_added_under_load(database, millrace, topic):
    """Exactly once."""
    database.run(TABLE)
    name = database.make_topic("t")
    process = millrace(sink__kafka__delivery='"exactly-once"', sink__kafka__properties='{ "topic.metadata.refresh.interval.ms" = "200" }').start().streaming()
    writers = Writers(database, count=3).start()
    for count in (2, 5, 12):
        write_more(database)
        add_partitions(database, name, count)
    # The brokers tell of them a little later, and a reader asks once.
    eventually(lambda: len(database.admin.list_topics(name, timeout=5).topics[name].partitions) == 12, 30, "12 partitions")
    reader = topic(name)
    records = []

    def spread():
        records.extend(reader.read())
        return len({record.partition for record in records}) == 12
    eventually(spread, 150, "rows in all partitions")
    writers.finish()
    records += reader.take(written(database) - len(records))
    assert len(set(keys(records))) == len(records)
    assert reader.read() == []


def lose_session(process, database, name):
    lost = len(process.log("sink_session_lost"))
    limit_records(database, name, AlterConfigOpType.SET)
    process.wait_for("sink_session_lost", times=lost + 1)
    limit_records(database, name, AlterConfigOpType.DELETE)


def kill(process, *_):
    process.kill().start().streaming()


@pytest.mark.parametrize("lose", [lose_session, kill])
def test_partitions_are_added_and_what_was_sent_comes_again(database, millrace, topic, lose):
    """At least once: who keeps the highest position of each partition has each change once, whenever partitions were added."""
    database.run(TABLE)
    name = database.make_topic("t", partitions=2)
    process = millrace(pipeline__status_interval='"300ms"',
                       sink__kafka__properties='{ "topic.metadata.refresh.interval.ms" = "200" }').start().streaming()
    writers = Writers(database, count=4).start()
    write_more(database)
    add_partitions(database, name, 3)
    lose(process, database, name)  # before they are used
    process.wait_for("partitions_added")
    write_more(database)
    lose(process, database, name)
    for count in (5, 9):
        write_more(database)
        seen = len(process.log("partitions_added"))
        add_partitions(database, name, count)
        process.wait_for("partitions_added", times=seen + 1)
        lose(process, database, name)  # the moment they are
        write_more(database)
        lose(process, database, name)
    process.kill()
    add_partitions(database, name, 12)  # while it is down
    process.start().streaming()
    reader, highest, taken, records = topic(name), {}, [], []

    def read():
        for record in reader.read():
            records.append(record)
            if record.position > highest.get(record.partition, ""):
                highest[record.partition] = record.position
                taken.append(record)
        return len(highest) == 12
    eventually(read, 120, "rows in all partitions")
    writers.finish()
    eventually(lambda: read() and len(taken) >= written(database), 120, "each change")
    assert process.stop() == 0
    read()
    assert len(records) > len(taken), "no repeats: the test has lost nothing in flight"
    assert len(taken) == len(set(keys(taken))) == written(database)


def test_the_cause_of_a_failed_transaction_is_told(database, millrace):
    """What waits is purged for it, and may be reported first."""
    database.run(TABLE)
    database.make_topic("t", partitions=6, config={"message.timestamp.before.max.ms": "1000"})
    process = millrace(sink__kafka__delivery='"exactly-once"').start().streaming()
    assert process.stop() == 0
    database.run("INSERT INTO t SELECT 1, g, repeat('x', 60) FROM generate_series(1, 20000) g")
    time.sleep(1.5)
    process.start()
    # The transaction's error names it, or a record's does, whichever is reported first.
    eventually(lambda: any(cause in "".join(process.lines) for cause in ("INVALID_TIMESTAMP", "takes no record that is")), what="the cause")
    process.process.send_signal(signal.SIGTERM)
    process.ended(60)
    assert "PURGE" not in "".join(process.lines)


@DELIVERIES
def test_a_topic_is_deleted_under_load(database, millrace, topic, options):
    """What was in it is gone. From the first row that is in the new one on none is missing."""
    database.run(TABLE)
    name = database.make_topic("t")
    process = millrace(**options).start().streaming()
    writers = Writers(database, count=3).start()
    write_more(database)
    delete(database, name)
    write_more(database)
    eventually(lambda: name in database.topics(), 60, "the topic anew")
    writers.finish()
    last = dict(database.run("SELECT writer, max(n) FROM t GROUP BY writer"))
    reader, found = topic(name), []

    def there():
        found.extend(keys(reader.read()))
        return set(last.items()) <= set(found)
    eventually(there, 120, "the last rows")
    for writer, newest in last.items():
        numbers = {n for other, n in found if other == writer}
        assert len(numbers) == newest - min(numbers) + 1
    if options:
        assert len(set(found)) == len(found)


@DELIVERIES
def test_the_state_topic_is_deleted_under_load(database, millrace, topic, options):
    """What was on its way there is sent again, with what had been stored; the next start goes on from what is stored anew."""
    database.run(TABLE)
    name, state = database.make_topic("t"), f"{database.name}-state"
    process = millrace(**options, sink__kafka__state_topic=f'"{state}"').start().streaming()
    writers = Writers(database, count=3).start()
    write_more(database)
    delete(database, state)
    write_more(database)
    writers.finish()
    reader, found = topic(name), []

    def there():
        found.extend(keys(reader.read()))
        return len(set(found)) == written(database)
    eventually(there, 120, "all rows")
    eventually(lambda: state in database.topics(), 60, "the state topic anew")
    # Rows that are there without their position come again: a stop before that is no 0.
    database.all_confirmed()
    assert process.stop() == 0
    process.start().streaming()
    database.run("INSERT INTO t VALUES (9, 1, 'x')")
    eventually(lambda: there() and (9, 1) in found, 60, "the next row")


def test_missing_topics_are_made_together(database, millrace, topic):
    names = [f"t{i}" for i in range(TABLES)]
    database.run("; ".join(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names))
    process = millrace(tables=names).start().streaming()
    database.run("; ".join(f"INSERT INTO {name} VALUES (1), (2)" for name in names))
    for name in names:
        assert [record.json_key["id"] for record in topic(database.topic(name)).take(2)] == [1, 2]
    made = {record["topic"] for record in process.log("topic_created")}
    assert made == {database.topic(name) for name in names}


def test_topic_that_may_not_be_made_is_waited_for(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE there (id int PRIMARY KEY)")
    database.make_topic("there")
    process = millrace(tables=["t", "there"], sink__kafka__create_topics="false").start().streaming()
    database.run("INSERT INTO there VALUES (1); INSERT INTO t VALUES (1); INSERT INTO there VALUES (2)")
    said = process.wait_for("topic_wait")
    assert said["topic"] == database.topic("t") and "sink.kafka.create_topics" in said["message"]
    # What went before it is delivered and told, what comes after it waits.
    before = topic(database.topic("there"))
    assert before.take(1)[0].json_key == {"id": 1}
    assert before.read() == []
    database.make_topic("t")
    assert topic(database.topic("t")).take(1)[0].json_key == {"id": 1}
    assert before.take(1)[0].json_key == {"id": 2}


def test_reader_that_stands_still_does_not_hold_up_the_end(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    process = millrace(sink__kafka__brokers=None, pipeline__shutdown_deadline='"1s"')
    process.start(stdout=subprocess.PIPE).streaming()
    database.run("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 3000) g")
    eventually(lambda: pipe_is_full(process.process.stdout), what="a full pipe")
    assert process.stop() == 3


def waiting_bytes(pipe):
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, waiting)
    return waiting[0]


def pipe_is_full(pipe):
    """Nobody reads, and nothing more comes. How much a pipe holds depends on how it was written."""
    before = waiting_bytes(pipe)
    time.sleep(0.5)
    return 4096 <= before == waiting_bytes(pipe)


@pytest.mark.parametrize("choice", ["together", "spread"])
def test_rows_without_a_key(database, millrace, topic, choice):
    """One partition, or all of them, each row's by its position: what comes again is where it was, and positions grow in each."""
    database.run("CREATE TABLE t (n int); ALTER TABLE t REPLICA IDENTITY FULL")
    database.make_topic("t", partitions=6)
    process = millrace(sink__kafka__null_keys=f'"{choice}"', sink__kafka__state_topic='""').start().streaming()
    assert process.stop() == 0
    database.run(f"SELECT pg_copy_logical_replication_slot('{database.slot}', '{database.slot}_again')")
    database.run("INSERT INTO t SELECT generate_series(1, 300); UPDATE t SET n = -n; DELETE FROM t WHERE n > -100")
    process.start().streaming()
    reader = topic(database.topic("t"))
    records = reader.take(699)
    assert process.stop() == 0
    counts = collections.Counter(record.partition for record in records)
    assert (min(counts.values()) > 60 and len(counts) == 6) if choice == "spread" else len(counts) == 1, counts
    for partition in counts:
        positions = [record.position for record in records if record.partition == partition]
        assert positions == sorted(set(positions))
    process = millrace(sink__kafka__null_keys=f'"{choice}"', sink__kafka__state_topic='""',
                       source__postgres__slot_name=f'"{database.slot}_again"').start().streaming()
    again = reader.take(699)
    assert {record.position: record.partition for record in again} == {record.position: record.partition for record in records}


def is_about_t(told, database):
    return (told["topic"], told["table"], told["level"], told["see"]) == (
        database.topic("t"), '"public"."t"', "error", "millrace help MillraceTopicMadeAgain")


def test_a_topic_that_is_deleted_under_a_stream_is_not_made_again_in_silence(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__properties='{ "topic.metadata.refresh.interval.ms" = "200", "topic.metadata.propagation.max.ms" = "500" }')
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)
    assert process.wait_for("topic_created") and not process.log("topic_made_again")
    delete(database, database.topic("t"))

    def is_told():
        database.run("INSERT INTO t SELECT max(id) + 1 FROM t")
        return process.log("topic_made_again")
    told = eventually(is_told, 60, "the warning")[0]
    assert is_about_t(told, database)


def insert(database):
    return database.run("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t RETURNING id")[0][0]


def ends_with(topic, name, row):
    reader, found = topic(name), []

    def there():
        found.extend(record.json_key["id"] for record in reader.read())
        return row in found
    eventually(there, 60, "the row")
    return found


@DELIVERIES
def test_topics_that_others_make_again_are_noticed(database, millrace, topic, options):
    """Within half a minute, even where no row comes; the flow goes on. Until the tables were copied."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    names = {database.make_topic("t", 2): 2, database.make_topic("u", 2): 3}
    process = millrace(tables=["t", "u"], **options, sink__kafka__create_topics="false").start().streaming()
    database.run("INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)")
    for name in names:
        topic(name).take(1)
    assert process.figure("millrace_topics_made_again") == 0 and process.get("/status").json["reason"] == ""
    for name, partitions in names.items():
        delete(database, name)
        database.create_topic(name, partitions)
    database.run("INSERT INTO t VALUES (2)")
    process.wait_for("topic_made_again", times=2)
    assert {told["topic"] for told in process.log("topic_made_again")} == {*names}
    assert any(is_about_t(told, database) for told in process.log("topic_made_again"))
    database.run("INSERT INTO t VALUES (3); INSERT INTO u VALUES (3)")
    for table in "tu":
        assert 3 in ends_with(topic, database.topic(table), 3)
    assert process.figure("millrace_topics_made_again") == 2
    status = process.get("/status").json
    assert "made again, and 1 more" in status["reason"] and status["ready"] and status["sink"]["topics_made_again"] == 2
    for left, table in ((1, "t"), (0, "u")):
        subprocess.run([BINARY, "snapshot", table, "--config", process.path, "--address", process.address()], check=True, timeout=60)
        eventually(lambda left=left: process.figure("millrace_topics_made_again") == left, 30, "the end of it")
        ends_with(topic, database.topic(table), 1)
    assert process.get("/status").json["reason"] == ""
    assert len(process.log("topic_made_again")) == 2 and process.stop() == 0


@DELIVERIES
def test_a_topic_that_was_missing_and_is_made_again_is_noticed(database, millrace, topic, options):
    """Rows wait for it, and millrace may not make it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    database.make_topic("t")
    process = millrace(**options, sink__kafka__create_topics="false",
                       sink__kafka__properties='{ "topic.metadata.refresh.interval.ms" = "200", "topic.metadata.propagation.max.ms" = "500" }')
    process.start().streaming()
    ends_with(topic, database.topic("t"), insert(database))
    delete(database, database.topic("t"))

    def waits():
        insert(database)
        return process.log("topic_wait")
    eventually(waits, 60, "rows that wait")
    assert not process.log("topic_made_again")
    database.make_topic("t", 3)
    assert is_about_t(process.wait_for("topic_made_again"), database)
    ends_with(topic, database.topic("t"), insert(database))
    assert len(process.log("topic_made_again")) == 1 and process.stop() == 0


@DELIVERIES
@pytest.mark.parametrize("ends", [Millrace.stop, Millrace.kill])
def test_a_topic_that_is_there_beside_a_new_one_was_not_made_again(database, millrace, topic, ends, options):
    """They are asked for together, after a start."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**options, tables=("public.*",)).start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)
    ends(process)
    database.run("CREATE TABLE more (id int PRIMARY KEY)")
    database.run("INSERT INTO more VALUES (1); INSERT INTO t VALUES (2)")  # one transaction
    process.start().streaming()
    topic(database.topic("more")).take(1)
    ends_with(topic, database.topic("t"), insert(database))
    assert process.wait_for("topic_created") and not process.log("topic_made_again")
    assert process.figure("millrace_topics_made_again") == 0 and process.stop() == 0


@DELIVERIES
@pytest.mark.parametrize("ends", [Millrace.stop, Millrace.kill])
def test_a_topic_that_was_made_again_meanwhile_is_noticed(database, millrace, topic, ends, options):
    """By the next process, with its first row."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    state = f"{database.name}-state"
    process = millrace(**options, sink__kafka__state_topic=f'"{state}"').start().streaming()
    ends_with(topic, database.topic("t"), insert(database))
    states = topic(state)

    def is_stored():
        pairs = [record.json.get("topics", "").split() for record in states.read()]  # the cluster's, then the topic's
        return any(len(pair) == 2 and not pair[1].endswith(".0") for pair in pairs)
    eventually(is_stored, 30, "the topic's id, stored")
    ends(process)
    delete(database, database.topic("t"))
    database.make_topic("t")
    process.start().streaming()
    ends_with(topic, database.topic("t"), insert(database))
    assert is_about_t(process.wait_for("topic_made_again"), database)
