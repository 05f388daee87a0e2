"""Topics and partitions: made together, waited for, one slower than the others; a reader that stands still."""

import array
import fcntl
import subprocess
import termios

from kit import eventually
from ledger import TABLE, Writers, size

TABLES = 40


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
    assert process.stop() == 0


def test_missing_topics_are_made_together(database, millrace, topic):
    names = [f"t{i}" for i in range(TABLES)]
    database.run("; ".join(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names))
    process = millrace(tables=names).start().streaming()
    database.run("; ".join(f"INSERT INTO {name} VALUES (1), (2)" for name in names))
    for name in names:
        assert [record.json_key["id"] for record in topic(database.topic(name)).take(2)] == [1, 2]
    made = {record["topic"] for record in process.log("topic_created")}
    assert made == {database.topic(name) for name in names}
    assert process.stop() == 0


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
    assert process.stop() == 0


def test_reader_that_stands_still_does_not_hold_up_the_end(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    process = millrace(sink__kafka__brokers=None, pipeline__shutdown_deadline='"1s"')
    process.start(stdout=subprocess.PIPE).streaming()
    database.run("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 3000) g")
    eventually(lambda: pipe_is_full(process.process.stdout), what="a full pipe")
    assert process.stop() == 3


def pipe_is_full(pipe):
    """Nobody reads, and most of what it holds is there: a pipe is smaller when its user has many."""
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, waiting)
    return waiting[0] > fcntl.fcntl(pipe.fileno(), fcntl.F_GETPIPE_SZ) // 2
