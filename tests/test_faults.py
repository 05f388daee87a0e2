"""Servers that go away and come back."""

import os
import signal
import time

import pytest

from kit import eventually, stand
from processes import broker_pid
from ledger import TABLE, Check, Writers, size
from test_reload import reload


@pytest.fixture(autouse=True)
def servers_up_again(database):
    """Before the database is dropped, which needs them."""
    yield
    stand("up")


def run_through(database, millrace, topic, fault):
    """Load, the fault, load; everything must be there. Answers millrace and the check."""
    database.run(TABLE)
    process = millrace().start().streaming()
    writers = Writers(database).start()
    time.sleep(0.5)
    fault(process)
    time.sleep(0.5)
    writers.finish()
    check = Check(topic(database.topic("t"))).expect_all(database)
    assert process.stop() == 0
    return check


@pytest.mark.parametrize("how,outage_s", [("KILL", size("MILLRACE_TEST_OUTAGE", 8)), ("TERM", 0)])
def test_kafka_stopped_under_load(database, millrace, topic, how, outage_s):
    def fault(process):
        stand("kafka-stop", how)
        process.wait_for("kafka_unreachable")
        time.sleep(outage_s)
        stand("kafka-start")
    check = run_through(database, millrace, topic, fault)
    assert check.seen and check.wrong_order == 0


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_postgresql_restarted_under_load(database, millrace, topic, how):
    def fault(process):
        for times in (2, 3):
            stand("pg-stop", how)
            stand("pg-start")
            process.wait_for("source_connected", times=times)
    check = run_through(database, millrace, topic, fault)
    assert check.repeats == 0, "the same producer session skips what it has sent"


def test_backend_terminated_under_load(database, millrace, topic):
    def fault(process):
        for times in (2, 3, 4):
            database.run("SELECT pg_terminate_backend(%s)", [database.slot_row("active_pid")])
            process.wait_for("source_connected", times=times)
    check = run_through(database, millrace, topic, fault)
    assert check.repeats == 0


def test_postgresql_can_stop_while_kafka_is_away(database, millrace, topic):
    """A consumer that can't confirm must not hold up the server's shutdown for ever."""
    database.run(TABLE)
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (0, 1, 'x')")
    reader = topic(database.topic("t"))
    reader.take(1)
    database.all_confirmed()
    stand("kafka-stop", "KILL")
    process.wait_for("kafka_unreachable")
    database.run("INSERT INTO t VALUES (0, 2, 'x')")
    begin = time.monotonic()
    stand("pg-stop", "fast")
    stopped_after = time.monotonic() - begin
    stand("pg-start")
    stand("kafka-start")
    record = reader.take(1)[0]
    assert record.json_key == {"writer": 0, "n": 2}
    assert process.stop() == 0
    assert stopped_after < 30


@pytest.mark.parametrize("crashes", [1, 2])
@pytest.mark.parametrize("state_topic,saves", [('""', False), ('""', True), (None, False)], ids=["no state", "no state, saved", "state"])
def test_a_server_that_has_crashed_forgets_what_it_was_told(database, millrace, topic, state_topic, saves, crashes):
    """What was said on a connection that is lost is no reason to say that a stop was in order. The state topic forgets nothing."""
    database.run(TABLE)
    process = millrace(sink__kafka__state_topic=state_topic).start().streaming()
    database.run("INSERT INTO t VALUES (0, 1, 'x')")
    reader = topic(database.topic("t"))
    reader.take(1)
    database.all_confirmed()
    # The server saves a slot once decoding may begin later (LogicalConfirmReceivedLocation). It learns that from a record of running
    # transactions, which a checkpoint writes, and the server by itself now and then.
    for _ in range(3 if saves else 0):
        database.run("CHECKPOINT")
        database.all_confirmed()
    process.configure(sink__kafka__state_topic=state_topic, pipeline__status_interval='"60s"')
    assert reload(process)[0] == 0
    for crash in range(crashes):
        if crash > 0:
            stand("pg-start")
            process.wait_for("source_connected", times=2)
        stand("pg-stop", "immediate")
        process.wait_for("source_lost", times=crash + 1)
    code = process.stop()
    stand("pg-start")
    process.start().streaming()
    database.run("INSERT INTO t VALUES (0, 2, 'x')")
    keys = [reader.take(1)[0].json_key["n"]]
    while keys[-1] != 2:
        keys.append(reader.take(1)[0].json_key["n"])
    assert process.stop() == 0
    if state_topic is None:
        assert (code, keys) == (0, [2])
    elif saves:  # which millrace can't know
        assert (code, keys) == (3, [2])
    else:
        assert code == 3 or (code, keys) == (0, [2]), (code, keys)


@pytest.mark.parametrize("rows, answers", [(1, 25), (40000, 8)], ids=["idle", "no room"])
def test_short_wal_sender_timeout_while_kafka_stands_still(database, millrace, topic, rows, answers):
    """A server that often asks for a sign of life gets it, also while there is no room for what it sends, and is not
    taken for one that shuts down."""
    database.run(TABLE)
    process = millrace(pipeline__memory='"64MiB"')
    process.environment["TEST_URL"] += "?options=-c%20wal_sender_timeout%3D2s"
    process.start().streaming()
    database.run("INSERT INTO t VALUES (0, 0, 'x')")
    reader = topic(database.topic("t"))
    reader.take(1)
    database.all_confirmed()
    broker = broker_pid()
    os.kill(broker, signal.SIGSTOP)
    try:
        database.run("INSERT INTO t SELECT 1, g, repeat('x', 2000) FROM generate_series(1, %s) g", [rows])
        heard = {}  # when, at each position

        def so_often():
            assert not process.log("source_lost"), "".join(process.lines)
            for at, when in database.run(
                    "SELECT sent_lsn, reply_time FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid "
                    "WHERE slot_name = %s", [database.slot]):
                heard.setdefault(at, set()).add(when)
            return heard and max(map(len, heard.values())) > answers
        eventually(so_often, 120, "the server's hearing of us")
    finally:
        os.kill(broker, signal.SIGCONT)
    assert len(reader.take(rows)) == rows


def test_started_before_the_servers(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    database.make_topic("t")
    stand("down")
    process = millrace().start()
    process.wait_for("source_lost")
    stand("up")
    process.streaming()
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)


def test_stop_while_kafka_is_away_ends_at_the_deadline(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(pipeline__shutdown_deadline='"1s"').start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    reader = topic(database.topic("t"))
    reader.take(1)
    database.all_confirmed()
    stand("kafka-stop", "KILL")
    process.wait_for("kafka_unreachable")
    database.run("INSERT INTO t VALUES (2)")
    commit = database.run("SELECT pg_current_wal_lsn()")[0][0]
    eventually(lambda: database.run("SELECT sent_lsn >= %s::pg_lsn FROM pg_stat_replication WHERE pid = %s",
                                    [commit, database.slot_row("active_pid")])[0][0], what="the row to be sent")
    assert process.stop(30) == 3
    stand("kafka-start")
    process.start().streaming()
    assert reader.take(1)[0].json_key == {"id": 2}
