"""A model family: the architectures it claims, and how it reads and builds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.graph.builder import Builder
from octavo.models.config import ModelConfig


@dataclass(frozen=True)
class Family:
    """One kind of model. What the ``octavo_models`` hook supplies, too.

    ``architectures`` are the names in config.json that it claims. ``parse`` turns config.json into a ModelConfig
    and raises CheckpointError for what it cannot honour; nothing in a config is ignored that changes the
    numbers. ``build`` describes the model to a Builder, with the output ``logits`` [S, vocab]; an encoder's is
    ``hidden`` [T, width], or ``pooled`` [R, 1] if it scores pairs of texts.
    """

    name: str
    architectures: tuple[str, ...]
    parse: Callable[[Mapping[str, Any]], ModelConfig]
    build: Callable[[ModelConfig, Builder], None]
