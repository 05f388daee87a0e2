"""The benchmarks run, count what they should, and refuse a reader that loses rows. Short ones: no figure is judged."""

import json
import os
import re
import subprocess

import psycopg
import pytest

from kit import eventually

BENCHMARKS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "benchmarks")


def run(script, *arguments, **environment):
    return subprocess.run([os.path.join(BENCHMARKS, script), *arguments], env={**os.environ, **environment},
                          capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("mix, delivery", [("mixed", "exactly-once"), ("tables", "at-least-once"),
                                           ("partitions", "both")])
def test_drain_measures_in_short(tmp_path, mix, delivery):
    figures = tmp_path / "figures.json"
    done = run("drain.sh", "--mix", mix, "--delivery", delivery, "--rows", "10000", "--rounds", "1",
               "--beside", "same=" + os.environ["MILLRACE_BIN"], "--json", str(figures))
    assert done.returncode == 0, done.stdout + done.stderr
    read = json.loads(figures.read_text())
    assert (read["mix"], read["delivery"], read["rows"]) == (mix, delivery, 10000)
    assert set(read["readers"]) == {"pg_recvlogical", "millrace", "same"} | ({"exactly-once"} if delivery == "both" else set())
    for reader in read["readers"].values():
        assert 0 < reader["rows_per_s_whole"] <= reader["rows_per_s"]
        assert reader["cpu_us"] > 0 and reader["rss_mb"] > 1


def test_far_measures_in_short(tmp_path):
    figures = tmp_path / "figures.json"
    done = run("far.sh", "--rows", "2000", "--rounds", "1", "--delays", "4", "--json", str(figures))
    assert done.returncode == 0, done.stdout + done.stderr
    read = json.loads(figures.read_text())
    assert set(read) == {"1", "12"}
    for found in read.values():
        assert set(found) == {"defaults, 4 ms", "large, 4 ms"}
        assert all(len(rounds) == 1 and rounds[0] > 0 for rounds in found.values())


def test_drain_refuses_a_reader_that_loses_rows(tmp_path):
    """A build that stops after half of the records, and says that all is well."""
    half = tmp_path / "half"
    half.write_text('#!/bin/sh\nfor last; do :; done\nset -- "$1" "$2" "$3" $((last / 2))\n'
                    f'exec "{os.environ["MILLRACE_BIN"]}" "$@"\n')
    half.chmod(0o755)
    done = run("drain.sh", "--mix", "small", "--rows", "10000", "--rounds", "1", MILLRACE_BIN=str(half))
    assert done.returncode != 0 and "arrived instead of 10000" in done.stderr, done.stdout + done.stderr


def left_behind():
    with psycopg.connect(os.environ["MILLRACE_PG_URL"]) as connection:
        return connection.execute("SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'bench%' UNION ALL "
                                  "SELECT datname FROM pg_database WHERE datname LIKE 'bench%'").fetchall()


def test_a_sigterm_leaves_nothing_behind(tmp_path):
    """While a program is measured that would go on for ever."""
    endless, started = tmp_path / "endless", tmp_path / "started"
    endless.write_text(f"#!/bin/sh\necho $$ > {started}.part\nmv {started}.part {started}\nexec sleep 1000\n")
    endless.chmod(0o755)
    bench = subprocess.Popen([os.path.join(BENCHMARKS, "drain.sh"), "--rows", "1000", "--rounds", "1"],
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


def test_a_peer_that_writes_rows_twice_and_others_not_at_all_has_failed(tmp_path):
    """It is not the fastest: as many records as there are rows, of half of the rows. The others keep their figures. What it
    started does not outlive it."""
    half, child, table, figures = (tmp_path / name for name in ("half", "child", "table.md", "figures.json"))
    half.write_text(f"""#!{os.environ["MILLRACE_PYTHON"]}
import os, signal, subprocess
from confluent_kafka import Producer
producer = Producer({{"bootstrap.servers": os.environ["PEER_BOOTSTRAP"]}})
for number in range(1000):
    producer.produce(os.environ["PEER_TOPIC_PREFIX"] + "." + os.environ["PEER_TABLE"], key='{{"id":%d}}' % (number // 2 + 1))
producer.flush()
with open("{child}", "w") as file:
    file.write(str(subprocess.Popen(["sleep", "1000"]).pid))
signal.pause()
""")
    half.chmod(0o755)
    done = run("compare-peers.sh", "--rows", "1000", "--rounds", "2", "--seconds", "0", "--peer", "pg_recvlogical", "--peer",
               f"half={half}", "--out", str(table), "--json", str(figures))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "500 of 1000 rows are not among its first 1000 records; one is row 501" in done.stdout
    assert re.search(r"^\| rows/s \| [0-9].* \| failed \|$", table.read_text(), re.M)
    read = json.loads(figures.read_text())
    assert len(read["pg_recvlogical"]["drains"]) == 2 and "500 of 1000" in read["half"]["failed"]
    eventually(lambda: not os.path.exists(f"/proc/{child.read_text()}"), 30, "the end of the program's child")


def test_what_cannot_be_measured_is_refused_at_once(tmp_path):
    for script, *words, says in (
            ("drain.sh", "--rounds", "0", "0 is not a whole number from 1 on"),
            ("snapshot.sh", "--rows", "0", "0 is not a whole number from 1 on"),
            ("steady.sh", "--json", str(tmp_path / "missing" / "figures.json"), "can't be written"),
            ("drain.sh", "--beside", str(tmp_path / "missing"), "missing is not a program"),
            ("compare-peers.sh", "--peer", f"mine={tmp_path}", "is not a program"),
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


def test_steady_measures_in_short(tmp_path):
    figures, table = tmp_path / "figures.json", tmp_path / "table.md"
    done = run("steady.sh", "--rates", "0,500", "--rounds", "1", "--seconds", "1", "--json", str(figures),
               "--out", str(table))
    assert done.returncode == 0, done.stdout + done.stderr
    runs = {(run["rate"], run["peer"]): run["rounds"][0] for run in json.loads(figures.read_text())}
    assert set(runs) == {(rate, peer) for rate in (0, 500) for peer in ("pg_recvlogical", "millrace", "millrace-exactly-once")}
    assert all("p50_ms" not in run for (rate, _), run in runs.items() if rate == 0)
    for peer in ("millrace", "millrace-exactly-once"):
        busy = runs[500, peer]
        assert 0 < busy["p50_ms"] <= busy["p99.9_ms"] <= busy["max_ms"]
        assert busy["wakes"]["mr-sink"] > 0 and busy["wakes_per_s"] > runs[0, peer]["wakes_per_s"]
    assert "| 500 | millrace-exactly-once |" in table.read_text()
