"""The runner's memory of the rows it serves, as flat arrays, and the step arrays made from them.

A decode step of any size is built by a handful of numpy calls; only rows with something special about their sampling
(bias, penalties, min_tokens, logprobs, masks) cost Python per row.

The arrays are as long as the limits allow, but zero pages take no memory before they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from octavo.platform.buckets import Bucket
from octavo.platform.step import Floats, Ints, SamplingBatch, StepInput, Words
from octavo.runner.masks import as_bias, pack, remove, word_count
from octavo.sampling import SamplingParams
from octavo.step_plan import NewRow, StepPlan

_INT32_MAX = 2**31 - 1
_NO_TOKENS = np.zeros(0, np.int32)
_NO_BIAS = (_NO_TOKENS, _NO_TOKENS, np.zeros(0, np.float32))


@dataclass
class _Row:
    """What the arrays do not hold of a row."""

    slot: int
    new: NewRow
    length: int
    blocks: int
    """Entries of its tables that were ever written."""
    special: bool
    """Whether sampling from it needs more than temperature, top_k, top_p and min_p."""
    allowed: Words | None
    """The mask of ``allowed_token_ids``."""
    masked: bool
    """Whether it draws under a mask, which then holds all that is forbidden."""
    holding: tuple[Words, Words] | None
    """Of a constrained row all but the tokens that it may not end by: from ``min_tokens`` on, and before."""


@dataclass(frozen=True)
class Stuck:
    """Why a request lets no token come next, and the field of it that is to blame."""

    reason: str
    param: str | None


@dataclass(frozen=True)
class Draws:
    """Which logits rows and draws belong to which row of a plan, for reading the samples back.

    Row i scores ``scored[i]`` prompt tokens, then draws ``plan.samples[i]`` tokens; draws are numbered in this order.
    """

    scored: list[int]
    batch: SamplingBatch
    sample_rows: Ints
    stuck: dict[str, Stuck] = field(default_factory=dict)
    """Rows that let no token come next; their draws fail."""


class Batch:
    """Rows by id. ``max_rows`` may live at once, each up to ``max_len`` tokens long.

    ``vocab_size`` is the number of logits, which rows with masks need; without ``masks`` they are written as biases,
    for a platform that takes none. ``position_pad_id`` is a token that positions do not count (see
    `octavo.models.ModelConfig.position_pad_id`), for models whose prompts run whole. ``absent`` are ids that are no
    tokens and that nobody may draw: the runner sees to that in the logits, and where a device samples by itself
    (``mask_all``), every draw is under a mask without them.
    """

    def __init__(
        self,
        max_rows: int,
        max_len: int,
        block_size: int,
        groups: int,
        *,
        vocab_size: int = 0,
        masks: bool = True,
        position_pad_id: int | None = None,
        absent: Sequence[int] = (),
        mask_all: bool = False,
    ) -> None:
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._masks = masks
        self._position_pad_id = position_pad_id
        self._tokens_there = vocab_size - len(absent)
        self._present = ~pack(absent, vocab_size) if absent else None
        self._mask_all = mask_all and bool(absent)
        self._rows: dict[str, _Row] = {}
        self._free = list(range(max_rows - 1, -1, -1))
        blocks = -(-(max_len + 1) // block_size)
        self._tokens = np.zeros((max_rows, max_len + 1), np.int32)
        self._tables = np.zeros((groups, max_rows, blocks), np.int32)
        self._groups = np.arange(groups)[:, None]  # as an index; with a slice the result would not be C-contiguous
        self._temperature, self._top_p, self._min_p = (np.zeros(max_rows, np.float32) for _ in range(3))
        self._top_k = np.zeros(max_rows, np.int32)
        self._seed = np.zeros(max_rows, np.uint64)
        self._sample_index = np.zeros(max_rows, np.int32)
        self._greedy, self._special = (np.zeros(max_rows, np.bool_) for _ in range(2))

    def apply(self, plan: StepPlan) -> None:
        """Take in what changed: rows gone, rows new, block tables."""
        for gone in plan.released:
            row = self._rows.pop(gone, None)  # a row may be released before it ever ran
            if row is not None:
                self._tables[:, row.slot, : row.blocks] = 0  # the next row of the slot may be shorter
                self._free.append(row.slot)
        for new in plan.new:
            self._add(new)
        for update in plan.updates:
            row, end = self._rows[update.id], update.start + len(update.blocks)
            self._tables[update.group, row.slot, update.start : end] = update.blocks
            row.blocks = max(row.blocks, end)

    def _add(self, new: NewRow) -> None:
        assert new.id not in self._rows, f"row {new.id} is new, but was not released"
        slot = self._free.pop()
        p = new.params
        masked = self._mask_all or new.constraint is not None or p.allowed_token_ids is not None
        assert self._vocab_size or not masked, "masks need the size of the vocabulary"
        special = masked or bool(
            p.logit_bias
            or p.min_tokens
            or p.bad_word_ids
            or p.logprobs is not None
            or p.prompt_logprobs is not None
            or _penalised(new)
        )
        self._rows[new.id] = _Row(
            slot,
            new,
            len(new.tokens),
            max(map(len, new.tables), default=0),
            special,
            None if p.allowed_token_ids is None else pack(p.allowed_token_ids, self._vocab_size),
            masked,
            None if new.constraint is None else _holding(new, self._vocab_size),
        )
        self._tokens[slot, : len(new.tokens)] = new.tokens
        for group, table in enumerate(new.tables):
            self._tables[group, slot, : len(table)] = table
        self._temperature[slot], self._top_p[slot], self._min_p[slot] = p.temperature, p.top_p, p.min_p
        self._top_k[slot] = min(max(p.top_k, 0), _INT32_MAX)  # far beyond any vocabulary
        self._seed[slot] = new.seed & 0xFFFFFFFFFFFFFFFF
        self._sample_index[slot] = new.sample_index
        self._greedy[slot], self._special[slot] = p.greedy, special

    def build(self, plan: StepPlan) -> tuple[StepInput, Draws]:
        """The arrays of a plan that was applied, padded to its bucket."""
        slots = np.fromiter((self._rows[r].slot for r in plan.rows), np.intp, len(plan.rows))
        counts = np.array(plan.counts, np.int32)
        computed = np.array(plan.computed, np.int32)
        starts = np.zeros(len(slots) + 1, np.int32)
        np.cumsum(counts, out=starts[1:])
        contexts = computed + counts
        owner = np.repeat(slots, counts)
        positions = np.arange(starts[-1], dtype=np.int32) + np.repeat(computed - starts[:-1], counts)
        block, offset = np.divmod(positions, self._block_size)
        at = self._tables[self._groups, owner, block]
        tokens = self._tokens[owner, positions]
        draws = self._draws(plan, slots, starts, contexts)
        width = -(-int(contexts.max()) // self._block_size)
        step = StepInput(
            tokens=tokens,
            positions=positions if self._position_pad_id is None else self._counted(tokens, starts, counts),
            query_starts=starts,
            context_lens=contexts,
            slots=at * self._block_size + offset,
            block_tables=self._tables[self._groups, slots, :width],
            sample_rows=draws.sample_rows,
            copies=np.array(plan.copies, np.int32).reshape(-1, 2),
            sampling=draws.batch,
            bucket=plan.bucket,
        )
        return pad(step, plan.bucket), draws

    def _counted(self, tokens: Ints, starts: Ints, counts: Ints) -> Ints:
        """Positions that leave padding tokens out; theirs are -1. Rows begin with their first token. Ids of several
        types of token are ``vocab_size`` apart.
        """
        real = (tokens % self._vocab_size != self._position_pad_id).astype(np.int32)
        before = np.cumsum(real, dtype=np.int32) - real  # of the whole step
        first = np.repeat(before[starts[:-1]], counts)
        places: Ints = np.where(real > 0, before - first, -1).astype(np.int32)
        return places

    def record(self, plan: StepPlan, tokens: list[list[int]]) -> None:
        """Append each row's own sampled token to its sequence (forks take theirs with their NewRow)."""
        drew = [(self._rows[r], t[0]) for r, t in zip(plan.rows, tokens, strict=True) if t]
        for row, _ in drew:
            row.length += 1
        where = np.array([(row.slot, row.length - 1) for row, _ in drew], np.intp).reshape(-1, 2)
        self._tokens[where[:, 0], where[:, 1]] = [token for _, token in drew]

    # -- sampling -------------------------------------------------------------------------------

    def _draws(self, plan: StepPlan, slots: npt.NDArray[np.intp], starts: Ints, contexts: Ints) -> Draws:
        samples = np.array(plan.samples, np.int32)
        if (samples == 1).all() and not self._special[slots].any():  # the common decode step
            rows = np.arange(len(slots), dtype=np.int32)
            return Draws([0] * len(slots), self._sampling(rows, slots, contexts, []), starts[1:] - 1)
        scored = [self._scored(r, c, n) for r, c, n in zip(plan.rows, plan.computed, plan.counts, strict=True)]
        sample_rows: list[int] = []
        of_row: list[int] = []
        of_plan: list[int] = []
        special: list[_Special] = []
        for i, row_id in enumerate(plan.rows):
            row, last = self._rows[row_id], int(starts[i + 1]) - 1
            for offset in range(scored[i]):
                position = plan.computed[i] + offset + 1
                special.append(_Special(len(of_row), row, target=int(self._tokens[row.slot, position])))
                of_row.append(len(sample_rows))
                of_plan.append(i)
                sample_rows.append(int(starts[i]) + offset)
            if plan.samples[i]:
                for fork in range(plan.samples[i]):
                    if row.special or fork:
                        special.append(_Special(len(of_row), row, fork=fork))
                    of_row.append(len(sample_rows))
                    of_plan.append(i)
                sample_rows.append(last)
        picked = np.array(of_plan, np.intp)
        batch = self._sampling(np.array(of_row, np.int32), slots[picked], contexts[picked], special)
        mask, stuck = self._mask(special)
        if mask is not None:
            batch = replace(batch, mask=mask)
            batch = batch if self._masks else as_bias(batch, self._vocab_size)
        return Draws(scored, batch, np.array(sample_rows, np.int32), stuck)

    def _banned(self, row: _Row) -> set[int]:
        """The tokens that ``min_tokens`` and bad words given as ids forbid now."""
        params, banned = row.new.params, set[int]()
        if row.length - row.new.prompt_length < params.min_tokens and row.holding is None:
            banned |= row.new.end_ids | params.stop_ids
        if params.bad_word_ids:
            output = self._tokens[row.slot, row.new.prompt_length : row.length]
            banned.update(_last_of_bad_words(params.bad_word_ids, output))
        return banned

    def _all_banned(self, row: _Row) -> Stuck | None:
        """What a row that draws without a mask has to say if nothing is left."""
        asked = row.new.params
        most = len(asked.bad_word_ids) + len(row.new.end_ids) + len(asked.stop_ids)
        if not 0 < self._tokens_there <= most:
            return None
        return _forbidding(asked) if self._tokens_there <= len(self._banned(row)) else None

    def _mask(self, special: list[_Special]) -> tuple[tuple[Ints, Words] | None, dict[str, Stuck]]:
        """The masks of a step's draws, one made for all draws of a row, and the rows that cannot go on."""
        drawn = [s for s in special if s.target < 0]
        masked = [s for s in drawn if s.row.masked]
        stuck = {s.row.new.id: found for s in drawn if not s.row.masked and (found := self._all_banned(s.row))}
        if not masked:
            return None, stuck
        words = np.empty((len(masked), word_count(self._vocab_size)), np.uint32)
        for i, s in enumerate(masked):
            if s.fork:  # comes right after the row's first draw
                words[i] = words[i - 1]
                continue
            reason = _fill(words[i], s.row, self._banned(s.row), self._present)
            if reason is not None:
                stuck[s.row.new.id] = reason
        return (np.array([s.draw for s in masked], np.int32), words), stuck

    def _scored(self, row_id: str, computed: int, count: int) -> int:
        """How many prompt tokens this chunk scores."""
        new = self._rows[row_id].new
        if new.params.prompt_logprobs is None:
            return 0
        return max(0, min(computed + count, new.prompt_length - 1) - computed)

    def _sampling(
        self, of_row: Ints, slots: npt.NDArray[np.intp], position: Ints, special: list[_Special]
    ) -> SamplingBatch:
        draws = len(of_row)
        target = np.full(draws, -1, np.int32)
        logprobs = np.full(draws, -1, np.int32)
        sample_index = self._sample_index[slots]
        repetition = np.ones(draws, np.float32)
        presence, frequency = (np.zeros(draws, np.float32) for _ in range(2))
        biased: list[tuple[int, int, float]] = []
        histories: dict[int, tuple[int, Ints]] = {}
        for s in special:
            params, row = s.row.new.params, s.row
            sample_index[s.draw] += s.fork
            target[s.draw] = s.target
            if s.target >= 0:
                logprobs[s.draw] = params.prompt_logprobs or 0
                continue
            logprobs[s.draw] = -1 if params.logprobs is None else params.logprobs
            biased += [(s.draw, token, value) for token, value in (params.logit_bias or {}).items()]
            if not row.masked:
                biased += [(s.draw, token, -np.inf) for token in self._banned(row)]
            if _penalised(row.new):
                repetition[s.draw] = params.repetition_penalty
                presence[s.draw], frequency[s.draw] = params.presence_penalty, params.frequency_penalty
                histories[s.draw] = (row.new.prompt_length, self._tokens[row.slot, : row.length])
        return SamplingBatch(
            row=of_row,
            target=target,
            temperature=self._temperature[slots],
            top_k=self._top_k[slots],
            top_p=self._top_p[slots],
            min_p=self._min_p[slots],
            repetition=repetition,
            presence=presence,
            frequency=frequency,
            seed=self._seed[slots],
            sample_index=sample_index,
            position=position,
            logprobs=logprobs,
            bias=_bias(biased),
            history=_history(histories, draws),
            plain_greedy=not special and bool(self._greedy[slots].all()),
        )


