"""The judge: `transformers` in float32 and float64."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt


class Judge:
    """A model of `transformers`, in float32; gives the logits at every position of a sequence."""

    def __init__(self, model: Any) -> None:
        import torch

        self._torch = torch
        self._model = model.eval()

    def logits(self, tokens: list[int]) -> npt.NDArray[np.float64]:
        """[len(tokens), vocab]"""
        with self._torch.inference_mode():
            out = self._model(self._torch.tensor([tokens])).logits[0]
        result: npt.NDArray[np.float64] = out.double().numpy()
        return result

    def double(self) -> Judge:
        """A copy in float64: the oracle that float32 results are measured against."""
        oracle = copy(self)
        oracle._model = deepcopy(self._model).double()
        return oracle
