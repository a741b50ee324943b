"""A transformers tokenizer from the metadata of a GGUF file, without torch (which transformers' own reader needs).

The result splits text token for token like `AutoTokenizer.from_pretrained(folder, gguf_file=…)`, except that

* no token is ever added beyond the file's vocabulary (transformers adds the default special tokens of the class it
  picks where a file lacks them, with ids that the model has no embedding for);
* `tokenizer.ggml.add_space_prefix` is obeyed, and where `add_bos_token` is missing the kind of vocabulary decides, as
  in llama.cpp: Llama 3, Tekken and SentencePiece vocabularies begin with BOS;
* Llama 3 and Tekken take a word that is a token whole, as their tokenizer.json does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, processors

from octavo.errors import CheckpointError
from octavo.text.gguf_byte_level import byte_level_tokenizer, scheme_of
from octavo.text.gguf_sentencepiece import sentencepiece_tokenizer
from octavo.text.gguf_vocabulary import TokenKind, Vocabulary, read_vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_BUILDERS: dict[str, Callable[[Vocabulary], Tokenizer]] = {
    "gpt2": byte_level_tokenizer,
    "llama": sentencepiece_tokenizer,
}

# Control tokens that end a turn. Files converted before `tokenizer.ggml.eot_token_id` existed do not mark theirs; it
# counts only where the chat template writes it, so that a base model keeps to its one EOS.
_TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>", "<|eom_id|>")


def gguf_tokenizer(path: Path, metadata: Mapping[str, Any]) -> tuple[PreTrainedTokenizerFast, frozenset[int]]:
    """The tokenizer in a GGUF file's `metadata`, and the ids that end a generation (EOS, end of turn, end of message).

    Raises CheckpointError for a section that is missing or damaged, and for a kind of tokenizer that is not known.
    """
    vocabulary = read_vocabulary(path, metadata)
    builder = _BUILDERS.get(vocabulary.model)
    if builder is None:
        raise CheckpointError(
            f"{path}: tokenizer.ggml.model is {vocabulary.model!r}; supported: {', '.join(sorted(_BUILDERS))}. "
            "Use the model's safetensors folder, which carries its tokenizer.json"
        )
    backend = builder(vocabulary)
    backend.add_special_tokens(_matched_whole(backend, vocabulary, TokenKind.CONTROL))
    backend.add_tokens(_matched_whole(backend, vocabulary, TokenKind.USER_DEFINED))
    backend.post_processor = _post_processor(vocabulary)
    return _wrapped(backend, vocabulary), _end_ids(vocabulary)


def _matched_whole(backend: Tokenizer, vocabulary: Vocabulary, kind: TokenKind) -> list[AddedToken]:
    """The tokens of a kind that the backend has under their own spelling; adding any other would give it a new id."""
    special = kind is TokenKind.CONTROL
    return [
        AddedToken(token, normalized=False, special=special)
        for token in vocabulary.of_kind(kind)
        if token and backend.token_to_id(token) is not None
    ]


def _post_processor(vocabulary: Vocabulary) -> processors.TemplateProcessing:
    """What `add_special_tokens=True` adds: BOS before, EOS behind, as the file asks."""
    add_bos = vocabulary.add_bos
    if add_bos is None:
        add_bos = vocabulary.model == "llama" or scheme_of(vocabulary).add_bos
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
    ends = {vocabulary.special[role] for role in ("eos", "eot", "eom") if role in vocabulary.special}
    if "eot" not in vocabulary.special:
        template = vocabulary.templates.get("default", "")
        written = {end for end in _TURN_ENDS if end in template}
        ends |= {
            token_id
            for token_id, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=False))
            if kind == TokenKind.CONTROL and token in written
        }
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
