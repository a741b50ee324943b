"""rope, attention: the ops that know positions and the paged cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.graph.ir import TensorType, WeightSpec
from octavo.graph.ops.spec import Array, Attrs, Call, Case, Floats, OpSpec, Sizes, check, dtype_bytes, elements, number
from octavo.graph.rope import RopeSpec, inverse_frequencies


def _rope_infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
    spec = RopeSpec.from_attrs(attrs)
    fits = 0 < spec.turned <= spec.head_dim and spec.turned % 2 == 0
    check(fits, f"rotary_dim must be even and at most head_dim {spec.head_dim}, not {spec.turned}")
    for x in inputs[:2]:
        check(x.width % spec.head_dim == 0, f"{x} is no whole number of heads of {spec.head_dim}")
    return tuple(inputs[:2])


def _rope(call: Call) -> tuple[Array, ...]:
    spec = RopeSpec.from_attrs(call.attrs)
    # Angles in float64 whatever the call's dtype: position 100,000 leaves float32 two digits of phase.
    angles = call.inputs[2].astype(np.float64)[:, None] * inverse_frequencies(spec)
    cos, sin = (f(angles).astype(call.dtype)[:, None, :] for f in (np.cos, np.sin))
    return tuple(_rotate(call.floats(i), cos, sin, spec) for i in (0, 1))


def _rotate(x: Floats, cos: Floats, sin: Floats, spec: RopeSpec) -> Floats:
    heads = x.reshape(x.shape[0], -1, spec.head_dim)
    turned, kept = heads[..., : spec.turned], heads[..., spec.turned :]
    half = spec.turned // 2
    if spec.interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned[..., :half], turned[..., half:]
    first, second = a * cos - b * sin, b * cos + a * sin
    if spec.interleaved:
        rotated = np.stack([first, second], axis=-1).reshape(turned.shape)
    else:
        rotated = np.concatenate([first, second], axis=-1)
    return np.concatenate([rotated, kept], axis=-1).reshape(x.shape)


def _rope_generate(rng: np.random.Generator, sizes: Sizes) -> Case:
    q, k = (rng.standard_normal((sizes.tokens, heads * 16)) for heads in (4, 2))
    return Case([q, k, rng.integers(0, 5000, sizes.tokens, dtype=np.int32)], [], RopeSpec(16).to_attrs())  # type: ignore[arg-type]


def _attention_infer(
    inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs
) -> tuple[TensorType, ...]:
    heads, kv_heads, dim = (int(number(attrs, n)) for n in ("heads", "kv_heads", "head_dim"))
    check(kv_heads > 0 and heads % kv_heads == 0, f"{heads} heads cannot share {kv_heads} KV heads evenly")
    for name, x, count in zip("qkv", inputs, (heads, kv_heads, kv_heads), strict=False):
        check(x.width == count * dim, f"{name} is {x}, not {count} heads of {dim}")
    window = attrs.get("window")
    check(window is None or (isinstance(window, int) and window > 0), f"window must be positive, not {window!r}")
    check(all(w.shape == (heads,) for w in weights), "sinks must have one logit per head")
    for name in ("layer", "scale"):
        number(attrs, name)
    return (inputs[0],)


def _attention(call: Call) -> tuple[Array, ...]:
    assert call.kv is not None, "attention needs a cache"
    spec, keys, values = call.kv.layer(call.integer("layer"))
    q, k, v = (call.floats(i) for i in range(3))
    starts, lens, slots, tables = (a.astype(np.int64) for a in call.inputs[3:7])
    _write(keys, k, slots[spec.group])
    _write(values, v, slots[spec.group])
    out = np.zeros_like(q)
    for row, context in enumerate(lens.tolist()):
        start, end = starts[row : row + 2].tolist()
        if end > start:
            low = _first_seen(call.attrs, context - (end - start))
            table = tables[spec.group, row]
            seen_keys, seen_values = (_gather(x, table, low, context, call.kv.block_size) for x in (keys, values))
            out[start:end] = _attend(call, q[start:end], seen_keys, seen_values, context)
    return (out,)


def _first_seen(attrs: Attrs, position: int) -> int:
    """The first position that the query at ``position`` sees."""
    window = attrs.get("window")
    return max(0, position - window + 1) if isinstance(window, int) else 0


def _write(cache: Floats, x: Floats, slots: Array) -> None:
    kept = slots >= 0
    block, offset = np.divmod(slots[kept], cache.shape[1])
    cache[block, offset] = x.reshape(x.shape[0], *cache.shape[2:])[kept]


def _gather(cache: Floats, table: Array, low: int, high: int, block_size: int) -> Floats:
    """Positions low … high - 1 of one sequence, [high - low, kv_heads, head_dim]."""
    first = low // block_size
    blocks = table[first : -(-high // block_size)]
    positions: Floats = cache[blocks].reshape(-1, *cache.shape[2:])
    return positions[low - first * block_size : high - first * block_size]


def _attend(call: Call, q: Floats, keys: Floats, values: Floats, context: int) -> Floats:
    """Softmax attention of one row: ``q`` and ``keys`` are those of the last of ``context`` positions."""
    count, (length, kv_heads, dim) = q.shape[0], keys.shape
    shared = call.integer("heads") // kv_heads
    queries = q.reshape(count, kv_heads, shared, dim).transpose(1, 2, 0, 3).reshape(kv_heads, shared * count, dim)
    scores = np.matmul(queries, keys.transpose(1, 2, 0)) * np.asarray(call.number("scale"), q.dtype)
    if call.attrs.get("softcap") is not None:
        cap = call.number("softcap")
        scores = cap * np.tanh(scores / cap)
    scores = scores.reshape(kv_heads, shared, count, -1)
    query_at = np.arange(context - count, context)[:, None]
    key_at = np.arange(context - length, context)[None, :]
    seen = np.ones((count, length), bool)
    if call.attrs.get("causal", True):
        seen &= key_at <= query_at
    if call.attrs.get("window") is not None:
        seen &= key_at > query_at - call.integer("window")
    if not seen.all():
        scores = np.where(seen, scores, -np.inf)
    peak = scores.max(-1, keepdims=True)
    sinks = call.weights[0].reshape(kv_heads, shared, 1, 1).astype(q.dtype) if call.weights else None
    if sinks is not None:
        peak = np.maximum(peak, sinks)
    weights = np.exp(scores - peak)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - peak)
    mixed = np.matmul((weights / total).reshape(kv_heads, shared * count, -1), values.transpose(1, 0, 2))
    heads: Floats = mixed.reshape(kv_heads, shared, count, dim).transpose(2, 0, 1, 3)
    return heads.reshape(q.shape)


def _attention_operations(
    inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs, sizes: Sizes
) -> float:
    return 4.0 * elements(inputs[0], sizes) * _seen(attrs, sizes)


def _seen(attrs: Attrs, sizes: Sizes) -> float:
    """Mean positions a query sees: its row's context less half of the row's new tokens, within the window."""
    chunk = sizes.tokens / max(sizes.rows, 1)
    seen = sizes.context - (chunk - 1) / 2 if attrs.get("causal", True) else sizes.context
    window = attrs.get("window")
    return min(seen, float(window)) if isinstance(window, int) else seen


def _attention_kv_bytes(
    inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs, sizes: Sizes
) -> float:
    """Each row's visible context once, its new tokens once more, keys and values."""
    per_token = 2 * inputs[1].width * dtype_bytes(inputs[1].dtype)
    window = attrs.get("window")
    context = sizes.context
    if isinstance(window, int):
        context = min(context, window + sizes.tokens / max(sizes.rows, 1))
    return per_token * (sizes.rows * context + sizes.tokens)


