"""stacks.py names frames, folds samples and counts functions. Run by ctest."""

import unittest

import stacks

PERF = """\
# comment
mr-source  4242
\t    7f01 __memcpy_avx+0x10 (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t    5501 mr_encode_change+0x1d (/opt/millrace)
\t    7f02 start_thread+0x2 (/usr/lib/x86_64-linux-gnu/libc.so.6)

     rdk:broker1  4243
\tffffffff81 do_syscall_64+0x5 ([kernel.kallsyms])
\tffffffff82 nft_do_chain+0x5 ([nf_tables])
\t    7f03 [unknown] (/usr/lib/librdkafka.so.1)
\t    7f07 [unknown] (/usr/lib/libjemalloc.so.2)
\t    7f04 [unknown] ([unknown])
\t    7f05 std::vector<int (*)(char)>::at(int)+0x5 (/opt/x.so)

odd name 3  4244/4245
\t    7f06 f (inlined)
broken frame

mr-source  4242
\t    7f01 __memcpy_avx+0x18 (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t    5501 mr_encode_change+0x2d (/opt/millrace)
\t    7f02 start_thread+0x2 (/usr/lib/x86_64-linux-gnu/libc.so.6)
"""

FOLDED = {"mr-source;start_thread [libc.so.6];mr_encode_change;__memcpy_avx [libc.so.6]": 2,
          "rdk:broker1;std::vector<int (*)(char)>::at(int) [x.so];[unknown];jemalloc [libjemalloc.so.2];[librdkafka.so.1];nft_do_chain [kernel];"
          "do_syscall_64 [kernel]": 1,
          "odd name 3;f [inlined]": 1, "broken frame": 1}

TREE = """\
0 other 0 10 all
1 other 0 10 t
2 other 0 4 f
3 other 0 4 f
4 other 4 4 g
2 encode 0 6 g
3 encode 6 6 f
"""


class Stacks(unittest.TestCase):
    def test_perf_is_folded(self):
        self.assertEqual(stacks.fold_perf(PERF.splitlines(True)), FOLDED)

    def test_a_line_cut_anywhere_loses_no_sample(self):
        line = "\t    7f05 std::at(int)+0x5 (/opt/x.so)"
        for size in range(len(line)):
            self.assertEqual(sum(stacks.fold_perf(["t 1", line[:size]]).values()), 1)

    def test_equal_stacks_add_up(self):
        found = {}
        stacks.add_up(["a;b 2\n", "a 1\n"], found)
        stacks.add_up(["a;b 3"], found)
        self.assertEqual(found, {"a;b": 5, "a": 1})

    def test_a_function_that_recurs_counts_once(self):
        found = stacks.numbers_of(TREE.splitlines(True))
        self.assertEqual(found["functions"][:2], [{"name": "f", "stage": "encode", "self": 6, "total": 10},
                                                  {"name": "g", "stage": "encode", "self": 4, "total": 10}])
        self.assertEqual((found["total"], found["stages"]), (10, {"other": 4, "encode": 6}))

    def test_plain_names(self):
        for name, function in (("produce.isra.0", "produce"), ("f.part.1.constprop.0.cold'2", "f"), ("g.lto_priv.3", "g"), ("h.cold.1", "h"),
                               (".cold.isra.0", ".cold"), ("a.b.1", "a.b.1"), ("f'2", "f")):
            self.assertEqual(stacks.plain(name), function)

    def test_names_and_roots(self):
        tree = ["0 other 0 9 all", "1 other 0 9 t", "2 other 0 5 clone3 [libc.so.6]", "3 other 5 5 f", "2 other 0 1 [libx.so]",
                "3 other 1 1 g", "2 other 0 2 start_thread", "3 other 2 2 [libx.so]", "2 other 0 1 startle", "3 other 1 1 0x7f"]
        found = stacks.numbers_of(tree)
        self.assertEqual((found["named"], found["rooted"]), (6, 7))


if __name__ == "__main__":
    unittest.main()
