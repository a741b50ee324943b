"""The platforms that engines are tested on: the one that has no habits, and the one that has them all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine.tiny_engine import closing, on

from octavo_fakechip import FakeChip


@pytest.fixture(scope="module", params=["reference", "fakechip"])
def platform_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A module that uses it runs on each platform: `engine.tiny_engine.engine` makes its engines there."""
    name: str = request.param
    with on(name):
        yield name


@pytest.fixture(autouse=True)
def _closed_and_compiled_before_serving() -> Iterator[None]:
    """Every engine of a test is closed after it, and none has compiled anything while it served."""
    with closing() as engines:
        yield
    for tiny in engines:
        if isinstance(tiny.device, FakeChip):
            assert tiny.device.counters.compiles_after_warmup == 0
