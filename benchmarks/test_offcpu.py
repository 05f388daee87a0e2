"""offcpu.py weighs waits by how long they were. Run by ctest."""

import unittest

import offcpu

TEXT = """\
mr-sink   101 10.000000: sched:sched_switch:
\tffffffff81 __schedule+0x10 ([kernel.kallsyms])
\t    55aa00 wait_for_work+0x1 (/usr/bin/millrace)
\t    7f0000 start_thread+0x2 (/lib/libc.so.6)

mr-source 102 10.500000: sched:sched_switch:
\t    55bb00 mr_intake_main+0x1 (/usr/bin/millrace)

mr-source 102 10.501000: PERF_RECORD_SWITCH IN
mr-source 102 10.600000: sched:sched_switch:
\t    55bb00 mr_intake_main+0x1 (/usr/bin/millrace)

mr-source 102 10.602000: PERF_RECORD_SWITCH IN
mr-sink   101 20.000000: PERF_RECORD_SWITCH IN
rdk:main  103 20.100000: sched:sched_switch:
\t    7f1111 [unknown] (/lib/librdkafka.so.1)

mr-source 102 20.400000: PERF_RECORD_SWITCH OUT
"""


class OffCpu(unittest.TestCase):
    def test_a_wait_weighs_its_time(self):
        self.assertEqual(offcpu.fold(TEXT.splitlines(True)), {
            "mr-sink;start_thread [libc.so.6];wait_for_work;__schedule [kernel]": 10_000_000,
            "mr-source;mr_intake_main": 3000,
            "rdk:main;[librdkafka.so.1]": 300_000})


if __name__ == "__main__":
    unittest.main()
