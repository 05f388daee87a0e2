"""The broker that lies is a good one unless it is told otherwise: rows of a real PostgreSQL arrive, decoded here and not by a
client library; and what it does not acknowledge, the real slot does not say either."""

import json

import pytest

import kafka_trial
import trial
from kit import eventually
from launcher import Launcher
from lying_kafka import STATE_TOPIC, WHOLE, Lie, LyingKafka

ROWS = 300


@pytest.fixture
def kafka():
    made = []

    def make(*arguments, **options):
        made.append(LyingKafka(*arguments, **options))
        return made[-1]
    yield make
    for server in made:
        server.close()


def into(kafka, **options):
    return {"sink__kafka__brokers": json.dumps([kafka.address()]), "sink__kafka__compression": '"none"', **options}


def rows(kafka, topic):
    """What each partition got, in order: (id, op, position)."""
    return [[(json.loads(key)["id"], json.loads(value)["op"], headers["mr-pos"])
             for key, value, headers in partition if value is not None] for partition in kafka.records(topic)]


def write(database):
    database.run(f"INSERT INTO t SELECT n, 'x' FROM generate_series(1, {ROWS}) n")
    database.run("UPDATE t SET v = 'y'")
    database.run("DELETE FROM t")


@pytest.mark.parametrize("delivery,compression,leaders", [
    ("at-least-once", "none", 1), ("at-least-once", "gzip", 2), ("exactly-once", "none", 1), ("exactly-once", "gzip", 2)])
def test_rows_of_a_real_server_arrive(database, millrace, kafka, delivery, compression, leaders):
    """With two leaders, each answer to Metadata names the other one."""
    server = kafka(partitions=3, leaders=leaders)
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(**into(server, sink__kafka__compression=json.dumps(compression),
                              sink__kafka__delivery=json.dumps(delivery))).start().streaming()
    write(database)
    topic = database.topic("t")
    eventually(lambda: sum(map(len, rows(server, topic))) >= 3 * ROWS, what="all rows")
    end = database.run("SELECT pg_current_wal_lsn()")[0][0]
    eventually(lambda: database.run(f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = %s",
                                    [database.slot], database="postgres")[0][0], what="the slot at the end")
    assert process.stop() == 0
    found = rows(server, topic)
    assert len(found) == 3 and all(found), "each partition has some"
    changes = [change for partition in found for change in partition]
    assert sorted((number, op) for number, op, _ in changes) == sorted((n, op) for n in range(1, ROWS + 1) for op in "cud")
    for partition in found:
        positions = [position for _, _, position in partition]
        assert positions == sorted(set(positions))
    acknowledged = sum(1 for _, value in server.acknowledged[topic] if value is not None)
    assert acknowledged == 3 * ROWS and server.acknowledged[STATE_TOPIC]


def test_a_broker_that_gives_topics_no_ids(database, millrace, kafka):
    server = kafka()
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(**into(server, log__level='"debug"')).start().streaming()
    for number in range(1, 4):
        database.run("INSERT INTO t VALUES (%s, 'x')", [number])
        eventually(lambda number=number: sum(map(len, rows(server, database.topic("t")))) == number, what="the row")
    process.wait_for("topic_ids_absent")
    assert process.stop() == 0
    assert len(process.log("topic_ids_absent")) == 1 and not process.log("topic_made_again")


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_broker_that_left_and_is_back(database, millrace, kafka, delivery):
    """One that ends in order says that nobody leads, and that there is no broker; then its connections are cut."""
    server = kafka()
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(**into(server, sink__kafka__delivery=json.dumps(delivery))).start().streaming()
    database.run("INSERT INTO t VALUES (1, 'x')")
    topic = database.topic("t")
    eventually(lambda: rows(server, topic) and rows(server, topic)[0], what="the first row")
    for number in range(2, 5):
        server.leaves = True
        asked = server.asked["metadata"]
        database.run(f"INSERT INTO t VALUES ({number}, 'x')")
        eventually(lambda seen=asked: server.asked["metadata"] > seen, what="a question who leads")
        server.cut()
        server.leaves = False
        eventually(lambda last=number: last in [row[0] for row in rows(server, topic)[0]], 30, f"row {number}")
    assert process.stop() == 0


def test_what_is_not_acknowledged_the_slot_does_not_say(database, millrace, kafka):
    lie = Lie("produce rows", "withheld, goes on", WHOLE["withheld, goes on"], "at least once", always=True)
    server = kafka(lie)
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(**into(server, pipeline__shutdown_deadline='"300ms"')).start().streaming()
    before = database.run("SELECT pg_current_wal_lsn()")[0][0]
    write(database)
    assert server.told.wait(30)
    assert process.stop() == 3
    assert database.run(f"SELECT confirmed_flush_lsn <= '{before}' FROM pg_replication_slots WHERE slot_name = %s",
                        [database.slot], database="postgres")[0][0]
    assert database.topic("t") not in server.acknowledged
    good = kafka()
    process.configure(**into(good)).start().streaming()
    eventually(lambda: len(good.acknowledged.get(database.topic("t"), [])) == 4 * ROWS, what="all rows and tombstones")
    assert process.stop() == 0


def test_a_claim_without_an_acknowledgement_is_seen(monkeypatch):
    """The judge's memory of acknowledgements is taken away: every confirmation is one too much."""
    monkeypatch.setattr(trial, "LAUNCHER", Launcher())
    assert kafka_trial.attempt(None, "at least once")[0].good
    monkeypatch.setattr(LyingKafka, "acknowledge", lambda *_: None)
    faults = kafka_trial.attempt(None, "at least once")[0].faults
    assert any("was never acknowledged" in fault for fault in faults) and any("is stored" in fault for fault in faults)
