"""Model families (config -> graph) and checkpoint readers."""

from octavo.models.checkpoint import Checkpoint, open_checkpoint
from octavo.models.config import ModelConfig
from octavo.models.family import Family
from octavo.models.hub import resolve
from octavo.models.load import Model, load_model

__all__ = ["Checkpoint", "Family", "Model", "ModelConfig", "load_model", "open_checkpoint", "resolve"]
