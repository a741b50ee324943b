"""Write the fetched GGUF checkpoints as Hugging Face folders: bf16 safetensors, config and tokenizer.

    dequantise_models.py smollm2 [gemma3]

The tests compare Octavo with `transformers` on the same weights, and read both kinds of checkpoint. The folders lie
beside the GGUF files, named by `FOLDERS`. `transformers` does the conversion, so this needs the test environment;
a folder that an earlier run finished is kept, and then nothing heavy is imported.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fetch_models import SAMPLES, Sample, models_folder, say

FOLDERS = {"smollm2": "smollm2-135m", "gemma3": "gemma3-270m"}

RECIPE = 1  # raise it when this script writes something else: older folders are then made again
RECORD = "made-from.json"


def dequantise(sample: Sample, folder: Path) -> None:
    """Write the folder of one GGUF file, whole or not at all; keep it if it was made from this file by this recipe."""
    record = {"file": sample.file, "sha256": sample.sha256, "recipe": RECIPE}
    if _read_record(folder) == record:
        return
    say(f"Writing {folder} in bf16 (once)")
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _convert(folder.parent, sample.file, scratch)
        (scratch / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        scratch.chmod(0o755)  # mkdtemp made it private
        shutil.rmtree(folder, ignore_errors=True)
        scratch.replace(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _read_record(folder: Path) -> object:
    try:
        return json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _convert(source: Path, gguf_file: str, out: Path) -> None:
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=gguf_file)
    tokenizer.save_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=gguf_file, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(out)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="+", choices=FOLDERS, metavar="NAME", help=f"of {', '.join(FOLDERS)}")
    for name in parser.parse_args(arguments).names:
        folder, sample = models_folder(), SAMPLES[name]
        assert isinstance(sample, Sample), f"{name} is no GGUF file"
        dequantise(sample, folder / FOLDERS[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
