"""Requests and replies of the APIs of models that make vectors and scores: OpenAI's embeddings, vLLM's score, and the
rerank that Jina and Cohere have. Types are strict, null means absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from octavo.sampling import RequestOptions
from octavo.server.generation.schema import PROMPTS
from octavo.server.transport.fields import UnsupportedField, only

_STRING = {"type": "string"}
_NULL = {"type": "null"}
_INPUT = {"title": "Input", "anyOf": [*PROMPTS, _NULL]}
_SIDE = {"title": "Side", "anyOf": [_STRING, {"type": "array", "items": _STRING}, _NULL]}
_DOCUMENT = {"type": "object", "properties": {"text": _STRING}, "required": ["text"]}
_DOCUMENTS = {"title": "Documents", "type": "array", "minItems": 1, "items": {"anyOf": [_STRING, _DOCUMENT]}}


class PoolingFields(BaseModel):
    """The fields that all of them share."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    user: str | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1)] | None = None
    """Cut longer prompts to so many tokens; -1: to what the model reads."""
    use_activation: bool | None = None
    """Whether embeddings get length 1, and scores go through the model's sigmoid."""
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^@/\\\x00]+$")] | None = None
    request_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,128}$")] | None = None

    @property
    def options(self) -> RequestOptions:
        """What it asks beside its sampling."""
        return RequestOptions(self.priority or 0, self.cache_salt or "")


class EmbeddingRequest(PoolingFields):
    """POST /v1/embeddings. ``input`` is one of four shapes, as a completion's prompt; or ``messages`` are given."""

    input: Annotated[Any, WithJsonSchema(_INPUT)] = None
    messages: list[dict[str, Any]] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    normalize: bool | None = None
    """The older name of use_activation."""
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class ScoreRequest(PoolingFields):
    """POST /v1/score: two texts, or one and many, or pair by pair, by any of three pairs of names."""

    text_1: Annotated[Any, WithJsonSchema(_SIDE)] = None
    text_2: Annotated[Any, WithJsonSchema(_SIDE)] = None
    data_1: Annotated[Any, WithJsonSchema(_SIDE)] = None
    data_2: Annotated[Any, WithJsonSchema(_SIDE)] = None
    queries: Annotated[Any, WithJsonSchema(_SIDE)] = None
    documents: Annotated[Any, WithJsonSchema(_SIDE)] = None


class RerankRequest(PoolingFields):
    """POST /v1/rerank."""

    query: str
    documents: Annotated[list[Any], WithJsonSchema(_DOCUMENTS)]
    top_n: Annotated[int, Field(ge=0)] | None = None
    """So many of the best; all without it."""
    return_documents: bool | None = None


POOLING_UNSUPPORTED: Mapping[str, UnsupportedField] = {
    "embed_dtype": UnsupportedField(only("float32", "float"), "Embeddings are float32."),
    "endianness": UnsupportedField(only("native", "little"), "base64 holds little-endian numbers."),
    "chat_template": UnsupportedField(instead="Templates of clients are not run; the model's own is used."),
    "mm_processor_kwargs": UnsupportedField(instead="Only text is supported."),
    "truncation_side": UnsupportedField(only("right"), "Texts are cut on their right."),
    "max_tokens_per_doc": UnsupportedField(instead="truncate_prompt_tokens cuts query and document together."),
}


class PoolingUsage(Struct):
    """Tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class Embedding(Struct, kw_only=True):
    """One vector: numbers, or the base64 of float32 in little-endian order."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingList(Struct, kw_only=True):
    """Answer of POST /v1/embeddings."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: PoolingUsage


class Score(Struct, kw_only=True):
    """How well one pair fits."""

    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreList(Struct, kw_only=True):
    """Answer of POST /v1/score."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Score]
    usage: PoolingUsage


class RankedDocument(Struct):
    """A document's text."""

    text: str


class Ranked(Struct, kw_only=True):
    """One document among the best."""

    index: int
    relevance_score: float
    document: RankedDocument | UnsetType = UNSET


class Ranking(Struct, kw_only=True):
    """Answer of POST /v1/rerank, the best first."""

    id: str
    model: str
    usage: PoolingUsage
    results: list[Ranked]
