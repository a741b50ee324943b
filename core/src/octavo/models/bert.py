"""BERT and its kin (MiniLM, BGE, E5; RoBERTa, XLM-RoBERTa): encoders whose every token sees the whole text.

Source: Devlin et al. 2019, Liu et al. 2019 (RoBERTa's positions begin after the padding token's), and transformers'
BertModel and RobertaModel. With a classifier of one label they are cross-encoders: they read a question and a text at
once, and say how well the text answers (Nogueira & Cho 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from octavo.errors import CheckpointError
from octavo.graph.builder import Builder, Value
from octavo.graph.ir import Axis
from octavo.models.config import ModelConfig
from octavo.models.config_keys import check_keys
from octavo.models.family import Family
from octavo.models.fields import Fields, shown
from octavo.models.hf_config import activation, layer_count

_DEFAULTS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
}
_ROBERTA_DEFAULTS = {**_DEFAULTS, "vocab_size": 50265, "pad_token_id": 1}
# What the reference does not read: how BERT was pre-trained, and a pooler that embeddings do without.
_HARMLESS = (
    "adapters", "directionality", "gradient_checkpointing", "layer_norm_type", "model_max_length",
    "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
    "tie_encoder_decoder", "tie_word_embeddings", "max_seq_length",
)  # fmt: skip
_CLASSIFIER = "ForSequenceClassification"


def build(config: ModelConfig, g: Builder) -> None:
    """Post-norm encoder: embeddings, layers, and the head of a cross-encoder where there is one."""
    prefix = config.extra["prefix"]
    if not prefix:
        h = _encode(config, g)
    else:
        with g.scope(prefix):
            h = _encode(config, g)
    if config.extra["classifier"]:
        g.output("pooled", _classify(config, g, g.pool(h, "first")))
    else:
        g.output("hidden", h)


def _encode(config: ModelConfig, g: Builder) -> Value:
    width = config.hidden_size
    norm = partial(g.layer_norm, eps=config.norm_eps)
    with g.scope("embeddings"):
        types = g.map_ids(g.tokens, divide=config.vocab_size)
        words = g.map_ids(g.tokens, modulo=config.vocab_size) if config.token_types > 1 else g.tokens
        first = config.extra["first_position"]
        places = g.map_ids(g.positions, add=first) if first else g.positions
        h = g.add(
            g.embed("word_embeddings", vocab=config.vocab_size, width=width, ids=words),
            g.embed("token_type_embeddings", vocab=config.token_types, width=width, ids=types),
        )
        h = g.add(h, g.embed("position_embeddings", vocab=first + config.max_position, width=width, ids=places))
        h = norm(h, "LayerNorm")
    heads = Axis("heads", config.heads)
    for i in range(config.layers):
        with g.scope(f"encoder.layer.{i}", layer=i):
            names = [f"attention.self.{name}" for name in ("query", "key", "value")]
            q, k, v = g.linear_split(
                h,
                names,
                [width] * 3,
                axes=[heads, Axis("kv_heads", config.kv_heads), Axis("kv_heads", config.kv_heads)],
                bias=True,
            )
            a = g.attention(
                q,
                k,
                v,
                layer=i,
                heads=config.heads,
                kv_heads=config.kv_heads,
                head_dim=config.head_dim,
                scale=config.attention_scale,
                causal=False,
            )
            x = g.linear(a, "attention.output.dense", width, axes=("embed", heads), bias=True)
            h = norm(g.add(h, x), "attention.output.LayerNorm")
            x = g.linear(h, "intermediate.dense", config.intermediate_size, axes=("mlp", "embed"), bias=True)
            x = g.linear(g.activation(x, config.activation), "output.dense", width, axes=("embed", "mlp"), bias=True)
            h = norm(g.add(h, x), "output.LayerNorm")
    return h


def _classify(config: ModelConfig, g: Builder, first: Value) -> Value:
    """The first token through a dense layer and tanh, then to one logit: [R, 1]."""
    dense, out = config.extra["classifier"]
    x = g.linear(first, dense, config.hidden_size, axes=("embed", "embed"), bias=True)
    return g.linear(g.softcap(x, 1.0), out, 1, axes=(None, "embed"), bias=True)  # a cap of 1 is tanh


def parse_bert(config: Mapping[str, Any]) -> ModelConfig:
    """BertModel and what was built on it."""
    return _parse("bert", Fields(config, _DEFAULTS), config, ("bert.pooler.dense", "classifier"))


def parse_roberta(config: Mapping[str, Any]) -> ModelConfig:
    """RobertaModel and XLMRobertaModel, and what was built on them."""
    fields = Fields(config, _ROBERTA_DEFAULTS)
    return _parse("roberta", fields, config, ("classifier.dense", "classifier.out_proj"))


def _parse(family: str, fields: Fields, config: Mapping[str, Any], head: tuple[str, str]) -> ModelConfig:
    position = fields.raw("position_embedding_type")
    if position != "absolute":
        raise CheckpointError(
            f"config.json: position_embedding_type {shown(position)} is not supported; known: absolute"
        )
    for name in ("is_decoder", "add_cross_attention"):
        if fields.flag(name):
            raise CheckpointError(f"config.json: {name} is set; only encoders of this architecture are supported")
    architecture = str(next(iter(config.get("architectures") or ()), ""))
    fields.raw("is_causal")  # masks a decoder's text alone
    scores = architecture.endswith(_CLASSIFIER)
    if scores:
        _check_labels(fields)
    layers, heads, hidden = layer_count(fields), fields.integer("num_attention_heads"), fields.integer("hidden_size")
    if heads < 1 or hidden % heads or hidden < heads:
        raise CheckpointError(f"config.json: hidden_size {hidden} is no multiple of num_attention_heads {heads}")
    first = 0 if family == "bert" else _padding_id(fields) + 1
    shape = ModelConfig(
        family=family,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        max_position=fields.integer("max_position_embeddings") - first,
        norm_eps=fields.number("layer_norm_eps"),
        activation=activation(fields),
        tied_embeddings=False,
        ropes=(),
        windows=(None,) * layers,
        attention_scale=float(hidden // heads) ** -0.5,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        token_types=fields.integer("type_vocab_size"),
        causal=False,
        position_pad_id=first - 1 if first else None,
        extra=MappingProxyType({
            "prefix": "" if architecture.endswith("Model") else family,
            "first_position": first,
            "classifier": head if scores else None,
        }),
    )  # fmt: skip
    check_keys(fields, _HARMLESS)
    return shape


def _padding_id(fields: Fields) -> int:
    """The padding token, after whose id positions begin."""
    token = fields.integer("pad_token_id")
    if not 0 <= token < fields.integer("vocab_size"):
        raise CheckpointError(f"config.json: pad_token_id is {token}, which is no id of the vocabulary")
    return token


def _check_labels(fields: Fields) -> None:
    labels = len(fields.mapping("id2label")) or fields.optional_integer("num_labels") or 2
    if labels != 1:
        raise CheckpointError(
            f"config.json: a classifier with {labels} labels is not supported; a cross-encoder, which scores pairs of "
            "texts, has one"
        )


BERT = Family("bert", ("BertModel", "BertForMaskedLM", "BertForSequenceClassification"), parse_bert, build)
ROBERTA = Family(
    "roberta",
    (
        "RobertaModel",
        "RobertaForMaskedLM",
        "RobertaForSequenceClassification",
        "XLMRobertaModel",
        "XLMRobertaForMaskedLM",
        "XLMRobertaForSequenceClassification",
    ),
    parse_roberta,
    build,
)
