"""The judge: `transformers` in float32 and float64, on weights that it dequantised itself from the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


class Judge:
    """One model of `transformers`; gives the logits at every position of a sequence."""

    def __init__(self, path: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, GgufConfig

        self._torch = torch
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        ).eval()

    def logits(self, tokens: list[int]) -> npt.NDArray[np.float64]:
        """[len(tokens), vocab]"""
        with self._torch.inference_mode():
            out = self._model(self._torch.tensor([tokens])).logits[0]
        result: npt.NDArray[np.float64] = out.double().numpy()
        return result

    def double(self) -> Judge:
        """The same in float64, for good: the oracle that float32 results are measured against."""
        self._model = self._model.double()
        return self
