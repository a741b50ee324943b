"""A graph in print."""

from __future__ import annotations

from octavo.graph import Builder, Llama3Scaling, RopeSpec, fuse, to_text

GOLDEN = """\
graph tiny dialect 2.0 activations bf16
  kv group 0: full attention, layers 1
  kv group 1: window 6, layers 0
(top):
  v7 = embed(tokens; embed.weight:q4_1; dtype=bf16): bf16[T, 32]
layers.0:
  v8 = rms_norm(v7; norm.weight:f32; eps=1e-06, offset=1): bf16[T, 32]
  v9, v10, v11 = linear(v8; q.weight:bf16, k.weight:bf16, v.weight:bf16, q.bias:bf16, k.bias:bf16, v.bias:bf16; \
bias=True): bf16[T, 32], bf16[T, 16], bf16[T, 16]
  v12, v13 = rope(v9, v10, positions; head_dim=8, interleaved=False, rotary_dim=8, \
scaling={factor=8, high_freq_factor=4, kind=llama3, low_freq_factor=1, original_context=8192}, theta=500000): \
bf16[T, 32], bf16[T, 16]
  v14 = attention(v12, v13, v11, query_starts, context_lens, slots, block_tables; causal=True, head_dim=8, heads=4, \
kv_heads=2, layer=0, scale=0.353553391, window=6): bf16[T, 32]
  v15 = linear(v14; o.weight:bf16; bias=False): bf16[T, 32]
  v16 = add(v7, v15): bf16[T, 32]
layers.1:
  v17 = rms_norm(v16; norm.weight:f32; eps=1e-06, offset=1): bf16[T, 32]
  v18, v19, v20 = linear(v17; q.weight:bf16, k.weight:bf16, v.weight:bf16, q.bias:bf16, k.bias:bf16, v.bias:bf16; \
bias=True): bf16[T, 32], bf16[T, 16], bf16[T, 16]
  v21, v22 = rope(v18, v19, positions; head_dim=8, interleaved=False, rotary_dim=8, \
scaling={factor=8, high_freq_factor=4, kind=llama3, low_freq_factor=1, original_context=8192}, theta=500000): \
bf16[T, 32], bf16[T, 16]
  v23 = attention(v21, v22, v20, query_starts, context_lens, slots, block_tables; causal=True, head_dim=8, heads=4, \
kv_heads=2, layer=1, scale=0.353553391): bf16[T, 32]
  v24 = linear(v23; o.weight:bf16; bias=False): bf16[T, 32]
  v25 = add(v16, v24): bf16[T, 32]
(top):
  v26 = take_rows(v25, sample_rows): bf16[S, 32]
  v27 = linear(v26; embed.weight:q4_1; bias=False): bf16[S, 40]
return logits = v27: bf16[S, 40]
"""


def two_layers() -> Builder:
    g = Builder("tiny", "bf16", lambda w: "q4_1" if w == "embed.weight" else "f32" if "norm" in w else "bf16")
    h = g.embed("embed", vocab=40, width=32)
    rope = RopeSpec(8, 500000.0, Llama3Scaling(8.0, 1.0, 4.0, 8192))
    for i, window in enumerate((6, None)):
        with g.scope(f"layers.{i}"):
            x = g.rms_norm(h, "norm", eps=1e-6, offset=1.0)
            q, k, v = g.linear_split(x, ["q", "k", "v"], [32, 16, 16], bias=True)
            q, k = g.rope(q, k, rope)
            a = g.attention(q, k, v, layer=i, heads=4, kv_heads=2, head_dim=8, scale=8**-0.5, window=window)
            h = g.add(h, g.linear(a, "o", 32))
    g.output("logits", g.linear(g.take_rows(h), "embed", 40))
    return g


def test_a_graph_prints_as_it_was_built() -> None:
    assert to_text(two_layers().build()) == GOLDEN


def test_a_fused_norm_shows_both_inputs_and_outputs() -> None:
    lines = to_text(fuse(two_layers().build())).splitlines()
    assert "  v17, v16 = rms_norm(v7, v15; norm.weight:f32; eps=1e-06, offset=1): bf16[T, 32], bf16[T, 32]" in lines
    assert not any(line.startswith("  v16 =") for line in lines)


def test_long_attributes_are_cut() -> None:
    from octavo.graph import FrequencyFactors

    g = Builder("tiny")
    h = g.embed("e", vocab=4, width=16)
    g.output("q", g.rope(h, h, RopeSpec(16, scaling=FrequencyFactors((1.5,) * 8)))[0])
    assert "scaling={factors=(1.5, … 8 values), kind=factors}" in to_text(g.build())