@dataclass(frozen=True)
class _Special:
    """A draw that needs more than the row's arrays: its fork, or the prompt token it scores."""

    draw: int
    row: _Row
    fork: int = 0
    target: int = -1


def _holding(new: NewRow, vocab: int) -> tuple[Words, Words]:
    """Without ``ignore_eos`` a complete constraint may end from ``min_tokens`` on, and with it never by itself."""
    ends = new.constraint.ends if new.constraint is not None else frozenset()
    late = ends if new.params.ignore_eos else frozenset()
    return ~pack(late, vocab), ~pack(ends | new.end_ids | new.params.stop_ids, vocab)


def _fill(words: Words, row: _Row, banned: Iterable[int], present: Words | None) -> Stuck | None:
    """The mask of a row's next token, or why there is none."""
    constraint, asked = row.new.constraint, row.new.params
    stuck: Stuck | None = None
    if constraint is None:
        words.fill(0xFFFFFFFF)
    else:
        reason = constraint.mask(words)
        if reason is not None:
            stuck = Stuck(reason, "structured" if asked.structured is None else asked.structured.param)
        elif not words.any():
            stuck = Stuck("bad_words has all of the tokens that may come next", "bad_words")
        early = row.length - row.new.prompt_length < row.new.params.min_tokens
        if row.holding is not None and (early or row.new.params.ignore_eos):
            going_on = words & row.holding[early]
            if going_on.any():  # else the constraint is satisfied, and ends whatever was asked
                words[:] = going_on
    if present is not None:
        words &= present
    if row.allowed is not None:
        words &= row.allowed
        if stuck is None and not words.any():
            stuck = Stuck(f"allowed_token_ids has none of the tokens that {_others(asked)}", "allowed_token_ids")
    if banned:
        remove(words, banned)
        if stuck is None and not words.any():
            stuck = _forbidding(asked)
    if stuck is not None:
        words.fill(0)
    return stuck


