"""A turn of a conversation: what Chat Completions, Responses and Messages share.

The three differ in how they are asked and how they write the answer. Between the two there is one thing: messages and
tools become a prompt, and what the engine brings is sorted into content, reasoning and tool calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from octavo.errors import RequestError
from octavo.sampling import DEFAULT_OPTIONS, RequestOptions, SamplingParams
from octavo.server.generation.backend import Choice, Output
from octavo.server.generation.choice_parts import ChoiceParts
from octavo.server.generation.constraints import constraint_of
from octavo.server.generation.content_tokens import ContentToken, ContentTokens
from octavo.server.generation.context import OverContext, fitted
from octavo.server.generation.history import for_template
from octavo.server.generation.prompts import Truncation, conversation_prompt
from octavo.server.generation.replies import Usage
from octavo.server.generation.service import Service
from octavo.server.generation.streams import CompletedChoice, Job, UsageCounter, check, generate
from octavo.server.transport.refusals import naming
from octavo.step_plan import TokenLogprobs
from octavo.text.parsing.answers import AnswerParser
from octavo.text.parsing.parts import CallArguments, CallBegins, ContentText, Part, ReasoningText, Tool
from octavo.text.parsing.tools import GENERIC, tools_in_prompt


@dataclass(frozen=True)
class TurnRequest:
    """What one turn asks."""

    messages: Sequence[Mapping[str, Any]]
    """As chat templates take them, see `octavo.server.generation.prompts.normalise_messages`."""
    params: SamplingParams
    tools: Sequence[Tool] = ()
    tool_choice: Literal["auto", "none", "required"] | Tool = "auto"
    """A tool: this one must be called."""
    parallel_tool_calls: bool = True
    """False: at most one call."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None
    """In place of the model's own."""
    truncation: Truncation | None = None
    """How to shorten a prompt that is too long; ``None``: not at all."""
    over_context: OverContext = "truncate"
    """What becomes of a ``max_tokens`` that the context has no room for."""
    field_names: Mapping[str, str] = field(default_factory=dict)
    """What the client calls the fields that errors name, see `octavo.server.transport.refusals.naming`."""
    options: RequestOptions = DEFAULT_OPTIONS


@dataclass(frozen=True)
class Piece:
    """What one choice gained."""

    choice: Choice
    """Its tokens, their logprobs, and why the engine ended it."""
    parts: Sequence[Part]
    """Its text, sorted; may lag behind the tokens."""
    finish_reason: str | None
    """None while it runs; then "stop", "length" or "tool_calls"."""
    content_tokens: Sequence[Sequence[ContentToken]] = ()
    """For each of the parts the tokens of the content that are known with it, where logprobs were asked for."""


