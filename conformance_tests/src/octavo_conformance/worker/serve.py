"""The worker's loop: one request at a time, each answered with ``ok``, ``raised`` (the plugin's doing) or ``broken``
(ours).
"""

from __future__ import annotations

import os
import platform as host
import sys
import traceback
from collections.abc import Mapping
from importlib import metadata
from typing import IO, Any

from octavo.platform import CONTRACT, Platform
from octavo.platform.certificate import code_digest, packages_folder
from octavo.platform.discovery import discover, select
from octavo_conformance import mutants
from octavo_conformance.worker import actions, engine, values, wire
from octavo_conformance.worker.candidate import Raised, candidate
from octavo_conformance.worker.play import play


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until the judge closes the wire. The first request names the platform, and a mutation of it for tests."""
    actions.load_all()
    chosen: Platform | None = None
    while True:
        try:
            request = wire.receive(requests)
        except EOFError:
            return
        try:
            if request["ask"] == "begin":
                chosen = _begin(request)
                answer = _describe(chosen)
            else:
                assert chosen is not None, "the first request is begin"
                answer = _answer(chosen, request)
            wire.send(answers, {"ok": answer})
        except Raised as raised:
            wire.send(answers, {"raised": raised.to_frame()})
        except Exception:  # noqa: BLE001 - told to the judge, which makes an ERROR of it
            wire.send(answers, {"broken": traceback.format_exc()})


def _begin(request: Mapping[str, Any]) -> Platform:
    with candidate("discover"):
        chosen = select(discover().platforms, request["platform"])
    name = request["mutant"]
    return mutants.apply(name, chosen) if name else chosen


def _describe(chosen: Platform) -> dict[str, Any]:
    plugin = getattr(chosen, "inner", chosen)
    with candidate("info"):
        info = chosen.info
        probe = chosen.probe()
        can = values.capabilities_out(chosen.capabilities())
    return {
        "info": {"name": info.name, "vendor": info.vendor, "version": info.version, "kind": info.kind,
                 "contract": dict(info.contract)},
        "probe": {"available": probe.available, "reason": probe.reason,
                  "devices": [{"name": d.name, "memory_bytes": d.memory_bytes} for d in probe.devices]},
        "capabilities": can,
        "versions": {d: metadata.version(d) for d in ("octavo", "octavo-conformance", "numpy")},
        "contract": dict(CONTRACT),
        "machine": {"system": host.system(), "release": host.release(), "machine": host.machine(),
                    "python": host.python_version(), "cores": os.cpu_count() or 0},
        "distributions": sorted({f"{d.name}=={d.version}" for d in metadata.distributions()}),
        "digest": code_digest(plugin),
        "pid": os.getpid(),
        "package": str(packages_folder(plugin) or ""),
    }  # fmt: skip


def _answer(chosen: Platform, request: Mapping[str, Any]) -> Any:
    match request["ask"]:
        case "negotiate":
            with candidate("negotiate"):
                return values.answer_out(chosen.negotiate(values.request_in(request["request"])))
        case "play":
            return play(chosen, request)
        case "digest":
            return code_digest(getattr(chosen, "inner", chosen))
        case "engine":
            return engine.run(chosen, request)
        case "act":
            return actions.run(request["name"], chosen, request["arguments"])
        case other:
            raise ValueError(f"there is no request {other!r}")


def main() -> None:
    """Serve on the standard streams. What the plugin prints goes to stderr, so that it cannot garble the wire."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, sys.stdin.fileno())
    serve(requests, answers)


if __name__ == "__main__":
    main()
