"""The source's history: a slot that is dropped, made again, moved or lost while millrace runs, and a server that is
another one. Each must end with exit code 10 and say why; none may go on as if nothing had happened."""

import os
import shutil
import signal
import subprocess

import psycopg
import pytest

from kit import Database, dsn, eventually
from servers import OtherServer, Proxy


@pytest.fixture
def streamed(database, millrace, topic):
    """A millrace that has delivered and confirmed a row."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)
    database.all_confirmed()
    return process


def between(database, process, *statements):
    """Runs statements while millrace is off the slot: frozen, and its connection ended by the server."""
    process.process.send_signal(signal.SIGSTOP)
    try:
        database.run("SELECT pg_terminate_backend(%s)", [database.slot_row("active_pid")])
        eventually(lambda: database.slot_row("NOT active"), what="the slot to be free")
        for statement in statements:
            database.run(statement.replace("SLOT", f"'{database.slot}'"))
    finally:
        process.process.send_signal(signal.SIGCONT)


def ends_with_a_gap(process, *parts):
    """Whether it ends with exit code 10 and says all of that."""
    code = process.ended(30)
    text = "".join(process.lines)
    print(code, text)  # shown when the test failed
    return code == 10 and all(part in text for part in parts)


def test_slot_dropped(database, streamed):
    between(database, streamed, "SELECT pg_drop_replication_slot(SLOT)")
    assert ends_with_a_gap(streamed, "is gone, and with it the rows since", ", up to which all was delivered", database.slot)
    assert database.slot_row("slot_name") is None, "it must not be made again silently"


def test_slot_made_again(database, streamed):
    between(database, streamed, "SELECT pg_drop_replication_slot(SLOT)", "INSERT INTO t VALUES (2)",
            "SELECT pg_create_logical_replication_slot(SLOT, 'pgoutput')")
    assert ends_with_a_gap(streamed, "is at", database.slot, "rows between are missing")


def test_slot_moved(database, streamed):
    between(database, streamed, "INSERT INTO t VALUES (2)",
            "SELECT pg_replication_slot_advance(SLOT, pg_current_wal_lsn())")
    assert ends_with_a_gap(streamed, "is at", database.slot, "rows between are missing")


def test_slot_invalidated_while_streaming(database, streamed):
    streamed.process.send_signal(signal.SIGSTOP)
    try:
        database.lose_slot()
    finally:
        streamed.process.send_signal(signal.SIGCONT)
    assert ends_with_a_gap(streamed, "is lost", "millrace recover")


def test_takeover_is_no_gap(database, streamed, millrace, topic):
    """A frozen millrace whose slot another one took over waits, and goes on where that one ended."""
    second = millrace()
    streamed.process.send_signal(signal.SIGSTOP)
    try:
        database.run("SELECT pg_terminate_backend(%s)", [database.slot_row("active_pid")])
        second.start().streaming()
    finally:
        streamed.process.send_signal(signal.SIGCONT)
    streamed.wait_for("standby")
    database.run("INSERT INTO t VALUES (2)")
    reader = topic(database.topic("t"))
    reader.take(2)
    database.all_confirmed()
    second.kill()
    streamed.wait_for("source_connected", times=2)
    database.run("INSERT INTO t VALUES (3)")
    assert reader.take(1)[0].json_key == {"id": 3}


@pytest.fixture
def other_server():
    other = OtherServer()
    try:
        other.stand("pg-start")
        yield other
    finally:
        other.close()


def test_another_server(database, millrace, other_server):
    """The address leads to another cluster, as after a dump and restore."""
    proxy = Proxy(int(os.environ["PGPORT"]))
    try:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        process = millrace()
        process.environment["TEST_URL"] = dsn(database.name, proxy.port)
        process.start().streaming()
        with psycopg.connect(dsn("postgres", other_server.port), autocommit=True) as other:
            other.execute(f"CREATE DATABASE {database.name}")
        proxy.set(f"target {other_server.port}")
        proxy.set("reset")
        assert ends_with_a_gap(process, "another PostgreSQL cluster", "system identifier")
    finally:
        proxy.close()


def test_server_restored_from_an_older_copy(other_server, millrace_for):
    """The server comes back without what is delivered already; it would silently skip what is written now."""
    database = Database(port=other_server.port)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace_for(database, pipeline__reconnect_max='"1s"').start().streaming()
    data = database.run("SHOW data_directory")[0][0]
    copy = data + "-copy"
    other_server.stand("pg-stop", "immediate")
    subprocess.run(["cp", "-a", data, copy], check=True)
    other_server.stand("pg-start")
    process.wait_for("source_connected", times=2)
    database.run("INSERT INTO t SELECT generate_series(1, 1000)")
    database.all_confirmed()
    other_server.stand("pg-stop", "immediate")
    shutil.rmtree(data)
    os.rename(copy, data)
    other_server.stand("pg-start")
    assert ends_with_a_gap(process, "the server's WAL ends at", "restored to an earlier point")
