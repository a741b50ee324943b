"""Octavo serves large language models on any accelerator.

::

    from octavo import LLM, SamplingParams

    llm = LLM(model="path/to/model.gguf")
    print(llm.generate("Hello", SamplingParams(max_tokens=16))[0].outputs[0].text)

The public names are loaded when they are first used, so that ``import octavo`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from octavo._version import version

if TYPE_CHECKING:
    from octavo.config import EngineConfig, Settings
    from octavo.engine import (
        LLM,
        AsyncLLM,
        CompletionOutput,
        EmbeddingOutput,
        Logprob,
        RequestOutput,
        ScoreOutput,
    )
    from octavo.pooling import PoolingParams
    from octavo.sampling import RequestOptions, SamplingParams
    from octavo.structured_output import StructuredOutput

__version__ = version()

_HOMES = {
    "LLM": "octavo.engine",
    "AsyncLLM": "octavo.engine",
    "CompletionOutput": "octavo.engine",
    "EmbeddingOutput": "octavo.engine",
    "EngineConfig": "octavo.config",
    "Logprob": "octavo.engine",
    "PoolingParams": "octavo.pooling",
    "RequestOptions": "octavo.sampling",
    "RequestOutput": "octavo.engine",
    "SamplingParams": "octavo.sampling",
    "ScoreOutput": "octavo.engine",
    "Settings": "octavo.config",
    "StructuredOutput": "octavo.structured_output",
}

__all__ = [
    "LLM", "AsyncLLM", "CompletionOutput", "EmbeddingOutput", "EngineConfig", "Logprob", "PoolingParams",
    "RequestOptions", "RequestOutput", "SamplingParams", "ScoreOutput", "Settings", "StructuredOutput", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
