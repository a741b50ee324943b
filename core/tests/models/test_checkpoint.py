"""open_checkpoint chooses the reader; resolve finds what the user named."""

from __future__ import annotations

import hashlib
import json
import shutil
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import huggingface_hub.constants
import pytest
from models.tiny import tiny_checkpoint, tiny_gguf

from octavo.errors import CheckpointError
from octavo.models.checkpoint import open_checkpoint, resolve
from octavo.models.gguf_reader import GGUFCheckpoint
from octavo.models.safetensors_reader import SafetensorsCheckpoint


def test_the_reader_follows_the_files(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama", tmp_path)
    assert isinstance(open_checkpoint(folder), SafetensorsCheckpoint)
    assert isinstance(open_checkpoint(tiny_gguf(folder, tmp_path / "m.gguf")), GGUFCheckpoint)
    # a GGUF is known by its content, as in the hub's cache, where files have no names
    assert isinstance(open_checkpoint((tmp_path / "m.gguf").rename(tmp_path / "blob")), GGUFCheckpoint)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pytorch_model.bin", "pickle"),
        ("model.pth", "pickle"),
        ("model.safetensors", "give its folder"),
        ("notes.txt", "is no GGUF file"),
    ],
)
def test_a_file_that_is_no_model_is_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("what is in here does not matter")
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path / name)


def test_a_path_to_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        open_checkpoint(tmp_path / "nowhere")


def test_a_local_path_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(str(tmp_path)) == tmp_path
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve("owner/name") == Path("owner/name")  # a folder wins over the hub
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/owner") == tmp_path / "owner"


@pytest.mark.parametrize(
    "model",
    [
        "/no/such/model",
        "./model",
        "~/no-such-model",
        "gpt2",
        "a/b/c/d",
        "owner//name",
        "owner/model.gguf",
        "owner/name/../m.gguf",
    ],
)
def test_what_is_neither_path_nor_hub_id_is_refused_without_asking_the_hub(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", None, raising=False)
    with pytest.raises(CheckpointError, match="does not exist"):
        resolve(model)


def test_no_model_at_all_says_what_a_model_is() -> None:
    with pytest.raises(CheckpointError, match=r"no model is named; a model is a folder, a \.gguf file, or"):
        resolve("")


@pytest.fixture(params=["told", "refused"])
def offline(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that does not reach the hub, because it is told to stay offline or because nothing answers;
    and the folder of its hub cache.
    """
    if request.param == "told":
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    else:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # the discard port: closed
        monkeypatch.setattr(
            "time.sleep", lambda seconds: pytest.fail(f"waited {seconds} s for a hub that is not there")
        )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_without_network_an_unknown_id_says_what_was_tried(offline: Path) -> None:
    with pytest.raises(
        CheckpointError, match="owner/name does not exist here, is not in the hub's cache, and cannot be had"
    ):
        resolve("owner/name")


def test_without_network_an_unknown_file_is_named(offline: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"owner/name/m\.gguf does not exist here, is not in the hub's cache, and cannot"
    ):
        resolve("owner/name/m.gguf")


def test_what_no_hub_id_can_be_is_refused(offline: Path) -> None:
    with pytest.raises(CheckpointError, match=r"own er/na!me does not exist here"):
        resolve("own er/na!me")


def test_without_network_the_cache_still_serves(offline: Path, tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = offline / "models--owner--name"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    shutil.copytree(tiny_checkpoint("llama", tmp_path), cached / "snapshots" / commit)
    path = resolve("owner/name")
    assert path == cached / "snapshots" / commit
    assert "lm_head.weight" in open_checkpoint(path).names()


def _hub_with(monkeypatch: pytest.MonkeyPatch, *files: str) -> None:
    """A hub where every repository has these files."""
    siblings = [types.SimpleNamespace(rfilename=name) for name in files]
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: types.SimpleNamespace(siblings=siblings))


def test_a_file_that_the_repository_lacks_is_refused_with_those_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    _hub_with(monkeypatch, "README.md", "b.gguf", "a.gguf")
    with pytest.raises(CheckpointError, match=r"owner/name has no file m\.gguf .*its GGUF files: a\.gguf, b\.gguf"):
        resolve("owner/name/m.gguf")


def test_a_repository_of_several_gguf_files_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _hub_with(monkeypatch, "b.gguf", "a.gguf")
    with pytest.raises(CheckpointError, match=r"several GGUF files; name one, like owner/name/a\.gguf"):
        resolve("owner/name")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a server on this machine offers as every repository, in the hub's own protocol."""
    root = tmp_path / "repository"
    root.mkdir()

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def do_GET(self) -> None:
            self.answer(with_body=True)

        def answer(self, *, with_body: bool) -> None:
            if self.path.startswith("/api/models/"):
                files = [{"rfilename": str(p.relative_to(root))} for p in root.rglob("*") if p.is_file()]
                body = json.dumps({"id": "owner/name", "sha": COMMIT, "siblings": files}).encode()
            else:
                body = (root / self.path.partition("/resolve/main/")[2]).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", hashlib.sha256(body).hexdigest())
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    monkeypatch.setattr(
        huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    yield root
    server.shutdown()
    server.server_close()


def split_model(tmp_path: Path, to: Path) -> list[str]:
    """A tiny model in parts; their names."""
    to.mkdir(parents=True, exist_ok=True)
    tiny_gguf(tiny_checkpoint("llama", tmp_path), to / "m.gguf", split_max_tensors=12)
    return sorted(path.name for path in to.glob("*.gguf"))


@pytest.mark.parametrize(
    ("below", "model"),
    [("", "owner/name"), ("", "owner/name/m-00001-of-00003.gguf"), ("F32", "owner/name/F32/m-00001-of-00003.gguf")],
)
def test_all_parts_of_a_split_gguf_come_from_the_hub_and_then_from_its_cache(
    below: str, model: str, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = split_model(tmp_path, hub / below)
    path = resolve(model)
    assert [found.name for found in sorted(path.parent.glob("*.gguf"))] == names
    assert path.name == names[0]
    assert "lm_head.weight" in open_checkpoint(path).names()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert resolve(model) == path


def test_a_part_that_the_hub_lacks_is_named(hub: Path, tmp_path: Path) -> None:
    names = split_model(tmp_path, hub)
    (hub / names[1]).unlink()
    with pytest.raises(CheckpointError, match=r"owner/name lacks 1 parts of m-.*: m-00002-of-00003\.gguf"):
        resolve("owner/name")


def test_a_part_other_than_the_first_is_refused_with_the_name_of_the_first() -> None:
    with pytest.raises(CheckpointError, match=r"name the first, owner/name/Q4/m-00001-of-00003\.gguf"):
        resolve("owner/name/Q4/m-00002-of-00003.gguf")


def test_a_split_gguf_is_one_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    _hub_with(monkeypatch, "b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "a.gguf")
    with pytest.raises(CheckpointError, match=r"name one, like owner/name/a\.gguf \(a\.gguf, b-00001-of-00002\.gguf\)"):
        resolve("owner/name")
