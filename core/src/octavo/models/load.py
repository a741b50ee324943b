"""From a path to a model: its config, its graph, and a checkpoint known to hold the graph's weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.config import Task
from octavo.errors import CheckpointError, UnknownArchitecture
from octavo.graph.builder import Builder
from octavo.graph.ir import Graph
from octavo.models.checkpoint import Checkpoint, open_checkpoint
from octavo.models.config import ModelConfig
from octavo.models.gguf_file import split_files
from octavo.models.pooling import Pooling, apply_task
from octavo.models.registry import family_for
from octavo.models.safetensors_reader import QUANTIZATION_FILES

_logger = logging.getLogger(__name__)

_LISTED = 5  # weights that an error message names before it only counts


@dataclass(frozen=True)
class Model:
    """A model ready for a platform. No weight has been read yet: ``checkpoint.tensor`` does that, one by one."""

    config: ModelConfig
    graph: Graph
    checkpoint: Checkpoint
    pooling: Pooling | None = None
    """How its hidden states become vectors; ``None`` for a model that generates."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the weights follow from: config.json says what the tensors of a quantized folder mean."""
        path = self.checkpoint.path
        if not path.is_dir():
            return split_files(path)
        described = [path / name for name in ("config.json", *QUANTIZATION_FILES)]
        return (*sorted(path.glob("*.safetensors")), *(file for file in described if file.is_file()))


def load_model(path: Path, dtype: str = "f32", plugins: Sequence[object] = (), task: Task | None = None) -> Model:
    """Open the checkpoint at ``path`` and build its graph, whose activations are ``dtype``.

    Each weight's format in the graph is the one its checkpoint stores. ``task`` is what it shall do; ``None`` leaves
    that to the checkpoint. Raises CheckpointError if files are damaged, the config cannot be honoured, or a weight is
    missing or of another shape than the config implies, and ConfigError for a task that it cannot do.
    """
    checkpoint = open_checkpoint(path)
    present = set(checkpoint.names())
    try:
        family = family_for(checkpoint.config, plugins)
        config = family.parse(checkpoint.config)
    except UnknownArchitecture as error:
        raise UnknownArchitecture(f"{path}: {error}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    # A missing weight gets any format: check_weights names all that are missing at once.
    builder = Builder(config.family, dtype, lambda name: checkpoint.info(name)[0].name if name in present else "f32")
    family.build(config, builder)
    graph, pooling = apply_task(builder.build(), checkpoint.config, path, task)
    check_weights(graph, checkpoint)
    return Model(config, graph, checkpoint, pooling)


def check_weights(graph: Graph, checkpoint: Checkpoint) -> None:
    """CheckpointError unless the checkpoint has every weight of the graph, in its shape.

    Weights that no graph reads (a vision tower, rotary tables of old checkpoints) are listed at debug level.
    """
    present = set(checkpoint.names())
    missing = [name for name in graph.weights if name not in present]
    if missing:
        raise CheckpointError(f"{checkpoint.path} lacks {_listing(missing)}, which config.json implies")
    wrong = [
        f"{name} {list(found)} (expected {list(spec.shape)})"
        for name, spec in graph.weights.items()
        if (found := checkpoint.info(name)[1]) != spec.shape
    ]
    if wrong:
        raise CheckpointError(f"{checkpoint.path} does not fit its config.json: the shape of {_listing(wrong)}")
    unused = sorted(present - set(graph.weights))
    if unused:
        _logger.debug("%s: %d weights are not used: %s", checkpoint.path, len(unused), ", ".join(unused))


def _listing(items: Sequence[str]) -> str:
    head = ", ".join(items[:_LISTED])
    rest = len(items) - _LISTED
    count = "weight" if len(items) == 1 else f"{len(items)} weights:"
    return f"{count} {head}" + (f" and {rest} more" if rest > 0 else "")
