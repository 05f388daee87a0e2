"""Memory stays within pipeline.memory whatever comes: long transactions, large rows, many tables, Kafka away.

What is measured is the most that was resident (VmHWM); where control groups can be made, the kernel holds millrace to
its budget as well and would kill it. MILLRACE_TEST_MEMORY names a file that gets a line of figures from each test."""

import json
import os
import threading

import pytest

from faults.servers import Broker
from kit import connect, eventually
from ledger import peak_rss_mb, size

SANITIZED = "MILLRACE_TEST_SANITIZED" in os.environ
GROUPS = "/sys/fs/cgroup/memory"  # version 1; under version 2 a group is under /sys/fs/cgroup itself
BUDGETS = ("256MiB", "64MiB")


def budget_mb(budget):
    return int(budget.removesuffix("MiB"))


class Group:
    """A control group with a hard limit, where this machine lets us make one; else nothing."""

    def __init__(self, limit_mb):
        self.path = self.process = None
        v1 = os.path.isdir(GROUPS)
        path = os.path.join(GROUPS if v1 else "/sys/fs/cgroup", f"millrace-test-{os.getpid()}-{limit_mb}")
        try:
            os.mkdir(path)
        except OSError:
            return
        self.path = path
        try:
            self.write("memory.limit_in_bytes" if v1 else "memory.max", limit_mb << 20)
        except OSError:
            self.close()

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def add(self, process):
        self.process = process
        if self.path is not None:
            self.write("cgroup.procs", process.process.pid)

    def close(self):
        if self.path is not None:
            # Once its process is gone: in a failed test it still runs, or is at its limit and gets no further.
            if self.process is not None and self.process.process.poll() is None:
                self.process.kill()
            try:
                eventually(lambda: os.rmdir(self.path) is None, 10, "the group's end", OSError)
            finally:
                self.path = None


@pytest.fixture
def bounded(millrace):
    """Starts millrace with a budget, in a group of that size where there are groups."""
    groups = []

    def start(budget, **options):
        process = millrace(pipeline__memory=f'"{budget}"', **options).start()
        if not SANITIZED:
            groups.append(Group(budget_mb(budget)))
            groups[-1].add(process)
        process.budget = budget
        return process.streaming()

    yield start
    for group in groups:
        group.close()


def judge(process, what, most_mb=None):
    """The peak so far is within the budget (and `most_mb`); a line for the table in docs/sizing.md."""
    peak = peak_rss_mb(process)
    path = os.environ.get("MILLRACE_TEST_MEMORY")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            now = process.figure("process_resident_memory_bytes") / (1 << 20)
            file.write(f"| {what} | {process.budget} | {peak:.0f} MiB | {now:.0f} MiB |\n")
    if not SANITIZED:
        assert peak <= min(budget_mb(process.budget), most_mb or 1 << 20), f"{what}: {peak:.0f} MiB"


def delivered(process, count, limit_s=240):
    def all_there():
        assert process.process.poll() is None, "".join(process.lines)[-2000:]
        return process.figure("millrace_records_acknowledged_total") >= count
    eventually(all_there, limit_s, f"{count} records", (OSError, KeyError))


@pytest.mark.parametrize("budget", BUDGETS)
def test_long_transaction(database, bounded, budget):
    rows = size("MILLRACE_TEST_BIGTX", 300000)
    database.run("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    process = bounded(budget)
    database.run(f"INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, {rows}) g")
    delivered(process, rows)
    judge(process, f"one transaction of {rows:,} rows")
    assert process.stop() == 0


@pytest.mark.parametrize("budget", BUDGETS)
def test_many_large_rows(database, bounded, budget):
    """A gigabyte by and by at full length: one transaction of rows of 1 MB, and one of rows of 50 kB."""
    large, middling = size("MILLRACE_TEST_LARGE_ROWS", 60), size("MILLRACE_TEST_LARGE_ROWS", 60) * 20
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL;"
                 "CREATE SEQUENCE s")
    database.make_topic("t", config={"max.message.bytes": "4000000"})
    process = bounded(budget, sink__kafka__message_max="4000000")
    block = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 1000))"
    database.run(f"INSERT INTO t SELECT g, repeat({block}, 32) FROM generate_series(1, {large}) g;"
                 f"INSERT INTO t SELECT -g, repeat({block}, 1) || repeat('y', 18000) "
                 f"FROM generate_series(1, {middling}) g")
    delivered(process, large + middling)
    judge(process, f"{large:,} rows of 1 MB, then {middling:,} of 50 kB, a transaction each")
    assert process.stop() == 0


