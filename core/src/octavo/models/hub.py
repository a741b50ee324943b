"""From what a user typed to files on this machine, through the Hugging Face hub where needed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from octavo.errors import CheckpointError
from octavo.models.gguf_file import first_part, split_files

_logger = logging.getLogger(__name__)

_KINDS = "a model is a folder, a .gguf file, or a Hugging Face id like owner/name"
_PATIENCE = 10.0  # seconds until the hub has answered
# Configuration, tokenizer and weights. No *.py: code from a checkpoint is never run, so it is not fetched.
_FOLDER_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model"]


def resolve(model: str) -> Path:
    """The local folder or .gguf file of ``model``.

    ``model`` is a path, a hub id ``owner/name``, or ``owner/name/file.gguf`` for one file of a repository, which may
    lie in a folder there. Of a split GGUF all parts are fetched, and the first is returned. Files that the hub's cache
    lacks are downloaded, which is logged. Raises CheckpointError if there is nothing
    under that name, or the hub cannot be reached and the cache does not have it.
    """
    if not model:
        raise CheckpointError(f"no model is named; {_KINDS}")
    local = Path(model).expanduser()
    if local.exists():
        return local
    parts = model.split("/")
    if not all(parts) or parts[0] in (".", "..", "~") or len(parts) < 2 or ".." in parts:
        raise CheckpointError(f"{model} does not exist; {_KINDS}")
    repository, name = "/".join(parts[:2]), "/".join(parts[2:])
    if name or repository.endswith(".gguf"):
        if not name.endswith(".gguf"):
            raise CheckpointError(f"{model} does not exist; one file of a repository is named owner/name/file.gguf")
        first = first_part(PurePosixPath(name))
        if str(first) != name:
            raise CheckpointError(f"{model} is one part of a split GGUF; name the first, {repository}/{first}")
        return _fetch_file(repository, name)
    return _fetch_repository(repository)


def _listing(repository: str) -> list[str]:
    """The files of a repository, as the hub lists them. Raises one of `_hub_errors`, soon where nothing answers: the
    calls that list or download would try again and again for half a minute, and print that they do.
    """
    from huggingface_hub import HfApi

    _logger.info("%s: no such file or folder here; asking the Hugging Face hub", repository)
    return [file.rfilename for file in HfApi().model_info(repository, timeout=_PATIENCE).siblings or ()]


def _fetch_repository(repository: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        files = _listing(repository)
    except _hub_errors() as error:
        return _from_cache(repository, error)
    ggufs = _gguf_models(files)
    if ggufs and not any(name.endswith(".safetensors") for name in files):
        if len(ggufs) > 1:
            raise CheckpointError(
                f"{repository} holds several GGUF files; name one, like {repository}/{ggufs[0]} ({', '.join(ggufs)})"
            )
        return _download(repository, ggufs[0], files)
    _logger.info("%s: fetching configuration, tokenizer and weights from the Hugging Face hub", repository)
    try:
        return Path(snapshot_download(repository, allow_patterns=_FOLDER_FILES))
    except _hub_errors() as error:
        raise CheckpointError(f"downloading {repository} failed: {_first_line(error)}") from error


def _fetch_file(repository: str, name: str) -> Path:
    try:
        files = _listing(repository)
    except _hub_errors() as error:
        return _from_cache(repository, error, name)
    if name not in files:
        ggufs = ", ".join(_gguf_models(files)) or "none"
        raise CheckpointError(f"{repository} has no file {name} on the Hugging Face hub; its GGUF files: {ggufs}")
    return _download(repository, name, files)


def _gguf_models(files: Sequence[str]) -> list[str]:
    """The GGUF files among ``files``, of a split one its first part."""
    return sorted({str(first_part(PurePosixPath(name))) for name in files if name.endswith(".gguf")})


def _parts(name: str) -> list[str]:
    """The files that make up the GGUF whose only or first part is ``name``."""
    return [str(part) for part in split_files(PurePosixPath(name))]


def _download(repository: str, name: str, files: Sequence[str]) -> Path:
    """All parts of the GGUF ``name`` of a repository that has ``files``."""
    from huggingface_hub import hf_hub_download

    missing = [part for part in _parts(name) if part not in files]
    if missing:
        raise CheckpointError(f"{repository} lacks {len(missing)} parts of {name}: {', '.join(missing)}")
    paths = []
    for part in _parts(name):
        _logger.info("%s: fetching %s from the Hugging Face hub", repository, part)
        try:
            paths.append(Path(hf_hub_download(repository, part)))
        except _hub_errors() as error:
            raise CheckpointError(f"downloading {repository}/{part} failed: {_first_line(error)}") from error
    return paths[0]


def _from_cache(repository: str, reason: Exception, name: str | None = None) -> Path:
    """What an earlier run fetched, now that the hub does not answer; CheckpointError if there is nothing."""
    from huggingface_hub import hf_hub_download, snapshot_download

    try:
        if name is not None:
            paths = [Path(hf_hub_download(repository, part, local_files_only=True)) for part in _parts(name)]
            return paths[0]
        folder = Path(snapshot_download(repository, local_files_only=True))
    except _hub_errors():
        raise CheckpointError(
            f"{repository if name is None else f'{repository}/{name}'} does not exist here, is not in the hub's cache, "
            f"and cannot be had from the hub: {_first_line(reason)}"
        ) from reason
    ggufs = _gguf_models([str(path.relative_to(folder)) for path in folder.rglob("*.gguf")])
    return folder / ggufs[0] if len(ggufs) == 1 and not (folder / "config.json").is_file() else folder


def _hub_errors() -> tuple[type[Exception], ...]:
    """What the hub's client raises for a name that is no id, a refusal, or a network that fails.

    Errors of the connection are those of its HTTP library, which is not the same in every version; the base of
    the client's own HTTP error covers them.
    """
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    transport: type[Exception] = HfHubHTTPError.__mro__[1]
    return (transport, HFValidationError, OSError)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
