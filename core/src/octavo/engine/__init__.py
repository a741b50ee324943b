"""The engine: LLM for scripts, AsyncLLM for servers, and the core loop under both."""

from octavo.engine.async_llm import AsyncLLM
from octavo.engine.client import EngineRequest, InProcessClient, News, Refusal
from octavo.engine.core import EngineCore
from octavo.engine.llm import LLM, CompletionOutput, Logprob, RequestOutput
from octavo.engine.outputs import ChoiceDelta, RequestDelta
from octavo.engine.pooled import EmbeddingOutput, ScoreOutput
from octavo.engine.startup import Started, start

__all__ = [
    "LLM", "AsyncLLM", "ChoiceDelta", "CompletionOutput", "EmbeddingOutput", "EngineCore", "EngineRequest",
    "InProcessClient", "Logprob", "News", "Refusal", "RequestDelta", "RequestOutput", "ScoreOutput", "Started", "start",
]  # fmt: skip
