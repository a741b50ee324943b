"""Pieces of a turn to a message of the Messages API, whole or as events."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Any

import pydantic_core
from msgspec import UNSET

from octavo.server.generation.turn import Piece, Turn
from octavo.server.messages.replies import (
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    Event,
    InputJsonDelta,
    Message,
    MessageDelta,
    MessageStart,
    MessageStop,
    OutputTokensDetails,
    Ping,
    SignatureDelta,
    StopDelta,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    Usage,
)
from octavo.server.messages.turn_request import Thinking
from octavo.server.transport.sse import event
from octavo.text.parsing.parts import CallArguments, CallBegins, CallCut, ContentText, Part, ReasoningText

_INVALID = "INVALID_JSON"


@dataclass
class MessageWriter:
    """Writes the answer of one turn."""

    turn: Turn
    id: str
    model: str
    max_tokens: int
    thinking: Thinking

    async def whole(self) -> Message:
        """The message in one piece."""
        blocks: list[Block] = []
        arguments: dict[int, str] = {}
        last: Piece | None = None
        async with self.turn.running() as stream:
            async for item in stream:
                pieces = self.turn.take(item)
                for last in pieces:
                    for part in self._shown(last.parts):
                        _grow(blocks, arguments, part)
        calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
        for at, call in enumerate(calls):
            call.input = read_input(arguments[at])
        for block in blocks:
            if isinstance(block, ThinkingBlock):
                self._sign(block)
        stop = self._stop(last)
        return Message(
            id=self.id,
            model=self.model,
            content=blocks,
            stop_reason=stop.stop_reason,
            stop_sequence=stop.stop_sequence,
            usage=self._usage(),
        )

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The message as events, in the order that the official client puts together again."""
        blocks = _OpenBlocks(self.thinking.text)
        begun = False
        last: Piece | None = None
        async with self.turn.running() as stream:
            async for item in stream:
                pieces = self.turn.take(item)
                told: list[Event] = []
                if not begun:
                    start = Message(id=self.id, model=self.model, content=[], usage=self._usage(output=0))
                    told += [MessageStart(start), Ping()]
                    begun = True
                for last in pieces:
                    for part in self._shown(last.parts):
                        told += blocks.take(part)
                if told:
                    yield b"".join(map(_event, told))
        ending = [*blocks.close(), MessageDelta(self._stop(last), self._usage()), MessageStop()]
        yield b"".join(map(_event, ending))

    def _shown(self, parts: Iterable[Part]) -> list[Part]:
        """What the client is told of, neighbours of one kind joined: each is an event."""
        shown: list[Part] = []
        for part in parts:
            last = shown[-1] if shown else None
            match part:
                case ReasoningText() if not self.thinking.wanted:
                    pass
                case ContentText(text) if isinstance(last, ContentText):
                    shown[-1] = ContentText(last.text + text)
                case ReasoningText(text) if isinstance(last, ReasoningText):
                    shown[-1] = ReasoningText(last.text + text)
                case CallArguments(index, json) if isinstance(last, CallArguments) and last.index == index:
                    shown[-1] = CallArguments(index, last.json + json)
                case _:
                    shown.append(part)
        return shown

    def _sign(self, block: ThinkingBlock) -> None:
        block.signature = _signature(block.thinking)
        if not self.thinking.text:
            block.thinking = ""

    def _stop(self, last: Piece | None) -> StopDelta:
        assert last is not None  # a turn has at least the piece that ends it
        reason, stop = last.finish_reason, last.choice.stop_reason
        if reason == "tool_calls":
            return StopDelta("tool_use", None)
        if reason == "length":
            full = self.turn.tally.completion_tokens < self.max_tokens
            return StopDelta("model_context_window_exceeded" if full else "max_tokens", None)
        return StopDelta("stop_sequence", stop) if isinstance(stop, str) else StopDelta("end_turn", None)

    def _usage(self, output: int | None = None) -> Usage:
        usage = self.turn.usage
        cached, details = usage.prompt_tokens_details.cached_tokens, usage.completion_tokens_details
        told = UNSET if details is UNSET else OutputTokensDetails(details.reasoning_tokens)
        return Usage(
            input_tokens=usage.prompt_tokens - cached,
            cache_read_input_tokens=cached,
            output_tokens=usage.completion_tokens if output is None else output,
            output_tokens_details=told if output is None else UNSET,
        )


