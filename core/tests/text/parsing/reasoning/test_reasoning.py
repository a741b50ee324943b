"""ReasoningText are told from words, whatever the pieces of text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text.parsing.drives import TOOLS, cuts, joined, parse

from octavo.errors import ConfigError
from octavo.text.parsing.answers import AnswerParser
from octavo.text.parsing.parts import ContentText
from octavo.text.parsing.reasoning import reasoning_parser_for, reasoning_parser_named
from octavo.text.parsing.reasoning.between import THINK
from octavo.text.parsing.reasoning.registry import BUILT_IN
from octavo.text.parsing.tools.hermes import HERMES

CASES = [
    (False, "<think>\nHm.\n</think>\n\nYes.", [("reasoning", "Hm."), ("words", "Yes.")]),
    (True, "\nHm.\n</think>\n\nYes. ", [("reasoning", "Hm."), ("words", "Yes. ")]),
    (True, "Hm", [("reasoning", "Hm")]),
    (True, "Hm <think> </thin", [("reasoning", "Hm <think> </thin")]),
    (False, "<think>\n\n</think>\n\nYes.", [("words", "Yes.")]),
    (False, "Yes. </think> No.", [("words", "Yes. </think> No.")]),
    (False, "A <think>B</think> C <think>D", [("words", "A"), ("reasoning", "B"), ("words", "C"), ("reasoning", "D")]),
    (False, "  Yes <thin", [("words", "  Yes <thin")]),
    (False, "", []),
]


@pytest.mark.parametrize(("inside", "text", "expected"), CASES)
def test_thoughts_are_found_wherever_the_text_is_cut(inside: bool, text: str, expected) -> None:
    for pieces in cuts(text):
        assert joined(parse(THINK.open(inside), pieces)) == expected


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.name)
@settings(max_examples=300, deadline=None)
@given(data=st.data(), inside=st.booleans(), seed=st.integers(0, 2**32))
def test_no_text_is_lost_but_the_marks_and_the_space_next_to_them(kind, data, inside: bool, seed: int) -> None:
    begin, end = MARKS[kind.name]
    text = data.draw(
        st.lists(st.sampled_from([begin, end, begin[:3], " \n", "a", "b c", "<"]), max_size=12).map("".join)
    )
    whole = joined(parse(kind.open(inside), [text]))
    for pieces in list(cuts(text, seed))[-3:]:
        assert joined(parse(kind.open(inside), pieces)) == whole
    marks = (begin, end)
    assert _bare("".join(said for _, said in whole), marks) == _bare(text, marks)


MARKS = {
    "think": ("<think>", "</think>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "seed": ("<seed:think>", "</seed:think>"),
    "kimi": ("◁think▷", "◁/think▷"),
    "gemma4": ("<|channel>thought", "<channel|>"),
}


def _bare(text: str, marks) -> str:
    for mark in marks:
        text = text.replace(mark, "")
    return "".join(text.split())


def test_whether_the_answer_begins_with_thoughts_is_seen_at_the_prompt_s_end() -> None:
    assert THINK.opened("<|im_start|>assistant\n<think>\n")
    assert not THINK.opened("<think>\n\n</think>\n\n")
    assert not THINK.opened("user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n")
    assert THINK.unclosed("<think>So far")
    assert not THINK.unclosed("<think>So</think> far")
    assert not THINK.unclosed("So far")


def test_thoughts_hold_no_calls_and_the_words_behind_them_do() -> None:
    call = '<tool_call>{"name": "get_time"}</tool_call>'
    parser = AnswerParser(THINK.open(True), HERMES.open(TOOLS))
    assert parser.thinking
    assert joined(parse(parser, f"{call}</think>\n\nNow.\n{call}")) == [
        ("reasoning", call),
        ("words", "Now."),
        ("call", "get_time"),
        ("arguments", "{}"),
    ]
    assert not parser.thinking


def test_markers_that_are_special_tokens_are_nobody_s_text() -> None:
    text = "a [TOOL_CALLS] b <tool_call> [TOOL_C"
    for pieces in cuts(text):
        parser = AnswerParser(calls=HERMES.open(TOOLS), hidden=["[TOOL_CALLS]", "<tool_call>"])
        assert joined(parse(parser, pieces)) == [("words", "a  b  [TOOL_C")]
    parser = AnswerParser(THINK.open(True), hidden=["[END]"])
    assert joined(parse(parser, "a[END]b[E</think>c[EN")) == [("reasoning", "ab[E"), ("words", "c[EN")]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ '<think>\\n' }}", "think"),
        ("content.split('</think>')", "think"),
        ("[THINK]", "mistral"),
        ("<seed:think>", "seed"),
        ("<|channel>thought", "gemma4"),
        ("<|im_start|>", None),
        (None, None),
    ],
)
def test_the_chat_template_chooses(template: str | None, name: str | None) -> None:
    found = reasoning_parser_for(template)
    assert (found and found.name) == name


def test_names_are_known_and_an_unknown_one_is_told() -> None:
    assert reasoning_parser_named("think") is THINK
    assert reasoning_parser_named("none") is None
    with pytest.raises(ConfigError, match=r"'deep'.*think.*--reasoning-parser"):
        reasoning_parser_named("deep")


def test_reasoning_that_becomes_the_answer_says_where_it_stands() -> None:
    """Whatever was hidden inside of it: the logprobs of the content are found by that."""
    parser = AnswerParser(THINK.open(True), hidden=["[END]"])
    answer = "\nHm[END] yes.[END]"
    pushed = [part for piece in (answer[:5], answer[5:9], answer[9:]) for part in parser.push(piece)]
    assert joined(pushed) == [("reasoning", "Hm yes.")]
    content = [part for part in parser.finish(ended=True) if isinstance(part, ContentText)]
    assert "".join(part.text for part in content) == "Hm yes."
    assert "".join(answer[begin:end] for part in content for begin, end in part.spans) == "Hm yes."
