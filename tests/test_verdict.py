"""The witnesses of pr-check.sh against faults that were placed on purpose (placed_faults.c): each is found and named.

Counts are judged here, for a busy machine does not change them. What needs a quiet one is judged when
MILLRACE_TEST_VERDICT_PAIRS says how many pairs of drains there may be."""

import argparse
import io
import os
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))

# pylint: disable=wrong-import-position
import profile_tools
import witnesses

BUILD = os.path.join(ROOT, "build", "profile")
PAIRS = int(os.environ.get("MILLRACE_TEST_VERDICT_PAIRS", "0"))
pytestmark = [pytest.mark.timeout(1800), pytest.mark.skipif("MILLRACE_TEST_SANITIZED" in os.environ, reason="counts of a release")]


class Builds:
    """One backlog; what the build without a fault costs is counted once."""

    def __init__(self, folder):
        subprocess.run(["cmake", "--preset", "profile"], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["cmake", "--build", "--preset", "profile", "--target", "millrace-faulty"], cwd=ROOT, check=True,
                       capture_output=True)
        self.binary = os.path.join(BUILD, "millrace-faulty")
        self.folder = str(folder)
        self.stand = witnesses.Drains(argparse.Namespace(rows=30000, option=[], keep=False))
        self.stand.make_table()
        self.stand.backlog("counted", witnesses.EVENTS_COUNTED)
        self.sound = self.counts("")
        # A drain's rows would be read by who counts, too: they have a database of their own.
        self.drains = witnesses.Drains(argparse.Namespace(rows=30000, option=[], keep=False))
        if PAIRS:
            self.drains.make_table()
            self.drains.backlog("drained", 30000)

    def counts(self, fault):
        return [self.stand.instructions(self.binary, self.folder, {"MILLRACE_FAULT": fault}) for _ in range(2)]

    def place(self, place):
        return sum(cost for at, _, cost in self.sound[0]["functions"] if at == place)

    def verdict(self, fault, counted=True):
        """(exit code, text) of the build with this fault against the one without."""
        about = {**witnesses.describe(self.binary), **witnesses.machine(), "scenario": "drain", "options": {}}
        found = {"sides": {"base": about, "head": about},
                 "instructions": {"base": self.sound if counted else [], "head": self.counts(fault) if counted else []},
                 "runs": {"base": [], "head": []}}
        for pair in range(0 if counted else PAIRS):
            for side in ("base", "head") if pair % 2 == 0 else ("head", "base"):
                environment = {"MILLRACE_FAULT": fault if side == "head" else ""}
                found["runs"][side].append(self.drains.drain(self.binary, environment))
        witnesses.write_json(os.path.join(self.folder, "witnesses.json"), found)
        text = io.StringIO()
        with redirect_stdout(text):
            code = profile_tools.print_verdict(self.folder)
        print(text.getvalue())
        return code, text.getvalue()


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    builds = Builds(tmp_path_factory.mktemp("verdict"))
    yield builds
    builds.stand.close()
    if PAIRS:
        builds.drains.close()


# Instructions of one turn of the loop of placed_faults.c, at the least.
TURN = 4


@pytest.mark.parametrize("fault, place, function", [
    ("decode", "decode", "mr_pg_payload_take"), ("encode", "encode", "mr_encode_change"),
    ("produce", "produce", "mr_record_headers_format"), ("acknowledge", "acknowledge", "mr_sink_counts_acked"),
    ("source", "source thread", "mr_batch_commit")])
def test_three_percent_of_a_stage_are_found_and_named(builds, fault, place, function):
    turns = max(1, round(builds.place(place) * 0.03 / TURN))
    code, text = builds.verdict(f"{fault}:{turns}")
    said = text.split("# Verdict")[1].split("|")[0]
    assert code == 3 and f"instructions in {place} +" in said and f"`__wrap_{function}` +" in said, text
    others = [other for other in profile_tools.ROW_BY_ROW if other != place and f"instructions in {other} " in said]
    assert not others, f"also named: {others}"


def test_a_loop_of_each_batch_in_the_sink_thread_is_found(builds):
    code, text = builds.verdict("sink:20000")
    assert code == 3 and "instructions in sink thread +" in text and "`__wrap_mr_ring_pop` +" in text, text


def test_one_allocation_an_event_is_found(builds):
    code, text = builds.verdict("allocation:1")
    assert code == 3 and "allocations +" in text.split("|")[0], text


def test_a_build_is_not_different_from_itself(builds):
    code, text = builds.verdict("")
    assert code != 3, text


def test_another_build_is_told_in_red(builds, tmp_path):
    witnesses.write_json(tmp_path / "witnesses.json", {
        "sides": {"base": {"flags": "-O2", "allocator": "libc"}, "head": {"flags": "-O0", "allocator": "jemalloc 5.3.0"}},
        "instructions": {"base": builds.sound, "head": builds.sound}, "runs": {"base": [], "head": []}})
    text = io.StringIO()
    with redirect_stdout(text):
        assert profile_tools.print_verdict(str(tmp_path)) == 3
    assert "[!CAUTION]" in text.getvalue() and "flags: -O2 → -O0; allocator: libc → jemalloc 5.3.0" in text.getvalue()


def test_flags_and_allocator_are_read_from_the_program(builds):
    about = witnesses.describe(builds.binary)
    assert "-O2" in about["flags"] and "-fPIE" in about["flags"] and about["compiler"] != "unknown"
    assert about["allocator"].startswith(("jemalloc", "libc")) and "(static)" in about["librdkafka"]


@pytest.mark.skipif(PAIRS < 8, reason="needs a quiet machine and MILLRACE_TEST_VERDICT_PAIRS=12")
@pytest.mark.parametrize("fault, kind", [("wake:1", "system calls (write)"), ("sleep:1000", "system calls (clock_nanosleep)")])
def test_wake_ups_and_sleeps_of_each_batch_are_found_and_named(builds, fault, kind):
    code, text = builds.verdict(fault, counted=False)
    assert code == 3 and kind in text.split("|")[0], text
