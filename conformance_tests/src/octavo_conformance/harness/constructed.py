"""Models with weights set by hand, whose right tokens follow from their prompts alone.

    copy        (`engines.copy_model`)  the token a fixed distance back: one wrong slot, block or position shows
    lookup      the token as far back as the last token says
    induction   the token that followed the last token's previous occurrence: two layers, the second reads the first
    balance     of two tokens the one that was seen less often: one token dropped, doubled or let in shows

Each comes with a function that makes its tokens, and with a margin that no rounding can bridge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from octavo.graph import RopeSpec
from octavo_conformance.harness.engines import VOCAB, aligned
from octavo_conformance.harness.probe import Model, Probe

if TYPE_CHECKING:
    from octavo_conformance.harness.target import Target

HEAD_DIM = 64
MATCH = 8.0
"""Size of a query and of a key in the induction model: a match scores its square, anything else 0."""
BEGIN = VOCAB - 1
"""First token of prompts of the induction model, which must not come again."""


def lookup_model(t: Target, distances: Sequence[int], *, longest: int = 512) -> Model:
    """The next token is the one ``distances[last token]`` before the last token. `looked_up` makes them."""
    spec = RopeSpec(HEAD_DIM, theta=4.0 * longest)
    pairs = [aligned(spec, distance, longest) for distance in distances]
    width = VOCAB + 16  # one-hot token, a constant 1, padding to a multiple of 16
    p = Probe(t, "lookup")
    x = p.rows("embed", _one_hot(width, {VOCAB: 1.0}))
    query, key, value = (np.zeros((HEAD_DIM, width), np.float32) for _ in range(3))
    # A query is scaled so that the keys, which all tokens share, may be those of the first distance.
    size = np.linalg.norm(pairs[0][1])
    for token, (asks, holds) in enumerate(pairs):
        query[:, token] = asks * (np.linalg.norm(holds) / size)
    key[:, VOCAB] = pairs[0][1]
    value[np.arange(VOCAB), np.arange(VOCAB)] = 1
    for name, matrix in (("q", query), ("k", key), ("v", value)):
        p.weight(f"{name}.weight", matrix)
    q, k, v = (p.build.linear(x, name, HEAD_DIM) for name in ("q", "k", "v"))
    q, k = p.build.rope(q, k, spec)
    out = p.build.attention(q, k, v, layer=0, heads=1, kv_heads=1, head_dim=HEAD_DIM, scale=1.0)
    return p.logits(p.build.take_rows(out), np.eye(VOCAB, HEAD_DIM, dtype=np.float32))


def looked_up(prompt: Sequence[int], distances: Sequence[int], count: int) -> list[int]:
    """What a `lookup_model` must make of a prompt longer than every distance."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(tokens[len(tokens) - 1 - distances[tokens[-1]]])
    return tokens[len(prompt) :]


def induction_model(t: Target, *, longest: int = 512) -> Model:
    """The next token is the one that followed the last token before. `induced` makes them.

    Layer 0 writes beside every token the one before it; layer 1 finds, without positions, the places beside which the
    last token was written. Prompts begin with `BEGIN`, and every token is always followed by the same one.
    """
    spec = RopeSpec(HEAD_DIM, theta=4.0 * longest)
    before, constant = VOCAB, 2 * VOCAB
    width = 2 * VOCAB + 16  # one-hot token, one-hot token before it, a constant 1, padding
    p = Probe(t, "induction")
    x = p.rows("embed", _one_hot(width, {constant: 1.0}))
    asks, holds = aligned(spec, 1, longest)
    eye = np.arange(VOCAB)
    maps = {name: np.zeros((HEAD_DIM, width), np.float32) for name in ("0.q", "0.k", "0.v", "1.q", "1.k", "1.v")}
    maps["0.q"][:, constant], maps["0.k"][:, constant] = asks, holds
    maps["0.v"][eye, eye] = 1
    maps["1.q"][eye, eye] = MATCH
    maps["1.k"][eye, before + eye] = MATCH
    maps["1.v"][eye, eye] = 1
    placed = np.zeros((width, HEAD_DIM), np.float32)
    placed[before + eye, eye] = 1
    for name, matrix in (*maps.items(), ("0.o", placed)):
        p.weight(f"{name}.weight", matrix)
    q, k, v = (p.build.linear(x, f"0.{name}", HEAD_DIM) for name in "qkv")
    q, k = p.build.rope(q, k, spec)
    found = p.build.attention(q, k, v, layer=0, heads=1, kv_heads=1, head_dim=HEAD_DIM, scale=1.0)
    x = p.build.add(x, p.build.linear(found, "0.o", width))
    q, k, v = (p.build.linear(x, f"1.{name}", HEAD_DIM) for name in "qkv")
    out = p.build.attention(q, k, v, layer=1, heads=1, kv_heads=1, head_dim=HEAD_DIM, scale=1.0)
    return p.logits(p.build.take_rows(out), np.eye(VOCAB, HEAD_DIM, dtype=np.float32))


