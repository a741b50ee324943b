"""What a chat template writes of a call, the parser that the template asks for reads back."""

from __future__ import annotations

import json

import pytest
from text.parsing.drives import cuts, loaded, parse
from text.templates.sources import CONVERSATIONS, TEMPLATES, TOOLS

from octavo.text import render
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.tools import tool_parser_for
from octavo.text.parsing.tools.in_prompt import tools_in_prompt

WEATHER = Tool("weather", "The weather in <city>", TOOLS[0]["function"]["parameters"])
ASKING = CONVERSATIONS["tools"][2]
ARGUMENTS = ASKING["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize(
    ("name", "hint", "kind", "start", "end"),
    [
        ("tags", "", "hermes", "<|im_start|>assistant\n", "<|im_end|>"),
        ("headers", "<|python_tag|>", "llama3_json", "<|head|>assistant<|/head|>\n\n", "<|eot|>"),
    ],
)
def test_a_call_that_was_rendered_is_read_back(name: str, hint: str, kind: str, start: str, end: str) -> None:
    text = render(TEMPLATES[name], CONVERSATIONS["tools"], tools=TOOLS, bos_token="", eos_token="", date="")
    said = text.split(start)[1].split(end)[0]
    parser = tool_parser_for(TEMPLATES[name] + hint)
    assert parser is not None
    assert parser.name == kind
    for pieces in cuts(said):
        assert loaded(parse(parser.open([WEATHER]), pieces)) == [("call", "weather"), ("arguments", ARGUMENTS)]


@pytest.mark.parametrize("name", ["chatml", "turns"])
def test_templates_without_tools_render_what_is_taught(name: str) -> None:
    *before, result = CONVERSATIONS["tools"]
    messages = tools_in_prompt([*before, {**result, "name": "weather"}], [WEATHER])
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    text = render(TEMPLATES[name], messages, bos_token="")
    assert "Use tools.\n\nYou can call these functions" in text
    assert json.dumps({"name": "weather", "arguments": ARGUMENTS}, ensure_ascii=False) in text
    assert 'Result of weather:\n{"t": 21}' in text
