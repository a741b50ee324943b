"""The arrays of a step as its contract defines them, built token by token from plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.platform import SamplingBatch, StepInput
from octavo.step_plan import NewRow, StepPlan


@dataclass
class NaiveRow:
    new: NewRow
    tokens: list[int]
    tables: list[list[int]]


@dataclass
class NaiveBatch:
    """Rows as lists. ``expect`` gives the arrays of a step, padded to the plan's bucket."""

    block_size: int
    groups: int
    rows: dict[str, NaiveRow] = field(default_factory=dict)

    def apply(self, plan: StepPlan) -> None:
        for gone in plan.released:
            self.rows.pop(gone, None)
        for new in plan.new:
            self.rows[new.id] = NaiveRow(new, list(new.tokens), [list(t) for t in new.tables])
        for update in plan.updates:
            table = self.rows[update.id].tables[update.group]
            table[update.start : update.start + len(update.blocks)] = update.blocks

    def expect(self, plan: StepPlan) -> dict[str, Any]:
        step: dict[str, Any] = {
            name: [] for name in ("tokens", "positions", "context_lens", "sample_rows", "query_starts")
        }
        step["slots"] = [[] for _ in range(self.groups)]
        step["block_tables"] = [[] for _ in range(self.groups)]
        step["query_starts"].append(0)
        draws: list[dict[str, Any]] = []
        contexts = [c + n for c, n in zip(plan.computed, plan.counts, strict=True)]
        width = -(-max(contexts) // self.block_size)
        for i, name in enumerate(plan.rows):
            row, computed, context = self.rows[name], plan.computed[i], contexts[i]
            params = row.new.params
            for position in range(computed, context):
                if params.prompt_logprobs is not None and position + 1 < row.new.prompt_length:
                    draws.append(self.draw(row, len(step["sample_rows"]), context))
                    draws[-1].update(target=row.tokens[position + 1], logprobs=params.prompt_logprobs)
                    step["sample_rows"].append(len(step["tokens"]))
                if position + 1 == context and plan.samples[i]:
                    draws += [
                        self.sampled(row, len(step["sample_rows"]), context, fork) for fork in range(plan.samples[i])
                    ]
                    step["sample_rows"].append(len(step["tokens"]))
                step["tokens"].append(row.tokens[position])
                step["positions"].append(position)
                for group, table in enumerate(row.tables):
                    block = table[position // self.block_size]
                    step["slots"][group].append(block * self.block_size + position % self.block_size)
            step["query_starts"].append(len(step["tokens"]))
            step["context_lens"].append(context)
            for group, table in enumerate(row.tables):
                step["block_tables"][group].append((table + [0] * width)[:width])
        self.pad(step, plan)
        return {"step": step, "draws": draws, "copies": plan.copies}

    def pad(self, step: dict[str, Any], plan: StepPlan) -> None:
        tokens, rows, samples, blocks = plan.bucket
        if blocks is not None:
            step["block_tables"] = [[t + [0] * (blocks - len(t)) for t in group] for group in step["block_tables"]]
        if tokens is not None:
            spare = tokens - len(step["tokens"])
            step["tokens"] += [0] * spare
            step["positions"] += [0] * spare
            step["slots"] = [s + [-1] * spare for s in step["slots"]]
        if rows is not None:
            spare = rows - len(plan.rows)
            step["query_starts"] += [step["query_starts"][-1]] * spare
            step["context_lens"] += [0] * spare
            width = len(step["block_tables"][0][0])
            step["block_tables"] = [t + [[0] * width] * spare for t in step["block_tables"]]
        if samples is not None:
            step["sample_rows"] += [0] * (samples - len(step["sample_rows"]))

    @staticmethod
    def draw(row: NaiveRow, logits_row: int, context: int) -> dict[str, Any]:
        p = row.new.params
        return {
            "row": logits_row,
            "target": -1,
            "temperature": p.temperature,
            "top_k": min(max(p.top_k, 0), 2**31 - 1),
            "top_p": p.top_p,
            "min_p": p.min_p,
            "repetition": 1.0,
            "presence": 0.0,
            "frequency": 0.0,
            "seed": row.new.seed % 2**64,
            "sample_index": row.new.sample_index,
            "position": context,
            "logprobs": -1,
            "bias": [],
            "history": ([], []),
        }

    def sampled(self, row: NaiveRow, logits_row: int, context: int, fork: int) -> dict[str, Any]:
        p, made = row.new.params, len(row.tokens) - row.new.prompt_length
        bias = [(t, np.float32(v)) for t, v in (p.logit_bias or {}).items()]
        if made < p.min_tokens:
            bias += [(t, -np.inf) for t in row.new.end_ids | p.stop_ids]
        draw = self.draw(row, logits_row, context)
        draw.update(
            sample_index=row.new.sample_index + fork,
            logprobs=-1 if p.logprobs is None else p.logprobs,
            bias=sorted(bias),
        )
        if (p.repetition_penalty, p.presence_penalty, p.frequency_penalty) != (1, 0, 0):
            split = row.new.prompt_length
            draw.update(
                repetition=p.repetition_penalty,
                presence=p.presence_penalty,
                frequency=p.frequency_penalty,
                history=(row.tokens[:split], row.tokens[split:]),
            )
        return draw

    def record(self, plan: StepPlan, tokens: list[list[int]]) -> None:
        for name, sampled in zip(plan.rows, tokens, strict=True):
            if sampled:
                self.rows[name].tokens.append(sampled[0])


NUMBERS = ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")
INTEGERS = ("row", "target", "top_k", "sample_index", "position", "logprobs")


def compare(step: StepInput, expected: dict[str, Any]) -> None:
    """Every array has the values, the dtype and the layout that the contract promises."""
    arrays = {name: getattr(step, name) for name in expected["step"]}
    for name, values in expected["step"].items():
        assert arrays[name].tolist() == values, name
        assert arrays[name].dtype == np.int32, name
        assert arrays[name].flags.c_contiguous, name
    assert step.copies.tolist() == [list(c) for c in expected["copies"]]
    assert (step.copies.dtype, step.copies.shape[1]) == (np.int32, 2)
    compare_sampling(step.sampling, expected["draws"])


def compare_sampling(batch: SamplingBatch, draws: list[dict[str, Any]]) -> None:
    assert batch.draws == len(draws)
    for name in NUMBERS:
        column = getattr(batch, name)
        assert column.dtype == np.float32, name
        assert column.tolist() == [float(np.float32(d[name])) for d in draws], name
    for name in INTEGERS:
        assert getattr(batch, name).dtype == np.int32, name
        assert getattr(batch, name).tolist() == [d[name] for d in draws], name
    assert batch.seed.dtype == np.uint64
    assert batch.seed.tolist() == [d["seed"] for d in draws]
    found: list[list[tuple[int, float]]] = [[] for _ in draws]
    for draw, token, value in zip(*batch.bias, strict=True):
        found[draw].append((int(token), value))
    assert [sorted(b) for b in found] == [d["bias"] for d in draws]
    starts, prompts, history = batch.history
    assert (len(starts), len(prompts), starts[0], starts[-1]) == (len(draws) + 1, len(draws), 0, len(history))
    for i, draw in enumerate(draws):
        sequence = history[starts[i] : starts[i + 1]].tolist()
        assert (sequence[: prompts[i]], sequence[prompts[i] :]) == draw["history"]
    plain = [
        d["temperature"] == 0 and d["target"] < 0 and d["logprobs"] < 0 and not d["bias"] and d["history"] == ([], [])
        for d in draws
    ]
    assert not batch.plain_greedy or all(plain), "a plain greedy batch asks for nothing but the largest logit"
