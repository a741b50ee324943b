"""LangChain's OpenAI adapters: chat and completions, whole, streamed, asynchronous, in batches.

python3 -m venv clients-venv
clients-venv/bin/pip install langchain-openai==1.7.4
OCTAVO=.venv/bin/octavo clients-venv/bin/python core/tests/clients/langchain_chat.py MODEL
"""

from __future__ import annotations

import asyncio

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI
from openai import BadRequestError, NotFoundError
from recorded import arguments, check, check_refused, serving

QUESTION = [SystemMessage("You are brief."), HumanMessage("Name the capital of France.")]


def chat(url: str) -> None:
    """ChatOpenAI."""
    model = ChatOpenAI(base_url=url, api_key="none", model="served", temperature=0, max_tokens=32, max_retries=0)
    whole = model.invoke(QUESTION)
    check(f"invoke: {whole.content!r}", bool(whole.content))
    usage = whole.usage_metadata
    check(f"usage: {usage}", usage is not None and usage["input_tokens"] > 10 and usage["output_tokens"] > 1)
    check("finish reason", whole.response_metadata["finish_reason"] in ("stop", "length"))
    chunks = list(model.stream(QUESTION, stream_usage=True))
    total = AIMessageChunk(content="")
    for chunk in chunks:
        total += chunk
    check(f"stream: {len(chunks)} chunks say the same", len(chunks) > 3 and total.content == whole.content)
    streamed = total.usage_metadata
    check("usage of the stream", streamed is not None and streamed["output_tokens"] == usage["output_tokens"])
    both = model.batch([QUESTION, "Say hello."])
    check("batch: neighbours change nothing", both[0].content == whole.content and bool(both[1].content))
    check("ainvoke", asyncio.run(model.ainvoke(QUESTION)).content == whole.content)
    scored = model.bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
    check("logprobs", len(scored.response_metadata["logprobs"]["content"]) > 1)
    cut = model.bind(stop=["Paris"]).invoke(QUESTION)
    check(f"stop: {cut.content!r}", "Paris" not in cut.content)


def complete(url: str) -> None:
    """OpenAI, the completions adapter."""
    model = OpenAI(base_url=url, api_key="none", model="served", temperature=0, max_tokens=16, max_retries=0)
    whole = model.invoke("The capital of France is")
    check(f"completions: {whole!r}", bool(whole))
    check("completions streamed", "".join(model.stream("The capital of France is")) == whole)
    generated = model.generate(["One, two,", "The capital of France is"])
    check("completions of several prompts", generated.generations[1][0].text == whole)


def refuse(url: str) -> None:
    """Errors keep their kind."""
    settings = {"base_url": url, "api_key": "none", "max_retries": 0}
    check_refused(NotFoundError, lambda: ChatOpenAI(model="none", **settings).invoke("Hi"))
    check_refused(BadRequestError, lambda: ChatOpenAI(model="served", top_p=7, **settings).invoke("Hi"))
    long = "word " * 3000
    check_refused(ContextOverflowError, lambda: ChatOpenAI(model="served", **settings).invoke(long))


if __name__ == "__main__":
    given = arguments(__doc__, "A folder, a .gguf file, or a hub id.")
    with serving(given.octavo, given.model, "--max-model-len", "1024", platform=given.platform) as base:
        chat(base)
        complete(base)
        refuse(base)