def _forbidding(asked: SamplingParams) -> Stuck:
    param = "min_tokens" if not asked.bad_word_ids else "bad_words"
    return Stuck(f"{param} forbids all of the tokens that may come next", param)


def _others(asked: SamplingParams) -> str:
    """What leaves nothing of ``allowed_token_ids``."""
    if asked.structured is not None:
        return "its structured output lets come next"
    return "the model and bad_words let come next"


def _last_of_bad_words(words: tuple[tuple[int, ...], ...], output: Ints) -> Iterator[int]:
    """The last tokens of those bad words that ``output`` ends with, but for their last token."""
    longest = max(map(len, words)) - 1
    end = output[len(output) - min(longest, len(output)) :].tolist()
    for word in words:
        before = len(word) - 1
        if before <= len(end) and end[len(end) - before :] == list(word[:-1]):
            yield word[-1]


def _penalised(new: NewRow) -> bool:
    p = new.params
    return p.repetition_penalty != 1.0 or p.presence_penalty != 0.0 or p.frequency_penalty != 0.0


def _bias(entries: list[tuple[int, int, float]]) -> tuple[Ints, Ints, Floats]:
    if not entries:
        return _NO_BIAS
    draws, tokens, values = zip(*entries, strict=True)
    return np.array(draws, np.int32), np.array(tokens, np.int32), np.array(values, np.float32)


