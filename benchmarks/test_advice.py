"""Every rule of advice.py: a profile that fires it, alone, and one that does not. Run by ctest."""

import contextlib
import copy
import io
import json
import os
import tempfile
import unittest

import advice
import profile_tools

# A burst of 100,000 events that was recorded (preset profile, 2 cores): the widest functions of it.
RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "samples", "profile-burst.json")


def profile(**functions):
    """{stage__or_name: ...}: see CASES. Self times in parts of 1000; the rest is spread as when all is well."""
    usual = {"receive": 140, "decode": 30, "encode": 80, "produce": 210, "flush": 340, "acknowledge": 120, "malloc": 40,
             "other": 40}
    rows, taken = [], 0
    for stage, name, parts in functions.values():
        rows.append({"name": name, "stage": stage, "self": parts, "total": parts})
        taken += parts
    left = 1000 - taken
    for stage, parts in usual.items():
        part = round(parts * left / 1000)
        rows.append({"name": f"some_{stage}", "stage": stage, "self": part, "total": part})
    stages = {stage: 0 for stage in (*usual, "http", "profiler")}
    for row in rows:
        stages[row["stage"]] += row["self"]
    return {"functions": rows, "stages": stages, "total": sum(stages.values()), "named": 0, "rooted": 0}


def found(functions=None, **env):
    return {"profile": profile(**(functions or {})), "env": env, "load": {}}


# rule: (fires, does not)
CASES = {
    "spinning": (found({"a": ("flush", "__vdso_clock_gettime [vdso]", 150), "b": ("flush", "do_sys_poll [kernel]", 150)}),
                 found({"a": ("flush", "__vdso_clock_gettime [vdso]", 60)})),
    "locks": (found({"a": ("flush", "futex_wake [kernel]", 60)}), found({"a": ("flush", "futex_wake [kernel]", 30)})),
    "page faults": (found({"a": ("flush", "clear_page_erms [kernel]", 70)}),
                    found({"a": ("flush", "clear_page_erms [kernel]", 20)})),
    "compression": (found({"a": ("flush", "ZSTD_compressBlock_fast", 200)}),
                    found({"a": ("flush", "LZ4_compress_fast", 90)})),
    "copying": (found({"a": ("flush", "__memcpy_avx_unaligned_erms [libc.so.6]", 150)}),
                found({"a": ("flush", "__memcpy_avx_unaligned_erms [libc.so.6]", 80)})),
    "checksums": (found({"a": ("flush", "rd_crc32c", 100)}), found({"a": ("flush", "rd_crc32c", 40)})),
    "walsender": (found(walsender_busy="0.93", backpressure="0.5"), found(walsender_busy="0.5")),
    "broker": (found(walsender_busy="0.3", backpressure="0.6"), found(walsender_busy="0.3", backpressure="0.05")),
}
CASES.update({stage: (found({"a": (stage, "wide_function", 850 if stage == "flush" else 600)}), found())
              for stage in advice.BY_STAGE})


