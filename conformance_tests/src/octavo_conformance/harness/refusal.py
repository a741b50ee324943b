"""Refusal: what a platform does not declare it must refuse, by its typed answer, and by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from octavo.config import typed as typed_by_users
from octavo.platform import ModelFacts, PlanRequest, Settings, Unsupported
from octavo_conformance.suite import capability
from octavo_conformance.suite.verdict import Verdict
from octavo_conformance.worker.host import CandidateRaised

if TYPE_CHECKING:
    from octavo_conformance.harness.target import Target

RULE = "E"


def refusals(t: Target, tokens: tuple[str, ...]) -> Iterator[Verdict]:
    """For each capability that is not declared: a model that needs it is refused, and the refusal names it."""
    for token in tokens:
        if token == "targets":  # which core refuses for the platform: no model and no setting asks for it
            yield typed(token, ahead(t, None), "UnsupportedFeature", "compiling without a device", str(t.info["name"]))
            continue
        yield refused(token, t.negotiate(asking_for(t, token)), *spellings(token))


def ahead(t: Target, target: str | None) -> CandidateRaised | None:
    """What `octavo compile` says, for a target or the usual one, before it looks at a model."""
    try:
        t.act("compile ahead", target=target)
    except CandidateRaised as error:
        return error
    return None


def asking_for(t: Target, token: str) -> PlanRequest:
    """A request for a model that is within what is declared but for one thing."""
    can = t.capabilities
    model = ModelFacts(
        name="probe",
        ops=can.ops,
        weight_formats=can.weight_formats,
        attention=can.attention,
        head_dim=can.head_dims[0] if can.head_dims else 64,
        max_position=64,
        weight_bytes=1 << 20,
    )
    settings = Settings()
    kind, value = capability.split(token)
    match kind:
        case "op":
            model = replace(model, ops=model.ops | {value})
        case "attention":
            model = replace(model, attention=model.attention | {value})
        case "format":
            model = replace(model, weight_formats=model.weight_formats | {value})
        case "head_dim":
            model = replace(model, head_dim=int(value))
        case "dtype":
            settings = replace(settings, dtype=value)
        case "kv":
            settings = replace(settings, kv_cache_dtype=value)
        case "block_size":
            settings = replace(settings, block_size=int(value))
        case "ranks":
            return PlanRequest(model, settings, int(value))
        case _:
            raise ValueError(f"nothing asks for {token}; a check that requires it needs a refusal of its own")
    return PlanRequest(model, settings)


def spellings(token: str) -> tuple[str, ...]:
    """What a message may call a capability: dtypes as graphs name them (f16), or as users type them (float16)."""
    kind, value = capability.split(token)
    return (value, typed_by_users("dtype", value)) if kind in ("dtype", "kv") else (value,)


def refused(case: str, answer: object, *names: str) -> Verdict:
    """Rule E for an answer of `negotiate`, which is to contain one of ``names``."""
    said = isinstance(answer, Unsupported)
    note = str(answer) if said else f"accepted without being declared: {type(answer).__name__}"
    return Verdict(
        case,
        RULE,
        {"raised": int(said), "typed": int(said), "named": int(said and any(n in str(answer) for n in names))},
        note=note,
    )


def typed(case: str, error: CandidateRaised | None, kind: str, *names: str) -> Verdict:
    """Rule E for an exception: of the promised type, with every one of ``names`` in its message."""
    if error is None:
        return Verdict(case, RULE, {"raised": 0, "typed": 0, "named": 0}, note="nothing was raised")
    named = all(name in error.message for name in names)
    return Verdict(case, RULE, {"raised": 1, "typed": int(kind in error.types), "named": int(named)}, note=str(error))
