"""What a run of each push leaves out, and why: the one place that says so.

A line holds a test (a file, `file::test` for one function with all its parameters, or `file::test[parameter]`), the places whose change brings it
back, and the reason. MILLRACE_TEST_NIGHTLY says what a run does with them: without it every chosen test runs; "changed", as
scripts/test.sh has it, leaves out those whose places have not changed; "no" leaves out all. scripts/test.sh --full runs all
of them, each night in CI.

What keeps the promise (delivery, kills, exactly-once, copies, keys, equality with Debezium) never stands here; of the
tests on three brokers each has one of the two deliveries here."""

import os
import subprocess
import sys
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Nightly(NamedTuple):
    test: str
    places: tuple
    why: str


PROFILER = ("src/profiler/", "src/cli/profile.c", "tests/pprof_file.py")
CLUSTER = ("src/sink/", "src/flow/", "src/ports/", "tests/faults/")
NIGHTLY = (
    Nightly("test_profiler.py", PROFILER, "the profiler looks at the flow and is no part of it"),
    Nightly("test_profile_readers.py", PROFILER, "other programs read profiles; the format's unit tests run each time"),
    Nightly("test_profiling.py", (*PROFILER, "benchmarks/"), "builds and measures several times, alone on the machine"),
    Nightly("test_pr_check.py", ("benchmarks/", ".github/workflows/pr-checks.yml"), "measures two builds, alone on the machine"),
    Nightly("test_verdict.py", ("benchmarks/", "tests/placed_faults.c"), "judges measurements, not millrace"),
    Nightly("test_there_and_back.py", ("src/convert/", "src/encode/", "src/stream/", "src/copy/", "src/sink/kafka/kafka_place.c", "tests/debezium/"),
            "test_migrating.py takes over each time, and test_debezium.py compares each kind of record"),
    Nightly("test_profile_command.py", PROFILER, "draws and compares profiles that are there"),
    Nightly("test_benchmarks.py", ("benchmarks/", "scripts/lib/", "load/"), "the benchmarks in short, alone on the machine"),
    Nightly("test_load.py", ("load/", "scripts/lib/"), "judges the load generator, alone on the machine"),
    Nightly("test_grafana.py", ("grafana/", "src/metrics/", "src/control/"), "dashboards and alerts in a Prometheus; test_metrics.py runs each time"),
    Nightly("test_live_page.py", ("src/control/", "tests/browser.py"), "figures in a Chromium; test_admin.py runs each time"),
    Nightly("test_tables.py::test_five_thousand_tables", ("src/stream/", "src/postgres/", "src/encode/", "src/copy/"),
            "starts with 5,000 tables, and judges their memory"),
    Nightly("faults/test_cluster.py::test_rolling_restart[at-least-once]", CLUSTER, "three brokers; exactly once, where more can go wrong, runs each time"),
    Nightly("faults/test_cluster.py::test_brokers_lost[exactly-once]", CLUSTER, "three brokers; at least once runs each time"),
    Nightly("test_packages.py", ("packaging/", "src/cmake/Packaging.cmake"), "builds the packages"),
)


def changed_places():
    """Paths that differ from where the change began: MILLRACE_TEST_SINCE, if it is a commit that is here, else where the branch left origin/main, else the
    commit before. None where no git says so."""
    def git(*arguments):
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
        return done.stdout.split("\n") if done.returncode == 0 else None
    try:
        head, base = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "origin/main")
        since = os.environ.get("MILLRACE_TEST_SINCE")
        if not since or git("rev-parse", "--verify", "--quiet", since + "^{commit}") is None:
            since = base[0] if base and base != head else "HEAD~1"
        changed, new = git("diff", "--name-only", since), git("ls-files", "--others", "--exclude-standard")
    except OSError:
        return None
    return None if changed is None else [*changed, *(new or [])]


def is_due(changed, *places):
    """Whether one of the places has changed."""
    return any(path.startswith(places) for path in changed or ())


def of(path, function, name):
    """The line for a test, if it has one; `name`: the function's with the parameters."""
    return next((one for one in NIGHTLY if one.test in (path, f"{path}::{function}", f"{path}::{name}")), None)


def is_left_out(one, mode, changed):
    if mode == "changed":
        return not is_due(changed, *one.places, f"tests/{one.test.split('::')[0]}")
    return mode == "no"


def main(command, *places):
    """changed: prints the changed paths, and fails where nobody knows them. due PLACE...: whether one of these has changed."""
    changed = changed_places()
    if command == "due":
        return 0 if is_due(changed, *places) else 1
    print(*filter(None, changed or ()), sep="\n")
    return 0 if changed is not None else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
