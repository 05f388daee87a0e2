"""The stored position: told of before PostgreSQL is, verified at the start, in one transaction with the events."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest
from confluent_kafka import KafkaError, Producer

from kit import BINARY, BOOTSTRAP, Topic, check, eventually, expect, stand
from ledger import TABLE, Check

STATE = "__millrace_state"
EXACTLY_ONCE = {"sink__kafka__delivery": '"exactly-once"'}


def lsn(text):
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


class States:
    """What is stored for one pipeline, followed from the topic's beginning."""

    def __init__(self, database):
        self.name = f"{database.prefix}/{database.slot}"
        self.reader = Topic(STATE)
        self.found = []

    def newest(self):
        for record in self.reader.read(0.2):
            if record.key == self.name:
                self.found.append(record.json)
        return self.found[-1] if self.found else None

    def close(self):
        self.reader.close()


@pytest.fixture
def states(database):
    opened = []

    def make():
        opened.append(States(database))
        return opened[-1]
    yield make
    for one in opened:
        one.close()


@pytest.mark.parametrize("options", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_position_is_stored_before_it_is_confirmed(database, millrace, topic, states, options):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**options).start().streaming()
    for number in range(5):
        database.run("INSERT INTO t VALUES (%s)", [number])
    topic(database.topic("t")).take(5)
    end = database.run("SELECT pg_current_wal_lsn()")[0][0]
    stored = states()
    eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{end}'"), what="the confirmation")
    # Whatever the server was told is in the topic by now, and not more than that.
    told = lsn(database.slot_row("confirmed_flush_lsn"))
    newest = eventually(stored.newest, what="a stored position")
    assert lsn(newest["end_lsn"]) >= told
    assert (newest["slot"], newest["publication"]) == (database.slot, database.publication)
    system = database.run("SELECT system_identifier::text FROM pg_control_system()")[0][0]
    assert newest["system_id"] == system
    assert process.stop() == 0
    assert lsn(eventually(stored.newest)["end_lsn"]) >= lsn(database.slot_row("confirmed_flush_lsn"))


