"""profile-run.sh and profile-compare.sh: what they write, how good it is, and that they tell builds apart.

Programs come from the preset ci."""

import json
import os
import random
import re
import subprocess

import pytest

from kit import Database, dsn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "ci")
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
    run("cmake", "--preset", "ci")
    run("cmake", "--build", "--preset", "ci", "--target",
        "millrace", "millrace-load", "millrace-flame", "millrace-faulty")
    return {"MILLRACE_BUILD_DIR": BUILD, "MILLRACE_BIN": os.path.join(BUILD, "millrace")}


@pytest.fixture(scope="module")
def burst(build, tmp_path_factory):
    """The result of a short burst, in a folder whose name has a space."""
    folder = str(tmp_path_factory.mktemp("a burst"))
    return profiled(folder, **build)


def profiled(folder, **environment):
    run("benchmarks/profile-run.sh", "--out", folder, "--quiet", "--seconds", "3", "--rate", "2000", "--burst-events",
        "60000", "--burst-transaction", "10000", "--frequency", "3999", **environment)
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


def test_the_profile_is_of_the_burst(burst):
    """By the times of perf's own samples: nine tenths lie between the burst's first row and its last record. Bursts are
    repeated until there are 2,000."""
    load = read(burst, "load.json")
    inside, times = 0, []
    for number, (first, last) in enumerate(load["windows"], 1):
        found = [float(at) for at in re.findall(r"(\d+\.\d+):", run(
            "perf", "script", "-f", "-i", os.path.join(burst, f"perf{'' if number == 1 else f'-{number}'}.data"), "-F", "time",
            "-G").stdout)]
        inside += sum(first <= at <= last for at in found)
        times += found
    total = read(burst, "profile.json")["total"]
    assert total >= 2000, f"{total} samples of {load['bursts']} bursts"
    assert 0.9 * total <= inside <= 1.1 * total and read(burst, "profile-floor.json")["total"] > 0
    assert inside + read(burst, "profile-floor.json")["total"] >= 0.95 * len(times)
    assert load["delivered"] >= load["bursts"] * 60000 and load["window"][0] <= load["delivered"]
    assert re.search(r": (the burst|\d+ bursts)<", read(burst, "flame.svg"))
    assert re.search(r": the floor around (the burst|\d+ bursts)<", read(burst, "flame-floor.svg"))
    assert re.search(r"The profile is of (the burst|\d+ bursts) ", read(burst, "summary.md"))


def test_the_stages_are_told_by_functions_that_there_are(build):
    """A function that is renamed, or no longer there, would leave its samples to another stage."""
    with open(os.path.join(ROOT, "src", "profiler", "draw", "stage.c"), encoding="utf-8") as file:
        named = re.findall(r'["|]((?:mr|pg|kafka|file|discard|rd_kafka)_\w+\*?|produce|read_tuple)(?=["|])', file.read())
    assert len(named) > 25, named
    there = {re.sub(r"[.@].*", "", line.split()[-1]) for line in run("nm", build["MILLRACE_BIN"]).stdout.splitlines()}
    missing = [name for name in named if not any(one == name or (name[-1] == "*" and one.startswith(name[:-1])) for one in there)]
    assert not missing, f"no function of millrace or librdkafka has the name of {missing}"


def test_a_thin_profile_says_so_and_nothing_else(build, burst, tmp_path):
    """One that is not repeated: it is not judged, by no reader."""
    profile = read(burst, "profile.json")
    thin = copy_result(burst, str(tmp_path / "thin"))
    for total, says in ((1999, True), (2000, False)):
        with open(os.path.join(thin, "profile.json"), "w", encoding="utf-8") as file:
            json.dump({**profile, "total": total}, file)
        said = run(os.environ["MILLRACE_PYTHON"], TOOLS, "summary", thin).stdout
        assert ("Too thin to judge" in said) == says and ("## What it says" in said) != says
        assert ("The largest stage is" in run("benchmarks/explain.sh", thin).stdout) != says
        said = run(COMPARE, burst, thin, check=False, **build)
        assert said.stdout.startswith("**Inconclusive**: **Too thin to judge**") == says and said.returncode == 4
        assert ("CPU in " in said.stdout and "## Where" in said.stdout) != says


def test_explain_names_stages(burst):
    said = run("benchmarks/explain.sh", burst).stdout
    assert "The largest stage is **" in said and "µs of CPU an event" in said


