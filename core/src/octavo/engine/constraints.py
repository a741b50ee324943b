"""What a request asks in strings of its tokens, made ready for the engine, which knows no text."""

from __future__ import annotations

from octavo.errors import RequestError
from octavo.sampling import SamplingParams
from octavo.step_plan import TokenConstraint
from octavo.text import Tokenizer
from octavo.text.grammar.grammars import Grammars
from octavo.text.tokenizer.bad_words import BadWords


class Constraints:
    """Of one model, of ``vocab_size`` logits, whose ``eos_ids`` end a sequence. For any thread.

    Compiling one takes ``seconds`` and ``memory_bytes`` at most.
    """

    def __init__(
        self, tokenizer: Tokenizer, vocab_size: int, eos_ids: frozenset[int], *, seconds: float, memory_bytes: int
    ) -> None:
        self._bad_words = BadWords(tokenizer, vocab_size)
        self._grammars = Grammars(tokenizer, vocab_size, eos_ids, seconds=seconds, memory_bytes=memory_bytes)

    def ready(self, params: SamplingParams) -> bool:
        """Whether `prepare` has nothing to compile, which takes milliseconds to seconds."""
        known = params.structured is None or self._grammars.known(params.structured)
        return known and (params.bad_words is None or self._bad_words.ready(params))

    def load(self) -> None:
        """What need be done once, and keeps the interpreter: see `Grammars.load`."""
        self._grammars.load()

    def prepare(self, params: SamplingParams) -> tuple[SamplingParams, TokenConstraint | None]:
        """The parameters with nothing but token ids in ``bad_words``, and what holds the output to ``structured`` and
        free of the words that were strings.

        Raises RequestError for what cannot be honoured.
        """
        constraint = None if params.structured is None else self._grammars.start(params.structured)
        return (params, constraint) if params.bad_words is None else self._bad_words.prepare(params, constraint)

    def close(self) -> None:
        """End the process that constraints are compiled in."""
        self._grammars.close()


class NoConstraints:
    """In place of `Constraints` where an engine is put together without its model's vocabulary."""

    def ready(self, params: SamplingParams) -> bool:
        """Nothing takes long."""
        return True

    def prepare(self, params: SamplingParams) -> tuple[SamplingParams, TokenConstraint | None]:
        """Raises RequestError for what needs a vocabulary."""
        if params.structured is not None or params.bad_words is not None:
            raise RequestError("this engine has no means for structured output and bad words")
        return params, None

    def close(self) -> None:
        """Nothing is held."""
