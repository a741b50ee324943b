"""One model's tokenizer: text to ids and back, special ids, chat prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import CheckpointError, RequestError
from octavo.text.templates.chat import Message, Prepare, RunTemplate, check_template, render, run_template
from octavo.text.tokenizer.detokenizer import Detokenizer, open_text
from octavo.text.tokenizer.fim import FillInMiddle, fim_of_gguf, fim_of_vocabulary
from octavo.text.tokenizer.pieces import TOKEN_IDS, Pieces
from octavo.text.tokenizer.quiet import quiet_transformers
from octavo.text.tokenizer.special_text import SpecialText

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedTokenizerFast


_GGUF_UNUSED = 5
"""``LLAMA_TOKEN_TYPE_UNUSED``."""


class Tokenizer:
    """Wraps one fast tokenizer of transformers. May be used by several threads.

    Special tokens written out in a text ("<|im_end|>") become those tokens, as in transformers. In a conversation they
    do so where its template writes them, and stay text in messages (`octavo.text.tokenizer.special_text`).
    """

    def __init__(
        self,
        hf: PreTrainedTokenizerFast,
        end_ids: frozenset[int] = frozenset(),
        chat_template: str | None = None,
        fim: FillInMiddle | None = None,
        *,
        special_tokens_in_messages: bool = False,
        padding: frozenset[int] = frozenset(),
        literals: Mapping[int, bytes] | None = None,
    ) -> None:
        """`end_ids` end a generation besides the tokenizer's own EOS; `chat_template` replaces the checkpoint's; `fim`
        counts where the vocabulary has no fill-in-the-middle tokens of a known name. With `special_tokens_in_messages`
        messages may write special tokens, as in transformers. `padding` are ids that have a name in the vocabulary and
        are no tokens for all that. `literals` are the bytes of tokens of which the decoder would make something else.
        """
        self.hf = hf
        self._padding = padding
        self._literals = literals or {}
        self._backend: tokenizers.Tokenizer = hf.backend_tokenizer
        # A tokenizer.json may carry the truncation and padding of some training run.
        self._backend.no_truncation()
        self._backend.no_padding()
        self.bos_token_id: int | None = hf.bos_token_id
        self.eos_token_id: int | None = hf.eos_token_id
        self.pad_token_id: int | None = hf.pad_token_id
        self.eos_token_ids = end_ids if self.eos_token_id is None else end_ids | {self.eos_token_id}
        added = self._backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.vocab_size: int = self._backend.get_vocab_size(with_added_tokens=True)
        self.fim = fim_of_vocabulary(self._backend.token_to_id) or fim
        """How the model fills a gap, None if it was not made for that."""
        self._templates = {"default": chat_template} if chat_template is not None else _templates(hf.chat_template)
        # bos_token, eos_token, … as text: every chat template may use them.
        self._token_names = {name: str(token) for name, token in hf.special_tokens_map.items() if _is_token(token)}
        self.run_template: RunTemplate = run_template
        """Where chat templates run: in this process, unless whoever owns the tokenizer sets another place."""
        self._special_text = None if special_tokens_in_messages else SpecialText(self._backend, hf.unk_token_id)
        start = self._backend.encode("", add_special_tokens=True).ids
        self._adds_bos = self.bos_token_id is not None and start[:1] == [self.bos_token_id]

    @property
    def chat_template(self) -> str | None:
        """The template for conversations without tools; None for a model that has none."""
        return self._templates.get("default")

    def chat_template_for(self, *, tools: bool = False) -> str | None:
        """The template of conversations, with tools or without; None for a model that has none."""
        return (self._templates.get("tool_use") if tools else None) or self.chat_template

    def absent_ids(self, vocab_size: int) -> list[int]:
        """The ids below a model's vocabulary size that are no tokens: padding behind the last one, and gaps."""
        import numpy as np  # late: the worker that runs chat templates loads this module and none of that

        there = np.zeros(vocab_size, np.bool_)
        ids = np.fromiter(self._backend.get_vocab(with_added_tokens=True).values(), np.int64)
        there[ids[ids < vocab_size]] = True
        there[[token for token in self._padding if token < vocab_size]] = False
        absent: list[int] = np.flatnonzero(~there).tolist()
        return absent

    @cached_property
    def pieces(self) -> Pieces:
        """What each token contributes to decoded text."""
        return Pieces(self._backend, self._literals)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text. `add_special_tokens` adds what the model wants around a text: BOS for most, EOS for few.

        BOS comes once: a text that begins with it already gets no other. Raises RequestError(param="prompt") for a text
        with a lone surrogate, which is no Unicode text.
        """
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        except (TypeError, UnicodeEncodeError) as error:
            raise _not_text(text, error) from error
        if self._adds_bos and add_special_tokens and ids[:2] == [self.bos_token_id, self.bos_token_id]:
            del ids[0]
        return ids

    def encode_pair(self, text: str, pair: str | None, *, limit: int | None = None) -> tuple[list[int], list[int]]:
        """The ids of a text, or of two, with what the model wants around them, and of which text each token is (0, 1).

        With a ``limit`` the last text is cut on its right, so that all together has no more tokens. Raises
        RequestError, for texts as `encode`, and where there is no room for anything of the last one.
        """
        first, second = self._encode(text), None if pair is None else self._encode(pair)
        if limit is not None:
            room = limit - self._backend.num_special_tokens_to_add(pair is not None) - (len(first) if second else 0)
            if room < 1:
                raise RequestError(
                    f"{limit} tokens leave no room for {'the second' if pair else 'the'} text; raise "
                    "truncate_prompt_tokens",
                    param="truncate_prompt_tokens",
                )
            (second or first).truncate(room)
        whole = self._backend.post_process(first, second)
        given = self.hf.init_kwargs.get("model_input_names")  # the checkpoint's own: the class may be another's
        if isinstance(given, list) and "token_type_ids" not in given:
            return whole.ids, [0] * len(whole.ids)
        return whole.ids, whole.type_ids

    def _encode(self, text: str) -> tokenizers.Encoding:
        """A text alone, with nothing around it."""
        try:
            return self._backend.encode(text, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError) as error:
            raise _not_text(text, error) from error

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids, all at once. Ids outside the vocabulary contribute nothing; broken UTF-8 becomes U+FFFD."""
        if not self._literals.keys().isdisjoint(ids):
            text = self.detokenizer((), skip_special_tokens=skip_special_tokens)
            return text.push(ids) + text.finish()
        return self._backend.decode([i for i in ids if i in TOKEN_IDS], skip_special_tokens=skip_special_tokens)

    def decode_open(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """As `decode`, less a character that the ids begin and do not complete: see `Detokenizer`."""
        return open_text(self, ids, skip_special_tokens=skip_special_tokens)

    def detokenizer(
        self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True, visible: Iterable[int] = ()
    ) -> Detokenizer:
        """What makes text of the tokens that go on from a prompt."""
        return Detokenizer(self, prompt_ids, skip_special_tokens=skip_special_tokens, visible=visible)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for inside a text; may be a part of a character. Empty outside the vocabulary."""
        return self.pieces[token_id].data

    def token_text(self, token_id: int) -> str:
        """`token_bytes` as text, with U+FFFD where they are no whole characters."""
        return self.token_bytes(token_id).decode(errors="replace")

    def token_names(self, ids: Sequence[int]) -> list[str]:
        """Tokens as the vocabulary spells them ("Ġworld"), empty outside it."""
        return [self._backend.id_to_token(i) or "" if i in TOKEN_IDS else "" for i in ids]

    @property
    def info(self) -> dict[str, Any]:
        """What programs that tokenise and write prompts by themselves ask: special tokens, sizes, chat template."""
        return {
            "tokenizer_class": type(self.hf).__name__,
            "vocab_size": self.vocab_size,
            "add_bos_token": self._adds_bos,
            **dict.fromkeys(("bos_token", "eos_token", "pad_token")),
            **self._token_names,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": self.eos_token_id,
            "pad_token_id": self.pad_token_id,
            "chat_template": self.chat_template,
        }

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        /,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        assistant_markers: Iterable[str] = (),
        **kwargs: Any,
    ) -> list[int]:
        """The ids of a conversation, see `octavo.text.templates.chat.render`; `kwargs` are further variables.

        Exactly one BOS: the template's, or else the tokenizer's where it has one to add. Never an EOS behind. A text of
        the messages is never a special token, but for `assistant_markers` in the content of the assistant's.
        """
        mark = ""

        def prepare(variables: Mapping[str, Any]) -> Mapping[str, Any]:
            nonlocal mark
            if self._special_text is None:
                return variables
            own = {name for name, token in self._token_names.items() if variables.get(name) == token}
            marked, mark = self._special_text.marked(variables, assistant_markers, own)
            return marked

        text = self._render(
            messages,
            prepare,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            **kwargs,
        )
        try:
            if mark and self._special_text is not None:
                ids = self._special_text.encode(text, mark)
            else:
                ids = self.encode(text, add_special_tokens=False)
        except (RequestError, TypeError, UnicodeEncodeError) as error:
            raise RequestError(str(_not_text(text, error)), param="messages") from error
        if self._adds_bos and self.bos_token_id is not None and ids[:1] != [self.bos_token_id]:
            ids.insert(0, self.bos_token_id)
        return ids

    def render_chat(self, messages: Sequence[Message], /, **options: Any) -> str:
        """The text of a conversation, special tokens written out; the options of `apply_chat_template`, and
        ``chat_template`` in place of the model's. Those of the template and those of messages look alike in it.
        """
        options.pop("assistant_markers", None)
        return self._render(messages, None, **options)

    def _render(self, messages: Sequence[Message], prepare: Prepare | None, /, **options: Any) -> str:
        given = options.pop("chat_template", None)
        template = given if given is not None else self.chat_template_for(tools=bool(options.get("tools")))
        if template is None:
            raise RequestError(
                "the model has no chat template to make a prompt from messages; give one with --chat-template, or send "
                "a prompt to the completions endpoint",
                param="messages",
            )
        return render(template, messages, self.run_template, prepare, **{**self._token_names, **options})


def load_tokenizer(
    path: Path, *, chat_template: str | None = None, special_tokens_in_messages: bool = False
) -> Tokenizer:
    """The tokenizer of a model folder or a .gguf file; reads local files only and runs no code from the checkpoint.

    `chat_template` replaces the checkpoint's; for `special_tokens_in_messages` see `Tokenizer`. Raises CheckpointError
    if there is no tokenizer, or it is damaged or of an unknown kind, ConfigError for a `chat_template` that is no
    template.
    """
    if chat_template is not None:
        check_template(chat_template)
    with quiet_transformers():
        if path.is_dir():
            hf = _from_folder(path)
            hf.chat_template = _stored_template(path, hf.chat_template)
            return Tokenizer(
                hf,
                _generation_ends(path),
                chat_template,
                special_tokens_in_messages=special_tokens_in_messages,
            )
        # Late, because a model folder needs none of it.
        from octavo.models.gguf_file import GGUFFile
        from octavo.text.tokenizer.gguf import gguf_tokenizer

        metadata = GGUFFile(path).metadata
        found = gguf_tokenizer(path, metadata)
        return Tokenizer(
            found.hf,
            found.ends,
            chat_template,
            fim_of_gguf(metadata, len(found.hf)),
            special_tokens_in_messages=special_tokens_in_messages,
            padding=_gguf_padding(metadata),
            literals=found.literals,
        )


def _from_folder(path: Path) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    try:
        if (path / "tokenizer.json").is_file():
            # tokenizer.json is the whole tokenizer. AutoTokenizer would read the same, but imports torch to do so.
            return PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
        from transformers import AutoTokenizer

        hf = AutoTokenizer.from_pretrained(path, use_fast=True, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # transformers and tokenizers raise bare Exception for damaged files, among much else
        if "trust_remote_code" in str(error):
            # transformers' own cure is an argument that nobody can give here.
            raise CheckpointError(
                f"the tokenizer in {path} is Python code of the checkpoint's, which is not run; convert it to a "
                "tokenizer.json, where the model's code can be trusted, with transformers' save_pretrained"
            ) from error
        reason = " ".join(str(error).split())
        if not (path / "tokenizer.json").is_file():
            reason = (
                "the folder has no tokenizer.json; write one with transformers' save_pretrained, or add the "
                f"checkpoint's own (transformers cannot make one of what is there: {reason})"
            )
        raise CheckpointError(f"the tokenizer in {path} cannot be loaded: {reason}") from error
    if not hf.is_fast:
        raise CheckpointError(
            f"{path} has a tokenizer without a fast version ({type(hf).__name__}); convert it to a tokenizer.json"
        )
    return hf


def _gguf_padding(metadata: Mapping[str, Any]) -> frozenset[int]:
    """The ids that llama.cpp's converter made up where the model has more embeddings than its tokenizer has tokens:
    it calls them "[PAD<id>]" and unused.
    """
    names, kinds = metadata.get("tokenizer.ggml.tokens", ()), metadata.get("tokenizer.ggml.token_type", ())
    return frozenset(
        token
        for token, (name, kind) in enumerate(zip(names, kinds, strict=False))
        if kind == _GGUF_UNUSED and name == f"[PAD{token}]"
    )


def _generation_ends(folder: Path) -> frozenset[int]:
    """The ids in generation_config.json that end a generation: EOS, or a list of EOS and end of turn."""
    file = folder / "generation_config.json"
    if not file.is_file():
        return frozenset()
    try:
        ends = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
    except (ValueError, AttributeError) as error:
        raise CheckpointError(f"{file} is not a JSON object: {error}") from error
    ids = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(type(token_id) is int for token_id in ids):
        raise CheckpointError(f"{file}: eos_token_id is {ends!r}; expected a token id or a list of them")
    return frozenset(ids)


def _stored_template(folder: Path, of_tokenizer: str | dict[str, str] | None) -> str | dict[str, str] | None:
    """The templates of a folder. transformers has read ``chat_template.jinja``, ``additional_chat_templates`` and
    ``tokenizer_config.json``; before the last comes ``chat_template.json``, where processors keep theirs.
    """
    file = folder / "chat_template.json"
    if not file.is_file() or (folder / "chat_template.jinja").is_file():
        return of_tokenizer
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))["chat_template"]
        named = {one["name"]: one["template"] for one in stored} if isinstance(stored, list) else stored
        found: dict[str, str] = {"default": named} if isinstance(named, str) else dict(named)
    except (ValueError, TypeError, LookupError) as error:
        raise CheckpointError(f"{file} is not a JSON object with chat_template: {error!r}") from error
    for name, template in found.items():
        if not isinstance(template, str):
            raise CheckpointError(f"{file}: chat_template {name!r} is {type(template).__name__}; expected a string")
    return {**_templates(of_tokenizer), **found}


def _templates(template: str | dict[str, str] | None) -> dict[str, str]:
    if template is None:
        return {}
    return {"default": template} if isinstance(template, str) else template


def _is_token(value: object) -> bool:
    """False for the lists that some versions of transformers put among the named special tokens."""
    return not isinstance(value, (list, tuple, dict))


def _not_text(text: str, error: Exception) -> Exception:
    """RequestError if a lone surrogate is the reason that a text cannot be encoded; else the error itself."""
    at = next((at for at, character in enumerate(text) if "\ud800" <= character <= "\udfff"), None)
    if at is None:
        return error
    return RequestError(
        f"the prompt is not valid Unicode: a lone surrogate U+{ord(text[at]):04X} at character {at}", param="prompt"
    )
