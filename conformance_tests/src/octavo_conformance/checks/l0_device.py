"""L0 · DEV: what a platform says of itself, its memory, and the order of its work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from octavo.platform import ModelFacts, Plan, PlanRequest, Settings, Unsupported
from octavo.platform.info import ATTENTION_FEATURES, DTYPES, KV_DTYPES
from octavo.quant import FORMATS, WeightTensor, format_named
from octavo_conformance.checks.l0_pools import ahead, heads_of, rounds_of
from octavo_conformance.harness import attention, refusal
from octavo_conformance.harness.attention import Case
from octavo_conformance.harness.probe import Model, Probe
from octavo_conformance.harness.steps import Action, Row, Seq, Step, blocks_for, every_row
from octavo_conformance.harness.target import Refused, Script, Target
from octavo_conformance.judge import floats, measure
from octavo_conformance.suite import capability
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict
from octavo_conformance.worker.host import CandidateRaised

MIB = 2**20


@check(
    "dev.import_inert", level="L0", module="DEV", since="1.0", rules=("C",), kills=("L0.threads",), cost=1.5,
    spec="""Finding a platform, and asking for its info, probe, capabilities and a plan, MUST start no thread or
    process, open no device, import no SDK, and take less than a second of CPU time and 128 MiB.""",
)  # fmt: skip
def import_inert(t: Target) -> Iterator[Verdict]:
    found = t.act("inert", platform=t.worker.platform, mutant=t.worker.mutant)
    before, after = found["before"], found["after"]
    grown = {name: after[name] - before[name] for name in before}
    for name, most in (("threads", 0), ("children", 0), ("nodes", 0)):
        yield measure.within(name, grown[name], 0, most, note="started by asking")
    yield measure.within("CPU seconds", grown["cpu_us"] / 1e6, 0, 1)
    yield measure.within("resident MiB", grown["resident"] / MIB, -MIB, 128)
    yield measure.within("SDKs", len(found["sdks"]), 0, 0, note=", ".join(found["sdks"]))


@check(
    "dev.enumerate_stable", level="L0", module="DEV", since="1.0", rules=("C",), kills=("L0.names",), cost=1.5,
    spec="""info, devices, capabilities and the plan for a request MUST be the same each time they are asked for, in one
    process and in another.""",
)  # fmt: skip
def enumerate_stable(t: Target) -> Iterator[Verdict]:
    here = t.act("describe")
    there, again = t.act("inert", platform=t.worker.platform, mutant=t.worker.mutant)["seen"]
    for name in here:
        same = here[name] == there[name] == again[name]
        yield measure.holds(name, same, f"{here[name]} / {there[name]} / {again[name]}"[:400])


@check(
    "dev.identity_unique", level="L0", module="DEV", since="1.0", rules=("C",), cost=0.2,
    spec="""An available platform MUST answer to the name it was asked for by, have a vendor, a version and a reason,
    and list at least one device, each with a name.""",
)  # fmt: skip
def identity_unique(t: Target) -> Iterator[Verdict]:
    info, probe = t.info, t.probe
    yield measure.holds("name", info["name"] == t.worker.platform, f"{info['name']}, asked for {t.worker.platform}")
    yield measure.holds("named", all(info[key] for key in ("vendor", "version", "kind")), str(info))
    yield measure.holds("available", bool(probe["available"] and probe["reason"]), str(probe["reason"]))
    devices = probe["devices"]
    yield measure.holds("devices", bool(devices) and all(d["name"] for d in devices), str(devices))
    yield measure.within("memory", min((d["memory_bytes"] for d in devices), default=-1), 0, float("inf"))


@check(
    "dev.properties_sane", level="L0", module="DEV", since="1.0", rules=("C",), kills=("L0.block_bytes",), cost=0.5,
    spec="""What is declared MUST be known to core and free of repetitions, the plan for open settings MUST use only
    what is declared and lie within its own limits, and a block MUST be said to take no less than its numbers.""",
)  # fmt: skip
def properties_sane(t: Target) -> Iterator[Verdict]:
    can = t.capabilities
    for name, listed, known in (
        ("dtypes", can.dtypes, DTYPES), ("kv_dtypes", can.kv_dtypes, KV_DTYPES),
        ("weight_formats", tuple(can.weight_formats), tuple(FORMATS)), ("attention", can.attention, ATTENTION_FEATURES),
    ):  # fmt: skip
        yield measure.holds(f"{name} known", set(listed) <= set(known), f"{sorted(listed)}")
    for name in ("dtypes", "kv_dtypes", "block_sizes", "head_dims"):
        listed = getattr(can, name) or ()
        yield measure.within(f"{name} repeated", len(listed) - len(set(listed)), 0, 0)
    plan = t.negotiate(PlanRequest(_decoder(t), Settings()))
    assert isinstance(plan, Plan), plan
    declared = plan.dtype in can.dtypes and plan.kv_cache_dtype in can.kv_dtypes and plan.block_size in can.block_sizes
    yield measure.holds("plan declared", declared, f"{plan.dtype}, {plan.kv_cache_dtype}, {plan.block_size}")
    for name, size, most in (
        ("rows", plan.max_num_seqs, plan.limits.max_rows),
        ("tokens", plan.max_num_batched_tokens, plan.limits.max_tokens),
        ("context", plan.max_model_len, plan.limits.max_context),
        ("rows in tokens", plan.max_num_seqs, plan.max_num_batched_tokens),
    ):  # fmt: skip
        yield measure.within(f"plan {name}", size, 1, float("inf") if most is None else most)
    for dtype in can.kv_dtypes:
        script = _lone(t, kv_dtype=dtype)
        layout = script.request["layout"]
        element = {"f32": 4, "bf16": 2, "f16": 2, "int8": 1}[dtype]
        numbers = 2 * layout["slots"] * layout["block_size"] * layout["kv_heads"] * layout["head_dim"] * element
        said = t.act("block_bytes", rank=script.request["rank"], layout=layout)
        yield measure.within(f"{dtype} block", said, numbers, 16 * numbers)


@check(
    "dev.negotiate_pure", level="L0", module="DEV", since="1.0", rules=("C",), cost=0.2,
    spec="""negotiate MUST give a request whose settings are a plan's that very plan, and MUST leave what the user set
    as it is, or refuse it.""",
)  # fmt: skip
def negotiate_pure(t: Target) -> Iterator[Verdict]:
    model = _decoder(t)
    first = t.negotiate(PlanRequest(model, Settings()))
    assert isinstance(first, Plan), first
    names = ("dtype", "kv_cache_dtype", "block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens",
             "memory_utilization")  # fmt: skip
    again = t.negotiate(PlanRequest(model, Settings(**{name: getattr(first, name) for name in names})))
    same = isinstance(again, Plan) and all(getattr(first, n) == getattr(again, n) for n in (*names, "limits"))
    yield measure.holds("a plan's settings", same, f"{first} / {again}"[:400])
    for name, value in (
        ("max_model_len", 1), ("max_model_len", first.max_model_len), ("max_num_seqs", 1),
        ("max_num_batched_tokens", 1), ("max_num_batched_tokens", 7), ("memory_utilization", 0.25),
        ("block_size", t.capabilities.block_sizes[-1]), ("kv_cache_dtype", t.capabilities.kv_dtypes[-1]),
        ("dtype", t.capabilities.dtypes[-1]),
    ):  # fmt: skip
        answer = t.negotiate(PlanRequest(model, Settings(**{name: value})))  # type: ignore[arg-type]
        kept = isinstance(answer, Unsupported) or getattr(answer, name) == value
        yield measure.holds(f"{name}={value}", kept, f"{answer}"[:200])


@check(
    "dev.manifest_truth", level="L0", module="DEV", since="1.0", rules=("C", "E"), kills=("M49.undeclared",), cost=0.5,
    spec="""A platform MUST declare the floor (the ops of a decoder, a plain weight format, a block size), MUST plan for
    all that it declares, and MUST refuse what it does not declare, what core knows and what nobody does, with an answer
    that names it.""",
)  # fmt: skip
def manifest_truth(t: Target) -> Iterator[Verdict]:
    can = t.capabilities
    floor = {"embed", "linear", "rms_norm", "rope", "attention", "gated_activation", "add", "take_rows"}
    yield measure.holds("floor", floor <= can.ops, f"ops lacking of a decoder: {sorted(floor - can.ops) or 'none'}")
    everything = [*_tokens(t), *(f"format:{f}" for f in sorted(FORMATS)), *(f"kv:{d}" for d in KV_DTYPES),
                  *(f"attention:{a}" for a in ATTENTION_FEATURES), *(f"dtype:{d}" for d in DTYPES)]  # fmt: skip
    for token in dict.fromkeys(everything):
        answer = t.negotiate(refusal.asking_for(t, token))
        if capability.declares(can, token):
            yield measure.holds(token, isinstance(answer, Plan), f"declared: {answer}"[:200])
        else:
            yield refusal.refused(token, answer, *refusal.spellings(token))


def _tokens(t: Target) -> list[str]:
    """Both ends of every range, one value within, and one past each end; and names that nobody knows."""
    can = t.capabilities
    found = ["op:no_such_op", "format:no_such_format", f"ranks:{can.ranks + 1}"]
    for kind, sizes in (("block_size", can.block_sizes), ("head_dim", can.head_dims or ())):
        if sizes:
            ends = sorted({min(sizes), max(sizes), sorted(sizes)[len(sizes) // 2]})
            found += [f"{kind}:{n}" for n in (*ends, max(sizes) + 1, max(min(sizes) - 1, 1), 3 * max(sizes))]
    return found


@check(
    "dev.roundtrip_bytes", level="L0", module="DEV", since="1.0", rules=("B0",), kills=("M50",), cost=0.5,
    spec="""Numbers of the activation type, of every sign, exponent and last bit, MUST come through embedding table, row
    selection and a product by one as they were, in any number of rows and columns.""",
)  # fmt: skip
def roundtrip_bytes(t: Target) -> Iterator[Verdict]:
    for dtype in t.capabilities.dtypes:
        if dtype != t.dtype:
            continue  # the plain format is that of the preferred type
        for name, rows, columns in (("whole", 256, 64), ("odd", 33, 17), ("one", 1, 1), ("column", 129, 1)):
            x = _every_kind(t, name, dtype, rows * columns).reshape(rows, columns)
            p = Probe(t, "bytes")
            (found,) = t.play(p.read(p.rows("x", x)), [every_row(rows)]).results
            yield measure.bitwise(f"{dtype}, {name}", found, x)


def _every_kind(t: Target, name: str, dtype: str, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Normal numbers with random bits, so that every exponent comes; what is not finite or too small becomes 1.

    A sum with zeros loses the sign of -0 alone, and a device may flush what is below the smallest normal number.
    """
    raw = t.rng("bits", name).words(count)
    with np.errstate(all="ignore"):
        x = floats.rounded(raw.view(np.float32) if dtype != "f16" else raw.astype(np.uint16).view(np.float16), dtype)
        usable = np.isfinite(x) & (np.abs(x) >= floats.SMALLEST[dtype])
    return np.where(usable, x, np.float32(1)).astype(np.float32)


