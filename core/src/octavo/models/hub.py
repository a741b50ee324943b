"""From what a user typed to files on this machine, through the Hugging Face hub where needed."""

from __future__ import annotations

import logging
from pathlib import Path

from octavo.errors import CheckpointError

_logger = logging.getLogger(__name__)

# Configuration, tokenizer and weights. No *.py: code from a checkpoint is never run, so it is not fetched.
_FOLDER_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model"]


def resolve(model: str) -> Path:
    """The local folder or .gguf file of ``model``.

    ``model`` is a path, a hub id ``owner/name``, or ``owner/name/file.gguf`` for one file of a repository. Files
    that the hub's cache lacks are downloaded, which is logged. Raises CheckpointError if there is nothing
    under that name, or the hub cannot be reached and the cache does not have it.
    """
    local = Path(model).expanduser()
    if model and local.exists():
        return local
    parts = model.split("/")
    if not all(parts) or parts[0] in (".", "..", "~") or len(parts) not in (2, 3):
        raise CheckpointError(
            f"{model or 'a model without a name'} does not exist; a model is a folder, a .gguf file, or a Hugging Face id like owner/name"
        )
    repository = "/".join(parts[:2])
    if len(parts) == 3 or parts[1].endswith(".gguf"):
        if len(parts) == 2 or not parts[2].endswith(".gguf"):
            raise CheckpointError(f"{model} does not exist; one file of a repository is named owner/name/file.gguf")
        return _fetch_file(repository, parts[2])
    return _fetch_repository(repository)


def _fetch_repository(repository: str) -> Path:
    import httpx
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        files = HfApi().list_repo_files(repository)
    except HFValidationError as error:
        raise CheckpointError(f"{repository} neither exists here nor is it a Hugging Face id: {error}") from error
    except HfHubHTTPError as error:
        raise CheckpointError(f"the hub has no {repository} for you: {_first_line(error)}") from error
    except (OfflineModeIsEnabled, httpx.HTTPError, OSError) as error:
        # No hub: what an earlier run fetched is still good.
        try:
            return Path(snapshot_download(repository, local_files_only=True))
        except LocalEntryNotFoundError:
            raise CheckpointError(
                f"{repository} does not exist here, is not in the cache, and the hub cannot be reached: "
                f"{_first_line(error)}"
            ) from error
    ggufs = sorted(name for name in files if name.endswith(".gguf"))
    if ggufs and not any(name.endswith(".safetensors") for name in files):
        if len(ggufs) > 1:
            raise CheckpointError(
                f"{repository} holds several GGUF files; name one, like {repository}/{ggufs[0]} ({', '.join(ggufs)})"
            )
        return _fetch_file(repository, ggufs[0])
    _logger.info("%s: fetching configuration, tokenizer and weights from the Hugging Face hub", repository)
    try:
        return Path(snapshot_download(repository, allow_patterns=_FOLDER_FILES))
    except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
        raise CheckpointError(f"downloading {repository} failed: {_first_line(error)}") from error


def _fetch_file(repository: str, name: str) -> Path:
    import httpx
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    _logger.info("%s: fetching %s from the Hugging Face hub", repository, name)
    try:
        return Path(hf_hub_download(repository, name))
    except (HfHubHTTPError, HFValidationError, httpx.HTTPError, OSError) as error:
        raise CheckpointError(f"{name} of {repository} cannot be had: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
