import dataclasses

import numpy as np
import pytest

from sestina.core.errors import ConfigError
from sestina.policies.events import BatchOffered, GroupSpec, InstanceUp
from sestina.policies.group import EvenScheduler
from sestina.policies.planner import RolloutPlanner
from sestina.reproduction.rollouts import Outcome, mean, rolled_out
from sestina.reproduction.seer.cells import Reproduced, cells_of
from sestina.reproduction.seer.tasks import TASKS, WITHIN, world_of_task
from sestina.reproduction.spread import spread_of
from sestina.simulator.lengths import correlated_lengths
from sestina.simulator.world import world_of

MOONLIGHT, QWEN, KIMI = TASKS


def small(system):
    config = world_of_task(MOONLIGHT, system, between=0.8).config
    algorithm = dataclasses.replace(config.algorithm, batch_size=400)
    rollout = dataclasses.replace(config.rollout, num_instances=4)
    return world_of(dataclasses.replace(config, algorithm=algorithm, rollout=rollout), config.sim)


def outcome(rollout_s, tail_s=1.0):
    return Outcome(rollout_s=rollout_s, tail_s=tail_s, preemptions=2, accepted=1.5, idle=0.25, spread=0.5)


def test_a_known_spread_is_found_again():
    shares = {0.4: {"tail": 0.1}, 0.8: {"tail": 0.3}, 1.2: {"tail": 0.5}}
    assert spread_of({"tail": 0.31}, shares) == 0.8
    assert spread_of({"tail": 0.9}, shares) == 1.2


def test_all_that_is_published_decides_on_a_spread():
    values = {0.4: {"tail": 0.5, "idle": 0.1}, 0.8: {"tail": 0.3, "idle": 0.4}, 1.2: {"tail": 0.6, "idle": 0.0}}
    assert spread_of({"tail": 0.5}, values) == 0.4
    assert spread_of({"tail": 0.5, "idle": 0.4}, values) == 0.8
    assert spread_of({"idle": 0.01}, values) == 0.4, "of what is not there there is no ratio"


@pytest.mark.parametrize("share", [0.0, -1.0, float("nan")])
def test_a_value_without_a_ratio_is_refused(share):
    with pytest.raises(ConfigError, match="tail: .* is not allowed; above 0"):
        spread_of({"tail": share}, {0.4: {"tail": 0.1}})


