"""Chat templates in a process of their own: the same text, the same refusals, and no template can hold the server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from text.templates.sources import CONVERSATIONS, TEMPLATES, TOOLS

from octavo.errors import RequestError
from octavo.text import render
from octavo.text.templates.worker import TemplateWorker

USER = {"role": "user", "content": "Hi"}
LOOPS = 3
ENDLESS = "".join(f"{{% for i{k} in range(99999) %}}" for k in range(LOOPS)) + "{% endfor %}" * LOOPS
FILLING = "{% set n = namespace(s='x' * 1000000) %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}"


@pytest.fixture(scope="module")
def worker() -> Iterator[TemplateWorker]:
    made = TemplateWorker(seconds=30.0, memory_bytes=256 * 2**20)
    yield made
    made.close()


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_text_is_the_one_made_in_this_process(worker: TemplateWorker, template: str) -> None:
    for messages in CONVERSATIONS.values():
        for options in ({}, {"tools": TOOLS, "date": "1 May"}):
            options = {"bos_token": "<s>", "eos_token": "</s>", **options}
            here = render(TEMPLATES[template], messages, **options)
            assert render(TEMPLATES[template], messages, worker.run, **options) == here


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses the messages: roles must alternate"),
        ("{{ 1 / 0 }}", "failed on the messages: ZeroDivisionError"),
        ("{% if %}", "is not valid .*give another with --chat-template"),
        ("{{ ''.__class__.__mro__ }}", "failed on the messages: SecurityError"),
    ],
)
def test_refusals_are_those_made_in_this_process(worker: TemplateWorker, template: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as here:
        render(template, [USER])
    with pytest.raises(RequestError) as there:
        render(template, [USER], worker.run)
    assert (str(there.value), there.value.param, there.value.code) == (
        str(here.value),
        here.value.param,
        here.value.code,
    )


@pytest.mark.parametrize("text", ["é😀\u2028\x00", "\ud800 alone", '"\\quoted\n'])
def test_any_text_arrives_as_it_is(worker: TemplateWorker, text: str) -> None:
    assert render("{{ messages[0].content }}", [{"role": "user", "content": text}], worker.run) == text


@pytest.mark.parametrize("name", ["template", "messages", "run", "self", "source", "variables", "not a name", "range"])
def test_no_name_of_a_variable_meets_a_parameter_of_ours(worker: TemplateWorker, name: str) -> None:
    variables: dict[str, Any] = {name: "theirs"}
    assert render("{{ messages[0].content }}", [USER], worker.run, **variables) == "Hi"
    assert render("{{ messages[0].content }}", [USER], **variables) == "Hi"


def test_an_endless_template_is_a_refusal_and_the_next_one_runs() -> None:
    worker = TemplateWorker(seconds=1.0, memory_bytes=256 * 2**20)
    worker.warm(ENDLESS.replace("99999", "1"))
    with pytest.raises(RequestError, match=r"chat_template did not finish within 1 s.*template_seconds") as caught:
        render(ENDLESS, [USER], worker.run)
    assert (caught.value.param, caught.value.code) == ("messages", "template_limit")
    assert render("fine", [USER], worker.run) == "fine"
    worker.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit a process's address space")
def test_a_template_that_fills_the_memory_is_a_refusal_and_the_next_one_runs(worker: TemplateWorker) -> None:
    with pytest.raises(RequestError, match=r"chat_template did not get by with 256 MiB.*template_memory") as caught:
        render(FILLING, [USER], worker.run)
    assert caught.value.code == "template_limit"
    assert render("fine", [USER], worker.run) == "fine"
