"""Whether a constraint can be honoured: found out in a process of its own, as whoever asks for it may have made it to
hurt.

`check` is what a `octavo.sandbox.worker.Worker` runs. A process keeps the last vocabulary that it was given, so that it
comes once and not with every question.
"""

from __future__ import annotations

import random
import time

import msgspec
import numpy as np
from llguidance import LLMatcher, LLTokenizer

from octavo.text.grammar.matcher import compiled, first_line, limits
from octavo.text.grammar.source import ll_grammar
from octavo.text.grammar.tokens import Vocabulary, ll_tokenizer

_TRIED_TOKENS = 8
_TRIED_SECONDS = 0.5
"""Of the processor's time, for as many tokens: an engine that serves others too must not wait longer."""


class Question(msgspec.Struct):
    """Can this constraint be honoured? ``tokens`` and what follows are given if the process lacks ``vocabulary``."""

    vocabulary: str
    kind: str
    source: str
    tokens: list[bytes] | None = None
    special: list[int] = []
    ends: list[int] = []


class Answer(msgspec.Struct):
    """The grammar, or why there is none; neither if the vocabulary must be sent along."""

    grammar: str | None = None
    refused: str | None = None


class _Kept:
    digest = ""
    tokenizer: LLTokenizer
    vocabulary: Vocabulary


def check(payload: bytes) -> bytes:
    """A `Question` to its `Answer`, both as msgpack."""
    question = msgspec.msgpack.decode(payload, type=Question)
    if question.tokens is not None:
        _Kept.vocabulary = Vocabulary(tuple(question.tokens), tuple(question.special), tuple(question.ends))
        _Kept.tokenizer = ll_tokenizer(_Kept.vocabulary, fast=False)
        _Kept.digest = question.vocabulary
    if question.vocabulary != _Kept.digest:
        return msgspec.msgpack.encode(Answer())
    try:
        grammar = ll_grammar(question.kind, question.source, _Kept.vocabulary.names)
        answer = Answer(grammar, _flaw(grammar, _Kept.tokenizer))
    except ValueError as error:  # BadConstraint, and what llguidance says of malformed JSON
        answer = Answer(refused=str(error))
    return msgspec.msgpack.encode(answer)


def _flaw(grammar: str, tokenizer: LLTokenizer) -> str | None:
    """What is wrong with a grammar."""
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar, tokenizer, limits=limits())
    if failed or messages:  # a warning is something that would be ignored
        return first_line(messages[0])
    matcher = compiled(grammar, tokenizer)
    begun, draw = time.thread_time(), random.Random(0)
    for token in range(_TRIED_TOKENS):
        allowed = _tokens(matcher.compute_bitmask())
        if not matcher.is_error() and allowed:
            matcher.consume_token(draw.choice(allowed))
        if matcher.is_error():
            empty = token == 0 and "NoExtension" in matcher.get_error()
            return "no output can satisfy this constraint" if empty else first_line(matcher.get_error())
        if time.thread_time() - begun > _TRIED_SECONDS:
            return "its masks take too long to compute; make it simpler"
        if matcher.is_stopped():
            break
    return None


def _tokens(mask: bytes) -> list[int]:
    bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()
