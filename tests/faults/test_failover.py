"""A standby takes the primary's place (PostgreSQL 17 and later), and hosts of a connection string that are silent."""

import json
import os
import re
import signal
import socket
import subprocess

import psycopg
import pytest

from kit import BINARY, Database, check, dsn, eventually, expect
from ledger import TABLE, Check, Writers, confirmed_past
from pair import STANDBY_SLOT, Pair
from servers import free_port

OPTIONS = {"source__postgres__failover": "true", "pipeline__reconnect_max": '"1s"',
           "metrics__interval": '"200ms"'}
LIMIT_S = 120  # for what takes a second on a machine that has time
EXACTLY_ONCE = {"sink__kafka__delivery": '"exactly-once"'}
MODES = pytest.mark.parametrize("mode", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])


@pytest.fixture
def pair():
    servers = Pair()
    try:
        yield servers
    finally:
        servers.close()


def database_on(pair):
    """The servers go away with the test, and so does what is on them."""
    return Database(port=pair.primary.port)


def start(pair, database, millrace_for, **options):
    process = millrace_for(database, **{**OPTIONS, **options})
    process.environment["TEST_URL"] = pair.dsn(database.name)
    return process


@MODES
def test_promotion_under_load(pair, millrace_for, topic, mode):
    """The primary is killed; millrace goes on by itself, and the topic is what the new primary's table is."""
    pair.start()
    database = database_on(pair)
    database.run(TABLE)
    process = start(pair, database, millrace_for, **mode).start().streaming()
    database.run("INSERT INTO t VALUES (98, 1, 'x')")
    pair.synced(database.slot)
    # Few and late: what they write while a busy machine takes its time must all be read and checked.
    writers = Writers(database, count=2).start()
    eventually(lambda: process.figure("millrace_slot_failover") == 1, 60, "the figure")
    host = f"127.0.0.1:{pair.standby.port}"
    eventually(lambda: process.get("/status").json["slot"]["copies"] == [{"host": host, "state": "ready", "reason": ""}], 90, "the copy of the slot")
    assert process.figure(f'millrace_slot_copy_ready{{host="{host}"}}') == 1
    reader = topic(database.topic("t"))
    records = Check(reader)
    records.read_until(200)
    pair.fail_over()
    database.port = pair.standby.port
    process.wait_for("source_connected", limit_s=LIMIT_S, times=2)
    records.read_until(records.total + 200)
    writers.finish()
    records.expect_all(database)
    assert records.repeats == 0, "the same process skips what it has sent"
    assert process.stop() == 0
    process.start().streaming()  # what is stored is of the new timeline
    database.run("INSERT INTO t VALUES (99, 1, 'x')")
    records.expect_all(database)
    slot = eventually(lambda: process.get("/status").json["slot"].get("exists") and process.get("/status").json["slot"])
    assert slot["failover"] and slot["synced"] and slot["invalidation"] == "none"
    assert process.stop() == 0


def test_copies_while_the_primary_is_away(pair, millrace_for):
    """Then the standbys' copies are what counts: each is looked at all the same."""
    pair.start(standby_slots="")
    database = database_on(pair)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = start(pair, database, millrace_for).start().streaming()
    pair.synced(database.slot)

    def state():
        return {copy["host"]: copy["state"] for copy in process.get("/status").json["slot"]["copies"]}.get(f"127.0.0.1:{pair.standby.port}")
    eventually(lambda: state() == "ready", 90, "the copy of the slot")
    pair.primary.kill()
    pair.standby.kill()
    eventually(lambda: state() == "unreached", 60, "the copy that can't be seen")
    process.kill()


