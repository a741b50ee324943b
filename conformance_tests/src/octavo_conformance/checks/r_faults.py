"""R · FLT, HOT, SOAK: engines over devices that fail, neighbours, and long runs.

Faults are planted around the device, in the process that runs it, so that every platform meets them; where a platform
names the ``faults`` facet, in the device as well.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from octavo_conformance.checks import r_neighbours
from octavo_conformance.checks.l0_pools import heads_of
from octavo_conformance.checks.r_engines import (
    CONTEXT,
    DISTANCE,
    VICTIM,
    asked,
    crowd,
    exact,
    model_of,
    prefixes,
    restarted,
    victim,
)
from octavo_conformance.harness import refusal
from octavo_conformance.harness.engines import Request
from octavo_conformance.harness.probe import Model, Probe, stored
from octavo_conformance.harness.steps import every_row
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import measure
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict
from octavo_conformance.worker.host import CandidateDied, CandidateHung, CandidateRaised

DECODER = ("op:embed", "op:linear", "op:rope", "op:attention", "op:take_rows")
SOON = 5.0
"""Seconds within which everybody must know that a device is gone."""


def has_faults(t: Target) -> bool:
    """Whether the device fails on demand."""
    return "faults" in t.info["contract"]


def served(
    t: Target, requests: Sequence[Request], *, faults: Sequence[dict[str, Any]] = (), inject: Any = None,
    step_timeout: float = 0.0,
) -> Any:  # fmt: skip
    """What requests are told by an engine as a server has it; see the job."""
    request = asked(t, model_of(t), requests)
    return t.act(
        "served", **request, faults=list(faults), inject=inject, step_timeout=step_timeout, patience=30.0, seconds=120.0
    )


# -- steps that fail ----------------------------------------------------------------------------------------


@check(
    "flt.kernel_exception", level="R", module="FLT", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("R.no_rerun",), cost=1.5,
    spec="""A step that raises, before or after the device did its work, MUST cost nobody a token: its rows run again,
    and only a row that raises alone ends, with an error, while its neighbours go on.""",
)  # fmt: skip
def kernel_exception(t: Target) -> Iterator[Verdict]:
    requests = crowd(t, 5)
    for name, late in (("before the work", False), ("after the work", True)):
        faults = [{"kind": "raise", "step": n, "late": late} for n in (1, 3, 7, 12)]
        ran = t.act("faulty_engine", faults=faults, **asked(t, model_of(t), requests))
        yield measure.within(f"{name}: faults met", ran["struck"], 4, 4)
        yield measure.within(f"{name}: errors", len(ran["errors"]), 0, 0, note=str(ran["errors"])[:300])
        yield exact(name, requests, ran["tokens"])
        yield measure.within(f"{name}: blocks held", ran["used_blocks"], 0, 0)
    lone = victim(t)
    ran = t.act(
        "faulty_engine", faults=[{"kind": "raise", "token": VICTIM}], **asked(t, model_of(t), [*requests, lone])
    )
    yield measure.holds("the victim's error", set(ran["errors"]) == {"victim"}, str(ran["errors"])[:300])
    yield exact("the victim's neighbours", requests, ran["tokens"])
    yield measure.within("the victim's blocks", ran["used_blocks"], 0, 0)


@check(
    "flt.oom_mid_decode", level="R", module="FLT", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("R.no_rerun",), cost=1.0,
    spec="""A step for which a device has no memory MUST be run again in parts, and every request get its tokens; the
    device's own exhaustion, where it can be brought about, MUST leave it working.""",
)  # fmt: skip
def oom_mid_decode(t: Target) -> Iterator[Verdict]:
    requests = crowd(t, 5, every=0)
    for name, late in (("before the work", False), ("after the work", True)):
        faults = [{"kind": "oom", "step": n, "late": late} for n in (2, 6)]
        ran = t.act("faulty_engine", faults=faults, **asked(t, model_of(t), requests))
        yield measure.within(f"{name}: faults met", ran["struck"], 2, 2)
        yield exact(name, requests, ran["tokens"])
    if has_faults(t):
        told = served(t, requests, inject=("oom", 4))
        yield measure.holds("the device's own", not told["dead"], told["dead"])
        yield exact("the device's own: tokens", requests, told["tokens"])


