"""A transformers tokenizer from the metadata of a GGUF file, without torch (which transformers' own reader needs).

llama.cpp, which defines the format and writes the files, is the judge of what a file means: the result splits text
token for token as llama.cpp does, and ends a generation at the same tokens (`src/llama-vocab.cpp`;
docs/decisions/0020).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizers import AddedToken, Tokenizer, processors

from octavo.errors import CheckpointError
from octavo.text.tokenizer.gguf_byte_level import bpe_tokenizer, pre_tokenizer_of
from octavo.text.tokenizer.gguf_sentencepiece import sentencepiece_tokenizer
from octavo.text.tokenizer.gguf_vocabulary import TokenKind, Vocabulary, read_vocabulary
from octavo.text.tokenizer.pieces import BYTE_TOKEN, Pieces

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_BUILDERS: dict[str, Callable[[Vocabulary], Tokenizer]] = {
    "gpt2": bpe_tokenizer,
    "gemma4": bpe_tokenizer,
    "llama": sentencepiece_tokenizer,
}

# Tokens that end a generation by their text, whatever else the file says of them.
_ENDS = frozenset(
    [
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
        "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
        "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~[",
    ]
)  # fmt: skip
# Tokens of fill-in-the-middle by their text, which counts where the file gives the role to none.
_FIM = {
    "fim_pre": frozenset(
        [
            "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>", "\u2581<PRE>",
            "<|code_prefix|>", "<|prefix|>",
        ]
    ),
    "fim_suf": frozenset(
        [
            "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>", "\u2581<SUF>",
            "<|code_suffix|>", "<|suffix|>",
        ]
    ),
    "fim_mid": frozenset(
        [
            "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>", "\u2581<MID>",
            "<|code_middle|>", "<|middle|>",
        ]
    ),
    "fim_pad": frozenset(["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"]),
    "fim_rep": frozenset(["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"]),
    "fim_sep": frozenset(["<|file_sep|>"]),
}  # fmt: skip
_FIM_ENDS = ("fim_pad", "fim_rep", "fim_sep")  # those that end a generation, too
# Harmony's parts of a message, which are text to whoever parses it, whatever kind the file gives them. (llama.cpp shows
# each of them in any vocabulary; in one that does not have them all they are some other format's, and hidden.)
_HARMONY = frozenset(["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"])
# Phi-3's special tokens swallow the white space behind them, but for these.
_PHI3_KEEP_SPACE = frozenset(["<unk>", "<s>", "<|endoftext|>"])


class GGUFTokenizer(NamedTuple):
    """What a GGUF file says of its tokenizer.

    ``ends``: the ids that end a generation (EOS, end of turn, end of message). ``literals``: the bytes of the tokens
    that are not what the tokenizer's decoder makes of them.
    """

    hf: PreTrainedTokenizerFast
    ends: frozenset[int]
    literals: Mapping[int, bytes]


def gguf_tokenizer(path: Path, metadata: Mapping[str, Any]) -> GGUFTokenizer:
    """The tokenizer in a GGUF file's `metadata`.

    Raises CheckpointError for a section that is missing or damaged, and for a kind of tokenizer that is not known.
    """
    vocabulary = read_vocabulary(path, metadata)
    builder = _BUILDERS.get(vocabulary.model)
    if builder is None:
        raise CheckpointError(
            f"{path}: tokenizer.ggml.model is {vocabulary.model!r}; supported: {', '.join(sorted(_BUILDERS))}. "
            "Use the model's safetensors folder, which carries its tokenizer.json"
        )
    ends = _end_ids(vocabulary)
    vocabulary = replace(vocabulary, kinds=_kinds(vocabulary, ends))
    backend = builder(vocabulary)
    backend.add_special_tokens(_matched_whole(backend, vocabulary, special=True))
    backend.add_tokens(_matched_whole(backend, vocabulary, special=False))
    backend.post_processor = _post_processor(vocabulary)
    return GGUFTokenizer(_wrapped(backend, vocabulary), ends, _literals(backend, vocabulary))


def _kinds(vocabulary: Vocabulary, ends: frozenset[int]) -> list[int]:
    """What each token is: what the file says, unless its text says otherwise."""
    texts = _ENDS.union(*(known for role, known in _FIM.items() if role not in vocabulary.special))
    harmony = _HARMONY.issubset(vocabulary.tokens)
    kinds = list(vocabulary.kinds) or [int(TokenKind.NORMAL)] * len(vocabulary.tokens)
    for token_id, token in enumerate(vocabulary.tokens):
        if token_id in ends:
            kinds[token_id] = TokenKind.CONTROL
        elif harmony and token in _HARMONY:
            kinds[token_id] = TokenKind.USER_DEFINED
        elif token in texts:  # those two end nothing in this vocabulary
            kinds[token_id] = {"<|end|>": TokenKind.USER_DEFINED, "</s>": TokenKind.NORMAL}.get(
                token, TokenKind.CONTROL
            )
    return kinds


def _matched_whole(backend: Tokenizer, vocabulary: Vocabulary, *, special: bool) -> list[AddedToken]:
    """The tokens that are matched whole in text: special ones, which decoded text leaves out, or the others.

    Only those that the backend has under their own spelling: adding any other would give it a new id.
    """
    strips = any(name in vocabulary.name.lower() for name in ("phi-3", "phi3"))
    wanted = (TokenKind.CONTROL, TokenKind.UNKNOWN) if special else (TokenKind.USER_DEFINED,)
    found = []
    for token_id, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True)):
        if kind in wanted and token and backend.token_to_id(token) == token_id:
            rstrip = strips and token not in _PHI3_KEEP_SPACE
            found.append(AddedToken(token, normalized=False, special=special, rstrip=rstrip))
    return found


def _literals(backend: Tokenizer, vocabulary: Vocabulary) -> dict[int, bytes]:
    """Tokens that the decoder would take for another spelling of their bytes than they are.

    A token that is matched whole is its text as written, whether or not its characters spell bytes or spaces in the
    others; and a byte token is its byte, also in a vocabulary that spells bytes another way.
    """
    pieces = Pieces(backend)
    found = {}
    for token_id, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True)):
        if kind in (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.USER_DEFINED):
            data = token.encode()
        elif kind == TokenKind.BYTE and (byte := BYTE_TOKEN.fullmatch(token)):
            data = bytes.fromhex(byte[1])
        else:
            continue
        if pieces[token_id].data != data:
            found[token_id] = data
    return found


def _post_processor(vocabulary: Vocabulary) -> processors.TemplateProcessing:
    """What `add_special_tokens=True` adds: BOS before, EOS behind, as the file asks."""
    add_bos = vocabulary.add_bos
    if vocabulary.model == "llama":
        add_bos = add_bos is not False
    else:
        pre = pre_tokenizer_of(vocabulary)
        add_bos = pre.always_bos or (pre.add_bos if add_bos is None else add_bos)
    before = ["bos"] if add_bos and "bos" in vocabulary.special else []
    behind = ["eos"] if vocabulary.add_eos and "eos" in vocabulary.special else []
    names = {role: vocabulary.tokens[vocabulary.special[role]] for role in [*before, *behind]}
    head, tail = [names[role] for role in before], [names[role] for role in behind]
    return processors.TemplateProcessing(
        single=[*head, "$A", *tail],
        pair=[*head, "$A", *tail, *(f"{piece}:1" for piece in [*head, "$B", *tail])],
        special_tokens=[(name, vocabulary.special[role]) for role, name in names.items()],
    )


def _end_ids(vocabulary: Vocabulary) -> frozenset[int]:
    """The tokens that end a generation: those whose role or text says so."""
    texts = _ENDS.union(*(_FIM[role] for role in _FIM_ENDS if role not in vocabulary.special))
    by_text = {token: token_id for token_id, token in enumerate(vocabulary.tokens) if token in texts}
    roles = ("eos", "eot", "eom", *_FIM_ENDS)
    ends = {vocabulary.special[role] for role in roles if role in vocabulary.special} | set(by_text.values())
    found = {vocabulary.tokens[token_id] for token_id in ends}
    # Harmony and Solar end a message with <|end|>, and a turn with another token.
    if {"<|return|>", "<|call|>", "<|end|>"} <= found or ("<|flush|>" in found and found & {"<|call|>", "<|calls|>"}):
        ends.discard(by_text.get("<|end|>", -1))
    # Here </s> is a token like any other.
    if found & {"<|tool_response>", "<|plamo:eos|>"}:
        ends.discard(by_text.get("</s>", -1))
    return frozenset(ends)


def _wrapped(backend: Tokenizer, vocabulary: Vocabulary) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    names = {name: token for name, role in roles.items() if (token := vocabulary.role(role)) is not None}
    templates = dict(vocabulary.templates)
    return PreTrainedTokenizerFast(
        tokenizer_object=_Handover(backend),
        chat_template=templates["default"] if templates.keys() == {"default"} else templates or None,
        **names,
    )


class _Handover:
    """Hands a `tokenizers.Tokenizer` to transformers, whose constructor deep-copies what it gets.

    The copy goes through JSON, a second for Gemma's vocabulary, and nobody else holds the original.
    """

    def __init__(self, backend: Tokenizer) -> None:
        self.backend = backend

    def __deepcopy__(self, memo: object) -> Tokenizer:
        return self.backend