def _history(histories: dict[int, tuple[int, Ints]], draws: int) -> tuple[Ints, Ints, Ints]:
    starts, prompts = np.zeros(draws + 1, np.int32), np.zeros(draws, np.int32)
    for draw, (prompt, tokens) in histories.items():
        starts[draw + 1], prompts[draw] = len(tokens), prompt
    np.cumsum(starts, out=starts)
    joined = [histories[d][1] for d in sorted(histories)]
    return starts, prompts, np.concatenate(joined) if joined else _NO_TOKENS


def pad(step: StepInput, bucket: Bucket) -> StepInput:
    """The step with every array at the bucket's size; see `Bucket` for what padding holds.

    Padding rows begin and end at the last real token, so they have no tokens of their own.
    """
    if bucket == Bucket():
        return step

    def grow(x: Ints, size: int | None, axis: int, value: int) -> Ints:
        missing = 0 if size is None else size - x.shape[axis]
        assert missing >= 0, f"a step of {x.shape} does not fit bucket {bucket}"
        widths = [(0, missing if a == axis else 0) for a in range(x.ndim)]
        return np.pad(x, widths, constant_values=value) if missing else x

    rows = bucket.rows
    return StepInput(
        tokens=grow(step.tokens, bucket.tokens, 0, 0),
        positions=grow(step.positions, bucket.tokens, 0, 0),
        query_starts=grow(step.query_starts, None if rows is None else rows + 1, 0, int(step.query_starts[-1])),
        context_lens=grow(step.context_lens, rows, 0, 0),
        slots=grow(step.slots, bucket.tokens, 1, -1),
        block_tables=grow(grow(step.block_tables, rows, 1, 0), bucket.blocks, 2, 0),
        sample_rows=grow(step.sample_rows, bucket.samples, 0, 0),
        copies=step.copies,
        sampling=step.sampling,
        bucket=bucket,
    )
