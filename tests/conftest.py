import functools
import os

import pytest
from xdist.scheduler import LoadScopeScheduling

import durations
import nightly

# A worker of pytest-xdist has a stand of its own: run.sh leaves what it would have in its environment there.
if "PYTEST_XDIST_WORKER" in os.environ:
    with open(os.environ["MILLRACE_TEST_STANDS"] + "/" + os.environ["PYTEST_XDIST_WORKER"], encoding="utf-8") as stand:
        os.environ.update(line.split("=", 1) for line in stand.read().split("\0") if line)

from kit import CANNOT_TRY, Database, Millrace, Topic

# What compares times, counts or sizes of this machine: nothing else is to run beside it (run.sh, MILLRACE_TEST_WORKERS). And test_catalog.py
# needs what is built beside the others.
ALONE = {"test_catalog.py", "test_benchmarks.py", "test_idle.py", "test_lies.py", "test_load.py", "test_pr_check.py", "test_profile_readers.py", "test_profiler.py",
         "test_profiling.py", "test_verdict.py"}


@functools.cache
def nightly_left_out():
    return nightly.left_out(os.environ.get("MILLRACE_TEST_NIGHTLY", ""))


def pytest_ignore_collect(collection_path, config):
    """Each worker reads all files, which takes it seconds of a processor: not those of which it would run nothing."""
    name, path = collection_path.name, os.path.relpath(collection_path, config.rootpath)
    if not name.startswith("test_"):
        return None
    is_unmarked = {"alone": name not in ALONE, "not alone": name in ALONE}.get(config.option.markexpr, False)
    return is_unmarked or any(path in one.tests for one in nightly_left_out()) or None


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(config, items):
    lines, left_out = nightly_left_out(), []
    for item in items:
        if item.path.name in ALONE:
            item.add_marker("alone")
        one = nightly.of(os.path.relpath(item.path, config.rootpath), item.function.__name__, item.name)
        if one is not None:
            item.add_marker("nightly")
            if one in lines:
                left_out.append(item)
    if left_out:
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workerinput"):
        durations.put_longest_first(items)


class Spread(LoadScopeScheduling):
    """Test by test to whoever is free, in the order of the items; files whose fixtures serve all of their tests stay whole."""

    def _split_scope(self, nodeid):
        path = nodeid.partition("::")[0]
        return path if durations.stays_whole(path) else nodeid


def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return Spread(config, log)


def pytest_terminal_summary(terminalreporter):
    """Says once, at the end and in plain sight, what this machine can't try."""
    durations.write(terminalreporter)
    if os.environ.get("MILLRACE_TEST_NIGHTLY") == "changed" and (night := nightly.due(nightly.changed_places())[1]):
        terminalreporter.section("left to the night, though what they look at has changed", yellow=True, bold=True)
        for one in night:
            terminalreporter.write_line(", ".join(one.tests))
    untried = {}
    for report in terminalreporter.stats.get("skipped", []):
        _, _, reason = report.longrepr
        if CANNOT_TRY in reason:
            untried.setdefault(reason.split(CANNOT_TRY)[1], []).append(report.nodeid)
    if untried:
        terminalreporter.section("not tried on this machine", yellow=True, bold=True)
    for reason, tests in untried.items():
        terminalreporter.write_line(f"{reason}: {len(tests)} " + ("test" if len(tests) == 1 else "tests"))
        for test in tests:
            terminalreporter.write_line(f"    {test}")


@pytest.fixture
def database():
    database = Database()
    yield database
    database.drop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    item.has_passed = report.when == "call" and report.passed
    return report


@pytest.fixture
def millrace_for(tmp_path, request):
    """Makes millrace processes for a database. What runs still when the test has passed must obey SIGTERM and exit with 0."""
    made = []

    def make(database, tables=("t",), text="", **options):
        made.append(Millrace(database, tmp_path, tables, text, **options))
        return made[-1]

    yield make
    running = [process for process in made if process.process is not None and process.process.poll() is None]
    try:
        assert not request.node.has_passed or [process.stop() for process in running] == [0] * len(running)
    finally:
        for process in running:
            process.kill()
        for process in made:
            print("".join(process.lines[-200:]))  # shown when the test failed


@pytest.fixture
def millrace(database, millrace_for):
    """Makes millrace processes for the test's database."""
    return functools.partial(millrace_for, database)


@pytest.fixture
def pair(database, tmp_path):
    """Two instances of one pipeline."""
    made = []

    def make(**options):
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            made.append(Millrace(database, tmp_path / name, ("public.*",), **options))
        return made

    yield make
    for process in made:
        if process.process is not None and process.process.poll() is None:
            process.kill()
        print("".join(process.lines[-50:]))


@pytest.fixture
def profiled(database, millrace):
    """A running millrace with a server on a port of its own and the given [profiling]."""

    def make(**options):
        database.run("CREATE TABLE t (id bigserial PRIMARY KEY, name text, note text)")
        process = millrace(http__address='"127.0.0.1:0"',
                           **{f"profiling__{name}": value for name, value in options.items()}).start().streaming()
        process.url = "http://" + process.address()
        return process

    return make


@pytest.fixture
def topic():
    """Opens topic readers and closes them afterwards."""
    opened = []

    def open_topic(name):
        opened.append(Topic(name))
        return opened[-1]

    yield open_topic
    for reader in opened:
        reader.close()
