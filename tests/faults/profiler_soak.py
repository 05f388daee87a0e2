"""The profiler switched on and off at random under load, for any time, and what must not come of it.

    python profiler_soak.py --minutes N --seed S [--chapter MINUTES] | --self-test     (tests/profiler_soak.sh)

Each chapter is a scene of its own, so that an hour's events need not be kept. Parts with broken connections alternate
with orderly ones, in which nothing but SIGTERM ends a millrace and no event may come twice."""

import argparse
import http.client
import os
import signal
import statistics
import sys
import threading
import time
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

# pylint: disable=wrong-import-position
from checker import Report
from director import Scene
from kit import eventually, figures, http_get, is_linked_with
from profiler_clients import check_answer, check_folder
from subjects import ORDERLY, show_stacks

STUCK_S = 300           # nothing confirmed for so long, with both servers there; the machine may be busy
STOP_S = 120            # four times pipeline.shutdown_deadline
FILES_LOOKED_AT = 6     # of the continuous profiler, after each end
GROWTH_MAX = 64 << 20   # names and DWARF take some 30 MB once, the last minute at 1000 Hz some more
WARM_S, OLD_S = 20, 90  # growth: from then on, in millraces that got so old


def resident(pid):
    """Bytes; None when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None


class Watch(threading.Thread):
    """Looks each second whether the slot moves and how much memory is resident."""

    def __init__(self, scene, stuck_s=STUCK_S):
        super().__init__(daemon=True)
        self.scene, self.stuck_s = scene, stuck_s
        self.stopping = threading.Event()
        self.stuck = False
        self.memory = []   # of this process: (age in s, bytes)
        self.growth = []   # bytes, of each process that got old
        self.peak = 0
        self.longest_s = 0.0  # without progress

    def run(self):
        process, confirmed, moved, began = None, None, 0.0, 0.0
        while not self.stopping.wait(1):
            now = time.monotonic()
            if self.scene.subject.process is not process:
                self._old_process()
                process, moved, began = self.scene.subject.process, now, now
            size = resident(process.pid)
            if size is not None and process.poll() is None:
                self.memory.append((now - began, size))
            last = self.scene.sampler.samples[-1][0] if self.scene.sampler.samples else None
            if last != confirmed:
                confirmed, moved = last, now
            self.longest_s = max(self.longest_s, now - moved)
            if now - moved > self.stuck_s and not self.stuck:
                self.stuck = True
                show_stacks(process.pid)
                process.kill()

    def _old_process(self):
        """A millrace that lived long enough: its growth once it was warm, at its end."""
        self.peak = max([self.peak, *(size for _, size in self.memory)])
        warm = [size for age, size in self.memory if WARM_S <= age < WARM_S + 10]
        if warm and self.memory[-1][0] >= OLD_S:
            self.growth.append(statistics.median(size for _, size in self.memory[-10:]) - statistics.median(warm))
        self.memory = []

    def finish(self):
        self.stopping.set()
        self.join(10 + STUCK_S)
        self._old_process()

    def check(self):
        assert not self.stuck, f"nothing was confirmed for {self.stuck_s} s; the stacks are above"


class ProfilerScene(Scene):
    """A scene whose profiler changes its settings with each start."""

    def __init__(self, seed, stuck_s=STUCK_S):
        self.heap = is_linked_with("jemalloc")
        self.orderly = False
        self.orderly_parts = []  # LSNs, from and to
        self.stops, self.late, self.played_s, self.ended_at = [], 0, 0.0, 0.0
        self.totals = Counter()
        self.watch = None
        super().__init__(seed, profiler=True, end_limit_s=STOP_S, log__level='"info"',
                         pipeline__shutdown_deadline='"30s"')
        self.watch = Watch(self, stuck_s)
        self.watch.start()

    def draw_settings(self):
        chance = self.chance
        return {
            "profiling__recorder": chance.choice(["true", "false"]),
            "profiling__path": chance.choice([self.subject.values["profiling__path"]] * 2 + [None]),
            "profiling__interval": chance.choice(['"1s"', '"3s"', '"10s"']),
            "profiling__heap": chance.choice(["true", "true", "false"]) if self.heap else None,
        }

    def millrace_ended(self, code):
        self.ended_at = time.monotonic()
        if code in ORDERLY:
            self.totals["files"] += check_folder(os.path.join(self.folder, "profiles"), FILES_LOOKED_AT)
        self.subject.millrace.configure(**{**self.subject.values, **self.draw_settings()})

    def _read_account(self):
        """The profiler's own figures, of a millrace that is about to end and may have begun just now."""
        found = eventually(lambda: figures(http_get(self.subject.http, "/metrics").body), 60, "the profiler's account",
                           (OSError, http.client.HTTPException))
        for name in ("samples", "lost_samples"):
            self.totals[name] += int(found[f"millrace_profiler_{name}_total"])
        self.totals["failed files"] += int(found['millrace_profiler_files_total{result="failed"}'])

    def terminate(self):
        self.revive()
        self.subject.millrace.wait_for("started", 60)
        self._read_account()
        # Until it has been connected, PostgreSQL is "away", and that is what the exit code says.
        strict = self.orderly and self.subject.millrace.log("source_connected")
        begin = time.monotonic()
        self.subject.process.send_signal(signal.SIGTERM)
        code = self.subject.ended()
        self.stops.append(self.ended_at - begin)
        assert code in ((0,) if strict else ORDERLY), f"SIGTERM ended with {code}: {self.subject.said()}"
        self.late += code != 0
        self.subject.start()

    def faults(self):
        return [(2, self.terminate), (3, self.backend_terminated), (3, self.reset), (1, self.cut_kafka),
                (1, self.cut_kafka_answers), (1, self.cut_pg), (1, self.broker_restart)]

    def run_fault(self, fault):
        self.watch.check()
        super().run_fault(fault)

    def _delivered(self):
        """Waits until all that is committed by now is confirmed; answers where that ends."""
        end = self.database.run("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0]
        eventually(lambda: self.database.slot_row(f"confirmed_flush_lsn - '0/0' >= {end}"), STUCK_S, "delivery")
        return int(end)

    def calm(self, seconds):
        """An orderly part; in every second one millrace lives through it."""
        self._delivered()
        begin = int(self.database.run("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])
        self.orderly = True
        end = time.monotonic() + seconds
        restarts = self.chance.random() < 0.5
        while time.monotonic() < end:
            self.watch.check()
            time.sleep(self.chance.uniform(0, 20) if restarts else 1)
            if restarts:
                self.terminate()
        self.orderly_parts.append((begin, self._delivered()))
        self.orderly = False

    def play(self, seconds):
        begin = time.monotonic()
        end = begin + seconds
        while time.monotonic() < end:
            self.calm(min(self.chance.choice([30, 60, 150]), end - time.monotonic()))
            self.storm(min(self.chance.uniform(15, 45), end - time.monotonic()))
        self._read_account()
        self.played_s = time.monotonic() - begin

    def settle(self):
        samples = super().settle()
        self.watch.finish()
        return samples

    def check(self):
        report = super().check()
        for commit, count in report.repeated.items():
            if any(begin <= commit < end for begin, end in self.orderly_parts):
                report.wrong("repeats in orderly parts", f"commit {commit:X}", count)
        if max(self.watch.growth, default=0) > GROWTH_MAX:
            report.wrong("memory", f"grew by {max(self.watch.growth)} bytes")
        if self.totals["failed files"]:
            report.wrong("profiles not written", "", self.totals["failed files"])
        return report

    def close(self):
        if self.watch is not None:
            self.watch.stopping.set()
        super().close()


class Sum:
    """What the chapters had together."""

    def __init__(self):
        self.report, self.clients, self.counts, self.totals = Report(), Counter(), Counter(), Counter()
        self.stops, self.growth, self.late, self.peak, self.longest_s, self.calm_parts = [], [], 0, 0, 0.0, 0
        self.played_s = 0.0

    def add(self, scene, report):
        for name in ("events", "duplicates", "samples"):
            setattr(self.report, name, getattr(self.report, name) + getattr(report, name))
        for kind, count in report.problems.items():
            self.report.wrong(kind, report.examples[kind], count)
        self.clients += scene.clients.counts
        self.counts += scene.counts
        self.totals += scene.totals
        self.stops += scene.stops
        self.growth += scene.watch.growth
        self.late += scene.late
        self.played_s += scene.played_s
        self.peak = max(self.peak, scene.watch.peak)
        self.longest_s = max(self.longest_s, scene.watch.longest_s)
        self.calm_parts += len(scene.orderly_parts)

    def line(self):
        c, t, problems = self.clients, self.totals, self.report.problems
        broken = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        return (f"{self.report.line()}, {problems['repeats in orderly parts']} repeats in {self.calm_parts} orderly "
                f"parts; {broken}; {c['valid']} valid profiles and pages ({c['go']} read by go tool pprof), "
                f"{problems['profile']} invalid, {c['refused']} refused, {c['left']} clients left early, "
                f"{c['cut']} cut by an end; {t['files']} files found whole; "
                f"{t['samples']} samples, {t['lost_samples']} dropped; "
                f"{len(self.stops)} stops by SIGTERM, median {statistics.median(self.stops or [0]):.1f} s, longest "
                f"{max(self.stops, default=0):.1f} s, {self.late} of them while PostgreSQL or Kafka was away; "
                f"longest time without progress {self.longest_s:.0f} s; resident {self.peak / 1e6:.0f} MB at most, growth after "
                f"{WARM_S} s {max(self.growth, default=0) / 1e6:+.1f} MB at most in {len(self.growth)} long lives")


def soak(minutes, seed, chapter_minutes):
    """Servers' starts and the comparisons are not part of the minutes."""
    total, chapter = Sum(), 0
    while total.played_s < minutes * 60 and not total.report.problems:
        scene = ProfilerScene(seed * 1000 + chapter)
        try:
            scene.play(min(chapter_minutes * 60, minutes * 60 - total.played_s))
            total.add(scene, scene.check())
        finally:
            scene.close()
        chapter += 1
        print(f"after chapter {chapter}: {total.line()}", file=sys.stderr, flush=True)
    print(f"profiler soak, seed {seed}, {total.played_s / 60:.1f} min: {total.line()}", flush=True)
    for kind, count in total.report.problems.items():
        print(f"  {kind}: {count}, for example {total.report.examples[kind]}")
    return 1 if total.report.problems else 0


# ---- can it fail? ----

def expect(failure, work):
    try:
        work()
    except Exception as error:  # pylint: disable=broad-except # which one is the question
        assert failure in str(error), f"expected {failure!r}, got {error!r}"
        print(f"  noticed: {failure}", flush=True)
        return
    raise AssertionError(f"not noticed: {failure}")


def self_test():
    """A frozen millrace is found, one that does not obey SIGTERM, repeats in orderly parts, and broken profiles."""
    scene = ProfilerScene(1, stuck_s=10)
    try:
        process = scene.subject.process
        eventually(lambda: scene.clients.counts["valid"] > 3, 60, "profiles")
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: scene.watch.stuck, 60, "the watchdog")
        expect("nothing was confirmed", scene.watch.check)
        scene.subject.ended()
        scene.subject.start()
        scene.watch.stuck = False
        scene.calm(5)
        # What an orderly part may not have, but gets: a broken connection.
        _, end = scene.orderly_parts.pop()
        for _ in range(5):
            scene._cut(scene.broker.proxy, "hold-down", 1, 2)  # pylint: disable=protected-access
            scene.kill()
        scene.orderly_parts.append((end, 1 << 63))
        report = scene.check()
        print(f"  found: {dict(report.problems)}", flush=True)
        assert report.problems.pop("repeats in orderly parts", 0) > 0, "repeats were not noticed"
        assert not report.problems, report.examples
    finally:
        scene.close()
    for path, body in (("/pprof/profile/report", b"\x1f\x8b broken"), ("/pprof/heap/flamegraph", b"<svg>"),
                       ("/pprof/profile/folded", b"a;b\n")):
        broken = False
        try:
            check_answer(path, body)
        except Exception:  # pylint: disable=broad-except # any will do
            broken = True
        assert broken, path
    print("self-test: all was noticed", flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chapter", type=float, default=10)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if arguments.minutes is None:
        parser.error("--minutes is missing")
    return soak(arguments.minutes, arguments.seed, arguments.chapter)


if __name__ == "__main__":
    sys.exit(main())
