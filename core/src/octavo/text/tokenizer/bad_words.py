"""Bad words: strings that no output contains, however its tokens spell them.

A word can be reached by many token sequences ("exaggerated", " exagger" + "ated", "e" + "xaggerated", …), so that it is
the text that is watched and not one encoding: an automaton over the bytes of the output (Aho and Corasick 1975) knows
which beginnings of words the output ends with, and a token is forbidden if its bytes would complete one.

For one state of the automaton these are the tokens that contain a word, whatever came before, and those that begin
with what a begun word still lacks. In the sorted vocabulary the latter are a range, so that a mask takes a few binary
searches, and it is kept for the next time the output comes by the same state.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from octavo.errors import RequestError
from octavo.platform.step import Words
from octavo.runner.masks import pack
from octavo.sampling import SamplingParams
from octavo.step_plan import TokenConstraint
from octavo.text.tokenizer.pieces import Spelling
from octavo.text.tokenizer.tokenizer import Tokenizer

_SEPARATOR = b"\xff"
"""No byte of a UTF-8 text, and so of no word."""
_KEPT_WORDS = 64
"""Sets of words that stay compiled."""
_KEPT_MASKS = 256
"""States of one set whose tokens are remembered."""

_Clear = tuple[npt.NDArray[np.intp], Words]
"""Words of a mask, and what to leave of them."""


class BadWordsState:
    """Meets `octavo.runner.TokenConstraint`: one output that is kept free of some words, and within ``inner``."""

    def __init__(self, words: WordSet, inner: TokenConstraint | None, state: int = 0) -> None:
        self._words = words
        self._inner = inner
        self._state = state

    @property
    def ends(self) -> frozenset[int]:
        """See `TokenConstraint.ends`."""
        return frozenset() if self._inner is None else self._inner.ends

    def mask(self, out: Words) -> str | None:
        """See `TokenConstraint.mask`. May leave nothing: whoever combines masks looks for that."""
        reason = None
        if self._inner is None:
            out.fill(0xFFFFFFFF)
        else:
            reason = self._inner.mask(out)
        self._words.clear(self._state, out)
        return reason

    def accept(self, token: int) -> bool:
        """See `TokenConstraint.accept`."""
        self._state = self._words.after(self._state, token)
        return self._inner is not None and self._inner.accept(token)

    def fork(self) -> BadWordsState:
        """See `TokenConstraint.fork`."""
        return BadWordsState(self._words, None if self._inner is None else self._inner.fork(), self._state)


class BadWords:
    """Compiles bad words for one model of ``vocab_size`` logits. For any thread."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._lock = threading.Lock()
        self._vocabularies: dict[bool, Vocabulary] = {}
        self._kept: OrderedDict[tuple[tuple[bytes, ...], bool], WordSet] = OrderedDict()

    def ready(self, params: SamplingParams) -> bool:
        """Whether `prepare` answers at once: a vocabulary takes up to a second the first time."""
        words = _strings(params)
        return not words or (tuple(map(_bytes, words)), params.skip_special_tokens) in self._kept

    def prepare(
        self, params: SamplingParams, inner: TokenConstraint | None
    ) -> tuple[SamplingParams, TokenConstraint | None]:
        """The parameters with token ids alone for ``bad_words``, and ``inner`` with a watch for those that are strings.

        Raises RequestError for what is no text.
        """
        words = _strings(params)
        if not words:
            return params, inner
        compiled = self._compiled(tuple(map(_bytes, words)), params.skip_special_tokens)
        ids = [*params.bad_word_ids, *self._sequences(words)]
        return replace(params, bad_words=list(dict.fromkeys(ids))), BadWordsState(compiled, inner)

    def _compiled(self, words: tuple[bytes, ...], skips_special: bool) -> WordSet:
        key = (words, skips_special)
        with self._lock:
            if key not in self._kept:
                if skips_special not in self._vocabularies:
                    pieces = contributions(self._tokenizer, self._vocab_size, skips_special=skips_special)
                    self._vocabularies[skips_special] = Vocabulary(pieces)
                self._kept[key] = WordSet(self._vocabularies[skips_special], words)
                if len(self._kept) > _KEPT_WORDS:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def _sequences(self, words: Iterable[str]) -> Iterable[tuple[int, ...]]:
        """Words as token sequences, where their text alone does not say it: names of special tokens, which have no
        text, and all words of a decoder that makes text of several tokens together.
        """
        for word in words:
            spelled = word.lstrip(" ") or word
            for space in ("", " "):
                ids = tuple(self._tokenizer.encode(space + spelled, add_special_tokens=False))
                special = not self._tokenizer.special_ids.isdisjoint(ids)
                if ids and (special if not space else self._tokenizer.pieces.spelling is Spelling.OTHER):
                    yield ids


