"""How long each test takes: written by every run, which names the slowest, and what the next one spreads its tests over the workers by."""

import functools
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
KNOWN = os.path.join(HERE, "durations.txt")  # committed: the long ones, so that a clean clone begins with them
WRITTEN = os.path.join(os.path.dirname(HERE), "build", "test-durations.txt")
NOTHING_KNOWN_S, DEAR_S = 3, 20
LONG_S = 5
SHOWN = 20


def read(path):
    """{test: seconds}"""
    with open(path, encoding="utf-8") as file:
        rows = (line.split(maxsplit=1) for line in file if not line.startswith("#"))
        return {name.rstrip("\n"): float(seconds) for seconds, name in rows}


def path_of(item):
    return item.nodeid.partition("::")[0]


@functools.cache
def stays_whole(path):
    """A fixture of the whole file is dear (Kafka Connect, a cluster, a build): it is made once, by one worker."""
    with open(os.path.join(HERE, path), encoding="utf-8") as file:
        return re.search(r"fixture\(.*scope=", file.read()) is not None


@functools.cache
def guess(path):
    """Of a test that no run has timed: a broker, a cluster or Kafka Connect of its own takes long."""
    with open(os.path.join(HERE, path), encoding="utf-8") as file:
        return DEAR_S if re.search(r"\b(Broker|Cluster|Connect|OtherServer|Pair|Scene|Writers)\(", file.read()) else NOTHING_KNOWN_S


def put_longest_first(items):
    """A whole file counts with the sum of its tests. The same order in each worker."""
    known = read(KNOWN)
    cost = {}
    for item in items:
        unit = path_of(item) if stays_whole(path_of(item)) else item.nodeid
        cost[unit] = cost.get(unit, 0) + known.get(item.nodeid, guess(path_of(item)))
    items.sort(key=lambda item: -cost[path_of(item) if stays_whole(path_of(item)) else item.nodeid])


def write(terminalreporter):
    """Setup and teardown included; a part of the tests changes only their own lines."""
    took = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "nodeid"):
                took[report.nodeid] = took.get(report.nodeid, 0) + report.duration
    if not took or not os.path.isdir(os.path.dirname(WRITTEN)):
        return
    terminalreporter.section(f"slowest {SHOWN} tests")
    for name, seconds in sorted(took.items(), key=lambda row: -row[1])[:SHOWN]:
        terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
    before = read(WRITTEN) if os.path.exists(WRITTEN) else {}
    with open(WRITTEN, "w", encoding="utf-8") as file:
        for name, seconds in sorted({**before, **took}.items(), key=lambda row: -row[1]):
            file.write(f"{seconds:.2f} {name}\n")


def keep():
    """What the last run has written becomes what a clean clone knows: `python3 tests/durations.py --keep`, after a whole run."""
    with open(KNOWN, "w", encoding="utf-8") as file:
        file.write(f"# Seconds that the long tests take in a whole run, four beside each other: of build/test-durations.txt, all from {LONG_S} s on.\n")
        file.writelines(f"{seconds:.2f} {name}\n" for name, seconds in sorted(read(WRITTEN).items(), key=lambda row: -row[1])
                        if seconds >= LONG_S and os.path.exists(os.path.join(HERE, name.partition("::")[0])))


if __name__ == "__main__":
    if sys.argv[1:] == ["--keep"]:
        keep()
    else:
        sys.exit(keep.__doc__)
