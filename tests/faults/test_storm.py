"""The short mix of every fault, always with the same seed. tests/soak.sh runs long ones."""

import pytest

from director import Scene
from mutants import misplaced


@pytest.mark.timeout(600)
def test_every_fault_once_under_load():
    scene = Scene(seed=1)
    try:
        scene.mix()
        report = scene.check()
        print(scene.summary(report))
        report.expect_clean()
        assert report.events > 1000 and report.samples > 5
        assert report.duplicates < report.events
    finally:
        scene.close()


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_kills_behind_cuts(delivery):
    """Where what was told and what is there differ most; quick enough to be run for each mutant."""
    scene = Scene(seed=4, delivery=delivery)
    try:
        for fault in (scene.cut_and_kill, scene.backend_terminated, scene.terminate, scene.cut_kafka_answers,
                      scene.cut_and_kill, scene.reset, scene.cut_and_kill):
            scene.run_fault(fault)
        report = scene.check()
        print(scene.summary(report))
        report.expect_clean()
        assert report.events > 100 and report.samples > 5
    finally:
        scene.close()


@pytest.mark.timeout(600)
def test_producer_sessions_lost():
    """Somebody else takes the transactional id, and a topic refuses records: the next session knows how far it was."""
    scene = Scene(seed=5, writers=2, delivery="exactly-once")
    try:
        for fault in (scene.fenced, scene.record_refused, scene.fenced):
            scene.run_fault(fault)
        report = scene.check()
        print(scene.summary(report))
        report.expect_clean()
        assert report.events > 100
        assert any('"sink_session_lost"' in line for line in scene.subject.log)
    finally:
        scene.close()


def test_every_mutant_still_applies():
    assert not misplaced()
