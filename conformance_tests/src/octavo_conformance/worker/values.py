"""Octavo's own values as a frame holds them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from octavo.platform import (
    Bucket,
    BucketPolicy,
    Capabilities,
    Decision,
    KVLayout,
    Limits,
    ModelFacts,
    Plan,
    PlanRequest,
    Rank,
    Samples,
    SamplingBatch,
    Settings,
    StepInput,
    Unsupported,
)  # fmt: skip
from octavo.quant import WeightTensor, format_named


def capabilities_out(can: Capabilities) -> dict[str, Any]:
    """Sets become sorted lists."""
    return {f.name: _listed(getattr(can, f.name)) for f in fields(can)}


def _listed(value: Any) -> Any:
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def capabilities_in(raw: Mapping[str, Any]) -> Capabilities:
    """The inverse; core checks the values."""
    kinds = {f.name: type(getattr(Capabilities(), f.name)) for f in fields(Capabilities)}
    made: dict[str, Any] = {
        name: frozenset(value) if kinds[name] is frozenset else tuple(value) if isinstance(value, list) else value
        for name, value in raw.items()
    }
    return Capabilities(**made)


def request_out(request: PlanRequest) -> dict[str, Any]:
    """A question to `negotiate`."""
    model = {f.name: _listed(getattr(request.model, f.name)) for f in fields(request.model)}
    return {"model": model, "settings": asdict(request.settings), "ranks": request.ranks}


def request_in(raw: Mapping[str, Any]) -> PlanRequest:
    """The inverse."""
    model: dict[str, Any] = {k: frozenset(v) if isinstance(v, list) else v for k, v in raw["model"].items()}
    return PlanRequest(ModelFacts(**model), Settings(**raw["settings"]), raw["ranks"])


def answer_out(answer: Plan | Unsupported) -> dict[str, Any]:
    """A plan or a refusal."""
    if isinstance(answer, Unsupported):
        return {"refused": asdict(answer)}
    plan = asdict(answer)
    plan["limits"]["buckets"] = policy_out(answer.limits.buckets)
    plan["decisions"] = [{**asdict(d), "value": str(d.value)} for d in answer.decisions]
    return {"plan": plan}


def answer_in(raw: Mapping[str, Any]) -> Plan | Unsupported:
    """The inverse; values of decisions come back as text."""
    if "refused" in raw:
        return Unsupported(**raw["refused"])
    plan = dict(raw["plan"])
    limits = dict(plan["limits"])
    limits["buckets"] = policy_in(limits["buckets"])
    plan["limits"] = Limits(**limits)
    plan["decisions"] = tuple(Decision(**d) for d in plan["decisions"])
    return Plan(**plan)


def policy_out(policy: BucketPolicy) -> dict[str, Any]:
    """Which buckets there are."""
    return {**{f.name: getattr(policy, f.name) for f in fields(policy)}, "explicit": [list(b) for b in policy.explicit]}


def policy_in(raw: Mapping[str, Any]) -> BucketPolicy:
    """The inverse."""
    sizes = {k: None if v is None else tuple(v) for k, v in raw.items() if k != "explicit"}
    return BucketPolicy(**sizes, explicit=tuple(Bucket(*b) for b in raw["explicit"]))


def step_out(step: StepInput) -> dict[str, Any]:
    """A step's arrays."""
    return {**{f.name: getattr(step, f.name) for f in fields(step)}, "bucket": list(step.bucket),
            "sampling": sampling_out(step.sampling)}  # fmt: skip


def step_in(raw: Mapping[str, Any]) -> StepInput:
    """The inverse."""
    return StepInput(**{**raw, "bucket": Bucket(*raw["bucket"]), "sampling": sampling_in(raw["sampling"])})


def sampling_out(batch: SamplingBatch) -> dict[str, Any]:
    """How tokens are chosen."""
    return {f.name: getattr(batch, f.name) for f in fields(batch)}


def sampling_in(raw: Mapping[str, Any]) -> SamplingBatch:
    """The inverse."""
    mask = None if raw["mask"] is None else tuple(raw["mask"])
    return SamplingBatch(**{**raw, "bias": tuple(raw["bias"]), "history": tuple(raw["history"]), "mask": mask})


def samples_out(samples: Samples | None) -> dict[str, Any] | None:
    """What was drawn."""
    return None if samples is None else {f.name: getattr(samples, f.name) for f in fields(samples)}


def samples_in(raw: Mapping[str, Any] | None) -> Samples | None:
    """The inverse."""
    return None if raw is None else Samples(**raw)


def weight_out(tensor: WeightTensor) -> dict[str, Any]:
    """A weight as stored."""
    return {"format": tensor.format.name, "shape": list(tensor.shape), "data": tensor.data}


def weight_in(raw: Mapping[str, Any]) -> WeightTensor:
    """The inverse."""
    return WeightTensor(format_named(raw["format"]), tuple(raw["shape"]), raw["data"])


def rank_out(rank: Rank) -> dict[str, Any]:
    """What a rank is but its artifact store: a device that is tested keeps nothing."""
    return {"index": rank.index, "count": rank.count, "device": rank.device, "threads": rank.threads}


def layout_out(layout: KVLayout) -> dict[str, Any]:
    """The block pool's shape."""
    return asdict(layout)


def layout_in(raw: Mapping[str, Any]) -> KVLayout:
    """The inverse."""
    return KVLayout(**raw)
