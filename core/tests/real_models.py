"""Where the real checkpoints are."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = "gemma-3-270m-q4_k_m.gguf"
MINILM = "all-MiniLM-L6-v2"
VOCABULARIES = "llama.cpp-vocabularies"


def real_model(name: str) -> Path:
    """The checkpoint of that name; fails the test, with the cure, if it is not there."""
    folder = os.environ.get("OCTAVO_TEST_MODELS")
    if folder is None or not (Path(folder) / name).exists():
        pytest.fail(
            f"{name} is not in OCTAVO_TEST_MODELS ({folder or 'unset'}): `make test` fetches it and sets that",
            pytrace=False,
        )
    return Path(folder) / name


@cache
def as_transformers_reads(gguf: Path, folder: Path) -> Any:
    """The checkpoint in the GGUF file as transformers reads it, in float32: a `PreTrainedModel`, not to be changed.

    It is kept for all tests, since reading it takes longer than most of them. The configuration is that of the folder,
    which transformers wrote from the same file: it spares a second reading.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

    return AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        config=AutoConfig.from_pretrained(folder),
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