@pytest.mark.parametrize("options", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_a_start_waits_for_no_timer_of_the_kafka_client(database, millrace, options):
    """Asked while no connection is up, librdkafka looks again only after a timer: half a second for a coordinator, 0.2 s and
    more for a leader. Also where the topic of the positions is still to be made."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**options, sink__kafka__state_topic=f'"{database.name}-state"', log__level='"debug"',
                       sink__kafka__properties='{ debug = "metadata,eos" }')
    for _ in range(3):
        process.start().streaming()
        assert process.stop() == 0
        said = "".join(process.lines)
        assert "[thrd:" in said
        assert "query partition leaders" not in said and "Unable to query for transaction coordinator" not in said


def test_a_position_of_version_01_is_continued(database, millrace, topic, states):
    """As an upgrade finds it: without the names of tables, which later versions store. docs/upgrading.md"""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT generate_series(1, 100)")
    reader = topic(database.topic("t"))
    reader.take(100)
    assert process.stop() == 0
    stored = states()
    newest = eventually(stored.newest)
    assert newest["version"] == 1 and "tables" in newest  # 0.1 reads it: the way back
    other = database.create_topic(f"{database.name}-state", config={"cleanup.policy": "compact"})
    database.produce(other, stored.name, json.dumps({name: value for name, value in newest.items() if name != "tables"}))
    database.run("INSERT INTO t SELECT generate_series(101, 200)")
    process.configure(sink__kafka__state_topic=f'"{other}"').start().streaming()
    assert [record.json["after"]["id"] for record in reader.take(100)] == [*range(101, 201)]
    assert process.stop() == 0 and not reader.read(0.5)
    process.configure(profiling__capture_keep="20")
    expect(process.run_to_end(), 78, "profiling.capture_keep")


def stopped_after_one_row(database, millrace, topic, **options):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**options).start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    reader = topic(database.topic("t"))
    reader.take(1)
    assert process.stop() == 0
    return process, reader


def test_slot_made_anew_ends_with_its_own_code(database, millrace, topic):
    process, _ = stopped_after_one_row(database, millrace, topic)
    database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
    database.run("INSERT INTO t VALUES (2)")
    database.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [database.slot])
    expect(process.run_to_end(), 10, "rows between are missing", "millrace recover")


def test_slot_gone_ends_with_its_own_code(database, millrace, topic):
    process, _ = stopped_after_one_row(database, millrace, topic)
    database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
    expect(process.run_to_end(), 10, "is gone")
    assert database.slot_row("slot_name") is None  # nothing was made in its place


def test_slot_without_a_position_is_adopted_only_if_told_so(database, millrace, topic):
    """What was stored is lost (here: looked for under another name), but the slot is there."""
    process, reader = stopped_after_one_row(database, millrace, topic)
    assert not process.log("slot_adopted")
    database.run("INSERT INTO t VALUES (2)")
    other = {"sink__kafka__state_name": f'"{database.prefix}-lost"'}
    process.configure(source__postgres__adopt_slot="false", **other)
    expect(process.run_to_end(), 10, "no position is stored", "adopt_slot")
    expect(check(process), 10, "no position is stored for it", f'none is stored under state_name "{database.prefix}-lost"')
    process.configure(**other).start().streaming()
    assert process.log("slot_adopted")[0]["slot"] == database.slot
    assert process.figure("millrace_slot_adopted") == 1
    assert reader.take(1)[0].json_key == {"id": 2}
    assert process.stop() == 0
    process.configure(source__postgres__adopt_slot="false", **other)  # it is stored now
    process.start().streaming()
    assert process.figure("millrace_slot_adopted") == 0


def test_another_name_starts_anew(database, millrace, topic):
    process, reader = stopped_after_one_row(database, millrace, topic)
    database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
    assert process.run_to_end()[0] == 10
    second = millrace(sink__kafka__state_name=f'"{database.prefix}-again"').start().streaming()
    database.run("INSERT INTO t VALUES (3)")
    assert reader.take(1)[0].json_key == {"id": 3}


def test_another_cluster_is_refused(database, millrace, topic):
    """The record says another cluster: what a connection string changed by mistake looks like."""
    process, _ = stopped_after_one_row(database, millrace, topic)
    name = f"{database.prefix}/{database.slot}"
    record = {"version": 1, "system_id": "1", "timeline": 1, "slot": database.slot,
              "publication": database.publication, "end_lsn": "0/1"}
    database.produce(STATE, name, json.dumps(record))
    expect(process.run_to_end(), 10, "another PostgreSQL cluster")


def test_older_position_behind_the_newest_does_not_count(database, millrace, topic, states):
    """What an instance does that was frozen, lost the stream, and stores its position once more when it wakes up."""
    process, reader = stopped_after_one_row(database, millrace, topic)
    stored = states()
    newest = eventually(stored.newest)
    slot = lsn(database.slot_row("confirmed_flush_lsn"))
    older = {**newest, "end_lsn": f"0/{slot - 4096:X}" if slot < 1 << 32 else f"{slot >> 32:X}/0"}
    assert lsn(older["end_lsn"]) < slot
    database.produce(STATE, stored.name, json.dumps(older))
    process.start().streaming()
    database.run("INSERT INTO t VALUES (2)")
    assert reader.take(1)[0].json_key == {"id": 2}
    assert process.stop() == 0


def test_unknown_record_is_refused(database, millrace, topic):
    process, _ = stopped_after_one_row(database, millrace, topic)
    database.produce(STATE, f"{database.prefix}/{database.slot}", '{"version": 99}')
    expect(process.run_to_end(), 10, "of a form that this version does not know")


def test_a_record_that_is_small_only_while_compressed_is_refused(database, millrace):
    """Whoever may write to the state topic could have its reader take any amount of memory."""
    name = f"{database.prefix}.state"
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__state_topic=f'"{name}"').start().streaming()
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "compression.codec": "gzip", "message.max.bytes": 100_000_000})
    outcomes = []
    producer.produce(name, key="x", value=bytes(32 << 20), on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    assert outcomes[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_state_topic_that_cannot_be_made(database, millrace, topic):
    """It says what the broker said and what to do, again and again, leaves at once when told to, and goes on by itself
    once the topic is there."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    name = f"{database.prefix}-state"
    process = millrace(sink__kafka__state_topic=f'"{name}"', sink__kafka__replication_factor="3").start()
    text = json.dumps(process.wait_for("sink_session_lost", times=2))
    assert name in text and "replication" in text.lower() and "sink.kafka.replication_factor" in text
    assert process.stop(10) == 0
    process.start().wait_for("sink_session_lost")
    database.create_topic(name)
    process.streaming()
    database.make_topic("t")
    database.run("INSERT INTO t VALUES (1)")
    assert topic(database.topic("t")).take(1)[0].json_key == {"id": 1}


@pytest.mark.parametrize("options", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_position_behind_an_open_transaction(database, millrace, topic, options):
    """Another pipeline died between its position and the end of its transaction: ours lies behind that."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**options).start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    reader = topic(database.topic("t"))
    reader.take(1)
    other = Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0, "transactional.id": database.prefix + "-other",
                      "transaction.timeout.ms": 20000})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(STATE, "{}", "somebody else's")
    other.flush(30)
    try:
        database.run("INSERT INTO t VALUES (2)")
        reader.take(1)
        assert process.stop() == 0
        process.start().wait_for("state_wait")
        assert not process.log("source_connected")
    finally:
        other.abort_transaction(30)
    process.streaming()
    database.run("INSERT INTO t VALUES (3)")
    assert [record.json_key["id"] for record in reader.take(1)] == [3]


@pytest.mark.parametrize("options", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_shutdown_of_the_server_is_not_held_up(database, millrace, topic, options):
    """It ends only when all it sent is confirmed; storing the position first must cost no second."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**options).start().streaming()
    times = []
    for number in range(3):
        database.run("INSERT INTO t SELECT g FROM generate_series(%s::int, %s::int) g",
                     [number * 1000, number * 1000 + 999])
        began = time.monotonic()
        stand("pg-stop", "fast")
        times.append(time.monotonic() - began)
        stand("pg-start")
        process.wait_for("source_connected", times=number + 2)
    reader = topic(database.topic("t"))
    reader.take(3000)
    assert reader.read(1) == []
    assert process.stop() == 0
    assert not [line for line in process.log("source_lost") if "leaving" in line["message"]], times


def test_shutdown_of_the_server_is_not_held_up_by_a_backlog(database, millrace):
    """A server that stops sends all its log first. Whoever reads slowly leaves, and gets the rest later."""
    rows = 200_000
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(sink__kafka__brokers=None, pipeline__batch_size='"16KiB"',
                       metrics__interval='"1s"')
    process.start(stdout=subprocess.PIPE).streaming()
    database.run("INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, %s) g", [rows])
    at_most = threading.Event()  # from then on it is read as quickly as it comes
    seen = set()

    def read():
        for line in process.process.stdout:
            seen.add(json.loads(line)["key"]["id"])
            if not at_most.is_set() and len(seen) % 50 == 0:
                time.sleep(0.05)
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    stand("pg-stop", "fast")
    seen_then = len(seen)
    at_most.set()
    stand("pg-start")
    assert any("leaving" in line["message"] for line in process.log("source_lost"))
    eventually(lambda: len(seen) == rows, 120, "all rows")
    assert seen_then < rows, "there was no backlog"


def test_without_state_topic(database, millrace, topic):
    process, reader = stopped_after_one_row(database, millrace, topic, sink__kafka__state_topic='""')
    database.run("INSERT INTO t VALUES (2)")
    process.start().streaming()
    assert reader.take(1)[0].json_key == {"id": 2}


def test_exactly_once_inside_a_large_transaction(database, millrace, topic):
    """Killed in the middle of one transaction of PostgreSQL, it goes on behind the last record of it."""
    database.run(TABLE)
    process = millrace(pipeline__batch_size='"4KiB"', **EXACTLY_ONCE).start().streaming()
    rows = 60000
    database.run("INSERT INTO t SELECT 0, g, repeat('x', 60) FROM generate_series(1, %s::int) g", [rows])
    reader = topic(database.topic("t"))
    check = Check(reader)
    for share in (0.1, 0.4):
        check.read_until(int(rows * share))
        process.kill().start().streaming()
    check.expect_all(database)
    assert check.repeats == 0


@pytest.mark.parametrize("options", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_standby_takes_over(database, millrace, topic, options):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    first = millrace(**options).start().streaming()
    second = millrace(**options).start()
    second.wait_for("standby")
    database.run("INSERT INTO t VALUES (1)")
    reader = topic(database.topic("t"))
    assert reader.take(1)[0].json_key == {"id": 1}
    assert not second.log("source_connected")
    first.kill()
    second.streaming()
    database.run("INSERT INTO t VALUES (2)")
    came = [record.json_key["id"] for record in reader.take(1)]
    if came == [1] and not options:  # killed before the position was stored: at least once
        came = [record.json_key["id"] for record in reader.take(1)]
    assert came == [2]


def test_standby_is_a_state_of_its_own(database, millrace):
    """A standby that could take over is well: ready, and no alert has a reason to fire."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    first = millrace().start().streaming()
    second = millrace().start()
    second.wait_for("standby")
    ready = second.get("/readyz")
    assert (ready.status, ready.json["state"], ready.json["ready"]) == (200, "standby", True)
    assert "another instance" in ready.json["reason"]
    status = second.get("/status").json
    assert (status["state"], status["lag"]["seconds"], status["bottleneck"]) == ("standby", None, "none")
    assert second.figure('millrace_state{state="standby"}') == 1 and second.figure("millrace_ready") == 1
    for command in (["status"], ["health", "--ready"]):
        done = subprocess.run([BINARY, *command, "--address", second.address()], capture_output=True, text=True,
                              timeout=30, check=False)
        assert done.returncode == 0 and "standby" in done.stdout, done
    done = subprocess.run([BINARY, "snapshot", "t", "--config", second.path, "--address", second.address()], capture_output=True, text=True,
                          timeout=30, check=False)
    assert done.returncode != 0 and "ask the one that streams" in done.stderr, done
    first.kill()
    second.streaming()
    eventually(lambda: second.get("/readyz").json["state"] == "streaming", what="the state after a takeover")


def test_a_silent_instance_is_taken_over_from_by_the_timeout_of_its_connection(database, millrace, topic):
    """docs/high-availability.md, "A second instance": wal_sender_timeout in the connection string says how long a frozen process,
    or a host that vanished, keeps the stream."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    pair = [millrace(**EXACTLY_ONCE) for _ in range(2)]
    for instance in pair:
        instance.environment["TEST_URL"] += "?options=-c%20wal_sender_timeout%3D10s"
    first, second = pair[0].start().streaming(), pair[1].start()
    second.wait_for("standby")
    database.run("INSERT INTO t VALUES (1)")
    reader = topic(database.topic("t"))
    reader.take(1)
    os.kill(first.process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        database.run("INSERT INTO t VALUES (2)")
        assert reader.take(1)[0].json_key == {"id": 2}
        assert 5 < time.monotonic() - began < 30
    finally:
        os.kill(first.process.pid, signal.SIGCONT)
    first.wait_for("standby")
    assert second.stop() == 0
    first.wait_for("source_connected", times=2)


def test_frozen_instance_that_wakes_up_publishes_nothing(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    first = millrace(**EXACTLY_ONCE).start().streaming()
    second = millrace(**EXACTLY_ONCE).start()
    second.wait_for("standby")
    database.run("INSERT INTO t VALUES (1)")
    reader = topic(database.topic("t"))
    reader.take(1)
    os.kill(first.process.pid, signal.SIGSTOP)
    try:
        database.run("INSERT INTO t VALUES (2)")
        # The server gives a silent receiver up after wal_sender_timeout; this is that moment.
        database.run("SELECT pg_terminate_backend(%s)", [database.slot_row("active_pid")])
        second.streaming()
        assert reader.take(1)[0].json_key == {"id": 2}
    finally:
        os.kill(first.process.pid, signal.SIGCONT)
    database.run("INSERT INTO t VALUES (3)")
    assert reader.take(1)[0].json_key == {"id": 3}
    first.wait_for("standby")
    assert reader.read(1) == []
    assert second.stop() == 0
    first.wait_for("source_connected", times=2)
    database.run("INSERT INTO t VALUES (4)")
    assert reader.take(1)[0].json_key == {"id": 4}
