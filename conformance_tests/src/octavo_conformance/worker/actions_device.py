"""Jobs of the device checks: what needs to be seen from within the process, or between two calls."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from octavo.errors import OctavoError
from octavo.graph import from_json
from octavo.platform import Platform, Rank, host_memory
from octavo.quant import WeightTensor, format_named
from octavo_conformance.worker import values
from octavo_conformance.worker.actions import action
from octavo_conformance.worker.candidate import Raised, candidate
from octavo_conformance.worker.census import census
from octavo_conformance.worker.inert import describe
from octavo_conformance.worker.play import act, life, memory_of, play
from octavo_conformance.worker.reused import Reused


@action("census")
def take_census(platform: Platform, arguments: Mapping[str, Any]) -> dict[str, int]:
    """What this process holds."""
    return census()


@action("describe")
def describe_here(platform: Platform, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the platform says of itself in this process."""
    with candidate("describe"):
        return describe(platform)


@action("inert")
def ask_elsewhere(platform: Platform, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`octavo_conformance.worker.inert`, in a new process."""
    command = [sys.executable, "-m", "octavo_conformance.worker.inert", arguments["platform"], arguments["mutant"]]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if ran.returncode:
        raise Raised("discovery", RuntimeError(ran.stderr[-2000:]))
    report: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return report


@action("ahead")
def run_ahead(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """A script whose steps are submitted up to ``depth`` at a time before the first of them is collected.

    Steps are given in arrays that are used over and over, and that are zeroed as soon as `submit` has returned; what
    `collect` brought is looked at when the next steps are on their way, and last before the next `collect`. Other
    actions happen where they stand, with steps in flight.
    """
    results: list[Any] = [None] * len(request["actions"])
    flying: deque[tuple[int, Any, Any]] = deque()
    held: list[tuple[int, Any]] = []
    arrays = Reused()

    def look() -> None:
        while held:
            index, logits = held.pop()
            results[index] = {"logits": None if logits is None else np.array(logits, np.float32), "samples": None}

    def land() -> None:
        index, executable, ticket = flying.popleft()
        look()
        with candidate("collect"):
            held.append((index, executable.collect(ticket).logits))

    with life(platform, request) as alive:
        for index, wanted in enumerate(request["actions"]):
            if wanted["do"] != "step":
                results[index] = act(alive, wanted)
                continue
            while len(flying) >= request["depth"]:
                land()
            step = arrays.filled(values.step_in(wanted["step"]))
            executable = alive.executables[step.bucket]
            with candidate("submit"):
                flying.append((index, executable, executable.submit(step, alive.store)))
            arrays.overwrite(0)
        while flying:
            land()
        look()
    return {"results": results}


@action("lives")
def several_lives(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """``count`` lives of a device, one after the other, each with a pool that is written whole: in each the memory
    before load, after compile, after allocate_kv, and when all is written; a census then, and one after close.
    """
    shared = None
    lived = []
    for _ in range(request["count"]):
        with life(platform, {**request, "poison": False}) as alive:
            before = census()
            shape = alive.store.read_block(0).shape
            for block in range(request["blocks"]):
                alive.store.write_block(block, np.full(shape, block % 7, np.float32))
            for wanted in request["actions"]:
                act(alive, wanted)
            memory = [*alive.memory, memory_of(alive.device)]
            if shared is None:
                machine = host_memory().total
                shared = any(report["total"] == machine for report in memory)
            written, block_bytes = census(), alive.block_bytes
        lived.append({"memory": memory, "ready": before, "written": written, "closed": census(),
                      "block_bytes": block_bytes})  # fmt: skip
    return {"lives": lived, "shared": bool(shared)}


@action("block_bytes")
def ask_block_bytes(platform: Platform, request: Mapping[str, Any]) -> int:
    """What a block of a layout is said to take."""
    with candidate("open"):
        device = platform.open(Rank(**request["rank"]))
    try:
        with candidate("kv_block_bytes"):
            return int(device.kv_block_bytes(values.layout_in(request["layout"])))
    finally:
        with candidate("close"):
            device.close()


@action("too_much")
def ask_too_much(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """A pool twice as large as all of the device's memory (``blocks``); then a life as it should be (``after``)."""
    with candidate("open"):
        device = platform.open(Rank(**request["rank"]))
    layout = values.layout_in(request["layout"])
    try:
        total = memory_of(device)["total"]
        with candidate("kv_block_bytes"):
            blocks = 2 * total // int(device.kv_block_bytes(layout)) + 1
    finally:
        with candidate("close"):
            device.close()
    refused: dict[str, Any] | None = None
    try:
        with life(platform, {**request, "blocks": blocks, "poison": False}):
            pass
    except Raised as raised:
        refused = raised.to_frame()
    return {"refused": refused, "blocks": blocks, "after": play(platform, request)}


@action("too_large")
def load_too_large(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Load weights of which one, ``giant``, has more bytes than there is address space: what was raised."""
    giant = request["giant"]
    stored = format_named(giant["format"])
    shape = (*giant["shape"][:-1], stored.row_bytes(giant["shape"][-1]))
    nowhere = np.broadcast_to(np.zeros(shape[-1], np.uint8), shape)
    weights = {name: values.weight_in(raw) for name, raw in request["weights"].items()}
    weights[giant["name"]] = WeightTensor(stored, tuple(giant["shape"]), nowhere)
    with candidate("open"):
        device = platform.open(Rank(**request["rank"]))
    try:
        with candidate("load"):
            device.load(from_json(request["graph"]), weights, lambda what, done, total: None)
    except Raised as raised:
        return raised.to_frame()
    finally:
        with candidate("close"):
            device.close()
    return None


@action("fork")
def fork_under_way(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """A script, a fork in whose child it is run again, and the script again in the parent.

    ``child`` is what became of it: ``hung``, ``died``, ``raised`` or ``ran``.
    """
    with life(platform, request) as alive:
        first = [act(alive, wanted) for wanted in request["actions"]]
        child = _forked(alive, request["actions"], request["patience"])
        again = [act(alive, wanted) for wanted in request["actions"]]
    return {"first": first, "again": again, "child": child}


def _forked(alive: Any, actions: Any, patience: float) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, json.dumps(_in_child(alive, actions)).encode())
        os._exit(0)
    os.close(writing)
    deadline, told = time.monotonic() + patience, b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([reading], [], [], left)[0]:
            break
        part = os.read(reading, 1 << 16)
        if not part:
            break
        told += part
    os.close(reading)
    over = time.monotonic() >= deadline
    if over:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if told:
        report: dict[str, Any] = json.loads(told)
        return report
    return {"how": "hung" if over else "died", "typed": 0, "health": "", "message": "", "logits": []}


def _in_child(alive: Any, actions: Any) -> dict[str, Any]:
    """What a child tells: whatever happens, it must come to an end here."""
    told: dict[str, Any] = {"how": "ran", "typed": 0, "health": "", "message": "", "logits": []}
    try:
        told["health"] = alive.device.health() or ""
        results = [act(alive, wanted) for wanted in actions]
        told["logits"] = [r["logits"].tolist() for r in results if isinstance(r, dict)]
    except BaseException as error:  # noqa: BLE001 - told to the parent, and the process ends
        own = error.error if isinstance(error, Raised) else error
        told.update(how="raised", typed=int(isinstance(own, OctavoError)), message=f"{type(own).__name__}: {own}")
    return told
