"""The states of llguidance that say which tokens may come next: their limits, and how their errors read.

`llguidance` is imported when the first state is made, so that a process which needs none does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

_LEXER_STATES = 50_000


def compiled(grammar: str, tokenizer: LLTokenizer) -> LLMatcher:
    """The state before the first token. Errors are kept in it, see `LLMatcher.is_error`."""
    from llguidance import LLMatcher

    return LLMatcher(tokenizer, grammar, log_level=0, limits=limits())


def limits() -> LLParserLimits:
    """Of the work that one mask may take: about 15 ms."""
    from llguidance import LLParserLimits

    return LLParserLimits(max_lexer_states=_LEXER_STATES, verbose_errors=False)


def first_line(message: str) -> str:
    """What people can use of an error of llguidance's, which brings its state along."""
    return message.partition("\n<")[0].strip()[:500]
