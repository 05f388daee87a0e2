"""What verdict.py says of data whose truth is known. Run by ctest, or: python3 benchmarks/test_verdict.py [--long]

--long: 100 comparisons of a build with itself in place of 20, and the power at 1, 2, 3 and 5 % as a table."""

import math
import random
import sys
import unittest

import verdict
from verdict import DIFFERENT, INCONCLUSIVE, SAME, Witness

LONG = "--long" in sys.argv


def runs(chance, pairs, level, noise, effect=0.0, drift=0.0):
    """Two lists of runs that took turns on a machine that drifts, with now and then a bad one."""
    sides, machine = ([], []), 0.0
    for pair in range(pairs):
        if pair % 2 == 0:
            machine += chance.gauss(0, drift)
        for side in (0, 1):
            spike = chance.expovariate(8) if chance.random() < 0.05 else 0
            sides[side].append(level * math.exp(machine + chance.gauss(0, noise) + spike) * (1 + effect * side))
    return sides


def comparison(seed, pairs=12, effect=0.0, noise=0.012):
    """As pr-check.sh makes them: CPU in all and by thread, counts, latencies; `effect` slows one thread."""
    chance = random.Random(seed)
    found = []
    for name, level, mine in (("CPU", 20, effect), ("CPU of mr-source", 9, 2 * effect), ("CPU of mr-sink", 4, 0),
                              ("CPU of rdk:broker", 6, 0), ("system calls", 0.2, 0), ("wake-ups", 0.05, 0)):
        before, after = runs(chance, pairs, level, noise, mine, 0.05)
        found.append(Witness(name, "CPU", before, after))
    for name in ("p50", "p99", "peak"):
        before, after = runs(chance, pairs, 50, 0.15, 0, 0.1)
        found.append(Witness(name, "latency", before, after, margin=0.10, decides=False))
    return verdict.judge(found, seed)


