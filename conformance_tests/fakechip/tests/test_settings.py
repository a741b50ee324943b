"""What the environment variable may say."""

from __future__ import annotations

import pytest

from octavo.errors import PlatformError
from octavo.platform import Rank
from octavo_fakechip import FakeChipPlatform, Fault, Settings


def test_every_key_is_understood_and_silence_leaves_the_defaults() -> None:
    assert Settings.parse("") == Settings()
    text = "memory=64m, delay=0.01,compile=2,compiler=0.9,fault=hang@step:3,fault=slow=0.5@rows:2,fault=oom@load"
    faults = (Fault("hang", "step", 3), Fault("slow", "rows", 2, seconds=0.5), Fault("oom", "load"))
    assert Settings.parse(text) == Settings(64 << 20, 0.01, 2.0, "0.9", faults)
    assert Fault.parse("lost@step:4+") == Fault("lost", "step", 4, on=True)


@pytest.mark.parametrize("text", ["memory=much", "speed=1", "fault=melt@step:1", "fault=oom@step", "delay"])
def test_what_it_cannot_mean_is_one_clear_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_FAKECHIP", text)
    with pytest.raises(PlatformError, match=r"OCTAVO_FAKECHIP: .* cannot be used"):
        FakeChipPlatform().open(Rank())
