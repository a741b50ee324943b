"""``octavo bench serve``: how fast a server answers many streams at once, and what it adds to the engine's time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from octavo.cli.bench.load import Load, Outcome, first_model, run_load
from octavo.cli.bench.mixed import percentile
from octavo.cli.bench.wire import Address
from octavo.cli.chat import DEFAULT_URL
from octavo.errors import ConfigError, RequestError

Api = Literal["completions", "chat"]
PERCENTILES = (50, 90, 99)


def serve(
    url: Annotated[str, typer.Option(help="Base URL of an OpenAI-compatible server.")] = DEFAULT_URL,
    model: Annotated[str | None, typer.Option(help="Model to use; the server's first by default.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent streams.")] = 32,
    num_prompts: Annotated[
        int | None, typer.Option(min=1, help="Number of requests; four per stream by default.")
    ] = None,
    input_len: Annotated[int, typer.Option(min=1, help="Tokens per prompt (words, for chat).")] = 256,
    output_len: Annotated[int, typer.Option(min=1, help="Output tokens per sequence.")] = 128,
    dataset: Annotated[str, typer.Option(help="Source of the prompts: random.")] = "random",
    request_rate: Annotated[
        float | None,
        typer.Option(help="Requests per second at random intervals; as fast as streams become free by default."),
    ] = None,
    api: Annotated[str, typer.Option(help="API to use: completions (prompts are token ids) or chat.")] = "completions",
    seed: Annotated[int, typer.Option(help="Seed of the prompts and intervals.")] = 0,
    api_key: Annotated[str | None, typer.Option(help="API key of the server.", envvar="OPENAI_API_KEY")] = None,
    compare_engine: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Instead of --url: measure LLM.generate on MODEL, then a server of MODEL, and compare the two.",
        ),
    ] = None,
    platform: Annotated[str | None, typer.Option(help="Platform to use with --compare-engine.")] = None,
    threads: Annotated[
        int | None, typer.Option(help="Number of host cores the device may use with --compare-engine.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the figures to this file as JSON.")
    ] = None,
) -> None:
    """Throughput and latency of a running server, greedy, end of sequence ignored."""
    if dataset != "random":
        raise ConfigError(f"the dataset {dataset!r} is not known; there is random (--dataset)")
    if request_rate is not None and request_rate <= 0:
        raise ConfigError(f"request_rate must be above 0, not {request_rate:g} (--request-rate)")
    load = Load(
        model or "",
        num_prompts or 4 * concurrency,
        concurrency,
        input_len,
        output_len,
        _api(api),
        request_rate,
        seed,
    )
    if compare_engine is None:
        figures = measure(url, load, api_key)
        show(load, figures)
    else:
        figures = compare(compare_engine, load, platform, threads)
    if save is not None:
        save.write_text(json.dumps(figures, indent=1) + "\n")
    if figures["failed requests"]:
        raise RequestError(f"{figures['failed requests']:.0f} of {load.prompts} requests failed: {figures['error']}")


Figures = dict[str, float | str | None]


def measure(url: str, load: Load, api_key: str | None = None) -> Figures:
    """Put the load on a server. Raises ConfigError when nobody answers, RequestError when it refuses the first."""
    import uvloop

    async def go() -> Outcome:
        address = Address(url)
        named = load if load.model else replace(load, model=await first_model(address, api_key))
        return await run_load(address, named, api_key)

    return figures_of(uvloop.run(go()))


def figures_of(outcome: Outcome) -> Figures:
    """Everything that is told of an outcome, by name. Milliseconds where the name says so."""
    good = [record for record in outcome.records if record.error is None and record.arrivals]
    bad = [record for record in outcome.records if record.error is not None or not record.arrivals]
    tokens = sum(record.tokens for record in good)
    figures: Figures = {
        "seconds": outcome.seconds,
        "requests": len(good),
        "failed requests": len(bad),
        "error": (bad[0].error or "no token came") if bad else None,
        "output tokens": tokens,
        "requests/s": len(good) / outcome.seconds,
        "output tokens/s": tokens / outcome.seconds,
        "prompt and output tokens/s": (tokens + sum(record.prompt_tokens for record in good)) / outcome.seconds,
    }
    waits = {
        "time to first token": [record.arrivals[0] - record.asked for record in good],
        "time per output token": [
            (record.arrivals[-1] - record.arrivals[0]) / (record.tokens - 1) for record in good if record.tokens > 1
        ],
        "from event to event": [
            after - before
            for record in good
            for before, after in zip(record.arrivals, record.arrivals[1:], strict=False)
        ],
        "whole answer": [record.ended - record.asked for record in good],
    }
    for name, values in waits.items():
        for percent in PERCENTILES:
            figures[f"{name}, p{percent} ms"] = percentile(values, percent) * 1e3 if values else None
    for percent in PERCENTILES:
        added = outcome.added.percentile(percent) if outcome.added else None
        figures[f"added by the server, p{percent} ms"] = None if added is None else added * 1e3
    return figures


def show(load: Load, figures: Figures, engine: float | None = None) -> None:
    """Print the figures."""
    title = f"{load.prompts} x {load.input_len}+{load.output_len}, up to {load.concurrency} streams"
    if load.rate is not None:
        title += f", {load.rate:g} requests/s"
    console = Console()
    console.print(title, style="italic")
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name in ("requests", "failed requests"):
        table.add_row(name, _number(figures[name], 0))
    for name in ("seconds", "requests/s", "output tokens/s", "prompt and output tokens/s"):
        table.add_row(name, _number(figures[name], 1))
    if engine is not None:
        rate = figures["output tokens/s"]
        assert isinstance(rate, float)
        table.add_row("LLM.generate's output tokens/s", _number(engine, 1))
        table.add_row("of these the server keeps", f"{100 * rate / engine:.1f} %")
    console.print(table)
    waits = Table(box=None)
    for column in ("milliseconds", *(f"p{percent}" for percent in PERCENTILES)):
        waits.add_column(column, justify="left" if column == "milliseconds" else "right")
    for name in ("time to first token", "time per output token", "from event to event", "whole answer"):
        waits.add_row(name, *(_number(figures[f"{name}, p{percent} ms"], 2) for percent in PERCENTILES))
    waits.add_row(
        "added by the server to a token", *(_number(figures[f"added by the server, p{p} ms"], 3) for p in PERCENTILES)
    )
    console.print(waits)
    if figures["added by the server, p50 ms"] is None:
        console.print("This server does not tell what it adds to a token; Octavo's does.", style="dim")


def compare(model: str, load: Load, platform: str | None, threads: int | None) -> Figures:
    """The same prompts through `LLM.generate` here, then through a server in a process of its own. Prints, too."""
    if load.api != "completions" or load.rate is not None:
        raise ConfigError(
            "--compare-engine sends token ids as fast as they are answered; leave out --api and --request-rate"
        )
    engine = engine_rate(model, load, platform, threads)
    options = ["--max-model-len", str(load.input_len + load.output_len + 16), "--max-num-seqs", str(load.concurrency)]
    options += ["--no-enable-prefix-caching"]
    options += ["--platform", platform] if platform else []
    options += ["--threads", str(threads)] if threads else []
    with server_of(model, options) as url:
        figures = measure(url, load)
    rate = figures["output tokens/s"]
    assert isinstance(rate, float)
    figures["LLM.generate, output tokens/s"] = engine
    figures["part that the server keeps"] = rate / engine
    show(load, figures, engine)
    return figures


def engine_rate(model: str, load: Load, platform: str | None, threads: int | None) -> float:
    """Output tokens per second of ``LLM.generate``, which is given all prompts at once."""
    from octavo.engine import LLM
    from octavo.sampling import SamplingParams

    llm = LLM(
        model,
        max_model_len=load.input_len + load.output_len + 16,
        max_num_seqs=load.concurrency,
        enable_prefix_caching=False,
        platform=platform,
        threads=threads,
    )
    params = SamplingParams(temperature=0.0, max_tokens=load.output_len, ignore_eos=True)
    try:
        llm.generate([{"prompt_token_ids": load.tokens(load.prompts)}], params, use_tqdm=False)  # what is paid once
        prompts = [{"prompt_token_ids": load.tokens(number)} for number in range(load.prompts)]
        begun = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        return load.prompts * load.output_len / (time.perf_counter() - begun)
    finally:
        llm.close()


@contextmanager
def server_of(model: str, options: list[str]) -> Iterator[str]:
    """The URL of ``octavo serve`` in a process of its own."""
    command = [sys.executable, "-m", "octavo.cli.main", "serve", model, "--port", "0", *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        url = next((line.split()[-1] for line in process.stdout if " is ready at " in line), None)
        if url is None:
            raise ConfigError(f"the server did not start: {' '.join(command[3:])}")
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def _api(name: str) -> Api:
    if name == "completions":
        return "completions"
    if name == "chat":
        return "chat"
    raise ConfigError(f"the API {name!r} is not known; choose completions or chat (--api)")


def _number(value: float | str | None, digits: int) -> str:
    return "" if value is None else f"{float(value):,.{digits}f}"
