"""Which keys of a config.json a family does not read, and what becomes of them.

A key that is there is one of four things: read by its family; known not to matter (here, or in the list of a family);
known to change the numbers of some model, and then refused by name where it asks for something; or unknown. What is
unknown the reference implementation of the architecture does not read either, so it cannot change the numbers there:
it is told in a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from octavo.errors import CheckpointError
from octavo.models.fields import Fields, shown
from octavo.models.hf_rope import ROPE_KEYS, SERVED_LENGTH

_logger = logging.getLogger(__name__)

# Of transformers' base class, what describes a checkpoint, its training or how to run it in torch.
_DESCRIPTIVE = frozenset({
    "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "architectures", "attention_dropout",
    "attn_implementation", "attention_probs_dropout_prob", "cache_implementation", "chunk_size_feed_forward",
    "classifier_dropout", "dtype", "embd_pdrop", "finetuning_task", "gradient_checkpointing", "hidden_dropout",
    "hidden_dropout_prob", "initializer_range", "label2id", "model_type", "name_or_path", "output_attentions",
    "output_hidden_states", "output_router_logits", "output_past", "resid_pdrop", "return_dict", "tokenizer_class",
    "torch_dtype", "torchscript", "transformers_version", "transformers.js_config", "unsloth_fixed",
    "unsloth_version", "use_bfloat16", "use_cache", "use_flash_attn", "_flash_attn_2_enabled", "tf_legacy_loss",
    "use_return_dict", "problem_type", "task_specific_params", "prefix", "num_labels", "id2label", "auto_map",
    "use_sage_attention", "quantization_bit", "trainable", "training_args", "base_model_prefix",
})  # fmt: skip

# Sampling and generation, which have a file of their own, and ids that prompts and batches are made with.
_GENERATION = frozenset({
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "cls_token_id", "decoder_start_token_id",
    "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id",
    "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "mask_token_id",
    "max_length", "max_new_tokens", "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_return_sequences", "output_scores", "pad_token_id", "remove_invalid_values", "repetition_penalty",
    "return_dict_in_generate", "sep_token_id", "suppress_tokens", "temperature", "top_k", "top_p", "typical_p",
    "unk_token_id", "vocab_size_tokenizer",
})  # fmt: skip

# Read by others than the family: pooling, quantized folders.
_READ_ELSEWHERE = frozenset({
    "compression_config", "is_matryoshka", "matryoshka_dimensions", "quantization_config",
    "sbert_ce_default_activation_function", "sentence_transformers", SERVED_LENGTH,
})  # fmt: skip

_HARMLESS = _DESCRIPTIVE | _GENERATION | _READ_ELSEWHERE

# What changes the numbers of models that have it. A family that honours one reads it.
_MEANINGFUL = frozenset({
    "add_cross_attention", "alibi", "attention_bias", "attention_chunk_size", "attention_k_eq_v",
    "attention_multiplier", "attn_logit_softcapping", "attn_logit_softcap", "attn_temperature_tuning", "clip_qkv",
    "cross_attention_hidden_size", "dim_model_base", "embedding_multiplier", "embedding_size", "embd_scale",
    "final_logit_softcapping", "first_k_dense_replace", "hidden_size_per_layer_input", "is_causal", "is_decoder",
    "is_encoder_decoder", "kv_lora_rank", "layer_scale", "layer_types", "lm_head_bias", "logit_scale", "logits_scaling",
    "logits_soft_cap", "mlp_bias", "mlp_only_layers", "multi_query", "n_routed_experts",
    "no_rope_layer_interval", "no_rope_layers", "num_experts", "num_experts_per_tok", "num_kv_shared_layers",
    "num_local_experts", "parallel_attn", "partial_rotary_factor", "pruned_heads",
    "q_lora_rank", "qk_layernorm", "qk_norm", "query_pre_attn_scalar", "relative_attention", "residual_multiplier",
    "rotary_dim", "rotary_pct", "scale_depth", "scale_emb", "sliding_window", "sliding_window_pattern",
    "tie_encoder_decoder", "use_attention_sinks", "use_bias", "use_bidirectional_attention",
    "use_parallel_residual", "use_qk_norm", "use_qkv_bias", "use_sliding_window", "v_head_dim",
})  # fmt: skip


DECODERS = ("is_decoder", "add_cross_attention", "tie_encoder_decoder")
"""What no decoder of transformers reads."""


def check_keys(fields: Fields, harmless: Collection[str] = (), where: str = "config.json") -> None:
    """Look at every key that was not read.

    ``harmless`` are keys that the family's reference implementation does not use, or that only tell about training.
    Raises CheckpointError for one that changes numbers and asks for something; logs one warning for all others that
    are not known. ``where`` names the object in messages.
    """
    unread = fields.config.keys() - fields.read - _HARMLESS - frozenset(harmless)
    for key in sorted(map(str, unread & _MEANINGFUL)):
        if _asks(fields.config[key]):
            raise CheckpointError(
                f"{where}: {key} is {shown(fields.config[key])}, which is not supported for this architecture, whose "
                "reference implementation does not read it; delete the key if the model was not made with it"
            )
    _warn(where, fields.config, unread - _MEANINGFUL)
    for name in ("rope_scaling", "rope_parameters"):
        parameters = fields.config.get(name)
        if name in fields.read and isinstance(parameters, Mapping):
            for nested in (parameters, *(value for value in parameters.values() if isinstance(value, Mapping))):
                _warn(f"{where}: {name}", nested, nested.keys() - frozenset(ROPE_KEYS))
    if isinstance(fields.config.get("auto_map"), Mapping) and fields.config["auto_map"]:
        _logger.info(
            "%s names code of its own (auto_map), which is never run; the graph of its architecture is used", where
        )


def _warn(where: str, values: Mapping[str, Any], keys: Collection[str]) -> None:
    asking = sorted(str(key)[:80] for key in keys if _asks(values[key]))
    if asking:
        _logger.warning("%s has keys that are not known and are ignored: %s", where, ", ".join(asking))


def _asks(value: Any) -> bool:
    """Whether a value asks for anything: null, false, 0, 1.0 of a multiplier and what is empty do not."""
    return (value is not None and value is not False and value not in (0, 1.0, "", [], {})) or value is True
