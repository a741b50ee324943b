"""Work is cut to a platform's limits, and nothing of it gets lost."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.platform import Bucket, BucketPolicy, Limits, Plan
from octavo_conformance.harness.steps import Row, Seq, Step, arrays, blocks_for, bucket_of, every_row, schedule


def plan(limits: Limits | None = None, *, rows: int = 16, tokens: int = 256, block_size: int = 4) -> Plan:
    return Plan("f32", "f32", block_size, 1024, rows, tokens, 0.9, limits or Limits())


def work(*rows: tuple[int, int]) -> Step:
    """Rows of (start, count), each of a sequence of its own."""
    tables = blocks_for([start + count for start, count in rows], 4)
    sequences = tuple(
        Seq(tuple(range(100 * i, 100 * i + start + count)), (table,))
        for i, ((start, count), table) in enumerate(zip(rows, tables, strict=True))
    )
    return Step(sequences, tuple(Row(i, start, count) for i, (start, count) in enumerate(rows)))


TINY = Limits(
    prefill_xor_decode=True, max_prefill_rows=2, chunk_multiple=4, max_volume=64,
    buckets=BucketPolicy(tokens=(4, 8), rows=(4,), samples=(2,), blocks=(1, 2, 4, 8, 16)),
)  # fmt: skip

WORK = work((0, 7), (5, 1), (2, 9), (3, 1), (0, 1), (0, 22))


@pytest.mark.parametrize(
    "limits", [Limits(), Limits(prefill_xor_decode=True), Limits(max_prefill_rows=1), Limits(max_volume=30), TINY]
)
@pytest.mark.parametrize("last", [False, True])
def test_every_token_runs_once_in_order_and_every_result_has_its_place(limits: Limits, last: bool) -> None:
    step = Step(WORK.sequences, WORK.rows, copies=((1, 2),), last=last)
    sizes = plan(limits, rows=4 if limits is TINY else 16, tokens=8 if limits is TINY else 256)
    pieces = schedule(step, sizes)
    done: dict[int, int] = {row.sequence: row.start for row in step.rows}
    seen: set[tuple[Row, ...]] = set()
    for piece in pieces:
        if piece.rows not in seen:  # a piece again, for other samples
            for row in piece.rows:
                assert done[row.sequence] == row.start, "in order, nothing twice"
                done[row.sequence] += row.count
        seen.add(piece.rows)
    assert done == {row.sequence: row.start + row.count for row in step.rows}
    into = [i for piece in pieces for i in piece.into]
    wanted = len(step.rows) if last else sum(row.count for row in step.rows)
    assert sorted(into) == list(range(wanted))
    assert [piece.copies for piece in pieces if piece.copies] == [((1, 2),)]
    assert pieces[0].copies


def test_limits_are_kept() -> None:
    for piece in schedule(WORK, plan(TINY, rows=4, tokens=8)):
        prompts = [row for row in piece.rows if row.count > 1]
        blocks = max(-(-(row.start + row.count) // 4) for row in piece.rows)
        assert len(prompts) in (0, len(piece.rows)) and len(prompts) <= 2
        assert sum(row.count for row in piece.rows) <= 8
        assert len(piece.rows) * blocks * 4 <= 64
        assert len(piece.wanted) <= 2
        assert bucket_of(piece, plan(TINY, rows=4, tokens=8)).covers(
            Bucket(sum(row.count for row in piece.rows), len(piece.rows), len(piece.wanted), blocks)
        )


def test_a_platform_without_limits_takes_all_at_once() -> None:
    (piece,) = schedule(WORK, plan())
    assert piece.rows == WORK.rows
    assert piece.into == tuple(range(41))


def test_the_arrays_are_those_that_core_makes() -> None:
    """Compared with core's own batch, whose definition of a step is the contract."""
    from octavo.runner import Batch
    from octavo.sampling import SamplingParams
    from octavo.step_plan import NewRow, StepPlan

    sizes = plan(Limits(buckets=BucketPolicy(explicit=(Bucket(16, 4, 4, 8),))), block_size=4)
    prompts, computed = [list(range(9)), list(range(20, 25))], [3, 4]
    tables = [(7, 2, 5), (1, 3)]
    batch = Batch(4, 64, 4, 1)
    new = [
        NewRow(str(i), p, len(p), SamplingParams(temperature=0.0), 0, 0, frozenset(), [list(table)])
        for i, (p, table) in enumerate(zip(prompts, tables, strict=True))
    ]
    core = StepPlan(["0", "1"], [6, 1], computed, [1, 1], Bucket(16, 4, 4, 8), new=new, copies=[(1, 6)])
    batch.apply(core)
    expected, _ = batch.build(core)
    sequences = tuple(Seq(tuple(p), (table,)) for p, table in zip(prompts, tables, strict=True))
    step = Step(sequences, (Row(0, 3, 6), Row(1, 4, 1)), copies=((1, 6),), last=True)
    (piece,) = schedule(step, sizes)
    found = arrays(step, piece, sizes, 1)
    assert found.bucket == expected.bucket
    for name, array in expected.graph_inputs().items():
        assert np.array_equal(found.graph_inputs()[name], array), name
        assert found.graph_inputs()[name].dtype == array.dtype, name
    assert found.copies.tolist() == expected.copies.tolist()


def test_rows_of_a_table_run_as_one_sequence() -> None:
    step = every_row(5, [9, 8, 7, 6, 5])
    (piece,) = schedule(step, plan())
    made = arrays(step, piece, plan(), 0)
    assert made.tokens.tolist() == [0, 1, 2, 3, 4] and made.positions.tolist() == [9, 8, 7, 6, 5]
    assert made.slots.shape == (0, 5) and made.block_tables.shape == (0, 1, 2)


def test_blocks_are_distinct_and_may_be_permuted() -> None:
    assert blocks_for([5, 1, 8], 4) == [(1, 2), (3,), (4, 5)]
    mixed = blocks_for([5, 1, 8], 4, [4, 3, 2, 1, 0])
    assert mixed == [(5, 4), (3,), (2, 1)]


def test_a_size_that_no_bucket_has_is_an_error() -> None:
    sizes = plan(Limits(buckets=BucketPolicy(tokens=(4,), rows=(1,), samples=(4,), blocks=(1,))), tokens=4)
    with pytest.raises(ValueError, match="no bucket"):
        bucket_of(schedule(work((30, 1)), sizes)[0], sizes)
