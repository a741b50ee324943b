"""POST /v1/messages, whole: blocks, stop reasons, usage, and what reaches the engine."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from pydantic import BaseModel
from server_fake import FakeEngine

from octavo.sampling import RequestOptions

HI = [{"role": "user", "content": "Hi"}]
TOOL = {
    "name": "look",
    "description": "Looks.",
    "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
}


def ask(claude: anthropic.Anthropic, **fields: Any) -> Any:
    return claude.messages.create(**{"model": "fake", "max_tokens": 100, "messages": HI} | fields)


def post(served: Any, **fields: Any) -> Any:
    return served.request("POST", "/v1/messages", {"model": "fake", "max_tokens": 100, "messages": HI} | fields)


def test_a_plain_answer(claude: anthropic.Anthropic, engine: FakeEngine) -> None:
    engine.cached = 3
    got = ask(claude)
    assert got.id == f"msg_{got._request_id}"
    assert (got.type, got.role, got.model) == ("message", "assistant", "fake")
    assert [(block.type, block.text) for block in got.content] == [("text", "Hello, world!")]
    assert (got.stop_reason, got.stop_sequence) == ("end_turn", None)
    prompt = len(engine.seen[0].prompt)
    assert (got.usage.input_tokens, got.usage.cache_read_input_tokens) == (prompt - 3, 3)
    assert (got.usage.output_tokens, got.usage.cache_creation_input_tokens) == (5, 0)


def test_the_answer_has_no_other_fields_than_the_api_s(served) -> None:
    got = post(served).json
    assert list(got)[:2] == ["type", "id"]
    assert set(got) == {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
    assert got["content"] == [{"type": "text", "text": "Hello, world!", "citations": None}]


def test_sampling_comes_from_the_request_then_the_checkpoint(served, engine: FakeEngine) -> None:
    engine.default_params = {"temperature": 0.6, "top_p": 0.9, "max_new_tokens": 7}
    fields = {"temperature": 0.5, "top_k": 5, "stop_sequences": ["a", "b"], "seed": 3, "priority": 2, "cache_salt": "s"}
    assert post(served, **fields).status == 200
    params = engine.seen[0].params
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (0.5, 0.9, 5, 3)
    assert (params.max_tokens, params.stop_strings, params.n) == (100, ("a", "b"), 1)
    assert engine.seen[0].options == RequestOptions(2, "s")


def test_the_end_at_the_limit_is_told(claude: anthropic.Anthropic) -> None:
    assert ask(claude, max_tokens=2).stop_reason == "max_tokens"


def test_more_tokens_than_the_context_has_may_be_asked_for(served, engine: FakeEngine) -> None:
    engine.max_model_len = 100
    assert post(served, max_tokens=32_000).json["stop_reason"] == "end_turn"
    assert engine.seen[0].params.max_tokens == 100 - len(engine.seen[0].prompt)
    engine.bad_finish = "length"
    assert post(served, max_tokens=32_000).json["stop_reason"] == "model_context_window_exceeded"


def test_nothing_is_generated_to_warm_the_cache(claude: anthropic.Anthropic) -> None:
    got = ask(claude, max_tokens=0)
    assert (got.content, got.stop_reason, got.usage.output_tokens) == ([], "max_tokens", 0)


def test_the_stop_sequence_is_told(claude: anthropic.Anthropic, engine: FakeEngine) -> None:
    engine.stop_reason = "world"
    got = ask(claude, stop_sequences=["world"])
    assert (got.stop_reason, got.stop_sequence) == ("stop_sequence", "world")


def test_a_stop_token_is_the_end_of_the_turn(claude: anthropic.Anthropic, engine: FakeEngine) -> None:
    engine.stop_reason = 7
    got = ask(claude, extra_body={"stop_token_ids": [7]})
    assert (got.stop_reason, got.stop_sequence) == ("end_turn", None)


def test_calls_are_blocks_between_the_words(claude: anthropic.Anthropic, say) -> None:
    say('I look[look {"at": "é"}][look {}].')
    got = ask(claude, tools=[TOOL])
    assert [block.type for block in got.content] == ["text", "tool_use", "tool_use", "text"]
    assert [(b.id, b.name, b.input) for b in got.content if b.type == "tool_use"] == [
        ("call_0", "look", {"at": "é"}),
        ("call_1", "look", {}),
    ]
    assert (got.content[0].text, got.content[3].text) == ("I look", ".")
    assert got.stop_reason == "tool_use"


def test_of_a_call_that_was_cut_off_there_is_what_came(claude: anthropic.Anthropic, say) -> None:
    say('[look {"at": "the door", "for": "a mo')
    got = ask(claude, tools=[TOOL], max_tokens=len('[look {"at": "the door", "for": "a m'))
    assert got.content[0].input == {"at": "the door"}  # a value that was cut is none
    assert got.stop_reason == "max_tokens"


@pytest.mark.parametrize("text", ["{at: door}", "17", '"door"', "}"])
def test_arguments_that_are_no_object_are_told_as_such(claude: anthropic.Anthropic, say, text) -> None:
    say(f"[look {text}]")
    [call] = ask(claude, tools=[TOOL]).content
    assert call.input == {"INVALID_JSON": text}


def test_thoughts_are_blocks_for_clients_that_asked(claude: anthropic.Anthropic, engine: FakeEngine, say) -> None:
    say("(so)Yes")
    got = ask(claude, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000)
    assert [block.type for block in got.content] == ["thinking", "text"]
    assert (got.content[0].thinking, got.content[1].text) == ("so", "Yes")
    assert got.content[0].signature
    assert got.usage.output_tokens_details.thinking_tokens == 4
    assert "enable_thinking=True" in engine.seen[0].text


def test_the_text_of_thoughts_can_be_left_out(claude: anthropic.Anthropic, say) -> None:
    say("(so)Yes")
    got = ask(claude, thinking={"type": "adaptive", "display": "omitted"})
    assert [block.type for block in got.content] == ["thinking", "text"]
    assert got.content[0].thinking == ""
    assert got.content[0].signature


@pytest.mark.parametrize("fields", [{}, {"thinking": {"type": "disabled"}}])
def test_who_did_not_ask_for_thoughts_gets_text_first(
    claude: anthropic.Anthropic, engine: FakeEngine, say, fields
) -> None:
    say("(so)Yes")
    got = ask(claude, **fields)
    assert [(block.type, block.text) for block in got.content] == [("text", "Yes")]
    assert "enable_thinking=False" in engine.seen[0].text


def test_effort_reaches_the_template(claude: anthropic.Anthropic, engine: FakeEngine) -> None:
    ask(claude, output_config={"effort": "max"})
    assert "reasoning_effort=high" in engine.seen[0].text


@pytest.mark.parametrize(("choice", "shown"), [({"type": "auto"}, True), (None, True), ({"type": "none"}, False)])
def test_tools_are_shown_to_the_model(served, engine: FakeEngine, choice, shown) -> None:
    assert post(served, tools=[TOOL], tool_choice=choice).status == 200
    assert ("'name': 'look', 'description': 'Looks.'" in engine.seen[0].text) is shown


def test_what_agents_send_along_does_no_harm(claude: anthropic.Anthropic, engine: FakeEngine) -> None:
    """As Claude Code does: cache marks, betas, metadata, a billing header that differs every time."""
    mark = {"type": "ephemeral"}
    got = claude.beta.messages.create(
        model="fake",
        max_tokens=100,
        betas=["interleaved-thinking-2025-05-14", "context-management-2025-06-27"],
        metadata={"user_id": "someone"},
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1a2b3;"},
            {"type": "text", "text": "Be brief.", "cache_control": mark},
        ],
        messages=[{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": mark}]}],
        tools=[{**TOOL, "cache_control": mark, "eager_input_streaming": True}],
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        service_tier="auto",
    )
    assert got.content[0].text == "Hello, world!"
    assert engine.seen[0].text.endswith("system:Be brief.|user:Hi|assistant:")


class City(BaseModel):
    name: str


def test_the_client_parses_what_was_held_to_its_schema(claude: anthropic.Anthropic, engine: FakeEngine, say) -> None:
    say('{"name": "Oslo"}')
    got = claude.messages.parse(model="fake", max_tokens=100, messages=HI, output_format=City)
    assert got.parsed_output == City(name="Oslo")
    form = engine.seen[0].params.structured
    assert form.param == "output_config.format"
    assert '"properties"' in form.grammar  # a grammar, as there may be reasoning before it


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "look"}])
def test_a_call_that_must_be_made_is_forced(claude: anthropic.Anthropic, engine: FakeEngine, choice) -> None:
    ask(claude, tools=[TOOL], tool_choice=choice)
    form = engine.seen[0].params.structured
    assert form.kind == "grammar"
    assert "look" in form.grammar


def test_an_answer_goes_back_with_the_results_of_its_calls(
    claude: anthropic.Anthropic, engine: FakeEngine, say
) -> None:
    say('(so)I look.[look {"at": "door"}]')
    thinking = {"type": "adaptive"}
    got = ask(claude, tools=[TOOL], thinking=thinking)
    call = got.content[-1]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "It is shut."}]}
    messages = [*HI, got.to_param(), {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]}]
    ask(claude, tools=[TOOL], thinking=thinking, messages=messages)
    assert engine.seen[1].text.endswith("user:Hi|assistant:I look.|tool:It is shut.|user:Well?|assistant:")
    chat = engine.tokenizer.rendered
    assert chat[1]["reasoning_content"] == "so"
    assert chat[1]["tool_calls"] == [
        {"id": call.id, "type": "function", "function": {"name": "look", "arguments": {"at": "door"}}}
    ]
    assert (chat[2]["tool_call_id"], chat[2]["name"]) == (call.id, "look")


@pytest.mark.parametrize(
    ("choice", "calls"),
    [({"type": "auto"}, 2), ({"type": "auto", "disable_parallel_tool_use": True}, 1)],
)
def test_there_can_be_one_call_only(claude: anthropic.Anthropic, say, choice, calls) -> None:
    say("[look {}][look {}]")
    assert len(ask(claude, tools=[TOOL], tool_choice=choice).content) == calls


def test_an_answer_can_be_begun(claude: anthropic.Anthropic, engine: FakeEngine) -> None:
    ask(claude, messages=[*HI, {"role": "assistant", "content": "The best is ("}])
    assert engine.seen[0].text.endswith("user:Hi|assistant:The best is (")


def test_the_headers_name_the_request(served) -> None:
    reply = served.request(
        "POST",
        "/v1/messages?beta=true",
        {"model": "fake", "max_tokens": 5, "messages": HI},
        {"x-api-key": "k", "anthropic-version": "2023-06-01", "x-request-id": "mine"},
    )
    assert (reply.status, reply.headers["request-id"], reply.headers["x-request-id"]) == (200, "mine", "mine")
    assert reply.json["id"] == "msg_mine"


async def test_the_asynchronous_client_works(served) -> None:
    url = served.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, auth_token="t", max_retries=0) as claude:
        got = await claude.messages.create(model="fake", max_tokens=100, messages=HI)
        assert got.content[0].text == "Hello, world!"
        count = await claude.messages.count_tokens(model="fake", messages=HI)
        assert count.input_tokens == got.usage.input_tokens


def test_tokens_are_counted_as_they_are_asked_with(claude: anthropic.Anthropic, engine: FakeEngine) -> None:
    fields: dict[str, Any] = {
        "system": "Be brief.",
        "tools": [TOOL],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [*HI, {"role": "assistant", "content": "Yes"}, *HI],
    }
    count = claude.messages.count_tokens(model="fake", **fields)
    assert not engine.seen
    ask(claude, **fields, max_tokens=2000)
    assert count.input_tokens == len(engine.seen[0].prompt)


def test_models_have_anthropic_s_shape_for_its_clients(claude: anthropic.Anthropic) -> None:
    models = list(claude.models.list())
    assert [(model.id, model.display_name, model.type) for model in models] == [
        ("fake", "fake", "model"),
        ("org/fake-model", "org/fake-model", "model"),
    ]
    model = claude.models.retrieve("org/fake-model")
    assert (model.id, model.max_input_tokens) == ("org/fake-model", 1000)
