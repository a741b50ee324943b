"""Digests: equal for equal histories in one namespace, different for anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv import PrefixIndex

names = st.lists(st.text(max_size=4), min_size=1, max_size=3)
tokens = st.lists(st.integers(0, 2**40), min_size=1, max_size=4)


@given(a=names, b=names)
def test_namespaces_share_a_root_only_if_every_part_is_equal(a: list[str], b: list[str]) -> None:
    index = PrefixIndex(1)
    assert (index.root(a[0], a[1:]) == index.root(b[0], b[1:])) == (a == b)


@given(chain=st.lists(tokens, min_size=2, max_size=4), other=tokens)
def test_a_digest_depends_on_everything_before_it(chain: list[list[int]], other: list[int]) -> None:
    index = PrefixIndex(1)

    def last(blocks: list[list[int]], namespace: str = "") -> bytes:
        digest = index.root(namespace)
        for block in blocks:
            digest = index.digest(digest, block)
        return digest

    assert last(chain) == last([list(block) for block in chain])
    assert last(chain) != last(chain, "tenant")
    assert (last(chain) == last([other, *chain[1:]])) == (chain[0] == other)
    assert len(last(chain)) == 16


def test_digests_cannot_be_worked_out_without_the_key() -> None:
    first, second = PrefixIndex(1), PrefixIndex(1)
    assert first.root("") != second.root("")
    assert PrefixIndex(1, b"k").root("") == PrefixIndex(1, b"k").root("")


def test_groups_are_kept_apart_and_a_dropped_block_is_forgotten() -> None:
    index = PrefixIndex(2)
    digest = index.digest(index.root(""), [1, 2])
    index.put(0, digest, 7)
    assert index.get(0, digest) == 7
    assert index.get(1, digest) is None
    index.put(1, digest, 8)
    index.drop(7)
    assert (index.get(0, digest), index.get(1, digest)) == (None, 8)
    assert 7 not in index
    assert 8 in index


def test_a_lone_surrogate_in_a_namespace_is_only_another_name() -> None:
    index = PrefixIndex(1)
    assert index.root("\ud800") != index.root("")


def test_content_is_indexed_once() -> None:
    index = PrefixIndex(1)
    index.put(0, b"x", 1)
    with pytest.raises(AssertionError):
        index.put(0, b"x", 2)
