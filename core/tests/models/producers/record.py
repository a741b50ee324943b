"""Record folders that llm-compressor, AutoRound and GPTQModel write, with what each says its weights are.

Run once per writer, in an environment that has that writer (their requirements contradict each other):

    python record.py llmcompressor    # recorded with llmcompressor 0.14.0.1, compressed-tensors 0.19.0, transformers 5.17.0
    python record.py auto_round       # recorded with auto-round 0.16.1, transformers 5.24.0
    python record.py gptqmodel        # recorded with gptqmodel 7.7.0, transformers 5.24.0, GPTQMODEL_CPU_WORKERS=2

all on torch 2.13.0 for CPUs. Each writer's whole flow runs on a tiny seeded Llama, calibration included where the
method has one. An archive holds the writer's JSON files and safetensors, byte for byte (``file/<name>``), and the
writer's own dequantized weights (``weight/<module>``, in the dtype it computes them in).
"""  # noqa: E501 - the commands of a shell

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoRoundConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).parent
VOCAB, GROUP, LENGTH, DISTINCT = 32, 32, 32, 16
# Of the files that a writer leaves, those that say what the weights are.
FILES = ("config.json", "model.safetensors")
RECORDED = ("q_proj", "down_proj")
"""The linear layers whose weights are recorded: one group and two groups to a row."""
Weights = dict[str, torch.Tensor]


def tiny_llama(folder: Path, hidden: int) -> Path:
    """A Llama of one layer in bfloat16, and a tokenizer for the writers that want one."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=hidden, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=hidden, tie_word_embeddings=False, max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config).bfloat16()
    # Few bits, for the sake of the archives' size: signs, and matrices whose outputs repeat.
    for table in (model.model.embed_tokens, model.lm_head):
        table.weight.data = torch.sign(table.weight.data) / 2
    for _, module in linears(model):
        module.weight.data = module.weight.data[torch.arange(module.out_features) % DISTINCT].clone()
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t2", pad_token="t3").save_pretrained(folder)
    return folder


def calibration() -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(4, VOCAB, (LENGTH,), generator=generator).tolist() for _ in range(64)]


def linears(model: Any) -> Iterator[tuple[str, Any]]:
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            yield name, module


# -- llm-compressor -----------------------------------------------------------------------------------


def llmcompressor(source: Path, to: Path, weights: dict[str, Any], **group: Any) -> Weights:
    """``oneshot`` and transformers' ``save_pretrained``; weights as compressed-tensors decompresses them."""
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import GPTQModifier
    from transformers import CompressedTensorsConfig

    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights), **group)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    data = Dataset.from_dict({"input_ids": calibration(), "attention_mask": [[1] * LENGTH] * 64})
    recipe = GPTQModifier(config_groups={"group_0": scheme}, ignore=["re:.*lm_head"])
    oneshot(model=model, dataset=data, recipe=recipe, num_calibration_samples=64, max_seq_length=LENGTH)
    model.save_pretrained(to, save_compressed=True)
    options = CompressedTensorsConfig(run_compressed=False)
    plain = AutoModelForCausalLM.from_pretrained(to, quantization_config=options, dtype=torch.bfloat16)
    return {name: module.weight for name, module in linears(plain)}


def per_token() -> Any:
    from compressed_tensors.quantization import QuantizationArgs

    return QuantizationArgs(num_bits=8, strategy="token", dynamic=True, symmetric=True)


# -- AutoRound ----------------------------------------------------------------------------------------


def auto_round(source: Path, to: Path, format: str, **scheme: Any) -> Weights:
    """``quantize_and_save``; weights as its inference layers multiply them, or its AWQ packing unpacks them."""
    from auto_round import AutoRound
    from auto_round.export.export_to_awq.utils import dequantize_gemm
    from safetensors.torch import load_file

    rounding = AutoRound(
        str(source), iters=0, disable_opt_rtn=True, device_map="cpu", group_size=GROUP, seqlen=LENGTH, **scheme
    )
    rounding.quantize_and_save(str(to), format=format)
    (found,) = {path.parent for path in to.rglob("config.json")}
    for path in found.iterdir():
        if found != to:
            path.rename(to / path.name)
    if format == "auto_awq":  # its inference layers for these need a GPU or another project
        stored = load_file(to / "model.safetensors")
        modules = [name.removesuffix(".qweight") for name in stored if name.endswith(".qweight")]
        parts = {module: [stored[f"{module}.{part}"] for part in ("qweight", "qzeros", "scales")] for module in modules}
        return {module: dequantize_gemm(*found, 4, GROUP).T for module, found in parts.items()}
    loaded = AutoModelForCausalLM.from_pretrained(
        to, dtype=torch.float32, device_map="cpu", quantization_config=AutoRoundConfig(backend="auto")
    )
    return {name: multiplied(module, torch.float32) for name, module in linears(loaded)}


