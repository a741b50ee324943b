"""Structured output: constraints compiled to states that say, token by token, what may come next.

A constraint is first tried in a process that can be killed (`octavo.text.grammar.check`); what passed there compiles
here in the same short time. Compiled constraints are kept for the next request that asks for the same.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from octavo.errors import RequestError, WorkerFailed, WorkerTimeout
from octavo.platform.step import Words
from octavo.sandbox import Worker
from octavo.structured_output import StructuredOutput
from octavo.text.grammar.matcher import compiled, first_line
from octavo.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from octavo.text.grammar.check import Answer
    from octavo.text.grammar.tokens import Vocabulary

COMPILE_SECONDS = 10.0
COMPILE_BYTES = 2**30
CACHE_BYTES = 64 * 2**20
_OWN_BYTES = 128 * 1024
"""What a compiled constraint takes at least, by estimate; states that its lexer comes by later are not counted."""
_BYTES_PER_BYTE = 32
"""What a compiled constraint takes for each byte of its grammar, by estimate."""


class GrammarState:
    """Meets `octavo.runner.TokenConstraint`: where one sequence is in its grammar."""

    def __init__(self, matcher: LLMatcher, ends: frozenset[int]) -> None:
        self._matcher = matcher
        self.ends = ends

    def mask(self, out: Words) -> str | None:
        """See `TokenConstraint.mask`."""
        self._matcher.unsafe_compute_mask_ptr(out.ctypes.data, out.nbytes)
        if not self._matcher.is_error():
            return None
        message = self._matcher.get_error()
        if "NoExtension" in message:
            return "its structured output lets nothing follow here, and is not complete"
        return f"its structured output became too complex: {first_line(message)}"

    def accept(self, token: int) -> bool:
        """See `TokenConstraint.accept`. A token that is not taken shows in the next `mask`."""
        return self._matcher.consume_token(token) and self._matcher.is_stopped() and not self._matcher.is_error()

    def fork(self) -> GrammarState:
        """See `TokenConstraint.fork`."""
        return GrammarState(self._matcher.deep_copy(), self.ends)


class Grammars:
    """Compiles constraints for one model, of ``vocab_size`` logits, whose ``ends`` end a sequence. For any thread.

    What is compiled is kept until ``cache_bytes`` are full, by estimate; what was refused too.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        ends: frozenset[int],
        *,
        cache_bytes: int = CACHE_BYTES,
        seconds: float = COMPILE_SECONDS,
        memory_bytes: int = COMPILE_BYTES,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._ends = ends
        self._cache_bytes = cache_bytes
        self._lock = threading.Lock()
        """Over what is kept and what is being compiled."""
        self._loading = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[GrammarState | str, int]] = OrderedDict()
        self._kept_bytes = 0
        self._compiling: dict[tuple[str, str], Future[GrammarState | str]] = {}
        self._worker = Worker("octavo.text.grammar.check:check", seconds=seconds, memory_bytes=memory_bytes)

    def known(self, asked: StructuredOutput) -> bool:
        """Whether `start` answers at once."""
        with self._lock:
            return _key(asked) in self._kept

    def start(self, asked: StructuredOutput) -> GrammarState:
        """The state before a sequence's first token. Blocks while the constraint is compiled.

        Raises RequestError if it cannot be honoured, or not within the limits.
        """
        key = _key(asked)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return _state(self._kept[key][0], asked)
            mine = key not in self._compiling
            waiting = self._compiling.setdefault(key, Future())
        if mine:
            try:
                outcome = self._compile(asked)
            except BaseException as error:
                with self._lock:
                    del self._compiling[key]
                waiting.set_exception(error)
                raise
            self._keep(key, outcome)
            waiting.set_result(outcome)
        return _state(waiting.result(), asked)

    def load(self) -> None:
        """Bring the vocabulary into llguidance's representation, which holds the interpreter lock for a tenth of a
        second to two.

        Else the first `start` does it, and whatever else the process serves waits.
        """
        with (
            contextlib.suppress(RequestError),
            self._loading,
        ):  # a vocabulary that is refused is so when it is asked for
            _ = self._ll_tokenizer

    def close(self) -> None:
        """End the process that constraints are tried in."""
        self._worker.close()

    def _keep(self, key: tuple[str, str], outcome: GrammarState | str) -> None:
        size = len(key[1]) + (len(outcome) if isinstance(outcome, str) else _OWN_BYTES + _BYTES_PER_BYTE * len(key[1]))
        with self._lock:
            del self._compiling[key]
            self._kept[key] = outcome, size
            self._kept_bytes += size
            while self._kept_bytes > self._cache_bytes and len(self._kept) > 1:
                self._kept_bytes -= self._kept.popitem(last=False)[1][1]

    def _compile(self, asked: StructuredOutput) -> GrammarState | str:
        """The state, or why there is none."""
        try:
            with self._loading:  # once, however many wait for it
                tokenizer = self._ll_tokenizer
            grammar = self._checked(asked)
        except RequestError as error:
            return str(error)
        except WorkerTimeout:
            return f"it takes more than {self._worker.seconds:g} s to compile; make it simpler"
        except WorkerFailed as error:
            return f"it could not be compiled: {error}"
        if grammar.refused is not None:
            return grammar.refused
        assert grammar.grammar is not None, "a constraint that is not refused has a grammar"
        matcher = compiled(grammar.grammar, tokenizer)
        matcher.compute_bitmask()  # and what a first mask takes is there for all
        if matcher.is_error():
            return first_line(matcher.get_error())
        return GrammarState(matcher, frozenset(self._vocabulary.ends))

    def _checked(self, asked: StructuredOutput) -> Answer:
        from octavo.text.grammar.check import Answer, Question

        vocabulary = self._vocabulary
        question = Question(self._digest, asked.kind, asked.source)
        for _ in range(2):
            answer = msgspec.msgpack.decode(self._worker.call(msgspec.msgpack.encode(question)), type=Answer)
            if answer.grammar is not None or answer.refused is not None:
                return answer
            question.tokens = list(vocabulary.tokens)
            question.special, question.ends = list(vocabulary.special), list(vocabulary.ends)
        raise WorkerFailed("the process that compiles forgot the vocabulary")

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        from octavo.text.grammar.tokens import vocabulary_of

        return vocabulary_of(self._tokenizer, self._vocab_size, self._ends)

    @cached_property
    def _digest(self) -> str:
        return self._vocabulary.digest

    @cached_property
    def _ll_tokenizer(self) -> LLTokenizer:
        from octavo.text.grammar.tokens import ll_tokenizer

        return ll_tokenizer(self._vocabulary, lambda text: self._tokenizer.encode(text, add_special_tokens=False))


def _key(asked: StructuredOutput) -> tuple[str, str]:
    return asked.kind, asked.source


def _state(outcome: GrammarState | str, asked: StructuredOutput) -> GrammarState:
    if isinstance(outcome, str):
        raise RequestError(f"{asked.kind} cannot be honoured: {outcome}", param=asked.param, code="invalid_value")
    return outcome.fork()