class Vocabulary:
    """The bytes that each token adds to an output, ``pieces[id]``, in the orders in which they are looked for."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.longest = max(map(len, pieces), default=0)
        self._order = sorted(range(len(pieces)), key=pieces.__getitem__)
        self._sorted = [pieces[token] for token in self._order]
        self._text = _SEPARATOR.join(pieces)
        self._starts = np.array([0, *accumulate(len(piece) + 1 for piece in pieces)][:-1], np.int64)

    def beginning_with(self, data: bytes) -> Sequence[int]:
        """The tokens that begin with some bytes, which have no 0xFF."""
        low = bisect_left(self._sorted, data)
        return self._order[low : bisect_left(self._sorted, data[:-1] + bytes([data[-1] + 1]), low)]

    def containing(self, data: bytes) -> npt.NDArray[np.intp]:
        """The tokens that contain some bytes, which have no 0xFF."""
        pattern = re.compile(re.escape(data) + rb"[^\xff]*", re.DOTALL)  # on to the token's end: one match is enough
        found = np.array([match.start() for match in pattern.finditer(self._text)], np.int64)
        return np.searchsorted(self._starts, found, side="right") - 1


class WordSet:
    """The automaton of some words over a vocabulary. A state is a number; 0 is the beginning, and nothing begun."""

    def __init__(self, vocabulary: Vocabulary, words: Sequence[bytes]) -> None:
        self._vocabulary = vocabulary
        self._next: list[dict[int, int]] = [{}]
        self._fallback = [0]
        self._rest: list[list[bytes]] = [[]]
        """What words that are begun here still lack, where one token can bring it."""
        for word in words:
            self._add(word)
        self._waiting = [0] * len(self._next)
        """The longest proper end of a state with something in ``_rest``."""
        self._link()
        size = len(vocabulary.pieces)
        inside = {token for word in words for token in vocabulary.containing(word).tolist()}
        self._free = ~pack(inside, size)
        self._cleared: OrderedDict[int, _Clear] = OrderedDict()

    def after(self, state: int, token: int) -> int:
        """The state that a token leads to."""
        if token >= len(self._vocabulary.pieces):
            return state
        for byte in self._vocabulary.pieces[token]:
            while state and byte not in self._next[state]:
                state = self._fallback[state]
            state = self._next[state].get(byte, 0)
        return state

    def clear(self, state: int, out: Words) -> None:
        """Take from a mask the tokens that complete a word."""
        out &= self._free
        if not self._rest[state]:
            state = self._waiting[state]
        if not state:
            return
        if state not in self._cleared:
            self._cleared[state] = self._completing(state)
            if len(self._cleared) > _KEPT_MASKS:
                self._cleared.popitem(last=False)
        self._cleared.move_to_end(state)
        at, left = self._cleared[state]
        out[at] &= left

    def _completing(self, state: int) -> _Clear:
        tokens: list[int] = []
        while state:
            for rest in self._rest[state]:
                tokens += self._vocabulary.beginning_with(rest)
            state = self._waiting[state]
        words = pack(tokens, len(self._vocabulary.pieces))
        at = np.flatnonzero(words)
        return at, ~words[at]

    def _add(self, word: bytes) -> None:
        state = 0
        for depth, byte in enumerate(word, 1):
            if byte not in self._next[state]:
                self._next[state][byte] = len(self._next)
                self._next.append({})
                self._fallback.append(0)
                self._rest.append([])
            state = self._next[state][byte]
            if 0 < len(word) - depth <= self._vocabulary.longest:
                self._rest[state].append(word[depth:])

    def _link(self) -> None:
        """Breadth first: what a state falls back to is shorter than the state, and so already complete."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            shorter = self._fallback[state]
            self._waiting[state] = shorter if self._rest[shorter] else self._waiting[shorter]
            for byte, onward in self._next[state].items():
                queue.append(onward)
                at = self._fallback[state]
                while at and byte not in self._next[at]:
                    at = self._fallback[at]
                self._fallback[onward] = self._next[at].get(byte, 0)


def contributions(tokenizer: Tokenizer, vocab_size: int, *, skips_special: bool) -> list[bytes]:
    """The bytes that each token adds to the text of an output; nothing for special ones that the text leaves out.

    Of decoders that make text of several tokens together, what a token adds behind a letter stands for it.
    """
    left_out = tokenizer.special_ids if skips_special else frozenset[int]()
    if tokenizer.pieces.spelling is not Spelling.OTHER:
        return [b"" if token in left_out else tokenizer.token_bytes(token) for token in range(vocab_size)]
    before = tokenizer.encode("a", add_special_tokens=False)
    shown = tokenizer.decode(before, skip_special_tokens=False)

    def added(token: int) -> bytes:
        whole = tokenizer.decode([*before, token], skip_special_tokens=False)
        return whole[len(shown) :].encode() if whole.startswith(shown) else tokenizer.token_bytes(token)

    return [b"" if token in left_out else added(token) for token in range(vocab_size)]


def _strings(params: SamplingParams) -> list[str]:
    return [word for word in params.bad_words or () if isinstance(word, str)]


def _bytes(word: str) -> bytes:
    """A word as it is looked for: spaces before it are not part of it, unless it is nothing else."""
    try:
        return (word.lstrip(" ") or word).encode()
    except UnicodeEncodeError as error:
        raise RequestError("bad_words has a lone surrogate, which is no character", param="bad_words") from error
