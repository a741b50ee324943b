"""Texts of a conversation that spell special tokens stay texts.

Whoever writes "<|im_end|>" into a message must not end it. The chat template writes the special tokens of a prompt, and
whether one stands there by the template's hand or by a message's cannot be seen in the rendered text. So the messages
are marked before they are rendered: a private-use character goes before everything in them that spells a special token,
or that the template's next words might complete to one. Behind the template the marks tell which is which, and a second
tokenizer, which shares the model of the first, reads special tokens only where they are announced. All other text is
split and merged as ever: a conversation that spells no special token does not come here, and one that does has the very
tokens that it would have if the vocabulary had no such special token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from octavo.errors import RequestError

if TYPE_CHECKING:
    import tokenizers

MARKS = range(0xE002, 0xE100)
"""Private-use characters, of which the first that a conversation does not have is its mark."""
_MARK = re.compile(f"[{chr(MARKS[0])}-{chr(MARKS[-1])}]")

_Tree: TypeAlias = dict[str, Any]
"""Texts by their characters, one after the other; "" where a text ends."""


class SpecialText:
    """The special tokens of one tokenizer, as texts spell them. May be used by several threads."""

    def __init__(self, backend: tokenizers.Tokenizer, unknown: int | None = None) -> None:
        """``unknown``: the token of what has no token, which texts may well come to."""
        self._backend = backend
        self._unknown = {unknown, _unknown_of(backend)}
        self._ids = {
            token.content: token_id
            for token_id, token in backend.get_added_tokens_decoder().items()
            if token.special and token.content
        }
        self._spelled = re.compile(_pattern(self._ids)) if self._ids else None
        self._firsts = {text[0] for text in self._ids}
        self._beginnings = {text[:end] for text in self._ids for end in range(1, len(text))}
        self._longest = max(map(len, self._ids), default=1) - 1
        self._announced = lru_cache(maxsize=4)(self._announcing)

    def marked(
        self, variables: Mapping[str, Any], assistant_markers: Iterable[str] = (), but: AbstractSet[str] = frozenset()
    ) -> tuple[Mapping[str, Any], str]:
        """A template's variables with marks, and the mark; the variables themselves and "" where none is needed.

        ``assistant_markers`` are special tokens that the content of an assistant's message may write: those that the
        model's parsers know, as reasoning is given back in there. ``but``: names of variables that are the template's
        own. Raises RequestError(param="messages") where no character is left to mark with.
        """
        texts = [text for name, value in variables.items() if name not in but for text in _texts(value)]
        if not any(map(self._needs_mark, texts)):
            return variables, ""
        used = {character for text in texts for character in _MARK.findall(text)}
        mark = next((chr(code) for code in MARKS if chr(code) not in used), "")
        if not mark:
            raise RequestError(
                f"the messages have all of the private-use characters U+{MARKS[0]:04X} to U+{MARKS[-1]:04X} beside a "
                "text that spells a special token; leave one of them out",
                param="messages",
            )
        live = frozenset(assistant_markers)
        made = {name: value if name in but else self._mark(value, mark) for name, value in variables.items()}
        if live:
            made["messages"] = [
                self._answer(message, marked, mark, live)
                for message, marked in zip(variables["messages"], made["messages"], strict=True)
            ]
        return made, mark

    def _answer(self, message: Any, marked: Any, mark: str, live: AbstractSet[str]) -> Any:
        """A message of the assistant, whose content has live markers."""
        if message.get("role") != "assistant" or not isinstance(message.get("content"), str):
            return marked
        return {**marked, "content": self._mark_text(message["content"], mark, live)}

    def _needs_mark(self, text: str) -> bool:
        return bool(self._open_end(text)) or (self._spelled is not None and self._spelled.search(text) is not None)

    def _open_end(self, text: str) -> int:
        """How many characters at the end of a text begin a special token that is not complete."""
        tail = text[-self._longest :]
        if self._firsts.isdisjoint(tail):
            return 0
        return next((len(tail) - at for at in range(len(tail)) if tail[at:] in self._beginnings), 0)

    def _mark(self, value: Any, mark: str) -> Any:
        if isinstance(value, str):
            return self._mark_text(value, mark)
        if isinstance(value, Mapping):
            return {self._mark_text(key, mark): self._mark(one, mark) for key, one in value.items()}
        return [self._mark(one, mark) for one in value] if isinstance(value, list) else value

    def _mark_text(self, text: str, mark: str, live: AbstractSet[str] = frozenset()) -> str:
        if self._spelled is None:
            return text
        end = len(text) - self._open_end(text)

        def announce(found: re.Match[str]) -> str:
            return found[0] if found[0] in live else mark + found[0]

        made = self._spelled.sub(announce, text[:end])
        return made + mark + text[end:] if end < len(text) else made

    def encode(self, text: str, mark: str) -> list[int]:
        """The ids of a rendered text in which what messages spell has marks. Raises RequestError(param="messages")
        where the vocabulary itself cannot tell the two.
        """
        assert self._spelled is not None, "nothing is marked where there are no special tokens"
        live = 0

        def settle(found: re.Match[str]) -> str:
            nonlocal live
            if found[0] == mark:
                return ""
            if found[0][0] == mark:
                return found[0][1:]
            live += 1
            return mark + found[0]

        # The first alternative is greedy for the mark, so that a token behind one is never taken for the template's.
        announced = re.sub(f"{mark}?(?:{self._spelled.pattern})|{mark}", settle, text)
        backend, known = self._announced(mark)
        ids = [known.get(token, token) for token in backend.encode(announced, add_special_tokens=False).ids]
        written = set(self._ids.values()) - self._unknown
        if sum(token in written for token in ids) > live:
            raise RequestError(
                "the messages spell a special token that the vocabulary of this model does not tell from the token "
                "itself; leave it out, or start the server with --special-tokens-in-messages",
                param="messages",
            )
        return ids

    def _announcing(self, mark: str) -> tuple[tokenizers.Tokenizer, Mapping[int, int]]:
        """A tokenizer whose special tokens have a mark before them, and the ids of its added tokens in the first."""
        from tokenizers import AddedToken, Tokenizer

        backend = Tokenizer(self._backend.model)  # shares the vocabulary, which may have a quarter of a million tokens
        if self._backend.normalizer is not None:
            backend.normalizer = self._backend.normalizer
        if self._backend.pre_tokenizer is not None:
            backend.pre_tokenizer = self._backend.pre_tokenizer
        names: dict[str, int] = {}
        plain: list[tokenizers.AddedToken] = []
        special: list[tokenizers.AddedToken] = []
        for token_id, token in self._backend.get_added_tokens_decoder().items():
            name = mark + token.content if token.special else token.content
            names[name] = token_id
            (special if token.special else plain).append(
                AddedToken(
                    name,
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=token.normalized,
                )
            )
        backend.add_tokens(plain)
        backend.add_special_tokens(special)
        known = {backend.token_to_id(name): token_id for name, token_id in names.items()}
        return backend, {here: there for here, there in known.items() if here is not None}


def _unknown_of(backend: tokenizers.Tokenizer) -> int | None:
    from tokenizers.models import BPE, WordLevel, WordPiece

    model = backend.model
    name = model.unk_token if isinstance(model, (BPE, WordLevel, WordPiece)) else None
    return None if name is None else backend.token_to_id(name)


def _texts(value: Any) -> Iterable[str]:
    """Every string in a value, keys included."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            todo += [*one, *one.values()]
        elif isinstance(one, list):
            todo += one


def _pattern(texts: Iterable[str]) -> str:
    """A regular expression for the longest of these texts that begins at a place. It shares their beginnings, so that
    thousands of tokens cost no more at a place than one.
    """
    tree: _Tree = {}
    for text in texts:
        node = tree
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}
    return _branches(tree)


def _branches(node: _Tree) -> str:
    literal = ""
    while len(node) == 1 and "" not in node:  # one way on
        [(character, node)] = node.items()
        literal += re.escape(character)
    ways = [re.escape(character) + _branches(after) for character, after in node.items() if character]
    if not ways:
        return literal
    return f"{literal}(?:{'|'.join(ways)}){'?' if '' in node else ''}"
