"""Packed weights as artifacts: packed once per checkpoint, mapped by every later start, and made ahead of time."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from artifacts.samples import flip, names
from models.tiny import tiny_checkpoint, tiny_gguf

from octavo.errors import ArtifactMissing
from octavo.graph import fuse
from octavo.models import Model, load_model
from octavo.platform import ArtifactPolicy, ArtifactStore, Bucket, KVLayout, Rank
from octavo_cpu import weights
from octavo_cpu.platform import CpuPlatform
from octavo_cpu.weights import NativeWeights

PAGE = 4096


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny_gguf(tiny_checkpoint("llama", folder), folder / "tiny.gguf", quantization="Q4_0")
    return folder / "tiny.gguf"


class Start:
    """One start: the weights as loaded, and how often progress told of packing."""

    def __init__(self, checkpoint: Path, store: ArtifactStore, target: str | None = None, files: bool = True) -> None:
        model: Model = load_model(checkpoint)
        graph = fuse(model.graph)
        device = CpuPlatform().open(Rank(threads=1, artifacts=store, target=target))
        self.packing = 0
        tensors = {name: model.checkpoint.tensor(name) for name in graph.weights}
        try:
            loaded = device.load(graph, tensors, self._told, model.files if files else ())
            assert isinstance(loaded, NativeWeights)
            self.packed = loaded.packed
            self.content = {name: np.array(array) for name, array in loaded.packed.items()}
            device.compile(graph, Bucket(), loaded, KVLayout(16, 1, 1, 16, "bf16"))
        finally:
            device.close()

    def _told(self, what: str, done: int, total: int) -> None:
        self.packing += what == "packing weights"

    def same(self, other: Start) -> bool:
        return all(np.array_equal(self.content[name], other.content[name]) for name in other.content)


def test_a_checkpoint_is_packed_once_wherever_it_lies(checkpoint: Path, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store", digests=tmp_path / "digests")
    first = Start(checkpoint, store)
    copy = shutil.copy(checkpoint, tmp_path / "other name.gguf")
    second = Start(copy, ArtifactStore(tmp_path / "store"))
    assert first.packing > 0 and second.packing == 0
    assert second.same(first) and set(second.packed) == set(first.packed)
    for array in second.packed.values():
        assert array.ctypes.data % PAGE == 0 and not array.flags.writeable
    [(key, _, made)] = store.opened
    assert (key.kind, key.platform, key.device, key.bucket, made) == ("packed weights", "cpu", "any", None, True)


def test_other_weights_or_another_layout_are_packed_again(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Start(checkpoint, ArtifactStore(tmp_path))
    changed = Path(shutil.copy(checkpoint, tmp_path / "changed.gguf"))
    flip(changed, changed.stat().st_size - 40)
    assert Start(changed, ArtifactStore(tmp_path)).packing > 0
    assert Start(checkpoint, ArtifactStore(tmp_path)).packing == 0
    monkeypatch.setattr(weights, "LAYOUT", weights.LAYOUT + 1)
    assert Start(checkpoint, ArtifactStore(tmp_path)).packing > 0


def test_weights_that_come_from_no_file_are_not_kept(checkpoint: Path, tmp_path: Path) -> None:
    assert Start(checkpoint, ArtifactStore(tmp_path / "store"), files=False).packing > 0
    assert names(tmp_path / "store") == []


def test_a_damaged_artifact_is_packed_again_with_a_warning(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Start(checkpoint, ArtifactStore(tmp_path))
    [name] = names(tmp_path)
    flip(tmp_path / name, 5000)
    again = Start(checkpoint, ArtifactStore(tmp_path))
    assert again.packing > 0 and again.same(first)
    assert "is damaged" in caplog.text
    assert Start(checkpoint, ArtifactStore(tmp_path)).packing == 0


def test_what_was_packed_ahead_of_time_is_all_that_serving_needs(checkpoint: Path, tmp_path: Path) -> None:
    required = ArtifactStore(tmp_path, policy=ArtifactPolicy.REQUIRE)
    with pytest.raises(ArtifactMissing, match=r"packed weights of cpu \(any\)"):
        Start(checkpoint, required)
    [target] = CpuPlatform().capabilities().targets
    ahead = Start(checkpoint, ArtifactStore(tmp_path, policy=ArtifactPolicy.MAKE), target)
    served = Start(checkpoint, required)
    assert served.packing == 0 and served.same(ahead)
