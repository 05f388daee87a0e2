"""What stands still and why: a fault is placed, and the page (what it draws of /status), `top`, `status`, /readyz, the metrics and
the log must all name the same end, for as long as the fault is there, and say when it is over."""

import hashlib
import math
import os
import re
import signal
import subprocess

import pytest

from kit import BINARY, cannot_try, eventually, expect, figures
from servers import Disk, Proxy, free_port


def top(process):
    """What `millrace top` draws first."""
    shown = subprocess.Popen([BINARY, "top", "--address", process.address()], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True)
    lines = []
    for line in shown.stdout:
        lines.append(line)
        if line.startswith("q quit"):
            break
    shown.terminate()
    shown.stdout.close()
    shown.wait(30)
    return "".join(lines)


def status(process):
    return subprocess.run([BINARY, "status", "--address", process.address()], capture_output=True, text=True,
                          timeout=60, check=True).stdout


def word(samples, metric, label):
    """The one word of a metric whose value is 1."""
    found = [name for name, value in samples.items() if name.startswith(metric + "{") and value == 1]
    assert len(found) == 1, found
    return found[0].split(f'{label}="')[1].split('"')[0]


def stands(process, state, cause, stage, limit_s=30):
    """Waits for that cause, and has every place say the same; answers /status. Once more where the state changed between two of the
    places, which the log says."""
    def same():
        heard = len(process.lines)
        try:
            return all_say(process, state, cause, stage, limit_s)
        except AssertionError:
            if len(process.lines) == heard:
                raise
            return None
    return eventually(same, limit_s, "the same in every place")


def all_say(process, state, cause, stage, limit_s):
    def there():
        found = process.get("/status").json
        return found if found["standstill"]["cause"] == cause and found["state"] == state else None
    found = eventually(there, limit_s, f"the standstill {cause}")
    assert (found["ready"], found["bottleneck"]) == (False, stage)
    ready = process.get("/readyz")
    assert (ready.status, ready.json["state"], ready.json["cause"]) == (503, state, cause)
    samples = figures(process.get("/metrics").body)
    assert word(samples, "millrace_state", "state") == state and word(samples, "millrace_standstill", "cause") == cause
    assert word(samples, "millrace_bottleneck", "stage") == stage and samples["millrace_ready"] == 0
    assert samples["millrace_standstill_seconds"] > 0
    text = status(process)
    assert f"{state} ({cause}) for" in text and f"bottleneck: {stage}" in text, text
    text = top(process)
    assert f"{state} for" in text and re.search(rf"bottleneck: {stage}\n{cause}:\s", text), text
    return found


def names(process, *parts):
    """Thing, reason and remedy, wherever somebody looks for them; a warning of the log comes within seconds."""
    said = process.wait_for("standstill", 60)
    texts = [process.get("/readyz").json["reason"], process.get("/status").json["reason"], said["message"],
             status(process), top(process).replace("\n", " ")]
    for part in parts:
        for text in texts:
            assert part in text, (part, text)


def is_over(process, cause, times=1):
    over = process.wait_for("standstill_over", 60, times)
    assert over["cause"] == cause and over["level"] == "info", over
    eventually(lambda: process.get("/readyz").status == 200, 30, "readiness")
    found = process.get("/status").json
    assert (found["state"], found["standstill"]["cause"], found["reason"]) == ("streaming", "none", "")


@pytest.fixture
def small_disk(tmp_path):
    try:
        disk = Disk(str(tmp_path / "disk"), 1)
    except PermissionError as error:
        cannot_try(error)
    yield disk
    disk.close()


def test_file_on_a_full_disk(database, millrace, small_disk):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(sink__kafka__brokers=None, sink__type='"file"',
                       sink__file__path=f'"{small_disk.folder}/out"', pipeline__reconnect_max='"500ms"')
    process.inside = small_disk.inside
    process.start().streaming()
    database.run("INSERT INTO t SELECT g, repeat('x', 100000) FROM generate_series(1, 30) g")
    found = stands(process, "waiting_for_sink", "sink_fails", "flush")
    assert "PostgreSQL" not in found["reason"].split("rows wait in PostgreSQL")[0]
    names(process, f"{small_disk.folder}/out", "No space left on device", "make room on its disk")
    # It is tried again and again, and stays the cause in between; what waits gets older.
    rebuilds = process.figure("millrace_producer_rebuilds_total{reason=\"transient\"}")
    eventually(lambda: process.figure("millrace_producer_rebuilds_total{reason=\"transient\"}") > rebuilds + 3,
               what="more tries")
    found = stands(process, "waiting_for_sink", "sink_fails", "flush")
    assert found["lag"]["seconds"] >= found["standstill"]["seconds"] - 2 > 0
    small_disk.resize(50)
    is_over(process, "sink_fails")
    assert process.stop() == 0