def induced(prompt: Sequence[int], count: int) -> list[int]:
    """What an `induction_model` must make of a prompt that has its last token earlier too."""
    after = dict(pairwise(prompt))
    tokens = [prompt[-1]]
    for _ in range(count):
        tokens.append(after[tokens[-1]])
    return tokens[1:]


def balance_model(t: Target, *, longest: int = 512, window: int | None = None) -> Model:
    """The next token is 0 where fewer 0 than 1 were seen (of the last ``window`` tokens), else 1. `balanced` makes
    them.

    Queries are 0, so that all tokens weigh alike; the value of a 0 is 1 and of a 1 is -1. A head adds half of the
    smallest possible difference, so that there are no ties.
    """
    width = VOCAB + 16
    p = Probe(t, "balance")
    x = p.rows("embed", _one_hot(width, {VOCAB: 1.0}))
    maps = {name: np.zeros((HEAD_DIM, width), np.float32) for name in ("q", "k", "v")}
    maps["k"][0, VOCAB] = 1
    maps["v"][0, 0], maps["v"][0, 1], maps["v"][1, VOCAB] = 1, -1, 1
    for name, matrix in maps.items():
        p.weight(f"{name}.weight", matrix)
    q, k, v = (p.build.linear(x, name, HEAD_DIM) for name in maps)
    out = p.build.attention(q, k, v, layer=0, heads=1, kv_heads=1, head_dim=HEAD_DIM, scale=1.0, window=window)
    head = np.full((VOCAB, HEAD_DIM), 0.0, np.float32)
    head[2:, 1] = -4  # the constant: no other token has a chance
    head[1, 0], head[1, 1] = 1, 0.5 / longest
    return p.logits(p.build.take_rows(out), head)


def balanced(prompt: Sequence[int], count: int, window: int | None = None) -> list[int]:
    """What a `balance_model` must make of a prompt of 0 and 1."""
    tokens = list(prompt)
    for _ in range(count):
        seen = tokens if window is None else tokens[-window:]
        tokens.append(0 if seen.count(0) < seen.count(1) else 1)
    return tokens[len(prompt) :]


def windowed_model(t: Target, distance: int, window: int, *, longest: int = 512) -> Model:
    """`engines.copy_model` over all and another over a window, side by side: two groups of KV blocks.

    Tokens are pairs 2 c + b: the next c is that of the token ``distance`` before the last; the next b is that of the
    oldest token within the window, which is found by a query that aims at the one before it. `windowed` makes them.
    """
    spec = RopeSpec(HEAD_DIM, theta=4.0 * longest)
    width = VOCAB + 16
    p = Probe(t, "windowed")
    x = p.rows("embed", _one_hot(width, {VOCAB: 1.0}))
    tokens = np.arange(VOCAB)
    outputs = []
    for layer, (asks, holds) in enumerate(
        (aligned(spec, distance, longest), aligned(spec, window, longest, window=window))
    ):
        query, key, value = (np.zeros((HEAD_DIM, width), np.float32) for _ in range(3))
        query[:, VOCAB], key[:, VOCAB] = asks, holds
        what, weight = ((tokens // 2, 4), (tokens % 2, 1))[layer]
        value[what, tokens] = 1
        head = np.zeros((VOCAB, HEAD_DIM), np.float32)
        head[tokens, what] = weight
        for name, matrix in (("q", query), ("k", key), ("v", value), ("o", head)):
            p.weight(f"{layer}.{name}.weight", matrix)
        q, k, v = (p.build.linear(x, f"{layer}.{name}", HEAD_DIM) for name in "qkv")
        q, k = p.build.rope(q, k, spec)
        mixed = p.build.attention(
            q, k, v, layer=layer, heads=1, kv_heads=1, head_dim=HEAD_DIM, scale=1.0, window=window if layer else None
        )
        outputs.append(p.build.linear(mixed, f"{layer}.o", VOCAB))
    return p.read(p.build.add(*outputs))


def windowed(prompt: Sequence[int], distance: int, window: int, count: int) -> list[int]:
    """What a `windowed_model` must make of a prompt longer than ``distance`` and ``window``."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(tokens[len(tokens) - 1 - distance] // 2 * 2 + tokens[-window] % 2)
    return tokens[len(prompt) :]


def _one_hot(width: int, constants: Mapping[int, float]) -> np.ndarray:
    table = np.zeros((VOCAB, width), np.float32)
    table[np.arange(VOCAB), np.arange(VOCAB)] = 1
    for column, value in constants.items():
        table[:, column] = value
    return table
