"""Models: checkpoint readers, and one file per family that turns a config into a graph.

`load_model` does it all: files -> `Checkpoint` -> `ModelConfig` -> `Graph`, with every weight accounted for.
"""

from octavo.models.checkpoint import Checkpoint, open_checkpoint, resolve
from octavo.models.config import ModelConfig
from octavo.models.family import Family
from octavo.models.load import Model, load_model
from octavo.models.pooling import Pooling
from octavo.models.registry import family_for

__all__ = [
    "Checkpoint", "Family", "Model", "ModelConfig", "Pooling", "family_for", "load_model", "open_checkpoint",
    "resolve",
]  # fmt: skip
