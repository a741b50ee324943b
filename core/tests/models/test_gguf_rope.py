"""Llama 3's rope scaling comes back from the divisors that a GGUF stores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models.tiny import llama3_divisors
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from octavo.errors import CheckpointError
from octavo.graph.rope import FrequencyFactors, RopeSpec, inverse_frequencies
from octavo.models.gguf_rope import rope_scaling


def scaling(factor: float, low: float = 1.0, high: float = 4.0, context: int = 8192) -> dict[str, object]:
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": context,
    }


def divisors(rope: dict[str, object], theta: float, head_dim: int) -> np.ndarray:
    return llama3_divisors({"head_dim": head_dim, "rope_parameters": {"rope_theta": theta, **rope}})


@pytest.mark.parametrize(("factor", "head_dim"), [(8.0, 128), (32.0, 64), (32.0, 128)], ids=["3.1", "3.2-1b", "3.2-3b"])
def test_published_models_get_their_own_numbers_back(factor: float, head_dim: int) -> None:
    assert rope_scaling(divisors(scaling(factor), 500000.0, head_dim), 500000.0, head_dim) == scaling(factor)


def test_divisors_made_from_float32_frequencies_are_recognised() -> None:
    """The converter divides frequencies that transformers computes in float32."""
    config = LlamaConfig(head_dim=128, rope_parameters={"rope_theta": 500000.0, **scaling(8.0)})
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1.0 / 500000.0 ** (torch.arange(0, 128, 2).float() / 128)
    assert rope_scaling((plain / scaled).numpy(), 500000.0, 128) == scaling(8.0)


@given(
    st.floats(1.5, 64), st.floats(0.5, 2), st.floats(2.5, 16), st.integers(64, 65536), st.sampled_from([16, 64, 128])
)
def test_any_other_table_keeps_its_frequencies(
    factor: float, low: float, high: float, context: int, head_dim: int
) -> None:
    stored = divisors(scaling(factor, low, high, context), 10000.0, head_dim)
    found = rope_scaling(stored, 10000.0, head_dim)
    wanted = inverse_frequencies(RopeSpec(head_dim, 10000.0)) / stored
    if found["rope_type"] == "factors":
        got = inverse_frequencies(RopeSpec(head_dim, 10000.0, FrequencyFactors(tuple(found["factors"]))))
        np.testing.assert_array_equal(got, wanted)
    else:  # a context so long, or a table so plain, that it is the published scaling or none
        assert found["rope_type"] in ("default", "llama3")
        again = divisors(found, 10000.0, head_dim) if found["rope_type"] == "llama3" else np.ones(head_dim // 2)
        np.testing.assert_allclose(again, stored, rtol=2e-5)


def test_divisors_of_one_are_no_scaling() -> None:
    assert rope_scaling(np.ones(64, np.float32), 500000.0, 128) == {"rope_type": "default"}


def test_a_table_for_other_heads_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"shape \(32,\), expected \(64,\)"):
        rope_scaling(np.ones(32, np.float32), 10000.0, 128)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_what_cannot_divide_is_refused(value: float) -> None:
    table = np.ones(64, np.float32)
    table[5] = value
    with pytest.raises(CheckpointError, match="cannot be divided by"):
        rope_scaling(table, 10000.0, 128)
