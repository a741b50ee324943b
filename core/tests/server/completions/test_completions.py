"""Legacy completions: prompts of every shape, echo, logprobs, streams."""

from __future__ import annotations

import openai
import pytest
from server_fake import BANG, BOS, COMMA, E_ACUTE, HELLO, HOWDY, TWIN, FakeEngine

from octavo.text.tokenizer.fim import FillInMiddle


def test_one_prompt_one_choice(client: openai.OpenAI, engine: FakeEngine) -> None:
    got = client.completions.create(model="fake", prompt="Hi")
    assert got.id.startswith("cmpl-")
    assert got.object == "text_completion"
    assert [(c.index, c.text, c.finish_reason, c.logprobs) for c in got.choices] == [(0, "Hello, world!", "stop", None)]
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (3, 5, 8)
    assert engine.seen[0].params.max_tokens == 16


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("ab", [[BOS, 97, 98]]),
        (["a", "b"], [[BOS, 97], [BOS, 98]]),
        ([97, 98], [[97, 98]]),
        ([[97], [98, 99]], [[97], [98, 99]]),
        ([[97], "b"], [[97], [BOS, 98]]),
    ],
)
def test_each_shape_of_prompt_is_understood(served, engine: FakeEngine, prompt, expected) -> None:
    assert served.complete(prompt=prompt).status == 200
    assert sorted(seen.prompt for seen in engine.seen) == sorted(expected)


def test_special_tokens_can_be_left_out(served, engine: FakeEngine) -> None:
    assert served.complete(prompt="ab", add_special_tokens=False).status == 200
    assert engine.seen[0].prompt == [97, 98]


