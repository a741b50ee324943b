"""Byte-level BPE from a GGUF file (`tokenizer.ggml.model` = "gpt2"): GPT-2, SmolLM, Llama 3, Qwen, Mistral's Tekken.

Text is cut into words by a regular expression, each word's UTF-8 bytes are spelled in an alphabet of 256 printable
characters, and merges join them. A GGUF file stores the vocabulary and the merges, but of the expression only a name
(`tokenizer.ggml.pre`): this module knows what the names mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from octavo.errors import CheckpointError
from octavo.text.alphabet import CHARACTER_TO_BYTE, spell
from octavo.text.gguf_vocabulary import TokenKind, Vocabulary, merges_of


@dataclass(frozen=True)
class Scheme:
    """How the vocabularies that share a `tokenizer.ggml.pre` cut text into words, before any merge.

    `pattern` None is GPT-2's expression, which the tokenizers library has built in. `ignore_merges`: a word that is a
    token itself is taken as it is, as tiktoken does. `add_bos` holds where the file says nothing.
    """

    pattern: str | None
    ignore_merges: bool = False
    add_bos: bool = False


_ALPHABET = frozenset(CHARACTER_TO_BYTE)

# The alternatives that the expressions are made of, tried in order. \p{L} letters, \p{M} marks, \p{N} numbers.
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LINE_BREAKS = r"\s*[\r\n]+"
_SPACES = r"\s+(?!\S)|\s+"  # a run of spaces leaves its last one to the word that follows
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

_GPT2 = Scheme(None)
_LLAMA3 = Scheme(
    "|".join([_CONTRACTION, _WORD, r"\p{N}{1,3}", _SYMBOLS, _LINE_BREAKS, _SPACES]), ignore_merges=True, add_bos=True
)
_QWEN2 = Scheme("|".join([_CONTRACTION, _WORD, r"\p{N}", _SYMBOLS, _LINE_BREAKS, _SPACES]))
_QWEN35 = Scheme(  # Qwen2's, with combining marks kept in the word
    "|".join(
        [
            _CONTRACTION,
            r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
            r"\p{N}",
            r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
            _LINE_BREAKS,
            _SPACES,
        ]
    )
)
_TEKKEN = Scheme(  # splits camelCase words: capitals may only lead
    "|".join(
        [
            rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+",
            rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*",
            r"\p{N}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            _LINE_BREAKS,
            _SPACES,
        ]
    ),
    ignore_merges=True,
    add_bos=True,
)

SCHEMES: dict[str, Scheme] = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    # SmolLM's own tokenizer.json isolates digits before GPT-2's expression, the GGUF reader of transformers does not.
    # The merges never join digits, so that only a run of white space before a digit is cut differently. Octavo follows
    # transformers, which it is tested against.
    "smollm": _GPT2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "lfm2": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "qwen35": _QWEN35,
    "tekken": _TEKKEN,
}


def scheme_of(vocabulary: Vocabulary) -> Scheme:
    """The scheme that the file names. CheckpointError for a name that is not known, listing those that are."""
    scheme = SCHEMES.get(vocabulary.pre)
    if scheme is None:
        raise CheckpointError(
            f"{vocabulary.path}: tokenizer.ggml.pre is {vocabulary.pre!r}, an unknown way to split text; "
            f"known: {', '.join(sorted(SCHEMES))}. Use the model's safetensors folder, which carries its tokenizer.json"
        )
    return scheme


def byte_level_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """The `tokenizers` object for a byte-level vocabulary, its special tokens not yet added."""
    scheme = scheme_of(vocabulary)
    if not vocabulary.merges:
        raise CheckpointError(
            f"{vocabulary.path}: a byte-level vocabulary needs tokenizer.ggml.merges, which is missing"
        )
    vocab = {token: token_id for token_id, token in enumerate(_spelled(vocabulary))}
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=merges_of(vocabulary, vocab),
            ignore_merges=scheme.ignore_merges,
            continuing_subword_prefix="",
            end_of_word_suffix="",
        )
    )
    if scheme.pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(scheme.pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _spelled(vocabulary: Vocabulary) -> list[str]:
    """The tokens as the model has to look them up: those matched whole in text as written, others in the alphabet.

    Some writers store added words in plain text ("é" instead of "Ã©"); no merge could ever produce those.
    """
    whole = set(vocabulary.special.values())
    whole.update(i for i, kind in enumerate(vocabulary.kinds) if kind in (TokenKind.CONTROL, TokenKind.USER_DEFINED))
    return [
        token if token_id in whole or _ALPHABET.issuperset(token) else spell(token.encode())
        for token_id, token in enumerate(vocabulary.tokens)
    ]
