"""Negotiation: what the user asked, what the model needs, what the platform can do, and the plan that follows.

A platform's ``negotiate`` is pure and idempotent. Most need no code of their own: `negotiate_by_declaration` works from
capabilities and limits. What the user set is never changed: a conflict is an `Unsupported` that names the setting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from octavo.config import Settings, flag, typed
from octavo.graph import Graph
from octavo.platform.info import Capabilities
from octavo.platform.limits import Limits

DEFAULT_MAX_NUM_SEQS = 256
DEFAULT_MAX_NUM_BATCHED_TOKENS = 2048
DEFAULT_MEMORY_UTILIZATION = 0.9


@dataclass(frozen=True)
class ModelFacts:
    """What a platform must know of a model to say yes or no to it. ``name`` is for messages."""

    name: str
    ops: frozenset[str]
    """Ops of its graph, names from `octavo.graph.OPS`."""
    weight_formats: frozenset[str]
    """Formats of its weights as stored, names from `octavo.quant.FORMATS`. Vectors are often f32 beside quantized
    matrices."""
    attention: frozenset[str]
    """Of `octavo.platform.info.ATTENTION_FEATURES`, those it uses."""
    head_dim: int
    max_position: int
    """The longest context the model was made for, in tokens."""
    weight_bytes: int
    """Size of all weights as stored."""
    whole_prompts: bool = False
    """A prompt must run in one step: its tokens see those after them, or all of them make one vector."""

    @classmethod
    def of(
        cls,
        graph: Graph,
        *,
        name: str,
        head_dim: int,
        max_position: int,
        weight_bytes: int,
        whole_prompts: bool = False,
    ) -> ModelFacts:
        """Those of a graph, with what does not stand in it."""
        attentions = [node for node in graph.nodes if node.op == "attention"]
        features = {
            "window": any(layer.window is not None for layer in graph.kv),
            "softcap": any(node.attrs.get("softcap") is not None for node in attentions),
            "sinks": any(node.weights for node in attentions),
            "bidirectional": any(node.attrs.get("causal") is False for node in attentions),
        }
        return cls(
            name=name,
            ops=frozenset(node.op for node in graph.nodes),
            weight_formats=frozenset(spec.format for spec in graph.weights.values()),
            attention=frozenset(feature for feature, used in features.items() if used),
            head_dim=head_dim,
            max_position=max_position,
            weight_bytes=weight_bytes,
            whole_prompts=whole_prompts,
        )


@dataclass(frozen=True)
class PlanRequest:
    """The question put to a platform.

    ``settings`` has ``None`` for what the user left open; ``ranks`` devices share the model.
    """

    model: ModelFacts
    settings: Settings
    ranks: int = 1


@dataclass(frozen=True)
class Unsupported:
    """A refusal. It reads "FEATURE is not supported: REASON; SUGGESTION (KNOB)", after the platform's name.

    ``feature`` is the thing with its value ("block_size 48"), ``reason`` names the limit ("acme has 16, 32"),
    ``knob`` is the flag of the setting that asked for it ("--block-size"; empty if the model did), ``suggestion``
    what to do instead ("choose 16, 32").
    """

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
    """One setting that the plan gave another value than core's default, by whom (a platform's name, or core) and
    why.
    """

    setting: str
    value: object
    by: str
    why: str

    def __str__(self) -> str:
        return f"{self.setting} = {typed(self.setting, self.value)}: {self.why} (decided by {self.by})"


@dataclass(frozen=True)
class Plan:
    """Every choice made: what core will use. The fields that `Settings` has too hold what the user set, where it was
    set.

    ``max_model_len``, ``max_num_seqs`` and ``max_num_batched_tokens`` are within ``limits``, and each row has room
    for a token in a step. ``memory_utilization`` is the part of the device's memory that weights and cache may take.
    ``max_model_len`` may still shrink to what the cache can hold, if nobody set it. Core compiles one executable for
    each bucket of ``limits``.
    """

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
    """The plan that follows from what a platform declares, or the first conflict found.

    ``name`` is the platform's, for messages; ``defaults`` are its preferences for what the user left open, bent to
    its limits and to the model where they go beyond. Sizes are bounded by ``limits``, and by its largest static
    buckets if it has any. A platform whose buckets depend on the sizes calls this without buckets first, and adds
    them to the plan::

        plan = negotiate_by_declaration(request, NAME, CAPABILITIES, LIMITS)
        if isinstance(plan, Unsupported):
            return plan
        buckets = BucketPolicy(tokens=powers_up_to(plan.max_num_batched_tokens))
        return replace(plan, limits=replace(LIMITS, buckets=buckets))
    """
    defaults = defaults or Settings()
    refusal = check_model(request, name, capabilities)
    if refusal is not None:
        return refusal
    chosen: dict[str, Any] = {}
    decisions: list[Decision] = []
    for setting, allowed in (
        ("dtype", capabilities.dtypes),
        ("kv_cache_dtype", capabilities.kv_dtypes),
        ("block_size", capabilities.block_sizes),
    ):
        value = _first(getattr(request.settings, setting), getattr(defaults, setting), allowed[0])
        if value not in allowed:
            known = _list([typed(setting, one) for one in allowed])
            return Unsupported(
                f"{setting} {typed(setting, value)}", f"{name} has {known}", flag(setting), f"choose {known}"
            )
        chosen[setting] = value
        if getattr(request.settings, setting) is None and value != allowed[0]:
            usual = typed(setting, allowed[0])
            decisions.append(Decision(setting, value, name, f"its preference; the default is {usual}"))
    block_size: int = chosen["block_size"]
    if limits.max_volume is not None and limits.max_volume < block_size:
        reason = f"{name} takes at most {limits.max_volume} tokens (rows x context) in a step, less than one block"
        return Unsupported(f"block_size {block_size}", reason, flag("block_size"), "choose a smaller one")
    for setting, limit, default in (
        ("max_model_len", _longest_context(limits, block_size), request.model.max_position),
        ("max_num_seqs", _largest(limits, "rows", limits.max_rows), DEFAULT_MAX_NUM_SEQS),
        ("max_num_batched_tokens", _largest(limits, "tokens", limits.max_tokens), DEFAULT_MAX_NUM_BATCHED_TOKENS),
    ):
        asked, preference = getattr(request.settings, setting), getattr(defaults, setting)
        if setting == "max_model_len" and preference is not None:
            preference = min(preference, default)  # the model has no more positions
        size = asked if asked is not None else _within(limit, _first(preference, default))
        if _within(limit, size) != size:
            return Unsupported(
                f"{setting} {size}", f"{name} takes at most {limit}", flag(setting), f"set at most {limit}"
            )
        if asked is None and size != default:
            why = "its limit" if size == limit else "its preference"
            decisions.append(Decision(setting, size, name, f"{why}; the default is {default}"))
        chosen[setting] = size
    part = _first(request.settings.memory_utilization, defaults.memory_utilization, DEFAULT_MEMORY_UTILIZATION)
    if request.settings.memory_utilization is None and part != DEFAULT_MEMORY_UTILIZATION:
        why = f"its preference; the default is {DEFAULT_MEMORY_UTILIZATION}"
        decisions.append(Decision("memory_utilization", part, name, why))
    plan = Plan(**chosen, memory_utilization=part, limits=limits, decisions=tuple(decisions))
    fitted = _fit_rows_to_tokens(plan, request.settings, name)
    if isinstance(fitted, Unsupported) or not request.model.whole_prompts:
        return fitted
    return _fit_prompts_to_tokens(fitted, request.settings, name)


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
        return Unsupported(
            f"head_dim {model.head_dim}", f"{model.name} needs it and {name} has {_list(capabilities.head_dims)}"
        )
    if request.ranks > capabilities.ranks:
        return Unsupported(
            f"tensor parallelism over {request.ranks} devices",
            f"{name} spans at most {capabilities.ranks}",
            "--tensor-parallel-size",
            f"set at most {capabilities.ranks}",
        )
    return None


def _within(limit: int | None, size: int) -> int:
    return size if limit is None else min(size, limit)


def _longest_context(limits: Limits, block_size: int) -> int | None:
    """Tokens of the longest sequence that one row may have, ``None`` if nothing bounds it."""
    blocks = _largest(limits, "blocks", None)
    bounds = (
        limits.max_context,
        None if blocks is None else blocks * block_size,
        None if limits.max_volume is None else limits.max_volume // block_size * block_size,
    )
    return min((b for b in bounds if b is not None), default=None)


def _largest(limits: Limits, size: Literal["tokens", "rows", "blocks"], limit: int | None) -> int | None:
    """``limit``, or less where no bucket is as large. A row may want a sample, so samples bound rows."""
    bounds = [limit]
    for name in (size, "samples") if size == "rows" else (size,):
        listed = [getattr(bucket, name) for bucket in limits.buckets.buckets()]
        bounds.append(None if None in listed else max(listed, default=None))
    return min((b for b in bounds if b is not None), default=None)


def _decided(plan: Plan, setting: str, value: int, why: str) -> Plan:
    """The plan with core's value of a setting, in place of what was decided of it before."""
    kept = tuple(d for d in plan.decisions if d.setting != setting)
    decisions = (*kept, Decision(setting, value, "core", why))
    return replace(plan, **{setting: value, "decisions": decisions})  # type: ignore[arg-type]


