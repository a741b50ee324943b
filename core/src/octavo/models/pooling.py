"""How a checkpoint wants its hidden states to become one vector: sentence-transformers' files beside config.json.

``modules.json`` lists what runs one after the other: Transformer, Pooling (its config says how), Normalize. Without it
an encoder has the pooling of its family, and a decoder takes its last token.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.config import Task
from octavo.errors import CheckpointError, ConfigError
from octavo.graph import Graph, pooled
from octavo.models.fields import shown
from octavo.models.safetensors_reader import read_json, read_json_list

_logger = logging.getLogger(__name__)

_KINDS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}
_NAMED = {"mean": "mean", "cls": "first", "lasttoken": "last"}
# In sentence-transformers' order; all but the first are of old versions.
_SENTENCE_CONFIGS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "none"}


@dataclass(frozen=True)
class Pooling:
    """From hidden states to what a request gets."""

    task: Literal["embed", "score"]
    kind: str
    """Of the graph's op ``pool``: mean, first or last."""
    normalize: bool = True
    """Embeddings have length 1."""
    activation: str = "none"
    """Of scores: sigmoid or none."""
    max_length: int | None = None
    """Tokens that it was trained to read, where that is less than it has positions for."""
    dimensions: tuple[int, ...] | None = None
    """Shorter lengths that its embeddings may be cut to (Matryoshka); empty: any; ``None``: it was not trained
    for that."""
    width: int = 0
    """Elements of a vector."""
    token_types: int = 1
    """Kinds of text that a prompt may be made of, see `octavo.models.ModelConfig.token_types`."""
    whole: bool = True
    """A prompt must run in one step: its tokens see what follows them, or all of them are averaged."""


def apply_task(
    graph: Graph, config: Mapping[str, Any], path: Path, task: Task | None = None
) -> tuple[Graph, Pooling | None]:
    """The graph for what the model shall do, and how it pools; ``None`` and the graph itself for one that generates.

    ``config`` is the checkpoint's, ``path`` where it lies. Without a task the model decides: an encoder embeds, a
    cross-encoder scores, and a decoder generates unless it was saved as an embedding model. Raises CheckpointError and
    ConfigError.
    """
    if "pooled" in graph.outputs:
        if task not in (None, "score"):
            raise ConfigError(f"{path.name} scores pairs of texts and nothing else: it is no model to {task} with")
        length = trained_length(path)
        return graph, Pooling("score", "first", False, score_activation(config), length, None, _width(graph))
    encoder = "hidden" in graph.outputs
    sees_all = any(node.attrs.get("causal") is False for node in graph.nodes)
    if task is None:
        bare = any(str(name).endswith("Model") for name in config.get("architectures") or ())
        task = "embed" if encoder or bare or sees_all or stored_pooling(path) else "generate"
    if task == "score":
        raise ConfigError(
            f"{path.name} has no head that scores pairs of texts; as an embedding model (--task embed) it scores them "
            "by the cosine of their embeddings"
        )
    if task == "generate":
        if encoder:
            raise ConfigError(f"{path.name} is an encoder and generates no text")
        if sees_all:
            raise ConfigError(
                f"{path.name} generates no text: its tokens see those after them (is_causal is false in config.json); "
                "serve it as an embedding model (--task embed)"
            )
        return graph, None
    _tell_prompts(path)
    kind = stored_pooling(path) or ("first" if encoder else "last")
    graph = pooled(graph, kind)
    whole = kind != "last" or sees_all
    return graph, Pooling(
        "embed",
        kind,
        normalizes(path),
        max_length=trained_length(path),
        dimensions=matryoshka(config),
        width=_width(graph),
        whole=whole,
    )


def _width(graph: Graph) -> int:
    return graph.types[graph.outputs["pooled"]].width


def stored_pooling(folder: Path) -> str | None:
    """The kind of pooling in modules.json; ``None`` where there is no such file, or the checkpoint is no folder.

    Raises CheckpointError for a module, or a kind of pooling, that cannot be honoured.
    """
    modules = _modules(folder)
    if modules is None:
        return None
    kinds = [_kind(_part(folder, m) / "config.json") for m in modules if _type(m) == "Pooling"]
    if len(kinds) != 1:
        raise CheckpointError(f"{folder / 'modules.json'} has {len(kinds)} Pooling modules; one is supported")
    return kinds[0]


def normalizes(folder: Path) -> bool:
    """Whether embeddings get length 1: as modules.json says; without it, yes."""
    modules = _modules(folder)
    return modules is None or any(_type(m) == "Normalize" for m in modules)


def trained_length(folder: Path) -> int | None:
    """``max_seq_length`` of sentence_bert_config.json, if there is one."""
    file, config = _sentence_config(folder)
    length = config.get("max_seq_length")
    if length is None or (type(length) is int and 0 < length < 2**31):
        return length
    raise CheckpointError(f"{file}: max_seq_length is {shown(length)}; it must be a number of tokens")


