"""Static shapes that a test chooses: padding changes nothing."""

from __future__ import annotations

from engine.tiny_engine import alone, engine, greedy, prompt

from octavo.platform import BucketPolicy, Limits


def test_tokens_do_not_depend_on_static_shapes() -> None:
    policy = BucketPolicy(tokens=(8, 32), rows=(2, 8), samples=(8,), blocks=(8, 64))
    limits = Limits(max_rows=8, max_tokens=32, prefill_xor_decode=True, chunk_multiple=4, buckets=policy)
    padded = engine(limits=limits, rows=8, budget=32)
    for i in range(8):
        padded.core.add(f"r{i}", prompt(20 + i, 5 + 4 * i), greedy())
    padded.finish()
    for i in range(8):
        assert padded.tokens(f"r{i}") == alone(prompt(20 + i, 5 + 4 * i), greedy())
