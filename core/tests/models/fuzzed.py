"""Mutations of a model's descriptions: config.json of every family, what lies beside it, and GGUF metadata.

Run by hand for more than the suite has time for::

    python core/tests/models/fuzzed.py --count 10000 --seed 1
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 16, 255, 2**31 - 1, 2**31, 2**63, 10**400, -(2**40), 0.0, 1.0, -0.5, 1e-45,
    1e308, float("nan"), float("inf"), "", "0", "16", "silu", "yarn", "full_attention", "x" * 5000, "\0", "../..", [],
    [None], [0], [1, "2"], ["sliding_attention"] * 3, ["full_attention"], {}, {"rope_type": "yarn"}, {"a": {"b": []}},
    [[]], {"factor": 0},
)  # fmt: skip
KEYS = (
    "rope_scaling", "rope_parameters", "layer_types", "sliding_window", "use_sliding_window", "max_window_layers",
    "partial_rotary_factor", "original_max_position_embeddings", "head_dim", "is_causal", "quantization_config",
    "text_config", "id2label", "num_labels", "matryoshka_dimensions", "sentence_transformers", "attention_bias",
    "sliding_window_pattern", "query_pre_attn_scalar", "tie_word_embeddings", "type_vocab_size", "pad_token_id",
)  # fmt: skip
ROPES: tuple[Any, ...] = tuple(
    {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32,
     "low_freq_factor": 1.0, "high_freq_factor": 4.0, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
     "factors": [2.0] * 8}
    for kind in ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "factors", "mrope")
)  # fmt: skip


def mutated(value: Any, rng: random.Random) -> Any:
    """A copy of a JSON object with one to three things about it changed, at any depth."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        kind = rng.random()
        if kind < 0.15 or not places:
            if isinstance(value, dict):
                value[rng.choice(KEYS)] = copy.deepcopy(rng.choice(VALUES))
            continue
        holder, key = rng.choice(places)
        if kind < 0.25:
            del holder[key]
        elif kind < 0.35 and isinstance(value, dict):
            value[rng.choice(("rope_parameters", "rope_scaling"))] = copy.deepcopy(rng.choice(ROPES))
        elif kind < 0.5 and type(holder[key]) in (int, float) and abs(holder[key]) < 2**70:
            holder[key] = rng.choice(
                (holder[key] * 2, -holder[key], holder[key] + 1, float(holder[key]), holder[key] / 3)
            )
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from _places(inner)
    elif isinstance(value, list):
        for key, inner in enumerate(value):
            yield value, key
            yield from _places(inner)