def test_topic_missing(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__create_topics="false").start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    stands(process, "waiting_for_sink", "topic_missing", "flush")
    names(process, database.topic("t"), "it does not exist", "sink.kafka.create_topics = true")
    database.make_topic("t")
    assert topic(database.topic("t")).take(1)[0].json_key == {"id": 1}
    is_over(process, "topic_missing")


def test_topic_missing_does_not_hold_up_a_stop(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__create_topics="false", pipeline__shutdown_deadline='"200s"').start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    stands(process, "waiting_for_sink", "topic_missing", "flush")
    assert process.stop(100) == 3
    said = process.log("stopped")[-1]["message"]
    assert database.topic("t") in said and "nothing is lost" in said


@pytest.fixture
def kafka():
    """The way to the stand's broker."""
    proxy = Proxy(int(os.environ["KAFKA_PROXIED_PORT"]), int(os.environ["KAFKA_PROXY_PORT"]))
    yield proxy
    proxy.close()


def cut(proxy):
    proxy.set(f"target {free_port()}")
    proxy.set("reset")


def test_kafka_away_and_then_postgresql(database, millrace, kafka):
    """The first cause is the cause until it is gone; what followed is told after it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    postgresql = Proxy(int(os.environ["PGPORT"]))
    process = millrace(sink__kafka__brokers=f'["127.0.0.1:{kafka.port}"]', pipeline__reconnect_max='"500ms"')
    process.environment["TEST_URL"] = process.environment["TEST_URL"].replace(f":{os.environ['PGPORT']}/",
                                                                              f":{postgresql.port}/")
    process.start().streaming()
    try:
        database.run("INSERT INTO t VALUES (1)")
        eventually(lambda: process.figure("millrace_records_acknowledged_total") == 1, what="the first row")
        cut(kafka)
        database.run("INSERT INTO t VALUES (2)")
        stands(process, "waiting_for_sink", "kafka_away", "flush")
        names(process, f"127.0.0.1:{kafka.port}", "sink.kafka.brokers")
        cut(postgresql)
        eventually(lambda: not process.get("/status").json["source"]["connected"], what="PostgreSQL to be away, too")
        stands(process, "waiting_for_sink", "kafka_away", "flush")
        kafka.set(f"target {os.environ['KAFKA_PROXIED_PORT']}")
        kafka.set("reset")
        stands(process, "waiting_for_source", "postgresql_away", "receive", 60)
        over = process.wait_for("standstill_over")
        assert over["cause"] == "kafka_away" and "something else is" in over["message"]
        eventually(lambda: process.log("standstill")[-1]["cause"] == "postgresql_away", what="the log to say it")
        postgresql.set(f"target {os.environ['PGPORT']}")
        postgresql.set("reset")
        is_over(process, "postgresql_away", 2)
        database.run("INSERT INTO t VALUES (3)")
        eventually(lambda: process.figure("millrace_records_acknowledged_total") >= 3, what="the last row")
        assert process.stop() == 0
    finally:
        postgresql.close()


def test_kafka_away_once_more(database, millrace, kafka):
    """Nothing was sent between the two outages: the second one is one, too."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    backoff = 'sink__kafka__properties__"reconnect__backoff__max__ms"'
    process = millrace(sink__kafka__brokers=f'["127.0.0.1:{kafka.port}"]', sink__kafka__state_topic='""',
                       **{backoff: '"500"'}).start().streaming()
    for times in (1, 2):
        cut(kafka)
        stands(process, "waiting_for_sink", "kafka_away", "flush")
        process.wait_for("kafka_unreachable", times=times)
        process.wait_for("standstill", times=times)
        kafka.set(f"target {os.environ['KAFKA_PROXIED_PORT']}")
        kafka.set("reset")
        is_over(process, "kafka_away", times)
    assert process.stop() == 0