def multiplied(module: Any, dtype: torch.dtype) -> torch.Tensor:
    """[outputs, inputs] of a linear layer: its answers to each unit vector."""
    inputs = getattr(module, "infeatures", None) or module.in_features
    with torch.no_grad():
        return module(torch.eye(inputs, dtype=dtype)).T


# -- GPTQModel ----------------------------------------------------------------------------------------


def gptqmodel(source: Path, to: Path, **options: Any) -> Weights:
    """``quantize`` and ``save``; weights as its torch kernel dequantizes them."""
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig

    config = QuantizeConfig(bits=4, group_size=GROUP, offload_to_disk=False, **options)
    model = GPTQModel.load(str(source), config, device="cpu")
    model.quantize([{"input_ids": row, "attention_mask": [1] * LENGTH} for row in calibration()], batch_size=1)
    model.save(str(to))
    backend = BACKEND.TORCH_AWQ if options.get("method") == "awq" else BACKEND.TORCH
    loaded = GPTQModel.load(str(to), backend=backend, device="cpu", dtype=torch.float16)
    return {name: multiplied(module, torch.float16) for name, module in linears(loaded.model)}


GROUPS = {"num_bits": 4, "strategy": "group", "group_size": GROUP, "symmetric": True}
RECORDINGS: dict[str, dict[str, tuple[Callable[..., Weights], dict[str, Any]]]] = {
    "llmcompressor": {
        "w4a16": (llmcompressor, {"weights": GROUPS}),
        "w4a16-asym": (llmcompressor, {"weights": {**GROUPS, "symmetric": False}}),
        "w8a16": (llmcompressor, {"weights": {**GROUPS, "num_bits": 8}}),
        "w8a8": (llmcompressor, {"weights": {"num_bits": 8, "strategy": "channel", "symmetric": True}}),
    },
    "auto_round": {
        "sym": (auto_round, {"format": "auto_round", "bits": 4, "sym": True}),
        "asym": (auto_round, {"format": "auto_round", "bits": 4, "sym": False}),
        "gptq": (auto_round, {"format": "auto_gptq", "bits": 4, "sym": True}),
        "awq": (auto_round, {"format": "auto_awq", "bits": 4, "sym": False, "data_type": "int"}),
    },
    "gptqmodel": {
        "sym": (gptqmodel, {"sym": True}),
        "v2": (gptqmodel, {"sym": False, "format": "gptq_v2"}),
        "awq": (gptqmodel, {"method": "awq", "format": "gemm", "sym": False}),
        "awq-sym": (gptqmodel, {"method": "awq", "format": "gemm", "sym": True}),
    },
}


def record(writer: str, name: str) -> None:
    function, options = RECORDINGS[writer][name]
    if name == "w8a8":
        options = {**options, "input_activations": per_token()}
    with tempfile.TemporaryDirectory() as scratch:
        hidden = 64 if options.get("method") == "awq" else 32  # GPTQModel's clipping takes 64 outputs at a time
        source, to = tiny_llama(Path(scratch) / "tiny", hidden), Path(scratch) / "written"
        weights = function(source, to, **options)
        arrays = {f"file/{f}": np.frombuffer((to / f).read_bytes(), np.uint8) for f in FILES if (to / f).is_file()}
    for module, weight in weights.items():
        if not module.endswith(RECORDED):
            continue
        bits = weight.detach().contiguous()
        # numpy has no bfloat16, whose values float32 holds
        arrays[f"weight/{module}"] = (bits.float() if bits.dtype == torch.bfloat16 else bits).numpy()
    path = HERE / f"{writer}-{name}.npz"
    np.savez_compressed(path, **arrays)
    sys.stdout.write(f"{path.name} {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    wanted = sys.argv[2:] or RECORDINGS[sys.argv[1]]
    for each in wanted:
        record(sys.argv[1], each)
