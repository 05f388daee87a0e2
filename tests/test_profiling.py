"""profile-run.sh and profile-compare.sh: what they write, how good it is, and that they tell builds apart.

Programs come from the preset profile, whose librdkafka has names."""

import json
import os
import random
import re
import subprocess

import pytest

from kit import Database, dsn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "profile")
COMPARE = os.path.join(ROOT, "benchmarks", "profile-compare.sh")
TOOLS = os.path.join(ROOT, "benchmarks", "profile_tools.py")
ROWS = 1500


def run(*command, check=True, **environment):
    done = subprocess.run(command, env={**os.environ, **environment}, cwd=ROOT, text=True, timeout=280,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def build():
    run("cmake", "--preset", "profile")
    run("cmake", "--build", "--preset", "profile", "--target",
        "millrace", "millrace-load", "millrace-flame", "millrace-slow")
    return {"MILLRACE_BUILD_DIR": BUILD, "MILLRACE_BIN": os.path.join(BUILD, "millrace")}


@pytest.fixture(scope="module")
def burst(build, tmp_path_factory):
    """The result of a short burst."""
    folder = str(tmp_path_factory.mktemp("burst"))
    run("benchmarks/profile-run.sh", "burst", "--out", folder, "--quiet", "--seconds", "6", "--rate", "3000",
        "--burst-events", "30000", "--frequency", "499", **build)
    return folder


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file) if name.endswith(".json") else file.read()


def test_a_burst_leaves_every_file(burst):
    assert os.path.getsize(os.path.join(burst, "perf.data")) > 10000
    svg = read(burst, "flame.svg")
    assert svg.startswith("<?xml") and svg.endswith("</svg>\n") and "mr-source" in svg
    assert "millrace" in read(burst, "perf-report.txt")
    load = read(burst, "load.json")
    assert load["complete"] and load["delivered"] == load["events"] >= 30000
    metrics = read(burst, "metrics.json")
    assert metrics["millrace_records_acknowledged_total"][""] >= load["delivered"]
    assert metrics["millrace_messages_in_flight"][""] == 0
    assert re.search(r"^cores=\d+$", read(burst, "env.txt"), re.M)
    assert "## What it says" in read(burst, "summary.md")


def test_samples_are_named_and_rooted(burst):
    profile = read(burst, "profile.json")
    assert profile["total"] > 100
    assert profile["named"] >= 0.95 * profile["total"], read(burst, "summary.md")
    assert profile["rooted"] >= 0.95 * profile["total"], read(burst, "summary.md")


def test_explain_names_stages(burst):
    said = run("benchmarks/explain.sh", burst).stdout
    assert "The largest stage is **" in said and "µs of CPU an event" in said


