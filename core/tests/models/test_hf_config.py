"""config.json in old and new vocabularies, as published checkpoints have it, means the same model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from octavo.errors import CheckpointError, UnknownArchitecture
from octavo.graph.rope import LinearScaling, Llama3Scaling, RopeSpec
from octavo.models.config import ModelConfig
from octavo.models.family import Family
from octavo.models.registry import BUILT_IN, family_for

# As the hub has them (transformers 4), the keys that matter.
LLAMA_3_2 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
MISTRAL_0_1 = {
    "architectures": ["MistralForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
QWEN2_5 = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
GEMMA_3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "eos_token_id": [1, 106],
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
}
GEMMA_3_1B = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "bos_token_id": 2,
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262144,
}
PUBLISHED = {
    "llama": (LLAMA_3_2, transformers.LlamaConfig),
    "mistral": (MISTRAL_0_1, transformers.MistralConfig),
    "qwen2": (QWEN2_5, transformers.Qwen2Config),
    "qwen3": (QWEN3, transformers.Qwen3Config),
    "gemma3": (GEMMA_3_1B, transformers.Gemma3TextConfig),
}


def parse(config: dict[str, Any]) -> ModelConfig:
    return family_for(config).parse(config)


@pytest.mark.parametrize("family", PUBLISHED)
def test_a_config_means_the_same_after_transformers_5_rewrites_it(family: str, tmp_path: Path) -> None:
    old, kind = PUBLISHED[family]
    kind(**old).save_pretrained(tmp_path)
    new = json.loads((tmp_path / "config.json").read_text())
    assert "rope_parameters" in new
    assert "rope_theta" not in new
    assert parse(new) == parse(old)


def test_llama_3() -> None:
    config = parse(LLAMA_3_2)
    assert config.family == "llama"
    assert config.ropes == (RopeSpec(64, 500000.0, Llama3Scaling(32.0, 1.0, 4.0, 8192)),) * 16
    assert config.eos_token_ids == (128001, 128008, 128009)
    assert (config.tied_embeddings, config.qkv_bias, config.norm_eps) == (True, False, 1e-5)


def test_mistral_has_one_window_everywhere_and_null_means_none() -> None:
    assert parse(MISTRAL_0_1).windows == (4096,) * 32
    assert parse({**MISTRAL_0_1, "sliding_window": None}).windows == (None,) * 32
    absent = {key: value for key, value in MISTRAL_0_1.items() if key != "sliding_window"}
    assert parse(absent).windows == (transformers.MistralConfig().sliding_window,) * 32


def test_qwen_uses_its_window_only_when_told() -> None:
    assert parse(QWEN2_5).windows == (None,) * 24
    assert parse({**QWEN2_5, "use_sliding_window": True}).windows == (None,) * 21 + (32768,) * 3
    kinds = ["full_attention", "sliding_attention"] * 12
    assert parse({**QWEN2_5, "use_sliding_window": True, "layer_types": kinds}).windows == (None, 32768) * 12
    assert parse(QWEN2_5).qkv_bias
    assert not parse(QWEN2_5).output_bias


def test_gemma_1b() -> None:
    config = parse(GEMMA_3_1B)
    assert config.windows == ((512,) * 5 + (None,)) * 4 + (512, 512)
    assert {rope.theta for rope, window in zip(config.ropes, config.windows, strict=True) if window} == {10000.0}
    assert {rope.theta for rope, window in zip(config.ropes, config.windows, strict=True) if not window} == {1e6}
    assert (config.activation, config.tied_embeddings, config.attention_scale) == ("gelu_tanh", True, 1 / 16)


def test_a_multimodal_gemma_takes_transformers_defaults_for_what_it_leaves_out() -> None:
    config, wanted = parse(GEMMA_3_4B), transformers.Gemma3TextConfig(**GEMMA_3_4B["text_config"])
    assert (config.heads, config.kv_heads, config.head_dim) == (8, 4, 256)
    assert (config.vocab_size, config.max_position) == (wanted.vocab_size, wanted.max_position_embeddings)
    assert config.eos_token_ids == (1, 106)  # from the outer config
    # rope_scaling is that of the global layers alone
    assert config.ropes[0] == RopeSpec(256, 10000.0)
    assert config.ropes[5] == RopeSpec(256, 1000000.0, LinearScaling(8.0))
    assert config.windows == tuple(1024 if kind == "sliding_attention" else None for kind in wanted.layer_types)


def test_the_older_name_of_a_rope_type_is_known() -> None:
    old = {**MISTRAL_0_1, "rope_scaling": {"type": "linear", "factor": 2}}
    assert parse(old).ropes[0] == RopeSpec(128, 10000.0, LinearScaling(2.0))


def test_gemma_3_has_no_softcap_of_its_attention_whatever_its_config_says() -> None:
    config = parse({**GEMMA_3_1B, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})
    assert (config.attention_softcap, config.logit_softcap) == (None, 30.0)


def test_layer_types_say_which_layers_have_the_window() -> None:
    kinds = ["full_attention", "sliding_attention"] * 16
    assert parse({**MISTRAL_0_1, "layer_types": kinds}).windows == (None, 4096) * 16
    assert parse({**MISTRAL_0_1, "layer_types": ["full_attention"] * 32}).windows == (None,) * 32
    ministral = {**MISTRAL_0_1, "architectures": ["MinistralForCausalLM"], "layer_types": kinds}
    assert parse(ministral).windows == (None, 4096) * 16
    assert parse({**LLAMA_3_2, "layer_types": kinds[:16], "sliding_window": 512}).windows == (None, 512) * 8
    assert parse({**LLAMA_3_2, "layer_types": ["full_attention"] * 16, "sliding_window": 512}).windows == (None,) * 16


def test_a_key_that_is_not_known_is_told_and_one_that_asks_for_nothing_is_not(caplog: pytest.LogCaptureFixture) -> None:
    parse({**LLAMA_3_2, "favourite_colour": "blue", "surprises": [], "is_decoder": True, "num_experts": 0})
    (record,) = caplog.records
    assert record.getMessage() == "config.json has keys that are not known and are ignored: favourite_colour"
    caplog.clear()
    parse({**LLAMA_3_2, "rope_scaling": {**LLAMA_3_2["rope_scaling"], "rounding": "up"}})
    (record,) = caplog.records
    assert record.getMessage() == "config.json: rope_scaling has keys that are not known and are ignored: rounding"


@pytest.mark.parametrize("family", PUBLISHED)
def test_no_key_of_a_published_config_or_of_transformers_own_is_unknown(
    family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, kind = PUBLISHED[family]
    parse(old)
    kind(**old).save_pretrained(tmp_path)
    parse({**kind().to_dict(), **json.loads((tmp_path / "config.json").read_text())})
    assert caplog.records == []


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (LLAMA_3_2, {"hidden_size": None}, "lacks hidden_size"),
        (LLAMA_3_2, {"num_hidden_layers": "16"}, "num_hidden_layers is '16'; it must be a whole number"),
        (LLAMA_3_2, {"rms_norm_eps": "tiny"}, "rms_norm_eps is 'tiny'; it must be a number"),
        (LLAMA_3_2, {"num_hidden_layers": 0}, "layers is 0"),
        (LLAMA_3_2, {"num_key_value_heads": 5}, "32 query heads and 5 key-value heads"),
        (LLAMA_3_2, {"head_dim": 63}, "head_dim is 63; rope needs an even number"),
        (LLAMA_3_2, {"hidden_act": "mish"}, "activation 'mish' is not supported; known: silu"),
        (LLAMA_3_2, {"eos_token_id": "</s>"}, "eos_token_id is '</s>'"),
        (LLAMA_3_2, {"rope_scaling": {"rope_type": "mrope"}}, "'mrope' is not supported; known: default"),
        (LLAMA_3_2, {"rms_norm_eps": float("nan")}, "rms_norm_eps is nan; it must be a finite number"),
        (LLAMA_3_2, {"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000; it can be 2147483647 at most"),
        (LLAMA_3_2, {"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000; it can be 4096 at most"),
        (LLAMA_3_2, {"num_key_value_heads": 0}, "kv_heads is 0"),
        (LLAMA_3_2, {"head_dim": 2**31 - 2}, r"heads have 2147483646 elements \(head_dim\); 65536 is the most"),
        (LLAMA_3_2, {"attention_bias": "false"}, "attention_bias is 'false'; it must be true or false"),
        (LLAMA_3_2, {"hidden_act": ["silu"]}, r"activation \['silu'\] is not supported"),
        (LLAMA_3_2, {"architectures": "LlamaForCausalLM"}, "architectures is 'LlamaForCausalLM'; it must be a list"),
        (LLAMA_3_2, {"num_experts": 8}, "num_experts is 8, which is not supported for this architecture"),
        (LLAMA_3_2, {"layer_types": ["sliding_attention"] * 16}, "but sliding_window gives no window"),
        (QWEN2_5, {"layer_types": ["sliding_attention"] * 24}, "but sliding_window gives no window"),
        (MISTRAL_0_1, {"sliding_window": 0}, "sliding_window is 0; it must be at least 1, or null"),
        (GEMMA_3_1B, {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0.0; it must be above 0"),
        (GEMMA_3_1B, {"final_logit_softcapping": 0}, "final_logit_softcapping is 0; it must be above 0"),
        (GEMMA_3_1B, {"sliding_window_pattern": 0}, "sliding_window_pattern is 0; it must be at least 1"),
        (GEMMA_3_4B, {"embedding_multiplier": 2.0}, "embedding_multiplier is 2.0, which is not supported"),
        (LLAMA_3_2, {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope type llama3 lacks low_freq_factor"),
        (LLAMA_3_2, {"rope_scaling": 8.0}, "rope_scaling is 8.0; it must be an object"),
        (
            LLAMA_3_2,
            {"rope_scaling": None, "rope_parameters": {"full_attention": {"rope_theta": 1e4}}},
            "differ by layer type",
        ),
        (LLAMA_3_2, {"rope_scaling": {"rope_type": "factors"}}, "lacks a list of factors"),
        (GEMMA_3_4B, {"text_config": 3}, "text_config is 3; it must be an object"),
        (LLAMA_3_2, {"partial_rotary_factor": 0.55}, "partial_rotary_factor is 0.55, which rotates 35 of 64"),
        (GEMMA_3_1B, {"layer_types": ["full_attention"]}, "must be a list of 26 entries"),
        (GEMMA_3_1B, {"layer_types": ["chunked_attention"] * 26}, "'chunked_attention' is not supported"),
        (GEMMA_3_1B, {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ],
)
def test_what_cannot_be_honoured_is_named(base: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse({**base, **change})


def test_an_unknown_architecture_lists_the_known_ones() -> None:
    with pytest.raises(
        UnknownArchitecture, match=r"FalconForCausalLM is not supported; known: LlamaForCausalLM, .*Gemma3"
    ):
        family_for({"architectures": ["FalconForCausalLM"]})


@pytest.mark.parametrize("config", [{}, {"architectures": None}, {"architectures": []}])
def test_a_config_that_names_no_architecture_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(UnknownArchitecture, match="no architecture is named; known: Llama"):
        family_for(config)


def test_families_of_plugins_are_known_and_asked_first() -> None:
    llama = BUILT_IN[0]
    falcon = Family("falcon", ("FalconForCausalLM",), llama.parse, llama.build)
    faster = Family("faster-llama", ("LlamaForCausalLM",), llama.parse, llama.build)
    assert family_for({"architectures": ["FalconForCausalLM"]}, [falcon]) is falcon
    assert family_for(LLAMA_3_2, [faster]) is faster
    assert family_for(LLAMA_3_2, [falcon]) is llama
    with pytest.raises(UnknownArchitecture, match="FalconForCausalLM, LlamaForCausalLM"):
        family_for({"architectures": ["MambaForCausalLM"]}, [falcon])


def test_no_architecture_is_claimed_twice() -> None:
    claimed = [name for family in BUILT_IN for name in family.architectures]
    assert len(claimed) == len(set(claimed))