def _fit_rows_to_tokens(plan: Plan, settings: Settings, name: str) -> Plan | Unsupported:
    """Every running row may need a token in one step, so the token budget cannot be below the rows.

    What the user set stays; of the two the other gives way.
    """
    rows, tokens = plan.max_num_seqs, plan.max_num_batched_tokens
    if rows <= tokens:
        return plan
    why = "each row needs a token of the step's budget"
    if settings.max_num_seqs is None:
        return _decided(plan, "max_num_seqs", tokens, f"{why}, which has {tokens}")
    most = _largest(plan.limits, "tokens", plan.limits.max_tokens)
    if settings.max_num_batched_tokens is None and (most is None or rows <= most):
        return _decided(plan, "max_num_batched_tokens", rows, f"{why}, and there may be {rows}")
    feature = f"max_num_seqs {rows} with max_num_batched_tokens {tokens}"
    if settings.max_num_batched_tokens is None:
        why = f"{why}, and {name} takes at most {most}"
    return Unsupported(feature, why, flag("max_num_seqs"), f"set at most {tokens}")


def _fit_prompts_to_tokens(plan: Plan, settings: Settings, name: str) -> Plan | Unsupported:
    """Where a prompt must run in one step, the token budget cannot be below the longest.

    What the user set stays; of the two the other gives way.
    """
    longest, tokens = plan.max_model_len, plan.max_num_batched_tokens
    if longest <= tokens:
        return plan
    why = "the model reads a prompt in one step"
    most = _largest(plan.limits, "tokens", plan.limits.max_tokens)
    if settings.max_num_batched_tokens is None and (most is None or longest <= most):
        return _decided(plan, "max_num_batched_tokens", longest, f"{why}, of up to {longest} tokens")
    if settings.max_model_len is None:
        return _decided(plan, "max_model_len", tokens, f"{why}, which has room for {tokens} tokens")
    feature = f"max_model_len {longest} with max_num_batched_tokens {tokens}"
    if settings.max_num_batched_tokens is None:
        why = f"{why}, and {name} takes at most {most} tokens in one"
    return Unsupported(feature, why, flag("max_model_len"), f"set at most {tokens}")


def check_plan(plan: Plan, settings: Settings) -> str | None:
    """Core's own check of a plugin's plan: a sentence if it changed what the user set or cannot be run, else
    ``None``.
    """
    for name in (f.name for f in fields(Settings)):
        asked = getattr(settings, name)
        if asked is not None and getattr(plan, name) != asked:
            return f"the platform planned {name} = {getattr(plan, name)} though {flag(name)} {asked} was given"
    for name in ("block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens"):
        if getattr(plan, name) < 1:
            return f"the platform planned {name} = {getattr(plan, name)}, which must be at least 1"
    if plan.max_num_seqs > plan.max_num_batched_tokens:
        return (
            f"the platform planned max_num_seqs = {plan.max_num_seqs} with max_num_batched_tokens = "
            f"{plan.max_num_batched_tokens}; each row needs a token"
        )
    if not 0 < plan.memory_utilization <= 1:
        return f"the platform planned memory_utilization = {plan.memory_utilization}, which must be in (0, 1]"
    return None


def _first(*values: Any) -> Any:
    """The first that is not ``None``; the last of them always is."""
    return next(value for value in values if value is not None)


def _list(values: Iterable[object]) -> str:
    return ", ".join(map(str, values)) or "none"
