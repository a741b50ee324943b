"""From a configuration to an engine: choose, negotiate, load, size, assemble.

Every refusal happens here, before serving.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from octavo import env
from octavo.config import EngineConfig
from octavo.engine.artifacts import all_missing, engine_store
from octavo.engine.constraints import Constraints
from octavo.engine.core import EngineCore
from octavo.engine.generation import GenerationDefaults, generation_defaults
from octavo.engine.sizing import size_kv
from octavo.engine.warm_up import describe_target, warm_up
from octavo.errors import ArtifactMissing, ConfigError, PlatformError, UnsupportedFeature
from octavo.graph.ops.spec import weight_bytes
from octavo.kv import KVGroup, KVManager
from octavo.models import Model, load_model, resolve
from octavo.platform import (
    BucketSet,
    Device,
    ModelFacts,
    Plan,
    PlanRequest,
    Platform,
    Progress,
    Rank,
    Unsupported,
)  # fmt: skip
from octavo.platform.discovery import Registry, discover, select
from octavo.platform.negotiate import check_plan
from octavo.quant import WeightTensor
from octavo.runner import Batch, Runner, kv_layout, load_runner
from octavo.scheduler import Scheduler, SchedulerConfig
from octavo.text import Tokenizer, load_tokenizer

_logger = logging.getLogger(__name__)

_SPARE = 0.95  # of what is free: the rest is for what a device needs while it works


@dataclass(frozen=True)
class Started:
    """An engine ready to serve, and what was decided on the way."""

    core: EngineCore
    tokenizer: Tokenizer
    constraints: Constraints
    """Compiles structured output for the model."""
    model: Model
    platform: str
    plan: Plan
    kv_blocks: int
    model_names: tuple[str, ...]
    generation: GenerationDefaults = field(default_factory=GenerationDefaults)
    """Defaults of requests."""
    plugged: tuple[object, ...] = ()
    """What the ``octavo_models`` hook returned."""


def start(config: EngineConfig, progress: Progress) -> Started:
    """Start an engine. Raises ConfigError, CheckpointError or PlatformError, each with its cure."""
    registry = discover()
    platform = select(registry.platforms, config.platform or env.platform())
    path = resolve(config.model)
    model, plan = plan_model(config, path, platform, registry)
    generation = generation_defaults(model.checkpoint.generation_config, path, config.generation_config)
    if model.pooling is not None:
        generation = GenerationDefaults()
    elif generation.told:
        _logger.info("%s", generation.told)
    tokenizer = load_tokenizer(
        path, chat_template=config.chat_template, special_tokens_in_messages=config.special_tokens_in_messages
    )
    artifacts = engine_store(config)
    device = platform.open(Rank(threads=config.threads, artifacts=artifacts))
    try:
        started = _assemble(config, model, plan, device, tokenizer, platform, progress)
        return replace(started, generation=generation, plugged=registry.families)
    except ArtifactMissing as error:
        device.close()
        raise all_missing(error, config, platform, artifacts.folder) from error
    except BaseException:
        device.close()
        raise


def plan_model(config: EngineConfig, path: Path, platform: Platform, registry: Registry) -> tuple[Model, Plan]:
    """The model, its graph in the dtype that the platform plans, and the plan. No weight is read."""
    name = platform.info.name
    length = config.settings.max_model_len
    model = load_model(path, plugins=registry.families, task=config.task, max_length=length)
    request = PlanRequest(model_facts(model), config.settings, config.tensor_parallel_size)
    _check_length(request)
    _check_pooling(config, model)
    if config.tensor_parallel_size > 1:
        raise UnsupportedFeature(
            f"tensor_parallel_size {config.tensor_parallel_size} is not supported: a model runs on one device so far "
            "(--tensor-parallel-size)",
            feature="tensor parallelism",
            knob="--tensor-parallel-size",
        )
    answer = platform.negotiate(request)
    if isinstance(answer, Unsupported):
        raise UnsupportedFeature(f"{name}: {answer}", feature=answer.feature, knob=answer.knob)
    changed = check_plan(answer, config.settings)
    if changed is not None:
        raise PlatformError(f"platform {name} broke the contract: {changed}")
    if answer.dtype != model.graph.dtype:
        model = load_model(path, answer.dtype, registry.families, config.task, length)
    for decision in answer.decisions:
        _logger.info("%s", decision)
    return model, answer


def model_facts(model: Model) -> ModelFacts:
    """What a platform must know of the model."""
    graph, config, pooling = model.graph, model.config, model.pooling
    return ModelFacts.of(
        graph,
        name=model.checkpoint.path.name,
        head_dim=config.head_dim,
        max_position=min(config.max_position, (pooling and pooling.max_length) or config.max_position),
        weight_bytes=sum(weight_bytes(w) for w in graph.weights.values()),
        whole_prompts=pooling is not None and pooling.whole,
    )


def _check_pooling(config: EngineConfig, model: Model) -> None:
    if model.pooling is not None and config.itl_target_ms is not None:
        raise ConfigError(
            f"itl_target_ms has no meaning for {model.checkpoint.path.name}, which generates no tokens (--itl-target)"
        )


def _check_length(request: PlanRequest) -> None:
    asked, most = request.settings.max_model_len, request.model.max_position
    if asked is not None and asked > most:
        raise ConfigError(
            f"max_model_len {asked} is more than the {most} positions {request.model.name} was made for; "
            f"set {most} or less (--max-model-len)"
        )


def _assemble(
    config: EngineConfig,
    model: Model,
    plan: Plan,
    device: Device,
    tokenizer: Tokenizer,
    platform: Platform,
    progress: Progress,
) -> Started:
    graph, can = model.graph, platform.capabilities()
    whole = model.pooling is not None and model.pooling.whole
    groups = [KVGroup(window) for window in graph.kv_windows] or [KVGroup()]
    before = device.memory()
    buckets = BucketSet(plan.limits.buckets)
    layout = kv_layout(graph, plan.block_size, plan.kv_cache_dtype)
    executables, _ = load_runner(device, graph, LazyWeights(model), buckets.buckets, layout, progress, model.files)
    report = device.memory()
    own = max(0, before.free - report.free)
    budget = int(min(plan.memory_utilization * report.total - own, _SPARE * report.free))
    plan, blocks = size_kv(config, plan, device.kv_block_bytes(layout), groups, budget, whole)
    manager = KVManager(blocks, plan.block_size, groups, config.enable_prefix_caching and not whole)
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=plan.max_num_seqs,
            max_num_batched_tokens=plan.max_num_batched_tokens,
            max_model_len=plan.max_model_len,
            limits=plan.limits,
            policy=config.scheduling_policy,
            max_waiting=config.max_waiting,
            max_waiting_tokens=config.max_waiting_tokens,
            whole_prompts=whole,
            itl_target=None if config.itl_target_ms is None else config.itl_target_ms / 1e3,
        ),
        manager,
    )
    store = device.allocate_kv(layout, blocks)
    sampler = device.sampler()
    if config.itl_target_ms is not None:
        warm_up(scheduler.times, scheduler.config, groups, plan.block_size, executables, store, sampler)
        decision = describe_target(scheduler)
        _logger.info("%s", decision)
        plan = replace(plan, decisions=(*plan.decisions, decision))
    absent = [] if model.pooling is not None else tokenizer.absent_ids(model.config.vocab_size)
    batch = Batch(
        plan.max_num_seqs,
        plan.max_model_len,
        plan.block_size,
        len(groups),
        vocab_size=model.config.vocab_size,
        masks=can.masks or (sampler is None and not can.sampling),
        position_pad_id=model.config.position_pad_id,
        absent=absent,
        mask_all=can.sampling,
    )
    eos_ids = frozenset(tokenizer.eos_token_ids) | frozenset(model.config.eos_token_ids)
    core = EngineCore(
        scheduler,
        Runner(executables, store, batch, sampler, absent),
        device,
        store,
        vocab_size=model.config.vocab_size * model.config.token_types,
        eos_ids=eos_ids,
        seed=config.seed,
        pools=model.pooling is not None,
    )
    names = config.served_model_names or (default_name(config.model),)
    constraints = Constraints(
        tokenizer, model.config.vocab_size, eos_ids, seconds=config.grammar_seconds, memory_bytes=config.grammar_memory
    )
    return Started(core, tokenizer, constraints, model, platform.info.name, plan, blocks, names)


def default_name(model: str) -> str:
    """What a model is called in the API: a hub id as it is, a path by its last part, which is all clients need."""
    path = Path(model)
    return path.resolve().name if path.exists() else model


class LazyWeights(Mapping[str, WeightTensor]):
    """The weights of a model's graph, each read from the checkpoint when it is asked for and kept by nobody here."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getitem__(self, name: str) -> WeightTensor:
        if name not in self._model.graph.weights:
            raise KeyError(name)
        return self._model.checkpoint.tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._model.graph.weights)

    def __len__(self) -> int:
        return len(self._model.graph.weights)
