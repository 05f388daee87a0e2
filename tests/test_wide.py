"""The wide workload, a few seeds of it; tests/wide.sh runs many. And the judge can fail."""

import copy
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "wide"))

# pylint: disable=wrong-import-position
import initial
from judge import Judge
from plan import Generator
from run import Run
from self_test import Alterations, self_test
from shrink import listing
from topics import Capture

# What nobody can know, so that millrace goes by what it knew or ends (docs/keys.md): which key a table had that only
# the catalog tells, when it was altered or dropped behind a row.
OPEN = ("key-ddl", "identity-ddl", "drop-full")


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("seed", range(1, 7))
def test_what_the_topics_make_of_the_tables(seed, delivery):
    plan = Generator(seed, without=OPEN).plan()
    result = Run(plan, delivery).run()
    assert not result.problems, f"{result.problems[:5]}\n{listing(plan)}"
    assert result.events > 10 and result.pictures > 5


@pytest.mark.parametrize("types", ["text", "debezium", "schemas"])
def test_a_wide_workload_is_proved(types):
    """`millrace verify` finds no difference after it."""
    plan = Generator(7, without=(*OPEN, "ddl", "encoding")).plan()  # types and defaults that change do so without events
    more = {} if types == "text" else {"types": '"debezium"'}
    if types == "schemas":
        more["json__schemas"] = '"both"'
    result = Run(plan, verifies=True, **more).run()
    assert not result.problems, f"{result.problems[:5]}\n{listing(plan)}"
    assert result.verdicts["equal"] > 3


def test_kills_under_a_wide_workload():
    plan = Generator(100, 40, OPEN).plan()
    result = Run(plan, kills=True).run()
    assert result.kills > 3
    assert not result.problems, f"{result.problems[:5]}\n{listing(plan)}"


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_copies_beside_a_wide_workload(delivery):
    """Existing rows go out as the stream has them at that place, or not at all."""
    plan = Generator(206, without=OPEN).plan()
    result = Run(plan, delivery, copies=True).run()
    assert not result.problems, f"{result.problems[:5]}\n{listing(plan)}"
    assert result.reads > 0
    capture, *others = result.judged
    records = list(capture.records)
    assert Alterations(1).other_copy(records) & {kind for kind, _ in Judge(Capture(records, capture.partitions), *others).judge()}


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_first_copy_under_a_wide_workload(delivery):
    """What was copied and the stream behind it make the tables; and a copied row that is missing is noticed."""
    plan = Generator(301, without=(*initial.WITHOUT, "truncate")).plan()
    result = Run(plan, delivery, initially=True).run()
    assert not result.problems, f"{result.problems[:5]}\n{listing(plan)}"
    assert result.reads > 0 and result.pictures > 0 and result.attempts == 1
    capture, *others = copy.deepcopy(result.judged)
    records = list(capture.records)
    del records[Alterations(1).place(records, lambda record, value: value["op"] == "r" and value["source"]["table"] != initial.HELD[1])]
    judge = initial.InitialJudge(Capture(records, capture.partitions), *others, attempts=1)
    judge.judge()
    judge.compare_last(others[0][max(others[0])])
    assert judge.problems


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_first_copy_that_is_killed_under_a_wide_workload(delivery):
    """However often it is broken off, what is left of each key is the table's row."""
    plan = Generator(302, 20, initial.WITHOUT).plan()
    result = Run(plan, delivery, kills=True, initially=True).run()
    assert not result.problems, f"{result.problems[:5]}\n{listing(plan)}"
    assert result.reads > 0 and result.pictures > 0 and result.kills > 0


def test_the_judge_finds_what_is_wrong():
    assert self_test(wanted_runs=1) == 0
