"""tail.py finds the stage that was long while slow rows were under way. Run by ctest."""

import unittest

import tail


class Windows:
    """What a Sampler has seen, without the looking."""

    around = tail.Sampler.around

    def __init__(self, windows):
        self.windows = windows


def window(begin, cpu_wait=0.0, **stages):
    return (begin, begin + 0.05, stages, {"millrace": cpu_wait, "walsender": 0.0, "broker": 0.0})


class Tail(unittest.TestCase):
    def test_longest_is_the_highest_bucket_that_grew(self):
        before = {"flush": {0.001: 5, 0.01: 5, 0.1: 6}}
        now = {"flush": [(0.001, 7), (0.01, 8), (0.1, 9)]}
        self.assertEqual(tail.longest_ms(before, now), {"flush": 10})

    def test_nothing_new_is_nothing_long(self):
        counts = {"flush": {0.001: 5, 0.01: 6}}
        self.assertEqual(tail.longest_ms(counts, {"flush": [(0.001, 5), (0.01, 6)]}), {})

    def test_slow_rows_tell_their_stage(self):
        windows = [window(number * 0.05, receive=1.0, flush=2.0) for number in range(200)]
        windows[100] = window(5.0, cpu_wait=30.0, receive=1.0, flush=70.0)
        rows = [(number * 0.01, number * 0.01 + 0.003) for number in range(1000) if not 480 < number < 520]
        rows += [(5.0, 5.07)] * 9
        found = tail.explain(Windows(windows), sorted(rows, key=lambda row: row[1] - row[0]))
        self.assertEqual(found["longest"]["flush"], 1)
        self.assertEqual((found["stages_ms"]["flush"], found["usual_ms"]["flush"]), (70.0, 2.0))
        self.assertEqual((found["cpu_waits_ms"]["millrace"], found["usual_cpu_waits_ms"]["millrace"]), (30.0, 0.0))


if __name__ == "__main__":
    unittest.main()
