"""Encoders on the native runtime: near the reference, the same bits in any company, rows never cut in two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from models.tiny import tiny_checkpoint
from models.tiny_encoders import VOCAB, tiny_encoder

from octavo.errors import UnsupportedFeature
from octavo.graph import Builder, Graph, Interpreter, KVArrays, fuse
from octavo.models import Model, load_model
from octavo.platform import Bucket, KVLayout, MemoryReport, SamplingBatch, StepInput
from octavo.quant import dequantise
from octavo_cpu.binding import load
from octavo_cpu.device import CpuDevice
from octavo_cpu.lower import lower
from octavo_cpu.threads import Threads

BLOCK = 16
LENGTHS = (300, 5, 1, 260, 64, 200, 16)
"""More than a piece of a step in one row, and more than one row in a piece."""

Rows = list[list[int]]


def random_rows(lengths: tuple[int, ...]) -> Rows:
    rng = np.random.default_rng(0)
    return [rng.integers(0, VOCAB, n).tolist() for n in lengths]


def arrays_of(rows: Rows, groups: int) -> dict[str, npt.NDArray[np.int32]]:
    """One step of whole prompts, over blocks in no particular order."""
    widths = [-(-len(row) // BLOCK) for row in rows]
    blocks = np.random.default_rng(1).permutation(np.arange(1, groups * sum(widths) + 1))
    tables = np.zeros((groups, len(rows), max(widths)), np.int32)
    slots: list[list[int]] = []
    at = 0
    for group in range(groups):
        slots.append([])
        for r, row in enumerate(rows):
            tables[group, r, : widths[r]] = blocks[at : at + widths[r]]
            at += widths[r]
            slots[-1] += [int(tables[group, r, p // BLOCK]) * BLOCK + p % BLOCK for p in range(len(row))]
    return {
        "tokens": np.concatenate(rows).astype(np.int32),
        "positions": np.concatenate([np.arange(len(row)) for row in rows]).astype(np.int32),
        "query_starts": np.cumsum([0, *map(len, rows)]).astype(np.int32),
        "context_lens": np.array([len(row) for row in rows], np.int32),
        "slots": np.array(slots, np.int32).reshape(groups, -1),
        "block_tables": tables,
        "sample_rows": np.zeros(0, np.int32),
    }


class Native:
    """A model that pools, on a device of its own."""

    def __init__(self, model: Model, kernels: str = "", threads: int = 2) -> None:
        graph = self.graph = fuse(model.graph)
        self.device = CpuDevice(load(), lambda: MemoryReport(1 << 32, 1 << 32), Threads(threads, (), 1), kernels)
        weights = {name: model.checkpoint.tensor(name) for name in graph.weights}
        handle = self.device.load(graph, weights, lambda what, done, total: None)
        layout = KVLayout(BLOCK, graph.kv_slots, graph.kv[0].kv_heads, graph.kv[0].head_dim, "bf16")
        self.executable = self.device.compile(graph, Bucket(), handle, layout)
        self.store = self.device.allocate_kv(layout, 400)

    def vectors(self, rows: Rows) -> npt.NDArray[np.float32]:
        step = StepInput(
            **arrays_of(rows, len(self.graph.kv_windows)),
            copies=np.zeros((0, 2), np.int32),
            sampling=SamplingBatch.plain(0, greedy=True),
            bucket=Bucket(),
        )
        output = self.executable.collect(self.executable.submit(step, self.store))
        assert output.pooled is not None and output.logits is None and output.samples is None
        return output.pooled


def reference(model: Model, rows: Rows) -> npt.NDArray[Any]:
    """The vectors that the graph means."""
    graph = model.graph
    weights = {name: dequantise(model.checkpoint.tensor(name)) for name in graph.weights}
    return Interpreter(graph, weights).run(arrays_of(rows, len(graph.kv_windows)), KVArrays(graph, 400, BLOCK))[
        "pooled"
    ]


def least_cosine(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


@pytest.mark.parametrize("kernels", ["", "generic", "avx2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
def test_an_encoder_is_near_the_reference(tmp_path: Path, kernels: str, dtype: torch.dtype) -> None:
    if kernels and not load().octavo_kernels(kernels.encode()):
        pytest.skip(f"this processor has no {kernels}")
    model = load_model(tiny_encoder("BertModel", tmp_path, max_position_embeddings=320, dtype=dtype))
    rows = random_rows(LENGTHS if kernels != "generic" else (40, 3, 1))
    assert least_cosine(Native(model, kernels).vectors(rows), reference(model, rows)) > 0.9999


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_s_bits_do_not_depend_on_its_company(tmp_path: Path, threads: int) -> None:
    model = load_model(tiny_encoder("RobertaModel", tmp_path, max_position_embeddings=322, type_vocab_size=1))
    native, rows = Native(model, threads=threads), random_rows(LENGTHS)
    together = native.vectors(rows)
    for row, vector in zip(rows, together, strict=True):
        np.testing.assert_array_equal(native.vectors([row])[0], vector)
    np.testing.assert_array_equal(native.vectors(rows[::-1])[::-1], together)


def test_a_cross_encoder_reads_which_text_a_token_is_of(tmp_path: Path) -> None:
    model = load_model(tiny_encoder("BertForSequenceClassification", tmp_path, max_position_embeddings=320))
    rows = [[token + VOCAB * (i > 2) for i, token in enumerate(row)] for row in random_rows(LENGTHS)]
    found, wanted = Native(model).vectors(rows), reference(model, rows)
    assert found.shape == (len(rows), 1) and np.ptp(wanted) > 0.1
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("kind", ["last", "mean"])
def test_a_decoder_is_pooled_natively(tmp_path: Path, family: str, kind: str) -> None:
    folder = tiny_checkpoint(family, tmp_path)
    (folder / "modules.json").write_text('[{"type": "Pooling", "path": "1_Pooling"}]')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(f'{{"pooling_mode": "{kind}{"token" * (kind == "last")}"}}')
    model, rows = load_model(folder), random_rows(LENGTHS)
    assert least_cosine(Native(model).vectors(rows), reference(model, rows)) > 0.9999


def mapped_twice() -> Graph:
    g = Builder("odd")
    ids = g.map_ids(g.map_ids(g.tokens, divide=2), add=1)
    g.output("hidden", g.embed("table", vocab=40, width=32, ids=ids))
    return g.build()


def test_what_has_no_native_form_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="map_ids of mapped ids in the top scope"):
        lower(mapped_twice())
