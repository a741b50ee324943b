"""The KV manager: sharing, copying, windows, eviction and the figures it reports."""

from __future__ import annotations

import pytest

from octavo.errors import ConfigError
from octavo.kv import KVGroup, KVManager, KVSequence
from octavo.kv.sizing import longest_sequence, peak_blocks
from octavo.step_plan import BlockUpdate

PROMPT = list(range(100, 110))  # two full blocks of four, and two tokens


def manager(
    blocks: int = 41, size: int = 4, groups: tuple[KVGroup, ...] = (KVGroup(),), caching: bool = True
) -> KVManager:
    return KVManager(blocks, size, groups, caching, hash_key=b"test")


def run(kv: KVManager, name: str, tokens: list[int], namespace: str = "") -> tuple[KVSequence, int]:
    """Admit a sequence and compute all of it in one step."""
    sequence = kv.sequence(name, namespace)
    cached = kv.match(sequence, tokens)
    assert kv.admit(sequence, cached, len(tokens) - cached)
    kv.commit(sequence, tokens, len(tokens))
    return sequence, cached


def test_a_common_prefix_is_found_in_whole_blocks_and_held_once() -> None:
    kv = manager()
    first, cached = run(kv, "a", PROMPT)
    second, hit = run(kv, "b", [*PROMPT[:9], 1, 2])
    assert (cached, hit) == (0, 8)
    assert second.tables[0][:2] == first.tables[0][:2]
    assert second.tables[0][2] != first.tables[0][2]
    assert kv.pool.used == 4


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    kv = manager()
    run(kv, "a", PROMPT[:8])
    _, hit = run(kv, "b", PROMPT[:8])
    assert hit == 4


def test_two_that_computed_the_same_blocks_at_the_same_time_hold_them_once_afterwards() -> None:
    kv = manager()
    a, b = kv.sequence("a"), kv.sequence("b")
    for sequence in (a, b):
        assert kv.match(sequence, PROMPT) == 0
        assert kv.admit(sequence, 0, len(PROMPT))
        sequence.tracked = True
    assert kv.pool.used == 6
    kv.commit(a, PROMPT, len(PROMPT))
    kv.commit(b, PROMPT, len(PROMPT))
    assert kv.pool.used == 4
    assert b.tables[0][:2] == a.tables[0][:2]
    updates, copies = kv.take_changes()
    assert updates == [BlockUpdate("b", 0, 0, [a.tables[0][0]]), BlockUpdate("b", 0, 1, [a.tables[0][1]])]
    assert copies == []


def test_namespaces_never_share() -> None:
    kv = manager()
    run(kv, "a", PROMPT, "tenant-1")
    assert run(kv, "b", PROMPT, "tenant-2")[1] == 0
    assert run(kv, "c", PROMPT)[1] == 0
    assert run(kv, "d", PROMPT, "tenant-1")[1] == 8


def test_blocks_are_found_only_after_their_step_has_completed() -> None:
    kv = manager()
    a = kv.sequence("a")
    kv.match(a, PROMPT)
    kv.admit(a, 0, len(PROMPT))
    other = kv.sequence("b")
    assert kv.match(other, PROMPT) == 0
    kv.commit(a, PROMPT, 4)
    assert kv.match(other, PROMPT) == 4


def test_a_sequence_freed_before_its_step_completed_leaves_nothing_behind() -> None:
    kv = manager()
    a = kv.sequence("a")
    kv.admit(a, 0, len(PROMPT))
    kv.free(a)
    assert kv.match(kv.sequence("b"), PROMPT) == 0
    assert kv.stats().cached == 0


def test_freed_blocks_stay_findable_and_a_prefix_loses_its_tail_first() -> None:
    kv = manager(blocks=4)
    a, _ = run(kv, "a", PROMPT[:8])
    head, tail = a.tables[0]
    kv.free(a)
    assert kv.pool.used == 0
    assert kv.pool.free == 3
    b, _ = run(kv, "b", [1, 2, 3, 4, 5])  # takes the empty block, then evicts one
    assert tail in b.tables[0]
    assert kv.match(kv.sequence("c"), PROMPT) == 4
    assert head not in b.tables[0]


