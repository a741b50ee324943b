"""Where a sampling value comes from."""

from __future__ import annotations

import pytest
from server_fake import FakeEngine

from octavo.sampling import SamplingParams

CHECKPOINT = {
    "temperature": 0.6,
    "top_p": 0.9,
    "top_k": 64,
    "min_p": None,
    "repetition_penalty": 1.1,
    "max_new_tokens": 3,
    "do_sample": True,
    "eos_token_id": [1, 106],
}


def test_without_a_checkpoint_s_word_the_api_s_defaults_hold(served, engine: FakeEngine) -> None:
    served.complete()
    served.chat()
    completion, chat = (seen.params for seen in engine.seen)
    assert completion == SamplingParams(max_tokens=16)
    assert chat == SamplingParams(max_tokens=None)


def test_the_checkpoint_s_defaults_come_before_the_api_s(served, engine: FakeEngine) -> None:
    engine.default_params = CHECKPOINT
    served.complete()
    served.chat()
    completion, chat = (seen.params for seen in engine.seen)
    sampling = {"temperature": 0.6, "top_p": 0.9, "top_k": 64, "repetition_penalty": 1.1}
    assert completion == SamplingParams(max_tokens=16, **sampling)
    assert chat == SamplingParams(max_tokens=3, **sampling)


def test_the_request_comes_before_all(served, engine: FakeEngine) -> None:
    engine.default_params = CHECKPOINT
    asked = {"temperature": 0, "top_p": 1, "top_k": 0, "repetition_penalty": 1, "max_tokens": 9}
    served.complete(**asked)
    served.chat(**asked)
    for seen in engine.seen:
        assert seen.params == SamplingParams(temperature=0, top_p=1, top_k=0, repetition_penalty=1, max_tokens=9)


@pytest.mark.parametrize("both", [{"max_tokens": 4, "max_completion_tokens": 4}, {"max_completion_tokens": 4}])
def test_the_two_names_of_the_chat_limit_mean_the_same(served, engine: FakeEngine, both) -> None:
    assert served.chat(**both).status == 200
    assert engine.seen[0].params.max_tokens == 4
