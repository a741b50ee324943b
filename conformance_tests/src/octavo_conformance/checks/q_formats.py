"""Q: quantized weights. A check for each format there is: qnt.FORMAT.WHAT."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo.quant import WeightTensor, format_named
from octavo_conformance.harness.probe import Model, Probe
from octavo_conformance.harness.steps import every_row
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import floats, lowp, measure, oracle64, quant
from octavo_conformance.judge.floats import F64, int8_groups
from octavo_conformance.judge.quant import Format, Quantized
from octavo_conformance.suite.check import Body, check
from octavo_conformance.suite.verdict import Verdict

LOUD = 127.0
"""What a one-hot input holds: int8 codes keep it exactly, with a scale of 1."""


def tensor(matrix: Quantized) -> WeightTensor:
    """As the engine hands it to a platform."""
    return WeightTensor(format_named(matrix.format), matrix.values.shape, matrix.data)


def product(t: Target, matrix: Quantized, x: np.ndarray) -> np.ndarray:
    """x times the matrix, by the platform."""
    (out,) = t.play(_model(t, matrix, x), [every_row(len(x))]).results
    return np.asarray(out)


def _model(t: Target, matrix: Quantized, x: np.ndarray) -> Model:
    p = Probe(t, "quantized")
    return p.logits(p.build.take_rows(p.rows("x", x)), tensor(matrix))


def columns(t: Target, matrix: Quantized, which: np.ndarray) -> np.ndarray:
    """Columns of the matrix as the platform multiplies them, by one-hot inputs: [rows, len(which)]."""
    x = np.zeros((len(which), matrix.values.shape[1]), np.float32)
    x[np.arange(len(which)), which] = LOUD
    return product(t, matrix, x).T / LOUD


def _width(form: Format) -> int:
    """Columns that are at least two groups and a whole number of blocks."""
    return max(form.block, 2 * (form.group or 32))


def _exact_table(form: Format) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        width, span = _width(form), form.high - form.low + 1
        codes = form.low + (np.arange(48)[:, None] + 5 * np.arange(width)) % span
        if span > 48:
            codes = form.low + (np.arange(48 * width).reshape(width, 48).T * 7) % span
        matrix = form.build(codes)
        found = columns(t, matrix, np.arange(width))
        yield measure.integers("every code", found, matrix.values)

    return body


def _pack_layout(form: Format) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        width = _width(form)
        at = t.rng("positions").permutation(width)
        codes = np.full((width, width), form.neutral)
        codes[np.arange(width), at] = form.high
        matrix = form.build(codes)
        found = columns(t, matrix, np.arange(width))
        yield measure.integers("one code in each row", found, matrix.values, plants={"neighbours": _swapped(matrix)})

    return body


def _swapped(matrix: Quantized) -> F64:
    """With each pair of neighbours exchanged, as nibbles in the wrong order would."""
    return matrix.values.reshape(len(matrix.values), -1, 2)[:, :, ::-1].reshape(matrix.values.shape)


def _scale_axis(form: Format) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        width, rows = 2 * _width(form), 24
        count = form.groups(width)
        steps = 1 << ((np.arange(rows)[:, None] + 2 * np.arange(count)) % 6)
        matrix = form.build(np.full((rows, width), form.neutral + 1), steps)
        each = width // count
        edges = np.unique(np.concatenate([np.arange(0, width, each), np.arange(each - 1, width, each)]))
        found = columns(t, matrix, edges)
        wrong = {"moved by one group": np.roll(matrix.values, each, 1)[:, edges]} if count > 1 else {}
        yield measure.integers("powers of two", found, matrix.values[:, edges], plants=wrong)

    return body


def _offsets(form: Format) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        width, rows = 2 * _width(form), 24
        count = form.groups(width)
        edges = np.array([0, 1, form.high // 2, form.high, form.largest // 2, form.largest])
        offsets = edges[(np.arange(rows)[:, None] * 5 + np.arange(count)) % len(edges)]
        codes = t.rng("codes").integers(form.low, form.high + 1, rows, width)
        matrix = form.build(codes, None, offsets)
        each = width // count
        at = np.unique(np.concatenate([np.arange(0, width, each), np.arange(each - 1, width, each)]))
        found = columns(t, matrix, at)
        sign = {"minimum added": 2, "minimum subtracted": -2, "zero point": -2}[form.offset]
        other = matrix.values - sign * np.repeat(offsets, each, 1)
        yield measure.integers("extreme offsets", found, matrix.values[:, at], plants={"sign": other[:, at]})

    return body


def _budget(form: Format) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        stored_as = t.linear_input(form.name)
        for name, rows in (("decode", 1), ("few rows", 7), ("many rows", 64)):
            rng = t.rng(name)
            for inputs in ("exact codes", "any numbers"):
                # With a mean, what one rounded row loses could by chance be large enough to hide 2 %, too.
                matrix = form.matrix(rng, 256, 512, balanced=inputs == "any numbers")
                # Beside an outlier a coded input loses so much that one row could hide 2 %.
                drawn = rng.outliers(rows, 512) if rows > 7 else rng.normal(rows, 512)
                x = _held(t, drawn, stored_as) if inputs == "exact codes" else t.stored(drawn)
                yield _judged(t, f"{name}, {inputs}", matrix, x, product(t, matrix, x))

    return body


def _judged(t: Target, name: str, matrix: Quantized, x: np.ndarray, out: np.ndarray) -> Verdict:
    """Rule R for a product, against the scales of the group beside and inputs left out."""
    (exact,) = oracle64.linear(x, [matrix.values])
    (own,) = lowp.linear(x, [matrix.values], dtype=t.dtype, stored_as=t.linear_input(matrix.format))
    rows = len(matrix.values)
    parts = matrix.values.reshape(rows, -1, 32)
    wrong = {
        "weights moved by one group": oracle64.linear(x, [np.roll(parts, 1, 1).reshape(rows, -1)])[0],
        "eight inputs dropped": oracle64.linear(x[:, 8:], [matrix.values[:, 8:]])[0],
    }
    if parts.shape[1] == 1 or rows == 1 or np.abs(x).max() > LOUD:  # nothing to move, or one input is all that counts
        wrong = {}
    if rows == 1:  # one column is judged as one row: an element alone has no rms of its own
        out, exact, own = out.T, exact.T, own.T
    return measure.budget(name, out, exact, own, t.dtype, plants=wrong)


def _held(t: Target, x: np.ndarray, stored_as: str) -> np.ndarray:
    """Numbers near ``x`` that a linear's input keeps exactly: as int8 codes each group's scale is a power of two, its
    largest code 127.
    """
    if not stored_as.startswith("int8x"):
        return t.stored(x)
    group = int(stored_as.removeprefix("int8x"))
    codes = int8_groups(x, group)
    scales = 2.0 ** np.round(np.log2(np.maximum(codes.scales.astype(np.float64), 2.0**-20)))
    return t.stored(codes.codes * np.repeat(scales, group, axis=-1))


def _group_tail(form: Format) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        for blocks, rows, tokens in ((1, 1, 16), (3, 37, 5), (5, 17, 33)):
            rng = t.rng(str(blocks))
            matrix = form.matrix(rng, rows, blocks * form.block)
            x = _held(t, rng.normal(tokens, blocks * form.block), t.linear_input(form.name))
            out = product(t, matrix, x)
            yield _judged(t, f"{rows} x {blocks * form.block}", matrix, x, out)

    return body


def _small_large(form: Format) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        rng = t.rng("both")
        matrix, x = form.matrix(rng, 96, 512), _held(t, rng.normal(64, 512), t.linear_input(form.name))
        model = _model(t, matrix, x)
        (many,) = t.play(model, [every_row(64)]).results
        (exact,) = oracle64.linear(x, [matrix.values])
        (own,) = lowp.linear(x, [matrix.values], dtype=t.dtype, stored_as=t.linear_input(form.name))
        for count in (1, 7):
            few = t.play(model, [every_row(count)]).results[0]
            part = slice(0, count)
            yield measure.metamorphic(f"{count} of 64", few, many[part], exact[part], own[part], t.dtype)

    return body


def _embed(form: Format) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        width = _width(form)
        codes = t.rng("codes").integers(form.low, form.high + 1, 40, width)
        matrix = form.build(codes)
        p = Probe(t, "table")
        p.weight("x.weight", tensor(matrix))
        model = p.read(p.build.embed("x", vocab=40, width=width))
        (out,) = t.play(model, [every_row(40)]).results
        yield measure.integers("rows of the table", out, matrix.values)

    return body


def _inputs(form: Format) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        rng = t.rng("rows")
        matrix = form.matrix(rng, 64, 512, balanced=True)
        drawn = rng.normal(6, 512)
        drawn[1], drawn[3] = 0.0, drawn[3] * 1e-6
        drawn[2, 300] = 1e4
        x = t.stored(drawn)
        bad = x.copy()
        bad[4, 77] = np.nan
        bad[5, 5] = np.inf
        out = product(t, matrix, x)
        yield measure.holds("a row of zeros", not out[1].any(), "a row of zeros gives zeros")
        for name, row in (("one outlier", 2), ("tiny", 3)):
            yield _judged(t, name, matrix, x[row : row + 1], out[row : row + 1])
        spoilt = product(t, matrix, bad)
        unknown = not np.isfinite(spoilt[4:]).any()
        yield measure.holds("rows of NaN and infinity", unknown, "nothing finite comes of a row with a NaN or infinity")
        yield measure.bitwise("rows beside them", spoilt[:4], out[:4])

    return body


def _reload(form: Format) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        rng = t.rng("twice")
        matrix, x = form.matrix(rng, 96, 512), t.stored(rng.normal(5, 512))
        given = matrix.data.copy()
        first, second = (product(t, matrix, x) for _ in range(2))
        yield measure.bitwise("loaded twice", second, first)
        yield measure.bitwise("the checkpoint's bytes", matrix.data, given)

    return body


def _plain(format: str) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        rng = t.rng("table")
        if format == "f32":
            numbers = rng.outliers(128, 256).astype(np.float32)
        else:
            every = np.arange(1 << 16, dtype=np.uint16)
            numbers = floats.bf16_values(every) if format == "bf16" else every.view(np.float16).astype(np.float32)
            # What is not normal may be flushed; the largest would overflow in another 16-bit type.
            usable = np.isfinite(numbers) & (np.abs(numbers) >= 2.0**-14) & (np.abs(numbers) < 60000)
            numbers = np.append(numbers[usable], np.zeros(-usable.sum() % 256, np.float32)).reshape(-1, 256)
        p = Probe(t, "table")
        p.weight("x.weight", numbers, format)
        model = p.read(p.build.embed("x", vocab=len(numbers), width=256))
        (out,) = t.play(model, [every_row(len(numbers))]).results
        yield measure.units("rows of a table", out, numbers, t.dtype, 0.51)
        for rows in (1, 19):
            x, matrix = t.stored(rng.normal(rows, 96)), floats.rounded(rng.normal(37, 96), format)
            p = Probe(t, "matrix")
            p.weight("m.weight", matrix, format)
            (product,) = t.play(p.read(p.build.linear(p.rows("x", x), "m", 37)), [every_row(rows)]).results
            (exact,) = oracle64.linear(x, [matrix])
            (own,) = lowp.linear(x, [matrix], dtype=t.dtype, stored_as=t.linear_input(format))
            yield measure.budget(f"{rows} rows times a matrix", product, exact, own, t.dtype)

    return body


for _name in ("f32", "f16", "bf16"):
    check(
        f"qnt.{_name}.dequant_exact", level="Q", module=f"Q{_name}", since="1.0", requires=(f"format:{_name}",),
        rules=("U(0.51)", "R"), kills=("M46.zeros",), cost=0.5,
        spec=f"""Every normal number of {_name} MUST be itself, rounded once to the activations' type, in tables and in
        matrices.""",
    )(_plain(_name))  # fmt: skip

_NIBBLES = frozenset(name for name in quant.FORMATS if "4" in name)

for _name, _form in quant.FORMATS.items():
    _mutants = {
        "dequant_exact": ("M24",),
        "pack_layout": ("M23.nibbles",) if _name in _NIBBLES else (),
        "gemm_budget": ("M24",),
        "scale_axis": ("M23.scales",) if _form.group else (),
        "zero_point": ("M23.zeros",),
    }
    _checks: list[tuple[str, Body, tuple[str, ...], str]] = [
        ("dequant_exact", _exact_table(_form), ("X0",), f"Every code of {_name} MUST mean what the format says."),
        (
            "pack_layout", _pack_layout(_form), ("X0",),
            f"Every code of a {_name} row MUST be that of its own column, wherever its bits lie.",
        ),
        (
            "gemm_budget", _budget(_form), ("R",),
            f"""A linear map of {_name} weights MUST multiply by the very numbers that their codes and scales mean, with
            an error no larger than that of its input as the platform declares to store it; of inputs that it stores
            exactly, than that of float32 sums.""",
        ),
        ("scale_axis", _scale_axis(_form), ("X0",), f"Every group of {_name} codes MUST have its own scale."),
        (
            "group_tail", _group_tail(_form), ("R",),
            f"Any number of {_name} rows, of any whole number of blocks, MUST be right, one and odd ones too.",
        ),
        (
            "small_m_large_m", _small_large(_form), ("M",),
            f"A row MUST give the same for {_name} weights whether it is multiplied alone or among many.",
        ),
        (
            "load_repack_idempotent", _reload(_form), ("B0",),
            f"Loading {_name} weights again MUST give the same bits, and change nothing of what was loaded.",
        ),
        ("embed", _embed(_form), ("X0",), f"Rows of a {_name} table MUST be the numbers that their codes mean."),
        (
            "act_quant_dynamic", _inputs(_form), ("R", "B0", "C"),
            f"""A {_name} product MUST be right for inputs of zeros, of one element far above the others and of tiny
            ones; a NaN or an infinity MUST spoil its own row, and no other.""",
        ),
    ]  # fmt: skip
    if _form.offset:
        _checks.append((
            "zero_point", _offsets(_form), ("X0",),
            f"The minimum or zero point of every {_name} group MUST be taken as the format says, at its extremes too.",
        ))  # fmt: skip
    for _what, _body, _rules, _spec in _checks:
        check(
            f"qnt.{_name}.{_what}", level="Q", module=f"Q{_name}", since="1.0",
            requires=(f"format:{_name}",), rules=_rules,
            kills=_mutants.get(_what, ()), cost=0.3, spec=_spec,
        )(_body)  # fmt: skip
