"""LiteLLM's OpenAI adapter: chat and text completions, whole, streamed, asynchronous, and its exceptions.

python3 -m venv clients-venv
clients-venv/bin/pip install litellm==1.110.2
OCTAVO=.venv/bin/octavo clients-venv/bin/python core/tests/clients/litellm_completion.py MODEL
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would fetch prices from the network

import litellm
from recorded import arguments, check, check_refused, serving

QUESTION = [{"role": "user", "content": "Name the capital of France."}]


def main() -> None:
    """Run it."""
    given = arguments(__doc__, "A folder, a .gguf file, or a hub id.")
    with serving(given.octavo, given.model, "--max-model-len", "1024", platform=given.platform) as url:
        asked = {"model": "openai/served", "api_base": url, "api_key": "none", "temperature": 0, "max_tokens": 32}

        def ask(**fields: Any) -> Any:
            return litellm.completion(**{"messages": QUESTION, "num_retries": 0} | asked | fields)

        whole = ask()
        said = whole.choices[0].message.content
        check(f"completion: {said!r}", bool(said))
        check(f"usage: {whole.usage.total_tokens} tokens", whole.usage.total_tokens > whole.usage.prompt_tokens > 10)
        chunks = list(ask(stream=True, stream_options={"include_usage": True}))
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        check(f"stream: {len(chunks)} chunks say the same", len(chunks) > 3 and streamed == said)
        built = litellm.stream_chunk_builder(chunks, messages=QUESTION)
        check("the stream's usage", built.usage.completion_tokens == whole.usage.completion_tokens)
        later = asyncio.run(litellm.acompletion(messages=QUESTION, **asked))
        check("acompletion", later.choices[0].message.content == said)
        check("n", len(ask(n=2, seed=1, temperature=1.0).choices) == 2)
        text = asked | {"model": "text-completion-openai/served"}
        completed = litellm.text_completion(prompt="The capital of France is", **text).choices[0].text
        check(f"text_completion: {completed[:40]!r}", bool(completed))
        check("hosted_vllm", ask(model="hosted_vllm/served").choices[0].message.content == said)
        check_refused(litellm.NotFoundError, lambda: ask(model="openai/none"))
        check_refused(litellm.BadRequestError, lambda: ask(top_p=7))
        long = [{"role": "user", "content": "word " * 3000}]
        check_refused(litellm.ContextWindowExceededError, lambda: ask(messages=long))


if __name__ == "__main__":
    main()
