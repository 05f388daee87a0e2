"""What the kernel says of a process: CPU time, wake-ups, peak memory. And which processes belong to a run."""

import contextlib
import os
import re
import time

TICK = os.sysconf("SC_CLK_TCK")
STREAMING = b"START_REPLICATION"  # in the title of a walsender once it streams (ps_status.c, walsender.c)


def cpu_seconds(pid):
    """User and system time of all threads, those that have ended included, in ticks; 0 for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def scheduled_ns(pid):
    """{thread: its time on a processor}, to the nanosecond (schedstat, sched-stats.rst of the kernel)."""
    found = {}
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                found[thread] = int(file.read().split()[0])
    return found


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
    """PostgreSQL's walsender and the broker while a program under measurement runs. Nothing else may start to stream meanwhile."""

    def __init__(self):
        self.server, self.broker = postmaster(), broker_pid()
        self.before = set(walsenders(self.server))
        self.sent = {}  # CPU seconds of each walsender, also of one that has ended
        self.seen = {}  # by process: what each thread used, also of those that have ended since

    def senders(self):
        return [pid for pid in walsenders(self.server) if pid not in self.before]

    def cpu(self, pid):
        """Seconds on a processor of all threads that were there at a look."""
        seen = self.seen.setdefault(pid, {})
        seen.update(scheduled_ns(pid))
        return sum(seen.values()) / 1e9

    def sender_cpu(self):
        for pid in self.senders():
            self.sent[pid] = self.cpu(pid)
        return sum(self.sent.values())


class Account:
    """What the program under measurement, its walsender, the broker and the machine have used up to now."""

    def __init__(self, pid, watch):
        self.time = time.monotonic()
        self.sender = watch.sender_cpu()
        self.cpu, self.rss = watch.cpu(pid), peak_rss(pid)
        self.broker, self.server, self.benchmark = watch.cpu(watch.broker), family_cpu(watch.server), time.process_time()
        self.ticks, self.idle = machine_ticks()

    def until(self, end, rows):
        """Of the rows that passed meanwhile: how many a second, and CPU in µs for each. And the share of a core, and of the machine by
        all programs."""
        seconds = max(end.time - self.time, 0.001)
        idle = (end.idle - self.idle) / max(1, end.ticks - self.ticks)
        figures = {"rows_per_s": rows / seconds, "seconds": seconds, "cpu_share": (end.cpu - self.cpu) / seconds, "machine_idle": idle}
        if rows > 0:
            figures |= {f"{name}_us": (getattr(end, name) - getattr(self, name)) / rows * 1e6
                        for name in ("cpu", "sender", "broker", "server", "benchmark")}
            figures["all_us"] = (1 - idle) * seconds * os.cpu_count() / rows * 1e6
        return figures
