"""The wide workload by seeds: tests/wide.sh has the options, and makes the servers."""

import argparse
import collections
import multiprocessing
import os
import pickle
import random
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "faults")]

# pylint: disable=wrong-import-position
import psycopg

import initial
from plan import FEATURES, Generator
from run import Run
from servers import Proxy
from shrink import Shrinker, listing

KEPT = os.path.join(ROOT, "build", "wide")


def parsed_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", help="A..B")
    parser.add_argument("--minutes", type=float, help="new seeds for so long")
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--copies", action="store_true")
    parser.add_argument("--initial", action="store_true")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--reloads", action="store_true")
    parser.add_argument("--reselect", action="store_true")
    parser.add_argument("--types", choices=["text", "debezium", "schemas"], default="text")
    parser.add_argument("--delivery", choices=["at-least-once", "exactly-once"], default="at-least-once")
    parser.add_argument("--units", type=int, default=14, help="transactions of a writer in a phase, at most")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--without", default="", help=f"comma-separated: {', '.join(FEATURES)}")
    parser.add_argument("--ignore", default="", help="kinds of deviations, comma-separated, that are not told")
    parser.add_argument("--shrink-seconds", type=float, default=90)
    parser.add_argument("--replay", help="plan.pickle of a run that failed")
    parser.add_argument("--kept", default=KEPT, help="folder for what failing runs leave")
    parser.add_argument("--self-test", action="store_true")
    return parser.parse_args()


class Runner:
    """In each of the processes that work: runs seeds, one after the other."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.proxies = None
        if arguments.kills:
            self.proxies = Proxy(int(os.environ["PGPORT"])), self.kafka_proxy()

    def kafka_proxy(self):
        """The stand's broker names one proxy; whoever is first makes it, the others send it their wishes. It is made by the
        parent, so that there is one."""
        return KAFKA_PROXY

    def plan(self, seed):
        without = [name for name in self.arguments.without.split(",") if name]
        return Generator(seed, self.arguments.units, {*without, *(initial.WITHOUT if self.arguments.initial else ())}).plan()

    def run(self, plan, keep=None):
        more = {} if self.arguments.types == "text" else {"types": '"debezium"'}
        if self.arguments.types == "schemas":
            more["json__schemas"] = '"both"'
        if self.arguments.reselect:
            more["columns__reselect"] = '["*.*:*"]'
        return Run(plan, self.arguments.delivery, self.arguments.kills, self.proxies, keep, self.arguments.ignore.split(","),
                   copies=self.arguments.copies, initially=self.arguments.initial, verifies=self.arguments.verify,
                   reloads=self.arguments.reloads, **more).run()

    def seed(self, seed):
        """The line for a seed, and its result without what was judged."""
        try:
            plan = self.plan(seed)
            keep = os.path.join(self.arguments.kept, f"seed-{seed}")
            result = self.run(plan, keep)
            text = ""
            if result.problems and self.arguments.shrink_seconds > 0:
                text = self.shrunk(plan, result, keep)
            result.judged = None
            return seed, result, text
        except Exception:  # pylint: disable=broad-except # one seed must not end the others
            return seed, None, traceback.format_exc()

    def shrunk(self, plan, result, keep):
        kind = result.problems[0][0]

        def fails(smaller):
            try:
                return kind in self.run(smaller).kinds()
            except psycopg.Error:  # it can't be run
                return False
        shrinker = Shrinker(plan, fails, self.arguments.shrink_seconds, result.problems[0][1])
        best = shrinker.shrink()
        with open(os.path.join(keep, "shrunk.pickle"), "wb") as file:
            pickle.dump(best, file)
        text = f"--- {kind}, after {shrinker.runs} runs:\n{listing(best)}\n"
        with open(os.path.join(keep, "shrunk.sql"), "w", encoding="utf-8") as file:
            file.write(text)
        return text


RUNNER = KAFKA_PROXY = None


def begin(arguments):
    global RUNNER  # pylint: disable=global-statement # one for each process of the pool
    RUNNER = Runner(arguments)


def work(seed):
    return RUNNER.seed(seed)


def seeds_of(arguments):
    if arguments.seeds:
        low, high = arguments.seeds.split("..")
        yield from range(int(low), int(high) + 1)
    elif arguments.minutes:
        deadline = time.monotonic() + arguments.minutes * 60
        first = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10 ** 8)
        while time.monotonic() < deadline:
            yield first
            first += 1
    else:
        yield arguments.seed if arguments.seed is not None else 1


def told(seed, result):
    state = "ok" if not result.problems else "WRONG"
    return (f"seed {seed}: {state}; {result.statements} statements, {result.events} events, {result.pictures} pictures, {result.repeats} repeats, "
            f"{result.reads} copied rows, {result.kills} kills and cuts, {result.seconds:.1f} s")


class Summary:
    def __init__(self):
        self.totals = collections.Counter()
        self.failed, self.broken = {}, []

    def add(self, seed, result, text):
        if result is None:
            self.broken.append(seed)
            print(f"seed {seed}: BROKEN\n{text}", flush=True)
            return
        print(told(seed, result), flush=True)
        for name in ("events", "pictures", "repeats", "reads", "kills", "statements"):
            self.totals[name] += getattr(result, name)
        self.totals.update({f"tables {verdict}": count for verdict, count in result.verdicts.items()})
        if result.problems:
            self.failed[seed] = sorted(result.kinds())
            for kind, example in result.problems[:5]:
                print(f"  {kind}: {example[:600]}")
            print(text, flush=True)

    def line(self, count, seconds):
        t = self.totals
        return (f"wide: {count} seeds, {len(self.failed)} with deviations, {len(self.broken)} broken; {t['statements']} statements, {t['events']} events, "
                f"{t['pictures']} pictures compared, {t['repeats']} repeats, {t['reads']} copied rows, {t['kills']} kills and cuts, {seconds:.0f} s")


def main():
    global KAFKA_PROXY  # pylint: disable=global-statement # before the pool's processes are made
    arguments = parsed_arguments()
    if arguments.self_test:
        from self_test import self_test  # pylint: disable=import-outside-toplevel
        return self_test()
    if arguments.kills:
        KAFKA_PROXY = Proxy(int(os.environ["KAFKA_PROXIED_PORT"]), int(os.environ["KAFKA_PROXY_PORT"]))
        arguments.jobs = 1
    if arguments.replay:
        begin(arguments)
        with open(arguments.replay, "rb") as file:
            result = RUNNER.run(pickle.load(file), os.path.join(arguments.kept, "replay"))
        print(told("replayed", result), *result.problems[:30], sep="\n")
        return 1 if result.problems else 0
    began, summary, count = time.monotonic(), Summary(), 0
    with multiprocessing.get_context("fork").Pool(arguments.jobs, begin, [arguments], maxtasksperchild=20) as pool:
        running = collections.deque()
        for seed in seeds_of(arguments):
            count += 1
            running.append(pool.apply_async(work, [seed]))
            while len(running) >= arguments.jobs + 1:
                summary.add(*running.popleft().get())
        while running:
            summary.add(*running.popleft().get())
    print(summary.line(count, time.monotonic() - began))
    for seed, kinds in sorted(summary.failed.items()):
        print(f"  seed {seed}: {', '.join(kinds)}")
    return 1 if summary.failed or summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
