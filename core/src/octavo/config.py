"""What a user may set, frozen and resolved once. A new field is a decision: see docs/decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from octavo.errors import ConfigError

DTYPES: Mapping[str, str | None] = {
    "auto": None, "float32": "f32", "float": "f32", "bfloat16": "bf16", "float16": "f16", "half": "f16",
}  # fmt: skip
"""The names people type for activation dtypes, and the graph's own."""

KV_DTYPES: Mapping[str, str | None] = {**DTYPES, "int8": "int8"}


@dataclass(frozen=True)
class Settings:
    """What is put to the platform; ``None`` leaves the choice to its plan. The names are those of the flags."""

    dtype: str | None = None
    kv_cache_dtype: str | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    memory_utilization: float | None = None

    def __post_init__(self) -> None:
        for name in ("block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value} ({flag(name)})")
        utilization = self.memory_utilization
        if utilization is not None and not 0 < utilization <= 1:
            raise ConfigError(f"memory_utilization must be in (0, 1], not {utilization} (--memory-utilization)")


@dataclass(frozen=True)
class EngineConfig:
    """Everything an engine is started with.

    ``model`` is a folder, a .gguf file or a hub id. ``platform`` None lets the one available platform be chosen.
    ``seed`` is where requests without a seed of their own take theirs from.
    """

    model: str
    platform: str | None = None
    settings: Settings = field(default_factory=Settings)
    tensor_parallel_size: int = 1
    enable_prefix_caching: bool = True
    seed: int = 0
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    max_waiting: int | None = None
    threads: int | None = None
    """Host cores that the device may keep busy; ``None`` leaves that to the platform."""
    num_kv_blocks: int | None = None
    """Blocks of the KV cache, instead of as many as the memory allows."""
    served_model_names: tuple[str, ...] = ()
    chat_template: str | None = None
    """A Jinja template in place of the checkpoint's own."""

    def __post_init__(self) -> None:
        if self.tensor_parallel_size < 1:
            raise ConfigError(f"tensor_parallel_size must be at least 1, not {self.tensor_parallel_size}")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads must be at least 1, not {self.threads} (--threads)")
        if self.num_kv_blocks is not None and self.num_kv_blocks < 2:
            raise ConfigError(f"num_kv_blocks must be at least 2 (one is the null block), not {self.num_kv_blocks}")


def flag(setting: str) -> str:
    """The command-line flag of a setting."""
    return "--" + setting.replace("_", "-")


def dtype_named(name: str | None, known: Mapping[str, str | None], setting: str) -> str | None:
    """The graph's name of the dtype that a user typed; ``None`` for auto. Raises ConfigError with the known ones."""
    if name is None:
        return None
    if name not in known:
        raise ConfigError(f"{setting} {name!r} is not known; choose {', '.join(known)} ({flag(setting)})")
    return known[name]