class Advice(unittest.TestCase):
    def test_every_rule_has_a_case(self):
        names = {name for name, *_ in advice.BY_FUNCTION} | set(advice.BY_STAGE) | {"walsender", "broker"}
        self.assertEqual(names, set(CASES))

    def test_each_fires_alone_and_not_without_cause(self):
        for name, (fires, does_not) in CASES.items():
            with self.subTest(name):
                self.assertEqual([rule for rule, _ in advice.rules(fires)], [name])
                self.assertNotIn(name, [rule for rule, _ in advice.rules(does_not)])

    def test_nothing_is_said_when_all_is_well(self):
        said = list(advice.advise(found()))
        self.assertEqual(len(said), 2)
        self.assertIn("Nothing passes its limit", said[1])

    def test_without_a_sample_nothing_is_said_to_be_well(self):
        empty = {"profile": {"functions": [], "stages": dict.fromkeys(advice.BY_STAGE, 0), "total": 0}, "env": {}, "load": {}}
        self.assertEqual(list(advice.advise(empty)), ["- There is no sample, so nothing can be said."])

    def test_polling_is_no_work(self):
        """A thread that polls in flush must not make flush the largest stage."""
        spinning = found({"a": ("flush", "do_sys_poll [kernel]", 600)})
        self.assertNotIn("flush", [rule for rule, _ in advice.rules(spinning)])

    def test_the_recorded_burst(self):
        with open(RECORDED, encoding="utf-8") as file:
            recorded = json.load(file)
        said = {rule for rule, _ in advice.rules({"profile": recorded, "env": {}, "load": {}})}
        self.assertLessEqual(said, {"spinning", "locks"})
        slowed = copy.deepcopy(recorded)
        slowed["functions"].append({"name": "needless", "stage": "encode", "self": recorded["total"], "total": 0})
        slowed["stages"]["encode"] += recorded["total"]
        slowed["total"] *= 2
        said = {rule for rule, _ in advice.rules({"profile": slowed, "env": {}, "load": {}})}
        self.assertIn("encode", said)

    def test_the_largest_stage_is_the_tables(self):
        """flush at 45 % of the table, most of it polling: receive is the largest of the work alone, and that is said so."""
        polling = found({"a": ("flush", "do_sys_poll [kernel]", 350), "b": ("receive", "recv", 280)})
        said = next(advice.advise(polling))
        self.assertRegex(said, r"The largest stage is \*\*flush\*\* with 4\d\.\d % of 1\d+ samples, 3\d\.\d % of them polling")
        self.assertRegex(said, r"of the work without polling it is \*\*receive\*\* with \d\d\.\d %")
        self.assertRegex(next(advice.advise(found())), r"^The largest stage is \*\*flush\*\* with 34\.0 % of 1000 samples\.$")

    def test_the_allocator_that_is_linked_is_not_advised(self):
        for functions in ({"a": ("malloc", "malloc", 600)}, {"a": ("flush", "clear_page_erms [kernel]", 70)}):
            said = {linked: " ".join(text for _, text in advice.rules(found(functions, allocator=linked)))
                    for linked in ("jemalloc 5.3.0-0-g54eaed", "libc", "")}
            self.assertNotRegex(said["jemalloc 5.3.0-0-g54eaed"], "try jemalloc|M_TRIM_THRESHOLD")
            self.assertNotRegex(said["libc"], "dirty_decay_ms|JEMALLOC=OFF")
            self.assertIn("jemalloc", said[""])
            self.assertNotIn("{", " ".join(said.values()))

    def test_no_wrong_advice(self):
        """The flat format costs more instructions here; which allocator is the default is not advice."""
        text = " ".join(sentence for case in CASES.values() for _, sentence in advice.rules(case[0]))
        self.assertNotIn("flat", text)
        self.assertNotIn("the default", text)


class Summary(unittest.TestCase):
    def test_a_ramp_says_where_it_broke(self):
        for reached, limit, says in ((True, "p99", "events/s held; p99"), (False, "", "events/s held; not reached: the ramp ended first")):
            load = {"breaking_point": {"held_events_per_s": 12000, "reached": reached, "limit": limit}}
            self.assertIn(("breaking point", "12000", says), list(profile_tools.load_lines(load)))
        self.assertNotIn("breaking point", [what for what, *_ in profile_tools.load_lines({})])


class Waits(unittest.TestCase):
    """Who held the flow is asked of the bursts, not of the quiet time around them."""

    def said(self, folder):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            profile_tools.waits(folder)
        return {name: float(value) for name, value in (line.split("=") for line in text.getvalue().splitlines())}

    def test_of_two_bursts(self):
        with tempfile.TemporaryDirectory() as folder:
            for part, begin in (("", 100), ("-2", 200)):
                with open(os.path.join(folder, f"watch{part}.txt"), "w", encoding="utf-8") as file:
                    # Ten seconds. In the burst, from the 4th to the 6th, the walsender uses all of a core, else a tenth.
                    for quarter in range(41):
                        second = quarter / 4
                        burst = min(max(second - 4, 0), 2)
                        file.write(f"{begin + second} {0.1 * (second - burst) + burst} {burst / 2}\n")
            with open(os.path.join(folder, "load.json"), "w", encoding="utf-8") as file:
                json.dump({"duration_s": 20, "windows": [[104.1, 105.9], [204.1, 205.9]]}, file)
            self.assertEqual(self.said(folder), {"walsender_cpu_s": 5.6, "walsender_busy": 1.0, "backpressure": 0.5})
            os.remove(os.path.join(folder, "load.json"))
            self.assertEqual(self.said(folder), {"walsender_cpu_s": 5.6, "walsender_busy": 0.28, "backpressure": 0.1})

    def test_of_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.said(folder), {"walsender_cpu_s": 0.0})


if __name__ == "__main__":
    unittest.main()