@dataclass
class Call:
    """One finished tool call. ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: str = ""


@dataclass
class Answer:
    """One choice, put together. ``words`` is ``None`` if there are none beside the calls."""

    whole: CompletedChoice = field(default_factory=CompletedChoice)
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    content_tokens: list[ContentToken] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.whole.add(piece.choice)
        self.finish_reason = piece.finish_reason
        for tokens in piece.content_tokens:
            self.content_tokens += tokens
        for part in piece.parts:
            match part:
                case ContentText(text):
                    self.text.append(text)
                case ReasoningText(text):
                    self.reasoning.append(text)
                case CallBegins(_, call_id, name):
                    self.calls.append(Call(call_id, name))
                case CallArguments(index, json):
                    self.calls[index].arguments += json

    @property
    def words(self) -> str | None:
        """The text for the reader."""
        text = "".join(self.text)
        return None if self.calls and not text else text


def conversation(service: Service, ask: TurnRequest) -> tuple[list[dict[str, Any]], Sequence[Tool]]:
    """The messages, and the tools, that the chat template is given. Raises RequestError where it has no use for tools.

    A model whose template has no place for them is told of tools by the messages, if that is its way.
    """
    kind = service.parsers.tools
    tools = () if ask.tool_choice == "none" else ask.tools
    place = ask.chat_template is not None or service.parsers.has_place_for_tools
    if tools and (kind is None or not (place or kind.in_prompt)):
        why = "its chat template has no place for tools" if kind is not None else "it was started without a tool parser"
        raise RequestError(
            f"'tools' cannot be used with this server: {why} (--tool-parser, --chat-template).",
            param="tools",
            code="unsupported_parameter",
        )
    if kind is None or not (tools or any(_about_calls(message) for message in ask.messages)):
        return [dict(message) for message in ask.messages], tools
    if kind.in_prompt and not place:
        return tools_in_prompt(ask.messages, tools), ()
    return for_template(ask.messages, calls_as_text=kind.calls_as_text, short_ids=kind.short_ids), tools


def _about_calls(message: Mapping[str, Any]) -> bool:
    return message["role"] == "tool" or bool(message.get("tool_calls"))


class Turn:
    """One turn, ready to run once: either `running` or `whole`."""

    def __init__(
        self,
        service: Service,
        job: Job,
        tally: UsageCounter,
        parsers: Sequence[AnswerParser],
        *,
        markers: Collection[str] = (),
        one_call: bool = False,
        field_names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.job = job
        self.tally = tally
        self.prompt_logprobs: Sequence[TokenLogprobs | None] | None = None
        """Those of the prompt's tokens, once they have come, where they were asked for."""
        self._service = service
        self._parsers = parsers
        self._told = [ChoiceParts(markers, one_call=one_call) for _ in parsers]
        self._field_names = field_names
        self._tokens: list[ContentTokens] = []
        """Of each choice, where logprobs were asked for."""
        if job.params.logprobs is not None:
            tokenizer, prompt = service.backend.tokenizer, job.prompts[0]
            self._tokens = [ContentTokens(tokenizer, prompt, job.params) for _ in parsers]

    @classmethod
    async def prepare(cls, service: Service, ask: TurnRequest, response_id: str) -> Turn:
        """Render and tokenise. Raises RequestError for what cannot be asked of this model."""
        with naming(ask.field_names):
            return await cls._prepared(service, ask, response_id)

    @classmethod
    async def _prepared(cls, service: Service, ask: TurnRequest, response_id: str) -> Turn:
        parsers, params = service.parsers, ask.params
        tools = () if ask.tool_choice == "none" else ask.tools
        messages, shown = conversation(service, ask)
        prompt = await conversation_prompt(
            messages,
            service.backend.tokenizer,
            add_generation_prompt=ask.add_generation_prompt,
            continue_final_message=ask.continue_final_message,
            tools=shown,
            chat_template=ask.chat_template,
            variables=ask.template_variables,
            assistant_markers=parsers.special,
        )
        if ask.truncation is not None:
            prompt = ask.truncation.of(prompt, service.backend.max_model_len, params.max_tokens)
        params = fitted(params, len(prompt), service.backend.max_model_len, ask.over_context)
        inside = parsers.inside(prompt, ask.messages[-1]["content"] if ask.continue_final_message else None)
        kind = parsers.tools if tools else None
        must_call = isinstance(ask.tool_choice, Tool) or ask.tool_choice == "required"
        if must_call and kind is not None and kind.grammar is None:
            kind = GENERIC
        constraint = None
        if params.structured is not None or kind is not None:
            constraint = constraint_of(
                params.structured,
                [ask.tool_choice] if isinstance(ask.tool_choice, Tool) else tools,
                kind,
                parsers,
                must_call=must_call,
                several=ask.parallel_tool_calls and not isinstance(ask.tool_choice, Tool),
                inside=inside,
            )
        params = replace(
            params,
            structured=constraint,
            visible_special_ids=parsers.visible(kind),
            reasoning=parsers.marks(inside=inside),
        )
        job = Job(response_id, [prompt], params, ask.options)
        tally = UsageCounter(job, reasoning_tokens=None if parsers.reasoning is None else 0)
        opened = [
            parsers.open(kind, tools, inside=inside, skip_special_tokens=params.skip_special_tokens)
            for _ in range(params.n)
        ]
        markers, one_call = kind.markers if kind is not None else (), not ask.parallel_tool_calls
        return cls(service, job, tally, opened, markers=markers, one_call=one_call, field_names=ask.field_names)

    @property
    def usage(self) -> Usage:
        """The usage so far."""
        return self.tally.usage()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[AsyncGenerator[Output, None]]:
        """What the engine brings, each item to be given to `take`. Leaving it aborts the turn."""
        with naming(self._field_names):
            async with aclosing(generate(self._service.backend, self.job)) as stream:
                yield stream

    def take(self, item: Output) -> list[Piece]:
        """What the choices gain by an item. Raises RequestFailed for one that ended without being finished."""
        check(item)
        self.tally.count(0, item)
        if item.prompt_logprobs is not None:
            self.prompt_logprobs = item.prompt_logprobs
        return [self._piece(choice) for choice in item.outputs]

    async def whole(self) -> list[Answer]:
        """All choices, when all have finished."""
        answers = [Answer() for _ in self._parsers]
        async with self.running() as stream:
            async for item in stream:
                for piece in self.take(item):
                    answers[piece.choice.index].add(piece)
        return answers

    def _piece(self, choice: Choice) -> Piece:
        parser = self._parsers[choice.index]
        thinking = parser.thinking
        parts = parser.push(choice.text)
        if thinking or parser.thinking:  # the markers belong to the reasoning
            self.tally.count_reasoning(len(choice.token_ids))
        if choice.finish_reason is not None:
            parts += parser.finish(ended=choice.finish_reason == "stop")
        told = self._told[choice.index]
        return self._with_tokens(Piece(choice, told.told(parts, choice), told.reason(choice)))

    def _with_tokens(self, piece: Piece) -> Piece:
        """The piece with its content's tokens, where logprobs were asked for."""
        choice, last = piece.choice, piece.finish_reason is not None
        if not self._tokens:
            return piece
        tokens = self._tokens[choice.index]
        tokens.add(choice.token_ids, choice.logprobs or (), last=last)
        found = tokens.of(piece.parts, last=last)
        parts = piece.parts if len(found) == len(piece.parts) else [*piece.parts, ContentText("")]
        return replace(piece, parts=parts, content_tokens=found)
