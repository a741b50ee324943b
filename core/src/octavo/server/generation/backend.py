"""What the server needs of an engine. ``octavo.engine.async_llm.AsyncLLM`` is one; a test's fake is another."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

from octavo.pooling import PoolingParams, Vector
from octavo.sampling import DEFAULT_OPTIONS, RequestOptions, SamplingParams
from octavo.step_plan import TokenLogprobs
from octavo.text.tokenizer.fim import FillInMiddle


class TextStream(Protocol):
    """Tokens in, text out: ``octavo.text.tokenizer.detokenizer.Detokenizer``."""

    def push(self, ids: Sequence[int]) -> str:
        """The text that these tokens settle; empty while a character is incomplete."""

    def finish(self) -> str:
        """The rest, when no more tokens come."""


class TextTokenizer(Protocol):
    """The part of ``octavo.text.tokenizer.tokenizer.Tokenizer`` that the server calls, also from worker threads."""

    @property
    def special_ids(self) -> AbstractSet[int]:
        """Ids that ``skip_special_tokens`` leaves out of the text."""

    @property
    def vocab_size(self) -> int:
        """Ids from 0 to below this are tokens."""

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text, if there is one."""

    @property
    def fim(self) -> FillInMiddle | None:
        """How the model fills a gap, None if it was not made for that."""

    @property
    def info(self) -> Mapping[str, Any]:
        """JSON values on the tokenizer: its special tokens, ``vocab_size``, ``chat_template`` and more."""

    def chat_template_for(self, *, tools: bool = False) -> str | None:
        """The template of conversations, with tools or without; None for a model that has none."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""

    def encode_pair(self, text: str, pair: str | None, *, limit: int | None = None) -> tuple[list[int], list[int]]:
        """Token ids of one text or of two together, at most ``limit``, and of which text each is."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids."""

    def decode_open(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """As ``decode``, less a character that the ids begin and do not complete."""

    def detokenizer(
        self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True, visible: Iterable[int] = ()
    ) -> TextStream:
        """What makes text of the tokens that go on from a prompt. A character that the prompt begins is theirs."""

    def token_bytes(self, token_id: int, /) -> bytes:
        """The bytes that one token stands for; not always whole characters."""

    def token_names(self, ids: Sequence[int]) -> list[str]:
        """Tokens as the vocabulary spells them, empty outside it."""

    def render_chat(self, messages: Sequence[Mapping[str, Any]], /, **options: Any) -> str:
        """The text of a conversation; options and errors of ``apply_chat_template``."""

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> list[int]:
        """The prompt of a conversation. Raises RequestError(param="messages") when the template rejects it."""


class Choice(Protocol):
    """What one of a request's n sequences gained since the last item."""

    @property
    def index(self) -> int:
        """Which of the n sequences, from 0."""

    @property
    def text(self) -> str:
        """New text; may be empty while a character or a stop string is incomplete."""

    @property
    def token_ids(self) -> Sequence[int]:
        """New tokens."""

    @property
    def logprobs(self) -> Sequence[TokenLogprobs] | None:
        """One entry per new token where logprobs were asked for, else None."""

    @property
    def finish_reason(self) -> str | None:
        """None while it runs; then "stop", "length", "abort" or "error"."""

    @property
    def stop_reason(self) -> int | str | None:
        """The stop string or stop token id that ended it, None for the end-of-sequence token."""


class Output(Protocol):
    """One item of a request's stream."""

    @property
    def outputs(self) -> Sequence[Choice]:
        """The sequences that changed."""

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that came from the prefix cache, the same in every item."""

    @property
    def prompt_logprobs(self) -> Sequence[TokenLogprobs | None] | None:
        """For each prompt token its logprobs (None for the first), in one item at or before the first
        output, where the request asked for them; None in all other items.
        """

    @property
    def left_engine(self) -> float | None:
        """When the engine let go of these tokens (``time.monotonic``); None where it does not tell."""


class Backend(Protocol):
    """An engine, as the server drives it. Every method is called on the server's event loop."""

    @property
    def model_names(self) -> Sequence[str]:
        """Names the model is served under; the first is the default."""

    @property
    def tasks(self) -> AbstractSet[str]:
        """What the model answers: of "generate", "embed" and "score"."""

    @property
    def pairs(self) -> bool:
        """Whether it scores two texts that it reads together; an embedding model scores them by their cosine."""

    @property
    def tokenizer(self) -> TextTokenizer:
        """The model's tokenizer."""

    @property
    def max_model_len(self) -> int:
        """Tokens of prompt plus output at most."""

    @property
    def default_params(self) -> Mapping[str, Any]:
        """Fields of the checkpoint's generation_config; what a request leaves out comes from here."""

    def generate(
        self,
        prompt: Sequence[int],
        sampling_params: SamplingParams,
        *,
        request_id: str,
        options: RequestOptions = DEFAULT_OPTIONS,
    ) -> AsyncGenerator[Output, None]:
        """Stream what the request brings, as deltas, until every sequence has a finish_reason.

        ``request_id`` must be unique among running requests. Raises RequestError before the first item
        when the request cannot be served, and later when it lets no token come next; RequestFailed when
        an exception ended it, EngineDead when the engine stopped. Closing or cancelling the generator
        aborts the request and frees its blocks.
        """

    async def embed(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        request_id: str,
        pooling: PoolingParams,
        token_types: Sequence[Sequence[int]] | None = None,
        options: RequestOptions = DEFAULT_OPTIONS,
    ) -> list[Vector]:
        """The vector of each prompt; of a model that reads pairs its score, as a vector of one number.

        ``token_types`` says then of which text each token is. Raises as `generate` does; cancelling it aborts what has
        not run.
        """

    async def health(self) -> None:
        """Return if the engine serves; raises EngineDead otherwise."""

    async def close(self) -> None:
        """Stop the engine; called once, after the last request."""
