"""The clock on native steps: every step is charged while it runs, and none when it is off."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from models.tiny import random_tokens, tiny_checkpoint, tiny_gguf
from test_device import Native

from octavo.models import load_model


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    folder: Path = tmp_path_factory.mktemp("profile")
    tiny_gguf(tiny_checkpoint("llama", folder), folder / "tiny.gguf", quantization="Q8_0")
    return Native(load_model(folder / "tiny.gguf"))


@pytest.mark.parametrize("count", [3, 70, 300])
def test_every_native_step_is_charged_and_the_charges_fit_in_the_time_that_passed(native: Native, count: int) -> None:
    begun = time.perf_counter()
    with native.executable.profile() as profile:
        native.logits(random_tokens(count, seed=1))
    passed = time.perf_counter() - begun
    steps = native.executable.program.steps
    assert [t.step for t in profile.times] == list(range(len(steps) + 1))
    assert all(t.working > 0 for t in profile.times)
    assert all(t.waiting >= 0 for t in profile.times)
    assert sum(t.working + t.waiting for t in profile.times) <= passed


def test_each_profile_begins_at_zero(native: Native) -> None:
    with native.executable.profile() as profile:
        pass
    assert profile.by_kind()
    assert all(t.working == 0 and t.waiting == 0 for t in profile.times)


def test_the_clock_changes_no_bit(native: Native) -> None:
    tokens = random_tokens(20, seed=2)
    with native.executable.profile():
        clocked = native.logits(tokens)
    assert np.array_equal(clocked, native.logits(tokens))


def test_kinds_name_the_matrices_without_their_layer(native: Native) -> None:
    with native.executable.profile() as profile:
        native.logits(random_tokens(5, seed=3))
    kinds = profile.by_kind()
    assert {"linear q_proj k_proj v_proj", "linear down_proj", "attention", "rope, write_kv"} <= set(kinds)
    assert "linear down_proj" in str(profile)