def copy_result(source, target, instructions=None):
    """A result as `source`, with instructions."""
    os.makedirs(target)
    for name in ("load.json", "env.txt", "profile.json", "folded.txt", "runs.json"):
        with open(os.path.join(target, name), "w", encoding="utf-8") as file:
            text = read(source, name)
            file.write(json.dumps(text) if name.endswith(".json") else text)
    if instructions is not None:
        with open(os.path.join(target, "instructions.json"), "w", encoding="utf-8") as file:
            json.dump(instructions, file)
    return target


def result_of(burst, target, chance, runs=16, about=None, **slower):
    """A result with so many runs of the build of `burst`, on a machine that varies by 1 %; `slower` by stage, in parts."""
    copy_result(burst, target)
    one = read(burst, "runs.json")[0]
    found = []
    for _ in range(runs):
        noise = chance.gauss(1, 0.01)
        found.append({**one, "about": {**one["about"], **(about or {})}, "cpu_us": {
            stage: us * noise * (1 + slower.get(stage, 0)) for stage, us in one["cpu_us"].items()}})
    with open(os.path.join(target, "runs.json"), "w", encoding="utf-8") as file:
        json.dump(found, file)
    return target


def test_one_run_of_each_says_what_can_be_said(build, burst, tmp_path):
    """The verdict is the first line: of a copy, how much one run varies; of a slow encoder, that it is far beyond that. The needless
    turns are in the wrapper around the encoder, whose name is no stage's: they count for its caller, decode."""
    done = run(COMPARE, burst, copy_result(burst, str(tmp_path / "b")), check=False, **build)
    assert done.returncode == 4, done.stdout + done.stderr
    assert re.match(r"\*\*Inconclusive\*\*: \d+ more pairs? needed; CPU in the flow \+0\.0%, and one run varies by ±\d+%\.", done.stdout)
    windows = read(burst, "runs.json")[0]["windows"]
    assert len(windows) >= 5 and all(window["events"] > 30000 and window["walsender_us"] > 0 for window in windows)
    slow = profiled(str(tmp_path / "slow"), MILLRACE_FAULT="encode:5000", MILLRACE_BUILD_DIR=BUILD,
                    MILLRACE_BIN=os.path.join(BUILD, "millrace-faulty"))
    done = run(COMPARE, burst, slow, check=False, **build)
    assert done.returncode == 3, done.stdout
    assert re.match(r"\*\*Different\*\*: .*CPU in decode \+\d{3,}.*, far beyond what one run varies by\.\n", done.stdout), done.stdout


def test_runs_of_one_build_do_not_differ_and_a_slow_stage_does(build, burst, tmp_path):
    chance = random.Random(7)
    before = result_of(burst, str(tmp_path / "a"), chance)
    done = run(COMPARE, before, result_of(burst, str(tmp_path / "b"), chance), check=False, **build)
    assert done.returncode in (0, 4) and "**Different**" not in done.stdout, done.stdout
    slow = result_of(burst, str(tmp_path / "c"), chance, encode=0.5, produce=0.05)
    done = run(COMPARE, before, slow, check=False, **build)
    assert done.returncode == 3, done.stdout
    verdict = done.stdout.split("## Verdict")[1].split("|")[0]
    assert "CPU in encode +" in verdict and "CPU in decode" not in verdict
    assert "in 1000 rows, " in read(slow, "compare/diff-flame.svg") and "in 1000 rows, " in read(slow, "compare/diff-flame-before.svg")


