"""Core knows no platform: it asks capabilities, reads limits, calls verbs."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "octavo"

PLATFORMS = frozenset(
    {"cpu", "cuda", "rocm", "hip", "xpu", "neuron", "tpu", "ascend", "npu", "metal", "mps", "spyre", "gaudi", "hpu"}
)

# (file, string) that may stay, each with its reason.
ALLOWED = {
    ("config.py", "cpu_offload_gb"): "a flag that people type today; it is answered with why it does not exist",
    ("models/quantized/gptq.py", "use_cuda_fp16"): "an option that checkpoints carry for other engines' kernels",
}

# Identifiers of other libraries that contain such a word and name no platform.
FOREIGN = {
    "cpu_count": "os.cpu_count and multiprocessing.cpu_count count the host's processors",
}


class Mention(NamedTuple):
    word: str
    text: str
    line: int


def words(text: str) -> set[str]:
    """The words of an identifier or a sentence, lower case: splits at underscores, capitals, digits, punctuation."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", text)
    return set(re.findall(r"[a-z]+", spaced.lower()))


def mentions(source: str) -> Iterator[Mention]:
    """Platform names among the identifiers, and in strings that are not docstrings. Comments are free."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.string not in FOREIGN:
            yield from (Mention(word, token.string, token.start[0]) for word in words(token.string) & PLATFORMS)
    tree = ast.parse(source)
    docstrings = {
        id(node.value)  # any string that is a statement by itself documents what precedes it
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from (Mention(word, node.value, node.lineno) for word in words(node.value) & PLATFORMS)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('if platform.name == "cuda": pass', {"cuda"}),
        ("def is_cuda(): ...", {"cuda"}),
        ("class NeuronRunner: ...", {"neuron"}),
        ("x = torch.npu.synchronize", {"npu"}),
        ('raise E(f"install octavo-{name} or octavo-tpu")', {"tpu"}),
        ('DEFAULT = "cpu"', {"cpu"}),
        ("def f():\n    'runs on cuda'\n    return chip  # not a hip, not metal", set()),
        ("workers = os.cpu_count()", set()),
        ("output = inputs + tpus_of_nothing", set()),
    ],
)
def test_the_search_finds_names_in_code_and_not_in_prose(source: str, found: set[str]) -> None:
    assert {mention.word for mention in mentions(source)} == found


def test_core_names_no_platform() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert files, f"no source under {SOURCE}"
    found: list[str] = []
    used: set[tuple[str, str]] = set()
    for path in files:
        name = path.relative_to(SOURCE).as_posix()
        if words(name) & PLATFORMS:
            found.append(f"{name}: the file itself")
        for mention in mentions(path.read_text(encoding="utf-8")):
            if (name, mention.text) in ALLOWED:
                used.add((name, mention.text))
            else:
                found.append(f"{name}:{mention.line}: {mention.word!r} in {mention.text!r}")
    assert not found, "core names a platform; ask a capability or a limit instead:\n" + "\n".join(found)
    assert used == set(ALLOWED), f"exceptions that nothing needs any more: {set(ALLOWED) - used}"