def test_without_prefix_caching_nothing_is_found_and_nothing_is_kept() -> None:
    kv = manager(caching=False)
    a, _ = run(kv, "a", PROMPT)
    kv.free(a)
    assert run(kv, "b", PROMPT)[1] == 0
    assert kv.stats().cached == 0
    assert kv.stats().prefix_queries == 0


def test_what_does_not_fit_changes_nothing() -> None:
    kv = manager(blocks=4)
    a, _ = run(kv, "a", PROMPT)
    before = kv.stats(), list(kv.pool.refs), [list(t) for t in a.tables]
    b = kv.sequence("b")
    cached = kv.match(b, [*PROMPT[:8], 1])
    assert cached == 8
    assert not kv.admit(b, cached, 1)
    assert not kv.grow(a, 10, 3)
    assert (kv.stats(), list(kv.pool.refs), [list(t) for t in a.tables]) == before
    assert b.tables == [[]]


def test_a_claim_on_kept_blocks_counts_against_the_free_ones() -> None:
    kv = manager(blocks=4)
    a, _ = run(kv, "a", PROMPT[:8])
    kv.free(a)  # three free blocks, two of them kept
    b = kv.sequence("b")
    longer = [*PROMPT[:8], 1, 2, 3, 4, 5]
    assert kv.match(b, longer) == 8
    assert not kv.admit(b, 8, 5)
    assert kv.admit(b, 8, 4)


def test_forks_share_all_blocks_and_the_first_writer_copies_the_partial_one() -> None:
    kv = manager()
    parent, _ = run(kv, "r", PROMPT)
    children = [kv.fork(parent, f"r:{i}") for i in (1, 2)]
    assert kv.pool.used == 3
    shared = parent.tables[0][2]
    for sequence in (parent, *children):
        sequence.tracked = True
        assert kv.grow(sequence, 10, 1)
    copies = [parent.tables[0][2], children[0].tables[0][2]]
    updates, made = kv.take_changes()
    assert made == [(shared, copies[0]), (shared, copies[1])]
    assert updates == [BlockUpdate("r", 0, 2, [copies[0]]), BlockUpdate("r:1", 0, 2, [copies[1]])]
    assert children[1].tables[0][2] == shared, "the last one writes in place"
    assert kv.pool.used == 5


def test_a_fork_that_ends_first_leaves_the_partial_block_to_the_other() -> None:
    kv = manager()
    parent, _ = run(kv, "r", PROMPT)
    child = kv.fork(parent, "r:1")
    kv.free(parent)
    assert kv.grow(child, 10, 1)
    assert kv.take_changes() == ([], [])


def test_forks_at_a_block_boundary_need_no_copy() -> None:
    kv = manager()
    parent, _ = run(kv, "r", PROMPT[:8])
    child = kv.fork(parent, "r:1")
    assert kv.grow(parent, 8, 1)
    assert kv.grow(child, 8, 1)
    assert kv.take_changes()[1] == []
    assert parent.tables[0][2] != child.tables[0][2]


def test_a_window_gives_back_what_no_later_query_sees() -> None:
    kv = manager(groups=(KVGroup(), KVGroup(window=5)))
    sequence, _ = run(kv, "a", list(range(8)))
    full, window = sequence.tables
    assert 0 not in full
    assert window[0] == 0, "position 8 sees 4 to 8"
    assert window[1] != 0
    sequence.tracked = True
    tokens = list(range(13))
    for position in range(8, 12):
        assert kv.grow(sequence, position, 1)
        kv.commit(sequence, tokens, position + 1)
    updates, _ = kv.take_changes()
    assert BlockUpdate("a", 1, 1, [0]) in updates, "position 12 sees 8 to 12"
    assert sequence.tables[1][:2] == [0, 0]
    assert kv.pool.used == 3 + 1


