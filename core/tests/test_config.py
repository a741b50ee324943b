"""Settings of other engines: what is not built is refused by name, what asks for nothing passes."""

from __future__ import annotations

from typing import Any

import pytest

from octavo import LLM, EngineConfig
from octavo.config import ALREADY_SO, UNSUPPORTED, refuse_unsupported
from octavo.errors import CheckpointError, ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("swap_space", 4), ("quantization", "awq"), ("trust_remote_code", True), ("pipeline_parallel_size", 2),
        ("enable_chunked_prefill", False), ("tokenizer_mode", "slow"),
    ],
)  # fmt: skip
def test_a_setting_that_is_not_built_is_refused_with_what_is_so_instead(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not supported: {UNSUPPORTED[name]}"):
        LLM("no/such/model/here", **{name: value})


@pytest.mark.parametrize(
    "settings",
    [
        {"swap_space": 0, "quantization": None, "trust_remote_code": False, "tokenizer_mode": "auto"},
        {"pipeline_parallel_size": 1, "enable_chunked_prefill": True},
        {"enforce_eager": True, "disable_log_stats": True}, {"enforce_eager": False},
    ],
)  # fmt: skip
def test_a_setting_that_asks_for_what_is_so_anyway_passes(settings: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):  # it got as far as the model
        LLM("no/such/model/here", **settings)


def test_a_setting_that_nobody_knows_is_a_type_error_as_in_any_call() -> None:
    with pytest.raises(TypeError, match="'bananas' is no setting"):
        LLM("no/such/model/here", bananas=3)


def test_what_is_so_already_is_among_what_is_known() -> None:
    assert set(UNSUPPORTED) >= ALREADY_SO
    for name in ALREADY_SO:
        refuse_unsupported(name, True)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_step_timeout_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"step_timeout .*0 to wait for ever.*\(--step-timeout\)"):
        EngineConfig("m", step_timeout=seconds)


def test_a_model_cannot_be_served_without_a_name() -> None:
    with pytest.raises(ConfigError, match="--served-model-name"):
        EngineConfig("m", served_model_names=("a", ""))


@pytest.mark.parametrize("milliseconds", [0, -5.0])
def test_a_latency_target_is_a_time(milliseconds: float) -> None:
    with pytest.raises(ConfigError, match=f"itl_target_ms must be above 0, not {milliseconds:g} .--itl-target."):
        EngineConfig("m", itl_target_ms=milliseconds)