# -- order and ownership ------------------------------------------------------------------------------------


@check(
    "dev.inputs_untouched", level="L0", module="DEV", since="1.0", rules=("C", "B0"),
    kills=("M45.inputs", "M46.stale"), cost=0.5,
    spec="""submit MUST not write to the arrays of a step, and a result MUST depend on the values it is given: the same
    step run again with other values gives other results, with the same values the same bits.""",
)  # fmt: skip
def inputs_untouched(t: Target) -> Iterator[Verdict]:
    p = Probe(t, "inputs")
    x = t.stored(t.rng("x").normal(32, 64))
    one, two = every_row(32), every_row(16)
    played = t.play(p.read(p.rows("x", x)), [one, two, one])
    yield measure.within("arrays written to", len(played.changed), 0, 0, note=", ".join(played.changed))
    first, second, again = played.results
    yield measure.bitwise("first", np.asarray(first), x)
    yield measure.bitwise("fewer rows", np.asarray(second), x[:16])
    yield measure.bitwise("again", np.asarray(again), x)


@check(
    "dev.sync_truth", level="L0", module="DEV", since="1.0", rules=("B0",), kills=("M43", "M44", "M46.stale"),
    cost=0.5,
    spec="""The arrays of a step MUST be the caller's again when submit returns, who overwrites them and uses them for
    the next; collect MUST wait for the step it is asked for, and what it returns MUST stay as it is until the next
    collect.""",
)  # fmt: skip
def sync_truth(t: Target) -> Iterator[Verdict]:
    p = Probe(t, "sync")
    x = t.stored(t.rng("x").normal(96, 64))
    order = t.rng("order").permutation(96)
    rows = [order[at : at + 8] for at in range(0, 96, 8)]
    script: list[Action] = [Step((Seq(tuple(map(int, r))),), (Row(0, 0, 8),)) for r in rows]
    model = p.read(p.rows("x", x))
    for depth in (1, 2):
        yield measure.bitwise(f"depth {depth}", np.concatenate(ahead(t, model, script, depth)), x[order])


