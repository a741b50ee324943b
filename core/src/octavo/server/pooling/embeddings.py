"""POST /v1/embeddings."""

from __future__ import annotations

import base64

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.pooling import PoolingParams, Vector
from octavo.server.generation.params import served_name
from octavo.server.generation.prompts import conversation_prompt, normalise_messages, off_loop, split_prompts
from octavo.server.generation.service import Service, json_response
from octavo.server.generation.template_variables import template_variables
from octavo.server.pooling.schema import POOLING_UNSUPPORTED, Embedding, EmbeddingList, EmbeddingRequest
from octavo.server.pooling.vectors import Asked, characters_of, tokens_of
from octavo.server.routing.failures import TURN
from octavo.server.routing.route import route
from octavo.server.transport.body import read_body


class EmbeddingsApi:
    """The Embeddings API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @route(
        "POST", "/v1/embeddings", "Compute embeddings of texts",
        body=EmbeddingRequest, reply=EmbeddingList, errors=TURN,
    )  # fmt: skip
    async def create_embedding(self, request: Request) -> Response:
        service = self._service
        service.require("embed", _instead(service))
        body = await read_body(request, EmbeddingRequest, POOLING_UNSUPPORTED)
        model = served_name(body.model, service.backend.model_names)
        asked = Asked(service, request, body, "embd", "messages" if body.messages else "input")
        prompts = await _prompts(asked, body)
        activation = body.normalize if body.use_activation is None else body.use_activation
        vectors = await asked.vectors(prompts, PoolingParams(body.dimensions, activation))
        as_text = body.encoding_format == "base64"
        data = [
            Embedding(index=i, embedding=_base64(vector) if as_text else vector.tolist())
            for i, vector in enumerate(vectors)
        ]
        return json_response(EmbeddingList(data=data, model=model, usage=tokens_of(prompts)))


def _instead(service: Service) -> str:
    if service.backend.pairs:
        return "scores pairs of texts and makes no embeddings: ask /v1/score or /v1/rerank"
    return "generates text and makes no embeddings: serve an embedding model, or start this one with --task embed"


async def _prompts(asked: Asked, body: EmbeddingRequest) -> list[list[int]]:
    tokenizer, limit = asked.service.backend.tokenizer, asked.limit
    if (body.input is None) == (body.messages is None):
        given = "neither 'input' nor 'messages'" if body.input is None else "both 'input' and 'messages'"
        raise RequestError(f"The request has {given}; send one of them.", param="input", code="invalid_value")
    if body.messages is not None:
        ids = await conversation_prompt(
            normalise_messages(body.messages),
            tokenizer,
            add_generation_prompt=bool(body.add_generation_prompt),
            continue_final_message=bool(body.continue_final_message),
            variables=template_variables(body.chat_template_kwargs),
        )
        return [ids[:limit]]
    inputs = split_prompts(body.input, "input")
    special = body.add_special_tokens is not False

    def encode(text: str) -> list[int]:
        if special and limit is not None:
            return tokenizer.encode_pair(text, None, limit=limit)[0]
        return tokenizer.encode(text, add_special_tokens=special)[:limit]

    texts = [one for one in inputs if isinstance(one, str)]
    return await off_loop(
        characters_of(texts), lambda: [encode(one) if isinstance(one, str) else one[:limit] for one in inputs]
    )


def _base64(vector: Vector) -> str:
    return base64.b64encode(vector.astype(np.dtype("<f4"), copy=False).tobytes()).decode("ascii")
