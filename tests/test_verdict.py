"""The witnesses of pr-check.sh against faults that were placed on purpose (placed_faults.c): each is found and named.

Counts are judged here, for a busy machine does not change them."""

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

BUILD = os.path.join(ROOT, "build", "ci")
TURN = 6  # instructions of one turn of placed_faults.c's loop
# What 3 % are of: of a stage, or of all that a thread does.
SHARE = {"decode": ("decode",), "encode": ("encode",), "produce": ("produce",), "acknowledge": ("acknowledge",),
         "source": ("receive", "decode", "encode", "source thread"), "sink": ("produce", "acknowledge", "sink thread")}
OTHERS = {"allocation": ("allocation:1", "allocations +"), "wake-up": ("wake:2", "wake-ups asked for +"),
          "sleep": ("sleep:1000", "sleeps asked for +")}
pytestmark = [pytest.mark.timeout(1800), pytest.mark.skipif("MILLRACE_TEST_SANITIZED" in os.environ, reason="counts of a release")]


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


def turns_of(kind, counted):
    """How many turns make 3 %, by a count of the sound build; those of the sink thread are of a batch."""
    sums = profile_tools.sums_by_place([counted])[0]
    events = witnesses.EVENTS_COUNTED / counted["batches"] if kind == "sink" else 1
    return max(1, round(0.03 * sum(sums[place] for place in SHARE[kind]) * events / TURN))


@pytest.mark.parametrize("fault, place, function", [
    ("decode", "decode", "mr_pg_payload_take"), ("encode", "encode", "mr_encode_change"),
    ("produce", "produce", "mr_record_headers_format"), ("acknowledge", "acknowledge", "mr_sink_counts_acked"),
    ("source", "source thread", "mr_batch_commit"), ("sink", "sink thread", "mr_ack_add")])
def test_three_percent_of_a_stage_or_thread_are_found_and_named(builds, fault, place, function):
    code, text = builds.verdict(f"{fault}:{turns_of(fault, builds.sound[0])}")
    said = text.split("# Verdict")[1].split("|")[0]
    assert code == 3 and f"instructions in {place} +" in said and f"`__wrap_{function}` +" in said, text
    others = [other for other in profile_tools.ROW_BY_ROW if other != place and f"instructions in {other} " in said]
    assert not others, f"also named: {others}"


@pytest.mark.parametrize("kind", OTHERS)
def test_one_more_allocation_or_sleep_and_two_more_wake_ups_are_found_and_named(builds, kind):
    fault, words = OTHERS[kind]
    code, text = builds.verdict(fault)
    said = text.split("|")[0]
    assert code == 3 and words in said, text
    assert not [other for _, other in OTHERS.values() if other != words and other in said], text


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