def copy_result(source, target, stacks=None, instructions=None, build=None):
    """A result as `source`, with other stacks or instructions."""
    os.makedirs(target)
    for name in ("load.json", "env.txt", "profile.json", "folded.txt"):
        with open(os.path.join(target, name), "w", encoding="utf-8") as file:
            text = read(source, name)
            file.write(json.dumps(text) if name.endswith(".json") else text)
    if stacks is not None:
        with open(os.path.join(target, "folded.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{stack} {count}\n" for stack, count in stacks.items())
        profile = run(os.path.join(build["MILLRACE_BUILD_DIR"], "millrace-flame"), "json",
                      os.path.join(target, "folded.txt")).stdout
        with open(os.path.join(target, "profile.json"), "w", encoding="utf-8") as file:
            file.write(profile)
    if instructions is not None:
        with open(os.path.join(target, "instructions.json"), "w", encoding="utf-8") as file:
            json.dump(instructions, file)
    return target


def drawn_again(folder, count, seed):
    """Stacks of `count` samples with the shares of a profile: another run of the same build, but for the machine."""
    stacks, weights = zip(*((line.rsplit(" ", 1)[0], int(line.rsplit(" ", 1)[1]))
                            for line in read(folder, "folded.txt").splitlines()))
    found = {}
    for stack in random.Random(seed).choices(stacks, weights, k=count):
        found[stack] = found.get(stack, 0) + 1
    return found


def test_samples_of_one_build_do_not_differ_and_a_hot_function_does(build, burst, tmp_path):
    before = copy_result(burst, str(tmp_path / "a"), drawn_again(burst, 20000, 1), build=build)
    same = drawn_again(burst, 20000, 2)
    after = copy_result(burst, str(tmp_path / "b"), same, build=build)
    done = run(COMPARE, before, after, check=False, **build)
    assert done.returncode == 0, done.stdout
    assert "**No difference**" in done.stdout
    slow = {**same, "mr-source;start_thread [libc.so.6];mr_intake_main;mr_encode_change;mr_json_needless": 1000}
    after = copy_result(burst, str(tmp_path / "c"), slow, build=build)
    done = run(COMPARE, before, after, check=False, **build)
    assert done.returncode == 3, done.stdout
    verdict = done.stdout.split("## Verdict")[1]
    assert "stage encode +" in verdict and "`mr_json_needless` (encode)" in verdict
    svg = read(os.path.join(after, "compare"), "diff-flame.svg")
    assert re.search(r"mr_json_needless .*change \+4\.\d+ points.*fill=\"rgb\(255,", svg)


class Backlog:
    """The same rows, again and again: every run gets a copy of one slot."""

    def __init__(self):
        self.database = Database()
        self.database.run("CREATE TABLE t (id bigint PRIMARY KEY, amount numeric, payload text, at timestamptz)")
        self.database.run("CREATE PUBLICATION p FOR TABLE t")
        self.database.run("SELECT pg_create_logical_replication_slot('" + self.database.slot + "', 'pgoutput')")
        self.database.run(f"INSERT INTO t SELECT g, g / 8.0, repeat(md5(g::text), 4), '2026-01-01Z'::timestamptz + g "
                          f"* interval '1 s' FROM generate_series(1, {ROWS}) g")

    def instructions(self, folder, binary, **environment):
        """Of encoder and decoder, in one run under callgrind."""
        os.makedirs(folder)
        slot = os.path.basename(folder) + "_" + self.database.slot
        self.database.run(f"SELECT pg_copy_logical_replication_slot('{self.database.slot}', '{slot}')")
        config = os.path.join(folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write('tables = ["public.t"]\nsource.postgres.connection_env = "TEST_URL"\n'
                       f'source.postgres.slot_name = "{slot}"\nsource.postgres.publication_name = "p"\n'
                       'sink.type = "file"\nsink.file.path = "/dev/null"\n')
        run("valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind.out",
            "--compress-strings=no", "--dump-line=yes", "--dump-instr=yes", "--fair-sched=yes",
            binary, "--config", config, "--stop-after", str(ROWS),
            TEST_URL=dsn(self.database.name), **environment)
        with open(os.path.join(folder, "load.json"), "w", encoding="utf-8") as file:
            json.dump({"delivered": ROWS}, file)
        return json.loads(run(os.environ["MILLRACE_PYTHON"], TOOLS, "instructions", folder).stdout)


@pytest.fixture
def backlog():
    backlog = Backlog()
    yield backlog
    backlog.database.drop()


def test_ten_percent_in_the_encoder_are_found_and_named(build, burst, backlog, tmp_path):
    first = backlog.instructions(str(tmp_path / "one"), build["MILLRACE_BIN"])
    again = backlog.instructions(str(tmp_path / "two"), build["MILLRACE_BIN"])
    a_row = sum(first["stages"]["encode"].values()) / ROWS
    assert a_row > 200, first
    # A turn of the needless loop is about five instructions.
    slow = backlog.instructions(str(tmp_path / "three"), os.path.join(BUILD, "millrace-slow"),
                                MILLRACE_SLOWDOWN=str(round(a_row * 0.1 / 5)))
    before = copy_result(burst, str(tmp_path / "before"), instructions=first)
    done = run(COMPARE, before, copy_result(burst, str(tmp_path / "same"), instructions=again), check=False, **build)
    assert done.returncode == 0 and "**No difference**" in done.stdout, done.stdout
    done = run(COMPARE, before, copy_result(burst, str(tmp_path / "slow"), instructions=slow), check=False, **build)
    assert done.returncode == 3, done.stdout
    verdict = done.stdout.split("## Verdict")[1]
    grown = re.search(r"encode \+(\d+\.\d) % instructions an event \(`__wrap_mr_encode_change` \+", verdict)
    assert grown and 5 < float(grown[1]) < 20, verdict


def test_doctor_says_what_there_is(build):
    said = run("benchmarks/profile-run.sh", "--doctor", **build).stdout
    assert re.search(r"^perf +6|^perf +\d", said, re.M) and "perf_event_paranoid" in said


@pytest.mark.parametrize("command", ["profile-run.sh", "profile.sh", "profile-compare.sh", "explain.sh", "pr-check.sh"])
def test_help_and_unknown_words(command):
    path = os.path.join(ROOT, "benchmarks", command)
    assert run(path, "--help").stdout.startswith("Usage: benchmarks/" + command)
    assert "error: " in run(path, "--nonsense", check=False).stderr
