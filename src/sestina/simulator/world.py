"""A simulated world from a configuration: what its engines hold and take, and what of that nobody has measured."""

from dataclasses import dataclass
from typing import assert_never

from sestina.config.fit import gib
from sestina.config.run import RunConfig
from sestina.config.schema import shown
from sestina.config.sim import CalibratedConfig, DrawnConfig, GpuConfig, LinkConfig, SimConfig
from sestina.core.errors import ConfigError
from sestina.core.units import Seconds
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.models.config import ShapeConfig
from sestina.models.shape import read_shape
from sestina.models.size import kv_values, parameters
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.memory import instance_memory
from sestina.rollout.pages import PAGE_TOKENS
from sestina.simulator.acceptance import Drafting, drafting_of
from sestina.simulator.cost.calibrated import calibrated
from sestina.simulator.cost.moves import MoveCost, transfer_s
from sestina.simulator.cost.roofline import roofline, sharing_of
from sestina.simulator.cost.step import EngineCost
from sestina.simulator.cost.training import TrainingCost
from sestina.simulator.fluid import FluidLimits
from sestina.simulator.resume import SimulatedPool
from sestina.simulator.workload import Workload, workload_of

_ONE_NODE = 8
"""GPUs of a node, where no cluster states it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything that simulations of one configuration share."""

    config: RunConfig
    workload: Workload
    limits: FluidLimits
    page_tokens: int
    cost: EngineCost
    drafting: Drafting
    training: TrainingCost
    weights_s: Seconds
    """Until all instances have new weights; 0 where no network is stated."""
    uncalibrated: tuple[str, ...]
    """Keys whose values are assumed and that results rest on."""
    moves: MoveCost

    def pool(self) -> SimulatedPool | None:
        """Return an empty pool of keys and values, if the run has one."""
        pool, sim = self.config.rollout.kv_pool, self.config.sim
        if not isinstance(pool, LocalKvPoolConfig) or sim is None:
            return None
        sharing = sharing_of(self.config.rollout.engine)
        node = _gpus_per_node(self.config)
        return SimulatedPool(
            config=pool,
            cost=self.moves,
            instance_gpus=sharing.attention,
            instances_per_node=max(1, node // sharing.gpus),
            nodes_per_instance=max(1, sharing.gpus // node),
            reach=sim.kv_reach,
        )


def world_of(config: RunConfig, sim: SimConfig) -> World:
    """Return the world; raises a UserError for what cannot be simulated."""
    _refuse(config)
    shape = config.model.shape or read_shape(config.model.path).planned()
    match sim.hardware:
        case GpuConfig() as gpu:
            return _on_gpus(config, sim, gpu, shape)
        case CalibratedConfig() as measured:
            return _on_measured(config, sim, measured, shape)
        case None:
            raise ConfigError(["sim.hardware: null is not allowed with sim.world 'simulated'; sim/hardware=h800 is"])
        case _:
            assert_never(sim.hardware)


def _refuse(config: RunConfig) -> None:
    pairs = (
        ("run.mode", config.run.mode, "sync"),
        ("draft.servers", config.draft.servers, 0),
        ("rollout.forced_lengths_from", config.rollout.forced_lengths_from, None),
        ("rollout.lengths_from", config.rollout.lengths_from, None),
    )
    wrong = [
        f"{key}: {shown(given)} is not carried by a simulation; {shown(only)} is (sim/workload=recorded takes lengths)"
        for key, given, only in pairs
        if given != only
    ]
    if wrong:
        raise ConfigError(wrong)


def _on_gpus(config: RunConfig, sim: SimConfig, gpu: GpuConfig, shape: ShapeConfig) -> World:
    if config.rollout.engine.device != "cuda":
        raise ConfigError([
            f"sim.hardware.kind: 'gpu' ({gpu.name}) is not allowed with rollout.engine.device "
            f"'{config.rollout.engine.device}'; 'cuda', or sim/hardware=calibrated"
        ])  # fmt: skip
    link, link_key = _link_of(config, gpu)
    kv_tokens = _kv_tokens(config, gpu, shape)
    moves = _moves(config, gpu, shape)
    weights = 2 * parameters(shape).total
    drafting = drafting_of(config, sim)
    return World(
        config=config,
        workload=workload_of(config, sim),
        limits=_limits(config, kv_tokens),
        page_tokens=_page_tokens(config),
        cost=roofline(shape, config.rollout.engine, gpu, link),
        drafting=drafting,
        training=TrainingCost(shape=shape, trainer=config.trainer, rank_flops=gpu.flops * gpu.train_share),
        weights_s=0.0 if gpu.network is None else transfer_s(gpu.network, weights),
        uncalibrated=(*_of_gpu(config, gpu, link_key), *_of_workload(config, sim)),
        moves=moves,
    )


def _on_measured(config: RunConfig, sim: SimConfig, measured: CalibratedConfig, shape: ShapeConfig) -> World:
    cost, flops = calibrated(measured.path, config.model.path, config.rollout.engine)
    nothing = MoveCost(token_bytes=1.0, links={"dram": None, "ssd": None, "network": None})
    return World(
        config=config,
        workload=workload_of(config, sim),
        limits=_limits(config, config.rollout.engine.kv_capacity_tokens),
        page_tokens=_page_tokens(config),
        cost=cost,
        drafting=drafting_of(config, sim),
        training=TrainingCost(shape=shape, trainer=config.trainer, rank_flops=flops),
        weights_s=0.0,
        uncalibrated=("trainer", "weights", *_of_workload(config, sim)),
        moves=nothing,
    )


def _link_of(config: RunConfig, gpu: GpuConfig) -> tuple[LinkConfig | None, str]:
    """Return what connects the GPUs of an instance; refuses a preset that lacks it."""
    gpus, node = sharing_of(config.rollout.engine).gpus, _gpus_per_node(config)
    key = "network" if gpus > node else "link"
    link = gpu.network if gpus > node else gpu.link
    if gpus > 1 and link is None:
        raise ConfigError([
            f"sim.hardware.{key}: null is not allowed with rollout.engine.tensor_parallel {gpus} on nodes of {node} "
            f"GPUs; {gpu.name} needs a {key} for an instance of so many, or 1"
        ])  # fmt: skip
    return (link if gpus > 1 else None), key


def _kv_tokens(config: RunConfig, gpu: GpuConfig, shape: ShapeConfig) -> int:
    cluster, engine = config.cluster, config.rollout.engine
    if cluster is not None and cluster.gpu_memory_gib > gpu.memory_gib:
        raise ConfigError([
            f"cluster.gpu_memory_gib: {cluster.gpu_memory_gib:g} is not allowed with sim.hardware.name {gpu.name!r}, "
            f"which has {gpu.memory_gib:g}; at most that, or other hardware (sim/hardware=h200)"
        ])  # fmt: skip
    memory = instance_memory(shape, engine, int((cluster.gpu_memory_gib if cluster else gpu.memory_gib) * 2**30))
    longest = config.data.max_prompt_tokens + config.rollout.max_new_tokens
    tokens = engine.kv_capacity_tokens or memory.kv_tokens
    if tokens > memory.kv_tokens or memory.replica_tokens < longest:
        raise ConfigError([
            f"rollout.engine: weights take {gib(memory.weights)} GiB of a GPU's {gpu.memory_gib:g}, which leaves "
            f"{gib(max(0, memory.kv_bytes))} GiB for keys and values, room for {memory.kv_tokens} tokens; "
            f"{max(longest, engine.kv_capacity_tokens)} are wanted"
        ])  # fmt: skip
    return tokens


def _limits(config: RunConfig, kv_tokens: int) -> FluidLimits:
    return FluidLimits(kv_capacity_tokens=kv_tokens, max_running=config.rollout.engine.max_running)


def _page_tokens(config: RunConfig) -> int:
    engine = config.rollout.engine
    return engine.page_tokens if isinstance(engine, SGLangEngineConfig) else PAGE_TOKENS


def _moves(config: RunConfig, gpu: GpuConfig, shape: ShapeConfig) -> MoveCost:
    engine = config.rollout.engine
    value, shared = (2 if engine.dtype == "bfloat16" else 4), sharing_of(engine).attention
    return MoveCost(
        token_bytes=value * kv_values(shape) / shared,
        links={"dram": gpu.host, "ssd": gpu.disk, "network": gpu.network},
    )


def _gpus_per_node(config: RunConfig) -> int:
    return _ONE_NODE if config.cluster is None else config.cluster.gpus_per_node


def _of_gpu(config: RunConfig, gpu: GpuConfig, link_key: str) -> tuple[str, ...]:
    terms = ["memory_bytes_s", "flops", "sequence_s", "step_s", "train_share", "network"]
    if sharing_of(config.rollout.engine).gpus > 1:
        terms.append(link_key)
    if config.draft.source != "none":
        terms += ["verify_sequence_s", "draft_token_s"]
    if config.rollout.kv_pool.kind != "none":
        terms += ["host", "disk"]
    return tuple(f"hardware.{term}" for term in dict.fromkeys(terms) if term not in gpu.measured)


def _of_workload(config: RunConfig, sim: SimConfig) -> tuple[str, ...]:
    terms: list[str] = []
    if isinstance(sim.workload, DrawnConfig):
        terms += ["workload.between", "workload.within", "workload.prompt_tokens", "reward_s"]
        terms += ["rollout.expected_tokens"] if config.rollout.expected_tokens is None else []
    return (*terms, "acceptance") if config.draft.source != "none" else tuple(terms)
