"""How large a model is, in parameters and in bytes of keys and values; pure.

Norms, routers and projections to a latent space are whole on every tensor rank; everything else is shared out.
"""

from dataclasses import dataclass
from typing import assert_never

from sestina.models.config import GroupedAttentionConfig, LatentAttentionConfig, ShapeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of trained values, by how they are shared out."""

    attention: int = 0
    """Shared out over the tensor ranks of attention."""
    dense: int = 0
    """Feed-forward layers without experts, and shared experts."""
    experts: int = 0
    embedding: int = 0
    output: int = 0
    """0 where it is the embedding."""
    whole: int = 0
    """On every rank."""

    def __add__(self, other: "Parameters") -> "Parameters":
        return Parameters(
            attention=self.attention + other.attention,
            dense=self.dense + other.dense,
            experts=self.experts + other.experts,
            embedding=self.embedding + other.embedding,
            output=self.output + other.output,
            whole=self.whole + other.whole,
        )

    @property
    def total(self) -> int:
        """All of them."""
        return self.attention + self.dense + self.experts + self.embedding + self.output + self.whole


def parameters(shape: ShapeConfig, stage: int = 0, num_stages: int = 1) -> Parameters:
    """Count what one of equally many layers' pipeline stages holds; by default, the model."""
    per_stage = -(-shape.num_layers // num_stages)
    first = stage * per_stage
    counted = Parameters()
    for layer in range(first, min(first + per_stage, shape.num_layers)):
        counted += _layer(shape, layer)
    table = shape.vocab_size * shape.hidden_size
    if stage == 0:
        counted += Parameters(embedding=table)
    if stage == num_stages - 1:
        # A stage apart from the embedding's has a copy of tied weights.
        own_output = not shape.tied or num_stages > 1
        counted += Parameters(output=table if own_output else 0, whole=shape.hidden_size)
    return counted


def kv_values(shape: ShapeConfig) -> int:
    """Return how many values a token leaves in the cache of keys and values, over all layers."""
    match shape.attention:
        case GroupedAttentionConfig() as grouped:
            return shape.num_layers * 2 * grouped.num_kv_heads * grouped.head_size
        case LatentAttentionConfig() as latent:
            return shape.num_layers * (latent.kv_rank + latent.rope_size)
        case _:
            assert_never(shape.attention)


def is_sparse(shape: ShapeConfig, layer: int) -> bool:
    """Whether a layer has experts."""
    return shape.experts is not None and layer >= shape.experts.num_dense_layers


def _layer(shape: ShapeConfig, layer: int) -> Parameters:
    norms = Parameters(whole=2 * shape.hidden_size)
    if not is_sparse(shape, layer):
        return _attention(shape) + norms + Parameters(dense=3 * shape.hidden_size * shape.ffn_size)
    experts = shape.experts
    assert experts is not None, "a layer without experts is not sparse"
    each = 3 * shape.hidden_size * experts.ffn_size
    # The router has a weight for each expert and a bias for its balance.
    router = experts.num_experts * (shape.hidden_size + 1)
    sparse = Parameters(experts=experts.num_experts * each, dense=experts.num_shared * each, whole=router)
    return _attention(shape) + norms + sparse


def _attention(shape: ShapeConfig) -> Parameters:
    hidden = shape.hidden_size
    match shape.attention:
        case GroupedAttentionConfig() as grouped:
            query, kv = grouped.num_heads * grouped.head_size, 2 * grouped.num_kv_heads * grouped.head_size
            biases = query + kv if grouped.qkv_bias else 0
            norms = 2 * grouped.head_size if grouped.qk_norm else 0
            return Parameters(attention=hidden * (2 * query + kv) + biases, whole=norms)
        case LatentAttentionConfig() as latent:
            query = latent.num_heads * (latent.nope_size + latent.rope_size)
            kv = latent.num_heads * (latent.nope_size + latent.value_size)
            out = latent.num_heads * latent.value_size * hidden
            # A latent vector is normalised: one weight for each of its values.
            down = latent.query_rank * (hidden + 1) + latent.kv_rank * (hidden + 1) + hidden * latent.rope_size
            up = (latent.query_rank or hidden) * query + latent.kv_rank * kv
            return Parameters(attention=up + out, whole=down)
        case _:
            assert_never(shape.attention)
