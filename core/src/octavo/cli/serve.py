"""``octavo serve``: a model behind the OpenAI API."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from octavo.config import ALREADY_SO, DTYPES, KV_DTYPES, UNBUILT, EngineConfig, Settings, dtype_named, flag
from octavo.env import data_folder
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
    chat_template: Annotated[
        Path | None, typer.Option(help="A Jinja file in place of the checkpoint's template.")
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="SQL database of responses and conversations, as SQLAlchemy writes it; sqlite:// keeps them in "
            "memory. Without it, a file in the user's data folder.",
        ),
    ] = None,
    responses_max_age: Annotated[
        float, typer.Option(metavar="DAYS", help="How long responses and conversations are kept.")
    ] = 30,
    responses_max_bytes: Annotated[
        int, typer.Option(metavar="BYTES", help="How much of them is kept; beyond it the oldest go.")
    ] = 2**30,
    step_timeout: Annotated[
        float, typer.Option(help="Seconds for one step before the device is given up; 0 waits for ever.")
    ] = 300.0,
    tool_parser: Annotated[
        str,
        typer.Option(
            "--tool-parser",
            "--tool-call-parser",
            help="How the model writes tool calls: auto, none, or a parser's name.",
        ),
    ] = "auto",
    reasoning_parser: Annotated[
        str, typer.Option(help="How the model writes its thoughts: auto, none, or a parser's name.")
    ] = "auto",
    trust_request_chat_template: Annotated[
        bool, typer.Option("--trust-request-chat-template", help="Let requests bring chat templates of their own.")
    ] = False,
    enable_tokenizer_info: Annotated[
        bool, typer.Option("--enable-tokenizer-info", help="Show special tokens and chat template at /tokenizer_info.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Where requests without a seed take theirs from.")] = 0,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A limit on what clients may ask, such as n=16 or body_bytes=4MiB; may be given several times. "
            "docs/limits.md lists them.",
        ),
    ] = None,
    openapi: Annotated[
        bool | None,
        typer.Option(help="Whether /openapi.json describes the API; by default if only this machine can reach it."),
    ] = None,
) -> None:
    """Serve MODEL through the OpenAI API until Ctrl-C."""
    # The server is imported here, so that --help does not wait for it.
    from octavo.server.limits import Limits

    limits = Limits.parse(limit or ())
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
        max_waiting=limits.queued_requests or None,
        max_waiting_tokens=limits.queued_tokens or None,
        threads=threads,
        artifacts=artifacts,
        require_artifacts=require_artifacts,
        itl_target_ms=itl_target,
        served_model_names=tuple(served_model_name or ()),
        chat_template=_read_template(chat_template),
        step_timeout=step_timeout,
    )
    from octavo.server.database import Database
    from octavo.server.settings import ServerSettings
    from octavo.server.tables import METADATA

    settings = ServerSettings(
        limits=limits,
        database=database or Database.file(data_folder() / "server.db"),
        responses_max_age=responses_max_age,
        responses_max_bytes=responses_max_bytes,
        tool_parser=tool_parser,
        reasoning_parser=reasoning_parser,
        trust_request_chat_template=trust_request_chat_template,
        tokenizer_info=enable_tokenizer_info,
    )
    Database(settings.database, METADATA).close()  # before the model is loaded: what cannot be opened shows at once
    from octavo.engine import AsyncLLM, start
    from octavo.engine.progress import startup_progress
    from octavo.server.loop import exposed, listen
    from octavo.server.loop import serve as serve_llm
    from octavo.server.parsers import check_names
    from octavo.text.template_worker import TemplateWorker

    check_names(tool_parser, reasoning_parser)
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
    settings = replace(settings, plugged=started.plugged, openapi=not exposed(listener) if openapi is None else openapi)
    templates = TemplateWorker(seconds=limits.template_seconds, memory_bytes=limits.template_memory)
    tokenizer = started.tokenizer
    try:
        if tokenizer.chat_template is not None:
            templates.warm(tokenizer.chat_template)
        tokenizer.run_template = templates.run
        serve_llm(AsyncLLM.from_started(started, config.step_timeout), listener=listener, settings=settings)
    finally:
        templates.close()


def describe(platform: str, context: int, rows: int, blocks: int, block_size: int) -> str:
    """One line on what an engine was started with."""
    cache = f"{blocks - 1} blocks of {block_size} tokens"  # one is the null block
    return f"Running on {platform}: up to {rows} sequences of up to {context} tokens, a KV cache of {cache}"


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
