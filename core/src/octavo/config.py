"""What a user may set, frozen and resolved once. A new field is a decision: see docs/decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from octavo.errors import ConfigError

DTYPES: Mapping[str, str | None] = {
    "auto": None, "float32": "f32", "float": "f32", "bfloat16": "bf16", "float16": "f16", "half": "f16",
    "f32": "f32", "bf16": "bf16", "f16": "f16",
}  # fmt: skip
"""The names people type for activation dtypes, and the graph's own, which may be typed too."""

Task = Literal["generate", "embed", "score"]
"""What a model is served for. ``embed`` makes a vector of each text, ``score`` reads two texts at once and says how
well they fit (a cross-encoder)."""

GENERATION_CONFIGS = ("auto", "none", "vllm")
"""Whether the checkpoint's generation_config.json has the defaults of requests: as the checkpoint has it, or not; the
last is vLLM's word for that."""

KV_DTYPES: Mapping[str, str | None] = {**DTYPES, "int8": "int8"}

_TYPED: Mapping[str, str] = {
    own: typed for typed, own in reversed([*DTYPES.items()]) if own is not None
}  # f32: float32


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
    """Requests that may wait; ``None``: any number."""
    max_waiting_tokens: int | None = None
    """Tokens that the waiting requests may have together; ``None``: any number."""
    threads: int | None = None
    """Host cores that the device may keep busy; ``None`` leaves that to the platform."""
    itl_target_ms: float | None = None
    """Milliseconds that running requests should wait for their next token at most while prompts are computed;
    ``None``: prompts take all of a step's token budget."""
    task: Task | None = None
    """What the model shall do; ``None`` leaves that to its checkpoint."""
    num_kv_blocks: int | None = None
    """Blocks of the KV cache, instead of as many as the memory allows."""
    served_model_names: tuple[str, ...] = ()
    chat_template: str | None = None
    """A Jinja template in place of the checkpoint's own."""
    generation_config: str = "auto"
    """Of `GENERATION_CONFIGS`."""
    special_tokens_in_messages: bool = False
    """Whether messages may write special tokens of the model, as they could in a plain prompt."""
    grammar_seconds: float = 10.0
    """How long compiling a constraint may take, in seconds."""
    grammar_memory: int = 2**30
    """Bytes that it may take."""
    step_timeout: float = 300.0
    """Seconds that a device may take for one step before a server gives it up; 0 waits for ever."""
    artifacts: Path | None = None
    """Folder of compiled artifacts; ``None`` takes the environment's, or the user's cache."""
    require_artifacts: bool = False
    """Whether to refuse to start where something would have to be compiled first."""

    def __post_init__(self) -> None:
        if self.tensor_parallel_size < 1:
            raise ConfigError(f"tensor_parallel_size must be at least 1, not {self.tensor_parallel_size}")
        if self.task not in (None, *get_args(Task)):
            raise ConfigError(f"task {self.task!r} is not known; choose {', '.join(get_args(Task))} (--task)")
        if self.generation_config not in GENERATION_CONFIGS:
            raise ConfigError(
                f"generation_config {self.generation_config!r} is not known; choose {', '.join(GENERATION_CONFIGS)} "
                "(--generation-config)"
            )
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads must be at least 1, not {self.threads} (--threads)")
        if self.itl_target_ms is not None and not self.itl_target_ms > 0:
            raise ConfigError(f"itl_target_ms must be above 0, not {self.itl_target_ms:g} (--itl-target)")
        if self.num_kv_blocks is not None and self.num_kv_blocks < 2:
            raise ConfigError(f"num_kv_blocks must be at least 2 (one is the null block), not {self.num_kv_blocks}")
        if not 0 <= self.step_timeout < float("inf"):
            raise ConfigError(
                f"step_timeout must be a number of seconds, or 0 to wait for ever, not {self.step_timeout:g} "
                "(--step-timeout)"
            )
        if not all(self.served_model_names):
            raise ConfigError("a served model needs a name of at least one character (--served-model-name)")


