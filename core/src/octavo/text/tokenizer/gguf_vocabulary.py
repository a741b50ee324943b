"""The tokenizer section of a GGUF file, checked and typed: what the builders of the two kinds start from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from octavo.errors import CheckpointError

SPACE = "\u2581"
"""How SentencePiece spells a space, and BPE over characters after it."""


class TokenKind(IntEnum):
    """`tokenizer.ggml.token_type`, one for each token. Source: the GGUF specification."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3  # <|im_end|>: matched whole in text, left out of decoded text
    USER_DEFINED = 4  # <think>: matched whole in text, kept in decoded text
    UNUSED = 5
    BYTE = 6  # <0x0A>: SentencePiece's spelling of a byte that no other token covers


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id and what the file says about each; every list is as long as `tokens`, or empty where absent."""

    path: Path
    name: str  # general.name
    model: str  # tokenizer.ggml.model: "gpt2", "llama", …
    pre: str | None  # tokenizer.ggml.pre
    tokens: list[str]
    scores: list[float]
    kinds: list[int]
    merges: list[str]
    special: Mapping[str, int]  # role, one of _ROLES -> id
    add_bos: bool | None  # None: the file does not say, the kind of tokenizer decides
    add_eos: bool
    add_space_prefix: bool | None
    templates: Mapping[str, str]  # name -> chat template; the plain one is "default"

    def role(self, name: str) -> str | None:
        """The token with a special role, None where the file gives the role to none."""
        token_id = self.special.get(name)
        return None if token_id is None else self.tokens[token_id]


Merge = tuple[str, str]

_ROLES = (
    "bos", "eos", "unknown", "padding", "eot", "eom", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep",
)  # fmt: skip
_OLDER_KEYS = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}
_TEMPLATE = "tokenizer.chat_template"


def read_vocabulary(path: Path, metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary in a GGUF file's metadata.

    Raises CheckpointError, naming the key, when the section is missing, of a wrong type, or contradicts itself.
    """
    found = _Section(path, metadata)
    tokens = found.strings("tokens")
    if not tokens:
        raise CheckpointError(f"{path} holds no tokenizer: tokenizer.ggml.tokens is missing or empty")
    model = found.get("model", str, "")
    special: dict[str, int] = {}
    for role in _ROLES:
        for key in (role, _OLDER_KEYS.get(role, role)):
            token_id = found.get(f"{key}_token_id", int, None)
            if token_id is None:
                continue
            if not 0 <= token_id < len(tokens):
                raise CheckpointError(
                    f"{path}: tokenizer.ggml.{key}_token_id is {token_id}, outside the vocabulary of {len(tokens)} "
                    "tokens"
                )
            special.setdefault(role, token_id)
    return Vocabulary(
        path=path,
        name=str(metadata.get("general.name", "")),
        model=model,
        pre="gemma4" if model == "gemma4" else found.get("pre", str, None),  # that one has a single way to cut text
        tokens=tokens,
        scores=found.per_token("scores", len(tokens)),
        kinds=found.per_token("token_type", len(tokens)),
        merges=found.strings("merges"),
        special=special,
        add_bos=found.get("add_bos_token", bool, None),
        add_eos=found.get("add_eos_token", bool, False),
        add_space_prefix=found.get("add_space_prefix", bool, None),
        templates=_templates(metadata),
    )


def merges_of(vocabulary: Vocabulary, vocab: Collection[str]) -> list[Merge]:
    """The merges that the file lists, as pairs. `vocab` holds the tokens as the model spells them.

    CheckpointError for a merge that is no pair, or whose parts or result are not tokens.
    """
    merges = []
    for line in vocabulary.merges:
        left, separator, right = line.partition(" ")
        if not separator or left not in vocab or right not in vocab or left + right not in vocab:
            raise CheckpointError(
                f"{vocabulary.path}: tokenizer.ggml.merges holds {line!r}, which does not join two tokens into a third"
            )
        merges.append((left, right))
    return merges


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """`tokenizer.chat_template` is the default; `tokenizer.chat_template.NAME` are alternatives for one purpose."""
    templates = {}
    for key, value in metadata.items():
        if isinstance(value, str) and value:
            if key == _TEMPLATE:
                templates["default"] = value
            elif key.startswith(_TEMPLATE + "."):
                templates[key[len(_TEMPLATE) + 1 :]] = value
    return templates


class _Section:
    """Typed access to the keys under `tokenizer.ggml`."""

    def __init__(self, path: Path, metadata: Mapping[str, Any]) -> None:
        self.path = path
        self.metadata = metadata

    def get(self, key: str, kind: type, default: Any) -> Any:
        value = self.metadata.get(f"tokenizer.ggml.{key}", default)
        if value is not default and type(value) is not kind:
            raise CheckpointError(
                f"{self.path}: tokenizer.ggml.{key} is {type(value).__name__} {str(value)[:40]!r}; "
                f"expected {kind.__name__}"
            )
        return value

    def strings(self, key: str) -> list[str]:
        values: list[str] = self.get(key, list, [])
        if values and not isinstance(values[0], str):  # a GGUF array has one element type
            raise CheckpointError(
                f"{self.path}: tokenizer.ggml.{key} holds {type(values[0]).__name__}; expected strings"
            )
        return values

    def per_token(self, key: str, count: int) -> list[Any]:
        values: list[Any] = self.get(key, list, [])
        if values and len(values) != count:
            raise CheckpointError(f"{self.path}: tokenizer.ggml.{key} has {len(values)} entries for {count} tokens")
        if values and not isinstance(values[0], (int, float)):
            raise CheckpointError(
                f"{self.path}: tokenizer.ggml.{key} holds {type(values[0]).__name__}; expected numbers"
            )
        return values
