"""What an artifact depends on, and what one that is found is worth.

The key lists what counts, by name; nothing else does: no path, host, time or environment variable. So an artifact may
move to another machine, and no noise makes it miss.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from octavo.graph import Graph, graph_hash
from octavo.platform.buckets import Bucket
from octavo.platform.layout import KVLayout

ID = re.compile(r"[0-9a-f]{40}-[0-9a-f]{16}")
"""What `ArtifactKey.id` looks like."""


_NOT_TEXT = ("formats", "bucket", "layout", "mesh", "options")


class Verdict(enum.Enum):
    """What an artifact on disk is worth to who asks for a key."""

    GOOD = "good"
    """It is what was asked for."""
    STALE = "stale"
    """Another version of the compiler made it, and its programs still run: usable, and worth making again."""
    INCOMPATIBLE = "incompatible"
    """It is whole, but for something else: another device, graph, shape, or version of the file format."""
    DAMAGED = "damaged"
    """It does not hold what was written, or cannot be trusted to."""


@dataclass(frozen=True)
class ArtifactKey:
    """Everything that an artifact depends on. Two artifacts of one key are the same.

    Take `ArtifactKey.for_graph`, and `dataclasses.replace` for the next bucket: hashing a large graph takes a while.
    """

    kind: str
    """What it is, in the platform's words: ``program``, ``packed weights``."""
    platform: str
    """Name of the platform, `PlatformInfo.name`."""
    device: str
    """The kind of device it runs on, as precisely as matters: a product's name, an instruction set, ``any``."""
    compiler: str
    """What made it, with its version; any change of it makes another artifact."""
    graph: str
    """`octavo.graph.graph_hash` of the graph, its symbols free or bound."""
    dialect: str
    """Version of the dialect that the graph speaks."""
    formats: tuple[str, ...] = ()
    """Formats of the graph's weights, sorted. The graph's hash covers them; people read them here."""
    bucket: Bucket | None = None
    """The shape it is for; ``None`` if it serves all."""
    layout: KVLayout | None = None
    """The block pool it is for; ``None`` if it serves all."""
    mesh: tuple[int, int] = (0, 1)
    """Which rank of how many."""
    checkpoint: str = ""
    """`ArtifactStore.digest` of the checkpoint's files, if the artifact holds weights; else empty, and it serves every
    fine-tune."""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """The options that change the result, each listed by name."""
    abi: str = ""
    """What the device's runtime must have to run it, for a compiler that promises so: artifacts of one ``abi`` and
    different ``compiler`` are stale rather than incompatible. Empty: there is no such promise."""

    @classmethod
    def for_graph(
        cls,
        graph: Graph,
        *,
        kind: str,
        platform: str,
        device: str,
        compiler: str,
        bucket: Bucket | None = None,
        layout: KVLayout | None = None,
        mesh: tuple[int, int] = (0, 1),
        checkpoint: str = "",
        options: Mapping[str, str] = MappingProxyType({}),
        abi: str = "",
    ) -> ArtifactKey:
        """The key of what is made from ``graph``; see the fields."""
        return cls(
            kind=kind,
            platform=platform,
            device=device,
            compiler=compiler,
            graph=graph_hash(graph),
            dialect=graph.dialect,
            formats=tuple(sorted({weight.format for weight in graph.weights.values()})),
            bucket=bucket,
            layout=layout,
            mesh=mesh,
            checkpoint=checkpoint,
            options=dict(options),
            abi=abi,
        )

    @property
    def id(self) -> str:
        """The key as a file name: a hash of all but the compiler, and one of the compiler."""
        return f"{self.family}-{_hash(self.compiler)[:16]}"

    @property
    def family(self) -> str:
        """The part of `id` that artifacts of different compilers share."""
        rest = {name: value for name, value in self.to_dict().items() if name != "compiler"}
        return _hash(json.dumps(rest, sort_keys=True, separators=(",", ":")))[:40]

    def to_dict(self) -> dict[str, Any]:
        """The key as JSON values; `from_dict` restores an equal one."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "formats": list(self.formats),
            "bucket": None if self.bucket is None else list(self.bucket),
            "layout": None if self.layout is None else asdict(self.layout),
            "mesh": list(self.mesh),
            "options": dict(self.options),
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ArtifactKey:
        """The key that `to_dict` wrote. ValueError for anything else."""
        try:
            key = cls(
                **{
                    **raw,
                    "formats": tuple(raw["formats"]),
                    "bucket": None if raw["bucket"] is None else Bucket(*raw["bucket"]),
                    "layout": None if raw["layout"] is None else KVLayout(**raw["layout"]),
                    "mesh": tuple(raw["mesh"]),
                    "options": dict(raw["options"]),
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"this is no artifact key: {error}") from error
        if not key._sound or key.to_dict() != raw:
            raise ValueError("this is no artifact key: a value in it is of another kind")
        return key

    @property
    def _sound(self) -> bool:
        """Whether every value is of its kind; only one that was read from somewhere may not be."""
        texts: list[object] = [value for name, value in self.to_dict().items() if name not in _NOT_TEXT]
        sizes: list[object] = [size for size in self.bucket or () if size is not None]
        if self.layout is not None:
            *numbers, dtype = asdict(self.layout).values()
            sizes, texts = [*sizes, *numbers], [*texts, dtype]
        texts += [*self.formats, *self.options, *self.options.values()]
        mesh: list[object] = [*self.mesh]
        sizes += mesh
        return len(mesh) == 2 and all(isinstance(t, str) for t in texts) and all(isinstance(n, int) for n in sizes)

    def differences(self, other: ArtifactKey) -> list[str]:
        """``field: mine, not the other's`` for each field that differs."""
        mine, theirs = self.to_dict(), other.to_dict()
        odd = [name for name in mine if mine[name] != theirs[name]]
        return [f"{name} {_short(mine[name])}, not {_short(theirs[name])}" for name in odd]

    def __str__(self) -> str:
        shape = "" if self.bucket is None else f" for {_sizes(self.bucket)}"
        rank = "" if self.mesh == (0, 1) else f" of rank {self.mesh[0]} of {self.mesh[1]}"
        return f"{self.kind} of {self.platform} ({self.device}){shape}{rank}"


def judge(found: ArtifactKey, wanted: ArtifactKey) -> Verdict:
    """What a whole artifact of key ``found`` is worth to who wants ``wanted``."""
    if found.id == wanted.id:
        return Verdict.GOOD
    return Verdict.STALE if found.abi and found.family == wanted.family else Verdict.INCOMPATIBLE


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _sizes(bucket: Bucket) -> str:
    found = [f"{size} {name}" for name, size in zip(Bucket._fields, bucket, strict=True) if size is not None]
    return ", ".join(found) or "any sizes"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
