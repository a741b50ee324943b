"""Small GGUF files whose tokenizers can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# What transformers asks of a llama file before it looks at the tokenizer.
_LLAMA = {
    "block_count": 1,
    "context_length": 128,
    "embedding_length": 8,
    "feed_forward_length": 16,
    "attention.head_count": 2,
    "attention.head_count_kv": 2,
}


def write_gguf(path: Path, tokenizer: dict[str, Any], architecture: str = "llama", name: str = "") -> Path:
    """A GGUF file without tensors; `tokenizer` holds the keys below "tokenizer."."""
    writer = gguf.GGUFWriter(path, architecture)
    if name:
        writer.add_name(name)
    for key, value in _LLAMA.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    for key, value in tokenizer.items():
        name = f"tokenizer.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def byte_alphabet() -> list[str]:
    """GPT-2's characters for the bytes 0…255, spelled out another way than in the code under test."""
    others = iter(range(256, 512))
    return [
        chr(byte) if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174 else chr(next(others))
        for byte in range(256)
    ]


def byte_level(pre: str = "default", **changes: Any) -> dict[str, Any]:
    """A byte-level vocabulary: 3 control tokens, 1 user-defined, the 256 bytes, and what these merges make."""
    merges = [
        "h e",
        "l l",
        "he ll",
        "hell o",
        "Ġ hello",
        "Ġ Ġ",
        "ĠĠ ĠĠ",
        "Ċ Ċ",
        "1 2",
        "12 3",
        "a b",
        "Ã ©",
        "â Ĥ",
        "T h",
        "Th e",
    ]
    tokens = ["<|endoftext|>", "<|start|>", "<|end|>", "<think>", *byte_alphabet()]
    tokens += [merge.replace(" ", "") for merge in merges]
    kinds = [CONTROL, CONTROL, CONTROL, USER_DEFINED] + [NORMAL] * (len(tokens) - 4)
    section = {
        "ggml.model": "gpt2",
        "ggml.pre": pre,
        "ggml.tokens": tokens,
        "ggml.token_type": kinds,
        "ggml.merges": merges,
        "ggml.bos_token_id": 1,
        "ggml.eos_token_id": 2,
        "ggml.unknown_token_id": 0,
    }
    return without_none({**section, **changes})


def sentencepiece(**changes: Any) -> dict[str, Any]:
    """A Llama 2 style vocabulary: specials, 256 byte tokens, words with scores, letters."""
    words = [
        "▁▁",
        "▁t",
        "he",
        "▁the",
        "in",
        "er",
        "▁a",
        "ll",
        "▁he",
        "▁hell",
        "lo",
        "▁hello",
        "▁he",
        "▁▁▁▁",
        "12",
        "éa",
    ]
    words = list(dict.fromkeys(words))
    letters = list("▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?é日")
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], *words, *letters, "<think>"]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(words) + len(letters)) + [USER_DEFINED]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(words) + len(letters))] + [0.0]
    section = {
        "ggml.model": "llama",
        "ggml.tokens": tokens,
        "ggml.token_type": kinds,
        "ggml.scores": scores,
        "ggml.bos_token_id": 1,
        "ggml.eos_token_id": 2,
        "ggml.unknown_token_id": 0,
    }
    return without_none({**section, **changes})


def without_none(section: dict[str, Any]) -> dict[str, Any]:
    """The section without the keys that a test has set to None."""
    return {key: value for key, value in section.items() if value is not None}
