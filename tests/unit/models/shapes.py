"""Shapes of conf/model, and small ones of every kind."""

from dataclasses import replace
from functools import cache

from sestina.config.load import load
from sestina.models.config import (
    ExpertsConfig,
    GroupedAttentionConfig,
    LatentAttentionConfig,
    ShapeConfig,
)
from tests.unit.config.helpers import FILES, composed

DENSE = ShapeConfig(
    architecture="Qwen2ForCausalLM",
    vocab_size=1000,
    hidden_size=64,
    num_layers=8,
    ffn_size=256,
    max_positions=512,
    tied=False,
    attention=GroupedAttentionConfig(
        kind="grouped", num_heads=8, num_kv_heads=8, head_size=8, qkv_bias=False, qk_norm=False
    ),
)
SPARSE = replace(
    DENSE,
    architecture="DeepseekV3ForCausalLM",
    attention=LatentAttentionConfig(
        kind="latent", num_heads=8, query_rank=0, kv_rank=16, nope_size=8, rope_size=4, value_size=8
    ),
    experts=ExpertsConfig(num_experts=16, top_k=2, num_shared=1, ffn_size=32, num_dense_layers=1),
)


@cache
def shape_of(model: str) -> ShapeConfig:
    """The shape that conf/model has."""
    shape = load(composed(f"model={model}", *FILES)).model.shape
    assert shape is not None
    return shape
