"""What not knowing lengths costs `context`, by how much is begun before anything is known.

An emulation has four groups to an instance, and room for 16 % of what they will need. The same shape is simulated here,
with its 64 groups, with the paper's 600, and with the room that `make reproduce` gives them, 13 %: the less begins
before anything is known, the nearer `context` comes to `oracle`.
"""

import dataclasses
from collections.abc import Iterator

from sestina.bench.asked import stated
from sestina.bench.rollout.workload import QWEN2_VL, Workload
from sestina.bench.turns import Say
from sestina.policies.planner import SchedulerKind
from sestina.reproduction.rollouts import rolled_out
from sestina.reproduction.seer.tasks import TASKS, world_of_task
from sestina.simulator.world import World, world_of
from sestina.telemetry.measurements import Figure

PUBLISHED_GROUPS = 600
ITERATIONS = 3
KNOWING: SchedulerKind = "oracle"
LEARNING: SchedulerKind = "context"


def figures(say: Say, iterations: int = ITERATIONS) -> Iterator[Figure]:
    """Simulate each, and yield what `context` reaches of the oracle's throughput."""
    reproduced = _reproduced(QWEN2_VL)
    worlds = {
        f"{num_groups} groups, KV for {QWEN2_VL.kv_share:.0%}": _scaled(reproduced, QWEN2_VL, num_groups)
        for num_groups in (QWEN2_VL.num_groups, PUBLISHED_GROUPS)
    }
    worlds[f"{PUBLISHED_GROUPS} groups, KV as reproduced"] = reproduced
    for name, world in worlds.items():
        label = f"{QWEN2_VL.name}, simulated, {name}: {LEARNING} over {KNOWING}, throughput"
        say(label)
        knowing, learning = (rolled_out(world, scheduler, iterations) for scheduler in (KNOWING, LEARNING))
        yield stated(f"{label}, {iterations} iterations", knowing.rollout_s / learning.rollout_s, "x")


def _reproduced(workload: Workload) -> World:
    task = next(task for task in TASKS if task.name == workload.name)
    return world_of_task(task, "seer", between=workload.between)


def _scaled(whole: World, workload: Workload, num_groups: int) -> World:
    """Return the same world with other groups, and room for the workload's share of their tokens."""
    config, sim, mean_tokens = whole.config, whole.config.sim, whole.config.rollout.expected_tokens
    assert sim is not None, "a task is composed with sim=simulated"
    assert mean_tokens is not None, "a task has the paper's mean length"
    batch_size = num_groups * workload.group_size
    algorithm = dataclasses.replace(config.algorithm, batch_size=batch_size)
    world = world_of(dataclasses.replace(config, algorithm=algorithm), sim)
    tokens = batch_size * mean_tokens / config.rollout.num_instances
    limits = dataclasses.replace(whole.limits, kv_capacity_tokens=int(workload.kv_share * tokens))
    return dataclasses.replace(world, limits=limits)
