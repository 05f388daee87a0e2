"""The benchmarks run, count what they should, and refuse a reader that loses rows. Short ones: no figure is judged."""

import glob
import json
import os
import re
import subprocess
import tomllib

import psycopg
import pytest

from kit import eventually

BENCHMARKS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "benchmarks")


def run(script, *arguments, **environment):
    return subprocess.run([os.path.join(BENCHMARKS, script), *arguments], env={**os.environ, **environment},
                          capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture
def matrix(tmp_path):
    """Runs matrix.sh into a file: what it printed, and the runs by load and program."""
    path = tmp_path / "figures.json"

    def run_matrix(*arguments, code=0, **environment):
        done = run("matrix.sh", *arguments, "--into", str(path), **environment)
        assert done.returncode == code, done.stdout + done.stderr
        runs = {}
        for one in json.loads(path.read_text())["runs"]:
            runs.setdefault((one["load"], one["program"]), []).append(one)
        return done.stdout, runs
    run_matrix.path = str(path)
    return run_matrix


def test_matrix_measures_in_short_and_goes_on(matrix):
    """With a load, a program, or a round more; what is there is not measured again. Not what other settings gave. One whose name says that
    it is slow drains the last tenth, and is held to that."""
    same = "same=" + os.environ["MILLRACE_BIN"]
    slow = "debezium-like=" + os.path.join(BENCHMARKS, "start-millrace.sh")
    first = ("--programs", "pg_recvlogical,millrace,millrace-exactly-once", "--rows", "10000", "--rounds", "1")
    matrix("--only", "mixed,partitions", *first)
    told, runs = matrix("--only", "mixed,partitions,tables,copy,socket", *first, "--beside", same, "--peer", slow)
    assert "mixed" in told and {len(rounds) for rounds in runs.values()} == {1}
    assert set(runs) == {(load, program) for load in ("mixed", "partitions", "tables", "copy", "socket")
                         for program in ("pg_recvlogical", "millrace", "millrace-exactly-once", "same", "debezium-like")}
    for (load, program), (one,) in runs.items():
        assert one["rows_per_s"] > 0 and one["rss_mb"] > 1 and 0 <= one["machine_idle"] < 1 and one["seconds"] > 0, (load, program)
        assert ("start_s" in one) == (program != "pg_recvlogical")
        assert one["rows"] <= 10000 and (one["rows"] == 1000) == (program == "debezium-like" and load == "tables"), (load, program, one["rows"])
    assert any(0 <= one.get("sender_waits", -1) <= 1 for (load, _), (one,) in runs.items() if load != "copy")
    assert re.search(r"^\| rows/s \| [\d,]+ \| [\d,]+ ×[\d.]+ \|", told, re.MULTILINE)
    assert all(words in " ".join(told.split()) for words in ("ns for a getppid", "`fsync = ", "heaps of Kafka `-Xms"))  # where a line ends differs
    assert run("figures.py", matrix.path).stdout in told
    assert "name another file, or the same sizes" in run(
        "matrix.sh", "--only", "mixed", "--rows", "20000", "--programs", "millrace", "--into", matrix.path).stderr


def test_pgbench_measures_in_short(matrix):
    """As a backlog and at a rate: what pgbench changed is what must be there."""
    told, runs = matrix("--only", "pgbench,pgbench-n", "--programs", "pg_recvlogical,millrace", "--peer",
                        "debezium-like=" + os.path.join(BENCHMARKS, "start-millrace.sh"), "--rows", "2000", "--rounds", "1", "--seconds", "1")
    assert len(runs) == 12 and all(one["rows_per_s"] > 0 for (one,) in runs.values())
    assert {runs[load, "debezium-like"][0]["rows"] for load in ("pgbench", "pgbench-n")} == {200}
    for load in ("pgbench-at-500", "pgbench-n-at-1000"):
        (one,) = runs[load, "millrace"]
        assert 0 < one["p50_ms"] <= one["p99_ms"] <= one["max_ms"] and one["transactions_per_s"] > 50 and one["lag_mb"] >= 0 < one["all_us"]
    assert "| all processes, µs/row |" in told


def test_a_program_with_a_template_takes_part(matrix, tmp_path):
    """A binary and a file of configuration; one that writes no tombstones; lines for each of two tables; and a variable that there is not."""
    template = tmp_path / "mine.toml"
    template.write_text("""# run: --config ${PEER_CONFIG}
tables = ["public.${PEER_TABLE_NAME}"]  # ${PEER_USER} at ${PEER_HOST}:${PEER_PORT}/${PEER_DATABASE}, into ${PEER_TOPIC}
topic_prefix = "${PEER_TOPIC_PREFIX}"
source.postgres.connection = "env:PEER_PG_URL"
source.postgres.slot_name = "${PEER_SLOT}"
source.postgres.publication_name = "${PEER_PUBLICATION}"
sink.kafka.brokers = ["${PEER_BOOTSTRAP}"]
http.address = "127.0.0.1:0"
# tombstones: no
tombstones = false
""")
    peer = ("--programs", "pg_recvlogical,millrace-profiled", "--peer", f"mine={os.environ['MILLRACE_BIN']},{template}", "--rows", "1000", "--rounds", "1")
    _, runs = matrix("--only", "insert,mixed", *peer)
    assert runs["insert", "mine"][0]["rows"] == runs["insert", "millrace-profiled"][0]["rows"] == 1000 and runs["mixed", "mine"][0]["rows"] == 10000
    for path in glob.glob(os.path.join(BENCHMARKS, "templates", "*")):
        filled = subprocess.run([os.path.join(BENCHMARKS, "start-template.py")], capture_output=True, text=True, check=True, timeout=60, env={
            **os.environ, "PEER_BINARY": "/bin/echo", "PEER_TEMPLATE": path, "PEER_FOLDER": str(tmp_path), "PEER_PG_URL": "postgresql://u:p@h:1/d",
            "PEER_TABLE": "public.x,public.y", **{f"PEER_{name}": "p" for name in ("SLOT", "PUBLICATION", "BOOTSTRAP", "TOPIC_PREFIX")}}).stdout
        assert str(tmp_path) + "/config." in filled, path
    outboxx = tomllib.loads((tmp_path / "config.toml").read_text())["streams"]
    assert [(one["source"]["resource"], one["sink"]["destination"]) for one in outboxx] == [("x", "p.public.x"), ("y", "p.public.y")]
    template.write_text("${PEER_NOTHING}")
    told, _ = matrix("--only", "socket", *peer, code=1)
    assert "it ended with 1" in told


def test_librdkafka_alone_in_short(matrix):
    """It is a peer whose records of a copy are checked, and it keeps the rate. One that can't go on has failed."""
    both = ("--programs", "librdkafka,librdkafka-exactly-once", "--rounds", "1", "--seconds", "1", "--rows", "50000")
    matrix("--only", "steady-1000", *both)
    _, runs = matrix("--only", "copy", "--programs", "librdkafka", *both[2:])
    assert len(runs) == 3 and all(one["cpu_us"] > 0 for (one,) in runs.values())
    assert all(one["wakes_per_s"] > 50 and one["threads_us"] for (load, _), (one,) in runs.items() if load == "steady-1000")
    told, _ = matrix("--only", "steady-0", *both, code=1, MILLRACE_FLOOR="/bin/false")
    assert "no row came through" in told


def test_far_measures_in_short(matrix):
    _, runs = matrix("--only", "far-1-2,far-12-20", "--rows", "10000", "--rounds", "1")
    assert set(runs) == {(load, program) for load in ("far-1-2", "far-12-20") for program in ("millrace", "millrace-exactly-once")}
    assert all(one["rows_per_s"] > 0 for (one,) in runs.values())


def test_sustained_measures_in_short(matrix):
    """Two seconds at each rate: what it finds says nothing. The broker is restarted once."""
    _, runs = matrix("--only", "sustained", "--programs", "millrace", "--minutes", "0.04", "--rounds", "1")
    (one,) = runs["sustained", "millrace"]
    assert one["flat"] and one["rate"] >= 100 and one["half_rate"] == one["rate"] // 2
    assert ("half_failed" in one or one["half_max_ms"] > 500) and len(one["probes"]) > 1


def left_behind():
    with psycopg.connect(os.environ["MILLRACE_PG_URL"]) as connection:
        return connection.execute("SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'bench%' UNION ALL "
                                  "SELECT datname FROM pg_database WHERE datname LIKE 'bench%'").fetchall()


def test_a_sigterm_leaves_nothing_behind(tmp_path):
    """While a program is measured that would go on for ever."""
    endless, started = tmp_path / "endless", tmp_path / "started"
    endless.write_text(f"#!/bin/sh\n[ $1 != --version ] || exit 0\necho $$ > {started}.part\nmv {started}.part {started}\nexec sleep 1000\n")
    endless.chmod(0o755)
    bench = subprocess.Popen([os.path.join(BENCHMARKS, "matrix.sh"), "--only", "insert", "--rows", "1000", "--programs", "millrace", "--into",
                              str(tmp_path / "figures.json")],
                             env={**os.environ, "MILLRACE_BIN": str(endless)}, stderr=subprocess.PIPE, text=True)
    try:
        eventually(started.exists, 60, "the program under measurement")
        bench.terminate()
        assert bench.wait(60) == 143, bench.stderr.read()
    finally:
        bench.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    assert not left_behind()


def test_a_peer_that_writes_rows_twice_and_others_not_at_all_has_failed(matrix, tmp_path):
    """It is not the fastest: as many records as there are rows, of half of the rows. The others keep their figures. What it
    started does not outlive it."""
    half, child = tmp_path / "half", tmp_path / "child"
    half.write_text(f"""#!{os.environ["MILLRACE_PYTHON"]}
import os, signal, subprocess
from confluent_kafka import Producer
producer = Producer({{"bootstrap.servers": os.environ["PEER_BOOTSTRAP"]}})
for number in range(1000):
    producer.produce(os.environ["PEER_TOPIC_PREFIX"] + "." + os.environ["PEER_TABLE"], "{{}}", '{{"id":%d}}' % (number // 2 + 1))
producer.flush()
with open("{child}", "w") as file:
    file.write(str(subprocess.Popen(["sleep", "1000"]).pid))
signal.pause()
""")
    half.chmod(0o755)
    told, runs = matrix("--only", "insert", "--rows", "1000", "--rounds", "2", "--programs", "pg_recvlogical", "--peer", f"half={half}", code=1)
    assert "1000 of 1000 records; after them 500 of 1000 rows are not as in the tables; one is row 501" in told
    assert re.search(r"^\| rows/s \| [0-9].* \| failed \|$", told, re.M)
    assert len(runs["insert", "pg_recvlogical"]) == 2 and [one["round"] for one in runs["insert", "half"]] == [1]
    eventually(lambda: not os.path.exists(f"/proc/{child.read_text()}"), 30, "the end of the program's child")


def test_what_cannot_be_measured_is_refused_at_once(tmp_path):
    for script, *words, says in (
            ("matrix.sh", "--rounds", "0", "--into", str(tmp_path / "figures.json"), "0 is not a whole number from 1 on"),
            ("matrix.sh", "--into", str(tmp_path / "missing" / "figures.json"), "can't be written"),
            ("matrix.sh", "--beside", f"mine={tmp_path / 'missing'}", "--into", str(tmp_path / "figures.json"), "missing is not a program"),
            ("matrix.sh", "--peer", f"mine=/bin/true,{tmp_path}", "--into", str(tmp_path / "figures.json"), "is not a file"),
            ("matrix.sh", "--peer", f"mine={tmp_path}", "--into", str(tmp_path / "figures.json"), "is not a program"),
            ("matrix.sh", "--only", "drain", "--into", str(tmp_path / "figures.json"), "not one of insert, mixed"),
            ("latency.sh", "--json", str(tmp_path / "missing" / "figures.json"), "can't be written"),
            ("latency.sh", "--seconds", "2", "the first 2 don't count")):
        done = run(script, *words)
        assert done.returncode != 0 and says in done.stderr and "Traceback" not in done.stderr, (script, done.stderr)
    assert not left_behind()


def test_latency_says_where_slow_rows_were(tmp_path):
    figures = tmp_path / "figures.json"
    done = run("latency.sh", "--rate", "200", "--seconds", "4", "--json", str(figures))
    assert done.returncode == 0, done.stdout + done.stderr
    read = json.loads(figures.read_text())
    tail = read["tail"]
    assert tail["rows"] >= 1 and read["p90_ms"] <= tail["from_ms"] <= read["max_ms"] + 0.01
    assert sum(tail["longest"].values()) == pytest.approx(1)
    assert tail["stages_ms"]["flush"] > 0 and tail["usual_ms"]["flush"] > 0
    assert "Kafka's answer" in done.stdout


def test_latency_beside_copies(tmp_path):
    figures = tmp_path / "figures.json"
    done = run("latency.sh", "--rate", "200", "--seconds", "3", "--copy", "1000", "--json", str(figures))
    assert done.returncode == 0, done.stdout + done.stderr
    read = json.loads(figures.read_text())
    assert read["beside"]["copied"] > 0 and read["without"]["copied"] == 0 and read["ratio"] > 0


def test_steady_measures_in_short(matrix):
    told, runs = matrix("--only", "steady-0,steady-1000", "--programs", "pg_recvlogical,millrace,millrace-exactly-once", "--rounds", "1",
                        "--seconds", "1")
    assert all("p50_ms" not in one for (load, _), (one,) in runs.items() if load == "steady-0")
    for program in ("millrace", "millrace-exactly-once"):
        (busy,), (idle,) = runs["steady-1000", program], runs["steady-0", program]
        assert 0 < busy["p50_ms"] <= busy["p99.9_ms"] <= busy["max_ms"]
        assert busy["wakes"]["mr-sink"] > 0 and busy["wakes_per_s"] > idle["wakes_per_s"]
    assert "| 1,000 rows/s | exactly once |" in told