def test_other_scenarios_are_refused_and_other_builds_said_in_red(build, burst, tmp_path):
    chance = random.Random(7)
    before = result_of(burst, str(tmp_path / "a"), chance)
    done = run(COMPARE, before, result_of(burst, str(tmp_path / "b"), chance, about={"scenario": "ramp"}), check=False, **build)
    assert done.returncode == 1 and "can't be compared: scenario: burst against ramp" in done.stderr
    done = run(COMPARE, before, result_of(burst, str(tmp_path / "c"), chance, about={"cpu": "another"}), check=False, **build)
    assert done.returncode == 1 and "cpu: " in done.stderr
    done = run(COMPARE, before, result_of(burst, str(tmp_path / "d"), chance, about={"flags": "-O0", "allocator": "x"}),
               check=False, **build)
    assert done.returncode == 3 and "[!CAUTION]" in done.stdout and "→ -O0" in done.stdout and "→ x" in done.stdout


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
            file.write('tables = ["public.t"]\nsource.postgres.connection = "env:TEST_URL"\n'
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
    def with_turns(name, turns):
        """What is around a placed fault counts in all three."""
        return backlog.instructions(str(tmp_path / name), os.path.join(BUILD, "millrace-faulty"), MILLRACE_FAULT=f"encode:{turns}")

    first, again = with_turns("one", 0), with_turns("two", 0)
    a_row = sum(first["stages"]["encode"].values()) / ROWS
    assert a_row > 200, first
    # A turn of the needless loop is about six instructions.
    slow = with_turns("three", round(a_row * 0.1 / 6))
    before = copy_result(burst, str(tmp_path / "before"), instructions=first)
    done = run(COMPARE, before, copy_result(burst, str(tmp_path / "same"), instructions=again), check=False, **build)
    assert "instructions in" not in done.stdout.split("## Verdict")[1].split("|")[0], done.stdout
    done = run(COMPARE, before, copy_result(burst, str(tmp_path / "slow"), instructions=slow), check=False, **build)
    assert done.returncode == 3, done.stdout
    verdict = done.stdout.split("## Verdict")[1]
    grown = re.search(r"instructions in encode \+(\d+\.\d)%", verdict)
    assert grown and 5 < float(grown[1]) < 20, verdict


def test_doctor_says_what_there_is(build):
    said = run("benchmarks/profile-run.sh", "--doctor", **build).stdout
    assert re.search(r"^perf +6|^perf +\d", said, re.M) and "perf_event_paranoid" in said


def test_a_tool_runs_in_a_container(tmp_path):
    """No container here: what would run in it is asked for with the tool, its options and a place for its results."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nfor word; do printf "%s\\n" "<$word>"; done\n')
    docker.chmod(0o755)
    out = tmp_path / "results"
    said = run("benchmarks/profile.sh", "heap", "--docker", "--out", str(out), "--rate", "100",
               PATH=f"{tmp_path}:{os.environ['PATH']}").stdout
    assert out.is_dir() and f"<-v>\n<{out}:/results>" in said and f"<-v>\n<{ROOT}:/millrace:ro>" in said
    assert said.endswith("<profile.sh>\n<heap>\n<--rate>\n<100>\n") and "<SYS_PTRACE>" in said
    inside = re.search(r"<bash>\n<-euc>\n<(.*)>\n<profile.sh>", said, re.S)[1]
    assert subprocess.run(["bash", "-n", "-c", inside], check=False).returncode == 0
    for script in re.findall(r"(?:scripts|benchmarks)/[a-z.-]+", inside):
        assert os.access(os.path.join(ROOT, script), os.X_OK), script


@pytest.mark.parametrize("command", ["profile-run.sh", "profile.sh", "profile-compare.sh", "explain.sh", "pr-check.sh", "witnesses.sh"])
def test_help_and_unknown_words(command):
    path = os.path.join(ROOT, "benchmarks", command)
    assert run(path, "--help").stdout.startswith("Usage: benchmarks/" + command)
    assert "error: " in run(path, "--nonsense", check=False).stderr


@pytest.mark.parametrize("command, says", [
    ("profile-run.sh burst --out", "--out wants a value"), ("profile-run.sh steady --bursts x", '--bursts wants a number, not "x"'),
    ("profile.sh heap --out", "--out wants a value"), ("pr-check.sh --rounds", "--rounds wants a value"),
    ("pr-check.sh --bursts", "--bursts wants a value"), ("../load/run-load.sh burst --out", "--out wants a value")])
def test_an_option_without_its_value_is_refused(build, command, says):
    """Before anything begins: what ran with a default instead ran for minutes, or, with --bursts x, for ever."""
    done = run(*f"benchmarks/{command}".split(), check=False, **build)
    assert done.returncode == 1 and f"error: {says}" in done.stderr


def test_a_wrong_option_of_the_load_leaves_no_summary(build, tmp_path):
    out = tmp_path / "out"
    done = run("benchmarks/profile-run.sh", "steady", "--out", str(out), "--rte", "5", check=False, **build)
    assert done.returncode == 1 and "unrecognized option '--rte'" in done.stderr and "the load was not begun" in done.stderr
    assert not (out / "summary.md").exists()


def test_two_that_begin_at_once_have_folders_of_their_own(tmp_path):
    """The clock stands still, so both want the same name."""
    (tmp_path / "date").write_text("#!/bin/sh\necho 20260101-000000\n")
    (tmp_path / "date").chmod(0o755)
    script = f'. "{ROOT}/scripts/lib/base.sh"; REPO_ROOT={tmp_path}; results_folder burst; results_folder burst'
    said = run("bash", "-euc", script, PATH=f"{tmp_path}:{os.environ['PATH']}").stdout.split()
    assert said == [f"{tmp_path}/results/20260101-000000-burst", f"{tmp_path}/results/20260101-000000-burst-2"]
    assert all(os.path.isdir(folder) for folder in said)
