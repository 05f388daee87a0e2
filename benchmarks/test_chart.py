"""chart.py draws what it is given, so that it can be read. Run by ctest."""

import re
import unittest
import xml.etree.ElementTree

import chart
import figures

LINES = {"millrace, p50": [(1000, 2.0), (20000, 3.0)], "millrace, p99": [(1000, 4.0), (20000, 3.1)],
         "Debezium, p50": [(1000, 20.0), (20000, 15000.0)], "Debezium, p99": []}


class Chart(unittest.TestCase):
    def test_lines_and_labels(self):
        drawn = chart.draw(LINES, [("rows/s", "1", "2")])
        root = xml.etree.ElementTree.fromstring(drawn)
        inside = {"x": chart.WIDTH, "cx": chart.WIDTH, "x1": chart.WIDTH, "x2": chart.WIDTH, "y": chart.HEIGHT, "cy": chart.HEIGHT}
        for element in root.iter():
            for name, limit in inside.items():
                self.assertTrue(0 <= float(element.get(name, 0)) <= limit, (name, element.attrib))
        self.assertEqual(drawn.count("<polyline"), 3)
        self.assertEqual(drawn.count("<circle"), 6)
        heights = [float(y) for y, label in re.findall(r'y="(\d+)"[^>]*>([^<]*)</text>', drawn) if label in LINES]
        self.assertEqual(len(heights), 3)
        self.assertTrue(all(abs(one - other) >= 14 for one in heights for other in heights if one is not other))

    def test_of_nothing(self):
        xml.etree.ElementTree.fromstring(chart.draw({}, []))


def of(load, program, **found):
    return {"load": load, "program": program, "round": 1, "settings": {}, "machine_load": 0, **found}


class Sentences(unittest.TestCase):
    def test_losses_are_named_and_gains_are_not(self):
        found = object.__new__(figures.Figures)
        found.runs = [of("insert", "millrace", rows_per_s=100, cpu_us=1.0), of("insert", "pg_recvlogical", rows_per_s=50, cpu_us=2.0),
                      of("mixed", "millrace", rows_per_s=100, cpu_us=2.0), of("mixed", "pg_recvlogical", rows_per_s=150, cpu_us=1.0)]
        self.assertEqual(list(figures.losses(found)), ["pg_recvlogical is faster (mixed)", "pg_recvlogical takes less CPU a row (mixed)"])


if __name__ == "__main__":
    unittest.main()