def test_commit_has_work_exactly_when_the_boundary_is_reached() -> None:
    kv = manager(groups=(KVGroup(window=6),))
    tokens = list(range(40))
    every, lazy = kv.sequence("every"), kv.sequence("lazy", "other")
    for sequence in (every, lazy):
        kv.admit(sequence, 0, 1)
        kv.commit(sequence, tokens, 1)
    for computed in range(2, 40):
        for sequence in (every, lazy):
            assert kv.grow(sequence, computed - 1, 1)
        kv.commit(every, tokens, computed)
        if computed >= lazy.boundary:
            kv.commit(lazy, tokens, computed)
        assert [b == 0 for b in every.tables[0]] == [b == 0 for b in lazy.tables[0]]
        assert every.indexed == lazy.indexed


def test_a_window_group_needs_only_the_blocks_that_the_next_query_sees() -> None:
    kv = manager(blocks=9, groups=(KVGroup(window=5),))
    first, _ = run(kv, "a", list(range(16)))
    assert first.tables[0][:3] == [0, 0, 0]
    kv.free(first)
    run(kv, "b", [50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69])  # evicts the head
    second = kv.sequence("c")
    tokens = [*range(16), 99]
    assert kv.match(second, tokens) == 16
    assert kv.admit(second, 16, 1)
    assert [block == 0 for block in second.tables[0]] == [True, True, True, False, False]


def test_a_hit_ends_where_any_group_has_lost_a_block() -> None:
    kv = manager(groups=(KVGroup(), KVGroup(window=3)))
    tokens = list(range(16))
    first, _ = run(kv, "a", tokens)
    lost = first.tables[1][3]  # the only one its window still holds
    kv.free(first)
    kv.index.drop(lost)
    second = kv.sequence("b")
    assert kv.match(second, [*tokens, 99]) == 12


def test_waste_is_the_unfilled_part_of_last_blocks_counted_once() -> None:
    kv = manager(groups=(KVGroup(), KVGroup(window=3)))
    parent, _ = run(kv, "a", PROMPT)
    assert kv.stats().wasted_slots == 2 * 2
    kv.fork(parent, "a:1")
    assert kv.stats().wasted_slots == 2 * 2, "the forks share their partial blocks"
    assert kv.grow(parent, 10, 1)
    assert kv.stats().wasted_slots == 2 * 2 + 2 * 1


def test_prefix_statistics_count_a_prompt_once_whatever_happens_to_it_later() -> None:
    kv = manager()
    run(kv, "a", PROMPT)
    b, _ = run(kv, "b", PROMPT)
    kv.free(b)  # preempted
    assert kv.admit(b, kv.match(b, PROMPT), 2)
    assert (kv.stats().prefix_queries, kv.stats().prefix_hits) == (20, 8)


@pytest.mark.parametrize("chunk", [1, 3, 16])
@pytest.mark.parametrize("window", [1, 4, 7])
def test_the_peak_that_sizing_promises_is_never_exceeded_and_is_reached(window: int, chunk: int) -> None:
    groups = (KVGroup(), KVGroup(window))
    length, size, worst = 50, 4, 0
    for offset in range(1, 1 + min(chunk, 8)):  # first chunks of all lengths, to move the chunks against the blocks
        kv = KVManager(60, size, groups, False)
        sequence, computed = kv.sequence("a"), 0
        while computed < length:
            count = min(offset if not computed else chunk, length - computed)
            assert kv.grow(sequence, computed, count) if computed else kv.admit(sequence, 0, count)
            worst = max(worst, kv.pool.used)
            computed += count
            kv.commit(sequence, list(range(length)), computed)
    peak = peak_blocks(groups, size, length, chunk)
    assert worst <= peak <= worst + 1
    assert longest_sequence(groups, size, peak, chunk, length) == length
    assert longest_sequence(groups, size, peak - 1, chunk, length) < length


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="block_size"):
        KVManager(10, 0)
    with pytest.raises(ConfigError, match="group"):
        KVManager(10, 4, ())
    with pytest.raises(ConfigError, match="window of 0"):
        KVGroup(0)
