"""Vectors and scores from an engine in the calling thread: what `octavo.engine.llm.LLM` does with models that pool."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from octavo.engine.core import NO_VECTORS, EngineCore
from octavo.engine.pooled import (
    NOTHING_SAMPLED,
    EmbeddingOutput,
    ScoreOutput,
    check_params,
    finished,
    folded,
    limited,
)  # fmt: skip
from octavo.engine.progress import prompts_progress
from octavo.engine.prompts import Prompt, as_batch, prompt_text
from octavo.errors import RequestError, RequestFailed
from octavo.models import ModelConfig, Pooling
from octavo.pooling import PoolingParams, Vector, cosine, paired, truncation
from octavo.text import Tokenizer


class Embedder:
    """Over an engine, its tokenizer, and how its model pools; every call raises RequestError if it does not."""

    def __init__(
        self, core: EngineCore, tokenizer: Tokenizer, config: ModelConfig, pooling: Pooling | None, context: int
    ) -> None:
        self._core, self._tokenizer, self._vocab_size = core, tokenizer, config.vocab_size
        self._pooling, self._context = pooling, context
        self._numbers = itertools.count()

    def embed(
        self, prompts: Prompt | Sequence[Prompt], params: PoolingParams | None, limit: int | None, *, show: bool
    ) -> list[EmbeddingOutput]:
        """See `octavo.engine.llm.LLM.embed`."""
        if self._pooling is not None and self._pooling.task != "embed":
            raise RequestError("this model scores pairs of texts and makes no embeddings; use score()")
        limit = truncation(limit, self._context)
        batch = as_batch(prompts)
        ids = [limited(prompt, self._tokenizer, limit) for prompt in batch]
        vectors = self._run(ids, [None] * len(ids), params, show=show)
        return [
            EmbeddingOutput(str(next(self._numbers)), prompt_text(prompt), list(tokens), vector)
            for prompt, tokens, vector in zip(batch, ids, vectors, strict=True)
        ]

    def score(
        self, first: Any, second: Any, params: PoolingParams | None, limit: int | None, *, show: bool
    ) -> list[ScoreOutput]:
        """See `octavo.engine.llm.LLM.score`."""
        pairs = paired(first, second)
        if self._pooling is None or self._pooling.task == "embed":
            texts = list(dict.fromkeys(itertools.chain.from_iterable(pairs)))
            found = dict(zip(texts, self.embed(texts, None, limit, show=show), strict=True))
            return [
                ScoreOutput(
                    cosine(found[a].embedding, found[b].embedding),
                    len(found[a].prompt_token_ids) + len(found[b].prompt_token_ids),
                )
                for a, b in pairs
            ]
        limit = truncation(limit, self._context)
        encoded = [self._tokenizer.encode_pair(a, b, limit=limit) for a, b in pairs]
        vectors = self._run([ids for ids, _ in encoded], [types for _, types in encoded], params, show=show)
        return [ScoreOutput(float(v[0]), len(ids)) for v, (ids, _) in zip(vectors, encoded, strict=True)]

    def _run(
        self,
        tokens: Sequence[Sequence[int]],
        types: Sequence[Sequence[int] | None],
        params: PoolingParams | None,
        *,
        show: bool,
    ) -> list[Vector]:
        """The finished vectors, in order. ``types`` are the kinds of each prompt's ``tokens``."""
        params = params or PoolingParams()
        if self._pooling is None:
            raise RequestError(NO_VECTORS)
        prompts = [folded(*one, self._vocab_size, self._pooling) for one in zip(tokens, types, strict=True)]
        check_params(params, self._pooling)
        names = [f"pooled-{next(self._numbers)}" for _ in prompts]
        vectors: dict[str, Vector] = {}
        try:
            for name, ids in zip(names, prompts, strict=True):
                self._core.add(name, ids, NOTHING_SAMPLED)
            with prompts_progress(len(prompts), show=show) as done:
                while len(vectors) < len(names):
                    for event in self._core.step():
                        if event.error is not None:
                            raise RequestFailed(f"request {event.request_id}: {event.error}")
                        assert event.pooled is not None, "a model that pools brings a vector with every prompt's end"
                        vectors[event.request_id] = finished(event.pooled, params, self._pooling)
                        done(0, 0)
        except BaseException:  # whatever ends the call early must not leave its requests behind
            for name in names:
                self._core.abort(name)
            raise
        return [vectors[name] for name in names]
