"""The flags of an engine, each declared once, for every command that starts one.

A command takes a group as a parameter, and `with_options` spreads it into the group's flags::

    @with_options
    def serve(model: Model, shape: ShapeOptions, running: RunningOptions) -> None:
        config = engine_config(model, shape, running)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer

from octavo.config import ALREADY_SO, DTYPES, KV_DTYPES, UNSUPPORTED, EngineConfig, Settings, Task, dtype_named, flag
from octavo.errors import ConfigError

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Options we do not know reach `plain_words`, which has a better answer for some of them."""

MODEL_HELP = "A folder with config.json and safetensors, a .gguf file, or a hub id."


@dataclass(frozen=True)
class ShapeOptions:
    """What decides which programs a platform makes for a model."""

    platform: Annotated[str | None, typer.Option(help="Platform to use; `octavo platforms` lists them.")] = None
    max_model_len: Annotated[
        int | None, typer.Option(help="Maximum number of tokens in a sequence, prompt and output together.")
    ] = None
    max_num_seqs: Annotated[int | None, typer.Option(help="Maximum number of concurrent sequences.")] = None
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="Maximum number of new tokens per step.")] = None
    block_size: Annotated[int | None, typer.Option(help="Number of tokens per KV cache block.")] = None
    dtype: Annotated[str, typer.Option(help=f"Type of the activations: {', '.join(DTYPES)}.")] = "auto"
    kv_cache_dtype: Annotated[
        str, typer.Option(help="Data type of the KV cache: one of those of --dtype, or int8.")
    ] = "auto"
    tensor_parallel_size: Annotated[
        int,
        typer.Option(
            "--tensor-parallel-size", "-tp", help="Number of devices that share the model (tensor parallelism)."
        ),
    ] = 1
    threads: Annotated[int | None, typer.Option(help="Number of host cores that the device may use.")] = None


@dataclass(frozen=True)
class RunningOptions:
    """How an engine runs a model."""

    served_model_name: Annotated[
        list[str] | None, typer.Option(help="Model name in the API instead of MODEL; may be repeated.")
    ] = None
    memory_utilization: Annotated[
        float | None,
        typer.Option(
            "--memory-utilization",
            "--gpu-memory-utilization",
            help="Fraction of the device's memory for weights and KV cache, up to 1.",
        ),
    ] = None
    enable_prefix_caching: Annotated[bool, typer.Option(help="Reuse the KV cache of common prompt prefixes.")] = True
    scheduling_policy: Annotated[
        str, typer.Option(help="Order of waiting requests: fcfs (first come, first served) or priority.")
    ] = "fcfs"
    artifacts: Annotated[
        Path | None, typer.Option(help="Folder for compiled artifacts instead of the user's cache.")
    ] = None
    require_artifacts: Annotated[
        bool, typer.Option("--require-artifacts", help="Refuse to start if something still has to be compiled.")
    ] = False
    itl_target: Annotated[
        float | None,
        typer.Option(metavar="MS", help="Maximum inter-token latency in milliseconds while prompts are computed."),
    ] = None
    task: Annotated[
        str | None, typer.Option(help="Task of the model (generate, embed or score) instead of the checkpoint's own.")
    ] = None
    chat_template: Annotated[
        Path | None, typer.Option(help="Jinja file with a chat template instead of the checkpoint's.")
    ] = None
    generation_config: Annotated[
        str,
        typer.Option(
            help="Whether the checkpoint's generation_config.json sets sampling defaults: auto, none or vllm."
        ),
    ] = "auto"
    special_tokens_in_messages: Annotated[
        bool,
        typer.Option(
            "--special-tokens-in-messages", help="Allow messages to contain special tokens, such as the end of a turn."
        ),
    ] = False
    step_timeout: Annotated[
        float, typer.Option(help="Timeout of a step in seconds, after which the device is given up; 0 disables it.")
    ] = 300.0
    seed: Annotated[int, typer.Option(help="Default seed.")] = 0


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with every parameter that is an option group in place of the group's flags."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {p.name: p.annotation for p in parameters if is_dataclass(p.annotation)}
    spread: list[inspect.Parameter] = []
    for parameter in parameters:
        if parameter.name in groups:
            spread += _flags(groups[parameter.name])
        else:
            spread.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {name: group(**{f.name: given.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        command(**given, **made)

    run.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]  # what typer reads
    return run


def _flags(group: Any) -> list[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(f.name, kind, default=f.default, annotation=types[f.name]) for f in fields(group)]


def engine_config(model: str, shape: ShapeOptions, running: RunningOptions | None = None) -> EngineConfig:
    """What the flags come to. Raises ConfigError for a value that cannot be."""
    running = running or RunningOptions()
    return EngineConfig(
        model=model,
        platform=shape.platform,
        settings=Settings(
            dtype=dtype_named(shape.dtype, DTYPES, "dtype"),
            kv_cache_dtype=dtype_named(shape.kv_cache_dtype, KV_DTYPES, "kv_cache_dtype"),
            block_size=shape.block_size,
            max_model_len=shape.max_model_len,
            max_num_seqs=shape.max_num_seqs,
            max_num_batched_tokens=shape.max_num_batched_tokens,
            memory_utilization=running.memory_utilization,
        ),
        tensor_parallel_size=shape.tensor_parallel_size,
        enable_prefix_caching=running.enable_prefix_caching,
        seed=running.seed,
        scheduling_policy=_policy(running.scheduling_policy),
        threads=shape.threads,
        artifacts=running.artifacts,
        require_artifacts=running.require_artifacts,
        itl_target_ms=running.itl_target,
        task=_task(running.task),
        served_model_names=tuple(running.served_model_name or ()),
        chat_template=_read_template(running.chat_template),
        generation_config=running.generation_config,
        special_tokens_in_messages=running.special_tokens_in_messages,
        step_timeout=running.step_timeout,
    )


def describe(platform: str, context: int, rows: int, blocks: int, block_size: int) -> str:
    """One line on what an engine was started with."""
    cache = f"{blocks - 1} blocks of {block_size} tokens"  # one is the null block
    return f"Running on {platform}: up to {rows} sequences of up to {context} tokens, a KV cache of {cache}"


def plain_words(words: list[str], command: str) -> list[str]:
    """The words that no option took and that are no flags. ConfigError for a flag that is not built, or a mistake.

    An unknown flag may stand before an argument, where typer takes the flag for it.
    """
    harmless = {flag(name) for name in ALREADY_SO}
    unsupported = {flag(name): instead for name, instead in UNSUPPORTED.items()}
    words = [word for word in words if word not in harmless]
    for word in words:
        name = word.split("=", 1)[0]
        if name in unsupported:
            raise ConfigError(f"{name} is not supported: {unsupported[name]}")
        if name.startswith("-"):
            raise ConfigError(f"there is no option {name}; see: octavo {command} --help")
    return words


def _task(name: str | None) -> Task | None:
    known: tuple[Task, ...] = get_args(Task)
    for task in known:
        if task == name:
            return task
    if name is None:
        return None
    raise ConfigError(f"task {name!r} is not known; choose {', '.join(known)} (--task)")


def _policy(name: str) -> Literal["fcfs", "priority"]:
    if name == "fcfs":
        return "fcfs"
    if name == "priority":
        return "priority"
    raise ConfigError(f"scheduling_policy {name!r} is not known; choose fcfs or priority (--scheduling-policy)")


def _read_template(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the chat template {path} cannot be read: {error} (--chat-template)") from error
