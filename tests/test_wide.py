"""The wide workload, a few seeds of it; tests/wide.sh runs many. And the judge can fail."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "wide"))

# pylint: disable=wrong-import-position
from judge import Judge
from plan import Generator
from run import Run
from self_test import Alterations, self_test
from shrink import listing
from topics import Capture

# What nobody can know, so that millrace goes by what it knew or ends (docs/events.md, "The key"): which key a table had that only
# the catalog tells, when it was altered or dropped behind a row.
OPEN = ("key-ddl", "identity-ddl", "drop-full")


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("seed", range(1, 7))
def test_what_the_topics_make_of_the_tables(seed, delivery):
    plan = Generator(seed, without=OPEN).plan()
    result = Run(plan, delivery).run()
    assert not result.problems, f"{result.problems[:5]}\n{listing(plan)}"
    assert result.events > 10 and result.pictures > 5


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


def test_the_judge_finds_what_is_wrong():
    assert self_test(wanted_runs=1) == 0
