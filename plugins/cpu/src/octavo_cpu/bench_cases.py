"""Which kernels `octavo_cpu.bench` measures: small plans that do one thing several times over.

A plan begins with what fills its buffers (random rows of an embedding table), which is not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from octavo.graph import RopeSpec, WeightSpec
from octavo.platform import Bucket, KVLayout, SamplingBatch, StepInput
from octavo.quant import FORMATS as WEIGHT_FORMATS
from octavo_cpu.bench_shapes import Shapes
from octavo_cpu.cost import ARITHMETIC
from octavo_cpu.lower import INT8, NONE, Program, Step, feed_kind

ROWS = (1, 4, 8, 16, 32, 64, 256)
"""Rows of the matrix products; 256 are as many as a long prompt's pieces have."""
CONTEXTS = ((1, 1, 128), (1, 1, 1024), (1, 1, 8192), (8, 1, 1024), (1, 256, 1024), (1, 256, 8192))
"""(rows, new tokens of each, tokens of each after the step): decoding, decoding with many, prompts."""

TABLE_ROWS = 256
"""Rows of the embedding tables."""
COPIES = 8
"""Most times that a plan does its thing, so that one run of it gives as many times."""
_ENOUGH = 64 << 20  # bytes that the copies take together at most, unless one alone takes more
_BLOCK = 16
_NO_CACHE = KVLayout(_BLOCK, 1, 1, 16, "bf16")


@dataclass(frozen=True)
class Case:
    """A plan, and which of its steps are measured.

    ``specs`` are its matrices, each with weights of its own; ``tables`` are the widths of its embedding tables,
    ``vectors`` those of its norms. ``step`` is what it is run on, ``layout`` and ``blocks`` the cache under it.
    """

    kernel: str
    label: str
    program: Program
    step: StepInput
    measured: tuple[int, ...]
    specs: dict[str, WeightSpec] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    vectors: dict[str, int] = field(default_factory=dict)
    layout: KVLayout = _NO_CACHE
    blocks: int = 2
    one_row: bool = False
    """The rows are the unit of work, and there is but one: threads cannot share it."""


def cases(shapes: Shapes) -> Iterator[Case]:
    """Every case, those on the same weights in a row."""
    for logits, matrices in ((False, shapes.matrices), (True, shapes.heads)):
        for form, outputs, inputs in matrices:
            for rows in ROWS:
                yield _matmul(form, outputs, inputs, rows, logits=logits)
    for rows in (1, ROWS[-1]):
        for feed, width in dict.fromkeys((feed_kind(form), inputs) for form, _, inputs in shapes.matrices):
            if feed != NONE:
                yield _quantise(feed, width, rows)
        for width, run in shapes.norms:
            step = Step("rms_norm", inputs=(0, 1), outputs=(2, 3), vector="norm", width=width, run=run, eps=1e-5)
            label = f"{width}" if run == width else f"{width} by {run}"
            yield _rows("rms_norm", label, [width] * 2, [step] * COPIES, rows, spare=[width] * 2)
        for width, gate in shapes.gates:
            step = Step("gated", inputs=(0, 1), outputs=(2,), width=width, gate=gate)
            yield _rows(f"gated {gate}", f"{width}", [width] * 2, [step] * COPIES, rows, spare=[width])
        for heads, kv_heads, dim in shapes.attention:
            yield from _around_attention(heads, kv_heads, dim, rows)
    for shape in shapes.attention:
        for sizes in CONTEXTS:
            yield _attention(*shape, *sizes)