@check(
    "dev.stream_order", level="L0", module="DEV", since="1.0", rules=("B0",), kills=("M11",), cost=1.0,
    spec="""Steps MUST take effect in the order of their submission, though several are submitted before the first is
    collected: each sees the keys, values and copies of those before it, and none of those after it.""",
)  # fmt: skip
def stream_order(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    case = attention.randn(t, t.rng("tokens"), heads_of(t), (size + 9, size + 9))
    first, second = blocks_for(case.lengths, size)
    spare = max(*first, *second) + 1
    sequences = tuple(
        Seq(tuple(range(a, a + n)), (table,))
        for a, n, table in zip(case.starts, case.lengths, (first, second), strict=False)
    )
    last = case.lengths[0] - 4
    script: list[Action] = [Step(sequences, (Row(0, 0, last),)), Step(sequences, (Row(1, 0, last),))]
    script += [Step(sequences, (Row(0, at, 1), Row(1, at, 1))) for at in range(last, last + 4)]
    # A copy of the first sequence's first block, made while its steps are in flight, then attention through the copy.
    copied = Seq(sequences[0].tokens, ((spare, *first[1:]),))
    script.append(Step((copied,), (Row(0, last + 3, 1),), copies=((first[0], spare),)))
    serial = t.play(attention.model(t, case), script).results
    for depth in (2, 4):
        found = ahead(t, attention.model(t, case), script, depth)
        yield measure.bitwise(f"depth {depth}", np.concatenate(found), np.concatenate(serial))
    yield measure.bitwise("through the copy", serial[-1][0], serial[-2][0])


# -- memory -------------------------------------------------------------------------------------------------


@check(
    "dev.memory_sane", level="L0", module="DEV", since="1.0", rules=("C",), cost=0.5,
    spec="""memory() MUST report 0 < free <= total before load, after compile and after allocate_kv, the same total each
    time, and a second life of the device MUST find the memory of the first given back.""",
)  # fmt: skip
def memory_sane(t: Target) -> Iterator[Verdict]:
    p = Probe(t, "memory")
    model = p.read(p.rows("x", t.stored(t.rng("x").normal(32, 64))))
    lives = [t.play(model, [every_row(32)]).memory for _ in range(3)]
    for life, reports in enumerate(lives):
        for stage, (total, free) in zip(("before load", "after compile", "after allocate_kv"), reports, strict=True):
            yield measure.within(f"life {life} {stage}", free, 1, total)
    totals = {total for reports in lives for total, _ in reports}
    yield measure.within("totals", len(totals), 1, 1, note=f"totals seen: {sorted(totals)}")


@check(
    "dev.mem_delta", level="L0", module="DEV", since="1.0", rules=("C",), kills=("L0.block_bytes",), cost=1.5,
    spec="""A pool that is written MUST take about what kv_block_bytes says of the device's memory; where that is the
    host's, which others use too, of the process's.""",
)  # fmt: skip
def mem_delta(t: Target) -> Iterator[Verdict]:
    found, blocks = _lives(t, 1, 48 * MIB)
    (life,) = found["lives"]
    taken = blocks * life["block_bytes"]
    if found["shared"]:
        fell = life["written"]["resident"] - life["ready"]["resident"]
    else:
        fell = life["memory"][1]["free"] - life["memory"][3]["free"]
    where = "process" if found["shared"] else "device"
    yield measure.within("taken", fell / taken, 0.9, 1.25 + 4 * MIB / taken, note=f"of the {where}, {taken} bytes said")


@check(
    "dev.close_frees", level="L0", module="DEV", since="1.0", rules=("C",), kills=("L0.leak",), cost=2.0,
    spec="""close MUST give back all that a device took, of its own memory, of the process's, threads and open files:
    many lives in one process leave no more behind than a few.""",
)  # fmt: skip
def close_frees(t: Target) -> Iterator[Verdict]:
    found, blocks = _lives(t, 8, 8 * MIB)
    lives = found["lives"]
    warm, last = lives[2], lives[-1]
    each = blocks * last["block_bytes"]
    grown = {name: last["closed"][name] - warm["closed"][name] for name in last["closed"]}
    later = len(lives) - 3
    yield measure.within("resident, of a life's", grown["resident"] / later / each, -float("inf"), 0.25)
    yield measure.within("threads", grown["threads"], -float("inf"), 0)
    yield measure.within("files", grown["files"], -float("inf"), 0)
    if not found["shared"]:
        fell = warm["memory"][0]["free"] - last["memory"][0]["free"]
        yield measure.within("device memory, of a life's", fell / later / each, -float("inf"), 0.02)


def _lives(t: Target, count: int, size: int) -> tuple[Any, int]:
    """Lives with pools of about ``size`` bytes, and their number of blocks."""
    script = _lone(t, heads=32)
    layout = script.request["layout"]
    numbers = layout["slots"] * layout["block_size"] * layout["kv_heads"] * layout["head_dim"]
    blocks = max(8, size // (8 * numbers))
    return t.act("lives", **{**script.request, "blocks": blocks, "count": count}), blocks


@check(
    "dev.kv_budget_honest", level="L0", module="DEV", since="1.0", rules=("C", "B0"), kills=("M41",), cost=1.0,
    spec="""A pool of as many blocks as core would give it, 95 % of what memory() calls free after the last compile
    divided by kv_block_bytes, MUST be had, and steps of the most tokens and rows MUST run in it, also in its last
    blocks.""",
)  # fmt: skip
def kv_budget_honest(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    case = attention.randn(t, t.rng("tokens"), heads_of(t), (3 * size + 1, *(2 * size,) * 3))
    rounds = attention.decodes(case, 1)
    low = blocks_for(case.lengths, size)
    actions = rounds_of(case, rounds, low)
    small = t.play(attention.model(t, case), actions)
    _, free = small.memory[1]
    blocks = min(int(0.95 * free) // small.block_bytes, (2**31 - 1) // size)  # slots are int32
    named = sum(map(len, low))
    high = [tuple(blocks - b for b in table) for table in low]
    large = t.play(attention.model(t, case), rounds_of(case, rounds, high), blocks=blocks, poison=False)
    yield measure.within("blocks", blocks, named + 2, float("inf"), note=f"{blocks * small.block_bytes} bytes")
    yield measure.bitwise("last blocks", np.concatenate(large.results), np.concatenate(small.results))


@check(
    "dev.oom_typed", level="L0", module="DEV", since="1.0", rules=("E", "B0"), kills=("L0.oom",), cost=1.0,
    spec="""More than there can be, of weights or of blocks, MUST raise DeviceOutOfMemory from load or allocate_kv, with
    a size in its message, and the device MUST work when it is opened again.""",
)  # fmt: skip
def oom_typed(t: Target) -> Iterator[Verdict]:
    script = _lone(t)
    found = t.act("too_much", **script.request)
    yield _out_of_memory("blocks", found["refused"])
    plain = t.play(_lone_model(t), script.actions).results
    yield measure.bitwise("after blocks", script.results(found["after"]["results"])[0], plain[0])
    yield _too_large(t)
    yield measure.bitwise("after weights", t.play(_lone_model(t), script.actions).results[0], plain[0])


def _too_large(t: Target) -> Verdict:
    outputs, inputs = 2**28, 2**20
    # One that most devices convert: of float32 the map of a file might be enough.
    plain = format_named(next(f for f in ("f16", "bf16", "f32") if f in t.capabilities.weight_formats))
    nowhere = np.broadcast_to(np.zeros(plain.row_bytes(inputs), np.uint8), (outputs, plain.row_bytes(inputs)))
    p = Probe(t, "giant")
    x = p.rows("x", np.zeros((2, inputs), np.float32))
    model = p.logits(p.build.take_rows(x), WeightTensor(plain, (outputs, inputs), nowhere))
    try:
        script = t.script(model, [every_row(2)])
    except Refused as refused:  # as good: nothing was loaded
        return refusal.refused("weights", refused.refusal, "")
    weights = {name: raw for name, raw in script.request["weights"].items() if name != "head.weight"}
    giant = {"name": "head.weight", "format": plain.name, "shape": [outputs, inputs]}
    asked = {"rank": script.request["rank"], "graph": script.request["graph"], "weights": weights}
    return _out_of_memory("weights", t.act("too_large", **asked, giant=giant))


def _out_of_memory(case: str, frame: Any) -> Verdict:
    error = None if frame is None else CandidateRaised(frame)
    sized = error is not None and any(letter.isdigit() for letter in error.message)
    return refusal.typed(case, error, "DeviceOutOfMemory", *(() if sized else ("a size",)))


@check(
    "dev.poison_alloc", level="L0", module="DEV", since="1.0", rules=("B0",), kills=("L0.fresh_pool",), cost=1.0,
    spec="""What a new pool holds MUST not matter: results are the same bits whether it was filled with NaN, with zeros
    or with large numbers before the first step.""",
)  # fmt: skip
def poison_alloc(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    case = attention.randn(t, t.rng("tokens"), heads_of(t), (size + 3, 2 * size, 5))
    tables = blocks_for(case.lengths, size)
    actions = rounds_of(case, attention.decodes(case, 2), tables)
    pool = sum(map(len, tables)) + 2
    fills: dict[str, list[Action]] = {"NaN": []}
    for name, value in (("zeros", 0.0), ("large", 3e4)):
        fills[name] = [attention.poison(case, t, b, value=value) for b in range(pool)]
    outs = {}
    for name, before in fills.items():
        outs[name] = np.concatenate(
            t.play(attention.model(t, case), [*before, *actions], blocks=pool).results[len(before) :]
        )
    for name in ("zeros", "large"):
        yield measure.bitwise(name, outs[name], outs["NaN"])


# -- processes ----------------------------------------------------------------------------------------------


@check(
    "dev.spawn_fork", level="L0", module="DEV", since="1.0", rules=("C", "E", "B0"), kills=("L0.fork",), cost=1.5,
    spec="""A device MUST work in a new process while another has it open and has closed it; in a fork of the process
    that opened it, a step MUST either give the right result or raise a typed error at once, with health() saying why,
    and the parent's device MUST go on.""",
)  # fmt: skip
def spawn_fork(t: Target) -> Iterator[Verdict]:
    script = _lone(t)
    with t.fresh() as other:
        found = other.act("fork", patience=20.0, **script.request)
    plain = t.play(_lone_model(t), script.actions).results[0]
    child = found["child"]
    yield measure.bitwise("spawned", script.results(found["first"])[0], plain)
    yield measure.bitwise("parent", script.results(found["again"])[0], plain)
    if child["how"] == "ran":
        again = np.array(child["logits"][-1], np.float32)[: len(plain)]
        yield measure.bitwise("child", again, plain)
    else:
        raised, typed = int(child["how"] == "raised"), int(child["typed"])
        note = f"{child['how']}; {child['message']}; health: {child['health'] or 'good'}"
        yield Verdict("child", "E", {"raised": raised, "typed": typed, "named": int(bool(child["health"]))}, note=note)


# -- small models -------------------------------------------------------------------------------------------


def _decoder(t: Target) -> ModelFacts:
    return refusal.asking_for(t, f"head_dim:{heads_of(t).head_dim}").model


def _lone_case(t: Target, heads: int = 1) -> Case:
    spec = replace(heads_of(t), heads=heads, kv_heads=heads)
    return attention.randn(t, t.rng("lone"), spec, (3,))


def _lone_model(t: Target, heads: int = 1) -> Model:
    return attention.model(t, _lone_case(t, heads))


def _lone(t: Target, *, heads: int = 1, kv_dtype: str | None = None) -> Script:
    """One sequence of three tokens through attention, as a script."""
    step = Step((Seq((0, 1, 2), ((1,),)),), (Row(0, 0, 3),))
    return t.script(_lone_model(t, heads), [step], kv_dtype=kv_dtype)
