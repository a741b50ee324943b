"""The bounds of a step and of a request: settings and the platform's limits, brought together once."""

from __future__ import annotations

from bisect import bisect_left

from octavo.errors import ConfigError, ContextLengthExceeded, RequestError
from octavo.kv import KVManager
from octavo.kv.sizing import longest_sequence
from octavo.platform.buckets import Bucket, BucketSet
from octavo.scheduler.config import SchedulerConfig
from octavo.scheduler.request import Request


class Bounds:
    """What one step may hold, and which requests can ever run.

    Raises ConfigError when the settings leave no step that can make progress, or when a step that
    may be scheduled has no bucket.
    """

    def __init__(self, config: SchedulerConfig, kv: KVManager) -> None:
        limits = config.limits
        self.policy = config.policy
        self.buckets = config.buckets or BucketSet(limits.buckets)
        self.block_size = kv.block_size
        self.tokens = min(config.max_num_batched_tokens, limits.max_tokens or config.max_num_batched_tokens)
        """New tokens in one step."""
        self.context = min(config.max_model_len, limits.max_context or config.max_model_len)
        """Tokens of one sequence."""
        self.whole = config.whole_prompts
        if self.whole and self.context > self.tokens:
            raise ConfigError(
                f"a prompt of {self.context} tokens must run in one step, which has {self.tokens}; lower "
                "--max-model-len or raise --max-num-batched-tokens"
            )
        self.chunk_multiple = limits.chunk_multiple
        self.exclusive = limits.prefill_xor_decode
        self.volume = limits.max_volume
        if self.tokens < self.chunk_multiple:
            raise ConfigError(
                f"a step of {self.tokens} tokens has no room for a prompt chunk, which the platform wants in multiples "
                f"of {self.chunk_multiple}; raise --max-num-batched-tokens to at least {self.chunk_multiple}"
            )
        if self.volume is not None and self.volume < self.block_size:
            raise ConfigError(
                f"the platform's limit of {self.volume} tokens (rows x context) is less than one block of "
                f"{self.block_size}; choose a smaller --block-size"
            )
        # Were there as many decodes as tokens, a running prompt could never get its next chunk.
        decodes = self.tokens if self.exclusive else self.tokens - self.chunk_multiple + 1
        self.row_slots = min(config.max_num_seqs, limits.max_rows or config.max_num_seqs, decodes)
        """Rows in one step, and therefore sequences that run."""
        self.prefill_rows = min(limits.max_prefill_rows or self.row_slots, self.row_slots)
        """Rows with a prompt chunk in one step."""
        blocks = kv.pool.num_blocks - 1
        self._token_sizes = sorted({b.tokens for b in self.buckets.buckets if b.tokens is not None})
        self.longest = longest_sequence(kv.groups, kv.block_size, blocks, self.tokens, self.context)
        """Tokens of the longest sequence that the cache can hold when it is alone; at most ``context``."""
        self.spare_samples = self._prove_buckets()
        """Rows of logits in one step beyond one for each row: what scoring a prompt's tokens may use."""

    def context_limit(self, rows: int) -> int:
        """Tokens that each of ``rows`` rows may have after the step; whole blocks."""
        if self.volume is None:
            return self.context
        return self.volume // rows // self.block_size * self.block_size

    def padded(self, tokens: int) -> int:
        """The tokens that a step of so many runs as."""
        at = bisect_left(self._token_sizes, tokens)
        return self._token_sizes[at] if at < len(self._token_sizes) else tokens

    def largest_steps(self, spare_samples: int) -> list[Bucket]:
        """Steps such that every step that may be scheduled is no larger, in every size, than one of them."""
        blocks = -(-self.context // self.block_size)
        steps: list[Bucket] = []
        for rows in range(self.row_slots, 0, -1):  # fewer rows may have longer contexts
            longest = min(blocks, self.context_limit(rows) // self.block_size) if self.volume else blocks
            if longest == 0 or (steps and longest == steps[-1].blocks):
                continue
            if self.exclusive:
                steps.append(Bucket(rows, rows, rows, longest))
            prefills = min(rows, self.prefill_rows) if self.exclusive else rows
            tokens = min(self.tokens, prefills * longest * self.block_size)
            steps.append(Bucket(tokens, prefills, min(tokens, prefills + spare_samples), longest))
        return steps

    def _prove_buckets(self) -> int:
        """Check that every step has a bucket; returns the most spare samples for which that holds."""
        self.buckets.prove(*self.largest_steps(0))
        sizes = sorted({b.samples for b in self.buckets.buckets if b.samples is not None}, reverse=True)
        rows = self.prefill_rows if self.exclusive else self.row_slots  # of a step that may hold a prompt
        for spare in (self.tokens, *(size - rows for size in sizes if size > rows)):
            if all(self.buckets.covers(step) for step in self.largest_steps(spare)):
                return spare
        return 0

    def check(self, request: Request) -> None:
        """Raise RequestError if the request can never run to its end here.

        Nothing is clamped but to the context, which the client knows: where the cache, or the platform's
        volume, cannot hold the sequence at its full length, the request is refused, rather than ended early.
        A request that passes can always finish: preempting all others leaves it room enough.
        """
        prompt, params = request.prompt_length, request.params
        if prompt == 0:
            raise RequestError("the prompt is empty; it needs at least one token", param="prompt")
        if request.options.priority != 0 and self.policy != "priority":
            raise RequestError(
                f"priority {request.options.priority} has no effect under the {self.policy!r} scheduling policy; "
                "leave it 0, or start the engine with the policy 'priority'",
                param="priority",
            )
        if params.n > self.row_slots:
            raise RequestError(
                f"n is {params.n}, and at most {self.row_slots} sequences can run at the same time; "
                "lower n, or raise --max-num-seqs and --max-num-batched-tokens",
                param="n",
            )
        if request.branches == 0 and prompt > self.context:
            raise ContextLengthExceeded(
                f"the prompt has {prompt} tokens, and the model reads at most {self.context}; shorten it, or "
                "let it be cut (truncate_prompt_tokens)",
                param="prompt",
            )
        if prompt + min(1, request.branches) > self.context:
            # Agents shorten a conversation and try again when they read "prompt is too long" (Anthropic's words, and
            # LangChain's test) or "this model's maximum context length is" (OpenAI's, and LiteLLM's test).
            raise ContextLengthExceeded(
                f"the prompt is too long: this model's maximum context length is {self.context} tokens and the prompt "
                f"has {prompt}, which leaves no room for a new one; shorten the prompt or raise --max-model-len",
                param="prompt",
            )
        # The last token of a sequence is sampled and never computed: it takes no slot.
        slots = max(prompt, min(request.max_length, self.context) - 1)
        advice = "lower max_tokens or shorten the prompt, or start the engine with"
        if slots > self.longest:
            raise ContextLengthExceeded(
                f"the prompt of {prompt} tokens with its output needs {slots} slots of KV cache, and the cache "
                f"holds at most {self.longest} for one sequence; {advice} a larger cache "
                "(--memory-utilization, or num_kv_blocks where that is set)",
                param="max_tokens",
            )
        if self.volume is not None and slots > self.context_limit(1):
            raise ContextLengthExceeded(
                f"the prompt of {prompt} tokens with its output needs a context of {slots} tokens, and the platform "
                f"takes at most {self.context_limit(1)} (its limit on rows x context is {self.volume}); "
                f"{advice} a smaller --max-model-len",
                param="max_tokens",
            )
        if params.prompt_logprobs is not None and self.spare_samples + 1 < min(self.chunk_multiple, prompt):
            raise RequestError(
                f"prompt_logprobs needs {self.chunk_multiple} rows of logits for a prompt chunk, and the largest "
                f"compiled shape has {self.spare_samples + 1} to spare",
                param="prompt_logprobs",
            )
