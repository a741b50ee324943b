"""Write a model of a known shape with random weights, in one of several formats: for benchmarks that need no download.

    make_model.py --shape llama-3.2-1b --format int4-packed --tokenizer FOLDER --out DIR

The same seed gives the same weights in every format, but for what quantizing rounds away, so that engines which read
different formats can be compared. The tokenizer is borrowed: from a Hugging Face folder, or, for gguf-q4_0, which makes
DIR/model.gguf, from a GGUF file. Tensors are made and written one by one, so that memory stays small.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from make_model_gguf import write_gguf
from make_model_layouts import LAYOUTS, Layout, Part
from make_model_shapes import SHAPES, Shape, Tensor, draw

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json")
_DTYPES = {"bf16": ("BF16", 2), "f16": ("F16", 2), "i32": ("I32", 4), "i64": ("I64", 8), "i8": ("I8", 1)}


def write_folder(shape: Shape, layout: Layout, seed: int, tokenizer: Path, out: Path) -> None:
    """A Hugging Face folder: config, borrowed tokenizer, one safetensors file."""
    missing = [name for name in TOKENIZER_FILES[:2] if not (tokenizer / name).is_file()]
    if missing:
        raise SystemExit(f"{tokenizer} has no {missing[0]}: --tokenizer must name a Hugging Face folder")
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, out / name)
    config = shape.config()
    if (tokenizer / "config.json").is_file():  # whose ids end a text is the tokenizer's business
        borrowed = json.loads((tokenizer / "config.json").read_text(encoding="utf-8"))
        config |= {key: borrowed[key] for key in ("bos_token_id", "eos_token_id") if key in borrowed}
    if layout.config is not None:
        config["quantization_config"] = layout.config
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = shape.tensors()
    with (out / "model.safetensors").open("wb") as file:
        file.write(header([part for tensor in tensors for part in parts(tensor, layout)]))
        for number, tensor in enumerate(tensors, 1):
            for array in arrays(tensor, layout, seed):
                file.write(np.ascontiguousarray(array).data)
            say(f"\r{number} of {len(tensors)} weights", end="")
        say()


def parts(tensor: Tensor, layout: Layout) -> list[Part]:
    """What a weight is stored as."""
    return layout.parts(tensor) if tensor.linear and layout.parts else [(tensor.name, "bf16", tensor.shape)]


def arrays(tensor: Tensor, layout: Layout, seed: int) -> Iterator[np.ndarray]:
    """The same as arrays whose bytes follow one another."""
    if tensor.linear and layout.encode:
        yield from layout.encode(np.concatenate(list(draw(tensor, seed))))
    else:
        yield from (to_bf16(rows) for rows in draw(tensor, seed))


def header(parts: Sequence[Part]) -> bytes:
    """A safetensors header of tensors that follow one another."""
    entries, begin = {}, 0
    for name, dtype, shape in parts:
        word, size = _DTYPES[dtype]
        end = begin + int(np.prod(shape)) * size
        entries[name] = {"dtype": word, "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 as bfloat16 bits, to the nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype("<u2")


def say(text: str = "", end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--format", choices=(*LAYOUTS, "gguf-q4_0"), required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder; for gguf-q4_0 a .gguf file")
    parser.add_argument("--out", type=Path, required=True, help="a folder, made if it is not there")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    shape = SHAPES[given.shape]
    if given.format == "gguf-q4_0":
        write_gguf(shape, given.seed, given.tokenizer, given.out / "model.gguf")
    else:
        write_folder(shape, LAYOUTS[given.format], given.seed, given.tokenizer, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
