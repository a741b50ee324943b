"""Masks as words, the biases that stand for them, and the masks that a batch of rows comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runner.draws import Draw, make_batch

from octavo.platform import Bucket, SamplingBatch
from octavo.platform.step import Words
from octavo.runner import Batch, HostSampler
from octavo.runner.masks import allowed_tokens, as_bias, pack
from octavo.sampling import SamplingParams
from octavo.step_plan import NewRow, StepPlan

VOCAB = 70


@given(st.integers(1, 200).flatmap(lambda v: st.tuples(st.just(v), st.frozensets(st.integers(0, v - 1)))))
def test_a_mask_holds_its_tokens(case: tuple[int, frozenset[int]]) -> None:
    vocab, tokens = case
    words = pack(tokens, vocab)
    assert words.dtype == np.uint32 and words.shape == (-(-vocab // 32),)
    assert {t for t in range(vocab) if int(words[t // 32]) >> (t % 32) & 1} == tokens
    assert np.flatnonzero(allowed_tokens(words, vocab)).tolist() == sorted(tokens)


@given(st.lists(st.none() | st.frozensets(st.integers(0, VOCAB - 1), max_size=9), min_size=1, max_size=5))
@settings(deadline=None)
def test_biases_stand_for_a_mask(masks: list[frozenset[int] | None]) -> None:
    logits = np.random.default_rng(1).standard_normal((3, VOCAB)).astype(np.float32)
    batch = make_batch(
        [Draw(row=i % 3, seed=i, allowed=m, vocab=VOCAB, bias={3: 9.0}, top_k=i % 2 * 4) for i, m in enumerate(masks)]
    )
    spelled = as_bias(batch, VOCAB)
    assert spelled.mask is None
    by_mask, by_bias = HostSampler().sample(logits.copy(), batch), HostSampler().sample(logits.copy(), spelled)
    assert np.array_equal(by_mask.failed, by_bias.failed)
    assert np.array_equal(by_mask.tokens[~by_mask.failed], by_bias.tokens[~by_bias.failed])
    assert by_mask.failed.tolist() == [m == frozenset() for m in masks]


# -- batches ----------------------------------------------------------------------------------------


@dataclass
class Fixed:
    """Lets the same tokens come always."""

    tokens: tuple[int, ...]
    ends: frozenset[int] = frozenset({0})
    reason: str | None = None
    asked: int = 0

    def mask(self, out: Words) -> str | None:
        self.asked += 1
        out[:] = pack(self.tokens, VOCAB)
        return self.reason

    def accept(self, token: int) -> bool:
        raise NotImplementedError("the runner does not accept tokens")

    def fork(self) -> Fixed:
        raise NotImplementedError("the runner does not fork")


def row(name: str, constraint: Fixed | None = None, output: int = 0, **params: Any) -> NewRow:
    ids = [1, 2, *range(3, 3 + output)]
    asked = SamplingParams(**{"max_tokens": 50, **params})
    return NewRow(name, ids, 2, asked, 0, 0, frozenset({0}) | asked.stop_ids, [[1, 2, 3]], constraint)


def sampling(*rows: NewRow, samples: int = 1, **batch: Any) -> SamplingBatch:
    made = Batch(8, 40, 16, 1, vocab_size=VOCAB, **batch)
    plan = StepPlan(
        rows=[r.id for r in rows],
        counts=[1] * len(rows),
        computed=[len(r.tokens) - 1 for r in rows],
        samples=[samples] * len(rows),
        bucket=Bucket(),
        new=list(rows),
    )
    made.apply(plan)
    return made.build(plan)[0].sampling


def masks(batch: SamplingBatch) -> dict[int, list[int]]:
    assert batch.mask is not None
    return {
        draw: np.flatnonzero(allowed_tokens(words, VOCAB)).tolist()
        for draw, words in zip(batch.mask[0].tolist(), batch.mask[1], strict=True)
    }


def test_only_constrained_rows_have_masks() -> None:
    batch = sampling(row("a"), row("b", Fixed((4, 33))), row("c"), row("d", allowed_token_ids=[69]))
    assert masks(batch) == {1: [4, 33], 3: [69]}
    assert not batch.plain_greedy
    assert sampling(row("a"), row("c")).mask is None


def test_greedy_rows_with_a_mask_are_not_plain() -> None:
    assert not sampling(row("a", Fixed((4,)), temperature=0.0)).plain_greedy


def test_a_mask_is_made_once_for_all_draws_of_a_row() -> None:
    constraint = Fixed((5, 6))
    assert masks(sampling(row("a", constraint, n=3), row("b"), samples=3)) == {0: [5, 6], 1: [5, 6], 2: [5, 6]}
    assert constraint.asked == 1


@pytest.mark.parametrize(
    ("params", "output", "expected"),
    [
        ({}, 0, [0, 4, 7]),
        ({"min_tokens": 2}, 1, [4, 7]),
        ({"min_tokens": 2}, 2, [0, 4, 7]),
        ({"min_tokens": 2, "stop_token_ids": [7]}, 1, [4]),
        ({"min_tokens": 2, "stop_token_ids": [7]}, 2, [0, 4, 7]),
        ({"ignore_eos": True}, 5, [4, 7]),
        ({"ignore_eos": True, "stop_token_ids": [7]}, 5, [4, 7]),
        ({"allowed_token_ids": [0, 7, 9]}, 0, [0, 7]),
        ({"min_tokens": 1, "allowed_token_ids": [0, 7, 9]}, 0, [7]),
    ],
)
def test_ends_fall_out_while_the_sequence_must_go_on(params: dict[str, Any], output: int, expected: list[int]) -> None:
    batch = sampling(row("a", Fixed((0, 4, 7)), output, **params))
    assert masks(batch) == {0: expected}
    assert not len(batch.bias[0])


@pytest.mark.parametrize("params", [{"min_tokens": 5}, {"ignore_eos": True}])
def test_an_end_that_is_all_that_may_come_stays(params: dict[str, Any]) -> None:
    assert masks(sampling(row("a", Fixed((0,)), **params))) == {0: [0]}


def test_a_platform_without_masks_gets_biases() -> None:
    batch = sampling(row("a"), row("b", Fixed((4, 33)), logit_bias={4: 1.0}), masks=False)
    assert batch.mask is None
    draws, tokens, values = batch.bias
    forbidden = {int(t) for d, t, v in zip(draws, tokens, values, strict=True) if d == 1 and v == -np.inf}
    assert forbidden == set(range(VOCAB)) - {4, 33}
    assert (1, 4, 1.0) in zip(draws.tolist(), tokens.tolist(), values.tolist(), strict=True)


@pytest.mark.parametrize(
    ("words", "output", "expected"),
    [
        ([(9,)], 0, {9}),
        ([(3, 9)], 0, set()),
        ([(3, 9)], 1, {9}),
        ([(3, 4, 9), (4, 8), (7,)], 2, {9, 8, 7}),
        ([(3, 9)], 2, set()),
        ([(2, 9)], 0, set()),  # 2 is the prompt's
    ],
)
def test_bad_words_forbid_their_last_token_behind_the_others(
    words: list[tuple[int, ...]], output: int, expected: set[int]
) -> None:
    batch = sampling(row("a", output=output, bad_words=words), row("b"))
    draws, tokens, values = batch.bias
    assert set(tokens.tolist()) == expected
    assert not len(draws) or (set(draws.tolist()), set(values.tolist())) == ({0}, {-np.inf})
