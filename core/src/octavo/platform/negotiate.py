"""Negotiation: what the user asked, what the model needs, what the platform can do, and the plan that follows.

A platform's ``negotiate`` is pure and idempotent. Most need no code of their own: `negotiate_by_declaration` works from
capabilities and limits. What the user set is never changed: a conflict is an `Unsupported` that names the setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from octavo.config import Settings, flag
from octavo.platform.info import Capabilities
from octavo.platform.limits import Limits

DEFAULT_MAX_NUM_SEQS = 256
DEFAULT_MAX_NUM_BATCHED_TOKENS = 2048
DEFAULT_MEMORY_UTILIZATION = 0.9


@dataclass(frozen=True)
class ModelFacts:
    """What a platform must know of a model to say yes or no to it."""

    name: str
    ops: frozenset[str]
    weight_formats: frozenset[str]
    attention: frozenset[str]
    head_dim: int
    max_position: int
    """The longest context the model was made for, in tokens."""
    weight_bytes: int


@dataclass(frozen=True)
class PlanRequest:
    """The question put to a platform."""

    model: ModelFacts
    settings: Settings
    ranks: int = 1


@dataclass(frozen=True)
class Unsupported:
    """A refusal: what is not supported, why, the setting that asked for it, and what to do instead."""

    feature: str
    reason: str
    knob: str = ""
    suggestion: str = ""

    def __str__(self) -> str:
        cure = f"; {self.suggestion}" if self.suggestion else ""
        knob = f" ({self.knob})" if self.knob else ""
        return f"{self.feature} is not supported: {self.reason}{cure}{knob}"


@dataclass(frozen=True)
class Decision:
    """One setting that the plan gave another value than core's default, by whom and why."""

    setting: str
    value: object
    by: str
    why: str

    def __str__(self) -> str:
        return f"{self.setting} = {self.value}: {self.why} (decided by {self.by})"


@dataclass(frozen=True)
class Plan:
    """Every choice made: what core will use. ``memory_utilization`` is the part of the device's memory that
    weights and cache may take; ``max_model_len`` may still shrink to what the cache can hold, if nobody set it."""

    dtype: str
    kv_cache_dtype: str
    block_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    memory_utilization: float
    limits: Limits
    decisions: tuple[Decision, ...] = ()


def negotiate_by_declaration(
    request: PlanRequest,
    name: str,
    capabilities: Capabilities,
    limits: Limits,
    defaults: Settings | None = None,
) -> Plan | Unsupported:
    """The plan that follows from what a platform declares.

    ``name`` is the platform's, for messages; ``defaults`` are its own preferences where the user set nothing.
    """
    refusal = check_model(request, name, capabilities)
    if refusal is not None:
        return refusal
    chosen: dict[str, object] = {}
    decisions: list[Decision] = []
    for setting, allowed, default in (
        ("dtype", capabilities.dtypes, capabilities.dtypes[0]),
        ("kv_cache_dtype", capabilities.kv_dtypes, capabilities.kv_dtypes[0]),
        ("block_size", capabilities.block_sizes, capabilities.block_sizes[0]),
    ):
        asked = getattr(request.settings, setting)
        preferred = asked if asked is not None else getattr(defaults, setting, None) or default
        if preferred not in allowed:
            return Unsupported(f"{setting} {asked}", f"{name} has {_list(allowed)}", flag(setting), f"choose {_list(allowed)}")
        chosen[setting] = preferred
    for setting, limit, default in (
        ("max_model_len", limits.max_context, request.model.max_position),
        ("max_num_seqs", limits.max_rows, DEFAULT_MAX_NUM_SEQS),
        ("max_num_batched_tokens", limits.max_tokens, DEFAULT_MAX_NUM_BATCHED_TOKENS),
    ):
        asked = getattr(request.settings, setting)
        if asked is not None and limit is not None and asked > limit:
            return Unsupported(f"{setting} {asked}", f"{name} takes at most {limit}", flag(setting), f"set at most {limit}")
        preference = getattr(defaults, setting, None)
        value = asked if asked is not None else preference if preference is not None else default
        if asked is None and limit is not None and value > limit:
            value = limit
            decisions.append(Decision(setting, limit, name, f"its limit; the default is {default}"))
        elif asked is None and value != default:
            decisions.append(Decision(setting, value, name, f"its preference; the default is {default}"))
        chosen[setting] = value
    utilization = request.settings.memory_utilization
    if utilization is None:
        utilization = getattr(defaults, "memory_utilization", None) or DEFAULT_MEMORY_UTILIZATION
    plan = Plan(**chosen, memory_utilization=utilization, limits=limits, decisions=tuple(decisions))  # type: ignore[arg-type]
    return _fit_rows_to_tokens(plan, request.settings)


def check_model(request: PlanRequest, name: str, capabilities: Capabilities) -> Unsupported | None:
    """A refusal if the model needs what the platform does not declare."""
    model = request.model
    for feature, needed, has in (
        ("op", model.ops, capabilities.ops),
        ("weight format", model.weight_formats, capabilities.weight_formats),
        ("attention feature", model.attention, capabilities.attention),
    ):
        lacking = sorted(needed - has)
        if lacking:
            return Unsupported(
                f"{feature} {', '.join(lacking)}", f"{model.name} needs it and {name} has {_list(sorted(has))}"
            )
    if capabilities.head_dims is not None and model.head_dim not in capabilities.head_dims:
        return Unsupported(f"head_dim {model.head_dim}", f"{name} has {_list(capabilities.head_dims)}")
    if request.ranks > capabilities.ranks:
        return Unsupported(
            f"tensor parallelism over {request.ranks} devices",
            f"{name} spans at most {capabilities.ranks}",
            "--tensor-parallel-size",
            f"set at most {capabilities.ranks}",
        )
    return None


def _fit_rows_to_tokens(plan: Plan, settings: Settings) -> Plan | Unsupported:
    """Every running row may need a token in one step, so the token budget cannot be below the rows."""
    if plan.max_num_seqs <= plan.max_num_batched_tokens:
        return plan
    if settings.max_num_seqs is None:
        why = "each row needs a token of the step's budget"
        decision = Decision("max_num_seqs", plan.max_num_batched_tokens, "core", why)
        return replace(plan, max_num_seqs=plan.max_num_batched_tokens, decisions=(*plan.decisions, decision))
    return Unsupported(
        f"max_num_seqs {plan.max_num_seqs} with max_num_batched_tokens {plan.max_num_batched_tokens}",
        "each row needs a token of the step's budget",
        flag("max_num_batched_tokens"),
        f"set at least {plan.max_num_seqs}",
    )


def check_plan(plan: Plan, settings: Settings) -> str | None:
    """Core's own check of a plugin's plan: a sentence if it changed what the user set, else ``None``."""
    for name in (f.name for f in fields(Settings)):
        asked = getattr(settings, name)
        if asked is not None and getattr(plan, name) != asked:
            return f"the platform planned {name} = {getattr(plan, name)} though {flag(name)} {asked} was given"
    return None


def _list(values: Sequence[object] | frozenset[object]) -> str:
    return ", ".join(map(str, values)) or "none"
