"""The source is a standby (PostgreSQL 16 and later): it is promoted under load, restarted, made unfit; rows are copied from it."""

import contextlib
import os
import subprocess
import threading

import psycopg
import pytest

import test_incremental
from kit import BINARY, Database, check, dsn, eventually, expect
from ledger import TABLE, Check, Writers
from pair import Pair
from servers import frozen

LIMIT_S = 120
OPTIONS = {"pipeline__reconnect_max": '"1s"', "metrics__interval": '"200ms"'}
EXACTLY_ONCE = {"sink__kafka__delivery": '"exactly-once"'}
MODES = pytest.mark.parametrize("mode", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])


def found():
    """Programs of the stand's version, where that can do it; else of 18."""
    return os.environ["MILLRACE_PG_BIN"] if os.environ["MILLRACE_TEST_PG"] in ("16", "17") else None


@contextlib.contextmanager
def servers(programs=None, **settings):
    pair = Pair(programs)
    try:
        yield pair.start_to_read_from(**settings)
    finally:
        pair.close()


@pytest.fixture
def pair():
    with servers(found()) as both:
        yield both


@contextlib.contextmanager
def talking(pair):
    """The primary writes records of running transactions, which a standby makes slots at."""
    ends = threading.Event()

    def talk():
        while not ends.wait(0.1):
            pair.primary.run("SELECT pg_log_standby_snapshot()")
    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(30)


def reads_from(pair, database, millrace_for, tables=("t",), **options):
    """A millrace that reads from the standby, which has the publication."""
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE {', '.join(tables)}")
    pair.followed()
    process = millrace_for(database, tables=tables, **{**OPTIONS, **options})
    process.environment["TEST_URL"] = dsn(database.name, pair.standby.port)
    return process


def first_start(pair, process):
    with talking(pair):
        return process.start().streaming()


def test_promotion_while_the_source_has_no_moment(pair, millrace_for):
    """What the watcher has seen is there once it has one: news would be gone by then."""
    database = Database(port=pair.primary.port)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = reads_from(pair, database, millrace_for)
    process.environment["MILLRACE_DUMPABLE"] = "1"
    first_start(pair, process)
    eventually(lambda: process.figure("millrace_source_standby") == 1, what="the figure")
    with frozen(process.process.pid, "mr-source"):
        pair.fail_over()
        database.port = pair.standby.port
        eventually(lambda: process.figure("millrace_source_standby") == 0, what="the figure")
    process.wait_for("source_connected", limit_s=LIMIT_S, times=2)
    assert "the standby was promoted" in process.log("source_lost")[-1]["message"]
    assert process.stop() == 0


@MODES
def test_promotion_under_load(pair, millrace_for, topic, mode):
    """Existing rows come from the standby, then its stream; the primary is killed, the standby promoted, and the stream goes on."""
    database = Database(port=pair.primary.port)
    database.run(TABLE)
    database.run("INSERT INTO t SELECT 50, g, 'x' FROM generate_series(1, 300) g")
    process = first_start(pair, reads_from(pair, database, millrace_for, snapshot__mode='"initial"', **mode))
    assert not pair.primary.run("SELECT FROM pg_replication_slots WHERE slot_type = 'logical'")
    writers = Writers(database, count=2).start()
    records = Check(topic(database.topic("t")))
    records.read_until(500)
    assert process.figure("millrace_source_standby") == 1
    pair.fail_over()
    database.port = pair.standby.port
    process.wait_for("source_connected", limit_s=LIMIT_S, times=2)
    assert "the standby was promoted" in process.log("source_lost")[-1]["message"]
    records.read_until(records.total + 200)
    eventually(lambda: process.figure("millrace_source_standby") == 0, what="the figure")
    process.kill().start().streaming()
    records.read_until(records.total + 200)
    writers.finish()
    records.expect_all(database)
    assert records.repeats == 0 or not mode
    assert process.stop() == 0


def test_killed_before_the_promotion_was_seen(pair, millrace_for, topic):
    """What is stored is of the old timeline, and lies on the new one: the server is the one that was read from."""
    database = Database(port=pair.primary.port)
    database.run(TABLE)
    process = reads_from(pair, database, millrace_for, **EXACTLY_ONCE, metrics__interval='"1h"')
    first_start(pair, process)
    database.run("INSERT INTO t SELECT 1, g, 'x' FROM generate_series(1, 10) g")
    records = Check(topic(database.topic("t")))
    records.read_until(10)
    pair.fail_over()
    database.port = pair.standby.port
    for n in range(11, 31):  # the stream goes on by itself
        database.run("INSERT INTO t VALUES (1, %s, 'x')", [n])
    records.read_until(30)
    assert len(process.log("source_connected")) == 1
    process.kill()
    database.run("INSERT INTO t SELECT 1, g, 'x' FROM generate_series(31, 40) g")
    process.start().streaming()
    records.expect_all(database)
    assert records.repeats == 0 and process.stop() == 0


