"""Every error that Octavo raises on purpose, in one tree.

    OctavoError
    ├── ConfigError                 a setting cannot be honoured
    ├── CheckpointError             the files of a model are missing, damaged or foreign
    │   └── UnknownArchitecture     no model family claims the checkpoint
    ├── PlatformError               choosing or starting a platform failed
    │   ├── PlatformNotFound        no installed plugin has the name asked for
    │   ├── PlatformUnavailable     the plugin is there, its device is not
    │   ├── PlatformAmbiguous       several accelerators, none of them named
    │   ├── UnsupportedFeature      the platform refused, with a typed reason
    │   ├── DeviceOutOfMemory       the device has too little memory left
    │   └── ArtifactError           a store or bundle of artifacts cannot be used as asked
    │       └── ArtifactMissing     an artifact is not there, and making it was forbidden
    ├── GraphError                  a model graph is malformed
    ├── RequestError                one request is wrong; the engine is fine
    │   ├── ContextLengthExceeded   prompt plus output cannot fit the context
    │   ├── ModelNotFound           the name is none of the served models
    │   ├── ObjectNotFound          what the server was to have kept is not there
    │   └── QueueFull               the server has no room for one more request
    └── EngineError                 the engine itself failed
        ├── RequestFailed           an exception ended one request
        └── EngineDead              the engine loop stopped; nothing is served any more

A message names the thing, its value, the limit and the cure:
``block_size 48 is not supported by cpu; choose 16, 32 or 64 (--block-size)``.
``assert`` is for Octavo's own invariants, never for input.
"""

from __future__ import annotations


class OctavoError(Exception):
    """Base of all errors raised on purpose; anything else that escapes is a bug."""


class ConfigError(OctavoError):
    """A setting cannot be honoured. The message says which, why, and what to set instead."""


class CheckpointError(OctavoError):
    """A model's files are missing, truncated, foreign, or disagree with its configuration."""


class UnknownArchitecture(CheckpointError):
    """No model family claims the checkpoint's architecture; the message lists the known ones."""


class PlatformError(OctavoError):
    """A platform could not be found, chosen or started."""


class PlatformNotFound(PlatformError):
    """No installed plugin provides the platform that was named."""


class PlatformUnavailable(PlatformError):
    """The named platform is installed, but this machine cannot run it."""


class PlatformAmbiguous(PlatformError):
    """More than one accelerator is available and none was named."""


class UnsupportedFeature(PlatformError):
    """A platform refused a feature at start-up.

    ``feature`` is what was asked, ``knob`` the setting that asked for it (may be empty).
    """

    def __init__(self, message: str, *, feature: str = "", knob: str = "") -> None:
        super().__init__(message)
        self.feature = feature
        self.knob = knob


class DeviceOutOfMemory(PlatformError):
    """An allocation on the device failed; the message says how much was asked and how much is free."""


class ArtifactError(PlatformError):
    """A store or a bundle of artifacts cannot be used as asked: damaged, not written to, or not there."""


class ArtifactMissing(ArtifactError):
    """An artifact is needed that is not there, or cannot be used, where nothing may be compiled.

    ``key`` is the id of its `octavo.platform.ArtifactKey`, ``device`` the kind of device it is for.
    """

    def __init__(self, message: str, *, key: str = "", device: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.device = device


class GraphError(OctavoError):
    """A model graph breaks a rule of the dialect; the message names the node."""


class RequestError(OctavoError):
    """One request cannot be served as asked. The server answers it with a 4xx.

    ``param`` is the request field at fault, ``code`` a stable machine-readable word.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextLengthExceeded(RequestError):
    """The prompt, or prompt plus requested output, is longer than the context."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class ModelNotFound(RequestError):
    """The request names a model that this server does not serve (404)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model", code="model_not_found")


class ObjectNotFound(RequestError):
    """The request names a response, conversation, item or file that is not kept, or is another owner's (404)."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="not_found")


class QueueFull(RequestError):
    """The waiting queue is at its limit (429); the client should retry later."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="queue_full")


class EngineError(OctavoError):
    """The engine failed at something that no request asked for."""


class RequestFailed(EngineError):
    """An exception inside the engine ended one request; its neighbours go on."""


class EngineDead(EngineError):
    """The engine loop has stopped; no request can be served by this engine any more."""
