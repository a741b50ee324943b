"""Safetensors folders: lazy bytes under their names, and a clear error for everything that can be wrong."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models.tiny import stored_tensors, tiny_checkpoint
from safetensors.torch import save_file

from octavo.errors import CheckpointError
from octavo.models.safetensors_reader import SafetensorsCheckpoint
from octavo.quant import dequantise


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_checkpoint("llama", tmp_path)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    path = tiny_checkpoint("llama", tmp_path, shard="100KB")
    assert len(list(path.glob("*.safetensors"))) > 2
    return path


def change_json(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("shard", ["1GB", "100KB"], ids=["single", "sharded"])
def test_tensors_equal_what_the_safetensors_library_reads(shard: str, tmp_path: Path) -> None:
    path = tiny_checkpoint("llama", tmp_path, shard=shard)
    checkpoint, wanted = SafetensorsCheckpoint(path), stored_tensors(path)
    assert set(checkpoint.names()) == set(wanted)
    for name, tensor in wanted.items():
        assert checkpoint.info(name)[1] == tensor.shape
        np.testing.assert_array_equal(dequantise(checkpoint.tensor(name)), tensor)


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bf16"), (torch.float16, "f16"), (torch.float32, "f32")])
def test_each_dtype_keeps_its_bytes(dtype: torch.dtype, name: str, folder: Path) -> None:
    tensor = torch.randn((5, 7), generator=torch.Generator().manual_seed(3)).to(dtype)
    save_file({"w": tensor}, folder / "model.safetensors")
    found = SafetensorsCheckpoint(folder).tensor("w")
    assert found.format.name == name
    assert found.data.tobytes() == tensor.view(torch.uint8).numpy().tobytes()
    np.testing.assert_array_equal(dequantise(found), tensor.float().numpy())


def test_tensors_are_read_only_views_of_the_file(folder: Path) -> None:
    data = SafetensorsCheckpoint(folder).tensor("model.norm.weight").data
    assert not data.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1


@pytest.mark.real_model
def test_holding_every_tensor_takes_no_memory(smollm2_folder: Path) -> None:
    tracemalloc.start()
    try:
        checkpoint = SafetensorsCheckpoint(smollm2_folder)
        held = [checkpoint.tensor(name) for name in checkpoint.names()]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(tensor.nbytes for tensor in held) > 200_000_000
    assert peak < 1_000_000


def test_generation_config_is_read_where_there_is_one(folder: Path) -> None:
    assert SafetensorsCheckpoint(folder).generation_config["eos_token_id"] == 2
    (folder / "generation_config.json").unlink()
    assert SafetensorsCheckpoint(folder).generation_config == {}


def refused(path: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        SafetensorsCheckpoint(path)


def test_a_folder_without_config_is_refused(folder: Path) -> None:
    (folder / "config.json").unlink()
    refused(folder, "has no config.json")


def test_a_folder_of_gguf_files_says_to_give_one(tmp_path: Path) -> None:
    (tmp_path / "tiny.Q4_0.gguf").touch()
    refused(tmp_path, r"it holds tiny\.Q4_0\.gguf: give the path")


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "holds no weights")


def test_pickles_are_refused_with_the_reason(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"w": torch.zeros(1)}, folder / "pytorch_model.bin")
    refused(folder, r"pytorch_model\.bin.*never unpickles.*any code.*convert")


@pytest.mark.parametrize("where", ["top", "text_config"])
def test_weights_quantized_in_other_ways_are_refused_in_one_sentence(where: str, folder: Path) -> None:
    quantization = {"quantization_config": {"quant_method": "fbgemm_fp8"}}
    change_json(folder / "config.json", **(quantization if where == "top" else {"text_config": quantization}))
    refused(folder, r"quant_method 'fbgemm_fp8' is not supported; .* are; use the original weights or a GGUF file")


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[]", "must hold a JSON object, not list")])
def test_a_config_that_is_no_object_is_refused(text: str, message: str, folder: Path) -> None:
    (folder / "config.json").write_text(text)
    refused(folder, rf"config\.json {message}")


def test_a_missing_shard_is_named(sharded: Path) -> None:
    shards = sorted(sharded.glob("*.safetensors"))
    shards[1].unlink()
    refused(sharded, f"lacks 1 of the {len(shards)} shards .*: {shards[1].name}$")


def test_an_index_that_misplaces_a_weight_is_refused(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    shard = weight_map["model.norm.weight"]
    change_json(index, weight_map={**weight_map, "model.ghost.weight": shard})
    refused(sharded, f"places weight model.ghost.weight in {shard}, which does not hold it")


def test_tensors_that_an_index_does_not_list_are_told(sharded: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = sharded / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    del weight_map["model.norm.weight"]
    change_json(index, weight_map=weight_map)
    assert "model.norm.weight" not in SafetensorsCheckpoint(sharded).names()
    (record,) = caplog.records
    assert record.getMessage().endswith("does not list 1 tensors of its shards, which are not used: model.norm.weight")


@pytest.mark.parametrize("shard", ["1GB", "100KB"], ids=["single", "sharded"])
def test_files_that_are_left_out_are_told(shard: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tiny_checkpoint("llama", tmp_path, shard=shard)
    SafetensorsCheckpoint(path)
    assert not caplog.records
    whole = next(path.glob("*.safetensors"))
    for name in ("older.safetensors", "adapter_model.safetensors", "consolidated.safetensors"):
        (path / name).write_bytes(whole.read_bytes())
    SafetensorsCheckpoint(path)
    (record,) = caplog.records
    beside = "model.safetensors" if shard == "1GB" else "model.safetensors.index.json"
    assert record.getMessage().endswith(f"not read, beside {beside}: older.safetensors")


def test_an_index_may_not_lead_out_of_its_folder(sharded: Path) -> None:
    change_json(sharded / "model.safetensors.index.json", weight_map={"w": "../secret.safetensors"})
    refused(sharded, "must lie in the same folder")


def test_an_index_without_a_map_is_refused(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text("{}")
    refused(sharded, "has no weight_map")


@pytest.mark.parametrize("keep", [0.999, 0.5, 0.02])
def test_a_truncated_file_is_refused(keep: float, folder: Path) -> None:
    file = folder / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    refused(folder, r"model\.safetensors is truncated")


def test_a_header_cut_off_is_refused(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    refused(folder, r"is truncated: its header ends at byte \d+, the file at 100")


@pytest.mark.parametrize(
    "content",
    [b"", b"short", b"PK\x03\x04" + bytes(100), b"GGUF\x03" + bytes(100), struct.pack("<Q", 4) + b"{no}", bytes(64)],
    ids=["empty", "short", "zip", "gguf", "no-json", "zeros"],
)
def test_a_foreign_file_is_refused(content: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(content)
    refused(folder, "no safetensors file")


def with_header(folder: Path, entry: Any) -> Path:
    header = json.dumps({"w": entry}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    return folder


@pytest.mark.parametrize(
    "entry",
    [{}, [], {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}, {"dtype": "F32", "shape": [2], "data_offsets": 5}],
)
def test_a_malformed_entry_is_refused(entry: Any, folder: Path) -> None:
    refused(with_header(folder, entry), "entry of 'w' is malformed")


def test_a_dtype_that_is_no_weight_format_is_named_when_the_weight_is_used(folder: Path) -> None:
    checkpoint = SafetensorsCheckpoint(with_header(folder, {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}))
    assert checkpoint.names() == ("w",)
    with pytest.raises(CheckpointError, match=r"weight w has dtype F8_E4M3; supported: F32, F16, BF16"):
        checkpoint.info("w")


def test_a_shape_that_does_not_fit_its_bytes_is_refused(folder: Path) -> None:
    checkpoint = SafetensorsCheckpoint(with_header(folder, {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}))
    with pytest.raises(CheckpointError, match=r"shape \(3,\) and dtype F32 cannot have 8 bytes"):
        checkpoint.info("w")


def test_a_scalar_is_no_weight(folder: Path) -> None:
    checkpoint = SafetensorsCheckpoint(with_header(folder, {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}))
    with pytest.raises(CheckpointError, match="w is a scalar"):
        checkpoint.tensor("w")


def test_shards_without_their_index_are_read(sharded: Path) -> None:
    wanted = stored_tensors(sharded)
    (sharded / "model.safetensors.index.json").unlink()
    checkpoint = SafetensorsCheckpoint(sharded)
    assert set(checkpoint.names()) == set(wanted)
    for name, tensor in wanted.items():
        np.testing.assert_array_equal(dequantise(checkpoint.tensor(name)), tensor)


def test_a_missing_shard_is_named_without_an_index(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    victim = sorted(sharded.glob("*.safetensors"))[1]
    victim.unlink()
    with pytest.raises(CheckpointError, match=f"lacks 1 of .* shards: {victim.name}"):
        SafetensorsCheckpoint(sharded)


def test_files_that_are_not_shards_of_one_model_are_refused(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    save_file({"w": torch.ones(1)}, sharded / "other.safetensors")
    with pytest.raises(CheckpointError, match=r"not the shards of one model: .*other\.safetensors"):
        SafetensorsCheckpoint(sharded)


def test_a_weight_in_two_shards_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    for number in (1, 2):
        save_file({"w": torch.ones(1)}, folder / f"model-0000{number}-of-00002.safetensors")
    with pytest.raises(CheckpointError, match=r"weight w is in model-00001.* and in model-00002"):
        SafetensorsCheckpoint(folder)


def test_a_single_file_of_another_name_is_read_and_an_adapter_is_not(folder: Path) -> None:
    wanted = stored_tensors(folder)
    (folder / "model.safetensors").rename(folder / "gptq_model-4bit-128g.safetensors")
    save_file({"lora": torch.ones(1)}, folder / "adapter_model.safetensors")
    assert set(SafetensorsCheckpoint(folder).names()) == set(wanted)
