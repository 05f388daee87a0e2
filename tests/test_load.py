"""millrace-load: its figures are checked against what PostgreSQL and Kafka hold."""

import json
import os
import signal
import subprocess

import pytest

from kit import BOOTSTRAP, dsn, eventually

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOAD = os.path.join(os.path.dirname(os.environ["MILLRACE_BIN"]), "millrace-load")


@pytest.fixture
def load(database, millrace, tmp_path):
    """Makes the tables, starts millrace on them, and runs millrace-load with it."""

    def start(scenario, *options, tables=1, millrace_options=None):
        common = ["--url", dsn(database.name), "--tables", str(tables), "--quiet"]
        subprocess.run([LOAD, "prepare", *common], check=True)
        process = millrace(tables=[f"public.load_{i + 1}" for i in range(tables)],
                           **(millrace_options or {})).start().streaming()
        report = str(tmp_path / "load.json")
        return report, subprocess.Popen(
            [LOAD, scenario, *common, "--brokers", BOOTSTRAP, "--topic-prefix", database.prefix, "--slot",
             database.slot, "--pid", str(process.process.pid), "--json", report, *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(scenario, *options, tables=1, millrace_options=None):
        report, process = start(scenario, *options, tables=tables, millrace_options=millrace_options)
        out, errors = process.communicate(timeout=150)
        assert process.returncode == 0, out + errors
        with open(report, encoding="utf-8") as file:
            return json.load(file), out, errors

    run.start = start
    return run


def test_so_many_events_and_no_other(load, database, topic):
    report, text, _ = load("steady", "--num-events", "5000", "--rate", "0", "--mix", "60,25,15", "--skew", "2",
                           "--identity", "full", tables=3)
    assert report["events"] == report["delivered"] == 5000
    assert report["failed"] == report["repeated"] == 0 and report["complete"]
    records = []
    readers = [topic(database.topic(f"load_{i + 1}")) for i in range(3)]

    def all_read():
        for reader in readers:
            records.extend(r for r in reader.read(0.1) if r.value)
        return len(records) >= 5000
    eventually(all_read, what="5000 records in Kafka")
    kinds = [r.json["op"] for r in records]
    assert len(kinds) == 5000
    rows = sum(database.run(f"SELECT count(*) FROM load_{i + 1}")[0][0] for i in range(3))
    assert rows == kinds.count("c") - kinds.count("d")
    assert 0.15 < kinds.count("u") / 5000 < 0.30 and 0.08 < kinds.count("d") / 5000 < 0.20
    latency = report["latency_ms"]
    assert latency["count"] == 5000
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    assert report["memory_peak_bytes"] > 1000000
    assert "5000 committed, 5000 delivered" in text


def test_a_rate_is_kept_on_average(load):
    report, _, _ = load("steady", "--rate", "500", "--num-events", "1500", "--row-bytes", "1000")
    # Open loop: late transactions catch up, so the time is what the rate says or a busy machine's excess.
    assert report["events"] == 1500 and report["write_s"] > 2.5
    assert report["response_ms"]["p50"] >= report["latency_ms"]["p50"] * 0.9


def test_a_burst_is_absorbed(load):
    report, text, _ = load("burst", "--rate", "500", "--seconds", "9", "--burst-events", "20000",
                           "--burst-transaction", "5000", "--mix", "100,0,0")
    assert report["complete"] and report["delivered"] == report["events"] >= 20000
    assert report["in_flight_peak"] > 1000
    assert "burst" in text
    # All three are times of single events, so that the means add up (two clocks, and a commit's way back to the writer).
    means = [report[name]["mean"] for name in ("commit_ms", "latency_ms", "response_ms")]
    assert abs(means[0] + means[1] - means[2]) <= 0.05 * means[2] + 5, means
    assert {report[name]["count"] for name in ("commit_ms", "latency_ms", "response_ms")} == {report["events"]}
    first, last = report["burst_s"]
    assert 2.9 < first < last <= report["duration_s"] + 0.5


def test_a_burst_is_written_whole(load):
    """However short the time that was asked for: the floor goes on until then."""
    report, _, _ = load("burst", "--rate", "100", "--seconds", "0.3", "--burst-events", "40000", "--burst-transaction", "2000",
                        "--mix", "100,0,0")
    assert report["complete"] and report["delivered"] == report["events"] >= 40000


def test_a_burst_whose_writer_cannot_connect_is_a_failure(load, database):
    report, process = load.start("burst", "--rate", "500", "--seconds", "9", "--burst-events", "1000")
    eventually(lambda: database.run("SELECT count(*) FROM load_1")[0][0] > 0, 60, "the floor")
    database.run(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false", database="postgres")
    try:
        out, errors = process.communicate(timeout=100)
    finally:
        database.run(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true", database="postgres")
    assert process.returncode == 1, out + errors
    assert "NO burst: its writer could not connect" in out
    with open(report, encoding="utf-8") as file:
        assert json.load(file)["complete"]


@pytest.mark.parametrize("form", ["debezium", "flat"])
def test_a_delete_has_no_due_time(load, database, millrace, form):
    """The row that it takes along was due long ago (identity FULL sends it whole)."""
    report, _, _ = load("steady", "--num-events", "6000", "--rate", "2000", "--mix", "40,20,40", "--identity", "full",
                        millrace_options={"format": f'"{form}"'})
    assert report["response_ms"]["count"] < report["latency_ms"]["count"] == 6000
    assert report["response_ms"]["max"] < report["latency_ms"]["max"] + report["commit_ms"]["max"] + 50


def test_a_ramp_reports_its_steps(load):
    report, text, _ = load("ramp", "--rate", "200", "--rate-max", "600", "--step-factor", "1.5", "--step-seconds", "1")
    assert [step["offered"] for step in report["steps"]][:1] == [200]
    assert "breaking point" in text and report["breaking_point"]["held_events_per_s"] in (0, 200, 300, 450)


def test_an_impossible_rate_breaks_the_ramp(load):
    report, _, _ = load("ramp", "--rate", "3000000", "--rate-max", "9000000", "--step-seconds", "1")
    assert report["breaking_point"]["reached"] and report["breaking_point"]["limit"]
    assert len(report["steps"]) == 1


def test_the_slots_budget_is_watched(load):
    _, process = load.start("steady", "--rate", "2000", "--seconds", "60", "--slot-budget", "1000")
    _, errors = process.communicate(timeout=100)
    assert "warning: about" in errors and "% of its budget" in errors
    assert "the load ends before the slot is lost" in errors


def test_interrupted_it_reports_what_there_was(load):
    report, process = load.start("steady", "--rate", "500", "--seconds", "600")
    eventually(lambda: process.poll() is None and os.path.exists(f"/proc/{process.pid}"))
    try:
        process.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    with open(report, encoding="utf-8") as file:
        figures = json.load(file)
    assert figures["interrupted"] and figures["complete"] and figures["events"] == figures["delivered"] > 0


@pytest.mark.parametrize("words, said", [
    (["steady", "--rate", "x"], "--rate wants a number"),
    (["steady", "--mix", "10,20,30"], "three percentages"),
    (["steady", "--table", "a;b"], "--table wants"),
    (["swim"], "Usage: millrace-load"),
    (["steady", "--url", "host=127.0.0.1 port=1", "--brokers", "none", "--slot", "s"], "cannot connect"),
])
def test_what_it_cannot_do_it_says(words, said):
    done = subprocess.run([LOAD, *words], env={**os.environ}, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode in (64, 69) and said in done.stderr


def test_run_load_script(tmp_path):
    environment = {**os.environ, "MILLRACE_BUILD_DIR": os.path.dirname(LOAD)}
    done = subprocess.run([os.path.join(ROOT, "load", "run-load.sh"), "steady", "--rate", "500", "--seconds", "2",
                           "--quiet", "--out", str(tmp_path)], env=environment, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "load.json").read_text())["complete"]
    assert "events/s delivered" in (tmp_path / "load.txt").read_text()