@check(
    "flt.oom_at_load", level="R", module="FLT", since="1.0", requires=DECODER, grade="mandatory",
    rules=("E", "X0"), kills=("L0.oom",), cost=1.0,
    spec="""An engine whose pool the device cannot hold MUST not start, with DeviceOutOfMemory, and one that fits MUST
    start after it in the same process.""",
)  # fmt: skip
def oom_at_load(t: Target) -> Iterator[Verdict]:
    model = model_of(t)
    size, (layer,) = max(t.capabilities.block_sizes), model.graph.kv
    total = t.play(_table(t), [every_row(2)]).memory[0][0]
    blocks = total // (size * layer.kv_heads * layer.head_dim) + 1  # twice what there is, were a number one byte
    request = asked(t, model, crowd(t, 1), blocks=blocks, block_size=size)
    error = None
    try:
        t.act("faulty_engine", faults=[], **request)
    except CandidateRaised as raised:
        error = raised
    yield refusal.typed("too many blocks", error, "DeviceOutOfMemory")
    yield restarted(t)


@check(
    "flt.device_lost", level="R", module="FLT", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), cost=1.5,
    spec="""When a device is lost, every request in flight MUST be told within five seconds, health MUST turn bad, what
    comes later MUST be refused, no wrong token may have been given, and a new engine MUST start in the same
    process.""",
)  # fmt: skip
def device_lost(t: Target) -> Iterator[Verdict]:
    requests = crowd(t, 4, every=0)
    cases: list[tuple[str, Any]] = [
        ("before the work", {"faults": [{"kind": "lost", "step": 4}]}),
        ("after the work", {"faults": [{"kind": "lost", "step": 4, "late": True}]}),
    ]
    cases += [("the device's own", {"inject": ("lost", 4)})] if has_faults(t) else []
    for name, how in cases:
        yield from _gone(name, requests, served(t, requests, **how))
    yield restarted(t)


@check(
    "flt.hang_watchdog", level="R", module="FLT", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), cost=3.0,
    spec="""A device that does not come back from a step MUST be given up after the step timeout: every request in
    flight is told, health turns bad, no wrong token was given, and closing does not hang.""",
)  # fmt: skip
def hang_watchdog(t: Target) -> Iterator[Verdict]:
    requests = crowd(t, 4, every=0)
    with t.fresh() as other:  # what hangs may stay behind
        cases: list[tuple[str, Any]] = [("around the device", {"faults": [{"kind": "hang", "step": 4}]})]
        cases += [("the device's own", {"inject": ("hang", 4)})] if has_faults(t) else []
        for name, how in cases:
            yield from _gone(name, requests, served(other, requests, step_timeout=1.0, **how))
        yield restarted(other)


def _gone(name: str, requests: Sequence[Request], told: Any) -> Iterator[Verdict]:
    """The end of an engine whose device is gone."""
    yield measure.holds(f"{name}: told", bool(told["dead"]) and told["came"], told["dead"])
    yield measure.within(f"{name}: seconds", told["seconds"], 0, SOON)
    yield measure.holds(f"{name}: health", bool(told["health"]), told["health"])
    yield measure.holds(f"{name}: later", bool(told["refused"]), told["refused"])
    yield prefixes(f"{name}: wrong tokens", requests, told["tokens"])


@check(
    "flt.slow_device", level="R", module="FLT", since="1.0", requires=DECODER, grade="mandatory", rules=("X0", "C"),
    cost=1.5,
    spec="""A device that is slow, and comes back in time, MUST not be taken for dead.""",
)  # fmt: skip
def slow_device(t: Target) -> Iterator[Verdict]:
    requests = crowd(t, 4, tokens=6, every=0)
    told = served(t, requests, faults=[{"kind": "slow", "step": 0, "seconds": 0.05}], step_timeout=20.0)
    yield measure.holds("alive", not told["dead"] and told["came"], told["dead"])
    yield measure.within("slow steps", told["struck"], 6, told["steps"])
    yield exact("tokens", requests, told["tokens"])


# -- weights ------------------------------------------------------------------------------------------------


