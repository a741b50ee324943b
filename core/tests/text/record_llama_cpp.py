"""Record how llama.cpp splits some texts under every name of a pre-tokenizer; see `test_gguf_vectors`.

    pip install llama-cpp-python==0.3.36     # compiles llama.cpp, in an environment of its own
    python core/tests/text/record_llama_cpp.py VOCABULARY.gguf

VOCABULARY is `ggml-vocab-llama-bpe.gguf` of the folder that `scripts/fetch_models.py vocabularies` fetches. The name in
it is replaced by each of the names that are given (all of them, if none is); the ids that come out are written as
digests, once for all names that agree.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import random
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

RECORD = Path(__file__).with_name("llama_cpp_splits.json")
KEY = b"tokenizer.ggml.pre"

TEXTS = [
    "steps:\n\n1. Mix\n2. Bake at 350F\n3. Serve (12 people)",
    "| a | b |\n|---|---|\n| 1 | 2.50 |\n",
    "Phone: +49 (0)30 1234567, 02134",
    "x = 1234567890.123456; y=-3e-10",
    "  indented\n    more\n\ttab\n\n\n  end  ",
    "I'm you're we'VE he'll I'D it's DON'T",
    "camelCaseWord XMLHttpRequest iPhone15Pro HTMLParser",
    "https://example.com/a_b-c?x=1&y=2#z",
    "日本語テスト 中文字符 한국어 조사 ไทยภาษา",
    "été naïve Ünïcödé ĐĐ ŐŐ Ωμέγα Привет Мир",
    "مرحبا بالعالم ١٢٣٤",
    "नमस्ते दुनिया १२३",
    "😀😃 👨‍👩‍👧‍👦 🏳️‍🌈",
    "a\u00a0b\u2003c\u3000d\u200be",
    "\r\n\r\nfoo\r\n",
    "...!!!???",
    "\u0301a\u0301e\u0308",
    "½ ² Ⅳ ①②③",
    "𝐇𝐞𝐥𝐥𝐨 𝟙𝟚𝟛",
    "\x00\x01\x02",
    " ",
    "\n",
    "\t\t",
    "a" * 40,
    "=" * 80,
    "12345678901234567890",
    "0000000",
    "1,234,567",
    "한글123한글",
    "漢字123漢字",
    "$100 + €200 = £300 <=> ~^`|",
    "def f(x):\n    return x**2  # comment\n",
    "<|begin_of_text|>hi <|eot_id|> there<|eot_id|>\n x",
    "a <|im_end|> b",
]
ALPHABET = [
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "a",
    "B",
    "é",
    "É",
    "ß",
    "ı",
    "ǅ",
    "1",
    "23",
    "٣",
    "½",
    "Ⅳ",
    ".",
    ",",
    "!",
    "'s",
    "'S",
    "'ll",
    "'",
    '"',
    "(",
    "/",
    "$",
    "+",
    "<",
    "_",
    "-",
    "中",
    "日本",
    "の",
    "カ",
    "한",
    "ㄱ",
    "ไ",
    "ก็",
    "ि",
    "न",
    "ا",
    "\u0301",
    "\u200d",
    "😀",
    "\u00a0",
    "\u3000",
    "\u2028",
    "…",
    "，",
    "「",
    "ａ",
    "Ａ",
    "１",
    "word",
    "Word",
    "WORD",
    "\u0085",
    "\x0b",
    "𝟙",
    "𐐀",
    "𐒰",
]


def texts() -> list[str]:
    """Those above, and random ones from a seed."""
    rng = random.Random(20)
    return TEXTS + ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 24))) for _ in range(200)]


def with_name(vocabulary: bytes, name: str) -> bytes:
    """A GGUF file with another value of ``tokenizer.ggml.pre``."""
    at = vocabulary.index(struct.pack("<Q", len(KEY)) + KEY) + 8 + len(KEY) + 4
    (size,) = struct.unpack("<Q", vocabulary[at : at + 8])
    return vocabulary[:at] + struct.pack("<Q", len(name)) + name.encode() + vocabulary[at + 8 + size :]


def digest(ids: Sequence[int]) -> str:
    """Eight digits that tell one list of ids from another."""
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:8]


def by_llama_cpp(path: Path) -> Iterator[list[int]]:
    """The ids of each text, special tokens read as such, nothing added."""
    import llama_cpp

    model = llama_cpp.Llama(model_path=str(path), vocab_only=True, verbose=False, n_ctx=32)
    vocabulary = llama_cpp.llama_model_get_vocab(model.model)
    for text in texts():
        data = text.encode()
        room = len(data) + 16
        ids = (ctypes.c_int32 * room)()
        count = llama_cpp.llama_tokenize(vocabulary, data, len(data), ids, room, False, True)
        yield list(ids[:count])
    model.close()


def main(path: Path, names: Sequence[str]) -> None:
    """Write the record."""
    vocabulary, found = path.read_bytes(), dict[str, list[str]]()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            made = Path(folder) / "vocabulary.gguf"
            made.write_bytes(with_name(vocabulary, name))
            found.setdefault("".join(map(digest, by_llama_cpp(made))), []).append(name)
    record = {"llama-cpp-python": "0.3.36", "ways": [{"names": n, "digests": d} for d, n in found.items()]}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        sys.argv[2:] or [name for way in json.loads(RECORD.read_text())["ways"] for name in way["names"]],
    )
