"""Rotary embedding: the frequencies against transformers, the rotation against loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from graph.op_calls import evaluate

from octavo.errors import GraphError
from octavo.graph import OPS, FrequencyFactors, LinearScaling, Llama3Scaling, RopeSpec, TensorType, inverse_frequencies
from octavo.graph.ir import freeze
from octavo.graph.ops import Case

SCALINGS = {
    "none": None,
    "linear": LinearScaling(4.0),
    "llama3": Llama3Scaling(8.0, 1.0, 4.0, 256),
    "factors": FrequencyFactors((1.0, 1.5, 2.0, 7.0)),
}


def rotated(x: list[float], position: int, spec: RopeSpec) -> list[float]:
    """One head turned, pair by pair, in Python floats."""
    y, half = list(x), spec.turned // 2
    for pair, frequency in enumerate(inverse_frequencies(spec)):
        i, j = (2 * pair, 2 * pair + 1) if spec.interleaved else (pair, pair + half)
        turned = complex(x[i], x[j]) * complex(math.cos(position * frequency), math.sin(position * frequency))
        y[i], y[j] = turned.real, turned.imag
    return y


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("head_dim", [8, 12])  # all of the head turns, or its first 8 elements
def test_each_pair_of_each_head_turns_by_its_own_angle(head_dim: int, interleaved: bool, scaling: str) -> None:
    spec = RopeSpec(head_dim, 500.0, SCALINGS[scaling], rotary_dim=8, interleaved=interleaved)
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((4, heads * head_dim)) for heads in (3, 2))
    positions = np.array([0, 1, 17, 4001], np.int32)
    found = evaluate(OPS["rope"], Case([q, k, positions], [], freeze(spec.to_attrs())))  # type: ignore[arg-type]
    for x, y in zip((q, k), found, strict=True):
        heads = x.reshape(4, -1, head_dim)
        expected = [[rotated(h.tolist(), int(p), spec) for h in row] for row, p in zip(heads, positions, strict=True)]
        np.testing.assert_allclose(y, np.array(expected).reshape(x.shape), rtol=1e-12, atol=1e-12)


def test_scores_depend_on_the_distance_alone() -> None:
    spec = RopeSpec(16)
    q, k = np.random.default_rng(0).standard_normal((2, 1, 16))

    def score(at_q: int, at_k: int) -> float:
        case = [Case([q, k, np.array([p], np.int32)], [], spec.to_attrs()) for p in (at_q, at_k)]  # type: ignore[arg-type]
        return float(evaluate(OPS["rope"], case[0])[0][0] @ evaluate(OPS["rope"], case[1])[1][0])

    assert score(7, 3) == pytest.approx(score(90_007, 90_003), abs=1e-9)
    assert score(7, 3) != pytest.approx(score(7, 4), abs=1e-3)


def test_float32_keeps_the_phase_at_far_positions() -> None:
    q = np.ones((1, 16))
    case = Case([q, q, np.array([1_000_003], np.int32)], [], RopeSpec(16).to_attrs())  # type: ignore[arg-type]
    np.testing.assert_allclose(evaluate(OPS["rope"], case, np.float32)[0], evaluate(OPS["rope"], case)[0], atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "extra", "scaling"),
    [
        ("default", {}, None),
        ("linear", {"factor": 8.0}, LinearScaling(8.0)),
        # Llama 3.1's own numbers: of its 64 frequencies some are kept, some blended, some divided.
        (
            "llama3",
            {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
            Llama3Scaling(8.0, 1.0, 4.0, 8192),
        ),
        (
            "longrope",
            {
                "short_factor": [1 + i / 8 for i in range(64)],
                "long_factor": [9.0] * 64,
                "original_max_position_embeddings": 8192,
            },
            FrequencyFactors(tuple(1 + i / 8 for i in range(64))),
        ),
    ],
)
def test_frequencies_are_those_of_transformers(kind: str, extra: dict[str, Any], scaling: Any) -> None:
    import torch
    import transformers
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = transformers.LlamaConfig(
        hidden_size=256,
        num_attention_heads=2,
        head_dim=128,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": kind, "rope_theta": 500000.0, **extra},
    )
    init = LlamaRotaryEmbedding.compute_default_rope_parameters if kind == "default" else ROPE_INIT_FUNCTIONS[kind]
    expected, attention_factor = init(config, device=torch.device("cpu"))
    assert attention_factor == 1.0
    found = inverse_frequencies(RopeSpec(128, 500000.0, scaling))
    np.testing.assert_allclose(found, expected.double().numpy(), rtol=2e-6)


def test_partial_rotary_frequencies_are_those_of_transformers() -> None:
    import transformers
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = transformers.LlamaConfig(
        hidden_size=256,
        num_attention_heads=2,
        head_dim=128,
        rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 1.0, "partial_rotary_factor": 0.25},
    )
    expected, _ = ROPE_INIT_FUNCTIONS["linear"](config, device=None)
    found = inverse_frequencies(RopeSpec(128, 1e4, rotary_dim=32))
    np.testing.assert_allclose(found, expected.double().numpy(), rtol=2e-6)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_spec_survives_as_node_attributes(scaling: str) -> None:
    spec = RopeSpec(12, 1234.5, SCALINGS[scaling], rotary_dim=8, interleaved=True)
    assert RopeSpec.from_attrs(freeze({**spec.to_attrs(), "other": 3})) == spec  # type: ignore[arg-type]


@pytest.mark.parametrize("rotary_dim", [0, 7, 10, -2])
def test_a_rotary_dim_that_is_no_even_part_of_the_head_is_refused(rotary_dim: int) -> None:
    attrs = RopeSpec(8, rotary_dim=rotary_dim).to_attrs()
    x = TensorType(("T", 16), "f32")
    with pytest.raises(GraphError, match=f"rotary_dim must be even and at most head_dim 8, not {rotary_dim}"):
        OPS["rope"].infer([x, x, TensorType(("T",), "i32")], [], attrs)  # type: ignore[arg-type]


def test_heads_must_fill_the_width() -> None:
    x, y = TensorType(("T", 16), "f32"), TensorType(("T", 12), "f32")
    with pytest.raises(GraphError, match=r"f32\[T, 12\] is no whole number of heads of 8"):
        OPS["rope"].infer([x, y, TensorType(("T",), "i32")], [], RopeSpec(8).to_attrs())  # type: ignore[arg-type]


@pytest.mark.parametrize("raw", [{"kind": "yarn", "factor": 2.0}, {"factor": 2.0}, {"kind": "linear", "factors": 2.0}])
def test_malformed_scaling_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match=r"rope scaling .* is malformed"):
        RopeSpec.from_attrs({**RopeSpec(8).to_attrs(), "scaling": raw})


def test_the_factors_must_be_as_many_as_the_pairs() -> None:
    with pytest.raises(GraphError, match="3 frequency factors for 4 rotated pairs"):
        inverse_frequencies(RopeSpec(8, scaling=FrequencyFactors((1.0, 2.0, 3.0))))