def _event(value: Event) -> bytes:
    return event(value, str(value.__struct_config__.tag))


def _signature(reasoning: str) -> str:
    """Looks like one, and tells the reasoning of one block from those of another."""
    return base64.b64encode(hashlib.sha256(reasoning.encode(errors="surrogatepass")).digest()).decode()


def read_input(arguments: str) -> dict[str, Any]:
    """A call's input: of one that was cut off the values that came whole, as the official client reads a stream; what
    is no JSON object goes under the name by which Anthropic's documentation hands such text on.
    """
    if not arguments.strip():
        return {}
    try:
        value = pydantic_core.from_json(arguments, allow_partial=True)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {_INVALID: arguments}


def _grow(blocks: list[Block], arguments: dict[int, str], part: Part) -> None:
    """Append a part; neighbours of one kind are one block."""
    last = blocks[-1] if blocks else None
    match part:
        case ContentText(text) if isinstance(last, TextBlock):
            last.text += text
        case ContentText(text):
            blocks.append(TextBlock(text))
        case ReasoningText(text) if isinstance(last, ThinkingBlock):
            last.thinking += text
        case ReasoningText(text):
            blocks.append(ThinkingBlock(text))
        case CallBegins(index, call_id, name):
            arguments[index] = ""
            blocks.append(ToolUseBlock(call_id, name))
        case CallArguments(index, json):
            arguments[index] += json


@dataclass
class _OpenBlocks:
    """The blocks of a stream. Open is one of content or reasoning, and one call, which reasoning may interrupt."""

    tell_thoughts: bool
    begun: int = 0
    """How many there were."""
    spoken: tuple[int, type[Part]] | None = None
    """The open block of content or reasoning, and of which."""
    call: int | None = None
    """The open block of a call."""
    reasoning: list[str] = field(default_factory=list)
    """Of the open block."""

    def take(self, part: Part) -> list[Event]:
        """The events of a part."""
        match part:
            case ContentText(text):
                events = [*self._end_call(), *self._speak(ContentText, TextBlock(""))]
                return [*events, BlockDelta(self.begun - 1, TextDelta(text))]
            case ReasoningText(text):
                events = self._speak(ReasoningText, ThinkingBlock(""))
                self.reasoning.append(text)
                return [*events, *([BlockDelta(self.begun - 1, ThinkingDelta(text))] if self.tell_thoughts else [])]
            case CallBegins(_, call_id, name):
                events = [*self.close(), *self._begin(ToolUseBlock(call_id, name))]
                self.call = self.begun - 1
                return [*events, BlockDelta(self.call, InputJsonDelta(""))]
            case CallArguments(_, json):
                assert self.call is not None  # arguments come before words or another call
                return [BlockDelta(self.call, InputJsonDelta(json))] if json else []
            case CallCut():
                return []  # the stop reason says so

    def close(self) -> list[Event]:
        """End what is open."""
        return [*self._end_call(), *self._end_speech()]

    def _begin(self, block: Block) -> list[Event]:
        self.begun += 1
        return [BlockStart(self.begun - 1, block)]

    def _speak(self, kind: type[Part], block: Block) -> list[Event]:
        if self.spoken is not None and self.spoken[1] is kind:
            return []
        events = [*self._end_speech(), *self._begin(block)]
        self.spoken = (self.begun - 1, kind)
        return events

    def _end_call(self) -> list[Event]:
        index, self.call = self.call, None
        return [] if index is None else [BlockStop(index)]

    def _end_speech(self) -> list[Event]:
        if self.spoken is None:
            return []
        (index, kind), self.spoken = self.spoken, None
        signed: list[Event] = []
        if kind is ReasoningText:
            signed.append(BlockDelta(index, SignatureDelta(_signature("".join(self.reasoning)))))
            self.reasoning.clear()
        return [*signed, BlockStop(index)]
