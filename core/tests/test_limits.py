"""Limits that users meet, by their numbers: a test that compares a limit with itself lets any change of it through."""

from __future__ import annotations

import pytest

from octavo import sampling, structured_output
from octavo.cli.run_batch import progress
from octavo.engine import artifacts
from octavo.scheduler import latency, target
from octavo.server.responses import store
from octavo.server.transport import timing
from octavo.text.grammar import grammars

LIMITS = {
    (sampling, "MAX_N"): 1024,
    (sampling, "MAX_LOGPROBS"): 64,
    (sampling, "MAX_LOGIT_BIAS"): 16384,
    (sampling, "MAX_STOP_STRINGS"): 256,
    (sampling, "MAX_STOP_LENGTH"): 4096,
    (sampling, "MAX_BAD_WORDS"): 256,
    (sampling, "MAX_BAD_WORD_BYTES"): 2**16,
    (structured_output, "MAX_GRAMMAR_BYTES"): 2**19,
    (structured_output, "MAX_SCHEMA_DEPTH"): 100,
    (grammars, "COMPILE_SECONDS"): 10.0,
    (grammars, "COMPILE_BYTES"): 2**30,
    (grammars, "CACHE_BYTES"): 64 * 2**20,
    (artifacts, "LIMIT"): 64 * 2**30,
    (target, "LEAST_CHUNK"): 16,
    (store, "LEASE_SECONDS"): 15.0,
    (progress, "PLAIN_SECONDS"): 10.0,
    (timing, "FLOOR"): 1e-05,
    (timing, "STEP"): 10**0.05,
    (timing, "BUCKETS"): 141,
}


@pytest.mark.parametrize(("module", "name"), LIMITS, ids=[name for _, name in LIMITS])
def test_a_limit_is_its_number(module: object, name: str) -> None:
    assert getattr(module, name) == LIMITS[module, name]


def test_latencies_are_counted_from_half_a_millisecond_to_a_minute() -> None:
    assert (latency.BOUNDS[0], len(latency.BOUNDS)) == (0.0005, 53)
    assert latency.BOUNDS[-1] == pytest.approx(54.74, abs=0.01)
