"""Structured output on real checkpoints: outputs have their form, whatever else is asked with it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from acceptance.schemas import PERSON
from acceptance.validity import complaint, generate, schemas, walk

from octavo import LLM, AsyncLLM, EngineConfig, SamplingParams
from octavo.config import Settings
from octavo.errors import RequestError
from octavo.server import ServerSettings, create_app
from octavo.structured_output import StructuredOutput

PROMPT = "Describe a person in JSON.\n"
FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "json": ({"json": PERSON}, r"(?s)\{.*\}"),
    "regex": ({"regex": r"[a-z]{3,8}@example\.(com|org)"}, r"[a-z]{3,8}@example\.(com|org)"),
    "choice": ({"choice": ["red", "dark red", "naïve 😀"]}, "red|dark red|naïve 😀"),
    "lark": ({"grammar": 'start: "<" /[0-9]{1,5}/ ("," /[0-9]{1,5}/)* ">"'}, r"<[0-9]+(,[0-9]+)*>"),
    "gbnf": ({"grammar": 'root ::= "a" [b-d] [b-d] "z"'}, "a[b-d]{2}z"),
}


@pytest.fixture(scope="module")
def llm(checkpoint: Path) -> Iterator[LLM]:
    model = LLM(checkpoint, max_model_len=1024, max_num_seqs=16)
    yield model
    model.close()


def ask(llm: LLM, form: dict[str, Any], **params: Any) -> list[Any]:
    asked = SamplingParams(**{"structured": StructuredOutput(**form), "max_tokens": 200, "seed": 3, **params})
    return llm.generate(PROMPT, asked, use_tqdm=False)[0].outputs


def test_outputs_are_valid_by_their_schemas(smollm2_gguf: Path) -> None:
    model = LLM(smollm2_gguf, max_model_len=2048)
    ends, complaints = generate(model, schemas(90)[::2], 1)
    model.close()
    assert not complaints
    assert set(ends) <= {"stop", "length"} and ends["stop"] > 3 * ends["length"]


def test_so_is_all_that_masks_let_be_written(llm: LLM) -> None:
    ends, complaints = walk(llm.get_tokenizer(), schemas(120)[::4], 2)
    assert not complaints
    assert ends["stop"] > 5 * ends["length"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "asked", [{}, {"temperature": 0.0}, {"n": 3, "temperature": 1.5}, {"ignore_eos": True}, {"min_tokens": 150}]
)
def test_every_form_is_kept_with_everything_else(llm: LLM, form: str, asked: dict[str, Any]) -> None:
    what, pattern = FORMS[form]
    for choice in ask(llm, what, **asked):
        if choice.finish_reason == "length":
            assert len(choice.token_ids) == 200
        else:
            assert re.fullmatch(pattern, choice.text), choice.text
            assert form != "json" or complaint(PERSON, choice.text) is None


def test_what_max_tokens_cuts_says_so(llm: LLM) -> None:
    (choice,) = ask(llm, {"json": PERSON}, max_tokens=4)
    assert choice.finish_reason == "length" and len(choice.token_ids) == 4
    assert choice.text.lstrip().startswith("{")


def test_a_stop_string_ends_a_form_early(llm: LLM) -> None:
    (choice,) = ask(llm, {"json": PERSON}, stop=['"age"'])
    assert (choice.finish_reason, choice.stop_reason) == ("stop", '"age"')
    assert choice.text.lstrip().startswith("{") and '"age"' not in choice.text


def test_the_same_seed_gives_the_same_output_in_any_company(llm: LLM) -> None:
    alone = ask(llm, {"json": PERSON})[0].text
    forms = [None, StructuredOutput(json=PERSON), StructuredOutput(json_object=True), StructuredOutput(choice=["x"])]
    params = [SamplingParams(structured=form, max_tokens=200, seed=3) for form in forms]
    assert llm.generate([PROMPT] * 4, params, use_tqdm=False)[1].outputs[0].text == alone


def test_logprobs_come_with_a_form(llm: LLM) -> None:
    (choice,) = ask(llm, {"choice": ["red", "green"]}, logprobs=3)
    assert len(choice.logprobs) == len(choice.token_ids)
    for token, entry in zip(choice.token_ids, choice.logprobs, strict=True):
        assert entry[token].rank >= 1 and len(entry) in (3, 4)


def test_a_structural_tag_holds_what_it_opens(llm: LLM) -> None:
    tag = {"structures": [{"begin": "<who>", "schema": PERSON, "end": "</who>"}], "triggers": ["<who"]}
    prompt = 'People: <who>{"name": "Ada", "age": 36}</who> <who>{"name": "Bob", "age": 9}</who> <who'
    params = SamplingParams(structured=StructuredOutput(structural_tag=tag), max_tokens=100, temperature=0.0)
    text = llm.generate(prompt, params, use_tqdm=False)[0].outputs[0].text
    for inside in re.findall(r"<who>(.*?)</who>", text, re.DOTALL):
        assert complaint(PERSON, inside) is None
    assert not re.search(r"<who[^>]", text)


def test_a_bad_form_is_refused_before_anything_runs(llm: LLM) -> None:
    good, bad = SamplingParams(max_tokens=4), SamplingParams(structured=StructuredOutput(json={"uniqueItems": True}))
    with pytest.raises(RequestError, match="uniqueItems"):
        llm.generate(["a", "b"], [good, bad], use_tqdm=False)
    assert llm.metrics().running == 0


def test_a_bad_word_is_not_written(llm: LLM) -> None:
    prompt = "The capital of France is"
    greedy = {"temperature": 0.0, "max_tokens": 12}
    word = llm.generate(prompt, SamplingParams(**greedy), use_tqdm=False)[0].outputs[0].text.split()[0].strip(".")
    held = SamplingParams(**greedy, bad_words=[word])
    assert word not in re.findall(r"\w+", llm.generate(prompt, held, use_tqdm=False)[0].outputs[0].text)


async def test_over_http(smollm2_gguf: Path) -> None:
    engine = AsyncLLM.from_config(EngineConfig(str(smollm2_gguf), settings=Settings(max_model_len=1024)))
    app = create_app(engine, ServerSettings())
    schema_format = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    chat = {"messages": [{"role": "user", "content": "Describe a person in JSON."}], "max_tokens": 300}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", timeout=120) as client:

        async def post(path: str, **body: Any) -> httpx.Response:
            return await client.post(f"/v1/{path}", json=body)

        answers = await asyncio.gather(
            *(post("chat/completions", **chat, response_format=schema_format, seed=seed) for seed in range(4))
        )
        for answer in answers:
            choice = answer.json()["choices"][0]
            assert choice["finish_reason"] == "length" or complaint(PERSON, choice["message"]["content"]) is None
        refused = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}}
        for stream in (False, True):
            reply = await post("chat/completions", **chat, response_format=refused, stream=stream)
            assert reply.status_code == 400 and reply.json()["error"]["param"] == "response_format"
        streamed = await post(
            "completions", prompt="Colour:", structured_outputs={"choice": ["teal", "plum"]}, stream=True
        )
        lines = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line.startswith("data: {")]
        assert "".join(json.loads(line)["choices"][0]["text"] for line in lines) in ("teal", "plum")
    await engine.close()
