"""What a client sees of a stream, on the vocabularies of real checkpoints: at every moment a beginning of the whole
text up to the stop string, nothing of which ever shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text.tokenizer.corpus import CORPUS

from octavo.engine.outputs import RequestState
from octavo.sampling import SamplingParams
from octavo.scheduler import TokenEvent
from octavo.text import Tokenizer, load_tokenizer

pytestmark = pytest.mark.real_model

LONGEST = 40
"""Tokens of a choice: shorter than the run of byte tokens that a byte-fallback decoder judges as a whole."""


@pytest.fixture(scope="module", params=["smollm2_gguf", "gemma3_gguf"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    path: Path = request.getfixturevalue(request.param)
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def fragments(tokenizer: Tokenizer) -> list[int]:
    """Tokens that are no whole characters."""
    return [i for i in range(tokenizer.vocab_size) if "\ufffd" in tokenizer.token_text(i)]


@dataclass
class Seen:
    """What a client has of one choice."""

    text: str = ""
    finish_reason: str | None = None
    stop_reason: int | str | None = None


def first_complete(text: str, stops: list[str]) -> tuple[int, str] | None:
    """Where the first stop string ends that is complete, and which: the longest of those that end there."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text.endswith(stop, 0, end)]
        if complete:
            return end, max(complete, key=len)
    return None


def whole_text(tokenizer: Tokenizer, prompt: list[int], ids: list[int], skip: bool) -> str:
    before = tokenizer.decode(prompt, skip_special_tokens=skip)
    text = tokenizer.decode(prompt + ids, skip_special_tokens=skip)
    assert text.startswith(before)
    return text[len(before) :]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_client_sees_beginnings_of_the_whole_text_and_nothing_of_a_stop_string(
    tokenizer: Tokenizer, fragments: list[int], data: st.DataObject
) -> None:
    token = (
        st.integers(0, tokenizer.vocab_size - 1)
        | st.sampled_from(fragments)
        | st.sampled_from(sorted(tokenizer.special_ids))
    )
    random_ids = st.lists(token, min_size=1, max_size=LONGEST)
    spelled = st.sampled_from(CORPUS[1:]).map(
        lambda text: tokenizer.encode(text, add_special_tokens=False)[:LONGEST] or [1]
    )
    n = data.draw(st.integers(1, 3), "n")
    outputs = [data.draw(random_ids | spelled, f"choice {i}") for i in range(n)]
    skip = data.draw(st.booleans(), "skip_special_tokens")
    include = data.draw(st.booleans(), "include_stop_str_in_output")
    reasons = [data.draw(st.sampled_from(["length", "stop"])) for _ in range(n)]
    prompt = tokenizer.encode("a", add_special_tokens=False)

    visible = [ids[:-1] if r == "stop" and not include else ids for ids, r in zip(outputs, reasons, strict=True)]
    wholes = [whole_text(tokenizer, prompt, ids, skip) for ids in visible]
    stops = data.draw(st.lists(_stops(wholes), max_size=3), "stops")
    params = SamplingParams(n=n, stop=stops, include_stop_str_in_output=include, skip_special_tokens=skip)

    expected = []
    for whole, reason in zip(wholes, reasons, strict=True):
        found = first_complete(whole, stops)
        if found is None:
            expected.append(Seen(whole, reason, None))
        else:
            end, stop = found
            expected.append(Seen(whole[: end if include else end - len(stop)], "stop", stop))

    seen = [Seen() for _ in range(n)]
    state = RequestState("r", tuple(prompt), params, tokenizer)
    for event in _events(outputs, reasons, data):
        delta = state.update(event)
        if delta is None:
            assert seen[event.index].finish_reason is not None
            continue
        [choice] = delta.outputs
        one = seen[choice.index]
        assert one.finish_reason is None, "nothing comes after the end"
        one.text += choice.text
        one.finish_reason, one.stop_reason = choice.finish_reason, choice.stop_reason
        assert expected[choice.index].text.startswith(one.text)
        assert one.text.count("\ufffd") <= wholes[choice.index].count("\ufffd")
        assert delta.finished == all(other.finish_reason is not None for other in seen)
    assert seen == expected


def _stops(texts: list[str]) -> st.SearchStrategy[str]:
    """Strings that often occur in the texts, or nearly."""
    joined = "".join(texts)
    anything = st.sampled_from(["\n", " ", "the", "\ufffd", "zzz", "é"]) | st.text(
        st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4
    )
    if not joined:
        return anything
    cut = st.tuples(st.integers(0, len(joined) - 1), st.integers(1, 6)).map(lambda at: joined[at[0] : at[0] + at[1]])
    return cut | cut.map(lambda text: text + "#") | anything


def _events(outputs: list[list[int]], reasons: list[str], data: st.DataObject) -> list[TokenEvent]:
    """The choices' tokens in events of a few each, in turn."""
    events = []
    left = [list(ids) for ids in outputs]
    while any(left):
        for index, ids in enumerate(left):
            if not ids:
                continue
            size = data.draw(st.integers(1, 4))
            tokens, left[index] = tuple(ids[:size]), ids[size:]
            reason = None if left[index] else reasons[index]
            events.append(TokenEvent("r", index, tokens, finish_reason=reason))  # type: ignore[arg-type]
    return events
