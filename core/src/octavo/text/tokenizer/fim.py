"""Fill in the middle: the tokens by which a model is asked for what stands between two texts.

Models differ in the names of the three tokens and in the order of the two texts; both are part of how a model was
trained. Sources: the tokenizers and the papers or model cards of each family; for GGUF files, llama.cpp's keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FillInMiddle:
    """How one model is asked. ``prompt`` is the only thing that needs to know the order."""

    prefix: int
    """Stands before the text before the gap."""
    suffix: int
    """Stands before the text behind the gap."""
    middle: int | None = None
    """Stands at the end, where the model begins; None: it begins right after the two texts."""
    suffix_first: bool = False
    ends: frozenset[int] = frozenset()
    """Tokens that end a filled gap, beside those that end every generation."""

    def prompt(self, prefix: Sequence[int], suffix: Sequence[int], bos: int | None) -> list[int]:
        """The prompt of two texts' tokens. A BOS that ``prefix`` begins with begins the prompt."""
        start: Sequence[int] = ()
        if bos is not None and prefix[:1] == [bos]:
            start, prefix = prefix[:1], prefix[1:]
        parts = [(self.prefix, prefix), (self.suffix, suffix)]
        if self.suffix_first:
            parts.reverse()
        body = [token for mark, text in parts for token in (mark, *text)]
        return [*start, *body, *(() if self.middle is None else (self.middle,))]


@dataclass(frozen=True)
class _Family:
    """Spellings of one family's tokens. ``middle`` empty: it has none."""

    prefix: str
    suffix: str
    middle: str
    suffix_first: bool = False
    ends: tuple[str, ...] = ()


_FAMILIES = (
    # Qwen2.5-Coder, CodeGemma, Granite 4; the first writes repositories, the second files, after the last gap.
    _Family(
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        ends=("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>", "<|endoftext|>"),
    ),
    # StarCoder 1 and 2, StableCode, Granite Code
    _Family("<fim_prefix>", "<fim_suffix>", "<fim_middle>", ends=("<fim_pad>", "<file_sep>", "<|endoftext|>")),
    # SantaCoder
    _Family("<fim-prefix>", "<fim-suffix>", "<fim-middle>", ends=("<fim-pad>", "<|endoftext|>")),
    # Code Llama: its vocabulary writes the space before the name
    _Family("▁<PRE>", "▁<SUF>", "▁<MID>", ends=("▁<EOT>",)),
    # DeepSeek Coder, V2 and V3
    _Family("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    # Codestral: suffix first, and no third token
    _Family("[PREFIX]", "[SUFFIX]", "", suffix_first=True),
    # CodeGeeX 4
    _Family("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    # Seed-Coder: suffix first
    _Family("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", suffix_first=True),
)

_GGUF_KEYS = (("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle"))
"""llama.cpp's names of the three, and those of its older files."""
_GGUF_ENDS = ("fim_pad", "fim_rep", "fim_sep")


def fim_of_vocabulary(id_of: Callable[[str], int | None]) -> FillInMiddle | None:
    """The tokens of the first family whose names a vocabulary has, or None. ``id_of`` looks up one name."""
    for family in _FAMILIES:
        prefix, suffix = id_of(family.prefix), id_of(family.suffix)
        middle = id_of(family.middle) if family.middle else None
        if prefix is None or suffix is None or (family.middle and middle is None):
            continue
        ends = frozenset(end for name in family.ends if (end := id_of(name)) is not None)
        return FillInMiddle(prefix, suffix, middle, family.suffix_first, ends)
    return None


def fim_of_gguf(metadata: Mapping[str, Any], vocab_size: int) -> FillInMiddle | None:
    """The tokens that a GGUF file names by their ids, or None; llama.cpp's order is prefix, suffix, middle."""

    def id_of(role: str) -> int | None:
        value = metadata.get(f"tokenizer.ggml.{role}_token_id")
        return value if type(value) is int and 0 <= value < vocab_size else None

    for roles in _GGUF_KEYS:
        prefix, suffix, middle = map(id_of, roles)
        if prefix is not None and suffix is not None and middle is not None:
            ends = frozenset(end for role in _GGUF_ENDS if (end := id_of(role)) is not None)
            return FillInMiddle(prefix, suffix, middle, ends=ends)
    return None


def encode_inside(encode: Callable[[str], list[int]], text: str) -> list[int]:
    """The tokens of a text that stands inside another one.

    SentencePiece vocabularies write a space before a text that stands alone. A line break before it takes that
    space; where its tokens come apart again from those of the text, the text has none.
    """
    mark, marked = encode("\n"), encode("\n" + text)
    return marked[len(mark) :] if marked[: len(mark)] == mark else encode(text)