def mutated_folder(folder: Path, into: Path, rng: random.Random, names: tuple[str, ...]) -> str:
    """A copy of a folder, by links, with one of its JSON files mutated. Returns what was written."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(folder, into, copy_function=lambda a, b: Path(b).symlink_to(Path(a).resolve()))
    name = rng.choice([name for name in names if (folder / name).is_file()])
    text = json.dumps(mutated(json.loads((folder / name).read_text(encoding="utf-8")), rng))
    if rng.random() < 0.02:
        text = text[: rng.randrange(len(text))]
    (into / name).unlink()
    (into / name).write_text(text, encoding="utf-8")
    return f"{name}: {text}"


GGUF_TYPES = {bool: 7, int: 4, float: 6, str: 8}


def mutated_gguf(source: Path, into: Path, rng: random.Random) -> str:
    """The GGUF file with one to three of its metadata changed. Returns what was changed."""
    reader = gguf.GGUFReader(source)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith(("GGUF.", "split."))}
    header, changed = bytearray(), []
    names = [name for name in fields if not name.startswith("tokenizer.ggml.tokens")]
    chosen = rng.sample(names, rng.choice((1, 1, 1, 2, 3)))
    extra = rng.choice(("rope.scaling.type", "rope.scaling.factor", "rope.dimension_count", "attention.sliding_window"))
    pairs: list[tuple[str, Any]] = []
    for name, field in fields.items():
        if name not in chosen:
            pairs.append((name, field.contents()))
        elif rng.random() < 0.8:
            pairs.append((name, rng.choice(_GGUF_VALUES)))
        changed.append(name)
    if rng.random() < 0.3:
        pairs.append((f"{fields['general.architecture'].contents()}.{extra}", rng.choice(_GGUF_VALUES)))
    for name, value in pairs:
        header += _gguf_string(name) + _gguf_value(value)
    tensors = sum(1 for _ in reader.tensors)
    raw = source.read_bytes()
    infos = bytearray()
    for tensor in reader.tensors:
        infos += b"".join(bytes(part) for part in tensor.field.parts)
    body = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(pairs)) + header + infos
    body += b"\0" * (-len(body) % 32)
    into.write_bytes(body + raw[reader.data_offset :])
    return ", ".join(f"{name} = {str(value)[:60]}" for name, value in pairs if name in chosen or name.endswith(extra))


_GGUF_VALUES: tuple[Any, ...] = (
    True, False, 0, 1, 2, 3, 7, 16, 255, 2**31 - 1, 2**32 - 1, 0.0, 1.0, -0.5, 1e30, float("nan"), float("inf"), "",
    "llama", "yarn", "longrope", "linear", "none", "x" * 500, [], [0], [1, 2], [1.5], ["a"], [True, False, True],
)  # fmt: skip


def _gguf_string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _gguf_value(value: Any) -> bytes:
    if isinstance(value, list):
        kind = GGUF_TYPES[type(value[0])] if value else 4
        return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(_gguf_scalar(item) for item in value)
    return struct.pack("<I", _kind(value)) + _gguf_scalar(value)


def _kind(value: Any) -> int:
    return 11 if type(value) is int and not 0 <= value < 2**32 else GGUF_TYPES[type(value)]


def _gguf_scalar(value: Any) -> bytes:
    if isinstance(value, str):
        return _gguf_string(value)
    if isinstance(value, bool):
        return struct.pack("<?", value)
    if isinstance(value, float):
        return struct.pack("<f", value)
    return struct.pack("<I" if 0 <= value < 2**32 else "<q", value)


def drive(count: int, seed: int, sources: Mapping[str, Path], into: Path) -> Counter[str]:
    """``count`` mutations over all ``sources``, in turn. AssertionError with the mutation for any other error."""
    from octavo.errors import CheckpointError, ConfigError
    from octavo.models.load import load_model
    from octavo.text import load_tokenizer

    rng, found = random.Random(seed), Counter[str]()
    names = sorted(sources)
    for number in range(count):
        kind = names[number % len(names)]
        source = sources[kind]
        if source.is_file():
            path = into / "mutated.gguf"
            what, work = mutated_gguf(source, path, rng), lambda path=path: load_model(path)
        elif kind.startswith("tokenizer"):
            path = into / "mutated"
            what = mutated_folder(source, path, rng, ("tokenizer_config.json", "config.json"))
            work = lambda path=path: load_tokenizer(path)  # noqa: E731
        else:
            path = into / "mutated"
            what = mutated_folder(
                source, path, rng,
                ("config.json", "config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"),
            )  # fmt: skip
            length = rng.choice((None, None, 16, 100, 10**6))
            work = lambda path=path, length=length: load_model(path, max_length=length)  # noqa: E731
        group = "gguf" if source.is_file() else "tokenizer" if kind.startswith("tokenizer") else "folder"
        try:
            work()
            found[f"{group} right"] += 1
        except (CheckpointError, ConfigError) as refusal:
            found[f"{group} {type(refusal).__name__}"] += 1
        except Exception as error:
            told = f"{kind}, mutation {number} of seed {seed}: {type(error).__name__}: {error}"
            raise AssertionError(f"{told}\n{what[:3000]}") from error
    return found


def sources(root: Path, tokenizers: Mapping[str, Path]) -> dict[str, Path]:
    """One model of each family as a folder and, where GGUF has the family, as a file; and real tokenizers."""
    from models.tiny import FAMILIES, tiny_checkpoint, tiny_gguf
    from models.tiny_encoders import sentence_modules, tiny_encoder

    found: dict[str, Path] = {}
    for family in FAMILIES:
        found[family] = tiny_checkpoint(family, root)
        found[f"{family}.gguf"] = tiny_gguf(found[family], root / f"{family}.gguf")
    for architecture in ("BertModel", "BertForSequenceClassification", "RobertaModel"):
        found[architecture] = tiny_encoder(architecture, root / architecture)
    embedder = tiny_checkpoint("qwen2", root / "embedder")
    for folder in (embedder, found["BertModel"]):
        sentence_modules(folder, {"pooling_mode_mean_tokens": True, "include_prompt": True})
        (folder / "sentence_bert_config.json").write_text(
            json.dumps({"max_seq_length": 64, "do_lower_case": False, "config_args": {"is_causal": False}})
        )
    return {**found, "embedder": embedder, **{f"tokenizer {name}": path for name, path in tokenizers.items()}}


def main() -> None:
    """The hand-run drive."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizer", type=Path, action="append", default=[])
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        made = sources(Path(root), {path.name: path for path in options.tokenizer})
        found = drive(options.count, options.seed, made, Path(root))
    sys.stdout.write(f"{dict(sorted(found.items()))} {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
