"""Conversations that chat templates do not take as they are, over templates in the manner of real ones."""

from __future__ import annotations

from typing import Any

import pytest
from tool_server import USER

from octavo.errors import RequestError
from octavo.server.generation.history import for_template
from octavo.server.generation.prompts import normalise_messages
from octavo.server.generation.rewriting import first_taken
from octavo.text import render

# Mistral: user and assistant must alternate, where calls and results do not count.
ALTERNATING = """
{%- set ns = namespace(index=0) %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "assistant" and message.tool_calls is undefined) %}
        {%- if (message.role == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
    {%- if message.tool_calls %}[CALLS]{{ message.tool_calls[0].function | tojson }}
    {%- else %}[{{ message.role }}]{{ message.content }}{% endif %}
{%- endfor %}"""

# Strict by place, results in the place of the user.
BY_PLACE = """
{%- for message in messages %}
    {%- if (message.role == "assistant") != (loop.index0 % 2 == 1) %}
        {{- raise_exception("roles must alternate") }}
    {%- endif %}
    {{- "[" + message.role + "]" + message.content }}
    {%- for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}
{%- endfor %}"""

# Qwen3-Coder and GLM: an element for each entry of the arguments.
ENTRIES = """
{%- for message in messages %}[{{ message.role }}]{{ message.content }}
    {%- for call in message.tool_calls or [] %}<function={{ call.function.name }}>
        {%- for key, value in call.function.arguments | items %}<parameter={{ key }}>{{ value }}</parameter>{% endfor %}
    {%- endfor %}
{%- endfor %}"""

# Llama 4: goes through the keys, which of a string are its characters, and says nothing.
KEYS = """
{%- for message in messages %}[{{ message.role }}]{{ message.content }}
    {%- for call in message.tool_calls or [] %}[{{ call.function.name }}(
        {%- for key in call.function.arguments %}{{ key }}="{{ call.function.arguments[key] }}"{% endfor %})]
    {%- endfor %}
{%- endfor %}"""

# Qwen 2.5 and 3: text as it is, objects as JSON.
EITHER = """
{%- for message in messages %}[{{ message.role }}]{{ message.content }}
    {%- for call in message.tool_calls or [] %}<tool_call>
        {{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
    {%- endfor %}
{%- endfor %}"""

# Takes objects of known keys alone.
PICKY = """
{%- for message in messages %}[{{ message.role }}]{{ message.content }}
    {%- for call in message.tool_calls or [] %}{{ call.function.arguments["city"] + "!" }}{% endfor %}
{%- endfor %}"""

CUT = '{"city": "Ro'


def told(template: str, *messages: dict[str, Any], calls_as_text: bool = False) -> str:
    """The prompt of a conversation."""
    shown = for_template(normalise_messages(messages), calls_as_text=calls_as_text, short_ids=False)
    text = first_taken(shown, lambda m: render(template, m), lambda m: render(template, m))
    assert isinstance(text, str)
    return text


def call(arguments: str = '{"city": "Rome"}', call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def asks(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def result(content: str = "sunny", call_id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


THANKS = {"role": "user", "content": "And now?"}


@pytest.mark.parametrize("template", [ALTERNATING, BY_PLACE])
def test_text_beside_a_result_goes_with_it_where_roles_must_alternate(template: str) -> None:
    text = told(template, *USER, asks(call()), result(), THANKS)
    assert text.endswith("[tool]sunny\n\nAnd now?")
    longer = told(template, *USER, asks(call()), result(), THANKS, {"role": "assistant", "content": "Rain."}, THANKS)
    assert longer.endswith("[tool]sunny\n\nAnd now?[assistant]Rain.[user]And now?")


def test_results_of_one_turn_are_one_message_where_places_are_counted() -> None:
    text = told(BY_PLACE, *USER, asks(call(), call(call_id="c2")), result("sunny"), result("rainy", "c2"), THANKS)
    assert text.endswith("[tool]sunny\n\nrainy\n\nAnd now?")


@pytest.mark.parametrize("template", [ENTRIES, KEYS, EITHER])
def test_text_beside_a_result_stays_where_templates_take_it(template: str) -> None:
    assert told(template, *USER, asks(call()), result(), THANKS).endswith("[tool]sunny[user]And now?")


def test_a_refusal_is_that_of_the_conversation_as_it_is() -> None:
    with pytest.raises(RequestError, match="roles must alternate user/assistant") as caught:
        told(ALTERNATING, *USER, *USER)
    assert caught.value.param == "messages"


BROKEN = [CUT, '{"city": "a\nb"}', '{"city": NaN}', '["Rome"]', '"Rome"']


@pytest.mark.parametrize("arguments", BROKEN)
@pytest.mark.parametrize(
    ("template", "begin"),
    [
        (ENTRIES, "<function=f><parameter=arguments>"),
        (KEYS, '[f(arguments="'),
        (EITHER, "<tool_call>"),
        (PICKY, '{"name": "f", "arguments": '),
    ],
)
def test_arguments_that_cannot_be_read_are_shown_as_text(template: str, begin: str, arguments: str) -> None:
    assert begin + arguments in told(template, *USER, asks(call(arguments)), result("it failed"), THANKS)


@pytest.mark.parametrize("arguments", BROKEN)
def test_text_of_arguments_is_shown_where_templates_want_text_and_where_they_want_json(arguments: str) -> None:
    assert f"<tool_call>{arguments}" in told(EITHER, *USER, asks(call(arguments)), result(), calls_as_text=True)
    text = told(ALTERNATING, *USER, asks(call(arguments)), result("it failed"), THANKS)
    assert text.endswith("[tool]it failed\n\nAnd now?")
    assert "[CALLS]" in text


def test_a_call_that_no_way_of_writing_can_show_is_text_with_its_result() -> None:
    text = told(PICKY, *USER, asks(call(CUT)), result("it failed"), THANKS)
    assert text == (
        '[user]Hi[assistant]{"name": "f", "arguments": {"city": "Ro[user]Result of f:\nit failed\n\nAnd now?'
    )


def test_a_template_that_shows_no_calls_takes_them_as_they_are() -> None:
    assert told("{% for m in messages %}[{{ m.role }}]{% endfor %}", *USER, asks(call(CUT)), result()) == (
        "[user][assistant][tool]"
    )