def test_standby_restarts_under_load(pair, millrace_for, topic):
    """Killed, it replays from its last restart point on, and may take connections before it has all that was delivered."""
    database = Database(port=pair.primary.port)
    database.run(TABLE)
    process = reads_from(pair, database, millrace_for, **EXACTLY_ONCE)
    first_start(pair, process)
    writers = Writers(database, count=2).start()
    records = Check(topic(database.topic("t")))
    for times in (2, 3):
        records.read_until(records.total + 200)
        pair.standby.kill()
        pair.standby.start()
        process.wait_for("source_connected", limit_s=LIMIT_S, times=times)
    writers.finish()
    records.expect_all(database)
    assert records.repeats == 0 and process.stop() == 0


def test_copies_beside_the_stream(pair, millrace_for, topic):
    """While others write, and a transaction on the primary stays open that is older than the copy."""
    database = Database(port=pair.primary.port)
    database.run("CREATE TABLE t (id bigint PRIMARY KEY, n bigint); INSERT INTO t SELECT i, 0 FROM generate_series(1, 20000) i")
    process = reads_from(pair, database, millrace_for, snapshot__connection='"env:COPY_URL"')
    process.environment["COPY_URL"] = dsn(database.name, pair.primary.port)
    assert "leads to the primary of a standby" in check(process)[1]
    process.environment["COPY_URL"] = process.environment["TEST_URL"]
    first_start(pair, process)
    with psycopg.connect(dsn(database.name, pair.primary.port)) as idle:
        idle.execute("SELECT pg_current_xact_id()")
        writers = test_incremental.writers_of(database, "t")
        test_incremental.copy(process, "t")
        writers.end(5)
    test_incremental.check(database, topic, "t")
    assert process.stop() == 0
    for options in ([], ["--fence"]):
        moved = subprocess.run([BINARY, "move", *options, "--config", process.path], env=process.environment, capture_output=True, text=True,
                               timeout=60, check=False)
        assert moved.returncode == 78 and "is a standby" in moved.stderr, moved


def test_check_names_each_condition(millrace_for):
    with servers(found(), hot_standby_feedback="off", primary_slot_name="''") as pair:
        database = Database(port=pair.primary.port)
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        pair.followed()
        process = millrace_for(database, source__postgres__failover="true", publication__alter="true")
        process.environment["TEST_URL"] = dsn(database.name, pair.standby.port)
        text = expect(check(process), 78)
        for part in ("is a standby: the slot is made here", "hot_standby_feedback: is off on this standby", "SET hot_standby_feedback = on",
                     "primary_slot_name: is empty on this standby", "pg_create_physical_replication_slot",
                     "a slot of a standby can't have FAILOVER", "publication.alter: is set, but a standby can't",
                     "does not exist, and a standby can't make it", "create it on the primary with CREATE PUBLICATION"):
            assert part in text, (part, text)
        expect(process.run_to_end(), 78, "publication.alter")
        assert not pair.standby.run("SELECT FROM pg_replication_slots")

        # A quiet primary, which is what the making of the slot waits for.
        process = reads_from(pair, database, millrace_for, heartbeat__interval='"200ms"', heartbeat__query='"INSERT INTO t VALUES (9)"')
        pair.standby.run("SELECT pg_wal_replay_pause()")  # as if it wrote nothing
        process.start()
        held = process.wait_for("slot_held_up", 60)
        assert "the primary, which is quiet" in held["holder"] and "pg_log_standby_snapshot()" in held["remedy"]
        pair.standby.run("SELECT pg_wal_replay_resume()")
        pair.primary.run("SELECT pg_log_standby_snapshot()")
        process.streaming()
        assert "on the primary" in process.wait_for("heartbeat_failed")["message"]

        # The primary's vacuum takes what the slot needs.
        database.run("CREATE TABLE gone (i int); DROP TABLE gone")
        database.run("VACUUM FULL pg_class")
        assert process.ended(LIMIT_S) == 10
        expect(check(process), 10, "set hot_standby_feedback = on and primary_slot_name", without="slot_drop")


def test_standby_of_15(millrace_for):
    if os.environ["MILLRACE_TEST_PG"] != "15":
        pytest.skip("the stand's programs are newer")
    with servers(os.environ["MILLRACE_PG_BIN"]) as pair:
        database = Database(port=pair.primary.port)
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        pair.followed()
        process = millrace_for(database)
        process.environment["TEST_URL"] = dsn(database.name, pair.standby.port)
        expect(check(process), 78, "no logical stream before PostgreSQL 16 (this is 15)", "connect to the primary")
        expect(process.run_to_end(), 78, "no logical stream before")
