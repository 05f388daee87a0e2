"""Memory stays within pipeline.memory whatever comes: long transactions, large rows, many tables, Kafka away.

What is measured is the most that was resident (VmHWM); where control groups can be made, the kernel holds millrace to
its budget as well and would kill it. MILLRACE_TEST_MEMORY names a file that gets a line of figures from each test."""

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
        self.path = None
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
        if self.path is not None:
            self.write("cgroup.procs", process.process.pid)

    def close(self):
        if self.path is not None:
            # Once its last process is gone; that of a failed test is ended by another fixture.
            try:
                eventually(lambda: os.rmdir(self.path) is None, 10, "the group's end", OSError)
            finally:
                self.path = None


@pytest.fixture
def bounded(millrace):
    """Starts millrace with a budget, in a group of that size where there are groups."""
    groups = []

    def start(budget, **options):
        process = millrace(pipeline__memory=f'"{budget}"', **options)
        process.start()
        if not SANITIZED:
            groups.append(Group(budget_mb(budget)))
            groups[-1].add(process)
        process.budget = budget
        return process.streaming()

    yield start
    for group in groups:
        group.close()


def judge(process, what, most_mb=None):
    """The peak so far is within the budget (and `most_mb`); a line for the table in docs/operations.md."""
    peak = peak_rss_mb(process)
    path = os.environ.get("MILLRACE_TEST_MEMORY")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"| {what} | {process.budget} | {peak:.0f} MiB |\n")
    if not SANITIZED:
        assert peak <= min(budget_mb(process.budget), most_mb or 1 << 20), f"{what}: {peak:.0f} MiB"


def delivered(process, count, limit_s=240):
    def all_there():
        assert process.process.poll() is None, "".join(process.lines)[-2000:]
        return process.figure("millrace_records_acknowledged_total") >= count
    eventually(all_there, limit_s, f"{count} records", (OSError, KeyError))