@MODES
def test_promotion_of_a_standby_that_was_behind(pair, millrace_for, topic, mode):
    """Without synchronized_standby_slots events get out that the standby never had: that is said, not passed over."""
    pair.start(standby_slots="")
    database = database_on(pair)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = start(pair, database, millrace_for, **mode).start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    pair.synced(database.slot)
    pair.standby.run("ALTER SYSTEM SET primary_conninfo = ''")
    pair.standby.run("SELECT pg_reload_conf()")
    eventually(lambda: not pair.primary.run("SELECT active FROM pg_replication_slots "
                                            f"WHERE slot_name = '{STANDBY_SLOT}'")[0][0], what="the end of following")
    database.run("INSERT INTO t VALUES (2)")
    topic(database.topic("t")).take(2)
    pair.fail_over()
    assert process.ended(LIMIT_S) == 10
    text = "".join(process.lines)
    assert "delivered events the new primary does not have" in text and "synchronized_standby_slots" in text
    text = expect(process.run_to_end(LIMIT_S), 10)
    database.port = pair.standby.port
    database.run("CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
    done = subprocess.run([BINARY, "recover", "--config", process.path], env=process.environment, capture_output=True, text=True, timeout=120,
                          check=False, stdin=subprocess.DEVNULL)
    said = " ".join(done.stdout.split())
    left = re.search(r"the server left it at (\S+) for timeline", text).group(1)
    assert done.returncode == 10 and f"committed after {left} (where the server left the timeline" in said, (said, done.stderr)


def test_slot_is_given_failover_and_check_says_what_is_missing(pair, millrace_for):
    pair.start(standby_slots="")
    database = database_on(pair)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = start(pair, database, millrace_for, source__postgres__failover=None).start().streaming()
    assert process.stop() == 0
    assert not database.slot_row("failover")
    process.configure(**OPTIONS)
    eventually(lambda: "(unreached)" not in check(process)[1], what="the standby's answer")
    code, text = check(process)
    assert code == 0 and "lacks FAILOVER" in text and "synchronized_standby_slots: empty" in text, text
    standby = f"standby at 127.0.0.1:{pair.standby.port}: has "
    assert standby + "no copy of the slot that lasts (absent): if it is promoted now" in text, text
    process.start().streaming()
    process.wait_for("slot_failover_set")
    assert database.slot_row("failover")
    database.run("INSERT INTO t VALUES (1)")
    pair.synced(database.slot)  # as it moves
    assert process.stop() == 0
    assert standby + "a copy of the slot, which lasts" in check(process)[1]
    for name, expected in ((f"{STANDBY_SLOT}, absent", "standby slot absent: does not exist"),
                           (STANDBY_SLOT, f"standby slot {STANDBY_SLOT}: its standby follows")):
        database.run(f"ALTER SYSTEM SET synchronized_standby_slots = '{name}'")
        database.run("SELECT pg_reload_conf()")

        def said(expected=expected):
            code, text = check(process)
            return code == 0 and "the slot has FAILOVER" in text and expected in text
        eventually(said, what=expected)


def test_standby_that_has_no_copy(pair, millrace_for, topic):
    pair.start(standby_slots="")
    database = database_on(pair)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = start(pair, database, millrace_for, source__postgres__failover=None).start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)
    end = database.run("SELECT pg_current_wal_lsn()")[0][0]
    confirmed_past(database, end)
    eventually(lambda: pair.standby.run(f"SELECT pg_last_wal_replay_lsn() >= '{end}'")[0][0], what="the standby")
    pair.fail_over()
    assert process.ended(LIMIT_S) == 10
    assert "is not on the promoted server" in "".join(process.lines)


def hosts(database, *ports):
    """The stand's connection string with several hosts in place of its one."""
    port = os.environ["PGPORT"]
    return dsn(database.name).replace(f":{port}/", ":" + ",127.0.0.1:".join(map(str, ports)) + "/")


