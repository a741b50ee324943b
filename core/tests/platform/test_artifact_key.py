"""Artifact keys: every fact that counts makes another artifact, and nothing else does."""

from __future__ import annotations

import os
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from artifacts.samples import KEY, Builder, script, store
from graph.decoders import Shape, decoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.graph import fuse, specialise
from octavo.platform import ArtifactKey, Bucket, KVLayout, Verdict
from octavo.platform.artifacts import judge

OTHER: dict[str, Any] = {
    "kind": "packed weights",
    "platform": "acme2",
    "device": "A2",
    "compiler": "acme-cc 4.2",
    "graph": "c0ffef",
    "dialect": "1.1",
    "formats": ("f32", "q4_0"),
    "bucket": Bucket(8, 2, 2, 8),
    "layout": KVLayout(16, 2, 4, 64, "f32"),
    "mesh": (1, 2),
    "checkpoint": "feef",
    "options": {"opt": "3"},
    "abi": "runtime 4",
}
SUBTLE: list[dict[str, Any]] = [
    {"bucket": None},
    {"bucket": Bucket(8, 2, 4, 2)},
    {"layout": None},
    {"layout": KVLayout(32, 2, 4, 64, "bf16")},
    {"layout": KVLayout(16, 4, 2, 64, "bf16")},
    {"mesh": (0, 4)},
    {"options": {}},
    {"options": {"opt": "2", "fast": "1"}},
    {"options": {"2": "opt"}},
    {"formats": ()},
    {"formats": ("f32", "q8", "_0")},
    {"abi": ""},
    {"checkpoint": "", "graph": "c0ffeefeed"},
]


def test_the_cases_below_cover_every_field() -> None:
    assert set(OTHER) == {field.name for field in fields(ArtifactKey)}


@pytest.mark.parametrize("name", OTHER)
def test_each_field_alone_makes_another_artifact(name: str, tmp_path: Path) -> None:
    other = replace(KEY, **{name: OTHER[name]})
    assert other.id != KEY.id
    one, two = Builder(1), Builder(2)
    where = store(tmp_path)
    one.check(where.open(KEY, one))
    if name == "compiler":
        other = replace(other, abi="")
    two.check(where.open(other, two))
    one.check(where.open(KEY, one))
    assert (one.calls, two.calls) == (1, 1)


def test_no_two_of_many_similar_keys_share_an_id() -> None:
    keys = [KEY, *(replace(KEY, **{n: v}) for n, v in OTHER.items()), *(replace(KEY, **change) for change in SUBTLE)]
    assert len({key.id for key in keys}) == len(keys)


def test_the_order_of_options_does_not_count() -> None:
    one, two = ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    assert replace(KEY, options=one).id == replace(KEY, options=two).id


def test_neither_path_nor_time_nor_environment_nor_process_counts(tmp_path: Path) -> None:
    """A process elsewhere, with another environment and hash seed, finds what this one made, and moved."""
    Builder().check(store(tmp_path / "here").open(KEY, Builder()))
    (tmp_path / "here").rename(tmp_path / "there")
    code = f"""
        found = store(Path({str(tmp_path / "there")!r})).open(KEY, Builder())
        Builder().check(found)
        print(found.made)
    """
    noise = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "HOSTNAME": "elsewhere",
        "TZ": "Asia/Tokyo",
        "ACME_DEBUG": "1",
        "USER": "x",
    }
    done = subprocess.run(script(code), env=noise, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr


def test_the_key_of_a_graph_follows_its_meaning_and_not_its_names() -> None:
    def key(shape: Shape, **options: Any) -> ArtifactKey:
        facts: dict[str, Any] = {"kind": "program", "platform": "acme", "device": "A1", "compiler": "1", **options}
        return ArtifactKey.for_graph(fuse(decoder(shape)), **facts)

    one, two = Shape(windows=(None,)), Shape(windows=(4,))
    assert key(one) == key(one)
    assert key(one).id != key(two).id
    assert (key(one).dialect, key(one).formats) == (decoder(one).dialect, ("f32",))
    bound = ArtifactKey.for_graph(
        specialise(decoder(one), {"T": 8}), kind="program", platform="acme", device="A1", compiler="1"
    )
    assert bound.id != key(one).id


# -- verdicts ---------------------------------------------------------------------------------------------------


def test_only_a_compiler_that_promises_the_same_runtime_makes_an_artifact_stale() -> None:
    newer = replace(KEY, compiler="acme-cc 4.2")
    assert judge(KEY, KEY) is Verdict.GOOD
    assert judge(KEY, newer) is judge(newer, KEY) is Verdict.STALE
    assert judge(replace(KEY, abi=""), replace(newer, abi="")) is Verdict.INCOMPATIBLE


@pytest.mark.parametrize("name", [name for name in OTHER if name != "compiler"])
def test_any_other_difference_makes_it_incompatible(name: str) -> None:
    changed = replace(KEY, **{name: OTHER[name]})
    assert judge(KEY, changed) is Verdict.INCOMPATIBLE
    assert judge(KEY, replace(changed, compiler="acme-cc 4.2")) is Verdict.INCOMPATIBLE
    [difference] = KEY.differences(changed)
    assert difference.startswith(name)


# -- as JSON ----------------------------------------------------------------------------------------------------


def test_a_key_comes_back_from_json_values() -> None:
    for key in (KEY, replace(KEY, bucket=None, layout=None, options={}), replace(KEY, bucket=Bucket())):
        assert ArtifactKey.from_dict(key.to_dict()) == key


@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("value", [None, 3, [{}], {"a": 1}])
def test_a_value_of_the_wrong_kind_is_no_key(name: str, value: object) -> None:
    raw = {**KEY.to_dict(), name: value}
    if (name, value) in (("bucket", None), ("layout", None)):
        assert ArtifactKey.from_dict(raw)
    else:
        with pytest.raises(ValueError, match="no artifact key"):
            ArtifactKey.from_dict(raw)


def test_a_field_too_few_or_too_many_is_no_key() -> None:
    for name in OTHER:
        with pytest.raises(ValueError, match="no artifact key"):
            ArtifactKey.from_dict({n: v for n, v in KEY.to_dict().items() if n != name})
    with pytest.raises(ValueError, match="no artifact key"):
        ArtifactKey.from_dict({**KEY.to_dict(), "host": "here"})


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from([*OTHER, "else"]), st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers()))
    )
)
def test_no_json_makes_the_reader_fail_in_another_way(changes: dict[str, Any]) -> None:
    try:
        key = ArtifactKey.from_dict({**KEY.to_dict(), **changes})
    except ValueError:
        return
    assert ArtifactKey.from_dict(key.to_dict()).id == key.id


def test_people_can_read_what_a_key_is_for() -> None:
    assert str(KEY) == "program of acme (A1) for 8 tokens, 2 rows, 2 samples, 4 blocks of rank 0 of 2"
    assert str(replace(KEY, kind="packed weights", bucket=None, mesh=(0, 1))) == "packed weights of acme (A1)"
