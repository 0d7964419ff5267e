from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.models.size import Parameters, kv_values, parameters
from tests.conftest import make_shape
from tests.unit.models.shapes import DENSE, SPARSE, shape_of

PUBLISHED = {
    "r1_distill_1_5b": 1_777_088_000,
    "r1_distill_7b": 7_615_616_512,
    "qwen2_5_7b": 7_615_616_512,
    "r1_distill_14b": 14_770_033_664,
    "qwen2_5_14b": 14_770_033_664,
    "r1_distill_32b": 32_763_876_352,
    "qwen2_5_32b": 32_763_876_352,
    "qwen2_5_72b": 72_706_203_648,
    "qwen3_8b": 8_190_735_360,
    "qwen3_14b": 14_768_307_200,
    "llama3_1_8b": 8_030_261_248,
}
"""Sums over the tensors of the models' own checkpoints."""


@pytest.mark.parametrize("model", PUBLISHED)
def test_parameters_are_counted_to_the_last_one(model):
    assert parameters(shape_of(model)).total == PUBLISHED[model]


@pytest.mark.parametrize(("model", "billions"), [("moonlight", 15.96), ("kimi_k2", 1026.4)])
def test_parameters_of_models_with_experts(model, billions):
    assert parameters(shape_of(model)).total / 1e9 == pytest.approx(billions, rel=1e-3)


@pytest.mark.parametrize("tied", [False, True])
def test_the_count_is_that_of_the_checkpoint(tied):
    shape = make_shape(tied=tied)
    assert parameters(shape.planned()).total == shape.num_parameters


def test_by_hand_72_billion_parameters_are_145_gb_and_a_token_leaves_327_680_bytes():
    shape = shape_of("qwen2_5_72b")
    assert round(2 * parameters(shape).total / 1e9) == 145
    assert 2 * kv_values(shape) == 2 * 80 * 8 * 128 * 2 == 327_680


def test_by_hand_a_token_of_a_latent_cache():
    assert 2 * kv_values(shape_of("moonlight")) == 27 * (512 + 64) * 2 == 31_104
    assert 2 * kv_values(shape_of("kimi_k2")) == 61 * (512 + 64) * 2 == 70_272


def test_by_hand_a_layer_with_experts():
    counted = parameters(replace(SPARSE, num_layers=2))
    assert counted.experts == 16 * 3 * 64 * 32
    assert counted.dense == 3 * 64 * 256 + 3 * 64 * 32
    assert counted.attention == 2 * (64 * 8 * 12 + 16 * 8 * 16 + 8 * 8 * 64)
    # Of each layer the compression with its norm and two norms; once a router with its bias, and the last norm.
    assert counted.whole == 2 * (16 * 65 + 64 * 4 + 2 * 64) + 16 * 65 + 64


@given(st.sampled_from([DENSE, SPARSE]), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_stages_hold_the_model_between_them(shape, stages, tied):
    shape = replace(shape, tied=tied)
    held = sum((parameters(shape, stage, stages) for stage in range(stages)), Parameters())
    copy = shape.vocab_size * shape.hidden_size if tied and stages > 1 else 0
    assert held.total == parameters(shape).total + copy
