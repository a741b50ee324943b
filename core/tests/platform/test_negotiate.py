"""The plan that follows from a declaration: what the user set stands or is refused, and a refusal can be acted on."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config import Settings
from octavo.errors import PlatformError
from octavo.platform import (
    Bucket,
    BucketPolicy,
    Capabilities,
    Limits,
    ModelFacts,
    Plan,
    PlanRequest,
    Unsupported,
    negotiate_by_declaration,
)
from octavo.platform.negotiate import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_NUM_SEQS,
    DEFAULT_MEMORY_UTILIZATION,
    check_plan,
)

MODEL = ModelFacts(
    name="tiny",
    ops=frozenset({"embed", "linear", "attention"}),
    weight_formats=frozenset({"f32", "q4_1"}),
    attention=frozenset({"window"}),
    head_dim=64,
    max_position=4096,
    weight_bytes=1 << 20,
)
ABLE = Capabilities(
    ops=frozenset({"embed", "linear", "attention", "add"}),
    weight_formats=frozenset({"f32", "q4_1"}),
    dtypes=("bf16", "f32"),
    kv_dtypes=("bf16", "int8"),
    block_sizes=(32, 16),
    head_dims=(64, 128),
    attention=frozenset({"window"}),
    ranks=2,
)


def negotiate(
    settings: Settings | None = None,
    limits: Limits | None = None,
    defaults: Settings | None = None,
    *,
    model: ModelFacts = MODEL,
    able: Capabilities = ABLE,
    ranks: int = 1,
) -> Plan | Unsupported:
    return negotiate_by_declaration(
        PlanRequest(model, settings or Settings(), ranks), "acme", able, limits or Limits(), defaults
    )


def planned(*args: Any, **kwargs: Any) -> Plan:
    answer = negotiate(*args, **kwargs)
    assert isinstance(answer, Plan), str(answer)
    return answer


def refused(*args: Any, **kwargs: Any) -> Unsupported:
    answer = negotiate(*args, **kwargs)
    assert isinstance(answer, Unsupported), answer
    return answer


def decided(plan: Plan) -> dict[str, tuple[object, str]]:
    return {d.setting: (d.value, d.by) for d in plan.decisions}


# -- what nobody set ----------------------------------------------------------------------------------------


def test_what_nobody_set_comes_from_the_platform_s_first_choice_the_model_and_core() -> None:
    plan = planned()
    assert (plan.dtype, plan.kv_cache_dtype, plan.block_size) == ("bf16", "bf16", 32)
    assert plan.max_model_len == MODEL.max_position
    assert (plan.max_num_seqs, plan.max_num_batched_tokens) == (DEFAULT_MAX_NUM_SEQS, DEFAULT_MAX_NUM_BATCHED_TOKENS)
    assert plan.memory_utilization == DEFAULT_MEMORY_UTILIZATION
    assert plan.decisions == ()


def test_every_difference_from_the_defaults_is_a_decision_with_its_author() -> None:
    plan = planned(
        None, Limits(max_context=1024, max_rows=8), Settings(max_num_batched_tokens=512, memory_utilization=0.5)
    )
    assert decided(plan) == {
        "max_model_len": (1024, "acme"),
        "max_num_seqs": (8, "acme"),
        "max_num_batched_tokens": (512, "acme"),
        "memory_utilization": (0.5, "acme"),
    }
    [limit] = [d for d in plan.decisions if d.setting == "max_num_seqs"]
    assert str(limit) == "max_num_seqs = 8: its limit; the default is 256 (decided by acme)"


def test_a_preference_gives_way_to_the_limits_and_to_the_model() -> None:
    plan = planned(None, Limits(max_rows=8), Settings(max_num_seqs=64, max_model_len=100_000))
    assert plan.max_num_seqs == 8
    assert plan.max_model_len == MODEL.max_position


def test_the_user_is_preferred_to_the_platform_s_preference() -> None:
    plan = planned(
        Settings(block_size=16, max_num_seqs=4, memory_utilization=0.7),
        None,
        Settings(block_size=32, max_num_seqs=64, memory_utilization=0.5),
    )
    assert (plan.block_size, plan.max_num_seqs, plan.memory_utilization) == (16, 4, 0.7)
    assert plan.decisions == ()


@pytest.mark.parametrize(
    ("limits", "longest"),
    [
        (Limits(max_volume=1000), 992),  # whole blocks of 32
        (Limits(max_volume=1000, max_context=500), 500),
        (Limits(buckets=BucketPolicy(blocks=(4, 8))), 256),
    ],
    ids=["volume", "context below volume", "buckets"],
)
def test_a_sequence_is_no_longer_than_one_row_can_be(limits: Limits, longest: int) -> None:
    assert planned(None, limits).max_model_len == longest
    refusal = refused(Settings(max_model_len=longest + 1), limits)
    assert refusal.knob == "--max-model-len"
    assert refusal.suggestion == f"set at most {longest}"


def test_static_buckets_bound_the_step_without_being_repeated_as_limits() -> None:
    policy = BucketPolicy(tokens=(16, 128), rows=(1, 8), samples=(4,))
    plan = planned(None, Limits(buckets=policy))
    assert (plan.max_num_batched_tokens, plan.max_num_seqs) == (128, 4)
    free = BucketPolicy(explicit=(Bucket(tokens=8), Bucket(rows=4)))
    assert planned(None, Limits(buckets=free)).max_num_batched_tokens == DEFAULT_MAX_NUM_BATCHED_TOKENS


# -- rows and the token budget -----------------------------------------------------------------------------------


def test_rows_that_nobody_set_shrink_to_the_token_budget() -> None:
    plan = planned(Settings(max_num_batched_tokens=100))
    assert plan.max_num_seqs == 100
    assert decided(plan) == {"max_num_seqs": (100, "core")}


def test_a_token_budget_that_nobody_set_grows_to_the_rows() -> None:
    plan = planned(Settings(max_num_seqs=5000))
    assert (plan.max_num_seqs, plan.max_num_batched_tokens) == (5000, 5000)
    assert decided(plan) == {"max_num_batched_tokens": (5000, "core")}


def test_rows_beyond_a_token_budget_that_cannot_grow_are_refused() -> None:
    both = refused(Settings(max_num_seqs=100, max_num_batched_tokens=64))
    assert (both.knob, both.suggestion) == ("--max-num-seqs", "set at most 64")
    limit = refused(Settings(max_num_seqs=100), Limits(max_tokens=64))
    assert (limit.knob, limit.suggestion) == ("--max-num-seqs", "set at most 64")
    assert "acme takes at most 64" in limit.reason


# -- prompts that run whole ----------------------------------------------------------------------------------

WHOLE = replace(MODEL, whole_prompts=True)


def test_the_token_budget_grows_to_the_longest_prompt_or_the_context_shrinks_to_the_budget() -> None:
    grown = planned(model=WHOLE)
    assert (grown.max_model_len, grown.max_num_batched_tokens) == (4096, 4096)
    assert decided(grown) == {"max_num_batched_tokens": (4096, "core")}
    shrunk = planned(Settings(max_num_batched_tokens=300), model=WHOLE)
    assert (shrunk.max_model_len, decided(shrunk)["max_model_len"]) == (300, (300, "core"))
    limited = planned(limits=Limits(max_tokens=512), model=WHOLE)
    assert (limited.max_model_len, limited.max_num_batched_tokens) == (512, 512)


def test_a_context_that_no_step_can_hold_is_refused() -> None:
    both = refused(Settings(max_model_len=400, max_num_batched_tokens=300), model=WHOLE)
    assert (both.knob, both.suggestion) == ("--max-model-len", "set at most 300")
    limit = refused(Settings(max_model_len=400), Limits(max_tokens=300), model=WHOLE)
    assert "acme takes at most 300 tokens in one" in limit.reason


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "limits", "sentence"),
    [
        (
            Settings(dtype="f16"),
            Limits(),
            "dtype float16 is not supported: acme has bfloat16, float32; choose bfloat16, float32 (--dtype)",
        ),
        (
            Settings(kv_cache_dtype="f32"),
            Limits(),
            (
                "kv_cache_dtype float32 is not supported: acme has bfloat16, int8; "
                "choose bfloat16, int8 (--kv-cache-dtype)"
            ),
        ),
        (
            Settings(block_size=48),
            Limits(),
            "block_size 48 is not supported: acme has 32, 16; choose 32, 16 (--block-size)",
        ),
        (
            Settings(max_model_len=2048),
            Limits(max_context=1024),
            "max_model_len 2048 is not supported: acme takes at most 1024; set at most 1024 (--max-model-len)",
        ),
        (
            Settings(max_num_seqs=9),
            Limits(max_rows=8),
            "max_num_seqs 9 is not supported: acme takes at most 8; set at most 8 (--max-num-seqs)",
        ),
        (
            Settings(max_num_batched_tokens=513),
            Limits(max_tokens=512),
            (
                "max_num_batched_tokens 513 is not supported: acme takes at most 512; set at most 512 "
                "(--max-num-batched-tokens)"
            ),
        ),
        (
            Settings(block_size=32),
            Limits(max_volume=31),
            (
                "block_size 32 is not supported: acme takes at most 31 tokens (rows x context) in a step, less than "
                "one block; choose a smaller one (--block-size)"
            ),
        ),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_a_setting_beyond_the_declaration_is_refused_with_its_flag_and_a_cure(
    settings: Settings, limits: Limits, sentence: str
) -> None:
    assert str(refused(settings, limits)) == sentence


@pytest.mark.parametrize(
    ("model", "feature", "reason"),
    [
        (
            {"ops": MODEL.ops | {"softcap", "pool"}},
            "op pool, softcap",
            "tiny needs it and acme has add, attention, embed, linear",
        ),
        ({"weight_formats": frozenset({"q6_k"})}, "weight format q6_k", "tiny needs it and acme has f32, q4_1"),
        ({"attention": frozenset({"sinks"})}, "attention feature sinks", "tiny needs it and acme has window"),
        ({"head_dim": 80}, "head_dim 80", "tiny needs it and acme has 64, 128"),
    ],
    ids=["op", "weight format", "attention", "head_dim"],
)
def test_a_model_that_needs_more_than_was_declared_is_refused(model: dict[str, Any], feature: str, reason: str) -> None:
    refusal = refused(model=replace(MODEL, **model))
    assert (refusal.feature, refusal.reason, refusal.knob) == (feature, reason, "")


def test_more_ranks_than_declared_are_refused() -> None:
    assert isinstance(negotiate(ranks=2), Plan)
    refusal = refused(ranks=3)
    assert (refusal.knob, refusal.suggestion) == ("--tensor-parallel-size", "set at most 2")


def test_a_platform_that_declares_nothing_refuses_every_model() -> None:
    assert refused(able=Capabilities()).feature == "op attention, embed, linear"


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"dtypes": ("fp8",)}, "dtypes has fp8; known are f32, bf16, f16"),
        ({"kv_dtypes": ("int4",)}, "kv_dtypes has int4; known are f32, bf16, f16, int8"),
        ({"attention": frozenset({"telepathy"})}, "attention has telepathy; known are window"),
        ({"block_sizes": ()}, "block_sizes is empty"),
        ({"block_sizes": (0,)}, "block_sizes are (0,); each must be at least 1"),
        ({"ranks": 0}, "ranks is 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_declaration_that_core_cannot_read_is_an_error_where_it_is_made(
    declaration: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlatformError) as caught:
        Capabilities(**declaration)
    assert message in str(caught.value)


# -- for all settings and limits ----------------------------------------------------------------------------------

sizes = st.none() | st.integers(1, 5000)
settings_ = st.builds(
    Settings,
    dtype=st.sampled_from([None, "f32", "bf16", "f16"]),
    kv_cache_dtype=st.sampled_from([None, "bf16", "int8"]),
    block_size=st.sampled_from([None, 16, 32, 48]),
    max_model_len=st.none() | st.integers(1, MODEL.max_position),
    max_num_seqs=sizes,
    max_num_batched_tokens=sizes,
    memory_utilization=st.none() | st.floats(0.1, 1),
)
listed = st.none() | st.lists(st.integers(1, 300), min_size=1, max_size=3).map(tuple)
limits_ = st.builds(
    Limits,
    max_rows=sizes,
    max_tokens=sizes,
    max_context=sizes,
    max_volume=sizes,
    buckets=st.builds(BucketPolicy, tokens=listed, rows=listed, samples=listed, blocks=listed),
)
NAMES = [f.name for f in fields(Settings)]


def as_settings(plan: Plan) -> Settings:
    return Settings(**{name: getattr(plan, name) for name in NAMES})


@given(settings_, limits_, st.none() | settings_, st.sampled_from([MODEL, WHOLE]))
def test_negotiation_is_pure_keeps_what_was_set_and_repeats_its_own_plan(
    asked: Settings, limits: Limits, defaults: Settings | None, model: ModelFacts
) -> None:
    answer = negotiate(asked, limits, defaults, model=model)
    assert answer == negotiate(asked, limits, defaults, model=model)
    if isinstance(answer, Unsupported):
        assert answer.feature
        assert answer.reason
        assert answer.knob.startswith("--")
        assert answer.suggestion
        return
    assert check_plan(answer, asked) is None
    for name in NAMES:
        assert getattr(asked, name) in (None, getattr(answer, name))
    assert all(getattr(asked, decision.setting) is None for decision in answer.decisions)
    assert all(getattr(answer, decision.setting) == decision.value for decision in answer.decisions)
    assert 1 <= answer.max_num_seqs <= min(answer.max_num_batched_tokens, limits.max_rows or 5000)
    assert answer.max_num_batched_tokens <= (limits.max_tokens or 5000)
    assert answer.max_model_len <= min(MODEL.max_position, limits.max_context or 5000, limits.max_volume or 5000)
    assert not model.whole_prompts or answer.max_model_len <= answer.max_num_batched_tokens
    again = planned(as_settings(answer), limits, defaults, model=model)
    assert replace(again, decisions=()) == replace(answer, decisions=())


# -- core's check of a plan -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_that_changes_what_the_user_set_is_caught_whatever_it_was(name: str) -> None:
    plan = planned()
    asked = replace(Settings(), **{name: getattr(plan, name)})
    assert check_plan(plan, asked) is None
    other: Any = "f32" if "dtype" in name else 0.25 if name == "memory_utilization" else 7
    changed = check_plan(plan, replace(Settings(), **{name: other}))
    assert changed is not None
    assert f"{name} = {getattr(plan, name)}" in changed
    assert f"--{name.replace('_', '-')} {other}" in changed


@pytest.mark.parametrize(
    "change",
    [{"block_size": 0}, {"max_model_len": 0}, {"max_num_seqs": 4096}, {"memory_utilization": 1.5}],
    ids=lambda change: next(iter(change)),
)
def test_a_plan_that_cannot_be_run_is_caught(change: dict[str, Any]) -> None:
    problem = check_plan(replace(planned(), **change), Settings())
    assert problem is not None
    assert f"{next(iter(change))} = {next(iter(change.values()))}" in problem