def test_the_spread_within_groups_is_what_ranks_change_by():
    """RhymeRL, table 2: 20.3 % of prompts move up among 16 ranking groups."""
    lengths = correlated_lengths(
        num_groups=20000, group_size=32, mean_tokens=1e6, max_tokens=10**12, between=1.0, within=WITHIN, seed=1
    )
    before, after = np.median(lengths[:, :16], axis=1), np.median(lengths[:, 16:], axis=1)
    ranks = [16 * np.argsort(np.argsort(medians)) // len(medians) for medians in (before, after)]
    assert np.mean(ranks[1] > ranks[0]) == pytest.approx(0.203, abs=0.01)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_is_what_the_paper_states(task):
    world = world_of_task(task, "baseline", between=0.8)
    groups = world.workload(1)
    prompts, size, gpus, mean_tokens, most = {
        "Moonlight": (400, 8, 32, 22386, 65536),
        "Qwen2-VL-72B": (600, 16, 128, 7615, 40960),
        "Kimi-K2": (800, 8, 256, 38959, 98304),
    }[task.name]
    lengths = np.array([group.lengths for group in groups])
    assert lengths.shape == (prompts, size)
    assert (lengths.mean(), lengths.max()) == (pytest.approx(mean_tokens, rel=1e-3), most)
    rollout = world.config.rollout
    assert rollout.num_instances * rollout.engine.tensor_parallel == gpus
    assert world.pool() is None
    assert world_of_task(task, "seer", between=0.8).pool() is not None
    assert len(world_of_task(task, "seer", between=0.8, group_size=4).workload(1)) == prompts * size // 4


def test_weights_of_eight_bits_leave_more_room_and_are_read_sooner():
    halved, whole = (
        world_of_task(task, "seer", between=0.8) for task in (KIMI, dataclasses.replace(KIMI, eight_bits=False))
    )
    assert halved.cost.step.weights_s == whole.cost.step.weights_s / 2
    assert halved.cost.experts.all_s == whole.cost.experts.all_s / 2
    assert halved.limits.kv_capacity_tokens > 98304 + 2048, "a replica's"


def bound_by(scheduler, *, instances, groups, samples):
    """Return the groups of the requests that each instance is given of one batch."""
    planner = RolloutPlanner(scheduler)
    for number in range(instances):
        planner.handle(InstanceUp(instance=number, kv_capacity_tokens=100, page_tokens=1, max_running=9), now=0.0)
    specs = tuple(GroupSpec(group=n, prompt_tokens=1, num_samples=samples, max_new_tokens=5) for n in range(groups))
    bound = {}
    for command in planner.handle(BatchOffered(batch=0, groups=specs), now=0.0):
        bound.setdefault(command.instance, []).append(command.request.group)
    return bound


def test_the_baseline_spreads_groups_evenly():
    bound = bound_by(EvenScheduler(seed=0), instances=3, groups=6, samples=2)
    assert bound == {0: [0, 0, 3, 3], 1: [1, 1, 4, 4], 2: [2, 2, 5, 5]}


def test_the_replicas_of_an_instance_have_its_requests_in_turn():
    bound = bound_by(EvenScheduler(seed=0, replicas=2), instances=4, groups=4, samples=3)
    assert bound == {0: [0, 0, 2], 1: [0, 2, 2], 2: [1, 1, 3], 3: [1, 3, 3]}


def test_replicas_of_attention_have_their_own_room_and_share_experts():
    apart, whole = (world_of_task(task, "seer", between=0.8) for task in (KIMI, dataclasses.replace(KIMI, replicas=1)))
    assert (whole.config.rollout.num_instances, apart.config.rollout.num_instances) == (8, 256)
    assert apart.limits.kv_capacity_tokens == whole.limits.kv_capacity_tokens // 32
    assert apart.limits.max_running == whole.limits.max_running // 32 == 1024
    one, all_of_them = apart.cost.lines(10, 1.0), whole.cost.lines(320, 1.0)
    assert (one.read_s, one.rows_s) == (pytest.approx(all_of_them.read_s), pytest.approx(all_of_them.rows_s))
    assert one.read_token_s == pytest.approx(32 * all_of_them.read_token_s)
    assert one.rows_token_s == pytest.approx(32 * all_of_them.rows_token_s)
    own_s = 31 * 10 * (6.0e-5 + 2.0e-6)
    assert all_of_them.further_s - one.further_s == pytest.approx(own_s), "an engine's work for sequences of others"


def test_systems_come_in_the_published_order():
    baseline = rolled_out(small("baseline"), "group", 1)
    divided = rolled_out(small("seer"), "divided", 1)
    oracle = rolled_out(small("seer"), "oracle", 1)
    drafting = rolled_out(small("drafting"), "context", 1)
    chunked = (divided.rollout_s, oracle.rollout_s)
    assert baseline.rollout_s > max(chunked) > min(chunked) > drafting.rollout_s
    assert baseline.tail_s > divided.tail_s > oracle.tail_s
    assert (baseline.accepted, drafting.accepted > 1.2) == (1.0, True)
    assert 0 < baseline.tail_s < baseline.rollout_s
    assert 0 <= baseline.idle <= baseline.spread < 1


def test_iterations_are_taken_in_the_mean():
    assert mean([outcome(10.0, 2.0), outcome(20.0, 4.0)]) == outcome(15.0, 3.0)
    assert outcome(10.0, 2.0).tail_share == pytest.approx(0.2)


def test_cells_are_the_baseline_over_a_system_and_scaled_seconds():
    base, fast = outcome(1000.0, 500.0), outcome(500.0, 50.0)
    one = Reproduced(
        task=QWEN, between=0.8, baseline=base, divided=outcome(800.0, 400.0), context=outcome(625.0), drafting=fast,
        sized={8: (base, outcome(400.0)), 16: (base, fast)}, oracle=outcome(600.0),
    )  # fmt: skip
    cells = {(cell.table, cell.row.partition(", ")[2]): cell for cell in cells_of(one)}
    assert cells["figure 8", "veRL, rollout"].error == 0
    assert cells["figure 8", "Seer, rollout"].simulated == pytest.approx(3957 / 2)
    assert cells["table 4", "+ context"].simulated == pytest.approx(1.6)
    assert cells["figure 11", "grouped drafts over none"].simulated == pytest.approx(1.25)
    assert cells["figure 10", "tail, divided"].simulated == pytest.approx(0.8)
    assert {cell.simulated for cell in cells_of(one) if cell.table == "figure 7"} == {2.0, 2.5}
    fitted = {cell.row for cell in cells_of(one) if cell.kind == "fitted"}
    section_2 = {"veRL, preemptions", "veRL, an instance's idle share", "veRL, spread of instances' ends"}
    assert fitted == {f"Qwen2-VL-72B, {row}" for row in ("veRL, rollout", "veRL, tail", *section_2)}
    without = cells_of(dataclasses.replace(one, task=KIMI, oracle=None))
    assert not [cell for cell in without if cell.table == "figure 10"]
