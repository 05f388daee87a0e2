"""Many lies, each told to a millrace of its own: python lies/run.py postgres|kafka|registry [--lies N|all] [--part I/N] [--only TEXT]

Prints one line a lie that was not borne, and sums up: a line for a person, and one of JSON. Exit status 1: there were some, or a lie
was never told."""

import argparse
import collections
import json
import multiprocessing
import os
import random
import sys
import time

import kafka_trial
import postgres_trial
import registry_trial
import trial
from launcher import Launcher

TRIES = 3
SIDES = {"postgres": postgres_trial, "kafka": kafka_trial, "registry": registry_trial}


def choose(lies, count, seed):
    """`count` of them, each target's turn after the other's: all targets come, each with another kind of lie."""
    chance = random.Random(seed)
    by_target = collections.defaultdict(list)
    for lie in lies:
        by_target[lie.target].append(lie)
    for some in by_target.values():
        chance.shuffle(some)
    chosen = []
    while len(chosen) < count and any(by_target.values()):
        for some in by_target.values():
            if some:
                chosen.append(some.pop())
    return chosen[:count]


class Launchers:
    """One for each worker."""

    def __init__(self, count):
        self.all = [Launcher() for _ in range(count)]
        self.taken = multiprocessing.Value("i", 0)

    def get(self):
        with self.taken.get_lock():
            self.taken.value += 1
            return self.all[self.taken.value - 1]


def work(side, lies, launchers):
    global TRY, LIES  # pylint: disable=global-variable-undefined
    trial.LAUNCHER = launchers.get()
    TRY, LIES = SIDES[side].attempt, lies


def attempt(number):
    """What only a starved machine may explain is tried again; what hangs, hangs each time."""
    for _ in range(TRIES):
        verdict = TRY(LIES[number])
        if verdict.told and not set(verdict.faults) & set(trial.LATE):
            break
    return verdict


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("--lies", default="500")
    parser.add_argument("--part", default="1/1", help="I/N: every N-th of them, from the I-th on; N such runs are one whole")
    parser.add_argument("--only", default="", help="lies with this text in their name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--text", action="store_true", help="all that millrace said, of lies that were not borne")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    # The first thing of all, while this process is small.
    launchers = Launchers(options.jobs)
    trial.LAUNCHER = Launcher()
    lies = [lie for lie in SIDES[options.side].all_lies() if options.only in lie.name]
    known = len(lies)
    if options.lies != "all":
        lies = choose(lies, int(options.lies), options.seed)
    part, parts = map(int, options.part.split("/"))
    lies = lies[part - 1::parts]
    if options.list:
        print(*(lie.name for lie in lies), sep="\n")
        return 0
    began = time.monotonic()
    codes, bad, untold, left_behind, of_library, longest, largest = collections.Counter(), 0, 0, 0, 0, 0, 0
    with multiprocessing.get_context("fork").Pool(options.jobs, work, (options.side, lies, launchers)) as pool:
        for verdict in pool.imap_unordered(attempt, range(len(lies))):
            codes[verdict.code] += 1
            longest, largest = max(longest, verdict.stop_s), max(largest, verdict.peak_kib)
            untold += not verdict.told
            of_library += verdict.good and bool(verdict.faults)
            left_behind += "left behind" in verdict.said
            if options.text and "left behind" in verdict.said:
                print(f"LEFT BEHIND {verdict.lie}", flush=True)
            if not verdict.told:
                print(f"NOT TOLD {verdict.lie}: {verdict.code}", flush=True)
            if not verdict.good:
                bad += 1
                print(f"NOT BORNE {verdict.lie}: {'; '.join(verdict.faults)}"[:600], flush=True)
            if options.text and not (verdict.good and verdict.told):
                print(verdict.said, flush=True)
    print(f"{options.side}: {len(lies)} of {known} lies in {time.monotonic() - began:.0f} s, {bad} not borne, "
          f"{of_library} ended by a library's known fault, {untold} not told, "
          f"{left_behind} left a thread behind; exit codes {dict(sorted(codes.items(), key=str))}, longest stop {longest:.1f} s, largest {largest >> 10} MiB")
    print(json.dumps({"side": options.side, "sanitized": trial.SANITIZED, "known": known, "told": len(lies) - untold, "not_told": untold,
                      "faults": bad, "of_libraries": of_library, "left_behind": left_behind}))
    return 1 if bad or untold or not lies else 0


if __name__ == "__main__":
    os.environ.setdefault("ASAN_OPTIONS", "detect_stack_use_after_return=1")
    sys.exit(main())
