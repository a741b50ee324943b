"""Record what llama.cpp makes of some texts and of some tokens; see `test_gguf_vectors`.

    pip install llama-cpp-python==0.3.36     # compiles llama.cpp, in an environment of its own
    python core/tests/text/record_llama_cpp.py FOLDER

FOLDER is the one that `scripts/fetch_models.py vocabularies` fetches. For each name of a pre-tokenizer (those of the
record and those that are given) the name in a vocabulary is replaced by it; the ids that come out are written as
digests, once for all names that agree. For each vocabulary the text of all its tokens is written as a digest.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import random
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("llama_cpp_splits.json")
SPACED = ("gemma4", "granite-embed-multi-311m", "sarvam-moe")
"""Names for vocabularies of characters."""
KEY = b"tokenizer.ggml.pre"
MODEL = b"tokenizer.ggml.model"
BUG = b"[UNK_BYTE_"
"""What llama.cpp writes into the text of tokens that are spelled in plain text in a byte-level vocabulary."""

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


def vocabulary_for(name: str) -> str:
    """The file whose name of a pre-tokenizer is replaced."""
    return f"ggml-vocab-{'gemma-4' if name in SPACED else 'llama-bpe'}.gguf"


def with_name(vocabulary: bytes, name: str) -> bytes:
    """A GGUF file of the model "gpt2" with another value of ``tokenizer.ggml.pre``."""
    vocabulary = _replaced(vocabulary, MODEL, "gpt2")
    if _key(KEY) in vocabulary:
        return _replaced(vocabulary, KEY, name)
    pairs = struct.unpack("<Q", vocabulary[16:24])[0] + 1
    pair = _key(KEY) + struct.pack("<IQ", 8, len(name)) + name.encode()
    return vocabulary[:16] + struct.pack("<Q", pairs) + pair + vocabulary[24:]


def _key(key: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key


def _replaced(vocabulary: bytes, key: bytes, value: str) -> bytes:
    at = vocabulary.index(_key(key)) + 8 + len(key) + 4
    (size,) = struct.unpack("<Q", vocabulary[at : at + 8])
    return vocabulary[:at] + struct.pack("<Q", len(value)) + value.encode() + vocabulary[at + 8 + size :]


def digest(ids: Sequence[int]) -> str:
    """Eight digits that tell one list of ids from another."""
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:8]


def summary(shown: Iterable[bytes], hidden: Iterable[int], ends: Iterable[int]) -> dict[str, Any]:
    """What is recorded of a vocabulary: the text of each token, which of them are left out of text, which end one."""
    texts = hashlib.sha256(b"\xff".join(shown)).hexdigest()[:16]
    return {"texts": texts, "hidden": digest(sorted(hidden)), "ends": sorted(ends)}


class LlamaCpp:
    """One vocabulary in llama.cpp."""

    def __init__(self, path: Path) -> None:
        import llama_cpp

        self._lib = llama_cpp
        self._model = llama_cpp.Llama(model_path=str(path), vocab_only=True, verbose=False, n_ctx=32)
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._model.model)
        self._size = llama_cpp.llama_vocab_n_tokens(self._vocabulary)

    def ids(self, text: str) -> list[int]:
        """The ids of a text, special tokens read as such, nothing added."""
        data = text.encode()
        room = len(data) + 16
        ids = (ctypes.c_int32 * room)()
        count = self._lib.llama_tokenize(self._vocabulary, data, len(data), ids, room, False, True)
        return list(ids[:count])

    def piece(self, token: int, special: bool) -> bytes:
        """The text of a token; of a special one only if asked."""
        text = ctypes.create_string_buffer(4096)
        size = self._lib.llama_token_to_piece(self._vocabulary, token, text, len(text), 0, special)
        assert size >= 0, f"token {token} is longer than {len(text)} bytes"
        return text.raw[:size]

    def summary(self) -> dict[str, Any]:
        """See `summary`; tokens of which llama.cpp writes nonsense count as empty."""
        pieces = [self.piece(token, True) for token in range(self._size)]
        return summary(
            (b"" if BUG in piece else piece for piece in pieces),
            (token for token, piece in enumerate(pieces) if piece and not self.piece(token, False)),
            (token for token in range(self._size) if self._lib.llama_vocab_is_eog(self._vocabulary, token)),
        )

    def close(self) -> None:
        self._model.close()


@contextmanager
def opened(path: Path) -> Iterator[LlamaCpp]:
    """The vocabulary of a file, for as long as the block runs."""
    found = LlamaCpp(path)
    try:
        yield found
    finally:
        found.close()


def main(folder: Path, names: Sequence[str]) -> None:
    """Write the record."""
    old = json.loads(RECORD.read_text())
    splits, vocabularies = dict[str, list[str]](), dict[str, Any]()
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "vocabulary.gguf"
        for name in dict.fromkeys([*(name for way in old["ways"] for name in way["names"]), *names]):
            made.write_bytes(with_name((folder / vocabulary_for(name)).read_bytes(), name))
            with opened(made) as judge:
                splits.setdefault("".join(digest(judge.ids(text)) for text in texts()), []).append(name)
    for path in sorted(folder.glob("*.gguf")):
        with opened(path) as judge:
            vocabularies[path.stem.removeprefix("ggml-vocab-")] = judge.summary()
    ways = [{"names": names, "digests": digests} for digests, names in splits.items()]
    record = {"llama-cpp-python": "0.3.36", "ways": ways, "vocabularies": vocabularies}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
