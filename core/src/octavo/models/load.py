"""From a path to a model: its config, its graph, and a checkpoint known to hold the graph's weights."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from octavo.config import Task
from octavo.errors import CheckpointError, UnknownArchitecture
from octavo.graph.builder import Builder
from octavo.graph.ir import Graph
from octavo.models.checkpoint import Checkpoint, open_checkpoint
from octavo.models.config import ModelConfig
from octavo.models.gguf_file import split_files
from octavo.models.hf_rope import SERVED_LENGTH
from octavo.models.pooling import Pooling, apply_task, config_overrides
from octavo.models.registry import family_for
from octavo.models.safetensors_reader import QUANTIZATION_FILES

_logger = logging.getLogger(__name__)

_LISTED = 5  # weights that an error message names before it only counts
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_CHUNK = 1 << 24  # bytes compared at once
_LAYER = re.compile(r"(?:^|\.)layers?\.(\d+)\.")
# Weights that no graph of ours needs, each for a reason that its name tells: constants that are computed here, parts
# of multimodal checkpoints, and heads of other tasks.
_NOT_NEEDED = re.compile(
    r"(\.|^)(rotary_emb\.inv_freq|position_ids|token_type_ids|masked_bias|attn\.bias)$"
    r"|(^|\.)(vision_tower|vision_model|visual|multi_modal_projector)\."
    r"|(^|\.)pooler\.dense\.|^cls\.|^(roberta\.)?lm_head\.(?!weight$)|^rope_freqs\."
)

# What compressed-tensors and others store beside an attention whose keys and values are to be quantized.
_CACHE_SCALE = re.compile(r"\.(attn|self_attn)\.((attn|kv_cache)\.)?([qkv]|kv|prob)_(scale|zero_point)$")


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


def load_model(
    path: Path,
    dtype: str = "f32",
    plugins: Sequence[object] = (),
    task: Task | None = None,
    max_length: int | None = None,
) -> Model:
    """Open the checkpoint at ``path`` and build its graph, whose activations are ``dtype``.

    Each weight's format in the graph is the one its checkpoint stores. ``task`` is what it shall do; ``None`` leaves
    that to the checkpoint. ``max_length`` is the length of the longest sequence that will be served, where the user set
    one: frequencies that depend on it (``dynamic``, ``longrope``) are those of that length. Raises CheckpointError if
    files are damaged, the config cannot be honoured, or a weight is missing or of another shape than the config
    implies, and ConfigError for a task that it cannot do.
    """
    checkpoint = open_checkpoint(path)
    present = set(checkpoint.names())
    try:
        family = family_for(checkpoint.config, plugins)
        config = family.parse(served_config(checkpoint.config, path, max_length))
        config = _with_stored_head(_without_needless_windows(config), checkpoint, present)
    except UnknownArchitecture as error:
        raise UnknownArchitecture(f"{path}: {error}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    # A missing weight gets any format: check_weights names all that are missing at once.
    builder = Builder(config.family, dtype, lambda name: checkpoint.info(name)[0].name if name in present else "f32")
    family.build(config, builder)
    graph, pooling = apply_task(builder.build(), checkpoint.config, path, task)
    check_weights(graph, checkpoint, config.layers)
    if pooling is not None:
        pooling = replace(pooling, token_types=config.token_types)
    return Model(config, graph, checkpoint, pooling)


def served_config(config: Mapping[str, Any], path: Path, max_length: int | None = None) -> dict[str, Any]:
    """config.json with what sentence-transformers' files beside it set, and the length that will be served."""
    found = {**config, **config_overrides(path)}
    found.pop(SERVED_LENGTH, None)
    return found if max_length is None else {**found, SERVED_LENGTH: max_length}


def _without_needless_windows(config: ModelConfig) -> ModelConfig:
    """Where a token sees those after it, a window means something else, which is not built; one as wide as the text
    means nothing.
    """
    if config.causal or not any(config.windows):
        return config
    narrow = min(window for window in config.windows if window is not None)
    if narrow < config.max_position:
        raise CheckpointError(
            f"config.json: is_causal is false beside a sliding_window of {narrow}, which is not supported for texts of "
            f"up to {config.max_position} tokens"
        )
    return replace(config, windows=(None,) * config.layers)


def _with_stored_head(config: ModelConfig, checkpoint: Checkpoint, present: set[str]) -> ModelConfig:
    """A checkpoint with an output matrix of its own uses it, whatever ``tie_word_embeddings`` says (as transformers
    does), unless it is a copy of the embedding table.
    """
    if not config.tied_embeddings or not {_EMBEDDING, _HEAD} <= present or _equal(checkpoint, _EMBEDDING, _HEAD):
        return config
    _logger.warning(
        "%s: config.json ties the output matrix to the embedding table, but the checkpoint has a %s of its own, "
        "which is used",
        checkpoint.path,
        _HEAD,
    )
    return replace(config, tied_embeddings=False)


def _equal(checkpoint: Checkpoint, one: str, other: str) -> bool:
    if checkpoint.info(one) != checkpoint.info(other):
        return False
    a, b = (checkpoint.tensor(name).data.reshape(-1) for name in (one, other))
    return all(np.array_equal(a[at : at + _CHUNK], b[at : at + _CHUNK]) for at in range(0, a.size, _CHUNK))


def check_weights(graph: Graph, checkpoint: Checkpoint, layers: int | None = None) -> None:
    """CheckpointError unless the checkpoint has every weight of the graph, in its shape.

    Every weight of the checkpoint that no graph reads is told: in a warning, or at debug level where it is known not to
    be needed (a vision tower, rotary tables of old checkpoints, the output matrix of a model that embeds). ``layers``
    is what config.json says of them.
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
    needless = [name for name in unused if _NOT_NEEDED.search(name) or (name == _HEAD and _EMBEDDING in graph.weights)]
    if needless:
        _logger.debug("%s: %d weights are not needed: %s", checkpoint.path, len(needless), ", ".join(needless))
    cache_scales = [name for name in unused if _CACHE_SCALE.search(name)]
    if cache_scales:
        _logger.warning(
            "%s: the scales of a quantized KV cache are not used: %s; the cache is stored as --kv-cache-dtype says",
            checkpoint.path,
            _listing(cache_scales),
        )
    strange = [name for name in unused if name not in needless and name not in cache_scales]
    beyond = {int(match[1]) for name in strange if (match := _LAYER.search(name))}
    if strange:
        cause = ""
        if layers is not None and beyond and max(beyond) >= layers:
            cause = f"; it has layers up to {max(beyond)}, and num_hidden_layers is {layers}"
        _logger.warning("%s: not used are %s%s", checkpoint.path, _listing(strange), cause)


def _listing(items: Sequence[str]) -> str:
    head = ", ".join(items[:_LISTED])
    rest = len(items) - _LISTED
    count = "weight" if len(items) == 1 else f"{len(items)} weights:"
    return f"{count} {head}" + (f" and {rest} more" if rest > 0 else "")