def test_choice_j_of_prompt_i_has_the_index_i_n_plus_j(served, engine: FakeEngine) -> None:
    engine.cached = 1
    got = served.complete(prompt=["a", "bc"], n=2, echo=True, best_of=2).json
    assert [(c["index"], c["text"]) for c in got["choices"]] == [
        (0, "aHello, world!"),
        (1, "aHowdy, world!"),
        (2, "bcHello, world!"),
        (3, "bcHowdy, world!"),
    ]
    assert got["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 20,
        "total_tokens": 25,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def test_a_stream_of_many_prompts_keeps_the_choices_apart(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.pause = 0.001
    texts = [""] * 4
    finished = []
    usage = None
    stream = client.completions.create(
        model="fake", prompt=["a", "b"], n=2, echo=True, stream=True, stream_options={"include_usage": True}
    )
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            finished += [choice.index] if choice.finish_reason else []
        usage = chunk.usage
    assert texts == ["aHello, world!", "aHowdy, world!", "bHello, world!", "bHowdy, world!"]
    assert sorted(finished) == [0, 1, 2, 3]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (4, 20)


def test_logprobs_have_the_legacy_shape(served) -> None:
    [choice] = served.complete(max_tokens=2, logprobs=2).json["choices"]
    assert choice["logprobs"] == {
        "tokens": ["Hello", ","],
        "token_logprobs": [-0.25, -0.5],
        # COMMA and its twin write alike: the second is told by its id and does not cover the first
        "top_logprobs": [{"Hello": -0.25, "!": -0.375}, {",": -0.5, f"token_id:{TWIN}": -0.625}],
        "text_offset": [0, 5],
    }


def test_logprobs_zero_gives_the_chosen_token_alone(served) -> None:
    [choice] = served.complete(max_tokens=1, logprobs=0).json["choices"]
    assert choice["logprobs"]["top_logprobs"] == [{"Hello": -0.25}]


def test_an_echo_scores_the_prompt(served) -> None:
    """What lm-eval asks for: the prompt's logprobs, and one generated token."""
    [choice] = served.complete(prompt=[97, 98], max_tokens=1, logprobs=1, echo=True, temperature=0).json["choices"]
    assert choice["text"] == "abHello"
    assert choice["logprobs"] == {
        "tokens": ["a", "b", "Hello"],
        "token_logprobs": [None, -0.25, -0.25],
        "top_logprobs": [None, {"b": -0.25}, {"Hello": -0.25}],
        "text_offset": [0, 1, 2],
    }


def test_an_echo_without_generation(served, engine: FakeEngine) -> None:
    got = served.complete(prompt="ab", max_tokens=0, logprobs=0, echo=True).json
    [choice] = got["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("ab", "length")
    assert choice["logprobs"]["tokens"] == ["<s>", "a", "b"]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.25, -0.5]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1]  # <s> is not in the text
    assert got["usage"]["completion_tokens"] == 0
    assert engine.seen[0].params.max_tokens == 0


def test_a_streamed_echo_comes_once_and_with_its_logprobs(served) -> None:
    events = served.complete(prompt="ab", max_tokens=2, logprobs=0, echo=True, stream=True).events
    choices = [e["choices"][0] for e in events]
    assert [c["text"] for c in choices] == ["abHello", ","]
    assert [c["logprobs"]["tokens"] for c in choices] == [["<s>", "a", "b", "Hello"], [","]]
    assert [c["logprobs"]["text_offset"] for c in choices] == [[0, 0, 1, 2], [7]]


def test_offsets_count_characters_though_tokens_split_them(served, engine: FakeEngine) -> None:
    [choice] = served.complete(prompt="é!", max_tokens=0, logprobs=0, echo=True).json["choices"]
    assert choice["text"] == "é!"
    assert choice["logprobs"]["tokens"] == ["<s>", "bytes:\\xc3", "bytes:\\xa9", "!"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 0, 1]
    engine.script = (E_ACUTE, HELLO)
    [choice] = served.complete(logprobs=0).json["choices"]
    assert choice["logprobs"]["text_offset"] == [0, 1]


def test_the_best_are_those_with_the_highest_logprob_per_token(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.slants = (-1.0, 0.0, -0.5)
    got = client.completions.create(model="fake", prompt=["a", "b"], n=2, best_of=3, max_tokens=2)
    assert [(c.index, c.text, c.logprobs) for c in got.choices] == [
        (0, "Howdy,", None),
        (1, "Hi,", None),
        (2, "Howdy,", None),
        (3, "Hi,", None),
    ]
    assert got.usage.completion_tokens == 2 * 3 * 2  # what was drawn, not what came back
    assert [(seen.params.n, seen.params.logprobs) for seen in engine.seen] == [(3, 0)] * 2


def test_the_best_keep_their_logprobs_and_their_echo(served, engine: FakeEngine) -> None:
    engine.slants = (-1.0, 0.0)
    got = served.complete(prompt="a", best_of=2, max_tokens=1, logprobs=1, echo=True, return_token_ids=True).json
    [choice] = got["choices"]
    assert choice["text"] == "aHowdy"
    assert choice["logprobs"]["token_logprobs"] == [None, -0.25, -0.25]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([BOS, 97], [HOWDY])


def test_best_of_as_many_as_n_changes_nothing(served, engine: FakeEngine) -> None:
    engine.slants = (-1.0, 0.0)
    events = served.complete(n=2, best_of=2, stream=True, max_tokens=1).events
    assert [e["choices"][0]["text"] for e in events] == ["Hello", "Howdy"]
    assert served.complete(n=2, best_of=2).json["choices"][0]["text"] == "Hello, world!"
    assert all(seen.params.logprobs is None for seen in engine.seen)


def test_a_gap_is_filled(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.tokenizer.fim = FillInMiddle(1, 2, 3, ends=frozenset({9}))
    got = client.completions.create(model="fake", prompt="ab", suffix="c", extra_body={"stop_token_ids": [7]})
    assert got.choices[0].text == "Hello, world!"
    client.completions.create(model="fake", prompt=[[97], [BOS, 98]], suffix="c", extra_body={"ignore_eos": True})
    assert sorted(seen.prompt for seen in engine.seen) == [
        [1, 97, 2, 99, 3],
        [BOS, 1, 97, 98, 2, 99, 3],
        [BOS, 1, 98, 2, 99, 3],
    ]
    assert [seen.params.stop_ids for seen in engine.seen] == [{7, 9}, set(), set()]


@pytest.mark.parametrize("other", [{"echo": True}, {"truncate_prompt_tokens": 4}])
def test_a_gap_s_prompt_is_neither_echoed_nor_cut(served, engine: FakeEngine, other) -> None:
    engine.tokenizer.fim = FillInMiddle(1, 2, 3)
    reply = served.complete(suffix="c", **other)
    assert (reply.status, reply.error["param"]) == (400, next(iter(other)))
    assert served.complete(suffix="", **other).status == 200  # there is no gap


def test_prompt_logprobs_come_by_token_id(served, engine: FakeEngine) -> None:
    [choice] = served.complete(prompt=[97, 98, COMMA], max_tokens=1, prompt_logprobs=2).json["choices"]
    assert (choice["text"], choice["logprobs"]) == ("Hello", None)
    bang = {"logprob": -0.375, "rank": 2, "decoded_token": "!"}
    assert choice["prompt_logprobs"] == [
        None,
        {"98": {"logprob": -0.25, "rank": 1, "decoded_token": "b"}, str(BANG): bang},
        {
            str(COMMA): {"logprob": -0.5, "rank": 1, "decoded_token": ","},
            str(TWIN): {"logprob": -0.625, "rank": 2, "decoded_token": ","},
        },
    ]


def test_echo_and_prompt_logprobs_have_as_many_alternatives_as_each_asked(served, engine: FakeEngine) -> None:
    fields = {"prompt": [97, 98], "max_tokens": 1, "echo": True, "logprobs": 1, "prompt_logprobs": 0}
    [choice] = served.complete(**fields).json["choices"]
    assert choice["logprobs"]["top_logprobs"] == [None, {"b": -0.25}, {"Hello": -0.25}]
    assert choice["prompt_logprobs"] == [None, {"98": {"logprob": -0.25, "rank": 1, "decoded_token": "b"}}]
    [choice] = served.complete(**{**fields, "logprobs": 0, "prompt_logprobs": 2}).json["choices"]
    assert choice["logprobs"]["top_logprobs"] == [None, {"b": -0.25}, {"Hello": -0.25}]
    assert [len(entry or ()) for entry in choice["prompt_logprobs"]] == [0, 2]
    assert [seen.params.prompt_logprobs for seen in engine.seen] == [1, 2]


def test_a_stream_has_the_objects_of_the_whole_answer(served) -> None:
    events = served.complete(stream=True, return_token_ids=True, max_tokens=2).events
    assert [e["object"] for e in events] == ["text_completion"] * 2
    choices = [e["choices"][0] for e in events]
    assert [(c["text"], c["token_ids"], c["finish_reason"]) for c in choices] == [
        ("Hello", [HELLO], None),
        (",", [COMMA], "length"),
    ]
    assert [c.get("prompt_token_ids") for c in choices] == [[BOS, 72, 105], None]


def test_no_chunk_is_empty_while_text_is_held_back(served, engine: FakeEngine) -> None:
    engine.silent = frozenset({0})
    events = served.complete(stream=True).events
    assert [e["choices"][0]["text"] for e in events] == ["Hello,", " wor", "ld", "!"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": {"text": "a"}}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [[1, "a"]]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": ["a"] * 6}, "prompt"),
        ({"prompt": ["a"] * 5, "n": 3}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": "yes"}, "echo"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"best_of": 129}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"prompt": ["a"] * 5, "best_of": 3}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"suffix": 1}, "suffix"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt_logprobs": 65}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ],
)
def test_a_wrong_value_is_a_400_that_names_the_field(served, engine: FakeEngine, fields, param) -> None:
    reply = served.complete(**fields)
    assert (reply.status, reply.error["param"]) == (400, param)
    assert not engine.seen


def test_a_missing_prompt_is_named(served) -> None:
    reply = served.request("POST", "/v1/completions", {"model": "fake"})
    assert (reply.status, reply.error["param"], reply.error["code"]) == (400, "prompt", "missing_required_parameter")