class Verdicts(unittest.TestCase):
    def test_a_build_is_not_different_from_itself(self):
        seeds = range(100 if LONG else 20)
        claims = [seed for seed in seeds if verdict.overall(comparison(seed))[0] == DIFFERENT]
        self.assertEqual(claims, [])

    def test_three_percent_are_found_and_named(self):
        found = 0
        for seed in range(20):
            said, who, _ = verdict.overall(comparison(seed, pairs=24, effect=0.03))
            found += said == DIFFERENT and who[0].witness.name.startswith("CPU")
            for judgement in who if said == DIFFERENT else ():
                self.assertIn(judgement.witness.name, ("CPU", "CPU of mr-source"))
        self.assertGreaterEqual(found, 18)

    def test_same_needs_an_interval_within_the_margin(self):
        said, _, _ = verdict.overall(comparison(5, pairs=40, noise=0.008))
        self.assertEqual(said, SAME)
        said, who, more = verdict.overall(comparison(5, pairs=6, noise=0.06))
        self.assertEqual(said, INCONCLUSIVE)
        self.assertTrue(who and 2 <= more <= verdict.PAIRS_MOST)

    def test_few_runs_say_nothing(self):
        for pairs in (0, 1, 2):
            judged = verdict.judge([Witness("CPU", "CPU", [20.0] * pairs, [30.0] * pairs)])
            self.assertEqual(verdict.overall(judged)[0], INCONCLUSIVE)

    def test_what_is_twice_as_slow_is_found_with_the_usual_pairs(self):
        """Beside as many witnesses as a comparison has: each takes its part of the false claims that are allowed."""
        chance = random.Random(11)
        for _ in range(3):
            witnesses = [Witness(f"w{i}", "CPU", *runs(chance, 12, 20, 0.01, effect)) for i, effect in enumerate([1.0] + 29 * [0.0])]
            said, who, _ = verdict.overall(verdict.judge(witnesses))
            self.assertEqual((said, [j.witness.name for j in who]), (DIFFERENT, ["w0"]))
            # With fewer it can't be told from chance, and the tool says how many it takes.
            few = verdict.judge([Witness(w.name, w.kind, w.before[:6], w.after[:6]) for w in witnesses])
            self.assertEqual((few[0].verdict, few[0].more), (INCONCLUSIVE, 6))

    def test_chance_is_counted_in_every_way_while_there_are_few(self):
        """Two blocks of two pairs: 36 ways, of which the observed one and its opposite are as far out."""
        blocks = verdict.blocks_of([1.0, 1.1, 1.0, 1.1], [2.0, 2.1, 2.0, 2.1])
        self.assertAlmostEqual(verdict.permutation_p(blocks, random.Random(1)), 2 / 36)

    def test_more_pairs_are_enough(self):
        """As many more as it asked for lead to an answer, mostly."""
        answered = asked = 0
        for seed in range(12):
            chance = random.Random(seed)
            before, after = runs(chance, 200, 20, 0.03)
            said, _, more = verdict.overall(verdict.judge([Witness("CPU", "CPU", before[:8], after[:8])]))
            if said == INCONCLUSIVE:
                asked += 1
                pairs = min(8 + more, 200)
                answered += verdict.overall(verdict.judge(
                    [Witness("CPU", "CPU", before[:pairs], after[:pairs])]))[0] == SAME
        self.assertTrue(asked >= 4 and answered >= asked * 0.6, (asked, answered))

    def test_drift_is_no_difference(self):
        """A machine that gets slower and slower all the time."""
        before = [10 * 1.05 ** (2 * i + (i % 2)) for i in range(20)]
        after = [10 * 1.05 ** (2 * i + (1 - i % 2)) for i in range(20)]
        self.assertNotEqual(verdict.overall(verdict.judge([Witness("CPU", "CPU", before, after)]))[0], DIFFERENT)

    def test_exact_counts_need_one_run_and_know_their_spread(self):
        for before, after, want in (([1000], [1004], SAME), ([1000], [1011], DIFFERENT), ([1000], [990], DIFFERENT),
                                    ([1000, 1030], [1040], INCONCLUSIVE), ([0], [0], SAME), ([0], [7], DIFFERENT)):
            judged = verdict.judge([Witness("instructions", "count", before, after, exact=True)])
            self.assertEqual(judged[0].verdict, want, (before, after))

    def test_what_was_never_there_is_a_difference(self):
        judged = verdict.judge([Witness("clock_nanosleep", "count", [0, 0, 0], [1, 1.1, .9]),
                                Witness("sometimes", "count", [0, 1, 0], [1, 0, 1]),
                                Witness("unheard", "count", [5, 5, 0, 5, 5, 5, 5, 5], [5] * 8)])
        self.assertEqual([j.verdict for j in judged], [DIFFERENT, INCONCLUSIVE, INCONCLUSIVE])

    def test_other_scenarios_and_machines_are_refused_and_builds_told(self):
        here = {"scenario": "burst", "options": {"rate": 1}, "cpu": "x", "cores": 2, "flags": "-O2", "allocator": "libc"}
        self.assertEqual(verdict.refusals(here, dict(here)), [])
        for name, value in (("scenario", "ramp"), ("options", {"rate": 2}), ("cpu", "y"), ("cores", 4)):
            said = verdict.refusals(here, {**here, name: value})
            self.assertEqual(len(said), 1)
            self.assertIn(name, said[0])
        told = verdict.build_differences(here, {**here, "flags": "-O0", "allocator": "jemalloc 5.3.0"})
        self.assertEqual(told, ["flags: -O2 → -O0", "allocator: libc → jemalloc 5.3.0"])
        self.assertEqual(verdict.refusals(here, {**here, "flags": "-O0"}), [])

    def test_cost_that_moved_to_the_caller_is_no_change(self):
        before = {("encode", "outer"): 10.0, ("encode", "inner"): 5.0, ("decode", "d"): 3.0}
        after = {("encode", "outer"): 15.0, ("decode", "d"): 4.0}
        found = verdict.moved(before, after, 0.01)
        self.assertEqual(found["encode"], (15.0, 15.0, []))
        self.assertEqual(found["decode"], (3.0, 4.0, [(1.0, "d")]))


def power():
    """Of 100 comparisons each: how many found a slow-down of one thread."""
    print("| slow-down of one thread | pairs | found of 100 |\n|---:|---:|---:|")
    for effect in (0.01, 0.02, 0.03, 0.05):
        for pairs in (12, 24, 40):
            found = 0
            for seed in range(100):
                chance = random.Random(seed)
                before, after = runs(chance, pairs, 20, 0.012, effect, 0.05)
                others = [Witness("other", "CPU", *runs(chance, pairs, 20, 0.012, 0, 0.05)) for _ in range(5)]
                found += verdict.judge([Witness("CPU", "CPU", before, after), *others])[0].verdict == DIFFERENT
            print(f"| {effect:.0%} | {pairs} | {found} |")


if __name__ == "__main__":
    if LONG:
        sys.argv.remove("--long")
        power()
    unittest.main()
