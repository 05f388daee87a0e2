import functools

import pytest

from kit import CANNOT_TRY, Database, Millrace, Topic


def pytest_terminal_summary(terminalreporter):
    """Says once, at the end and in plain sight, what this machine can't try."""
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


@pytest.fixture
def millrace_for(tmp_path):
    """Makes millrace processes for a database and ends them afterwards."""
    made = []

    def make(database, tables=("t",), text="", **options):
        made.append(Millrace(database, tmp_path, tables, text, **options))
        return made[-1]

    yield make
    for process in made:
        if process.process is not None and process.process.poll() is None:
            process.kill()
        print("".join(process.lines[-200:]))  # shown when the test failed


@pytest.fixture
def millrace(database, millrace_for):
    """Makes millrace processes for the test's database."""
    return functools.partial(millrace_for, database)


@pytest.fixture
def profiled(database, millrace):
    """A running millrace with a server on a port of its own and the given [profiling]."""

    def make(**options):
        database.run("CREATE TABLE t (id bigserial PRIMARY KEY, name text, note text)")
        process = millrace(http__address='"127.0.0.1:0"',
                           **{f"profiling__{name}": value for name, value in options.items()})
        process.start().streaming()
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
