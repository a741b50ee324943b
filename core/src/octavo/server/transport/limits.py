"""Everything a stranger may ask of the server, bounded in one place.

`Limits` is the policy: one frozen value, each field a limit with its default. Where a limit acts:

    connections … idle_seconds         protocol.py      before there is a request
    body_bytes, body_seconds           middleware.py    while it arrives
    json_depth … schema_depth          body_limits.py   on its JSON, before anything is built from it
    grammar_*, template_*              a killable process, `octavo.sandbox.worker`
    queued_*                           the scheduler's queue
    request_seconds                    middleware.py
    reader_seconds, keep_alive_seconds protocol.py, sse.py
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any

from octavo import sampling
from octavo.errors import ConfigError

KIB, MIB, GIB = 1024, 1024**2, 1024**3
FILES_PATH = "/v1/files"

_FORM_BYTES = 64 * KIB
"""What a form has around a file."""
_UNITS = {"KiB": KIB, "MiB": MIB, "GiB": GIB}


def _limit(default: float, what: str, answer: str, *, low: float = 1, high: float = math.inf, off: bool = False) -> Any:
    """A limit of ``low`` to ``high``. ``off``: 0 is allowed too, and means that there is none."""
    return field(default=default, metadata={"what": what, "answer": answer, "low": low, "high": high, "off": off})


@dataclass(frozen=True)
class Limits:
    """The policy. Raises ConfigError for a value that cannot work."""

    connections: int = _limit(2048, "Connections at the same time", "503, Retry-After")
    headers: int = _limit(100, "Headers of a request", "431")
    header_bytes: int = _limit(64 * KIB, "Request line and headers together", "431", low=1024)
    header_seconds: float = _limit(30.0, "From the first byte of a request to the end of its headers", "408", low=0.1)
    idle_seconds: float = _limit(30.0, "Between two requests on one connection", "closed", low=0.1)
    body_bytes: int = _limit(16 * MIB, "Body of a request", "413")
    file_bytes: int = _limit(200 * MIB, "A file, which is not held in memory", "413")
    body_seconds: float = _limit(
        120.0, "From the headers to the end of the body; of a file, in proportion to `file_bytes`", "408", low=0.1
    )

    json_depth: int = _limit(64, "Nesting of a body's JSON", "400", high=500)
    text_characters: int = _limit(4_000_000, "Characters of all texts in a body together", "400")
    json_containers: int = _limit(50_000, "Arrays and objects in a body's JSON, together", "400")
    items: int = _limit(16_000, "Fields of a body; elements of a list in it, prompts and token ids apart", "400")
    prompts: int = _limit(1024, "Prompts, or inputs to embed, in one request", "400")
    sequences: int = _limit(2048, "Prompts times `n` (or `best_of`)", "400")
    n: int = _limit(128, "`n`", "400", high=sampling.MAX_N)
    best_of: int = _limit(128, "`best_of`", "400", high=sampling.MAX_N)
    logprobs: int = _limit(
        20, "`logprobs`, `top_logprobs`, `prompt_logprobs`", "400", low=0, high=sampling.MAX_LOGPROBS
    )
    logit_bias: int = _limit(1024, "Entries of `logit_bias`", "400", high=sampling.MAX_LOGIT_BIAS)
    stop_strings: int = _limit(32, "Strings in `stop` or `stop_sequences`", "400", high=sampling.MAX_STOP_STRINGS)
    bad_words: int = _limit(256, "Strings in `bad_words`", "400")
    word_characters: int = _limit(
        256, "Characters of one stop string or bad word", "400", high=sampling.MAX_STOP_LENGTH
    )
    token_ids: int = _limit(16_000, "Ids in `stop_token_ids`, `allowed_token_ids`, `logprob_token_ids`", "400")
    tools: int = _limit(128, "Entries of `tools` or `functions`", "400")
    schema_bytes: int = _limit(256 * KIB, "A JSON schema, regex, grammar or list of choices", "400")
    schema_depth: int = _limit(48, "Nesting of a JSON schema's own JSON", "400", high=500)

    grammar_seconds: float = _limit(10.0, "To compile a schema, regex or grammar", "400", low=0.01)
    grammar_memory: int = _limit(1 * GIB, "Memory to compile one", "400", low=16 * MIB)
    template_seconds: float = _limit(5.0, "To run the chat template on a conversation", "400", low=0.01)
    template_memory: int = _limit(512 * MIB, "Memory to run it", "400", low=16 * MIB)

    stored_bytes: int = _limit(10 * GIB, "All files of one owner together", "413")
    batch_lines: int = _limit(50_000, "Lines of one batch", "the batch fails")
    open_batches: int = _limit(100, "Batches of one owner that are not finished", "429")

    queued_requests: int = _limit(4096, "Requests that wait for the engine", "429, Retry-After", low=0, off=True)
    queued_tokens: int = _limit(
        4_000_000, "Tokens of the prompts that wait for the engine", "429, Retry-After", low=0, off=True
    )
    request_seconds: float = _limit(
        3600.0, "From a request's headers to the end of its answer, lines of batches apart", "504", low=0, off=True
    )
    reader_seconds: float = _limit(
        60.0, "For a client that has stopped reading to take up 1 KiB per second again", "closed", low=0.1
    )
    keep_alive_seconds: float = _limit(
        15.0, "Silence of a stream before a comment is sent, for proxies", "`: keep-alive`", low=0, off=True
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            _check(one, getattr(self, one.name))

    def body_bytes_of(self, path: str) -> int:
        """What the body of a request to ``path`` may have: files are larger than what is held in memory."""
        return self.file_bytes + _FORM_BYTES if path == FILES_PATH else self.body_bytes

    @staticmethod
    def parse(settings: Iterable[str]) -> Limits:
        """The defaults, changed by settings such as ``n=16`` and ``body_bytes=4MiB``. Raises ConfigError."""
        known = {one.name: one for one in fields(Limits)}
        values: dict[str, float] = {}
        for setting in settings:
            name, equals, value = setting.partition("=")
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
                raise ConfigError(f"there is no limit {name!r}; {hint} (--limit NAME=VALUE)")
            if not equals:
                raise ConfigError(f"the limit {name} needs a value: --limit {name}={_default(known[name])}")
            values[name] = _parsed(known[name], value)
        return Limits(**values)  # type: ignore[arg-type]


def _parsed(limit: Field[Any], text: str) -> float:
    number, unit = (text[:-3], _UNITS[text[-3:]]) if text[-3:] in _UNITS else (text, 1)
    try:
        return float(number) * unit if isinstance(limit.default, float) else int(number) * unit
    except ValueError:
        kind = "a number of seconds" if isinstance(limit.default, float) else "a whole number, or one of KiB, MiB, GiB"
        raise ConfigError(f"the limit {limit.name} is {kind}, not {text!r} (--limit {limit.name}=VALUE)") from None


def _check(limit: Field[Any], value: float) -> None:
    low, high, off = (limit.metadata[key] for key in ("low", "high", "off"))
    if not low <= value <= high or not math.isfinite(value):  # not-a-number lands here too
        most = "" if high == math.inf else f" and at most {describe(limit.name, high)}"
        zero = " (0: no limit)" if off else ""
        raise ConfigError(
            f"the limit {limit.name} must be at least {describe(limit.name, low)}{most}{zero}, "
            f"not {describe(limit.name, value)} "
            f"(--limit {limit.name}=VALUE)"
        )


def describe(name: str, value: float) -> str:
    """A limit's value as one would type it."""
    if name.endswith(("_bytes", "_memory")):
        for unit, size in reversed(_UNITS.items()):
            if value >= size and value % size == 0:
                return f"{int(value // size)}{unit}"
    return f"{value:.15g}"


def _default(limit: Field[Any]) -> str:
    default: Any = limit.default
    return describe(limit.name, default)


def table() -> Iterator[str]:
    """The limits as rows of Markdown, for docs/limits.md."""
    yield "| limit | default | bounds | a request beyond it gets |"
    yield "|---|---|---|---|"
    for one in fields(Limits):
        off = "; 0: no limit" if one.metadata["off"] else ""
        yield f"| `{one.name}` | {_default(one)} | {one.metadata['what']}{off} | {one.metadata['answer']} |"
