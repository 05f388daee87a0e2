"""What the kernel says of a process: CPU time, wake-ups, peak memory. And which processes belong to a run."""

import os
import re

TICK = os.sysconf("SC_CLK_TCK")
STREAMING = b"START_REPLICATION"  # in the title of a walsender once it streams (ps_status.c, walsender.c)


def cpu_seconds(pid):
    """User and system time of all threads, those that have ended included; 0 for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def family_cpu(pid):
    """The same, with all its children, those that have ended included: of a postmaster, the whole server."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / TICK + sum(cpu_seconds(child) for child in children(pid))


def peak_rss(pid):
    """Bytes, of a running process. The rusage of a child won't do: it counts the parent's before exec."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            found = re.search(r"VmHWM:\s+(\d+) kB", file.read())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def threads(pid):
    """CPU in ns, and how often each thread went to sleep by itself and was woken, by the thread's name. Threads of one name
    add up."""
    found = {}
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
                cpu = int(file.read().split()[0])
            with open(f"/proc/{pid}/task/{task}/status", encoding="ascii", errors="replace") as file:
                text = file.read()
        except OSError:
            continue  # it has just ended
        mine = found.setdefault(re.search(r"Name:\s+(.*)", text)[1], {"cpu": 0, "wakes": 0})
        mine["cpu"] += cpu
        mine["wakes"] += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE)[1])
    return found


def machine_ticks():
    """All ticks of all cores since the machine began, and those of them that were idle (proc(5), /proc/stat)."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]  # guests' are in the users' already
    return sum(ticks), ticks[3] + ticks[4]


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def _first_line(path):
    with open(path, encoding="ascii") as file:
        return file.readline().strip()


def postmaster():
    """The stand's PostgreSQL. With several versions in one stand, the one that runs."""
    data = os.path.join(os.environ["MILLRACE_STAND_DIR"], "data")
    for folder in sorted(os.listdir(data)):
        path = os.path.join(data, folder, "postmaster.pid")
        if folder.startswith("pg") and os.path.exists(path):
            return int(_first_line(path))
    raise SystemExit(f"no PostgreSQL runs in {data}")


def broker_pid():
    """The stand's Kafka."""
    return int(_first_line(os.path.join(os.environ["MILLRACE_STAND_DIR"], "data", "kafka", "kafka.pid")))


def walsenders(server):
    """The walsenders of that PostgreSQL that stream now."""
    found = []
    for pid in children(server):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                title = file.read()
        except OSError:
            continue
        if b"walsender" in title and STREAMING in title:
            found.append(pid)
    return found


class Watch:
    """What PostgreSQL's walsender and the broker spend while a program under measurement runs, and when the server began to
    stream to it. Whoever waits for the program calls `look` every few milliseconds. Nothing else may stream meanwhile."""

    def __init__(self, now):
        self.server, self.broker = postmaster(), broker_pid()
        self.before = set(walsenders(self.server))
        self.broker_cpu = cpu_seconds(self.broker)
        self.begin = now
        self.streaming = None
        self.senders = {}

    def look(self, now):
        for pid in walsenders(self.server):
            if pid not in self.before:
                if self.streaming is None:
                    self.streaming = now
                self.senders[pid] = max(self.senders.get(pid, 0), cpu_seconds(pid))

    def figures(self, now):
        """Seconds. `streaming` is from the server's START_REPLICATION to the end of the program."""
        return {"streaming": now - (self.streaming or self.begin), "walsender_cpu": sum(self.senders.values()),
                "broker_cpu": cpu_seconds(self.broker) - self.broker_cpu}
