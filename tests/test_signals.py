"""Signals in Debezium's form, from a table: what they ask for is done once, and nothing else."""

import json
import subprocess

import pytest
from kit import BINARY, eventually, expect
from test_incremental import copies, is_done

TABLE = "CREATE TABLE signal (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048));"
EXECUTE = "execute-snapshot"


def send(database, kind, data=None, name="1"):
    """`data`: an object, or text as it is."""
    text = data if data is None or isinstance(data, str) else json.dumps(data)
    database.run("INSERT INTO signal VALUES (%s || '-' || gen_random_uuid()::text, %s, %s)", [name, kind, text])


def snapshot(*tables, **more):
    return {"data-collections": list(tables), "type": "incremental", **more}


@pytest.fixture(name="streamed")
def fixture_streamed(database, millrace):
    database.run(TABLE + "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 100) i;"
                         "CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1), (2);"
                         'CREATE TABLE numbered (id int PRIMARY KEY, "Nr" int UNIQUE NOT NULL); INSERT INTO numbered VALUES (1, 7)')
    return millrace(tables=("t", "u", "numbered"), snapshot__signal_table='"public.signal"', snapshot__signal_conditions='"any_role"').start().streaming()


def test_a_table_of_signals(database, streamed, topic):
    """Names, expressions, conditions; what is wrong is told, and the stream goes on; the table is no topic."""
    send(database, EXECUTE, snapshot("public.(t|u)", **{"additional-conditions": [{"data-collection": "public.t", "filter": "id > 90"}]}))
    assert eventually(lambda: "public.t" in copies(streamed) and is_done(streamed, "public.t"), 60, "t's copy")["rows"] == 10
    assert eventually(lambda: "public.u" in copies(streamed) and is_done(streamed, "public.u"), 60, "u's copy")["rows"] == 2
    assert {r.json["op"] for r in topic(database.topic("t")).take(10)} == {"r"}
    wrong = [("nonsense", {}), (EXECUTE, "{"), (EXECUTE, "[1]"), (EXECUTE, {}), (EXECUTE, snapshot("public.[")), (EXECUTE, snapshot("((a{1,99}){1,99}){1,99}")), (EXECUTE, snapshot("nowhere.*")),
             (EXECUTE, {**snapshot("public.t"), "type": "sideways"}), (EXECUTE, snapshot("public.t", **{"additional-conditions": [{}]})),
             ("log", None), ("pause-snapshot", {"type": "blocking"}), ("stop-snapshot", snapshot("public.t"))]
    for kind, data in wrong:
        send(database, kind, data)
    send(database, "log", {"message": "that was all"})
    eventually(lambda: [line for line in streamed.log("signal_log") if line["message"] == "that was all"], what="the last signal")
    assert len(streamed.log("signal_ignored")) == len(wrong), streamed.log("signal_ignored")
    assert all(line["channel"] == "source" for line in streamed.log("signal_ignored"))
    send(database, EXECUTE, snapshot("public.numbered", **{"surrogate-key": "Nr"}))
    assert eventually(lambda: "public.numbered" in copies(streamed) and is_done(streamed, "public.numbered"), 60, "the copy")["rows"] == 1
    database.run("UPDATE signal SET data = '{}'; DELETE FROM signal; INSERT INTO u VALUES (3)")
    assert topic(database.topic("u")).take(3)[-1].json["op"] == "c"
    assert database.topic("signal") not in database.topics()


def test_pause_resume_and_stop_by_signals(database, streamed):
    send(database, "pause-snapshot", {"type": "incremental"})
    send(database, EXECUTE, snapshot("public.t", "public.u"))
    eventually(lambda: {one["state"] for one in copies(streamed).values()} == {"waiting"} and len(copies(streamed)) == 2, what="two that wait")
    send(database, "stop-snapshot", snapshot("public.u"))
    eventually(lambda: copies(streamed)["public.u"]["state"] == "stopped", what="the end of u's copy")
    assert copies(streamed)["public.t"]["state"] == "waiting"
    send(database, "resume-snapshot", {"type": "incremental"})
    assert eventually(lambda: is_done(streamed, "public.t"), 60, "t's copy")["rows"] == 100


def test_a_signal_is_acted_on_once(database, streamed):
    """What it asked for is done, so its position is stored: another start does not see it. The connection's end changes nothing."""
    send(database, EXECUTE, snapshot("public.t"))
    eventually(lambda: "public.t" in copies(streamed) and is_done(streamed, "public.t"), 60, "t's copy")
    database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", [database.slot])
    streamed.wait_for("source_connected", times=2)
    send(database, "log", {"message": "before"})
    streamed.wait_for("signal_log")
    assert len([line for line in streamed.log("signal_taken") if line["type"] == EXECUTE]) == 1
    streamed.kill().start().streaming()
    send(database, "log", {"message": "behind"})
    eventually(lambda: [line for line in streamed.log("signal_log") if line["message"] == "behind"], what="the last signal")
    assert not [line for line in streamed.log("signal_taken") if line["type"] == EXECUTE]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_conditions_that_would_fill_the_position(database, millrace, topic, delivery):
    """Some characters take six bytes of the stored position, which is one record: what does not fit is refused, and the stream goes on."""
    tables = [f"x_{number}" for number in range(65)]
    database.run(TABLE.replace("varchar(2048)", "text") + ";".join(f"CREATE TABLE {table} (id int PRIMARY KEY)" for table in ["t", *tables]))
    process = millrace(("t", "public.x_.*"), snapshot__signal_table='"public.signal"', snapshot__signal_conditions='"any_role"',
                       sink__kafka__delivery=json.dumps(delivery)).start().streaming()
    where = "id > 0 AND '" + "\x01" * 4000 + "' <> ''"
    send(database, "pause-snapshot", {"type": "incremental"})
    for table in tables[1:]:
        send(database, EXECUTE, snapshot(f"public.{table}", **{"additional-conditions": [{"data-collection": f"public.{table}", "filter": where}]}))
    send(database, "log", {"message": "that was all"})
    process.wait_for("signal_log")
    assert "too much of the stored position" in process.log("signal_ignored")[-1]["message"]
    done = subprocess.run([BINARY, "snapshot", "public.x_0", "--where", where, "--config", process.path, "--address", process.address()],
                          capture_output=True, text=True, timeout=60, env=process.environment, check=False)
    assert done.returncode == 78 and "too much of the stored position" in done.stdout + done.stderr, done
    database.run("INSERT INTO t VALUES (1)")
    assert topic(database.topic("t")).take(1)[0].json["after"] == {"id": 1}
    assert process.stop() == 0
    process.start().streaming()
    send(database, "resume-snapshot", {"type": "incremental"})
    eventually(lambda: all(is_done(process, table) for table in copies(process)), what="what fitted")


def test_a_table_of_signals_that_is_streamed(database, millrace, topic):
    database.run(TABLE)
    process = millrace(tables=("signal",), snapshot__signal_table='"signal"').start().streaming()
    send(database, "log", {"message": "both"})
    assert topic(database.topic("signal")).take(1)[0].json["after"]["type"] == "log"
    assert process.wait_for("signal_log")["message"] == "both"


def test_a_table_of_signals_that_is_not_published(database, millrace):
    database.run(TABLE + f"CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION {database.publication} FOR TABLE t")
    expect(millrace(snapshot__signal_table='"public.signal"').run_to_end(), 78, "signal", "ALTER PUBLICATION")
