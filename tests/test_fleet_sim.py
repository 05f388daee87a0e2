"""benchmarks/fleet_sim.py: the same table of the same seed, a fault that must show, and a prediction beside three real agents of which one is killed."""

import datetime
import os
import statistics
import sys
import time

import pytest

from agents import PARTITIONS, Fleet

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
import fleet_sim  # pylint: disable=wrong-import-position

PIPELINES = 18  # the stand has 20 walsenders
SESSION_S = 6


def waits(**settings):
    """Of 500 pipelines on five hosts."""
    return fleet_sim.unserved(fleet_sim.Fleet(**{"pipelines": 500, "hosts": 5, **settings}), seed=1, rounds=20)


def test_the_same_of_a_seed():
    words = ["--pipelines", "60", "--hosts", "3,6", "--rounds", "5"]
    assert fleet_sim.table(fleet_sim.options(words)) == fleet_sim.table(fleet_sim.options(words)) != fleet_sim.table(fleet_sim.options([*words, "--seed", "2"]))


def test_the_page_has_it():
    with open(os.path.join(ROOT, "docs", "many-databases.md"), encoding="utf-8") as file:
        assert fleet_sim.table(fleet_sim.options([])) in file.read(), "run benchmarks/fleet_sim.py"


def test_starts_one_after_another_show():
    """As a shorter session does; and the other way round, more hosts and more starts at once."""
    usual, serial = waits(), waits(at_once=1)
    assert max(serial) > max(usual) + 10 and statistics.median(serial) > statistics.median(usual) + 5
    assert statistics.median(usual) - statistics.median(waits(session=10)) == pytest.approx(20, abs=1)
    assert max(waits(hosts=20)) < max(usual)


def readers(fleet):
    """{slot: process id of the walsender that reads it}"""
    source = next(iter(fleet.sources.values()))
    return dict(source.run("SELECT slot_name, active_pid FROM pg_replication_slots WHERE active", "postgres"))


def since(wall, said):
    """Seconds from then to a line of a log."""
    return round(datetime.datetime.fromisoformat(said["time"].replace("Z", "+00:00")).timestamp() - wall, 1)


@pytest.mark.alone
def test_a_prediction():
    """Three agents, one killed: for how long its pipelines had no stream, and for how long the simulation says so."""
    fleet = Fleet(PIPELINES, session_s=SESSION_S)
    try:
        fleet.apply()
        first, *others = (fleet.agent(host).start() for host in "abc")
        fleet.shared(first, *others)
        mine = {one["name"] for one in fleet.status().values() if one["node"] == "a"}
        before, begun, wall, measured = readers(fleet), time.monotonic(), time.time(), {}
        first.kill()
        while len(measured) < len(mine):
            assert time.monotonic() - begun < 60, f"{mine - set(measured)} are not served"
            for name, pid in readers(fleet).items():
                if name in mine and pid != before[name]:
                    measured.setdefault(name, time.monotonic() - begun)
            time.sleep(0.02)
        steps = [(event, [since(wall, one) for agent in others for one in agent.log(event) if since(wall, one) > 0])
                 for event in ("fleet_assigned", "fleet_pipeline_started")]
        cpu = statistics.median(one["bill"]["cpu_seconds"] for one in fleet.status().values())
    finally:
        fleet.close()
    found = sorted(measured.values())
    predicted = sorted(fleet_sim.unserved(fleet_sim.Fleet(PIPELINES, 3, session=SESSION_S, partitions=PARTITIONS - 1, cores=2 / 3), seed=1, rounds=200))
    print(f"measured: {len(found)} pipelines, median {statistics.median(found):.1f} s, longest {found[-1]:.1f} s; "
          f"predicted: median {statistics.median(predicted):.1f} s, longest {predicted[-1]:.1f} s; {cpu:.2f} s of CPU each so far; {steps}")
    assert predicted[0] - 1 <= statistics.median(found) <= predicted[-1] + 3, (found,  # servers and agents share the processors
            predicted[:: len(predicted) // 20])
