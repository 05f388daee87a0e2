"""The wall clock is set by a day, under load: only what tells of the time of day may change."""

import os
import struct
import subprocess
import time

import pytest

from kit import eventually
from ledger import TABLE, Check, Writers

DAY_S = 24 * 3600

pytestmark = pytest.mark.skipif("MILLRACE_TEST_SANITIZED" in os.environ,
                                reason="the thread sanitizer's waits go past the clock that is set")


@pytest.fixture
def clock(tmp_path):
    """Environment of a process with a clock of its own, and what sets that clock, in days from the right time."""
    library, file = tmp_path / "set_clock.so", tmp_path / "clock"
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "set_clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True, timeout=60)

    def set_clock(days):
        with open(file, "r+b") as mapped:
            mapped.write(struct.pack("=q", days * DAY_S * 10**9))

    file.write_bytes(bytes(8))
    return {"LD_PRELOAD": str(library), "TEST_CLOCK": str(file)}, set_clock


@pytest.mark.parametrize("days", [1, -1])
def test_clock_is_set_under_load(database, millrace, topic, clock, days):
    database.run(TABLE)
    environment, set_clock = clock
    process = millrace()
    process.environment.update(environment)
    process.start().streaming()
    writers = Writers(database).start()
    status = process.get("/status").json
    set_clock(days)

    def is_set():
        now = process.get("/status").json
        return abs(now["time_ms"] / 1000 - time.time() - days * DAY_S) < DAY_S / 2 and now
    after = eventually(is_set, 60, "the clock being set")
    assert abs(after["uptime"] - status["uptime"]) < DAY_S / 2
    assert after["state"] == "streaming"
    assert 0 <= after["time_ms"] - after["state_since_ms"] < DAY_S / 2 * 1000
    time.sleep(1)
    writers.finish()
    check = Check(topic(database.topic("t"))).expect_all(database)
    assert check.repeats == 0
    eventually(lambda: process.figure("millrace_lag_seconds") < 60, 60, "the lag of before")
    times = [row[0] for row in process.get("/api/history?after=0").json["rows"]]
    assert times == sorted(times)
    assert times[-1] <= process.get("/status").json["time_ms"]
    assert len(process.log("source_connected")) == 1
    assert not process.log("source_lost") and not process.log("kafka_unreachable")


def test_lag_is_told_although_the_clock_was_set_back(database, millrace, topic, clock):
    """What waits gets older by the steady clock, whatever the other one says."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    environment, set_clock = clock
    process = millrace(sink__kafka__create_topics="false")
    process.environment.update(environment)
    process.start().streaming()
    eventually(lambda: process.figure("millrace_lag_bytes") == 0, what="nothing left to confirm")
    set_clock(-1)
    database.run("INSERT INTO t VALUES (1)")
    process.wait_for("topic_wait")
    eventually(lambda: process.figure("millrace_lag_seconds") > 2, 60, "a lag")
    database.make_topic("t")
    topic(database.topic("t")).take(1)
    eventually(lambda: process.figure("millrace_lag_seconds") < 2, 60, "the end of the lag")


def test_position_that_kafka_takes_for_one_of_the_future(database, millrace, topic, clock):
    """A state topic that somebody else made, where Kafka looks at the writer's time: told with the remedy, with pauses
    that grow, and it goes on once the clock is right. What was delivered meanwhile comes again."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    environment, set_clock = clock
    state = database.make_topic("state", config={"cleanup.policy": "compact"})
    process = millrace(sink__kafka__state_topic=f'"{state}"')
    process.environment.update(environment)
    process.start().streaming()
    set_clock(1)
    database.run("INSERT INTO t VALUES (1)")
    lost = process.wait_for("sink_session_lost", times=4)
    assert "set the clock that is wrong" in lost["message"]
    assert not database.slot_row(f"confirmed_flush_lsn >= '{database.run('SELECT pg_current_wal_lsn()')[0][0]}'")
    set_clock(0)
    database.all_confirmed()
    records = topic(database.topic("t")).read(1)
    assert {record.json_key["id"] for record in records} == {1}
    assert len(records) <= len(process.log("sink_session_lost")) + 1
