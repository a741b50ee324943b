"""Tiny encoders of every kind, written by transformers from a seed, and what transformers makes of texts with them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

VOCAB = 300

_SHARED: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 80,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}

CONFIGS = {"Bert": "BertConfig", "Roberta": "RobertaConfig", "XLMRoberta": "XLMRobertaConfig"}


def tiny_encoder(
    architecture: str, folder: Path, *, seed: int = 0, dtype: torch.dtype = torch.float32, **fields: Any
) -> Path:
    """Write a checkpoint of a transformers class into ``folder``; equal arguments give equal bytes."""
    family = next(name for name in sorted(CONFIGS, key=len, reverse=True) if architecture.startswith(name))
    if architecture.endswith("Classification"):
        fields = {"num_labels": 1, **fields}
    config = getattr(transformers, CONFIGS[family])(**{**_SHARED, **fields})
    model = getattr(transformers, architecture)(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            values = torch.randn(weight.shape, generator=generator)
            if "LayerNorm.weight" in name:
                values = 1 + 0.3 * values
            elif name.endswith("bias"):
                values = 0.3 * values
            elif "embeddings" not in name:
                values = values / math.sqrt(weight.shape[-1]) * 2
            weight.copy_(values)
    model.to(dtype).save_pretrained(folder)
    return folder


def sentence_modules(folder: Path, pooling: dict[str, Any] | None, *, normalize: bool = True) -> None:
    """The files that sentence-transformers adds to a checkpoint."""
    kinds = ["Transformer", *(["Pooling"] if pooling is not None else []), *(["Normalize"] if normalize else [])]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def hidden_states(folder: Path, tokens: list[int], types: list[int] | None = None) -> np.ndarray:
    """transformers' last hidden states, float32 [T, width]."""
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    kinds = None if types is None else torch.tensor([types])
    extra = {} if kinds is None else {"token_type_ids": kinds}
    with torch.no_grad():
        return model(torch.tensor([tokens]), **extra).last_hidden_state[0].numpy()


def pair_logit(folder: Path, tokens: list[int], types: list[int]) -> float:
    """The one logit of a cross-encoder."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return float(model(torch.tensor([tokens]), token_type_ids=torch.tensor([types])).logits[0, 0])
