"""The short mix of every fault, always with the same seed. tests/soak.sh runs long ones."""

import pytest

from director import Scene


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
