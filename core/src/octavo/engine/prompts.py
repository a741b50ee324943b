"""What a caller may give as a prompt, and the token ids it comes to. The server has its own forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, TypeAlias

from octavo.errors import RequestError
from octavo.text import Tokenizer

Prompt: TypeAlias = str | Mapping[str, Any] | Sequence[int]
"""A text, ``{"prompt": text}``, ``{"prompt_token_ids": ids}``, or the ids themselves."""

_KEYS = ("prompt", "prompt_token_ids")


def prompt_ids(prompt: Prompt, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The token ids of one prompt; whether the model has them, the engine says. Ids go before a text given with them.

    Raises RequestError for anything that is no `Prompt`, and for a key that asks for more than that.
    """
    if isinstance(prompt, Mapping):
        for key, value in prompt.items():
            if key not in _KEYS and value is not None:
                raise RequestError(f"a prompt has {' or '.join(_KEYS)}, not {key!r}", param="prompt")
        given = prompt.get("prompt_token_ids")
        return prompt_ids(prompt.get("prompt") if given is None else given, tokenizer)  # type: ignore[arg-type]
    if isinstance(prompt, str):
        return tuple(tokenizer.encode(prompt))
    if isinstance(prompt, bytes) or not hasattr(prompt, "__iter__"):
        raise RequestError(
            f"a prompt is a string, a list of token ids, or a mapping with {' or '.join(_KEYS)}, "
            f"not {_name_of(prompt)}",
            param="prompt",
        )
    ids: tuple[object, ...] = tuple(prompt)
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, Integral):  # NumPy's integers are Integral too
            raise RequestError(f"the prompt has {token!r:.40} where a token id belongs", param="prompt")
    return tuple(int(token) for token in ids)  # type: ignore[call-overload]


def prompt_text(prompt: Prompt) -> str | None:
    """The text of a prompt, ``None`` where only ids were given."""
    text = prompt.get("prompt") if isinstance(prompt, Mapping) else prompt
    return text if isinstance(text, str) else None


def as_batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or many as a list: a sequence that starts with a token id is one prompt. Raises RequestError."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    if isinstance(prompts, bytes) or not hasattr(prompts, "__iter__"):
        raise RequestError(f"prompts are a prompt or a list of them, not {_name_of(prompts)}", param="prompt")
    batch: list[Any] = list(prompts)
    return [batch] if batch and isinstance(batch[0], Integral) else batch


def _name_of(value: object) -> str:
    return "None" if value is None else f"{value!r:.40}"
