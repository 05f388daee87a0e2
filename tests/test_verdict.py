"""The witnesses of pr-check.sh against faults that were placed on purpose (placed_faults.c): each is found and named.

Counts are judged here, for a busy machine does not change them. MILLRACE_TEST_VERDICT_CYCLES=20 runs the trial of
benchmarks/verdict_trial.py too: so many comparisons of a build with itself, and a slow-down in each cycle (5 to 40 minutes)."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))

# pylint: disable=wrong-import-position
import profile_tools
import verdict_trial
import witnesses

BUILD = os.path.join(ROOT, "build", "ci")
CYCLES = int(os.environ.get("MILLRACE_TEST_VERDICT_CYCLES", "0"))
pytestmark = [pytest.mark.timeout(7200 if CYCLES else 1800), pytest.mark.skipif("MILLRACE_TEST_SANITIZED" in os.environ, reason="counts of a release")]


class Builds:
    """One backlog; what the build without a fault costs is counted once."""

    def __init__(self, folder):
        subprocess.run(["cmake", "--preset", "ci"], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["cmake", "--build", "--preset", "ci", "--target", "millrace-faulty"], cwd=ROOT, check=True,
                       capture_output=True)
        self.binary = os.path.join(BUILD, "millrace-faulty")
        self.folder = str(folder)
        self.stand = witnesses.Drains(30000)
        self.stand.make_table()
        self.stand.backlog("counted", witnesses.EVENTS_COUNTED)
        self.sound = self.counts("")

    def counts(self, fault, runs=2):
        return [self.stand.instructions(self.binary, self.folder, {"MILLRACE_FAULT": fault}) for _ in range(runs)]

    def verdict(self, fault):
        """(exit code, text) of the build with this fault against the one without."""
        about = {**witnesses.describe(self.binary), **witnesses.machine(), "scenario": "drain", "options": {}}
        found = {"sides": {"base": about, "head": about},
                 "instructions": {"base": self.sound, "head": self.counts(fault, 1 if fault else 2)}, "runs": {"base": [], "head": []}}
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


@pytest.mark.parametrize("fault, place, function", [
    ("decode", "decode", "mr_pg_payload_take"), ("encode", "encode", "mr_encode_change"),
    ("produce", "produce", "mr_record_headers_format"), ("acknowledge", "acknowledge", "mr_sink_counts_acked"),
    ("source", "source thread", "mr_batch_commit"), ("sink", "sink thread", "mr_ack_add")])
def test_three_percent_of_a_stage_or_thread_are_found_and_named(builds, fault, place, function):
    code, text = builds.verdict(f"{fault}:{verdict_trial.turns_of(fault, builds.sound[0])}")
    said = text.split("# Verdict")[1].split("|")[0]
    assert code == 3 and f"instructions in {place} +" in said and f"`__wrap_{function}` +" in said, text
    others = [other for other in profile_tools.ROW_BY_ROW if other != place and f"instructions in {other} " in said]
    assert not others, f"also named: {others}"


@pytest.mark.parametrize("kind", verdict_trial.OTHERS)
def test_one_more_allocation_or_sleep_and_two_more_wake_ups_are_found_and_named(builds, kind):
    fault, words = verdict_trial.OTHERS[kind]
    code, text = builds.verdict(fault)
    said = text.split("|")[0]
    assert code == 3 and words in said, text
    assert not [other for _, other in verdict_trial.OTHERS.values() if other != words and other in said], text


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


@pytest.mark.skipif(not CYCLES, reason="MILLRACE_TEST_VERDICT_CYCLES=20 takes minutes")
def test_the_trial(builds, tmp_path):
    runs, judged = str(tmp_path / "runs.jsonl"), str(tmp_path / "judged.json")
    trial = [sys.executable, os.path.join(ROOT, "benchmarks", "verdict_trial.py")]
    subprocess.run([*trial, "collect", runs, "--binary", builds.binary, "--cycles", str(CYCLES), "--faults", str(CYCLES)],
                   check=True)
    subprocess.run([*trial, "judge", runs, "--json", judged], check=True)
    with open(judged, encoding="utf-8") as file:
        found = json.load(file)["judgements"]
    same = [one for one in found if one["comparison"] == "none"]
    slow = [one for one in found if one["comparison"] in verdict_trial.SHARE]
    assert len(same) == len(slow) == CYCLES and all(one["good"] for one in same)
    assert sum(one["good"] for one in slow) >= 0.9 * CYCLES