# ---- a change that can't be passed on ----

def test_poison_names_the_row_and_may_stay(database, millrace):
    """By the hash of its key, or by the key where log.keys allows it; and the process may wait for whoever looks."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(pipeline__stay_up="true", pipeline__reconnect_max='"300ms"').start().streaming()
    database.run("INSERT INTO t VALUES (4711, repeat('x', 2000000))")
    end = process.wait_for("stays_up", 60)
    assert end["exit_code"] == 65 and process.process.poll() is None
    found = stands(process, "failed", "ended", "none")
    key = hashlib.sha256(b'{"id":4711}').hexdigest()[:32]
    for text in (found["reason"], process.get("/readyz").json["reason"], end["message"], status(process)):
        assert "exit code 65" in text or text is end["message"], text
        for part in (key, "public.t", "--skip-commit-lsn", "sink.kafka.message_max"):
            assert part in text, text
    assert process.get("/healthz").status == 200
    asked = subprocess.run([BINARY, "snapshot", "t", "--config", process.path, "--address", process.address()],
                           capture_output=True, text=True, timeout=60, check=False, env=process.environment)
    assert asked.returncode == 78 and "has ended" in asked.stderr, asked
    process.process.send_signal(signal.SIGHUP)
    assert process.stop() == 65
    assert "4711" not in "".join(process.lines)
    process.configure(log__keys="true", pipeline__reconnect_max='"300ms"')
    expect(process.run_to_end(60), 65, 'with key {\\"id\\":4711}')


# ---- when the slot is lost ----

@pytest.fixture
def slot_limit(database):
    """Sets how much WAL slots may keep, for the whole server."""
    def limit(value):
        database.run(f"ALTER SYSTEM SET max_slot_wal_keep_size = '{value}'")
        database.run("SELECT pg_reload_conf()")
    yield limit
    database.run("ALTER SYSTEM RESET max_slot_wal_keep_size")
    database.run("SELECT pg_reload_conf()")


def test_the_end_of_the_slot_is_forecast(database, millrace, slot_limit, kafka):
    """What is delivered loses no slot, however much it was; what waits does, and everybody is told when."""
    database.run("CREATE TABLE t (id int, v text); ALTER TABLE t REPLICA IDENTITY FULL; CREATE TABLE other (v text)")
    slot_limit("300MB")
    process = millrace(sink__kafka__brokers=f'["127.0.0.1:{kafka.port}"]',
                       metrics__interval='"1s"').start().streaming()
    looked = "millrace_slot_age_seconds"
    eventually(lambda: looked in figures(process.get("/metrics").body), what="a look at the slot")

    def burst(megabytes):
        """WAL of another table: it is for nobody, and delivered as soon as it is passed."""
        database.run("ALTER TABLE other ALTER v SET STORAGE EXTERNAL")
        database.run("INSERT INTO other SELECT repeat('x', 1000000) FROM generate_series(1, %s)", [megabytes])

    burst(60)
    database.run("INSERT INTO t VALUES (1, 'after it')")
    eventually(lambda: process.figure("millrace_records_acknowledged_total") == 1, 60, "the row behind it")
    database.all_confirmed()
    seen = []
    for _ in range(3):
        age = process.figure(looked)
        eventually(lambda: process.figure(looked) < age or process.figure(looked) < 0.5, what="another look")
        seen.append(process.figure("millrace_slot_forecast_seconds"))
        eventually(lambda: process.figure(looked) > 0.6, what="time to go by")
    assert seen[1:] == [math.inf, math.inf] and process.get("/readyz").json["reason"] == ""

    cut(kafka)
    database.run("INSERT INTO t VALUES (2, 'waits')")

    def in_danger():
        burst(5)
        found = process.get("/status").json
        return found["standstill"]["cause"] == "kafka_away" and "the slot is lost in" in found["reason"] and found
    found = eventually(in_danger, 60, "the forecast in the banner")
    assert found["slot"]["forecast_seconds"] < 3600 and "max_slot_wal_keep_size" in found["reason"]
    assert "the slot is lost in" in status(process)
    # The first line may come while the forecast is days.
    said = eventually(lambda: [one for one in process.log("standstill") if "the slot is lost in" in one["message"]], 90,
                      "the forecast in the log")
    assert 0 <= said[0]["slot_seconds_left"] < 3600