def _attention_generate(rng: np.random.Generator, sizes: Sizes) -> Case:
    """Rows of even length over shuffled blocks of 4 tokens; each with a cached context of 6 tokens before it."""
    heads, kv_heads, dim, block, before = 4, 2, 8, 4, 6
    starts = np.linspace(0, sizes.tokens, sizes.rows + 1).astype(np.int32)
    lens = (np.diff(starts) + before).astype(np.int32)
    width = int(-(-lens.max() // block))
    tables = rng.permutation(np.arange(1, sizes.rows * width + 1, dtype=np.int32)).reshape(1, sizes.rows, width)
    slots = np.concatenate([
        tables[0, r, p // block] * block + p % block
        for r in range(sizes.rows)
        for p in [np.arange(before, lens[r])]
    ]).astype(np.int32)  # fmt: skip
    q, k, v = (rng.standard_normal((sizes.tokens, n * dim)) for n in (heads, kv_heads, kv_heads))
    attrs: dict[str, float | int | bool] = {
        "layer": 0, "heads": heads, "kv_heads": kv_heads, "head_dim": dim, "scale": dim**-0.5, "window": 5,
        "causal": True,
    }  # fmt: skip
    return Case([q, k, v, starts, lens, slots[None], tables], [], attrs)


ROPE = OpSpec(
    "rope",
    "(q[T, Hq*D], k[T, Hk*D], positions i32[T]; head_dim, theta, rotary_dim, interleaved, scaling?) -> q, k",
    _rope_infer,
    _rope,
    lambda inputs, w, a, sizes: 3.0 * (elements(inputs[0], sizes) + elements(inputs[1], sizes)),
    _rope_generate,
)
ATTENTION = OpSpec(
    "attention",
    "(q[T, Hq*D], k[T, Hk*D], v[T, Hk*D], query_starts[R+1], context_lens[R], slots[G, T], block_tables[G, R, B]; "
    "sinks[Hq]?; layer, heads, kv_heads, head_dim, scale, window?, softcap?, causal) -> [T, Hq*D]    "
    "writes k, v at the slots first",
    _attention_infer,
    _attention,
    _attention_operations,
    _attention_generate,
    kv_bytes=_attention_kv_bytes,
)