def test_silent_host_is_passed_over(database, millrace, topic):
    """As one that has lost its power: it refuses nothing, so nothing but time tells that it is gone."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", free_port()))
        silent.listen()
        port = silent.getsockname()[1]
        process.environment["TEST_URL"] = hosts(database, port, os.environ["PGPORT"]) + "?connect_timeout=1"
        process.start().streaming()
        database.run("INSERT INTO t VALUES (1)")
        topic(database.topic("t")).take(1)
        assert process.stop() == 0
        refuses = free_port()
        process.environment["TEST_URL"] = hosts(database, port, refuses) + "?connect_timeout=1"
        code, text = check(process)
    assert code == 69, text
    assert f"port {port}, does not answer within 1000 ms" in text and f"port {refuses} failed" in text, text


def test_failover_on_a_server_that_has_none(database, millrace):
    if os.environ["MILLRACE_TEST_PG"] not in ("15", "16"):
        pytest.skip("this server has it")
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(source__postgres__failover="true")
    expect(check(process), 0, "upgrade PostgreSQL to 17 or later")
    process.start().streaming()
    process.wait_for("failover_unsupported")


def test_promotion_within_a_copy_beside_the_stream(pair, millrace_for, topic):
    """The copy has begun and waits for a transaction, which has one part locked, and the primary is killed."""
    pair.start()
    database = database_on(pair)
    database.run("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (1001);"
                 "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (1001) TO (9999); INSERT INTO p SELECT i FROM generate_series(1, 2000) i")
    process = start(pair, database, millrace_for, tables=("p",), **EXACTLY_ONCE).start().streaming()
    eventually(lambda: process.figure("millrace_slot_failover") == 1, 60, "the figure")
    pair.synced(database.slot)  # which it is not any more while somebody's transaction has a number
    holder = psycopg.connect(dsn(database.name, database.port))
    holder.execute("LOCK TABLE p2 IN ACCESS EXCLUSIVE MODE")
    body = json.dumps({"type": "start", "tables": ["public.p"]})
    assert process.get("/api/snapshot", method="POST", body=body).status == 200
    eventually(lambda: process.get("/api/snapshot/outcome").json["tables"][0]["repeated"] > 0, 60, "a chunk that comes too soon")
    pair.fail_over()
    holder.close()
    database.port = pair.standby.port
    eventually(lambda: process.get("/api/snapshot/outcome").json["tables"][0]["state"] == "done", LIMIT_S, "the copy's end")
    ids = {record.json["after"]["id"] for name in ("p1", "p2") for record in topic(database.topic(name)).take(1000)}
    assert ids == set(range(1, 2001))
    assert process.stop() == 0


def test_backlog_of_tables_that_were_altered(pair, millrace_for, topic):
    """Rows are read by the table as it was, not as it is when millrace connects (from 16 on the server would, docs/dev/protocol.md):
    after a start, and after a connection that was lost."""
    pair.start_primary()
    database = database_on(pair)
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int, w text); CREATE TABLE old (id int PRIMARY KEY)")
    process = start(pair, database, millrace_for, tables=["t", "old"]).start().streaming()
    assert process.stop() == 0
    database.run("INSERT INTO t VALUES (1, 2, 'x'); INSERT INTO old VALUES (1)")
    database.run("ALTER TABLE t DROP v; ALTER TABLE t ADD z int DEFAULT 7; ALTER TABLE old RENAME TO new")
    database.run("INSERT INTO t VALUES (2, 'y')")
    process.start().streaming()
    records = topic(database.topic("t"))
    assert [row.json["after"] for row in records.take(2)] == [{"id": 1, "v": 2, "w": "x"}, {"id": 2, "w": "y", "z": 7}]
    assert topic(database.topic("old")).take(1)[0].json["after"] == {"id": 1}

    process.process.send_signal(signal.SIGSTOP)
    database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    eventually(lambda: not database.slot_row("active"), LIMIT_S, "the end of the sender")
    database.run("INSERT INTO t VALUES (3, 'z', 8)")
    database.run("ALTER TABLE t ALTER z TYPE text; ALTER TABLE t RENAME w TO ww")
    process.process.send_signal(signal.SIGCONT)
    assert [row.json["after"] for row in records.take(1)] == [{"id": 3, "w": "z", "z": 8}]
    assert process.stop() == 0

    # Of 18, too: with generated columns that are not published the application's own updates fail.
    database.run("CREATE TABLE g (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED)")
    database.slot = database.publication = database.name + "_g"
    process = start(pair, database, millrace_for, tables=["g"])
    assert check(process)[0] == 0
    database.run("ALTER TABLE g REPLICA IDENTITY FULL")
    expect(check(process), 78, "UPDATE and DELETE fail once it is published", "CREATE PUBLICATION")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE g WITH (publish_generated_columns = stored)")
    assert check(process)[0] == 0
