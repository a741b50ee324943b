"""The block pool: nothing is lost, nothing is handed out twice, the oldest content goes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import ConfigError
from octavo.kv import BlockPool


def test_blocks_count_from_one_and_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(5, lambda block: None)
    assert sorted(pool.take() for _ in range(4)) == [1, 2, 3, 4]
    assert (pool.free, pool.used) == (0, 4)


def test_a_pool_without_a_usable_block_is_refused_with_the_knob() -> None:
    with pytest.raises(ConfigError, match=r"1 blocks.*--memory-utilization"):
        BlockPool(1, lambda block: None)


def test_empty_blocks_go_first_then_the_kept_block_released_longest_ago() -> None:
    evicted: list[int] = []
    pool = BlockPool(5, evicted.append)
    a, b, c, d = (pool.take() for _ in range(4))
    pool.release(b, keep=True)
    pool.release(a, keep=True)
    pool.release(d, keep=False)
    pool.release(c, keep=True)
    assert [pool.take() for _ in range(4)] == [d, b, a, c]
    assert evicted == [b, a, c]


def test_a_kept_block_that_is_shared_again_is_not_evicted() -> None:
    pool = BlockPool(3, lambda block: None)
    a, b = pool.take(), pool.take()
    pool.release(a, keep=True)
    pool.release(b, keep=True)
    pool.share(a)
    assert (pool.free, pool.used) == (1, 1)
    assert pool.take() == b


def test_releasing_a_free_block_is_caught() -> None:
    pool = BlockPool(3, lambda block: None)
    block = pool.take()
    pool.release(block, keep=False)
    with pytest.raises(AssertionError, match="more often"):
        pool.release(block, keep=False)


@given(num_blocks=st.integers(2, 9), data=st.data())
def test_free_and_used_add_up_whatever_happens(num_blocks: int, data: st.DataObject) -> None:
    kept: list[int] = []  # the model: released longest ago first
    pool = BlockPool(num_blocks, lambda block: kept.remove(block))
    refs: dict[int, int] = {}
    for verb in data.draw(st.lists(st.sampled_from(["take", "take", "share", "keep", "drop"]), max_size=40)):
        if verb == "take" and pool.free:
            oldest = kept[0] if kept and len(refs) + len(kept) == num_blocks - 1 else None
            block = pool.take()
            assert block not in refs and 0 < block < num_blocks
            assert oldest in (None, block)
            refs[block] = 1
        elif verb == "share" and (refs or kept):
            block = data.draw(st.sampled_from(sorted({*refs, *kept})))
            pool.share(block)
            refs[block] = refs.get(block, 0) + 1
            if block in kept:
                kept.remove(block)
        elif verb in ("keep", "drop") and refs:
            block = data.draw(st.sampled_from(sorted(refs)))
            pool.release(block, keep=verb == "keep")
            refs[block] -= 1
            if refs[block] == 0:
                del refs[block]
                if verb == "keep":
                    kept.append(block)
        assert pool.used == len(refs)
        assert pool.free + pool.used == num_blocks - 1