def flag(setting: str) -> str:
    """The command-line flag of a setting."""
    return "--" + setting.replace("_", "-")


def typed(setting: str, value: object) -> str:
    """A setting's value as a user types it: messages say float32, whatever a graph calls it."""
    return _TYPED.get(str(value), str(value)) if setting in ("dtype", "kv_cache_dtype") else str(value)


def dtype_named(name: str | None, known: Mapping[str, str | None], setting: str) -> str | None:
    """The graph's name of the dtype that a user typed; ``None`` for auto. Raises ConfigError with the known ones."""
    if name is None:
        return None
    if name not in known:
        raise ConfigError(f"{setting} {name!r} is not known; choose {', '.join(known)} ({flag(setting)})")
    return known[name]


UNSUPPORTED: Mapping[str, str] = {
    "api_key": "the server does not authenticate its clients yet",
    "cpu_offload_gb": "weights stay on the device that runs them",
    "data_parallel_size": "one engine serves; start several servers behind a balancer",
    "disable_log_requests": "requests are not logged, so there is nothing to turn off",
    "disable_log_stats": "no statistics are logged, so there is nothing to turn off",
    "distributed_executor_backend": "a model runs on one device",
    "download_dir": "the hub's own cache is used; HF_HOME moves it",
    "enable_auto_tool_choice": "models may always call the tools of a request; --tool-parser none refuses tools",
    "enable_chunked_prefill": "long prompts are always taken in chunks, as --max-num-batched-tokens allows",
    "enable_expert_parallel": "a model runs on one device",
    "enable_lora": "adapters are not built yet",
    "enforce_eager": "no device graphs are captured, so there is nothing to turn off",
    "hf_overrides": "the checkpoint's config.json is used as it is",
    "hf_token": "the hub's client takes it from HF_TOKEN",
    "kv_transfer_config": "the cache does not move between engines yet",
    "limit_mm_per_prompt": "only text is supported",
    "load_format": "safetensors and GGUF are told apart by themselves",
    "lora_modules": "adapters are not built yet",
    "max_logprobs": "--limit logprobs=N says how many alternatives may be asked for, up to 64",
    "num_gpu_blocks_override": "the size of the cache follows from --memory-utilization",
    "override_generation_config": "--generation-config none ignores the checkpoint's; requests say what they want",
    "pipeline_parallel_size": "a model runs on one device",
    "quantization": "weights are served in the format that their checkpoint has",
    "revision": "the hub's default revision is taken; download another one and name its folder",
    "rope_scaling": "the checkpoint's own is used",
    "skip_tokenizer_init": "the tokenizer is always loaded",
    "speculative_config": "speculative decoding is not built yet",
    "speculative_model": "speculative decoding is not built yet",
    "swap_space": "a preempted request is computed again rather than swapped out",
    "tokenizer": "the checkpoint's own tokenizer is used",
    "tokenizer_mode": "the checkpoint's own tokenizer is used",
    "trust_remote_code": "no code from a checkpoint is ever run",
}
"""Settings that people know from other engines and whose feature is not there, each with what is so instead."""

ALREADY_SO = frozenset(
    {
        "disable_log_requests",
        "disable_log_stats",
        "enable_auto_tool_choice",
        "enable_chunked_prefill",
        "enforce_eager",
    }
)
"""Those of them that, switched on, ask for what is so anyway."""

_ASKS_FOR_NOTHING: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(ALREADY_SO, (None, False, True)),
    **dict.fromkeys(("enable_auto_tool_choice", "enable_chunked_prefill"), (None, True)),
    "data_parallel_size": (None, 1),
    "pipeline_parallel_size": (None, 1),
}


def refuse_unsupported(name: str, value: object) -> None:
    """ConfigError for a setting that is not built, unless its value asks for nothing. TypeError for an unknown name."""
    if name not in UNSUPPORTED:
        raise TypeError(f"{name!r} is no setting of Octavo")
    if value not in _ASKS_FOR_NOTHING.get(name, (None, False, "auto")):
        raise ConfigError(f"{name} is not supported: {UNSUPPORTED[name]}")
