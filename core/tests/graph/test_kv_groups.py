"""Which layers share a block: groups of equal windows and equal size."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import GraphError
from octavo.graph.ir import assign_kv_groups


def groups_of(windows: list[int | None]) -> dict[int, list[int]]:
    placed: dict[int, list[int]] = {}
    for index, layer in enumerate(assign_kv_groups([(2, 4, w) for w in windows])):
        placed.setdefault(layer.group, []).append(index)
    return placed


@pytest.mark.parametrize(
    ("windows", "groups"),
    [
        ([], {}),
        ([None] * 4, {0: [0, 1, 2, 3]}),
        ([8] * 3, {0: [0, 1, 2]}),
        ([8, None, 8, None], {0: [1, 3], 1: [0, 2]}),
        # Gemma 3: five local layers to a global one, and a remainder: 22 local in groups of 4, the last half empty.
        (
            ([8] * 5 + [None]) * 4 + [8] * 2,
            {0: [5, 11, 17, 23], 1: [0, 1, 2, 3], 2: [4, 6, 7, 8], 3: [9, 10, 12, 13], 4: [14, 15, 16, 18],
             5: [19, 20, 21, 22], 6: [24, 25]},
        ),
        ([None, 8, None, 8, 8], {0: [0, 2], 1: [1, 3], 2: [4]}),
        ([4, 16, None], {0: [2], 1: [0], 2: [1]}),
    ],
    ids=["none", "full", "window", "alternating", "five to one", "unequal", "three kinds"],
)  # fmt: skip
def test_groups(windows: list[int | None], groups: dict[int, list[int]]) -> None:
    assert groups_of(windows) == groups


@given(st.lists(st.none() | st.sampled_from([1, 4, 16]), max_size=24))
def test_every_layer_has_a_place_of_its_own(windows: list[int | None]) -> None:
    layers = assign_kv_groups([(2, 4, w) for w in windows])
    assert [layer.window for layer in layers] == windows
    places = [(layer.group, layer.slot) for layer in layers]
    assert len(set(places)) == len(places)
    size = min(Counter(windows).values(), default=0)
    for group in {g for g, _ in places}:
        members = [layer for layer in layers if layer.group == group]
        assert len({layer.window for layer in members}) == 1
        assert sorted(layer.slot for layer in members) == list(range(len(members)))
        assert len(members) <= size
    # Padding is less than one group a window.
    count = len({g for g, _ in places})
    assert count * size - len(windows) < max(1, len(set(windows)) * size)
    full = [layer.group for layer in layers if layer.window is None]
    assert full == [] or min(full) == 0


def test_layers_must_be_alike() -> None:
    with pytest.raises(GraphError, match="attention layer 2 keeps 2 KV heads of 8, layer 0 2 of 4"):
        assign_kv_groups([(2, 4, None), (2, 4, None), (2, 8, None)])
