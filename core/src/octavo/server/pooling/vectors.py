"""Texts to vectors and scores: what the embeddings, score and rerank routes share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request

from octavo.errors import ContextLengthExceeded
from octavo.pooling import PoolingParams, Vector, cosine, truncation
from octavo.server.generation.prompts import off_loop
from octavo.server.generation.service import Service
from octavo.server.pooling.schema import PoolingFields, PoolingUsage
from octavo.server.transport.connection import while_connected
from octavo.server.transport.errors import request_id_of

_numbers = itertools.count()


@dataclass(frozen=True)
class Asked:
    """One HTTP request for vectors: what it says of all of them."""

    service: Service
    request: Request
    body: PoolingFields
    prefix: str
    field: str
    """Where its texts stand, for messages."""

    @property
    def id(self) -> str:
        """The response's."""
        return f"{self.prefix}-{self.body.request_id or request_id_of(self.request)}"

    @property
    def limit(self) -> int | None:
        """Tokens that prompts are cut to, if they are."""
        return truncation(self.body.truncate_prompt_tokens, self.service.backend.max_model_len)

    async def vectors(
        self,
        prompts: Sequence[Sequence[int]],
        params: PoolingParams,
        token_types: Sequence[Sequence[int]] | None = None,
    ) -> list[Vector]:
        """A vector of each prompt. Raises ContextLengthExceeded for one that is too long, ClientGone."""
        backend = self.service.backend
        for number, prompt in enumerate(prompts):
            if len(prompt) > backend.max_model_len:
                raise ContextLengthExceeded(
                    f"'{self.field}' {number} has {len(prompt)} tokens, and this model reads at most "
                    f"{backend.max_model_len}; shorten it, or send 'truncate_prompt_tokens': -1.",
                    param=self.field,
                )
        work = backend.embed(
            prompts,
            request_id=f"{self.id}-{next(_numbers)}",
            pooling=params,
            token_types=token_types,
            options=self.body.options,
        )
        return await while_connected(self.request.receive, work)

    async def scores(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[float], PoolingUsage]:
        """How well each pair fits: by a model that reads both, or by the cosine of their embeddings."""
        if self.service.backend.pairs:
            return await self._read_together(pairs)
        texts = list(dict.fromkeys(itertools.chain.from_iterable(pairs)))
        encode, limit = self.service.backend.tokenizer.encode_pair, self.limit
        prompts = await off_loop(characters_of(texts), lambda: [encode(text, None, limit=limit)[0] for text in texts])
        vectors = dict(zip(texts, await self.vectors(prompts, PoolingParams()), strict=True))
        return [cosine(vectors[a], vectors[b]) for a, b in pairs], tokens_of(prompts)

    async def _read_together(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[float], PoolingUsage]:
        encode, limit = self.service.backend.tokenizer.encode_pair, self.limit
        texts = list(itertools.chain.from_iterable(pairs))
        encoded = await off_loop(characters_of(texts), lambda: [encode(a, b, limit=limit) for a, b in pairs])
        prompts, types = [ids for ids, _ in encoded], [kinds for _, kinds in encoded]
        params = PoolingParams(use_activation=self.body.use_activation)
        return [float(v[0]) for v in await self.vectors(prompts, params, types)], tokens_of(prompts)


def characters_of(texts: Sequence[str]) -> int:
    """How many there are to be tokenised."""
    return sum(map(len, texts))


def tokens_of(prompts: Sequence[Sequence[int]]) -> PoolingUsage:
    """The usage of a request that read these."""
    total = sum(map(len, prompts))
    return PoolingUsage(total, total)
