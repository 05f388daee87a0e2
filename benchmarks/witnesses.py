"""What two builds cost an event, for verdict.py: both drain copies of one backlog into Kafka, in turns.

  python witnesses.py BASE HEAD --out FOLDER [--pairs N] [--rows N] [--no-instructions]      (witnesses.sh)

- By callgrind, of a small backlog: instructions by stage and allocations an event, wake-ups and sleeps a batch, of the last
  three those that millrace's own code asks for. Twice for each build, so that the spread is known. The parts of the flow that
  run row by row repeat to a thousandth.
- CPU by thread, system calls, wake-ups, bytes and memory of whole drains that take turns (base, head, head, base, …). CPU is
  told in parts of what the walsender used in the same drain: a noisy neighbour slows both.

Writes FOLDER/witnesses.json: what is known of both builds, and every run."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from bench_stand import Stand, obey_sigterm, write_json
from builds import describe, machine
from mixes import Inserts
from processes import peak_rss, threads
from stacks import plain

EVENTS_COUNTED = 3000
DRAIN_LIMIT_S, COUNT_LIMIT_S = 300, 180

# Which source file belongs to which stage or thread; the first match counts. Who reads the clock is librdkafka, as often as it waits.
PLACES = (("decode", r"/src/stream/(pgoutput|relation_cache|pg_payload)"),
          ("receive", r"/src/(stream|postgres)/"), ("encode", r"/src/encode/|/src/base/json"),
          ("acknowledge", r"/src/flow/ack|/src/sink/sink_counts"), ("produce", r"/src/sink/"),
          ("source thread", r"/src/flow/(intake|meter)|/src/event/"), ("sink thread", r"/src/flow/delivery|/src/base/ring"),
          ("librdkafka", r"/rdkafka|/rd[a-z]*\.c"))
# What tests/placed_faults.c puts over a function is part of that function's stage.
WRAPPED = {"mr_pg_payload_take": "decode", "mr_encode_change": "encode", "mr_record_headers_format": "produce",
           "mr_sink_counts_acked": "acknowledge", "mr_batch_commit": "source thread", "mr_ack_add": "sink thread"}
# What millrace's own code asks the C library for, by kind. Allocations are told of an event, the others of a batch.
KINDS = {"allocations": r"malloc|calloc|realloc|posix_memalign|aligned_alloc|operator new.*",
         "wake-ups": r"write|eventfd_write|pthread_cond_signal|pthread_cond_broadcast|sem_post|pthread_kill",
         "sleeps": r"nanosleep|clock_nanosleep|usleep|sleep|thrd_sleep|sched_yield"}
BATCH = "mr_ack_add"  # is called once a batch


# ---- instructions ----

def place_of(file, function):
    if "placed_faults" in file:
        return WRAPPED.get(function.removeprefix("__wrap_"), "other")
    return next((place for place, pattern in PLACES if re.search(pattern, file)), "other")


def read_callgrind(path):
    """({(place, function): instructions without callees}, {kind: calls}, batches) of a callgrind.out with uncompressed
    names."""
    costs, asked, file_name, name, called = {}, {}, "", None, None
    # A call of a library goes through a stub without a name: what that calls is what was meant.
    stubs, calls = {}, 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("fl=", "fi=", "fe=")):
                file_name = line[3:].strip()
            elif line.startswith("fn="):
                name = plain(line[3:].strip())
            elif line.startswith("cfn="):
                called = line[4:].strip()
            elif line.startswith("calls="):
                calls = int(line[6:].split()[0])
            elif name and (line[0].isdigit() or line[0] in "+-*"):
                if calls:  # the line after calls= is the callee's
                    if "/src/" in file_name or "placed_faults" in file_name:
                        asked[called] = asked.get(called, 0) + calls
                    elif name.startswith("0x"):
                        stubs[name] = called
                    calls = 0
                else:
                    key = (place_of(file_name, name), name)
                    costs[key] = costs.get(key, 0) + int(line.split()[1])
    by_name = {}
    for called, calls in asked.items():
        name = stubs.get(called, called).split("@")[0]
        by_name[name] = by_name.get(name, 0) + calls
    return costs, {kind: sum(calls for name, calls in by_name.items() if re.fullmatch(pattern, name))
                   for kind, pattern in KINDS.items()}, by_name.get(BATCH, 0)


class Drains(Stand):
    """A backlog that can be drained again and again."""

    def __init__(self, rows, options=()):
        super().__init__(Inserts(rows), options)
        self.rows, self.is_warm = rows, False
        self.slots = {}

    def backlog(self, name, rows):
        """A slot and rows behind it; the log ends there until the next is made."""
        slot = self.make_slot()
        self.add_rows(self.sql("SELECT count(*) FROM " + self.mix.tables[0])[0][0], rows)
        self.slots[name] = (slot, self.sql("SELECT pg_current_wal_insert_lsn()")[0][0])

    def copy(self, name):
        slot, end = self.slots[name]
        copied = f"{slot}_{time.monotonic_ns() % 10**9}"
        self.sql("SELECT pg_copy_logical_replication_slot(%s, %s)", [slot, copied])
        return copied, end

    def start(self, command, slot, environment, **more):
        topic = self.make_topic(slot)
        command = [*command, "--config", self.write_config(slot, slot, **more)]
        return self.launch(command, subprocess.PIPE, **environment), topic

    def gone(self, process, slot, topic):
        if process.returncode not in (0, None):
            raise SystemExit(f"witnesses: error: millrace ended with {process.returncode}")
        self.drop_slot(slot)
        self.drop_topic(topic)

    def instructions(self, binary, folder, environment):
        """One run under callgrind: what it cost an event, by place and function, and allocations an event. A run that lost
        a connection read rows twice, or finds none any more (the machine is too busy): it is done again. The first two don't count: behind
        a broker that has just started, a fifth of the wake-ups is missing in the first and a tenth in the second."""
        for _ in range(0 if self.is_warm else 2):
            self._instructions(binary, folder, environment)
        self.is_warm = True
        for _ in range(5):
            counted, whole = self._instructions(binary, folder, environment)
            if whole:
                return counted
        raise SystemExit("witnesses: error: connections break all the time")

    def _instructions(self, binary, folder, environment):
        slot, _ = self.copy("counted")
        out = os.path.join(folder, "callgrind.out")
        command = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no",
                   "--compress-pos=no", "--fair-sched=yes", binary, "--stop-after", str(EVENTS_COUNTED)]
        process, topic = self.start(command, slot, environment)
        try:
            _, errors = process.communicate(timeout=COUNT_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.drop_slot(slot)
            self.drop_topic(topic)
            return None, False
        if process.returncode != 0:
            raise SystemExit(f"witnesses: error: under callgrind, millrace ended with {process.returncode}:\n{errors}")
        self.gone(process, slot, topic)
        costs, kinds, batches = read_callgrind(out)
        os.remove(out)
        return {"functions": [[place, name, cost / EVENTS_COUNTED] for (place, name), cost in sorted(costs.items())],
                "allocations": kinds["allocations"] / EVENTS_COUNTED, "batches": batches,
                **{kind: kinds[kind] / (batches or 1) for kind in ("wake-ups", "sleeps")}}, f'"changes":{EVENTS_COUNTED},' in errors

    def confirmed(self, connection, slot, end):
        return connection.execute("SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s",
                                  [end, slot]).fetchone()[0]

    def drain(self, binary, environment):
        """One drain of the whole backlog, as figures an event."""
        slot, end = self.copy("drained")
        process, topic = self.start([binary], slot, environment)
        counter = count_calls(process.pid)
        begin, walsender = time.monotonic(), {}
        with self.connected() as connection:
            while not self.confirmed(connection, slot, end):
                if time.monotonic() - begin > DRAIN_LIMIT_S or process.poll() is not None:
                    raise SystemExit(f"witnesses: error: no end of the drain: {process.stderr.read()}")
                row = connection.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [slot]).fetchone()
                walsender = kinds_of_threads(row[0]) if row[0] else walsender
                time.sleep(0.01)
            wall = time.monotonic() - begin
            row = connection.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [slot]).fetchone()
            walsender = kinds_of_threads(row[0]) if row[0] else walsender
        found = kinds_of_threads(process.pid)
        memory = peak_rss(process.pid)
        with open(f"/proc/{process.pid}/io", encoding="ascii") as file:
            written = int(re.search(r"wchar: (\d+)", file.read())[1])
        calls = counted_calls(counter)
        process.terminate()
        process.communicate(timeout=60)
        self.gone(process, slot, topic)
        events = self.rows
        return {"wall_us": wall / events * 1e6, "memory": memory, "written": written / events,
                "walsender_us": sum(t["cpu"] for t in walsender.values()) / events / 1e3,
                "threads": {name: {"cpu_us": t["cpu"] / events / 1e3, "wakes": t["wakes"] / events}
                            for name, t in found.items()},
                "calls": {name: count / events for name, count in calls.items()}}


def kinds_of_threads(pid):
    """Those of librdkafka are one."""
    found = {}
    for name, thread in threads(pid).items():
        mine = found.setdefault(re.sub(r"^rdk:.*", "rdk", name), {"cpu": 0, "wakes": 0})
        mine["cpu"] += thread["cpu"]
        mine["wakes"] += thread["wakes"]
    return found


CALLS = ("write", "read", "writev", "sendmsg", "sendto", "recvfrom", "recvmsg", "poll", "ppoll", "futex", "clock_nanosleep", "nanosleep",
         "epoll_wait", "madvise", "mmap", "munmap", "brk", "sched_yield")


def count_calls(pid):
    """perf counts system calls by name where it may; None where not."""
    if not shutil.which("perf"):
        return None
    names = [f"syscalls:sys_enter_{name}" for name in CALLS]
    file = tempfile.NamedTemporaryFile("r", suffix=".csv")
    process = subprocess.Popen(["perf", "stat", "-x,", "-o", file.name, *sum((["-e", name] for name in names), []),
                                "-e", "raw_syscalls:sys_enter", "-p", str(pid)], stderr=subprocess.DEVNULL)
    return process, file


def counted_calls(counter):
    if counter is None:
        return {}
    process, file = counter
    process.send_signal(2)
    process.wait(30)
    found = {}
    for line in file.read().splitlines():
        parts = line.split(",")
        if len(parts) > 2 and parts[0].isdigit():
            found[parts[2].split(":")[1].removeprefix("sys_enter_").replace("sys_enter", "all")] = int(parts[0])
    # librdkafka's threads poll as often as there is time: that says nothing of millrace.
    found["all but poll"] = found.pop("all", 0) - found.get("poll", 0)
    return found


def main():
    parser = argparse.ArgumentParser(prog="witnesses.sh")
    parser.add_argument("base")
    parser.add_argument("head")
    parser.add_argument("--out", required=True)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--head-env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--no-instructions", action="store_true")
    arguments = parser.parse_args()
    obey_sigterm()
    os.makedirs(arguments.out, exist_ok=True)
    stand = Drains(arguments.rows, arguments.option)
    binaries = {"base": os.path.realpath(arguments.base), "head": os.path.realpath(arguments.head)}
    environments = {"base": {}, "head": dict(pair.split("=", 1) for pair in arguments.head_env)}
    found = {"sides": {side: {**describe(binary), **machine(), "scenario": "drain",
                              "options": {"rows": arguments.rows, "option": arguments.option}}
                       for side, binary in binaries.items()},
             "instructions": {"base": [], "head": []}, "runs": {"base": [], "head": []}}
    try:
        stand.make_table()
        stand.backlog("counted", EVENTS_COUNTED)
        for turn in range(0 if arguments.no_instructions else 4):
            side = ("base", "head", "head", "base")[turn]
            print(f"witnesses: ... instructions of {side}", file=sys.stderr, flush=True)
            found["instructions"][side].append(stand.instructions(binaries[side], arguments.out, environments[side]))
        stand.backlog("drained", arguments.rows)
        for pair in range(arguments.pairs):
            print(f"witnesses: ... pair {pair + 1} of {arguments.pairs}", file=sys.stderr, flush=True)
            for side in ("base", "head") if pair % 2 == 0 else ("head", "base"):
                found["runs"][side].append(stand.drain(binaries[side], environments[side]))
            write_json(os.path.join(arguments.out, "witnesses.json"), found)
    finally:
        stand.close()
    write_json(os.path.join(arguments.out, "witnesses.json"), found)


if __name__ == "__main__":
    main()
