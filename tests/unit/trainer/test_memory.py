from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.config.load import load
from sestina.models.size import parameters
from sestina.trainer.memory import trainer_memory
from tests.unit.config.helpers import composed
from tests.unit.models.shapes import DENSE, SPARSE, shape_of

SEER = load(composed("+exp=seer_qwen72b")).trainer
"""Tensor 8, pipeline 4, bfloat16, full recompute, 43,008 tokens."""
ONE = replace(SEER, num_ranks=1, tensor_parallel=1, pipeline_parallel=1, sequence_parallel=False)


def test_by_hand_the_last_stage_of_72_billion_parameters():
    memory = trainer_memory(shape_of("qwen2_5_72b"), SEER)
    attention = 8192 * (2 * 8192 + 2 * 1024) + 8192 + 2 * 1024
    shared_out = 20 * (attention + 3 * 8192 * 29568) + 152_064 * 8192
    held = shared_out // 8 + 20 * 2 * 8192 + 8192
    assert memory.stage == 3
    assert (memory.weights, memory.gradients, memory.optimizer) == (2 * held, 4 * held, 12 * held)
    assert memory.activations == 20 * 43_008 * 8192 * 2 // 8
    assert memory.temporaries == 16 * 43_008 * 152_064 // 8


def test_eighteen_bytes_for_a_parameter_or_six_and_a_share_of_twelve():
    total = parameters(DENSE).total
    alone = trainer_memory(DENSE, replace(ONE, distributed_optimizer=False))
    assert alone.weights + alone.gradients + alone.optimizer == 18 * total
    assert trainer_memory(DENSE, replace(ONE, num_ranks=4)).optimizer == 12 * total // 4
    assert trainer_memory(DENSE, replace(ONE, num_ranks=4, distributed_optimizer=False)).optimizer == 12 * total


def test_in_float32_there_are_no_master_weights():
    memory = trainer_memory(DENSE, replace(ONE, dtype="float32"))
    assert memory.weights + memory.gradients + memory.optimizer == 16 * parameters(DENSE).total


def test_by_hand_all_activations_of_a_layer():
    # Megatron's formula for ungated layers is 18 h + 4 f with 2 h of dropout masks; a gate is 2 f more.
    trainer = replace(ONE, recompute="none", max_micro_batch_tokens=10)
    assert trainer_memory(DENSE, trainer).activations == 8 * 10 * (16 * 64 + 6 * 256)
    assert trainer_memory(DENSE, replace(trainer, recompute="selective")).activations == 8 * 10 * (16 * 64 + 6 * 256)
    assert trainer_memory(DENSE, replace(trainer, recompute="full")).activations == 8 * 10 * 2 * 64


def test_by_hand_the_copies_that_go_to_experts():
    trainer = replace(ONE, recompute="none", max_micro_batch_tokens=10)
    heads, latents = 2 * 8 * (8 + 4 + 8), 2 * 16 + 4
    dense = 4 * 64 + latents + heads + 3 * 256
    sparse = 4 * 64 + latents + heads + 3 * 32 + 2 * (3 * 32 + 2 * 64)
    assert trainer_memory(SPARSE, trainer).activations == 2 * 10 * (dense + 7 * sparse)


def test_the_first_stage_has_as_many_micro_batches_under_way_as_there_are_stages():
    large = replace(ONE, recompute="none", max_micro_batch_tokens=100_000, num_ranks=4, pipeline_parallel=4)
    no_logits = replace(DENSE, vocab_size=1)
    memory = trainer_memory(no_logits, large)
    assert memory.stage == 0
    assert memory.activations == 4 * 2 * 100_000 * (16 * 64 + 6 * 256)


def test_experts_are_shared_out_by_their_own_parallelism():
    trainer = replace(ONE, num_ranks=8, expert_parallel=4, expert_tensor_parallel=2)
    experts, all_of_them = parameters(SPARSE).experts, parameters(SPARSE).total
    weights = trainer_memory(SPARSE, trainer).weights
    assert weights == 2 * (experts // 8 + all_of_them - experts)


SHAPES = st.sampled_from([DENSE, SPARSE])
TRAINERS = st.builds(
    replace,
    st.just(SEER),
    num_ranks=st.just(64),
    tensor_parallel=st.sampled_from([1, 2, 4]),
    pipeline_parallel=st.sampled_from([1, 2, 4]),
    expert_parallel=st.sampled_from([1, 2, 4]),
    sequence_parallel=st.booleans(),
    distributed_optimizer=st.booleans(),
    recompute=st.sampled_from(["none", "selective", "full"]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    max_micro_batch_tokens=st.integers(1, 100_000),
)


@given(SHAPES, TRAINERS)
@pytest.mark.parametrize("change", ["tensor_parallel", "expert_parallel"])
def test_memory_never_grows_with_parallelism(change, shape, trainer):
    more = replace(trainer, **{change: 2 * getattr(trainer, change)})
    assert trainer_memory(shape, more).total <= trainer_memory(shape, trainer).total + 64  # whole bytes


@given(SHAPES, TRAINERS)
def test_memory_grows_with_the_micro_batch_and_falls_with_what_saves_it(shape, trainer):
    def total(**changes):
        return trainer_memory(shape, replace(trainer, **changes)).total

    assert total(max_micro_batch_tokens=trainer.max_micro_batch_tokens + 1) > total()
    assert total(distributed_optimizer=True) <= total(distributed_optimizer=False)
    assert (
        total(dtype="bfloat16", distributed_optimizer=True) <= total(dtype="float32", distributed_optimizer=False) * 1.2
    )
    assert trainer_memory(shape, replace(trainer, recompute="full")).activations < (
        trainer_memory(shape, replace(trainer, recompute="none")).activations
    )
