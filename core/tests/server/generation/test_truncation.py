"""``truncate_prompt_tokens``: which part of a prompt is kept."""

from __future__ import annotations

import pytest
from server_fake import BOS, FakeEngine

ABCDE = [97, 98, 99, 100, 101]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, ABCDE),
        ({"truncate_prompt_tokens": 2}, ABCDE[-2:]),
        ({"truncate_prompt_tokens": 5}, ABCDE),
        ({"truncate_prompt_tokens": 900}, ABCDE),
        ({"truncate_prompt_tokens": 2, "truncation_side": "left"}, ABCDE[-2:]),
        ({"truncate_prompt_tokens": 2, "truncation_side": "right"}, ABCDE[:2]),
        ({"truncate_prompt_tokens": -1}, ABCDE),
        ({"truncation_side": "right"}, ABCDE),
    ],
)
def test_the_asked_part_of_a_prompt_is_kept(served, engine: FakeEngine, fields, kept) -> None:
    assert served.complete(prompt=[ABCDE, ABCDE], **fields).status == 200
    assert [seen.prompt for seen in engine.seen] == [kept, kept]


def test_a_bos_goes_with_the_start(served, engine: FakeEngine) -> None:
    for side in ("left", "right"):
        assert served.complete(prompt="abcde", truncate_prompt_tokens=3, truncation_side=side).status == 200
    assert [seen.prompt for seen in engine.seen] == [[99, 100, 101], [BOS, 97, 98]]


def test_a_conversation_is_cut_too(served, engine: FakeEngine) -> None:
    assert served.chat(truncate_prompt_tokens=4).status == 200
    assert engine.seen[0].text == "ant:"


def test_minus_one_leaves_room_for_the_output(served, engine: FakeEngine) -> None:
    engine.max_model_len = 8
    assert served.complete(prompt=ABCDE, truncate_prompt_tokens=-1, max_tokens=5).status == 200
    assert engine.seen[0].prompt == ABCDE[-3:]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 1001}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": "all"}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -1, "max_tokens": 1000}, "max_tokens"),
        ({"truncate_prompt_tokens": 1, "truncation_side": "middle"}, "truncation_side"),
    ],
)
def test_what_cannot_be_kept_is_a_400(served, engine: FakeEngine, fields, param) -> None:
    reply = served.complete(**fields)
    assert (reply.status, reply.error["param"]) == (400, param)
    assert not engine.seen
