"""Three brokers, each record on all of them: restarted in turn, killed while they lead, two of them away at once."""

import time

import pytest

from director import Scene


@pytest.fixture(params=["at-least-once", "exactly-once"])
def scene(request):
    scene = Scene(seed=7, delivery=request.param, brokers=3)
    yield scene
    scene.close()


@pytest.mark.timeout(600)
def test_rolling_restart(scene):
    """As in an upgrade: nobody notices anything, and nothing comes twice."""
    scene.run_fault(scene.rolling_restart)
    report = scene.check()
    print(scene.summary(report))
    report.expect_clean()
    assert report.events > 100 and report.duplicates == 0
    assert scene.codes == [], "millrace ended"


def waits_and_goes_on(scene):
    """With two brokers away nothing is confirmed, and millrace stays; with one of them back it goes on."""
    scene.two_brokers_away()
    assert scene.millrace.process.poll() is None, "".join(scene.millrace.lines[-5:])


@pytest.mark.timeout(600)
def test_brokers_lost(scene):
    began = time.monotonic()
    scene.run_fault(scene.leader_kill)
    scene.run_fault(lambda: waits_and_goes_on(scene))
    scene.run_fault(scene.coordinator_kill)
    report = scene.check()
    print(scene.summary(report), f"{time.monotonic() - began:.0f} s")
    report.expect_clean()
    assert report.events > 100