def test_value_of_a_hundred_megabytes(database, bounded):
    """About three times the value, and the row arrives."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    database.make_topic("t", config={"max.message.bytes": "104000000"})
    process = bounded("448MiB", sink__kafka__message_max="104000000", pipeline__change_max='"128MiB"')
    database.run("INSERT INTO t SELECT 1, repeat(string_agg(md5(g::text), ''), 100) "
                 "FROM generate_series(1, 31250) g")
    database.run("INSERT INTO t VALUES (2, 'small')")
    delivered(process, 2)
    judge(process, "a value of 100 MB", 3 * 96 + 40)
    assert process.stop() == 0


@pytest.mark.parametrize("budget", BUDGETS)
def test_many_tables(database, bounded, budget):
    count, columns = size("MILLRACE_TEST_TABLES", 60), 50
    create = ", ".join(f"a_column_with_a_name_{c} text" for c in range(columns - 1))
    with connect(database.name) as connection:
        for number in range(count):
            connection.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, {create})")
    process = bounded(budget, tables=tuple(f"t{number}" for number in range(count)))
    with connect(database.name) as connection:
        for number in range(count):
            connection.execute(f"INSERT INTO t{number} SELECT g, 'x', 'y' FROM generate_series(1, 10) g")
    delivered(process, 10 * count)
    judge(process, f"{count} tables of {columns} columns")
    assert process.stop() == 0


@pytest.mark.parametrize("budget, megabytes, count, too_much", [("64MiB", 1, 20, 1200000), ("384MiB", 50, 2, 70000000)])
def test_large_rows_that_are_copied(database, bounded, budget, megabytes, count, too_much):
    """While the stream has as large ones. Where one is larger than the budget allows, its copy is refused, and nothing else."""
    row = f"(SELECT repeat(string_agg(md5(g::text), ''), {megabytes}) FROM generate_series(1, 31250) g)"
    for table in ("copied", "streamed", "larger"):
        database.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v text); ALTER TABLE {table} ALTER v SET STORAGE EXTERNAL")
        database.make_topic(table, config={"max.message.bytes": "60000000"})
    database.run(f"INSERT INTO copied SELECT i, {row} FROM generate_series(1, {count}) i;"
                 f"INSERT INTO larger SELECT 1, repeat('x', {too_much})")
    process = bounded(budget, tables=("copied", "streamed", "larger"), sink__kafka__message_max="60000000",
                      sink__kafka__oversize='"placeholder"')

    def copied(table, state):
        body = json.dumps({"type": "start", "tables": [table]})
        assert process.get("/api/snapshot", method="POST", body=body).status == 200

        def reached():
            assert process.process.poll() is None, "".join(process.lines)[-2000:]
            outcome = process.get("/api/snapshot/outcome").json["tables"]
            return next((one for one in outcome if one["table"] == f"public.{table}" and one["state"] == state), None)
        return eventually(reached, 120, f"the copy of {table}")
    database.run(f"INSERT INTO streamed SELECT i, {row} FROM generate_series(1, {count}) i")
    assert copied("copied", "done")["rows"] == count
    delivered(process, 2 * count)
    judge(process, f"{count:,} copied rows of {megabytes} MB, and as many in the stream")
    refused = copied("larger", "failed")
    assert f"a row takes {too_much + 3} bytes" in refused["error"] and "raise" in refused["error"], refused
    database.run("INSERT INTO streamed VALUES (0, 'x')")
    delivered(process, 2 * count + 1)
    assert process.stop() == 0


@pytest.mark.parametrize("budget", BUDGETS)
def test_burst_while_kafka_is_away(database, bounded, budget):
    """The smallest records in both forms: the Kafka client's bookkeeping is largest then."""
    rows = 200000
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    broker = Broker()
    try:
        batch = "512KiB" if budget == "64MiB" else "2MiB"
        process = bounded(budget, sink__kafka__brokers=f'["{broker.proxied}"]', format='"flat"',
                          pipeline__batch_size=f'"{batch}"', sink__kafka__headers="true")
        database.run("INSERT INTO t VALUES (0)")
        delivered(process, 1)
        broker.stop()
        database.run(f"INSERT INTO t SELECT g FROM generate_series(1, {rows}) g")
        eventually(lambda: process.figure("millrace_pool_free_batches") == 0, 60, "a full pool")
        broker.start()
        delivered(process, rows + 1)
        judge(process, f"{rows:,} rows while Kafka is away, 16 batches of {batch}")
        assert process.stop() == 0
    finally:
        broker.close()


@pytest.mark.parametrize("budget", BUDGETS)
def test_everything_of_the_profiler(database, bounded, tmp_path, budget):
    """The profiler's rings, names and profiles are part of the budget: all of it on, over and over, under load."""
    rows = size("MILLRACE_TEST_BIGTX", 300000)
    database.run("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    process = bounded(budget, profiling__endpoints="true", profiling__recorder="true", profiling__frequency="1000",
                      profiling__path=f'"{tmp_path}"', profiling__interval='"1s"')
    asked = ("/pprof/profile/flamegraph?seconds=1&frequency=1000", "/pprof/profile/report?seconds=1",
             "/pprof/profile/folded?seconds=1&frequency=1000", "/pprof/last-minute/flamegraph")
    rounds = size("MILLRACE_TEST_PROFILES", 3)
    answers = []

    def profile():
        answers.extend((path, process.get(path, limit_s=120).status) for path in asked * rounds)
    profiles = threading.Thread(target=profile)
    profiles.start()
    database.run(f"INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, {rows}) g")
    delivered(process, rows)
    profiles.join()
    assert answers == [(path, 200) for path in asked * rounds]
    judge(process, "profiles of all kinds, recorder and files")
    assert process.stop() == 0