@check(
    "flt.nan_weights", level="R", module="FLT", since="1.0", requires=DECODER, grade="mandatory", rules=("X0", "C"),
    kills=("R.hides_nan",), cost=1.0,
    spec="""Weights that are NaN MUST fail the requests that meet them, by an error, and no other: neither their
    neighbours in a step nor those who get their blocks later.""",
)  # fmt: skip
def nan_weights(t: Target) -> Iterator[Verdict]:
    model = _with_nan(model_of(t))
    before, after = crowd(t, 3), [replace(r, at=r.at + 16) for r in crowd(t, 4, name="after")]
    requests = [*before, *after]
    # Few blocks, so that those of the victim are used again.
    blocks = 2 + 4 * -(-CONTEXT // t.block_size) // 2
    ran = t.act("faulty_engine", faults=[], **asked(t, model, [*requests, victim(t)], blocks=blocks, rows=4))
    yield measure.holds("error", set(ran["errors"]) == {"victim"}, str(ran["errors"])[:300])
    yield measure.within("tokens of the victim", len(ran["tokens"]["victim"]), 0, 0)
    yield exact("neighbours", requests, ran["tokens"])
    yield measure.within("blocks held", ran["used_blocks"], 0, 0)


def _with_nan(model: Model) -> Model:
    """The model with the embedding of `VICTIM` not a number."""
    tensor = model.weights["embed.weight"]
    table = np.zeros(tensor.shape, np.float32)
    table[VICTIM] = np.nan
    broken = stored(table, tensor.format.name).data
    data = np.array(tensor.data)
    data[VICTIM] = broken[VICTIM]
    return Model(model.graph, {**model.weights, "embed.weight": replace(tensor, data=data)})


@check(
    "flt.corrupt_weights", level="R", module="FLT", since="1.0", rules=("E", "B0"), kills=("R.swallows",), cost=0.5,
    spec="""What reading a weight raises MUST come out of load as it is, whichever weight it is, and the device MUST
    work when it is opened again.""",
)  # fmt: skip
def corrupt_weights(t: Target) -> Iterator[Verdict]:
    x = t.stored(t.rng("x").normal(16, 64))
    p = Probe(t, "torn")
    model = p.read(p.rows("x", x))
    script = t.script(model, [every_row(16)])
    for torn in model.weights:
        found = t.act("corrupt_weights", torn=torn, **script.request)["raised"]
        error = None if found is None else CandidateRaised(found)
        yield refusal.typed(torn, error, "CheckpointError", torn, "17 bytes")
    yield measure.bitwise("after it", t.play(model, [every_row(16)]).results[0], x)


def _table(t: Target) -> Model:
    p = Probe(t, "size")
    return p.read(p.rows("x", np.ones((2, heads_of(t).head_dim), np.float32)))


# -- processes ----------------------------------------------------------------------------------------------


@check(
    "flt.sigterm_drain", level="R", module="FLT", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("R.deaf",), cost=3.0,
    spec="""A process that is told to end (SIGTERM), or is killed (SIGKILL), in the middle of its steps MUST be gone
    within five seconds and leave nothing behind that keeps the next from working.""",
)  # fmt: skip
def sigterm_drain(t: Target) -> Iterator[Verdict]:
    request = asked(t, model_of(t), crowd(t, 3))
    for name in ("SIGTERM", "SIGKILL"):
        with t.fresh() as other, tempfile.TemporaryDirectory() as folder:
            mark = Path(folder) / "running"
            ends: list[str] = []
            asking = threading.Thread(target=_run_until_it_ends, args=(other, request, mark, ends))
            asking.start()
            while not mark.exists() and asking.is_alive():
                time.sleep(0.02)
            started = time.monotonic()
            os.kill(other.worker.pid, getattr(signal, name))
            asking.join(SOON)
            seconds = time.monotonic() - started
            if asking.is_alive():
                os.kill(other.worker.pid, signal.SIGKILL)
                asking.join()
            yield measure.holds(f"{name}: ran until then", ends == ["died"], f"{ends}")
            yield measure.within(f"{name}: seconds", seconds, 0, 0.9 * SOON)
    yield restarted(t, "another process")


def _run_until_it_ends(other: Target, request: Any, mark: Path, ends: list[str]) -> None:
    try:
        other.act("announce_and_run", file=str(mark), rounds=1_000_000, **request)
    except CandidateDied:
        ends.append("died")
    except (CandidateHung, CandidateRaised) as error:
        ends.append(f"{type(error).__name__}: {error}")
    else:
        ends.append("ended")


@check(
    "hot.two_plugins", level="R", module="HOT", since="1.0", requires=DECODER, grade="mandatory", rules=("X0", "C"),
    cost=2.5,
    spec="""Beside other plugins, one that is broken, two of one name, an accelerator, the platform MUST be found, be
    chosen by its name, and give the same tokens; the broken one MUST be reported, twins refused with both their names,
    and the choice by default the same each time.""",
)  # fmt: skip
def two_plugins(t: Target) -> Iterator[Verdict]:
    names = [t.worker.platform, "neighbour", "twin", None]
    requests = crowd(t, 3, tokens=6)
    with tempfile.TemporaryDirectory() as folder:
        r_neighbours.install(Path(folder))
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH", ""))))
        with t.fresh({"PYTHONPATH": path}) as other:
            first, second = (other.act("selection", names=names) for _ in range(2))
            ran = other.act("faulty_engine", faults=[], **asked(t, model_of(t), requests))
    found = {name: (verdict, reason) for name, verdict, reason in first["found"]}
    chosen = first["chosen"]
    yield measure.holds("same each time", first == second, "discovery asked twice")
    for name in (t.worker.platform, "neighbour"):
        yield measure.holds(f"{name} by name", chosen[name] == name, chosen[name])
    verdict, reason = found.get("broken", ("", ""))
    yield measure.holds("broken", verdict == "broken" and "no driver here" in reason, f"{verdict}: {reason}")
    twins = all(text in chosen["twin"] for text in ("PlatformUnavailable", "octavo-twin-a", "octavo-twin-b"))
    yield measure.holds("twins", twins, chosen["twin"])
    default = chosen["None"]
    alone = default == "neighbour" or ("PlatformAmbiguous" in default and "neighbour" in default)
    yield measure.holds("by default", alone, default)
    yield exact("tokens", requests, ran["tokens"])


# -- long runs ----------------------------------------------------------------------------------------------


@check(
    "soak.leak", level="R", module="SOAK", since="1.0", requires=DECODER, grade="mandatory", rules=("C",),
    kills=("M40.request", "M40.block"), cost=4.0,
    spec="""Serving MUST take no more memory, of the process or of the device, no more threads, files or blocks, the
    longer it goes on: the slope over many requests, finished and aborted, is nothing that a day would show.""",
)  # fmt: skip
def leak(t: Target) -> Iterator[Verdict]:
    requests = crowd(t, 12, tokens=4, every=0)
    requests += [replace(r, id=f"short-{r.id}", abort=3, max_tokens=40) for r in requests[:4]]
    ran = t.act("soak", rounds=14, **asked(t, model_of(t), requests))
    rounds = ran["rounds"][4:]
    per_request = _slope([r["resident"] for r in rounds]) / len(requests)
    yield measure.within("KiB a request", per_request / 1024, -float("inf"), 16)
    if not ran["shared"]:
        per_request = -_slope([r["free"] for r in rounds]) / len(requests)
        yield measure.within("device KiB a request", per_request / 1024, -float("inf"), 1)
    for name in ("threads", "files", "held"):
        yield measure.within(f"{name} a round", _slope([r[name] for r in rounds]), -float("inf"), 0.05)
    yield measure.within("blocks at the end", rounds[-1]["held"], 0, 0)


def _slope(values: Sequence[float]) -> float:
    """Theil and Sen's: the median of the slopes between all pairs, which one step up does not move."""
    y = np.array(values, np.float64)
    i, j = np.triu_indices(len(y), 1)
    return float(np.median((y[j] - y[i]) / (j - i)))


@check(
    "soak.correctness", level="R", module="SOAK", since="1.0", requires=DECODER, grade="mandatory", rules=("X0", "C"),
    kills=("M48",), cost=4.0,
    spec="""Over many rounds of requests that come, go and are aborted, in a pool too small for all of them, every
    request that ends by itself MUST have the right tokens.""",
)  # fmt: skip
def correctness(t: Target) -> Iterator[Verdict]:
    rng = t.rng("churn")
    requests = crowd(t, 24, tokens=14, name="churn")
    requests = [replace(r, at=int(rng.integers(0, 30, 1)[0])) for r in requests]
    aborted = [replace(r, abort=r.at + 1 + i % 9) if i % 3 == 0 else r for i, r in enumerate(requests)]
    blocks = 2 + 5 * -(-(70 + DISTANCE) // t.block_size)
    ran = t.act("soak", rounds=4, **asked(t, model_of(t), aborted, blocks=blocks))
    whole = [r for r in aborted if r.abort is None]
    for at, answer in enumerate(ran["answers"]):
        renamed = [replace(r, id=f"{r.id}/{at}") for r in whole]
        yield measure.within(f"round {at}: errors", len(answer["errors"]), 0, 0, note=str(answer["errors"])[:300])
        yield exact(f"round {at}", renamed, answer["tokens"])
    yield measure.within("blocks at the end", ran["rounds"][-1]["held"], 0, 0)
