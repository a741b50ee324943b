"""Stop strings against a brute-force oracle, however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from text.tokenizer.corpus import chunked

from octavo.errors import RequestError
from octavo.text import AnswerStops, StopStrings


def oracle(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The visible text and the stop: tries every end of the text, shortest first."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


def longest_beginning(text: str, stops: list[str]) -> int:
    """Length of the longest end of `text` that begins a stop string."""
    return max((n for stop in stops for n in range(len(stop)) if n <= len(text) and text.endswith(stop[:n])), default=0)


LETTERS = st.text("abc", max_size=40)
STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


@settings(deadline=None)
@given(text=LETTERS, stops=STOPS, include=st.booleans(), data=st.data())
@example(text="aabab", stops=["abab"], include=False, data=None)
@example(text="abcabcabd", stops=["abcabd", "cab"], include=False, data=None)
def test_stops_are_found_and_nothing_leaks(
    text: str, stops: list[str], include: bool, data: st.DataObject | None
) -> None:
    sizes = data.draw(chunked(len(text))) if data else [1] * len(text)
    watcher = StopStrings(stops, include=include)
    shown, matched, at = "", None, 0
    wanted, stop = oracle(text, stops, include)
    for size in sizes:
        new, matched = watcher.push(text[at : at + size])
        at += size
        shown += new
        if matched:
            break
        assert text.startswith(shown)
        assert len(shown) == at - longest_beginning(text[:at], stops), "all that is safe is shown, and no more"
    assert matched == stop
    assert shown + watcher.finish() == wanted


@settings(deadline=None)
@given(text=st.text(max_size=30), stops=st.lists(st.text(min_size=1, max_size=3), max_size=3), data=st.data())
def test_any_unicode_text(text: str, stops: list[str], data: st.DataObject) -> None:
    for start in data.draw(st.lists(st.integers(0, len(text)), max_size=2)):
        stops = [*stops, text[start : start + 2] or "x"]  # one that is surely there
    watcher = StopStrings(stops)
    shown, matched = watcher.push(text)
    assert (shown + watcher.finish(), matched) == oracle(text, stops, include=False)


def test_a_stop_string_over_three_chunks() -> None:
    watcher = StopStrings(["\n\nUser:"])
    assert watcher.push("Hello.\n") == ("Hello.", None)
    assert watcher.push("\nUs") == ("", None)
    assert watcher.push("er: more") == ("", "\n\nUser:")
    assert watcher.finish() == ""


def test_what_turns_out_to_be_no_stop_string_is_shown() -> None:
    watcher = StopStrings(["\n\nUser:"])
    assert watcher.push("Hello.\n\nUs") == ("Hello.", None)
    assert watcher.push("ually") == ("\n\nUsually", None)
    assert watcher.push("\n\n") == ("", None)
    assert watcher.finish() == "\n\n"


def test_the_stop_that_is_complete_first_wins_and_then_the_longest() -> None:
    assert StopStrings(["abc", "b"]).push("xabcd") == ("xa", "b")
    assert StopStrings(["bc", "abc"]).push("xabcd") == ("x", "abc")
    assert StopStrings(["bc", "abc"], include=True).push("xabcd") == ("xabc", "abc")


def test_after_a_match_nothing_more_is_shown() -> None:
    watcher = StopStrings(["."])
    assert watcher.push("one. two.") == ("one", ".")
    assert watcher.push("three") == ("", ".")
    assert watcher.finish() == ""


def test_without_stop_strings_text_passes() -> None:
    watcher = StopStrings([])
    assert watcher.push("any") == ("any", None)
    assert watcher.finish() == ""


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError, match="empty string") as caught:
        StopStrings(["a", ""])
    assert caught.value.param == "stop"


@settings(deadline=None)
@given(text=LETTERS, stops=STOPS, early=st.integers(0, 40), data=st.data())
def test_stops_that_are_complete_early_do_not_count(
    text: str, stops: list[str], early: int, data: st.DataObject
) -> None:
    """By the character here: one that a later character completes counts, wherever it begins."""
    watcher, shown, matched = StopStrings(stops), "", None
    for at, character in enumerate(text, 1):
        new, matched = watcher.push(character, early=at <= early, last=at == len(text))
        shown += new
        if matched:
            break
    ends = (end for end in range(early + 1, len(text) + 1) if any(text[:end].endswith(stop) for stop in stops))
    end = next(ends, None)
    if end is None:
        assert (shown, matched) == (text, None)
    else:
        longest = max((stop for stop in stops if text[:end].endswith(stop)), key=len)
        assert (shown, matched) == (text[: end - len(longest)], longest)


MARKS = ("<ab>", "</b>")
REASONED = st.lists(st.sampled_from(["<ab>", "</b>", "<", "a", "b", ">", "</", "c"]), max_size=12).map("".join)


def reasoned(text: str, stops: list[str], inside: bool, include: bool) -> tuple[str, str | None]:
    """The oracle of `AnswerStops`: cut at the marks first, then look into each stretch of the answer."""
    shown = ""
    while True:
        stretch, mark, text = text.partition(MARKS[inside])
        if not inside:
            visible, stop = oracle(stretch, stops, include)
            if stop is not None:
                return shown + visible, stop
        shown += stretch + mark
        if not mark:
            return shown, None
        inside = not inside


@settings(deadline=None)
@given(
    text=REASONED,
    stops=st.lists(st.text("abc<>/", min_size=1, max_size=4), max_size=3),
    inside=st.booleans(),
    include=st.booleans(),
    data=st.data(),
)
@example(text="ab</b>cab", stops=["b"], inside=True, include=False, data=None)
@example(text="c<ab>c</b>c", stops=["<"], inside=False, include=False, data=None)
@example(text="c<a", stops=["<"], inside=False, include=True, data=None)
def test_reasoning_stops_nothing(
    text: str, stops: list[str], inside: bool, include: bool, data: st.DataObject | None
) -> None:
    sizes = data.draw(chunked(len(text))) if data else [1] * len(text)
    watcher = AnswerStops(StopStrings(stops, include=include), MARKS, inside=inside)
    shown, matched, at = "", None, 0
    wanted, stop = reasoned(text, stops, inside, include)
    for size in sizes:
        new, matched = watcher.push(text[at : at + size])
        at, shown = at + size, shown + new
        assert wanted.startswith(shown)
        if matched:
            break
    if not matched:
        new, matched = watcher.push("", last=True)
        shown += new
    assert (shown, matched) == (wanted, stop)
