"""The benchmarks run, count what they should, and refuse a reader that loses rows. Short ones: no figure is judged."""

import json
import os
import subprocess

import pytest

BENCHMARKS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "benchmarks")


def run(script, *arguments, **environment):
    return subprocess.run([os.path.join(BENCHMARKS, script), *arguments], env={**os.environ, **environment},
                          capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("mix, delivery", [("mixed", "exactly-once"), ("tables", "at-least-once"),
                                           ("partitions", "both")])
def test_drain(tmp_path, mix, delivery):
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


def test_drain_refuses_a_reader_that_loses_rows(tmp_path):
    """A build that stops after half of the records, and says that all is well."""
    half = tmp_path / "half"
    half.write_text('#!/bin/sh\nfor last; do :; done\nset -- "$1" "$2" "$3" $((last / 2))\n'
                    f'exec "{os.environ["MILLRACE_BIN"]}" "$@"\n')
    half.chmod(0o755)
    done = run("drain.sh", "--mix", "small", "--rows", "10000", "--rounds", "1", MILLRACE_BIN=str(half))
    assert done.returncode != 0 and "arrived instead of 10000" in done.stderr, done.stdout + done.stderr


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


def test_steady(tmp_path):
    figures, table = tmp_path / "figures.json", tmp_path / "table.md"
    done = run("steady.sh", "--rates", "0,500", "--rounds", "1", "--seconds", "1", "--json", str(figures),
               "--out", str(table))
    assert done.returncode == 0, done.stdout + done.stderr
    runs = {(run["rate"], run["peer"]): run["rounds"][0] for run in json.loads(figures.read_text())}
    assert set(runs) == {(rate, peer) for rate in (0, 500) for peer in ("millrace", "millrace-exactly-once")}
    assert all("p50_ms" not in run for (rate, _), run in runs.items() if rate == 0)
    for peer in ("millrace", "millrace-exactly-once"):
        busy = runs[500, peer]
        assert 0 < busy["p50_ms"] <= busy["p99.9_ms"] <= busy["max_ms"]
        assert busy["wakes"]["mr-sink"] > 0 and busy["wakes_per_s"] > runs[0, peer]["wakes_per_s"]
    assert "| 500 | millrace-exactly-once |" in table.read_text()
