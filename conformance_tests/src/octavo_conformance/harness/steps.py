"""Work for a device: what should run, then the steps that its limits allow, then their arrays.

A check says *what*: sequences with the blocks they live in, and rows, each some new tokens of one sequence. Whether a
platform takes all that in one step, in chunks of 16, or prompts apart from decodes, is not the check's business:
`schedule` splits it, and `Target.play` puts the results together again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from octavo.platform import Bucket, BucketSet, Plan, SamplingBatch, StepInput

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Seq:
    """One sequence: its tokens so far and, per KV group, its blocks in order (an entry of 0 where a window has
    left).
    """

    tokens: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...] = ()
    positions: tuple[int, ...] | None = None
    """Positions other than 0, 1, 2, … of the tokens, for graphs without attention."""


@dataclass(frozen=True)
class Row:
    """New tokens ``start`` … ``start + count - 1`` of a sequence (its index in the step); those before are cached."""

    sequence: int
    start: int
    count: int


@dataclass(frozen=True)
class Step:
    """Rows that run together where the platform can. The result has the logits of every new token, in row order.

    ``copies`` are made first. With ``sampling`` the result is `Samples`, drawn as the engine would have them drawn; its
    rows are those of the step's logits. Keep such a step small: it must run whole (four rows of one token do,
    everywhere). ``last`` asks for the logits of each row's last token only. ``padding`` tokens follow the live ones, or
    as many as the bucket has room for. ``tail`` is the block that table entries beyond a row's context name: those of
    blocks that core has given the row for later. ``room`` takes the bucket that is so many places after the cheapest
    one that covers the step (or the last there is), so that more of it is padding.
    """

    sequences: tuple[Seq, ...]
    rows: tuple[Row, ...]
    copies: tuple[tuple[int, int], ...] = ()
    sampling: SamplingBatch | None = None
    last: bool = False
    padding: int = 0
    tail: int = 0
    room: int = 0


@dataclass(frozen=True)
class ReadBlock:
    """The result is the block, float32 [2, slots, block_size, kv_heads, head_dim]."""

    block: int


@dataclass(frozen=True)
class WriteBlock:
    """Set a block; no result (``None``)."""

    block: int
    data: npt.NDArray[np.float32] = field(repr=False)


@dataclass(frozen=True)
class MoveBlock:
    """Read a block and write what was read to another, as tiers below the device will; no result."""

    source: int
    target: int


Action = Step | ReadBlock | WriteBlock | MoveBlock


@dataclass(frozen=True)
class Piece:
    """One step that a platform takes: rows, and which of their tokens' logits it brings.

    ``wanted`` are (row of the piece, offset in that row) in the order of ``sample_rows``; ``into`` is where each
    goes in the result of the whole.
    """

    rows: tuple[Row, ...]
    wanted: tuple[tuple[int, int], ...]
    into: tuple[int, ...]
    copies: tuple[tuple[int, int], ...] = ()
    room: int = 0


def schedule(step: Step, plan: Plan) -> list[Piece]:
    """The pieces that do a step's work within a plan's limits: equal in effect, since rows are independent.

    A platform whose buckets hold fewer samples than a chunk has tokens runs the chunk again for the others: writing
    the same keys and values twice changes nothing.
    """
    most_samples = _most_samples(plan)
    pieces: list[Piece] = []
    for batch in _batches(step, plan):
        wanted = [
            ((i, offset), _result_index(step, row, offset))
            for i, row in enumerate(batch)
            for offset in range(row.count)
            if not step.last or _is_last(step, row, offset)
        ]
        # A step without samples is legal, but a chunk nobody asks about still has to run.
        for start in range(0, max(len(wanted), 1), most_samples):
            part = wanted[start : start + most_samples]
            copies = () if pieces else step.copies
            pieces.append(Piece(tuple(batch), tuple(w for w, _ in part), tuple(i for _, i in part), copies, step.room))
    return pieces


def _is_last(step: Step, row: Row, offset: int) -> bool:
    return any(r.sequence == row.sequence and r.start + r.count - 1 == row.start + offset for r in step.rows)


def _result_index(step: Step, row: Row, offset: int) -> int:
    """Where in the whole step's result the logits of a piece's token go."""
    at = 0
    for r in step.rows:
        inside = r.sequence == row.sequence and r.start <= row.start + offset < r.start + r.count
        if inside:
            return at if step.last else at + row.start + offset - r.start
        at += 1 if step.last else r.count
    raise AssertionError("a piece has a row that its step has not")


def _most_samples(plan: Plan) -> int:
    sizes = [bucket.samples for bucket in plan.limits.buckets.buckets()]
    return 1 << 30 if None in sizes else max(size for size in sizes if size is not None)


def _batches(step: Step, plan: Plan) -> Iterator[list[Row]]:
    """Rows in groups that the limits allow, chunks cut where they must be. A later part of a chunk runs in a later
    step than the one before it.
    """
    rounds: list[list[Row]] = []
    for row in step.rows:
        for depth, part in enumerate(_cut(row, plan)):
            if depth == len(rounds):
                rounds.append([])
            rounds[depth].append(part)
    for parts in rounds:
        batch: list[Row] = []
        for row in parts:
            if batch and not _allowed(step, [*batch, row], plan):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


def _cut(row: Row, plan: Plan) -> Iterator[Row]:
    """A row in chunks no longer than the plan's steps; all but the last a multiple of the platform's.

    A device cannot see how long a sequence will be, so the end of any row may be the end of its prompt.
    """
    multiple, most = plan.limits.chunk_multiple, plan.max_num_batched_tokens
    longest = most // multiple * multiple if row.count > most else row.count
    for at in range(row.start, row.start + row.count, longest):
        yield Row(row.sequence, at, min(longest, row.start + row.count - at))


def _allowed(step: Step, rows: Sequence[Row], plan: Plan) -> bool:
    limits = plan.limits
    prompts = [row for row in rows if row.count > 1]
    contexts = [row.start + row.count for row in rows]
    blocks = -(-max(contexts) // plan.block_size)
    total = sum(row.count for row in rows)
    return (
        len({row.sequence for row in rows}) == len(rows)
        and len(rows) <= plan.max_num_seqs
        and total <= plan.max_num_batched_tokens
        and not (limits.prefill_xor_decode and 0 < len(prompts) < len(rows))
        and (limits.max_prefill_rows is None or len(prompts) <= limits.max_prefill_rows)
        and (limits.max_volume is None or len(rows) * blocks * plan.block_size <= limits.max_volume)
        and BucketSet(limits.buckets).find(total, len(rows), 1, blocks) is not None
    )


def bucket_of(piece: Piece, plan: Plan) -> Bucket:
    """The bucket that the engine would pick for a piece, or one with more room. Raises ValueError where there is
    none.
    """
    tokens = sum(row.count for row in piece.rows)
    blocks = -(-max(row.start + row.count for row in piece.rows) // plan.block_size)
    size = Bucket(tokens, len(piece.rows), len(piece.wanted), blocks)
    found = BucketSet(plan.limits.buckets).find(*size) if not piece.room else None  # type: ignore[arg-type]
    covering = [found] if found else [b for b in plan.limits.buckets.buckets() if b.covers(size)]
    if not covering:
        raise ValueError(f"no bucket of the plan covers {tokens} tokens, {len(piece.rows)} rows and {blocks} blocks")
    return covering[min(piece.room, len(covering) - 1)]


def arrays(step: Step, piece: Piece, plan: Plan, groups: int) -> StepInput:
    """The step's arrays as core makes them, padded to the piece's bucket."""
    bucket = bucket_of(piece, plan)
    size = plan.block_size
    counts = [row.count for row in piece.rows]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    contexts = np.array([row.start + row.count for row in piece.rows], np.int32)
    width = -(-int(contexts.max()) // size)
    tokens, positions = (np.zeros(starts[-1], np.int32) for _ in range(2))
    slots = np.full((groups, starts[-1]), -1, np.int32)
    tables = np.zeros((groups, len(piece.rows), width), np.int32)
    for i, row in enumerate(piece.rows):
        seq = step.sequences[row.sequence]
        at = np.arange(row.start, row.start + row.count)
        span = slice(starts[i], starts[i + 1])
        tokens[span] = np.array(seq.tokens, np.int32)[at]
        positions[span] = at if seq.positions is None else np.array(seq.positions, np.int32)[at]
        for group in range(groups):
            table = np.array(seq.tables[group], np.int32)
            used = -(-(row.start + row.count) // size)
            tables[group, i, :used] = table[:used]
            slots[group, span] = table[at // size] * size + at % size
    sampled = np.array([starts[i] + offset for i, offset in piece.wanted], np.int32)
    made = StepInput(
        tokens=tokens,
        positions=positions,
        query_starts=starts,
        context_lens=contexts,
        slots=slots,
        block_tables=tables,
        sample_rows=sampled,
        copies=np.array(piece.copies, np.int32).reshape(-1, 2),
        sampling=step.sampling or SamplingBatch.plain(len(sampled), greedy=False),
        bucket=bucket,
    )
    whole = padded(_more_padding(made, step.padding))
    if step.tail:
        for i, context in enumerate(contexts.tolist()):
            whole.block_tables[:, i, -(-context // size) :] = step.tail
    return whole


def _more_padding(step: StepInput, count: int) -> StepInput:
    """``count`` padding tokens after the live ones; where the bucket has a size, they are among its padding."""
    size = step.bucket.tokens
    more = count if size is None else min(count, size - len(step.tokens))
    zeros, nowhere = np.zeros(more, np.int32), np.full((len(step.slots), more), -1, np.int32)
    return replace(
        step,
        tokens=np.concatenate([step.tokens, zeros]),
        positions=np.concatenate([step.positions, zeros]),
        slots=np.concatenate([step.slots, nowhere], axis=1),
    )


def padded(step: StepInput) -> StepInput:
    """The arrays at their bucket's size, padding as `octavo.platform.Bucket` says."""
    bucket = step.bucket
    rows = len(step.context_lens)

    def grown(array: Ints, axis: int, size: int | None, value: int) -> Ints:
        if size is None or array.shape[axis] == size:
            return array
        shape = list(array.shape)
        shape[axis] = size
        wide = np.full(shape, value, np.int32)
        wide[tuple(slice(0, n) for n in array.shape)] = array
        return wide

    return replace(
        step,
        tokens=grown(step.tokens, 0, bucket.tokens, 0),
        positions=grown(step.positions, 0, bucket.tokens, 0),
        query_starts=grown(step.query_starts, 0, None if bucket.rows is None else bucket.rows + 1,
                           int(step.query_starts[rows])),
        context_lens=grown(step.context_lens, 0, bucket.rows, 0),
        slots=grown(step.slots, 1, bucket.tokens, -1),
        block_tables=grown(grown(step.block_tables, 1, bucket.rows, 0), 2, bucket.blocks, 0),
        sample_rows=grown(step.sample_rows, 0, bucket.samples, 0),
    )  # fmt: skip


def blocks_for(lengths: Sequence[int], block_size: int, order: npt.ArrayLike | None = None) -> list[tuple[int, ...]]:
    """Distinct blocks for sequences of these lengths, from block 1 on; ``order`` permutes them among the sequences."""
    counts = [-(-length // block_size) for length in lengths]
    ids = 1 + (np.arange(sum(counts)) if order is None else np.asarray(order))
    cuts = np.concatenate([[0], np.cumsum(counts)])
    return [tuple(int(b) for b in ids[a:b]) for a, b in pairwise(cuts)]


def every_row(count: int, positions: npt.ArrayLike | None = None) -> Step:
    """One sequence of tokens 0 … count - 1, all new: what a graph without attention is run with, row for row of its
    tables.
    """
    at = None if positions is None else tuple(int(p) for p in np.asarray(positions))
    return Step((Seq(tuple(range(count)), (), at),), (Row(0, 0, count),))