def config_overrides(folder: Path) -> Mapping[str, Any]:
    """Keys of config.json that sentence-transformers sets when it opens the folder (``config_args``).

    Raises CheckpointError for what else of sentence_bert_config.json changes vectors and is not supported.
    """
    file, config = _sentence_config(folder)
    overrides: dict[str, Any] = {}
    for name in ("config_args", "config_kwargs"):
        values = config.get(name)
        if values is not None and not isinstance(values, Mapping):
            raise CheckpointError(f"{file}: {name} is {shown(values)}; it must be an object")
        overrides.update(values or {})
    overrides.pop("trust_remote_code", None)
    if config.get("do_lower_case") and not _lowercases(folder):
        raise CheckpointError(
            f"{file}: do_lower_case is {shown(config['do_lower_case'])}, which is not supported where the tokenizer "
            "keeps the case; send texts in lower case, and set it to false"
        )
    return overrides


def _tell_prompts(folder: Path) -> None:
    """sentence-transformers puts a default prompt before every text; Octavo leaves texts as they are sent."""
    file = folder / "config_sentence_transformers.json"
    if not file.is_file():
        return
    name = read_json(file).get("default_prompt_name")
    if name is not None:
        _logger.warning(
            "%s: default_prompt_name is %s; prompts are not put before texts here: send them with the texts",
            file,
            shown(name),
        )


def _sentence_config(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """sentence-transformers' file on its Transformer, under the first of its names that there is; empty without one."""
    if folder.is_dir():
        for kind in _SENTENCE_CONFIGS:
            file = folder / f"sentence_{kind}_config.json"
            if file.is_file():
                return file, read_json(file)
    return folder, {}


def _lowercases(folder: Path) -> bool:
    file = folder / "tokenizer.json"
    normalizer = read_json(file).get("normalizer") if file.is_file() else None
    if not isinstance(normalizer, Mapping):
        return False
    steps = normalizer.get("normalizers")
    return any(
        isinstance(step, Mapping) and (step.get("lowercase") is True or step.get("type") == "Lowercase")
        for step in (normalizer, *(steps if isinstance(steps, list) else ()))
    )


def matryoshka(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The lengths that embeddings may be cut to; see `Pooling.dimensions`."""
    lengths = config.get("matryoshka_dimensions")
    if lengths is None:
        return () if config.get("is_matryoshka") is True else None
    if not isinstance(lengths, list) or not all(type(n) is int and n > 0 for n in lengths):
        raise CheckpointError(f"config.json: matryoshka_dimensions is {shown(lengths)}; it must be a list of lengths")
    return tuple(sorted(lengths))


def score_activation(config: Mapping[str, Any]) -> str:
    """What a cross-encoder's one logit goes through: a sigmoid, unless its config names the identity."""
    nested = config.get("sentence_transformers")
    named = nested.get("activation_fn") if isinstance(nested, Mapping) else None
    named = named or config.get("sbert_ce_default_activation_function") or "Sigmoid"
    word = str(named).rpartition(".")[2]
    if word not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise CheckpointError(
            f"config.json: the activation {shown(named)} of its scores is not supported; known: {known}"
        )
    return _ACTIVATIONS[word]


def _modules(folder: Path) -> Sequence[Mapping[str, Any]] | None:
    file = folder / "modules.json"
    if not folder.is_dir() or not file.is_file():
        return None
    modules = read_json_list(file)
    for module in modules:
        if _type(module) not in ("Transformer", "Pooling", "Normalize"):
            raise CheckpointError(
                f"{file}: the module {shown(module.get('type'))} is not supported; known: Transformer, Pooling, "
                "Normalize"
            )
    return modules


def _part(folder: Path, module: Mapping[str, Any]) -> Path:
    """The folder of a module, which may not lead out of the model's."""
    name = module.get("path", "")
    if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
        raise CheckpointError(f"{folder / 'modules.json'}: the path {shown(name)} is no folder inside the model's")
    return folder / name


def _type(module: Mapping[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[2]


def _kind(file: Path) -> str:
    config = read_json(file)
    if config.get("pooling_mode") is not None:  # the newer form names one, or several
        named = config["pooling_mode"]
        modes = {"pooling_mode_" + str(mode): True for mode in (named if isinstance(named, list) else [named])}
        kinds = [_NAMED.get(mode.removeprefix("pooling_mode_")) for mode in modes]
    else:
        modes = {mode: on for mode, on in config.items() if mode.startswith("pooling_mode_") and on is True}
        kinds = [_KINDS.get(mode) for mode in modes]
    if len(kinds) != 1 or kinds[0] is None:
        raise CheckpointError(
            f"{file}: pooling by {', '.join(modes) or 'nothing'} is not supported; known: one of {', '.join(_KINDS)}"
        )
    return kinds[0]
