"""Quantized Hugging Face folders: every weight is exactly what its project means by it; anything else is refused."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models.quantised import GPTQMODEL, KINDS, Kind, of, quantise, quantised_folder, set_quantization
from safetensors.torch import load_file, save_file

from octavo.errors import CheckpointError
from octavo.models.load import load_model
from octavo.models.safetensors_reader import SafetensorsCheckpoint
from octavo.quant import dequantise

LINEAR = "model.layers.1.mlp.down_proj"


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_is_exactly_what_its_project_means(kind: str, tmp_path: Path) -> None:
    folder, dense = quantised_folder(KINDS[kind], tmp_path)
    checkpoint = SafetensorsCheckpoint(folder)
    assert set(checkpoint.names()) == set(dense)
    for name, values in dense.items():
        tensor = checkpoint.tensor(name)
        assert checkpoint.info(name) == (tensor.format, tensor.shape)
        assert tensor.format.name == (KINDS[kind].format if "_proj" in name else "bf16")
        np.testing.assert_array_equal(dequantise(tensor), values)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_built_from_them(kind: str, tmp_path: Path) -> None:
    model = load_model(quantised_folder(KINDS[kind], tmp_path)[0])
    assert model.graph.weights[f"{LINEAR}.weight"].format == KINDS[kind].format
    assert model.graph.weights["lm_head.weight"].format == "bf16"
    assert {path.name for path in model.files} == {"model.safetensors", "config.json"}


def test_the_config_may_be_that_of_the_text_model(tmp_path: Path) -> None:
    folder, dense = quantised_folder(KINDS["awq-32"], tmp_path)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "text_config": {"quantization_config": config.pop("quantization_config")}}))
    found = SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight")
    np.testing.assert_array_equal(dequantise(found), dense[f"{LINEAR}.weight"])


def test_a_bias_beside_a_quantized_weight_stays_as_it_is(tmp_path: Path) -> None:
    folder, dense = quantised_folder(KINDS["gptq-128"], tmp_path, family="qwen2")
    name = "model.layers.0.self_attn.q_proj.bias"
    np.testing.assert_array_equal(dequantise(SafetensorsCheckpoint(folder).tensor(name)), dense[name])
    assert load_model(folder).config.qkv_bias


# -- refusals ---------------------------------------------------------------------------------------


def refused(folder: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        SafetensorsCheckpoint(folder)
    assert str(folder) in str(caught.value)


def with_config(tmp_path: Path, kind: str, **changes: Any) -> Path:
    folder, _ = quantised_folder(KINDS[kind], tmp_path)
    set_quantization(folder, {**KINDS[kind].config, **changes})
    return folder


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            "awq-32",
            {"quant_method": "bitsandbytes"},
            r"quant_method 'bitsandbytes' is not supported; auto-round, .*gptq, .* are;",
        ),
        ("awq-32", {"quant_method": ["awq"]}, r"quant_method \['awq'\] is not supported"),
        ("awq-32", {"bits": 8}, r"of awq: bits is 8; it must be 4; or use the original weights or a GGUF file"),
        ("awq-32", {"version": "gemv"}, r"of awq: version is 'gemv'; it must be 'gemm'"),
        ("awq-32", {"zero_point": 1}, r"of awq: zero_point is 1; it must be True or False"),
        ("awq-32", {"format": "gemv"}, r"of awq: format is 'gemv'; it must be 'gemm'"),
        (
            "gptq-128",
            {"checkpoint_format": "gptq_v2", "format": "gptq"},
            r"of gptq: format is 'gptq'; other options say that the layout is 'gptq_v2'; they must agree",
        ),
        (
            "auto-round",
            {"checkpoint_format": "gptq_v2"},
            r"checkpoint_format is 'gptq_v2'; other options say .* 'gptq'",
        ),
        ("auto-round-awq", {"act_bits": 8}, r"of auto-round: act_bits is 8; only weights may be quantized"),
        ("auto-round-awq", {"spinquant_config": {"r1": True}}, r"spinquant_config is .*that is not supported"),
        (
            "auto-round",
            {"regex_config": {".*up_proj": {"bits": 8}}},
            r"regex_config \.\*up_proj: bits is 8; modules with other bits",
        ),
        ("awq-32", {"activation": {"mode": "fp8"}}, r"of awq: activation is .*that is not supported"),
        ("gptq-128", {"activation": {"mode": "fp8"}}, r"of gptq: activation is .*that is not supported"),
        (
            "gptq-128",
            {"dynamic": {".*up_proj": {"bits": 8}}},
            r"dynamic \.\*up_proj: bits is 8; modules with other bits",
        ),
        (
            "auto-round",
            {"extra_config": {"a.b": {"bits": 8}}},
            r"extra_config a\.b: bits is 8; modules with other bits",
        ),
        ("gptq-128", {"act_bits": 8}, r"of gptq: act_bits is 8; only weights may be quantized"),
        ("auto-round", {"act_bits": 8}, r"of auto-round: act_bits is 8; only weights may be quantized"),
        ("auto-round", {"data_type": "mx_fp"}, r"of auto-round: data_type is 'mx_fp'; it must be 'int'"),
        ("auto-round", {"packing_format": "auto_round:fp8"}, r"packing_format is 'auto_round:fp8'; it must be"),
        ("auto-round", {"rotation_configs": [{"type": "hadamard"}]}, r"rotation_configs is .*that is not supported"),
        ("gptq-128", {"bits": 3}, r"of gptq: bits is 3; it must be 4 or 8"),
        ("gptq-128", {"checkpoint_format": "marlin"}, r"checkpoint_format is 'marlin'; it must be 'gptq' or 'gptq_v2'"),
        ("gptq-128", {"rotation": "hadamard"}, r"of gptq: rotation is 'hadamard'; that is not supported"),
        ("packed-32", {"format": "nvfp4-pack-quantized"}, r"format is 'nvfp4-pack-quantized'; it must be 'pack-quant"),
        ("packed-32", {"quantization_status": "frozen"}, r"quantization_status is 'frozen'; it must be 'compressed'"),
        ("packed-32", {"kv_cache_scheme": {"num_bits": 8}}, r"kv_cache_scheme is .*that is not supported"),
        ("packed-32", {"transform_config": {"config_groups": {}}}, r"transform_config is .*that is not supported"),
        ("packed-32", {"sparsity_config": {"format": "sparse-24-bitmask"}}, r"sparsity_config: format is 'sparse-24"),
        ("packed-32", {"config_groups": {}}, r"config_groups is \{\}; it must say how weights are quantized"),
        ("packed-32", {"config_groups": {"W4A16": ["Linear"]}}, r"W4A16 is \['Linear'\]; it must be an object"),
    ],
)
def test_what_a_config_asks_beyond_that_is_refused_by_name(
    kind: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    refused(with_config(tmp_path, kind, **changes), message)


@pytest.mark.parametrize(
    ("kind", "part", "option", "value", "message"),
    [
        ("packed-32", "weights", "num_bits", 2, "group_0 weights: num_bits is 2; it must be 4 or 8"),
        ("packed-32", "weights", "type", "float", "group_0 weights: type is 'float'; it must be 'int'"),
        ("packed-32", "weights", "strategy", "block", "strategy is 'block'; it must be 'group' or 'channel'"),
        ("int8", "weights", "strategy", "group", "strategy is 'group'; it must be 'channel'"),
        ("packed8", "weights", "symmetric", False, "symmetric is False; it must be True"),
        ("int8", "weights", "num_bits", 4, "num_bits is 4; it must be 8"),
        ("int8", "weights", "strategy", "tensor", "strategy is 'tensor'; it must be 'channel'"),
        ("int8", "input_activations", "dynamic", False, "input_activations: dynamic is False; it must be True"),
        ("int8", "input_activations", "type", "float", "input_activations: type is 'float'; it must be 'int'"),
    ],
)
def test_a_group_of_another_scheme_is_refused_by_name(
    kind: str, part: str, option: str, value: Any, message: str, tmp_path: Path
) -> None:
    config = deepcopy(dict(KINDS[kind].config))
    config["config_groups"]["group_0"][part][option] = value
    refused(with_config(tmp_path, kind, config_groups=config["config_groups"]), message)


def test_outputs_that_are_quantized_are_refused(tmp_path: Path) -> None:
    config = deepcopy(dict(KINDS["int8"].config))
    config["config_groups"]["group_0"]["output_activations"] = {"num_bits": 8}
    refused(with_config(tmp_path, "int8", config_groups=config["config_groups"]), "group_0: output_activations is")


def change(folder: Path, **tensors: torch.Tensor | None) -> Path:
    """Replace, add or (None) remove tensors of one quantized module."""
    path = folder / "model.safetensors"
    stored = load_file(path)
    for part, tensor in tensors.items():
        if tensor is None:
            del stored[f"{LINEAR}.{part}"]
        else:
            stored[f"{LINEAR}.{part}"] = tensor
    save_file(stored, path)
    return folder


def folder_of(kind: str | Kind, tmp_path: Path) -> Path:
    return quantised_folder(KINDS[kind] if isinstance(kind, str) else kind, tmp_path)[0]


def test_a_config_without_quantized_tensors_is_refused(tmp_path: Path) -> None:
    folder = folder_of("awq-32", tmp_path)
    set_quantization(folder, KINDS["packed-32"].config)
    refused(folder, "says that it is quantized, but no tensor is called weight_packed")


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("awq-32", "scales"), ("gptq-128", "qzeros"), ("packed-32", "weight_shape"), ("int8", "weight")],
)
def test_a_missing_part_is_named(kind: str, missing: str, tmp_path: Path) -> None:
    refused(change(folder_of(kind, tmp_path), **{missing: None}), f"{LINEAR} is quantized but has no {missing}")


@pytest.mark.parametrize(
    ("kind", "part", "tensor", "message"),
    [
        ("awq-32", "qweight", torch.zeros(256, 16), r"down_proj\.qweight is F32 .*expected I32"),
        (
            "awq-32",
            "scales",
            torch.ones(8, 120).half(),
            r"scales is F16 of shape \[8, 120\]; expected F16 .*\[8, 128\]",
        ),
        ("awq-32", "qzeros", torch.zeros(4, 16, dtype=torch.int32), r"qzeros .*\[4, 16\]; expected I32 .*\[8, 16\]"),
        ("awq-32", "scales", torch.ones(16, 128).half(), r"scales has shape \[16, 128\]: .*multiple of 32 must share"),
        ("gptq-128", "scales", torch.ones(3, 128).half(), r"scales has shape \[3, 128\]: of the 256 inputs"),
        ("packed-32", "weight_shape", torch.tensor([128]), r"weight_shape is I64 of shape \[1\]; expected I64"),
        ("packed-32", "weight_shape", torch.tensor([128, 512]), r"weight_packed .*\[128, 32\]; expected .*\[128, 64\]"),
        ("packed-64-zeros", "weight_zero_point", torch.zeros(128, 4, dtype=torch.int32), None),
        ("int8", "weight_scale", torch.ones(1), r"weight_scale has shape \[1\]; .*one scale for each of 128 outputs"),
        ("int8", "weight_zero_point", torch.ones(128, 1), r"weight_zero_point has dtype F32: .*zero points are not"),
    ],
)
def test_parts_that_do_not_fit_together_are_named(
    kind: str, part: str, tensor: torch.Tensor, message: str | None, tmp_path: Path
) -> None:
    folder = change(folder_of(kind, tmp_path), **{part: tensor})
    if message is not None:
        refused(folder, message)
        return
    with pytest.raises(CheckpointError, match=rf"{part} .*expected I32 with shape"):
        SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight")


def test_scales_of_a_dtype_that_is_no_float_are_refused(tmp_path: Path) -> None:
    checkpoint = SafetensorsCheckpoint(change(folder_of("awq-32", tmp_path), scales=torch.ones(8, 128).int()))
    with pytest.raises(CheckpointError, match=r"scales has dtype I32; scales must be one of F16, BF16, F32"):
        checkpoint.tensor(f"{LINEAR}.weight")


def test_eight_bit_zero_points_of_zero_are_none_at_all_and_others_are_refused(tmp_path: Path) -> None:
    folder = folder_of("int8", tmp_path)
    expected = dequantise(SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight"))
    zeros = torch.zeros(128, 1, dtype=torch.int8)
    found = SafetensorsCheckpoint(change(folder, weight_zero_point=zeros)).tensor(f"{LINEAR}.weight")
    np.testing.assert_array_equal(dequantise(found), expected)
    zeros[5] = 1
    checkpoint = SafetensorsCheckpoint(change(folder, weight_zero_point=zeros))
    with pytest.raises(CheckpointError, match=r"down_proj has zero points: .*not supported"):
        checkpoint.tensor(f"{LINEAR}.weight")


def test_symmetric_gptq_weights_with_other_zero_points_are_refused_with_the_cure(tmp_path: Path) -> None:
    folder = folder_of(of("gptq-32-zeros", config=KINDS["gptq-128"].config), tmp_path)
    with pytest.raises(CheckpointError, match=r"zero points other than 8, .*sym true.*; set sym to false"):
        SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight")


def test_desc_act_is_fine_where_groups_are_in_order_all_the_same(tmp_path: Path) -> None:
    folder, dense = quantised_folder(KINDS["gptq-128"], tmp_path)
    set_quantization(folder, {**KINDS["gptq-128"].config, "desc_act": True, "static_groups": True})
    found = SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight")
    np.testing.assert_array_equal(dequantise(found), dense[f"{LINEAR}.weight"])


@pytest.mark.parametrize("desc_act", [True, False])
def test_groups_out_of_order_are_refused_by_the_name_of_their_option(desc_act: bool, tmp_path: Path) -> None:
    order = torch.from_numpy(np.random.default_rng(0).permutation(256) // 128).int()
    folder = change(folder_of("gptq-128", tmp_path), g_idx=order)
    set_quantization(folder, {**KINDS["gptq-128"].config, "desc_act": desc_act})
    refused(folder, rf"{LINEAR} has its groups out of order \(g_idx\): .*desc_act {str(desc_act).lower()}")


def test_desc_act_without_an_order_is_refused(tmp_path: Path) -> None:
    folder = change(folder_of("gptq-128", tmp_path), g_idx=None)
    set_quantization(folder, {**KINDS["gptq-128"].config, "desc_act": True})
    refused(folder, f"{LINEAR} is quantized but has no g_idx")


def test_an_activation_order_of_compressed_tensors_is_refused_only_where_it_reorders(tmp_path: Path) -> None:
    order = torch.arange(256, dtype=torch.int32) // 32
    folder = change(folder_of("packed-32", tmp_path), weight_g_idx=order)
    assert SafetensorsCheckpoint(folder).info(f"{LINEAR}.weight")[0].name == "int4_g32"
    refused(change(folder, weight_g_idx=order.flip(0)), r"out of order \(weight_g_idx\), as actorder group makes them")


# -- what writers of today add ----------------------------------------------------------------------


def test_unknown_descriptive_options_are_named_in_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = with_config(tmp_path, "gptq-128", frobnicate=3, telemetry={"a": 1})
    assert SafetensorsCheckpoint(folder).info(f"{LINEAR}.weight")[0].name == "int4_g128"
    assert "quantization_config of gptq: unknown options are ignored: frobnicate, telemetry" in caplog.text


def test_unknown_options_of_autoround_are_named_whichever_layout_it_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = with_config(tmp_path, "auto-round-awq", frobnicate=3)
    assert SafetensorsCheckpoint(folder).info(f"{LINEAR}.weight")[0].name == "uint4_g128"
    assert "quantization_config of auto-round: unknown options are ignored: frobnicate" in caplog.text


def test_symmetric_awq_weights_must_have_the_zero_points_of_symmetric_weights(tmp_path: Path) -> None:
    checkpoint = SafetensorsCheckpoint(with_config(tmp_path, "awq-32", zero_point=False))
    with pytest.raises(CheckpointError, match=r"zero points other than 8, .*zero_point false.*set zero_point to true"):
        checkpoint.tensor(f"{LINEAR}.weight")


@pytest.mark.parametrize(
    ("parts", "where"),
    [
        ((), "compressed-tensors group_0"),
        (("weights",), "compressed-tensors group_0 weights"),
        (("input_activations",), "compressed-tensors group_0 input_activations"),
    ],
)
def test_unknown_options_inside_a_group_are_named_in_a_warning(
    parts: tuple[str, ...], where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = deepcopy(dict(KINDS["int8"].config))
    options = config["config_groups"]["group_0"]
    for part in parts:
        options = options[part]
    options["frobnicate"] = 3
    folder = with_config(tmp_path, "int8", config_groups=config["config_groups"])
    assert SafetensorsCheckpoint(folder).info(f"{LINEAR}.weight")[0].name == "int8"
    assert f"quantization_config of {where}: unknown options are ignored: frobnicate" in caplog.text


@pytest.mark.parametrize("kind", ["awq-32", "gptq-32-zeros", "packed-32", "int8"])
def test_the_output_matrix_may_be_quantized(kind: str, tmp_path: Path) -> None:
    folder, dense = quantised_folder(KINDS[kind], tmp_path, vocab_size=320)
    path = folder / "model.safetensors"
    tensors, matrix = load_file(path), quantise(dense["lm_head.weight"], KINDS[kind])
    del tensors["lm_head.weight"]
    save_file(tensors | KINDS[kind].write("lm_head", matrix), path)
    set_quantization(folder, {**KINDS[kind].config, "ignore": [], "lm_head": True, "modules_to_not_convert": None})
    model = load_model(folder)
    assert model.graph.weights["lm_head.weight"].format == KINDS[kind].format
    np.testing.assert_array_equal(dequantise(model.checkpoint.tensor("lm_head.weight")), matrix.values)


def test_modules_that_a_pattern_leaves_out_are_read_as_they_are_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, dense = quantised_folder(KINDS["packed-32"], tmp_path, others={"down_proj": None, "q_proj": None})
    ignore = [r"re:.*\.mlp\.down_proj$", "re:.*q_proj", "lm_head"]
    set_quantization(folder, {**KINDS["packed-32"].config, "ignore": ignore})
    model = load_model(folder)
    for name in (f"{LINEAR}.weight", "model.layers.0.self_attn.q_proj.weight"):
        assert model.graph.weights[name].format == "bf16"
        np.testing.assert_array_equal(dequantise(model.checkpoint.tensor(name)), dense[name])
    assert model.graph.weights["model.layers.0.mlp.up_proj.weight"].format == "int4_g32"
    assert not caplog.records


@pytest.mark.parametrize("name", ["self_attn.k_scale", "self_attn.v_scale", "self_attn.attn.kv_scale"])
def test_scales_of_a_quantized_cache_are_told_not_to_be_used(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_of("packed-32", tmp_path)
    path = folder / "model.safetensors"
    save_file({**load_file(path), f"model.layers.0.{name}": torch.ones(1)}, path)
    load_model(folder)
    (record,) = caplog.records
    message = f"scales of a quantized KV cache are not used: weight model.layers.0.{name};"
    assert message in record.getMessage()


def test_a_config_of_todays_gptqmodel_is_read_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, dense = quantised_folder(of("gptq-128", config=GPTQMODEL), tmp_path)
    found = SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight")
    np.testing.assert_array_equal(dequantise(found), dense[f"{LINEAR}.weight"])
    assert not caplog.records


def test_overrides_that_only_leave_modules_out_or_regroup_them_are_read(tmp_path: Path) -> None:
    dynamic = {"-:.*up_proj": {}, "+:.*down_proj": {"group_size": 32, "desc_act": False}}
    folder, dense = quantised_folder(of("gptq-128", config={**GPTQMODEL, "dynamic": dynamic}), tmp_path)
    found = SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight")
    np.testing.assert_array_equal(dequantise(found), dense[f"{LINEAR}.weight"])


def test_an_override_that_is_not_symmetric_keeps_its_zero_points(tmp_path: Path) -> None:
    config = {**GPTQMODEL, "dynamic": {".*": {"sym": False}}}
    folder, dense = quantised_folder(of("gptq-32-zeros", config=config), tmp_path)
    found = SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight")
    np.testing.assert_array_equal(dequantise(found), dense[f"{LINEAR}.weight"])


@pytest.mark.parametrize(
    ("kind", "file", "options"),
    [
        ("gptq-128", "quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": False, "sym": True}),
        ("awq-32", "quant_config.json", {"zero_point": True, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}),
        ("awq-32", "quantize_config.json", {"zero_point": True, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}),
    ],
)
def test_the_quantization_may_be_described_beside_config_json(
    kind: str, file: str, options: dict[str, Any], tmp_path: Path
) -> None:
    folder, dense = quantised_folder(KINDS[kind], tmp_path)
    set_quantization(folder, None)
    (folder / file).write_text(json.dumps(options))
    found = SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight")
    np.testing.assert_array_equal(dequantise(found), dense[f"{LINEAR}.weight"])
    assert folder / file in load_model(folder).files


@pytest.mark.parametrize(
    ("kind", "said", "other"), [("gptq_v2-64", "gptq", "gptq_v2"), ("gptq-128", "gptq_v2", "gptq")]
)
def test_zero_points_of_the_other_version_are_refused_with_that_version_as_the_cure(
    kind: str, said: str, other: str, tmp_path: Path
) -> None:
    config = {**GPTQMODEL, "format": said, "checkpoint_format": said}
    folder, dense = quantised_folder(of(kind, symmetric=True, config=config), tmp_path)
    with pytest.raises(CheckpointError, match=f"set checkpoint_format, and format if .* to {other} in config"):
        SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight")
    set_quantization(folder, {**config, "format": other, "checkpoint_format": other})
    found = SafetensorsCheckpoint(folder).tensor(f"{LINEAR}.weight")
    np.testing.assert_array_equal(dequantise(found), dense[f"{LINEAR}.weight"])


def test_zero_points_of_zero_borrow_from_their_neighbours_in_the_first_version(tmp_path: Path) -> None:
    folder = folder_of("gptq-32-zeros", tmp_path)
    stored = torch.full((8, 16), 0x33333330 - 0x11111111, dtype=torch.int32)
    weight = SafetensorsCheckpoint(change(folder, qzeros=stored)).tensor(f"{LINEAR}.weight")
    zeros = weight.data.reshape(128, 8, -1)[:, :, 4]  # after a float32 scale
    assert zeros[:, 0].tolist() == [0, 3, 3, 3, 3, 3, 3, 3] * 16


def test_grouped_8_bit_scales_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    scale = torch.full((128, 4), 1e-9, dtype=torch.bfloat16)
    checkpoint = SafetensorsCheckpoint(change(folder_of("packed8-64", tmp_path), weight_scale=scale))
    with pytest.raises(CheckpointError, match=r"weight_scale has scales that float16 cannot hold"):
        checkpoint.tensor(f"{LINEAR}.weight")


@pytest.mark.parametrize("part", ["input_scale", "weight_global_scale", "rotation"])
def test_a_tensor_of_a_quantized_module_that_nothing_reads_is_refused_by_name(part: str, tmp_path: Path) -> None:
    folder = change(folder_of("gptq-128", tmp_path), **{part: torch.ones(1)})
    refused(folder, rf"{LINEAR}\.{part} belongs to a quantized module and is not supported")
