"""Capability tokens: what a check requires, in the words of `octavo.platform.Capabilities`.

op:rms_norm            an op of the dialect
attention:window       a feature of its attention
format:q4_k            a weight format
dtype:bf16             an activation dtype
kv:int8                an element type of the KV cache
block_size:32          tokens per KV block
head_dim:80            a head size
ranks:2                devices that one model spans
sampling               executables that sample
targets                compiling, or packing, where no device is
"""

from __future__ import annotations

from octavo.platform import Capabilities

KINDS = ("op", "attention", "format", "dtype", "kv", "block_size", "head_dim", "ranks", "sampling", "targets")


def split(token: str) -> tuple[str, str]:
    """("op", "rms_norm") of "op:rms_norm". Raises ValueError for a kind that there is not."""
    kind, _, value = token.partition(":")
    if kind not in KINDS or (kind not in ("sampling", "targets") and not value):
        raise ValueError(f"there is no capability {token!r}; kinds are {', '.join(KINDS)}")
    return kind, value


def declares(capabilities: Capabilities, token: str) -> bool:
    """Whether a platform says it can."""
    kind, value = split(token)
    match kind:
        case "op":
            return value in capabilities.ops
        case "attention":
            return value in capabilities.attention
        case "format":
            return value in capabilities.weight_formats
        case "dtype":
            return value in capabilities.dtypes
        case "kv":
            return value in capabilities.kv_dtypes
        case "block_size":
            return int(value) in capabilities.block_sizes
        case "head_dim":
            return capabilities.head_dims is None or int(value) in capabilities.head_dims
        case "ranks":
            return capabilities.ranks >= int(value)
        case "targets":
            return bool(capabilities.targets)
        case _:
            return capabilities.sampling


def missing(capabilities: Capabilities, tokens: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``tokens`` that are not declared."""
    return tuple(token for token in tokens if not declares(capabilities, token))
