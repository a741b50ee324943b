"""``octavo serve``: a model behind the OpenAI API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from octavo.config import ALREADY_SO, DTYPES, KV_DTYPES, UNBUILT, EngineConfig, Settings, Task, dtype_named, flag
from octavo.errors import ConfigError

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Options we do not know reach `_model_of`, which has a better answer for some of them."""

_DTYPE_HELP = f"{', '.join(DTYPES)}."


def serve(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A folder with config.json and safetensors, a .gguf file, or a hub id."),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    platform: Annotated[str | None, typer.Option(help="Which platform to use; see: octavo platforms.")] = None,
    served_model_name: Annotated[
        list[str] | None, typer.Option(help="Name in the API, in place of MODEL; may be given several times.")
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Most tokens of one sequence, prompt and output.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="Most sequences that run at the same time.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="Most new tokens in one step.")] = None,
    block_size: Annotated[int | None, typer.Option(help="Tokens in a block of the KV cache.")] = None,
    memory_utilization: Annotated[
        float | None,
        typer.Option(
            "--memory-utilization",
            "--gpu-memory-utilization",
            help="Part of the device's memory that weights and cache may take, above 0 to 1.",
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help=f"Type of the activations: {_DTYPE_HELP}")] = "auto",
    kv_cache_dtype: Annotated[str, typer.Option(help="Type of the KV cache: as --dtype, or int8.")] = "auto",
    tensor_parallel_size: Annotated[
        int, typer.Option("--tensor-parallel-size", "-tp", help="Devices that one model spans.")
    ] = 1,
    enable_prefix_caching: Annotated[bool, typer.Option(help="Share the cache of common prompt prefixes.")] = True,
    scheduling_policy: Annotated[str, typer.Option(help="fcfs, or priority.")] = "fcfs",
    max_waiting: Annotated[int | None, typer.Option(help="Most requests that may wait; more are answered 429.")] = None,
    threads: Annotated[int | None, typer.Option(help="Host cores that the device may keep busy.")] = None,
    artifacts: Annotated[
        Path | None, typer.Option(help="Folder of compiled artifacts, in place of the user's cache.")
    ] = None,
    require_artifacts: Annotated[
        bool, typer.Option("--require-artifacts", help="Refuse to start if anything would have to be compiled first.")
    ] = False,
    itl_target: Annotated[
        float | None,
        typer.Option(
            metavar="MS", help="Most milliseconds between two tokens of a stream while prompts are computed beside it."
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="generate, embed or score, in place of what the checkpoint says it is for.")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(help="A Jinja file in place of the checkpoint's template.")
    ] = None,
    step_timeout: Annotated[
        float, typer.Option(help="Seconds for one step before the device is given up; 0 waits for ever.")
    ] = 300.0,
    seed: Annotated[int, typer.Option(help="Where requests without a seed take theirs from.")] = 0,
) -> None:
    """Serve MODEL through the OpenAI API until Ctrl-C."""
    model = _model_of([model, *context.args])
    config = EngineConfig(
        model=model,
        platform=platform,
        settings=Settings(
            dtype=dtype_named(dtype, DTYPES, "dtype"),
            kv_cache_dtype=dtype_named(kv_cache_dtype, KV_DTYPES, "kv_cache_dtype"),
            block_size=block_size,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            memory_utilization=memory_utilization,
        ),
        tensor_parallel_size=tensor_parallel_size,
        enable_prefix_caching=enable_prefix_caching,
        seed=seed,
        scheduling_policy=_policy(scheduling_policy),
        max_waiting=max_waiting,
        threads=threads,
        artifacts=artifacts,
        require_artifacts=require_artifacts,
        itl_target_ms=itl_target,
        task=_task(task),
        served_model_names=tuple(served_model_name or ()),
        chat_template=_read_template(chat_template),
        step_timeout=step_timeout,
    )
    # The engine and the server are imported here, so that --help does not wait for them.
    from octavo.engine import AsyncLLM, start
    from octavo.engine.progress import startup_progress
    from octavo.server.loop import listen
    from octavo.server.loop import serve as serve_llm

    listener = listen(host, port)  # before the model is loaded: a port in use shows at once
    try:
        with startup_progress() as progress:
            started = start(config, progress)
    except BaseException:
        listener.close()
        raise
    typer.echo(
        describe(
            started.platform,
            started.plan.max_model_len,
            started.plan.max_num_seqs,
            started.kv_blocks,
            started.plan.block_size,
        )
    )
    for decision in started.plan.decisions:
        typer.echo(f"  {decision}")
    serve_llm(AsyncLLM.from_started(started, config.step_timeout), listener=listener)


def describe(platform: str, context: int, rows: int, blocks: int, block_size: int) -> str:
    """One line on what an engine was started with."""
    cache = f"{blocks - 1} blocks of {block_size} tokens"  # one is the null block
    return f"Running on {platform}: up to {rows} sequences of up to {context} tokens, a KV cache of {cache}"


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


def _model_of(words: list[str]) -> str:
    """MODEL, among the words that no option took. ConfigError for a flag that is not built, or a mistake.

    An unknown flag may stand before MODEL, where typer takes the flag for it.
    """
    harmless = {flag(name) for name in ALREADY_SO}
    unbuilt = {flag(name): instead for name, instead in UNBUILT.items()}
    words = [word for word in words if word not in harmless]
    for word in words:
        name = word.split("=", 1)[0]
        if name in unbuilt:
            raise ConfigError(f"{name} is not supported: {unbuilt[name]}")
        if name.startswith("-"):
            raise ConfigError(f"there is no option {name}; see: octavo serve --help")
    if len(words) != 1:
        raise ConfigError(f"serve takes one MODEL; what is {words[1]!r}?" if words else "serve needs a MODEL")
    return words[0]
