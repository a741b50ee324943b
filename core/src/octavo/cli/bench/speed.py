"""``octavo bench throughput`` and ``latency``: a model's speed on random prompts, greedy, end of sequence ignored."""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from octavo.cli.bench.mixed import show_mixed

if TYPE_CHECKING:
    from octavo.engine import LLM

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A folder, a .gguf file, or a hub id.")]
Platform = Annotated[str | None, typer.Option(help="Platform to use; `octavo platforms` lists them.")]
Rounds = Annotated[int, typer.Option(help="Number of measurements; the median is shown.")]
Threads = Annotated[int | None, typer.Option(help="Number of host cores that the device may use.")]


def throughput(
    model: Model,
    sequences: Annotated[int, typer.Option(help="Number of concurrent sequences.")] = 32,
    input_len: Annotated[int, typer.Option(help="Prompt tokens per sequence.")] = 256,
    output_len: Annotated[int, typer.Option(help="Output tokens per sequence.")] = 128,
    rounds: Rounds = 3,
    platform: Platform = None,
    threads: Threads = None,
) -> None:
    """Tokens per second of many sequences at once. As a whole, and by phase."""
    llm = _start(model, sequences, input_len + output_len, platform, threads)
    totals, prefills = [], []
    for turn in range(rounds):
        prefills.append(_timed(llm, sequences, input_len, 1, seed=2 * turn))
        totals.append(_timed(llm, sequences, input_len, output_len, seed=2 * turn + 1))
    llm.close()
    total, prefill = statistics.median(totals), statistics.median(prefills)
    rates = {
        "output tokens/s, end to end": sequences * output_len / total,
        "input tokens/s, prefill alone": sequences * input_len / prefill,
        "output tokens/s, decode alone": sequences * (output_len - 1) / max(total - prefill, 1e-9),
    }
    _show(f"{sequences} x {input_len}+{output_len}, median of {rounds}", {k: f"{v:,.1f}" for k, v in rates.items()})


def latency(
    model: Model,
    input_len: Annotated[int, typer.Option(help="Number of prompt tokens.")] = 32,
    output_len: Annotated[int, typer.Option(help="Number of output tokens.")] = 128,
    rounds: Rounds = 5,
    streams: Annotated[
        int, typer.Option(help="Number of streams that are watched while a long prompt is computed; 0 skips this part.")
    ] = 4,
    long_prompt: Annotated[
        int, typer.Option(help="Length of that prompt in tokens, as far as the model's context allows.")
    ] = 4096,
    itl_target: Annotated[
        float, typer.Option(metavar="MS", help="Inter-token latency target to compare with running without one.")
    ] = 50.0,
    platform: Platform = None,
    threads: Threads = None,
) -> None:
    """One sequence alone, then waits beside a long prompt.

    The waits are those of several streams from token to token, without a target and with one.
    """
    llm = _start(model, 1, input_len + output_len, platform, threads)
    firsts, wholes = [], []
    for turn in range(rounds):
        firsts.append(_timed(llm, 1, input_len, 1, seed=2 * turn))
        wholes.append(_timed(llm, 1, input_len, output_len, seed=2 * turn + 1))
    llm.close()
    first, whole = statistics.median(firsts), statistics.median(wholes)
    each = (whole - first) / max(output_len - 1, 1)
    rows = {
        "time to first token": f"{first * 1e3:.2f} ms",
        "time per output token": f"{each * 1e3:.2f} ms ({1 / each:,.1f} tokens/s)",
    }
    _show(f"1 x {input_len}+{output_len}, median of {rounds}", rows)
    if streams:
        show_mixed(model, streams, long_prompt, itl_target, rounds, platform, threads)


def _start(model: str, sequences: int, length: int, platform: str | None, threads: int | None) -> LLM:
    from octavo.engine import LLM

    llm = LLM(
        model,
        max_model_len=length + 16,
        max_num_seqs=sequences,
        enable_prefix_caching=False,
        platform=platform,
        threads=threads,
        task="generate",
    )
    _timed(llm, 1, 16, 8, seed=99)  # what a first call pays once
    return llm


def _timed(llm: LLM, sequences: int, input_len: int, output_len: int, seed: int) -> float:
    """Seconds for seeded prompts of random tokens."""
    from octavo.sampling import SamplingParams

    rng = random.Random(seed)
    vocabulary = llm.get_tokenizer().vocab_size
    prompts = [{"prompt_token_ids": [rng.randrange(vocabulary) for _ in range(input_len)]} for _ in range(sequences)]
    params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True)
    begun = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    return time.perf_counter() - begun


def _show(title: str, rows: dict[str, str]) -> None:
    table = Table(title=title, title_justify="left", box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)
