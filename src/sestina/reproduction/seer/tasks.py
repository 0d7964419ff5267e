"""The workloads of Seer v3 (table 3) as simulated worlds: what the paper states, else veRL's defaults.

All of the paper's GPUs roll out. A pool of 2 TB on each node holds keys and values for every instance (section 5.1); it
is Seer's alone. Engines admit up to 1024 responses and have half of a GPU's memory, weights included, as veRL's
documentation has it. Kimi-K2's weights, of 8 bits, leave no room in half of it: there it is six tenths, the least tenth
with room for the longest response.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from sestina.config.run import RunConfig
from sestina.config.sim import DrawnConfig, SimConfig
from sestina.config.sweep import runs_of
from sestina.models.shape import read_shape
from sestina.reproduction.seer.published import KIMI, MOONLIGHT, QWEN, Published
from sestina.reproduction.seer.replicas import by_replica
from sestina.rollout.memory import instance_memory
from sestina.simulator.residents import FluidLimits
from sestina.simulator.world import World, world_of

CONF = Path("conf")
GPU_BYTES = 80 * 2**30
WITHIN = 0.28
"""Spread of lengths within a group over that between groups. RhymeRL's table 2 (mathematics, 14B) has 20.3 % of prompts
move up among 16 ranking groups from one epoch to the next, ranked by the median of 16 responses; that is what lognormal
lengths of this ratio do. Its other columns come to 0.34 to 0.61. Epochs drift besides, which makes each an upper bound,
and this the tightest."""

System: TypeAlias = Literal["baseline", "seer", "drafting"]
"""veRL; Seer without drafts; Seer with drafts of the group."""

_POOL = (
    "rollout/kv_pool=local",
    "rollout.kv_pool.dram_bytes=2000000000000",
    "rollout.kv_pool.move=always",
    "sim.kv_reach=cluster",
)
_ENGINE = ("rollout.engine.max_running=1024", "rollout.engine.memory_fraction=0.5")
_OVERRIDES: dict[System, tuple[str, ...]] = {
    "baseline": (),
    "seer": _POOL,
    "drafting": (*_POOL, "draft=grouped", "draft.toggle=roofline"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One model's workload."""

    name: str
    group_size: int
    overrides: tuple[str, ...]
    published: Published
    replicas: int = 1
    """Of an instance's attention; several are simulated as instances of their own."""
    eight_bits: bool = False
    """Weights are read in half the time, and leave the rest of a GPU of 80 GiB to keys and values."""


TASKS = (
    Task(
        name="Moonlight",
        group_size=8,
        overrides=("+exp=seer_moonlight", *_ENGINE, "cluster.gpus=64", "cluster.split.rollout=1",
                   "cluster.split.trainer=1", "rollout.num_instances=32", "trainer.num_ranks=32"),
        published=MOONLIGHT,
    ),
    Task(
        name="Qwen2-VL-72B",
        group_size=16,
        overrides=("+exp=seer_qwen72b", *_ENGINE, "cluster.gpus=256", "cluster.split.rollout=1",
                   "cluster.split.trainer=1", "rollout.num_instances=16", "trainer.num_ranks=128"),
        published=QWEN,
    ),
    Task(
        name="Kimi-K2",
        group_size=8,
        # 16-bit weights want larger GPUs to be composed at all; their bandwidth is that of the paper's. 1024 responses
        # for each of 32 replicas of attention.
        overrides=("+exp=seer_kimi_k2", "sim/hardware=h200", "sim.hardware.memory_bytes_s=2.7e12",
                   "rollout.engine.max_running=32768", "rollout.engine.memory_fraction=0.6"),
        published=KIMI,
        replicas=32,
        eight_bits=True,
    ),
)  # fmt: skip


def world_of_task(task: Task, system: System, *, between: float, group_size: int | None = None) -> World:
    """Return a world of which lengths spread by `between`; by default groups are the paper's table's."""
    config = _composed((*task.overrides, *_OVERRIDES[system]))
    sim = config.sim
    assert sim is not None, "a task is composed with sim=simulated"
    assert isinstance(sim.workload, DrawnConfig), "its lengths are drawn"
    workload = dataclasses.replace(sim.workload, between=between, within=WITHIN * between)
    spread = dataclasses.replace(sim, workload=workload)
    algorithm = dataclasses.replace(config.algorithm, group_size=group_size or task.group_size)
    return _world(task, dataclasses.replace(config, sim=spread, algorithm=algorithm), spread)


@cache
def _composed(overrides: tuple[str, ...]) -> RunConfig:
    (config,) = runs_of(["sim=simulated", *overrides, "run.steps=1"], CONF.absolute())
    return config


def _world(task: Task, config: RunConfig, sim: SimConfig) -> World:
    world = world_of(config, sim)
    world = _with_eight_bits(world) if task.eight_bits else world
    return by_replica(world) if task.replicas > 1 else world


def _with_eight_bits(world: World) -> World:
    rollout, cost = world.config.rollout, world.cost
    shape = world.config.model.shape or read_shape(world.config.model.path).planned()
    memory = instance_memory(shape, rollout.engine, GPU_BYTES)
    tokens = memory.replicas * ((memory.kv_bytes + memory.weights // 2) // memory.token_bytes)
    step = dataclasses.replace(cost.step, weights_s=cost.step.weights_s / 2)
    experts = cost.experts and dataclasses.replace(cost.experts, all_s=cost.experts.all_s / 2)
    return dataclasses.replace(
        world,
        limits=FluidLimits(kv_capacity_tokens=tokens, max_running=rollout.engine.max_running),
        cost=dataclasses.replace(cost, step=step, experts=experts),
    )
