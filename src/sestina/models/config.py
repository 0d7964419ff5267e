"""What a user says about a model: where it lies, and its shape, so that a run can be planned where it does not lie."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sestina.core.ranges import Count, CountOrNone, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttentionConfig:
    """Multi-head attention whose heads share keys and values in groups."""

    kind: Literal["grouped"]
    num_heads: Count
    num_kv_heads: Count
    head_size: Count
    qkv_bias: bool
    qk_norm: bool
    """Queries and keys are normalised head by head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttentionConfig:
    """Multi-head latent attention (arXiv 2405.04434, section 2.1): one compressed key and value a token."""

    kind: Literal["latent"]
    num_heads: Count
    query_rank: CountOrNone
    """Width that queries are compressed to; 0: they are not."""
    kv_rank: Count
    nope_size: Count
    """Of a head's query and key, without position."""
    rope_size: Count
    """Of a head's query, and of the one key that all heads share, with position."""
    value_size: Count


AttentionConfig: TypeAlias = GroupedAttentionConfig | LatentAttentionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """A mixture of experts in place of the feed-forward part of layers."""

    num_experts: Count
    top_k: Count
    """Experts that a token is sent to."""
    num_shared: CountOrNone
    """Experts that every token goes through, beside those."""
    ffn_size: Count
    """Of one expert."""
    num_dense_layers: CountOrNone
    """First layers, which have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeConfig:
    """Sizes of a decoder with gated feed-forward layers, as its config.json states them."""

    architecture: Text
    """What Hugging Face calls it."""
    vocab_size: Count
    hidden_size: Count
    num_layers: Count
    ffn_size: Count
    """Of a layer without experts."""
    max_positions: Count
    tied: bool
    """The output layer is the embedding."""
    attention: AttentionConfig
    experts: ExpertsConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The model to train."""

    path: Path
    """Directory with config.json, safetensors and a tokenizer."""
    shape: ShapeConfig | None = None
    """What config.json says, for planning without it; null: it is read."""
