"""``octavo compile``: make what a platform would make when it serves a model, with no device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from octavo.config import DTYPES, KV_DTYPES, EngineConfig, Settings, dtype_named


def compile_model(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A folder with config.json and safetensors, a .gguf file, or a hub id."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to keep the artifacts in; serve from it with --artifacts.")],
    platform: Annotated[str | None, typer.Option(help="Which platform to compile for; see: octavo platforms.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Which of the platform's kinds of device; see: octavo platforms explain.")
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(help="As for serve.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="As for serve.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="As for serve.")] = None,
    block_size: Annotated[int | None, typer.Option(help="As for serve.")] = None,
    dtype: Annotated[str, typer.Option(help="As for serve.")] = "auto",
    kv_cache_dtype: Annotated[str, typer.Option(help="As for serve.")] = "auto",
    tensor_parallel_size: Annotated[int, typer.Option("--tensor-parallel-size", "-tp", help="As for serve.")] = 1,
    threads: Annotated[int | None, typer.Option(help="Host cores that may be kept busy.")] = None,
) -> None:
    """Compile MODEL ahead of time, for serving with --artifacts. The device need not be there; give serve's settings.

    What is there and good is left as it is; what another version of the compiler made is made again.
    """
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
        ),
        tensor_parallel_size=tensor_parallel_size,
        threads=threads,
    )
    # The engine is imported here, so that --help does not wait for it.
    from octavo.engine.ahead import compile_ahead
    from octavo.engine.progress import startup_progress

    with startup_progress() as progress:
        compiled = compile_ahead(config, out, target, progress)
    for key, file, made in compiled.artifacts:
        typer.echo(f"{'made' if made else 'there'}  {key}  {file.name}")
    count = sum(made for _, _, made in compiled.artifacts)
    typer.echo(
        f"{count} of {len(compiled.artifacts)} artifacts made for {compiled.platform} ({compiled.target}) in {out}"
    )
