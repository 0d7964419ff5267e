import dataclasses

import pytest

from sestina.config.load import load
from sestina.config.sim import LinkConfig
from sestina.policies.drafting.cost import StepCost
from sestina.simulator.cost.moves import MoveCost, transfer_s
from sestina.simulator.cost.roofline import roofline
from sestina.simulator.cost.step import EngineCost, ExpertsCost
from sestina.simulator.cost.training import TrainingCost
from tests.unit.config.helpers import composed

COST = StepCost(
    weights_s=3e-3,
    kv_token_s=2e-8,
    row_s=4e-5,
    row_kv_s=1e-9,
    plain_sequence_s=1e-5,
    verify_sequence_s=3e-5,
    verify_token_s=2e-6,
    draft_token_s=5e-6,
    step_s=1e-3,
    verify_step_s=2e-3,
    draft_step_s=4e-4,
)


def world(*changes, exp="seer_qwen72b"):
    return load(composed("sim=simulated", f"+exp={exp}", *changes))


@pytest.mark.parametrize(("batch", "tokens"), [(1, 100), (64, 50_000), (512, 4_000_000)])
def test_steps_take_what_drafting_foretells(batch, tokens):
    engine = EngineCost(step=COST, prefill_row_kv_s=1e-9, max_step_tokens=1024)
    assert engine.lines(batch, 0).step_s(tokens) == pytest.approx(COST.plain_s(batch, tokens))
    drafted = COST.speculative_s(batch, tokens, drafted=5 * batch, longest=5)
    assert engine.lines(batch, 5).step_s(tokens) == pytest.approx(drafted)


def test_prefill_attends_to_what_is_cached_and_to_itself():
    engine = EngineCost(step=COST, prefill_row_kv_s=1e-9, max_step_tokens=100)
    attended = sum(1000 + row for row in range(250))
    assert engine.prefill_s(250, 1000) == pytest.approx(max(3 * 3e-3, 250 * 4e-5) + attended * 1e-9 + 3 * 1e-3)
    assert engine.prefill_s(0, 1000) == 0


def test_published_constants_of_an_a100_are_met():
    """EfficientRollout's calibration of Qwen2.5-7B: W_T 15.231e9 bytes, C_dense 1.414e10, C_attn 401408."""
    config = world(
        "sim/hardware=a100",
        "model=qwen2_5_7b",
        "rollout.engine.tensor_parallel=1",
        "run.mode=sync",
        exp="areal_7b",
    )
    gpu = config.sim.hardware
    step = roofline(config.model.shape, config.rollout.engine, gpu, None).step
    # The embedding, of which a step reads rows alone, is in W_T.
    embedding = 2 * 152064 * 3584
    assert step.weights_s * gpu.memory_bytes_s == pytest.approx(15.231e9 - embedding, rel=2e-3)
    assert step.row_s * gpu.flops == pytest.approx(1.414e10, rel=1e-3)
    assert step.row_kv_s * gpu.flops == 401408


def test_every_step_reads_an_output_that_is_the_embedding():
    config = world()
    gpu, engine, shape = config.sim.hardware, config.rollout.engine, config.model.shape
    own, tied = (roofline(dataclasses.replace(shape, tied=tied), engine, gpu, gpu.link).step for tied in (False, True))
    assert tied == own


def test_gpus_share_work_and_pay_for_it():
    config = world()
    gpu, shape, engine = config.sim.hardware, config.model.shape, config.rollout.engine
    eight = roofline(shape, engine, gpu, gpu.link)
    free = roofline(shape, engine, gpu, LinkConfig(bytes_s=1e30, latency_s=0))
    one = roofline(shape, dataclasses.replace(engine, tensor_parallel=1), gpu, None)
    # Norms are whole on every GPU.
    assert eight.step.weights_s == pytest.approx(one.step.weights_s / 8, rel=1e-3)
    assert free.step.step_s == one.step.step_s
    assert eight.step.step_s == pytest.approx(one.step.step_s + 160 * gpu.link.latency_s)
    assert eight.step.plain_sequence_s > one.step.plain_sequence_s == free.step.plain_sequence_s


def test_a_batch_touches_more_experts_the_larger_it_is():
    experts = ExpertsCost(all_s=1.0, missed=1 - 8 / 384)
    assert experts.read_s(1) == pytest.approx(8 / 384)
    assert experts.read_s(2000) == pytest.approx(1.0)
    config = world("sim/hardware=h200", exp="seer_kimi_k2")
    cost = roofline(config.model.shape, config.rollout.engine, config.sim.hardware, config.sim.hardware.network)
    assert cost.lines(1, 0).read_s < cost.lines(64, 0).read_s < cost.lines(64, 3).read_s
    # 32 B parameters of a row's 1.03 T are active.
    assert cost.step.row_s * config.sim.hardware.flops * 32 == pytest.approx(2 * 32e9, rel=0.05)


def test_a_transfer_takes_its_latency_and_its_bytes():
    link = LinkConfig(bytes_s=1e9, latency_s=0.5)
    assert transfer_s(link, 2e9) == 2.5
    moves = MoveCost(token_bytes=1e6, links={"dram": link, "ssd": None, "network": link})
    assert moves.kv_s("dram", 1000) == 1.5
    assert moves.kv_s("ssd", 1000) is None


def test_training_grows_with_tokens_and_shrinks_with_ranks():
    config = world()
    cost = TrainingCost(shape=config.model.shape, trainer=config.trainer, rank_flops=1e14)
    lengths = [4000] * 1000
    once = cost.batch_s(lengths)
    assert cost.batch_s(lengths * 2) > 1.8 * once
    assert cost.batch_s([8000] * 500) > once
    # 4 passes and a recomputation of 2 operations a parameter, without attention and idle stages.
    assert once > 5 * 2 * 72.7e9 * 4e6 / (32 * 1e14)
    more = dataclasses.replace(cost, trainer=dataclasses.replace(config.trainer, num_ranks=64))
    assert once / 2 < more.batch_s(lengths) < once
