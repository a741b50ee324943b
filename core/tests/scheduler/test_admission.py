"""What a client is told to wait before it asks again: half of the queue, at the pace of late."""

from __future__ import annotations

import pytest

from octavo.scheduler.admission import Admission


def paced(seconds: float, *, each: int = 1) -> Admission:
    pace = Admission()
    for step in range(20):
        for _ in range(each):
            pace.admitted()
        pace.tick(100 + step * seconds)
    return pace


def test_half_of_the_queue_at_the_pace_of_late() -> None:
    assert paced(0.5).until_half_of(20) == pytest.approx(5)
    assert paced(0.5, each=5).until_half_of(100) == pytest.approx(5)


def test_steps_that_admit_nobody_count_as_waiting() -> None:
    pace = paced(1.0)
    for step in range(20):
        pace.tick(119 + step / 20)
    pace.admitted()
    pace.tick(120)
    assert pace.until_half_of(10) == pytest.approx(5)


def test_the_wait_is_between_a_second_and_a_minute() -> None:
    assert Admission().until_half_of(1000) == 1
    assert paced(0.001).until_half_of(10) == 1
    assert paced(30).until_half_of(1000) == 60


def test_a_change_of_pace_is_followed() -> None:
    pace = paced(0.1)
    for step in range(100):
        pace.admitted()
        pace.tick(200 + step * 2)
    assert pace.until_half_of(10) == pytest.approx(10, rel=0.1)
