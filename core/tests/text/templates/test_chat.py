"""Chat templates: the text that transformers renders, in a sandbox, with errors that name the message."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from text.templates.sources import CONVERSATIONS, TEMPLATES, TOOLS
from text.tokenizer.gguf_files import byte_level, sentencepiece, write_gguf

from octavo.errors import ConfigError, RequestError
from octavo.text import Tokenizer, load_tokenizer, render

USER = {"role": "user", "content": "Hi"}
JOIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[go]{% endif %}"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", sentencepiece()))


def by_transformers(tokenizer: Tokenizer, template: str, messages: list[Any], **options: Any) -> str:
    text: str = tokenizer.hf.apply_chat_template(messages, chat_template=template, tokenize=False, **options)
    return text


def by_octavo(tokenizer: Tokenizer, template: str, messages: list[Any], **options: Any) -> str:
    return Tokenizer(tokenizer.hf, chat_template=template).render_chat(messages, **options)


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("options", [{}, {"tools": TOOLS}, {"enable_thinking": False, "date": "1 May"}])
@pytest.mark.parametrize("prompt", [True, False])
def test_text_is_the_one_of_transformers(
    tokenizer: Tokenizer, template: str, conversation: str, options: dict[str, Any], prompt: bool
) -> None:
    source, messages = TEMPLATES[template], CONVERSATIONS[conversation]
    wanted = by_transformers(tokenizer, source, messages, add_generation_prompt=prompt, **options)
    assert by_octavo(tokenizer, source, messages, add_generation_prompt=prompt, **options) == wanted
    assert wanted.strip()


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("content", ["The answer", "The answer is: ", "\n padded \n\n", "x"])
def test_the_final_message_is_left_open_as_in_transformers(tokenizer: Tokenizer, template: str, content: str) -> None:
    messages = [USER, {"role": "assistant", "content": content}]
    source = TEMPLATES[template]
    wanted = by_transformers(tokenizer, source, messages, continue_final_message=True)
    text = by_octavo(tokenizer, source, messages, continue_final_message=True, add_generation_prompt=False)
    assert text == wanted
    assert text.rstrip().endswith(content.strip())


def test_the_callers_messages_are_not_changed() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}], "name": None}]
    render(JOIN, messages)
    render(JOIN, messages, continue_final_message=True, add_generation_prompt=False)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "a"}], "name": None}]


def test_text_parts_are_joined_by_line_breaks() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, "three"]
    assert render(JOIN, [{"role": "user", "content": parts}]) == "[user]one\ntwo\nthree[go]"


def test_what_templates_expect_is_there() -> None:
    today = datetime.now().astimezone().strftime("%d %b %Y")
    assert render("{{ strftime_now('%d %b %Y') }}", [USER]) == today
    assert render("{{ {'a': '<é>'} | tojson }}", [USER]) == '{"a": "<é>"}'
    assert render("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", [USER]) == '{\n "a": 2,\n "b": 1\n}'
    assert render("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", [USER]) == "012"
    assert render("{% set n = namespace(i=1) %}{% set n.i = n.i + 1 %}{{ n.i }}", [USER]) == "2"
    assert render("{{ dict(a=1).a }}{{ tools is none }}{{ documents is none }}", [USER]) == "1TrueTrue"


def test_an_empty_list_of_tools_is_no_tools_to_a_template() -> None:
    asks = "{% if tools is not none %}told{% endif %}{% if tools is defined and tools is none %}none{% endif %}"
    assert render(asks, [USER], tools=[]) == render(asks, [USER], tools=None) == render(asks, [USER]) == "none"
    for name, template in TEMPLATES.items():
        given = {"bos_token": "", "eos_token": "", "date": ""}
        assert render(template, [USER], tools=[], **given) == render(template, [USER], **given), name
    assert render("  {% if true %}\nx\n  {% endif %}\ny", [USER]) == "x\ny", "blocks leave no white space of their own"
    assert render("{% generation %}a{% set x = 1 %}{% endgeneration %}{{ x is defined }}", [USER]) == "aFalse"


def test_variables_of_the_request_reach_the_template() -> None:
    assert render("{{ a }}{{ b.c }}", [USER], a=1, b={"c": "x"}) == "1x"


def test_thoughts_are_found_under_every_name() -> None:
    for name in ("reasoning", "reasoning_content", "thinking"):
        message = {"role": "assistant", "content": "x", name: "hm"}
        assert render("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}", [message]) == "hmhm"


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], "messages is empty"),
        ("hello", "messages is str; expected a list"),
        (USER, "messages is dict; expected a list"),
        (["hello"], r"messages\[0\] is str; expected an object"),
        ([USER, {"content": "x"}], r"messages\[1\] has no role"),
        ([{"role": 3, "content": "x"}], r"messages\[0\] has no role"),
        ([{"role": "user", "content": 3}], r"messages\[0\].content is int; expected a string or a list"),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            r"content\[0\] has type 'image_url'; .*text parts only",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], r"messages\[0\].content\[0\] has no text"),
        ([{"role": "user", "content": b"x"}], "messages holds a bytes; only JSON values"),
    ],
)
def test_malformed_messages_are_refused(messages: Any, error: str) -> None:
    with pytest.raises(RequestError, match=error) as caught:
        render(JOIN, messages)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("template", "error"),
    [
        (
            "{{ raise_exception('roles must alternate') }}",
            "the chat template refuses the messages: roles must alternate",
        ),
        ("{{ messages[0].content.missing.deeper }}", "the chat template failed on the messages: UndefinedError"),
        ("{{ messages[7].content + 'x' }}", "the chat template failed on the messages: UndefinedError"),
        ("{{ messages[0].content + 1 }}", "the chat template failed on the messages: TypeError"),
        ("{{ 1 / 0 }}", "the chat template failed on the messages: ZeroDivisionError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "the chat template failed on the messages: RecursionError"),
        ("{% if %}", r"the model's chat template is not valid \(line 1: .*\); give another with --chat-template"),
        ("{{ x | nofilter }}", "the model's chat template is not valid"),
    ],
)
def test_a_template_that_fails_is_an_error_of_the_request(template: str, error: str) -> None:
    with pytest.raises(RequestError, match=error) as caught:
        render(template, [USER])
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ strftime_now.__globals__['json'] }}",
        "{{ dict.__init__.__globals__ }}",
        "{% set n = namespace(__class__=1) %}",
        "{% set n = namespace() %}{% set n._x = 1 %}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ ('%s' % messages).__class__.x }}",
        "{{ '{0.__class__.x}'.format(1) }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_the_sandbox_holds(template: str) -> None:
    with pytest.raises(RequestError, match=r"the chat template failed on the messages: (Security|Undefined|Type)Error"):
        render(template, [USER])


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(1000000) %}{% endfor %}",
        "{{ 'x' * 100000000 }}",
        "{{ 100000000 * [1] }}",
        "{{ 10 ** 10000000 }}",
        "{% for i in range(100) %}{{ 'x' * 100000 }}{% endfor %}",
    ],
)
def test_what_a_template_makes_is_bounded(template: str) -> None:
    with pytest.raises(RequestError, match=r"the limit is|more than|[Rr]ange"):
        render(template, [USER])


def test_arithmetic_is_still_there() -> None:
    assert (
        render("{{ 2 ** 10 }} {{ 'ab' * 3 }} {{ 6 * 7 }} {{ [1] * 2 }} {{ 2.5 ** 2 }}", [USER])
        == "1024 ababab 42 [1, 1] 6.25"
    )


def test_values_that_are_not_json_never_reach_the_template() -> None:
    class Rich:
        pass

    with pytest.raises(RequestError, match="chat_template_kwargs holds a Rich"):
        render(JOIN, [USER], thing=Rich())
    with pytest.raises(RequestError, match="tools must be a list of objects"):
        render(JOIN, [USER], tools=["search"])  # type: ignore[list-item]
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    with pytest.raises(RequestError, match="nested more than 64 levels"):
        render(JOIN, [{"role": "user", "content": "x", "extra": deep}])


def test_continuing_needs_something_to_go_on_with() -> None:
    def leave_open(template: str, *messages: dict[str, Any], prompt: bool = False) -> str:
        return render(template, messages, continue_final_message=True, add_generation_prompt=prompt)

    with pytest.raises(RequestError, match="exclude each other") as caught:
        leave_open(JOIN, USER, prompt=True)
    assert caught.value.param == "continue_final_message"
    with pytest.raises(RequestError, match="the last message has no content"):
        leave_open(JOIN, {"role": "assistant", "tool_calls": []})
    with pytest.raises(RequestError, match="leaves out or rewrites the last message"):
        leave_open("fixed text", USER)
    with pytest.raises(RequestError, match="leaves out or rewrites the last message"):
        leave_open("{{ messages[-1].content | upper }}", USER)


def test_a_model_without_template_says_how_to_give_one(tokenizer: Tokenizer) -> None:
    assert tokenizer.chat_template is None
    with pytest.raises(RequestError, match=r"no chat template.*--chat-template") as caught:
        tokenizer.apply_chat_template([USER])
    assert caught.value.param == "messages"


def test_a_template_given_by_the_user_replaces_the_checkpoints(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", byte_level(chat_template="its own"))
    assert load_tokenizer(path).render_chat([USER]) == "its own"
    assert load_tokenizer(path, chat_template="mine").render_chat([USER]) == "mine"
    with pytest.raises(ConfigError, match="the chat template is not valid: line 2"):
        load_tokenizer(path, chat_template="\n{% if %}")


@pytest.mark.parametrize("template", ["{{ bos_token }}hello", "hello"])
def test_a_chat_prompt_has_one_bos_and_no_eos(tokenizer: Tokenizer, tmp_path: Path, template: str) -> None:
    section = sentencepiece(**{"ggml.add_bos_token": True, "ggml.add_eos_token": True})
    both = load_tokenizer(write_gguf(tmp_path / "model.gguf", section), chat_template=template)
    ids = both.apply_chat_template([USER])
    assert ids.count(1) == 1
    assert ids[0] == 1
    assert 2 not in ids
    assert both.decode(ids) == "hello"


def test_no_bos_where_the_model_wants_none(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", byte_level("qwen2"))
    assert 1 not in load_tokenizer(path, chat_template="hello").apply_chat_template([USER])


def test_a_lone_surrogate_is_an_error_of_the_request(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match=r"lone surrogate U\+D83D at character 2") as caught:
        tokenizer.encode("ab\ud83d")
    assert caught.value.param == "prompt"
    with pytest.raises(RequestError, match="lone surrogate") as caught:
        Tokenizer(tokenizer.hf, chat_template=JOIN).apply_chat_template([{"role": "user", "content": "\ud83d"}])
    assert caught.value.param == "messages"


def test_a_template_can_tell_a_turn_of_calls_by_its_missing_content() -> None:
    template = "{% for m in messages %}{{ m.content is none }} {{ m.content is defined }};{% endfor %}"
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "user", "content": None}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert render(template, messages) == "False False;True True;"
