"""Jobs of the fault checks: engines over devices that fail, and what they leave behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from octavo.engine.client import EngineRequest, InProcessClient, News, Refusal
from octavo.errors import CheckpointError, EngineDead, OctavoError
from octavo.graph import from_json
from octavo.platform import Plan, Platform, Rank, host_memory
from octavo.platform.discovery import discover, select
from octavo.quant import WeightTensor
from octavo.sampling import SamplingParams
from octavo_conformance.worker import engine, values
from octavo_conformance.worker.actions import action
from octavo_conformance.worker.candidate import Raised, candidate
from octavo_conformance.worker.census import census
from octavo_conformance.worker.faulty import Faulty, Planted
from octavo_conformance.worker.play import memory_of


@action("faulty_engine")
def run_faulty(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """An engine's script (see `octavo_conformance.worker.engine`) on a device with faults planted around it."""
    faulty = Faulty(platform, [Planted(**fault) for fault in request["faults"]])
    answer: dict[str, Any] = engine.run(faulty, request)
    return {**answer, "struck": faulty.struck}


@contextmanager
def _engine(platform: Platform, request: Mapping[str, Any]) -> Iterator[Any]:
    """An engine, and the device below it; closing it is the caller's."""
    graph = from_json(request["graph"])
    with candidate("negotiate"):
        plan = platform.negotiate(values.request_in(request["request"]))
    assert isinstance(plan, Plan), f"the model was refused: {plan}"
    with candidate("open"):
        device = platform.open(Rank(**request["rank"]))
    try:
        with candidate("start"):
            made = engine.assemble(device, graph, plan, request)
    except Raised:
        device.close()
        raise
    yield device, made


@action("served")
def serve_with_faults(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """Requests to an engine in a thread, as a server has it, with a watchdog over its steps: what each was told.

    ``inject`` is (kind, step) for a device with the faults facet. ``told_after`` is the seconds from the first step to
    the engine's end, if it came to one.
    """
    faulty = Faulty(platform, [Planted(**fault) for fault in request["faults"]])
    tokens: dict[str, list[int]] = {event["id"]: [] for event in request["script"]}
    finished: dict[str, str] = {}
    dead: list[str] = []
    over = threading.Event()
    started = time.monotonic()
    ended = [0.0]

    def listen(news: Sequence[News]) -> None:
        for one in news:
            if isinstance(one, EngineDead):
                dead.append(str(one))
            elif not isinstance(one, Refusal):
                tokens[one.request_id] += one.token_ids
                if one.finish_reason is not None:
                    finished[one.request_id] = str(one.finish_reason)
        if dead or len(finished) == len(tokens):
            ended[0] = time.monotonic()
            over.set()

    with _engine(faulty, request) as (device, made):
        if request["inject"] is not None:
            with candidate("inject"):
                device.inject(*request["inject"])
        client = InProcessClient(made.core, request["step_timeout"])
        client.start(listen)
        started = time.monotonic()
        for event in request["script"]:
            client.add(EngineRequest(event["id"], tuple(event["prompt"]), SamplingParams(**event["params"])))
        came = over.wait(request["patience"])
        health, refused = client.health(), ""
        if dead:
            try:
                client.add(EngineRequest("after", (1, 2), SamplingParams(max_tokens=1)))
            except EngineDead as error:
                refused = str(error)
        _let_go(faulty, device, client, made, request)
    return {
        "tokens": tokens, "finished": finished, "dead": dead[0] if dead else "", "health": health or "",
        "refused": refused, "came": came, "seconds": ended[0] - started if came else request["patience"],
        "struck": faulty.struck, "steps": faulty.steps,
    }  # fmt: skip


def _let_go(faulty: Faulty, device: Any, client: InProcessClient, made: Any, request: Mapping[str, Any]) -> None:
    """Close, in a thread, since what hangs may hang on; then free what was hung on purpose, so that the process can
    go on.
    """
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(request["patience"])
    faulty.released.set()
    if request["inject"] is not None and request["inject"][0] == "hang":
        with candidate("close"):
            device.close()  # which lets go what hangs
    if not closing.is_alive():
        with candidate("close"):
            made.core.close()


@action("corrupt_weights")
def load_corrupt(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """Load weights of which one cannot be read: its reader raises CheckpointError. What came of it."""

    class Torn(dict[str, WeightTensor]):
        def __getitem__(self, name: str) -> WeightTensor:
            if name == request["torn"]:
                raise CheckpointError(f"tensor {name} is truncated: 17 bytes are missing")
            return super().__getitem__(name)

    weights = Torn({name: values.weight_in(raw) for name, raw in request["weights"].items()})
    with candidate("open"):
        device = platform.open(Rank(**request["rank"]))
    try:
        with candidate("load"):
            device.load(from_json(request["graph"]), weights, lambda what, done, total: None)
    except Raised as raised:
        return {"raised": raised.to_frame()}
    finally:
        with candidate("close"):
            device.close()
    return {"raised": None}


@action("soak")
def soak(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """Rounds of the same script through one engine, and after each a census, the device's memory and the blocks
    held.
    """
    rounds, answers = [], []
    with _engine(platform, request) as (device, made):
        try:
            for at in range(request["rounds"]):
                script = [{**event, "id": f"{event['id']}/{at}"} for event in request["script"]]
                answer = engine.drive(made, {**request, "script": script})
                answers.append({name: answer[name] for name in ("tokens", "finished", "errors")})
                rounds.append({**census(), **memory_of(device), "held": answer["used_blocks"]})
        finally:
            with candidate("close"):
                made.core.close()
    machine = host_memory().total
    return {"rounds": rounds, "answers": answers, "shared": any(r["total"] == machine for r in rounds)}


@action("announce_and_run")
def announce(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run an engine on and on, and say so by a file, for a judge that will end the process."""
    with _engine(platform, request) as (_, made):
        for at in range(request["rounds"]):
            script = [{**event, "id": f"{event['id']}/{at}"} for event in request["script"]]
            engine.drive(made, {**request, "script": script})
            if at == 0:
                Path(request["file"]).write_text(str(os.getpid()), encoding="utf-8")
    return {"ended": True}


@action("selection")
def select_among(platform: Platform, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What discovery finds, in order, and what choosing each of ``names`` (null: by default) gives."""
    found = discover().platforms

    def choose(name: str | None) -> str:
        try:
            return select(found, name).info.name
        except OctavoError as error:
            return f"{type(error).__name__}: {error}"

    chosen = {str(name): choose(name) for name in arguments["names"]}
    return {"found": [[f.name, f.verdict, f.probe.reason] for f in found], "chosen": chosen}
