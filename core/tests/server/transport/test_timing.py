"""What the server adds to a token, as it measures it."""

from __future__ import annotations

import itertools
import math
import time

import pytest
from server_fake import FakeEngine

from octavo.server.transport.timing import BUCKETS, FLOOR, STEP, Timing


def counted(served) -> int:
    return sum(served.request("GET", "/octavo/timing").json["counts"])


def test_every_write_that_has_a_token_counts_once(served, engine: FakeEngine) -> None:
    before = counted(served)
    served.chat(stream=True, stream_options={"include_usage": True})
    assert counted(served) - before == 5, "the usage and [DONE] carry no token"
    served.complete(stream=True)
    assert counted(served) - before == 10


def test_a_token_that_is_held_back_counts_with_the_next(served, engine: FakeEngine) -> None:
    engine.silent = frozenset({1, 2})
    before = counted(served)
    served.chat(stream=True)
    assert counted(served) - before == 3


def test_answers_in_one_piece_and_errors_do_not_count(served, engine: FakeEngine) -> None:
    before = counted(served)
    served.chat()
    served.complete(prompt=["a", "b"])
    served.chat(stream=True, n=-1)
    assert counted(served) == before


def test_the_time_runs_from_the_engine(served, engine: FakeEngine) -> None:
    before = served.request("GET", "/octavo/timing").json
    engine.left_engine = time.monotonic() - 1000.0
    served.chat(stream=True)
    after = served.request("GET", "/octavo/timing").json
    assert after["counts"][-1] - before["counts"][-1] == 5


@pytest.mark.parametrize("seconds", [0.0, 1e-7, FLOOR, 3e-4, 0.00199, 1.0, 99.0])
def test_a_bucket_ends_at_or_above_its_times_and_the_one_before_below(seconds: float) -> None:
    timing = Timing()
    timing.add(seconds)
    bucket = timing.counts.index(1)
    ends = timing.report().added_seconds
    assert seconds <= ends[bucket] * (1 + 1e-9)
    assert bucket == 0 or ends[bucket - 1] < seconds


def test_the_buckets_reach_from_ten_microseconds_to_a_hundred_seconds() -> None:
    ends = Timing().report().added_seconds
    assert len(ends) == BUCKETS
    assert math.isclose(ends[0], 1e-5)
    assert math.isclose(ends[-1], 100.0)
    assert all(math.isclose(b / a, STEP) for a, b in itertools.pairwise(ends))
    timing = Timing()
    timing.add(1e9)
    assert timing.counts[-1] == 1
