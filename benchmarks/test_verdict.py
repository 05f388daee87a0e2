"""What verdict.py says of data whose truth is known. Run by ctest, or: python3 benchmarks/test_verdict.py [--long]

--long: 100 comparisons of a build with itself in place of 20, and the power at 1, 2, 3 and 5 % as a table."""

import copy
import itertools
import json
import math
import os
import random
import statistics
import sys
import unittest

import profile_tools
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


RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "samples", "windows.json")


def slower(run, part, stages=profile_tools.FLOW):
    """The run with a slow-down placed in its figures."""
    found = copy.deepcopy(run)
    for costs in (found, *found["windows"]):
        for stage in stages:
            costs["cpu_us"][stage] *= 1 + part
    return found


def quieter(runs, part):
    """The same runs on a machine that varies by `part` of it: each figure moves towards the median of all."""
    found, middle = copy.deepcopy(runs), {}
    for stage in runs[0]["cpu_us"]:
        middle[stage] = statistics.median(window["cpu_us"][stage] / window["walsender_us"] for run in runs for window in run["windows"])
    for costs in (costs for run in found for costs in (run, *run["windows"])):
        for stage, usual in middle.items():
            costs["cpu_us"][stage] = usual * (costs["cpu_us"][stage] / costs["walsender_us"] / usual) ** part
        costs["walsender_us"] = 1.0
    return found


def compared(before, after):
    """(exit code, first line, names of the witnesses that differ)."""
    judgements = verdict.judge(list(profile_tools.witnesses_of_runs(before, after)))
    lines, code = profile_tools.verdict_lines(judgements, [])
    return code, lines[0], {j.witness.name for j in judgements if j.verdict == DIFFERENT}


class FewRuns(unittest.TestCase):
    """One run of each build, or three, as recorded on a machine with two cores and thirty processes that wanted them: seven runs
    of one build, three of it without optimisation. CPU an event of two runs of one build lies up to 60 % apart there."""

    @classmethod
    def setUpClass(cls):
        with open(RECORDED, encoding="utf-8") as file:
            recorded = json.load(file)
        cls.sound, cls.o0 = recorded["sound"], recorded["o0"]
        cls.quiet = quieter(cls.sound, 0.15)

    def triples(self, runs):
        return [(list(runs[at:at + 3]), list(runs[at + 3:at + 6])) for at in (0, 1)]

    def test_nothing_placed_nothing_claimed(self):
        for runs in (self.sound, self.quiet):
            said = [compared([before], [after]) for before, after in itertools.combinations(runs, 2)]
            said += [compared(before, after) for before, after in self.triples(runs)]
            self.assertEqual([line for code, line, _ in said if code != 4 or "probably" in line], [])
            for _, line, _ in said:
                self.assertRegex(line, r"^\*\*Inconclusive\*\*: \d+ more pairs? needed; CPU in the flow [+-][\d.]+%, and one run varies by "
                                       r"±\d+%. More than \d+% is unlikely\.$")

    def test_a_build_without_optimisation_is_found_in_one_pair(self):
        """Far beyond what one run varies by. Where a recorded run varies by a third, one pair may leave a doubt, and says which."""
        for sound, slow, doubts in ((self.sound, self.o0, 3), (self.quiet, quieter(self.o0, 0.15), 0)):
            said = [compared([before], [after]) for before, after in itertools.product(sound, slow)]
            for code, line, names in said:
                self.assertTrue(names if code == 3 else "probably different: CPU in " in line and "1 more pair would settle it" in line, line)
            claims = [line for code, line, _ in said if code == 3]
            self.assertGreaterEqual(len(claims), len(said) - doubts)
            for line in claims:
                self.assertRegex(line, r"^\*\*Different\*\*: .*CPU in (en|de)code \+\d+\.\d%.*, far beyond what one run varies by\.$")

    def test_a_build_without_optimisation_is_found_in_three_pairs(self):
        code, line, names = compared(self.sound[:3], self.o0)
        self.assertEqual(code, 3, line)
        self.assertLessEqual({"CPU in the flow", "CPU in decode"}, names)

    def test_ten_percent_on_a_quiet_machine(self):
        """One pair says probably, mostly, and how many more settle it; three pairs say so."""
        said = [compared([before], [slower(after, 0.10)]) for before, after in zip(self.quiet, self.quiet[1:])]
        for code, line, _ in said:
            self.assertEqual(code, 4, line)
            self.assertRegex(line, r"\b\d\d? more pairs? (would settle it|needed)")
        self.assertGreaterEqual(sum("probably different: CPU in " in line for _, line, _ in said), len(said) / 2)
        for before, after in self.triples(self.quiet):
            code, line, names = compared(before, [slower(run, 0.10) for run in after])
            self.assertEqual(code, 3, line)
            self.assertIn("CPU in the flow", names)

    def test_three_percent_take_more_pairs(self):
        """Never a claim, neither of one pair nor of three; and how many more it takes."""
        for runs in (self.sound, self.quiet):
            pairs = [([one], [other]) for one, other in zip(runs, runs[1:])] + self.triples(runs)
            for before, after in pairs:
                code, line, _ = compared(before, [slower(run, 0.03) for run in after])
                self.assertEqual(code, 4, line)
                self.assertRegex(line, r"\d+ more pairs? (needed|would settle it)")

    def test_ten_percent_on_the_busy_machine_are_not_claimed_of_another_stage(self):
        for before, after in itertools.combinations(self.sound, 2):
            code, line, names = compared([before], [slower(after, 0.10, ["encode"])])
            self.assertTrue(code == 4 or names == {"CPU in encode"}, line)

    def test_pairs_asked_for_are_enough(self):
        """As many as it asks for, of the same kind, settle ten percent."""
        before, after = self.quiet[0], slower(self.quiet[1], 0.10)
        judged = verdict.judge(list(profile_tools.witnesses_of_runs([before], [after])))
        more = judged[0].more
        self.assertLess(more, verdict.PERMUTED_FROM)
        some = [self.quiet[i % 7] for i in range(1 + more)], [slower(self.quiet[(i + 3) % 7], 0.10) for i in range(1 + more)]
        self.assertEqual(compared(*some)[0], 3)

    def test_student(self):
        """Against printed tables."""
        for freedom, chance, limit in ((1, 0.05, 12.706), (4, 0.001, 8.610), (10, 0.05, 2.228), (30, 0.01, 2.750)):
            self.assertAlmostEqual(verdict.t_limit(chance, freedom), limit, 3)
            self.assertAlmostEqual(verdict.t_chance(limit, freedom), chance, 4)


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
