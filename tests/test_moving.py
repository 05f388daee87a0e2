"""`millrace move` on the cluster that is to be left (docs/upgrading-postgresql.md); faults/test_move.py goes on at others."""

import subprocess
import threading

import pytest
from confluent_kafka import Producer

from kit import BINARY, BOOTSTRAP, Topic, eventually


def move(process, *arguments, wanted=0):
    done = subprocess.run([BINARY, "move", *arguments, "--config", process.path], env=process.environment, capture_output=True, text=True,
                          timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == wanted, said
    return said


def drained(process, database):
    """All that was written is confirmed; then it is stopped in order."""
    end = database.run("SELECT pg_current_wal_flush_lsn()")[0][0]
    eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{end}'"), what="the confirmation")
    assert process.stop() == 0


def stored(database):
    """The newest position of the pipeline."""
    reader, newest = Topic("__millrace_state"), None
    while records := reader.read(0.5):
        for record in records:
            newest = record.json if record.key == f"{database.prefix}/{database.slot}" else newest
    reader.close()
    return newest


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_cluster_is_left_at_a_fence_and_gone_back_to(database, millrace, topic, delivery):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__delivery=f'"{delivery}"').start().streaming()
    assert "in use by" in move(process)
    assert "stop it in order first" in move(process, "--fence", wanted=78)
    database.run("INSERT INTO t VALUES (1)")
    drained(process, database)
    said = move(process)
    assert "nothing here holds them back" in said and "steps:" in said and "pause:" in said, said
    database.run("INSERT INTO t VALUES (2)")
    assert "not delivered" in move(process, "--fence", wanted=10)
    process.start().streaming()
    drained(process, database)
    assert "fenced" in move(process, "--fence")
    moved = stored(database)["moved"]
    assert moved["entered"] == "0/0" and moved["left"] == stored(database)["end_lsn"]
    assert database.slot_row(f"confirmed_flush_lsn >= '{moved['left']}'")
    assert "is already" in move(process, "--accept-cluster", moved["from"], wanted=78)
    # It goes on nevertheless: then the fence is void.
    process.start().streaming()
    database.run("INSERT INTO t VALUES (3)")
    drained(process, database)
    assert "moved" not in stored(database)
    assert [record.json_key["id"] for record in topic(database.topic("t")).take(3)] == [1, 2, 3]


def test_messages_are_not_left_behind(database, millrace, topic):
    """Whoever may connect writes them, also where writes are held back."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(messages__prefixes='["m"]').start().streaming()
    drained(process, database)
    database.run(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    assert "held back for new sessions" in move(process)
    database.run("SELECT pg_logical_emit_message(true, 'm', 'last')")
    assert "rows or messages that are not delivered" in move(process, "--fence", wanted=10)
    process.start().streaming()
    topic(f"{database.prefix}.message").take(1)
    drained(process, database)
    assert "fenced" in move(process, "--fence")
    assert "fenced" in move(process, "--fence")


def test_verify_asks_for_nothing_but_the_position(database, millrace):
    """The state topic has another policy, and another pipeline's transaction is open in it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    state = f"{database.prefix}.state"
    database.create_topic(state, 1, {"cleanup.policy": "compact,delete"})
    millrace_here = millrace(sink__kafka__state_topic=f'"{state}"').start().streaming()
    other = Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0, "transactional.id": state, "transaction.timeout.ms": 30000})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(state, "{}", "somebody else's")
    other.flush(30)
    ends = threading.Timer(5.5, other.abort_transaction, [30])
    ends.start()
    done = subprocess.run([BINARY, "verify", "--config", millrace_here.path], env=millrace_here.environment, capture_output=True, text=True,
                          timeout=120, check=False)
    assert ends.finished.is_set()
    ends.join(30)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wrong_commands(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace()
    assert "is for the old cluster" in move(process, "--fence", "--accept-cluster", "7", wanted=64)
    assert "no position of" in move(process, wanted=78)
