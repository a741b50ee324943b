"""How many KV blocks an engine gets, and how long a sequence they allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.config import EngineConfig
from octavo.errors import ConfigError
from octavo.kv import KVGroup
from octavo.kv.sizing import longest_sequence, peak_blocks
from octavo.platform import Decision, Plan

_MIB, _GIB = 2**20, 2**30


def size_kv(
    config: EngineConfig, plan: Plan, block_bytes: int, groups: Sequence[KVGroup], budget: int, whole: bool = False
) -> tuple[Plan, int]:
    """The plan and the number of blocks of ``block_bytes``, the null block included, that fit ``budget`` bytes.

    No more than ``max_num_seqs`` sequences of ``max_model_len`` tokens could use; where prompts run ``whole``, and are
    forgotten after their step, no more than one step could. Where not even one such sequence
    fits, a context that nobody set shrinks to what does (the plan says so); one that was set is a ConfigError.
    """
    affordable = max(0, budget // block_bytes)
    if config.num_kv_blocks is not None:
        affordable = min(affordable, config.num_kv_blocks)
    chunk = plan.max_num_batched_tokens
    one = peak_blocks(groups, plan.block_size, plan.max_model_len, chunk)
    if affordable - 1 < one:
        longest = longest_sequence(groups, plan.block_size, affordable - 1, chunk, plan.max_model_len)
        if config.settings.max_model_len is not None or longest < plan.block_size:
            if config.num_kv_blocks is not None and config.num_kv_blocks == affordable:
                raise ConfigError(_too_few(plan, affordable, one, longest))
            raise ConfigError(_too_little(plan, block_bytes, one, budget, longest))
        room = f"{affordable} blocks of {plan.block_size} tokens"
        said = f"--memory-utilization {plan.memory_utilization:g}"
        if config.num_kv_blocks is not None and config.num_kv_blocks == affordable:
            said = f"num_kv_blocks {affordable}"
        why = f"the cache has room for {room} ({said})"
        decision = Decision("max_model_len", longest, "core", why)
        plan = replace(plan, max_model_len=longest, decisions=(*plan.decisions, decision))
        one = peak_blocks(groups, plan.block_size, longest, chunk)
    most = one * plan.max_num_seqs
    if whole:
        most = min(most, len(groups) * (chunk // plan.block_size + plan.max_num_seqs))
    return plan, min(affordable, 1 + most)


def _too_few(plan: Plan, blocks: int, one: int, longest: int) -> str:
    shorter = f"lower --max-model-len to {longest} or less, or " if longest >= plan.block_size else ""
    return (
        f"num_kv_blocks is {blocks}, and one sequence of {plan.max_model_len} tokens needs {one + 1} blocks of "
        f"{plan.block_size} tokens; {shorter}raise num_kv_blocks to {one + 1}, or leave it out"
    )


def _too_little(plan: Plan, block_bytes: int, blocks: int, budget: int, longest: int) -> str:
    shorter = f"lower --max-model-len to {longest} or less, or " if longest >= plan.block_size else ""
    return (
        f"the KV cache has {_amount(max(budget, 0))} at --memory-utilization {plan.memory_utilization:g}, "
        f"and one sequence of {plan.max_model_len} tokens needs {_amount((blocks + 1) * block_bytes)}; "
        f"{shorter}raise --memory-utilization, or free memory"
    )


def _amount(size: int) -> str:
    return f"{size / _GIB:.2f} GiB" if size >= _GIB else f"{size / _MIB:.2f} MiB"
