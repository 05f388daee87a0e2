"""The job of .github/workflows/pr-checks.yml: its own command is run, and what it uploads is there.

In short: two build folders that exist already, few rows and short bursts. MILLRACE_TEST_PR_CHECK=1 runs the command as it
stands, with both builds and all rounds (about 15 minutes)."""

import glob
import os
import re
import shlex
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "ci")
LONG = os.environ.get("MILLRACE_TEST_PR_CHECK") == "1"
SHORT = ("--rounds", "1", "--pairs", "1", "--rows", "10000", "--seconds", "3", "--rate", "1000", "--burst-events", "20000",
         "--bursts", "1")
pytestmark = [pytest.mark.timeout(3600 if LONG else 600),
              pytest.mark.skipif("MILLRACE_TEST_SANITIZED" in os.environ, reason="counts of a release")]


def workflow():
    """The command that the job runs, and the patterns of what it uploads, in the folder of its results."""
    with open(os.path.join(ROOT, ".github", "workflows", "pr-checks.yml"), encoding="utf-8") as file:
        text = file.read()
    command = re.search(r"- run: (benchmarks/pr-check\.sh .*)", text)[1]
    uploads = re.findall(r"^ +(?:path: )?results/pr/(\S+)$", text, re.MULTILINE)
    assert "results/pr/compare/comparison.md >> " in text and len(uploads) > 10
    return shlex.split(command), uploads


@pytest.fixture(scope="module")
def two_builds(tmp_path_factory):
    """Twice the same: the program with places for faults."""
    for command in (("--preset", "ci"),
                    ("--build", "--preset", "ci", "--target", "millrace-load", "millrace-flame", "millrace-faulty")):
        subprocess.run(["cmake", *command], cwd=ROOT, check=True, capture_output=True)
    folder = tmp_path_factory.mktemp("builds")
    for side in ("base", "head"):
        os.makedirs(folder / side)
        for name, program in (("millrace", "millrace-faulty"), ("millrace-load", "millrace-load"), ("millrace-flame", "millrace-flame")):
            os.symlink(os.path.join(BUILD, program), folder / side / name)
    return str(folder)


def test_the_job_finds_a_slow_encoder_and_uploads_what_it_says(two_builds, tmp_path):
    command, uploads = workflow()
    assert command[1] == "$BASE"
    command[1] = "HEAD"
    out = command[command.index("--out") + 1] = str(tmp_path / "pr")
    if not LONG:
        command += [*SHORT, "--built", two_builds, "--head-env", "MILLRACE_FAULT=encode:40"]
    environment = {name: value for name, value in os.environ.items() if name not in ("MILLRACE_BIN", "MILLRACE_BUILD_DIR")}
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    for pattern in uploads:
        found = glob.glob(os.path.join(out, pattern))
        assert found and all(os.path.getsize(path) > 100 for path in found), (pattern, found, done.stdout[-3000:])
        assert "*" not in pattern or len(found) == 2, (pattern, found)
    with open(os.path.join(out, "compare", "comparison.md"), encoding="utf-8") as file:
        comparison = file.read()
    said = comparison.split("## Verdict")[1].split("|")[0]
    if LONG:
        assert "**Different**" not in said, comparison
    else:
        assert "**Different**: " in said and "instructions in encode +" in said and "`__wrap_mr_encode_change` +" in said, comparison
        assert not [stage for stage in ("decode", "produce", "acknowledge") if f"instructions in {stage} " in said], comparison
    assert not glob.glob(os.path.join(out, "*-build")), "builds stay"
    with open(os.path.join(out, "head", "flame-floor.svg"), encoding="utf-8") as file:
        assert "the floor around the burst" in file.read()
