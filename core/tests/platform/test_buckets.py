"""Buckets: what is proved is covered, what is picked is the cheapest that covers, and padding never shrinks a step."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ConfigError
from octavo.platform.buckets import Bucket, BucketPolicy, BucketSet, powers_up_to

sizes = st.integers(1, 40)
listed = st.none() | st.lists(sizes, min_size=1, max_size=4).map(tuple)
products = st.builds(BucketPolicy, tokens=listed, rows=listed, samples=listed, blocks=listed)
free_or_fixed = st.none() | sizes
explicits = st.lists(
    st.builds(Bucket, free_or_fixed, free_or_fixed, free_or_fixed, free_or_fixed), min_size=1, max_size=6
).map(lambda found: BucketPolicy(explicit=tuple(found)))
policies = products | explicits


@st.composite
def steps(draw: st.DrawFn) -> Bucket:
    """A step has no more rows, and no more samples, than tokens."""
    tokens = draw(sizes)
    return Bucket(tokens, draw(st.integers(1, tokens)), draw(st.integers(0, tokens)), draw(sizes))


def all_listed(policy: BucketPolicy) -> list[Bucket]:
    """Every bucket that the policy speaks of, those that `buckets` leaves out included."""
    if policy.explicit:
        return list(policy.explicit)
    found = [Bucket()]
    for field in Bucket._fields:
        values = getattr(policy, field)
        found = [b._replace(**{field: value}) for b in found for value in (values or (None,))]
    return found


@given(policy=policies, largest=steps(), data=st.data())
def test_a_proof_covers_every_smaller_step(policy: BucketPolicy, largest: Bucket, data: st.DataObject) -> None:
    buckets = BucketSet(policy)
    try:
        buckets.prove(largest)
    except ConfigError:
        assert buckets.find(*largest) is None
        return
    tokens = data.draw(st.integers(1, largest.tokens))
    step = Bucket(
        tokens,
        data.draw(st.integers(1, min(tokens, largest.rows))),
        data.draw(st.integers(0, min(tokens, largest.samples))),
        data.draw(st.integers(1, largest.blocks)),
    )
    assert buckets.pick(*step).covers(step)


@given(policy=policies, step=steps())
@settings(max_examples=300)
def test_the_pick_is_the_cheapest_listed_bucket_that_covers_the_step(policy: BucketPolicy, step: Bucket) -> None:
    covering = [bucket for bucket in all_listed(policy) if bucket.covers(step)]
    picked = BucketSet(policy).find(*step)
    if not covering:
        assert picked is None
    else:
        assert picked in covering
        assert picked.volume == min(bucket.volume for bucket in covering)


@given(policy=policies, step=steps())
def test_padding_is_never_below_the_step(policy: BucketPolicy, step: Bucket) -> None:
    picked = BucketSet(policy).find(*step)
    if picked is not None:
        assert all(have is None or have >= needed for have, needed in zip(picked, step, strict=True))


def test_a_platform_with_dynamic_shapes_has_one_bucket_for_all() -> None:
    buckets = BucketSet(BucketPolicy())
    buckets.prove(Bucket(10**6, 10**4, 10**4, 10**5))
    assert buckets.pick(10**6, 10**4, 10**4, 10**5) == Bucket()


def test_a_step_without_a_bucket_is_named_with_the_settings_that_shrink_it() -> None:
    buckets = BucketSet(BucketPolicy(tokens=(64,), rows=(8,)))
    with pytest.raises(ConfigError, match=r"65 tokens, 8 rows.*--max-num-batched-tokens"):
        buckets.prove(Bucket(64, 8, 8, 100), Bucket(65, 8, 8, 1))


def test_the_first_rows_size_that_reaches_the_tokens_is_kept_and_larger_ones_are_not() -> None:
    policy = BucketPolicy(tokens=(2, 8), rows=(4, 12, 16))
    assert {(b.tokens, b.rows) for b in policy.buckets()} == {(2, 4), (8, 4), (8, 12)}


@given(limit=st.integers(1, 10_000), start=st.integers(1, 64))
def test_powers_rise_to_the_limit_itself(limit: int, start: int) -> None:
    values = powers_up_to(limit, start)
    assert values[-1] == limit
    assert all(a < b <= 2 * a for a, b in pairwise(values))