def _matmul(form: str, outputs: int, inputs: int, rows: int, *, logits: bool) -> Case:
    """One matrix for each copy. The output matrix keeps the best of each row and no logits, as in greedy decoding."""
    size = outputs * WEIGHT_FORMATS[form].row_bytes(inputs)
    names = [f"copy{i}" for i in range(max(1, min(COPIES, _ENOUGH // size)))]
    kind, domain = feed_kind(form), "S" if logits else "T"
    first = [Step("embed", outputs=(0,), vector="table0", width=inputs)]
    if kind != NONE:
        first.append(Step("quantise", domain, (0,), width=inputs, feed=kind))
    out = (-1,) if logits else (1,)
    products = [Step("linear", domain, (0,), out, (name,), logits=logits) for name in names]
    program = Program([*first, *products], [inputs] if logits else [inputs, outputs], outputs if logits else 0)
    specs = {name: WeightSpec((outputs, inputs), (None, None), form) for name in names}
    return Case(
        f"matmul+argmax {form}" if logits else f"matmul {form}",
        f"{outputs}x{inputs}, {_count(rows, 'row')}",
        program,
        _step([(rows, rows)], samples=rows if logits else 0),
        tuple(range(len(first), len(program.steps))),
        specs,
        {"table0": inputs},
        blocks=1 + -(-rows // _BLOCK),
    )


def _rows(
    kernel: str,
    label: str,
    filled: list[int],
    steps: list[Step],
    rows: int,
    spare: list[int] | None = None,
    layout: KVLayout = _NO_CACHE,
) -> Case:
    """Steps on rows of activations: buffers of widths ``filled`` hold random numbers, ``spare`` ones are written."""
    tables = {f"table{i}": width for i, width in enumerate(filled)}
    fill = [Step("embed", outputs=(i,), vector=f"table{i}", width=width) for i, width in enumerate(filled)]
    return Case(
        kernel,
        f"{label}, {_count(rows, 'row')}",
        Program([*fill, *steps], [*filled, *(spare or [])]),
        _step([(rows, rows)]),
        tuple(range(len(fill), len(fill) + len(steps))),
        tables=tables,
        vectors={step.vector: step.run for step in steps if step.op == "rms_norm"},
        layout=layout,
        blocks=1 + -(-rows // _BLOCK),
        one_row=rows == 1,
    )


def _quantise(feed: int, width: int, rows: int) -> Case:
    """A small matrix follows: it is matrices that make a plan keep room for quantized rows."""
    step = Step("quantise", inputs=(0,), width=width, feed=feed)
    form = "q8_0" if feed == INT8 else "bf16"
    case = _rows(f"quantise {ARITHMETIC[feed]}", f"{width}", [width], [step] * COPIES, rows, spare=[16])
    steps = [*case.program.steps, step, Step("linear", inputs=(0,), outputs=(1,), matrices=("small",))]
    return replace(
        case,
        program=Program(steps, case.program.buffers),
        specs={"small": WeightSpec((16, width), (None, None), form)},
    )


def _around_attention(heads: int, kv_heads: int, dim: int, rows: int) -> Iterator[Case]:
    step = Step("rope", inputs=(0, 1), rope=RopeSpec(dim), heads=heads, kv_heads=kv_heads, head_dim=dim)
    widths = [heads * dim, kv_heads * dim]
    yield _rows("rope", f"{heads}/{kv_heads}x{dim}", widths, [step] * COPIES, rows)
    steps = [Step("write_kv", inputs=(0, 1), kv_heads=kv_heads, head_dim=dim, slot=i) for i in range(COPIES)]
    layout = KVLayout(_BLOCK, COPIES, kv_heads, dim, "bf16")
    yield _rows("write_kv", f"{kv_heads}x{dim}", [kv_heads * dim] * 2, steps, rows, layout=layout)


def _attention(heads: int, kv_heads: int, dim: int, rows: int, count: int, context: int) -> Case:
    """Each copy reads a layer of its own."""
    size = rows * context * 2 * kv_heads * dim * 2
    layers = max(1, min(COPIES, _ENOUGH // size))
    width, step = heads * dim, _step([(count, context)] * rows)
    fill = Step("embed", outputs=(0,), vector="table0", width=width)
    layer = Step(
        "attention",
        inputs=(0,),
        outputs=(1,),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        scale=dim**-0.5,
    )
    steps = [replace(layer, slot=i) for i in range(layers)]
    what = f"{count} at" if count > 1 else f"{_count(rows, 'row')} at"
    return Case(
        "attention prefill" if count > 1 else "attention decode",
        f"{heads}/{kv_heads}x{dim}, {what} {context}",
        Program([fill, *steps], [width, width]),
        step,
        tuple(range(1, layers + 1)),
        tables={"table0": width},
        layout=KVLayout(_BLOCK, layers, kv_heads, dim, "bf16"),
        blocks=1 + step.block_tables.size,
    )


def _step(rows: list[tuple[int, int]], samples: int = 0) -> StepInput:
    """Rows of (new tokens, tokens after the step), each over blocks of its own; block 1 is the first."""
    counts, contexts = (np.array(part, np.int32) for part in zip(*rows, strict=True))
    width = -(-int(contexts.max()) // _BLOCK)
    tables = 1 + np.arange(len(rows) * width, dtype=np.int32).reshape(1, len(rows), width)
    positions = [np.arange(context - count, context) for count, context in rows]
    slots = [tables[0, r, at // _BLOCK] * _BLOCK + at % _BLOCK for r, at in enumerate(positions)]
    tokens = int(counts.sum())
    return StepInput(
        tokens=np.arange(tokens, dtype=np.int32) % TABLE_ROWS,
        positions=np.concatenate(positions).astype(np.int32),
        query_starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        context_lens=contexts,
        slots=np.concatenate(slots).astype(np.int32)[None],
        block_tables=tables,
        sample_rows=np.arange(samples, dtype=np.int32),
        copies=np.zeros((0, 2), np.int32),
        sampling=SamplingBatch.plain(samples, greedy=True),
        bucket=Bucket(),
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
