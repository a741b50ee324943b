"""Random input to what stands between the network and the engine: an answer or a refusal, and never anything else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai._streaming import SSEDecoder
from server_fake import FakeTokenizer

from octavo.errors import RequestError
from octavo.server.generation.params import chat_params, completion_params
from octavo.server.generation.prompts import conversation_prompt, normalise_messages, split_prompts
from octavo.server.generation.schema import ChatCompletionRequest, CompletionRequest
from octavo.server.transport.body import parse
from octavo.server.transport.body_limits import check_body
from octavo.server.transport.fields import CHAT_UNSUPPORTED, COMPLETION_UNSUPPORTED
from octavo.server.transport.limits import Limits
from octavo.server.transport.sse import DONE, event

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    [
        "\u2028",
        "\u2029",
        "\u0085",
        "\r\n",
        "\x1c\x1d\x1e",
        "data: x",
        "\n\n",
        "[DONE]",
        ": keep-alive",
        "\x00",
        "\ufeff",
    ]
)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)
FIELDS = sorted({*ChatCompletionRequest.model_fields, *CompletionRequest.model_fields, *CHAT_UNSUPPORTED, "input"})
LIKELY = st.one_of(
    st.fixed_dictionaries({}, optional={"role": st.sampled_from(["user", "system", "tool"]) | JSON, "content": JSON}),
    st.lists(st.integers(0, 300), max_size=4),
    st.lists(TEXT, max_size=4),
    st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": TEXT}), max_size=3),
)
BODIES = st.dictionaries(st.sampled_from(FIELDS) | TEXT, JSON | LIKELY, max_size=8)


# -- server-sent events --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(values=st.lists(JSON, max_size=5), name=st.sampled_from(["", "response.created"]))
def test_an_event_is_read_back_by_every_kind_of_client(values: list[Any], name: str) -> None:
    stream = b"".join(event(value, name) for value in values) + DONE
    wanted = [json.loads(msgspec.json.encode(value)) for value in values]

    official = [sse.data for sse in SSEDecoder().iter_bytes(iter([stream]))]
    assert official.pop() == "[DONE]"
    assert [json.loads(data) for data in official] == wanted

    by_lines = [line.removeprefix("data: ") for line in stream.decode().splitlines() if line.startswith("data: ")]
    assert by_lines.pop() == "[DONE]"
    assert [json.loads(data) for data in by_lines] == wanted

    by_blocks = stream.decode().split("\n\n")
    assert by_blocks.pop() == "" and by_blocks.pop() == "data: [DONE]"
    assert [json.loads(block.split("data: ", 1)[1]) for block in by_blocks] == wanted


@settings(deadline=None, max_examples=100)
@given(values=st.lists(JSON, min_size=1, max_size=3), data=st.data())
def test_a_stream_may_be_cut_anywhere(values: list[Any], data: st.DataObject) -> None:
    stream = b"".join(map(event, values))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    read = [json.loads(sse.data) for sse in SSEDecoder().iter_bytes(iter(pieces))]
    assert read == [json.loads(msgspec.json.encode(value)) for value in values]


# -- bodies --------------------------------------------------------------------------------------------


def _got(work: Callable[[], Any]) -> Any:
    """What ``work`` returns, or its refusal."""
    try:
        return work()
    except RequestError as error:
        return error


@pytest.mark.parametrize(
    ("model", "unsupported"), [(ChatCompletionRequest, CHAT_UNSUPPORTED), (CompletionRequest, COMPLETION_UNSUPPORTED)]
)
@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_any_bytes_are_a_request_or_a_refusal(model: Any, unsupported: Any, data: st.DataObject) -> None:
    raw = data.draw(st.binary(max_size=200) | BODIES.map(lambda body: json.dumps(body).encode()))
    if data.draw(st.booleans()) and raw:  # a few bytes wrong
        at = data.draw(st.integers(0, len(raw) - 1))
        raw = raw[:at] + data.draw(st.binary(max_size=3)) + raw[at + 1 :]
    got = _got(lambda: parse(raw, model, unsupported))
    assert isinstance(got, model) or got.code


@settings(deadline=None, max_examples=300)
@given(body=BODIES)
@example(
    body={"stop": [[]], "tools": {"a": 1}, "response_format": "x", "logit_bias": [], "prompt": {}, "input": [None]}
)
def test_limits_are_checked_on_values_of_any_type(body: Mapping[str, Any]) -> None:
    tight = Limits(
        items=2, prompts=1, sequences=1, n=1, best_of=1, logprobs=0, stop_strings=1, word_characters=1, schema_bytes=4
    )
    got = _got(lambda: check_body(body, tight))
    assert got is None or got.code == "limit_exceeded"


async def _answerable(body: dict[str, Any]) -> None:
    """All that is done to a request before the engine has it."""
    if "messages" in body:
        chat = parse(json.dumps(body).encode(), ChatCompletionRequest, CHAT_UNSUPPORTED)
        chat_params(chat, {})
        messages = normalise_messages(chat.messages)
        await conversation_prompt(messages, FakeTokenizer(), variables=chat.chat_template_kwargs or {})
    else:
        completion = parse(json.dumps(body).encode(), CompletionRequest, COMPLETION_UNSUPPORTED)
        completion_params(completion, {})
        split_prompts(completion.prompt)


@settings(deadline=None, max_examples=400)
@given(body=BODIES, conversation=LIKELY | JSON, prompt=LIKELY | JSON, chat=st.booleans())
async def test_what_becomes_of_a_body_is_a_prompt_or_a_refusal(
    body: dict[str, Any], conversation: Any, prompt: Any, chat: bool
) -> None:
    body = {name: value for name, value in body.items() if name not in ("messages", "prompt")}
    with contextlib.suppress(RequestError):
        await _answerable(body | ({"messages": conversation} if chat else {"prompt": prompt}))


@pytest.mark.parametrize("name", ["self", "tokenizer", "template", "run", "", "bos_token", "a b"])
async def test_template_variables_of_any_name_are_the_templates_own(name: str) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    ids = await conversation_prompt(messages, FakeTokenizer(), variables={name: "theirs"})
    assert FakeTokenizer().decode(ids).startswith(f"{name}=theirs;")
